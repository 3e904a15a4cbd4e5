//! The HTTP filters of a request (XA7–XA10): what each does, and which of them answers in place of the route.

use envoy_types::pb::envoy::config::route::v3::FilterConfig;
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::fault_delay::FaultDelaySecifier;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::stateful_session_per_route::Override;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;

use crate::after::{Levels, is_of, milliseconds};
use crate::draw::Fraction;
use crate::explanation::{ActionKind, Filter, Outcome, Session};
use crate::header::{HeaderCondition, Seen};
use crate::ratio::Ratio;
use crate::rbac::{self, Access};
use crate::request::Request;
use crate::route::is_grpc;
use crate::semantics::{Difference, Semantics};
use crate::truth::Truth;

/// The filters of a request.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) shown: Vec<Filter>,
    /// Those that answer in place of the route, in order.
    pub(crate) stops: Vec<Stop>,
    /// Filters that may refuse the request or choose another route, which is not modelled.
    pub(crate) unknown: Vec<String>,
    /// What makes requests stick to an endpoint.
    pub(crate) session: Option<Session>,
}

/// A filter that answers in place of the route.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// A fault: a share of the requests, and the status.
    Fault(Fraction, String),
    /// An access rule refuses every request that comes so far; the reason.
    Denial(String),
}

/// The circumstances of a request that filters look at.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) request: &'a Request,
    pub(crate) seen: &'a Seen,
    pub(crate) semantics: Semantics,
}

impl Filters {
    /// The filters of the connection manager, with the overrides of a route; without one, nothing is overridden.
    pub(crate) fn of(
        manager: &HttpConnectionManager,
        levels: Option<&Levels<'_>>,
        of: Circumstances<'_>,
    ) -> Self {
        let mut filters = Self::default();
        for filter in manager.http_filters.iter().take(MAX_FILTERS) {
            let own = match &filter.config_type {
                Some(ConfigType::TypedConfig(any)) => Some(any),
                Some(ConfigType::ConfigDiscovery(_)) | None => None,
            };
            let found = levels.and_then(|levels| levels.filter(&filter.name, of.semantics));
            let mut config = found.map(|(any, _)| any);
            let mut is_off = filter.disabled;
            let wrapped;
            if let Some(any) = config
                && is_of(any, "envoy.config.route.v3.FilterConfig")
                && let Ok(wrapper) = FilterConfig::decode(&*any.value)
            {
                is_off = wrapper.disabled;
                wrapped = wrapper.config;
                config = wrapped.as_ref();
            } else if config.is_some() {
                // An override of its own enables the filter.
                is_off = false;
            }
            let by = found.map(|(_, level)| level);
            let kind = own.or(config).map_or("", |any| any.type_url.rsplit('/').next().unwrap_or_default());
            let effect = match is_off {
                true => "off".to_owned(),
                false => filters.effect(kind, config.or(own), of),
            };
            if effect.starts_with(UNKNOWN) {
                filters.unknown.push(filter.name.clone());
            }
            filters.shown.push(Filter { name: filter.name.clone(), effect, by });
        }
        filters
    }

    /// What a filter does, in words.
    fn effect(&mut self, kind: &str, config: Option<&Any>, of: Circumstances<'_>) -> String {
        match kind {
            "envoy.extensions.filters.http.fault.v3.HTTPFault" => {
                let fault = config.and_then(|any| HttpFault::decode(&*any.value).ok());
                fault.map_or_else(|| "on".to_owned(), |fault| self.fault(&fault, of))
            }
            "envoy.extensions.filters.http.rbac.v3.RBAC" if !of.semantics.has(Difference::ActsAsProxy) => {
                "off: only servers have it".to_owned()
            }
            "envoy.extensions.filters.http.rbac.v3.RBAC" => self.access(config, of),
            "envoy.extensions.filters.http.router.v3.Router" => "forwards".to_owned(),
            "envoy.extensions.filters.http.stateful_session.v3.StatefulSession" => {
                self.session = config.and_then(session);
                match &self.session {
                    Some(Session { by, name }) => format!("{by} `{name}`"),
                    None => "off".to_owned(),
                }
            }
            _ if MAY_REFUSE.iter().any(|name| kind.contains(name)) => UNKNOWN.to_owned(),
            _ => "on".to_owned(),
        }
    }

