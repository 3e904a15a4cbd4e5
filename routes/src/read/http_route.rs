//! HTTPRoute.

use std::time::Duration;

use xds_codec::echo;

use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::http_filters::METHODS;
use super::matches::{read_header_name, read_headers, read_match_type};
use super::regex;
use super::route::{self, MAX_MATCHES_OF_RULE};
use crate::model::{
    Filter, FilterKind, Match, MatchType, PathMatch, PathRewrite, QueryMatch, Retry, Route, RouteKind, Rule,
    Spec, Timeouts,
};

/// Reads an HTTPRoute. Without rules, it gets one that matches everything.
pub(crate) fn read_http_route(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let (parents, uses_default_gateways) = route::read_parents(&mut spec, context, reader);
    let hostnames = route::read_hostnames(&mut spec, reader);
    let mut rules = Vec::new();
    if let Some(list) = spec.take("rules") {
        let items = list.list_of_some(16, reader);
        rules.reserve_exact(items.len());
        for value in items {
            rules.extend(read_rule(&value, context, reader));
        }
        let n_matches = rules.iter().map(|rule: &Rule| rule.matches.len()).sum();
        route::check_rules(&list.spot, &rules, n_matches, reader);
    } else {
        rules = vec![default_rule(&spec)];
    }
    spec.finish(reader);
    Some(Spec::Route(Route { kind: RouteKind::Http, parents, uses_default_gateways, hostnames, rules }))
}

fn default_rule(spec: &Object<'_>) -> Rule {
    Rule {
        spot: spec.spot().clone(),
        name: None,
        matches: vec![Match::of_path(spec.spot(), PathMatch::Any)],
        filters: Vec::new(),
        backends: Vec::new(),
        timeouts: Timeouts::default(),
        retry: None,
        session: None,
    }
}

fn read_rule(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Rule> {
    let mut object = value.object(reader)?;
    let mut rule = route::read_common(&mut object, context, reader);
    let list = object.take("matches");
    let matches = list.map_or_else(Vec::new, |list| list.list(MAX_MATCHES_OF_RULE, reader));
    rule.matches.reserve_exact(matches.len().max(1));
    if matches.is_empty() {
        rule.matches.push(Match::of_path(&rule.spot, PathMatch::Any));
    }
    rule.matches.extend(matches.iter().filter_map(|value| read_match(value, context, reader)));
    if let Some(timeouts) = object.take("timeouts") {
        rule.timeouts = read_timeouts(&timeouts, reader);
    }
    if let Some(retry) = object.take("retry") {
        rule.retry = read_retry(&retry, reader).map(Box::new);
    }
    object.finish(reader);
    // Unreadable matches cannot be counted.
    if rule.matches.len() == matches.len().max(1) {
        check_replaced_prefixes(&rule, reader);
    }
    let redirects = |filter: &Filter| matches!(filter.kind, FilterKind::Redirect(_));
    if !rule.backends.is_empty() && rule.filters.iter().any(redirects) {
        let message = "RequestRedirect filter must not be used together with backendRefs";
        reader.error("misplaced-field", &rule.spot, message);
    }
    Some(rule)
}

/// Checks that a rule which replaces a prefix matches exactly one prefix.
fn check_replaced_prefixes(rule: &Rule, reader: &mut Reader) {
    if let [only] = &*rule.matches
        && matches!(only.path, PathMatch::Any | PathMatch::Prefix(_))
    {
        return;
    }
    let of_backends = rule.backends.iter().flat_map(|backend| &backend.filters);
    let filters = rule.filters.iter().map(|filter| (filter, false));
    for (filter, is_of_backend) in filters.chain(of_backends.map(|filter| (filter, true))) {
        let (name, path) = match &filter.kind {
            FilterKind::Redirect(redirect) => ("RequestRedirect", &redirect.path),
            FilterKind::Rewrite { path, .. } => ("URLRewrite", path),
            FilterKind::RequestHeaders(_)
            | FilterKind::ResponseHeaders(_)
            | FilterKind::Mirror { .. }
            | FilterKind::Cors(_)
            | FilterKind::Extension { .. } => continue,
        };
        if matches!(path, Some(PathRewrite::Prefix(_))) {
            let when = match (is_of_backend, name) {
                (false, _) => "When",
                (true, "RequestRedirect") => "Within backendRefs, when",
                (true, _) => "Within backendRefs, When",
            };
            let message = format!(
                "{when} using {name} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"
            );
            reader.error("bad-rewrite", &filter.spot, message);
        }
    }
}

fn read_match(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Match> {
    let mut object = value.object(reader)?;
    let path = match object.take("path") {
        Some(path) => read_path(&path, reader),
        None => Some(PathMatch::Any),
    };
    let headers = match object.take("headers") {
        Some(headers) => read_headers(&headers, context, reader),
        None => Vec::new(),
    };
    let query = match object.take("queryParams") {
        Some(query) => read_query(&query, reader),
        None => Vec::new(),
    };
    let method = object.take("method").and_then(|method| method.choice(&METHODS, reader));
    object.finish(reader);
    let method = method.map(str::to_owned);
    Some(Match { headers, query: query.into(), method, ..Match::of_path(&value.spot, path?) })
}

/// Reads a path. The prefix `/` matches every path; a trailing slash of a prefix has no effect.
fn read_path(value: &Value<'_>, reader: &mut Reader) -> Option<PathMatch> {
    let mut object = value.object(reader)?;
    let kind = match object.take("type") {
        Some(kind) => kind.choice(&["Exact", "PathPrefix", "RegularExpression"], reader),
        None => Some("PathPrefix"),
    };
    let path = object.take("value");
    object.finish(reader);
    let kind = kind?;
    if kind == "RegularExpression" {
        let regex =
            path.map_or_else(|| Some("/".to_owned()), |path| regex::read_regex(&path, 1, 1_024, reader));
        return regex.map(PathMatch::Regex);
    }
    let text = match path {
        Some(path) => {
            let text = path.bounded_text(0, 1_024, reader)?;
            if !check_path(text, &path, reader) {
                return None;
            }
            text
        }
        None => "/",
    };
    if kind == "Exact" {
        return Some(PathMatch::Exact(text.to_owned()));
    }
    match text.trim_end_matches('/') {
        "" => Some(PathMatch::Any),
        prefix => Some(PathMatch::Prefix(prefix.to_owned())),
    }
}

/// Checks a plain path by the rules of the Gateway API, and reports the rules that it breaks.
fn check_path(text: &str, value: &Value<'_>, reader: &mut Reader) -> bool {
    let mut problems = Vec::new();
    if !text.starts_with('/') {
        problems.push("value must be an absolute path and start with '/'".to_owned());
    }
    let inner = ["//", "/./", "/../", "%2f", "%2F", "#"].into_iter().filter(|part| text.contains(part));
    problems.extend(inner.map(|part| format!("must not contain '{part}'")));
    let ends = ["/..", "/."].into_iter().filter(|end| text.ends_with(end));
    problems.extend(ends.map(|end| format!("must not end with '{end}'")));
    for problem in &problems {
        let message = format!("{problem} when type one of ['Exact', 'PathPrefix']");
        reader.error("bad-path", &value.spot, message);
    }
    if !problems.is_empty() {
        return false;
    }
    let is_valid = has_path_characters(text);
    if !is_valid {
        let message = "must only contain valid characters (matching \
                       ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$) for types ['Exact', 'PathPrefix']";
        reader.error("bad-path", &value.spot, message);
    }
    is_valid
}

fn has_path_characters(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_valid = match byte {
            b'%' => {
                [bytes.next(), bytes.next()].iter().all(|digit| digit.is_some_and(|d| d.is_ascii_hexdigit()))
            }
            other => other.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&other),
        };
        if !is_valid {
            return false;
        }
    }
    true
}

