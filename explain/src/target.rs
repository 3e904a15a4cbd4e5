//! What a gRPC client without a proxy holds for a target, in the words of a service config (gRFC A28).

use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{RouteAction, RouteMatch};
use serde::Serialize;
use xds_units::Span;

use crate::after::Levels;
use crate::balancer::{Balancer, MAX_CLUSTERS};
use crate::draw::Chance;
use crate::explain::{Routed, UNAVAILABLE, element, route_element, weight_of};
use crate::explanation::{Element, Filter, Host, LeftOut, Located, Note, Part, Place, Session};
use crate::filters::{Circumstances, Filters};
use crate::header::Seen;
use crate::model::{Manager, Model};
use crate::ratio::Ratio;
use crate::request::Request;
use crate::route::{Asked, Condition, Route};
use crate::semantics::Difference;
use crate::table::VirtualHost;

/// What a client holds for a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// `grpc-go@1.85`.
    pub client: String,
    /// The target, without `xds:///`.
    pub target: String,
    /// The Listener with the name of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<Versioned>,
    /// The RouteConfiguration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_config: Option<Versioned>,
    /// The virtual host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_host: Option<Host>,
    /// Why every call fails; `None` if the client has routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
    /// One row for each route that the client uses, in order: the first that takes a call decides. At most [`MAX_METHODS`].
    pub method_config: Vec<MethodConfig>,
    /// The tree of balancing policies, for at most [`MAX_CLUSTERS`] clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancing_config: Option<Balancer>,
    /// The HTTP filters of the listener.
    pub filters: Vec<Filter>,
    /// What the client gets and does not use.
    pub left_out: Vec<LeftOut>,
    /// True if there are more routes or clusters than are shown.
    pub has_more: bool,
    /// What else is worth knowing.
    pub notes: Vec<Note>,
}

/// A resource with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versioned {
    /// Name and place.
    #[serde(flatten)]
    pub element: Element,
    /// The version that is served; empty for a part of another resource.
    pub version: String,
}

/// What holds for the calls that a route takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodConfig {
    /// The position of the route, from 0.
    pub index: usize,
    /// The route's name and place.
    pub route: Element,
    /// The service and the method, if the route names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<MethodName>,
    /// What it wants of a call, besides `name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// The share of calls that it takes, if it takes not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Ratio>,
    /// The clusters and their shares.
    pub clusters: Vec<ClusterShare>,
    /// Why its calls fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
    /// The longest time of a call, such as `5s`; a shorter deadline of the application counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// When a call is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    /// What makes calls stick to an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The filters that the route or its virtual host overrides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Filter>,
}

/// A method as a service config names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodName {
    /// `shop.Cart`.
    pub service: String,
    /// `Add`; empty for all methods of the service.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
}

/// A cluster of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterShare {
    /// The cluster's name.
    pub cluster: String,
    /// The share of the route's calls.
    pub share: Ratio,
}

/// A retry policy as in a service config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// With the first attempt; at most 5.
    pub max_attempts: u32,
    /// `0.025s`.
    pub initial_backoff: String,
    /// `0.25s`.
    pub max_backoff: String,
    /// Always 2.
    pub backoff_multiplier: u32,
    /// `UNAVAILABLE` and others.
    pub retryable_status_codes: Vec<String>,
}

impl Located for Target {
    fn locate(&mut self, find: &mut dyn FnMut(&Part) -> Option<Place>) {
        let resources = [&mut self.listener, &mut self.route_config].into_iter().flatten();
        let host = self.virtual_host.iter_mut().map(|host| &mut host.element);
        let methods = self.method_config.iter_mut().map(|method| &mut method.route);
        let left_out = self.left_out.iter_mut().map(|one| &mut one.element);
        for element in resources.map(|one| &mut one.element).chain(host).chain(methods).chain(left_out) {
            element.place = find(&element.part);
        }
        if let Some(tree) = &mut self.load_balancing_config {
            tree.locate(find);
        }
    }
}

