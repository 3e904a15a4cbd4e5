//! Messages for gRPC methods, in every shape.

use anyhow::{Context as _, Result};
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UpstreamEndpointStats, UpstreamLocalityStats,
};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::status::v3::ClientStatusRequest;
use envoy_types::pb::envoy::r#type::matcher::v3 as matcher;
use envoy_types::pb::google::protobuf::{Any, Struct, Value};
use envoy_types::pb::google::rpc::Status;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::FileDescriptorProto;
use xds_tests::config::{CLUSTER, ENDPOINTS};
use xds_tests::raw::path;
use xds_tests::shapes::Shape;

/// A message for one method.
pub(crate) struct Message {
    pub(crate) shape: String,
    pub(crate) path: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// The methods of a service, as `service/Method`, if the file declares it.
pub(crate) fn methods_of(file: &[u8], service: &str) -> Result<Vec<String>> {
    let file = FileDescriptorProto::decode(file)?;
    let prefix = format!("{}.", file.package());
    let name = service.strip_prefix(&prefix).unwrap_or(service);
    let declared = file.service.iter().filter(|declared| declared.name() == name);
    let methods = declared.flat_map(|declared| &declared.method);
    Ok(methods.map(|method| format!("{service}/{}", method.name())).collect())
}

/// Messages of about `n_bytes` for a row of the table.
pub(crate) fn of(way: &str, n_bytes: usize) -> Result<Vec<Message>> {
    let messages = match way {
        "discovery, State of the World" => sotw(path::ADS, n_bytes),
        "discovery, incremental" => delta(n_bytes),
        "discovery, unary" => sotw(FETCH_CLUSTERS, n_bytes),
        "client status" => client_status(n_bytes),
        "load reports" => load_reports(n_bytes),
        "reflection" => bare(REFLECTION, n_bytes),
        "health" => bare(HEALTH, n_bytes),
        _ => return Err(anyhow::anyhow!("no messages")).context(way.to_owned()),
    };
    Ok(messages)
}

const FETCH_CLUSTERS: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
const CLIENT_STATUS: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
const LOAD_REPORTS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

fn sotw(path: &'static str, n_bytes: usize) -> Vec<Message> {
    let request =
        DiscoveryRequest { node: Some(node("x")), type_url: CLUSTER.to_owned(), ..Default::default() };
    let with =
        |shape: String, request: DiscoveryRequest| Message { shape, path, bytes: request.encode_to_vec() };
    let mut messages = Vec::new();
    for (shape, node) in nodes(n_bytes) {
        messages.push(with(shape, DiscoveryRequest { node: Some(node), ..request.clone() }));
    }
    for (shape, names) in names(n_bytes) {
        messages.push(with(shape, DiscoveryRequest { resource_names: names, ..request.clone() }));
    }
    for (shape, error_detail) in errors(n_bytes) {
        messages.push(with(shape, DiscoveryRequest { error_detail: Some(error_detail), ..request.clone() }));
    }
    messages.push(with_unknown_fields(path, request.encode_to_vec(), n_bytes));
    messages
}

fn delta(n_bytes: usize) -> Vec<Message> {
    let path = path::ADS_DELTA;
    let request =
        DeltaDiscoveryRequest { node: Some(node("x")), type_url: CLUSTER.to_owned(), ..Default::default() };
    let with = |shape: String, request: DeltaDiscoveryRequest| Message {
        shape,
        path,
        bytes: request.encode_to_vec(),
    };
    let mut messages = Vec::new();
    for (shape, node) in nodes(n_bytes) {
        messages.push(with(shape, DeltaDiscoveryRequest { node: Some(node), ..request.clone() }));
    }
    for (shape, names) in names(n_bytes) {
        let subscribe = DeltaDiscoveryRequest {
            resource_names_subscribe: names.clone(),
            type_url: ENDPOINTS.to_owned(),
            ..request.clone()
        };
        messages.push(with(format!("{shape}, subscribed"), subscribe));
        let versions = names.into_iter().map(|name| (name, String::new())).collect();
        let held = DeltaDiscoveryRequest { initial_resource_versions: versions, ..request.clone() };
        messages.push(with(format!("{shape}, held"), held));
    }
    let globs =
        (0..n_bytes / 60).map(|n| format!("xdstp://a/envoy.config.cluster.v3.Cluster/{n}/*")).collect();
    messages.push(with(
        "globs".to_owned(),
        DeltaDiscoveryRequest { resource_names_subscribe: globs, ..request.clone() },
    ));
    messages.push(with_unknown_fields(path, request.encode_to_vec(), n_bytes));
    messages
}

fn client_status(n_bytes: usize) -> Vec<Message> {
    let path = CLIENT_STATUS;
    let with = |shape: &str, node_matchers: Vec<matcher::NodeMatcher>| {
        let request = ClientStatusRequest { node_matchers, ..Default::default() };
        Message { shape: shape.to_owned(), path, bytes: request.encode_to_vec() }
    };
    let by_id = |pattern: matcher::string_matcher::MatchPattern| matcher::NodeMatcher {
        node_id: Some(matcher::StringMatcher { match_pattern: Some(pattern), ignore_case: false }),
        node_metadatas: vec![],
    };
    let regex = |text: &str| {
        let regex = matcher::RegexMatcher { regex: text.to_owned(), engine_type: None };
        by_id(matcher::string_matcher::MatchPattern::SafeRegex(regex))
    };
    let mut messages = vec![
        with("nothing", vec![]),
        with("empty matchers", vec![matcher::NodeMatcher::default(); n_bytes / 2]),
        with("short regexes", vec![regex(r"a"); n_bytes / 9]),
        with("costly regexes", vec![regex(r"\w{1,20}a"); n_bytes / 17]),
        with("a long regex", vec![regex(&"a".repeat(n_bytes))]),
    ];
    for (shape, node) in nodes(n_bytes) {
        let request = ClientStatusRequest { node: Some(node), ..Default::default() };
        messages.push(Message { shape, path, bytes: request.encode_to_vec() });
    }
    messages
}

/// Reports beyond a limit are refused while they are read; so every shape comes within the limits too.
fn load_reports(n_bytes: usize) -> Vec<Message> {
    let path = LOAD_REPORTS;
    let with = |shape: &str, cluster_stats: Vec<ClusterStats>| {
        let request = LoadStatsRequest { node: Some(node("x")), cluster_stats };
        Message { shape: shape.to_owned(), path, bytes: request.encode_to_vec() }
    };
    let named = |n: usize| ClusterStats { cluster_name: format!("{n}"), ..Default::default() };
    let long = ClusterStats { cluster_name: "a".repeat(n_bytes), ..Default::default() };
    let mut messages = vec![
        with("empty clusters", vec![ClusterStats::default(); n_bytes / 2]),
        with("many clusters", (0..n_bytes / 10).map(named).collect()),
        with("a long name", vec![long]),
    ];
    for (shape, limit, stats) in cluster_shapes() {
        let n_one = stats(1).encoded_len() - stats(0).encoded_len();
        messages.push(with(&format!("{shape} in one cluster"), vec![stats(n_bytes / n_one)]));
        let n_clusters = n_bytes / (limit * n_one);
        messages.push(with(&format!("{shape} in many clusters"), vec![stats(limit); n_clusters.max(1)]));
    }
    let report = LoadStatsRequest { node: Some(node("x")), cluster_stats: vec![named(1)] }.encode_to_vec();
    messages.push(Message {
        shape: "empty nodes".to_owned(),
        path,
        bytes: [&[0x0a, 0].repeat(n_bytes / 2), &*report].concat(),
    });
    for (shape, unknown) in deep_fields(n_bytes) {
        let bytes = [&*report, &*unknown].concat();
        messages.push(Message { shape: shape.to_owned(), path, bytes });
        let mut bytes = report.clone();
        encode_key(2, WireType::LengthDelimited, &mut bytes);
        encode_varint(unknown.len() as u64, &mut bytes);
        bytes.extend(unknown);
        messages.push(Message { shape: format!("{shape} in a cluster"), path, bytes });
    }
    for (shape, node) in nodes(n_bytes) {
        let request = LoadStatsRequest { node: Some(node), ..Default::default() };
        messages.push(Message { shape, path, bytes: request.encode_to_vec() });
    }
    messages.push(with_unknown_fields(path, report, n_bytes));
    // The last one, because it takes the room of all series, with clusters that are not served.
    let unknown = |n: usize| ClusterStats { cluster_name: n.to_string(), ..priorities(64) };
    messages.push(with("made-up clusters with many priorities", (0..n_bytes / 270).map(unknown).collect()));
    messages
}

/// A shape of a cluster's report: its name, the limit of its parts, and a function that makes a report with a number of parts.
type ClusterShape = (&'static str, usize, fn(usize) -> ClusterStats);

fn cluster_shapes() -> [ClusterShape; 9] {
    [
        ("empty localities", 1000, |n| localities(vec![Default::default(); n])),
        ("zones", 1000, |n| {
            let place = |n: usize| Locality { zone: n.to_string(), ..Default::default() };
            let zone = |n| UpstreamLocalityStats { locality: Some(place(n)), ..Default::default() };
            localities((0..n).map(zone).collect())
        }),
        ("priorities", 1000, priorities),
        ("empty drop categories", 100, |n| ClusterStats {
            dropped_requests: vec![Default::default(); n],
            ..base()
        }),
        ("empty endpoints", 10_000, |n| endpoints(vec![Default::default(); n])),
        ("endpoint metadata of empty maps", 10_000, |n| {
            let list = Shape::EmptyMaps.value(2 * n);
            let metadata = Some(Struct { fields: [("a".to_owned(), list)].into() });
            endpoints(vec![UpstreamEndpointStats { metadata, ..Default::default() }])
        }),
        ("empty metrics", 1000, |n| metrics(vec![Default::default(); n])),
        ("metrics of one request", 1000, |n| {
            let metric = |n: usize| EndpointLoadMetricStats {
                metric_name: n.to_string(),
                num_requests_finished_with_metric: 1,
                total_metric_value: 0.0,
            };
            metrics((0..n).map(metric).collect())
        }),
        ("localities of 16 metrics", 1000, |n| {
            let metric =
                EndpointLoadMetricStats { num_requests_finished_with_metric: 1, ..Default::default() };
            let locality =
                UpstreamLocalityStats { load_metric_stats: vec![metric; 16], ..Default::default() };
            localities(vec![locality; n])
        }),
    ]
}

/// A report of the cluster that everyone is served.
fn base() -> ClusterStats {
    ClusterStats { cluster_name: "base".to_owned(), ..Default::default() }
}

fn localities(upstream_locality_stats: Vec<UpstreamLocalityStats>) -> ClusterStats {
    ClusterStats { upstream_locality_stats, ..base() }
}

fn priorities(n: usize) -> ClusterStats {
    let priority = |n| UpstreamLocalityStats { priority: n, ..Default::default() };
    localities((0..n as u32).map(priority).collect())
}

fn endpoints(upstream_endpoint_stats: Vec<UpstreamEndpointStats>) -> ClusterStats {
    localities(vec![UpstreamLocalityStats { upstream_endpoint_stats, ..Default::default() }])
}

fn metrics(load_metric_stats: Vec<EndpointLoadMetricStats>) -> ClusterStats {
    localities(vec![UpstreamLocalityStats { load_metric_stats, ..Default::default() }])
}

/// Nested unknown fields: messages as deep as the bytes allow, and deprecated groups.
fn deep_fields(n_bytes: usize) -> [(&'static str, Vec<u8>); 2] {
    let mut lengths = Vec::new();
    let mut n_inside = 0;
    while n_inside < n_bytes {
        let mut header = Vec::new();
        encode_key(15, WireType::LengthDelimited, &mut header);
        encode_varint(n_inside as u64, &mut header);
        n_inside += header.len();
        lengths.push(header);
    }
    let messages: Vec<u8> = lengths.into_iter().rev().flatten().collect();
    let [begin, end] = [3, 4].map(|form| [15 << 3 | form].repeat(n_bytes / 2));
    [("deep unknown messages", messages), ("deep unknown groups", [begin, end].concat())]
}

/// Messages in which the reader knows one text field at most.
fn bare(path: &'static str, n_bytes: usize) -> Vec<Message> {
    let mut text = Vec::new();
    encode_key(1, WireType::LengthDelimited, &mut text);
    encode_varint(n_bytes as u64, &mut text);
    text.resize(text.len() + n_bytes, b'a');
    vec![
        Message { shape: "a long text".to_owned(), path, bytes: text },
        with_unknown_fields(path, vec![], n_bytes),
    ]
}

fn with_unknown_fields(path: &'static str, mut bytes: Vec<u8>, n_bytes: usize) -> Message {
    while bytes.len() < n_bytes {
        encode_key(999, WireType::Varint, &mut bytes);
        encode_varint(0, &mut bytes);
    }
    Message { shape: "unknown fields".to_owned(), path, bytes }
}

fn node(id: &str) -> Node {
    Node { id: id.to_owned(), ..Default::default() }
}

fn nodes(n_bytes: usize) -> Vec<(String, Node)> {
    let with = |(shape, value): (String, Value)| {
        let metadata = Struct { fields: [("a".to_owned(), value)].into() };
        (format!("metadata, {shape}"), Node { metadata: Some(metadata), ..node("x") })
    };
    let shapes = Shape::ALL.into_iter().map(|shape| (format!("{shape:?}"), shape.value(n_bytes)));
    let mut nodes: Vec<_> = shapes.map(with).collect();
    nodes.push(("a long node id".to_owned(), node(&"a".repeat(n_bytes))));
    let features = vec![String::new(); n_bytes / 2];
    nodes.push(("client features".to_owned(), Node { client_features: features, ..node("x") }));
    let extensions = vec![Default::default(); n_bytes / 2];
    nodes.push(("empty extensions".to_owned(), Node { extensions, ..node("x") }));
    nodes
}

fn names(n_bytes: usize) -> Vec<(String, Vec<String>)> {
    vec![
        ("empty names".to_owned(), vec![String::new(); n_bytes / 2]),
        ("one name again and again".to_owned(), vec!["a".to_owned(); n_bytes / 3]),
        ("many names".to_owned(), (0..n_bytes / 8).map(|n| n.to_string()).collect()),
        ("a long name".to_owned(), vec!["a".repeat(n_bytes)]),
    ]
}

fn errors(n_bytes: usize) -> Vec<(String, Status)> {
    let long = Status { message: "a".repeat(n_bytes), ..Default::default() };
    let details = Status { details: vec![Any::default(); n_bytes / 2], ..Default::default() };
    vec![("a long error".to_owned(), long), ("error details".to_owned(), details)]
}
