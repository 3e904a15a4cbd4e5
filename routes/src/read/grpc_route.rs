//! GRPCRoute, in `v1` and in the first form of GEP-1016.

use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::matches::{read_headers, read_match_type};
use super::regex;
use super::route::{self, MAX_MATCHES_OF_RULE};
use crate::model::{Match, MatchType, MethodMatch, PathMatch, Route, RouteKind, Rule, Spec};

/// Reads a GRPCRoute. Without rules it is valid and serves nothing.
pub(crate) fn read_grpc_route(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let (parents, uses_default_gateways) = route::read_parents(&mut spec, context, reader);
    let hostnames = route::read_hostnames(&mut spec, reader);
    let mut rules = Vec::new();
    if let Some(list) = spec.take("rules") {
        let mut n_matches = 0;
        let items = list.list(16, reader);
        rules.reserve_exact(items.len());
        for value in items {
            rules.extend(read_rule(&value, &mut n_matches, context, reader));
        }
        route::check_rules(&list.spot, &rules, n_matches, reader);
    }
    spec.finish(reader);
    Some(Spec::Route(Route { kind: RouteKind::Grpc, parents, uses_default_gateways, hostnames, rules }))
}

/// Reads a rule, and counts the matches in its text.
fn read_rule(
    value: &Value<'_>,
    n_matches: &mut usize,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Rule> {
    let mut object = value.object(reader)?;
    let mut rule = route::read_common(&mut object, context, reader);
    let matches = match object.take("matches") {
        Some(list) if context.version() == "v1alpha2" && list.is_object() => {
            reader.warn("old-form", &list.spot, "`matches` is a list since v1");
            vec![list]
        }
        Some(list) => list.list(MAX_MATCHES_OF_RULE, reader),
        None => Vec::new(),
    };
    *n_matches += matches.len();
    rule.matches.reserve_exact(matches.len().max(1));
    if matches.is_empty() {
        rule.matches.push(Match::of_path(&rule.spot, PathMatch::Any));
    }
    rule.matches.extend(matches.iter().filter_map(|value| read_match(value, context, reader)));
    object.finish(reader);
    Some(rule)
}

fn read_match(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Match> {
    let mut object = value.object(reader)?;
    let mut method = object.take("method");
    // In GEP-1016, the structs call the field `path`, and the examples call it `method`.
    if method.is_none() && context.version() == "v1alpha2" {
        method = object.take("path").filter(Value::is_object);
        if let Some(path) = &method {
            reader.warn("old-form", &path.spot, "the field is named `method` since v1");
        }
    }
    let path = match method {
        Some(method) => read_method(&method, context, reader),
        None => Some(PathMatch::Any),
    };
    let headers = match object.take("headers") {
        Some(headers) => read_headers(&headers, context, reader),
        None => Vec::new(),
    };
    object.finish(reader);
    Some(Match { headers, ..Match::of_path(&value.spot, path?) })
}

fn read_method(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<PathMatch> {
    let is_old = context.version() == "v1alpha2";
    let mut object = value.object(reader)?;
    let match_type = read_match_type(&mut object, reader);
    let (service, method) = (object.take("service"), object.take("method"));
    object.finish(reader);
    let match_type = match_type?;
    // In GEP-1016, an empty text means "all"; as an expression it would match nothing.
    let is_lenient = is_old || match_type == MatchType::RegularExpression;
    let is_given = |part: &Value<'_>| !is_lenient || part.tree.as_str() != Some("");
    let (service, method) = (service.filter(is_given), method.filter(is_given));
    if service.is_none() && method.is_none() {
        if is_old {
            let message = "neither `service` nor `method` is given, so every call matches";
            reader.warn("matches-everything", &value.spot, message);
            return Some(PathMatch::Any);
        }
        let message = "One or both of 'service' or 'method' must be specified";
        reader.error("empty-method", &value.spot, message);
        return None;
    }
    let service = match service {
        Some(service) => Some(read_part(&service, match_type, NameHalf::Service, reader)?),
        None => None,
    };
    let method = match method {
        Some(method) => Some(read_part(&method, match_type, NameHalf::Method, reader)?),
        None => None,
    };
    Some(PathMatch::Method(MethodMatch { match_type, service, method }))
}

/// The halves of a method's name.
#[derive(Clone, Copy)]
enum NameHalf {
    Service,
    Method,
}

fn read_part(
    value: &Value<'_>,
    match_type: MatchType,
    part: NameHalf,
    reader: &mut Reader,
) -> Option<String> {
    if match_type == MatchType::RegularExpression {
        return regex::read_regex(value, 1, 1_024, reader);
    }
    let text = value.bounded_text(0, 1_024, reader)?;
    let (is_valid, message) = match part {
        NameHalf::Service => (is_service(text), BAD_SERVICE),
        NameHalf::Method => (is_identifier(text), BAD_METHOD),
    };
    if !is_valid {
        reader.error("bad-method", &value.spot, message);
        return None;
    }
    if text.starts_with('.') {
        reader.warn("matches-nothing", &value.spot, "the name of a gRPC service never begins with a dot");
    }
    Some(text.to_owned())
}

/// Returns `true` for identifiers joined by dots; one dot may come first.
fn is_service(text: &str) -> bool {
    text.strip_prefix('.').unwrap_or(text).split('.').all(is_identifier)
}

fn is_identifier(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

const BAD_SERVICE: &str =
    r"service must only contain valid characters (matching ^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$)";

const BAD_METHOD: &str = r"method must only contain valid characters (matching ^[A-Za-z_][A-Za-z_0-9]*$)";
