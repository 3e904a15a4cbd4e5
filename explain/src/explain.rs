//! Follows a request through a [`Model`].

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener as ListenerMessage};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::{ClusterNotFoundResponseCode, ClusterSpecifier};
use envoy_types::pb::envoy::config::route::v3::virtual_host::TlsRequirementType;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::{ClusterWeight, RandomValueSpecifier};
use envoy_types::pb::envoy::config::route::v3::{RouteAction, RouteConfiguration, ScopedRouteConfiguration, WeightedCluster};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::ConfigSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, ScopedRoutes};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use xds_cache::{Resource, ResourceKey, ResourceType};

use crate::after::{Levels, location};
use crate::balancer::hashes;
use crate::before::{Arrived, arrive};
use crate::chains::{ChainWay, Chains, ChainsFound};
use crate::changed::{Checked, Known};
use crate::draw::{Chance, Fraction};
use crate::endpoints::{endpoints, shown};
use crate::explanation::{
    ActionKind, BranchSeen, Element, Explanation, Host, Listener, Mirror, Note, Outcome, Part, RouteSeen,
};
use crate::filters::{Circumstances, Filters, Stop};
use crate::header::Seen;
use crate::listener::Connected;
use crate::model::{Accepting, Manager, Model};
use crate::ratio::Ratio;
use crate::request::Request;
use crate::rewrite::status_of;
use crate::route::{Asked, is_grpc};
use crate::scope;
use crate::semantics::Difference;
use crate::table::{Leaf, MAX_LEAVES, RouteTable, VirtualHost, Ways};
use crate::tree::Looked;

/// Where a request is routed: a table, and the place of its resource.
pub(crate) struct Routed {
    pub(crate) table: Arc<RouteTable>,
    /// The resource of the virtual hosts, and the path of `virtual_hosts` in it; `None` if the resource is a virtual host itself.
    pub(crate) resource: ResourceKey,
    prefix: Option<String>,
}

impl Routed {
    /// The path of the RouteConfiguration in the resource; empty if it is the resource.
    pub(crate) fn path(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default().trim_end_matches('.')
    }

    /// The virtual host that takes the request.
    pub(crate) fn host(&self, asked: &Asked<'_>) -> Option<(Host, &VirtualHost)> {
        let ((at, domain), kind) = self.table.host(asked)?;
        let host = self.table.hosts.get(at)?;
        let domains = self.table.takers(asked).skip(1).take(MAX_PASSED_OVER);
        let passed_over = domains.filter_map(|((host, domain), _)| {
            self.table.hosts.get(host)?.message.domains.get(domain).cloned()
        });
        let path = match &self.prefix {
            Some(prefix) => format!("{prefix}virtual_hosts[{at}]"),
            None => String::new(),
        };
        let shown = Host {
            element: element(&host.message.name, &self.resource, path),
            domain: host.message.domains.get(domain).cloned().unwrap_or_default(),
            kind,
            passed_over: passed_over.collect(),
            branches: Vec::new(),
        };
        Some((shown, host))
    }
}

impl Model {
    /// Where the request goes, once for each listener that may accept it (at most [`MAX_LISTENERS`]); listeners without a route for it are
    /// left out if another one has one.
    #[must_use]
    pub fn explain(&self, request: &Request) -> Vec<Explanation> {
        if let Some(name) = &request.route_config {
            return vec![self.by_table(request, name)];
        }
        if !self.semantics.has(Difference::ActsAsProxy) {
            return vec![self.at_target(request)];
        }
        let listeners = self.listeners(request);
        let all: Vec<Explanation> =
            listeners.iter().take(MAX_LISTENERS).map(|one| self.at_listener(request, one)).collect();
        if all.is_empty() {
            let message = "no listener accepts the connection".to_owned();
            return vec![Explanation::refused(self.client.to_string(), ActionKind::NoListener, message)];
        }
        let is_any_routed = all.iter().any(Explanation::is_routed);
        all.into_iter().filter(|one| !is_any_routed || one.is_routed()).collect()
    }

    fn blank(&self) -> Explanation {
        let mut blank = Explanation::refused(self.client.to_string(), ActionKind::NoListener, String::new());
        blank.outcomes.clear();
        blank
    }

