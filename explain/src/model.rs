//! The resources that a client is served, ready for requests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::ClusterDiscoveryType;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, ScopedRouteConfiguration, VirtualHost};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use prost::Message as _;
use xds_cache::{Name, Resource, ResourceKey, ResourceType, TypeTable, View};

use crate::client::Client;
use crate::explanation::Part;
use crate::listener::addresses;
use crate::request::Request;
use crate::semantics::{Difference, Semantics};
use crate::table::RouteTable;

/// The resources that a client is served, ready for requests. A RouteConfiguration is read when it is first asked for.
#[derive(Debug)]
pub struct Model {
    pub(crate) client: Client,
    pub(crate) semantics: Semantics,
    resources: BTreeMap<ResourceType, Arc<TypeTable>>,
    tables: BTreeMap<Name, OnceLock<Option<Arc<RouteTable>>>>,
    listeners: Vec<(Arc<Resource>, Listener)>,
}

/// A connection manager, with the part of the listener that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Manager {
    pub(crate) message: HttpConnectionManager,
    /// The listener, and the path of the connection manager in it.
    pub(crate) part: Part,
}

/// A listener that may accept a connection, and where.
#[derive(Debug)]
pub(crate) struct Accepting<'m> {
    pub(crate) resource: &'m Resource,
    pub(crate) listener: &'m Listener,
    pub(crate) address: Option<(IpAddr, u16)>,
}

impl Model {
    /// A model of what a view serves.
    #[must_use]
    pub fn of_view(view: &View, client: Client) -> Self {
        let types = view.types().cloned().collect::<Vec<_>>();
        Self::new(
            types.into_iter().map(|of_type| (of_type.clone(), Arc::clone(view.table(&of_type)))).collect(),
            client,
        )
    }

    /// A model of these resources, which have unique names.
    #[must_use]
    pub fn compile(resources: impl IntoIterator<Item = Arc<Resource>>, client: Client) -> Self {
        let mut by_type: BTreeMap<ResourceType, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in resources {
            by_type.entry(resource.resource_type().clone()).or_default().push(resource);
        }
        let tables = by_type.into_iter().map(|(of_type, all)| (of_type, Arc::new(TypeTable::new(all))));
        Self::new(tables.collect(), client)
    }

    fn new(resources: BTreeMap<ResourceType, Arc<TypeTable>>, client: Client) -> Self {
        let all =
            |of_type: &ResourceType| resources.get(of_type).into_iter().flat_map(|table| table.resources());
        let tables = all(&ResourceType::RouteConfiguration)
            .map(|one| (Arc::clone(one.name()), OnceLock::new()))
            .collect();
        let semantics = Semantics::of(client);
        let listeners = match semantics.has(Difference::ActsAsProxy) {
            true => all(&ResourceType::Listener)
                .filter_map(|one| Some((Arc::clone(one), decode_listener(one)?)))
                .collect(),
            false => Vec::new(),
        };
        Self { client, semantics, resources, tables, listeners }
    }

