//! The xDS port: accepting connections, and ending them in good order.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::LoadReportingServiceServer;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryServiceServer;
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Sleep;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{info, warn};
use xds_cache::Node;

use crate::grpc::csds::{self, ClientStatus};
use crate::grpc::guard::guard;
use crate::grpc::loads::LoadReporting;
use crate::grpc::streams::Streams;
use crate::grpc::{Grpc, discovery};

/// Why the port cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The descriptors are not fit for reflection; the program was built wrong.
    #[error("the descriptor set cannot be served by reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the xDS port failed")]
    Transport(#[from] tonic::transport::Error),
}

/// The other end of a connection; every request carries it as an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Unique while the process lives.
    pub(crate) connection: u64,
    /// The address that the connection came from.
    pub(crate) address: Arc<str>,
}

impl Peer {
    /// Of a request that came by another way than a connection of ours.
    pub(crate) fn unknown() -> Self {
        Self { connection: LAST_CONNECTION.fetch_add(1, Ordering::Relaxed) + 1, address: "unknown".into() }
    }
}

static LAST_CONNECTION: AtomicU64 = AtomicU64::new(0);

impl Grpc {
    /// Serves connections of `listener` until `shutdown` comes, then ends all streams within
    /// [`drain_timeout`](crate::grpc::GrpcConfig::drain_timeout): clients are told to go away, streams end one after the
    /// other with `UNAVAILABLE`, and what is still open at the end is cut off.
    ///
    /// Before the first complete load, streams are accepted and held, and `grpc.health.v1` says `NOT_SERVING`.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the port cannot be served at all; a connection that fails is no error.
    pub async fn serve(
        self: &Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let connections = Arc::new(Connections::default());
        let (reporter, health) = tonic_health::server::health_reporter();
        self.report(&reporter, ServingStatus::NotServing).await;
        let routes = self.routes()?.add_service(health).into_axum_router();
        let routes = Routes::from(routes.layer(from_fn_with_state(Arc::clone(self), guard)));
        let (stop, stopped) = oneshot::channel::<()>();
        let silence = self.config.keepalive_interval + self.config.keepalive_timeout;
        let incoming = incoming(listener, Arc::clone(&connections), silence);
        let server = self.server().add_routes(routes).serve_with_incoming_shutdown(incoming, async {
            // A sender that is gone means the same as one that sends.
            let _ = stopped.await;
        });
        tokio::pin!(server);
        let running = async {
            self.wait_loaded().await;
            self.report(&reporter, ServingStatus::Serving).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            served = &mut server => return Ok(served?),
            () = shutdown => {}
            () = running => {}
        }
        self.report(&reporter, ServingStatus::NotServing).await;
        let _ = stop.send(());
        let drain = async {
            self.streams.end_all(self.config.drain_timeout / 2).await;
            // Other calls are short; those that are not, such as a watch on the health, would never end.
            tokio::time::sleep(LINGER.min(self.config.drain_timeout / 4)).await;
        };
        tokio::select! {
            served = &mut server => return Ok(served?),
            _ = tokio::time::timeout(self.config.drain_timeout, drain) => {}
        }
        connections.cut_off();
        // A connection notices as soon as it is polled; the limit is for what nobody thought of.
        tokio::time::timeout(LINGER, server).await.unwrap_or(Ok(()))?;
        Ok(())
    }

    /// Everything that the port serves but the health, which belongs to one call of [`serve`](Self::serve).
    fn routes(self: &Arc<Self>) -> Result<Routes, ServeError> {
        let router = Router::new().fallback(discovery::unknown).merge(self.rest_routes());
        let mut routes = Routes::from(discovery::add_to(router, self));
        let mut names = discovery::service_names();
        names.extend(OTHER_SERVICES);
        // Without it, clients are told that it is not implemented, and go on (row A219).
        if let Some(interval) = self.config.load_report_interval {
            let loads = LoadReporting { grpc: Arc::clone(self), interval };
            let loads = LoadReportingServiceServer::new(loads);
            routes = routes.add_service(loads.max_decoding_message_size(self.config.max_message_bytes));
            names.push(LOAD_REPORTING_SERVICE);
        }
        if self.config.client_status {
            let router = routes.into_axum_router().merge(csds::json::routes(self));
            routes = Routes::from(router).add_service(self.client_status_service());
            names.push(CLIENT_STATUS_SERVICE);
        }
        self.add_reflection(routes, &names)
    }

    /// What operators are served: client status over gRPC and in JSON, reflection, and the polling endpoints. It has no
    /// guard and no fallback of its own.
    ///
    /// # Errors
    ///
    /// [`ServeError::Reflection`].
    pub fn admin_routes(self: &Arc<Self>) -> Result<Router, ServeError> {
        let router = self.rest_routes().merge(csds::json::routes(self));
        let routes = Routes::from(router).add_service(self.client_status_service());
        let names = [&[CLIENT_STATUS_SERVICE][..], &REFLECTION_SERVICES].concat();
        self.add_reflection(routes, &names).map(Routes::into_axum_router)
    }

    fn client_status_service(self: &Arc<Self>) -> ClientStatusDiscoveryServiceServer<ClientStatus> {
        let service = ClientStatusDiscoveryServiceServer::new(ClientStatus(Arc::clone(self)));
        service.max_decoding_message_size(csds::MAX_REQUEST_BYTES)
    }

