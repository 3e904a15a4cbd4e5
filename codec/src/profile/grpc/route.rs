//! Route configurations, virtual hosts, routes and their actions (B.5).

use std::collections::BTreeSet;

use super::super::Effect::{Crashes, Differs, Fails, FailsAll, Ignored, Rejected};
use super::super::Language;
use super::super::any::type_of;
use super::super::rule::{Fault, Rule, Scope, Side, When, duration_at, has, value_at};
use super::{filters, matches};
use crate::message::{Message, child, list, text, texts};
use crate::path::{Path, Step};

pub(super) const CONFIGURATION: &str = "envoy.config.route.v3.RouteConfiguration";
pub(super) const VIRTUAL_HOST: &str = "envoy.config.route.v3.VirtualHost";
pub(super) const ROUTE: &str = "envoy.config.route.v3.Route";
pub(super) const ACTION: &str = "envoy.config.route.v3.RouteAction";
pub(super) const HASH_POLICY: &str = "envoy.config.route.v3.RouteAction.HashPolicy";
const CLUSTER_WEIGHT: &str = "envoy.config.route.v3.WeightedCluster.ClusterWeight";
const RETRY: &str = "envoy.config.route.v3.RetryPolicy";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B109",
        (Rejected, "grpc-route-action"),
        ROUTE,
        (When::Set, &["redirect", "direct_response", "filter_action"]),
        "a gRPC client (js, java) rejects a route with `{}`",
    )
    .by(&[Language::Js, Language::Java])
    .on(Side::Client),
    Rule::new(
        "B109",
        (Fails, "grpc-route-action"),
        ROUTE,
        (When::Set, &["redirect", "direct_response", "filter_action"]),
        "in a gRPC client (C-core, go) the requests of a route with `{}` fail",
    )
    .by(&[Language::Core, Language::Go])
    .on(Side::Client),
    Rule::new(
        "B109",
        (Fails, "grpc-route-action"),
        ROUTE,
        (When::Set, &["non_forwarding_action"]),
        "in a gRPC client the requests of a route with `{}` fail; it is for gRPC servers",
    )
    .on(Side::Client),
    Rule::new(
        "B109",
        (Crashes, "grpc-route-action"),
        ROUTE,
        (When::Set, &["non_forwarding_action"]),
        "a gRPC client (js) ends its process at a route with `{}`",
    )
    .by(&[Language::Js])
    .on(Side::Client),
    Rule::new(
        "B86",
        (Rejected, "grpc-path-match"),
        ROUTE,
        (When::Unset, &["match"]),
        "gRPC rejects a route without a `{}`",
    )
    .suggest("match: {prefix: \"\"}"),
    Rule::new(
        "B55",
        (Fails, "grpc-route-action"),
        ROUTE,
        (When::Set, &["route", "redirect", "direct_response", "filter_action"]),
        "in a gRPC server the requests of a route with `{}` fail",
    )
    .on(Side::Server)
    .suggest("non_forwarding_action: {}"),
    Rule::new(
        "B81",
        (Rejected, "grpc-virtual-host"),
        VIRTUAL_HOST,
        (When::Unset, &["domains"]),
        "gRPC (C-core) rejects a virtual host without `{}`",
    )
    .by(&[Language::Core]),
    Rule::new(
        "B112",
        (Rejected, "grpc-cluster-weight"),
        "envoy.config.route.v3.WeightedCluster",
        (When::Unset, &["clusters"]),
        "gRPC rejects weighted clusters without `{}`",
    ),
    Rule::new(
        "B114",
        (Rejected, "grpc-cluster-weight"),
        CLUSTER_WEIGHT,
        (When::Unset, &["weight"]),
        "gRPC (C-core) rejects a weighted cluster without a weight",
    )
    .by(&[Language::Core]),
    Rule::new(
        "B114",
        (Ignored, "grpc-cluster-weight"),
        CLUSTER_WEIGHT,
        (When::Zero, &["weight"]),
        "gRPC (go, C-core) ignores a cluster of weight 0, so no request can be bound to it",
    )
    .by(&[Language::Go, Language::Core]),
    Rule::new(
        "B115",
        (Rejected, "grpc-cluster-weight"),
        CLUSTER_WEIGHT,
        (When::Unset, &["name"]),
        "gRPC (C-core) rejects a weighted cluster without a name",
    )
    .by(&[Language::Core]),
    Rule::new(
        "B116",
        (Ignored, "grpc-cluster-weight"),
        CLUSTER_WEIGHT,
        (When::Set, &["cluster_header"]),
        "gRPC does not read `{}`",
    ),
    Rule::new(
        "B122",
        (Rejected, "grpc-duration"),
        ACTION,
        (
            When::BadDuration,
            &["max_stream_duration.max_stream_duration", "max_stream_duration.grpc_timeout_header_max"],
        ),
        "gRPC (C-core) rejects a duration that is negative or too long",
    )
    .by(&[Language::Core]),
    Rule::new(
        "B122",
        (Rejected, "grpc-duration"),
        ACTION,
        (
            When::LongDuration,
            &["max_stream_duration.max_stream_duration", "max_stream_duration.grpc_timeout_header_max"],
        ),
        "gRPC (java) rejects a duration of more than 292 years",
    )
    .by(&[Language::Java]),
    Rule::new(
        "B110",
        (Rejected, "grpc-route-action"),
        ACTION,
        (When::Set, &["cluster_specifier_plugin", "inline_cluster_specifier_plugin"]),
        "gRPC (js) rejects a route with `{}`",
    )
    .by(&[Language::Js])
    .on(Side::Client),
    Rule::new(
        "B127",
        (Rejected, "grpc-retry"),
        RETRY,
        (When::Zero, &["num_retries"]),
        "gRPC (go, C-core, js) rejects a retry policy without retries; omit the policy",
    )
    .by(&[Language::Go, Language::Core, Language::Js]),
    Rule::new(
        "B127",
        (Differs, "grpc-retry"),
        RETRY,
        (When::Above(4), &["num_retries"]),
        "gRPC tries at most five times, which is 4 retries",
    ),
    Rule::new(
        "B132",
        (Ignored, "grpc-ignored-field"),
        RETRY,
        (
            When::Set,
            &[
                "per_try_timeout",
                "retry_priority",
                "retry_host_predicate",
                "retriable_status_codes",
                "retriable_headers",
            ],
        ),
        "gRPC ignores `{}`",
    ),
];