/// Reads `queryParams`: at most 16. If a name appears twice, the first one is used.
fn read_query(list: &Value<'_>, reader: &mut Reader) -> Vec<QueryMatch> {
    let items = list.list(16, reader);
    let mut query: Vec<QueryMatch> = Vec::with_capacity(items.len());
    for value in items {
        let Some(mut object) = value.object(reader) else { continue };
        let name = object.need("name", reader).and_then(|name| read_header_name(&name, reader));
        let match_type = read_match_type(&mut object, reader);
        let text = object.need("value", reader).and_then(|text| match match_type? {
            MatchType::Exact => text.bounded_text(1, 1_024, reader).map(str::to_owned),
            MatchType::RegularExpression => regex::read_regex(&text, 1, 1_024, reader),
        });
        object.finish(reader);
        let (Some(name), Some(match_type), Some(text)) = (name, match_type, text) else { continue };
        if query.iter().any(|other| other.name == name) {
            let message = format!("the parameter {} appears twice; only the first one is used", echo(name));
            reader.warn("duplicate-parameter", &value.spot, message);
            continue;
        }
        query.push(QueryMatch { name: name.to_owned(), match_type, value: text });
    }
    query
}

fn read_timeouts(value: &Value<'_>, reader: &mut Reader) -> Timeouts {
    let Some(mut object) = value.object(reader) else { return Timeouts::default() };
    let request = object.take("request").and_then(|timeout| timeout.duration(reader));
    let backend_request = object.take("backendRequest").and_then(|timeout| timeout.duration(reader));
    object.finish(reader);
    if let (Some(request), Some(backend_request)) = (request, backend_request)
        && request != Duration::ZERO
        && backend_request > request
    {
        let message = "backendRequest timeout cannot be longer than request timeout";
        reader.error("bad-timeout", &value.spot, message);
    }
    Timeouts { request, backend_request }
}

/// Reads `retry`. Without a number there is one more attempt, which is Envoy's default.
fn read_retry(value: &Value<'_>, reader: &mut Reader) -> Option<Retry> {
    let mut object = value.object(reader)?;
    let mut codes = Vec::new();
    if let Some(list) = object.take("codes") {
        for code in list.list(200, reader) {
            let code = code.integer(400, 599, reader).and_then(|code| u16::try_from(code).ok());
            codes.extend(code.filter(|code| !codes.contains(code)));
        }
    }
    let attempts = match object.take("attempts") {
        Some(attempts) => attempts.integer(1, 2_147_483_647, reader),
        None => Some(1),
    };
    let backoff = object.take("backoff").and_then(|backoff| backoff.duration(reader));
    object.finish(reader);
    let attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok())?;
    let backoff = backoff.filter(|backoff| *backoff != Duration::ZERO);
    Some(Retry { codes, grpc_on: Vec::new(), attempts, backoff })
}
