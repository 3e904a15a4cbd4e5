//! The matches of rules.

use xds_codec::document::TreeValue;
use xds_codec::echo;

use super::filters::read_path;
use super::share::read_share;
use super::target::one_or_list;
use crate::model::{HeaderMatch, HeaderValue, Match, MatchType, MethodMatch, PathMatch, QueryMatch};
use crate::read::fields::{Object, Reader, Value};
use crate::read::http_filters::METHODS;
use crate::read::regex::{check, read_regex};
use crate::read::route::MAX_MATCHES_OF_RULE;
use crate::read::smi::read_header_key;

/// Reads `match`: one object, or a list of alternatives. Without it, the rule matches every request.
pub(super) fn read_matches(rule: &mut Object<'_>, reader: &mut Reader) -> Vec<Match> {
    let Some(value) = rule.take("match") else { return vec![Match::of_path(rule.spot(), PathMatch::Any)] };
    let items = one_or_list(&value, MAX_MATCHES_OF_RULE, reader);
    let mut matches = Vec::with_capacity(items.len());
    matches.extend(items.iter().filter_map(|item| read_match(item, reader)));
    matches
}

fn read_match(value: &Value<'_>, reader: &mut Reader) -> Option<Match> {
    let mut fields = value.object(reader)?;
    let path = read_path_match(&mut fields, reader);
    let headers = match fields.take("headers") {
        Some(headers) => read_headers(&headers, reader),
        None => Vec::new(),
    };
    let query = match fields.take("query") {
        Some(query) => read_query(&query, reader),
        None => Vec::new(),
    };
    let method = fields.take("method");
    let method_spot = method.as_ref().map(|method| method.spot.clone());
    let method = method.and_then(|method| method.choice(&METHODS, reader));
    if let (Some(PathMatch::Method(_)), Some(method), Some(spot)) = (&path, method, method_spot)
        && method != "POST"
    {
        reader.warn("matches-nothing", &spot, "every gRPC call is a POST, so no request matches");
    }
    let fraction = fields.take("fraction").and_then(|fraction| read_share(&fraction, reader));
    let case = fields.take("case_sensitive");
    let case_sensitive = case.as_ref().is_none_or(|case| case.truth(reader) != Some(false));
    if let (Some(case), Some(PathMatch::Regex(_)), false) = (case, &path, case_sensitive) {
        let message = "an expression ignores case if it begins with `(?i)`";
        reader.error("misplaced-field", &case.spot, message);
    }
    fields.finish(reader);
    let (spot, method) = (value.spot.clone(), method.map(str::to_owned));
    Some(Match { spot, path: path?, headers, query: query.into(), method, fraction, case_sensitive })
}

/// Reads the match of the path: at most one of [`PATH_FIELDS`].
fn read_path_match(fields: &mut Object<'_>, reader: &mut Reader) -> Option<PathMatch> {
    let given: Vec<_> = PATH_FIELDS.iter().filter_map(|field| Some((*field, fields.take(field)?))).collect();
    let (field, value) = match given.as_slice() {
        [] => return Some(PathMatch::Any),
        [(field, value)] => (*field, value),
        [_, (_, second), ..] => {
            let message = format!("a match can have only one of {}", PATH_FIELDS.join(", "));
            reader.error("misplaced-field", &second.spot, message);
            return None;
        }
    };
    match field {
        "grpc" => read_method(value, reader).map(PathMatch::Method),
        "regex" => read_regex(value, 1, 1_024, reader).map(PathMatch::Regex),
        "path" => read_path(value, reader).map(PathMatch::Exact),
        "prefix" => read_path(value, reader).map(|path| match path.trim_end_matches('/') {
            "" => PathMatch::Any,
            prefix => PathMatch::Prefix(prefix.to_owned()),
        }),
        _ => read_path(value, reader).map(|path| match path.as_str() {
            "/" => PathMatch::Any,
            _ => PathMatch::TextPrefix(path),
        }),
    }
}

