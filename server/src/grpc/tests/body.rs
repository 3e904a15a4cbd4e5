//! The body of a stream, polled by hand: what it gives and, above all, when it gives nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use xds_cache::status::Variant;
use xds_cache::{Reference, Resource, ResourceKey, ResourceType};

use super::support::*;
use crate::grpc::GrpcConfig;
use crate::grpc::body::DiscoveryBody;
use crate::grpc::kinds::StreamKind;
use crate::grpc::receive::Meter;
use crate::grpc::requests::{RequestFrames, Rules};
use crate::listen::Peer;

/// A stream without a connection.
pub(super) struct Handmade {
    body: DiscoveryBody,
    requests: mpsc::UnboundedSender<Bytes>,
}

impl Handmade {
    pub(super) fn open(world: &World) -> Self {
        Self::with(world, StreamKind { variant: Variant::Sotw, service: None }, Peer::unknown())
    }

    pub(super) fn open_delta(world: &World) -> Self {
        Self::with(world, StreamKind { variant: Variant::Delta, service: None }, Peer::unknown())
    }

    fn with(world: &World, kind: StreamKind, peer: Peer) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let frames = UnboundedReceiverStream::new(receiver)
            .map(|data: Bytes| Ok::<_, std::convert::Infallible>(Frame::data(data)));
        let frames = RequestFrames::new(
            axum::body::Body::new(StreamBody::new(frames)),
            Rules { max_message_bytes: usize::MAX, node_field: None },
            Meter::new(&world.grpc.receiving, peer.clone()),
        );
        let now = std::time::SystemTime::now();
        let caller = world.grpc.gate.admit(&peer, &http::HeaderMap::new(), now).unwrap().caller;
        let open = world.grpc.gate.open(&world.grpc.streams, &caller).unwrap();
        let body = DiscoveryBody::new(Arc::clone(&world.grpc), open, kind, caller, frames);
        Self { body, requests }
    }

    pub(super) fn send(&self, request: &impl Message) {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(request.encoded_len() as u32);
        frame.put_slice(&request.encode_to_vec());
        self.requests.send(frame.freeze()).unwrap();
    }

    fn poll(&mut self) -> Poll<Option<Frame<Bytes>>> {
        self.poll_with(Waker::noop())
    }

    fn poll_with(&mut self, waker: &Waker) -> Poll<Option<Frame<Bytes>>> {
        let mut cx = Context::from_waker(waker);
        Pin::new(&mut self.body).poll_frame(&mut cx).map(|frame| frame.map(|frame| frame.unwrap()))
    }

    /// The response that is there, whole; `None` if the stream has nothing to send.
    pub(super) fn response(&mut self) -> Option<DiscoveryResponse> {
        self.message().map(|message| DiscoveryResponse::decode(&*message).unwrap())
    }

    /// The same as bytes.
    pub(super) fn message(&mut self) -> Option<Bytes> {
        let mut message = BytesMut::new();
        loop {
            match self.poll() {
                Poll::Ready(Some(frame)) => message.extend_from_slice(&frame.into_data().unwrap()),
                Poll::Ready(None) => panic!("the stream ended"),
                Poll::Pending if message.is_empty() => return None,
                Poll::Pending => panic!("the stream stopped within a message"),
            }
            if message.len() > 5 && message.len() == 5 + (&message[1..5]).get_u32() as usize {
                return Some(message.freeze().slice(5..));
            }
        }
    }

    /// The status that the stream ends with; it must have nothing to send.
    pub(super) fn end(&mut self) -> Status {
        let Poll::Ready(Some(frame)) = self.poll() else { panic!("the stream goes on") };
        Status::from_header_map(&frame.into_trailers().unwrap()).unwrap()
    }

    pub(super) fn ack(&self, response: &DiscoveryResponse) {
        self.send(&DiscoveryRequest {
            version_info: response.version_info.clone(),
            response_nonce: response.nonce.clone(),
            ..sotw_request(&response.type_url, &[])
        });
    }
}

fn world() -> World {
    World::new(GrpcConfig::default())
}

fn large(name: &str, n_bytes: usize) -> Resource {
    Resource::plain(ResourceType::Listener, name, vec![b'x'; n_bytes])
}

