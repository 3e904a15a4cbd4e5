//! The matches of routes.

use serde_json::{Map, Value as Json, json};

use super::draws::Draws;
use super::parts::HostContext;
use crate::emit::shared::{Path, method_path, quote, with};
use crate::model::{HeaderMatch, HeaderValue, Match, MatchType, PathMatch, QueryMatch};
use crate::plan::PlannedRoute;

/// A `RouteMatch` that needs `headers` in addition to those of the route.
pub(super) fn route_match(
    host: &HostContext<'_>,
    route: &PlannedRoute,
    draws: &Draws,
    headers: Vec<Json>,
) -> Json {
    let matches = &route.matches;
    let (specifier, value) = path_specifier(matches);
    // Always written, because clients have different defaults (D26).
    let mut fields = Map::new();
    fields.insert(specifier.to_owned(), value);
    fields.insert("case_sensitive".to_owned(), matches.case_sensitive.into());
    let method = matches.method.iter().map(|method| exact_header(":method", method));
    let headers: Vec<Json> =
        method.chain(matches.headers.iter().map(header_matcher)).chain(headers).collect();
    if !headers.is_empty() {
        fields.insert("headers".to_owned(), headers.into());
    }
    let query: Vec<Json> = matches.query.iter().map(query_matcher).collect();
    if !query.is_empty() {
        fields.insert("query_parameters".to_owned(), query.into());
    }
    if let Some(fraction) = draws.fraction {
        fields.insert("runtime_fraction".to_owned(), json!({"default_value": fraction.message()}));
    }
    // If both kinds can share a host, a GRPCRoute must take only gRPC requests.
    if host.frame.port.merges_route_kinds && route.is_grpc {
        fields.insert("grpc".to_owned(), json!({}));
    }
    Json::Object(fields)
}

/// The path specifier: its field and value.
fn path_specifier(matches: &Match) -> (&'static str, Json) {
    let expression = |text: String| {
        // `case_sensitive` has no effect on expressions.
        let text = if matches.case_sensitive { text } else { format!("(?i:{text})") };
        ("safe_regex", regex(&text))
    };
    match &matches.path {
        PathMatch::Any => ("prefix", "/".into()),
        PathMatch::Exact(path) => ("path", path.as_str().into()),
        PathMatch::Prefix(prefix) if is_separable(prefix) => {
            ("path_separated_prefix", prefix.as_str().into())
        }
        PathMatch::Prefix(prefix) => expression(format!("{}(?:/.*)?", quote(prefix))),
        PathMatch::TextPrefix(prefix) => ("prefix", prefix.as_str().into()),
        PathMatch::Regex(text) => expression(text.clone()),
        PathMatch::Method(method) => match method_path(method) {
            Path::Prefix(prefix) => ("prefix", prefix.into()),
            Path::Exact(path) => ("path", path.into()),
            Path::Regex(text) => expression(text),
        },
    }
}

/// Returns `true` if Envoys accept it as `path_separated_prefix`.
fn is_separable(prefix: &str) -> bool {
    prefix.len() > 1 && !prefix.ends_with('/') && !prefix.contains(['?', '#'])
}

fn header_matcher(header: &HeaderMatch) -> Json {
    let name = header.name.as_str();
    match &header.value {
        HeaderValue::Exact(value) => exact_header(name, value),
        HeaderValue::Regex(text) => header_regex(name, text),
        HeaderValue::Present => json!({"name": name, "present_match": true}),
    }
}

fn exact_header(name: &str, value: &str) -> Json {
    json!({"name": name, "string_match": {"exact": value}})
}

/// A matcher of a header whose whole value must match.
pub(super) fn header_regex(name: &str, text: &str) -> Json {
    json!({"name": name, "string_match": {"safe_regex": regex(text)}})
}

fn query_matcher(query: &QueryMatch) -> Json {
    let value = match query.match_type {
        MatchType::Exact => json!({"exact": query.value}),
        MatchType::RegularExpression => json!({"safe_regex": regex(&query.value)}),
    };
    with(json!({"name": query.name}), "string_match", value)
}

/// A `RegexMatcher`. Envoys reject an empty expression, so one that matches the empty text is written instead.
pub(super) fn regex(text: &str) -> Json {
    json!({"regex": if text.is_empty() { "(?:)" } else { text }})
}
