//! REST-JSON polling: discovery as an HTTP POST of a `DiscoveryRequest` in JSON (rows A188 to A194).

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::Stream;
use xds_cache::admission::{Denial, DenialReason};
use xds_cache::status::MAX_NACK_MESSAGE;
use xds_cache::{Node, Reason, ResourceType, Version, VersionHasher};
use xds_codec::MessageError;
use xds_session::{Contents, Entries, Entry};

use crate::grpc::Grpc;
use crate::grpc::convert::RequestError;
use crate::grpc::fetch::{FetchError, Fetched, fetch};
use crate::grpc::gate::Caller;
use crate::grpc::json_answer::JsonAnswer;
use crate::grpc::poll::{Poll, PollError};
use crate::grpc::polls::{PollBody, PollRefusal};
use crate::listen::Peer;

impl Grpc {
    /// The polling endpoints, for the xDS port and any other HTTP port; none if polling is turned off.
    pub fn rest_routes(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for (name, resource_type) in TYPES.into_iter().filter(|_| self.config.rest_polling) {
            let grpc = Arc::clone(self);
            let serve = move |request| poll(Arc::clone(&grpc), resource_type.clone(), request);
            router = router.route(&format!("/v3/discovery:{name}"), post(serve));
        }
        router
    }

    /// Counts a poll that passed a limit.
    fn refuse_poll(&self, peer: &Peer, error: &RestError) {
        match error {
            RestError::Refused(refusal) => match refusal {
                PollRefusal::TooLarge { .. } => self.refuse(Reason::PollSize, peer, refusal),
                PollRefusal::Busy | PollRefusal::Slow => self.refuse(Reason::Polls, peer, refusal),
                PollRefusal::BrokenOff => {}
            },
            RestError::Poll(PollError::Request(error)) | RestError::Request(error) => {
                self.end_of(peer, error);
            }
            RestError::Poll(error @ PollError::TooManyNames { .. }) => {
                self.refuse(Reason::Names, peer, error);
            }
            RestError::Denied(denial) => {
                self.clients.deny(peer, denial);
            }
            RestError::Poll(PollError::Json(_)) | RestError::NotLoaded | RestError::Internal => {}
        }
    }
}

/// The answers to a poll besides 200.
#[derive(Debug, thiserror::Error)]
enum RestError {
    #[error(transparent)]
    Refused(#[from] PollRefusal),
    #[error(transparent)]
    Poll(#[from] PollError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Denied(#[from] Denial),
    #[error("the first load is not complete yet")]
    NotLoaded,
    #[error("the answer could not be written")]
    Internal,
}

impl From<FetchError> for RestError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Request(error) => error.into(),
            FetchError::Denied(denial) => denial.into(),
        }
    }
}

impl From<MessageError> for RestError {
    fn from(_: MessageError) -> Self {
        Self::Internal
    }
}

