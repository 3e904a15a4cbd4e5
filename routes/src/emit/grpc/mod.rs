//! A plan as resources for proxyless gRPC clients: nothing but what C-core, Java and Go all take.
//!
//! These clients refuse whole resources for fields that Envoys take, and ignore other fields without a word (part B of the
//! protocol checklist). So they get resources of their own, with names of their own:
//!
//! * Listeners are named as applications dial: `host`, `host:port`, the short and long names of services. Wildcard hosts are
//!   patterns ([`FoundBy::Pattern`](super::FoundBy::Pattern)), of which a listener is made when somebody dials a name that matches.
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

use std::collections::BTreeSet;
use std::sync::Arc;

use self::cluster::Clusters;
use super::{Emitted, GrpcLoss, Sink};
use crate::conditions::GrpcFeature;
use crate::plan::{Plan, RouteId};
use crate::translate::Options;

/// The resources of a plan for proxyless gRPC clients; returns what they cannot have, sorted and unique.
///
/// Only what a listener leads to is written: clusters and endpoints that no route reaches are left out.
pub(crate) fn grpc<'p>(plan: &'p Plan, options: &Options, emit: &mut Sink<'_, 'p>) -> Vec<GrpcLoss> {
    let mut emission = Emission { options, clusters: Clusters::new(plan, options), losses: BTreeSet::new() };
    for (table, names) in listener::tables(plan) {
        let mut names = names.into_iter();
        let Some(name) = names.next() else { continue };
        let configuration = route::configuration(&table, &mut emission);
        let inputs = (name, Arc::clone(&table.name), configuration.has_sessions());
        let write: fn(&(String, Arc<str>, bool)) -> _ =
            |(name, configuration, has_sessions)| listener::message(name, configuration, *has_sessions);
        let listener = Emitted::found_by(table.found_by, "gRPC listener", inputs, write, table.origin);
        emit(listener.also_named(names.collect()));
        emit(Emitted::new("gRPC routes", configuration, route::Configuration::message, table.origin));
    }
    emission.clusters.finish(emit);
    emission.losses.into_iter().collect()
}

/// What comes together while routes are looked at.
struct Emission<'o, 'p> {
    options: &'o Options,
    clusters: Clusters<'p>,
    losses: BTreeSet<GrpcLoss>,
}

impl Emission<'_, '_> {
    /// The route is left out, or fails as a whole.
    fn drops(&mut self, id: &RouteId, feature: GrpcFeature, reason: impl Into<String>) {
        self.loses(id, true, feature, reason.into());
    }

    /// A part of the route is ignored.
    fn lacks(&mut self, id: &RouteId, feature: GrpcFeature, reason: impl Into<String>) {
        self.loses(id, false, feature, reason.into());
    }

    fn loses(&mut self, id: &RouteId, is_dropped: bool, feature: GrpcFeature, reason: String) {
        let (document, rule) = (id.document.clone(), id.rule);
        self.losses.insert(GrpcLoss { document, rule, is_dropped, reason, feature });
    }
}
