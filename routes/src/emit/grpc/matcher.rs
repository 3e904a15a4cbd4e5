//! The matches of routes, as far as gRPC can distinguish requests.
//!
//! gRPC ignores unknown fields of a match, rejects unknown path specifiers and header matchers, and sees only custom metadata. If a match
//! cannot be written in full, its route is left out, because a part of the match would match too many requests.

use regex::Regex;
use serde_json::{Map, Value as Json, json};
use xds_codec::{echo, echo_name};

use crate::emit::shared::{Path, fractional_percent, method_path};
use crate::model::{Fraction, HeaderMatch, HeaderValue, Match, MethodMatch, PathMatch};

/// A match that gRPC supports in full.
#[derive(Hash)]
pub(super) struct RouteMatch<'p> {
    path: Path,
    is_sensitive: bool,
    headers: Vec<&'p HeaderMatch>,
    /// The share of requests; `None` for all.
    fraction: Option<Fraction>,
}

/// The match for gRPC, or the reason why gRPC does not support it.
pub(super) fn route_match(matches: &Match) -> Result<RouteMatch<'_>, String> {
    if !matches.query.is_empty() {
        return Err("gRPC calls have no query parameters".to_owned());
    }
    if let Some(method) = matches.method.as_ref().filter(|method| *method != "POST") {
        return Err(format!(
            "every gRPC call is a POST request, so a match of {} never applies",
            echo_name(method)
        ));
    }
    let (path, is_sensitive) = match path(&matches.path)? {
        // No client applies `case_sensitive` to expressions.
        Path::Regex(regex) if !matches.case_sensitive => (Path::Regex(format!("(?i:{regex})")), true),
        path @ (Path::Prefix(_) | Path::Exact(_) | Path::Regex(_)) => (path, matches.case_sensitive),
    };
    let mut headers = Vec::new();
    for header in &matches.headers {
        headers.extend(visible(header)?.then_some(header));
    }
    let fraction = matches.fraction.filter(|fraction| fraction.numerator < fraction.denominator);
    Ok(RouteMatch { path, is_sensitive, headers, fraction })
}

impl RouteMatch<'_> {
    /// Every request.
    pub(super) fn everything() -> Self {
        let path = Path::Prefix("/".to_owned());
        Self { path, is_sensitive: true, headers: Vec::new(), fraction: None }
    }

    /// The match as a `RouteMatch`.
    pub(super) fn message(&self) -> Json {
        let mut fields = Map::new();
        let (specifier, value) = match &self.path {
            Path::Prefix(prefix) => ("prefix", prefix.as_str().into()),
            Path::Exact(path) => ("path", path.as_str().into()),
            Path::Regex(regex) => ("safe_regex", json!({"regex": regex})),
        };
        fields.insert(specifier.to_owned(), value);
        // Always written, because Java reads a missing one as false (row D26).
        fields.insert("case_sensitive".to_owned(), self.is_sensitive.into());
        if !self.headers.is_empty() {
            let headers: Vec<Json> = self.headers.iter().map(|header| header_matcher(header)).collect();
            fields.insert("headers".to_owned(), headers.into());
        }
        if let Some(fraction) = self.fraction {
            let share = json!({"default_value": fractional_percent(fraction)});
            fields.insert("runtime_fraction".to_owned(), share);
        }
        fields.into()
    }
}

/// The path of a call is `/service/method`. Routes for other paths are written for no client, because C-core leaves them out (row B92).
fn path(path: &PathMatch) -> Result<Path, String> {
    match path {
        PathMatch::Any => Ok(Path::Prefix("/".to_owned())),
        PathMatch::Exact(path) if is_method(path) => Ok(Path::Exact(path.clone())),
        PathMatch::Prefix(prefix) => below(prefix),
        PathMatch::TextPrefix(prefix) if prefix.is_empty() => Ok(Path::Prefix("/".to_owned())),
        PathMatch::TextPrefix(prefix) if is_beginning(prefix) => Ok(Path::Prefix(prefix.clone())),
        PathMatch::Regex(regex) if !regex.is_empty() => Ok(Path::Regex(regex.clone())),
        PathMatch::Exact(path) | PathMatch::TextPrefix(path) | PathMatch::Regex(path) => Err(no_method(path)),
        PathMatch::Method(method) => called(method),
    }
}

