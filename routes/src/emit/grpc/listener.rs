//! Listeners: by which names applications dial, and whose routes they get.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
#[cfg(test)]
use xds_cache::Origin;

use super::session;
use crate::emit::FoundBy;
use crate::emit::shared::{ads, router, type_of};
#[cfg(test)]
use crate::plan::PlannedRoute;
use crate::plan::{Chain, Host, MeshService, Plan, Port, VirtualHost};

/// A host that applications dial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dialled {
    /// The names, sorted; at least one.
    pub(crate) names: Vec<String>,
    /// The RouteConfiguration's name.
    pub(crate) name: Arc<str>,
    /// The virtual host's name.
    pub(crate) host: Arc<str>,
    /// How the listener without port is found: as a pattern if the host is a wildcard.
    pub(crate) found_by: FoundBy,
}

/// The part of the plan that a host is of.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    /// A host of a chain.
    Host(&'p Port, &'p Chain, &'p VirtualHost),
    /// A Service.
    Service(&'p MeshService),
}

impl<'p> Place<'p> {
    /// Its routes.
    #[cfg(test)]
    pub(crate) fn routes(self) -> &'p [PlannedRoute] {
        match self {
            Self::Host(_, _, host) => &host.routes,
            Self::Service(service) => &service.routes,
        }
    }

    /// Where it is from.
    #[cfg(test)]
    pub(crate) fn origin(self) -> &'p Origin {
        match self {
            Self::Host(port, ..) => &port.origin,
            Self::Service(service) => &service.origin,
        }
    }
}

/// The hosts that can be dialled, in order of their first names.
///
/// The authority that a client asks for has the port only if the application wrote one (C44), so exact hosts have both
/// forms. Without port, a host belongs to the gateway with the lowest port, and a service's name to its lowest port; names of
/// gateways come before those of the mesh.
pub(crate) fn tables(plan: &Plan) -> Vec<(Place<'_>, Dialled)> {
    let mut tables = Vec::new();
    // By name, the first table that has it. Sorted afterwards, because most names are of one table among many.
    let n_names = plan.services.iter().map(|service| 2 * service.hosts.len()).sum();
    let mut owners: HashMap<String, usize> = HashMap::with_capacity(n_names);
    for (index, (port, place, dialled)) in gateway_tables(plan).into_iter().enumerate() {
        if dialled.found_by == FoundBy::Authority {
            owners.entry(format!("{}:{port}", dialled.host)).or_insert(index);
        }
        owners.entry(dialled.host.to_string()).or_insert(index);
        tables.push((place, dialled));
    }
    for service in plan.services.iter().filter(|service| !service.is_borrowed) {
        let (namespace, name, port) = (&service.namespace, &service.name, service.port);
        let index = tables.len();
        let dialled = Dialled {
            names: Vec::new(),
            name: format!("grpc/mesh/{namespace}/{name}/{port}").into(),
            host: name.as_str().into(),
            found_by: FoundBy::Authority,
        };
        tables.push((Place::Service(service), dialled));
        let end = format!(":{port}");
        for host in &service.hosts {
            owners.entry([host.as_str(), &end].concat()).or_insert(index);
            if service.is_lowest_port {
                owners.entry(host.clone()).or_insert(index);
            }
        }
    }
    for (name, index) in owners {
        if let Some((_, dialled)) = tables.get_mut(index) {
            dialled.names.push(name);
        }
    }
    tables.retain(|(_, dialled)| !dialled.names.is_empty());
    tables.iter_mut().for_each(|(_, dialled)| dialled.names.sort_unstable());
    tables.sort_unstable_by(|(_, one), (_, other)| one.names.cmp(&other.names));
    tables
}

/// The hosts of all gateways with their ports, those that come first where names clash at the front: the lowest port, the
/// first gateway, and of one port the chain whose server name says most of the host, as in a TLS handshake.
fn gateway_tables(plan: &Plan) -> Vec<(u16, Place<'_>, Dialled)> {
    let mut tables = Vec::new();
    for port in &plan.ports {
        for chain in &port.chains {
            for host in &chain.hosts {
                let dialled = Dialled {
                    names: Vec::new(),
                    name: format!("grpc/{}/{}", chain.name, host.host).into(),
                    host: host.host.as_str().into(),
                    found_by: found_by(&host.host),
                };
                let rank = (port.port, port.name.as_str(), Reverse(specificity(chain)), chain.name.as_str());
                tables.push((rank, (port.port, Place::Host(port, chain, host), dialled)));
            }
        }
    }
    tables.sort_by_key(|(rank, _)| *rank);
    tables.into_iter().map(|(_, table)| table).collect()
}

fn found_by(host: &Host) -> FoundBy {
    match host {
        Host::Name(name) if name.wildcard_suffix().is_none() => FoundBy::Authority,
        Host::Name(_) | Host::Any => FoundBy::Pattern,
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
    // The router is the last one: Java refuses even optional filters behind it (rows B33 and B35).
    let filters = match has_sessions {
        true => vec![session::filter(), router()],
        false => vec![router()],
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
