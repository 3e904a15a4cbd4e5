//! The discovery services, as their clients see them.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc;
use prost::Message;
use tonic::Code;
use xds_cache::ResourceType;
use xds_cache::status::ConfigStatus;

use super::support::*;

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

#[tokio::test]
async fn ads_sotw_serves_updates_until_the_client_is_done() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    let first = stream.next().await;
    assert_eq!((first.type_url.as_str(), texts(&first)), (CLUSTER, vec!["1".to_owned()]));
    assert!(!first.nonce.is_empty() && !first.version_info.is_empty());
    let identifier = &server.world.grpc.config().identifier;
    assert_eq!(&first.control_plane.as_ref().unwrap().identifier, identifier);
    stream.ack(&first, &[]);
    server.world.publish([cluster("a", "1"), cluster("b", "2")]);
    let second = stream.next().await;
    assert_eq!(texts(&second), ["1", "2"]);
    assert_ne!((&second.nonce, &second.version_info), (&first.nonce, &first.version_info));
    assert!(second.resources.iter().all(|any| any.type_url == CLUSTER));
}

#[tokio::test]
async fn ads_delta_serves_differences() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1"), cluster("b", "1")]);
    let mut stream = Delta::open(&server.channel().await, DELTA_ADS).await.unwrap();
    stream.send(DeltaDiscoveryRequest { node: node("n"), type_url: CLUSTER.into(), ..Default::default() });
    let first = stream.next().await;
    let names = |resources: &[envoy_types::pb::envoy::service::discovery::v3::Resource]| -> Vec<String> {
        resources.iter().map(|resource| resource.name.clone()).collect()
    };
    assert_eq!(names(&first.resources), ["a", "b"]);
    stream.send(DeltaDiscoveryRequest {
        type_url: CLUSTER.into(),
        response_nonce: first.nonce,
        ..Default::default()
    });
    server.world.publish([cluster("b", "2")]);
    let second = stream.next().await;
    assert_eq!((names(&second.resources), second.removed_resources), (vec!["b".into()], vec!["a".into()]));
}

#[tokio::test]
async fn nothing_is_answered_before_the_first_load() {
    let server = Server::start().await;
    let channel = server.channel().await;
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    server.world.wait("the stream", |world| world.board.n_streams() == 1).await;
    let fetched = unary::<_, DiscoveryResponse>(&channel, FETCH_CLUSTERS, all_clusters("n")).await;
    assert_eq!(fetched.unwrap_err().code(), Code::Unavailable);
    server.world.publish([]);
    assert!(stream.next().await.resources.is_empty(), "an empty list, at once");
}

#[tokio::test]
async fn row_a2_per_type_streams_serve_their_type_with_and_without_its_url() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    for type_url in ["", CLUSTER] {
        let mut stream = Sotw::open(&channel, STREAM_CLUSTERS).await.unwrap();
        stream.send(DiscoveryRequest { type_url: type_url.into(), ..all_clusters("n") });
        let response = stream.next().await;
        assert_eq!((response.type_url.as_str(), texts(&response)), (CLUSTER, vec!["1".to_owned()]));
    }
}

#[tokio::test]
async fn d13_per_type_streams_of_a_connection_and_node_are_one_client() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let (channel, other) = (server.channel().await, server.channel().await);
    let mut streams = Vec::new();
    for (channel, path, id) in [
        (&channel, STREAM_CLUSTERS, "n"),
        (&channel, STREAM_ENDPOINTS, "n"),
        (&channel, STREAM_CLUSTERS, "other node"),
        (&other, STREAM_CLUSTERS, "n"),
    ] {
        let stream = Sotw::open(channel, path).await.unwrap();
        stream.send(DiscoveryRequest {
            node: node(id),
            resource_names: vec!["a".into()],
            ..Default::default()
        });
        streams.push(stream);
    }
    server.world.wait("all streams", |world| world.board.n_streams() == 4).await;
    assert_eq!(server.world.grpc.clients.len(), 3);
    drop(streams);
    server.world.wait("no stream", |world| world.board.n_streams() == 0).await;
    assert_eq!(server.world.grpc.clients.len(), 0);
}

#[tokio::test]
async fn row_a193_fetch_answers_once() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let fetch = |request| unary::<DiscoveryRequest, DiscoveryResponse>(&channel, FETCH_CLUSTERS, request);
    assert_eq!(texts(&fetch(all_clusters("n")).await.unwrap()), ["1"]);
    let known = fetch(all_clusters("n")).await.unwrap();
    let again = DiscoveryRequest { version_info: known.version_info.clone(), ..all_clusters("n") };
    assert_eq!(fetch(again).await.unwrap().resources, known.resources, "unchanged is answered in full");
    let without_node = DiscoveryRequest { node: None, ..all_clusters("n") };
    assert_eq!(fetch(without_node).await.unwrap_err().code(), Code::InvalidArgument);
    let nothing = DiscoveryRequest { node: node("n"), ..Default::default() };
    let endpoints = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints";
    let response: DiscoveryResponse = unary(&channel, endpoints, nothing).await.unwrap();
    assert!(response.resources.is_empty());
    assert_eq!(response.type_url, ResourceType::ClusterLoadAssignment.type_url());
    assert_eq!(server.world.board.n_streams(), 0);
}