    /// XA8.
    fn access(&mut self, config: Option<&Any>, of: Circumstances<'_>) -> String {
        let Some((access, shadow)) = config.and_then(|any| rbac::judge(any, of)) else {
            return UNKNOWN.to_owned();
        };
        let effect = match access {
            Access::Off => "off".to_owned(),
            Access::Granted(why) => format!("allows: {why}"),
            Access::Refused(why) => {
                self.stops.push(Stop::Denial(why.clone()));
                format!("denies: {why}")
            }
            Access::Unknown(why) => format!("{UNKNOWN}: {why}"),
        };
        match shadow {
            Access::Off => effect,
            Access::Granted(why) => format!("{effect}; the shadow rules allow: {why}"),
            Access::Refused(why) => format!("{effect}; the shadow rules deny: {why}"),
            Access::Unknown(why) => format!("{effect}; the shadow rules are not known: {why}"),
        }
    }

    /// XA9.
    fn fault(&mut self, fault: &HttpFault, of: Circumstances<'_>) -> String {
        let Circumstances { request, seen, semantics } = of;
        if semantics.has(Difference::ActsAsProxy) {
            let mut headers = fault.headers.iter().map(|header| HeaderCondition::of(header, semantics));
            if headers.any(|header| header.matches(seen) == Truth::No) {
                return "off: its headers do not match".to_owned();
            }
            if !fault.upstream_cluster.is_empty() || !fault.downstream_nodes.is_empty() {
                return "on for some clusters or nodes".to_owned();
            }
        }
        let mut parts = Vec::new();
        if let Some(delay) = &fault.delay
            && let Some(FaultDelaySecifier::FixedDelay(duration)) = &delay.fault_delay_secifier
        {
            let share = delay
                .percentage
                .as_ref()
                .map_or(Ratio::ZERO, |percent| Fraction::of_percent(percent).ratio());
            parts.push(format!("{share} wait {} ms", milliseconds(duration)));
        }
        if let Some(abort) = &fault.abort {
            let status = match &abort.error_type {
                Some(ErrorType::HttpStatus(status)) => Some(status.to_string()),
                Some(ErrorType::GrpcStatus(status)) => Some(format!("grpc {status}")),
                Some(ErrorType::HeaderAbort(_)) => {
                    let http = seen.get("x-envoy-fault-abort-request").first().cloned();
                    let grpc = seen.get("x-envoy-fault-abort-grpc-request").first();
                    http.or_else(|| grpc.map(|status| format!("grpc {status}")))
                }
                None => None,
            };
            if let (Some(status), Some(percent)) = (status, &abort.percentage) {
                let fraction = Fraction::of_percent(percent).at_run_time(request);
                parts.push(format!("{} abort {status}", fraction.ratio()));
                self.stops.push(Stop::Fault(fraction, status));
            }
        }
        if parts.is_empty() { "on".to_owned() } else { parts.join(", ") }
    }

