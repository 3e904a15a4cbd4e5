//! Parts of messages that are the same for both profiles.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use xds_cache::cluster::{DRAIN_CLUSTER, DRAIN_ENDPOINTS, METADATA};
use xds_cache::{DrainPolicy, Origin};
use xds_units::Span;

use super::Emitted;
use crate::model::{Fraction, MatchType, MethodMatch, Timeouts};
use crate::plan::{Assignment, Endpoint, Health, Locality};

/// The name of the cluster without endpoints, and of its assignment: requests to it fail with UNAVAILABLE (C48).
pub(crate) const UNAVAILABLE: &str = "xds-server/unavailable";

/// The name of the filter that keeps sessions. Routes override it by this name.
pub(super) const STATEFUL_SESSION: &str = "envoy.filters.http.stateful_session";

/// The `@type` of a message of Envoy's API: `type_of("config.cluster.v3.Cluster")`.
pub(super) fn type_of(name: &str) -> String {
    format!("type.googleapis.com/envoy.{name}")
}

/// A `ConfigSource`: the stream that the client already has.
pub(super) fn ads() -> Json {
    json!({"ads": {}, "resource_api_version": "V3"})
}

/// An `EdsClusterConfig`.
pub(super) fn eds_config(assignment: &str) -> Json {
    json!({"eds_config": ads(), "service_name": assignment})
}

/// The `cluster_type` of an aggregate. The type of the message is enough for Envoy, but grpc-go and grpc-java need the name too
/// (row B176).
pub(super) fn aggregate_type(members: &[&str]) -> Json {
    json!({
        "name": "envoy.clusters.aggregate",
        "typed_config": {
            "@type": type_of("extensions.clusters.aggregate.v3.ClusterConfig"), "clusters": members,
        },
    })
}

/// An `Address`. The host may be a name.
pub(super) fn socket_address(host: &str, port: u16) -> Json {
    json!({"socket_address": {"address": host, "port_value": port}})
}

/// An `HttpFilter` of this name and type.
pub(super) fn http_filter(name: &str, config: &str) -> Json {
    json!({"name": name, "typed_config": {"@type": type_of(config)}})
}

/// The router filter, which must come last.
pub(super) fn router() -> Json {
    http_filter("envoy.filters.http.router", "extensions.filters.http.router.v3.Router")
}

/// A `StatefulSessionPerRoute` with a session state of this name.
pub(super) fn session_override(state: &str, config: Json) -> Json {
    json!({
        "@type": type_of("extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute"),
        "stateful_session": {"session_state": {"name": state, "typed_config": config}},
    })
}

/// A `StatefulSessionPerRoute` for sessions by this `Cookie`.
pub(super) fn cookie_session_override(cookie: Json) -> Json {
    let config = type_of("extensions.http.stateful_session.cookie.v3.CookieBasedSessionState");
    session_override("envoy.http.stateful_session.cookie", json!({"@type": config, "cookie": cookie}))
}

/// How the path of a request is compared.
#[derive(Hash)]
pub(super) enum Path {
    /// The path has this prefix.
    Prefix(String),
    /// The path is this text.
    Exact(String),
    /// This expression matches the whole path.
    Regex(String),
}

/// The path of a method. Names are escaped in expressions, a service is one segment, and expressions are grouped, so that `a|b` stays
/// within its part.
pub(super) fn method_path(method: &MethodMatch) -> Path {
    match (method.match_type, method.service.as_deref(), method.method.as_deref()) {
        (_, None, None) => Path::Prefix("/".to_owned()),
        (MatchType::Exact, Some(service), Some(method)) => Path::Exact(format!("/{service}/{method}")),
        (MatchType::Exact, Some(service), None) => Path::Prefix(format!("/{service}/")),
        (MatchType::Exact, None, Some(method)) => Path::Regex(format!("/[^/]+/{}", quote(method))),
        (MatchType::RegularExpression, Some(service), Some(method)) => {
            Path::Regex(format!("/(?:{service})/(?:{method})"))
        }
        (MatchType::RegularExpression, Some(service), None) => Path::Regex(format!("/(?:{service})/[^/]+")),
        (MatchType::RegularExpression, None, Some(method)) => Path::Regex(format!("/[^/]+/(?:{method})")),
    }
}

