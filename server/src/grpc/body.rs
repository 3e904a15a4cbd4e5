//! The response side of a discovery stream: an HTTP body that drives the stream whenever it has room to send (D8, D12).
//!
//! There is no task and no queue. The transport asks the body for a frame when the client has granted room for one. Then
//! the body takes in the requests that have come and the newest view, asks the session for a response and gives out its
//! frames. A client that stops reading is not asked for: it costs nothing, and gets the newest state when it resumes.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status};
use tracing::debug;
use xds_cache::{Resource, ResourceType, ViewReceiver};
use xds_session::{Contents, Entries, Entry, Request, Response};

use crate::grpc::Grpc;
use crate::grpc::client::{SharedClient, StreamKind, request_kind};
use crate::grpc::convert::Incoming;
use crate::grpc::frames::Frames;
use crate::grpc::pace::{Place, Waiting};
use crate::grpc::requests::RequestFrames;
use crate::grpc::streams::OpenStream;
use crate::grpc::trace;
use crate::listen::Peer;

/// One discovery stream.
pub(crate) struct DiscoveryBody {
    grpc: Arc<Grpc>,
    open: OpenStream,
    kind: StreamKind,
    peer: Peer,
    /// `None` once the client has said everything.
    requests: Option<RequestFrames>,
    /// `None` until the first request.
    joined: Option<Joined>,
    timer: Option<Pin<Box<Sleep>>>,
    outgoing: Outgoing,
}

/// A stream whose client is known.
struct Joined {
    client: Arc<SharedClient>,
    /// Comes with the receiver when there is another view; `None` if the publisher is gone.
    changed: Pin<Box<dyn Future<Output = Option<ViewReceiver>> + Send>>,
}

/// What the stream is writing.
enum Outgoing {
    Nothing,
    /// A large response that waits for its turn; not encoded yet.
    Paced(Box<(Response, Waiting)>),
    Message {
        frames: Frames,
        /// Given back when the message is written.
        _place: Option<Place>,
    },
    Ended,
}

impl DiscoveryBody {
    /// A stream whose requests come in `requests`.
    pub(crate) fn new(
        grpc: Arc<Grpc>,
        open: OpenStream,
        kind: StreamKind,
        peer: Peer,
        requests: RequestFrames,
    ) -> Self {
        grpc.metrics.stream_opened(kind.variant);
        let requests = Some(requests);
        Self { grpc, open, kind, peer, requests, joined: None, timer: None, outgoing: Outgoing::Nothing }
    }