/// Returns `true`, and reports it, if gRPC skips the message and everything in it (rows B94 and B110).
pub(super) fn is_left_out(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) -> bool {
    let descriptor = message.descriptor();
    let (row, field) = match descriptor.full_name() {
        ROUTE if has(message, "match.query_parameters") => ("B94", "match.query_parameters"),
        ACTION if has(message, "cluster_header") => ("B110", "cluster_header"),
        ACTION if has(message, "inline_cluster_specifier_plugin") => {
            ("B110", "inline_cluster_specifier_plugin")
        }
        _ => return false,
    };
    let name = field.rsplit('.').next().unwrap_or(field);
    let text = format!("gRPC skips a route with `{name}` and tries the next one");
    scope.report(Fault::new(row, Ignored, "grpc-route-ignored"), path, field, text);
    true
}

/// Rows B93 and B118.
pub(super) fn route_configuration(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    matches::case_sensitivity(message, path, scope);
    let plugins_path = path.field("cluster_specifier_plugins");
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (index, plugin) in list(message, "cluster_specifier_plugins").iter().enumerate() {
        let path = plugins_path.index(index);
        let extension = child(plugin, "extension");
        let found = extension.as_ref().and_then(|extension| child(extension, "typed_config"));
        let found = found.map(|any| type_of(scope.inner, &any));
        let is_optional = value_at(plugin, "is_optional").is_some_and(|value| value.as_bool() == Some(true));
        if found.as_deref() != Some(LOOKUP) && !is_optional {
            let fault = Fault::new("B118", Rejected, "grpc-cluster-specifier").by(&[
                Language::Core,
                Language::Go,
                Language::Java,
            ]);
            let text = "gRPC (C-core, go, java) rejects a cluster specifier plugin other than route lookup"
                .to_owned();
            let suggestion = Some("is_optional: true".to_owned());
            scope.report_with(fault, &path, "extension.typed_config", text, suggestion);
        }
        if !names.insert(extension.and_then(|extension| text(&extension, "name")).unwrap_or_default()) {
            let fault = Fault::new("B118", Rejected, "grpc-cluster-specifier").by(&[Language::Core]);
            let text = "gRPC (C-core) rejects two cluster specifier plugins with the same name";
            scope.report(fault, &path, "extension.name", text);
        }
    }
    let hosts_path = path.field("virtual_hosts");
    for (index, host) in list(message, "virtual_hosts").iter().enumerate() {
        let host_path = hosts_path.index(index);
        let routes_path = host_path.field("routes");
        for (at, route) in list(host, "routes").iter().enumerate() {
            let plugin = child(route, "route").and_then(|action| text(&action, "cluster_specifier_plugin"));
            if plugin.is_some_and(|plugin| !names.contains(&plugin)) && scope.side == Side::Client {
                let fault = Fault::new("B118", Rejected, "grpc-cluster-specifier");
                let text = "gRPC rejects a route whose cluster specifier plugin is not declared";
                scope.report(fault, &routes_path.index(at), "route.cluster_specifier_plugin", text);
            }
        }
    }
}