impl Model {
    /// What the client holds for a target, with or without `xds:///`; `None` for an Envoy.
    #[must_use]
    pub fn target(&self, target: &str) -> Option<Target> {
        if self.semantics.has(Difference::ActsAsProxy) {
            return None;
        }
        let target = target.strip_prefix("xds:///").unwrap_or(target);
        let mut answer = Target {
            client: self.client.to_string(),
            target: target.to_owned(),
            listener: None,
            route_config: None,
            virtual_host: None,
            fails: None,
            method_config: Vec::new(),
            load_balancing_config: None,
            filters: Vec::new(),
            left_out: Vec::new(),
            has_more: false,
            notes: Vec::new(),
        };
        answer.fails = self.hold(target, &mut answer).err();
        Some(answer)
    }

    /// Fills in what the client holds.
    ///
    /// # Errors
    ///
    /// Why all calls fail.
    fn hold(&self, target: &str, answer: &mut Target) -> Result<(), String> {
        let listener = self.api_manager(target);
        let (resource, manager) =
            listener.ok_or_else(|| format!("there is no Listener for the target {target:?}"))?;
        answer.listener = Some(Versioned {
            element: element(resource.name(), resource.key(), String::new()),
            version: resource.version().to_string(),
        });
        let manager = manager.ok_or("the listener has no api_listener")?;
        let routed = self.routed(&manager)?;
        let message = &routed.table.message;
        answer.route_config = Some(Versioned {
            element: element(&message.name, &routed.resource, routed.path().to_owned()),
            version: match self.resource(&routed.resource.resource_type, &routed.resource.name) {
                Some(resource) if routed.path().is_empty() => resource.version().to_string(),
                Some(_) | None => String::new(),
            },
        });
        if let Some(reason) = &routed.table.refused {
            return Err(format!("the client refuses the route configuration: {}", reason.message));
        }
        // What the answer shows of routes does not depend on the method of this call.
        let request = Request::call(target, ANY_CALL);
        let seen = Seen::of(&request, self.semantics);
        let compared = routed.table.compared_path(&request);
        let asked = Asked { request: &request, path: &compared, seen: &seen };
        let (found, host) = routed.host(&asked).ok_or_else(|| {
            let waits = self.semantics.has(Difference::NoHostWaits);
            let waits =
                if waits { ": the client keeps what it had before, and at first calls wait" } else { "" };
            format!("no virtual host takes {target:?}{waits}")
        })?;
        let path = format!("{}.routes", found.element.part.path);
        answer.virtual_host = Some(found);
        let none = Default::default();
        let levels = Levels { table: message, host: &host.message, route: &none, member: None };
        let of = Circumstances { request: &request, seen: &seen, semantics: self.semantics };
        answer.filters = Filters::of(&manager.message, Some(&levels), of).shown;
        self.methods(host, &routed, &manager, &asked, &path, answer);
        if host
            .ways(&asked, Chance::new(&request, self.semantics))
            .leaves
            .iter()
            .all(|leaf| leaf.route.is_none())
        {
            let message =
                format!("no route takes a call of a method that no route names: it fails with {UNAVAILABLE}");
            answer.notes.push(Note { code: "no-route-for-default-call", message });
        }
        let mut clusters: Vec<&str> = Vec::new();
        for share in answer.method_config.iter().flat_map(|method| &method.clusters) {
            if !clusters.contains(&&*share.cluster) {
                clusters.push(&share.cluster);
            }
        }
        answer.has_more |= clusters.len() > MAX_CLUSTERS;
        answer.load_balancing_config = Some(self.balancer(&clusters, &mut answer.left_out));
        Ok(())
    }

    /// The routes that the client uses, in order, and those that it leaves out.
    fn methods(
        &self,
        host: &VirtualHost,
        routed: &Routed,
        manager: &Manager,
        asked: &Asked<'_>,
        path: &str,
        answer: &mut Target,
    ) {
        for (index, route) in host.routes.iter().enumerate() {
            if answer.method_config.len() + answer.left_out.len() >= MAX_METHODS {
                answer.has_more = true;
                return;
            }
            let element = route_element(&route.message.name, &routed.resource, format!("{path}[{index}]"));
            if let Some(reason) = &route.left_out {
                answer.left_out.push(LeftOut {
                    what: format!("route {}", index + 1),
                    reason: reason.message.clone(),
                    row: reason.row,
                    element,
                });
                continue;
            }
            let levels = Levels {
                table: &routed.table.message,
                host: &host.message,
                route: &route.message,
                member: None,
            };
            answer.left_out.extend(ignored(index, route, &element));
            answer.method_config.push(self.method(index, route, &levels, manager, asked, element));
        }
    }

