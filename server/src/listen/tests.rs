//! Ports with real sockets, and clients that misbehave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xds_cache::{Reason, Refusals};

use super::*;

const RULES: PortRules = PortRules {
    name: "test",
    max_connections: 100,
    reason: Reason::AdminConnections,
    opening: Duration::from_secs(60),
    idle: Duration::from_secs(60),
    stalled: Duration::from_secs(60),
    may_take_later: false,
    max_of_address: usize::MAX,
    is_http1_only: false,
};
const SOON: Duration = Duration::from_millis(300);

struct Rig {
    address: SocketAddr,
    refusals: Arc<Refusals>,
    port: Arc<Port>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Rig {
    async fn start(rules: PortRules) -> Self {
        let refusals = Arc::<Refusals>::default();
        let port = Port::new(rules, None, Arc::clone(&refusals));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/hangs", get(std::future::pending::<&str>))
            .route("/large", get(|| async { "x".repeat(32 << 20) }))
            .route("/echo", post(|body: String| async { body }));
        let drain_timeout = Duration::from_millis(500);
        let serving = tokio::spawn(serve_http(
            listener,
            Arc::clone(&port),
            router,
            async {
                let _ = stopped.await;
            },
            drain_timeout,
        ));
        Self { address, refusals, port, stop: Some(stop), serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn n_refused(&self, reason: Reason) -> u64 {
        self.refusals.counts()[&reason]
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(output) => output,
        Err(_) => panic!("waited too long for {what}"),
    }
}

/// The bytes that come until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut found = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let reading = async {
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            found.extend_from_slice(&buffer[..n]);
        }
    };
    within("the end of the connection", reading).await;
    found
}

/// Makes a request, and returns the answer up to its known end.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut found = String::new();
    while !found.ends_with("here") {
        let mut buffer = [0; 1024];
        let n = within("an answer", stream.read(&mut buffer)).await.unwrap();
        assert!(n > 0, "the connection ended after {found:?}");
        found.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    found
}

#[tokio::test]
async fn a_connection_must_say_something_soon() {
    let rig = Rig::start(PortRules { opening: SOON, ..RULES }).await;
    for words in [b"".as_slice(), b"GET / HTTP", b"PRI * HTTP"] {
        let mut silent = rig.connect().await;
        silent.write_all(words).await.unwrap();
        rest(&mut silent).await;
    }
    assert_eq!(rig.n_refused(Reason::SlowConnection), 3);
}