    fn by_table(&self, request: &Request, name: &str) -> Explanation {
        let Some(table) = self.table(name) else {
            let message = format!("there is no RouteConfiguration {name:?}");
            return Explanation::refused(self.client.to_string(), ActionKind::NoListener, message);
        };
        let resource = ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.into() };
        let manager = HttpConnectionManager::default();
        let seen = Seen::of(request, self.semantics);
        // Without a connection manager, nobody removes the header.
        let is_internal = seen.get("x-envoy-internal").first().is_some_and(|value| value == "true");
        let arrived =
            Arrived { request: request.clone(), seen, steps: Vec::new(), refused: None, is_internal };
        let routed = Routed { table, resource, prefix: Some(String::new()) };
        let mut answer = self.route(&arrived, &routed, &manager, self.blank());
        if let Some(check) = &request.router_check {
            let is_unmatched =
                |one: &&mut Outcome| matches!(one.action, ActionKind::NoRoute | ActionKind::NoVirtualHost);
            for outcome in answer.outcomes.iter_mut().filter(is_unmatched) {
                outcome.checked = Some(Box::new(Checked::nothing(check, &arrived.seen)));
            }
        }
        answer
    }

    /// A gRPC client: the listener has the name of the target (XF9).
    fn at_target(&self, request: &Request) -> Explanation {
        let target = request.authority.strip_prefix("xds:///").unwrap_or(&request.authority);
        let request = Request { authority: target.to_owned(), ..request.clone() };
        let refused = |message: String| {
            let mut refused = Explanation::refused(self.client.to_string(), ActionKind::NoListener, message);
            refused.outcomes = refused.outcomes.into_iter().map(|one| one.with_status(UNAVAILABLE)).collect();
            refused
        };
        let Some((resource, manager)) = self.api_manager(target) else {
            return refused(format!("there is no Listener for the target {target:?}"));
        };
        let mut answer = self.blank();
        answer.listener = Some(listener_of(&resource, String::new(), None, "its name is the target"));
        let Some(manager) = manager else {
            let outcome = Outcome::plain(
                Ratio::ONE,
                ActionKind::NoListener,
                "the listener has no api_listener".to_owned(),
            );
            answer.outcomes.push(outcome.with_status(UNAVAILABLE));
            return answer;
        };
        let seen = Seen::of(&request, self.semantics);
        let arrived = Arrived { request, seen, steps: Vec::new(), refused: None, is_internal: false };
        self.managed(&arrived, &manager, answer)
    }

    fn at_listener(&self, request: &Request, accepting: &Accepting<'_>) -> Explanation {
        let Accepting { resource, listener, address } = *accepting;
        let mut answer = self.blank();
        let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
        // Without a scheme, the request comes as the listener speaks.
        let speaks_tls = chains.clone().any(|chain| chain.transport_socket.is_some());
        let mut request = request.clone();
        if request.scheme.is_empty() {
            let is_tls = request.connection.tls.unwrap_or(speaks_tls);
            request.scheme = if is_tls { "https" } else { "http" }.to_owned();
        }
        let is_tls = request.connection.is_tls(&request.scheme);
        let host = crate::host::without_port(&request.authority);
        let connected = Connected::of(&request.connection, is_tls, host, address);
        let chains = Chains::of(listener);
        let found = chains.find(&connected, &request.filter_state);
        let inputs = chains.depends_on(&request.connection);
        answer.unknown.extend(inputs.into_iter().map(str::to_owned));
        let shown_address = listener.address.as_ref().map(shown).unwrap_or_default();
        let only = found.only();
        let why = why(listener, &found);
        let name = only.and_then(|way| way.chain).map(|(chain, index)| chain_name(chain, index));
        let mut shown_listener = listener_of(resource, shown_address, name, &why);
        shown_listener.branches = branches(&found.looked, "", resource.key());
        answer.listener = Some(shown_listener);
        answer.notes.extend(left_out(found.n_left_out, "XF2"));
        let Some(way) = only else {
            answer.unknown.push("the listener's filter_chain_matcher".to_owned());
            answer.outcomes.extend(found.ways.iter().map(outcome_of_chain));
            return answer;
        };
        let Some((filter_chain, index)) = way.chain else {
            answer.outcomes.push(Outcome { when: Vec::new(), ..outcome_of_chain(way) });
            return answer;
        };
        if filter_chain.transport_socket.is_some() != is_tls
            && filter_chain.transport_socket.as_ref().is_none_or(|socket| socket.name.contains("tls"))
        {
            let (speaks, sends) = if is_tls { ("plaintext", "TLS") } else { ("TLS", "plaintext") };
            let message = format!("the filter chain speaks {speaks}, and the client {sends}");
            answer.outcomes.push(Outcome::plain(Ratio::ONE, ActionKind::NoChain, message));
            return answer;
        }
        let Some(manager) = Self::manager(resource, filter_chain, index) else {
            let message = "the filter chain has no HTTP connection manager".to_owned();
            answer.outcomes.push(Outcome::plain(Ratio::ONE, ActionKind::Plugin, message));
            return answer;
        };
        let seen = Seen::of(&request, self.semantics);
        let arrived = arrive(&request, seen, &manager.message, Some(connected.port));
        answer.before.clone_from(&arrived.steps);
        if let Some((status, message)) = &arrived.refused {
            let outcome = Outcome::plain(Ratio::ONE, ActionKind::RefusedRequest, message.clone());
            answer.outcomes.push(outcome.with_status(status.to_string()));
            return answer;
        }
        self.managed(&arrived, &manager, answer)
    }

    fn managed(&self, arrived: &Arrived, manager: &Manager, mut answer: Explanation) -> Explanation {
        let is_proxy = self.semantics.has(Difference::ActsAsProxy);
        let missing = |message: String| {
            let outcome = Outcome::plain(Ratio::ONE, ActionKind::NoListener, message);
            outcome.with_status(if is_proxy { "404" } else { UNAVAILABLE })
        };
        let routed = match &manager.message.route_specifier {
            Some(RouteSpecifier::ScopedRoutes(scoped)) => self
                .of_scope(scoped, arrived, &mut answer)
                .map(|(table, resource)| Routed { table, resource, prefix: Some(String::new()) }),
            Some(RouteSpecifier::Rds(_) | RouteSpecifier::RouteConfig(_)) | None => self.routed(manager),
        };
        match routed {
            Ok(routed) => self.route(arrived, &routed, &manager.message, answer),
            Err(message) => {
                answer.outcomes.push(missing(message));
                answer
            }
        }
    }

    /// The routes of a connection manager without scopes.
    ///
    /// # Errors
    ///
    /// Why it has none.
    pub(crate) fn routed(&self, manager: &Manager) -> Result<Routed, String> {
        match &manager.message.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                let name = &rds.route_config_name;
                let table =
                    self.table(name).ok_or_else(|| format!("there is no RouteConfiguration {name:?}"))?;
                let name = table.message.name.as_str().into();
                let resource = ResourceKey { resource_type: ResourceType::RouteConfiguration, name };
                Ok(Routed { table, resource, prefix: Some(String::new()) })
            }
            Some(RouteSpecifier::RouteConfig(inline)) => {
                let table = Arc::new(RouteTable::of(RouteConfiguration::clone(inline), self.semantics));
                let prefix = Some(format!("{}.route_config.", manager.part.path));
                Ok(Routed { table, resource: manager.part.resource.clone(), prefix })
            }
            Some(RouteSpecifier::ScopedRoutes(_)) => Err("gRPC clients have no scoped routes".to_owned()),
            None => Err("the connection manager has no routes".to_owned()),
        }
    }

    /// The route configuration that the scope of a request chooses (XH4).
    fn of_scope(
        &self,
        scoped: &ScopedRoutes,
        arrived: &Arrived,
        answer: &mut Explanation,
    ) -> Result<(Arc<RouteTable>, ResourceKey), String> {
        let key = scope::key(scoped, &arrived.seen)
            .map_err(|header| format!("the header {header:?} names no scope"))?;
        let has_key = |one: &ScopedRouteConfiguration| scope::has_key(one, &key);
        let found = match &scoped.config_specifier {
            Some(ConfigSpecifier::ScopedRouteConfigurationsList(list)) => {
                list.scoped_route_configurations.iter().find(|one| has_key(one)).cloned()
            }
            Some(ConfigSpecifier::ScopedRds(_)) | None => self.scopes().find(has_key),
        };
        let found = found.ok_or_else(|| format!("no scope has the key {key:?}"))?;
        let demand = if found.on_demand { ", which is asked for on demand" } else { "" };
        let message = format!("the key {key:?} is that of the scope {:?}{demand}", found.name);
        answer.notes.push(Note { code: "XH4", message });
        if let Some(inline) = found.route_configuration {
            let resource_type = ResourceType::ScopedRouteConfiguration;
            let resource = ResourceKey { resource_type, name: found.name.as_str().into() };
            return Ok((Arc::new(RouteTable::of(inline, self.semantics)), resource));
        }
        let name = found.route_configuration_name;
        let table = self.table(&name).ok_or_else(|| format!("there is no RouteConfiguration {name:?}"))?;
        let resource_type = ResourceType::RouteConfiguration;
        Ok((table, ResourceKey { resource_type, name: name.as_str().into() }))
    }

    /// From the RouteConfiguration on.
    fn route(
        &self,
        arrived: &Arrived,
        routed: &Routed,
        manager: &HttpConnectionManager,
        mut answer: Explanation,
    ) -> Explanation {
        let table = &routed.table;
        let compared = table.compared_path(&arrived.request);
        let asked = Asked { request: &arrived.request, path: &compared, seen: &arrived.seen };
        let path = routed.path().to_owned();
        answer.route_config = Some(element(&table.message.name, &routed.resource, path));
        if let Some(reason) = &table.refused {
            let message = format!("the client refuses the route configuration: {}", reason.message);
            answer.outcomes.push(Outcome::plain(Ratio::ONE, ActionKind::RefusedResource, message));
            answer.notes.push(reason.into());
            return answer;
        }
        if let Some(domain) = table.hidden_by() {
            let message = format!(
                "the domain {domain:?} has a star inside, and so the client finds no virtual host at all"
            );
            answer.notes.push(Note { code: "XV5", message });
        }
        let Some((shown, host)) = routed.host(&asked) else {
            return self.without_host(arrived, &asked, routed, manager, answer);
        };
        let host_path = shown.element.part.path.clone();
        answer.virtual_host = Some(shown);
        answer.n_routes = host.routes.len();
        if self.requires_tls(host, arrived) {
            let outcome =
                Outcome::plain(Ratio::ONE, ActionKind::Redirect, "the virtual host requires TLS".to_owned());
            let location = format!("https://{}{}", arrived.request.authority, arrived.request.path);
            let check = arrived.request.router_check.as_ref();
            let checked = check.map(|check| Box::new(Checked::to_tls(check, &arrived.seen, &location)));
            let outcome = Outcome { location: Some(location), checked, ..outcome.with_status("301") };
            self.answer_without_route(outcome, &asked, manager, &mut answer);
            return answer;
        }
        let ways = host.ways(&asked, Chance::new(&arrived.request, self.semantics));
        answer.has_more = ways.has_more;
        if let Some(shown) = &mut answer.virtual_host {
            shown.branches = branches(&ways.looked, &host_path, &routed.resource);
        }
        answer.notes.extend(left_out(ways.n_looked_left_out, "XR18"));
        show_routes(host, &asked, &ways, &host_path, &routed.resource, &mut answer);
        for leaf in &ways.leaves {
            self.outcomes(leaf, host, &asked, routed, manager, &mut answer);
        }
        if answer.outcomes.len() > MAX_OUTCOMES {
            answer.outcomes.truncate(MAX_OUTCOMES);
            answer.has_more = true;
        }
        answer
    }

    /// No virtual host takes the request, or one is asked for on demand.
    fn without_host(
        &self,
        arrived: &Arrived,
        asked: &Asked<'_>,
        routed: &Routed,
        manager: &HttpConnectionManager,
        mut answer: Explanation,
    ) -> Explanation {
        let is_proxy = self.semantics.has(Difference::ActsAsProxy);
        if routed.table.message.vhds.is_some() && is_proxy && routed.prefix.is_some() {
            let authority = &arrived.request.authority;
            let message = format!("the virtual host of {authority} is asked for on demand");
            answer.notes.push(Note { code: "XH4", message });
            if let Some((table, resource)) = self.on_demand(&routed.table, authority) {
                let routed = Routed { table, resource, prefix: None };
                return self.route(arrived, &routed, manager, answer);
            }
        }
        let host = &arrived.request.authority;
        let (message, status) = match (is_proxy, self.semantics.has(Difference::NoHostWaits)) {
            (true, _) => (format!("no virtual host takes {host:?}"), "404"),
            (false, false) => (format!("no virtual host takes {host:?}"), UNAVAILABLE),
            (false, true) => (
                format!(
                    "no virtual host takes {host:?}: the client keeps what it had before, and at first calls wait"
                ),
                "grpc 4 DEADLINE_EXCEEDED",
            ),
        };
        let outcome = Outcome::plain(Ratio::ONE, ActionKind::NoVirtualHost, message);
        self.answer_without_route(outcome.with_status(status), asked, manager, &mut answer);
        answer
    }

    /// Adds an outcome of a request that no route takes. Filters may answer all the same.
    fn answer_without_route(
        &self,
        outcome: Outcome,
        asked: &Asked<'_>,
        manager: &HttpConnectionManager,
        answer: &mut Explanation,
    ) {
        if !self.semantics.has(Difference::ActsAsProxy) {
            answer.outcomes.push(outcome);
            return;
        }
        let filters = self.filters(manager, None, asked, answer);
        Self::add(&filters, vec![(outcome, None)], asked, answer);
    }

    /// The filters of a request.
    fn filters(
        &self,
        manager: &HttpConnectionManager,
        levels: Option<&Levels<'_>>,
        asked: &Asked<'_>,
        answer: &mut Explanation,
    ) -> Filters {
        let of = Circumstances { request: asked.request, seen: asked.seen, semantics: self.semantics };
        let filters = Filters::of(manager, levels, of);
        answer.unknown.extend(filters.unknown.iter().map(|name| format!("the filter {name}")));
        answer.unknown.sort_unstable();
        answer.unknown.dedup();
        filters
    }

    /// Adds outcomes, each with the filters that answer in its place, if these are others: first what they answer, then what is left.
    fn add(
        filters: &Filters,
        outcomes: Vec<(Outcome, Option<Vec<Stop>>)>,
        asked: &Asked<'_>,
        answer: &mut Explanation,
    ) {
        let mut all: Vec<Outcome> = Vec::new();
        let mut forwarded = Vec::new();
        for (outcome, stops) in outcomes {
            // `router_check_tool` knows no filters.
            let stops = match asked.request.passes_filters || asked.request.router_check.is_some() {
                true => &[],
                false => stops.as_deref().unwrap_or(&filters.stops),
            };
            let shown = if outcome.filters.is_empty() { &filters.shown } else { &outcome.filters };
            let shown = shown.clone();
            let Some((stopped, left)) = Filters::apply(stops, &shown, outcome, asked.seen) else {
                answer.has_more = true;
                continue;
            };
            for one in stopped {
                let is_same = |other: &&mut Outcome| {
                    (other.action, &other.what, &other.when) == (one.action, &one.what, &one.when)
                };
                match all.iter_mut().find(is_same) {
                    Some(same) => match same.share.plus(one.share) {
                        Some(share) => same.share = share,
                        None => answer.has_more = true,
                    },
                    None => all.push(one),
                }
            }
            if !left.share.is_zero() || stops.is_empty() {
                forwarded.push(left);
            }
        }
        answer.outcomes.extend(all.into_iter().chain(forwarded));
    }

    fn requires_tls(&self, host: &VirtualHost, arrived: &Arrived) -> bool {
        let is_asked = match host.message.require_tls() {
            TlsRequirementType::None => false,
            TlsRequirementType::ExternalOnly => !arrived.is_internal,
            TlsRequirementType::All => true,
        };
        let is_https = arrived.seen.get("x-forwarded-proto").first().is_some_and(|proto| proto == "https");
        is_asked && !is_https && self.semantics.has(Difference::ActsAsProxy)
    }

    /// The outcomes of one way.
    fn outcomes(
        &self,
        leaf: &Leaf,
        host: &VirtualHost,
        asked: &Asked<'_>,
        routed: &Routed,
        manager: &HttpConnectionManager,
        answer: &mut Explanation,
    ) {
        let is_proxy = self.semantics.has(Difference::ActsAsProxy);
        let of_way = |outcome: Outcome| Outcome { when: leaf.assumed.clone(), route: leaf.route, ..outcome };
        if let Some(why) = &leaf.unknown {
            answer.unknown.push("the virtual host's matcher".to_owned());
            let message = format!("a tree of matchers chooses the route: {why}");
            answer.outcomes.push(of_way(Outcome::plain(leaf.chance.share(), ActionKind::Plugin, message)));
            return;
        }
        let Some(route) = leaf.route.and_then(|index| host.routes.get(index)) else {
            let message = match host.tree.is_some() {
                true => "the tree of matchers leads to no route that takes the request",
                false => "no route takes the request",
            };
            let outcome = Outcome::plain(leaf.chance.share(), ActionKind::NoRoute, message.to_owned());
            let status = match (is_proxy, is_grpc(asked.seen)) {
                (false, _) => UNAVAILABLE,
                (true, true) => "grpc 12 UNIMPLEMENTED",
                (true, false) => "404",
            };
            return self.answer_without_route(of_way(outcome.with_status(status)), asked, manager, answer);
        };
        let levels =
            Levels { table: &routed.table.message, host: &host.message, route: &route.message, member: None };
        let filters = self.filters(manager, Some(&levels), asked, answer);
        let action = match &route.message.action {
            Some(Action::Route(action)) => action,
            other => {
                let mut outcome = self.answered(other.as_ref(), &route.message, asked, leaf.chance.share());
                outcome.filters.clone_from(&filters.shown);
                outcome.checked = Checked::answered(&levels, other.as_ref(), asked.request, asked.seen);
                // A call of a gRPC client fails before its filters.
                let stops = if is_proxy { None } else { Some(Vec::new()) };
                return Self::add(&filters, vec![(of_way(outcome), stops)], asked, answer);
            }
        };
        let forwarded = self.forwarded(action, &levels, leaf, asked, manager, answer).into_iter();
        let forwarded = forwarded.map(|(outcome, stops)| (of_way(outcome), stops)).collect();
        Self::add(&filters, forwarded, asked, answer);
    }

    /// A route that answers itself.
    fn answered(
        &self,
        action: Option<&Action>,
        route: &envoy_types::pb::envoy::config::route::v3::Route,
        asked: &Asked<'_>,
        share: Ratio,
    ) -> Outcome {
        if !self.semantics.has(Difference::ActsAsProxy) {
            let outcome = Outcome::plain(
                share,
                ActionKind::NoRoute,
                "the route does not forward, and so the call fails".to_owned(),
            );
            return outcome.with_status(UNAVAILABLE);
        }
        match action {
            Some(Action::Redirect(redirect)) => {
                let status = status_of(redirect).to_string();
                let location = location(redirect, route, asked.request)
                    .unwrap_or_else(|why| format!("a location that is not known: {why}"));
                let outcome =
                    Outcome::plain(share, ActionKind::Redirect, format!("redirected to {location}"));
                Outcome { location: Some(location), ..outcome.with_status(status) }
            }
            Some(Action::DirectResponse(direct)) => {
                let outcome =
                    Outcome::plain(share, ActionKind::DirectResponse, "the route itself answers".to_owned());
                outcome.with_status(direct.status.to_string())
            }
            Some(Action::FilterAction(_) | Action::NonForwardingAction(_) | Action::Route(_)) | None => {
                Outcome::plain(share, ActionKind::Plugin, "a filter answers".to_owned())
            }
        }
    }

    /// The clusters of a route, with their shares (XA1), and the filters that answer in their place if those are not the route's.
    fn forwarded(
        &self,
        action: &RouteAction,
        levels: &Levels<'_>,
        leaf: &Leaf,
        asked: &Asked<'_>,
        manager: &HttpConnectionManager,
        answer: &mut Explanation,
    ) -> Vec<(Outcome, Option<Vec<Stop>>)> {
        let share = leaf.chance.share();
        let checked = |levels: &Levels<'_>, cluster: Known| {
            Checked::forwarded(levels, action, cluster, asked.request, asked.seen, self.semantics)
        };
        let single = |name: &str, answer: &mut Explanation| {
            let (outcome, stops) = self.to_cluster(name, share, action, levels, asked, manager, answer);
            vec![(self.with_mirrors(outcome, action, levels, &leaf.chance, None), Some(stops))]
        };
        let plugin = |name: &str| {
            let message = format!("the plugin {name:?} chooses the cluster");
            let checked = checked(levels, Err(message.clone()));
            vec![(Outcome { checked, ..Outcome::plain(share, ActionKind::Plugin, message) }, None)]
        };
        match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => single(name, answer),
            Some(ClusterSpecifier::ClusterHeader(header)) => {
                match asked.seen.get(&header.to_ascii_lowercase()).first() {
                    Some(name) => single(&name.clone(), answer),
                    None => {
                        let message = format!("the header {header:?}, which names the cluster, is absent");
                        let outcome = Outcome::plain(share, ActionKind::Cluster, message).with_status("503");
                        vec![(Outcome { checked: checked(levels, Ok(String::new())), ..outcome }, None)]
                    }
                }
            }
            Some(ClusterSpecifier::WeightedClusters(split)) => {
                self.split(split, action, levels, leaf, asked, manager, answer)
            }
            Some(ClusterSpecifier::ClusterSpecifierPlugin(name)) => plugin(name),
            Some(ClusterSpecifier::InlineClusterSpecifierPlugin(inline)) => {
                plugin(inline.extension.as_ref().map(|extension| extension.name.as_str()).unwrap_or_default())
            }
            None => {
                let message = "the route names no cluster".to_owned();
                let outcome = Outcome::plain(share, ActionKind::Cluster, message).with_status("503");
                vec![(Outcome { checked: checked(levels, Ok(String::new())), ..outcome }, None)]
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of one step")]
    fn split(
        &self,
        split: &WeightedCluster,
        action: &RouteAction,
        levels: &Levels<'_>,
        leaf: &Leaf,
        asked: &Asked<'_>,
        manager: &HttpConnectionManager,
        answer: &mut Explanation,
    ) -> Vec<(Outcome, Option<Vec<Stop>>)> {
        let weights: Vec<u32> = split.clusters.iter().map(weight_of).collect();
        let sum: u64 = weights.iter().copied().map(u64::from).sum();
        let by_value = match &split.random_value_specifier {
            Some(RandomValueSpecifier::HeaderName(name)) => {
                let value =
                    asked.seen.get(&name.to_ascii_lowercase()).first().and_then(|value| value.parse().ok());
                if value.is_none() {
                    answer.unknown.push(format!("the header {name:?}, which decides about weights"));
                }
                value.map(Chance::Known)
            }
            // The hash does not depend on the random number.
            Some(RandomValueSpecifier::UseHashPolicy(flag)) if flag.value => Some(Chance::Each(Ratio::ONE)),
            Some(RandomValueSpecifier::UseHashPolicy(_)) | None => None,
        };
        let shares = match &by_value {
            Some(chance) => {
                let shares = chance.weighted(&weights);
                shares
                    .and_then(|shares| shares.into_iter().map(|one| one.times(leaf.chance.share())).collect())
            }
            None => leaf.chance.weighted(&weights),
        };
        let Some(shares) = shares else {
            answer.has_more = true;
            return Vec::new();
        };
        let is_proxy = self.semantics.has(Difference::ActsAsProxy);
        let mut outcomes = Vec::new();
        let mut low = 0;
        let mut is_skewed = false;
        for (member, share) in split.clusters.iter().zip(shares) {
            let weight = u64::from(weight_of(member));
            let range = low..low + weight;
            low += weight;
            is_skewed |= is_off(share, Ratio::new(weight.into(), sum.into()).times(leaf.chance.share()));
            if weight == 0 && !is_proxy {
                continue;
            }
            let name = match &*member.cluster_header {
                "" => member.name.clone(),
                header => asked.seen.get(&header.to_ascii_lowercase()).first().cloned().unwrap_or_default(),
            };
            let levels = Levels { member: Some(member), ..*levels };
            let (mut outcome, stops) = self.to_cluster(&name, share, action, &levels, asked, manager, answer);
            outcome.weight = Some((weight, sum));
            let chance = by_value.as_ref().unwrap_or(&leaf.chance);
            let outcome = self.with_mirrors(outcome, action, &levels, chance, Some((range, sum)));
            outcomes.push((outcome, Some(stops)));
        }
        if is_skewed && matches!(leaf.chance, Chance::Shared(_)) && by_value.is_none() {
            let message = "the shares are not those of the weights: an Envoy has one random number for fractions and weights".to_owned();
            answer.notes.push(Note { code: "XE5", message });
        }
        outcomes
    }

    /// A cluster, with everything that the route does on the way, and the filters that answer in its place.
    #[expect(clippy::too_many_arguments, reason = "all of one step")]
    fn to_cluster(
        &self,
        name: &str,
        share: Ratio,
        action: &RouteAction,
        levels: &Levels<'_>,
        asked: &Asked<'_>,
        manager: &HttpConnectionManager,
        answer: &mut Explanation,
    ) -> (Outcome, Vec<Stop>) {
        let resource = ResourceKey { resource_type: ResourceType::Cluster, name: name.into() };
        let mut outcome = Outcome::plain(share, ActionKind::Cluster, format!("to {name}"));
        outcome.cluster = Some(element(name, &resource, String::new()));
        let (request, seen) = (asked.request, asked.seen);
        outcome.checked =
            Checked::forwarded(levels, action, Ok(name.to_owned()), request, seen, self.semantics);
        let of = Circumstances { request: asked.request, seen: asked.seen, semantics: self.semantics };
        let Filters { shown, stops, session, .. } = Filters::of(manager, Some(levels), of);
        (outcome.filters, outcome.session) = (shown, session);
        outcome.limits = Levels::limits(action, manager, asked.seen, self.semantics);
        outcome.retry = levels.retry(action, self.semantics);
        outcome.follows = Levels::follows(action, self.semantics);
        if self.semantics.has(Difference::ActsAsProxy) {
            outcome.rewrites = levels.rewrites(action);
        }
        let Some((cluster, assignment)) = self.cluster(name) else {
            let status =
                match (self.semantics.has(Difference::ActsAsProxy), action.cluster_not_found_response_code())
                {
                    (false, _) => UNAVAILABLE,
                    (true, ClusterNotFoundResponseCode::ServiceUnavailable) => "503",
                    (true, ClusterNotFoundResponseCode::NotFound) => "404",
                    (true, ClusterNotFoundResponseCode::InternalServerError) => "500",
                };
            outcome.what = format!("to {name}, which is not served");
            return (outcome.with_status(status), stops);
        };
        let members = self.members(&cluster);
        let is_hashed =
            members.iter().filter_map(|name| self.cluster(name)).any(|(member, _)| hashes(&member));
        if is_hashed || hashes(&cluster) || has_hashed_weights(action) {
            outcome.hash = Levels::hash(action, self.semantics);
        }
        if let Some(first) = members.first() {
            outcome.what = format!("to the first of {} that has healthy endpoints", members.join(", "));
            if let Some((cluster, Some(assignment))) = self.cluster(first) {
                let assignment = as_healthy(first, assignment, asked.request, answer);
                outcome.endpoints = endpoints(&cluster, &assignment, self.semantics);
            }
        } else if let Some(assignment) = assignment {
            let assignment = as_healthy(name, assignment, asked.request, answer);
            outcome.endpoints = endpoints(&cluster, &assignment, self.semantics);
            for drop in assignment.policy.iter().flat_map(|policy| &policy.drop_overloads) {
                let share = drop
                    .drop_percentage
                    .as_ref()
                    .map_or(Ratio::ZERO, |percent| Fraction::of_percent(percent).ratio());
                let message = format!("{share} of the requests to {name} are dropped ({})", drop.category);
                answer.notes.push(Note { code: "XA12", message });
            }
        }
        outcome.n_more_endpoints = outcome.endpoints.len().saturating_sub(MAX_ENDPOINTS);
        outcome.endpoints.truncate(MAX_ENDPOINTS);
        (outcome, stops)
    }

    /// The copies of a request: their fractions look at the same random number (XA2).
    fn with_mirrors(
        &self,
        mut outcome: Outcome,
        action: &RouteAction,
        levels: &Levels<'_>,
        chance: &Chance,
        range: Option<(std::ops::Range<u64>, u64)>,
    ) -> Outcome {
        for policy in levels.mirrors(action, self.semantics).iter().take(MAX_MIRRORS) {
            let percent =
                policy.runtime_fraction.as_ref().and_then(|fraction| Fraction::of(fraction, self.semantics));
            let share = match percent {
                None => Some(Ratio::ONE),
                Some(fraction) => chance.split(&fraction).and_then(|(inside, _)| {
                    let weights = range.as_ref().map(|(range, sum)| {
                        let part = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                        [part(range.start), part(range.end - range.start), part(sum - range.end)]
                    });
                    let of = |chance: &Chance| match &weights {
                        Some(weights) => chance.weighted(weights)?.get(1).copied(),
                        None => Some(chance.share()),
                    };
                    let inside = match inside {
                        Some(inside) => of(&inside)?,
                        None => Ratio::ZERO,
                    };
                    inside.over(of(chance)?)
                }),
            };
            let cluster = match &*policy.cluster {
                "" => format!("the cluster of header {:?}", policy.cluster_header),
                cluster => cluster.to_owned(),
            };
            outcome.mirrors.extend(share.map(|share| Mirror { cluster, share }));
        }
        outcome
    }
}

