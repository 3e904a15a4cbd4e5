//! Extensions that an Envoy has (rows D127 and D128). `extensions.txt` has what Envoy 1.40.0 says of itself when it connects: the types of
//! configuration by the category of the extension.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::super::any::{short, type_of};
use super::super::rule::{Scope, has};
use super::shared::{fault, is_true, refuse};
use crate::diagnostic::echo_name;
use crate::message::{Message, child, list, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D127", "envoy-extension");

/// Checks every extension that the message names.
pub(super) fn check(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    for (field, categories) in FIELDS.get(message.name()).map(Vec::as_slice).unwrap_or_default() {
        let field_path = path.field(field);
        for (index, item) in list(message, field).iter().enumerate() {
            holder(item, categories, &field_path.index(index), scope);
        }
        if let Some(one) = child(message, field).filter(|_| !is_list(message, field)) {
            holder(&one, categories, &field_path, scope);
        }
    }
    match message.name() {
        "envoy.config.cluster.v3.LoadBalancingPolicy" => policies(message, path, scope),
        "envoy.extensions.filters.http.stateful_session.v3.StatefulSession" => session(message, path, scope),
        _ => {}
    }
}

fn is_list(message: &Message, field: &str) -> bool {
    message.descriptor().get_field_by_name(field).is_some_and(|field| field.is_list())
}

/// Checks what has the configuration of an extension in `typed_config`, or is that itself.
fn holder(holder: &Message, categories: &[&str], path: &Path<'_>, scope: &mut Scope<'_>) {
    let is_any = holder.name() == "google.protobuf.Any";
    // By discovery, or left out if it is unknown.
    if has(holder, "config_discovery") || is_true(holder, "is_optional") {
        return;
    }
    let any = if is_any { Some(holder.clone()) } else { child(holder, "typed_config") };
    let found = any.map(|any| type_of(scope.inner, &any)).unwrap_or_default();
    if is_of(&found, categories) != Some(false) {
        return;
    }
    let text = match found.as_str() {
        "" => "Envoy rejects an extension without a configuration that says its type".to_owned(),
        _ => format!("Envoy rejects {} here, which is no {}", short(&found), words(categories)),
    };
    refuse(ROW, path, if is_any { "" } else { "typed_config" }, text, scope);
}

/// `None` for a type that another build of Envoy may have.
fn is_of(found: &str, categories: &[&str]) -> Option<bool> {
    if categories.iter().any(|category| EXTENSIONS.get(category).is_some_and(|types| types.contains(found))) {
        return Some(true);
    }
    let is_known = EXTENSIONS.values().any(|types| types.contains(found));
    let is_none = ["", "google.protobuf.", "envoy.config.", "envoy.type.", "envoy.service.", "envoy.data."];
    let is_none =
        is_none.iter().any(|none| if none.is_empty() { found.is_empty() } else { found.starts_with(none) });
    (is_known || is_none).then_some(false)
}

/// `envoy.filters.http` is a "filters.http".
fn words(categories: &[&str]) -> String {
    let names = categories.iter().map(|category| format!("`{}`", category.trim_start_matches("envoy.")));
    names.collect::<Vec<_>>().join(" or ")
}

/// Envoy takes the first policy that it knows.
fn policies(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let policies = list(message, "policies");
    let types = policies.iter().map(|policy| {
        let config =
            child(policy, "typed_extension_config").and_then(|config| child(&config, "typed_config"));
        config.map(|any| type_of(scope.inner, &any)).unwrap_or_default()
    });
    let types: Vec<String> = types.collect();
    if !types.is_empty()
        && types.iter().all(|found| is_of(found, &["envoy.load_balancing_policies"]) == Some(false))
    {
        let text = "Envoy rejects a list without a policy that it knows";
        refuse(ROW, path, "policies", text, scope);
    }
}

/// Envoy looks for the state of sessions by its name, not by the type of its configuration.
fn session(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(state) = child(message, "session_state") else { return };
    let any = child(&state, "typed_config");
    let found = any.map(|any| type_of(scope.inner, &any)).unwrap_or_default();
    let right = SESSIONS.iter().find(|(_, config)| *config == found).map(|(name, _)| *name);
    let name = text(&state, "name").unwrap_or_default();
    let is_known = SESSIONS.iter().any(|(known, _)| *known == name);
    if is_known && right == Some(name.as_str()) || (right.is_none() && found.starts_with("envoy.extensions."))
    {
        return;
    }
    let text = format!(
        "Envoy finds the state of sessions by its name, knows none with the name {}, and rejects the resource",
        echo_name(&name)
    );
    scope.report_with(
        fault(("D128", "envoy-session-name")),
        path,
        "session_state.name",
        text,
        right.map(str::to_owned),
    );
}

/// The types of configuration by category.
static EXTENSIONS: LazyLock<HashMap<&'static str, HashSet<&'static str>>> = LazyLock::new(|| {
    let mut all: HashMap<_, HashSet<_>> = HashMap::new();
    let mut category = "";
    for line in include_str!("extensions.txt").lines() {
        match line.strip_prefix("  ") {
            Some(config) => {
                all.entry(category).or_default().insert(config);
            }
            None => category = line,
        }
    }
    all
});

type Fields = HashMap<&'static str, Vec<(&'static str, &'static [&'static str])>>;

static FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    let mut fields: Fields = HashMap::new();
    for (message, field, categories) in PLACES {
        fields.entry(message).or_default().push((field, categories));
    }
    fields
});

const SESSIONS: [(&str, &str); 3] = [
    (
        "envoy.http.stateful_session.cookie",
        "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
    ),
    (
        "envoy.http.stateful_session.envelope",
        "envoy.extensions.http.stateful_session.envelope.v3.EnvelopeSessionState",
    ),
    (
        "envoy.http.stateful_session.header",
        "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
    ),
];

/// Fields that name extensions, and the categories of these.
const PLACES: &[(&str, &str, &[&str])] = &[
    (
        "envoy.config.accesslog.v3.AccessLogFilter",
        "extension_filter",
        &["envoy.access_loggers.extension_filters"],
    ),
    ("envoy.config.cluster.v3.Cluster", "cluster_type", &["envoy.clusters"]),
    ("envoy.config.cluster.v3.Cluster", "transport_socket", &["envoy.transport_sockets.upstream"]),
    ("envoy.config.cluster.v3.Cluster", "upstream_config", &["envoy.upstreams"]),
    ("envoy.config.cluster.v3.Cluster", "typed_dns_resolver_config", &["envoy.network.dns_resolver"]),
    ("envoy.config.cluster.v3.Cluster", "filters", &["envoy.filters.upstream_network"]),
    (
        "envoy.config.cluster.v3.Cluster.TransportSocketMatch",
        "transport_socket",
        &["envoy.transport_sockets.upstream"],
    ),
    ("envoy.config.core.v3.HealthCheck", "custom_health_check", &["envoy.health_checkers"]),
    ("envoy.config.core.v3.HealthCheck", "event_logger", &["envoy.health_check.event_sinks"]),
    (
        "envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat",
        "stateful_formatter",
        &["envoy.http.stateful_header_formatters"],
    ),
    ("envoy.config.core.v3.SubstitutionFormatString", "formatters", &["envoy.formatter"]),
    ("envoy.config.listener.v3.FilterChain", "filters", &["envoy.filters.network"]),
    ("envoy.config.listener.v3.FilterChain", "transport_socket", &["envoy.transport_sockets.downstream"]),
    (
        "envoy.config.listener.v3.Listener",
        "listener_filters",
        &["envoy.filters.listener", "envoy.filters.udp_listener"],
    ),
    ("envoy.config.listener.v3.Listener", "access_log", &["envoy.access_loggers"]),
    ("envoy.config.rbac.v3.Permission", "matcher", &["envoy.rbac.matchers"]),
    ("envoy.config.rbac.v3.Permission", "uri_template", &["envoy.path.match"]),
    ("envoy.config.rbac.v3.Principal", "custom", &["envoy.rbac.principals"]),
    ("envoy.config.route.v3.ClusterSpecifierPlugin", "extension", &["envoy.router.cluster_specifier_plugin"]),
    ("envoy.config.route.v3.InternalRedirectPolicy", "predicates", &["envoy.internal_redirect_predicates"]),
    ("envoy.config.route.v3.RateLimit.Action", "extension", &["envoy.rate_limit_descriptors"]),
    ("envoy.config.route.v3.RetryPolicy", "retry_host_predicate", &["envoy.retry_host_predicates"]),
    ("envoy.config.route.v3.RetryPolicy", "retry_priority", &["envoy.retry_priorities"]),
    ("envoy.config.route.v3.RouteAction", "early_data_policy", &["envoy.route.early_data_policy"]),
    ("envoy.config.route.v3.RouteAction", "path_rewrite_policy", &["envoy.path.rewrite"]),
    ("envoy.config.route.v3.RouteMatch", "path_match_policy", &["envoy.path.match"]),
    ("envoy.config.trace.v3.Tracing.Http", "typed_config", &["envoy.tracers"]),
    (
        "envoy.extensions.filters.http.compressor.v3.Compressor",
        "compressor_library",
        &["envoy.compression.compressor"],
    ),
    (
        "envoy.extensions.filters.http.decompressor.v3.Decompressor",
        "decompressor_library",
        &["envoy.compression.decompressor"],
    ),
    (
        "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
        "credential",
        &["envoy.http.injected_credentials"],
    ),
    ("envoy.extensions.filters.http.geoip.v3.Geoip", "provider", &["envoy.geoip_providers"]),
    (
        "envoy.extensions.filters.http.router.v3.Router",
        "upstream_http_filters",
        &["envoy.filters.http.upstream"],
    ),
    ("envoy.extensions.filters.http.router.v3.Router", "upstream_log", &["envoy.access_loggers"]),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "access_log",
        &["envoy.access_loggers"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "early_header_mutation_extensions",
        &["envoy.http.early_header_mutation"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "http_filters",
        &["envoy.filters.http"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "original_ip_detection_extensions",
        &["envoy.http.original_ip_detection"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "request_id_extension",
        &["envoy.request_id"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig",
        "filters",
        &["envoy.filters.http"],
    ),
    ("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "access_log", &["envoy.access_loggers"]),
    (
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "http_filters",
        &["envoy.filters.http.upstream"],
    ),
    ("envoy.type.matcher.v3.StringMatcher", "custom", &["envoy.string_matcher"]),
];
