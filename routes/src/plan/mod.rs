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

use xds_cache::{GroupName, NodeGroup};
use xds_codec::{Diagnostic, Severity};

use crate::model::Spot;
use crate::translate::{Documents, Options};

use attach::{attach, attachable_routes};
use gateways::Gateways;

pub(crate) use clusters::{Reached, Usage, usages};
pub(crate) use fallback::{Verdict, Verdicts, fallback_of_cluster, verdicts};
pub use ledger::GenerationLimits;
use ledger::Ledger;
pub(crate) use ledger::Texts;
pub(crate) use lookup::{Lookup, RefProblem, RoutePlan};
pub(crate) use mesh::mesh;
pub(crate) use outline::{Outline, is_route};
pub use parts::{
    Action, Address, Assignment, Backend, Chain, Cluster, Discovery, Endpoint, Health, Host, Locality,
    MeshService, Mirror, Plan, PlannedRoute, Port, Protocol, RouteId, Session, Target, TlsSecret,
    TlsTermination, UpstreamTls, VirtualHost, Weighted,
};
pub use split::split_roots;
pub(crate) use statuses::{Parts, Statuses};
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
    /// Whether a route was refused because of the length of texts.
    pub(crate) has_refused_text: bool,
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
pub(crate) struct Told<'t, 'd> {
    pub(crate) ledger: &'t mut Ledger<'d>,
    pub(crate) statuses: &'t mut Statuses,
    pub(crate) diagnostics: &'t mut Vec<Diagnostic>,
}

/// Plans everything. Depends on nothing but its arguments, as long as it goes on.
pub(crate) fn plan_while(
    documents: &Documents,
    verdicts: &Verdicts,
    options: &Options,
    texts: Texts,
    goes_on: GoesOn<'_>,
) -> Planned {
    let verdicts = verdicts.iter().map(|(key, verdict)| (key, verdict.clone())).collect();
    let lookup = Lookup::of(documents, verdicts, options);
    let Planned { mut groups, mut statuses, mut diagnostics, .. } = Planned::default();
    let mut gateways = Gateways::of(&lookup, documents, options, &mut diagnostics);
    let mut ledger = Ledger::new(options.limits, texts);
    let routes = attachable_routes(&lookup, documents, goes_on);
    let mut told = Told { ledger: &mut ledger, statuses: &mut statuses, diagnostics: &mut diagnostics };
    attach(&lookup, &routes, &mut gateways, options, &mut told, goes_on);
    gateways.diagnose(&mut diagnostics);
    gateways.report(documents, options, &mut statuses);
    for gateway in gateways.list.iter().take_while(|_| goes_on()) {
        hosts::diagnose(gateway, &routes, &mut diagnostics);
        let ports = hosts::ports(gateway, &routes, options);
        if ports.is_empty() {
            continue;
        }
        let plan = &mut groups.entry(gateway.group.clone()).or_default().plan;
        plan.ports.extend(ports);
        let accepted = gateway.listeners.iter().filter(|listener| listener.is_accepted());
        plan.secrets.extend(accepted.flat_map(|listener| listener.certificates.iter().cloned()));
    }
    let mut told = Told { ledger: &mut ledger, statuses: &mut statuses, diagnostics: &mut diagnostics };
    for (name, (definition, services)) in mesh(&lookup, documents, options, &mut told, goes_on) {
        let group = groups.entry(name).or_default();
        group.definition = definition;
        group.plan.services = services;
    }
    for PlannedGroup { plan, .. } in groups.values_mut() {
        plan.ports.sort_by(|one, other| one.name.cmp(&other.name));
        if options.mesh_address.is_some() {
            tell_taken_ports(plan, &lookup, &mut diagnostics);
        }
    }
    lookup.report(groups.values().map(|group| &group.plan), &mut statuses);
    foreign_policies::report(&lookup, &mut statuses, &mut diagnostics, goes_on);
    Planned { groups, statuses, diagnostics, has_refused_text: ledger.has_refused_text }
}

/// Tells where Envoys do not listen for the mesh, because a Gateway has the port.
fn tell_taken_ports(plan: &Plan, lookup: &Lookup<'_>, diagnostics: &mut Vec<Diagnostic>) {
    for service in plan.services.iter().filter(|service| !service.is_implicit) {
        let MeshService { namespace, name, port, .. } = service;
        let Some(taken) = plan.ports.iter().find(|gateway| gateway.port == *port) else { continue };
        let Some((document, _)) = lookup.service(namespace, name) else { continue };
        let gateway = taken.name.rsplit_once('/').map_or(taken.name.as_str(), |(gateway, _)| gateway);
        let message = format!(
            "Envoys do not listen on port {port} for the {}, because Gateway {gateway} of the same node group has the port; \
             gRPC clients are served",
            document.key,
        );
        diagnostics.push(document.diagnostic(Severity::Info, "mesh-port-taken", &Spot::default(), message));
    }
}
