//! Many streams, many connections, and peers that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};
use xds_cache::{Resource, ResourceType};

use super::support::*;
use crate::grpc::GrpcConfig;

const MANY: usize = 2000;

/// Opens a stream on each of the channels, and sees an update reach all of them.
async fn all_are_served(server: &Server, channels: impl IntoIterator<Item = Channel>) {
    server.world.publish([cluster("a", "1")]);
    let mut streams = Vec::new();
    for (i, channel) in channels.into_iter().enumerate() {
        let stream = Sotw::open(&channel, ADS).await.unwrap();
        stream.send(all_clusters(&format!("n{i}")));
        streams.push((channel, stream));
    }
    for (_, stream) in &mut streams {
        let response = stream.next().await;
        assert_eq!(texts(&response), ["1"]);
        stream.ack(&response, &[]);
    }
    server.world.publish([cluster("a", "2")]);
    for (_, stream) in &mut streams {
        assert_eq!(texts(&stream.next().await), ["2"]);
    }
    assert_eq!(server.world.board.n_streams(), streams.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn pitfall_60_two_thousand_streams_on_one_connection() {
    let server = Server::start().await;
    let channel = server.channel().await;
    all_are_served(&server, std::iter::repeat_n(channel, MANY)).await;
    server.world.wait("no stream", |world| world.board.n_streams() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_connections_with_one_stream() {
    let server = Server::start().await;
    let mut channels = Vec::new();
    for _ in 0..MANY {
        channels.push(server.channel().await);
    }
    all_are_served(&server, channels).await;
    server.world.wait("no stream", |world| world.board.n_streams() == 0).await;
}

#[tokio::test]
async fn pitfall_56_pings_of_clients_are_welcome() {
    let server = Server::start().await;
    let endpoint = server.endpoint().keep_alive_while_idle(true);
    let pinging = endpoint.http2_keep_alive_interval(Duration::from_millis(1));
    let channel = pinging.connect().await.unwrap();
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    for i in 0..300 {
        server.world.publish([cluster("a", &i.to_string())]);
        let response = stream.next().await;
        stream.ack(&response, &[]);
    }
}

/// Forwards one connection until it is frozen: from then on it is there, and silent.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let n_read = tokio::select! {
            Ok(_) = frozen.changed() => return std::future::pending().await,
            n_read = from.read(&mut buffer) => n_read.unwrap_or(0),
        };
        if n_read == 0 || to.write_all(&buffer[..n_read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn pitfall_57_a_half_open_peer_is_reaped() {
    let keepalive = Duration::from_secs(1);
    let config =
        GrpcConfig { keepalive_interval: keepalive, keepalive_timeout: keepalive, ..GrpcConfig::default() };
    let server = Server::with(config).await;
    server.world.publish([cluster("a", "1")]);
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", proxy.local_addr().unwrap())).unwrap();
    let (freeze, frozen) = watch::channel(false);
    let upstream = server.address;
    let forwarding = tokio::spawn(async move {
        let (client, _) = proxy.accept().await.unwrap();
        let (client_read, client_write) = client.into_split();
        let (read, write) = tokio::net::TcpStream::connect(upstream).await.unwrap().into_split();
        let up = forward(client_read, write, frozen.clone());
        let down = forward(read, client_write, frozen);
        tokio::join!(up, down);
    });
    let channel = endpoint.connect().await.unwrap();
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    stream.next().await;
    freeze.send_replace(true);
    server.world.wait("the stream to be reaped", |world| world.board.n_streams() == 0).await;
    forwarding.abort();
}

#[tokio::test]
async fn pitfall_57_a_peer_that_never_says_a_word_is_reaped_too() {
    let keepalive = Duration::from_millis(500);
    let config =
        GrpcConfig { keepalive_interval: keepalive, keepalive_timeout: keepalive, ..GrpcConfig::default() };
    let server = Server::with(config).await;
    for words in [b"".as_slice(), b"PRI * HTTP"] {
        let mut silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
        silent.write_all(words).await.unwrap();
        let n_read = within("the end of the connection", silent.read(&mut [0; 100])).await;
        assert!(matches!(n_read, Ok(0) | Err(_)), "{n_read:?}");
    }
}

/// Content that counts how much of it is alive.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn pitfall_61_a_client_that_never_reads_costs_little_and_delays_nobody() {
    let server = Server::start().await;
    let alive = Arc::new(AtomicUsize::new(0));
    let publish = |text: &str| {
        let value = cluster("a", &format!("{text}{}", "x".repeat(1_000_000))).value().to_vec();
        alive.fetch_add(1, Ordering::SeqCst);
        let value = Bytes::from_owner(Counted(value, Arc::clone(&alive)));
        server.world.publish([Resource::plain(ResourceType::Cluster, "a", value)]);
    };
    publish("0");
    let narrow = server.endpoint().initial_stream_window_size(65_535).connect().await.unwrap();
    let mut stuck = Sotw::open(&narrow, ADS).await.unwrap();
    stuck.send(all_clusters("stuck"));
    server.world.wait("the stuck stream", |world| world.board.n_streams() == 1).await;
    let mut reader = Sotw::open(&server.channel().await, ADS).await.unwrap();
    reader.send(all_clusters("reader"));
    let mut response = reader.next().await;
    for i in 1..=50 {
        reader.ack(&response, &[]);
        publish(&i.to_string());
        response = reader.next().await;
        assert!(texts(&response)[0].starts_with(&format!("{i}x")));
        // The newest, what is being written, and the 16 tables that are kept of what a client was sent and has not answered: here
        // each answer comes when the next response is under way.
        assert!(alive.load(Ordering::SeqCst) <= 19, "{} versions are alive", alive.load(Ordering::SeqCst));
    }
    let mut n_responses = 1;
    while !texts(&stuck.next().await)[0].starts_with("50x") {
        n_responses += 1;
    }
    assert!(n_responses <= 2, "{n_responses} responses until the newest");
}

#[tokio::test]
async fn pitfall_63_a_client_that_sends_without_end_does_not_delay_others() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "0")]);
    let noisy = Sotw::open(&server.channel().await, ADS).await.unwrap();
    noisy.send(all_clusters("noisy"));
    for i in 0..20_000 {
        let names: &[&str] = if i % 2 == 0 { &["a"] } else { &["b"] };
        noisy.send(DiscoveryRequest {
            node: node("noisy"),
            ..sotw_request(ResourceType::Cluster.type_url(), names)
        });
    }
    let mut quiet = Sotw::open(&server.channel().await, ADS).await.unwrap();
    quiet.send(all_clusters("quiet"));
    let mut response = quiet.next().await;
    for i in 1..=20 {
        quiet.ack(&response, &[]);
        server.world.publish([cluster("a", &i.to_string())]);
        response = quiet.next().await;
        assert_eq!(texts(&response), [i.to_string()]);
    }
}