    /// What is answered in place of an outcome, and the outcome with the share that is left; `None` if shares are too fine.
    pub(crate) fn apply(
        stops: &[Stop],
        shown: &[Filter],
        outcome: Outcome,
        seen: &Seen,
    ) -> Option<(Vec<Outcome>, Outcome)> {
        let mut left = outcome.share;
        let mut stopped = Vec::new();
        for stop in stops {
            let (share, one) = match stop {
                Stop::Fault(fraction, status) => {
                    let what = format!("a fault aborts it with {status}");
                    let share = left.times(fraction.ratio())?;
                    let one = Outcome::plain(share, ActionKind::Aborted, what).with_status(status.clone());
                    left = left.times(fraction.ratio().rest())?;
                    (share, one)
                }
                Stop::Denial(why) => {
                    let what = format!("access rules deny it: {why}");
                    let status = if is_grpc(seen) { "grpc 7 PERMISSION_DENIED" } else { "403" };
                    let one = Outcome::plain(left, ActionKind::Denied, what).with_status(status);
                    (std::mem::replace(&mut left, Ratio::ZERO), one)
                }
            };
            if !share.is_zero() {
                let (when, route) = (outcome.when.clone(), outcome.route);
                stopped.push(Outcome { filters: shown.to_vec(), when, route, ..one });
            }
        }
        Some((stopped, Outcome { share: left, ..outcome }))
    }
}

/// The session of a filter's own configuration, or of an override; `None` if there is none, or if it is of a kind that is not known.
fn session(any: &Any) -> Option<Session> {
    let session = if is_of(any, "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute") {
        match StatefulSessionPerRoute::decode(&*any.value).ok()?.r#override? {
            Override::StatefulSession(session) => session,
            Override::Disabled(_) => return None,
        }
    } else {
        StatefulSession::decode(&*any.value).ok()?
    };
    let state = session.session_state?.typed_config?;
    match state.type_url.rsplit('/').next().unwrap_or_default() {
        "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState" => {
            let cookie = CookieBasedSessionState::decode(&*state.value).ok()?.cookie?;
            Some(Session { by: "cookie", name: cookie.name })
        }
        "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState" => {
            let header = HeaderBasedSessionState::decode(&*state.value).ok()?;
            Some(Session { by: "header", name: header.name })
        }
        _ => None,
    }
}

/// Parts of the names of filters that may refuse a request, or choose another route.
const MAY_REFUSE: [&str; 11] = [
    ".jwt_authn.",
    ".ext_authz.",
    ".ext_proc.",
    ".lua.",
    ".wasm.",
    ".oauth2.",
    ".basic_auth.",
    ".ratelimit.",
    ".api_key_auth.",
    ".csrf.",
    ".header_mutation.",
];

const UNKNOWN: &str = "on: may refuse the request, or choose another route";