fn all_listeners(id: &str) -> DiscoveryRequest {
    DiscoveryRequest { node: node(id), ..sotw_request(ResourceType::Listener.type_url(), &[]) }
}

#[tokio::test]
async fn pitfall_61_a_stream_that_is_not_read_makes_nothing_and_then_the_newest() {
    let world = world();
    world.publish([cluster("a", "0")]);
    let mut stream = Handmade::open(&world);
    stream.send(&all_clusters("n"));
    let first = stream.response().unwrap();
    stream.ack(&first);
    for i in 1..=1000 {
        world.publish([cluster("a", &i.to_string())]);
    }
    assert_eq!(texts(&stream.response().unwrap()), ["1000"]);
    assert!(stream.response().is_none(), "one response for a thousand changes");
}

#[tokio::test]
async fn a_change_of_other_resources_sends_nothing() {
    let world = world();
    world.publish([cluster("a", "1")]);
    let mut stream = Handmade::open(&world);
    stream.send(&all_clusters("n"));
    let first = stream.response().unwrap();
    stream.ack(&first);
    world.publish([cluster("a", "1"), large("l", 10)]);
    assert!(stream.response().is_none());
}

#[tokio::test]
async fn the_first_frame_of_a_message_is_long_enough() {
    let world = world();
    world.publish([large("l", 100_000)]);
    let mut stream = Handmade::open(&world);
    stream.send(&all_listeners("n"));
    let mut n_frames = 0;
    while let Poll::Ready(Some(frame)) = stream.poll() {
        assert!(frame.into_data().unwrap().len() >= 256);
        n_frames += 1;
    }
    assert!(n_frames > 1);
}

#[tokio::test]
async fn equal_responses_are_written_from_the_same_bytes() {
    let world = world();
    world.publish([cluster("a", &"x".repeat(10_000))]);
    let mut streams: Vec<Handmade> = (0..3).map(|_| Handmade::open(&world)).collect();
    let mut ends = Vec::new();
    for (i, stream) in streams.iter_mut().enumerate() {
        stream.send(&all_clusters(&format!("n{i}")));
        assert!(matches!(stream.poll(), Poll::Ready(Some(_))), "the first frame, with the nonce");
        let Poll::Ready(Some(frame)) = stream.poll() else { panic!("no second frame") };
        ends.push(frame.into_data().unwrap().as_ptr());
    }
    assert!(ends.windows(2).all(|ends| ends[0] == ends[1]));
}

#[tokio::test]
async fn bytes_are_shared_as_long_as_the_transport_holds_them() {
    let world = world();
    world.publish([cluster("a", &"x".repeat(10_000))]);
    let mut parts = Vec::new();
    for i in 0..3 {
        let mut stream = Handmade::open(&world);
        stream.send(&all_clusters(&format!("n{i}")));
        while let Poll::Ready(Some(frame)) = stream.poll() {
            parts.push(frame.into_data().unwrap());
        }
        // The stream is gone, its last bytes are not.
    }
    let [_, a, _, b, _, c] = &parts[..] else { panic!("{} frames", parts.len()) };
    assert!(a.as_ptr() == b.as_ptr() && b.as_ptr() == c.as_ptr());
}

#[tokio::test]
async fn pitfall_63_a_stream_takes_in_only_so_many_requests_at_once() {
    let world = world();
    world.publish([cluster("a", "1")]);
    let mut stream = Handmade::open(&world);
    for _ in 0..200 {
        stream.send(&all_clusters("n"));
    }
    let n_requests = || {
        let text = world.metrics.render();
        // One line for each kind of request, in any order.
        let lines = text.lines().filter(|line| line.starts_with("xds_requests_total{type=\"clusters\""));
        lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum::<u64>()
    };
    assert!(matches!(stream.poll(), Poll::Ready(Some(_))));
    // Fewer if they take longer than a task may hold its thread.
    assert!((1..=64).contains(&n_requests()), "{}", n_requests());
    while matches!(stream.poll(), Poll::Ready(Some(_))) || n_requests() < 200 {
        // A task may read only so much of a channel before it has to let others work.
        tokio::task::yield_now().await;
    }
    assert_eq!(n_requests(), 200);
}