/// The assignment of a cluster with the health that the request says.
fn as_healthy(
    cluster: &str,
    mut assignment: ClusterLoadAssignment,
    request: &Request,
    answer: &mut Explanation,
) -> ClusterLoadAssignment {
    let Some((n_healthy, n_said)) = request.healthy.get(cluster) else { return assignment };
    let all = assignment.endpoints.iter_mut().flat_map(|locality| &mut locality.lb_endpoints);
    let mut n_all = 0;
    for endpoint in all {
        n_all += 1;
        if n_all > *n_healthy {
            endpoint.set_health_status(HealthStatus::Unhealthy);
        }
    }
    if n_all != *n_said {
        let message = format!("{cluster} has {n_all} endpoints, not {n_said}");
        answer.notes.push(Note { code: "XA11", message });
    }
    assignment
}

/// The routes that were looked at, with the reasons.
fn show_routes(
    host: &VirtualHost,
    asked: &Asked<'_>,
    ways: &Ways,
    host_path: &str,
    resource: &ResourceKey,
    answer: &mut Explanation,
) {
    let is_short = ways.seen.len() <= MAX_ALL_SHOWN;
    for (index, route) in ways.seen.iter().filter_map(|index| Some((*index, host.routes.get(*index)?))) {
        let takes_path = route.takes_path(asked);
        let is_chosen = ways.leaves.iter().any(|leaf| leaf.route == Some(index));
        if !(is_chosen || is_short || takes_path && answer.routes.len() < MAX_ALL_SHOWN) {
            answer.n_left_out += 1;
            continue;
        }
        let path = within(host_path, &host.path_of_route(index));
        let element = route_element(&route.message.name, resource, path);
        let matches = route.matches(asked).word();
        answer.routes.push(RouteSeen {
            index,
            element,
            matches,
            path: route.wanted_path(),
            fraction: route.fraction.as_ref().map(|fraction| fraction.at_run_time(asked.request).ratio()),
            failed: route.failures(asked),
            takes_path,
        });
    }
}

