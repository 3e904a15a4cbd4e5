//! A port that serves HTTP: the admin API, and probes.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tower::ServiceExt as _;
use tracing::trace;
use xds_api::VerifiedClient;

use crate::listen::body::paced;
use crate::listen::{Busy, Connection, Peer, Port, Untaken, incoming};

/// Serves `router` until `stopped`, and then the requests that are under way for `drain_timeout`.
pub(crate) async fn serve_http(
    listener: TcpListener,
    port: Arc<Port>,
    router: Router,
    stopped: impl Future<Output = ()>,
    drain_timeout: Duration,
) {
    let graceful = GracefulShutdown::new();
    let accepting = async {
        let mut connections = pin!(incoming(listener, Arc::clone(&port)));
        while let Some(connection) = connections.next().await {
            // Errors of accepting do not come here.
            let Ok(connection) = connection else { continue };
            let watcher = graceful.watcher();
            let router = router.clone();
            let builder = builder(port.speaks_http1_only());
            tokio::spawn(async move {
                let peer = connection.peer().clone();
                let service = service_fn(move |request| serve(router.clone(), peer.clone(), request));
                let serving = builder.serve_connection(TokioIo::<Connection>::new(connection), service);
                if let Err(error) = watcher.watch(serving.into_owned()).await {
                    trace!(%error, "a connection failed");
                }
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = port.tend() => {}
        () = stopped => {}
    }
    if tokio::time::timeout(drain_timeout, graceful.shutdown()).await.is_err() {
        port.cut_off();
    }
}

fn builder(is_http1_only: bool) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    if is_http1_only {
        builder = builder.http1_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(HEADER_TIMEOUT))
        .keep_alive_timeout(HEADER_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}

async fn serve(
    router: Router,
    peer: Peer,
    mut request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let busy = peer.busy();
    if peer.is_verified() {
        request.extensions_mut().insert(VerifiedClient);
    }
    request.extensions_mut().insert(xds_api::Connection {
        address: peer.address().parse::<SocketAddr>().ok().map(|address| address.ip()),
        shown: Some(Arc::clone(peer.address())),
        proofs: peer.proofs(),
    });
    let uploads = peer.clone();
    request.extensions_mut().insert(peer.clone());
    let answer = router.oneshot(request.map(|body| paced(Body::new(body), Some(&uploads)))).await?;
    Ok(answer.map(|body| Answer { inner: Untaken::new(body, peer), _busy: busy }))
}

/// An answer's body; its connection is busy until it is written.
struct Answer {
    inner: Untaken<Body>,
    _busy: Busy,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

/// How long a client may take for the headers of a request, and to answer a ping.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's headers, and of what is written at once. Browsers and proxies stay below 16 KiB.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// The headers of a request.
const MAX_HEADERS: usize = 100;
/// Requests at once on one connection.
const MAX_STREAMS: u32 = 100;
