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
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status};
use tracing::debug;
use xds_cache::{Resource, ResourceType, ViewReceiver};
use xds_session::{Contents, Entries, Entry, Request, Response};

use crate::aside::{self, Queue, Room, Size};
use crate::grpc::Grpc;
use crate::grpc::call::trailers;
use crate::grpc::client::{ClientStream, MAX_AT_ONCE, SharedClient, TakesLong};
use crate::grpc::convert::Incoming;
use crate::grpc::currency::Verdict;
use crate::grpc::frames::Frames;
use crate::grpc::gate::Caller;
use crate::grpc::kinds::{StreamKind, request_kind};
use crate::grpc::pace::{Waiting, WriteSlot};
use crate::grpc::requests::RequestFrames;
use crate::grpc::trace;

/// One discovery stream.
pub(crate) struct DiscoveryBody {
    grpc: Arc<Grpc>,
    open: ClientStream,
    kind: StreamKind,
    caller: Caller,
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

/// The response that the stream is writing.
enum Outgoing {
    Nothing,
    /// Something that takes long waits for its turn.
    Aside(Box<(Work, Queue)>),
    /// A large response that waits for its turn; not encoded yet.
    Paced(Box<(Response, Waiting)>),
    Message {
        frames: Frames,
        /// Given back when the message is written.
        _slot: Option<WriteSlot>,
    },
    /// The stream has ended, for this reason.
    Ended(Box<str>),
}

/// The next thing to do.
enum Next {
    Write(Response),
    Aside(Work),
}

/// Work that is done aside.
enum Work {
    /// A request is to be decoded and taken in.
    Message(Bytes),
    /// A request is to be taken in.
    Request(Box<Incoming>),
    /// A response is to be made, if any is owed.
    Respond,
    /// A response is to be encoded; the slot is that of large bodies.
    Encode(Response, Option<WriteSlot>),
}

impl DiscoveryBody {
    /// A stream whose requests come in `requests`.
    pub(crate) fn new(
        grpc: Arc<Grpc>,
        open: ClientStream,
        kind: StreamKind,
        caller: Caller,
        requests: RequestFrames,
    ) -> Self {
        grpc.metrics.stream_opened(kind.variant);
        let requests = Some(requests);
        Self { grpc, open, kind, caller, requests, joined: None, timer: None, outgoing: Outgoing::Nothing }
    }

    /// The next frame of what is being written, or of what is to be written next.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        self.open.register(cx.waker());
        // Whoever sends much gets an answer in between.
        let mut may_take_in = true;
        loop {
            let done = match &mut self.outgoing {
                Outgoing::Ended(_) => return Poll::Ready(None),
                Outgoing::Message { frames, .. } => match frames.next() {
                    Some(data) => return Poll::Ready(Some(Frame::data(data))),
                    None => {
                        self.outgoing = Outgoing::Nothing;
                        Ok(())
                    }
                },
                Outgoing::Aside(aside) => {
                    if let Some(ending) = self.open.ending() {
                        return Poll::Ready(Some(self.end(&ending.into())));
                    }
                    let room = ready!(aside.1.as_mut().poll(cx));
                    match std::mem::replace(&mut self.outgoing, Outgoing::Nothing) {
                        Outgoing::Aside(aside) => {
                            may_take_in &= !aside.0.takes_in();
                            self.perform(aside.0, &room)
                        }
                        Outgoing::Nothing
                        | Outgoing::Paced(_)
                        | Outgoing::Message { .. }
                        | Outgoing::Ended(_) => Ok(()),
                    }
                }
                Outgoing::Paced(paced) => {
                    let slot = ready!(paced.1.as_mut().poll(cx));
                    if let Outgoing::Paced(paced) = std::mem::replace(&mut self.outgoing, Outgoing::Nothing) {
                        self.write(paced.0, Some(slot), None);
                    }
                    Ok(())
                }
                Outgoing::Nothing => match ready!(self.poll_work(may_take_in, cx)) {
                    Ok(Next::Write(response)) => {
                        self.begin(response, None);
                        Ok(())
                    }
                    Ok(Next::Aside(work)) => {
                        may_take_in &= !work.takes_in();
                        self.go_aside(work)
                    }
                    Err(status) => Err(status),
                },
            };
            if let Err(status) = done {
                return Poll::Ready(Some(self.end(&status)));
            }
        }
    }

