//! What a node group is to be served, before it takes the form of a profile.
//!
//! A [`Plan`] has no references left to look up: every route knows its hosts, its order and the clusters it reaches.

mod attach;
mod backends;
mod clusters;
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
mod mesh;
mod outline;
mod parts;
mod policies;
mod precedence;
mod rules;
mod split;
mod split_matches;
mod statuses;
#[cfg(test)]
mod tests;
mod tls;
mod weights;

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup};
use xds_codec::{Diagnostic, Severity};

use crate::model::{DocumentKey, Spot};
use crate::translate::{Documents, Options};

pub(crate) use attach::{AttachableRoute, Attached, Known, Parents, Requests, tired};
pub(crate) use clusters::{Reached, Usage, usages};
pub(crate) use fallback::{Verdict, Verdicts, fallback_of_cluster, verdicts};
pub(crate) use foreign_policies::{Served, affected};
pub(crate) use gateways::{Gateways, ListenerKey, Parent, PlannedGateway};
pub(crate) use grants::namespace_labels;
pub(crate) use hostnames::rungs;
pub(crate) use hosts::{Front, cascade, levels, ports};
pub(crate) use kinds::{Contender, losers};
pub use ledger::GenerationLimits;
pub(crate) use ledger::{Cost, Ledger, Sums, is_tired};
pub(crate) use lookup::{Lookup, RefProblem, RoutePlan};
pub(crate) use mesh::{mesh, refused_of_mesh};
pub(crate) use outline::{Outline, is_route};
pub use parts::{
    Action, Address, Assignment, Backend, Chain, Cluster, Discovery, Endpoint, Health, Host, Locality,
    MeshService, Mirror, Plan, PlannedRoute, Port, Protocol, RouteId, Session, Target, TlsSecret,
    TlsTermination, UpstreamTls, VirtualHost, Weighted,
};
pub(crate) use policies::policy_targets;
pub(crate) use precedence::{Rank, Seniority};
pub use split::split_roots;
pub(crate) use statuses::{Fault, Parts, Statuses};
pub(crate) use tls::certificate;

/// The plans of all groups, and what was found out on the way.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// By group.
    pub(crate) groups: BTreeMap<GroupName, PlannedGroup>,
    /// What became of the objects, but for what a profile cannot have.
    pub(crate) statuses: Statuses,
    /// Warnings and notes between documents, in no order; a route with parents of several kinds is told of for each.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The plan of one group.
#[derive(Debug, Default)]
pub(crate) struct PlannedGroup {
    /// The definition, if only documents make the group.
    pub(crate) definition: Option<NodeGroup>,
    /// The plan; its clusters, with endpoints and secrets, are made one by one.
    pub(crate) plan: Plan,
}

/// Whether somebody still waits for the result; once it says no, it never says yes again, and what is made is dropped.
pub(crate) type GoesOn<'a> = &'a dyn Fn() -> bool;

/// What becomes known of documents while they are planned.
pub(crate) struct Told<'t> {
    /// The routes that give too much.
    pub(crate) refused: &'t BTreeMap<DocumentKey, Fault>,
    pub(crate) statuses: &'t mut Statuses,
    pub(crate) diagnostics: &'t mut Vec<Diagnostic>,
}

/// Plans the mesh. Depends on nothing but its arguments, as long as it goes on. `taken` names the first port of a Gateway of a group
/// that has a number.
pub(crate) fn plan_while(
    documents: &Documents,
    verdicts: &Verdicts,
    options: &Options,
    refused: &BTreeMap<DocumentKey, Fault>,
    taken: &dyn Fn(&GroupName, u16) -> Option<Arc<str>>,
    goes_on: GoesOn<'_>,
) -> Planned {
    let verdicts = verdicts.iter().map(|(key, verdict)| (key, verdict.clone())).collect();
    let lookup = Lookup::of(documents, verdicts, options);
    let Planned { mut groups, mut statuses, mut diagnostics } = Planned::default();
    let mut told = Told { refused, statuses: &mut statuses, diagnostics: &mut diagnostics };
    for (name, (definition, services)) in mesh(&lookup, documents, options, &mut told, goes_on) {
        let group = groups.entry(name).or_default();
        group.definition = definition;
        group.plan.services = services;
    }
    if options.mesh_address.is_some() {
        for (name, PlannedGroup { plan, .. }) in &groups {
            tell_taken_ports(plan, &lookup, &|port| taken(name, port), &mut diagnostics);
        }
    }
    Planned { groups, statuses, diagnostics }
}

/// Tells where Envoys do not listen for the mesh, because a Gateway has the port.
fn tell_taken_ports(
    plan: &Plan,
    lookup: &Lookup<'_>,
    taken: &dyn Fn(u16) -> Option<Arc<str>>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for service in plan.services.iter().filter(|service| !service.is_implicit) {
        let MeshService { namespace, name, port, .. } = service;
        let Some(taken) = taken(*port) else { continue };
        let Some((document, _)) = lookup.service(namespace, name) else { continue };
        let gateway = taken.rsplit_once('/').map_or(&*taken, |(gateway, _)| gateway);
        let message = format!(
            "Envoys do not listen on port {port} for the {}, because Gateway {gateway} of the same node group has the port; \
             gRPC clients are served",
            document.key,
        );
        diagnostics.push(document.diagnostic(Severity::Info, "mesh-port-taken", &Spot::default(), message));
    }
}
