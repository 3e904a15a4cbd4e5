//! Fields that affect requests but that gRPC ignores (rows B121, B135, B137, B192, B205).
//!
//! Fields that gRPC does not need, such as `connect_timeout` or `stat_prefix`, are not reported.

use super::super::Effect::Ignored;
use super::super::rule::{Rule, Side, When};

const fn ignored(row: &'static str, message: &'static str, fields: &'static [&'static str]) -> Rule {
    let kind = (Ignored, "grpc-ignored-field");
    Rule::new(row, kind, message, (When::Set, fields), "gRPC ignores `{}`").on(Side::Client)
}

pub(super) const RULES: &[Rule] = &[
    ignored(
        "B137",
        "envoy.config.route.v3.RouteConfiguration",
        &["vhds", "request_headers_to_add", "request_headers_to_remove", "request_mirror_policies"],
    ),
    ignored("B135", "envoy.config.route.v3.RouteConfiguration", &["typed_per_filter_config"]),
    ignored(
        "B137",
        "envoy.config.route.v3.VirtualHost",
        &[
            "request_headers_to_add",
            "request_headers_to_remove",
            "request_mirror_policies",
            "rate_limits",
            "require_tls",
            "cors",
            "hedge_policy",
            "matcher",
        ],
    ),
    ignored("B137", "envoy.config.route.v3.Route", &["request_headers_to_add", "request_headers_to_remove"]),
    ignored(
        "B137",
        "envoy.config.route.v3.RouteAction",
        &[
            "prefix_rewrite",
            "regex_rewrite",
            "request_mirror_policies",
            "metadata_match",
            "cors",
            "rate_limits",
            "hedge_policy",
            "internal_redirect_policy",
        ],
    ),
    ignored(
        "B136",
        "envoy.config.route.v3.RouteAction",
        &["host_rewrite_literal", "host_rewrite_header", "host_rewrite_path_regex"],
    ),
    ignored(
        "B121",
        "envoy.config.route.v3.RouteAction",
        &["idle_timeout", "max_stream_duration.grpc_timeout_header_offset"],
    ),
    ignored(
        "B117",
        "envoy.config.route.v3.WeightedCluster",
        &["runtime_key_prefix", "header_name", "use_hash_policy"],
    ),
    ignored("B205", "envoy.config.cluster.v3.Cluster", &["health_checks", "lb_subset_config"]),
    ignored(
        "B196",
        "envoy.config.cluster.v3.Cluster",
        &["outlier_detection.consecutive_5xx", "outlier_detection.consecutive_gateway_failure"],
    ),
];
