//! Requests at a constant rate in the background, and their outcomes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::transitions::{HOSTS, LISTENERS, SECURE_LISTENER, SERVER_NAME, Target};
use crate::worker::{Calls, Channel, Counts, Hold};

/// The outcomes of the requests to each target.
pub type Tally = BTreeMap<Target, Counts>;

/// HTTP requests to all targets in turn, through Envoy's listeners. Dropping it ends them.
///
/// One half goes over connections that are kept as long as Envoy lets them, the other half over a new connection for each request.
#[derive(Debug)]
pub struct HttpLoad {
    to: To,
    tally: Arc<Mutex<Tally>>,
    _senders: JoinSet<()>,
}

impl HttpLoad {
    /// Starts `per_second` requests to the listeners at these addresses; the secure one is asked over TLS.
    #[must_use]
    pub fn start(addrs: [SocketAddr; LISTENERS.len()], tls: TlsConnector, per_second: u32) -> Self {
        let to = To { addrs, tls };
        let tally = Arc::<Mutex<Tally>>::default();
        let mut senders = JoinSet::new();
        let period = Duration::from_secs(1) * N_SENDERS / per_second;
        for i in 0..N_SENDERS {
            let is_kept = i % 2 == 0;
            let sender = Sender { to: to.clone(), is_kept, kept: [None, None] };
            senders.spawn(send(sender, i, period, Arc::clone(&tally)));
        }
        Self { to, tally, _senders: senders }
    }

