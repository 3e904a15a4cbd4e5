//! Messages that are too large or malformed are refused with a clear status, on their own stream only.

use axum::Router;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use tonic::Code;
use tower::Service as _;
use xds_session::Limits;

use super::support::*;
use crate::grpc::{GrpcConfig, discovery};

#[tokio::test]
async fn pitfall_59_a_message_may_be_large_but_not_larger_than_the_limit() {
    let config = GrpcConfig { max_message_bytes: 6 * 1024 * 1024, ..GrpcConfig::default() };
    let server = Server::with(config).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let with_versions = |n_bytes: usize| DeltaDiscoveryRequest {
        node: node("n"),
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(),
        initial_resource_versions: (0..n_bytes / 1000).map(|i| (format!("{i:0>980}"), "v".into())).collect(),
        ..Default::default()
    };
    let mut stream = Delta::open(&channel, DELTA_ADS).await.unwrap();
    stream.send(with_versions(5_000_000));
    assert_eq!(stream.next().await.resources.len(), 1, "5 MB are taken");
    let mut stream = Delta::open(&channel, DELTA_ADS).await.unwrap();
    stream.send(with_versions(7_000_000));
    let status = stream.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("6291456"), "{status}");
}

#[tokio::test]
async fn a_malformed_message_ends_its_stream_only() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut good = Sotw::open(&channel, ADS).await.unwrap();
    let mut bad = ClientStream::<ProtoDuration, DiscoveryResponse>::open(&channel, ADS).await.unwrap();
    bad.send(ProtoDuration { seconds: 1, nanos: 0 });
    let status = bad.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("malformed DiscoveryRequest"), "{status}");
    good.send(all_clusters("n"));
    assert_eq!(texts(&good.next().await), ["1"]);
}

#[tokio::test]
async fn a_node_that_is_too_large_is_told_which_part_of_it() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let with_id = |n_bytes: usize| DiscoveryRequest { node: node(&"x".repeat(n_bytes)), ..all_clusters("n") };
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(with_id(4097));
    let status = stream.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "`node.id` has 4097 bytes; at most 4096 are allowed");
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(with_id(4096));
    stream.next().await;
    let response: Result<DiscoveryResponse, _> = unary(&channel, FETCH_CLUSTERS, with_id(4097)).await;
    assert_eq!(response.unwrap_err().code(), Code::ResourceExhausted);
    assert!(server.world.metrics.render().contains("xds_refused_total{reason=\"node\"} 2"));
}

#[tokio::test]
async fn without_room_for_nodes_small_ones_are_served() {
    let server = Server::with(GrpcConfig { max_node_memory: 10_000, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let large = |id: &str| {
        let node = Node { id: id.into(), cluster: "c".repeat(4096), ..Default::default() };
        DiscoveryRequest { node: Some(node), ..all_clusters(id) }
    };
    let mut first = Sotw::open(&channel, ADS).await.unwrap();
    first.send(large("a"));
    first.next().await;
    let mut second = Sotw::open(&channel, ADS).await.unwrap();
    second.send(large("b"));
    let status = second.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("--max-node-memory"), "{status}");
    let mut small = Sotw::open(&channel, ADS).await.unwrap();
    small.send(all_clusters("n"));
    small.next().await;
    drop(first);
    server.world.wait("the end of the first", |world| world.board.n_streams() == 1).await;
    let mut third = Sotw::open(&channel, ADS).await.unwrap();
    third.send(large("b"));
    third.next().await;
}

#[tokio::test]
async fn too_many_names_end_the_stream() {
    let limits = Limits { max_names_per_type: 2, ..Limits::default() };
    let server = Server::with(GrpcConfig { limits, ..GrpcConfig::default() }).await;
    let mut stream = Sotw::open(&server.channel().await, STREAM_ENDPOINTS).await.unwrap();
    stream.send(DiscoveryRequest { node: node("n"), ..sotw_request("", &["a", "b", "c"]) });
    let status = stream.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("more than 2 names"), "{status}");
}

#[tokio::test]
async fn too_many_streams_are_refused_until_one_ends() {
    let server = Server::with(GrpcConfig { max_streams: 1, ..GrpcConfig::default() }).await;
    server.world.publish([]);
    let channel = server.channel().await;
    let mut first = Sotw::open(&channel, ADS).await.unwrap();
    first.send(all_clusters("n"));
    first.next().await;
    let Err(status) = Sotw::open(&channel, ADS).await else { panic!("a second stream was opened") };
    assert_eq!(status.code(), Code::ResourceExhausted);
    first.requests = None;
    assert_eq!(first.end().await.code(), Code::Ok);
    server.world.wait("no stream", |world| world.board.n_streams() == 0).await;
    within("a free place", server.world.grpc.streams.wait_empty()).await;
    assert!(Sotw::open(&channel, ADS).await.is_ok());
}

/// The answer of the discovery routes to a request with these headers, without a connection.
async fn answer(method: &str, headers: &[(&str, &str)]) -> http::Response<axum::body::Body> {
    let world = World::new(GrpcConfig::default());
    let mut routes = discovery::add_to(Router::new().fallback(discovery::unknown), &world.grpc);
    let mut request = http::Request::builder().method(method).uri(ADS);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    routes.call(request.body(axum::body::Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn compressed_requests_are_refused_with_what_is_accepted() {
    let headers = [("content-type", "application/grpc"), ("grpc-encoding", "gzip")];
    let response = answer("POST", &headers).await;
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-accept-encoding"], "identity");
    let headers = [("content-type", "application/grpc+proto"), ("grpc-encoding", "identity")];
    assert!(!answer("POST", &headers).await.headers().contains_key("grpc-status"));
}

#[tokio::test]
async fn what_is_no_grpc_call_is_told_so_in_http() {
    assert_eq!(answer("GET", &[("content-type", "application/grpc")]).await.status(), 405);
    assert_eq!(answer("POST", &[("content-type", "application/json")]).await.status(), 415);
}
