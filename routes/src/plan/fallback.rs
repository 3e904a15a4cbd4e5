//! Fallbacks: Backends with an ordered list of other backends, as aggregate clusters (gRFC A37).
//!
//! A fallback with a fault is refused as a whole, because all calls of gRPC clients to it would fail (B178, B179).

pub(super) mod verdicts;

use std::fmt;

use crate::conditions::ConditionReason;
use crate::model::{DocumentKey, Kind};

/// A fallback that can be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fallback {
    /// The clusters of its members in order, each at its earliest position; at least one.
    pub(crate) members: Vec<String>,
    /// True if it uses HTTP/2: by its own setting, or because all its members do.
    pub(super) is_http2: bool,
    /// The clusters on the longest path down from it, including itself.
    longest_path: Vec<String>,
}

/// Why a fallback cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FallbackFault {
    /// The reason for conditions of the objects that refer to it.
    pub(super) reason: ConditionReason,
    /// The path of clusters from it to the fault.
    path: Vec<String>,
    /// The fault.
    what: String,
    is_cycle: bool,
}

/// The verdict on a fallback.
pub(crate) type Verdict = Result<Fallback, FallbackFault>;

/// The Backend of a cluster, which may be a fallback; `None` for the cluster of a Service.
pub(crate) fn fallback_of_cluster(cluster: &str) -> Option<DocumentKey> {
    let (namespace, name) = cluster.split_once('/').filter(|(_, name)| !name.contains('/'))?;
    Some(DocumentKey::new(Kind::Backend, namespace, name))
}

/// The limit of clusters on a path, including the first and the last (B178).
const MAX_PATH: usize = 16;

impl fmt::Display for FallbackFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.path.join(" → "))
    }
}

impl FallbackFault {
    /// The same fault as seen from a fallback whose member is faulty.
    fn above(&self, name: &str) -> Self {
        if self.is_cycle && self.path.iter().any(|one| one == name) {
            return self.clone();
        }
        let path = std::iter::once(name.to_owned()).chain(self.path.iter().cloned()).collect();
        Self { path: shortened(path), ..self.clone() }
    }
}

/// The path for messages: the middle of a long one is left out.
fn shortened(path: Vec<String>) -> Vec<String> {
    if path.len() <= MAX_PATH + 2 {
        return path;
    }
    let end = path.len() - MAX_PATH / 2;
    let begin = path.iter().take(MAX_PATH / 2).cloned();
    begin.chain(["…".to_owned()]).chain(path.iter().skip(end).cloned()).collect()
}