/// The branches of a tree that were looked at, the tree being in this part of a resource.
fn branches(looked: &[Looked], path: &str, resource: &ResourceKey) -> Vec<BranchSeen> {
    let branch = |one: &Looked| BranchSeen {
        element: element(&one.path, resource, within(path, &one.path)),
        matches: one.truth.word(),
        what: one.what.clone(),
    };
    looked.iter().map(branch).collect()
}

/// A note about branches that are not shown.
fn left_out(n: usize, code: &'static str) -> Option<Note> {
    (n > 0).then(|| Note { code, message: format!("{n} more branches were looked at") })
}

fn within(path: &str, rest: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{rest}")
}

/// More than 0.1 % away.
fn is_off(real: Ratio, written: Option<Ratio>) -> bool {
    let Some(written) = written else { return false };
    let as_float = |ratio: Ratio| ratio.parts().0 as f64 / ratio.parts().1 as f64;
    (as_float(real) - as_float(written)).abs() > 0.001
}

/// Returns `true` if the hash of a request decides about weights.
fn has_hashed_weights(action: &RouteAction) -> bool {
    let Some(ClusterSpecifier::WeightedClusters(split)) = &action.cluster_specifier else { return false };
    matches!(&split.random_value_specifier, Some(RandomValueSpecifier::UseHashPolicy(flag)) if flag.value)
}

