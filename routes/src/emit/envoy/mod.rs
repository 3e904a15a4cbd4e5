//! A plan as resources for Envoys.
//!
//! A gateway's port is a Listener and, for each chain, a RouteConfiguration of the same name; a port of the mesh is a Listener
//! and RouteConfiguration `mesh/<port>`. Clusters are named like backends (`/h2` behind it where HTTP/2 is spoken), endpoints
//! like assignments, secrets like secrets. Hosts of other chains of a port are answered with 421 (Misdirected Request).
//! All of it is fetched over the stream on which the Listener came.

mod action;
mod cluster;
mod draws;
mod endpoints;
mod filters;
mod limits;
mod listener;
mod matcher;
mod path;
mod route;
mod secret;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use xds_cache::Origin;

use super::{Emitted, Part, Sink};
use crate::model::Hostname;
use crate::plan::{Action, Chain, Host, Plan, PlannedRoute, Port, Target, TlsTermination};
use crate::translate::Options;

/// The resources of a plan for Envoys: each name of a type once.
pub(crate) fn envoy<'p>(plan: &'p Plan, options: &Options, emit: &mut Sink<'_, 'p>) {
    let mut unavailable = None;
    for Served { listener, tables, origin } in served(plan, options) {
        emit(Emitted::new("Envoy listener", listener, listener::listener, origin));
        for table in tables {
            if table.hosts.iter().flat_map(|host| host.routes).any(uses_unavailable) {
                unavailable.get_or_insert(origin);
            }
            let hosts =
                table.hosts.into_iter().map(|host| Part::new("Envoy host", host, route::virtual_host));
            let hosts = hosts.collect();
            emit(Emitted::new("Envoy routes", table.name, route::configuration, origin).with_hosts(hosts));
        }
    }
    cluster::clusters(plan, emit);
    if let Some(origin) = unavailable {
        emit(Emitted::new("Envoy unavailable", (), |()| cluster::unavailable(), origin));
    }
    endpoints::assignments(plan, unavailable, emit);
    secret::secrets(plan).for_each(emit);
}

/// A listener and what it serves.
struct Served<'p> {
    listener: Listener<'p>,
    /// At least one.
    tables: Vec<Table<'p>>,
    origin: &'p Origin,
}

/// A Listener.
#[derive(Hash)]
struct Listener<'p> {
    /// Its name.
    name: String,
    address: IpAddr,
    port: u16,
    /// Whether strangers connect to it, whose headers are not to be trusted.
    is_edge: bool,
    /// Its filter chains, by the names of their tables; at least one.
    chains: Vec<(String, Option<&'p TlsTermination>)>,
}

/// A RouteConfiguration.
struct Table<'p> {
    name: String,
    hosts: Vec<VirtualHost<'p>>,
}

/// A virtual host, and what its routes must know of their surroundings.
#[derive(Hash)]
struct VirtualHost<'p> {
    name: String,
    /// At least one.
    domains: Vec<&'p str>,
    routes: &'p [PlannedRoute],
    /// Whether its requests belong on another connection; then it has no routes.
    is_misdirected: bool,
    port: ListenerPort,
    /// What is known of the backends of routes with sessions.
    pins: session::Pins<'p>,
}

/// Where requests arrive.
#[derive(Clone, Copy, Hash)]
struct ListenerPort {
    number: u16,
    is_tls: bool,
    /// Whether GRPCRoutes and HTTPRoutes may share a host.
    merges_route_kinds: bool,
}

impl<'p> VirtualHost<'p> {
    fn new(
        name: String,
        domains: Vec<&'p str>,
        routes: &'p [PlannedRoute],
        port: ListenerPort,
        plan: &Plan,
    ) -> Self {
        let pins = session::pins(plan, routes);
        Self { name, domains, routes, is_misdirected: false, port, pins }
    }
}