/// Rows B84, B133 and B134.
pub(super) fn virtual_host(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    filters::overrides(message, path, scope);
    let domains_path = path.field("domains");
    for (index, domain) in texts(message, "domains").enumerate() {
        let inner = domain.strip_prefix('*').or_else(|| domain.strip_suffix('*')).unwrap_or(&domain);
        let fault = Fault::new("B84", Rejected, "grpc-domain");
        let path = domains_path.index(index);
        if domain.is_empty() {
            let text = "gRPC (C-core) rejects an empty domain";
            scope.report(fault.by(&[Language::Core]), &path, "", text);
        } else if inner.contains('*') {
            let text = "gRPC (C-core, js) rejects a domain that has a `*` anywhere but at one end";
            scope.report(fault.by(&[Language::Core, Language::Js]), &path, "", text);
        }
    }
    if has(message, "retry_policy") && scope.side == Side::Client {
        let fault = Fault::new("B133", Differs, "grpc-retry").by(&[Language::Java]);
        let text = "gRPC (java) does not read the retry policy of a virtual host; put it on the routes";
        scope.report(fault, path, "retry_policy", text);
    }
}

/// Row B134.
pub(super) fn route(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    filters::overrides(message, path, scope);
    let actions = ["route", "redirect", "direct_response", "filter_action", "non_forwarding_action"];
    if scope.side == Side::Client && !actions.iter().any(|action| has(message, action)) {
        let fault = Fault::new("B109", Rejected, "grpc-route-action").by(&[Language::Js, Language::Java]);
        scope.report(fault, path, "route", "gRPC (js, java) rejects a route without an action");
    }
}

/// Row B121: Envoy and gRPC have different fields for the timeout.
pub(super) fn action(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let has_limit = has(message, "max_stream_duration");
    let is_limit = duration_at(message, "timeout").is_some_and(|timeout| timeout != 0);
    if is_limit && !has_limit {
        let fault = Fault::new("B121", Ignored, "grpc-ignored-field");
        let text = "gRPC ignores `timeout`; it uses `max_stream_duration`".to_owned();
        let suggestion = Some("max_stream_duration".to_owned());
        scope.report_with(fault, path, "timeout", text, suggestion);
    }
}

/// Rows B128 and B130.
pub(super) fn retry_policy(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let conditions = text(message, "retry_on").unwrap_or_default();
    let is_known = |condition: &str| CONDITIONS.contains(&condition);
    let normal = |condition: &str| condition.trim().to_ascii_lowercase();
    if !conditions.split(',').any(|condition| is_known(&normal(condition))) {
        let fault = Fault::new("B128", Ignored, "grpc-retry");
        let text = format!("gRPC never retries: it knows only the conditions {}", CONDITIONS.join(", "));
        scope.report(fault, path, "retry_on", text);
    } else if conditions.split(',').any(|one| is_known(&normal(one)) && !is_known(one)) {
        let fault = Fault::new("B128", Differs, "grpc-retry").by(&[Language::Core]);
        let text = "gRPC (C-core) knows conditions only in lower case and without spaces".to_owned();
        let suggestion: Vec<_> = conditions.split(',').map(normal).collect();
        scope.report_with(fault, path, "retry_on", text, Some(suggestion.join(",")));
    }
    let Some(backoff) = child(message, "retry_back_off") else { return };
    let before = scope.findings.len();
    back_off(&backoff, path, scope);
    // Row B133: java reads the policies of routes alone.
    if matches!(path.to_steps()[..], [.., Step::Index(_), Step::Field(_)]) {
        let added = scope.findings.split_off(before);
        scope.findings.extend(added.into_iter().filter_map(|mut finding| {
            finding.languages.retain(|language| *language != Language::Java);
            (!finding.languages.is_empty()).then_some(finding)
        }));
    }
}

