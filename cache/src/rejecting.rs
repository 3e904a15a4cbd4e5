//! Which resources the clients of a view reject, counted as they answer: a question about a resource asks no stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use crate::resource_key::Name;
use crate::resource_type::ResourceType;
use crate::stream_id::StreamId;
use crate::view::ViewKey;

/// The resources of a type that a client rejects, each with the client's words. Empty for a client that accepts all of them.
pub type Rejections = Arc<[(Name, Arc<str>)]>;

/// The types that are counted: those that the condition `Programmed` of a Gateway depends on.
pub(crate) const COUNTED: &[ResourceType] = &[ResourceType::Listener, ResourceType::Secret];

/// A resource that every client rejects that has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedByAll {
    /// The words of one of them.
    pub words: Arc<str>,
    /// When the last of them rejected it.
    pub since: SystemTime,
}

/// The answers of all clients to the types that are [counted](COUNTED).
#[derive(Debug, Default)]
pub(crate) struct Rejecting(HashMap<(ViewKey, ResourceType), OfView>);

/// The answers of the clients of one view to one type.
#[derive(Debug, Default)]
struct OfView {
    /// The streams on which the client has answered.
    answered: HashMap<StreamId, Rejections>,
    /// The resources that are rejected.
    rejected: HashMap<Name, Rejected>,
}

#[derive(Debug)]
struct Rejected {
    by: BTreeSet<StreamId>,
    words: Arc<str>,
    since: SystemTime,
}

impl Rejecting {
    /// Takes a stream out of a view.
    pub(crate) fn take_out(&mut self, view: &ViewKey, id: StreamId) {
        for resource_type in COUNTED {
            self.set(view, resource_type, id, None, SystemTime::UNIX_EPOCH);
        }
    }

    /// Takes in what a client rejects from now on; `None` takes the stream out.
    pub(crate) fn set(
        &mut self,
        view: &ViewKey,
        resource_type: &ResourceType,
        id: StreamId,
        rejections: Option<Rejections>,
        at: SystemTime,
    ) {
        let key = (view.clone(), resource_type.clone());
        let of_view = self.0.entry(key.clone()).or_default();
        let before = match &rejections {
            Some(rejections) => of_view.answered.insert(id, Arc::clone(rejections)),
            None => of_view.answered.remove(&id),
        };
        let now = rejections.unwrap_or_default();
        for (name, _) in before.iter().flat_map(|before| before.iter()) {
            if now.iter().any(|(other, _)| other == name) {
                continue;
            }
            let Some(rejected) = of_view.rejected.get_mut(name) else { continue };
            rejected.by.remove(&id);
            if rejected.by.is_empty() {
                of_view.rejected.remove(name);
            }
        }
        for (name, words) in now.iter() {
            let rejected = of_view.rejected.entry(Arc::clone(name)).or_insert_with(|| Rejected {
                by: BTreeSet::new(),
                words: Arc::clone(words),
                since: at,
            });
            if rejected.by.insert(id) {
                rejected.since = at;
            }
            rejected.words = Arc::clone(words);
        }
        if of_view.answered.is_empty() {
            self.0.remove(&key);
        }
    }

    /// The rejection of a resource by the clients of these views; `None` if one of them accepts it, or none has answered.
    pub(crate) fn by_all<'a>(
        &self,
        views: impl Iterator<Item = &'a ViewKey>,
        resource_type: &ResourceType,
        name: &str,
    ) -> Option<RejectedByAll> {
        let mut found: Option<RejectedByAll> = None;
        for view in views {
            let Some(of_view) = self.0.get(&(view.clone(), resource_type.clone())) else { continue };
            let rejected = of_view.rejected.get(name)?;
            if rejected.by.len() < of_view.answered.len() {
                return None;
            }
            let since = found.as_ref().map_or(rejected.since, |found| found.since.max(rejected.since));
            found = Some(RejectedByAll { words: Arc::clone(&rejected.words), since });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::group::GroupName;
    use crate::node::Profile;

    fn view(profile: Profile) -> ViewKey {
        ViewKey { groups: [GroupName::default_group()].into(), profile, cohort: 0 }
    }

    fn rejections(names: &[&str]) -> Option<Rejections> {
        Some(names.iter().map(|name| (Name::from(*name), Arc::from(format!("no {name}")))).collect())
    }

    #[test]
    fn a_resource_is_rejected_by_all_while_no_client_that_answered_accepts_it() {
        let (mut rejecting, view) = (Rejecting::default(), view(Profile::Envoy));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let by_all = |rejecting: &Rejecting, name: &str| {
            let found = rejecting.by_all([&view].into_iter(), &ResourceType::Listener, name);
            found.map(|found| (found.words.to_string(), found.since))
        };
        let set = |rejecting: &mut Rejecting, id, rejections, seconds| {
            rejecting.set(&view, &ResourceType::Listener, StreamId(id), rejections, at(seconds));
        };
        assert_eq!(by_all(&rejecting, "a"), None, "nobody is there");
        set(&mut rejecting, 1, rejections(&["a", "b"]), 1);
        assert_eq!(by_all(&rejecting, "a"), Some(("no a".to_owned(), at(1))));
        set(&mut rejecting, 2, rejections(&[]), 2);
        assert_eq!(by_all(&rejecting, "a"), None, "one accepts it");
        set(&mut rejecting, 2, rejections(&["a"]), 3);
        assert_eq!(by_all(&rejecting, "a"), Some(("no a".to_owned(), at(3))));
        assert_eq!(by_all(&rejecting, "b"), None);
        set(&mut rejecting, 1, rejections(&["b"]), 4);
        assert_eq!(by_all(&rejecting, "a"), None);
        set(&mut rejecting, 1, None, 5);
        assert_eq!(by_all(&rejecting, "a"), Some(("no a".to_owned(), at(3))), "the other left");
        set(&mut rejecting, 2, None, 6);
        assert_eq!(by_all(&rejecting, "a"), None);
        assert!(rejecting.0.is_empty(), "nothing is kept of clients that left");
    }
}