/// What an Envoy listens to: gateways first, then the ports of the mesh that no gateway of the plan has.
fn served<'p>(plan: &'p Plan, options: &Options) -> Vec<Served<'p>> {
    let gateways = plan.ports.iter().filter_map(|port| gateway(port, plan, options));
    let mut served: Vec<Served<'p>> = gateways.collect();
    let Some(address) = options.mesh_address else { return served };
    let mut mesh: BTreeMap<u16, Vec<_>> = BTreeMap::new();
    for service in plan.services_for_envoys() {
        mesh.entry(service.port).or_default().push(service);
    }
    mesh.retain(|port, _| !plan.ports.iter().any(|gateway| gateway.port == *port));
    for (port, services) in mesh {
        let Some(first) = services.first() else { continue };
        let origin = &first.origin;
        let listener_port =
            ListenerPort { number: port, is_tls: false, merges_route_kinds: options.merges_route_kinds };
        let hosts = services.iter().map(|service| {
            let name = format!("{}/{}", service.namespace, service.name);
            let domains = service.hosts.iter().map(String::as_str).collect();
            VirtualHost::new(name, domains, &service.routes, listener_port, plan)
        });
        let name = format!("mesh/{port}");
        let tables = vec![Table { name: name.clone(), hosts: hosts.collect() }];
        let chains = vec![(name.clone(), None)];
        let listener = Listener { name, address, port, is_edge: false, chains };
        served.push(Served { listener, tables, origin });
    }
    served
}

/// A gateway's port; nothing if none of its chains is programmed, because Envoys refuse a listener without chains.
fn gateway<'p>(port: &'p Port, plan: &Plan, options: &Options) -> Option<Served<'p>> {
    let programmed: Vec<&Chain> = port.chains.iter().filter(|chain| chain.is_programmed).collect();
    let table = |chain: &&'p Chain| {
        let listener_port = ListenerPort {
            number: port.port,
            is_tls: chain.tls.is_some(),
            merges_route_kinds: options.merges_route_kinds,
        };
        let hosts = chain.hosts.iter().map(|host| {
            let domains = vec![host.host.as_str()];
            VirtualHost::new(host.host.to_string(), domains, &host.routes, listener_port, plan)
        });
        let hosts = hosts.chain(misdirected(port, chain, listener_port)).collect();
        Table { name: chain.name.clone(), hosts }
    };
    let tables: Vec<Table<'_>> = programmed.iter().map(table).collect();
    if tables.is_empty() {
        return None;
    }
    let listener = Listener {
        name: port.name.clone(),
        // Every address of IPv4 unless one is given: where IPv6 is off, an Envoy could not listen to `::` at all.
        address: port.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: port.port,
        is_edge: true,
        chains: programmed.iter().map(|chain| (chain.name.clone(), chain.tls.as_ref())).collect(),
    };
    Some(Served { listener, tables, origin: &port.origin })
}

/// The hosts of the port's other chains. A client of HTTP/2 sends requests for every host of a certificate on one connection,
/// though the server name that opened it has chosen the chain. The Gateway API wants 421 for them, and a new connection.
fn misdirected<'p>(port: &'p Port, chain: &'p Chain, listener_port: ListenerPort) -> Option<VirtualHost<'p>> {
    let others =
        port.chains.iter().filter(|other| other.name != chain.name).filter_map(|other| other.tls.as_ref());
    let names = others.map(|tls| tls.server_name.as_ref().map_or(Host::Any.as_str(), Hostname::as_str));
    let mut domains: Vec<&str> =
        names.filter(|name| chain.hosts.iter().all(|own| own.host.as_str() != *name)).collect();
    domains.sort_unstable();
    domains.dedup();
    (!domains.is_empty()).then(|| VirtualHost {
        name: "misdirected".to_owned(),
        domains,
        routes: &[],
        is_misdirected: true,
        port: listener_port,
        pins: session::Pins::new(),
    })
}

/// Whether a share of a gRPC route must fail with UNAVAILABLE (C47).
fn uses_unavailable(route: &PlannedRoute) -> bool {
    match &route.action {
        Action::Forward(targets) => {
            route.is_grpc && targets.iter().any(|weighted| weighted.target == Target::Broken)
        }
        Action::Redirect(_) | Action::Fail => false,
    }
}
