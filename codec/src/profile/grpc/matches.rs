//! Route matches, header matchers and regular expressions (B.5).

use xds_re2::Encoding;

use super::super::Effect::{Crashes, Differs, Ignored, Rejected};
use super::super::Language;
use super::super::rule::{Fault, Rule, Scope, Side, When, has, value_at};
use crate::diagnostic::echo;
use crate::message::{Message, child, list, text};
use crate::path::Path;

pub(super) const MATCH: &str = "envoy.config.route.v3.RouteMatch";
const HEADER: &str = "envoy.config.route.v3.HeaderMatcher";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B89",
        (Rejected, "grpc-path-match"),
        MATCH,
        (When::Set, &["path_separated_prefix", "connect_matcher", "path_match_policy"]),
        "gRPC rejects `{}`; it accepts `prefix`, `path` and `safe_regex`",
    ),
    Rule::new(
        "B95",
        (Ignored, "grpc-ignored-match"),
        MATCH,
        (When::Set, &["tls_context"]),
        "gRPC ignores `{}`, so the route matches more than is written",
    ),
    Rule::new(
        "B96",
        (Ignored, "grpc-ignored-match"),
        MATCH,
        (When::Set, &["dynamic_metadata", "filter_state"]),
        "gRPC ignores `{}`, so the route matches more than is written",
    ),
    Rule::new(
        "B108",
        (Ignored, "grpc-ignored-match"),
        HEADER,
        (When::True, &["treat_missing_header_as_empty"]),
        "gRPC ignores `{}`",
    ),
    Rule::new(
        "B105",
        (Rejected, "grpc-string-match"),
        "envoy.type.matcher.v3.StringMatcher",
        (When::Set, &["custom"]),
        "gRPC (C-core, go, java) rejects `{}` as a string matcher",
    )
    .by(&[Language::Core, Language::Go, Language::Java]),
    Rule::new(
        "B100",
        (Rejected, "grpc-header-match"),
        HEADER,
        (When::Set, &["contains_match"]),
        "gRPC (js) rejects `{}`",
    )
    .by(&[Language::Js])
    .suggest("string_match: {contains: ...}"),
];

pub(super) fn route_match(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let is_path = |field: &prost_reflect::FieldDescriptor| {
        field.containing_oneof().is_some_and(|oneof| oneof.name() == "path_specifier")
            && has(message, field.name())
    };
    if !message.descriptor().fields().any(|field| is_path(&field)) {
        let fault = Fault::new("B86", Rejected, "grpc-path-match");
        let text = "gRPC rejects a match without a path".to_owned();
        scope.report_with(fault, path, "", text, Some("prefix: \"\"".to_owned()));
    }
    if let Some(prefix) = text(message, "prefix")
        && !is_prefix_of_methods(&prefix)
    {
        let fault = Fault::new("B92", Ignored, "grpc-path-match");
        let text =
            "no gRPC method has a path with this prefix; C-core ignores the route, the others never use it";
        scope.report(fault, path, "prefix", text);
    }
    if let Some(exact) = text(message, "path")
        && !is_method(&exact)
    {
        let fault = Fault::new("B92", Ignored, "grpc-path-match");
        let text =
            "no gRPC method has this path; C-core ignores the route, the others never use it".to_owned();
        scope.report_with(fault, path, "path", text, Some("/package.Service/Method".to_owned()));
    }
    let headers_path = path.field("headers");
    for (index, header) in list(message, "headers").iter().enumerate() {
        let name = text(header, "name").unwrap_or_default();
        let fault = Fault::new("B107", Differs, "grpc-header-name");
        let hidden: (&'static [Language], &str) = match &*name {
            ":path" => (
                &[Language::Go, Language::Js, Language::Java],
                "gRPC (go, js, java) never sees `:path`; C-core does",
            ),
            "content-type" => {
                (&[Language::Go], "gRPC (go) never sees this header; the others see `application/grpc`")
            }
            name if name.starts_with(':') => (&Language::ALL, "for gRPC this header is always absent"),
            name if name.ends_with("-bin") => (
                &[Language::Core, Language::Js, Language::Java],
                "gRPC (C-core, js, java) never sees a binary header; go does",
            ),
            _ => continue,
        };
        let (languages, text) = hidden;
        scope.report(fault.by(languages), &headers_path.index(index), "name", text);
    }
    if let Some(fraction) = child(message, "runtime_fraction")
        && !has(&fraction, "default_value")
    {
        let fault = Fault::new("B98", Differs, "grpc-runtime-fraction").by(&[Language::Go, Language::Java]);
        let text = "gRPC (go, java) reads a missing default as 0, so the route never matches; in C-core and js it always does";
        scope.report(fault, path, "runtime_fraction", text);
    }
}