    /// Takes in what has come and waits until there is a response, or something to do that takes long.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with; `OK` if the client is done.
    fn poll_work(&mut self, may_take_in: bool, cx: &mut Context<'_>) -> Poll<Result<Next, Status>> {
        if let Some(ending) = self.open.ending() {
            return Poll::Ready(Err(ending.into()));
        }
        if may_take_in {
            if let Some(work) = self.poll_requests(cx)? {
                return Poll::Ready(Ok(Next::Aside(work)));
            }
        } else {
            cx.waker().wake_by_ref();
        }
        self.poll_view(cx)?;
        let Some(joined) = &self.joined else {
            return if self.requests.is_some() { Poll::Pending } else { Poll::Ready(Err(Status::ok(""))) };
        };
        let client = Arc::clone(&joined.client);
        if self.requests.is_some() {
            ready!(self.poll_doubt(&client, cx))?;
        }
        loop {
            let now = Instant::now().into_std();
            match client.try_poll_response(&self.grpc.clients, self.open.id, now) {
                Ok(Some(response)) => return Poll::Ready(Ok(Next::Write(response))),
                Ok(None) => {}
                Err(TakesLong) => return Poll::Ready(Ok(Next::Aside(Work::Respond))),
            }
            if self.requests.is_none() {
                return Poll::Ready(Err(Status::ok("")));
            }
            ready!(self.poll_timer(&client, cx));
        }
    }

