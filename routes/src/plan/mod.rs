//! Plans: the configuration of a node group, before it is written for a profile.
//!
//! A [`Plan`] has no unresolved references: every route has its hosts, its order and its clusters.

mod attach;
mod backends;
mod clusters;
mod cost;
mod endpoints;
mod fallback;
mod foreign_policies;
mod gateways;
mod grants;
mod hostnames;
mod hosts;
mod kinds;
mod ledger;
mod listeners;
mod lookup;
pub(crate) mod mesh;
mod outline;
mod parts;
mod policies;
mod policy_status;
mod precedence;
mod rules;
pub(crate) mod split;
mod split_matches;
mod statuses;
#[cfg(test)]
mod tests;
mod tls;
mod weights;

pub(crate) use attach::{AttachableRoute, Attached, Known, Parents, Requests, tired};
pub(crate) use clusters::{Reached, Served, Usage, usages};
pub(crate) use cost::Cost;
pub(crate) use fallback::verdicts::verdicts;
pub(crate) use fallback::{Verdict, fallback_of_cluster};
pub(crate) use foreign_policies::{Targets, affected};
pub use gateways::resources_of_listeners;
pub(crate) use gateways::{Gateways, ListenerKey, Parent, PlannedGateway};
pub(crate) use grants::namespace_labels;
pub(crate) use hostnames::rungs;
pub(crate) use hosts::{Front, cascade, levels, ports};
pub(crate) use kinds::{Contender, losers};
pub(crate) use ledger::{Ledger, Sums, is_tired};
pub(crate) use lookup::{Lookup, RefProblem, RoutePlan};
pub(crate) use outline::{Outline, is_route};
#[cfg(test)]
pub use parts::MeshService;
pub use parts::{
    Action, Address, Assignment, BackendProtocol, Chain, Cluster, ClusterRef, Discovery, Effects, Endpoint,
    Health, Host, Locality, Mirror, Plan, PlannedRoute, Port, RouteId, Session, Target, TlsSecret,
    TlsTermination, UpstreamTls, VirtualHost, Weighted,
};
pub(crate) use policies::policy_targets;
pub(crate) use precedence::{Rank, Seniority};
pub use split::split_roots;
pub(crate) use statuses::{Fault, ObjectConditions};
pub(crate) use tls::certificate;
