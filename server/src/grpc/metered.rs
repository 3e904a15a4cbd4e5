//! Other gRPC services than discovery, within the same budgets.
//!
//! The library that decodes their messages would reserve any announced length. Here it gets only whole messages, which
//! [`RequestFrames`] has assembled. The number of calls is limited: at the limit, the oldest one ends for a new one.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use crate::grpc::call::trailers;
use crate::grpc::gate::Caller;
use crate::grpc::receive::{Meter, Receiving};
use crate::grpc::requests::{RequestFrames, Rules};
use crate::grpc::streams::{OpenStream, Streams};
use crate::listen::Peer;

/// The calls that are open, none of which has a client as discovery knows it.
pub(crate) type Calls = Streams<Infallible>;

/// A service whose calls keep to the rules.
#[derive(Clone, Debug)]
pub(crate) struct Metered<S> {
    inner: S,
    receiving: Arc<Receiving>,
    rules: Rules,
    /// Where its calls have their places.
    calls: Arc<Calls>,
}

impl<S> Metered<S> {
    pub(crate) fn new(inner: S, receiving: &Arc<Receiving>, rules: Rules, calls: &Arc<Calls>) -> Self {
        Self { inner, receiving: Arc::clone(receiving), rules, calls: Arc::clone(calls) }
    }
}

impl<S: NamedService> NamedService for Metered<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Metered<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let peer = Peer::of(request.extensions());
        let open = match self.calls.open(&peer, Caller::of(request.extensions()).proofs()) {
            Ok(open) => open,
            Err(error) => return Box::pin(async move { Ok(Status::from(error).into_http()) }),
        };
        let meter = Meter::new(&self.receiving, peer);
        let rules = self.rules;
        let request = request.map(|body| {
            Body::new(WholeMessages(RequestFrames::new(axum::body::Body::new(body), rules, meter)))
        });
        let answer = self.inner.call(request);
        Box::pin(async move {
            tokio::select! {
                answer = answer => Ok(answer?.map(|inner| Body::new(Call { inner, open, is_ended: false }))),
                ending = poll_fn(|cx| open.poll_ending(cx)) => Ok(Status::from(ending).into_http()),
            }
        })
    }
}

/// A request body in which each frame is a whole message.
struct WholeMessages(RequestFrames);

impl http_body::Body for WholeMessages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.poll_framed(cx).map_ok(Frame::data)
    }
}

/// The response of a call that may have to end.
struct Call {
    inner: Body,
    open: OpenStream<Infallible>,
    is_ended: bool,
}

impl http_body::Body for Call {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(ending) = self.open.poll_ending(cx) {
            self.is_ended = true;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers(&ending.into())))));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended || self.inner.is_end_stream()
    }
}

impl fmt::Debug for WholeMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WholeMessages")
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({:?})", self.open.id)
    }
}