pub(crate) fn weight_of(member: &ClusterWeight) -> u32 {
    member.weight.as_ref().map_or(0, |weight| weight.value)
}

pub(crate) fn element(name: &str, resource: &ResourceKey, path: String) -> Element {
    Element {
        name: name.to_owned(),
        place: None,
        part: Part { resource: resource.clone(), path, route: None },
    }
}

/// A route, which is also found by its name.
pub(crate) fn route_element(name: &str, resource: &ResourceKey, path: String) -> Element {
    let mut element = element(name, resource, path);
    element.part.route = Some(name.to_owned()).filter(|name| !name.is_empty());
    element
}

fn listener_of(resource: &Resource, address: String, chain: Option<String>, why: &str) -> Listener {
    let element = element(resource.name(), resource.key(), String::new());
    Listener { element, address, chain, why: why.to_owned(), branches: Vec::new() }
}

fn chain_name(chain: &FilterChain, index: Option<usize>) -> String {
    match (&*chain.name, index) {
        ("", Some(index)) => format!("filter chain {}", index + 1),
        ("", None) => "the default filter chain".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// What happens to a connection, as far as the choice of its chain.
fn outcome_of_chain(way: &ChainWay<'_>) -> Outcome {
    let (action, what) = match (way.chain, &way.missing, &way.unknown) {
        (_, _, Some(why)) => (ActionKind::Plugin, format!("a matcher chooses the filter chain: {why}")),
        (Some((chain, index)), ..) => {
            (ActionKind::Plugin, format!("to {}, which is not followed", chain_name(chain, index)))
        }
        (None, Some(name), None) => (
            ActionKind::NoChain,
            format!(
                "the matcher names the filter chain {name:?}, which is not there: the connection is closed"
            ),
        ),
        (None, None, None) => {
            (ActionKind::NoChain, "no filter chain takes the connection, which is closed".to_owned())
        }
    };
    Outcome { when: way.assumed.clone(), ..Outcome::plain(Ratio::ONE, action, what) }
}

fn why(listener: &ListenerMessage, found: &ChainsFound<'_>) -> String {
    let chain = found.only().map(|way| way.chain);
    if listener.filter_chain_matcher.is_some() {
        return match chain {
            None => "the matcher asks for something that is not known",
            Some(Some((_, Some(_)))) => "the matcher names it",
            Some(Some((_, None)) | None) => "the matcher leads to no other chain",
        }
        .to_owned();
    }
    match (chain.flatten(), &*found.steps) {
        (Some((_, None)), _) => "no other chain fits".to_owned(),
        (_, []) if listener.filter_chains.len() == 1 => "the only chain".to_owned(),
        (_, []) => "the first chain".to_owned(),
        (_, steps) => steps.join(", "),
    }
}

/// How the call of a gRPC client fails without a route.
pub(crate) const UNAVAILABLE: &str = "grpc 14 UNAVAILABLE";

/// Listeners that a request without a port is asked of.
pub const MAX_LISTENERS: usize = 16;

/// Routes that are shown one by one, whatever their path.
const MAX_ALL_SHOWN: usize = 20;

/// Outcomes in an answer: each way may lead to several clusters.
const MAX_OUTCOMES: usize = 16 * MAX_LEAVES;

const MAX_ENDPOINTS: usize = 32;
const MAX_MIRRORS: usize = 16;
const MAX_PASSED_OVER: usize = 16;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::listener::v3::ApiListener;
    use envoy_types::pb::envoy::config::route::v3::VirtualHost as HostMessage;
    use envoy_types::pb::envoy::config::route::v3::scoped_route_configuration::Key;
    use envoy_types::pb::envoy::config::route::v3::scoped_route_configuration::key::{Fragment, fragment};
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::ScopeKeyBuilder;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::FragmentBuilder;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::fragment_builder::header_value_extractor::ExtractType;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::fragment_builder::{HeaderValueExtractor, Type};
    use envoy_types::pb::google::protobuf::Any;
    use prost::Message as _;

    use super::*;
    use crate::client::{Client, Language};

    #[test]
    fn v4_calls_of_js_wait_where_no_domain_fits() {
        let manager = HttpConnectionManager {
            route_specifier: Some(RouteSpecifier::RouteConfig(RouteConfiguration::default())),
            ..HttpConnectionManager::default()
        };
        let api_listener = Some(Any { type_url: String::new(), value: manager.encode_to_vec() });
        let listener =
            ListenerMessage { api_listener: Some(ApiListener { api_listener }), ..Default::default() };
        let resource = Arc::new(Resource::plain(ResourceType::Listener, "a", listener.encode_to_vec()));
        let status = |language| {
            let model = Model::compile([Arc::clone(&resource)], Client::newest(language));
            model.explain(&Request::call("a", "s/m"))[0].outcomes[0].status.clone().unwrap()
        };
        assert_eq!(status(Language::CCore), UNAVAILABLE);
        assert_eq!(status(Language::Js), "grpc 4 DEADLINE_EXCEEDED");
    }

    #[test]
    fn h4_the_scope_of_a_request_chooses_its_route_configuration() {
        let scope = |name: &str, key: &str, table: &str| {
            let string = fragment::Type::StringKey(key.to_owned());
            let key = Key { fragments: vec![Fragment { r#type: Some(string) }] };
            let scope = ScopedRouteConfiguration {
                name: name.to_owned(),
                route_configuration_name: table.to_owned(),
                key: Some(key),
                ..Default::default()
            };
            Arc::new(Resource::plain(ResourceType::ScopedRouteConfiguration, name, scope.encode_to_vec()))
        };
        let host = HostMessage { domains: vec!["*".to_owned()], ..Default::default() };
        let table =
            RouteConfiguration { name: "t".to_owned(), virtual_hosts: vec![host], ..Default::default() };
        let table = Arc::new(Resource::plain(ResourceType::RouteConfiguration, "t", table.encode_to_vec()));
        let extractor = HeaderValueExtractor {
            name: "x-tenant".to_owned(),
            extract_type: Some(ExtractType::Index(0)),
            ..Default::default()
        };
        let builder = FragmentBuilder { r#type: Some(Type::HeaderValueExtractor(extractor)) };
        let scoped = ScopedRoutes {
            scope_key_builder: Some(ScopeKeyBuilder { fragments: vec![builder] }),
            ..Default::default()
        };
        let manager = HttpConnectionManager {
            route_specifier: Some(RouteSpecifier::ScopedRoutes(scoped)),
            ..HttpConnectionManager::default()
        };
        let resources = [scope("one", "1", "t"), scope("two", "2", "missing"), table];
        let model = Model::compile(resources, Client::newest(Language::Envoy));
        let part = element(
            "l",
            &ResourceKey { resource_type: ResourceType::Listener, name: "l".into() },
            String::new(),
        );
        let manager = Manager { message: manager, part: part.part };
        let asked = |tenant: Option<&str>| {
            let request = Request::get("a", "/");
            let request = tenant.map_or(request.clone(), |tenant| request.with("x-tenant", tenant));
            let seen = Seen::of(&request, model.semantics);
            let arrived = Arrived { request, seen, steps: Vec::new(), refused: None, is_internal: false };
            let answer = model.managed(&arrived, &manager, model.blank());
            (answer.outcomes[0].action, answer.outcomes[0].what.clone())
        };
        assert_eq!(asked(Some("1")).0, ActionKind::NoRoute);
        assert_eq!(asked(Some("2")).1, "there is no RouteConfiguration \"missing\"");
        assert_eq!(asked(Some("3")).1, "no scope has the key [\"3\"]");
        assert_eq!(asked(None).1, "the header \"x-tenant\" names no scope");
    }
}
