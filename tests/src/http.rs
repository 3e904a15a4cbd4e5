//! A small HTTP client: single requests, and one connection that is watched for its end.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Makes requests, each on a connection of its own: a pooled one would outlive a server's restart.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Http {
    /// A client for HTTP/1.1 without TLS.
    #[must_use]
    pub fn new() -> Self {
        Self { client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http() }
    }

    /// Makes a GET request.
    ///
    /// # Errors
    ///
    /// If there is no answer; one with an error status is an answer.
    pub async fn get(&self, url: &str) -> Result<Answer> {
        self.send(Request::get(url).body(Full::default())?).await
    }

    /// Makes a POST request without a body.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn post(&self, url: &str) -> Result<Answer> {
        self.send(Request::post(url).body(Full::default())?).await
    }

    /// Makes a request.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let what = format!("{} {}", request.method(), request.uri());
        let exchange = async { Answer::read(self.client.request(request).await?).await };
        timeout(EXCHANGE_LIMIT, exchange).await.context("no answer in time").flatten().context(what)
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

/// A connection that stays open between requests.
#[derive(Debug)]
pub struct Connection {
    requests: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If no program listens at `addr`.
    pub async fn open(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { requests, authority: addr.to_string() })
    }

    /// Names another host in its requests than the address that it is to.
    #[must_use]
    pub fn with_authority(self, authority: &str) -> Self {
        Self { authority: authority.to_owned(), ..self }
    }

    /// Makes a GET request on this connection.
    ///
    /// # Errors
    ///
    /// If there is no answer, above all if the connection has been closed.
    pub async fn get(&mut self, path: &str) -> Result<Answer> {
        let request = Request::get(path).header(header::HOST, &self.authority).body(Full::default())?;
        let exchange = async { Answer::read(self.requests.send_request(request).await?).await };
        timeout(EXCHANGE_LIMIT, exchange).await.context("no answer in time").flatten()
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// Returns the body as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{} with no JSON in it: {}", self.status, self.text()))
    }

    /// Returns one header as text, or the empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Passes the answer on if its status is 2xx.
    ///
    /// # Errors
    ///
    /// Otherwise, with status and body.
    pub fn success(self) -> Result<Self> {
        ensure!(self.status.is_success(), "{}: {}", self.status, self.text());
        Ok(self)
    }

    async fn read(response: http::Response<Incoming>) -> Result<Self> {
        let (head, body) = response.into_parts();
        Ok(Self { status: head.status, headers: head.headers, body: body.collect().await?.to_bytes() })
    }
}

/// Longer than the longest `?wait=acked&timeout=` that a test uses, and than validations that wait for each other on a busy machine.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(120);
