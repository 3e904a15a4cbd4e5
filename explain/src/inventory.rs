//! Everything in the routes of a client that a request can touch, to see what a set of requests covers.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;

use crate::explanation::Part;
use crate::header::Seen;
use crate::model::Model;
use crate::request::Request;
use crate::route::{Asked, Failure, Route};
use crate::tables::{Reachable, Reached};

/// Everything that a request can touch: of each, its identity, and where it is written.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// The virtual hosts, by name.
    pub hosts: BTreeMap<String, Item>,
    /// The routes, by name; those without a name by where they are.
    pub routes: BTreeMap<String, Item>,
    /// The conditions of routes, by route and [`Inventory::condition`].
    pub conditions: BTreeMap<(String, String), Item>,
    /// The clusters to which routes lead.
    pub backends: BTreeMap<String, Item>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Where it is written.
    pub part: Part,
    /// In words.
    pub what: String,
}

impl Inventory {
    /// The identity of a route.
    #[must_use]
    pub fn route(part: &Part) -> String {
        part.route.clone().unwrap_or_else(|| format!("{} {}", part.resource.name, part.path))
    }

    /// The identity of a condition within its route.
    #[must_use]
    pub fn condition(failure: &Failure) -> String {
        let name = failure.name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default();
        format!("{}{name} {}", failure.on, failure.want)
    }
}

/// Everything that a client's requests can touch. Route configurations that no listener uses are left out.
#[must_use]
pub fn inventory(model: &Model) -> Inventory {
    let mut found = Inventory::default();
    for reached in &Reachable::of(model).tables {
        let used: Option<BTreeSet<usize>> = reached.target.as_ref().map(|target| {
            let asked = Request { authority: target.to_string(), ..reached.base.clone() };
            let seen = Seen::of(&asked, model.semantics);
            let asked = Asked { request: &asked, path: "/", seen: &seen };
            reached.table.host(&asked).into_iter().map(|((at, _), _)| at).collect()
        });
        for (at, host) in reached.table.hosts.iter().enumerate() {
            if used.as_ref().is_some_and(|used| !used.contains(&at)) {
                continue;
            }
            let path = format!("{}virtual_hosts[{at}]", reached.prefix);
            let part = Part { resource: reached.resource.clone(), path: path.clone(), route: None };
            let what = format!("virtual host {}", host.message.name);
            found.hosts.entry(host.message.name.clone()).or_insert(Item { part, what });
            for (index, route) in host.routes.iter().enumerate() {
                add(&mut found, reached, route, format!("{path}.{}", host.path_of_route(index)), model);
            }
        }
    }
    found
}

fn add(found: &mut Inventory, reached: &Reached, route: &Route, path: String, model: &Model) {
    let name = Some(route.message.name.clone()).filter(|name| !name.is_empty());
    let part = Part { resource: reached.resource.clone(), path, route: name };
    let id = Inventory::route(&part);
    let what = format!("route {} (path {})", id, route.wanted_path());
    found.routes.entry(id.clone()).or_insert(Item { part: part.clone(), what });
    let seen = Seen::of(&reached.base, model.semantics);
    let asked = Asked { request: &reached.base, path: "/", seen: &seen };
    for failure in route.described(&asked) {
        let condition = Inventory::condition(&failure);
        let what = format!("condition {condition} of route {id}");
        found.conditions.entry((id.clone(), condition)).or_insert(Item { part: part.clone(), what });
    }
    let Some(Action::Route(action)) = &route.message.action else { return };
    let clusters: Vec<&String> = match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => vec![name],
        Some(ClusterSpecifier::WeightedClusters(split)) => {
            split.clusters.iter().map(|one| &one.name).filter(|name| !name.is_empty()).collect()
        }
        Some(
            ClusterSpecifier::ClusterHeader(_)
            | ClusterSpecifier::ClusterSpecifierPlugin(_)
            | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => Vec::new(),
    };
    for cluster in clusters {
        let what = format!("backend {cluster} of route {id}");
        found.backends.entry(cluster.clone()).or_insert(Item { part: part.clone(), what });
    }
}
