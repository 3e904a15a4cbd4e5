//! Listeners, connection managers and config sources (B.2, B.3).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::super::Effect::{Fails, Ignored, Rejected};
use super::super::Language;
use super::super::any::{short, type_of};
use super::super::rule::{Fault, Rule, Scope, Side, When, enum_at, has, number_at, values_at};
use crate::message::{Message, child, list, text, texts};
use crate::path::Path;

pub(super) const HCM: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const RDS: &str = "envoy.extensions.filters.network.http_connection_manager.v3.Rds";
const LISTENER: &str = "envoy.config.listener.v3.Listener";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B38",
        (Ignored, "grpc-ignored-field"),
        LISTENER,
        (When::Set, &["listener_filters", "use_original_dst", "filter_chains", "default_filter_chain"]),
        "gRPC reads a listener with `api_listener` as a client listener and ignores `{}`",
    )
    .on(Side::Client),
    Rule::new(
        "B38",
        (Rejected, "grpc-listener"),
        LISTENER,
        (When::Set, &["listener_filters"]),
        "a gRPC client (js) rejects a listener with `{}`",
    )
    .by(&[Language::Js])
    .on(Side::Client),
    Rule::new(
        "B42",
        (Rejected, "grpc-listener"),
        LISTENER,
        (When::Is(&[2]), &["traffic_direction"]),
        "a gRPC server (java) rejects a listener of outbound traffic",
    )
    .by(&[Language::Java])
    .on(Side::Server),
    Rule::new(
        "B43",
        (Rejected, "grpc-listener"),
        LISTENER,
        (When::Set, &["listener_filters"]),
        "a gRPC server rejects a listener with `{}`",
    )
    .on(Side::Server),
    Rule::new(
        "B44",
        (Rejected, "grpc-listener"),
        LISTENER,
        (When::Set, &["use_original_dst"]),
        "a gRPC server rejects a listener with `{}`: java whenever it is set, the others only if it is true",
    )
    .on(Side::Server),
    Rule::new(
        "B40",
        (Rejected, "grpc-listener"),
        LISTENER,
        (When::Is(&[1]), &["address.socket_address.protocol"]),
        "a gRPC server (C-core) rejects a listener whose address is not TCP",
    )
    .by(&[Language::Core])
    .on(Side::Server),
    Rule::new(
        "B41",
        (Rejected, "grpc-listener"),
        LISTENER,
        (When::Set, &["address.socket_address.named_port"]),
        "a gRPC server (java) rejects a listener with a named port",
    )
    .by(&[Language::Java])
    .on(Side::Server),
    Rule::new(
        "B39",
        (Fails, "grpc-listener"),
        LISTENER,
        (When::Unset, &["address.socket_address"]),
        "a gRPC server does not serve: the address must be the one that it listens on",
    )
    .on(Side::Server),
    Rule::new(
        "B19",
        (Rejected, "grpc-route-source"),
        HCM,
        (When::Set, &["scoped_routes"]),
        "gRPC rejects `{}`; it accepts `rds` and `route_config`",
    ),
    Rule::new(
        "B15",
        (Rejected, "grpc-config-source"),
        RDS,
        (When::Unset, &["config_source"]),
        "gRPC rejects `rds` without a `{}`",
    )
    .suggest("config_source: {ads: {}}"),
    Rule::new(
        "B23",
        (Rejected, "grpc-connection-manager"),
        HCM,
        (When::Above(0), &["xff_num_trusted_hops"]),
        "gRPC rejects a connection manager with `{}`",
    )
    .by(&[Language::Core, Language::Go, Language::Java]),
    Rule::new(
        "B24",
        (Rejected, "grpc-connection-manager"),
        HCM,
        (When::Set, &["original_ip_detection_extensions"]),
        "gRPC (C-core, go, java) rejects a connection manager with `{}`",
    )
    .by(&[Language::Core, Language::Go, Language::Java]),
    Rule::new(
        "B25",
        (Rejected, "grpc-duration"),
        HCM,
        (When::BadDuration, &["common_http_protocol_options.max_stream_duration"]),
        "gRPC (C-core) rejects a duration that is negative or too long",
    )
    .by(&[Language::Core]),
    Rule::new(
        "B25",
        (Rejected, "grpc-duration"),
        HCM,
        (When::LongDuration, &["common_http_protocol_options.max_stream_duration"]),
        "gRPC (java) rejects a duration of more than 292 years",
    )
    .by(&[Language::Java]),
    Rule::new(
        "B21",
        (Rejected, "grpc-route-source"),
        RDS,
        (When::Unset, &["route_config_name"]),
        "gRPC (go) rejects an empty name; other languages ask for a route configuration of that name",
    )
    .by(&[Language::Go]),
    Rule::new(
        "B51",
        (Ignored, "grpc-unused-chain"),
        "envoy.config.listener.v3.FilterChainMatch",
        (When::Set, &["destination_port", "server_names", "application_protocols"]),
        "a gRPC server never uses a filter chain that matches by `{}`",
    ),
];

