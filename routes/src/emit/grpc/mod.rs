//! A plan as resources for proxyless gRPC clients: nothing but what C-core, Java and Go all take.
//!
//! These clients refuse whole resources for fields that Envoys take, and ignore other fields without a word (part B of the
//! protocol checklist). So they get resources of their own, with names of their own:
//!
//! * Listeners are named as applications dial: `host`, `host:port`, the short and long names of services. Wildcard hosts are
//!   patterns ([`Emitted::is_pattern`]), of which a listener is made when somebody dials a name that matches.
//! * Each has a RouteConfiguration of one virtual host that takes every domain, so that neither ports nor the order of
//!   domains can go wrong (inputs §1.11).
//! * What a route cannot be for gRPC is left out with a [`GrpcLoss`]; no matcher is ever left out alone, which would widen
//!   the route (inputs §1.11, last line).
//! * What cannot be reached fails as UNAVAILABLE by a cluster without endpoints (C48).

mod cluster;
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

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use xds_cache::Origin;

use self::cluster::Clusters;
use super::{Emitted, GrpcLoss};
use crate::plan::{Plan, RouteId};
use crate::translate::Options;

/// The resources of a plan for proxyless gRPC clients, and what they cannot have, sorted and unique.
///
/// Only what a listener leads to is written: clusters and endpoints that no route reaches are left out.
pub(crate) fn grpc(plan: &Plan, options: &Options) -> (Vec<Emitted>, Vec<GrpcLoss>) {
    let listeners = listener::listeners(plan);
    let mut emission = Emission { options, clusters: Clusters::new(plan), losses: BTreeSet::new() };
    let mut configurations = BTreeMap::new();
    for table in listeners.values() {
        if !configurations.contains_key(&table.name) {
            configurations.insert(table.name.clone(), route::configuration(table, &mut emission));
        }
    }
    let mut emitted = Vec::new();
    for (name, table) in &listeners {
        let has_sessions = configurations.get(&table.name).is_some_and(|written| written.has_sessions);
        let message = listener::message(name, &table.name, has_sessions);
        emitted.push(Emitted { is_pattern: table.is_pattern, ..Emitted::plain(message, table.origin) });
    }
    emitted.extend(configurations.into_values().map(|written| written.emitted));
    emitted.extend(emission.clusters.finish());
    (emitted, emission.losses.into_iter().collect())
}

impl Emitted {
    /// A resource that is found by its name.
    fn plain(message: Json, origin: &Origin) -> Self {
        Self { message, origin: origin.clone(), is_pattern: false }
    }
}

/// What comes together while routes are written.
struct Emission<'p> {
    options: &'p Options,
    clusters: Clusters<'p>,
    losses: BTreeSet<GrpcLoss>,
}

impl Emission<'_> {
    /// The route is left out, or fails as a whole.
    fn drops(&mut self, id: &RouteId, reason: String) {
        self.loses(id, true, reason);
    }

    /// A part of the route is ignored.
    fn lacks(&mut self, id: &RouteId, reason: String) {
        self.loses(id, false, reason);
    }

    fn loses(&mut self, id: &RouteId, is_dropped: bool, reason: String) {
        self.losses.insert(GrpcLoss { document: id.document.clone(), rule: id.rule, is_dropped, reason });
    }
}