/// Rows B100 and B104.
pub(super) fn header_matcher(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if let Some(range) = child(message, "range_match") {
        let bound = |field| value_at(&range, field).and_then(|value| value.as_i64()).unwrap_or_default();
        if bound("start") > bound("end") {
            let fault = Fault::new("B104", Rejected, "grpc-header-match").by(&[Language::Core]);
            scope.report(
                fault,
                path,
                "range_match",
                "gRPC (C-core) rejects a range that ends before it begins",
            );
        }
    }
    if !SPECIFIERS.iter().any(|field| has(message, field)) {
        let fault = Fault::new("B100", Rejected, "grpc-header-match").by(&[
            Language::Core,
            Language::Go,
            Language::Java,
        ]);
        let text = "gRPC (C-core, go, java) rejects a header matcher that has only a name; Envoy reads it as `present_match`";
        scope.report_with(fault, path, "", text.to_owned(), Some("present_match: true".to_owned()));
    }
    let of_string = child(message, "string_match");
    if of_string.as_ref().is_some_and(|matcher| !PATTERNS.iter().any(|field| has(matcher, field))) {
        let fault = Fault::new("B105", Rejected, "grpc-string-match").by(&[
            Language::Core,
            Language::Go,
            Language::Java,
        ]);
        let text = "gRPC (C-core, go, java) rejects a string matcher without a pattern";
        scope.report(fault, path, "string_match", text);
    }
    let strings = [("", Some(message)), ("string_match.", of_string.as_ref())];
    for (at, matcher) in strings {
        let Some(matcher) = matcher else { continue };
        for field in EMPTY_REFUSED {
            let field = if at.is_empty() { format!("{field}_match") } else { field.to_owned() };
            if value_at(matcher, &field).is_some_and(|value| value.as_str() == Some("")) {
                let fault =
                    Fault::new("B101", Rejected, "grpc-string-match").by(&[Language::Go, Language::Java]);
                let text = "gRPC (go, java) rejects an empty string here";
                scope.report(fault, path, &format!("{at}{field}"), text);
            }
        }
    }
}

/// Rows B101 and B105, for a matcher of names in certificates. java and js read it when they connect.
pub(super) fn name_matcher(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if !PATTERNS.iter().any(|field| has(message, field)) {
        let fault = Fault::new("B105", Rejected, "grpc-string-match").by(&[Language::Core, Language::Go]);
        scope.report(fault, path, "", "gRPC (C-core, go) rejects a string matcher without a pattern");
    }
    for field in EMPTY_REFUSED {
        if value_at(message, field).is_some_and(|value| value.as_str() == Some("")) {
            let fault = Fault::new("B101", Rejected, "grpc-string-match").by(&[Language::Go]);
            scope.report(fault, path, field, "gRPC (go) rejects an empty string here");
        }
    }
}

/// Rows B76, B90, B103, B125 and B152.
pub(super) fn regex(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(pattern) = text(message, "regex") else { return };
    let fault = Fault::new("B90", Rejected, "grpc-regex");
    match xds_re2::check(&pattern, Encoding::Utf8) {
        Err(error) => {
            let text = format!("gRPC rejects the regular expression {}: {error}", echo(&pattern));
            scope.report(fault.by(&[Language::Core, Language::Go, Language::Java]), path, "regex", text);
            let fault = Fault::new("B90", Crashes, "grpc-regex").by(&[Language::Js]);
            scope.report(
                fault,
                path,
                "regex",
                "gRPC (js) ends its process at a regular expression that RE2 refuses",
            );
        }
        Ok(features) => {
            if xds_re2::exhausts_js(&pattern).is_some() {
                let fault = Fault::new("B90", Crashes, "grpc-regex").by(&[Language::Js]);
                let text = "gRPC (js) ends its process at a regular expression that is so large: it has 16 MiB for all of them";
                scope.report(fault, path, "regex", text);
            }
            let refused: [(_, &'static [Language], _); 3] = [
                (
                    features.angle_name,
                    &[Language::Core],
                    "(C-core) rejects `(?<name>…)`; write `(?P<name>…)`",
                ),
                (features.any_byte, &[Language::Go], "(go) rejects `\\C`"),
                (features.repeated_name, &[Language::Go], "(go) rejects two groups of one name"),
            ];
            for (column, languages, what) in refused {
                let Some(column) = column else { continue };
                let text = format!("gRPC {what} in a regular expression, here in column {column}");
                scope.report(fault.by(languages), path, "regex", text);
            }
        }
    }
}

/// Row B93. Reported once for a route configuration, because it is true for nearly every route.
pub(super) fn case_sensitivity(configuration: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if scope.side == Side::Server {
        return;
    }
    let hosts_path = path.field("virtual_hosts");
    for (index, host) in list(configuration, "virtual_hosts").iter().enumerate() {
        let host_path = hosts_path.index(index);
        let routes_path = host_path.field("routes");
        for (at, route) in list(host, "routes").iter().enumerate() {
            let Some(found) = child(route, "match") else { continue };
            let has_letters = ["prefix", "path"]
                .iter()
                .filter_map(|field| text(&found, field))
                .any(|text| text.contains(|c: char| c.is_ascii_alphabetic()));
            if has_letters && !has(&found, "case_sensitive") {
                let fault = Fault::new("B93", Differs, "grpc-case-sensitive").by(&[Language::Java]);
                let text = "gRPC (java) reads a missing `case_sensitive` as false, everybody else as true; the first of \
                            possibly several";
                let suggestion = Some("case_sensitive: true".to_owned());
                return scope.report_with(
                    fault,
                    &routes_path.index(at),
                    "match",
                    text.to_owned(),
                    suggestion,
                );
            }
        }
    }
}

/// Returns `true` for `/service/method`.
fn is_method(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["", service, method] if !service.is_empty() && !method.is_empty())
}

/// Returns `true` if the path of a gRPC method can have this prefix.
fn is_prefix_of_methods(prefix: &str) -> bool {
    let Some(rest) = prefix.strip_prefix('/') else { return prefix.is_empty() };
    rest.matches('/').count() <= 1 && !rest.starts_with('/')
}

/// The specifiers that gRPC supports, including `present_match: false`.
const SPECIFIERS: [&str; 8] = [
    "exact_match",
    "safe_regex_match",
    "range_match",
    "present_match",
    "prefix_match",
    "suffix_match",
    "contains_match",
    "string_match",
];

const PATTERNS: [&str; 6] = ["exact", "prefix", "suffix", "safe_regex", "contains", "custom"];

const EMPTY_REFUSED: [&str; 3] = ["prefix", "suffix", "contains"];