    /// Adds the services that tell which services there are.
    fn add_reflection(&self, routes: Routes, names: &[&str]) -> Result<Routes, ServeError> {
        let reflection = || {
            names.iter().fold(
                tonic_reflection::server::Builder::configure()
                    .register_encoded_file_descriptor_set(self.codec.descriptor_set())
                    .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                    .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
                    .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET),
                |builder, name| builder.with_service_name(*name),
            )
        };
        Ok(routes.add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?))
    }

    async fn report(&self, reporter: &HealthReporter, status: ServingStatus) {
        let client_status = self.config.client_status.then_some(CLIENT_STATUS_SERVICE);
        for name in discovery::service_names().into_iter().chain([""]).chain(client_status) {
            reporter.set_service_status(name, status).await;
        }
    }

    fn server(&self) -> Server {
        let config = &self.config;
        Server::builder()
            .accept_http1(true)
            .max_concurrent_streams(config.max_streams_per_connection)
            .initial_connection_window_size(config.connection_window.max(MIN_CONNECTION_WINDOW))
            .http2_keepalive_interval(Some(config.keepalive_interval))
            .http2_keepalive_timeout(Some(config.keepalive_timeout))
    }

    /// Waits for the first complete load, as any client does: by following a view.
    async fn wait_loaded(&self) {
        let mut receiver = self.publisher.follow(&Node::default());
        while receiver.take().is_none() {
            if receiver.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Streams {
    /// Ends all streams, spread over some time, so that their clients do not all come to the next server at once. Returns
    /// when the last one is gone.
    async fn end_all(&self, at_most: Duration) {
        let handles = self.drain();
        info!(n_streams = handles.len(), "ending all streams");
        let spread =
            at_most.min(SPREAD_PER_STREAM.saturating_mul(u32::try_from(handles.len()).unwrap_or(u32::MAX)));
        let n_ticks = usize::try_from(spread.as_millis() / TICK.as_millis()).unwrap_or(1).max(1);
        let mut ticks = tokio::time::interval(TICK);
        for handles in handles.chunks(handles.len().div_ceil(n_ticks).max(1)) {
            ticks.tick().await;
            handles.iter().for_each(|handle| handle.end());
        }
        self.wait_empty().await;
    }
}

/// The connections of `listener`. Never ends, and never fails: what goes wrong with accepting is logged and tried again.
fn incoming(
    listener: TcpListener,
    connections: Arc<Connections>,
    silence: Duration,
) -> impl Stream<Item = Result<Connection, io::Error>> {
    futures_util::stream::unfold((listener, connections), move |(listener, connections)| async move {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // Without it the algorithms of both ends wait for each other (40 ms for every response).
                    if let Err(error) = stream.set_nodelay(true) {
                        warn!(%address, %error, "a connection could not be set up");
                        continue;
                    }
                    let connection = connections.add(stream, &address.to_string(), silence);
                    return Some((Ok(connection), (listener, connections)));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    })
}

/// Whether only the connection that was to be accepted failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// All open connections, to be cut off at the end.
#[derive(Debug, Default)]
struct Connections {
    open: Mutex<HashMap<u64, Arc<Cut>>>,
}

/// How a connection is cut off from outside.
#[derive(Debug, Default)]
struct Cut {
    is_cut: AtomicBool,
    waker: AtomicWaker,
}

/// An accepted connection.
struct Connection {
    stream: TcpStream,
    peer: Peer,
    cut: Arc<Cut>,
    connections: Arc<Connections>,
    opening: Option<Opening>,
}

/// The time until a connection has said what protocol it speaks. Nobody pings it before that.
struct Opening {
    n_read: usize,
    patience: Pin<Box<Sleep>>,
}

impl Connections {
    fn add(self: &Arc<Self>, stream: TcpStream, address: &str, silence: Duration) -> Connection {
        let connection = LAST_CONNECTION.fetch_add(1, Ordering::Relaxed) + 1;
        let cut = Arc::new(Cut::default());
        self.lock().insert(connection, Arc::clone(&cut));
        let peer = Peer { connection, address: address.into() };
        let opening = Some(Opening { n_read: 0, patience: Box::pin(tokio::time::sleep(silence)) });
        Connection { stream, peer, cut, connections: Arc::clone(self), opening }
    }

    fn cut_off(&self) {
        let open = self.lock();
        if !open.is_empty() {
            info!(n_connections = open.len(), "cutting off the connections that are left");
        }
        for cut in open.values() {
            cut.is_cut.store(true, Ordering::Release);
            cut.waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Cut>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.cut.is_cut.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.peer.address)
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.peer.connection);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.cut.waker.register(cx.waker());
        self.check()?;
        let n_before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(opening) = &mut self.opening else { return read };
        opening.n_read += buffer.filled().len() - n_before;
        if opening.n_read >= PREFACE {
            self.opening = None;
        } else if read.is_pending() {
            ready!(opening.patience.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const LOAD_REPORTING_SERVICE: &str = "envoy.service.load_stats.v3.LoadReportingService";
pub(crate) const CLIENT_STATUS_SERVICE: &str = "envoy.service.status.v3.ClientStatusDiscoveryService";
/// What reflection tells besides the discovery services.
const OTHER_SERVICES: [&str; 3] = ["grpc.health.v1.Health", REFLECTION_SERVICES[0], REFLECTION_SERVICES[1]];
const REFLECTION_SERVICES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];
/// How long HTTP/2's opening words are, in bytes.
const PREFACE: usize = 24;
/// Below it the HTTP/2 library ends connections that open thousands of streams at once.
const MIN_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// How long other calls may take to end once all streams are gone.
const LINGER: Duration = Duration::from_millis(500);
/// How far apart streams are ended, as long as there is time.
const SPREAD_PER_STREAM: Duration = Duration::from_millis(1);
/// How often a bunch of streams is ended.
const TICK: Duration = Duration::from_millis(10);
/// How long to wait when nothing can be accepted, as when the process has no file descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
