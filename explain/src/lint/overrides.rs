//! Overrides of filters and lists of mirrors that no request uses (L9).

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::route::v3::FilterConfig;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use xds_cache::{ResourceKey, ResourceType};

use crate::after::is_of;
use crate::explanation::Part;
use crate::lint::place::Place;
use crate::lint::report::{Doubt, DoubtCode};
use crate::model::Model;
use crate::route::Route;
use crate::semantics::Difference;
use crate::table::{RouteTable, VirtualHost};

/// The filters of all connection managers that may use a route configuration.
#[derive(Debug, Default)]
pub(super) struct InChain {
    /// By name, the types of their configurations.
    filters: HashMap<String, BTreeSet<String>>,
    /// True if a filter may have others within it.
    is_open: bool,
}

impl InChain {
    pub(super) fn add(&mut self, manager: &HttpConnectionManager) {
        for filter in &manager.http_filters {
            let kinds: Vec<&str> = match &filter.config_type {
                Some(ConfigType::TypedConfig(any)) => vec![kind(&any.type_url)],
                Some(ConfigType::ConfigDiscovery(discovery)) => {
                    discovery.type_urls.iter().map(|url| kind(url)).collect()
                }
                None => Vec::new(),
            };
            self.is_open |= kinds.iter().any(|kind| NESTING.iter().any(|part| kind.contains(part)));
            if let Some(ConfigType::TypedConfig(any)) = &filter.config_type
                && is_of(any, "envoy.extensions.filters.http.router.v3.Router")
            {
                let router = Router::decode(&*any.value).unwrap_or_default();
                for upstream in router.upstream_http_filters {
                    self.filters.entry(upstream.name).or_default();
                }
            }
            let known = self.filters.entry(filter.name.clone()).or_default();
            known.extend(kinds.into_iter().map(str::to_owned));
        }
    }

    /// Adds the filters of managers that may use any route configuration.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.is_open |= other.is_open;
        for (name, kinds) in &other.filters {
            self.filters.entry(name.clone()).or_default().extend(kinds.iter().cloned());
        }
    }

    /// Returns `true` if the filter uses no override but the one of the lowest level.
    fn takes_the_lowest(&self, name: &str) -> bool {
        let kinds = self.filters.get(name);
        kinds.is_some_and(|kinds| {
            !kinds.is_empty() && kinds.iter().all(|kind| LOWEST_ALONE.contains(&kind.as_str()))
        })
    }
}

/// The names of the filters that Envoys have on their side to clusters, where overrides of routes act as well.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    names: OnceCell<BTreeSet<String>>,
}

impl Upstream {
    fn has(&self, model: &Model, name: &str) -> bool {
        let read = || {
            let clusters = model.all(&ResourceType::Cluster);
            let clusters = clusters.filter_map(|resource| Cluster::decode(&**resource.value()).ok());
            let options = clusters.flat_map(|cluster| {
                let options = cluster.typed_extension_protocol_options.into_values();
                options.filter_map(|any| HttpProtocolOptions::decode(&*any.value).ok()).collect::<Vec<_>>()
            });
            options.flat_map(|options| options.http_filters).map(|filter| filter.name).collect()
        };
        self.names.get_or_init(read).contains(name)
    }
}

/// What was found about overrides and mirrors.
pub(super) struct Found<'w> {
    pub(super) doubts: &'w mut Vec<Doubt>,
    /// Those that act.
    pub(super) acting: &'w mut Vec<Part>,
}

/// A route configuration and the filters that it is used with.
#[derive(Clone, Copy)]
pub(super) struct Used<'w> {
    pub(super) model: &'w Model,
    pub(super) table: &'w RouteTable,
    pub(super) chain: &'w InChain,
    pub(super) upstream: &'w Upstream,
}

