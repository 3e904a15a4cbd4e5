//! What a route does with a request: timeouts, retries, filters, rewrites (XA2–XA9).

use std::collections::HashMap;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, SchemeRewriteSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use envoy_types::pb::envoy::config::route::v3::{FilterConfig, RedirectAction, RouteAction};
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
use envoy_types::pb::google::protobuf::{Any, Duration};
use prost::Message as _;

use crate::changed::Known;
use crate::draw::Fraction;
use crate::explanation::{Filter, Limit, Retry, Session};
use crate::header::{HeaderCondition, Seen};
use crate::ratio::Ratio;
use crate::request::Request;
use crate::rewrite::{rewritten, with_prefix};
use crate::semantics::{Difference, Semantics};
use crate::truth::Truth;

/// The levels at which a route's settings are, the weakest first.
pub(crate) struct Levels<'a> {
    pub(crate) table: &'a proto::RouteConfiguration,
    pub(crate) host: &'a proto::VirtualHost,
    pub(crate) route: &'a proto::Route,
    /// The chosen member of weighted clusters.
    pub(crate) member: Option<&'a proto::weighted_cluster::ClusterWeight>,
}

/// The filters of a request, and the faults among them.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) shown: Vec<Filter>,
    /// Aborts, in order: share and status.
    pub(crate) aborts: Vec<(Fraction, String)>,
    /// Filters that may refuse the request or choose another route, which is not modelled.
    pub(crate) unknown: Vec<String>,
    /// What makes requests stick to an endpoint.
    pub(crate) session: Option<Session>,
}

impl<'a> Levels<'a> {
    /// The override of a filter, and its level (XA7).
    fn filter(&self, name: &str, semantics: Semantics) -> Option<(&'a Any, &'static str)> {
        let of = |map: &'a HashMap<String, Any>, level| map.get(name).map(|any| (any, level));
        let table = semantics.has(Difference::ActsAsProxy).then_some(&self.table.typed_per_filter_config);
        self.member
            .and_then(|member| of(&member.typed_per_filter_config, "weighted cluster"))
            .or_else(|| of(&self.route.typed_per_filter_config, "route"))
            .or_else(|| of(&self.host.typed_per_filter_config, "virtual host"))
            .or_else(|| of(table?, "route configuration"))
    }

    /// The filters of the connection manager with their overrides.
    pub(crate) fn filters(
        &self,
        manager: &HttpConnectionManager,
        request: &Request,
        seen: &Seen,
        semantics: Semantics,
    ) -> Filters {
        let mut filters = Filters::default();
        for filter in manager.http_filters.iter().take(MAX_FILTERS) {
            let own = match &filter.config_type {
                Some(ConfigType::TypedConfig(any)) => Some(any),
                Some(ConfigType::ConfigDiscovery(_)) | None => None,
            };
            let found = self.filter(&filter.name, semantics);
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
            let effect = if is_off {
                "off".to_owned()
            } else {
                Self::effect(kind, config.or(own), request, seen, semantics, &mut filters)
            };
            if effect == UNKNOWN {
                filters.unknown.push(filter.name.clone());
            }
            filters.shown.push(Filter { name: filter.name.clone(), effect, by });
        }
        filters
    }

    fn effect(
        kind: &str,
        config: Option<&Any>,
        request: &Request,
        seen: &Seen,
        semantics: Semantics,
        filters: &mut Filters,
    ) -> String {
        match kind {
            "envoy.extensions.filters.http.fault.v3.HTTPFault" => {
                let Some(fault) = config.and_then(|any| HttpFault::decode(&*any.value).ok()) else {
                    return "on".to_owned();
                };
                Self::fault(&fault, request, seen, semantics, filters)
            }
            "envoy.extensions.filters.http.router.v3.Router" => "forwards".to_owned(),
            "envoy.extensions.filters.http.stateful_session.v3.StatefulSession" => {
                filters.session = config.and_then(session);
                match &filters.session {
                    Some(Session { by, name }) => format!("{by} `{name}`"),
                    None => "off".to_owned(),
                }
            }
            _ if MAY_REFUSE.iter().any(|name| kind.contains(name)) => UNKNOWN.to_owned(),
            _ => "on".to_owned(),
        }
    }

