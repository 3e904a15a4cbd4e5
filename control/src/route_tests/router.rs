//! Reads the tests of Envoy's `router_check_tool`: in a RouterCheck, and in the tool's own files.
//!
//! Fields have the names of the tool's messages, in both spellings of protobuf's JSON (`test_name`, `testName`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use xds_codec::document::{Number, TreeValue};
use xds_codec::{Diagnostic, Tree};
use xds_explain::{Case, Connection, HeaderCheck, HeaderIs, Request, RouterCheck};

use super::expect::{Expected, RouteTest, RouterExpect, Test, Whose};
use super::size::{self, MAX_TESTS};
use crate::question::{Fields, Part};

/// Reads a file of the tool. `route_config` names the RouteConfiguration that it is about.
///
/// # Errors
///
/// Its faults, at least one, each with its place.
pub fn read_file(file: &Arc<str>, tree: &Tree, route_config: &str) -> Result<RouteTest, Vec<Diagnostic>> {
    let mut fields = Fields::new(Arc::clone(file));
    let root = Part { node: tree.root(), path: String::new() };
    check(&mut fields, &root, &["runtime", "tests"]);
    let tests = tests(&mut fields, &root, Some(route_config));
    match fields.faults {
        faults if faults.is_empty() => {
            Ok(RouteTest { clients: None, whose: Whose::Own, policy: None, tests, always: Vec::new() })
        }
        faults => Err(faults),
    }
}

/// The `tests` and the `runtime` of the tool. Without the name of a RouteConfiguration they are only checked.
pub(super) fn tests(fields: &mut Fields, part: &Part<'_>, route_config: Option<&str>) -> Vec<Test> {
    if let Some(at) = field(part, "runtime") {
        for (key, at) in fields.entries(&at, MAX_ENTRIES) {
            if !key.starts_with("re2.max_program_size.") {
                let message = "only `re2.max_program_size.*` can be said here; a test enables the key of a fraction by its own `runtime`";
                fields.fault("unknown-field", &at, message);
            }
        }
    }
    let Some(list) = field(part, "tests") else {
        if part.node.is_object() {
            fields.fault("missing-field", part, "there must be `tests`, with at least one item");
        }
        return Vec::new();
    };
    let items = fields.items(&list, MAX_TESTS);
    if items.is_empty() && list.node.as_list().is_some() {
        fields.fault("missing-field", &list, "there must be at least one test");
    }
    items.iter().filter_map(|at| test(fields, at, route_config)).collect()
}

fn test(fields: &mut Fields, at: &Part<'_>, route_config: Option<&str>) -> Option<Test> {
    if !size::fits(fields, at) {
        return None;
    }
    check(fields, at, &["test_name", "input", "validate"]);
    let name = needed(fields, at, "test_name", 1);
    let input = part(fields, at, "input")?;
    let validate = part(fields, at, "validate")?;
    let request = request(fields, &input, route_config);
    let expect = expected(fields, &validate);
    Some(Test {
        name: name?,
        path: at.path.clone(),
        request: request?,
        is_call: false,
        is_target: false,
        passes: Vec::new(),
        expect: Expected::Router(Box::new(expect)),
    })
}

fn request(fields: &mut Fields, input: &Part<'_>, route_config: Option<&str>) -> Option<Request> {
    let known = [
        "authority",
        "path",
        "method",
        "random_value",
        "ssl",
        "internal",
        "runtime",
        "additional_request_headers",
        "additional_response_headers",
        "dynamic_metadata",
    ];
    check(fields, input, &known);
    let authority = needed(fields, input, "authority", 1);
    let path = needed(fields, input, "path", 1);
    let method = needed(fields, input, "method", 3);
    let random = field(input, "random_value").and_then(|at| integer(fields, &at, 0, i32::MAX.into()));
    let flag = |fields: &mut Fields, key: &str| {
        field(input, key).and_then(|at| fields.flag(&at)).unwrap_or_default()
    };
    let (is_tls, is_internal) = (flag(fields, "ssl"), flag(fields, "internal"));
    let runtime = field(input, "runtime").and_then(|at| fields.text(&at)).unwrap_or_default();
    let scheme = if is_tls { "https" } else { "http" };
    let mut headers = vec![("x-forwarded-proto".to_owned(), scheme.to_owned())];
    headers.extend(is_internal.then(|| ("x-envoy-internal".to_owned(), "true".to_owned())));
    if let Some(at) = field(input, "additional_request_headers") {
        headers.extend(pairs(fields, &at, Own::Refused));
    }
    let response_headers = field(input, "additional_response_headers")
        .map(|at| pairs(fields, &at, Own::Taken))
        .unwrap_or_default();
    let metadata = field(input, "dynamic_metadata").map(|at| metadata(fields, &at)).unwrap_or_default();
    Some(Request {
        connection: Connection {
            from: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            tls: Some(false),
            certificate: Some((false, false)),
            ..Connection::default()
        },
        method: method?,
        scheme: scheme.to_owned(),
        authority: authority?,
        path: path?,
        headers,
        random: Some(random.and_then(|n| u64::try_from(n).ok()).unwrap_or_default()),
        metadata,
        route_config: Some(route_config?.to_owned()),
        router_check: Some(RouterCheck { runtime, response_headers }),
        ..Request::default()
    })
}

