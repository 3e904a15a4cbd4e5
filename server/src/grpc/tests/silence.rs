//! Streams that say nothing, and calls that do not come whole.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};
use xds_cache::Reason;

use super::support::*;
use crate::grpc::body::DiscoveryBody;
use crate::grpc::{GrpcConfig, ReceiveLimits};

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const CLIENT_STATUS: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus";
const LOADS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

fn refused(server: &Server, reason: Reason) -> u64 {
    server.world.refusals.counts()[&reason]
}

#[tokio::test]
async fn a_silent_stream_gives_its_place_to_a_new_one() {
    let server = Server::with(GrpcConfig { max_streams: 3, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(Sotw::open(&channel, ADS).await.unwrap());
    }
    let mut named = Vec::new();
    for i in 0..3 {
        let mut stream = Sotw::open(&channel, ADS).await.unwrap();
        stream.send(all_clusters(&format!("n{i}")));
        assert_eq!(texts(&stream.next().await), ["1"]);
        named.push(stream);
    }
    for stream in &mut silent {
        let status = stream.end().await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("has gone longest without naming a node"), "{status}");
    }
    let Err(status) = Sotw::open(&channel, ADS).await else { panic!("a fourth stream was opened") };
    assert!(status.message().contains("which is its limit"), "{status}");
    assert_eq!(refused(&server, Reason::Streams), 4);
}

#[tokio::test]
async fn the_first_request_must_come_in_time() {
    let first_request_timeout = Duration::from_millis(300);
    let server = Server::with(GrpcConfig { first_request_timeout, ..GrpcConfig::default() }).await;
    let channel = server.channel().await;
    // Nothing is published yet: its request is kept, and it is not silent.
    let mut waiting = Sotw::open(&channel, ADS).await.unwrap();
    waiting.send(all_clusters("n"));
    let mut silent = Sotw::open(&channel, ADS).await.unwrap();
    let status = silent.end().await;
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("--first-request-timeout"), "{status}");
    assert_eq!(refused(&server, Reason::FirstRequest), 1);
    server.world.publish([cluster("a", "1")]);
    assert_eq!(texts(&waiting.next().await), ["1"]);
}

#[tokio::test]
async fn a_client_without_window_is_told_too() {
    let first_request_timeout = Duration::from_millis(300);
    let server = Server::with(GrpcConfig { first_request_timeout, ..GrpcConfig::default() }).await;
    let channel = server.endpoint().initial_stream_window_size(0).connect().await.unwrap();
    let mut deaf = Sotw::open(&channel, ADS).await.unwrap();
    assert_eq!(deaf.end().await.code(), Code::DeadlineExceeded);
    within("no stream", server.world.grpc.streams.wait_empty()).await;
}

/// A call whose body is written by hand.
async fn call(
    channel: &Channel,
    path: &str,
) -> (mpsc::UnboundedSender<Bytes>, tokio::task::JoinHandle<Status>) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let body = UnboundedReceiverStream::new(receiver).map(|data| Ok::<_, Status>(Frame::data(data)));
    let request = http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(StreamBody::new(body)))
        .unwrap();
    let mut channel = channel.clone();
    let task = tokio::spawn(async move {
        let response = channel.ready().await.unwrap().call(request).await.unwrap();
        if let Some(status) = Status::from_header_map(response.headers()) {
            return status;
        }
        let mut stream = tonic::Streaming::<DiscoveryResponse>::new_response(
            tonic_prost::ProstDecoder::default(),
            response.into_body(),
            http::StatusCode::OK,
            None,
            None,
        );
        match stream.message().await {
            Ok(_) => Status::ok(""),
            Err(status) => status,
        }
    });
    (sender, task)
}

fn header(n_bytes: u32) -> Bytes {
    [&[0][..], &n_bytes.to_be_bytes()].concat().into()
}

#[tokio::test]
async fn every_call_has_a_limit_for_messages_and_a_time_for_them() {
    let receive = ReceiveLimits { patience: Duration::from_millis(400), ..GrpcConfig::default().receive };
    let config = GrpcConfig { receive, client_status: true, ..GrpcConfig::default() };
    let server = Server::with(config).await;
    let channel = server.channel().await;
    for (path, limit) in [
        (HEALTH, 64 << 10),
        (REFLECTION, 64 << 10),
        (CLIENT_STATUS, 32 << 10),
        (LOADS, 64 << 20),
        (ADS, 64 << 20),
        (FETCH_CLUSTERS, 64 << 20),
    ] {
        let (sender, status) = call(&channel, path).await;
        sender.send(header(limit + 1)).unwrap();
        let status = within("a refusal", status).await.unwrap();
        // The library ends reflection without a word of its own.
        let code = |code| if path == REFLECTION { Code::Ok } else { code };
        assert_eq!(status.code(), code(Code::ResourceExhausted), "{path}: {status}");
        let (sender, status) = call(&channel, path).await;
        sender.send(header(limit)).unwrap();
        sender.send(Bytes::from_static(b"\x0a")).unwrap();
        let status = within("the end of its time", status).await.unwrap();
        assert_eq!(status.code(), code(Code::DeadlineExceeded), "{path}: {status}");
    }
    assert_eq!(refused(&server, Reason::MessageSize), 6);
    assert_eq!(refused(&server, Reason::SlowMessage), 6);
    assert_eq!(server.world.grpc.receiving.n_bytes(), 0);
}

#[tokio::test]
async fn of_many_calls_the_oldest_ends() {
    let server = Server::start().await;
    let channel = server.channel().await;
    let mut calls = Vec::new();
    for _ in 0..=1000 {
        calls.push(call(&channel, REFLECTION).await);
    }
    let ended = async {
        loop {
            if let Some(index) = calls.iter().position(|(_, status)| status.is_finished()) {
                return calls.swap_remove(index).1.await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(within("the end of one", ended).await.code(), Code::ResourceExhausted);
    assert_eq!(refused(&server, Reason::Streams), 1);
}

#[test]
fn a_stream_is_small() {
    // Every client has one, for days.
    assert!(size_of::<DiscoveryBody>() <= 280, "{}", size_of::<DiscoveryBody>());
}
