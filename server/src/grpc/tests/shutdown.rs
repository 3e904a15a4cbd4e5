//! The end of the server: bounded, and told to the clients.

use std::time::{Duration, Instant};

use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::support::*;
use crate::grpc::GrpcConfig;

#[tokio::test]
async fn pitfall_66_open_streams_are_ended_and_the_server_stops() {
    let mut server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut streams = Vec::new();
    for i in 0..50 {
        let mut stream = Sotw::open(&channel, ADS).await.unwrap();
        stream.send(all_clusters(&format!("n{i}")));
        assert_eq!(texts(&stream.next().await), ["1"]);
        streams.push(stream);
    }
    let began = Instant::now();
    server.stop();
    for stream in &mut streams {
        let status = stream.end().await;
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "the server is shutting down"));
    }
    let address = server.address;
    server.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is free");
}

#[tokio::test]
async fn pitfall_66_a_reader_that_is_stuck_is_cut_off_at_the_bound() {
    let drain_timeout = Duration::from_millis(300);
    let mut server = Server::with(GrpcConfig { drain_timeout, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", &"x".repeat(1_000_000))]);
    let channel = server.endpoint().initial_stream_window_size(65_535).connect().await.unwrap();
    let stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    let sent = |world: &World| world.metrics.render().contains("xds_responses_total{type=\"clusters\"} 1");
    server.world.wait("the response", |world| world.board.n_streams() == 1).await;
    within("the response to be made", async {
        while !sent(&server.world) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let began = Instant::now();
    server.stop();
    server.stopped().await;
    let took = began.elapsed();
    assert!(took >= drain_timeout && took < drain_timeout + Duration::from_secs(2), "{took:?}");
    drop(stream);
}

#[tokio::test]
async fn health_follows_the_first_load() {
    let mut server = Server::start().await;
    let channel = server.channel().await;
    let services = ["", "envoy.service.discovery.v3.AggregatedDiscoveryService"];
    let mut health = HealthClient::new(channel.clone());
    let mut watches = Vec::new();
    for service in services {
        let request = HealthCheckRequest { service: service.into() };
        let checked: HealthCheckResponse = health.check(request.clone()).await.unwrap().into_inner();
        assert_eq!(checked.status(), ServingStatus::NotServing, "{service:?}");
        watches.push(health.watch(request).await.unwrap().into_inner());
    }
    server.world.publish([]);
    for watch in &mut watches {
        let mut statuses = Vec::new();
        while statuses.last() != Some(&ServingStatus::Serving) {
            statuses.push(within("the health", watch.message()).await.unwrap().unwrap().status());
        }
        assert!(statuses.len() <= 2, "{statuses:?}");
    }
    let began = Instant::now();
    server.stop();
    server.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(5), "watches hold nobody up");
}