/// A path and everything below it needs two routes in general (`/a` and `/a/`). For calls, one is enough: a path of one segment is no
/// call itself, and a path of two segments has no call below it.
fn below(prefix: &str) -> Result<Path, String> {
    if is_method(prefix) {
        return Ok(Path::Exact(prefix.to_owned()));
    }
    let inside = format!("{prefix}/");
    match is_beginning(&inside) {
        true => Ok(Path::Prefix(inside)),
        false => Err(no_method(prefix)),
    }
}

fn called(method: &MethodMatch) -> Result<Path, String> {
    match method_path(method) {
        Path::Exact(path) if !is_method(&path) => Err(no_method(&path)),
        Path::Prefix(prefix) if !is_beginning(&prefix) => Err(no_method(&prefix)),
        path @ (Path::Prefix(_) | Path::Exact(_) | Path::Regex(_)) => Ok(path),
    }
}

fn is_method(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["", service, method] if !service.is_empty() && !method.is_empty())
}

/// Returns `true` if the path of a call can have this prefix: `/`, `/a`, `/a/`, `/a/b`.
fn is_beginning(prefix: &str) -> bool {
    let parts: Vec<&str> = prefix.split('/').collect();
    match parts[..] {
        ["", _] => true,
        ["", service, _] => !service.is_empty(),
        _ => false,
    }
}

fn no_method(path: &str) -> String {
    format!("no gRPC method has the path {}: methods are /service/method", echo(path))
}

/// Returns `true` if a header needs a matcher, and `false` if every call has it. An error says why gRPC clients cannot match it.
fn visible(header: &HeaderMatch) -> Result<bool, String> {
    let name = header.name.as_str();
    // These headers have the same value in every call, even if a client cannot see them (row B107).
    let fixed = match name {
        ":method" => Some("POST"),
        "content-type" => Some("application/grpc"),
        _ => None,
    };
    if let Some(actual) = fixed {
        return match takes(&header.value, actual) {
            true => Ok(false),
            false => Err(format!("the header {name} of every gRPC call is {actual}, which does not match")),
        };
    }
    let is_hidden =
        name.is_empty() || name.starts_with(':') || name.starts_with("grpc-") || name.ends_with("-bin");
    if is_hidden || TRANSPORT_HEADERS.contains(&name) {
        let name = echo_name(name);
        return Err(format!("gRPC clients cannot see the header {name} when they choose a route"));
    }
    Ok(true)
}

/// A `HeaderMatcher`.
fn header_matcher(header: &HeaderMatch) -> Json {
    let name = header.name.as_str();
    match &header.value {
        HeaderValue::Present => json!({"name": name, "present_match": true}),
        HeaderValue::Exact(value) => json!({"name": name, "string_match": {"exact": value}}),
        // An empty expression matches the empty value, but clients reject it as an expression.
        HeaderValue::Regex(regex) if regex.is_empty() => json!({"name": name, "string_match": {"exact": ""}}),
        HeaderValue::Regex(regex) => json!({"name": name, "string_match": {"safe_regex": {"regex": regex}}}),
    }
}

/// Returns `true` if a header of this value matches. An expression that does not compile here matches nothing.
fn takes(value: &HeaderValue, actual: &str) -> bool {
    match value {
        HeaderValue::Present => true,
        HeaderValue::Exact(exact) => exact == actual,
        HeaderValue::Regex(regex) => {
            Regex::new(&format!("^(?:{regex})$")).is_ok_and(|regex| regex.is_match(actual))
        }
    }
}

/// Headers that the transport adds after a route is chosen.
const TRANSPORT_HEADERS: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