#[tokio::test]
async fn only_so_many_streams_write_a_large_body_at_once() {
    let config = GrpcConfig { max_paced: 1, paced_for: Duration::from_secs(3600), ..GrpcConfig::default() };
    let world = World::new(config);
    world.publish([large("l", 70_000), cluster("a", "1")]);
    let mut streams: Vec<Handmade> = (0..3).map(|_| Handmade::open(&world)).collect();
    for stream in &streams[..2] {
        stream.send(&all_listeners("n"));
    }
    streams[2].send(&all_clusters("n"));
    assert!(matches!(streams[0].poll(), Poll::Ready(Some(_))), "the first one begins");
    assert!(streams[1].poll().is_pending(), "the second one waits");
    assert!(streams[2].response().is_some(), "small responses do not");
    while let Poll::Ready(Some(_)) = streams[0].poll() {}
    assert!(streams[1].response().is_some(), "the place is free when the message is written");
}

#[tokio::test]
async fn pitfall_54_a_stream_that_is_dropped_leaves_nothing_behind() {
    let world = world();
    world.publish([cluster("a", "1")]);
    let mut stream = Handmade::open(&world);
    stream.send(&all_clusters("n"));
    assert!(stream.response().is_some());
    assert_eq!((world.board.n_streams(), world.grpc.streams.len()), (1, 1));
    drop(stream);
    assert_eq!((world.board.n_streams(), world.grpc.streams.len()), (0, 0));
    assert!(world.metrics.render().contains("xds_streams{variant=\"sotw\"} 0"));
}

#[tokio::test(start_paused = true)]
async fn pitfall_67_heartbeats_come_in_time() {
    let world = world();
    let mut draft = cluster("a", "1").to_draft();
    draft.ttl = Some(Duration::from_secs(10));
    world.publish([Resource::new(draft)]);
    let mut stream = Handmade::open(&world);
    let mut request = all_clusters("n");
    request.node.as_mut().unwrap().client_features =
        vec!["xds.config.supports-resource-ttl".into(), "xds.config.resource-in-sotw".into()];
    stream.send(&request);
    let first = stream.response().unwrap();
    stream.ack(&first);
    assert!(stream.response().is_none());
    tokio::time::advance(Duration::from_secs(10)).await;
    let heartbeat = stream.response().unwrap();
    assert_eq!(heartbeat.version_info, first.version_info);
    assert_ne!(heartbeat.nonce, first.nonce);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn row_a128_what_one_stream_is_sent_wakes_another_one_of_its_client() {
    let endpoints = ResourceType::ClusterLoadAssignment;
    let world = world();
    let publish = |text: &str| {
        let mut draft = cluster("c", text).to_draft();
        let to = ResourceKey { resource_type: endpoints.clone(), name: "c".into() };
        draft.references = [Reference { to: to.into(), path: "name".into() }].into_iter().collect();
        let assignment = Resource::plain(endpoints.clone(), "c", b"".as_slice());
        world.publish([Resource::new(draft), assignment]);
    };
    publish("1");
    let peer = Peer::unknown();
    let open = |service: &ResourceType, name: &str| {
        let kind = StreamKind { variant: Variant::Delta, service: Some(service.clone()) };
        let mut stream = Handmade::with(&world, kind, peer.clone());
        let resource_names_subscribe = vec![name.to_owned()];
        stream.send(&DeltaDiscoveryRequest {
            node: node("n"),
            resource_names_subscribe,
            ..Default::default()
        });
        assert!(stream.poll().is_ready());
        stream
    };
    let mut clusters = open(&ResourceType::Cluster, "*");
    let mut assignments = open(&endpoints, "c");
    publish("2");
    let woken = Arc::new(Woken::default());
    assert!(assignments.poll_with(&Arc::clone(&woken).into()).is_pending(), "nothing of it changed");
    woken.0.store(false, Ordering::SeqCst);
    assert!(clusters.poll().is_ready());
    assert!(woken.0.load(Ordering::SeqCst));
    assert!(assignments.poll().is_ready(), "it is owed again");
}