/// Row B19: routes come from somewhere.
pub(super) fn manager(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if !["rds", "route_config", "scoped_routes"].iter().any(|field| has(message, field)) {
        let fault = Fault::new("B19", Rejected, "grpc-route-source");
        let text = "gRPC rejects a connection manager without `rds` or `route_config`";
        scope.report(fault, path, "rds", text);
    }
}

pub(super) fn listener(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if scope.side == Side::Client {
        return;
    }
    let chains = list(message, "filter_chains");
    if chains.is_empty() && !has(message, "default_filter_chain") {
        let fault = Fault::new("B46", Rejected, "grpc-listener").by(&[Language::Go]);
        let text = "a gRPC server (go) rejects a listener without filter chains";
        scope.report(fault, path, "filter_chains", text);
    }
    let chains_path = path.field("filter_chains");
    let mut names = HashMap::new();
    let mut matches = HashMap::new();
    for (index, chain) in chains.iter().enumerate() {
        let path = chains_path.index(index);
        if let Some(name) = text(chain, "name")
            && let Some(first) = names.insert(name, index)
        {
            let fault = Fault::new("B47", Rejected, "grpc-listener").by(&[Language::Java]);
            let text = format!(
                "a gRPC server (java) rejects two filter chains with one name; chain {first} has the same name"
            );
            scope.report(fault, &path, "name", text);
        }
        let same = matchers(chain).into_iter().filter_map(|key| matches.insert(key, index));
        if let Some(first) = same.filter(|first| *first != index).min() {
            let fault = Fault::new("B49", Rejected, "grpc-listener");
            let text = format!(
                "a gRPC server rejects two filter chains with the same match; chain {first} has it as well"
            );
            scope.report(fault, &path, "filter_chain_match", text);
        }
    }
}

/// Row B18.
pub(super) fn api_listener(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let found = child(message, "api_listener").map(|any| type_of(scope.inner, &any)).unwrap_or_default();
    if found != HCM {
        let fault = Fault::new("B18", Rejected, "grpc-api-listener");
        let text = format!("gRPC rejects an `api_listener` of type {}", short(&found));
        let suggestion = Some("HttpConnectionManager".to_owned());
        scope.report_with(fault, path, "api_listener", text, suggestion);
    }
}

