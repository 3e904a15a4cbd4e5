//! Clusters (B.7).

use super::super::Effect::{Crashes, Differs, Ignored, Rejected};
use super::super::Language;
use super::super::any::{short, type_of};
use super::super::rule::{Fault, Rule, Scope, When, duration_at, enum_at, has, number_at};
use super::balancing::balancing;
use super::listener;
use crate::encode::decode_any;
use crate::message::{Message, child, list, text, texts};
use crate::path::Path;

pub(super) const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B199",
        (Rejected, "grpc-transport-socket"),
        CLUSTER,
        (When::Set, &["transport_socket_matches"]),
        "gRPC (go, java) rejects a cluster with `{}`",
    )
    .by(&[Language::Go, Language::Java]),
    Rule::new(
        "B195",
        (Rejected, "grpc-outlier-detection"),
        CLUSTER,
        (
            When::Above(100),
            &[
                "outlier_detection.max_ejection_percent",
                "outlier_detection.enforcing_success_rate",
                "outlier_detection.failure_percentage_threshold",
                "outlier_detection.enforcing_failure_percentage",
            ],
        ),
        "gRPC rejects a share of more than 100 % in `{}`",
    ),
    Rule::new(
        "B194",
        (Rejected, "grpc-duration"),
        CLUSTER,
        (
            When::BadDuration,
            &[
                "outlier_detection.interval",
                "outlier_detection.base_ejection_time",
                "outlier_detection.max_ejection_time",
            ],
        ),
        "gRPC rejects a duration that is negative or too long",
    ),
];

pub(super) fn cluster(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    match (child(message, "cluster_type"), enum_at(message, "type")) {
        (Some(custom), _) => aggregate(&custom, &path.field("cluster_type"), scope),
        (None, EDS) => eds(message, path, scope),
        (None, LOGICAL_DNS) => logical_dns(message, path, scope),
        (None, other) => {
            let name = match other {
                1 => "STRICT_DNS",
                4 => "ORIGINAL_DST",
                _ => "STATIC",
            };
            let fault = Fault::new("B170", Rejected, "grpc-cluster-type");
            let text =
                format!("gRPC rejects clusters of type {name}; it accepts EDS, LOGICAL_DNS and aggregates");
            scope.report_with(fault, path, "type", text, Some("EDS".to_owned()));
        }
    }
    balancing(message, path, scope);
    if let Some(server) = child(message, "lrs_server")
        && !has(&server, "self")
    {
        let fault = Fault::new("B190", Rejected, "grpc-lrs-server");
        let text = "gRPC rejects every LRS server but `self`".to_owned();
        scope.report_with(fault, path, "lrs_server", text, Some("self: {}".to_owned()));
    }
    circuit_breakers(message, path, scope);
    outlier_detection(message, path, scope);
    upstream_config(message, path, scope);
}

/// Rows B175 to B177.
fn aggregate(custom: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let found = child(custom, "typed_config").map(|any| type_of(scope.inner, &any)).unwrap_or_default();
    if found != AGGREGATE {
        let fault = Fault::new("B175", Rejected, "grpc-cluster-type");
        let text = format!(
            "gRPC rejects clusters of type {}; the only custom type that it supports is the aggregate",
            short(&found)
        );
        return scope.report(fault, path, "typed_config", text);
    }
    if text(custom, "name").as_deref() != Some(AGGREGATE_NAME) {
        let fault = Fault::new("B176", Rejected, "grpc-cluster-type").by(&[Language::Go, Language::Java]);
        let text = "gRPC (go, java) rejects an aggregate cluster with a different type name".to_owned();
        scope.report_with(fault, path, "name", text, Some(AGGREGATE_NAME.to_owned()));
    }
    let members = child(custom, "typed_config").and_then(|any| decode_any(scope.inner, &any));
    if members.is_some_and(|config| texts(&config, "clusters").next().is_none()) {
        let fault = Fault::new("B177", Rejected, "grpc-cluster-type");
        scope.report(fault, path, "typed_config.clusters", "gRPC rejects an aggregate without clusters");
    }
}

/// Row B171.
fn eds(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let eds_path = path.field("eds_cluster_config");
    match child(message, "eds_cluster_config").and_then(|config| child(&config, "eds_config")) {
        Some(source) => listener::config_source(&source, &eds_path.field("eds_config"), scope),
        None => {
            let fault = Fault::new("B171", Rejected, "grpc-config-source");
            let text = "gRPC rejects an EDS cluster without `eds_config`".to_owned();
            scope.report_with(fault, &eds_path, "eds_config", text, Some("eds_config: {ads: {}}".to_owned()));
        }
    }
}