/// The time limit of a whole request; `None` for no limit. Without retries there is only one attempt, so its limit counts too.
pub(super) fn time_limit(timeouts: &Timeouts, is_retried: bool) -> Option<Duration> {
    let attempt = timeouts.backend_request.filter(|_| !is_retried);
    [timeouts.request, attempt].into_iter().flatten().filter(|limit| !limit.is_zero()).min()
}

/// A `google.protobuf.Duration`: `5s`, `0.250s`.
pub(super) fn duration(duration: Duration) -> Json {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    match (nanos, nanos % 1_000_000) {
        (0, _) => format!("{secs}s").into(),
        (_, 0) => format!("{secs}.{:03}s", nanos / 1_000_000).into(),
        _ => format!("{secs}.{nanos:09}s").into(),
    }
}

/// A `FractionalPercent`: exact if one of its three denominators allows that, otherwise rounded to a millionth, and never to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percent {
    pub(super) numerator: u64,
    /// One of [`DENOMINATORS`](Self::DENOMINATORS).
    pub(super) denominator: u64,
}

impl Percent {
    /// The fraction with each denominator that can express it, the largest first. Empty for 100%, which needs no draw.
    pub(super) fn all(fraction: Fraction) -> impl DoubleEndedIterator<Item = Self> {
        let (numerator, denominator) =
            (u64::from(fraction.numerator), u64::from(fraction.denominator.max(1)));
        let sizes = if numerator < denominator { &Self::DENOMINATORS[..] } else { &[] };
        sizes.iter().filter_map(move |(_, size)| match (numerator * size).is_multiple_of(denominator) {
            true => Some(Self { numerator: numerator * size / denominator, denominator: *size }),
            false if *size == 1_000_000 => {
                let nearest = (numerator * 2_000_000 + denominator) / (denominator * 2);
                Some(Self { numerator: nearest.max(1), denominator: *size })
            }
            false => None,
        })
    }

    /// The message.
    pub(super) fn message(self) -> Json {
        let mut names = Self::DENOMINATORS.iter().filter(|(_, size)| *size == self.denominator);
        json!({"numerator": self.numerator, "denominator": names.next().map(|(name, _)| name)})
    }

    const DENOMINATORS: [(&str, u64); 3] =
        [("MILLION", 1_000_000), ("TEN_THOUSAND", 10_000), ("HUNDRED", 100)];
}

/// The fraction with the smallest denominator that can express it.
pub(super) fn fractional_percent(fraction: Fraction) -> Json {
    let smallest = Percent::all(fraction).next_back();
    smallest.unwrap_or(Percent { numerator: 100, denominator: 100 }).message()
}

/// An assignment as a resource, the same for both profiles.
pub(crate) fn assignment<'p>(
    name: &'p str,
    assignment: Cow<'p, Assignment>,
    origin: &'p Origin,
) -> Emitted<'p> {
    Emitted::new(
        "assignment",
        (name, assignment),
        |(name, assignment)| load_assignment(name, assignment),
        origin,
    )
}

/// The assignment [`UNAVAILABLE`].
pub(crate) fn no_endpoints(origin: &Origin) -> Emitted<'_> {
    let none = Assignment { localities: Vec::new(), origin: origin.clone() };
    assignment(UNAVAILABLE, Cow::Owned(none), origin)
}

/// A `ClusterLoadAssignment`.
///
/// Every locality has a weight of at least 1, because gRPC skips those without (D52). It is the sum of the weights of the endpoints that
/// take new requests. So endpoints of different zones get the same share, both from Envoys, which look at endpoints, and from gRPC,
/// which looks at localities first. The sum of all weights fits into 32 bits.
fn load_assignment(name: &str, assignment: &Assignment) -> Json {
    let message = json!({"@type": type_of("config.endpoint.v3.ClusterLoadAssignment"), "cluster_name": name});
    let filled: Vec<&Locality> =
        assignment.localities.iter().filter(|locality| !locality.endpoints.is_empty()).collect();
    if filled.is_empty() {
        return message;
    }
    let total: u64 = filled.iter().flat_map(|locality| &locality.endpoints).map(weight).sum();
    // Rounding down keeps the sum in bounds. Weights that would be 0 become 1, but there are not enough endpoints to matter.
    let divisor = total.div_ceil(u64::from(u32::MAX / 2)).max(1);
    let localities: Vec<Json> =
        filled.into_iter().map(|locality| locality_endpoints(locality, divisor)).collect();
    with(message, "endpoints", localities)
}

