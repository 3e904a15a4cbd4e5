//! Routes and their actions, with overrides of filters (rows D118, D121 and D122).

use std::collections::HashMap;

use xds_cache::{ResourceKey, ResourceType};

use super::super::any::{short, type_of};
use super::super::reach::Resources;
use super::super::rule::{Scope, has, number_at, value_at};
use super::matchers::Chooses;
use super::shared::{is_true, refuse};
use crate::diagnostic::{echo, echo_name};
use crate::encode::decode_any;
use crate::message::{Message, child, entries, list, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D121", "envoy-route-action");

pub(super) fn action(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let rewrites = ["prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite"];
    let set: Vec<_> = rewrites.into_iter().filter(|field| has(message, field)).collect();
    if let [first, second, ..] = set[..] {
        refuse(ROW, path, second, format!("Envoy rejects `{second}` beside `{first}`"), scope);
    }
    let list_path = path.field("request_mirror_policies");
    mirrors(message, &list_path, scope);
    let list_path = path.field("upgrade_configs");
    let mut names = HashMap::new();
    for (index, upgrade) in list(message, "upgrade_configs").iter().enumerate() {
        let path = list_path.index(index);
        let name = text(upgrade, "upgrade_type").unwrap_or_default();
        let is_connect = ["connect", "connect-udp"].contains(&&*name.to_ascii_lowercase());
        if has(upgrade, "connect_config") && !is_connect {
            let text = format!("Envoy rejects `connect_config` for the upgrade {}", echo(&name));
            refuse(ROW, &path, "connect_config", text, scope);
        }
        if let Some(first) = names.insert(name.to_ascii_lowercase(), index) {
            let text =
                format!("Envoy rejects the upgrade {} twice; upgrade {first} is the same one", echo(&name));
            refuse(ROW, &path, "upgrade_type", text, scope);
        }
    }
}

/// Mirrors of a route, a virtual host or a whole configuration.
pub(super) fn mirrors(message: &Message, list_path: &Path<'_>, scope: &mut Scope<'_>) {
    for (index, mirror) in list(message, "request_mirror_policies").iter().enumerate() {
        if has(mirror, "cluster") == has(mirror, "cluster_header") {
            let text = "Envoy rejects a mirror unless it has either `cluster` or `cluster_header`";
            refuse(ROW, &list_path.index(index), "cluster", text, scope);
        }
    }
}

pub(super) fn cluster_weight(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if !has(message, "weight") {
        refuse(ROW, path, "weight", "Envoy rejects a weighted cluster without a weight", scope);
    }
    if has(message, "name") == has(message, "cluster_header") {
        let text = "Envoy rejects a weighted cluster unless it has either `name` or `cluster_header`";
        refuse(ROW, path, "name", text, scope);
    }
}

pub(super) fn virtual_host(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    mirrors(message, &path.field("request_mirror_policies"), scope);
    if has(message, "matcher") && has(message, "routes") {
        refuse(ROW, path, "matcher", "Envoy rejects `matcher` beside `routes`", scope);
    }
    if let Some(matcher) = child(message, "matcher") {
        Chooses::Route.check(&matcher, &path.field("matcher"), scope);
    }
    let list_path = path.field("virtual_clusters");
    for (index, cluster) in list(message, "virtual_clusters").iter().enumerate() {
        if !has(cluster, "headers") {
            let text = "Envoy rejects a virtual cluster without `headers`";
            refuse(ROW, &list_path.index(index), "headers", text, scope);
        }
    }
}

/// Checks what a whole route configuration must agree on: sizes of bodies and declared plugins.
pub(super) fn configuration(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    mirrors(message, &path.field("request_mirror_policies"), scope);
    let limit = number_at(message, "max_direct_response_body_size_bytes").unwrap_or(MAX_BODY);
    let plugins: Vec<_> = list(message, "cluster_specifier_plugins")
        .iter()
        .filter_map(|plugin| text(&child(plugin, "extension")?, "name"))
        .collect();
    let hosts_path = path.field("virtual_hosts");
    for (index, host) in list(message, "virtual_hosts").iter().enumerate() {
        let host_path = hosts_path.index(index);
        let routes_path = host_path.field("routes");
        for (at, route) in list(host, "routes").iter().enumerate() {
            let path = routes_path.index(at);
            let body = child(route, "direct_response").and_then(|it| child(&it, "body"));
            let length = body.as_ref().map_or(0, inline_length) as u64;
            if length > limit {
                let text = format!(
                    "Envoy rejects a body of {length} bytes; `max_direct_response_body_size_bytes` is {limit}"
                );
                refuse(ROW, &path, "direct_response.body", text, scope);
            }
            let plugin = child(route, "route").and_then(|action| text(&action, "cluster_specifier_plugin"));
            if let Some(plugin) = plugin.filter(|plugin| !plugins.contains(plugin)) {
                let text = format!("Envoy rejects a route whose plugin {} is not declared", echo(&plugin));
                refuse(ROW, &path, "route.cluster_specifier_plugin", text, scope);
            }
        }
    }
}

fn inline_length(source: &Message) -> usize {
    let bytes = source.descriptor().get_field_by_name("inline_bytes").and_then(|field| source.value(&field));
    let bytes = bytes.and_then(|item| Some(item.as_scalar()?.as_bytes()?.len()));
    text(source, "inline_string").map(|text| text.len()).or(bytes).unwrap_or_default()
}

/// Clusters that a route configuration in a listener names must be there (row D118): Envoy checks that unless `validate_clusters` is false.
pub(super) fn inline_clusters(
    routes: &Message,
    path: &Path<'_>,
    resources: &Resources<'_>,
    scope: &mut Scope<'_>,
) {
    let is_off = value_at(routes, "validate_clusters").is_some_and(|it| it.as_bool() == Some(false));
    if is_off {
        return;
    }
    let mut check = |message: &Message, field: &str, path: &Path<'_>| {
        let Some(name) = text(message, field) else { return };
        let key = ResourceKey { resource_type: ResourceType::Cluster, name: name.as_str().into() };
        if resources.find(&key).is_none() {
            let text = format!(
                "Envoy rejects a route to the unknown cluster {}, because `validate_clusters` is true by default for routes in a listener",
                echo_name(&name)
            );
            refuse(("D118", "envoy-unknown-cluster"), path, field, text, scope);
        }
    };
    let mirrors = |message: &Message, path: &Path<'_>, check: &mut dyn FnMut(&Message, &str, &Path<'_>)| {
        let list_path = path.field("request_mirror_policies");
        for (index, mirror) in list(message, "request_mirror_policies").iter().enumerate() {
            check(mirror, "cluster", &list_path.index(index));
        }
    };
    mirrors(routes, path, &mut check);
    let hosts_path = path.field("virtual_hosts");
    for (index, host) in list(routes, "virtual_hosts").iter().enumerate() {
        let host_path = hosts_path.index(index);
        mirrors(host, &host_path, &mut check);
        let routes_path = host_path.field("routes");
        for (at, route) in list(host, "routes").iter().enumerate() {
            let Some(action) = child(route, "route") else { continue };
            let route_path = routes_path.index(at);
            let action_path = route_path.field("route");
            check(&action, "cluster", &action_path);
            mirrors(&action, &action_path, &mut check);
            let Some(split) = child(&action, "weighted_clusters") else { continue };
            let split_path = action_path.field("weighted_clusters");
            let list_path = split_path.field("clusters");
            for (index, cluster) in list(&split, "clusters").iter().enumerate() {
                check(cluster, "name", &list_path.index(index));
            }
        }
    }
}

