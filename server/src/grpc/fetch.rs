//! One request, one answer: the unary `Fetch` methods, and the base of REST polling.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::time::Instant;
use tonic::Status;
use xds_cache::ResourceType;
use xds_cache::admission::Denial;
use xds_cache::status::Variant;
use xds_session::{Client, Contents, Entries, Form, Limits, Nonce, Request, SessionError, SotwRequest};

use crate::aside::{self, Size};
use crate::grpc::Grpc;
use crate::grpc::call::trailers;
use crate::grpc::convert::{Incoming, RequestError};
use crate::grpc::frames::Frames;
use crate::grpc::gate::Caller;
use crate::grpc::kinds::request_kind;
use crate::grpc::requests::RequestFrames;

/// The answer for a client that asks once.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// This.
    Contents(Contents),
    /// Nothing, because the server knows nothing of the node, and the client holds configuration (D3).
    Withheld,
    /// Nothing, because the first load is not complete.
    NotLoaded,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The client broke the protocol.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The client claims a group that is not granted to it.
    #[error(transparent)]
    Denied(#[from] Denial),
}

/// Answers a request as the first one of a SotW stream of its type is answered.
///
/// # Errors
///
/// Errors that would end such a stream.
pub(crate) fn fetch(
    grpc: &Grpc,
    service: &ResourceType,
    caller: &Caller,
    request: SotwRequest,
) -> Result<Fetched, FetchError> {
    let request = Request::from(request);
    grpc.metrics.request(service, request_kind(&request));
    let Some(node) = request.node().filter(|node| !node.id.is_empty()).cloned() else {
        return Err(RequestError::from(SessionError::MissingNode).into());
    };
    let Some(view) = grpc.clients.view(caller, &node)? else { return Ok(Fetched::NotLoaded) };
    // An answer cannot come in parts, and must not wait for requests of other types: they are clients of their own.
    let limits = Limits { max_response_bytes: usize::MAX, is_phased: false, ..grpc.config.limits };
    let mut client = Client::new(limits);
    let stream = grpc.streams.next_id();
    client.open(stream, Variant::Sotw, Some(service.clone()), 0);
    client.handle_request(stream, as_first(request)).map_err(RequestError::from)?;
    let version_info = Arc::clone(view.version_info(service));
    client.handle_view(view);
    if client.is_withheld() {
        return Ok(Fetched::Withheld);
    }
    let response = client.poll_response(stream, Instant::now().into_std());
    let contents = response.map_or_else(|| empty(service, version_info), |response| response.contents);
    Ok(Fetched::Contents(contents))
}

/// Serves a unary call.
///
/// # Errors
///
/// The status of the call.
pub(crate) async fn unary(
    grpc: &Grpc,
    service: &ResourceType,
    caller: &Caller,
    requests: &mut RequestFrames,
) -> Result<FetchBody, Status> {
    let message = poll_fn(|cx| requests.poll_message(cx)).await;
    let message = message.ok_or_else(|| Status::invalid_argument("the request is missing"))??;
    // The answer is everything that there is, in one message.
    let room = grpc.aside.enter(Size::of_message(message.len())).await;
    aside::work(&room, || answer(grpc, service, caller, &message))
}

fn answer(
    grpc: &Grpc,
    service: &ResourceType,
    caller: &Caller,
    message: &Bytes,
) -> Result<FetchBody, Status> {
    let peer = caller.peer();
    let incoming = Incoming::first(Variant::Sotw, message, &grpc.config.limits);
    let incoming = incoming.map_err(|error| grpc.end_of(peer, &error))?;
    let Request::Sotw(request) = incoming.request else {
        return Err(Status::internal("the request is of the other variant"));
    };
    let fetched = fetch(grpc, service, caller, request).map_err(|error| match error {
        FetchError::Request(error) => grpc.end_of(peer, &error),
        FetchError::Denied(denial) => grpc.clients.deny(peer, &denial),
    });
    match fetched? {
        Fetched::Contents(contents) => {
            let body = grpc.bodies.encode(&contents);
            grpc.metrics.response(service, body.len());
            Ok(FetchBody { frames: Frames::without_nonce(body).collect(), is_ended: false })
        }
        Fetched::Withheld => Err(Status::unavailable("no node group selects this node")),
        Fetched::NotLoaded => Err(Status::unavailable("the first load is not complete yet")),
    }
}

/// The session has never sent anything to this client: what the request says of earlier responses means nothing.
fn as_first(request: Request) -> Request {
    match request {
        Request::Sotw(request) => {
            Request::Sotw(SotwRequest { response_nonce: Nonce::None, error_detail: None, ..request })
        }
        Request::Delta(request) => Request::Delta(request),
    }
}

/// The answer to who asks for nothing, or for nothing that exists.
fn empty(service: &ResourceType, version_info: Arc<str>) -> Contents {
    Contents {
        resource_type: service.clone(),
        version_info,
        form: Form::Sotw,
        entries: Entries::Listed(vec![]),
        removed: vec![],
        not_found: vec![],
    }
}

/// A message and the status `OK`.
#[derive(Debug)]
pub(crate) struct FetchBody {
    frames: VecDeque<Bytes>,
    is_ended: bool,
}

impl http_body::Body for FetchBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::replace(&mut self.is_ended, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers(&Status::ok(""))))))
    }
}
