//! A backend that says who it is, over plain HTTP and over gRPC, on one port.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// The request header that asks a backend to show the request.
pub const SHOW: &str = "x-show-request";

/// The answer's header that shows it.
pub const SHOWN: &str = "x-request";

/// An echo server in this process: HTTP/1.1, HTTP/2 and gRPC without TLS.
///
/// Every answer names the backend: the body and the header `x-backend` over HTTP, the message of a unary call
/// (any method) over gRPC. A request with the header [`SHOW`] is answered with itself in the header [`SHOWN`].
/// Dropping it stops it.
pub struct Backend {
    name: String,
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

impl Backend {
    /// Starts a backend on a free loopback port.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_at(name, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a backend on an address of the caller's choice.
    ///
    /// # Errors
    ///
    /// If the address is in use.
    pub async fn start_at(name: &str, addr: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(addr).await.with_context(|| format!("backend {name} at {addr}"))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new(name)?);
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { name: name.to_owned(), addr, shared, accepting })
    }

    /// Closes the port and all connections.
    pub fn stop(&self) {
        self.accepting.abort();
    }

    /// Fails a share of the requests from now on, evenly spread: 0 none, 0.25 every fourth, 1 all.
    ///
    /// A failure is HTTP status 503, or gRPC status 14 (`UNAVAILABLE`) with trailers only, so that clients may
    /// try again.
    pub fn fail(&self, share: f64) {
        let mut failures = self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures = Failures { share, owed: 0.0 };
    }

    /// Takes requests from now on, and never answers them.
    pub fn hang(&self) {
        self.shared.hangs.store(true, Ordering::Relaxed);
    }

    /// The name that its answers give.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// How many requests have come, failed ones too.
    #[must_use]
    pub fn n_requests(&self) -> u64 {
        self.shared.n_requests.load(Ordering::Relaxed)
    }

    /// How many connections have ever been accepted.
    #[must_use]
    pub fn n_accepted(&self) -> u64 {
        self.shared.n_accepted.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    #[must_use]
    pub fn n_open(&self) -> u64 {
        self.shared.n_open.load(Ordering::Relaxed)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({} at {}, {} requests)", self.name, self.addr, self.n_requests())
    }
}

/// The state that the tasks of a backend share.
struct Shared {
    name: HeaderValue,
    failures: Mutex<Failures>,
    hangs: AtomicBool,
    n_requests: AtomicU64,
    n_accepted: AtomicU64,
    n_open: AtomicU64,
}

impl Shared {
    fn new(name: &str) -> Result<Self> {
        Ok(Self {
            name: HeaderValue::from_str(name)?,
            failures: Mutex::default(),
            hangs: AtomicBool::new(false),
            n_requests: AtomicU64::new(0),
            n_accepted: AtomicU64::new(0),
            n_open: AtomicU64::new(0),
        })
    }

    fn name(&self) -> Bytes {
        Bytes::copy_from_slice(self.name.as_bytes())
    }

    fn must_fail(&self) -> bool {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).must_fail()
    }
}

/// The requests that fail: whenever a whole one is owed.
#[derive(Default)]
struct Failures {
    share: f64,
    owed: f64,
}

impl Failures {
    fn must_fail(&mut self) -> bool {
        self.owed += self.share;
        if self.owed < 1.0 {
            return false;
        }
        self.owed -= 1.0;
        true
    }
}

/// Counts a connection as open while it lives.
struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    fn new(shared: Arc<Shared>) -> Self {
        shared.n_accepted.fetch_add(1, Ordering::Relaxed);
        shared.n_open.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.n_open.fetch_sub(1, Ordering::Relaxed);
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, OpenConnection::new(Arc::clone(&shared))));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, connection: OpenConnection) {
    let shared = &connection.0;
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(Arc::clone(shared), request));
    // How a connection ends is the client's business.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    shared.n_requests.fetch_add(1, Ordering::Relaxed);
    let (head, body) = request.into_parts();
    body.collect().await?;
    let content_type = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if let Some(delay) = delay(&head) {
        tokio::time::sleep(delay).await;
    }
    if shared.hangs.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    let mut response = if content_type.starts_with(b"application/grpc") {
        grpc_answer(&shared)
    } else {
        http_answer(&shared)
    };
    if head.headers.contains_key(SHOW)
        && let Ok(shown) = HeaderValue::from_str(&show(&head))
    {
        response.headers_mut().insert(SHOWN, shown);
    }
    response.headers_mut().insert("x-backend", shared.name.clone());
    Ok(response)
}

