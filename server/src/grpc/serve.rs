//! The xDS port: accepting connections, and ending them in good order.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryServiceServer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tonic_reflection::server::{Builder, v1, v1alpha};
use tower::util::BoxCloneSyncService;
use tracing::{info, warn};
use xds_access::Policy;
use xds_cache::{Node, Proof};
use xds_codec::Codec;

use crate::grpc::csds::{self, ClientStatus, Door};
use crate::grpc::gate::withdrawn;
use crate::grpc::guard::guard;
use crate::grpc::late::Late;
use crate::grpc::metered::{Calls, Metered};
use crate::grpc::requests::Rules;
use crate::grpc::streams::Streams;
use crate::grpc::{Grpc, discovery, loads};
use crate::listen::{Peer, Port, incoming, keep_pace};

/// Why the port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the xDS port failed")]
    Transport(#[from] tonic::transport::Error),
}

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
    pub(crate) async fn serve(
        self: &Arc<Self>,
        listener: TcpListener,
        port: Arc<Port>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        // Dropped last, so the last lines of the log count all clients without a line of their own.
        let _rest = (self.clients.arrivals.rest(), self.clients.nacks.rest());
        let (reporter, health) = tonic_health::server::health_reporter();
        self.report(&reporter, ServingStatus::NotServing).await;
        let health = self.metered(health.max_decoding_message_size(MAX_SMALL_CALL), &self.calls);
        let routes = self.routes().add_service(health).into_axum_router();
        let routes = Routes::from(routes.layer(from_fn_with_state(Arc::clone(self), guard)));
        let (stop, stopped) = oneshot::channel::<()>();
        let incoming = incoming(listener, Arc::clone(&port));
        let server = self.server().add_routes(routes).serve_with_incoming_shutdown(incoming, async {
            // A sender that is gone means the same as one that sends.
            let _ = stopped.await;
        });
        tokio::pin!(server);
        let sweeping = self.sweep(&port);
        let running = async {
            self.wait_loaded().await;
            self.report(&reporter, ServingStatus::Serving).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            served = &mut server => return Ok(served?),
            () = shutdown => {}
            () = running => {}
            () = sweeping => {}
            () = self.end_old() => {}
            () = port.tend() => {}
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
        port.cut_off();
        // A connection notices as soon as it is polled. The limit is for unforeseen cases.
        tokio::time::timeout(LINGER, server).await.unwrap_or(Ok(()))?;
        Ok(())
    }

    /// Everything that the port serves but the health, which belongs to one call of [`serve`](Self::serve).
    fn routes(self: &Arc<Self>) -> Routes {
        let router =
            Router::new().fallback(discovery::unknown).merge(self.rest_routes().layer(from_fn(keep_pace)));
        let mut router = discovery::add_to(router, self);
        let mut names = discovery::service_names();
        names.extend(OTHER_SERVICES);
        // Without it, clients get `UNIMPLEMENTED`, and continue (row A219).
        if let Some(interval) = self.config.load_report_interval {
            router = loads::add_to(router, self, interval);
            names.push(loads::SERVICE);
        }
        let mut routes = Routes::from(router);
        if self.config.client_status {
            let router = routes
                .into_axum_router()
                .merge(csds::json::routes(self, Door::Xds).layer(from_fn(keep_pace)));
            routes = Routes::from(router).add_service(self.client_status_service(Door::Xds, &self.calls));
            names.push(csds::SERVICE);
        }
        self.add_reflection(routes, names, &self.calls)
    }

    /// The services for operators: client status over gRPC and in JSON, reflection, and the polling endpoints. It has no guard and
    /// no fallback of its own.
    pub fn admin_routes(self: &Arc<Self>) -> Router {
        let router = self.rest_routes().merge(csds::json::routes(self, Door::Admin));
        let routes =
            Routes::from(router).add_service(self.client_status_service(Door::Admin, &self.admin_calls));
        let names = [&[csds::SERVICE][..], &REFLECTION_SERVICES].concat();
        self.add_reflection(routes, names, &self.admin_calls).into_axum_router()
    }

    fn client_status_service(
        self: &Arc<Self>,
        door: Door,
        calls: &Arc<Calls>,
    ) -> Metered<ClientStatusDiscoveryServiceServer<ClientStatus>> {
        let service = ClientStatusDiscoveryServiceServer::new(ClientStatus(Arc::clone(self), door));
        let service = service.max_decoding_message_size(csds::MAX_REQUEST_BYTES);
        Metered::new(service, &self.receiving, rules(csds::MAX_REQUEST_BYTES), calls)
    }

    /// Adds the reflection services. Each makes tables of megabytes from the descriptors.
    fn add_reflection(
        self: &Arc<Self>,
        routes: Routes,
        names: Vec<&'static str>,
        calls: &Arc<Calls>,
    ) -> Routes {
        let (codec, listed) = (self.codec.clone(), names.clone());
        let v1 = Late::<v1::ServerReflectionServer<()>>::new(move || {
            let made = reflection(&codec, &listed).build_v1().map_err(unfit)?;
            Ok(BoxCloneSyncService::new(made.max_decoding_message_size(MAX_SMALL_CALL)))
        });
        let codec = self.codec.clone();
        let v1alpha = Late::<v1alpha::ServerReflectionServer<()>>::new(move || {
            let made = reflection(&codec, &names).build_v1alpha().map_err(unfit)?;
            Ok(BoxCloneSyncService::new(made.max_decoding_message_size(MAX_SMALL_CALL)))
        });
        routes.add_service(self.metered(v1, calls)).add_service(self.metered(v1alpha, calls))
    }

    /// A service whose messages are names.
    fn metered<S>(self: &Arc<Self>, service: S, calls: &Arc<Calls>) -> Metered<S> {
        Metered::new(service, &self.receiving, rules(MAX_SMALL_CALL), calls)
    }

    /// Ends what takes too long, for ever.
    async fn sweep(&self, port: &Port) {
        let shortest = self.config.first_request_timeout.min(self.config.receive.patience);
        let mut ticks = tokio::time::interval((shortest / 4).clamp(MIN_SWEEP, MAX_SWEEP));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut policy, mut n_distrusted) = (self.gate.policy(), 0);
        loop {
            let now = ticks.tick().await.into_std();
            self.streams.sweep(now, self.config.first_request_timeout);
            self.streams.end_expired(SystemTime::now());
            self.calls.end_expired(SystemTime::now());
            let n_distrusted_before = std::mem::replace(&mut n_distrusted, port.n_distrusted());
            if policy.has_changed().unwrap_or(false) || n_distrusted != n_distrusted_before {
                let policy = Arc::clone(&policy.borrow_and_update());
                self.end_withdrawn(policy).await;
            }
            self.calls.sweep(now, Duration::MAX);
            self.admin_calls.sweep(now, Duration::MAX);
            self.receiving.sweep(now);
            self.clients.arrivals.flush(now);
            self.clients.nacks.flush(now);
        }
    }

    /// Ends what nobody may do any more by the policy and the trust in certificates. It looks at every stream, so it works aside.
    async fn end_withdrawn(&self, policy: Arc<Policy>) {
        let (streams, calls) = (Arc::clone(&self.streams), Arc::clone(&self.calls));
        let clients = Arc::clone(&self.clients);
        let ended = tokio::task::spawn_blocking(move || {
            let judge = |peer: &Peer, proofs: &[Proof]| withdrawn(&policy, peer, proofs);
            let now = SystemTime::now();
            let record = |peer: &Peer, proofs: &[Proof], reason| clients.record_ending(peer, proofs, reason);
            streams.end_withdrawn(judge, record, now) + calls.end_withdrawn(judge, record, now)
        });
        match ended.await {
            Ok(0) => {}
            Ok(n_streams) => {
                info!(n_streams, "streams ended by the changed access policy or trust in certificates");
            }
            Err(error) => {
                warn!(%error, "the changed access policy or trust could not be compared with the open streams");
            }
        }
    }

    async fn report(&self, reporter: &HealthReporter, status: ServingStatus) {
        let client_status = self.config.client_status.then_some(csds::SERVICE);
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

impl<C> Streams<C> {
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

fn reflection<'c>(codec: &'c Codec, names: &[&str]) -> Builder<'c> {
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(codec.descriptor_set())
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET);
    names.iter().fold(builder, |builder, name| builder.with_service_name(*name))
}