    fn method(
        &self,
        index: usize,
        route: &Route,
        levels: &Levels<'_>,
        manager: &Manager,
        asked: &Asked<'_>,
        element: Element,
    ) -> MethodConfig {
        let name = route.message.r#match.as_ref().and_then(method_name);
        let of = Circumstances { request: asked.request, seen: asked.seen, semantics: self.semantics };
        let filters = Filters::of(&manager.message, Some(levels), of);
        let mut method = MethodConfig {
            index,
            route: element,
            conditions: conditions(route, name.is_some()),
            name,
            fraction: route.fraction.as_ref().map(|fraction| fraction.ratio()),
            clusters: Vec::new(),
            fails: None,
            timeout: None,
            retry_policy: None,
            session: filters.session,
            overrides: filters.shown.into_iter().filter(|filter| filter.by.is_some()).collect(),
        };
        let Some(Action::Route(action)) = &route.message.action else {
            method.fails = Some(format!("the route does not forward: {UNAVAILABLE}"));
            return method;
        };
        method.clusters = shares(action);
        if method.clusters.is_empty() {
            method.fails = Some("a plugin chooses the cluster, or none is named".to_owned());
        }
        let limits = Levels::limits(action, &manager.message, asked.seen, self.semantics);
        let in_seconds = |ms: u64| Span::from_millis(ms).in_decimal_seconds();
        method.timeout = limits.iter().find_map(|limit| limit.ms).map(in_seconds);
        method.retry_policy = levels.retry(action, self.semantics).map(|retry| RetryPolicy {
            max_attempts: retry.n_retries.saturating_add(1),
            initial_backoff: in_seconds(retry.base_interval_ms),
            max_backoff: in_seconds(retry.max_interval_ms),
            backoff_multiplier: 2,
            retryable_status_codes: retry.on.iter().map(|on| on.to_uppercase().replace('-', "_")).collect(),
        });
        method
    }
}

