//! The raw xDS client, against a server that sends requests back as responses.

use std::net::SocketAddr;
use std::pin::Pin;

use anyhow::Result;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use futures_util::Stream;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, Streaming, async_trait};
use xds_tests::config::{CLUSTER, LISTENER};
use xds_tests::raw::{self, DeltaStream, SotwStream, path};

#[tokio::test]
async fn the_node_is_in_the_first_request_only() -> Result<()> {
    let mut stream = SotwStream::open(raw::connect(echo().await?).await?, path::ADS, raw::node("n", "c"));
    stream.subscribe(CLUSTER, &["a", "b"]).await?;
    assert_eq!(stream.expect_type(CLUSTER).await?.version_info, "n: a,b");
    stream.subscribe(LISTENER, &[]).await?;
    assert_eq!(stream.expect_type(LISTENER).await?.version_info, ": ");
    Ok(())
}

#[tokio::test]
async fn an_ack_and_a_nack_carry_the_nonce() -> Result<()> {
    let mut stream = SotwStream::open(raw::connect(echo().await?).await?, path::ADS, raw::node("n", "c"));
    let response = DiscoveryResponse { nonce: "7".to_owned(), ..DiscoveryResponse::default() };
    stream.ack(&response, &["a"]).await?;
    assert_eq!(stream.expect_response().await?.nonce, "7");
    stream.nack(&response, &["a"], "v1", "no good").await?;
    assert_eq!(stream.expect_response().await?.version_info, ": a v1 no good");

    let mut stream =
        DeltaStream::open(raw::connect(echo().await?).await?, path::ADS_DELTA, raw::node("n", "c"));
    let response = DeltaDiscoveryResponse { nonce: "8".to_owned(), ..DeltaDiscoveryResponse::default() };
    stream.subscribe(CLUSTER, &["a"]).await?;
    assert_eq!(stream.expect_response().await?.system_version_info, "n: +a -");
    stream.change(CLUSTER, &["b"], &["a"]).await?;
    assert_eq!(stream.expect_response().await?.system_version_info, ": +b -a");
    stream.ack(&response).await?;
    assert_eq!(stream.expect_response().await?.nonce, "8");
    Ok(())
}

#[tokio::test]
async fn a_marker_that_is_not_the_next_response_is_an_error() -> Result<()> {
    let mut stream = SotwStream::open(raw::connect(echo().await?).await?, path::ADS, raw::node("n", "c"));
    stream.expect_silence_by_marker(raw::sotw_request(LISTENER, &[]), LISTENER).await?;
    stream.subscribe(CLUSTER, &[]).await?;
    let marker = stream.expect_silence_by_marker(raw::sotw_request(LISTENER, &[]), LISTENER).await;
    assert!(marker.is_err());
    Ok(())
}

#[tokio::test]
async fn the_end_has_a_status() -> Result<()> {
    let server = echo().await?;
    let mut stream = SotwStream::open(raw::connect(server).await?, path::ADS, raw::node("n", "c"));
    stream.half_close();
    assert_eq!(stream.expect_end().await?.code(), Code::Ok);

    let (_, clusters, _, _) = path::PER_TYPE[3];
    let mut stream = SotwStream::open(raw::connect(server).await?, clusters, raw::node("n", "c"));
    assert_eq!(stream.expect_end().await?.code(), Code::Unimplemented);
    Ok(())
}

/// Starts the server; it lives as long as the test.
async fn echo() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let ads = AggregatedDiscoveryServiceServer::new(Echo);
    let server = tonic::transport::Server::builder().add_service(ads);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok(addr)
}

/// Answers every request with one response that says what was in it.
struct Echo;

type Responses<R> = Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

#[async_trait]
impl AggregatedDiscoveryService for Echo {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let echo = |request: DiscoveryRequest| DiscoveryResponse {
            version_info: [
                request.node.map_or(String::new(), |node| node.id) + ": " + &request.resource_names.join(","),
                request.version_info,
                request.error_detail.map_or(String::new(), |detail| detail.message),
            ]
            .join(" ")
            .trim_end_matches("  ")
            .to_owned(),
            type_url: request.type_url,
            nonce: request.response_nonce,
            ..DiscoveryResponse::default()
        };
        Ok(Response::new(Box::pin(requests.into_inner().map(move |request| request.map(echo)))))
    }

    async fn delta_aggregated_resources(
        &self,
        requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let echo = |request: DeltaDiscoveryRequest| DeltaDiscoveryResponse {
            system_version_info: format!(
                "{}: +{} -{}",
                request.node.map_or(String::new(), |node| node.id),
                request.resource_names_subscribe.join(","),
                request.resource_names_unsubscribe.join(",")
            ),
            type_url: request.type_url,
            nonce: request.response_nonce,
            ..DeltaDiscoveryResponse::default()
        };
        Ok(Response::new(Box::pin(requests.into_inner().map(move |request| request.map(echo)))))
    }
}