fn expected(fields: &mut Fields, validate: &Part<'_>) -> RouterExpect {
    let known = [
        "cluster_name",
        "virtual_cluster_name",
        "virtual_host_name",
        "host_rewrite",
        "path_rewrite",
        "path_redirect",
        "code_redirect",
        "request_header_fields",
        "response_header_fields",
        "request_header_matches",
        "response_header_matches",
    ];
    check(fields, validate, &known);
    if validate.node.is_object() && validate.node.entries().next().is_none() {
        fields.fault("missing-field", validate, format!("says nothing; write one of {}", known.join(", ")));
    }
    let text = |fields: &mut Fields, key: &str| field(validate, key).and_then(|at| fields.text(&at));
    let matches = |fields: &mut Fields, key: &str| {
        let items = field(validate, key).map(|at| fields.items(&at, MAX_ENTRIES)).unwrap_or_default();
        items.iter().filter_map(|at| matcher(fields, at)).collect()
    };
    let values = |fields: &mut Fields, key: &str| {
        field(validate, key).map(|at| pairs(fields, &at, Own::Taken)).unwrap_or_default()
    };
    RouterExpect {
        cluster_name: text(fields, "cluster_name"),
        virtual_cluster_name: text(fields, "virtual_cluster_name"),
        virtual_host_name: text(fields, "virtual_host_name"),
        host_rewrite: text(fields, "host_rewrite"),
        path_rewrite: text(fields, "path_rewrite"),
        path_redirect: text(fields, "path_redirect"),
        code_redirect: field(validate, "code_redirect")
            .and_then(|at| integer(fields, &at, 0, u32::MAX.into()))
            .and_then(|code| u64::try_from(code).ok()),
        request_headers: matches(fields, "request_header_matches"),
        response_headers: matches(fields, "response_header_matches"),
        request_fields: values(fields, "request_header_fields"),
        response_fields: values(fields, "response_header_fields"),
    }
}

/// A `HeaderMatcher`.
fn matcher(fields: &mut Fields, at: &Part<'_>) -> Option<HeaderCheck> {
    let kinds = [
        "string_match",
        "exact_match",
        "prefix_match",
        "suffix_match",
        "contains_match",
        "safe_regex_match",
        "range_match",
        "present_match",
    ];
    let known: Vec<&str> =
        ["name", "invert_match", "treat_missing_header_as_empty"].into_iter().chain(kinds).collect();
    check(fields, at, &known);
    let name = needed(fields, at, "name", 1);
    let flag =
        |fields: &mut Fields, key: &str| field(at, key).and_then(|at| fields.flag(&at)).unwrap_or_default();
    let inverts = flag(fields, "invert_match");
    let missing_is_empty = flag(fields, "treat_missing_header_as_empty");
    let is = match one_of(fields, at, &kinds)? {
        None => HeaderIs::Present(true),
        Some(("string_match", at)) => string_match(fields, &at)?,
        Some(("safe_regex_match", at)) => HeaderIs::Regex(regex(fields, &at)?),
        Some(("present_match", at)) => HeaderIs::Present(fields.flag(&at)?),
        Some(("range_match", at)) => {
            check(fields, &at, &["start", "end"]);
            let mut bound = |key| match field(&at, key) {
                Some(at) => integer(fields, &at, i64::MIN.into(), i64::MAX.into()),
                None => Some(0),
            };
            let (start, end) = (bound("start"), bound("end"));
            let number = |n: Option<i128>| n.and_then(|n| i64::try_from(n).ok());
            HeaderIs::Range(number(start)?, number(end)?)
        }
        Some((kind, at)) => {
            let text = fields.text(&at)?;
            match kind {
                // Envoy takes every value for an empty one.
                "exact_match" if text.is_empty() => HeaderIs::Prefix(text, Case::Counts),
                "exact_match" => HeaderIs::Exact(text, Case::Counts),
                "prefix_match" => HeaderIs::Prefix(text, Case::Counts),
                "suffix_match" => HeaderIs::Suffix(text, Case::Counts),
                _ => HeaderIs::Contains(text, Case::Counts),
            }
        }
    };
    Some(HeaderCheck { name: name?, is, inverts, missing_is_empty })
}

