//! What clients are known to reject: kept in a file, and told to other servers.
//!
//! An Envoy acknowledges a secret or an extension that it has rejected when that comes again, so a server that starts anew, or that the Envoy
//! goes to, cannot learn of that from the Envoy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::warn;
use xds_cache::{ResourceKey, ResourceType, Version};
use xds_session::{Culprit, Culprits};

/// What the clients of a server found of rejected resources.
#[derive(Debug, Default)]
pub(crate) struct KeptCulprits {
    all: Arc<Culprits>,
    /// Its file; `None` if it is only kept in memory.
    path: Option<PathBuf>,
    /// Something may have been found.
    found: Notify,
}

/// One of them in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    /// The client's `user_agent_name`.
    program: String,
    /// The client's `user_agent_version`.
    release: String,
    type_url: String,
    name: String,
    version: String,
    words: String,
}

impl From<Culprit> for Saved {
    fn from(culprit: Culprit) -> Self {
        let Culprit { program: (program, release), key, version, words } = culprit;
        Self {
            program,
            release,
            type_url: key.resource_type.type_url().to_owned(),
            name: key.name.to_string(),
            version: version.to_string(),
            words: words.to_string(),
        }
    }
}

impl Saved {
    /// The culprit; `None` if its version is none of this program's.
    fn culprit(self) -> Option<Culprit> {
        let resource_type = ResourceType::from_type_url(&self.type_url);
        Some(Culprit {
            program: (self.program, self.release),
            key: ResourceKey { resource_type, name: self.name.into() },
            version: self.version.parse::<Version>().ok()?,
            words: self.words.into(),
        })
    }
}

impl KeptCulprits {
    /// Those in the file in `dir`.
    pub(crate) fn open(dir: &Path) -> Arc<Self> {
        let path = dir.join("culprits.json");
        let saved: Vec<Saved> = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                warn!(path = %path.display(), %error, "which resources clients rejected is not known any more");
                vec![]
            }),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    warn!(path = %path.display(), %error, "which resources clients rejected cannot be read");
                }
                vec![]
            }
        };
        let all = Arc::<Culprits>::default();
        saved.into_iter().filter_map(Saved::culprit).for_each(|culprit| all.add_told(culprit));
        Arc::new(Self { all, path: Some(path), found: Notify::new() })
    }

    /// What clients share.
    pub(crate) fn shared(&self) -> &Arc<Culprits> {
        &self.all
    }

    /// Clients may have found something.
    pub(crate) fn note(&self) {
        self.found.notify_one();
    }

    /// What another server is told: all that is known, if that is more than it was `told` last; otherwise nothing.
    pub(crate) fn news(&self, told: &mut Option<u64>) -> Bytes {
        let n_found = self.all.n_found();
        if told.replace(n_found) == Some(n_found) || n_found == 0 {
            return Bytes::new();
        }
        serde_json::to_vec(&self.saved()).unwrap_or_default().into()
    }

    /// Learns the news of another server.
    pub(crate) fn learn(&self, news: &[u8]) {
        if news.is_empty() {
            return;
        }
        match serde_json::from_slice::<Vec<Saved>>(news) {
            Ok(all) => {
                all.into_iter().filter_map(Saved::culprit).for_each(|culprit| self.all.add_told(culprit));
            }
            Err(error) => {
                warn!(%error, "what clients of another server reject cannot be read, as between different releases");
            }
        }
        self.note();
    }

    fn saved(&self) -> Vec<Saved> {
        self.all.accepted_later().into_iter().map(Saved::from).collect()
    }

    /// Writes the file whenever something was found, for as long as the process runs.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut n_saved = self.all.n_found();
        loop {
            self.found.notified().await;
            let n_found = self.all.n_found();
            if n_found == n_saved {
                continue;
            }
            let kept = Arc::clone(&self);
            // The write ends also if the server does meanwhile. What could not be written is, with what is found next.
            if tokio::task::spawn_blocking(move || kept.save()).await.unwrap_or(false) {
                n_saved = n_found;
            }
        }
    }

    /// Tells whether everything is kept.
    fn save(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let kept = xds_replica::replace_file(path, &self.saved());
        if let Err(error) = &kept {
            warn!(path = %path.display(), %error, "which resources clients reject cannot be kept");
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_starts_anew_knows_what_was_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptCulprits::open(dir.path());
        assert_eq!(kept.shared().accepted_later(), []);
        let culprit = |name: &str| Culprit {
            program: ("envoy".to_owned(), "1.40.0".to_owned()),
            key: ResourceKey { resource_type: ResourceType::Secret, name: name.into() },
            version: Version::of(name.as_bytes()),
            words: "the key is not that of the certificate".into(),
        };
        let all = ["a", "b"].map(culprit);
        all.iter().cloned().for_each(|culprit| kept.shared().add(culprit));
        assert!(kept.save());
        assert_eq!(KeptCulprits::open(dir.path()).shared().accepted_later(), all);

        let other = KeptCulprits::default();
        let mut told = None;
        other.learn(&kept.news(&mut told));
        assert_eq!(other.shared().accepted_later(), all);
        assert_eq!(kept.news(&mut told), "", "nobody found more");
        other.learn(b"[{");

        std::fs::write(dir.path().join("culprits.json"), "[{").unwrap();
        assert_eq!(KeptCulprits::open(dir.path()).shared().accepted_later(), []);
    }
}
