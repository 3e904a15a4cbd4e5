//! A plan as resources for Envoys.
//!
//! Each port of a Gateway is a Listener, with a RouteConfiguration of the same name for each chain. Each port of the mesh is a Listener and
//! a RouteConfiguration `mesh/<port>`. Clusters have the names of backends (followed by `/h2` for HTTP/2), endpoints those of
//! assignments, and secrets those of secrets. Requests for hosts of other chains of a port are answered with 421 (Misdirected Request).
//! Envoy fetches all of these over the same stream as the Listener.

mod action;
mod cluster;
mod draws;
#[cfg(test)]
mod endpoints;
mod filters;
mod limits;
mod listener;
mod matcher;
mod parts;
mod path;
mod route;
mod secret;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use xds_cache::Origin;

use self::parts::{HostContext, ListenerPort};
use super::{Emitted, EmittedPart};
use crate::model::Hostname;
use crate::plan::{Action, Chain, Host, Plan, PlannedRoute, Port, Target};

use crate::input::Options;

pub(crate) use cluster::cluster;
pub(crate) use parts::{Frame, Listener};
pub(crate) use secret::secret;

/// The resources of a plan for Envoys: each name of a type once.
#[cfg(test)]
pub(crate) fn envoy<'p>(plan: &'p Plan, options: &Options, emit: &mut super::Sink<'_, 'p>) {
    let mut unavailable = None;
    for port in &plan.ports {
        let Some(GatewayPort { listener: served, tables }) = gateway(port, options) else { continue };
        emit(listener(served, &port.origin));
        for (name, misdirected) in tables {
            let chain = port.chains.iter().find(|chain| chain.name == name);
            let hosts = chain.into_iter().flat_map(|chain| &chain.hosts).map(|one| {
                let frame = host_frame(
                    one.host.as_str(),
                    port.port,
                    chain.is_some_and(|chain| chain.tls.is_some()),
                    options,
                );
                (frame, one.routes.as_slice())
            });
            let hosts = hosts.chain(misdirected.map(|frame| (frame, &[][..])));
            emit(table(name, &port.origin, hosts, plan, &mut unavailable));
        }
    }
    for (port, address) in tests::mesh_ports(plan, options) {
        let services = plan.services.iter().filter(|service| service.port == port);
        let Some(origin) = services.clone().next().map(|service| &service.origin) else { continue };
        emit(listener(mesh_listener(port, address), origin));
        let hosts = services.map(|service| {
            let name = format!("{}/{}", service.namespace, service.name);
            (mesh_frame(name, service.hosts.clone(), port, options), service.routes.as_slice())
        });
        emit(table(mesh_table(port), origin, hosts, plan, &mut unavailable));
    }
    plan.clusters.iter().flat_map(|(name, found)| cluster(plan, name, found)).for_each(&mut *emit);
    if let Some(origin) = unavailable {
        emit(self::unavailable(origin));
    }
    endpoints::assignments(plan, unavailable, emit);
    plan.secrets.iter().map(|(name, found)| secret(name, found)).for_each(emit);
}

/// A RouteConfiguration with its virtual hosts. Sets `unavailable` to its origin if it is the first that needs the cluster without
/// endpoints.
#[cfg(test)]
fn table<'p>(
    name: String,
    origin: &'p Origin,
    hosts: impl Iterator<Item = (Frame, &'p [PlannedRoute])>,
    plan: &Plan,
    unavailable: &mut Option<&'p Origin>,
) -> Emitted<'p> {
    let part = |(frame, routes): (Frame, &'p [PlannedRoute])| {
        if routes.iter().any(uses_unavailable) {
            unavailable.get_or_insert(origin);
        }
        host(frame, routes, plan)
    };
    let hosts = hosts.map(part).collect();
    configuration(name, false, origin).with_hosts(hosts)
}

/// A Listener.
pub(crate) fn listener(listener: Listener, origin: &Origin) -> Emitted<'_> {
    Emitted::new("Envoy listener", listener, listener::listener, origin)
}

/// A RouteConfiguration without its virtual hosts. If `is_on_demand`, Envoys ask for these one by one.
pub(crate) fn configuration(name: String, is_on_demand: bool, origin: &Origin) -> Emitted<'_> {
    Emitted::new("Envoy routes", (name, is_on_demand), route::configuration, origin)
}

/// A virtual host. The plan is only needed for backends that can have sessions.
pub(crate) fn host<'p>(frame: Frame, routes: &'p [PlannedRoute], plan: &Plan) -> EmittedPart<'p> {
    let host = HostContext { frame, routes, pins: session::pins(plan, routes) };
    EmittedPart::new("Envoy host", host, route::virtual_host)
}

