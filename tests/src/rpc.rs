//! Single requests to any host, path and headers: HTTP/1.1, and gRPC over HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::{SHOW, SHOWN};

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// `GET` and the like; `None` makes it a gRPC call.
    pub method: Option<Method>,
    /// The host with or without port, as `Host` or `:authority`.
    pub host: String,
    /// The path, with a query if there is one.
    pub path: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The body of a request; a call has one of its own.
    pub body: Bytes,
}

impl Ask {
    /// A GET request.
    #[must_use]
    pub fn get(host: &str, path: &str) -> Self {
        let (host, path) = (host.to_owned(), path.to_owned());
        Self { method: Some(Method::GET), host, path, headers: Vec::new(), body: Bytes::new() }
    }

    /// A gRPC call.
    #[must_use]
    pub fn call(host: &str, path: &str) -> Self {
        Self { method: None, ..Self::get(host, path) }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it to `addr`.
    ///
    /// # Errors
    ///
    /// If there is no answer; one with an error status is an answer.
    pub async fn send(&self, addr: SocketAddr) -> Result<Told> {
        let connected = TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
        self.send_over(connected).await
    }

    /// Sends it over a connection that is open already, TLS for instance. A call speaks HTTP/2 at once, a request HTTP/1.1.
    ///
    /// # Errors
    ///
    /// If there is no answer; one with an error status is an answer.
    pub async fn send_over<C>(&self, connection: C) -> Result<Told>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = TokioIo::new(connection);
        let exchange = async {
            match &self.method {
                Some(method) => self.send_http(connection, method).await,
                None => self.send_grpc(connection).await,
            }
        };
        timeout(LIMIT, exchange)
            .await
            .context("no answer in time")
            .flatten()
            .with_context(|| format!("{self:?}"))
    }

    async fn send_http<C>(&self, connection: TokioIo<C>, method: &Method) -> Result<Told>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut requests, connection) = http1::handshake(connection).await?;
        tokio::spawn(connection);
        let request = self.request(method, &self.path).header("host", &self.host);
        let request = request.body(Full::new(self.body.clone()))?;
        let (head, body) = requests.send_request(request).await?.into_parts();
        body.collect().await?;
        let backend = head.headers.get("x-backend").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(Told { code: head.status.as_u16(), backend: backend.to_owned(), headers: head.headers })
    }

    async fn send_grpc<C>(&self, connection: TokioIo<C>) -> Result<Told>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut requests, connection) = http2::handshake(TokioExecutor::new(), connection).await?;
        tokio::spawn(connection);
        let uri = format!("http://{}{}", self.host, self.path);
        let request = self.request(&Method::POST, &uri).header("content-type", "application/grpc");
        let request = request.header("te", "trailers").body(Full::new(Bytes::from_static(&[0; 5])))?;
        let (head, body) = requests.send_request(request).await?.into_parts();
        let trailers = body.collect().await?.trailers().cloned().unwrap_or_default();
        let status = head.headers.get("grpc-status").or_else(|| trailers.get("grpc-status"));
        let status = status.with_context(|| format!("no grpc-status: {} {:?}", head.status, head.headers))?;
        let backend = head.headers.get("x-backend").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(Told { code: status.to_str()?.parse()?, backend: backend.to_owned(), headers: head.headers })
    }

    fn request(&self, method: &Method, uri: &str) -> http::request::Builder {
        let mut request = Request::builder().method(method).uri(uri).header(SHOW, "1");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub struct Told {
    /// The HTTP status, or the gRPC status code of a call.
    pub code: u16,
    /// The backend that answered; empty if none did.
    pub backend: String,
    /// The headers of the answer.
    pub headers: HeaderMap,
}

impl Told {
    /// The request as the backend got it: `method`, `path`, `authority`, `headers`.
    ///
    /// # Errors
    ///
    /// If no backend answered.
    pub fn request(&self) -> Result<Value> {
        let shown = self.headers.get(SHOWN).with_context(|| format!("no backend answered: {self:?}"))?;
        Ok(serde_json::from_slice(shown.as_bytes())?)
    }

    /// A header of the request as the backend got it; equal ones joined with commas; `None` if there was none.
    ///
    /// # Errors
    ///
    /// As [`request`](Self::request).
    pub fn request_header(&self, name: &str) -> Result<Option<String>> {
        Ok(self.request()?["headers"][name].as_str().map(str::to_owned))
    }

    /// Fails unless this backend answered, and well.
    ///
    /// # Errors
    ///
    /// Otherwise, with what came back.
    pub fn ensure_from(&self, backend: &str) -> Result<()> {
        let is_ok = matches!(self.code, 0 | 200);
        ensure!(is_ok && self.backend == backend, "expected {backend}, found {self:?}");
        Ok(())
    }

    /// Fails unless the answer is good. Any backend may give it.
    ///
    /// # Errors
    ///
    /// Otherwise, with what came back.
    pub fn ensure_ok(&self) -> Result<()> {
        ensure!(matches!(self.code, 0 | 200), "expected a good answer, found {self:?}");
        Ok(())
    }

    /// Fails unless the answer has this status, HTTP or gRPC, and is of no backend.
    ///
    /// # Errors
    ///
    /// Otherwise, with what came back.
    pub fn ensure_code(&self, code: u16) -> Result<()> {
        ensure!(self.code == code && self.backend.is_empty(), "expected status {code}, found {self:?}");
        Ok(())
    }
}

/// gRPC's status `UNIMPLEMENTED`: no route.
pub const UNIMPLEMENTED: u16 = 12;

/// gRPC's status `UNAVAILABLE`: no backend.
pub const UNAVAILABLE: u16 = 14;

/// Longer than any time limit that a test's route has.
const LIMIT: Duration = Duration::from_secs(30);
