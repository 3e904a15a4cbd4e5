//! A plan as resources for Envoys.
//!
//! A gateway's port is a Listener and, for each chain, a RouteConfiguration of the same name; a port of the mesh is a Listener
//! and RouteConfiguration `mesh/<port>`. Clusters are named like backends (`/h2` behind it where HTTP/2 is spoken), endpoints
//! like assignments, secrets like secrets.
//! All of it is fetched over the stream on which the Listener came.

mod action;
mod cluster;
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

use serde_json::Value as Json;
use xds_cache::Origin;

use super::Emitted;
use crate::plan::{Action, Plan, PlannedRoute, Port, Target, TlsTermination};
use crate::translate::Options;

/// The resources of a plan for Envoys: each name of a type once.
pub(crate) fn envoy(plan: &Plan, options: &Options) -> Vec<Emitted> {
    let mut emitted = Vec::new();
    let mut unavailable = None;
    for served in served(plan, options) {
        emitted.push(resource(listener::listener(&served), served.origin));
        for table in &served.tables {
            let scene = Scene { plan, options, port: served.port, is_tls: table.tls.is_some() };
            emitted.push(resource(route::configuration(&scene, table), served.origin));
            if table.routes().any(uses_unavailable) {
                unavailable.get_or_insert(served.origin);
            }
        }
    }
    emitted.extend(cluster::clusters(plan));
    if let Some(origin) = unavailable {
        emitted.push(resource(cluster::unavailable(), origin));
    }
    emitted.extend(endpoints::assignments(plan, unavailable));
    emitted.extend(secret::secrets(plan));
    emitted
}

/// A listener and what it serves.
struct Served<'p> {
    /// The name of the Listener.
    name: String,
    address: IpAddr,
    port: u16,
    /// Whether strangers connect to it, whose headers are not to be trusted.
    is_edge: bool,
    /// At least one.
    tables: Vec<Table<'p>>,
    origin: &'p Origin,
}

/// A RouteConfiguration.
struct Table<'p> {
    name: String,
    tls: Option<&'p TlsTermination>,
    hosts: Vec<Hosts<'p>>,
}

impl<'p> Table<'p> {
    fn routes(&self) -> impl Iterator<Item = &'p PlannedRoute> {
        self.hosts.iter().flat_map(|hosts| hosts.routes)
    }
}

/// A virtual host.
struct Hosts<'p> {
    name: String,
    domains: Vec<&'p str>,
    routes: &'p [PlannedRoute],
}

/// What a route must know of its surroundings.
struct Scene<'p> {
    plan: &'p Plan,
    options: &'p Options,
    /// The port on which requests arrive.
    port: u16,
    /// Whether they arrive over TLS.
    is_tls: bool,
}

/// What an Envoy listens to: gateways first, then the ports of the mesh that no gateway of the plan has.
fn served<'p>(plan: &'p Plan, options: &Options) -> Vec<Served<'p>> {
    let mut served: Vec<Served<'p>> = plan.ports.iter().filter_map(gateway).collect();
    let Some(address) = options.mesh_address else { return served };
    let mut mesh: BTreeMap<u16, Vec<_>> = BTreeMap::new();
    for service in plan.services_for_envoys() {
        mesh.entry(service.port).or_default().push(service);
    }
    mesh.retain(|port, _| !plan.ports.iter().any(|gateway| gateway.port == *port));
    for (port, services) in mesh {
        let Some(first) = services.first() else { continue };
        let origin = &first.origin;
        let hosts = services.iter().map(|service| Hosts {
            name: format!("{}/{}", service.namespace, service.name),
            domains: service.hosts.iter().map(String::as_str).collect(),
            routes: &service.routes,
        });
        let name = format!("mesh/{port}");
        let tables = vec![Table { name: name.clone(), tls: None, hosts: hosts.collect() }];
        served.push(Served { name, address, port, is_edge: false, tables, origin });
    }
    served
}

/// A gateway's port; nothing if none of its chains is programmed, because Envoys refuse a listener without chains.
fn gateway(port: &Port) -> Option<Served<'_>> {
    let chains = port.chains.iter().filter(|chain| chain.is_programmed);
    let tables: Vec<Table<'_>> = chains
        .map(|chain| Table {
            name: chain.name.clone(),
            tls: chain.tls.as_ref(),
            hosts: chain
                .hosts
                .iter()
                .map(|host| Hosts {
                    name: host.host.to_string(),
                    domains: vec![host.host.as_str()],
                    routes: &host.routes,
                })
                .collect(),
        })
        .collect();
    if tables.is_empty() {
        return None;
    }
    // Every address of IPv4 unless one is given: where IPv6 is off, an Envoy could not listen to `::` at all.
    let address = port.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    Some(Served {
        name: port.name.clone(),
        address,
        port: port.port,
        is_edge: true,
        tables,
        origin: &port.origin,
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

fn resource(message: Json, origin: &Origin) -> Emitted {
    Emitted { message, origin: origin.clone(), is_pattern: false }
}
