//! A plan as resources for proxyless gRPC clients: only what C-core, Java and Go all accept.
//!
//! These clients reject whole resources because of fields that Envoys accept, and silently ignore other fields (part B of
//! `docs/design/protocol-rules.md`). So they get their own resources with their own names:
//!
//! * Listeners have the names that applications dial: `host`, `host:port`, the short and long names of services. Wildcard hosts are
//!   patterns ([`FoundBy::Pattern`](super::FoundBy::Pattern)): a listener is made from one when a client dials a name that matches.
//! * Each has a RouteConfiguration with one virtual host for every domain, so neither ports nor the order of domains can go wrong.
//! * A route that gRPC does not support is left out, with a [`GrpcLoss`]. No matcher is ever left out alone, because that would widen
//!   the route.
//! * Calls to unreachable backends fail as UNAVAILABLE, through a cluster without endpoints (C48).

mod cluster;
mod emission;
mod endpoints;
mod limits;
mod listener;
mod matcher;
mod route;
mod session;

#[cfg(test)]
mod checker;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::{Name, Origin};

use self::cluster::Clusters;
use self::emission::Emission;
use super::{Emitted, GrpcLoss};
use crate::input::Options;
use crate::plan::{Plan, PlannedRoute};

pub(crate) use cluster::{cluster, root, unavailable};
pub(crate) use endpoints::has_uneven_weights;
pub(crate) use listener::Dialled;
#[cfg(test)]
use listener::tables;

/// Writes the resources of a plan for proxyless gRPC clients; returns what they do not support, sorted and unique.
///
/// It writes only what a listener reaches: clusters and endpoints that no route reaches are left out.
#[cfg(test)]
pub(crate) fn grpc<'p>(plan: &'p Plan, options: &Options, emit: &mut super::Sink<'_, 'p>) -> Vec<GrpcLoss> {
    let (mut roots, mut losses, mut unavailable) = (BTreeSet::new(), BTreeSet::new(), None);
    for (planned, dialled) in tables(plan) {
        let table = table(plan, options, &Arc::new(dialled), planned.routes(), planned.origin());
        table.emitted.into_iter().for_each(&mut *emit);
        roots.extend(table.roots);
        losses.extend(table.losses);
        if table.needs_unavailable {
            unavailable.get_or_insert(planned.origin());
        }
    }
    cluster::clusters(plan, options, &roots, unavailable, emit);
    losses.into_iter().collect()
}

/// The resources of a host.
pub(crate) struct Table<'p> {
    /// Its Listeners and its RouteConfiguration.
    pub(crate) emitted: [Emitted<'p>; 2],
    /// The clusters that it names, except for the one without endpoints.
    pub(crate) roots: BTreeSet<&'p str>,
    /// True if it names the cluster without endpoints.
    pub(crate) needs_unavailable: bool,
    /// The features that clients do not support.
    pub(crate) losses: BTreeSet<GrpcLoss>,
}

/// Emits a host with these routes, whose clusters are in the plan.
pub(crate) fn table<'p>(
    plan: &'p Plan,
    options: &Options,
    dialled: &Dialled,
    routes: &'p [PlannedRoute],
    origin: &'p Origin,
) -> Table<'p> {
    let mut emission = Emission { options, clusters: Clusters::new(plan), losses: BTreeSet::new() };
    let configuration = route::configuration(dialled, routes, &mut emission);
    let mut names = dialled.names.iter().cloned();
    let inputs =
        (names.next().unwrap_or_else(|| "".into()), Arc::clone(&dialled.name), configuration.has_sessions());
    let write: fn(&(Name, Name, bool)) -> _ =
        |(name, configuration, has_sessions)| listener::message(name, configuration, *has_sessions);
    let listener = Emitted::found_by(dialled.found_by, "gRPC listener", inputs, write, origin);
    let listener = listener.also_named(names.collect());
    let configuration = Emitted::new("gRPC routes", configuration, route::Configuration::message, origin);
    let Emission { clusters, losses, .. } = emission;
    let (roots, needs_unavailable) = clusters.finish();
    Table { emitted: [listener, configuration], roots, needs_unavailable, losses }
}
