//! Listeners: by which names applications dial, and whose routes they get.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use xds_cache::Origin;

use super::session;
use crate::emit::shared::{ads, type_of};
use crate::plan::{Chain, Host, Plan, PlannedRoute};

/// The routes of one host, as one RouteConfiguration.
#[derive(Clone, Debug)]
pub(super) struct Table<'p> {
    /// The RouteConfiguration's name.
    pub(super) name: String,
    /// The virtual host's name.
    pub(super) host: &'p str,
    pub(super) routes: &'p [PlannedRoute],
    pub(super) origin: &'p Origin,
    /// Whether the host is a wildcard.
    pub(super) is_pattern: bool,
}

/// The table for each name that can be dialled.
///
/// The authority that a client asks for has the port only if the application wrote one (C44), so exact hosts have both
/// forms. Without port, a host belongs to the gateway with the lowest port, and a service's name to its lowest port; names of
/// gateways come before those of the mesh.
pub(super) fn listeners(plan: &Plan) -> BTreeMap<String, Table<'_>> {
    let mut listeners = BTreeMap::new();
    for (port, table) in gateway_tables(plan) {
        if !table.is_pattern {
            listeners.entry(format!("{}:{port}", table.host)).or_insert_with(|| table.clone());
        }
        listeners.entry(table.host.to_owned()).or_insert(table);
    }
    let mut lowest_ports = BTreeMap::new();
    for service in &plan.services {
        let lowest = lowest_ports.entry((&service.namespace, &service.name)).or_insert(service.port);
        *lowest = service.port.min(*lowest);
    }
    for service in &plan.services {
        let (namespace, name, port) = (&service.namespace, &service.name, service.port);
        let table = Table {
            name: format!("grpc/mesh/{namespace}/{name}/{port}"),
            host: name,
            routes: &service.routes,
            origin: &service.origin,
            is_pattern: false,
        };
        let is_lowest = lowest_ports.get(&(namespace, name)) == Some(&port);
        for host in &service.hosts {
            listeners.entry(format!("{host}:{port}")).or_insert_with(|| table.clone());
            if is_lowest {
                listeners.entry(host.clone()).or_insert_with(|| table.clone());
            }
        }
    }
    listeners
}

/// The hosts of all gateways with their ports, those that come first where names clash at the front: the lowest port, the
/// first gateway, and of one port the chain whose server name says most of the host, as in a TLS handshake.
fn gateway_tables(plan: &Plan) -> Vec<(u16, Table<'_>)> {
    let mut tables = Vec::new();
    for port in &plan.ports {
        for chain in &port.chains {
            for host in &chain.hosts {
                let table = Table {
                    name: format!("grpc/{}/{}", chain.name, host.host),
                    host: host.host.as_str(),
                    routes: &host.routes,
                    origin: &port.origin,
                    is_pattern: is_pattern(&host.host),
                };
                let rank = (port.port, port.name.as_str(), Reverse(specificity(chain)), chain.name.as_str());
                tables.push((rank, (port.port, table)));
            }
        }
    }
    tables.sort_by_key(|(rank, _)| *rank);
    tables.into_iter().map(|(_, table)| table).collect()
}

fn is_pattern(host: &Host) -> bool {
    match host {
        Host::Any => true,
        Host::Name(name) => name.wildcard_suffix().is_some(),
    }
}

/// How much a chain's server name says: nothing, the end of names by its length, or a whole name.
fn specificity(chain: &Chain) -> usize {
    match chain.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
        None => 0,
        Some(name) => name.wildcard_suffix().map_or(usize::MAX, str::len),
    }
}

/// A Listener for a client's channel. It says nothing of forwarded addresses, which gRPC refuses (rows B23 and B24).
pub(super) fn message(name: &str, configuration: &str, has_sessions: bool) -> Json {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": type_of("extensions.filters.http.router.v3.Router")},
    });
    // The router is the last one: Java refuses even optional filters behind it (rows B33 and B35).
    let filters = match has_sessions {
        true => vec![session::filter(), router],
        false => vec![router],
    };
    json!({
        "@type": type_of("config.listener.v3.Listener"),
        "name": name,
        "api_listener": {"api_listener": {
            "@type": type_of("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": configuration,
            "rds": {"route_config_name": configuration, "config_source": ads()},
            "http_filters": filters,
        }},
    })
}