fn string_match(fields: &mut Fields, at: &Part<'_>) -> Option<HeaderIs> {
    let kinds = ["exact", "prefix", "suffix", "contains", "safe_regex"];
    let known: Vec<&str> = kinds.into_iter().chain(["ignore_case"]).collect();
    check(fields, at, &known);
    let ignores = field(at, "ignore_case").and_then(|at| fields.flag(&at)).unwrap_or_default();
    let case = if ignores { Case::Ignored } else { Case::Counts };
    let Some((kind, part)) = one_of(fields, at, &kinds)? else {
        if at.node.is_object() {
            fields.fault("missing-field", at, format!("must have one of {}", kinds.join(", ")));
        }
        return None;
    };
    if kind == "safe_regex" {
        if ignores {
            let message = "Envoy refuses `ignore_case` beside a regular expression; begin it with `(?i)`";
            fields.fault("invalid-value", at, message);
        }
        return Some(HeaderIs::Regex(regex(fields, &part)?));
    }
    let text = fields.text(&part)?;
    Some(match kind {
        "exact" => HeaderIs::Exact(text, case),
        "prefix" => HeaderIs::Prefix(text, case),
        "suffix" => HeaderIs::Suffix(text, case),
        _ => HeaderIs::Contains(text, case),
    })
}

fn regex(fields: &mut Fields, at: &Part<'_>) -> Option<String> {
    check(fields, at, &["regex", "google_re2"]);
    let text = needed(fields, at, "regex", 1)?;
    if let Err(error) = xds_re2::check_regex(&text) {
        fields.fault("invalid-value", at, error);
        return None;
    }
    Some(text)
}

/// If a list may have headers that other fields of a test say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Refused,
    Taken,
}

/// A list of `key` and `value`.
fn pairs(fields: &mut Fields, at: &Part<'_>, own: Own) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for item in fields.items(at, MAX_ENTRIES) {
        check(fields, &item, &["key", "value"]);
        let Some(key) = needed(fields, &item, "key", 1) else { continue };
        let is_own = key.starts_with(':')
            || ["host", "x-forwarded-proto", "x-envoy-internal"].contains(&&*key.to_ascii_lowercase());
        if is_own && own == Own::Refused {
            let message =
                "other fields of `input` say this: `authority`, `path`, `method`, `ssl`, `internal`";
            fields.fault("invalid-value", &item, message);
        }
        let value = field(&item, "value").and_then(|at| fields.text(&at)).unwrap_or_default();
        pairs.push((key, value));
    }
    pairs
}

/// Dynamic metadata as `NAMESPACE.KEY.KEY` and texts.
fn metadata(fields: &mut Fields, at: &Part<'_>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut namespaces: Vec<String> = Vec::new();
    for item in fields.items(at, MAX_ENTRIES) {
        check(fields, &item, &["metadata_namespace", "value", "allow_overwrite"]);
        let Some(namespace) = needed(fields, &item, "metadata_namespace", 1) else { continue };
        if namespaces.contains(&namespace) {
            fields.fault(
                "invalid-value",
                &item,
                "the namespace is there twice; write one item with all of its values",
            );
        }
        if let Some(value) = field(&item, "value") {
            if value.node.is_object() {
                flatten(fields, &value, &namespace, 0, &mut all);
            } else {
                fields.fault("wrong-type", &value, format!("must be an object, not {}", value.node.kind()));
            }
        }
        namespaces.push(namespace);
    }
    all
}