#[tokio::test]
async fn pitfall_62_streams_that_come_and_go_leave_nothing_behind() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    for i in 0..500 {
        let mut stream = Sotw::open(&channel, STREAM_CLUSTERS).await.unwrap();
        stream.send(all_clusters(&format!("n{i}")));
        stream.next().await;
    }
    server.world.wait("no stream", |world| world.board.n_streams() == 0).await;
    within("no stream", server.world.grpc.streams.wait_empty()).await;
    assert_eq!(server.world.grpc.clients.len(), 0);
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A connection whose client asks for all clusters, in bytes.
async fn asking(server: &Server) -> tokio::net::TcpStream {
    // A literal of HPACK; its name is the number of one.
    let literal =
        |name: &[u8], value: &str| [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    // SETTINGS, HEADERS of a POST of gRPC, and DATA with one message.
    let headers =
        [vec![0x83, 0x86], literal(&[0x04], ADS), literal(&[0x0f, 0x10], "application/grpc")].concat();
    let message = prost::Message::encode_to_vec(&all_clusters("closed"));
    let message = [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()], &*message].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let all = [preface, &*frame(4, 0, 0, &[]), &frame(1, 4, 1, &headers), &frame(0, 0, 1, &message)].concat();
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&all).await.unwrap();
    stream
}

/// Whoever connected first keeps every place of a port for ever otherwise: nothing is wrong with the connections but that their clients
/// take nothing.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_no_answer_shut_nobody_out() {
    const N: usize = 4;
    let server = Server::of_connections(GrpcConfig::default(), None, N).await;
    server.world.publish([cluster("a", "1")]);
    let mut closed = Vec::new();
    for _ in 0..N {
        closed.push(asking(&server).await);
    }
    server.world.wait("all to be served", |world| world.board.n_streams() == N).await;
    for stream in &mut closed {
        // SETTINGS with INITIAL_WINDOW_SIZE 0: the window of HTTP/2 is closed.
        stream.write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap();
    }
    let attempt = async || {
        let channel = server.endpoint().connect().await.ok()?;
        let mut stream = Sotw::open(&channel, ADS).await.ok()?;
        stream.send(all_clusters("good"));
        stream.responses.message().await.ok()?.map(|response| texts(&response).len())
    };
    // They have to stand still for a while first. A client whose connection is closed at once may miss that, and tries again.
    let served = async {
        for n in 2.. {
            server.world.publish([cluster("a", &n.to_string())]);
            if let Ok(Some(n_clusters)) = tokio::time::timeout(Duration::from_secs(2), attempt()).await {
                return n_clusters;
            }
        }
        0
    };
    assert_eq!(within("a place", served).await, 1);
}