/// Filters in an answer.
const MAX_FILTERS: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType as NetworkConfig;
    use envoy_types::pb::envoy::config::listener::v3::{Filter as NetworkFilter, FilterChain, Listener};
    use envoy_types::pb::envoy::config::rbac::v3::rbac::Action as Verdict;
    use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac, permission, principal};
    use envoy_types::pb::envoy::config::route::v3::route::Action;
    use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
    use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
    use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
    use envoy_types::pb::envoy::config::route::v3::{
        DirectResponseAction, RedirectAction, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
        WeightedCluster,
    };
    use envoy_types::pb::envoy::extensions::filters::http::fault::v3::FaultAbort;
    use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{Rbac as RbacFilter, RbacPerRoute};
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
    use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
    use envoy_types::pb::google::protobuf::UInt32Value;
    use xds_cache::{Resource, ResourceType};

    use super::*;
    use crate::client::{Client, Language};
    use crate::model::Model;

    const RBAC: &str = "envoy.extensions.filters.http.rbac.v3.RBAC";

    fn any(name: &str, message: &impl prost::Message) -> Any {
        Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
    }

    /// Rules with one policy, which matches everything.
    fn all(action: Verdict) -> Rbac {
        let policy = Policy {
            permissions: vec![Permission { rule: Some(permission::Rule::Any(true)) }],
            principals: vec![Principal { identifier: Some(principal::Identifier::Any(true)) }],
            ..Default::default()
        };
        Rbac { action: action.into(), policies: [("p".to_owned(), policy)].into(), ..Default::default() }
    }

    fn access(rules: Rbac) -> HttpFilter {
        filter("rbac", any(RBAC, &RbacFilter { rules: Some(rules), ..Default::default() }))
    }

    fn own_rules(rbac: Option<Rbac>) -> [(String, Any); 1] {
        let rules =
            RbacPerRoute { rbac: rbac.map(|rules| RbacFilter { rules: Some(rules), ..Default::default() }) };
        [("rbac".to_owned(), any("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", &rules))]
    }

    /// Half of the requests are aborted.
    fn fault() -> HttpFilter {
        let percentage = Some(FractionalPercent { numerator: 50, denominator: 0 });
        let abort =
            FaultAbort { error_type: Some(ErrorType::HttpStatus(418)), percentage, ..Default::default() };
        let fault = HttpFault { abort: Some(abort), ..Default::default() };
        filter("fault", any("envoy.extensions.filters.http.fault.v3.HTTPFault", &fault))
    }

    fn filter(name: &str, config: Any) -> HttpFilter {
        HttpFilter {
            name: name.to_owned(),
            config_type: Some(ConfigType::TypedConfig(config)),
            ..Default::default()
        }
    }

    fn route(prefix: &str, action: Action, overrides: impl IntoIterator<Item = (String, Any)>) -> Route {
        let path_specifier = Some(PathSpecifier::Prefix(prefix.to_owned()));
        Route {
            r#match: Some(RouteMatch { path_specifier, ..Default::default() }),
            action: Some(action),
            typed_per_filter_config: overrides.into_iter().collect(),
            ..Default::default()
        }
    }

    fn model(filters: Vec<HttpFilter>) -> Model {
        model_with(filters, 200)
    }

    /// A model of an Envoy with these filters, and a route of each kind; one answers with this status.
    fn model_with(filters: Vec<HttpFilter>, status: u32) -> Model {
        let direct = |status| Action::DirectResponse(DirectResponseAction { status, ..Default::default() });
        let member = |name: &str, overrides: Vec<(String, Any)>| ClusterWeight {
            name: name.to_owned(),
            weight: Some(UInt32Value { value: 1 }),
            typed_per_filter_config: overrides.into_iter().collect(),
            ..Default::default()
        };
        let split = WeightedCluster {
            clusters: vec![member("one", vec![]), member("two", own_rules(None).to_vec())],
            ..Default::default()
        };
        let split = RouteAction {
            cluster_specifier: Some(ClusterSpecifier::WeightedClusters(split)),
            ..Default::default()
        };
        let routes = vec![
            route("/direct", direct(status), []),
            route("/redirect", Action::Redirect(RedirectAction::default()), []),
            route("/off", direct(200), own_rules(None)),
            route("/log", direct(200), own_rules(Some(all(Verdict::Log)))),
            route("/split", Action::Route(split), []),
        ];
        let host = VirtualHost { domains: vec!["a.test".to_owned()], routes, ..Default::default() };
        let table = RouteConfiguration { virtual_hosts: vec![host], ..Default::default() };
        let manager = HttpConnectionManager {
            http_filters: filters,
            route_specifier: Some(RouteSpecifier::RouteConfig(table)),
            ..Default::default()
        };
        let name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let config_type = Some(NetworkConfig::TypedConfig(any(name, &manager)));
        let chain = FilterChain {
            filters: vec![NetworkFilter { config_type, ..Default::default() }],
            ..Default::default()
        };
        let listener = Listener { filter_chains: vec![chain], ..Default::default() };
        let listener = Resource::plain(ResourceType::Listener, "l", listener.encode_to_vec());
        let cluster = |name: &str| {
            let cluster = Cluster { name: name.to_owned(), ..Default::default() };
            Resource::plain(ResourceType::Cluster, name, cluster.encode_to_vec())
        };
        let resources = [listener, cluster("one"), cluster("two")];
        Model::compile(resources.map(Arc::new), Client::newest(Language::Envoy))
    }

    /// The statuses of a request, or clusters, with their shares in percent.
    fn answers(model: &Model, request: &Request) -> Vec<(String, u128)> {
        let all = model.explain(request);
        let outcomes = all[0].outcomes.iter().map(|outcome| {
            let (n, of) = outcome.share.parts();
            let cluster = outcome.cluster.as_ref().map(|cluster| cluster.name.clone());
            (outcome.status.clone().or(cluster).unwrap_or_default(), n * 100 / of)
        });
        outcomes.collect()
    }

    fn of(model: &Model, path: &str) -> Vec<(String, u128)> {
        answers(model, &Request::get("a.test", path))
    }

    fn each(expected: &[(&str, u128)]) -> Vec<(String, u128)> {
        expected.iter().map(|(status, percent)| ((*status).to_owned(), *percent)).collect()
    }

    /// The answers of Envoy 1.40.
    #[test]
    fn a8_rules_come_before_whatever_the_route_says() {
        let model = model(vec![access(all(Verdict::Deny))]);
        for path in ["/direct", "/redirect", "/no-route"] {
            assert_eq!(of(&model, path), each(&[("403", 100)]), "{path}");
        }
        assert_eq!(answers(&model, &Request::get("b.test", "/direct")), each(&[("403", 100)]));
        let call = answers(&model, &Request::call("a.test", "direct/Method"));
        assert_eq!(call, each(&[("grpc 7 PERMISSION_DENIED", 100)]));
        assert_eq!(of(&model, "/off"), each(&[("200", 100)]));
        assert_eq!(of(&model, "/log"), each(&[("200", 100)]));
        assert_eq!(of(&model, "/split"), each(&[("403", 50), ("two", 50)]), "a member has rules of its own");
        let explained = &model.explain(&Request::get("a.test", "/direct"))[0].outcomes[0];
        assert_eq!((explained.action, explained.route), (ActionKind::Denied, Some(0)));
        assert_eq!(explained.what, "access rules deny it: the policy \"p\" matches");
    }

    /// The answers of Envoy 1.40.
    #[test]
    fn a9_faults_come_before_whatever_the_route_says() {
        let model = model(vec![fault()]);
        assert_eq!(of(&model, "/direct"), each(&[("418", 50), ("200", 50)]));
        assert_eq!(of(&model, "/redirect"), each(&[("418", 50), ("301", 50)]));
        assert_eq!(of(&model, "/no-route"), each(&[("418", 50), ("404", 50)]));
        assert_eq!(of(&model, "/split"), each(&[("418", 50), ("one", 25), ("two", 25)]));
    }

    #[test]
    fn a8_filters_answer_in_their_order() {
        let denied = || access(all(Verdict::Deny));
        let both = each(&[("418", 50), ("403", 50)]);
        assert_eq!(of(&model(vec![fault(), denied()]), "/direct"), both);
        assert_eq!(of(&model(vec![denied(), fault()]), "/direct"), each(&[("403", 100)]));
        let shadow = RbacFilter { shadow_rules: Some(all(Verdict::Deny)), ..Default::default() };
        let model = model(vec![filter("rbac", any(RBAC, &shadow))]);
        assert_eq!(of(&model, "/direct"), each(&[("200", 100)]));
        let shown = &model.explain(&Request::get("a.test", "/direct"))[0].outcomes[0].filters[0].effect;
        assert_eq!(shown, "off; the shadow rules deny: the policy \"p\" matches");
    }

    #[test]
    fn what_is_denied_on_both_sides_is_compared_all_the_same() {
        let sides = [200, 201].map(|status| model_with(vec![access(all(Verdict::Deny))], status));
        let changes = crate::diff::diff(&sides[0], &sides[1]);
        let class = &changes.classes[0];
        assert_eq!(changes.classes.len(), 1, "{changes:?}");
        assert_eq!(class.example.as_ref().map(|example| example.path.as_str()), Some("/direct"));
        let statuses = [&class.before, &class.after]
            .map(|side| side.as_ref().and_then(|side| side.outcomes[0].status.clone()).unwrap_or_default());
        assert_eq!(statuses, ["200", "201"]);
    }
}
