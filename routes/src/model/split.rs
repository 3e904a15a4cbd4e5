//! SMI: TrafficSplit and HTTPRouteGroup.

use super::{HeaderMatch, Spot};

/// A TrafficSplit.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSplit {
    /// The root service as written: a name, or an FQDN in the split's own namespace.
    pub service: String,
    /// Where it is.
    pub service_spot: Spot,
    /// The backends; at least one.
    pub backends: Vec<SplitBackend>,
    /// The names of HTTPRouteGroups. If empty, all requests are split.
    pub matches: Vec<(Spot, String)>,
}

/// A backend of a split.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitBackend {
    /// Where it is.
    pub spot: Spot,
    /// The service as written.
    pub service: String,
    /// The weight. Those of v1alpha1 are in thousandths, so only the ratio matters.
    pub weight: u64,
}

/// An HTTPRouteGroup.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRouteGroup {
    /// The matches, with distinct names. One of them must hold.
    pub matches: Vec<GroupMatch>,
}

/// A match of an HTTPRouteGroup; everything in it must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMatch {
    /// Where it is.
    pub spot: Spot,
    /// Its name.
    pub name: String,
    /// A valid RE2 expression, anchored only at the beginning of the path.
    pub path_regex: Option<String>,
    /// Methods in capitals; empty for all methods, which is `*` in documents.
    pub methods: Vec<String>,
    /// Headers by lower-case name (`:authority` for `host`), each an RE2 expression for the whole value.
    pub headers: Vec<HeaderMatch>,
}
