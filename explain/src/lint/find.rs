//! Looks at everything that a client is served.

use std::collections::HashSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use xds_cache::{Resource, ResourceKey, ResourceType};

use crate::lint::place::Place;
use crate::lint::report::Doubt;
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
    let mut walk = Walk { model, doubts: Vec::new(), seen: HashSet::new() };
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
    walk.doubts
}

struct Walk<'m> {
    model: &'m Model,
    doubts: Vec<Doubt>,
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
            let place = Place { resource: &resource, path: format!("{prefix}virtual_hosts[{at}]") };
            routes::domains(&table, at, host, &arrival, &place, &mut self.doubts);
            routes::look(&table, host, &arrival, &place, &mut self.doubts);
            for (index, route) in host.routes.iter().enumerate() {
                shares::look(route, &place.of_route(index, route), &arrival, &mut self.doubts);
            }
        }
    }
}
