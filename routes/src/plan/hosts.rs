//! The ports of Gateways: their chains, virtual hosts, and the order of routes in each.
//!
//! A client of xDS picks one virtual host by the most specific name and never looks into another. The Gateway API wants two
//! things that do not follow from that, and both are made here:
//!
//! * *Isolation*: a request belongs to the most specific listener of its port, before routes are looked at. So every listener with
//!   a host name has a virtual host for it, be it empty; and a host that a route brings to a less specific listener is dropped.
//!   For TLS, a host is dropped in the same way; there the server name of the connection has chosen the listener.
//! * *Cascade* (C45): the host of a route is a rank, not a wall. So behind the routes of a host come those of the less specific
//!   hosts that cover it, of the same listener only, because other listeners are isolated from it.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::Origin;
use xds_codec::{Diagnostic, Severity};

use super::attach::AttachableRoute;
use super::gateways::PlannedGateway;
use super::hostnames::{covers, rungs, specificity};
use super::listeners::PlannedListener;
use super::precedence::Rank;
use super::{Chain, Host, PlannedRoute, Port, RouteId, TlsTermination, VirtualHost};
use crate::model::{Document, Protocol, Spot};
use crate::translate::Options;

/// The ports of a Gateway that have an accepted listener, in order of their numbers.
pub(crate) fn ports(
    gateway: &PlannedGateway<'_>,
    routes: &[AttachableRoute<'_>],
    options: &Options,
) -> Vec<Port> {
    let mut by_port: BTreeMap<u16, Vec<&PlannedListener>> = BTreeMap::new();
    for listener in gateway.listeners.iter().filter(|listener| listener.is_accepted()) {
        by_port.entry(listener.spec.port).or_default().push(listener);
    }
    let port = |(port, listeners): (u16, Vec<&PlannedListener>)| {
        let name = format!("{}/{}/{port}", gateway.key.namespace, gateway.key.name);
        let hosts = |listener: &PlannedListener| virtual_hosts(listener, &listeners, routes, options);
        // Listeners of one port have the same protocol: else all of them are in conflict.
        let is_tls = listeners.iter().any(|listener| listener.spec.protocol == Protocol::Https);
        let chains = match is_tls {
            true => listeners.iter().map(|listener| tls_chain(&name, listener, hosts(listener))).collect(),
            false => {
                let mut hosts: Vec<VirtualHost> =
                    listeners.iter().flat_map(|listener| hosts(listener)).collect();
                hosts.sort_by(|one, other| one.host.cmp(&other.host));
                vec![Chain { name: name.clone(), tls: None, is_programmed: true, hosts }]
            }
        };
        Port { name, address: gateway.address, port, chains, origin: origin(gateway, routes) }
    };
    by_port.into_iter().map(port).collect()
}

fn tls_chain(port: &str, listener: &PlannedListener, hosts: Vec<VirtualHost>) -> Chain {
    let certificates = listener.certificates.iter().map(|(name, _)| name.clone()).collect();
    Chain {
        name: format!("{port}/{}", listener.spec.name),
        tls: Some(TlsTermination { server_name: listener.spec.hostname.clone(), certificates }),
        is_programmed: listener.is_programmed(),
        hosts,
    }
}

/// Where a port is from: its Gateway; for an implicit gateway, the first route that it has.
fn origin(gateway: &PlannedGateway<'_>, routes: &[AttachableRoute<'_>]) -> Origin {
    let first_route = || {
        let first = gateway.listeners.iter().filter_map(|listener| listener.attached.keys().next()).min()?;
        routes.get(*first).map(|route| route.document)
    };
    gateway.document.or_else(first_route).map_or(Origin::Api, Document::origin)
}

/// The virtual hosts of a listener on a port with these listeners, itself included; sorted by host.
fn virtual_hosts(
    listener: &PlannedListener,
    listeners: &[&PlannedListener],
    routes: &[AttachableRoute<'_>],
    options: &Options,
) -> Vec<VirtualHost> {
    let mut own: BTreeMap<&str, Level<'_>> = BTreeMap::new();
    let level = |host| Level { host, routes: Vec::new() };
    if listener.host != Host::Any {
        own.insert(listener.host.as_str(), level(&listener.host));
    }
    for (index, hosts) in &listener.attached {
        let Some(AttachableRoute { plan, seniority, .. }) = routes.get(*index) else { continue };
        for host in hosts.iter().filter(|host| owner(host, listener, listeners).is_none()) {
            let ranked = plan.routes.iter().map(|route| (Rank::of(route, seniority), route));
            own.entry(host.as_str()).or_insert_with(|| level(host)).routes.extend(ranked);
        }
    }
    own.values_mut().for_each(|level| level.routes.sort_by(|(one, _), (other, _)| one.cmp(other)));
    let hosts = own.values().map(|level| level.host);
    hosts.map(|host| VirtualHost { host: host.clone(), routes: cascade(host, &own, options) }).collect()
}

/// The listener that owns a host in place of `listener`: the most specific one, if that is another.
fn owner<'l>(
    host: &Host,
    listener: &PlannedListener,
    listeners: &[&'l PlannedListener],
) -> Option<&'l PlannedListener> {
    let more_specific = listeners
        .iter()
        .filter(|other| specificity(&other.host) > specificity(&listener.host) && covers(&other.host, host));
    more_specific.max_by_key(|other| specificity(&other.host)).copied()
}

/// A host and the routes that name it, in their order.
struct Level<'p> {
    host: &'p Host,
    routes: Vec<(Rank, &'p PlannedRoute)>,
}

/// The routes of a host, then those of the hosts that cover it, the most specific first; each route once.
///
/// Where GRPCRoutes and HTTPRoutes are merged, their hosts are no common ranks: all gRPC routes come first, as they take
/// gRPC requests only.
fn cascade(host: &Host, own: &BTreeMap<&str, Level<'_>>, options: &Options) -> Vec<PlannedRoute> {
    let mut seen: BTreeSet<&RouteId> = BTreeSet::new();
    let mut routes = Vec::new();
    for level in rungs(host).iter().filter_map(|rung| own.get(rung.as_str())) {
        let new = level.routes.iter().filter(|(_, route)| seen.insert(&route.id));
        routes.extend(new.map(|(_, route)| (*route).clone()));
    }
    if options.merges_route_kinds {
        routes.sort_by_key(|route: &PlannedRoute| !route.is_grpc);
    }
    routes
}

/// Warns of hosts of routes that are never asked for, because another listener of the port owns them.
pub(crate) fn diagnose(
    gateway: &PlannedGateway<'_>,
    routes: &[AttachableRoute<'_>],
    diagnostics: &mut Vec<Diagnostic>,
) {
    let accepted: Vec<&PlannedListener> =
        gateway.listeners.iter().filter(|listener| listener.is_accepted()).collect();
    for listener in &accepted {
        let mut siblings = accepted.clone();
        siblings.retain(|other| other.spec.port == listener.spec.port);
        for (index, hosts) in &listener.attached {
            let Some(route) = routes.get(*index) else { continue };
            for host in hosts {
                let Some(owner) = owner(host, listener, &siblings) else { continue };
                if owner.attached.contains_key(index) {
                    continue;
                }
                let message = format!(
                    "requests for {host} belong to listener {} of {}, so listener {} never sends any to this route",
                    owner.spec.name, gateway.key, listener.spec.name
                );
                let spot = Spot::default();
                diagnostics.push(route.document.diagnostic(
                    Severity::Warning,
                    "host-of-another-listener",
                    &spot,
                    message,
                ));
            }
        }
    }
}
