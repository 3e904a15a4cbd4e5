//! What a route does with a request: timeouts, retries, mirrors, rewrites (XA2–XA7).

use std::collections::HashMap;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, SchemeRewriteSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::PolicySpecifier;
use envoy_types::pb::envoy::config::route::v3::{RedirectAction, RouteAction};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::google::protobuf::{Any, Duration};

use crate::changed::Known;
use crate::explanation::{Follows, Limit, Retry};
use crate::header::Seen;
use crate::request::Request;
use crate::rewrite::{rewritten, with_prefix};
use crate::semantics::{Difference, Semantics};

/// The levels at which a route's settings are, the weakest first.
pub(crate) struct Levels<'a> {
    pub(crate) table: &'a proto::RouteConfiguration,
    pub(crate) host: &'a proto::VirtualHost,
    pub(crate) route: &'a proto::Route,
    /// The chosen member of weighted clusters.
    pub(crate) member: Option<&'a proto::weighted_cluster::ClusterWeight>,
}

impl<'a> Levels<'a> {
    /// The override of a filter, and its level (XA7).
    pub(crate) fn filter(&self, name: &str, semantics: Semantics) -> Option<(&'a Any, &'static str)> {
        let of = |map: &'a HashMap<String, Any>, level| map.get(name).map(|any| (any, level));
        let table = semantics.has(Difference::ActsAsProxy).then_some(&self.table.typed_per_filter_config);
        self.member
            .and_then(|member| of(&member.typed_per_filter_config, "weighted cluster"))
            .or_else(|| of(&self.route.typed_per_filter_config, "route"))
            .or_else(|| of(&self.host.typed_per_filter_config, "virtual host"))
            .or_else(|| of(table?, "route configuration"))
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

    /// XA4.
    pub(crate) fn follows(action: &RouteAction, semantics: Semantics) -> Option<Follows> {
        let policy =
            action.internal_redirect_policy.as_ref().filter(|_| semantics.has(Difference::ActsAsProxy))?;
        // Envoy ignores other statuses.
        let known = |status: &u32| [301, 302, 303, 307, 308].contains(status);
        let statuses: Vec<u32> = policy.redirect_response_codes.iter().copied().filter(known).collect();
        Some(Follows {
            statuses: if policy.redirect_response_codes.is_empty() { vec![302] } else { statuses },
            max: policy.max_internal_redirects.as_ref().map_or(1, |max| max.value),
            crosses_schemes: policy.allow_cross_scheme_redirect,
            conditions: policy.predicates.iter().map(|one| one.name.clone()).collect(),
        })
    }

    /// What a hash is made of, if the cluster or the weights are chosen by one (XA10).
    pub(crate) fn hash(action: &RouteAction, semantics: Semantics) -> Vec<String> {
        let is_proxy = semantics.has(Difference::ActsAsProxy);
        let mut all = Vec::new();
        for policy in &action.hash_policy {
            let by = match &policy.policy_specifier {
                Some(PolicySpecifier::Header(header)) => format!("the header {:?}", header.header_name),
                Some(PolicySpecifier::FilterState(state)) if is_proxy => {
                    format!("the filter state {:?}", state.key)
                }
                Some(PolicySpecifier::FilterState(state)) if state.key == "io.grpc.channel_id" => {
                    "the channel".to_owned()
                }
                Some(PolicySpecifier::Cookie(cookie)) if is_proxy => {
                    let sets = if cookie.ttl.is_some() { ", which is set if it is absent" } else { "" };
                    format!("the cookie {:?}{sets}", cookie.name)
                }
                Some(PolicySpecifier::ConnectionProperties(connection))
                    if is_proxy && connection.source_ip =>
                {
                    "the address of the client".to_owned()
                }
                Some(PolicySpecifier::QueryParameter(parameter)) if is_proxy => {
                    format!("the query parameter {:?}", parameter.name)
                }
                Some(_) | None => continue,
            };
            let ends = if policy.terminal { ", and by nothing else if there is one" } else { "" };
            all.push(format!("{by}{ends}"));
        }
        all
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
            added.filter_map(|option| Some(option.header.as_ref()?.key.as_str())).take(MAX_NAMES).collect();
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
        let names: Vec<&str> = removed.map(String::as_str).take(MAX_NAMES).collect();
        if !names.is_empty() {
            rewrites.push(format!("request headers removed: {}", names.join(", ")));
        }
        rewrites
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

pub(crate) fn is_of(any: &Any, name: &str) -> bool {
    any.type_url.rsplit('/').next() == Some(name)
}

/// At least 0.
pub(crate) fn milliseconds(duration: &Duration) -> u64 {
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

/// Names of headers in an answer.
const MAX_NAMES: usize = 64;

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