    /// XA9.
    fn fault(
        fault: &HttpFault,
        request: &Request,
        seen: &Seen,
        semantics: Semantics,
        filters: &mut Filters,
    ) -> String {
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
                filters.aborts.push((fraction, status));
            }
        }
        if parts.is_empty() { "on".to_owned() } else { parts.join(", ") }
    }

    /// XA5.
    pub(crate) fn limits(
        action: &RouteAction,
        manager: &HttpConnectionManager,
        seen: &Seen,
        semantics: Semantics,
    ) -> Vec<Limit> {
        let common = manager.common_http_protocol_options.as_ref();
        let manager_max = common.and_then(|common| common.max_stream_duration.as_ref());
        let mut limits = Vec::new();
        let header = seen.get("grpc-timeout").first().and_then(|value| grpc_timeout(value));
        let max = action.max_stream_duration.as_ref();
        if !semantics.has(Difference::ActsAsProxy) {
            let header_max = max.and_then(|max| max.grpc_timeout_header_max.as_ref());
            let stream = max.and_then(|max| max.max_stream_duration.as_ref());
            let (found, by) = match (header_max, stream, manager_max) {
                (Some(found), ..) => (Some(found), "grpc_timeout_header_max"),
                (None, Some(found), _) => (Some(found), "max_stream_duration"),
                (None, None, Some(found)) => (Some(found), "the listener's max_stream_duration"),
                (None, None, None) => (None, "max_stream_duration"),
            };
            let is_default = found.is_none();
            let ms = found.map(milliseconds).filter(|ms| *ms > 0);
            return vec![Limit { of: "request", ms, by, is_default }];
        }
        match max {
            Some(max) => {
                let own = max.max_stream_duration.as_ref();
                let stream = own.or(manager_max).map(milliseconds).filter(|ms| *ms > 0);
                let mut limit =
                    Limit { of: "request", ms: stream, by: "max_stream_duration", is_default: own.is_none() };
                if let (Some(longest), Some(header)) = (&max.grpc_timeout_header_max, header) {
                    let offset = max.grpc_timeout_header_offset.as_ref().map_or(0, milliseconds);
                    let reduced = if header > offset { header - offset } else { header };
                    let longest = milliseconds(longest);
                    let ms = if longest == 0 { reduced } else { reduced.min(longest) };
                    limit = Limit {
                        of: "request",
                        ms: Some(ms).filter(|ms| *ms > 0),
                        by: "grpc-timeout",
                        is_default: false,
                    };
                }
                limits.push(limit);
            }
            None => {
                let ms = action.timeout.as_ref().map_or(15_000, milliseconds);
                let is_default = action.timeout.is_none();
                limits.push(Limit {
                    of: "request",
                    ms: Some(ms).filter(|ms| *ms > 0),
                    by: "timeout",
                    is_default,
                });
                if let Some(max) = manager_max.map(milliseconds).filter(|ms| *ms > 0) {
                    limits.push(Limit {
                        of: "stream",
                        ms: Some(max),
                        by: "the connection manager's max_stream_duration",
                        is_default: false,
                    });
                }
            }
        }
        let (idle, by, is_default) = match (&action.idle_timeout, &manager.stream_idle_timeout) {
            (Some(idle), _) => (milliseconds(idle), "idle_timeout", false),
            (None, Some(idle)) => (milliseconds(idle), "the connection manager's stream_idle_timeout", false),
            (None, None) => (300_000, "the connection manager's stream_idle_timeout", true),
        };
        limits.push(Limit { of: "idle", ms: Some(idle).filter(|ms| *ms > 0), by, is_default });
        limits
    }

    /// XA6.
    pub(crate) fn retry(&self, action: &RouteAction, semantics: Semantics) -> Option<Retry> {
        let own = action.retry_policy.as_ref().map(|policy| (policy, "route"));
        let (policy, by) =
            own.or_else(|| self.host.retry_policy.as_ref().map(|policy| (policy, "virtual host")))?;
        let on = policy.retry_on.split(',').map(str::trim).filter(|on| !on.is_empty());
        let is_proxy = semantics.has(Difference::ActsAsProxy);
        let on: Vec<String> =
            on.filter(|on| is_proxy || GRPC_RETRIES.contains(on)).map(str::to_owned).collect();
        if on.is_empty() {
            return None;
        }
        let n = policy.num_retries.as_ref().map_or(1, |n| n.value);
        let n_retries = if is_proxy { n } else { n.min(4) };
        let back_off = policy.retry_back_off.as_ref();
        let base = back_off.and_then(|back_off| back_off.base_interval.as_ref()).map_or(25, milliseconds);
        let max = back_off.and_then(|back_off| back_off.max_interval.as_ref());
        let max_interval_ms = max.map_or(base.saturating_mul(10), milliseconds);
        Some(Retry { on, n_retries, base_interval_ms: base, max_interval_ms, by })
    }

    /// The mirrors: of the route, else of the virtual host, else of the RouteConfiguration (XA2).
    pub(crate) fn mirrors(
        &self,
        action: &'a RouteAction,
        semantics: Semantics,
    ) -> &'a [proto::route_action::RequestMirrorPolicy] {
        if !semantics.has(Difference::ActsAsProxy) {
            return &[];
        }
        let levels = [
            &action.request_mirror_policies,
            &self.host.request_mirror_policies,
            &self.table.request_mirror_policies,
        ];
        levels.into_iter().find(|policies| !policies.is_empty()).map(Vec::as_slice).unwrap_or_default()
    }

    /// How the request is changed, in words.
    pub(crate) fn rewrites(&self, action: &RouteAction) -> Vec<String> {
        let mut rewrites = Vec::new();
        if !action.prefix_rewrite.is_empty() {
            rewrites.push(format!("the matched part of the path becomes {:?}", action.prefix_rewrite));
        }
        if let Some(rewrite) = &action.regex_rewrite {
            let pattern = rewrite.pattern.as_ref().map(|pattern| pattern.regex.as_str()).unwrap_or_default();
            rewrites.push(format!("in the path, {pattern:?} becomes {:?}", rewrite.substitution));
        }
        if let Some(policy) = &action.path_rewrite_policy {
            rewrites.push(format!("the path is rewritten by {}", policy.name));
        }
        if !action.path_rewrite.is_empty() {
            rewrites.push(format!("the path becomes {:?}", action.path_rewrite));
        }
        match &action.host_rewrite_specifier {
            Some(
                HostRewriteSpecifier::HostRewriteLiteral(host) | HostRewriteSpecifier::HostRewrite(host),
            ) => {
                rewrites.push(format!("the host becomes {host}"));
            }
            Some(HostRewriteSpecifier::AutoHostRewrite(flag)) if flag.value => {
                rewrites.push("the host becomes that of the endpoint".to_owned());
            }
            Some(HostRewriteSpecifier::HostRewriteHeader(name)) => {
                rewrites.push(format!("the host becomes the value of {name}"));
            }
            Some(HostRewriteSpecifier::HostRewritePathRegex(_)) => {
                rewrites.push("the host becomes a part of the path".to_owned());
            }
            Some(HostRewriteSpecifier::AutoHostRewrite(_)) | None => {}
        }
        let added = [
            &self.table.request_headers_to_add,
            &self.host.request_headers_to_add,
            &self.route.request_headers_to_add,
        ];
        let added =
            added.into_iter().chain(self.member.map(|member| &member.request_headers_to_add)).flatten();
        let names: Vec<&str> =
            added.filter_map(|option| Some(option.header.as_ref()?.key.as_str())).take(MAX_FILTERS).collect();
        if !names.is_empty() {
            rewrites.push(format!("request headers set: {}", names.join(", ")));
        }
        let removed = [
            &self.table.request_headers_to_remove,
            &self.host.request_headers_to_remove,
            &self.route.request_headers_to_remove,
        ];
        let removed =
            removed.into_iter().chain(self.member.map(|member| &member.request_headers_to_remove)).flatten();
        let names: Vec<&str> = removed.map(String::as_str).take(MAX_FILTERS).collect();
        if !names.is_empty() {
            rewrites.push(format!("request headers removed: {}", names.join(", ")));
        }
        rewrites
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

/// Where a redirect leads (XA3).
///
/// # Errors
///
/// Why that is not known.
pub(crate) fn location(redirect: &RedirectAction, route: &proto::Route, request: &Request) -> Known {
    let scheme = match &redirect.scheme_rewrite_specifier {
        Some(SchemeRewriteSpecifier::HttpsRedirect(true)) => "https",
        Some(SchemeRewriteSpecifier::SchemeRedirect(scheme)) if !scheme.is_empty() => scheme,
        Some(SchemeRewriteSpecifier::HttpsRedirect(false) | SchemeRewriteSpecifier::SchemeRedirect(_))
        | None => &request.scheme,
    };
    let mut host = match &*redirect.host_redirect {
        "" => request.authority.clone(),
        host => host.to_owned(),
    };
    let bare = crate::host::without_port(&host).to_owned();
    if redirect.port_redirect != 0 {
        host = format!("{bare}:{}", redirect.port_redirect);
    } else if scheme != request.scheme
        && (host.ends_with(":80") && request.scheme == "http"
            || host.ends_with(":443") && request.scheme == "https")
    {
        host = bare;
    }
    let (path, query) = match request.path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (&*request.path, String::new()),
    };
    let mut query = if redirect.strip_query { String::new() } else { query };
    let path = match &redirect.path_rewrite_specifier {
        Some(PathRewriteSpecifier::PathRedirect(new)) => {
            if new.contains('?') {
                query = String::new();
            }
            new.clone()
        }
        Some(PathRewriteSpecifier::PrefixRewrite(new)) if !new.is_empty() => with_prefix(route, path, new),
        Some(PathRewriteSpecifier::RegexRewrite(rewrite)) => rewritten(rewrite, path)?,
        Some(PathRewriteSpecifier::PathRewrite(new)) if new.contains('%') => {
            return Err(format!("the path {new:?} of the location has commands, which are not modelled"));
        }
        Some(PathRewriteSpecifier::PathRewrite(new)) if !new.is_empty() => new.clone(),
        Some(PathRewriteSpecifier::PrefixRewrite(_) | PathRewriteSpecifier::PathRewrite(_)) | None => {
            path.to_owned()
        }
    };
    Ok(format!("{scheme}://{host}{path}{query}"))
}

