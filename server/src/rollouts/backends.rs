//! The clusters of a rollout.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::{ResourceKey, ResourceType};

/// The names of the clusters of both backends. One that is behind both, such as a common fallback, is among neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backends {
    pub(super) canary: BTreeSet<Arc<str>>,
    pub(super) stable: BTreeSet<Arc<str>>,
}

impl Backends {
    /// Returns `true` if this is a cluster of one of them.
    pub(super) fn has(&self, key: &ResourceKey) -> bool {
        key.resource_type == ResourceType::Cluster
            && (self.canary.contains(&*key.name) || self.stable.contains(&*key.name))
    }
}
