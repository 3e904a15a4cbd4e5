//! A client that speaks HTTP/2 and nothing above it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A connection. Dropping it closes it.
pub(crate) struct Http2 {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

/// A call whose body the test sends.
pub(crate) struct Call {
    pub(crate) body: SendStream<Bytes>,
    response: ResponseFuture,
}

impl Http2 {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(stream).await?;
        let connection = tokio::spawn(async move {
            // How it ends is seen by the calls.
            let _ = connection.await;
        });
        Ok(Self { requests, connection })
    }

    /// Begins a gRPC call.
    pub(crate) async fn call(&mut self, path: &str) -> Result<Call> {
        let request = Request::post(format!("http://xds{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        self.requests = self.requests.clone().ready().await?;
        let (response, body) = self.requests.send_request(request, false)?;
        Ok(Call { body, response })
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Call {
    /// Sends up to `n_bytes` zeros; returns how many were sent until the server ended the call.
    pub(crate) async fn send_zeros(&mut self, n_bytes: usize) -> usize {
        let zeros = Bytes::from(vec![0; 16 * 1024]);
        let mut n_sent = 0;
        while n_sent < n_bytes {
            self.body.reserve_capacity(zeros.len().min(n_bytes - n_sent));
            let granted = std::future::poll_fn(|cx| self.body.poll_capacity(cx)).await;
            let Some(Ok(n_granted)) = granted else { break };
            let data = zeros.slice(..n_granted.min(zeros.len()).min(n_bytes - n_sent));
            n_sent += data.len();
            if self.body.send_data(data, false).is_err() {
                break;
            }
        }
        n_sent
    }

    /// Waits for the end of the call: `grpc-status` and `grpc-message`.
    pub(crate) async fn status(self) -> Result<(String, String)> {
        let response = self.response.await?;
        let (parts, mut body) = response.into_parts();
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        if let Some(status) = text(&parts.headers, "grpc-status") {
            return Ok((status, text(&parts.headers, "grpc-message").unwrap_or_default()));
        }
        let trailers = drain(&mut body).await?;
        let status = text(&trailers, "grpc-status").context("no status")?;
        Ok((status, text(&trailers, "grpc-message").unwrap_or_default()))
    }
}

async fn drain(body: &mut RecvStream) -> Result<HeaderMap> {
    while let Some(data) = body.data().await {
        body.flow_control().release_capacity(data?.len())?;
    }
    body.trailers().await?.context("no trailers")
}

/// The beginning of a gRPC message: its header, and the bytes that are given.
pub(crate) fn beginning(n_announced: u32, bytes: &[u8]) -> Bytes {
    [&[0][..], &n_announced.to_be_bytes(), bytes].concat().into()
}