/// The fields of a route that Envoy uses and a gRPC client does not.
fn ignored(index: usize, route: &Route, at: &Element) -> Vec<LeftOut> {
    let mut ignored: Vec<(&str, &'static str)> = Vec::new();
    let matches = route.message.r#match.as_ref();
    if let Some(matches) = matches {
        ignored.extend((!matches.query_parameters.is_empty()).then_some(("query parameters", "XR14")));
        ignored.extend(matches.grpc.is_some().then_some(("`grpc`", "XR16")));
        let has_context = matches.tls_context.is_some()
            || !matches.dynamic_metadata.is_empty()
            || !matches.filter_state.is_empty()
            || !matches.cookies.is_empty();
        ignored.extend(has_context.then_some(("conditions on metadata, cookies and certificates", "XR17")));
    }
    if let Some(Action::Route(action)) = &route.message.action {
        let has_rewrite = action.host_rewrite_specifier.is_some()
            || action.regex_rewrite.is_some()
            || action.path_rewrite_policy.is_some()
            || !action.prefix_rewrite.is_empty();
        ignored.extend((!action.request_mirror_policies.is_empty()).then_some(("mirrors", "XA2")));
        ignored.extend(has_rewrite.then_some(("rewrites", "XA2")));
        ignored.extend(action.timeout.is_some().then_some(("`timeout`", "XA5")));
    }
    let has_headers = !route.message.request_headers_to_add.is_empty()
        || !route.message.request_headers_to_remove.is_empty()
        || !route.message.response_headers_to_add.is_empty()
        || !route.message.response_headers_to_remove.is_empty();
    ignored.extend(has_headers.then_some(("changes of headers", "XA2")));
    let left_out = ignored.into_iter().map(|(what, row)| LeftOut {
        what: format!("{what} of route {}", index + 1),
        reason: "gRPC clients ignore it".to_owned(),
        row,
        element: at.clone(),
    });
    left_out.collect()
}

/// The conditions of a route, in words.
fn conditions(route: &Route, is_named: bool) -> Vec<String> {
    let said = route.conditions().filter_map(|condition| match condition {
        Condition::Path if is_named => None,
        Condition::Path => Some(format!("path {}", route.wanted_path())),
        Condition::Header(header) => Some(format!("header `{}` {}", header.name(), header.wanted())),
        Condition::Never => Some("0 % of calls".to_owned()),
        Condition::LeftOut(_)
        | Condition::Query(_)
        | Condition::Cookie(_)
        | Condition::Grpc
        | Condition::Certificate(..)
        | Condition::Branch(_)
        | Condition::Unknown(_) => None,
    });
    said.collect()
}

/// The path `/shop.Cart/Add` and the prefix `/shop.Cart/` are names of a service config.
fn method_name(matches: &RouteMatch) -> Option<MethodName> {
    let (path, is_whole) = match &matches.path_specifier {
        Some(PathSpecifier::Path(path)) => (path, true),
        Some(PathSpecifier::Prefix(prefix)) => (prefix, false),
        Some(_) | None => return None,
    };
    let is_folded = matches.case_sensitive.as_ref().is_some_and(|is_sensitive| !is_sensitive.value);
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    let is_name = !service.is_empty() && !method.contains('/') && is_whole != method.is_empty() && !is_folded;
    is_name.then(|| MethodName { service: service.to_owned(), method: method.to_owned() })
}

/// The clusters of a route; those without a weight get nothing.
fn shares(action: &RouteAction) -> Vec<ClusterShare> {
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => {
            vec![ClusterShare { cluster: name.clone(), share: Ratio::ONE }]
        }
        Some(ClusterSpecifier::WeightedClusters(split)) => {
            let sum: u64 = split.clusters.iter().map(|member| u64::from(weight_of(member))).sum();
            let used = split.clusters.iter().filter(|member| weight_of(member) > 0);
            let share = |member| Ratio::new(weight_of(member).into(), sum.into());
            used.map(|member| ClusterShare { cluster: member.name.clone(), share: share(member) }).collect()
        }
        Some(
            ClusterSpecifier::ClusterHeader(_)
            | ClusterSpecifier::ClusterSpecifierPlugin(_)
            | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => Vec::new(),
    }
}

/// A method that no route names.
const ANY_CALL: &str = "xds-server.any/Call";

/// Routes that are shown.
pub const MAX_METHODS: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
    use envoy_types::pb::envoy::config::core::v3::{
        Address, Locality, SocketAddress, address, socket_address,
    };
    use envoy_types::pb::envoy::config::endpoint::v3::{
        ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
    };
    use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};
    use envoy_types::pb::envoy::config::route::v3::route_action::MaxStreamDuration;
    use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
    use envoy_types::pb::envoy::config::route::v3::{
        HeaderMatcher, QueryParameterMatcher, RetryPolicy, Route as RouteMessage, RouteConfiguration,
        VirtualHost as HostMessage, WeightedCluster, header_matcher::HeaderMatchSpecifier,
    };
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
        HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
    };
    use envoy_types::pb::google::protobuf::{Any, Duration, UInt32Value};
    use prost::Message;
    use xds_cache::{Resource, ResourceType};

    use super::*;
    use crate::client::{Client, Language};
    use crate::write::targets_to_text;

    fn resource(of_type: ResourceType, name: &str, message: &impl Message) -> Arc<Resource> {
        Arc::new(Resource::plain(of_type, name, message.encode_to_vec()))
    }

    fn listener() -> Arc<Resource> {
        let rds = Rds { route_config_name: "shop".to_owned(), ..Default::default() };
        let manager =
            HttpConnectionManager { route_specifier: Some(RouteSpecifier::Rds(rds)), ..Default::default() };
        let type_url = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let any = Any { type_url: type_url.to_owned(), value: manager.encode_to_vec() };
        let message =
            Listener { api_listener: Some(ApiListener { api_listener: Some(any) }), ..Default::default() };
        resource(ResourceType::Listener, "cart.test", &message)
    }

    fn route(name: &str, matches: RouteMatch, action: RouteAction) -> RouteMessage {
        RouteMessage {
            name: name.to_owned(),
            r#match: Some(matches),
            action: Some(Action::Route(action)),
            ..Default::default()
        }
    }

    fn to(cluster: &str) -> RouteAction {
        let cluster_specifier = Some(ClusterSpecifier::Cluster(cluster.to_owned()));
        RouteAction { cluster_specifier, ..Default::default() }
    }

    fn path(path: &str) -> RouteMatch {
        RouteMatch { path_specifier: Some(PathSpecifier::Path(path.to_owned())), ..Default::default() }
    }

    fn prefix(prefix: &str) -> RouteMatch {
        RouteMatch { path_specifier: Some(PathSpecifier::Prefix(prefix.to_owned())), ..Default::default() }
    }

    fn routes(own: Vec<RouteMessage>) -> Arc<Resource> {
        let host = HostMessage {
            name: "cart".to_owned(),
            domains: vec!["cart.test".to_owned()],
            routes: own,
            ..Default::default()
        };
        let message =
            RouteConfiguration { name: "shop".to_owned(), virtual_hosts: vec![host], ..Default::default() };
        resource(ResourceType::RouteConfiguration, "shop", &message)
    }

    fn cluster(name: &str) -> Arc<Resource> {
        let message = Cluster {
            name: name.to_owned(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            ..Default::default()
        };
        resource(ResourceType::Cluster, name, &message)
    }

    fn assignment(name: &str, zones: &[(&str, u32)]) -> Arc<Resource> {
        let zones = (1..).zip(zones).map(|(port, (zone, weight))| {
            let socket = SocketAddress {
                address: "10.0.0.1".to_owned(),
                port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
                ..Default::default()
            };
            let address = Some(Address { address: Some(address::Address::SocketAddress(socket)) });
            let endpoint = HostIdentifier::Endpoint(Endpoint { address, ..Default::default() });
            LocalityLbEndpoints {
                locality: Some(Locality { zone: (*zone).to_owned(), ..Default::default() }),
                load_balancing_weight: Some(UInt32Value { value: *weight }),
                lb_endpoints: vec![LbEndpoint { host_identifier: Some(endpoint), ..Default::default() }],
                ..Default::default()
            }
        });
        let message = ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            endpoints: zones.collect(),
            ..Default::default()
        };
        resource(ResourceType::ClusterLoadAssignment, name, &message)
    }

    /// The routes of A28's text: a method, a service with a header and a split, and everything else.
    fn shop() -> Vec<Arc<Resource>> {
        let policy = RetryPolicy {
            retry_on: "unavailable,5xx,deadline-exceeded".to_owned(),
            num_retries: Some(UInt32Value { value: 2 }),
            ..Default::default()
        };
        let max = MaxStreamDuration {
            max_stream_duration: Some(Duration { seconds: 1, nanos: 500_000_000 }),
            ..Default::default()
        };
        let add = RouteAction { retry_policy: Some(policy), max_stream_duration: Some(max), ..to("v1") };
        let members = [("v1", 90), ("v2", 10), ("v3", 0)].map(|(name, weight)| ClusterWeight {
            name: name.to_owned(),
            weight: Some(UInt32Value { value: weight }),
            ..Default::default()
        });
        let split = WeightedCluster { clusters: members.to_vec(), ..Default::default() };
        let split = RouteAction {
            cluster_specifier: Some(ClusterSpecifier::WeightedClusters(split)),
            ..Default::default()
        };
        let header = HeaderMatcher {
            name: "x-beta".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
            ..Default::default()
        };
        let beta = RouteMatch { headers: vec![header], ..prefix("/shop.Cart/") };
        let query = QueryParameterMatcher { name: "q".to_owned(), ..Default::default() };
        let query = RouteMatch { query_parameters: vec![query], ..prefix("") };
        let own = vec![
            route("add", path("/shop.Cart/Add"), add),
            route("beta", beta, split),
            route("query", query, to("v2")),
            route("rest", prefix(""), to("v9")),
        ];
        vec![
            listener(),
            routes(own),
            cluster("v1"),
            cluster("v2"),
            assignment("v1", &[("a", 3), ("b", 1), ("c", 0)]),
        ]
    }

    fn held(language: Language, resources: Vec<Arc<Resource>>, target: &str) -> Target {
        Model::compile(resources, Client::newest(language)).target(target).unwrap()
    }

    /// The text without versions, which say nothing here.
    fn text(target: &Target) -> String {
        let text = targets_to_text(std::slice::from_ref(target));
        let lines = text.lines().map(|line| match line.split_once("version ") {
            Some((before, _)) => before.trim_end().trim_end_matches(';'),
            None => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_target_is_shown_in_the_words_of_a_service_config() {
        let target = held(Language::Go, shop(), "xds:///cart.test");
        assert_eq!(
            text(&target),
            "client         grpc-go@1.85
target         xds:///cart.test
listener       cart.test
routes         shop
virtual host   cart  `cart.test`, exact
 method 1      add  shop.Cart/Add
  to           100 % v1
  timeout      1.5s
  retries      UNAVAILABLE, DEADLINE_EXCEEDED: 3 attempts, 0.025s–0.25s
 method 2      beta  shop.Cart/*, header `x-beta` present
  to           90 % v1, 10 % v2
 method 4      rest  path prefix \"\"
  to           100 % v9
balancing      xds_cluster_manager_experimental
                cds_experimental  cluster:v1; EDS v1
                 priority_experimental
                  xds_cluster_impl_experimental  priority-0, in use; at most 1024 calls at a time
                   xds_wrr_locality_experimental
                    round_robin  zone a, 75 %
                     10.0.0.1:1 zone a unknown 75 %
                    round_robin  zone b, 25 %
                     10.0.0.1:2 zone b unknown 25 %
                    round_robin  zone c, 0 %
                     10.0.0.1:3 zone c unknown 0 %
                cds_experimental  cluster:v2; EDS v2, without endpoints: its calls wait, then fail
                cds_experimental  cluster:v9; not served: its calls fail with UNAVAILABLE
left out       query  route 3: it has conditions on the query (XR14)
left out       v1  endpoints of v1 in the zone \"c\": a locality without a weight gets nothing (XA11)"
        );
    }

    #[test]
    fn each_language_holds_what_it_reads() {
        let javascript = held(Language::Js, shop(), "cart.test");
        let indices: Vec<usize> = javascript.method_config.iter().map(|method| method.index).collect();
        assert_eq!(indices, [0, 1, 2, 3], "grpc-js ignores the condition and keeps the route");
        assert!(text(&javascript).contains("query parameters of route 3: gRPC clients ignore it (XR14)"));
        assert_eq!(Model::compile(shop(), Client::newest(Language::Envoy)).target("cart.test"), None);
    }

    #[test]
    fn a_target_that_cannot_be_called_says_why() {
        let fails = |resources, target| held(Language::CCore, resources, target).fails;
        assert_eq!(fails(shop(), "cart.test"), None);
        assert_eq!(
            fails(shop(), "other.test").as_deref(),
            Some("there is no Listener for the target \"other.test\"")
        );
        let without_routes = vec![listener()];
        assert_eq!(
            fails(without_routes, "cart.test").as_deref(),
            Some("there is no RouteConfiguration \"shop\"")
        );
    }

    #[test]
    fn a_target_without_a_route_for_other_methods_is_told() {
        let own =
            vec![listener(), routes(vec![route("add", path("/shop.Cart/Add"), to("v1"))]), cluster("v1")];
        let codes = |target: &Target| target.notes.iter().map(|note| note.code).collect::<Vec<_>>();
        assert_eq!(codes(&held(Language::CCore, own, "cart.test")), ["no-route-for-default-call"]);
        assert!(codes(&held(Language::CCore, shop(), "cart.test")).is_empty());
    }
}