/// The program was built wrong.
fn unfit(error: tonic_reflection::server::Error) -> Status {
    Status::internal(format!("the descriptors cannot be served by reflection: {error}"))
}

/// The rules of a service that asks for no node.
fn rules(max_message_bytes: usize) -> Rules {
    Rules { max_message_bytes, node_field: None }
}

/// The services that reflection lists besides the discovery services.
const OTHER_SERVICES: [&str; 3] = ["grpc.health.v1.Health", REFLECTION_SERVICES[0], REFLECTION_SERVICES[1]];
const REFLECTION_SERVICES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];
/// Below it the HTTP/2 library ends connections that open thousands of streams at once.
const MIN_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// How long other calls may take to end once all streams are gone.
const LINGER: Duration = Duration::from_millis(500);
/// How far apart streams are ended, as long as there is time.
const SPREAD_PER_STREAM: Duration = Duration::from_millis(1);
/// How often a bunch of streams is ended.
const TICK: Duration = Duration::from_millis(10);
/// The largest message of services that are asked for names.
const MAX_SMALL_CALL: usize = 64 * 1024;
/// How often is looked for what takes too long: a quarter of the time that it may take, within these bounds.
const MIN_SWEEP: Duration = Duration::from_millis(50);
const MAX_SWEEP: Duration = Duration::from_secs(1);
