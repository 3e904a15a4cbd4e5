//! Clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use crate::emit::Emitted;
use crate::emit::shared::{
    NO_LIMIT, UNAVAILABLE, ads, aggregate_type, duration, eds_config, socket_address, type_of, with,
    with_drain,
};
use crate::model::{BackendLimits, LbPolicy};
use crate::plan::{Address, BackendProtocol, Cluster, ClusterRef, Discovery, Plan, UpstreamTls};

/// A cluster of the plan for Envoys, once for each protocol.
pub(crate) fn cluster<'p>(plan: &'p Plan, name: &'p str, cluster: &'p Cluster) -> Vec<Emitted<'p>> {
    let leaves = match &cluster.discovery {
        Discovery::Aggregate(_) => leaves(plan, name),
        Discovery::Eds { .. } | Discovery::Dns(_) | Discovery::Static(_) => Vec::new(),
    };
    let emitted = cluster.protocols.iter().map(|protocol| {
        let backend = ClusterRef { name: name.to_owned(), protocol: *protocol };
        let inputs = (backend, cluster, leaves.clone());
        let write: fn(&(ClusterRef, &'p Cluster, Vec<&'p str>)) -> Json =
            |(backend, cluster, leaves)| message(backend, cluster, leaves);
        Emitted::new("Envoy cluster", inputs, write, &cluster.origin)
    });
    emitted.collect()
}

/// The name of the cluster for a backend: the backend's own name, followed by `/h2` for HTTP/2. It depends on nothing else, so changes
/// of other routes never change its meaning.
pub(super) fn name(backend: &ClusterRef) -> String {
    match backend.protocol {
        BackendProtocol::Http1 => backend.name.clone(),
        BackendProtocol::Http2 => format!("{}/h2", backend.name),
    }
}

/// The cluster for the broken part of a gRPC route. It has no endpoints (C48).
pub(super) fn unavailable() -> Json {
    let (discovery, common) = (eds(UNAVAILABLE), common(UNAVAILABLE, CONNECT_TIMEOUT));
    merged(common, discovery)
}

fn message(backend: &ClusterRef, cluster: &Cluster, leaves: &[&str]) -> Json {
    let name = name(backend);
    let timeout = if cluster.is_fallback_member { MEMBER_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
    let common = with_drain(common(&name, timeout), cluster.drain);
    let tls = match &cluster.tls {
        // The policy requires TLS that cannot be set up, so requests fail instead of using plaintext.
        Some(UpstreamTls::Invalid) => {
            let message = merged(common, eds(UNAVAILABLE));
            return match cluster.has_sessions {
                // There is no endpoint for a session, but this setting decides whether sessions can be kept at all (C87).
                true => with(message, "common_lb_config", common_lb_config(cluster)),
                false => message,
            };
        }
        Some(UpstreamTls::Verified { sni, alt_names, trusted }) => {
            Some(transport_socket(sni, alt_names, trusted.as_deref(), backend.protocol))
        }
        None => None,
    };
    let common = with(common, "circuit_breakers", circuit_breakers(cluster.limits));
    let discovery = match &cluster.discovery {
        Discovery::Eds { assignment } => eds(assignment),
        Discovery::Dns(names) => dns(&name, names),
        Discovery::Static(addresses) => fixed(&name, addresses),
        Discovery::Aggregate(_) => return merged(common, aggregate(leaves, backend.protocol)),
    };
    let mut message = merged(common, discovery);
    let lb_policy = match cluster.lb_policy {
        LbPolicy::RoundRobin => "ROUND_ROBIN",
        LbPolicy::LeastRequest => "LEAST_REQUEST",
    };
    message = with(message, "lb_policy", lb_policy);
    message = with(message, "common_lb_config", common_lb_config(cluster));
    if backend.protocol == BackendProtocol::Http2 {
        message = with(message, "typed_extension_protocol_options", http2());
    }
    if let Some(tls) = tls {
        message = with(message, "transport_socket", tls);
    }
    match cluster.is_fallback_member {
        true => with(message, "outlier_detection", outlier_detection()),
        false => message,
    }
}

/// Limits of the cluster. By default, Envoy allows 1,024 connections, 1,024 requests, 1,024 waiting requests and 3 retries.
fn circuit_breakers(limits: BackendLimits) -> Json {
    let or_none = |limit: Option<u32>| limit.unwrap_or(NO_LIMIT);
    json!({"thresholds": [{
        "max_connections": or_none(limits.connections),
        "max_pending_requests": or_none(limits.pending),
        "max_requests": or_none(limits.requests),
        "max_retries": NO_LIMIT,
    }]})
}

fn common(name: &str, connect_timeout: Duration) -> Json {
    json!({
        "@type": type_of("config.cluster.v3.Cluster"),
        "name": name,
        "connect_timeout": duration(connect_timeout),
    })
}

fn merged(object: Json, fields: Map<String, Json>) -> Json {
    fields.into_iter().fold(object, |object, (field, value)| with(object, &field, value))
}

fn fields<const N: usize>(fields: [(&str, Json); N]) -> Map<String, Json> {
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

fn eds(assignment: &str) -> Map<String, Json> {
    fields([("type", "EDS".into()), ("eds_cluster_config", eds_config(assignment))])
}

/// A single name is one logical host, reached by whichever of its addresses answers first. Of several names, each address is an
/// endpoint. Then only one address family is used, because addresses of IPv6 would fail where it is off.
fn dns(cluster: &str, names: &[(String, u16)]) -> Map<String, Json> {
    let (discovery, family) = match names {
        [_] => ("LOGICAL_DNS", "ALL"),
        _ => ("STRICT_DNS", "V4_PREFERRED"),
    };
    let endpoints = names.iter().map(|(host, port)| socket_address(host, *port));
    fields([
        ("type", discovery.into()),
        ("dns_lookup_family", family.into()),
        ("load_assignment", inline_assignment(cluster, endpoints.collect())),
    ])
}

/// Fixed endpoints. Names need a resolver, which accepts addresses too, but no Unix sockets. Documents cannot mix names and sockets; if
/// they did, the sockets would be left out here, because Envoy rejects the whole cluster.
fn fixed(cluster: &str, addresses: &[Address]) -> Map<String, Json> {
    let has_names = addresses.iter().any(|address| matches!(address, Address::Dns(..)));
    let endpoints = addresses.iter().filter_map(|address| match address {
        Address::Ip(ip, port) => Some(socket_address(&ip.to_string(), *port)),
        Address::Dns(host, port) => Some(socket_address(host, *port)),
        Address::Unix(_) if has_names => None,
        Address::Unix(path) => Some(json!({"pipe": {"path": path}})),
    });
    let assignment = inline_assignment(cluster, endpoints.collect());
    match has_names {
        true => fields([
            ("type", "STRICT_DNS".into()),
            ("dns_lookup_family", "V4_PREFERRED".into()),
            ("load_assignment", assignment),
        ]),
        false => fields([("type", "STATIC".into()), ("load_assignment", assignment)]),
    }
}

fn inline_assignment(cluster: &str, addresses: Vec<Json>) -> Json {
    let endpoints: Vec<Json> =
        addresses.into_iter().map(|address| json!({"endpoint": {"address": address}})).collect();
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]})
}