#[tokio::test]
async fn pitfall_51_a_first_message_without_node_is_refused() {
    let server = Server::start().await;
    let channel = server.channel().await;
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(sotw_request(CLUSTER, &[]));
    let status = stream.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("node.id"), "{status}");
    let mut stream = Delta::open(&channel, DELTA_ADS).await.unwrap();
    stream.send(DeltaDiscoveryRequest { type_url: CLUSTER.into(), ..Default::default() });
    assert_eq!(stream.end().await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn pitfall_52_streams_of_one_node_live_and_end_by_themselves() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut first = Sotw::open(&channel, ADS).await.unwrap();
    let mut second = Sotw::open(&channel, ADS).await.unwrap();
    for stream in [&mut first, &mut second] {
        stream.send(all_clusters("n"));
        assert_eq!(texts(&stream.next().await), ["1"]);
    }
    drop(first);
    server.world.wait("one stream", |world| world.board.n_streams() == 1).await;
    server.world.publish([cluster("a", "2")]);
    assert_eq!(texts(&second.next().await), ["2"]);
}

#[tokio::test]
async fn pitfall_64_types_that_do_not_fit_end_their_stream_only() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut good = Sotw::open(&channel, ADS).await.unwrap();
    good.send(DiscoveryRequest { node: node("n"), ..sotw_request("type.googleapis.com/foo.Bar", &["x"]) });
    let mut untyped = Sotw::open(&channel, ADS).await.unwrap();
    untyped.send(DiscoveryRequest { node: node("n"), ..Default::default() });
    let status = untyped.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("type_url"), "{status}");
    let mut wrong = Sotw::open(&channel, STREAM_ENDPOINTS).await.unwrap();
    wrong.send(all_clusters("n"));
    assert_eq!(wrong.end().await.code(), Code::InvalidArgument);
    good.send(sotw_request(CLUSTER, &[]));
    assert_eq!(texts(&good.next().await), ["1"]);
}

#[tokio::test]
async fn pitfall_65_a_client_that_closes_its_half_is_answered_and_ended_cleanly() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    stream.requests = None;
    assert_eq!(texts(&stream.next().await), ["1"]);
    assert_eq!(stream.end().await.code(), Code::Ok);
    server.world.wait("no stream", |world| world.board.n_streams() == 0).await;
}

#[tokio::test]
async fn row_a11_what_is_not_served_is_unimplemented_at_once() {
    let server = Server::start().await;
    let channel = server.channel().await;
    for path in [
        "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources",
        "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/NoSuchMethod",
        "/no.such.Service/Method",
    ] {
        let status = match Sotw::open(&channel, path).await {
            Ok(mut stream) => stream.end().await,
            Err(status) => status,
        };
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn a_nack_shows_on_the_status_board_and_in_the_metrics() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    let response = stream.next().await;
    stream.send(DiscoveryRequest {
        response_nonce: response.nonce.clone(),
        error_detail: Some(rpc::Status { code: 13, message: "bad cluster".into(), details: vec![] }),
        ..sotw_request(CLUSTER, &[])
    });
    let status = |world: &World| world.board.streams().first().map(|entry| entry.status().status());
    server.world.wait("the NACK", |world| status(world) == Some(ConfigStatus::Error)).await;
    let types = server.world.board.streams()[0].status().types;
    assert_eq!(&*types[&ResourceType::Cluster].last_nack.as_ref().unwrap().message, "bad cluster");
    let text = server.world.metrics.render();
    for line in ["xds_nacks_total{type=\"clusters\"} 1", "xds_connected_nodes{client=\"envoy\"} 1"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    server.world.publish([cluster("a", "2")]);
    let healed = stream.next().await;
    stream.ack(&healed, &[]);
    server.world.wait("the ACK", |world| status(world) == Some(ConfigStatus::Synced)).await;
}

#[tokio::test]
async fn pitfall_55_the_last_of_many_publications_reaches_everybody() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "0")]);
    let mut streams = Vec::new();
    for id in ["a", "b"] {
        let stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
        stream.send(all_clusters(id));
        streams.push(stream);
    }
    for i in 1..=1000 {
        server.world.publish([cluster("a", &i.to_string())]);
        if i % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for stream in &mut streams {
        while texts(&stream.next().await) != ["1000"] {}
    }
}

#[tokio::test]
async fn pitfall_58_large_state_is_whole_in_sotw_and_split_in_delta() {
    let server = Server::start().await;
    server.world.publish((0..1000).map(|i| cluster(&format!("{i:04}"), &"x".repeat(10_000))));
    let channel = server.channel().await;
    let mut sotw = Sotw::open(&channel, ADS).await.unwrap();
    sotw.send(all_clusters("n"));
    assert_eq!(sotw.next().await.resources.len(), 1000);
    let mut delta = Delta::open(&channel, DELTA_ADS).await.unwrap();
    delta.send(DeltaDiscoveryRequest { node: node("n"), type_url: CLUSTER.into(), ..Default::default() });
    let (mut names, mut nonces) = (BTreeSet::new(), BTreeSet::new());
    while names.len() < 1000 {
        let response = delta.next().await;
        assert!(response.encoded_len() < 4 * 1024 * 1024);
        assert!(nonces.insert(response.nonce));
        names.extend(response.resources.into_iter().map(|resource| resource.name));
    }
    assert!(nonces.len() >= 3);
}

#[tokio::test]
async fn a_client_moves_to_the_groups_that_select_it_now() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    assert_eq!(texts(&stream.next().await), ["1"]);
    let groups = {
        use xds_cache::{GroupName, Layer, layer};
        let mut base = Layer::default();
        let name = GroupName::new("n").unwrap();
        let resource = std::sync::Arc::new(cluster("b", "2"));
        base.groups.entry(name).or_default().resources = [resource].into_iter().collect();
        layer::merge(&base, &Layer::default(), &layer::Generated::new())
    };
    server.world.publisher.publish(xds_cache::Revision(9), groups);
    assert_eq!(texts(&stream.next().await), ["2"]);
}