/// Reads `package.Service/Method`, `package.Service` or `*/Method`. A leading `/` is allowed, as on the wire.
fn read_method(value: &Value<'_>, reader: &mut Reader) -> Option<MethodMatch> {
    let text = value.bounded_text(1, 1_024, reader)?;
    let (service, method) = match text.strip_prefix('/').unwrap_or(text).split_once('/') {
        Some((service, method)) => (service, method),
        None => (text.strip_prefix('/').unwrap_or(text), "*"),
    };
    let is_word = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
    };
    let is_service = service == "*" || service.split('.').all(is_word);
    if !is_service || !(method == "*" || is_word(method)) {
        let message = format!(
            "{} is not a method; write it as in `helloworld.Greeter/SayHello` or `helloworld.Greeter`",
            echo(text)
        );
        reader.error("bad-method", &value.spot, message);
        return None;
    }
    let named = |name: &str| Some(name.to_owned()).filter(|name| name != "*");
    let (service, method) = (named(service), named(method));
    if service.is_none() && method.is_none() {
        reader.error("bad-method", &value.spot, "omit `grpc` to match every method");
        return None;
    }
    Some(MethodMatch { match_type: MatchType::Exact, service, method })
}

/// Reads headers, each with a value, with `~` and an expression for the whole value, or with `*` for any value.
fn read_headers(value: &Value<'_>, reader: &mut Reader) -> Vec<HeaderMatch> {
    let entries = entries_of(value, reader);
    let mut headers: Vec<HeaderMatch> = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let Some(name) = read_header_key(name, &value.spot, reader) else { continue };
        if headers.iter().any(|other| other.name == name) {
            reader.error("duplicate-name", &value.spot, format!("the header {} appears twice", echo(&name)));
        }
        let value_match = match read_value(&value, reader) {
            Some(ValueCondition::Exact(text)) => HeaderValue::Exact(text),
            Some(ValueCondition::Regex(regex)) => HeaderValue::Regex(regex),
            Some(ValueCondition::Anything) => HeaderValue::Present,
            None => continue,
        };
        headers.push(HeaderMatch { spot: value.spot, name, value: value_match });
    }
    headers
}

/// Reads query parameters, which are written like headers. Their names keep their case.
fn read_query(value: &Value<'_>, reader: &mut Reader) -> Vec<QueryMatch> {
    let entries = entries_of(value, reader);
    let mut query: Vec<QueryMatch> = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        if name.is_empty() || name.len() > 256 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("{} is not the name of a query parameter", echo(name));
            reader.error("bad-name", &value.spot, message);
            continue;
        }
        let (match_type, text) = match read_value(&value, reader) {
            Some(ValueCondition::Exact(text)) => (MatchType::Exact, text),
            Some(ValueCondition::Regex(regex)) => (MatchType::RegularExpression, regex),
            Some(ValueCondition::Anything) => (MatchType::RegularExpression, ".*".to_owned()),
            None => continue,
        };
        query.push(QueryMatch { name: name.to_owned(), match_type, value: text });
    }
    query
}

fn entries_of<'t>(value: &Value<'t>, reader: &mut Reader) -> Vec<(&'t str, Value<'t>)> {
    let entries = value.object(reader).map(|map| map.entries(reader)).unwrap_or_default();
    if entries.len() > MAX_VALUES {
        let message = format!("there are {} items, at most {MAX_VALUES} are allowed", entries.len());
        reader.error("too-many-items", &value.spot, message);
    }
    entries.into_iter().take(MAX_VALUES).collect()
}

/// The condition on a value.
enum ValueCondition {
    Exact(String),
    Regex(String),
    Anything,
}

fn read_value(value: &Value<'_>, reader: &mut Reader) -> Option<ValueCondition> {
    if let TreeValue::Number(_) | TreeValue::Bool(_) = value.tree.value() {
        value.wrong("a string; write it in quotes", reader);
        return None;
    }
    let text = value.bounded_text(1, 4_096, reader)?;
    if text == "*" {
        return Some(ValueCondition::Anything);
    }
    if let Some(regex) = text.strip_prefix('~') {
        if regex.is_empty() {
            reader.error("bad-regex", &value.spot, "there is no expression after `~`");
            return None;
        }
        return check(regex, &value.spot, reader).then(|| ValueCondition::Regex(regex.to_owned()));
    }
    Some(ValueCondition::Exact(text.to_owned()))
}

/// The fields that match the path: a gRPC method, a whole path, a path and everything below it, a text prefix, an expression.
const PATH_FIELDS: [&str; 5] = ["grpc", "path", "prefix", "text_prefix", "regex"];

/// The limit of the Gateway API.
const MAX_VALUES: usize = 16;
