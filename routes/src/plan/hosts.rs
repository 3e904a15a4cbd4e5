//! The ports of Gateways: their chains and virtual hosts, and the order of routes in each.
//!
//! An xDS client picks one virtual host by the most specific name and never looks into another. The Gateway API requires two things that do not
//! follow from that. Both are done here:
//!
//! * *Isolation*: a request belongs to the most specific listener of its port, before any route is considered. So every listener with a host
//!   name has a virtual host for it, even an empty one, and a host that a route brings to a less specific listener is dropped. With TLS, a
//!   host is dropped in the same way, because the server name of the connection has chosen the listener.
//! * *Cascade*: a request that no route of its host matches can still match a route of a less specific host. So the routes of a host are
//!   followed by those of the less specific hosts that cover it, but only of the same listener, because other listeners are isolated from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::Origin;

use super::gateways::{ListenerKey, PlannedGateway};
use super::hostnames::{covers, rungs, specificity};
use super::listeners::PlannedListener;
use super::precedence::Rank;
use super::{Chain, Host, PlannedRoute, Port, RouteId, TlsTermination};
use crate::input::Options;
use crate::model::ListenerProtocol;

/// A chain without its hosts, and the listeners of its port that are accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Front {
    /// The port.
    pub(crate) port: u16,
    /// The TLS settings, if the chain terminates TLS.
    pub(crate) tls: Option<TlsTermination>,
    /// True if Envoys get it.
    pub(crate) is_programmed: bool,
    /// True if Envoys ask for its hosts one by one.
    pub(crate) is_on_demand: bool,
    /// The documents that it is generated from.
    pub(crate) origin: Origin,
    /// The listeners of the port with their hosts, including those of other chains.
    pub(crate) listeners: Vec<(Arc<ListenerKey>, Host)>,
}

impl Front {
    /// The listener that owns a host: the most specific one.
    pub(crate) fn owner(&self, host: &Host) -> Option<(&Arc<ListenerKey>, &Host)> {
        let listeners = self.listeners.iter().map(|(key, own)| (key, own));
        owner(host, listeners)
    }
}

/// The most specific listener whose host covers this one. Listeners of a port have distinct hosts.
pub(crate) fn owner<'l, L>(
    host: &Host,
    listeners: impl Iterator<Item = (L, &'l Host)>,
) -> Option<(L, &'l Host)> {
    listeners.filter(|(_, own)| covers(own, host)).max_by_key(|(_, own)| specificity(own))
}

/// The ports of a Gateway with an accepted listener, sorted by number, without hosts. Each comes with its chains in the form that units
/// of hosts read.
pub(crate) fn ports(gateway: &PlannedGateway<'_>, origin: &Origin) -> Vec<(Port, Vec<Front>)> {
    let mut by_port: BTreeMap<u16, Vec<&PlannedListener>> = BTreeMap::new();
    for listener in gateway.listeners.iter().filter(|listener| listener.is_accepted()) {
        by_port.entry(listener.spec.port).or_default().push(listener);
    }
    let port = |(port, listeners): (u16, Vec<&PlannedListener>)| {
        let name = gateway.port_name(port);
        // Accepted listeners of one port have the same protocol; otherwise all of them are in conflict.
        let is_tls = listeners.iter().any(|listener| listener.spec.protocol == ListenerProtocol::Https);
        let chains: Vec<Chain> = match is_tls {
            true => listeners.iter().map(|listener| tls_chain(&name, listener)).collect(),
            false => vec![Chain { name: name.clone(), tls: None, is_programmed: true, hosts: Vec::new() }],
        };
        let hosts = listeners.iter().map(|one| (gateway.listener_key(one), one.host.clone()));
        let listeners: Vec<(Arc<ListenerKey>, Host)> = hosts.collect();
        let front = |chain: &Chain| Front {
            port,
            tls: chain.tls.clone(),
            is_programmed: chain.is_programmed,
            is_on_demand: gateway.is_on_demand,
            origin: origin.clone(),
            listeners: listeners.clone(),
        };
        let fronts = chains.iter().map(front).collect();
        (Port { name, address: gateway.address, port, chains, origin: origin.clone() }, fronts)
    };
    by_port.into_iter().map(port).collect()
}

fn tls_chain(port: &str, listener: &PlannedListener) -> Chain {
    let certificates = listener.certificates.iter().map(|(name, _)| name.clone()).collect();
    Chain {
        name: format!("{port}/{}", listener.spec.name),
        tls: Some(TlsTermination { server_name: listener.spec.hostname.clone(), certificates }),
        is_programmed: listener.is_programmed(),
        hosts: Vec::new(),
    }
}

/// A host, then the hosts of its listener that cover it, the most specific first.
pub(crate) fn levels<'h>(host: &'h Host, listener: &'h Host) -> impl Iterator<Item = Host> + use<'h> {
    let rungs = rungs(host).into_iter().map(|rung| Host::of(&rung));
    rungs.take_while(|rung| covers(listener, rung))
}

/// The routes of a host, followed by those of the hosts that cover it, without duplicates. `levels` has the routes of each of these hosts.
///
/// If GRPCRoutes and HTTPRoutes are merged, all gRPC routes come first, whatever their hosts, because they match only gRPC requests.
pub(crate) fn cascade<'p>(
    levels: impl Iterator<Item = Vec<(Rank, &'p PlannedRoute)>>,
    options: &Options,
) -> Vec<PlannedRoute> {
    let mut seen: BTreeSet<&RouteId> = BTreeSet::new();
    let mut routes = Vec::new();
    for mut level in levels {
        level.sort_by(|(one, _), (other, _)| one.cmp(other));
        let new = level.into_iter().filter(|(_, route)| seen.insert(&route.id));
        routes.extend(new.map(|(_, route)| route.clone()));
    }
    if options.merges_route_kinds {
        routes.sort_by_key(|route: &PlannedRoute| !route.is_grpc);
    }
    routes
}
