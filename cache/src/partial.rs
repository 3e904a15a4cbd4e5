//! Routes and aggregate clusters without what leads to clusters that are not served.
//!
//! A gRPC client that gets routes asks for every cluster that they name. C-core and grpc-js use none of the routes until each cluster
//! has come, or for 15 s: nothing tells them that a cluster does not exist. The same is true of the members of an aggregate cluster, of
//! which grpc-go never uses any if one is missing. A client that has nothing yet is sent what works.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use crate::references::References;
use crate::resource::{Resource, ResourceDraft};
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;
use crate::table::TypeTable;
use crate::wire::{all_of, bytes_of, fields, number_of, put_bytes};
use crate::xdstp;

/// The partial resources of one view, made when a client first needs them.
#[derive(Debug, Default)]
pub(crate) struct Partials(RwLock<BTreeMap<ResourceKey, Option<Arc<Resource>>>>);

impl Partials {
    /// The resource without what leads to clusters that are not among `clusters`; `None` if nothing of it does. `resource` must be the
    /// one that the view serves under its name.
    pub(crate) fn of(&self, resource: &Arc<Resource>, clusters: &TypeTable) -> Option<Arc<Resource>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(resource.key()).cloned();
        known.unwrap_or_else(|| {
            let partial = partial(resource, clusters).map(Arc::new);
            let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(resource.key().clone()).or_insert(partial).clone()
        })
    }
}

fn partial(resource: &Resource, clusters: &TypeTable) -> Option<Resource> {
    // Another server may have what has an `xdstp:` name.
    let is_missing = |name: &Name| xdstp::id(name).is_none() && clusters.resolve(name).is_none();
    let named = resource.references().of_type(&ResourceType::Cluster);
    let missing: BTreeSet<&str> = named.filter(|name| is_missing(name)).map(|name| &**name).collect();
    if missing.is_empty() {
        return None;
    }
    let mut cut = Cut { missing, left_out: BTreeSet::new() };
    let draft = resource.to_draft();
    let value = draft.value.bytes();
    let of_type = resource.resource_type();
    let value = if *of_type == ResourceType::Listener {
        cut.listener(value)
    } else if *of_type == ResourceType::Cluster {
        cut.cluster(value)
    } else {
        cut.routes(value)
    };
    let Cut { left_out, .. } = cut;
    if left_out.is_empty() {
        return None;
    }
    let is_left =
        |to: &ResourceKey| to.resource_type != ResourceType::Cluster || !left_out.contains(&*to.name);
    let references: References =
        draft.references.into_iter().filter(|one| is_left(&one.to)).cloned().collect();
    let draft = ResourceDraft { value: bytes::Bytes::from(value).into(), references, ..draft };
    let left_out = left_out.into_iter().map(Name::from).collect();
    Some(Resource::partial(draft, left_out))
}

/// Cuts what leads to missing clusters out of messages.
struct Cut<'m> {
    missing: BTreeSet<&'m str>,
    /// The missing clusters that were cut out.
    left_out: BTreeSet<String>,
}