/// Rows B48 and B52.
pub(super) fn filter_chain(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let filters = list(message, "filters");
    let filters_path = path.field("filters");
    let rejected = Fault::new("B48", Rejected, "grpc-network-filter");
    let is_manager = |filter: &Message| {
        child(filter, "typed_config").map(|any| type_of(scope.inner, &any)).as_deref() == Some(HCM)
    };
    let others = filters.iter().enumerate().filter(|(_, filter)| !is_manager(filter));
    let others: Vec<usize> = others.map(|(index, _)| index).collect();
    for index in &others {
        let text = "a gRPC server rejects every network filter but the HTTP connection manager";
        scope.report(rejected, &filters_path.index(*index), "typed_config", text);
    }
    if others.is_empty() && filters.len() != 1 {
        let text =
            format!("a gRPC server needs exactly one HTTP connection manager; there are {}", filters.len());
        scope.report(rejected, path, "filters", text);
    }
    let transport = child(message, "filter_chain_match").and_then(|it| text(&it, "transport_protocol"));
    if transport.is_some_and(|protocol| protocol != "raw_buffer") {
        let fault = Fault::new("B52", Ignored, "grpc-unused-chain");
        let text = "a gRPC server never uses a filter chain that matches a transport other than `raw_buffer`";
        scope.report(fault, path, "filter_chain_match.transport_protocol", text);
    }
}

/// Row B15.
pub(super) fn config_source(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if !has(message, "ads") && !has(message, "self") {
        let fault = Fault::new("B15", Rejected, "grpc-config-source");
        let text = "gRPC rejects every config source but `ads` and `self`";
        scope.report_with(fault, path, "", text.to_owned(), Some("ads: {}".to_owned()));
    }
}

/// Row B50.
pub(super) fn cidr_range(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let prefix = text(message, "address_prefix").unwrap_or_default();
    if prefix.parse::<IpAddr>().is_err() {
        let fault = Fault::new("B50", Rejected, "grpc-address");
        scope.report(fault, path, "address_prefix", "gRPC rejects a range whose prefix is not an IP address");
    }
}

/// The conditions of a chain, one for each combination of its criteria, with ranges in normal form (gRFC A36).
fn matchers(chain: &Message) -> BTreeSet<String> {
    let Some(found) = child(chain, "filter_chain_match") else { return BTreeSet::from([String::new()]) };
    let ranges = |field| list(&found, field).iter().map(normal_range).collect::<BTreeSet<_>>();
    let ports = values_at(&found, "source_ports");
    let single = [
        format!("{:?}", number_at(&found, "destination_port")),
        format!("{:?}", text(&found, "transport_protocol")),
        format!("{}", enum_at(&found, "source_type")),
    ]
    .join(" ");
    let columns: [BTreeSet<String>; 5] = [
        ranges("prefix_ranges"),
        ranges("source_prefix_ranges"),
        ports.iter().map(|port| format!("{:?}", port.as_u32())).collect(),
        texts(&found, "server_names").collect(),
        texts(&found, "application_protocols").collect(),
    ];
    let is_default = single == "None None 0" && columns.iter().all(BTreeSet::is_empty);
    if is_default {
        return BTreeSet::from([String::new()]);
    }
    let mut rows = BTreeSet::from([single]);
    for column in columns {
        let column = if column.is_empty() { BTreeSet::from([String::new()]) } else { column };
        let joined = rows.iter().flat_map(|row| column.iter().map(move |cell| format!("{row}|{cell}")));
        rows = joined.take(MAX_MATCHERS).collect();
    }
    rows
}

fn normal_range(range: &Message) -> String {
    let length = number_at(range, "prefix_len").unwrap_or_default();
    let masked = |bits: u128, width: u32| {
        let length = u32::try_from(length).unwrap_or(width).min(width);
        let kept = if length == 0 { 0 } else { bits >> (width - length) << (width - length) };
        format!("{width}:{kept:x}/{length}")
    };
    match text(range, "address_prefix").unwrap_or_default().parse() {
        Ok(IpAddr::V4(address)) => masked(u128::from(u32::from(address)), 32),
        Ok(IpAddr::V6(address)) => masked(u128::from(address), 128),
        Err(_) => format!("{:?}", range.name()),
    }
}

/// The limit of compared combinations of one chain. Real chains have a handful.
const MAX_MATCHERS: usize = 1000;
