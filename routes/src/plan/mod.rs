//! What a node group is to be served, before it takes the form of a profile.
//!
//! A [`Plan`] has no references left to look up: every route knows its hosts, its order and the clusters it reaches.

mod grants;
mod lookup;
mod mesh;
mod parts;
mod statuses;

use std::collections::BTreeMap;

use xds_cache::{GroupName, NodeGroup};
use xds_codec::Diagnostic;

use crate::translate::{Documents, Options};

pub(crate) use lookup::{Lookup, RefProblem, RoutePlan};
pub(crate) use mesh::mesh;
pub use parts::{
    Action, Address, Assignment, Backend, Chain, Cluster, Discovery, Endpoint, Health, Host, Locality,
    MeshService, Mirror, Plan, PlannedRoute, Port, Protocol, RouteId, Session, Target, TlsSecret,
    TlsTermination, UpstreamTls, VirtualHost, Weighted,
};
pub(crate) use statuses::Statuses;

/// The plans of all groups, and what was found out on the way.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// By group.
    pub(crate) groups: BTreeMap<GroupName, PlannedGroup>,
    /// What became of the objects, but for what a profile cannot have.
    pub(crate) statuses: Statuses,
    /// Warnings and notes between documents.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The plan of one group.
#[derive(Debug, Default)]
pub(crate) struct PlannedGroup {
    /// The definition, if only documents make the group.
    pub(crate) definition: Option<NodeGroup>,
    /// The plan.
    pub(crate) plan: Plan,
}

/// Plans everything. Depends on nothing but its arguments.
pub(crate) fn plan(documents: &Documents, options: &Options) -> Planned {
    let _ = (documents, options);
    Planned::default()
}
