//! A gRPC call with a message as bytes.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;
use xds_tests::wait::PATIENCE;

/// Makes a call with one message and returns how it ended: `OK`, or the code and text of the status.
///
/// # Errors
///
/// If there is no connection, or no end in time.
pub(crate) async fn call(addr: SocketAddr, path: &'static str, message: Vec<u8>) -> Result<String> {
    let stream = TcpStream::connect(addr).await?;
    let (mut requests, connection) = http2::Builder::new(TokioExecutor::new())
        // A response of any size is taken in at once.
        .initial_stream_window_size(16 << 20)
        .handshake(TokioIo::new(stream))
        .await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post(format!("http://{addr}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(framed(&message)))?;
    let exchange = async {
        let response = requests.send_request(request).await?;
        let headers = response.headers().clone();
        let trailers = response.into_body().collect().await?.trailers().cloned().unwrap_or_default();
        let status = |name: &str| {
            let value = trailers.get(name).or_else(|| headers.get(name));
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        anyhow::Ok(match status("grpc-status").as_str() {
            "0" => "OK".to_owned(),
            code => format!("status {code}, {:.80}", status("grpc-message")),
        })
    };
    let outcome = timeout(2 * PATIENCE, exchange).await.context("the call does not end")?;
    connection.abort();
    outcome
}

/// A message behind gRPC's header.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}
