//! REST-JSON polling: discovery as an HTTP POST of a `DiscoveryRequest` in JSON (rows A188 to A194).

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::status::v3::ClientStatusRequest;
use http_body_util::LengthLimitError;
use prost::Message;
use serde_json::Value as Json;
use tracing::warn;
use xds_cache::{ResourceType, Version, VersionHasher};
use xds_codec::UnknownFields;
use xds_session::{Contents, Entries, Entry, Request as SessionRequest, SessionError};

use crate::grpc::Grpc;
use crate::grpc::convert::Incoming;
use crate::grpc::csds;
use crate::grpc::encode;
use crate::grpc::fetch::{Fetched, fetch};

impl Grpc {
    /// The polling endpoints, for the xDS port and any other HTTP port.
    pub fn rest_routes(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for (name, resource_type) in TYPES {
            let grpc = Arc::clone(self);
            let serve = move |request| poll(Arc::clone(&grpc), resource_type.clone(), request);
            router = router.route(&format!("/v3/discovery:{name}"), post(serve));
        }
        let grpc = Arc::clone(self);
        let serve = move |request| client_status(Arc::clone(&grpc), request);
        router.route("/v3/discovery:client_status", post(serve))
    }
}

/// What a poll is answered besides 200.
#[derive(Debug, thiserror::Error)]
enum RestError {
    #[error("the body is no JSON: {0}")]
    NoJson(#[source] serde_json::Error),
    #[error("{0}")]
    BadMessage(String),
    #[error(transparent)]
    Session(SessionError),
    #[error("{0}")]
    ClientStatus(csds::ClientStatusError),
    #[error("the body has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body broke off")]
    BrokenOff,
    #[error("the first load is not complete yet")]
    NotLoaded,
    #[error("the answer could not be written")]
    Internal,
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoJson(_)
            | Self::BadMessage(_)
            | Self::Session(_)
            | Self::ClientStatus(_)
            | Self::BrokenOff => StatusCode::BAD_REQUEST,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotLoaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let title = status.canonical_reason().unwrap_or_default();
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": title,
            "status": status.as_u16(),
            "detail": self.to_string(),
        });
        json(status, "application/problem+json", &problem)
    }
}

async fn poll(grpc: Arc<Grpc>, resource_type: ResourceType, request: Request) -> Result<Response, RestError> {
    let body = read(&grpc, request).await?;
    blocking(move || answer_poll(&grpc, &resource_type, &body)).await
}

fn answer_poll(grpc: &Grpc, resource_type: &ResourceType, body: &[u8]) -> Result<Response, RestError> {
    let request: DiscoveryRequest = message(grpc, body)?;
    let SessionRequest::Sotw(request) = Incoming::from(request).request else {
        return Err(RestError::Internal);
    };
    if let Some(message) = &request.error_detail {
        let node = request.node.as_ref().map(|node| node.id.as_str()).unwrap_or_default();
        let (type_url, version) = (resource_type.type_url(), &request.version_info);
        warn!(node, type_url, version, message, "a polling client rejected a response");
        grpc.metrics.nacked(resource_type);
    }
    let names: BTreeSet<String> = request.resource_names.iter().cloned().collect();
    let had = request.version_info.clone();
    let is_nack = request.error_detail.is_some();
    let contents = match fetch(grpc, resource_type, request).map_err(RestError::Session)? {
        Fetched::Contents(contents) => contents,
        Fetched::Withheld => return Ok(StatusCode::NOT_MODIFIED.into_response()),
        Fetched::NotLoaded => return Err(RestError::NotLoaded),
    };
    let version = PolledVersion::new(&contents, &names);
    // A client that rejected the version still polls with the one before it; a NACK with the same one changes nothing.
    if !is_nack && version.is_known_by(&had) {
        return Ok(StatusCode::NOT_MODIFIED.into_response());
    }
    let contents = Contents { version_info: version.text.into(), ..contents };
    let body = encode::Body::new(&contents, &grpc.config.identifier);
    grpc.metrics.response(resource_type, body.len());
    let response = grpc.codec.message_to_json(DISCOVERY_RESPONSE, &body.segments().concat());
    Ok(json(StatusCode::OK, "application/json", &response.map_err(|_| RestError::Internal)?))
}

async fn client_status(grpc: Arc<Grpc>, request: Request) -> Result<Response, RestError> {
    let body = read(&grpc, request).await?;
    blocking(move || {
        let request: ClientStatusRequest = message(&grpc, &body)?;
        let response = csds::client_status(&grpc, request).map_err(RestError::ClientStatus)?;
        let response = grpc.codec.message_to_json(CLIENT_STATUS_RESPONSE, &response.encode_to_vec());
        Ok(json(StatusCode::OK, "application/json", &response.map_err(|_| RestError::Internal)?))
    })
    .await
}

/// The version of an answer to a poll. Nothing is kept between polls, so it says everything that counts: which resources
/// these are, and which names were asked for (row A190).
///
/// What is compared stands behind the last dot. A publisher's label before it is for people: the same label can come to
/// stand for other content (D4).
#[derive(Debug)]
struct PolledVersion {
    text: String,
    compared: String,
}

impl PolledVersion {
    fn new(contents: &Contents, names: &BTreeSet<String>) -> Self {
        let content = content_version(contents);
        let compared = if names.is_empty() {
            content.to_string()
        } else {
            let mut hasher = VersionHasher::new();
            hasher.update(content.to_string().as_bytes());
            names.iter().for_each(|name| hasher.update(name.as_bytes()));
            format!("{content}-{}", hasher.finish())
        };
        let label = &contents.version_info;
        let is_hash = label.parse::<Version>().is_ok();
        let text = if is_hash { compared.clone() } else { format!("{label}.{compared}") };
        Self { text, compared }
    }

    fn is_known_by(&self, version_info: &str) -> bool {
        version_info.rsplit('.').next() == Some(&self.compared)
    }
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
                    Entry::Unpopulated(_) => {}
                }
            }
        }
    }
    hasher.finish()
}

/// The body, if it is not too large.
async fn read(grpc: &Grpc, request: Request) -> Result<Vec<u8>, RestError> {
    let limit = grpc.config.max_message_bytes;
    let body: Body = request.into_body();
    match to_bytes(body, limit).await {
        Ok(body) => Ok(body.into()),
        Err(error) if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) => {
            Err(RestError::TooLarge { limit })
        }
        Err(_) => Err(RestError::BrokenOff),
    }
}

/// Reads a message from its JSON; fields that are not known are nothing to stumble over (row A188).
fn message<M: Message + prost::Name + Default>(grpc: &Grpc, body: &[u8]) -> Result<M, RestError> {
    let json: Json = serde_json::from_slice(body).map_err(RestError::NoJson)?;
    let bytes = grpc
        .codec
        .message_from_json(&M::full_name(), &json, UnknownFields::Ignore)
        .map_err(|error| RestError::BadMessage(error.to_string()))?;
    M::decode(bytes).map_err(|error| RestError::BadMessage(error.to_string()))
}

/// Runs what computes for long away from the threads that serve streams.
async fn blocking(
    answer: impl FnOnce() -> Result<Response, RestError> + Send + 'static,
) -> Result<Response, RestError> {
    tokio::task::spawn_blocking(answer).await.map_err(|_| RestError::Internal)?
}

fn json(status: StatusCode, content_type: &'static str, body: &Json) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
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
const DISCOVERY_RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
const CLIENT_STATUS_RESPONSE: &str = "envoy.service.status.v3.ClientStatusResponse";
