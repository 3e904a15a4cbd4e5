//! Clusters: their types, load balancing and health checks (rows D43, D44, D50, D65 and D123).

use super::super::Effect::Rejected;
use super::super::any::type_of;
use super::super::rule::{Fault, Scope, duration_at, enum_at, has, number_at, value_at, values_at};
use super::shared::{fault, refuse};
use crate::encode::decode_any;
use crate::message::{Message, child, entries, list};
use crate::path::Path;

const ROW: (&str, &str) = ("D123", "envoy-cluster");

pub(super) fn cluster(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let custom = child(message, "cluster_type").and_then(|custom| child(&custom, "typed_config"));
    let custom = custom.map(|any| type_of(scope.inner, &any));
    let discovery = enum_at(message, "type");
    let is_eds = custom.is_none() && discovery == EDS;
    let eds = child(message, "eds_cluster_config");
    if is_eds && eds.as_ref().is_none_or(|eds| !has(eds, "eds_config")) {
        let fault = Fault::new("D65", Rejected, "envoy-eds-config");
        let text = "Envoy rejects an EDS cluster without `eds_config`".to_owned();
        let suggestion = Some("eds_config: {ads: {}}".to_owned());
        scope.report_with(fault, path, "eds_cluster_config.eds_config", text, suggestion);
    }
    if !is_eds && custom.is_none() && eds.is_some() {
        let fault = Fault::new("D65", Rejected, "envoy-eds-config");
        let text = "Envoy rejects `eds_cluster_config` in a cluster that is not of type EDS".to_owned();
        scope.report_with(fault, path, "eds_cluster_config", text, Some("type: EDS".to_owned()));
    }
    let provides = match &custom {
        Some(name) => PROVIDERS.contains(&name.as_str()).then_some(short_name(name)),
        None => (discovery == ORIGINAL_DST).then_some("ORIGINAL_DST"),
    };
    lb_policy(message, provides, custom.is_none(), path, scope);
    policy_list(message, path, scope);
    protocols(message, path, scope);
    let assignment = child(message, "load_assignment");
    if custom.is_none() && discovery == ORIGINAL_DST && assignment.is_some() {
        let text = "Envoy rejects endpoints in a cluster of type ORIGINAL_DST";
        refuse(ROW, path, "load_assignment", text, scope);
    }
    if enum_at(message, "lb_policy") == MAGLEV
        && !has(message, "load_balancing_policy")
        && let Some(maglev) = child(message, "maglev_lb_config")
    {
        table_size(&maglev, &path.field("maglev_lb_config"), scope);
    }
    if custom.is_none() && discovery == LOGICAL_DNS {
        let localities = assignment.as_ref().map(|it| list(it, "endpoints")).unwrap_or_default();
        let n_endpoints: usize = localities.iter().map(|one| list(one, "lb_endpoints").len()).sum();
        if (localities.len(), n_endpoints) != (1, 1) {
            let fault = Fault::new("D50", Rejected, "envoy-logical-dns");
            let text =
                "Envoy rejects a LOGICAL_DNS cluster unless it has exactly one endpoint in one locality";
            scope.report(fault, path, "load_assignment", text);
        }
    }
    if custom.is_none()
        && [STRICT_DNS, LOGICAL_DNS].contains(&discovery)
        && let Some(assignment) = &assignment
    {
        super::endpoints::no_resolver(assignment, &path.field("load_assignment"), scope);
    }
    if let Some(assignment) = assignment.filter(|_| custom.is_none() && discovery == STATIC) {
        super::endpoints::addresses(&assignment, &path.field("load_assignment"), scope);
    }
    if enum_at(message, "lb_policy") == RING_HASH
        && !has(message, "load_balancing_policy")
        && let Some(config) = child(message, "ring_hash_lb_config")
    {
        ring(&config, &path.field("ring_hash_lb_config"), scope);
    }
}

/// Row D44: only clusters with their own load balancing need CLUSTER_PROVIDED, and these must have it.
fn lb_policy(
    message: &Message,
    provides: Option<&str>,
    is_built_in: bool,
    path: &Path<'_>,
    scope: &mut Scope<'_>,
) {
    let policies = child(message, "load_balancing_policy").map(|policy| list(&policy, "policies"));
    let of_list = policies.as_ref().and_then(|policies| policies.first()).map(|first| {
        let any = child(first, "typed_extension_config").and_then(|config| child(&config, "typed_config"));
        any.is_some_and(|any| type_of(scope.inner, &any).ends_with(".ClusterProvided"))
    });
    let field = if of_list.is_some() { "load_balancing_policy" } else { "lb_policy" };
    let is_provided = of_list.unwrap_or(enum_at(message, "lb_policy") == CLUSTER_PROVIDED);
    let fault = Fault::new("D44", Rejected, "envoy-cluster-provided");
    match provides {
        Some(name) if !is_provided => {
            let text = format!("Envoy requires CLUSTER_PROVIDED for a cluster of type {name}");
            scope.report_with(fault, path, field, text, Some("CLUSTER_PROVIDED".to_owned()));
        }
        None if is_provided && is_built_in => {
            let text = "Envoy rejects CLUSTER_PROVIDED for a type of cluster that provides no load balancing"
                .to_owned();
            scope.report_with(fault, path, field, text, Some("ROUND_ROBIN".to_owned()));
        }
        Some(_) | None => {}
    }
}

