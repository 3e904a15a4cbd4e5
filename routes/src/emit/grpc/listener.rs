//! Listeners: the names that applications dial, and their routes.

#[cfg(test)]
use std::cmp::Reverse;
#[cfg(test)]
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use xds_cache::Name;
#[cfg(test)]
use xds_cache::Origin;

use super::session;
use crate::emit::FoundBy;
use crate::emit::shared::{ads, router, type_of};
use crate::plan::Host;
#[cfg(test)]
use crate::plan::{Chain, MeshService, Plan, PlannedRoute, Port, VirtualHost, mesh};

/// A host that applications dial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dialled {
    /// The names, sorted; at least one.
    pub(crate) names: Vec<Name>,
    /// The RouteConfiguration's name.
    pub(crate) name: Arc<str>,
    /// The virtual host's name.
    pub(crate) host: Arc<str>,
    /// How the listener without port is found: by a pattern if the host is a wildcard.
    pub(crate) found_by: FoundBy,
}

/// The part of the plan that has a host.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) enum PlannedHost<'p> {
    /// A host of a chain.
    Host(&'p Port, &'p VirtualHost),
    /// A Service.
    Service(&'p MeshService),
}

#[cfg(test)]
impl<'p> PlannedHost<'p> {
    /// Its routes.
    pub(crate) fn routes(self) -> &'p [PlannedRoute] {
        match self {
            Self::Host(_, host) => &host.routes,
            Self::Service(service) => &service.routes,
        }
    }

    /// Where it is from.
    pub(crate) fn origin(self) -> &'p Origin {
        match self {
            Self::Host(port, _) => &port.origin,
            Self::Service(service) => &service.origin,
        }
    }
}

/// The hosts of a plan that can be dialled, in order of their first names.
#[cfg(test)]
pub(crate) fn tables(plan: &Plan) -> Vec<(PlannedHost<'_>, Dialled)> {
    let gateways = gateway_tables(plan);
    let mut tables: Vec<(PlannedHost<'_>, Dialled)> = Vec::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (port, _, dialled) in &gateways {
        taken.extend([dialled.host.to_string(), format!("{}:{port}", dialled.host)]);
    }
    let services = plan.services.iter().filter(|service| !service.is_borrowed);
    let of_services = services.map(|service| {
        let MeshService { namespace, name, port, hosts, is_lowest_port, .. } = service;
        let mut names = mesh::dialled(hosts.clone(), *port, *is_lowest_port);
        names.retain(|name| taken.insert(name.clone()));
        (PlannedHost::Service(service), Dialled::service(namespace, name, *port, names))
    });
    let of_services: Vec<_> = of_services.collect();
    let first = |is_meant: &dyn Fn(u16, &Dialled) -> bool| {
        gateways.iter().position(|(port, _, dialled)| is_meant(*port, dialled))
    };
    for (index, (port, planned, dialled)) in gateways.iter().enumerate() {
        let is_first = first(&|_, other| other.host == dialled.host) == Some(index);
        let is_first_of_port = first(&|at, other| (at, &other.host) == (*port, &dialled.host)) == Some(index);
        let names = dialled.gateway_names(*port, is_first, is_first_of_port);
        tables.push((*planned, Dialled { names, ..dialled.clone() }));
    }
    tables.extend(of_services);
    tables.retain(|(_, dialled)| !dialled.names.is_empty());
    tables.sort_unstable_by(|(_, one), (_, other)| one.names.cmp(&other.names));
    tables
}

impl Dialled {
    /// A Service at a port of the mesh that is dialled by these names.
    pub(crate) fn service(namespace: &str, name: &str, port: u16, names: Vec<String>) -> Self {
        let mut names: Vec<Name> = names.into_iter().map(Name::from).collect();
        names.sort_unstable();
        let of_mesh = format!("grpc/mesh/{namespace}/{name}/{port}");
        Self { names, name: of_mesh.into(), host: name.into(), found_by: FoundBy::Authority }
    }

    /// A host of a chain of Gateways, without names.
    pub(crate) fn gateway(chain: &str, host: &Host) -> Self {
        Self {
            names: Vec::new(),
            name: format!("grpc/{chain}/{host}").into(),
            host: host.as_str().into(),
            found_by: found_by(host),
        }
    }

    /// The names of a host of a Gateway, sorted: with the port if it is the first one with this host on the port, and without the port if
    /// it is the first one with this host at all.
    pub(crate) fn gateway_names(&self, port: u16, is_first: bool, is_first_of_port: bool) -> Vec<Name> {
        let with_port = is_first_of_port && self.found_by == FoundBy::Authority;
        let with_port = with_port.then(|| format!("{}:{port}", self.host));
        is_first.then(|| self.host.to_string()).into_iter().chain(with_port).map(Name::from).collect()
    }
}

/// The hosts of all Gateways with their ports. If names clash, the first one wins: the lowest port, then the first Gateway, and on the
/// same port the chain with the most specific server name, as in a TLS handshake.
#[cfg(test)]
fn gateway_tables(plan: &Plan) -> Vec<(u16, PlannedHost<'_>, Dialled)> {
    let mut tables = Vec::new();
    for port in &plan.ports {
        for chain in &port.chains {
            for host in &chain.hosts {
                let dialled = Dialled::gateway(&chain.name, &host.host);
                let rank = (port.port, port.name.as_str(), Reverse(specificity(chain)), chain.name.as_str());
                tables.push((rank, (port.port, PlannedHost::Host(port, host), dialled)));
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

/// How specific a chain's server name is: none, a suffix by its length, or a whole name.
#[cfg(test)]
fn specificity(chain: &Chain) -> usize {
    match chain.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
        None => 0,
        Some(name) => name.wildcard_suffix().map_or(usize::MAX, str::len),
    }
}

/// A Listener for a client's channel. It has no settings for forwarded addresses, which gRPC rejects (rows B23 and B24).
pub(super) fn message(name: &str, configuration: &str, has_sessions: bool) -> Json {
    // The router comes last: Java rejects even optional filters after it (rows B33 and B35).
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