/// Overrides of filters, in whatever has them (row D122).
pub(super) fn overrides(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let row = ("D122", "envoy-override");
    let path = path.field("typed_per_filter_config");
    for (name, any) in entries(message, "typed_per_filter_config") {
        let path = path.key(&name);
        let mut found = type_of(scope.inner, &any);
        if found == FILTER_CONFIG {
            let Some(config) = decode_any(scope.inner, &any) else { continue };
            match child(&config, "config") {
                Some(inner) if !is_true(&config, "is_optional") => found = type_of(scope.inner, &inner),
                Some(_) => continue,
                None if is_true(&config, "disabled") => continue,
                None => {
                    let text = "Envoy rejects an override without `config` that does not disable the filter";
                    refuse(row, &path, "config", text, scope);
                    continue;
                }
            }
        }
        if WITHOUT_OVERRIDE.contains(&found.as_str()) {
            let text =
                format!("Envoy rejects an override by {}, because this filter has none", short(&found));
            refuse(row, &path, "", text, scope);
        } else if !found.starts_with("envoy.extensions.") && found.starts_with("envoy.") {
            let text = format!(
                "Envoy rejects an override by {}, which is no configuration of a filter",
                short(&found)
            );
            refuse(row, &path, "", text, scope);
        }
    }
}

/// The limit of Envoy, unless the route configuration has another one.
const MAX_BODY: u64 = 4096;

const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

/// Filters that routes cannot override.
const WITHOUT_OVERRIDE: [&str; 4] = [
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
    "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
    "envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig",
];
