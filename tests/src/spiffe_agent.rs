//! A SPIFFE agent in this process: the Workload API on a Unix socket, answered as a test wants.
//!
//! It shares nothing with the client in the server: the messages are written down here once more.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate_files::CertificateFiles;

/// What the agent says to everyone who asks, and again whenever it changes.
#[derive(Clone, Debug)]
pub enum Say {
    /// Nothing at all.
    Nothing,
    /// A certificate.
    Svid(Box<Svid>),
    /// Any message, which may be malformed.
    Bytes(Bytes),
    /// The end of the stream with this gRPC status.
    Status(u32, &'static str),
}

/// The answer with one certificate.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Svid {
    /// Those of the workload, the one to use first.
    #[prost(message, repeated, tag = "1")]
    pub svids: Vec<Identity>,
    /// The bundles of other trust domains.
    #[prost(map = "string, bytes", tag = "3")]
    pub federated: HashMap<String, Vec<u8>>,
}

/// One certificate.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Identity {
    /// The SPIFFE ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// DER.
    #[prost(bytes = "vec", tag = "2")]
    pub chain: Vec<u8>,
    /// DER.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// The authorities of its own trust domain.
    #[prost(bytes = "vec", tag = "4")]
    pub bundle: Vec<u8>,
}

/// A running agent. Dropping it closes its socket.
#[derive(Debug)]
pub struct SpiffeAgent {
    dir: TempDir,
    says: watch::Sender<Say>,
    n_calls: Arc<AtomicU64>,
    serving: Option<AbortHandle>,
}

impl Svid {
    /// The certificate `NAME.crt`, as an authority issued it with this ID.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn of(files: &CertificateFiles, name: &str, id: &str) -> Result<Self> {
        let key = PrivateKeyDer::from_pem_file(files.path(&format!("{name}.key")))?;
        let identity = Identity {
            id: id.to_owned(),
            chain: certificate(files, name)?,
            key: key.secret_der().to_owned(),
            bundle: certificate(files, "ca")?,
        };
        Ok(Self { svids: vec![identity], federated: HashMap::new() })
    }

    /// The same, federated with the trust domain of another authority.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn federated_with(mut self, domain: &str, files: &CertificateFiles) -> Result<Self> {
        self.federated.insert(domain.to_owned(), certificate(files, "ca")?);
        Ok(self)
    }
}

/// A certificate in DER.
fn certificate(files: &CertificateFiles, name: &str) -> Result<Vec<u8>> {
    Ok(CertificateDer::from_pem_file(files.path(&format!("{name}.crt")))?.to_vec())
}

impl SpiffeAgent {
    /// An agent that is not started.
    ///
    /// # Errors
    ///
    /// If there is no room for its socket.
    pub fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("xds-spiffe-")?;
        Ok(Self { dir, says: watch::Sender::new(Say::Nothing), n_calls: Arc::default(), serving: None })
    }

    /// Listens.
    ///
    /// # Errors
    ///
    /// If it listens already.
    pub fn start(&mut self) -> Result<()> {
        let listener = UnixListener::bind(self.socket()).context("the socket of the agent")?;
        let (says, n_calls) = (self.says.subscribe(), Arc::clone(&self.n_calls));
        self.serving = Some(tokio::spawn(serve(listener, says, n_calls)).abort_handle());
        Ok(())
    }

    /// Closes the socket and all connections.
    ///
    /// # Errors
    ///
    /// If the socket is gone already.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        Ok(fs::remove_file(self.socket())?)
    }

    /// Says this from now on.
    pub fn say(&self, say: Say) {
        self.says.send_replace(say);
    }

    /// Sends a certificate.
    pub fn send(&self, svid: Svid) {
        self.say(Say::Svid(Box::new(svid)));
    }

    /// The endpoint, as clients are given it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// How often it was called.
    #[must_use]
    pub fn n_calls(&self) -> u64 {
        self.n_calls.load(Ordering::Relaxed)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }
}

impl Drop for SpiffeAgent {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Accepts connections; they end with it.
async fn serve(listener: UnixListener, says: watch::Receiver<Say>, n_calls: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (says, n_calls) = (says.clone(), Arc::clone(&n_calls));
        let service = service_fn(move |request| {
            n_calls.fetch_add(1, Ordering::Relaxed);
            let response = answer(&request, says.clone());
            async { Ok::<_, Infallible>(response) }
        });
        connections
            .spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service));
    }
}

fn answer(
    request: &Request<Incoming>,
    mut says: watch::Receiver<Say>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let is_right = request.uri().path() == "/SpiffeWorkloadAPI/FetchX509SVID"
        && request.headers().get("workload.spiffe.io").is_some_and(|value| value == "true");
    let refused = (!is_right).then_some(Say::Status(3, "security header missing from request"));
    says.mark_changed();
    let said = stream::unfold((says, refused, false), |(mut says, refused, is_over)| async move {
        if is_over {
            return None;
        }
        let say = match refused {
            Some(say) => say,
            None => {
                says.changed().await.ok()?;
                says.borrow_and_update().clone()
            }
        };
        let (frame, is_over) = match say {
            Say::Nothing => (None, false),
            Say::Svid(svid) => (Some(message(&svid.encode_to_vec())), false),
            Say::Bytes(bytes) => (Some(message(&bytes)), false),
            Say::Status(code, text) => (Some(status(code, text)), true),
        };
        Some((frame, (says, None, is_over)))
    });
    let body = said.filter_map(|frame| async { frame.map(Ok::<_, Infallible>) });
    let mut response = Response::new(UnsyncBoxBody::new(StreamBody::new(body)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn message(bytes: &[u8]) -> Frame<Bytes> {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    framed.put_slice(bytes);
    Frame::data(framed.freeze())
}

fn status(code: u32, text: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    Frame::trailers(trailers)
}