    /// The client that it models.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client
    }

    /// The resource that the client gets for a name.
    pub(crate) fn resource(&self, of_type: &ResourceType, name: &str) -> Option<Arc<Resource>> {
        self.resources.get(of_type)?.resolve(&xds_cache::xdstp::canonical(name))
    }

    /// A RouteConfiguration by name.
    pub(crate) fn table(&self, name: &str) -> Option<Arc<RouteTable>> {
        let resource = self.resource(&ResourceType::RouteConfiguration, name)?;
        let read = || RouteConfiguration::decode(&**resource.value()).ok();
        let compile = || read().map(|message| Arc::new(RouteTable::of(message, self.semantics)));
        match self.tables.get(&**resource.name()) {
            Some(table) => table.get_or_init(compile).clone(),
            None => compile(),
        }
    }

    /// The scopes that are served, by name.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = ScopedRouteConfiguration> {
        let table = self.resources.get(&ResourceType::ScopedRouteConfiguration);
        let all = table.into_iter().flat_map(|table| table.resources());
        all.filter_map(|resource| ScopedRouteConfiguration::decode(&**resource.value()).ok())
    }

    /// The table with the virtual host that is served for a host on demand.
    pub(crate) fn on_demand(&self, table: &RouteTable, host: &str) -> Option<(Arc<RouteTable>, ResourceKey)> {
        let name = format!("{}/{host}", table.message.name);
        let resource = self.resource(&ResourceType::VirtualHost, &name)?;
        let found = VirtualHost::decode(&**resource.value()).ok()?;
        let message = RouteConfiguration { virtual_hosts: vec![found], ..table.message.clone() };
        Some((Arc::new(RouteTable::of(message, self.semantics)), resource.key().clone()))
    }

    /// The listeners that may accept the connection (XF1), and where.
    pub(crate) fn listeners(&self, request: &Request) -> Vec<Accepting<'_>> {
        let connection = &request.connection;
        let mut found = Vec::new();
        for (resource, listener) in &self.listeners {
            if connection.listener.as_ref().is_some_and(|name| **name != **resource.name()) {
                continue;
            }
            let fits = |(ip, port): &(IpAddr, u16)| {
                connection.port.is_none_or(|wanted| wanted == *port)
                    && connection.to.is_none_or(|to| ip.is_unspecified() || *ip == to)
            };
            let address = addresses(listener).find(fits);
            let is_asked = connection.port.is_some() || connection.to.is_some();
            if address.is_some() || !is_asked {
                found.push(Accepting { resource, listener, address });
            }
        }
        // An exact address comes before 0.0.0.0.
        let is_exact =
            |address: &Option<(IpAddr, u16)>| address.is_some_and(|(ip, _)| Some(ip) == connection.to);
        if found.iter().any(|one| is_exact(&one.address)) {
            found.retain(|one| is_exact(&one.address));
        }
        found
    }

    /// All resources of a type, by name.
    pub(crate) fn all(&self, of_type: &ResourceType) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.get(of_type).into_iter().flat_map(|table| table.resources())
    }

    /// All listeners of a proxy.
    pub(crate) fn all_listeners(&self) -> impl Iterator<Item = (&Resource, &Listener)> {
        self.listeners.iter().map(|(resource, listener)| (&**resource, listener))
    }

    /// The virtual hosts on demand of a RouteConfiguration, by name.
    pub(crate) fn on_demand_hosts(&self, route_config: &str) -> Vec<Arc<Resource>> {
        let is_of = |resource: &&Arc<Resource>| {
            resource.name().strip_prefix(route_config).is_some_and(|rest| rest.starts_with('/'))
        };
        self.all(&ResourceType::VirtualHost).filter(is_of).cloned().collect()
    }

    /// The connection manager of a chain.
    pub(crate) fn manager(resource: &Resource, chain: &FilterChain, index: Option<usize>) -> Option<Manager> {
        let at = chain.filters.iter().enumerate().find_map(|(at, filter)| match &filter.config_type {
            Some(ConfigType::TypedConfig(any)) if any.type_url.ends_with(MANAGER) => {
                Some((at, HttpConnectionManager::decode(&*any.value).ok()?))
            }
            Some(ConfigType::TypedConfig(_) | ConfigType::ConfigDiscovery(_)) | None => None,
        });
        let (at, message) = at?;
        let chain = index
            .map_or_else(|| "default_filter_chain".to_owned(), |index| format!("filter_chains[{index}]"));
        let path = format!("{chain}.filters[{at}].typed_config");
        Some(Manager { message, part: Part { resource: resource.key().clone(), path, route: None } })
    }

    /// The connection manager of a gRPC client's listener.
    pub(crate) fn api_manager(&self, target: &str) -> Option<(Arc<Resource>, Option<Manager>)> {
        let resource = self.resource(&ResourceType::Listener, target)?;
        let listener = decode_listener(&resource)?;
        let any = listener.api_listener.and_then(|api| api.api_listener);
        let message = any.and_then(|any| HttpConnectionManager::decode(&*any.value).ok());
        let path = "api_listener.api_listener".to_owned();
        let part = Part { resource: resource.key().clone(), path, route: None };
        Some((resource, message.map(|message| Manager { message, part })))
    }

    /// A cluster, and the assignment of its endpoints.
    pub(crate) fn cluster(&self, name: &str) -> Option<(Cluster, Option<ClusterLoadAssignment>)> {
        let resource = self.resource(&ResourceType::Cluster, name)?;
        let cluster = Cluster::decode(&**resource.value()).ok()?;
        let service = assignment_name(&cluster);
        let own = cluster.load_assignment.clone();
        let assignment = own.or_else(|| {
            let resource = self.resource(&ResourceType::ClusterLoadAssignment, service)?;
            ClusterLoadAssignment::decode(&**resource.value()).ok()
        });
        Some((cluster, assignment))
    }

    /// The clusters that an aggregate chooses from, in order (XA12): leaves depth first, each once.
    pub(crate) fn members(&self, cluster: &Cluster) -> Vec<String> {
        let mut open: Vec<String> = aggregated(cluster);
        open.reverse();
        self.leaves(open)
    }

    /// The clusters that a member of an aggregate stands for: itself, or those that it chooses from.
    pub(crate) fn leaves_of(&self, member: &str) -> Vec<String> {
        self.leaves(vec![member.to_owned()])
    }

    /// The leaves below clusters, of which the last is first.
    fn leaves(&self, mut open: Vec<String>) -> Vec<String> {
        let mut leaves: Vec<String> = Vec::new();
        let mut n_seen = 0;
        while let Some(name) = open.pop() {
            n_seen += 1;
            if n_seen > MAX_MEMBERS || leaves.contains(&name) {
                continue;
            }
            let found = self.resource(&ResourceType::Cluster, &name);
            let inner = found.and_then(|resource| Cluster::decode(&**resource.value()).ok());
            let more = inner.as_ref().map(aggregated).unwrap_or_default();
            if more.is_empty() {
                leaves.push(name);
            } else {
                open.extend(more.into_iter().rev());
            }
        }
        leaves
    }
}

/// The name of the ClusterLoadAssignment of a cluster.
pub(crate) fn assignment_name(cluster: &Cluster) -> &str {
    let named = cluster.eds_cluster_config.as_ref().map(|config| config.service_name.as_str());
    named.filter(|name| !name.is_empty()).unwrap_or(&cluster.name)
}

/// The names in an aggregate cluster; none in any other.
pub(crate) fn aggregated(cluster: &Cluster) -> Vec<String> {
    let Some(ClusterDiscoveryType::ClusterType(custom)) = &cluster.cluster_discovery_type else {
        return Vec::new();
    };
    let any = custom.typed_config.as_ref().filter(|any| any.type_url.ends_with(AGGREGATE));
    any.and_then(|any| ClusterConfig::decode(&*any.value).ok())
        .map(|config| config.clusters)
        .unwrap_or_default()
}

fn decode_listener(resource: &Resource) -> Option<Listener> {
    Listener::decode(&**resource.value()).ok()
}

const MANAGER: &str = "/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const AGGREGATE: &str = "/envoy.extensions.clusters.aggregate.v3.ClusterConfig";

/// How many clusters an aggregate is followed to.
const MAX_MEMBERS: usize = 64;