impl Used<'_> {
    /// Looks at the overrides and mirrors of a route configuration itself; `path` is its own, with a dot at its end unless it is empty.
    ///
    /// gRPC clients read neither; it is told where their resources are checked.
    pub(super) fn look(&self, resource: &ResourceKey, path: &str, found: &mut Found<'_>) {
        let message = &self.table.message;
        if !self.model.semantics.has(Difference::ActsAsProxy) {
            return;
        }
        // Virtual hosts on demand are not known.
        let hosts = Some(&self.table.hosts).filter(|hosts| message.vhds.is_none() && !hosts.is_empty());
        let part = |path: String| Part { resource: resource.clone(), path, route: None };
        for name in sorted(message.typed_per_filter_config.keys()) {
            let is_hidden = || {
                hosts.is_some_and(|hosts| {
                    hosts.iter().all(|host| {
                        hides(host.message.typed_per_filter_config.get(name))
                            || host.tree.is_none() && host.routes.iter().all(|route| hides_all(route, name))
                    })
                })
            };
            let lower = "each virtual host or route has one of its own";
            self.tell(name, part(of_override(path, name)), is_hidden, lower, found);
        }
        if !message.request_mirror_policies.is_empty() {
            let is_hidden = hosts.is_some_and(|hosts| {
                hosts.iter().all(|host| {
                    !host.message.request_mirror_policies.is_empty()
                        || host.tree.is_none() && host.routes.iter().all(has_own_mirrors)
                })
            });
            let part = part(format!("{path}request_mirror_policies"));
            mirrors(part, is_hidden, "each virtual host or route has mirrors of its own", found);
        }
    }

    /// Looks at the overrides and mirrors of a virtual host and its routes.
    pub(super) fn look_at_host(&self, host: &VirtualHost, place: &Place<'_>, found: &mut Found<'_>) {
        let part = |path: String| Part { resource: place.resource.clone(), path, route: None };
        let routes = Some(&host.routes).filter(|routes| host.tree.is_none() && !routes.is_empty());
        for name in sorted(host.message.typed_per_filter_config.keys()) {
            let is_hidden = || routes.is_some_and(|routes| routes.iter().all(|route| hides_all(route, name)));
            let part = part(of_override(&format!("{}.", place.path), name));
            self.tell(name, part, is_hidden, "each route has one of its own", found);
        }
        if !host.message.request_mirror_policies.is_empty()
            && self.model.semantics.has(Difference::ActsAsProxy)
        {
            let is_hidden = routes.is_some_and(|routes| routes.iter().all(has_own_mirrors));
            let part = part(format!("{}.request_mirror_policies", place.path));
            mirrors(part, is_hidden, "each route has mirrors of its own", found);
        }
        for (index, route) in host.routes.iter().enumerate() {
            self.look_at_route(route, &place.of_route(index, route), found);
        }
    }

    fn look_at_route(&self, route: &Route, part: &Part, found: &mut Found<'_>) {
        let below = |path: String| Part { path: format!("{}.{path}", part.path), ..part.clone() };
        for name in sorted(route.message.typed_per_filter_config.keys()) {
            let is_hidden = || members_hide(route, name);
            let lower = "each of the weighted clusters has one of its own";
            self.tell(name, below(of_override("", name)), is_hidden, lower, found);
        }
        for (index, member) in members(route).iter().enumerate() {
            for name in sorted(member.typed_per_filter_config.keys()) {
                let path = format!("route.weighted_clusters.clusters[{index}].");
                self.tell(name, below(of_override(&path, name)), || false, "", found);
            }
        }
    }

    fn tell(
        &self,
        name: &str,
        part: Part,
        is_hidden: impl FnOnce() -> bool,
        lower: &str,
        found: &mut Found<'_>,
    ) {
        let is_proxy = self.model.semantics.has(Difference::ActsAsProxy);
        let is_there = self.chain.filters.contains_key(name)
            || self.chain.is_open
            || is_proxy && self.upstream.has(self.model, name);
        let message = if !is_there {
            format!(
                "no listener that uses these routes has an HTTP filter {name:?}, so the override does nothing"
            )
        } else if (!is_proxy || self.chain.takes_the_lowest(name)) && is_hidden() {
            format!(
                "the override of the filter {name:?} does nothing: {lower}, and the filter uses that alone"
            )
        } else {
            found.acting.push(part);
            return;
        };
        found.doubts.push(Doubt::new(DoubtCode::UnusedOverride, part, message));
    }
}

fn mirrors(part: Part, is_hidden: bool, lower: &str, found: &mut Found<'_>) {
    if !is_hidden {
        found.acting.push(part);
        return;
    }
    let message = format!("no request is mirrored by these policies: {lower}, and lists are not merged");
    found.doubts.push(Doubt::new(DoubtCode::UnusedOverride, part, message));
}

/// Names in order, since those of a map have none.
fn sorted<'n>(names: impl Iterator<Item = &'n String>) -> Vec<&'n str> {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn of_override(path: &str, name: &str) -> String {
    format!("{path}typed_per_filter_config[{name:?}]")
}

fn kind(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or_default()
}

fn members(route: &Route) -> &[ClusterWeight] {
    let Some(Action::Route(action)) = &route.message.action else { return &[] };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::WeightedClusters(split)) => &split.clusters,
        Some(
            ClusterSpecifier::Cluster(_)
            | ClusterSpecifier::ClusterHeader(_)
            | ClusterSpecifier::ClusterSpecifierPlugin(_)
            | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => &[],
    }
}

/// Returns `true` if no request of the route uses an override of a higher level.
fn hides_all(route: &Route, name: &str) -> bool {
    hides(route.message.typed_per_filter_config.get(name)) || members_hide(route, name)
}

fn members_hide(route: &Route, name: &str) -> bool {
    let members = members(route);
    !members.is_empty() && members.iter().all(|member| hides(member.typed_per_filter_config.get(name)))
}

/// Returns `true` if an override takes the place of those above it: it configures the filter, or removes it.
fn hides(own: Option<&Any>) -> bool {
    own.is_some_and(|any| {
        if !is_of(any, "envoy.config.route.v3.FilterConfig") {
            return true;
        }
        FilterConfig::decode(&*any.value).is_ok_and(|own| own.disabled || own.config.is_some())
    })
}

/// Returns `true` if no request of the route uses mirrors of a higher level. A route that does not forward mirrors nothing.
fn has_own_mirrors(route: &Route) -> bool {
    match &route.message.action {
        Some(Action::Route(action)) => !action.request_mirror_policies.is_empty(),
        Some(
            Action::Redirect(_)
            | Action::DirectResponse(_)
            | Action::FilterAction(_)
            | Action::NonForwardingAction(_),
        )
        | None => true,
    }
}

/// Parts of the types of filters that have others within them, whose names are not those of the chain.
const NESTING: [&str; 3] = [".composite.", ".matching.", ".filter_chain."];

/// Filters of Envoy that use the override of the lowest level alone. Others may merge all levels, as CORS does.
const LOWEST_ALONE: [&str; 7] = [
    "envoy.extensions.filters.http.buffer.v3.Buffer",
    "envoy.extensions.filters.http.csrf.v3.CsrfPolicy",
    "envoy.extensions.filters.http.fault.v3.HTTPFault",
    "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
];
