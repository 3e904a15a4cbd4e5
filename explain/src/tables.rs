//! The route configurations that clients reach, and how requests come to them.

use std::collections::HashSet;
use std::sync::Arc;

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use xds_cache::{Name, Resource, ResourceKey, ResourceType};

use crate::listener::addresses;
use crate::model::{Manager, Model};
use crate::request::{Connection, Request};
use crate::semantics::Difference;
use crate::space::connection::ways;
use crate::table::RouteTable;

/// A route configuration that clients reach.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) table: Arc<RouteTable>,
    /// The resource that has it, and the path of the route configuration in it, with a dot at its end unless it is empty.
    pub(crate) resource: ResourceKey,
    pub(crate) prefix: String,
    pub(crate) manager: HttpConnectionManager,
    /// A request that reaches it, whatever its host, path and headers.
    pub(crate) base: Request,
    /// The target, if the client has targets and looks for no other host.
    pub(crate) target: Option<Name>,
    /// The listener through which it is reached first.
    pub(crate) listener: Name,
}

/// All route configurations that a client reaches, each once, and what was not followed.
#[derive(Debug, Default)]
pub(crate) struct Reachable {
    pub(crate) tables: Vec<Reached>,
    pub(crate) undecided: Vec<String>,
    /// The names of those that were looked at.
    seen: HashSet<String>,
}

impl Reachable {
    pub(crate) fn of(model: &Model) -> Self {
        let mut found = Self::default();
        if model.semantics.has(Difference::ActsAsProxy) {
            for (resource, listener) in model.all_listeners() {
                let (ways, undecided) = ways([listener, listener]);
                found.undecided.extend(undecided.map(|why| format!("{}: {why}", resource.name())));
                for (chains, way) in ways {
                    let Some(index) = chains[0] else { continue };
                    let chain = match index {
                        Some(at) => listener.filter_chains.get(at),
                        None => listener.default_filter_chain.as_ref(),
                    };
                    let Some(manager) = chain.and_then(|chain| Model::manager(resource, chain, index)) else {
                        continue;
                    };
                    let port = way.connection.port.or(addresses(listener).next().map(|(_, port)| port));
                    let connection = Connection { port, ..way.connection };
                    let scheme = if way.is_tls { "https" } else { "http" }.to_owned();
                    let base = Request { connection, scheme, ..Request::get("any.test", "/") };
                    found.add(model, &manager, base, None);
                }
            }
        } else {
            let targets: Vec<Arc<Resource>> = model.all(&ResourceType::Listener).cloned().collect();
            for target in targets {
                if let Some((_, Some(manager))) = model.api_manager(target.name()) {
                    let base = Request::call(target.name(), "package.Service/Method");
                    found.add(model, &manager, base, Some(Arc::clone(target.name())));
                }
            }
        }
        found
    }

    fn add(&mut self, model: &Model, found: &Manager, base: Request, target: Option<Name>) {
        let (table, resource, prefix) = match &found.message.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                let name = &rds.route_config_name;
                // Each target looks for a host of its own.
                if target.is_none() && !self.seen.insert(name.clone()) {
                    return;
                }
                let Some(table) = model.table(name) else { return };
                let name = table.message.name.as_str().into();
                (table, ResourceKey { resource_type: ResourceType::RouteConfiguration, name }, String::new())
            }
            Some(RouteSpecifier::RouteConfig(inline)) => {
                let table = Arc::new(RouteTable::of(inline.clone(), model.semantics));
                (table, found.part.resource.clone(), format!("{}.route_config.", found.part.path))
            }
            Some(RouteSpecifier::ScopedRoutes(_)) => {
                let listener = &found.part.resource.name;
                self.undecided.push(format!("{listener}: scopes choose the route configuration"));
                return;
            }
            None => return,
        };
        if table.refused.is_some() {
            return;
        }
        let manager = HttpConnectionManager { route_specifier: None, ..found.message.clone() };
        let listener = Arc::clone(&found.part.resource.name);
        self.tables.push(Reached { table, resource, prefix, manager, base, target, listener });
    }
}