fn is_of(any: &Any, name: &str) -> bool {
    any.type_url.rsplit('/').next() == Some(name)
}

/// At least 0.
fn milliseconds(duration: &Duration) -> u64 {
    let seconds = u64::try_from(duration.seconds).unwrap_or_default();
    seconds.saturating_mul(1000).saturating_add(u64::try_from(duration.nanos).unwrap_or_default() / 1_000_000)
}

/// The value of `grpc-timeout` in milliseconds, rounded up.
fn grpc_timeout(value: &str) -> Option<u64> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let n: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => n * 3_600_000,
        "M" => n * 60_000,
        "S" => n * 1000,
        "m" => n,
        "u" => n.div_ceil(1000),
        "n" => n.div_ceil(1_000_000),
        _ => return None,
    })
}

/// The conditions under which gRPC clients try again.
const GRPC_RETRIES: [&str; 5] =
    ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];

/// Parts of the names of filters that may refuse a request, or choose another route.
const MAY_REFUSE: [&str; 12] = [
    ".rbac.",
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

/// Filters and names of headers in an answer.
const MAX_FILTERS: usize = 64;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::HttpProtocolOptions;
    use envoy_types::pb::envoy::config::route::v3::route_action::MaxStreamDuration;

    use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;

    use super::*;
    use crate::client::{Client, Language};

    fn seconds(seconds: i64) -> Duration {
        Duration { seconds, nanos: 0 }
    }

    /// The limit of a whole request.
    fn limit(
        language: Language,
        action: &RouteAction,
        header: Option<&str>,
        manager: Option<i64>,
    ) -> Option<u64> {
        let semantics = Semantics::of(Client::newest(language));
        let common = HttpProtocolOptions { max_stream_duration: manager.map(seconds), ..Default::default() };
        let manager =
            HttpConnectionManager { common_http_protocol_options: Some(common), ..Default::default() };
        let request = Request::get("a", "/");
        let request = header.map_or(request.clone(), |value| request.with("grpc-timeout", value));
        Levels::limits(action, &manager, &Seen::of(&request, semantics), semantics)[0].ms
    }

    #[test]
    fn a5_max_stream_duration_turns_the_timeout_off_even_if_it_is_empty() {
        use Language::{CCore, Envoy};
        let action = |max: Option<MaxStreamDuration>| RouteAction {
            timeout: Some(seconds(3)),
            max_stream_duration: max,
            ..Default::default()
        };
        assert_eq!(limit(Envoy, &RouteAction::default(), None, None), Some(15_000));
        assert_eq!(limit(Envoy, &action(None), None, None), Some(3000));
        assert_eq!(limit(Envoy, &action(Some(MaxStreamDuration::default())), None, None), None);
        assert_eq!(limit(Envoy, &action(Some(MaxStreamDuration::default())), None, Some(7)), Some(7000));
        let max = MaxStreamDuration { grpc_timeout_header_max: Some(seconds(5)), ..Default::default() };
        assert_eq!(limit(Envoy, &action(Some(max)), None, None), None);
        assert_eq!(limit(Envoy, &action(Some(max)), Some("9S"), None), Some(5000));
        assert_eq!(limit(Envoy, &action(Some(max)), Some("2S"), None), Some(2000));
        assert_eq!(limit(CCore, &action(Some(max)), None, Some(7)), Some(5000));
        assert_eq!(limit(CCore, &action(None), None, Some(7)), Some(7000));
    }

    #[test]
    fn a3_redirects_change_what_they_name() {
        let request = Request::get("a.test:80", "/old/x?y=1");
        let route = proto::Route {
            r#match: Some(proto::RouteMatch {
                path_specifier: Some(PathSpecifier::Prefix("/old".to_owned())),
                ..Default::default()
            }),
            ..Default::default()
        };
        let https = RedirectAction {
            scheme_rewrite_specifier: Some(SchemeRewriteSpecifier::HttpsRedirect(true)),
            ..Default::default()
        };
        assert_eq!(location(&https, &route, &request).unwrap(), "https://a.test/old/x?y=1");
        let prefix = RedirectAction {
            path_rewrite_specifier: Some(PathRewriteSpecifier::PrefixRewrite("/new".to_owned())),
            strip_query: true,
            host_redirect: "b.test".to_owned(),
            ..Default::default()
        };
        assert_eq!(location(&prefix, &route, &request).unwrap(), "http://b.test/new/x");
    }
}
