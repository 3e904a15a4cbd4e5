//! How long things drain.

use std::time::Duration;

/// How long resources drain. A field that is not set is taken from the next policy: first that of the cluster itself, then
/// those of the node's groups, then that of the publisher. Zero means not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrainPolicy {
    /// How long removed endpoints are sent as `DRAINING`.
    pub endpoints: Option<Duration>,
    /// How long removed clusters stay.
    pub clusters: Option<Duration>,
}

impl DrainPolicy {
    /// This policy, with missing fields from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { endpoints: self.endpoints.or(other.endpoints), clusters: self.clusters.or(other.clusters) }
    }

    /// Returns `true` if no field is set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}