/// Envoys require the load balancing policy that gRPC rejects.
fn aggregate(leaves: &[&str], protocol: BackendProtocol) -> Map<String, Json> {
    let names: Vec<String> =
        leaves.iter().map(|leaf| name(&ClusterRef { name: (*leaf).to_owned(), protocol })).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fields([("cluster_type", aggregate_type(&names)), ("lb_policy", "CLUSTER_PROVIDED".into())])
}

/// The members of an aggregate. Envoys see no endpoints in an aggregate of aggregates, so members that are aggregates are replaced by
/// their own members. A duplicate stays only at its first position.
fn leaves<'p>(plan: &'p Plan, aggregate: &'p str) -> Vec<&'p str> {
    let (mut leaves, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open = vec![aggregate];
    while let Some(member) = open.pop() {
        if !seen.insert(member) {
            continue;
        }
        match plan.clusters.get(member) {
            Some(Cluster { discovery: Discovery::Aggregate(members), tls, .. })
                if *tls != Some(UpstreamTls::Invalid) =>
            {
                open.extend(members.iter().rev().map(String::as_str));
            }
            Some(_) | None => leaves.push(member),
        }
    }
    leaves
}

/// The settings for panic: sending requests to unhealthy endpoints because too few are healthy.
///
/// A member of a fallback never panics, or the next member would get no requests. It also applies changes of health at once; by
/// default these are merged for a second, in which dead endpoints would still get requests. Other clusters panic only if no endpoint
/// is healthy. Then draining endpoints still serve, but in a rollout, where most endpoints drain, they get no new requests.
fn common_lb_config(cluster: &Cluster) -> Json {
    let config = match cluster.is_fallback_member {
        true => json!({"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"}),
        false => json!({"healthy_panic_threshold": {"value": 1}}),
    };
    match cluster.has_sessions {
        // Sessions stay with draining endpoints until these are gone. The default leaves these out.
        true => {
            let statuses = ["UNKNOWN", "HEALTHY", "DEGRADED", "DRAINING"];
            with(config, "override_host_status", json!({"statuses": statuses}))
        }
        false => config,
    }
}

fn http2() -> Json {
    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": type_of("extensions.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": {"http2_protocol_options": {}},
    }})
}

/// Detects dead endpoints only by failed connections, like gRPC (gRFC A37): an error from the application is no reason to leave an
/// endpoint. All endpoints may be ejected, or requests would never move on to the next member.
fn outlier_detection() -> Json {
    json!({
        "split_external_local_origin_errors": true,
        "consecutive_local_origin_failure": 2,
        "enforcing_consecutive_local_origin_failure": 100,
        "enforcing_local_origin_success_rate": 0,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "max_ejection_percent": 100,
        "interval": "1s",
        "base_ejection_time": "5s",
        "max_ejection_time": "60s",
    })
}

fn transport_socket(
    sni: &str,
    alt_names: &[String],
    trusted: Option<&str>,
    protocol: BackendProtocol,
) -> Json {
    let alpn = match protocol {
        BackendProtocol::Http1 => "http/1.1",
        BackendProtocol::Http2 => "h2",
    };
    let matchers: Vec<Json> = alt_names
        .iter()
        .map(|name| {
            let san_type = if name.contains("://") { "URI" } else { "DNS" };
            json!({"san_type": san_type, "matcher": {"exact": name}})
        })
        .collect();
    let names = json!({"match_typed_subject_alt_names": matchers});
    let validation = match trusted {
        Some(secret) => (
            "combined_validation_context",
            json!({
                "default_validation_context": names,
                "validation_context_sds_secret_config": {"name": secret, "sds_config": ads()},
            }),
        ),
        None => ("validation_context", with(names, "trusted_ca", json!({"filename": SYSTEM_CERTIFICATES}))),
    };
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": type_of("extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
            "sni": sni,
            "common_tls_context": with(json!({"alpn_protocols": [alpn]}), validation.0, validation.1),
        },
    })
}

/// The path of trusted certificates in Debian and its derivatives, such as Envoy's own images.
const SYSTEM_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Envoy's default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Shorter, because requests wait this long until a dead endpoint is detected.
const MEMBER_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