/// Rows B173 and B174.
fn logical_dns(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let fault = Fault::new("B173", Rejected, "grpc-logical-dns");
    let localities = child(message, "load_assignment").map(|it| list(&it, "endpoints")).unwrap_or_default();
    let endpoints: Vec<_> = localities.iter().flat_map(|locality| list(locality, "lb_endpoints")).collect();
    let ([_], [endpoint]) = (&localities[..], &endpoints[..]) else {
        let text = "gRPC rejects a LOGICAL_DNS cluster unless it has exactly one endpoint in one locality";
        return scope.report(fault, path, "load_assignment", text);
    };
    let assignment_path = path.field("load_assignment");
    let localities_path = assignment_path.field("endpoints");
    let locality_path = localities_path.index(0);
    let endpoints_path = locality_path.field("lb_endpoints");
    let path = endpoints_path.index(0);
    let address = child(endpoint, "endpoint").and_then(|endpoint| child(&endpoint, "address"));
    let Some(socket) = address.and_then(|address| child(&address, "socket_address")) else {
        let text = "gRPC rejects a LOGICAL_DNS cluster whose address is not a socket address";
        return scope.report(fault, &path, "endpoint.address", text);
    };
    if text(&socket, "address").is_none_or(|address| address.is_empty()) {
        let text = "gRPC (C-core, go, js) rejects a LOGICAL_DNS cluster without a host name";
        let fault = fault.by(&[Language::Core, Language::Go, Language::Js]);
        scope.report(fault, &path, "endpoint.address.socket_address.address", text);
    }
    let port = number_at(&socket, "port_value");
    let at = "endpoint.address.socket_address.port_value";
    if port.is_none() {
        scope.report(fault, &path, at, "gRPC rejects a LOGICAL_DNS cluster without a port number");
    }
    if port == Some(0) {
        scope.report(
            fault.by(&[Language::Go]),
            &path,
            at,
            "gRPC (go) rejects a LOGICAL_DNS cluster with port 0",
        );
    }
    if has(&socket, "resolver_name") {
        let fault = Fault::new("B174", Rejected, "grpc-logical-dns").by(&[
            Language::Core,
            Language::Go,
            Language::Java,
        ]);
        scope.report(
            fault,
            &path,
            "endpoint.address.socket_address.resolver_name",
            "gRPC (C-core, go, java) rejects a custom DNS resolver",
        );
    }
}

/// Rows B191 to B193.
fn circuit_breakers(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(breakers) = child(message, "circuit_breakers") else { return };
    let path = path.field("circuit_breakers");
    let list_path = path.field("thresholds");
    let mut n_default = 0;
    for (index, threshold) in list(&breakers, "thresholds").iter().enumerate() {
        let path = list_path.index(index);
        if enum_at(threshold, "priority") != 0 {
            continue;
        }
        n_default += 1;
        if n_default == 2 {
            let fault = Fault::new("B191", Ignored, "grpc-circuit-breaker");
            scope.report(fault, &path, "", "gRPC reads only the first thresholds of priority DEFAULT");
        }
        for field in
            ["max_connections", "max_pending_requests", "max_retries", "retry_budget", "max_connection_pools"]
        {
            if has(threshold, field) {
                let fault = Fault::new("B192", Ignored, "grpc-circuit-breaker");
                scope.report(
                    fault,
                    &path,
                    field,
                    format!("gRPC ignores `{field}`; it applies only `max_requests`"),
                );
            }
        }
    }
    let list_path = path.field("per_host_thresholds");
    for (index, threshold) in list(&breakers, "per_host_thresholds").iter().enumerate() {
        if enum_at(threshold, "priority") == 0 && number_at(threshold, "max_connections") == Some(0) {
            let fault = Fault::new("B193", Rejected, "grpc-circuit-breaker");
            scope.report(
                fault,
                &list_path.index(index),
                "max_connections",
                "gRPC with gRFC A105 rejects 0 connections",
            );
        }
    }
}

/// Row B197.
fn outlier_detection(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(detection) = child(message, "outlier_detection") else { return };
    let path = path.field("outlier_detection");
    let is_off = number_at(&detection, "enforcing_success_rate") == Some(0);
    if !is_off && number_at(&detection, "success_rate_minimum_hosts").unwrap_or_default() == 0 {
        let fault = Fault::new("B197", Crashes, "grpc-outlier-detection").by(&[Language::Js]);
        let text =
            "gRPC (js) ends its process at the first interval in which no endpoint has enough requests";
        let suggestion = Some("success_rate_minimum_hosts: 5".to_owned());
        scope.report_with(fault, &path, "success_rate_minimum_hosts", text.to_owned(), suggestion);
    }
    if !has(&detection, "enforcing_success_rate") {
        let fault = Fault::new("B197", Differs, "grpc-outlier-detection");
        let text = "gRPC ejects by success rate unless this is 0";
        let suggestion = Some("enforcing_success_rate: 0".to_owned());
        scope.report_with(fault, &path, "enforcing_success_rate", text.to_owned(), suggestion);
    }
}

/// Row B201.
fn upstream_config(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(any) = child(message, "upstream_config").and_then(|config| child(&config, "typed_config"))
    else {
        return;
    };
    let found = type_of(scope.inner, &any);
    if found != HTTP_OPTIONS {
        let fault = Fault::new("B201", Rejected, "grpc-upstream-config");
        let text = format!("gRPC rejects an `upstream_config` of type {}", short(&found));
        let suggestion = Some(short(HTTP_OPTIONS).to_owned());
        return scope.report_with(fault, path, "upstream_config.typed_config", text, suggestion);
    }
    let options = decode_any(scope.inner, &any).and_then(|it| child(&it, "common_http_protocol_options"));
    if options.and_then(|options| duration_at(&options, "idle_timeout")).is_some_and(|timeout| timeout < 0) {
        let fault = Fault::new("B201", Rejected, "grpc-duration");
        let field = "upstream_config.typed_config.common_http_protocol_options.idle_timeout";
        scope.report(fault, path, field, "gRPC rejects a negative duration");
    }
}

const LOGICAL_DNS: i32 = 2;
const EDS: i32 = 3;

pub(crate) const AGGREGATE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";
const AGGREGATE_NAME: &str = "envoy.clusters.aggregate";
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
