//! SMI: TrafficSplit and HTTPRouteGroup.

use super::{HeaderMatch, Spot};

/// A TrafficSplit.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSplit {
    /// The root service as written: a name, or a FQDN of the split's own namespace.
    pub service: String,
    /// Where it is.
    pub service_spot: Spot,
    /// The backends; at least one.
    pub backends: Vec<SplitBackend>,
    /// The names of HTTPRouteGroups; empty splits everything.
    pub matches: Vec<(Spot, String)>,
}

/// A backend of a split.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitBackend {
    /// Where it is.
    pub spot: Spot,
    /// The service as written.
    pub service: String,
    /// The weight; of v1alpha1 in thousandths, so that only the relation counts.
    pub weight: u64,
}

/// An HTTPRouteGroup.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRouteGroup {
    /// The matches, with distinct names; any of them.
    pub matches: Vec<GroupMatch>,
}

/// A match of an HTTPRouteGroup; everything in it must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMatch {
    /// Where it is.
    pub spot: Spot,
    /// Its name.
    pub name: String,
    /// An RE2 expression, anchored at the beginning of the path only; valid RE2.
    pub path_regex: Option<String>,
    /// Methods in capitals; empty means every one, for which documents write `*`.
    pub methods: Vec<String>,
    /// Headers by lower-case name (`:authority` for `host`), each an RE2 expression for the whole value.
    pub headers: Vec<HeaderMatch>,
}
