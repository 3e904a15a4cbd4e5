//! How long things drain.

use std::time::Duration;

/// How long things drain; what it does not say, the next policy does: that of the cluster itself, of the node's groups, of the
/// publisher. Zero is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrainPolicy {
    /// How long endpoints are sent as `DRAINING` that left an assignment.
    pub endpoints: Option<Duration>,
    /// How long clusters stay that left.
    pub clusters: Option<Duration>,
}

impl DrainPolicy {
    /// This policy, and where it says nothing, `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { endpoints: self.endpoints.or(other.endpoints), clusters: self.clusters.or(other.clusters) }
    }

    /// Returns `true` if it says nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}
