//! Clients that must show a certificate, and have none.

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use xds_cache::Reason;

use super::support::*;
use crate::grpc::GrpcConfig;

async fn server() -> Server {
    let server = Server::with(GrpcConfig { needs_credential: true, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", "1")]);
    server
}

#[tokio::test]
async fn whoever_shows_no_certificate_is_told_so_and_gets_nothing() {
    let server = server().await;
    let channel = server.channel().await;
    for path in
        [ADS, "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats", "/no.such.Service/Method"]
    {
        let refused = match Sotw::open(&channel, path).await {
            Ok(mut stream) => stream.end().await,
            Err(status) => status,
        };
        assert_eq!(refused.code(), Code::Unauthenticated, "{path}: {refused}");
        assert!(refused.message().starts_with("no-credential: "), "{refused}");
    }
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
    let fetched = unary::<DiscoveryRequest, DiscoveryResponse>(&channel, path, all_clusters("n")).await;
    assert_eq!(fetched.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(server.world.refusals.counts()[&Reason::NoCredential], 4);
    assert_eq!(server.world.board.n_streams(), 0);
}

#[tokio::test]
async fn a_poll_without_a_certificate_is_401() {
    let server = server().await;
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request =
        "POST /v3/discovery:clusters HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    within("the response", connection.read_to_string(&mut response)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 401") && response.contains("no-credential"), "{response}");
}

#[tokio::test]
async fn the_health_is_for_everyone() {
    let server = server().await;
    let channel = server.channel().await;
    let path = "/grpc.health.v1.Health/Check";
    let health =
        unary::<HealthCheckRequest, HealthCheckResponse>(&channel, path, HealthCheckRequest::default());
    assert_eq!(health.await.unwrap().status, 1);
}