impl Cut<'_> {
    /// A listener with its own routes, as gRPC clients read it.
    fn listener(&mut self, listener: &[u8]) -> Vec<u8> {
        map(listener, API_LISTENER, |api_listener| {
            let of_clients = map(api_listener, API_LISTENER_ANY, |any| {
                let is_manager = bytes_of(any, ANY_TYPE).is_some_and(|of| of.ends_with(MANAGER));
                let change =
                    |manager: &[u8]| Some(map(manager, ROUTE_CONFIG, |routes| Some(self.routes(routes))));
                Some(if is_manager { map(any, ANY_VALUE, change) } else { any.to_vec() })
            });
            Some(of_clients)
        })
    }

    /// A cluster with the members that are there; with all if none is.
    fn cluster(&mut self, cluster: &[u8]) -> Vec<u8> {
        map(cluster, CLUSTER_TYPE, |cluster_type| {
            let of_cluster = map(cluster_type, CLUSTER_CONFIG, |any| {
                let aggregate = bytes_of(any, ANY_TYPE)
                    .filter(|of| of.ends_with(AGGREGATE))
                    .and_then(|_| bytes_of(any, ANY_VALUE))
                    .filter(|aggregate| all_of(aggregate, AGGREGATED).any(|name| !self.is_missing(name)));
                if aggregate.is_none() {
                    return Some(any.to_vec());
                }
                let mut leave_out = |name: &[u8]| (!self.leaves_out(name)).then(|| name.to_vec());
                Some(map(any, ANY_VALUE, |aggregate| Some(map(aggregate, AGGREGATED, &mut leave_out))))
            });
            Some(of_cluster)
        })
    }

    fn routes(&mut self, configuration: &[u8]) -> Vec<u8> {
        map(configuration, VIRTUAL_HOSTS, |host| Some(map(host, ROUTES, |route| self.route(route))))
    }

    /// The route; `None` if it leads nowhere.
    fn route(&mut self, route: &[u8]) -> Option<Vec<u8>> {
        let Some(action) = bytes_of(route, ROUTE_ACTION) else { return Some(route.to_vec()) };
        if let Some(cluster) = bytes_of(action, CLUSTER) {
            return (!self.leaves_out(cluster)).then(|| route.to_vec());
        }
        let Some(weighted) = bytes_of(action, WEIGHTED_CLUSTERS) else { return Some(route.to_vec()) };
        let is_missing = |member: &&[u8]| bytes_of(member, NAME).is_some_and(|name| self.is_missing(name));
        if !all_of(weighted, MEMBERS).any(|member| is_missing(&member)) {
            return Some(route.to_vec());
        }
        let weight = |member: &[u8]| bytes_of(member, WEIGHT).map_or(0, |weight| number_of(weight, 1));
        let is_any_left = all_of(weighted, MEMBERS).any(|member| !is_missing(&member) && weight(member) > 0);
        let mut leave_out = |member: &[u8]| match bytes_of(member, NAME) {
            Some(name) if self.leaves_out(name) => None,
            Some(_) | None => Some(member.to_vec()),
        };
        let weighted = map(weighted, MEMBERS, &mut leave_out);
        // The sum of all weights, which would not be that of the rest.
        let weighted = map(&weighted, TOTAL_WEIGHT, |_| None);
        let with_rest = |action: &[u8]| Some(map(action, WEIGHTED_CLUSTERS, |_| Some(weighted.clone())));
        is_any_left.then(|| map(route, ROUTE_ACTION, with_rest))
    }

    fn is_missing(&self, cluster: &[u8]) -> bool {
        std::str::from_utf8(cluster).is_ok_and(|name| self.missing.contains(name))
    }

    /// Returns `true` for a missing cluster, and remembers it.
    fn leaves_out(&mut self, cluster: &[u8]) -> bool {
        let is_missing = self.is_missing(cluster);
        if is_missing {
            self.left_out.insert(String::from_utf8_lossy(cluster).into_owned());
        }
        is_missing
    }
}

/// The message with other values of one field, or without those for which `change` returns `None`.
fn map(message: &[u8], number: u32, mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut mapped = Vec::with_capacity(message.len());
    for field in fields(message) {
        if field.number != number {
            mapped.extend_from_slice(field.raw);
        } else if let Some(value) = field.bytes().ok().and_then(&mut change) {
            put_bytes(&mut mapped, number, &value);
        }
    }
    mapped
}

/// The message in the `Any` of an API listener that has routes.
const MANAGER: &[u8] = b"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// The message in the `Any` of a cluster that has members.
const AGGREGATE: &[u8] = b"envoy.extensions.clusters.aggregate.v3.ClusterConfig";

/// `Cluster`.
const CLUSTER_TYPE: u32 = 38;
/// `Cluster.CustomClusterType`.
const CLUSTER_CONFIG: u32 = 2;
/// `ClusterConfig` of an aggregate cluster.
const AGGREGATED: u32 = 1;
/// `Listener`.
const API_LISTENER: u32 = 19;
/// `ApiListener`.
const API_LISTENER_ANY: u32 = 1;
/// `Any`.
const ANY_TYPE: u32 = 1;
const ANY_VALUE: u32 = 2;
/// `HttpConnectionManager`.
const ROUTE_CONFIG: u32 = 4;
/// `RouteConfiguration`.
const VIRTUAL_HOSTS: u32 = 2;
/// `VirtualHost`.
const ROUTES: u32 = 3;
/// `Route.route`.
const ROUTE_ACTION: u32 = 2;
/// `RouteAction`.
const CLUSTER: u32 = 1;
const WEIGHTED_CLUSTERS: u32 = 3;
/// `WeightedCluster`.
const MEMBERS: u32 = 1;
const TOTAL_WEIGHT: u32 = 3;
/// `WeightedCluster.ClusterWeight`.
const NAME: u32 = 1;
const WEIGHT: u32 = 2;
