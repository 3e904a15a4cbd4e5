//! Which requests a route takes, as gRPC can tell them apart.
//!
//! gRPC ignores fields of a match that it does not know, refuses path specifiers and header matchers that it does not know,
//! and sees only custom metadata. A match that cannot be written in full is therefore none: the route is left out, because
//! with less it would take more.

use regex::Regex;
use serde_json::{Map, Value as Json, json};
use xds_codec::{echo, echo_name};

use crate::emit::shared::{fractional_percent, quote};
use crate::model::{HeaderMatch, HeaderValue, Match, MatchType, MethodMatch, PathMatch};

/// The match as a `RouteMatch`; or why gRPC cannot have it.
pub(super) fn route_match(matches: &Match) -> Result<Json, String> {
    if !matches.query.is_empty() {
        return Err("gRPC calls have no query parameters to match".to_owned());
    }
    if let Some(method) = matches.method.as_ref().filter(|method| *method != "POST") {
        return Err(format!(
            "every gRPC call is a POST request, a match of {} takes none",
            echo_name(method)
        ));
    }
    let mut fields = Map::new();
    let (specifier, value) = match path(&matches.path)? {
        Path::Prefix(prefix) => ("prefix", prefix.into()),
        Path::Exact(path) => ("path", path.into()),
        Path::Regex(regex) => {
            // No client lets `case_sensitive` count for expressions.
            let regex = if matches.case_sensitive { regex } else { format!("(?i:{regex})") };
            ("safe_regex", json!({"regex": regex}))
        }
    };
    fields.insert(specifier.to_owned(), value);
    // Always there, because Java reads a missing one as false (row D26).
    let is_sensitive = matches.case_sensitive || specifier == "safe_regex";
    fields.insert("case_sensitive".to_owned(), is_sensitive.into());
    let headers = matches.headers.iter().filter_map(|header| header_matcher(header).transpose());
    let headers: Vec<Json> = headers.collect::<Result<_, _>>()?;
    if !headers.is_empty() {
        fields.insert("headers".to_owned(), headers.into());
    }
    if let Some(fraction) = matches.fraction.filter(|fraction| fraction.numerator < fraction.denominator) {
        fields.insert("runtime_fraction".to_owned(), json!({"default_value": fractional_percent(fraction)}));
    }
    Ok(fields.into())
}

/// The path specifiers that every client knows.
enum Path {
    Prefix(String),
    Exact(String),
    Regex(String),
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
        PathMatch::Method(method) => method_path(method),
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

/// The matrix of inputs §1.4. Expressions are grouped, or `a|b` would take more than the service (C29); a name is no
/// expression (C28).
fn method_path(method: &MethodMatch) -> Result<Path, String> {
    let exact = |path: String| match is_method(&path) {
        true => Ok(Path::Exact(path)),
        false => Err(no_method(&path)),
    };
    match (method.match_type, method.service.as_deref(), method.method.as_deref()) {
        (_, None, None) => Ok(Path::Prefix("/".to_owned())),
        (MatchType::Exact, Some(service), Some(method)) => exact(format!("/{service}/{method}")),
        (MatchType::Exact, Some(service), None) => {
            let inside = format!("/{service}/");
            if is_beginning(&inside) { Ok(Path::Prefix(inside)) } else { Err(no_method(&inside)) }
        }
        (MatchType::Exact, None, Some(method)) => Ok(Path::Regex(format!("/[^/]+/{}", quote(method)))),
        (MatchType::RegularExpression, Some(service), Some(method)) => {
            Ok(Path::Regex(format!("/(?:{service})/(?:{method})")))
        }
        (MatchType::RegularExpression, Some(service), None) => {
            Ok(Path::Regex(format!("/(?:{service})/[^/]+")))
        }
        (MatchType::RegularExpression, None, Some(method)) => Ok(Path::Regex(format!("/[^/]+/(?:{method})"))),
    }
}

fn is_method(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["", service, method] if !service.is_empty() && !method.is_empty())
}

/// Whether a path of a call can begin so: `/`, `/a`, `/a/`, `/a/b`.
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

/// A header as a `HeaderMatcher`; nothing if every call has it; or why gRPC clients cannot match it.
fn header_matcher(header: &HeaderMatch) -> Result<Option<Json>, String> {
    let name = header.name.as_str();
    // Two headers have the same value in every call, whether the client can see them or not (row B107).
    let fixed = match name {
        ":method" => Some("POST"),
        "content-type" => Some("application/grpc"),
        _ => None,
    };
    if let Some(actual) = fixed {
        return match takes(&header.value, actual) {
            true => Ok(None),
            false => Err(format!("the header {name} of every gRPC call is {actual}, which is not matched")),
        };
    }
    let is_hidden =
        name.is_empty() || name.starts_with(':') || name.starts_with("grpc-") || name.ends_with("-bin");
    if is_hidden || TRANSPORT_HEADERS.contains(&name) {
        let name = echo_name(name);
        return Err(format!("gRPC clients cannot see the header {name} when they choose a route"));
    }
    Ok(Some(match &header.value {
        HeaderValue::Present => json!({"name": name, "present_match": true}),
        HeaderValue::Exact(value) => json!({"name": name, "string_match": {"exact": value}}),
        // An empty expression takes the empty value; as an expression it would be refused.
        HeaderValue::Regex(regex) if regex.is_empty() => json!({"name": name, "string_match": {"exact": ""}}),
        HeaderValue::Regex(regex) => json!({"name": name, "string_match": {"safe_regex": {"regex": regex}}}),
    }))
}

/// Whether a header of that value is matched. An expression that cannot be judged here takes nothing.
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