fn locality_endpoints(locality: &Locality, divisor: u64) -> Json {
    let has_weights = locality.endpoints.iter().any(|endpoint| endpoint.weight.is_some());
    let mut sum = 0;
    let mut endpoints = Vec::new();
    for endpoint in &locality.endpoints {
        let weight = (weight(endpoint) / divisor).max(1);
        let health = match endpoint.health {
            Health::Healthy => "HEALTHY",
            Health::Draining => "DRAINING",
        };
        if endpoint.health == Health::Healthy {
            sum += weight;
        }
        let address = socket_address(&endpoint.address.to_string(), endpoint.port);
        let entry = json!({"endpoint": {"address": address}, "health_status": health});
        endpoints.push(if has_weights { with(entry, "load_balancing_weight", weight) } else { entry });
    }
    let zone = match locality.zone.as_str() {
        "" => json!({}),
        zone => json!({"zone": zone}),
    };
    json!({"locality": zone, "lb_endpoints": endpoints, "load_balancing_weight": sum.max(1)})
}

fn weight(endpoint: &Endpoint) -> u64 {
    endpoint.weight.unwrap_or(1).max(1).into()
}

/// More than any client ever has in progress.
pub(super) const NO_LIMIT: u32 = u32::MAX;

/// A cluster with its settings for draining.
pub(super) fn with_drain(cluster: Json, drain: DrainPolicy) -> Json {
    let times = [(DRAIN_ENDPOINTS, drain.endpoints), (DRAIN_CLUSTER, drain.clusters)];
    let said = times
        .into_iter()
        .filter_map(|(key, time)| Some((key.to_owned(), Span::from(time?).in_seconds().into())));
    let said: Map<String, Json> = said.collect();
    if said.is_empty() {
        cluster
    } else {
        with(cluster, "metadata", json!({"filter_metadata": {METADATA: said}}))
    }
}

/// The object with one more field.
pub(super) fn with(object: Json, field: &str, value: impl Into<Json>) -> Json {
    let mut fields = match object {
        Json::Object(fields) => fields,
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => Map::new(),
    };
    fields.insert(field.to_owned(), value.into());
    Json::Object(fields)
}

/// An RE2 expression that matches exactly this text. Escapes only where necessary, so that it stays readable.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for char in text.chars() {
        if r"\.+*?()|[]{}^$".contains(char) {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_as_many_digits_as_they_need() {
        let cases = [(0, "0s"), (5_000, "5s"), (250, "0.250s"), (1_500, "1.500s"), (90_061_000, "90061s")];
        for (millis, text) in cases {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration(Duration::from_nanos(1)), "0.000000001s");
    }

    #[test]
    fn a_share_is_exact_or_the_nearest_millionth_but_never_nothing() {
        let cases = [
            ((5, 100), (5, "HUNDRED")),
            ((1, 4), (25, "HUNDRED")),
            ((1, 1_000), (10, "TEN_THOUSAND")),
            ((7, 1_000_000), (7, "MILLION")),
            ((1, 3), (333_333, "MILLION")),
            ((2, 3), (666_667, "MILLION")),
            ((1, u32::MAX), (1, "MILLION")),
            ((0, 3), (0, "HUNDRED")),
            ((u32::MAX, u32::MAX), (100, "HUNDRED")),
        ];
        for ((numerator, denominator), (expected, name)) in cases {
            let percent = fractional_percent(Fraction { numerator, denominator });
            assert_eq!(
                percent,
                json!({"numerator": expected, "denominator": name}),
                "{numerator}/{denominator}"
            );
        }
    }

    #[test]
    fn a_quoted_text_matches_itself_only() {
        assert_eq!(quote("foo.Bar/a-b_c"), r"foo\.Bar/a-b_c");
        assert_eq!(quote(r"a|b(c)*\d$"), r"a\|b\(c\)\*\\d\$");
    }
}
