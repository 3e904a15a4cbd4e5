//! The outside of a gRPC call: what makes a request one, and the headers and trailers of its response.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tonic::Status;

/// The answer to a request that is no gRPC call, or one that says what is not supported.
pub(crate) fn no_call(parts: &Parts) -> Option<Response> {
    if parts.method != Method::POST {
        return Some(StatusCode::METHOD_NOT_ALLOWED.into_response());
    }
    if !is_grpc(&parts.headers) {
        return Some(StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response());
    }
    refuse_compressed(&parts.headers).err().map(|status| refusal(&status))
}

/// Nothing is negotiated: responses are shared bytes, and requests are small.
fn refuse_compressed(headers: &HeaderMap) -> Result<(), Status> {
    let Some(encoding) = headers.get(GRPC_ENCODING) else { return Ok(()) };
    if encoding == "identity" {
        return Ok(());
    }
    let mut status = Status::unimplemented("compressed requests are not supported");
    status
        .metadata_mut()
        .insert("grpc-accept-encoding", tonic::metadata::MetadataValue::from_static("identity"));
    Err(status)
}

/// Returns `true` if a request says that it is gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(GRPC.as_bytes()))
}

/// A response with messages.
pub(crate) fn answer(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

/// A response that is nothing but a status.
pub(crate) fn refusal(status: &Status) -> Response {
    status.clone().into_http::<Body>()
}

/// The end of a gRPC response.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // The text cannot stand in a header; the code says enough.
        let _ = Status::new(status.code(), "").add_header(&mut trailers);
    }
    trailers
}

const GRPC: &str = "application/grpc";
const GRPC_ENCODING: &str = "grpc-encoding";
