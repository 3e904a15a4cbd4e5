//! Client status: the state of the clients, as `envoy.service.status.v3` describes it.
//!
//! It shows everything about every client, so it is for operators. It is served on the admin port, which authenticates, and on the xDS
//! port only if a flag says so, to principals of the access policy ([`audience`]). An answer about all clients of a large fleet has gigabytes. It is made in parts ([`parts`]), of which
//! two at most are in the making at a time, for all callers together.

mod audience;
mod error;
pub(crate) mod json;
mod parts;
pub(crate) mod places;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::status::v3 as proto;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryService;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use xds_cache::Reason;

use crate::grpc::Grpc;
use crate::grpc::matcher::MatcherError;

pub(crate) use audience::Door;

use audience::Asker;
use error::ClientStatusError;
use parts::StatusParts;

/// The gRPC service of a port.
#[derive(Debug)]
pub(crate) struct ClientStatus(pub(crate) Arc<Grpc>, pub(crate) Door);

impl Grpc {
    /// The first part of the answer to a request; the rest is asked for with [`next_part`](Self::next_part).
    ///
    /// # Errors
    ///
    /// The request cannot be answered.
    pub(crate) async fn first_part(
        self: &Arc<Self>,
        asker: &Asker,
        request: proto::ClientStatusRequest,
    ) -> Result<(proto::ClientStatusResponse, StatusParts), ClientStatusError> {
        let (grpc, scope) = (Arc::clone(self), self.audience(asker)?);
        // Regular expressions are compiled aside too.
        self.aside(move || {
            let mut parts = StatusParts::new(grpc, scope, request)?;
            Ok((parts.next(PART_BYTES), parts))
        })
        .await
    }

    /// The next part of an answer; the parts come back with it.
    ///
    /// # Errors
    ///
    /// [`ClientStatusError::Busy`].
    pub(crate) async fn next_part(
        self: &Arc<Self>,
        mut parts: StatusParts,
    ) -> Result<(proto::ClientStatusResponse, StatusParts), ClientStatusError> {
        self.aside(move || Ok((parts.next(PART_BYTES), parts))).await
    }

    /// An answer in one.
    async fn whole(
        self: &Arc<Self>,
        asker: &Asker,
        request: proto::ClientStatusRequest,
    ) -> Result<proto::ClientStatusResponse, ClientStatusError> {
        let (grpc, scope) = (Arc::clone(self), self.audience(asker)?);
        self.aside(move || {
            let mut parts = StatusParts::new(grpc, scope, request)?;
            let response = parts.next(MAX_RESPONSE_BYTES);
            if parts.is_done() {
                return Ok(response);
            }
            Err(ClientStatusError::TooLarge { limit: MAX_RESPONSE_BYTES })
        })
        .await
    }

    /// Runs what computes for long away from the threads that serve streams, when it has a place.
    async fn aside<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, ClientStatusError> + Send + 'static,
    ) -> Result<T, ClientStatusError> {
        let place = self.client_status.make().await?;
        let made = tokio::task::spawn_blocking(move || {
            let made = make();
            drop(place);
            made
        });
        made.await.map_err(|_| ClientStatusError::Internal)?
    }

    /// Counts a request that passed a limit, or that nobody who may has made.
    pub(crate) fn refuse_client_status(&self, asker: &Asker, error: &ClientStatusError) {
        let peer = asker.caller().peer();
        match error {
            ClientStatusError::NotAllowed => {
                self.refuse(Reason::IdentityNotAllowed, peer, error);
                self.clients.record_status_refusal(asker.caller());
            }
            ClientStatusError::Matcher(MatcherError::Limit { .. })
            | ClientStatusError::TooLarge { .. }
            | ClientStatusError::Busy => self.refuse(Reason::ClientStatus, peer, error),
            ClientStatusError::Matcher(_) | ClientStatusError::Internal => {}
        }
    }
}

impl ClientStatus {
    fn asker<T>(&self, request: &Request<T>) -> Asker {
        Asker::new(self.1, request.extensions())
    }

    fn refusal(&self, asker: &Asker) -> impl Fn(ClientStatusError) -> Status + use<> {
        let (grpc, asker) = (Arc::clone(&self.0), asker.clone());
        move |error| {
            grpc.refuse_client_status(&asker, &error);
            error.into()
        }
    }
}

type Answers = mpsc::Sender<Result<proto::ClientStatusResponse, Status>>;

#[tonic::async_trait]
impl ClientStatusDiscoveryService for ClientStatus {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<proto::ClientStatusResponse, Status>> + Send>>;

    /// Answers each request in one or more responses; it is no watch (row A197).
    async fn stream_client_status(
        &self,
        requests: Request<Streaming<proto::ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let asker = self.asker(&requests);
        let refusal = self.refusal(&asker);
        self.0.audience(&asker).map_err(&refusal)?;
        let place = self.0.client_status.read().map_err(&refusal)?;
        let grpc = Arc::clone(&self.0);
        // The next part waits here while the client reads the one before.
        let (answers, responses) = mpsc::channel(1);
        let mut requests = requests.into_inner();
        // Ends with the stream, with a client that does not read, and with one that asks nothing.
        tokio::spawn(async move {
            let _place = place;
            while let Ok(request) = timeout(REQUEST_PATIENCE, requests.message()).await {
                let outcome = match request {
                    Ok(Some(request)) => answer(&grpc, &asker, request, &answers).await.map_err(&refusal),
                    Ok(None) => return,
                    Err(status) => Err(status),
                };
                match outcome {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(status) => {
                        // A client that is gone needs no reason.
                        let _ = timeout(READ_PATIENCE, answers.send(Err(status))).await;
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn fetch_client_status(
        &self,
        request: Request<proto::ClientStatusRequest>,
    ) -> Result<Response<proto::ClientStatusResponse>, Status> {
        let asker = self.asker(&request);
        let refusal = self.refusal(&asker);
        self.0.whole(&asker, request.into_inner()).await.map(Response::new).map_err(refusal)
    }
}

/// Answers a request of a stream; returns `true` if the client has read the whole answer.
async fn answer(
    grpc: &Arc<Grpc>,
    asker: &Asker,
    request: proto::ClientStatusRequest,
    answers: &Answers,
) -> Result<bool, ClientStatusError> {
    let (mut part, mut parts) = grpc.first_part(asker, request).await?;
    loop {
        if !matches!(timeout(READ_PATIENCE, answers.send(Ok(part))).await, Ok(Ok(()))) {
            return Ok(false);
        }
        if parts.is_done() {
            return Ok(true);
        }
        (part, parts) = grpc.next_part(parts).await?;
    }
}

/// The name of the gRPC service.
pub(crate) const SERVICE: &str = "envoy.service.status.v3.ClientStatusDiscoveryService";
/// The largest single message of an answer: gRPC clients receive 4 MiB by default.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// How large the parts of an answer are, but for what a single resource has more.
const PART_BYTES: usize = 256 * 1024;
/// How large a request may be: what its matchers may be has room in it many times.
pub(crate) const MAX_REQUEST_BYTES: usize = 32 * 1024;
/// How long a client may take to read a part.
pub(crate) const READ_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may ask nothing.
const REQUEST_PATIENCE: Duration = Duration::from_secs(60);