    /// The next frame of what is being written, or of what is to be written next.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        self.open.register(cx.waker());
        loop {
            match &mut self.outgoing {
                Outgoing::Ended => return Poll::Ready(None),
                Outgoing::Message { frames, .. } => match frames.next() {
                    Some(data) => return Poll::Ready(Some(Frame::data(data))),
                    None => self.outgoing = Outgoing::Nothing,
                },
                Outgoing::Paced(paced) => {
                    let place = ready!(paced.1.as_mut().poll(cx));
                    if let Outgoing::Paced(paced) = std::mem::replace(&mut self.outgoing, Outgoing::Nothing) {
                        self.write(&paced.0, Some(place));
                    }
                }
                Outgoing::Nothing => match ready!(self.poll_response(cx)) {
                    Ok(response) => self.begin(response),
                    Err(status) => return Poll::Ready(Some(self.end(&status))),
                },
            }
        }
    }

    /// Takes in what has come and waits until there is a response.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with; `OK` if the client is done.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, Status>> {
        if let Some(ending) = self.open.ending() {
            return Poll::Ready(Err(ending.into()));
        }
        self.poll_requests(cx)?;
        self.poll_view(cx)?;
        let Some(joined) = &self.joined else {
            return if self.requests.is_some() { Poll::Pending } else { Poll::Ready(Err(Status::ok(""))) };
        };
        let client = Arc::clone(&joined.client);
        loop {
            let now = Instant::now().into_std();
            if let Some(response) = client.poll_response(&self.grpc, self.open.id, now) {
                return Poll::Ready(Ok(response));
            }
            if self.requests.is_none() {
                return Poll::Ready(Err(Status::ok("")));
            }
            ready!(self.poll_timer(&client, cx));
        }
    }

    /// Takes in the requests that have come, but only so many, for the sake of the other streams.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..MAX_REQUESTS_PER_POLL {
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match requests.poll_message(cx) {
                Poll::Pending => {
                    if self.joined.is_none() {
                        self.open.set_receiving(requests.is_receiving_large());
                    }
                    return Ok(());
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(message)) => {
                    let message = message?;
                    let (variant, limits) = (self.kind.variant, &self.grpc.config.limits);
                    let incoming = match &self.joined {
                        None => Incoming::first(variant, &message, limits),
                        Some(_) => Incoming::later(variant, &message, limits),
                    };
                    let incoming = incoming.map_err(|error| self.grpc.end_of(&self.peer, &error))?;
                    self.handle_request(incoming)?;
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn handle_request(&mut self, mut incoming: Incoming) -> Result<(), Status> {
        let resource_type = self.type_of(&incoming.request);
        self.grpc.metrics.request(&resource_type, request_kind(&incoming.request));
        let (client, is_first) = match &self.joined {
            Some(joined) => (Arc::clone(&joined.client), false),
            None => {
                let client =
                    SharedClient::join(&self.grpc, &self.open, &self.kind, &self.peer, incoming.node.take())?;
                let changed: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(std::future::pending());
                self.joined = Some(Joined { client: Arc::clone(&client), changed });
                (client, true)
            }
        };
        trace::request(Some(&client.node().id), self.open.id, &resource_type, &incoming.request);
        let taken = client.handle_request(&self.grpc, self.open.id, incoming.request);
        taken.map_err(|error| self.grpc.end_of(&self.peer, &error.into()))?;
        if is_first {
            let receiver = client.follow(&self.grpc);
            self.joined = Some(Joined { client, changed: changed(receiver) });
        }
        Ok(())
    }

    fn poll_view(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let Some(joined) = &mut self.joined else { return Ok(()) };
        while let Poll::Ready(receiver) = joined.changed.as_mut().poll(cx) {
            let receiver = receiver.ok_or_else(|| Status::unavailable("the server is shutting down"))?;
            joined.changed = changed(joined.client.handle_view(&self.grpc, receiver));
        }
        Ok(())
    }

    /// Waits until the client's time has come; for ever, for most clients.
    fn poll_timer(&mut self, client: &SharedClient, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = client.poll_timeout().map(Instant::from_std) else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        client.handle_timeout(&self.grpc, Instant::now().into_std());
        Poll::Ready(())
    }

    /// Writes a response, now or when it is its turn.
    fn begin(&mut self, response: Response) {
        if !is_large(&response.contents) {
            return self.write(&response, None);
        }
        match self.grpc.pacer.try_enter() {
            Some(place) => self.write(&response, Some(place)),
            None => self.outgoing = Outgoing::Paced(Box::new((response, self.grpc.pacer.enter()))),
        }
    }

    fn write(&mut self, response: &Response, place: Option<Place>) {
        trace::response(self.node(), self.open.id, response);
        let body = self.grpc.bodies.encode(&response.contents);
        self.grpc.metrics.response(&response.contents.resource_type, Frames::message_len(response, &body));
        self.outgoing = Outgoing::Message { frames: Frames::new(response.nonce, body), _place: place };
    }

    /// Ends the stream.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        if status.code() != Code::Ok {
            debug!(node = self.node(), stream = %self.open.id, %status, "a stream ends");
        }
        self.outgoing = Outgoing::Ended;
        self.requests = None;
        Frame::trailers(trailers(status))
    }

    fn node(&self) -> Option<&str> {
        self.joined.as_ref().map(|joined| joined.client.node().id.as_str())
    }

    fn type_of(&self, request: &Request) -> ResourceType {
        match &self.kind.service {
            Some(service) => service.clone(),
            None => ResourceType::from_type_url(request.type_url()),
        }
    }
}

impl http_body::Body for DiscoveryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().poll_next(cx).map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.outgoing, Outgoing::Ended)
    }
}

impl Drop for DiscoveryBody {
    fn drop(&mut self) {
        if let Some(joined) = self.joined.take() {
            joined.client.handle_close(&self.grpc, self.open.id);
        }
        self.grpc.metrics.stream_closed(self.kind.variant);
    }
}

impl fmt::Debug for DiscoveryBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiscoveryBody({})", self.open.id)
    }
}

/// Waits for another view.
fn changed(mut receiver: ViewReceiver) -> Pin<Box<dyn Future<Output = Option<ViewReceiver>> + Send>> {
    Box::pin(async move {
        let changed = receiver.changed().await;
        changed.is_ok().then_some(receiver)
    })
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

/// Whether a response counts among those that are paced.
fn is_large(contents: &Contents) -> bool {
    let mut n_bytes = 0;
    let mut add = |resource: &Resource| {
        n_bytes += resource.value().len();
        n_bytes > PACED_FROM
    };
    match &contents.entries {
        Entries::Table(table) => table.resources().iter().any(|resource| add(resource)),
        Entries::Listed(entries) => entries.iter().any(|entry| match entry {
            Entry::Full(resource) => add(resource),
            Entry::Heartbeat(_) | Entry::Unpopulated(_) => false,
        }),
    }
}

/// How many requests a stream takes in before it lets others work.
const MAX_REQUESTS_PER_POLL: usize = 64;
/// Bodies over this size are paced (D8).
const PACED_FROM: usize = 64 * 1024;
