//! Looks at everything that a client is served.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use xds_cache::{ResourceKey, ResourceType};

use crate::explanation::Part;
use crate::lint::fallbacks::{self, Leaves};
use crate::lint::overrides::{Found, Upstream, Used};
use crate::lint::place::Place;
use crate::lint::report::{Depth, Doubt, DoubtCode, Doubts};
use crate::lint::used_by::UsedBy;
use crate::lint::{chains, partly, routes, shares};
use crate::model::{Manager, Model};
use crate::request::Request;
use crate::route::Route;
use crate::semantics::Difference;
use crate::space::values::Arrival;
use crate::table::RouteTable;

/// Everything that is doubtful about what a client is served. Route configurations that no listener uses are not looked at.
///
/// Costs about as much for each route, whatever its host has of them, and has a limit for each host where conditions depend on each other.
#[must_use]
pub fn lint(model: &Model, depth: Depth) -> Doubts {
    let mut walk = Walk::of(model, depth);
    if model.semantics.has(Difference::ActsAsProxy) {
        for (resource, listener) in model.all_listeners() {
            chains::look(resource, listener, &mut walk.doubts);
        }
    }
    let (managers, used_by) = UsedBy::of(model);
    for (manager, base) in managers {
        walk.manager(&manager, base, &used_by);
    }
    walk.finish()
}

struct Walk<'m> {
    model: &'m Model,
    depth: Depth,
    doubts: Vec<Doubt>,
    /// The routes with a name.
    routes: Vec<Part>,
    /// The RouteConfigurations that were looked at.
    seen: HashSet<String>,
    /// The clusters to which their routes lead.
    clusters: BTreeSet<String>,
    /// Overrides and mirrors that act.
    acting: Vec<Part>,
    upstream: Upstream,
}

impl<'m> Walk<'m> {
    fn of(model: &'m Model, depth: Depth) -> Self {
        Self {
            model,
            depth,
            doubts: Vec::new(),
            routes: Vec::new(),
            seen: HashSet::new(),
            clusters: BTreeSet::new(),
            acting: Vec::new(),
            upstream: Upstream::default(),
        }
    }

    fn manager(&mut self, manager: &Manager, base: Request, used_by: &UsedBy) {
        let (table, resource, prefix) = match &manager.message.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                if !self.seen.insert(rds.route_config_name.clone()) {
                    return;
                }
                let Some(table) = self.model.table(&rds.route_config_name) else { return };
                let name = table.message.name.as_str().into();
                (table, ResourceKey { resource_type: ResourceType::RouteConfiguration, name }, String::new())
            }
            Some(RouteSpecifier::RouteConfig(inline)) => {
                let table = Arc::new(RouteTable::of(inline.clone(), self.model.semantics));
                (table, manager.part.resource.clone(), format!("{}.route_config.", manager.part.path))
            }
            Some(RouteSpecifier::ScopedRoutes(_)) | None => return,
        };
        if table.refused.is_some() {
            return;
        }
        let is_proxy = self.model.semantics.has(Difference::ActsAsProxy);
        let managers = if is_proxy { [Some(&manager.message), Some(&manager.message)] } else { [None, None] };
        let arrival = Arrival { base, managers, semantics: self.model.semantics };
        let chain = used_by.chain(manager);
        let used = Used { model: self.model, table: &table, chain: &chain, upstream: &self.upstream };
        let mut found = Found { doubts: &mut self.doubts, acting: &mut self.acting };
        used.look(&resource, &prefix, &mut found);
        for (at, host) in table.hosts.iter().enumerate() {
            let place = Place { resource: &resource, path: format!("{prefix}virtual_hosts[{at}]"), host };
            routes::domains(&table, at, host, &arrival, &place, &mut self.doubts);
            let n_before = self.doubts.len();
            routes::look(&table, host, &arrival, &place, &mut self.doubts);
            if self.depth == Depth::All {
                partly::look(&table, host, &arrival, &place, n_before, &mut self.doubts);
            }
            let mut found = Found { doubts: &mut self.doubts, acting: &mut self.acting };
            used.look_at_host(host, &place, &mut found);
            for (index, route) in host.routes.iter().enumerate() {
                let part = place.of_route(index, route);
                shares::look(route, &part, &arrival, &mut self.doubts);
                self.clusters.extend(clusters(route).into_iter().map(str::to_owned));
                self.routes.extend(Some(part).filter(|part| part.route.is_some()));
            }
        }
    }

    /// The doubts, each with its namesakes.
    fn finish(self) -> Doubts {
        let Self { model, depth, mut doubts, routes, clusters, acting: overrides, .. } = self;
        let mut leaves = Leaves::default();
        for cluster in &clusters {
            fallbacks::look(model, cluster, depth, &mut leaves, &mut doubts);
        }
        let is_idle =
            |doubt: &&mut Doubt| matches!(doubt.code, DoubtCode::ShadowedRoute | DoubtCode::NeverMatches);
        let mut idle: HashMap<String, Vec<Part>> = HashMap::new();
        for doubt in doubts.iter_mut().filter(is_idle) {
            let of_name = doubt.part.route.as_ref().map(|name| idle.entry(name.clone()).or_default());
            of_name.into_iter().for_each(|parts| parts.push(doubt.part.clone()));
        }
        let mut acting: HashMap<&str, Vec<&Part>> = HashMap::new();
        for part in &routes {
            if let Some((name, idle)) = part.route.as_ref().and_then(|name| idle.get_key_value(name))
                && !idle.contains(part)
            {
                acting.entry(name).or_default().push(part);
            }
        }
        for doubt in doubts.iter_mut().filter(is_idle) {
            let found = doubt.part.route.as_deref().and_then(|name| acting.get(name));
            doubt.namesakes =
                found.into_iter().flatten().take(MAX_NAMESAKES).map(|part| (*part).clone()).collect();
        }
        Doubts { all: doubts, acting: overrides }
    }
}

/// The clusters that a route names.
fn clusters(route: &Route) -> Vec<&str> {
    let Some(Action::Route(action)) = &route.message.action else { return Vec::new() };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => vec![name],
        Some(ClusterSpecifier::WeightedClusters(split)) => {
            split.clusters.iter().map(|one| one.name.as_str()).filter(|name| !name.is_empty()).collect()
        }
        Some(
            ClusterSpecifier::ClusterHeader(_)
            | ClusterSpecifier::ClusterSpecifierPlugin(_)
            | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => Vec::new(),
    }
}

/// Namesakes that are looked at. A rule becomes as many routes of a name as it has hosts, and those of other rules have other names.
const MAX_NAMESAKES: usize = 64;