fn flatten(
    fields: &mut Fields,
    at: &Part<'_>,
    prefix: &str,
    depth: usize,
    all: &mut BTreeMap<String, String>,
) {
    if depth > MAX_DEPTH {
        fields.fault("too-many", at, format!("there may be at most {MAX_DEPTH} levels"));
        return;
    }
    for (key, at) in fields.entries(at, MAX_ENTRIES) {
        let path = format!("{prefix}.{key}");
        match at.node.value() {
            TreeValue::String(text) => drop(all.insert(path, text.to_owned())),
            TreeValue::Bool(flag) => drop(all.insert(path, flag.to_string())),
            TreeValue::Number(_) => {
                let mut text = String::new();
                at.node.write_json(&mut text);
                all.insert(path, text);
            }
            TreeValue::Object(_) => flatten(fields, &at, &path, depth + 1, all),
            TreeValue::Null | TreeValue::List(_) => {
                let message = format!(
                    "conditions on {} are not modelled; write a text, a number, a flag or an object",
                    at.node.kind()
                );
                fields.fault("wrong-type", &at, message);
            }
        }
    }
}

/// The one of some fields that is there. `None`, with a fault, if several are.
#[expect(clippy::option_option, reason = "none of them, and a fault")]
fn one_of<'t, 'k>(
    fields: &mut Fields,
    at: &Part<'t>,
    keys: &[&'k str],
) -> Option<Option<(&'k str, Part<'t>)>> {
    let mut found = keys.iter().filter_map(|key| Some((*key, field(at, key)?)));
    let first = found.next();
    if let Some((_, second)) = found.next() {
        fields.fault("invalid-value", &second, format!("only one of {} can be said", keys.join(", ")));
        return None;
    }
    Some(first)
}

/// A field in one of the two spellings.
fn field<'t>(part: &Part<'t>, key: &str) -> Option<Part<'t>> {
    part.field(key).or_else(|| part.field(&camel(key)))
}

/// An object that must be there.
fn part<'t>(fields: &mut Fields, at: &Part<'t>, key: &str) -> Option<Part<'t>> {
    let found = field(at, key);
    if found.is_none() && at.node.is_object() {
        fields.fault("missing-field", at, format!("a test needs `{key}`"));
    }
    found
}

/// A text of some bytes at least that must be there.
fn needed(fields: &mut Fields, at: &Part<'_>, key: &str, least: usize) -> Option<String> {
    let Some(found) = field(at, key) else {
        if at.node.is_object() {
            fields.fault("missing-field", at, format!("needs `{key}`"));
        }
        return None;
    };
    let text = fields.text(&found)?;
    if text.len() < least {
        fields.fault("invalid-value", &found, format!("must have at least {least} characters"));
        return None;
    }
    Some(text)
}

/// Refuses anything but an object with these fields, in one spelling each.
fn check(fields: &mut Fields, at: &Part<'_>, known: &[&str]) {
    let both: Vec<String> = known.iter().flat_map(|key| [(*key).to_owned(), camel(key)]).collect();
    let n_faults = fields.faults.len();
    fields.check(at, &both.iter().map(String::as_str).collect::<Vec<_>>());
    for fault in fields.faults.iter_mut().skip(n_faults) {
        // One spelling is enough to be told.
        let all = both.join(", ");
        fault.message = fault.message.replace(&all, &known.join(", "));
    }
    for key in known.iter().filter(|key| camel(key) != **key) {
        if let (Some(_), Some(second)) = (at.field(key), at.field(&camel(key))) {
            fields.fault("invalid-value", &second, format!("is the same field as `{key}`"));
        }
    }
}

/// A whole number, also as a text, as protobuf writes those of 64 bits.
fn integer(fields: &mut Fields, at: &Part<'_>, least: i128, most: i128) -> Option<i128> {
    let number = match at.node.value() {
        TreeValue::Number(Number::Integer(integer)) => Some(integer),
        TreeValue::String(text) => text.parse().ok(),
        TreeValue::Number(_)
        | TreeValue::Null
        | TreeValue::Bool(_)
        | TreeValue::List(_)
        | TreeValue::Object(_) => None,
    };
    let number = number.filter(|number| (least..=most).contains(number));
    if number.is_none() {
        fields.fault("wrong-type", at, format!("must be a whole number from {least} to {most}"));
    }
    number
}

/// `test_name` as `testName`.
fn camel(key: &str) -> String {
    let mut parts = key.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let (head, tail) = part.split_at_checked(1).unwrap_or((part, ""));
        format!("{all}{}{tail}", head.to_ascii_uppercase())
    })
}

/// Headers, values and namespaces of one test.
const MAX_ENTRIES: usize = 64;

/// Levels of dynamic metadata.
const MAX_DEPTH: usize = 16;
