//! The connection managers of a client, and which filters they have where they use a route configuration.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use prost::Message as _;
use xds_cache::{Resource, ResourceType};

use crate::lint::overrides::InChain;
use crate::listener::addresses;
use crate::model::{Manager, Model};
use crate::request::{Connection, Request};
use crate::semantics::Difference;

/// The filters of the connection managers that use route configurations, by the names of these.
#[derive(Debug, Default)]
pub(super) struct UsedBy {
    by_name: HashMap<String, InChain>,
    /// Of those that choose among route configurations.
    any: InChain,
}

impl UsedBy {
    /// The connection managers, each with a request that comes to it, and their filters.
    pub(super) fn of(model: &Model) -> (Vec<(Manager, Request)>, Self) {
        let (mut managers, mut used_by) = (Vec::new(), Self::default());
        if model.semantics.has(Difference::ActsAsProxy) {
            for (resource, listener) in model.all_listeners() {
                for (manager, is_tls) in chain_managers(resource, listener) {
                    let port = addresses(listener).next().map(|(_, port)| port);
                    let scheme = if is_tls { "https" } else { "http" }.to_owned();
                    let connection = Connection { port, ..Connection::default() };
                    used_by.add(&manager);
                    managers.push((manager, Request { connection, scheme, ..Request::get("any.test", "/") }));
                }
            }
            return (managers, used_by);
        }
        for resource in model.all(&ResourceType::Listener) {
            if let Some((_, Some(manager))) = model.api_manager(resource.name()) {
                used_by.add(&manager);
                managers.push((manager, Request::call(resource.name(), "package.Service/Method")));
            } else if let Ok(listener) = Listener::decode(&**resource.value()) {
                // Servers may use the route configurations of clients.
                chain_managers(resource, &listener).for_each(|(manager, _)| used_by.add(&manager));
            }
        }
        (managers, used_by)
    }

    fn add(&mut self, manager: &Manager) {
        match &manager.message.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                self.by_name.entry(rds.route_config_name.clone()).or_default().add(&manager.message);
            }
            Some(RouteSpecifier::ScopedRoutes(_)) => self.any.add(&manager.message),
            Some(RouteSpecifier::RouteConfig(_)) | None => {}
        }
    }

    /// The filters that are there where the routes of a connection manager are used.
    pub(super) fn chain(&self, manager: &Manager) -> InChain {
        let mut chain = InChain::default();
        match &manager.message.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                chain.add_all(&self.any);
                self.by_name.get(&rds.route_config_name).into_iter().for_each(|own| chain.add_all(own));
            }
            Some(RouteSpecifier::ScopedRoutes(_) | RouteSpecifier::RouteConfig(_)) | None => {
                chain.add(&manager.message);
            }
        }
        chain
    }
}

/// The connection managers of a listener's filter chains, and if their connections are TLS.
fn chain_managers<'l>(
    resource: &'l Resource,
    listener: &'l Listener,
) -> impl Iterator<Item = (Manager, bool)> + 'l {
    let own = listener.filter_chains.iter().enumerate().map(|(at, chain)| (Some(at), chain));
    let default = listener.default_filter_chain.iter().map(|chain| (None, chain));
    own.chain(default).filter_map(|(index, chain)| {
        Some((Model::manager(resource, chain, index)?, chain.transport_socket.is_some()))
    })
}