    /// Takes in the requests that have come, with a limit in number and time for the sake of the other streams. Returns a request that
    /// takes long.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<Option<Work>, Status> {
        let began = Instant::now();
        for _ in 0..MAX_REQUESTS_PER_POLL {
            let Some(requests) = &mut self.requests else { return Ok(None) };
            match requests.poll_message(cx) {
                Poll::Pending => {
                    if self.joined.is_none() {
                        self.open.set_receiving(requests.is_receiving_large());
                    }
                    return Ok(None);
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(message)) => {
                    let message = message?;
                    if message.len() > MAX_DECODED_AT_ONCE {
                        return Ok(Some(Work::Message(message)));
                    }
                    let incoming = self.decode(&message)?;
                    if self.takes_long(&incoming.request) {
                        return Ok(Some(Work::Request(Box::new(incoming))));
                    }
                    self.handle_request(incoming)?;
                }
            }
            if began.elapsed() > MAX_TIME_PER_POLL {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Ok(None)
    }

    fn decode(&self, message: &Bytes) -> Result<Incoming, Status> {
        let (variant, limits) = (self.kind.variant, &self.grpc.config.limits);
        let incoming = match &self.joined {
            None => Incoming::first(variant, message, limits),
            Some(_) => Incoming::later(variant, message, limits),
        };
        incoming.map_err(|error| self.grpc.end_of(self.caller.peer(), &error))
    }

    fn takes_long(&self, request: &Request) -> bool {
        match &self.joined {
            Some(joined) => joined.client.takes_long(self.open.id, request),
            None => request.n_names() > MAX_AT_ONCE,
        }
    }

    /// Does something that takes long, now or when it is its turn.
    fn go_aside(&mut self, work: Work) -> Result<(), Status> {
        let size = self.size(&work);
        match self.grpc.aside.try_enter(size) {
            Some(room) => self.perform(work, &room),
            None => {
                self.outgoing = Outgoing::Aside(Box::new((work, self.grpc.aside.enter(size))));
                Ok(())
            }
        }
    }

    fn size(&self, work: &Work) -> Size {
        match (work, &self.joined) {
            (Work::Message(message), _) => Size::of_message(message.len()),
            (Work::Request(incoming), Some(joined)) => {
                joined.client.size_of_request(self.open.id, &incoming.request)
            }
            (Work::Request(incoming), None) => Size::of(incoming.request.n_names()),
            (Work::Respond, Some(joined)) => {
                joined.client.size_of_response(self.open.id, Instant::now().into_std())
            }
            (Work::Respond, None) => Size::Large,
            (Work::Encode(response, _), _) => Size::of(n_entries(&response.contents)),
        }
    }

    fn perform(&mut self, work: Work, room: &Room) -> Result<(), Status> {
        let client = self.joined.as_ref().map(|joined| Arc::clone(&joined.client));
        let _busy = client.as_ref().filter(|_| room.is_huge()).map(|client| client.busy());
        match work {
            Work::Message(message) => aside::work(room, || {
                let incoming = self.decode(&message)?;
                self.handle_request(incoming)
            }),
            Work::Request(incoming) => aside::work(room, || self.handle_request(*incoming)),
            Work::Respond => {
                let Some(joined) = &self.joined else { return Ok(()) };
                let client = Arc::clone(&joined.client);
                let now = Instant::now().into_std();
                let response =
                    aside::work(room, || client.poll_response(&self.grpc.clients, self.open.id, now));
                if let Some(response) = response {
                    self.begin(response, Some(room));
                }
                Ok(())
            }
            Work::Encode(response, slot) => {
                self.write(response, slot, Some(room));
                Ok(())
            }
        }
    }

    fn handle_request(&mut self, mut incoming: Incoming) -> Result<(), Status> {
        let resource_type = self.type_of(&incoming.request);
        self.grpc.metrics.request(&resource_type, request_kind(&incoming.request));
        let (client, first) = match &self.joined {
            Some(joined) => (Arc::clone(&joined.client), None),
            None => {
                let node = incoming.node.take();
                let (client, receiver) =
                    self.grpc.clients.join(&self.open, &self.kind, &self.caller, node)?;
                let changed: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(std::future::pending());
                self.joined = Some(Joined { client: Arc::clone(&client), changed });
                (client, Some(receiver))
            }
        };
        trace::request(Some(&client.node().id), self.open.id, &resource_type, &incoming.request);
        // Copied only while the store cannot be reached.
        let is_claim = incoming.request.may_claim() && !self.grpc.currency.is_current();
        let claim = is_claim.then(|| incoming.request.clone());
        let taken = client.handle_request(&self.grpc.clients, self.open.id, incoming.request);
        taken.map_err(|error| self.grpc.end_of(self.caller.peer(), &error))?;
        if let Some(receiver) = first {
            let followed = client.follow(&self.grpc.clients, receiver, self.kind.variant);
            let receiver = followed.map_err(|denial| self.grpc.clients.deny(self.caller.peer(), &denial))?;
            self.joined = Some(Joined { client, changed: changed(receiver) });
        }
        if let (Some(claim), Some(joined)) = (claim, &self.joined) {
            joined.client.doubt(&resource_type, &claim, Instant::now());
        }
        Ok(())
    }

    fn poll_view(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let Some(joined) = &mut self.joined else { return Ok(()) };
        while let Poll::Ready(receiver) = joined.changed.as_mut().poll(cx) {
            let receiver = receiver.ok_or_else(|| Status::unavailable("the server is shutting down"))?;
            let followed = joined.client.handle_view(&self.grpc.clients, receiver);
            let receiver = followed.map_err(|denial| self.grpc.clients.end(self.caller.peer(), &denial))?;
            joined.changed = changed(receiver);
        }
        Ok(())
    }

    /// Waits until a client that has seen something newer may be served.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with, if this server does not become current in time.
    fn poll_doubt(&mut self, client: &SharedClient, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while let Some(since) = client.doubted() {
            match self.grpc.currency.judge(since) {
                Verdict::Serve => client.believe(),
                Verdict::Leave => {
                    self.grpc.metrics.newer_client_left();
                    return Poll::Ready(Err(Status::unavailable(NOT_CURRENT)));
                }
                Verdict::Wait { until } => ready!(self.poll_until(until, cx)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the client's time has come; for ever, for most clients.
    fn poll_timer(&mut self, client: &SharedClient, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = client.poll_timeout().map(Instant::from_std) else {
            self.timer = None;
            return Poll::Pending;
        };
        ready!(self.poll_until(deadline, cx));
        client.handle_timeout(&self.grpc.clients, Instant::now().into_std());
        Poll::Ready(())
    }

    fn poll_until(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx)
    }

    /// Writes a response, now or when it is its turn.
    fn begin(&mut self, response: Response, room: Option<&Room>) {
        if !is_large(&response.contents) {
            return self.write(response, None, room);
        }
        match self.grpc.pacer.try_enter() {
            Some(slot) => self.write(response, Some(slot), room),
            None => self.outgoing = Outgoing::Paced(Box::new((response, self.grpc.pacer.enter()))),
        }
    }

    fn write(&mut self, response: Response, slot: Option<WriteSlot>, room: Option<&Room>) {
        let has_many = n_entries(&response.contents) > MAX_AT_ONCE;
        let shared = if has_many { self.grpc.bodies.of_table(&response.contents) } else { None };
        let body = match (shared, room) {
            (Some(body), _) => body,
            (None, Some(room)) => aside::work(room, || self.grpc.bodies.encode(&response.contents)),
            (None, None) if !has_many => self.grpc.bodies.encode(&response.contents),
            // To encode cannot fail.
            (None, None) => return drop(self.go_aside(Work::Encode(response, slot))),
        };
        trace::response(self.node(), self.open.id, &response);
        self.grpc.metrics.response(&response.contents.resource_type, Frames::message_len(&response, &body));
        self.outgoing = Outgoing::Message { frames: Frames::new(response.nonce, body), _slot: slot };
    }

    /// Ends the stream.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        if status.code() != Code::Ok {
            debug!(node = self.node(), stream = %self.open.id, %status, "a stream ends");
        }
        let reason = if status.code() == Code::Ok { "the client ended the stream" } else { status.message() };
        self.outgoing = Outgoing::Ended(reason.into());
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
        matches!(self.outgoing, Outgoing::Ended(_))
    }
}

impl Drop for DiscoveryBody {
    fn drop(&mut self) {
        let outgoing = std::mem::replace(&mut self.outgoing, Outgoing::Nothing);
        let reason = if let Outgoing::Ended(reason) = outgoing { reason } else { CLOSED.into() };
        if let Some(Joined { client, .. }) = self.joined.take() {
            if client.takes_long_to_close() {
                let (clients, stream) = (Arc::clone(&self.grpc.clients), self.open.id);
                aside::later(move || client.handle_close(&clients, stream, &reason));
            } else {
                client.handle_close(&self.grpc.clients, self.open.id, &reason);
            }
        }
        self.grpc.metrics.stream_closed(self.kind.variant);
    }
}

impl fmt::Debug for DiscoveryBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiscoveryBody({})", self.open.id)
    }
}