#[tokio::test]
async fn a_connection_without_requests_ends_and_one_that_is_in_use_does_not() {
    let rig = Rig::start(PortRules { idle: SOON, ..RULES }).await;
    let mut idle = rig.connect().await;
    ask(&mut idle).await;
    let mut uploading = rig.connect().await;
    uploading
        .write_all(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nhe")
        .await
        .unwrap();
    rest(&mut idle).await;
    uploading.write_all(b"re").await.unwrap();
    let answer = String::from_utf8(rest(&mut uploading).await).unwrap();
    assert!(answer.ends_with("here"), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_makes_room_for_a_new_one() {
    let rig = Rig::start(PortRules { max_connections: 3, ..RULES }).await;
    let mut old = Vec::new();
    for _ in 0..3 {
        let mut stream = rig.connect().await;
        ask(&mut stream).await;
        old.push(stream);
    }
    // The first one was used last.
    ask(&mut old[0]).await;
    let mut new = rig.connect().await;
    ask(&mut new).await;
    rest(&mut old[1]).await;
    ask(&mut old[0]).await;
    ask(&mut old[2]).await;
    assert_eq!(rig.n_refused(Reason::AdminConnections), 1);
}

#[tokio::test]
async fn where_every_connection_is_in_use_a_new_one_is_refused() {
    let rig = Rig::start(PortRules { max_connections: 2, ..RULES }).await;
    let mut uploading = Vec::new();
    for _ in 0..2 {
        let mut stream = rig.connect().await;
        stream
            .write_all(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n")
            .await
            .unwrap();
        uploading.push(stream);
    }
    within("both to be in use", async {
        while !rig.port.is_full_of_busy() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(rest(&mut rig.connect().await).await, b"");
    assert_eq!(rig.n_refused(Reason::AdminConnections), 1);
    uploading[0].write_all(b"here").await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off() {
    let rig = Rig::start(PortRules { stalled: SOON, ..RULES }).await;
    let mut stalled = rig.connect().await;
    stalled.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    within("the end", async {
        while rig.n_refused(Reason::SlowConnection) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(rest(&mut stalled).await.len() < 32 << 20);
}

/// A connection whose client asks for something and takes nothing of the answer: its window of HTTP/2 is closed.
async fn without_window(rig: &Rig) -> TcpStream {
    let mut stream = rig.connect().await;
    // SETTINGS with INITIAL_WINDOW_SIZE 0, and HEADERS of `GET http://…/`.
    let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
    let headers = b"\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
    let all = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), settings, headers].concat();
    stream.write_all(&all).await.unwrap();
    stream
}

async fn until_full(rig: &Rig) {
    within("all to be in use", async {
        while !rig.port.is_full_of_busy() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_keeps_its_window_closed_is_cut_off() {
    let rig = Rig::start(PortRules { stalled: SOON, ..RULES }).await;
    let mut closed = without_window(&rig).await;
    within("the end", rest(&mut closed)).await;
    assert_eq!(rig.n_refused(Reason::SlowConnection), 1);
    // One that waits for the server is no such client.
    let mut waiting = rig.connect().await;
    waiting.write_all(b"GET /hangs HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut byte = [0];
    tokio::time::timeout(3 * SOON, waiting.read(&mut byte)).await.unwrap_err();
}

#[tokio::test]
async fn clients_that_do_not_move_make_room() {
    let rig = Rig::start(PortRules { max_connections: 2, ..RULES }).await;
    let mut closed = without_window(&rig).await;
    let mut slow = rig.connect().await;
    slow.write_all(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n").await.unwrap();
    until_full(&rig).await;
    let mut kept = Vec::new();
    for stuck in [&mut closed, &mut slow] {
        // They have to stand still for a while first.
        let mut newcomer = within("room", async {
            loop {
                let mut newcomer = rig.connect().await;
                newcomer.write_all(b"GET /hangs HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
                let mut byte = [0];
                let read = tokio::time::timeout(SOON, newcomer.read(&mut byte)).await;
                if read.is_err() {
                    return newcomer;
                }
            }
        })
        .await;
        within("the end", rest(stuck)).await;
        // It stays: it waits for the server.
        let mut byte = [0];
        tokio::time::timeout(SOON, newcomer.read(&mut byte)).await.unwrap_err();
        kept.push(newcomer);
    }
}

#[tokio::test]
async fn an_address_with_too_many_connections_makes_room_for_another_address() {
    let rig = Rig::start(PortRules { max_connections: 4, max_of_address: 2, ..RULES }).await;
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = rig.connect().await;
        stream.write_all(b"GET /hangs HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        busy.push(stream);
    }
    until_full(&rig).await;
    assert_eq!(rest(&mut rig.connect().await).await, b"", "the same address finds no room");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(rig.address).await.unwrap();
    ask(&mut other).await;
    within("the end of the oldest", rest(&mut busy[0])).await;
}

#[tokio::test]
async fn a_port_of_http1_takes_no_http2() {
    let rig = Rig::start(PortRules { is_http1_only: true, ..RULES }).await;
    let mut stream = without_window(&rig).await;
    let answer = within("the end", rest(&mut stream)).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    ask(&mut rig.connect().await).await;
}

/// A connection that has exchanged settings, and what it was sent for them.
async fn http2(rig: &Rig) -> TcpStream {
    let mut stream = rig.connect().await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_is_to_leave_is_told_between_two_frames_and_goes_on() {
    let rig = Rig::start(RULES).await;
    let mut stream = http2(&rig).await;
    let mut found = Vec::new();
    let ask = async |stream: &mut TcpStream, found: &mut Vec<u8>| {
        stream.write_all(b"\0\0\x08\x06\0\0\0\0\0pingpong").await.unwrap();
        let before = found.len();
        // The answer to a ping is the ping with a flag.
        while count(&found[before..], b"\0\0\x08\x06\x01\0\0\0\0pingpong") == 0 {
            let mut buffer = [0; 1024];
            let n = within("an answer", stream.read(&mut buffer)).await.unwrap();
            assert!(n > 0, "the connection ended after {found:?}");
            found.extend_from_slice(&buffer[..n]);
        }
    };
    ask(&mut stream, &mut found).await;
    assert_eq!(count(&found, &frames::CONNECT_AGAIN), 0);
    let [peer] = &rig.port.peers()[..] else { panic!("{:?}", rig.port.peers()) };
    peer.ask_to_leave();
    ask(&mut stream, &mut found).await;
    ask(&mut stream, &mut found).await;
    assert_eq!(count(&found, &frames::CONNECT_AGAIN), 1);
}

/// How often bytes have a part.
fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

#[tokio::test]
async fn a_flood_of_control_frames_ends_with_goaway() {
    let rig = Rig::start(RULES).await;
    let ping = b"\0\0\x08\x06\0\0\0\0\0pingpong".as_slice();
    let settings = b"\0\0\0\x04\0\0\0\0\0".as_slice();
    let priority = b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10".as_slice();
    let unknown = b"\0\0\0\xfa\0\0\0\0\0".as_slice();
    for (n, frame) in [ping, settings, priority, unknown].into_iter().enumerate() {
        let (mut reader, mut writer) = http2(&rig).await.into_split();
        let flood = frame.repeat(1000);
        let writing = tokio::spawn(async move {
            // Far more than what a connection may send, unless it is ended.
            for _ in 0..1000 {
                if writer.write_all(&flood).await.is_err() {
                    break;
                }
            }
        });
        let mut found = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        within("the end", async {
            while let Ok(n @ 1..) = reader.read(&mut buffer).await {
                found.extend_from_slice(&buffer[..n]);
            }
        })
        .await;
        within("the end of the flood", writing).await.unwrap();
        let goaway = frames::calm_down(0);
        assert!(found.ends_with(&goaway), "{n}: {:?}", &found[found.len().saturating_sub(60)..]);
        assert_eq!(rig.n_refused(Reason::Flood), n as u64 + 1);
    }
    ask(&mut rig.connect().await).await;
}

#[tokio::test]
async fn what_a_client_may_send_is_no_flood() {
    let rig = Rig::start(RULES).await;
    let mut stream = http2(&rig).await;
    let ping = b"\0\0\x08\x06\0\0\0\0\0pingpong";
    let mut n_answers = 0;
    let mut answers = frames::Frames::default();
    for _ in 0..400 {
        stream.write_all(&ping.repeat(100)).await.unwrap();
        n_answers += 100;
        let mut n_seen = 0;
        while n_seen < 100 {
            let mut buffer = [0; 4096];
            let n = within("an answer", stream.read(&mut buffer)).await.unwrap();
            assert!(n > 0, "ended after {n_answers} pings");
            answers.follow(&buffer[..n], |header| n_seen += u32::from(header.kind == 6 && header.flags == 1));
        }
    }
    assert_eq!(rig.n_refused(Reason::Flood), 0);
}

#[tokio::test]
async fn the_end_comes_in_time_whatever_clients_do() {
    let mut rig = Rig::start(RULES).await;
    let mut idle = rig.connect().await;
    ask(&mut idle).await;
    let mut uploading = rig.connect().await;
    uploading
        .write_all(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n")
        .await
        .unwrap();
    rig.stop.take().unwrap().send(()).unwrap();
    within("the end", rig.serving).await.unwrap();
    rest(&mut idle).await;
    rest(&mut uploading).await;
}
