//! Client status in JSON: `POST /v3/discovery:client_status` (row A196).

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use envoy_types::pb::envoy::service::status::v3 as proto;
use futures_util::Stream;
use prost::Message as _;
use serde_json::Value as Json;
use tokio::sync::OwnedSemaphorePermit;
use xds_codec::{Codec, UnknownFields};

use super::MAX_REQUEST_BYTES;
use super::audience::{Asker, Door};
use super::error::ClientStatusError;
use super::parts::StatusParts;
use crate::grpc::Grpc;
use crate::grpc::rest::{json, problem};

/// The endpoint of a port.
pub(crate) fn routes(grpc: &Arc<Grpc>, door: Door) -> Router {
    let grpc = Arc::clone(grpc);
    let serve = move |request| client_status(Arc::clone(&grpc), door, request);
    Router::new().route("/v3/discovery:client_status", post(serve))
}

async fn client_status(grpc: Arc<Grpc>, door: Door, request: Request) -> Response {
    let asker = Asker::new(door, request.extensions());
    let Ok(body) = to_bytes(request.into_body(), MAX_REQUEST_BYTES).await else {
        let detail = format!("the body has more than {MAX_REQUEST_BYTES} bytes, or broke off");
        return problem(StatusCode::PAYLOAD_TOO_LARGE, &detail);
    };
    let request = match read(&grpc.codec, &body) {
        Ok(request) => request,
        Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
    };
    let begun = async {
        let place = grpc.client_status.read()?;
        let (first, parts) = grpc.first_part(&asker, request).await?;
        Ok(Answer { place, parts, next: Some(first), is_begun: false, has_clients: false })
    };
    match begun.await {
        Ok(answer) => json(StatusCode::OK, "application/json", Body::from_stream(chunks(grpc, answer))),
        Err(error) => {
            grpc.refuse_client_status(&asker, &error);
            problem(status_of(&error), &error.to_string())
        }
    }
}

fn status_of(error: &ClientStatusError) -> StatusCode {
    match error {
        ClientStatusError::Matcher(_) => StatusCode::BAD_REQUEST,
        ClientStatusError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ClientStatusError::NotAllowed => StatusCode::FORBIDDEN,
        ClientStatusError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        ClientStatusError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn read(codec: &Codec, body: &[u8]) -> Result<proto::ClientStatusRequest, String> {
    let fields: Json =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let bytes = codec
        .message_from_json("envoy.service.status.v3.ClientStatusRequest", &fields, UnknownFields::Ignore)
        .map_err(|error| error.to_string())?;
    proto::ClientStatusRequest::decode(bytes).map_err(|error| error.to_string())
}

/// An answer that is being written.
struct Answer {
    place: OwnedSemaphorePermit,
    parts: StatusParts,
    /// The part that is written next.
    next: Option<proto::ClientStatusResponse>,
    is_begun: bool,
    has_clients: bool,
}

/// The pieces of an answer, each made when the client has room for it.
fn chunks(grpc: Arc<Grpc>, answer: Answer) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    futures_util::stream::unfold(Some(answer), move |answer| {
        let grpc = Arc::clone(&grpc);
        async move {
            let mut answer = answer?;
            let part = match answer.next.take() {
                Some(part) => part,
                None => match grpc.next_part(answer.parts).await {
                    Ok((part, parts)) => {
                        answer.parts = parts;
                        part
                    }
                    Err(error) => return Some((Err(io::Error::other(error)), None)),
                },
            };
            let codec = grpc.codec.clone();
            let written = tokio::task::spawn_blocking(move || {
                let text = answer.write(&codec, &part);
                (text, answer)
            });
            match written.await {
                Ok((Ok(text), answer)) => {
                    let rest = (!answer.parts.is_done()).then_some(answer);
                    Some((Ok(text), rest))
                }
                Ok((Err(error), _)) => Some((Err(io::Error::other(error)), None)),
                Err(error) => Some((Err(io::Error::other(error)), None)),
            }
        }
    })
}

impl Answer {
    fn write(
        &mut self,
        codec: &Codec,
        part: &proto::ClientStatusResponse,
    ) -> Result<Bytes, xds_codec::MessageError> {
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            text.push_str("{\"config\":[");
        }
        for config in &part.config {
            if std::mem::replace(&mut self.has_clients, true) {
                text.push(',');
            }
            let written = codec.message_to_json(CLIENT_CONFIG, &config.encode_to_vec())?;
            text.push_str(&written.to_string());
        }
        if self.parts.is_done() {
            text.push_str("]}");
        }
        Ok(text.into())
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("parts", &self.parts)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

const CLIENT_CONFIG: &str = "envoy.service.status.v3.ClientConfig";
