//! Bodies that one stream is writing, for other streams to write too (D8).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tracing::warn;
use xds_session::{Contents, Entries, Entry, Form};

use crate::grpc::encode::Body;

/// Finds the body of contents that another stream is writing, or makes it. Keeps no body alive.
#[derive(Debug)]
pub(crate) struct Bodies {
    identifier: Box<str>,
    state: Mutex<KnownBodies>,
}

#[derive(Debug, Default)]
struct KnownBodies {
    bodies: HashMap<[u8; 32], Weak<Body>>,
    /// At this many entries the dead ones are swept out.
    sweep_at: usize,
}

impl Bodies {
    /// Bodies of the instance that has this name.
    pub(crate) fn new(identifier: &str) -> Self {
        Self { identifier: identifier.into(), state: Mutex::default() }
    }

    /// The body of a whole table, if a stream is writing it. The cost does not depend on the size of the table.
    pub(crate) fn of_table(&self, contents: &Contents) -> Option<Arc<Body>> {
        match contents.entries {
            Entries::Table(_) => self.lock().bodies.get(&key(contents)).and_then(Weak::upgrade),
            Entries::Listed(_) => None,
        }
    }

    /// The body of `contents`.
    pub(crate) fn encode(&self, contents: &Contents) -> Arc<Body> {
        let key = key(contents);
        if let Some(body) = self.lock().bodies.get(&key).and_then(Weak::upgrade) {
            return body;
        }
        // Made without the lock: two streams that come at once may both make it, which costs less than waiting.
        let body = Arc::new(Body::new(contents, &self.identifier));
        if body.len() > COMMON_RECEIVE_LIMIT {
            let (type_url, n_bytes) = (contents.resource_type.type_url(), body.len());
            warn!(type_url, n_bytes, "a response is larger than what gRPC clients accept by default (4 MiB)");
        }
        let mut state = self.lock();
        if state.bodies.len() >= state.sweep_at.max(MIN_SWEEP) {
            state.bodies.retain(|_, body| body.strong_count() > 0);
            if state.bodies.len() >= MAX_BODIES {
                state.bodies.clear();
            }
            state.sweep_at = state.bodies.len() * 2;
        }
        state.bodies.insert(key, Arc::downgrade(&body));
        body
    }

    fn lock(&self) -> MutexGuard<'_, KnownBodies> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many entries there may be before the dead ones are looked for.
const MIN_SWEEP: usize = 64;
/// The most bodies that are remembered. Beyond it, sharing starts anew.
const MAX_BODIES: usize = 16_384;
/// The largest message that gRPC clients receive by default (pitfall 58).
const COMMON_RECEIVE_LIMIT: usize = 4 * 1024 * 1024;

/// A hash of everything that determines the bytes. Clients choose names in it, so it must resist forgery.
fn key(contents: &Contents) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut put = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    put(contents.resource_type.type_url().as_bytes());
    put(contents.version_info.as_bytes());
    put(match contents.form {
        Form::Sotw => b"sotw",
        Form::SotwWrapped => b"wrapped",
        Form::Delta { with_ttl: false } => b"delta",
        Form::Delta { with_ttl: true } => b"delta with ttl",
    });
    match &contents.entries {
        Entries::Table(table) => put(table.version().to_string().as_bytes()),
        Entries::Listed(entries) => {
            for entry in entries {
                let (kind, name, version): (&[u8], _, _) = match entry {
                    Entry::Full(resource) => (b"full", resource.name(), Some(resource.version())),
                    Entry::Heartbeat(resource) => (b"heartbeat", resource.name(), Some(resource.version())),
                    Entry::Unpopulated(name) => (b"unpopulated", name, None),
                };
                put(kind);
                put(name.as_bytes());
                put(version.map(|version| version.to_string()).unwrap_or_default().as_bytes());
            }
        }
    }
    put(b"removed");
    contents.removed.iter().for_each(|name| put(name.as_bytes()));
    put(b"not found");
    contents.not_found.iter().for_each(|name| put(name.as_bytes()));
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use xds_cache::{Resource, ResourceType, TypeTable};

    use super::*;

    fn contents(version: &str) -> Contents {
        let resource = Arc::new(Resource::plain(ResourceType::Cluster, "a", b"content".as_slice()));
        Contents {
            resource_type: ResourceType::Cluster,
            version_info: version.into(),
            form: Form::Sotw,
            entries: Entries::Table(Arc::new(TypeTable::new(vec![resource]))),
            removed: vec![],
            not_found: vec![],
        }
    }

    #[test]
    fn equal_contents_share_a_body_while_somebody_holds_it() {
        let bodies = Bodies::new("me");
        let first = bodies.encode(&contents("v1"));
        assert!(Arc::ptr_eq(&first, &bodies.encode(&contents("v1"))));
        let weak = Arc::downgrade(&first);
        drop(first);
        assert!(weak.upgrade().is_none(), "the cache keeps nothing alive");
    }

    #[test]
    fn every_part_of_the_contents_counts() {
        let resource = Arc::new(Resource::plain(ResourceType::Cluster, "a", b"content".as_slice()));
        let listed = |entry| Contents { entries: Entries::Listed(vec![entry]), ..contents("v1") };
        let variants = [
            contents("v1"),
            contents("v2"),
            Contents { form: Form::SotwWrapped, ..contents("v1") },
            Contents { form: Form::Delta { with_ttl: false }, ..contents("v1") },
            Contents { form: Form::Delta { with_ttl: true }, ..contents("v1") },
            Contents { resource_type: ResourceType::Listener, ..contents("v1") },
            Contents { removed: vec!["x".into()], ..contents("v1") },
            Contents { not_found: vec!["x".into()], ..contents("v1") },
            listed(Entry::Full(Arc::clone(&resource))),
            listed(Entry::Heartbeat(resource)),
            listed(Entry::Unpopulated("a".into())),
        ];
        let keys: std::collections::BTreeSet<_> = variants.iter().map(key).collect();
        assert_eq!(keys.len(), variants.len());
    }

    #[test]
    fn dead_entries_are_swept() {
        let bodies = Bodies::new("me");
        for version in 0..10_000 {
            bodies.encode(&contents(&version.to_string()));
        }
        assert!(bodies.lock().bodies.len() <= MIN_SWEEP);
    }
}
