//! The HTTP client of webhooks and queries: HTTP/1.1, plain or over TLS, one request for each connection, no redirects.
//!
//! Answers are not trusted: their time, and the length of head and body, have limits. Failures are logged and shown, so they contain
//! no part of a URL but the host, and no part of an answer but its status.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use xds_cache::Refusals;
use xds_cache::refusals::Reason;

use super::reach::{Reach, Refusal};
use super::trust::Trust;

/// The longest body of an answer.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// The longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The hosts that rollouts may call, and the authorities that they trust.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The hosts that may be called.
    pub reach: Reach,
    /// The trusted authorities.
    pub trust: Trust,
    /// Counts calls that are refused.
    pub refusals: Arc<Refusals>,
}

/// The answer to a call.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// How long it took.
    pub(super) duration: Duration,
}

impl Caller {
    /// Why a URL cannot be called; `None` if its text is fine.
    pub(super) fn refusal(&self, url: &str) -> Option<String> {
        match Target::parse(url) {
            Err(problem) => Some(problem.to_owned()),
            Ok(target) => self.reach.refusal(&target.host).map(|refusal| self.refuse(&refusal)),
        }
    }

    /// Connects to one of a host's addresses that may be called. The name is looked up once, so the checked address is the one that is
    /// connected to.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let failed = |error: io::Error| format!("cannot connect: {error}");
        let found: Vec<IpAddr> =
            lookup_host((host, port)).await.map_err(failed)?.map(|found| found.ip()).collect();
        let addresses = self.reach.permitted(host, &found).map_err(|refusal| self.refuse(&refusal))?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect(SocketAddr::from((address, port))).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn refuse(&self, refusal: &Refusal) -> String {
        let told = refusal.to_string();
        self.refusals.record(Reason::CallTarget, &told, SystemTime::now());
        told
    }
}

/// Gets a URL.
///
/// # Errors
///
/// Says why there is no answer.
pub(super) async fn get(caller: &Caller, url: &str, limit: Duration) -> Result<Answer, String> {
    within(limit, send(caller, Method::GET, url, Bytes::new())).await
}

/// Posts JSON to a URL.
///
/// # Errors
///
/// Says why there is no answer.
pub(super) async fn post(caller: &Caller, url: &str, body: Bytes, limit: Duration) -> Result<Answer, String> {
    within(limit, send(caller, Method::POST, url, body)).await
}

async fn within(
    limit: Duration,
    answer: impl Future<Output = Result<Answer, String>>,
) -> Result<Answer, String> {
    timeout(limit, answer).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

async fn send(caller: &Caller, method: Method, url: &str, body: Bytes) -> Result<Answer, String> {
    let began = Instant::now();
    let target = Target::parse(url)?;
    let stream = caller.connect(&target.host, target.port).await?;
    let request = target.request(&method, body)?;
    let (status, body) = if target.is_tls {
        exchange(caller.trust.connect(&target.host, stream).await?, request).await?
    } else {
        exchange(stream, request).await?
    };
    Ok(Answer { status, body, duration: began.elapsed() })
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let failed = |error: hyper::Error| format!("not an HTTP answer: {error}");
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?.to_bytes();
        Ok((status, body))
    };
    // The connection ends with this future at the latest.
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        _ = &mut connection => exchange.await,
    }
}

/// The target of a URL.
struct Target {
    uri: Uri,
    host: String,
    port: u16,
    is_tls: bool,
}

impl Target {
    /// Reads a URL; the error explains what is wrong with it.
    fn parse(url: &str) -> Result<Self, &'static str> {
        const BAD: &str = "it is not a URL such as http://host:port/path or https://host/path";
        let uri: Uri = url.parse().map_err(|_| BAD)?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(BAD),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(BAD)?;
        let authority = uri.authority().map_or("", http::uri::Authority::as_str);
        let port = uri.port_u16();
        // A port that is no port is left out by the reader of URLs; so is a user.
        if authority.contains('@') || port.is_none() && authority.len() > host.len() {
            return Err(BAD);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { uri, host, port, is_tls })
    }

    fn request(&self, method: &Method, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let path = self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let authority = self.uri.authority().map_or("", http::uri::Authority::as_str);
        let mut request = Request::builder()
            .method(method)
            .uri(if path.is_empty() { "/" } else { path })
            .header(HOST, authority)
            .header(USER_AGENT, concat!("xds-server/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, HeaderValue::from_static("close"));
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request.body(Full::new(body)).map_err(|error| error.to_string())
    }
}
