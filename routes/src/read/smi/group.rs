//! HTTPRouteGroup.

use xds_codec::echo;

use crate::model::{GroupMatch, HeaderMatch, HeaderValue, HttpRouteGroup, Spec, Spot};
use crate::read::context::Context;
use crate::read::fields::{Object, Reader, Value};
use crate::read::http_filters::METHODS_OR_ANY;
use crate::read::matches::check_header_name;
use crate::read::meta::read_name;
use crate::read::regex::read_regex;

/// Reads an HTTPRouteGroup. Its matches are at the top of the document or under `spec`, in every version.
pub(crate) fn read_http_route_group(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    context.warn_of_version(document, "specs.smi-spec.io/v1alpha4", reader);
    let top = document.take("matches");
    let below = match document.take("spec") {
        Some(spec) => {
            let mut spec = spec.object(reader)?;
            let matches = spec.take("matches");
            spec.finish(reader);
            matches
        }
        None => None,
    };
    let list = match (top, below) {
        (Some(_), Some(below)) => {
            let message = "`matches` is also at the top of the document; remove one of them";
            reader.error("duplicate-field", &below.spot, message);
            return None;
        }
        (Some(list), None) | (None, Some(list)) => list,
        (None, None) => {
            reader.error("missing-field", document.spot(), "the field `spec.matches` is missing");
            return None;
        }
    };
    let items = list.list(MAX_MATCHES, reader);
    let mut matches: Vec<GroupMatch> = Vec::with_capacity(items.len());
    for item in items {
        let Some(one) = read_match(&item, reader) else { continue };
        if matches.iter().any(|other| other.name == one.name) {
            let message = format!("another match has the name {}", echo(&one.name));
            reader.error("duplicate-name", &item.spot, message);
        }
        matches.push(one);
    }
    if matches.is_empty() && !reader.has_errors() {
        reader.warn("matches-nothing", &list.spot, "a group without matches matches no request");
    }
    Some(Spec::HttpRouteGroup(HttpRouteGroup { matches }))
}

fn read_match(value: &Value<'_>, reader: &mut Reader) -> Option<GroupMatch> {
    let mut fields = value.object(reader)?;
    let name = fields.need("name", reader).and_then(|name| read_name(&name, reader));
    let path_regex = match fields.take("pathRegex") {
        Some(path) if path.tree.as_str() == Some("") => None,
        Some(path) => Some(read_regex(&path, 1, MAX_REGEX, reader)?),
        None => None,
    };
    let methods = match fields.take("methods") {
        Some(methods) => read_methods(&methods, reader)?,
        None => Vec::new(),
    };
    let headers = match fields.take("headers") {
        Some(headers) => read_headers(&headers, reader),
        None => Vec::new(),
    };
    if !fields.has("pathRegex") && !fields.has("methods") && !fields.has("headers") {
        reader.warn("matches-everything", &value.spot, "the match applies to every request");
    }
    fields.finish(reader);
    Some(GroupMatch { spot: value.spot.clone(), name: name?.to_string(), path_regex, methods, headers })
}

/// Reads methods in capitals. None for `*`, which means all methods.
fn read_methods(value: &Value<'_>, reader: &mut Reader) -> Option<Vec<String>> {
    if value.tree.as_str() == Some("*") {
        return Some(Vec::new());
    }
    let mut methods: Vec<String> = Vec::new();
    let mut takes_all = false;
    for item in value.list(METHODS_OR_ANY.len(), reader) {
        match item.choice(&METHODS_OR_ANY, reader)? {
            "*" => takes_all = true,
            method if methods.iter().any(|other| other == method) => {}
            method => methods.push(method.to_owned()),
        }
    }
    Some(if takes_all { Vec::new() } else { methods })
}

/// Reads headers with their expressions: a map, or a list of maps as in the schema of the specification.
fn read_headers(value: &Value<'_>, reader: &mut Reader) -> Vec<HeaderMatch> {
    let maps = if value.is_list() { value.list(MAX_HEADERS, reader) } else { vec![value.clone()] };
    let mut headers: Vec<HeaderMatch> = Vec::new();
    for map in maps {
        let Some(map) = map.object(reader) else { continue };
        for (name, value) in map.entries(reader) {
            let Some(header) = read_header(name, &value, reader) else { continue };
            if headers.iter().any(|other| other.name == header.name) {
                let message = format!("the header {} appears twice", echo(&header.name));
                reader.error("duplicate-name", &value.spot, message);
            }
            headers.push(header);
        }
    }
    headers.shrink_to_fit();
    if headers.len() > MAX_HEADERS {
        let message = format!("there are {} headers, at most {MAX_HEADERS} are allowed", headers.len());
        reader.error("too-many-items", &value.spot, message);
    }
    headers
}

fn read_header(name: &str, value: &Value<'_>, reader: &mut Reader) -> Option<HeaderMatch> {
    let name = read_header_key(name, &value.spot, reader)?;
    let regex = read_regex(value, 1, MAX_REGEX, reader)?;
    Some(HeaderMatch { spot: value.spot.clone(), name, value: HeaderValue::Regex(regex) })
}

/// Reads the name of a header, in lower case. `host` is `:authority` in HTTP/2. Pseudo-headers of requests can be matched.
pub(crate) fn read_header_key(name: &str, spot: &Spot, reader: &mut Reader) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "host" => Some(":authority".to_owned()),
        ":authority" | ":method" | ":path" | ":scheme" => Some(lower),
        _ => check_header_name(&lower, spot, reader).map(str::to_owned),
    }
}

/// SMI has no limit. This is the limit of a rule of a GRPCRoute.
const MAX_MATCHES: usize = 64;

/// The limit of a match of a GRPCRoute.
const MAX_HEADERS: usize = 16;

/// The limit of a path of an HTTPRoute.
const MAX_REGEX: usize = 1_024;