/// Shortens `envoy.extensions.clusters.aggregate.v3.ClusterConfig` to `aggregate`.
fn short_name(name: &str) -> &str {
    name.split('.').nth(3).unwrap_or(name)
}

const STATIC: i32 = 0;
const STRICT_DNS: i32 = 1;
const LOGICAL_DNS: i32 = 2;
const EDS: i32 = 3;
const ORIGINAL_DST: i32 = 4;
const RING_HASH: i32 = 2;
const CLUSTER_PROVIDED: i32 = 6;

/// Custom types of clusters with their own load balancing.
const PROVIDERS: [&str; 3] = [
    "envoy.extensions.clusters.aggregate.v3.ClusterConfig",
    "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig",
    "envoy.extensions.clusters.redis.v3.RedisClusterConfig",
];

/// Checks a ring's bounds, which have defaults.
pub(super) fn ring(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let minimum = number_at(message, "minimum_ring_size").unwrap_or(DEFAULT_RING_SIZE);
    let maximum = number_at(message, "maximum_ring_size").unwrap_or(MAX_RING_SIZE);
    if minimum > maximum {
        let text = format!("Envoy rejects a minimum ring size ({minimum}) above the maximum ({maximum})");
        let field = if has(message, "minimum_ring_size") { "minimum_ring_size" } else { "maximum_ring_size" };
        refuse(("D43", "envoy-ring-hash"), path, field, text, scope);
    }
}

/// The table of Maglev has a prime number of entries.
pub(super) fn table_size(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(size) = number_at(message, "table_size").filter(|size| *size <= MAX_TABLE_SIZE) else { return };
    let is_prime = size >= 2 && (2..).take_while(|n| n * n <= size).all(|n| size % n != 0);
    if !is_prime {
        let text = format!("Envoy rejects a Maglev table of {size}, which is no prime number");
        let fault = fault(ROW);
        scope.report_with(fault, path, "table_size", text, Some("65537".to_owned()));
    }
}

/// The list of policies excludes older fields.
fn policy_list(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(policy) = child(message, "load_balancing_policy") else {
        if enum_at(message, "lb_policy") == OF_LIST {
            let text = "Envoy rejects LOAD_BALANCING_POLICY_CONFIG without `load_balancing_policy`";
            refuse(ROW, path, "load_balancing_policy", text, scope);
        }
        if enum_at(message, "lb_policy") == CLUSTER_PROVIDED && has(message, "lb_subset_config") {
            let text = "Envoy rejects `lb_subset_config` beside CLUSTER_PROVIDED";
            refuse(ROW, path, "lb_subset_config", text, scope);
        }
        return;
    };
    let parts = ["zone_aware_lb_config", "locality_weighted_lb_config", "consistent_hashing_lb_config"];
    let parts = parts.map(|part| format!("common_lb_config.{part}"));
    for field in ["lb_subset_config".to_owned()].iter().chain(&parts).filter(|field| has(message, field)) {
        let text = format!("Envoy rejects `{field}` beside `load_balancing_policy`");
        refuse(ROW, path, field, text, scope);
    }
    if list(&policy, "policies").is_empty() {
        let text = "Envoy rejects a list without policies";
        refuse(ROW, path, "load_balancing_policy.policies", text, scope);
    }
}