impl Work {
    /// Returns `true` if it is about a request.
    fn takes_in(&self) -> bool {
        match self {
            Self::Message(_) | Self::Request(_) => true,
            Self::Respond | Self::Encode(..) => false,
        }
    }
}

/// Waits for another view.
fn changed(mut receiver: ViewReceiver) -> Pin<Box<dyn Future<Output = Option<ViewReceiver>> + Send>> {
    Box::pin(async move {
        let changed = receiver.changed().await;
        changed.is_ok().then_some(receiver)
    })
}

/// Returns `true` if a response counts among those that are paced.
fn is_large(contents: &Contents) -> bool {
    let mut n_bytes = 0;
    let mut add = |resource: &Resource| {
        n_bytes += resource.n_bytes();
        n_bytes > PACED_FROM
    };
    match &contents.entries {
        Entries::Table(table) => table.resources().any(|resource| add(resource)),
        Entries::Listed(entries) => entries.iter().any(|entry| match entry {
            Entry::Full(resource) => add(resource),
            Entry::Heartbeat(_) | Entry::Unpopulated(_) => false,
        }),
    }
}

/// How many things stand in a response.
fn n_entries(contents: &Contents) -> usize {
    let n_resources = match &contents.entries {
        Entries::Table(table) => table.len(),
        Entries::Listed(entries) => entries.len(),
    };
    n_resources + contents.removed.len() + contents.not_found.len()
}

/// Why a stream is gone that was not ended.
const CLOSED: &str = "the connection closed";
/// How many requests a stream takes in before it lets others work.
const MAX_REQUESTS_PER_POLL: usize = 64;
/// How long a stream takes in requests before it lets others work.
const MAX_TIME_PER_POLL: Duration = Duration::from_millis(2);
/// How many bytes of a request are decoded without going aside: a few milliseconds, however small the names in it are. The first
/// request of an Envoy has 60 KB.
const MAX_DECODED_AT_ONCE: usize = 128 * 1024;
/// Bodies over this size are paced (D8).
const PACED_FROM: usize = 64 * 1024;

/// Why a client leaves that has seen something newer.
const NOT_CURRENT: &str = "this server cannot reach its store, and the client has been served something newer; connect again, to any server";