    /// Returns what became of the requests since the last call.
    #[must_use]
    pub fn take(&self) -> Tally {
        std::mem::take(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes one request and returns the name of the backend that answered.
    ///
    /// # Errors
    ///
    /// If it fails, or takes longer than 10 s.
    pub async fn who(&self, target: Target) -> Result<String> {
        let mut sender = Sender { to: self.to.clone(), is_kept: false, kept: [None, None] };
        let answer = timeout(LIMIT, sender.request(target)).await.context("no answer in time").flatten();
        answer.with_context(|| target.to_string())
    }
}

/// gRPC calls to all targets that can be reached, through channels to [`LISTENERS`], until they are stopped.
///
/// # Errors
///
/// If the worker does not answer.
pub async fn hold_all<'w>(
    channels: &[Channel<'w>; LISTENERS.len()],
    per_second: u32,
) -> Result<Vec<(Target, Hold<'w>)>> {
    let targets: Vec<_> = Target::all_of_grpc().collect();
    let each = per_second / u32::try_from(targets.len())?;
    let mut holds = Vec::new();
    for target in targets {
        let calls = Calls { method: target.path(), ..Calls::new(1) };
        holds.push((target, channels[target.listener].hold(&calls, each).await?));
    }
    Ok(holds)
}

/// Where requests go.
#[derive(Clone)]
struct To {
    addrs: [SocketAddr; LISTENERS.len()],
    tls: TlsConnector,
}

/// A sender that makes one request after the other.
struct Sender {
    to: To,
    /// True if connections are kept.
    is_kept: bool,
    kept: [Option<SendRequest<Empty<Bytes>>>; LISTENERS.len()],
}

async fn send(mut sender: Sender, first: u32, period: Duration, tally: Arc<Mutex<Tally>>) {
    let mut due = interval(period);
    // Each begins somewhere else, so that all targets are asked all the time.
    let targets: Vec<_> = Target::all().collect();
    let n_skipped = usize::try_from(first).unwrap_or_default() * targets.len() / N_SENDERS as usize;
    for target in targets.iter().cycle().skip(n_skipped) {
        due.tick().await;
        let answer = timeout(LIMIT, sender.request(*target)).await.context("no answer in time").flatten();
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = tally.entry(*target).or_default();
        match answer {
            Ok(name) => *counts.names.entry(name).or_default() += 1,
            Err(error) => {
                *counts.errors.entry(error.root_cause().to_string()).or_default() += 1;
                counts.first_error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }
}

impl fmt::Debug for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addrs.fmt(f)
    }
}

impl To {
    async fn connect(&self, listener: usize) -> Result<SendRequest<Empty<Bytes>>> {
        let stream = TcpStream::connect(self.addrs[listener]).await.context("connect")?;
        stream.set_nodelay(true)?;
        if listener != SECURE_LISTENER {
            return begin(stream).await;
        }
        let name = ServerName::try_from(SERVER_NAME)?;
        begin(self.tls.connect(name, stream).await.context("TLS")?).await
    }
}

async fn begin(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Empty<Bytes>>> {
    let (requests, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(requests)
}

impl Sender {
    /// Makes a request and returns who answered it.
    async fn request(&mut self, target: Target) -> Result<String> {
        if let Some(mut kept) = self.kept[target.listener].take() {
            match self.exchange(&mut kept, target).await {
                // Envoy closed the connection before the request was there: every client of HTTP/1.1 tries again.
                Err(error) if is_closed(&error) => {}
                answer => return self.keep(target, kept, answer),
            }
        }
        let mut requests = self.to.connect(target.listener).await?;
        let answer = self.exchange(&mut requests, target).await.context("on a new connection");
        self.keep(target, requests, answer)
    }

    /// Keeps the connection if it may be kept, and passes the answer on.
    fn keep(
        &mut self,
        target: Target,
        requests: SendRequest<Empty<Bytes>>,
        answer: Result<(String, bool)>,
    ) -> Result<String> {
        let (name, is_open) = answer?;
        if self.is_kept && is_open {
            self.kept[target.listener] = Some(requests);
        }
        Ok(name)
    }

    /// Returns who answered, and whether the connection stays open.
    async fn exchange(
        &self,
        requests: &mut SendRequest<Empty<Bytes>>,
        target: Target,
    ) -> Result<(String, bool)> {
        requests.ready().await?;
        let request = Request::get(target.path()).header(header::HOST, HOSTS[target.host]);
        let request = request.header(LISTENER_HEADER, LISTENERS[target.listener]).body(Empty::new())?;
        let response = requests.send_request(request).await?;
        let (head, body) = response.into_parts();
        // Once the answer has begun, no client tries again.
        let body = body.collect().await.map_err(|error| anyhow!("in the body: {error:?}"))?.to_bytes();
        ensure!(head.status == StatusCode::OK, "{}: {body:?}", head.status);
        let is_closing = head.headers.get(header::CONNECTION).is_some_and(|value| value == "close");
        Ok((String::from_utf8_lossy(&body).into_owned(), !is_closing))
    }
}

/// Returns `true` if a connection was closed instead of an answer. If the request was on its way by then, that is a reset.
fn is_closed(error: &anyhow::Error) -> bool {
    let is_reset = error
        .root_cause()
        .downcast_ref::<io::Error>()
        .is_some_and(|error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
    is_reset
        || error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_canceled() || error.is_closed() || error.is_incomplete_message())
}

/// Says to which listener a request goes.
pub const LISTENER_HEADER: &str = "x-listener";
/// As many requests may be on their way at a time.
const N_SENDERS: u32 = 16;
/// Longer than Envoy's own limit for a connection to a backend, several times.
const LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anyhow::{Context as _, Result};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Sender, To};
    use crate::certificates::Authority;
    use crate::transitions::{LISTENERS, SECURE_LISTENER, Target};

    #[tokio::test]
    async fn a_reset_of_a_kept_connection_is_tried_again_on_a_new_one() -> Result<()> {
        let (mut sender, target, listener) = sender().await?;
        let server = async {
            let mut kept = listener.accept().await?.0;
            answer(&mut kept).await?;
            reset(kept).await?;
            answer(&mut listener.accept().await?.0).await
        };
        let client = async {
            sender.request(target).await?;
            sender.request(target).await
        };
        let (_, name) = tokio::try_join!(server, client)?;
        assert_eq!(name, "b0");
        Ok(())
    }

    #[tokio::test]
    async fn a_reset_of_a_new_connection_is_a_failure() -> Result<()> {
        let (mut sender, target, listener) = sender().await?;
        let server = async { reset(listener.accept().await?.0).await };
        let (served, answer) = tokio::join!(server, sender.request(target));
        served?;
        let error = answer.err().context("an answer")?;
        assert!(format!("{error:#}").starts_with("on a new connection"), "{error:#}");
        Ok(())
    }

    /// A sender that keeps its connections to this listener, which does not speak TLS.
    async fn sender() -> Result<(Sender, Target, TcpListener)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let to = To {
            addrs: [listener.local_addr()?; LISTENERS.len()],
            tls: Arc::new(Authority::new()?.client_config()?).into(),
        };
        let target = Target::all().find(|target| target.listener != SECURE_LISTENER).context("a target")?;
        Ok((Sender { to, is_kept: true, kept: [None, None] }, target, listener))
    }

    async fn answer(stream: &mut TcpStream) -> Result<()> {
        let _request = stream.read(&mut [0; 1024]).await?;
        Ok(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nb0").await?)
    }

    /// Closes a connection with an unread request, which resets it.
    async fn reset(stream: TcpStream) -> Result<()> {
        Ok(stream.readable().await?)
    }
}
