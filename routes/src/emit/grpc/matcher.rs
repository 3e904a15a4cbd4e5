//! The matches of routes, as far as gRPC can distinguish requests.
//!
//! gRPC ignores fields of a match that it does not know, rejects path specifiers and header matchers that it does not know, and sees only
//! custom metadata. So a match that cannot be written in full is not written at all, and its route is left out: a part of it would match
//! too many requests.

use regex::Regex;
use serde_json::{Map, Value as Json, json};
use xds_codec::{echo, echo_name};

use crate::emit::shared::{Path, fractional_percent, method_path};
use crate::model::{Fraction, HeaderMatch, HeaderValue, Match, MethodMatch, PathMatch};

/// A match that gRPC can have in full.
#[derive(Hash)]
pub(super) struct RouteMatch<'p> {
    path: Path,
    is_sensitive: bool,
    headers: Vec<&'p HeaderMatch>,
    /// Unless it is all of them.
    fraction: Option<Fraction>,
}

/// The match for gRPC; or why gRPC cannot have it.
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
        // No client lets `case_sensitive` count for expressions.
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
        // Always there, because Java reads a missing one as false (row D26).
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

/// The path of a call is `/service/method`. C-core leaves out routes for any other path, so nobody gets them (row B92).
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

/// A path and those below it would be two routes in general (`/a` and `/a/`). Of a path of one segment no call is the path
/// itself, and of one of two segments none is below it, so that one route is enough.
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

/// Returns `true` if a path of a call can begin so: `/`, `/a`, `/a/`, `/a/b`.
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

/// Returns `true` if a header is to be matched, because not every call has it; or why gRPC clients cannot match it.
fn visible(header: &HeaderMatch) -> Result<bool, String> {
    let name = header.name.as_str();
    // Two headers have the same value in every call, whether the client can see them or not (row B107).
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
        // An empty expression takes the empty value; as an expression it would be refused.
        HeaderValue::Regex(regex) if regex.is_empty() => json!({"name": name, "string_match": {"exact": ""}}),
        HeaderValue::Regex(regex) => json!({"name": name, "string_match": {"safe_regex": {"regex": regex}}}),
    }
}

/// Returns `true` if a header of that value is matched. An expression that cannot be judged here takes nothing.
fn takes(value: &HeaderValue, actual: &str) -> bool {
    match value {
        HeaderValue::Present => true,
        HeaderValue::Exact(exact) => exact == actual,
        HeaderValue::Regex(regex) => {
            Regex::new(&format!("^(?:{regex})$")).is_ok_and(|regex| regex.is_match(actual))
        }
    }
}

/// Headers of the transport, which is below the choice of a route.
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