impl RestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(PollRefusal::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Refused(PollRefusal::Slow) => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(PollRefusal::Busy) | Self::NotLoaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused(PollRefusal::BrokenOff) | Self::Poll(_) | Self::Request(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Denied(denial) => match denial.reason {
                DenialReason::NoCredential => StatusCode::UNAUTHORIZED,
                DenialReason::IdentityNotAllowed | DenialReason::NodeIdMismatch => StatusCode::FORBIDDEN,
            },
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let mut response = problem(self.status(), &self.to_string());
        if matches!(self, Self::Refused(PollRefusal::Busy)) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

async fn poll(grpc: Arc<Grpc>, resource_type: ResourceType, request: Request) -> Result<Response, RestError> {
    let (parts, body) = request.into_parts();
    let caller = Caller::of(&parts.extensions);
    let answering = async {
        let body = grpc.polls.read(&parts.headers, body).await?;
        let place = grpc.polls.enter().await?;
        let (grpc, caller) = (Arc::clone(&grpc), caller.clone());
        blocking(move || {
            let answer = answer_poll(&grpc, &resource_type, &caller, body)?;
            let first = answer.map(|mut answer| answer.next().map(|first| (first, answer))).transpose()?;
            drop(place);
            Ok(first)
        })
        .await
    };
    let answer = answering.await.inspect_err(|error| grpc.refuse_poll(caller.peer(), error))?;
    let Some((first, rest)) = answer else { return Ok(StatusCode::NOT_MODIFIED.into_response()) };
    let body = if rest.is_done() { Body::from(first) } else { Body::from_stream(chunks(grpc, first, rest)) };
    Ok(json(StatusCode::OK, "application/json", body))
}

/// The answer to a poll; `None` if the client has it already.
fn answer_poll(
    grpc: &Arc<Grpc>,
    resource_type: &ResourceType,
    caller: &Caller,
    body: PollBody,
) -> Result<Option<JsonAnswer>, RestError> {
    let Poll { request, n_left_out } = Poll::read(&body.bytes)?;
    drop(body);
    let node = request.node.as_deref();
    if n_left_out > 0 {
        let id = node.map_or("", |node| &node.id);
        let detail = format_args!("{n_left_out} entries of the metadata of node {id:.128}");
        grpc.refuse(Reason::NodeMetadata, caller.peer(), detail);
    }
    let had = request.version_info.clone();
    let is_nack = request.error_detail.is_some();
    if let (Some(message), Some(node)) = (&request.error_detail, node) {
        grpc.log_nack(node, resource_type, &had, message);
    }
    let names = names_version(&request.resource_names);
    let contents = match fetch(grpc, resource_type, caller, request)? {
        Fetched::Contents(contents) => contents,
        Fetched::Withheld => return Ok(None),
        Fetched::NotLoaded => return Err(RestError::NotLoaded),
    };
    let version = PolledVersion::new(&contents, names.as_ref());
    // A client that rejected the version still polls with the one before it; a NACK with the same one changes nothing.
    if !is_nack && version.is_known_by(&had) {
        return Ok(None);
    }
    let contents = Contents { version_info: version.text.into(), ..contents };
    Ok(Some(JsonAnswer::new(Arc::clone(grpc), contents)))
}

impl Grpc {
    fn log_nack(&self, node: &Node, resource_type: &ResourceType, version: &str, message: &str) {
        let version = &version[..version.floor_char_boundary(MAX_VERSION_SHOWN)];
        let message = &message[..message.floor_char_boundary(MAX_NACK_MESSAGE)];
        let mut repeats = self.polled_nacks.lock().unwrap_or_else(PoisonError::into_inner);
        self.clients.nacks.log(&mut repeats, node, resource_type, (version, message), Instant::now());
        drop(repeats);
        self.metrics.nacked(resource_type);
    }
}

/// The parts of an answer. Each is made when the client has room for it, in a place of its own.
fn chunks(
    grpc: Arc<Grpc>,
    first: Bytes,
    rest: JsonAnswer,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    futures_util::stream::unfold((Some(first), Some(rest)), move |(first, rest)| {
        let grpc = Arc::clone(&grpc);
        async move {
            if let Some(first) = first {
                return Some((Ok(first), (None, rest)));
            }
            let mut rest = rest.filter(|rest| !rest.is_done())?;
            let place = match grpc.polls.enter().await {
                Ok(place) => place,
                Err(refusal) => return Some((Err(io::Error::other(refusal)), (None, None))),
            };
            let made = blocking(move || {
                let chunk = rest.next()?;
                drop(place);
                Ok((chunk, rest))
            });
            Some(match made.await {
                Ok((chunk, rest)) => (Ok(chunk), (None, Some(rest))),
                Err(error) => (Err(io::Error::other(error)), (None, None)),
            })
        }
    })
}

/// The version of an answer to a poll. Nothing is kept between polls, so the version identifies everything that matters: the
/// resources, and the requested names (row A190).
///
/// Only the part behind the last dot is compared. A publisher's label before it is for people, because a label can be used again for
/// other content (D4).
#[derive(Debug)]
struct PolledVersion {
    text: String,
    compared: String,
}

impl PolledVersion {
    fn new(contents: &Contents, names: Option<&Version>) -> Self {
        let content = content_version(contents);
        let compared = names.map_or_else(|| content.to_string(), |names| format!("{content}-{names}"));
        let label = &contents.version_info;
        let is_hash = label.parse::<Version>().is_ok();
        let text = if is_hash { compared.clone() } else { format!("{label}.{compared}") };
        Self { text, compared }
    }

    fn is_known_by(&self, version_info: &str) -> bool {
        version_info.rsplit('.').next() == Some(&self.compared)
    }
}

/// A hash of the names that were asked for; `None` for all. They are in order, and each is there once.
fn names_version(names: &[String]) -> Option<Version> {
    let mut hasher = VersionHasher::new();
    names.iter().for_each(|name| hasher.update(name.as_bytes()));
    (!names.is_empty()).then(|| hasher.finish())
}

/// The version of exactly the resources that are in the answer.
fn content_version(contents: &Contents) -> Version {
    let mut hasher = VersionHasher::new();
    match &contents.entries {
        Entries::Table(table) => return table.version(),
        Entries::Listed(entries) => {
            for entry in entries {
                match entry {
                    Entry::Full(resource) | Entry::Heartbeat(resource) => {
                        hasher.update(resource.name().as_bytes());
                        hasher.update(resource.version().to_string().as_bytes());
                    }
                    Entry::Unpopulated(name) => hasher.update(name.as_bytes()),
                }
            }
        }
    }
    hasher.finish()
}

/// Runs what computes for long away from the threads that serve streams.
async fn blocking<T: Send + 'static>(
    answer: impl FnOnce() -> Result<T, RestError> + Send + 'static,
) -> Result<T, RestError> {
    tokio::task::spawn_blocking(answer).await.map_err(|_| RestError::Internal)?
}

/// The problem with a request (RFC 9457).
pub(crate) fn problem(status: StatusCode, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let problem = serde_json::json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    json(status, "application/problem+json", problem.to_string().into())
}

pub(crate) fn json(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The names of the protos' HTTP annotations, and their types.
const TYPES: [(&str, ResourceType); 8] = [
    ("listeners", ResourceType::Listener),
    ("routes", ResourceType::RouteConfiguration),
    ("scoped-routes", ResourceType::ScopedRouteConfiguration),
    ("clusters", ResourceType::Cluster),
    ("endpoints", ResourceType::ClusterLoadAssignment),
    ("secrets", ResourceType::Secret),
    ("runtime", ResourceType::Runtime),
    ("extension_configs", ResourceType::ExtensionConfig),
];
/// How much of a version that a client sent is logged; ours have 16 characters, and labels few more.
const MAX_VERSION_SHOWN: usize = 128;