/// How long the request wants its answer to take: `?delay_ms=500`.
fn delay(head: &Parts) -> Option<Duration> {
    let query = head.uri.query()?;
    let ms = query.split('&').find_map(|pair| pair.strip_prefix("delay_ms="))?;
    ms.parse().ok().map(Duration::from_millis)
}

/// A request as JSON: `method`, `path` with the query, `authority`, and `headers` by name, of which equal ones are joined
/// with commas.
fn show(head: &Parts) -> String {
    let mut headers = BTreeMap::<&str, String>::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let joined = headers.entry(name.as_str()).or_default();
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(&value);
    }
    let host = || headers.get("host").cloned().unwrap_or_default();
    let authority = head.uri.authority().map_or_else(host, ToString::to_string);
    let path = head.uri.path_and_query().map(ToString::to_string);
    let method = head.method.as_str();
    json!({"method": method, "path": path, "authority": authority, "headers": headers}).to_string()
}

fn http_answer(shared: &Shared) -> Response<Body> {
    let mut response = Response::new(body([Frame::data(shared.name())]));
    if shared.must_fail() {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

fn grpc_answer(shared: &Shared) -> Response<Body> {
    let mut response = if shared.must_fail() {
        // Not a stream without frames: only a body that is known to be empty lets the headers end the stream.
        let mut response = Response::new(BoxBody::new(Empty::new()));
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("14"));
        response.headers_mut().insert("grpc-message", HeaderValue::from_static("told to fail"));
        response
    } else {
        let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
        Response::new(body([Frame::data(grpc_message(&shared.name())), Frame::trailers(trailers)]))
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Puts gRPC's frame around a message: not compressed, its length.
fn grpc_message(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    // A name is short.
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

fn body<const N: usize>(frames: [Frame<Bytes>; N]) -> Body {
    BoxBody::new(StreamBody::new(stream::iter(frames).map(Ok)))
}

const GRPC_STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;
    use crate::http::{Connection, Http};
    use crate::wait::wait_for;

    #[tokio::test]
    async fn an_http_answer_names_the_backend() -> Result<()> {
        let backend = Backend::start("b1").await?;
        let answer = Http::new().get(&format!("http://{}/", backend.addr())).await?;
        assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "b1"));
        assert_eq!(answer.header("x-backend"), "b1");
        assert_eq!(backend.n_requests(), 1);
        Ok(())
    }

    #[tokio::test]
    async fn every_fourth_request_fails() -> Result<()> {
        let backend = Backend::start("b1").await?;
        backend.fail(0.25);
        let mut connection = Connection::open(backend.addr()).await?;
        let mut failed = Vec::new();
        for i in 0..8 {
            if connection.get("/").await?.status == StatusCode::SERVICE_UNAVAILABLE {
                failed.push(i);
            }
        }
        assert_eq!(failed, [3, 7]);
        assert_eq!((backend.n_accepted(), backend.n_open()), (1, 1));
        Ok(())
    }

    #[tokio::test]
    async fn stopping_closes_connections() -> Result<()> {
        let backend = Backend::start("b1").await?;
        let mut connection = Connection::open(backend.addr()).await?;
        connection.get("/").await?;
        backend.stop();
        wait_for("no connection", Duration::from_secs(5), async || {
            ensure!(backend.n_open() == 0, "{} open", backend.n_open());
            Ok(())
        })
        .await?;
        assert!(connection.get("/").await.is_err());
        Ok(())
    }
}