/// The same as a resource of its own. Its name is the one that Envoys ask for: the RouteConfiguration, `/` and the host.
pub(crate) fn host_on_demand<'p>(
    table: &str,
    frame: Frame,
    routes: &'p [PlannedRoute],
    plan: &Plan,
    origin: &'p Origin,
) -> Emitted<'p> {
    let frame = Frame { name: format!("{table}/{}", frame.name), ..frame };
    let host = HostContext { frame, routes, pins: session::pins(plan, routes) };
    Emitted::new("Envoy host on demand", host, route::virtual_host, origin)
}

/// The cluster without endpoints.
pub(crate) fn unavailable(origin: &Origin) -> Emitted<'_> {
    Emitted::new("Envoy unavailable", (), |()| cluster::unavailable(), origin)
}

/// The listeners of Envoys for a port of a Gateway.
pub(crate) struct GatewayPort {
    pub(crate) listener: Listener,
    /// The RouteConfigurations, at least one; each with the virtual host for hosts of other chains.
    pub(crate) tables: Vec<(String, Option<Frame>)>,
}

/// The Listener of a port of the mesh.
pub(crate) fn mesh_listener(port: u16, address: IpAddr) -> Listener {
    let name = mesh_table(port);
    Listener { chains: vec![(name.clone(), None)], name, address, port, is_edge: false, is_on_demand: false }
}

/// The virtual host of a Service at a port of the mesh. `domains` has at least one name.
pub(crate) fn mesh_frame(name: String, domains: Vec<String>, port: u16, options: &Options) -> Frame {
    let port = ListenerPort { number: port, is_tls: false, merges_route_kinds: options.merges_route_kinds };
    Frame { name, domains, is_misdirected: false, port }
}

/// The name of the Listener and of the RouteConfiguration for a port of the mesh.
pub(crate) fn mesh_table(port: u16) -> String {
    format!("mesh/{port}")
}

/// A virtual host of a chain.
pub(crate) fn host_frame(host: &str, number: u16, is_tls: bool, options: &Options) -> Frame {
    let port = ListenerPort { number, is_tls, merges_route_kinds: options.merges_route_kinds };
    Frame { name: host.to_owned(), domains: vec![host.to_owned()], is_misdirected: false, port }
}

/// A port of a Gateway without the hosts of its routes. `None` if none of its chains is programmed, because Envoys reject a listener
/// without chains.
pub(crate) fn gateway(port: &Port, options: &Options) -> Option<GatewayPort> {
    let programmed: Vec<&Chain> = port.chains.iter().filter(|chain| chain.is_programmed).collect();
    let table = |chain: &&Chain| (chain.name.clone(), misdirected(port, chain, options));
    let tables: Vec<_> = programmed.iter().map(table).collect();
    if tables.is_empty() {
        return None;
    }
    let listener = Listener {
        name: port.name.clone(),
        // By default, every IPv4 address: where IPv6 is off, Envoy cannot listen on `::`.
        address: port.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: port.port,
        is_edge: true,
        is_on_demand: false,
        chains: programmed.iter().map(|chain| (chain.name.clone(), chain.tls.clone())).collect(),
    };
    Some(GatewayPort { listener, tables })
}

/// The virtual host for hosts of the port's other chains. An HTTP/2 client sends requests for every host of a certificate on one
/// connection, although its server name has chosen the chain. The Gateway API asks for 421, so the client opens a new connection.
fn misdirected(port: &Port, chain: &Chain, options: &Options) -> Option<Frame> {
    let others =
        port.chains.iter().filter(|other| other.name != chain.name).filter_map(|other| other.tls.as_ref());
    let names = others.map(|tls| tls.server_name.as_ref().map_or(Host::Any.as_str(), Hostname::as_str));
    let own: BTreeSet<&str> = chain.hosts.iter().map(|own| own.host.as_str()).collect();
    let domains: BTreeSet<String> = names.filter(|name| !own.contains(name)).map(str::to_owned).collect();
    (!domains.is_empty()).then(|| {
        let (number, is_tls) = (port.port, chain.tls.is_some());
        let port = ListenerPort { number, is_tls, merges_route_kinds: options.merges_route_kinds };
        let (name, domains) = ("misdirected".to_owned(), domains.into_iter().collect());
        Frame { name, domains, is_misdirected: true, port }
    })
}

/// Returns `true` if a share of a gRPC route must fail with UNAVAILABLE.
pub(crate) fn uses_unavailable(route: &PlannedRoute) -> bool {
    match &route.action {
        Action::Forward(targets) => {
            route.is_grpc && targets.iter().any(|weighted| weighted.target == Target::Broken)
        }
        Action::Redirect(_) | Action::Fail => false,
    }
}