/// Rows B129 and B130.
fn back_off(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    const BASE: &str = "retry_back_off.base_interval";
    const MAX: &str = "retry_back_off.max_interval";
    let fault = Fault::new("B129", Rejected, "grpc-retry");
    let max = duration_at(message, "max_interval");
    let Some(base) = duration_at(message, "base_interval") else {
        return scope.report(fault, path, BASE, "gRPC rejects a back-off without a base interval");
    };
    if base < 0 {
        scope.report(fault, path, BASE, "gRPC rejects a base interval that is not positive");
    }
    if base == 0 {
        let fault = fault.by(&[Language::Go, Language::Js, Language::Java]);
        scope.report(fault, path, BASE, "gRPC (go, js, java) rejects a base interval of 0");
        let fault = Fault::new("B129", FailsAll, "grpc-retry").by(&[Language::Core]);
        let text = "gRPC (C-core) accepts a base interval of 0, and then fails all calls of the target";
        scope.report(fault, path, BASE, text);
    }
    // js counts in milliseconds of 32 bits.
    let milliseconds = |nanos: i128| (nanos / 1_000_000) as i32;
    if base > 0 && milliseconds(base) <= 0 {
        let text = "gRPC (js) rejects a base interval below 1 ms, and misreads one of more than 24 days";
        scope.report(fault.by(&[Language::Js]), path, BASE, text);
    }
    if base > i128::from(i64::MAX / 10) && max.is_none() {
        let text = "gRPC (java) rejects a base interval of more than 29 years without a `max_interval`";
        scope.report(fault.by(&[Language::Java]), path, BASE, text);
    }
    let Some(max) = max else { return };
    let fault = Fault::new("B130", Rejected, "grpc-retry");
    let refusing: Option<(&'static [Language], _)> =
        match (max < base, milliseconds(max) < milliseconds(base)) {
            (true, true) => Some((&[Language::Js, Language::Java], "js, java")),
            (true, false) => Some((&[Language::Java], "java")),
            (false, true) => Some((&[Language::Js], "js")),
            (false, false) => None,
        };
    if let Some((languages, names)) = refusing {
        let text =
            format!("gRPC ({names}) rejects a `max_interval` that is shorter than the `base_interval`");
        scope.report(fault.by(languages), path, MAX, text);
    }
    if max <= 0 {
        let text = "gRPC (go) rejects a `max_interval` that is not positive";
        scope.report(fault.by(&[Language::Go]), path, MAX, text);
    }
    if max < 0 {
        let text = "gRPC (C-core) rejects a negative `max_interval`";
        scope.report(fault.by(&[Language::Core]), path, MAX, text);
    }
}

/// Rows B123 and B126.
pub(super) fn hash_policy(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let fault = Fault::new("B123", Ignored, "grpc-hash-policy");
    for field in ["cookie", "connection_properties", "query_parameter"] {
        if has(message, field) {
            scope.report(fault, path, field, format!("gRPC ignores a hash policy by `{field}`"));
        }
    }
    let key = value_at(message, "filter_state.key");
    if key.is_some_and(|key| key.as_str() != Some(CHANNEL_ID)) {
        let text = "gRPC ignores a hash policy by any filter state but one".to_owned();
        scope.report_with(fault, path, "filter_state.key", text, Some(CHANNEL_ID.to_owned()));
    }
    if has(message, "header") && !has(message, "header.header_name") {
        let fault = Fault::new("B125", Rejected, "grpc-hash-policy").by(&[Language::Core]);
        let text = "gRPC (C-core) rejects a hash policy by a header without a name";
        scope.report(fault, path, "header.header_name", text);
    }
    if has(message, "header.regex_rewrite") && !has(message, "header.regex_rewrite.pattern.regex") {
        let fault = Fault::new("B125", Rejected, "grpc-hash-policy").by(&[Language::Core]);
        let text = "gRPC (C-core) rejects a rewrite without a pattern";
        scope.report(fault, path, "header.regex_rewrite.pattern", text);
    }
    let header = value_at(message, "header.header_name");
    if header.is_some_and(|name| name.as_str().is_some_and(|name| name.ends_with("-bin"))) {
        let fault = Fault::new("B126", Ignored, "grpc-hash-policy");
        scope.report(fault, path, "header.header_name", "gRPC ignores a hash policy by a binary header");
    }
}

/// The conditions of gRFC A44.
const CONDITIONS: [&str; 5] =
    ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];

/// gRFC A42.
const CHANNEL_ID: &str = "io.grpc.channel_id";

const LOOKUP: &str = "grpc.lookup.v1.RouteLookupClusterSpecifier";
