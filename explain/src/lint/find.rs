//! Looks at everything that a client is served.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use xds_cache::{Resource, ResourceKey, ResourceType};

use crate::explanation::Part;
use crate::lint::place::Place;
use crate::lint::report::{Doubt, DoubtCode};
use crate::lint::{chains, routes, shares};
use crate::listener::addresses;
use crate::model::{Manager, Model};
use crate::request::{Connection, Request};
use crate::semantics::Difference;
use crate::space::values::Arrival;
use crate::table::RouteTable;

/// Everything that is doubtful about what a client is served, in the order of listeners and routes. Route configurations that no listener
/// uses are not looked at.
#[must_use]
pub fn lint(model: &Model) -> Vec<Doubt> {
    let mut walk = Walk { model, doubts: Vec::new(), routes: Vec::new(), seen: HashSet::new() };
    if model.semantics.has(Difference::ActsAsProxy) {
        for (resource, listener) in model.all_listeners() {
            chains::look(resource, listener, &mut walk.doubts);
            walk.listener(resource, listener);
        }
    } else {
        let targets: Vec<Arc<Resource>> = model.all(&ResourceType::Listener).cloned().collect();
        for target in targets {
            if let Some((_, Some(manager))) = model.api_manager(target.name()) {
                walk.manager(&manager, Request::call(target.name(), "package.Service/Method"));
            }
        }
    }
    walk.finish()
}

struct Walk<'m> {
    model: &'m Model,
    doubts: Vec<Doubt>,
    /// The routes with a name.
    routes: Vec<Part>,
    /// The RouteConfigurations that were looked at.
    seen: HashSet<String>,
}

impl Walk<'_> {
    fn listener(&mut self, resource: &Resource, listener: &Listener) {
        let own = listener.filter_chains.iter().enumerate().map(|(at, chain)| (Some(at), chain));
        let default = listener.default_filter_chain.iter().map(|chain| (None, chain));
        for (index, chain) in own.chain(default) {
            let Some(manager) = Model::manager(resource, chain, index) else { continue };
            let port = addresses(listener).next().map(|(_, port)| port);
            let scheme = if chain.transport_socket.is_some() { "https" } else { "http" }.to_owned();
            let connection = Connection { port, ..Connection::default() };
            self.manager(&manager, Request { connection, scheme, ..Request::get("any.test", "/") });
        }
    }

    fn manager(&mut self, manager: &Manager, base: Request) {
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
        for (at, host) in table.hosts.iter().enumerate() {
            let place = Place { resource: &resource, path: format!("{prefix}virtual_hosts[{at}]"), host };
            routes::domains(&table, at, host, &arrival, &place, &mut self.doubts);
            routes::look(&table, host, &arrival, &place, &mut self.doubts);
            for (index, route) in host.routes.iter().enumerate() {
                let part = place.of_route(index, route);
                shares::look(route, &part, &arrival, &mut self.doubts);
                self.routes.extend(Some(part).filter(|part| part.route.is_some()));
            }
        }
    }

    /// The doubts, each with its namesakes.
    fn finish(self) -> Vec<Doubt> {
        let Self { mut doubts, routes, .. } = self;
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
        doubts
    }
}

/// Namesakes that are looked at. A rule becomes as many routes of a name as it has hosts, and those of other rules have other names.
const MAX_NAMESAKES: usize = 64;
