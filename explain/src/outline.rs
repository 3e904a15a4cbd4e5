//! Routes in order, each with its way from a listener to endpoints: not for a request, but to look at.

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use serde::Serialize;
use xds_cache::{ResourceKey, ResourceType};

use crate::endpoints::endpoints;
use crate::explanation::{Element, Endpoint, Located, Part, Place};
use crate::header::Seen;
use crate::inventory::Inventory;
use crate::model::Model;
use crate::ratio::Ratio;
use crate::route::{Asked, Route};
use crate::tables::{Reachable, Reached};

/// A route, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// The listener through which requests come; for a gRPC client the target.
    pub listener: String,
    /// The port of the listener; `None` for a gRPC client.
    pub port: Option<u16>,
    /// The name of the virtual host.
    pub host: String,
    /// Its domains: the first hundred.
    pub domains: Vec<String>,
    /// The position of the route in the virtual host, from 0.
    pub index: usize,
    /// Name and place of the route.
    #[serde(flatten)]
    pub element: Element,
    /// The path that it wants.
    pub path: String,
    /// What else it wants.
    pub conditions: Vec<String>,
    /// What it does: `forward`, `redirect`, `respond`, or `other`.
    pub action: &'static str,
    /// The clusters to which it forwards.
    pub backends: Vec<WayBackend>,
}

/// A cluster to which a route forwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WayBackend {
    /// Its share of the requests of the route.
    pub share: Ratio,
    /// Name and place of the cluster.
    #[serde(flatten)]
    pub element: Element,
    /// False if the client is not served it.
    pub is_served: bool,
    /// Its endpoints: the first hundred.
    pub endpoints: Vec<Endpoint>,
    /// How many these are in all; zero if they are not in an assignment, as for names that the client resolves.
    pub n_endpoints: usize,
}

/// The routes that are wanted.
#[derive(Clone, Debug, Default)]
pub struct WaysWanted {
    /// A part of a domain, or of the name of the virtual host.
    pub host: Option<String>,
    /// A part of a path.
    pub path: Option<String>,
    /// How many are passed over.
    pub skip: usize,
    /// How many are wanted.
    pub limit: usize,
}

impl Located for Way {
    fn locate(&mut self, find: &mut dyn FnMut(&Part) -> Option<Place>) {
        let backends = self.backends.iter_mut().map(|backend| &mut backend.element);
        for element in std::iter::once(&mut self.element).chain(backends) {
            element.place = find(&element.part);
        }
    }
}

/// Routes of a client in the order of listeners, virtual hosts and routes, and whether there are more. Routes of hosts that are passed over are not
/// read, unless a path is asked for.
#[must_use]
pub fn ways(model: &Model, wanted: &WaysWanted) -> (Vec<Way>, bool) {
    let mut found = Vec::new();
    let mut skip = wanted.skip;
    for reached in &Reachable::of(model).tables {
        let listener = match &reached.target {
            Some(target) => target.to_string(),
            None => reached.listener.to_string(),
        };
        for (at, host) in reached.table.hosts.iter().enumerate() {
            let name = &host.message.name;
            let has = |part: &String| {
                name.contains(part.as_str())
                    || host.message.domains.iter().any(|domain| domain.contains(part.as_str()))
            };
            if wanted.host.as_ref().is_some_and(|part| !has(part)) {
                continue;
            }
            for (index, route) in host.routes.iter().enumerate() {
                if wanted.path.as_ref().is_some_and(|part| !route.wanted_path().contains(part.as_str())) {
                    continue;
                }
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                if found.len() >= wanted.limit {
                    return (found, true);
                }
                let path = format!("{}virtual_hosts[{at}].{}", reached.prefix, host.path_of_route(index));
                let mut way = way(model, reached, route, path);
                way.listener.clone_from(&listener);
                way.host.clone_from(name);
                way.domains = host.message.domains.iter().take(MAX_SHOWN).cloned().collect();
                way.index = index;
                found.push(way);
            }
        }
    }
    (found, false)
}

fn way(model: &Model, reached: &Reached, route: &Route, path: String) -> Way {
    let name = Some(route.message.name.clone()).filter(|name| !name.is_empty());
    let part = Part { resource: reached.resource.clone(), path, route: name };
    let seen = Seen::of(&reached.base, model.semantics);
    let asked = Asked { request: &reached.base, path: "/", seen: &seen };
    let conditions = route.described(&asked);
    let conditions = conditions.iter().filter(|condition| condition.on != "path");
    let (action, backends) = match &route.message.action {
        Some(Action::Route(action)) => ("forward", backends(model, action)),
        Some(Action::Redirect(_)) => ("redirect", vec![]),
        Some(Action::DirectResponse(_)) => ("respond", vec![]),
        Some(Action::FilterAction(_) | Action::NonForwardingAction(_)) | None => ("other", vec![]),
    };
    Way {
        listener: String::new(),
        port: reached.base.connection.port.filter(|_| reached.target.is_none()),
        host: String::new(),
        domains: vec![],
        index: 0,
        element: Element { name: Inventory::route(&part), place: None, part },
        path: route.wanted_path(),
        conditions: conditions.map(Inventory::condition).collect(),
        action,
        backends,
    }
}

fn backends(model: &Model, action: &proto::RouteAction) -> Vec<WayBackend> {
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => vec![backend(model, name, Ratio::ONE)],
        Some(ClusterSpecifier::WeightedClusters(split)) => {
            let weight = |one: &proto::weighted_cluster::ClusterWeight| {
                u128::from(one.weight.as_ref().map_or(0, |weight| weight.value))
            };
            let total = split.clusters.iter().map(weight).sum();
            let named = split.clusters.iter().filter(|one| !one.name.is_empty());
            named.map(|one| backend(model, &one.name, Ratio::new(weight(one), total))).collect()
        }
        Some(
            ClusterSpecifier::ClusterHeader(_)
            | ClusterSpecifier::ClusterSpecifierPlugin(_)
            | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => vec![],
    }
}

fn backend(model: &Model, name: &str, share: Ratio) -> WayBackend {
    let resource = ResourceKey { resource_type: ResourceType::Cluster, name: name.into() };
    let part = Part { resource, path: String::new(), route: None };
    let served = model.cluster(name);
    let is_served = served.is_some();
    let mut all = match served {
        Some((cluster, Some(assignment))) => endpoints(&cluster, &assignment, model.semantics),
        Some((_, None)) | None => vec![],
    };
    let n_endpoints = all.len();
    all.truncate(MAX_SHOWN);
    let element = Element { name: name.to_owned(), place: None, part };
    WayBackend { share, element, is_served, endpoints: all, n_endpoints }
}

/// How many domains and endpoints are shown.
const MAX_SHOWN: usize = 100;
