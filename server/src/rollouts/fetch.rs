//! The HTTP client of webhooks and queries: plain HTTP/1.1, one request for each connection, no redirects.
//!
//! Whatever answers is not trusted: time, and the length of the body and of the head, are bounded.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest body of an answer.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// The longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Says why a URL cannot be called; `None` if it can.
pub(super) fn refusal(url: &str) -> Option<&'static str> {
    if url.starts_with("https://") {
        return Some("https is not spoken here; call http, such as that of a proxy on the same host");
    }
    match parse(url) {
        Ok(_) => None,
        Err(_) => Some("it is no URL such as http://host:port/path"),
    }
}

/// Gets a URL.
///
/// # Errors
///
/// Says why there is no answer.
pub(super) async fn get(url: &str, limit: Duration) -> Result<Answer, String> {
    within(limit, send(Method::GET, url, Bytes::new())).await
}

/// Posts JSON to a URL.
///
/// # Errors
///
/// Says why there is no answer.
pub(super) async fn post(url: &str, body: Bytes, limit: Duration) -> Result<Answer, String> {
    within(limit, send(Method::POST, url, body)).await
}

async fn within(
    limit: Duration,
    answer: impl Future<Output = Result<Answer, String>>,
) -> Result<Answer, String> {
    timeout(limit, answer).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

async fn send(method: Method, url: &str, body: Bytes) -> Result<Answer, String> {
    let (uri, host, port) = parse(url)?;
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    let failed = |error: hyper::Error| format!("no HTTP answer: {error}");
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let mut request = Request::builder()
        .method(&method)
        .uri(if path.is_empty() { "/" } else { path })
        .header(HOST, authority)
        .header(USER_AGENT, concat!("xds-server/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, HeaderValue::from_static("close"));
    if method == Method::POST {
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?.to_bytes();
        Ok(Answer { status, body })
    };
    // The connection ends with this future, whatever comes first.
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        _ = &mut connection => exchange.await,
    }
}

/// The parts of a URL: the whole, the host to connect to and the port.
fn parse(url: &str) -> Result<(Uri, String, u16), String> {
    let bad = || format!("{url:?} is no URL such as http://host:port/path");
    let uri: Uri = url.parse().map_err(|_| bad())?;
    if uri.scheme_str() != Some("http") {
        return Err(bad());
    }
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let port = uri.port_u16();
    // A port that is no port is left out by the reader of URLs.
    if port.is_none() && authority.len() > host.len() {
        return Err(bad());
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((uri, host, port.unwrap_or(80)))
}