/// Protocols of a cluster: which one TLS chooses, and which one health checks need.
fn protocols(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let all = entries(message, "typed_extension_protocol_options");
    let options = all.map(|(_, any)| any).find(|any| type_of(scope.inner, any) == HTTP_OPTIONS);
    let options = options.and_then(|any| decode_any(scope.inner, &any));
    let options = options.as_ref();
    let has_tls = has(message, "transport_socket") || has(message, "transport_socket_matches");
    if options.is_some_and(|options| has(options, "auto_config")) && !has_tls {
        let text = "Envoy rejects `auto_config` without a transport socket that chooses the protocol by ALPN";
        refuse(ROW, path, "typed_extension_protocol_options", text, scope);
    }
    let is_http3 = options.is_some_and(|options| has(options, "explicit_http_config.http3_protocol_options"));
    if is_http3 && !has_tls {
        let text = "Envoy rejects HTTP/3 without a QUIC transport socket";
        refuse(ROW, path, "typed_extension_protocol_options", text, scope);
    }
    let explicit = options.and_then(|options| child(options, "explicit_http_config"));
    let is_http2 = match (options, explicit) {
        (Some(_), Some(explicit)) => !has(&explicit, "http_protocol_options"),
        (Some(options), None) => {
            has(options, "auto_config")
                || has(options, "use_downstream_protocol_config.http2_protocol_options")
        }
        (None, _) => has(message, "http2_protocol_options"),
    };
    let checks = list(message, "health_checks");
    let list_path = path.field("health_checks");
    for (index, check) in checks.iter().enumerate() {
        let path = list_path.index(index);
        if has(check, "grpc_health_check") && !is_http2 {
            let text = "Envoy rejects a gRPC health check of a cluster that has no HTTP/2".to_owned();
            let suggestion = Some("explicit_http_config: {http2_protocol_options: {}}".to_owned());
            scope.report_with(fault(ROW), &path, "grpc_health_check", text, suggestion);
        }
    }
    if checks.len() > 1
        && let Some(index) = checks.iter().position(|check| !has(check, "name"))
    {
        let text = "Envoy rejects several health checks unless each has a name";
        refuse(ROW, &list_path.index(index), "name", text, scope);
    }
}

/// Checks the statuses, the method and the payload of a health check by HTTP.
pub(super) fn http_check(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    for field in ["expected_statuses", "retriable_statuses"] {
        let list_path = path.field(field);
        for (index, range) in list(message, field).iter().enumerate() {
            let start = signed_at(range, "start");
            let end = signed_at(range, "end");
            if start < 100 || end > 600 || start >= end {
                let text = format!(
                    "Envoy rejects the statuses from {start} to {end}: they are from 100 to 599, and the end is one more than the last"
                );
                refuse(ROW, &list_path.index(index), "", text, scope);
            }
        }
    }
    let takes_body = BODIES.contains(&enum_at(message, "method"));
    if has(message, "send") && !takes_body {
        let text = "Envoy rejects a payload unless the method is POST, PUT, PATCH or OPTIONS";
        refuse(ROW, path, "send", text, scope);
    }
}

fn signed_at(message: &Message, field: &str) -> i64 {
    value_at(message, field).and_then(|value| value.as_i64()).unwrap_or_default()
}

/// Checks the keys that a selector of subsets falls back to.
pub(super) fn subset(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let names = |field| {
        values_at(message, field).iter().filter_map(|it| it.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let (keys, fallback) = (names("keys"), names("fallback_keys_subset"));
    let is_by_keys = enum_at(message, "fallback_policy") == KEYS_SUBSET;
    let text = match (is_by_keys, fallback.is_empty()) {
        (false, true) => return,
        (false, false) => "Envoy rejects `fallback_keys_subset` unless `fallback_policy` is KEYS_SUBSET",
        (true, true) => "Envoy rejects KEYS_SUBSET without `fallback_keys_subset`",
        (true, false) if fallback.iter().any(|key| !keys.contains(key)) => {
            "Envoy rejects `fallback_keys_subset` with a key that `keys` does not have"
        }
        (true, false) if keys.iter().all(|key| fallback.contains(key)) => {
            "Envoy rejects `fallback_keys_subset` with all of `keys`"
        }
        (true, false) => return,
    };
    refuse(ROW, path, "fallback_keys_subset", text, scope);
}

/// The longest time of an ejection is not below the first one.
pub(super) fn ejection(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let base = duration_at(message, "base_ejection_time").unwrap_or(DEFAULT_EJECTION);
    if duration_at(message, "max_ejection_time").is_some_and(|most| most < base) {
        let text = "Envoy rejects a `max_ejection_time` below `base_ejection_time`, which is 30 s by default";
        refuse(ROW, path, "max_ejection_time", text, scope);
    }
}

const MAGLEV: i32 = 5;
const OF_LIST: i32 = 7;
const KEYS_SUBSET: i32 = 4;
const DEFAULT_RING_SIZE: u64 = 1024;

/// The default, and the limit of `validate.rules`.
const MAX_RING_SIZE: u64 = 8 << 20;

/// The limit of `validate.rules`. It bounds the search for a divisor.
const MAX_TABLE_SIZE: u64 = 5_000_011;

/// 30 s.
const DEFAULT_EJECTION: i128 = 30_000_000_000;

/// POST, PUT, OPTIONS and PATCH.
const BODIES: [i32; 4] = [3, 4, 7, 9];

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
