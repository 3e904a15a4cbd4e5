//! The connected clients: each drives an `xds_session::Client` for all of its streams (D13).
//!
//! An ADS stream is a client of its own. The per-type streams of one connection and node are one client, because what is
//! sent on one of them can be owed to another. Each stream's response body calls in here; a client's lock is held only
//! for such a call, never while anything waits.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use tonic::Status;
use tracing::warn;
use xds_access::Trail;
use xds_access::audit::Entry;
use xds_cache::admission::Denial;
use xds_cache::status::{EventKind, StreamEntry, StreamEvent, StreamId, StreamInfo, Subscriber, Variant};
use xds_cache::{
    HeldBack, Node, Proof, Publisher, Reason, Refusals, ResourceType, StatusBoard, View, ViewChange,
    ViewReceiver,
};
use xds_session::{Client, Holding, Limits, Request, Response, SessionError};

use crate::aside::{self, Size};
use crate::culprits::KeptCulprits;
use crate::grpc::arrivals::Arrivals;
use crate::grpc::boards::Boards;
use crate::grpc::budget::{Budget, Reserved};
use crate::grpc::config::GrpcConfig;
use crate::grpc::convert::{RequestError, SentNode};
use crate::grpc::gate::{self, Caller, GateRefusal};
use crate::grpc::identity::{Identities, Identity};
use crate::grpc::kinds::StreamKind;
use crate::grpc::nacks::{Nacks, Repeats};
use crate::grpc::node::{MAX_TEXT_BYTES, kept_bytes};
use crate::grpc::status::{end_of, refuse};
use crate::grpc::streams::{OpenStream, StreamHandle, Streams};
use crate::grpc::subscriptions::{Share, Subscriptions};
use crate::listen::Peer;
use crate::metrics::Metrics;
use crate::traces::{Answer, Traces};

/// Something takes so long that it is done aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakesLong;

/// Huge work on a client: whoever waits for it waits as long as if the work were its own.
pub(crate) struct HugeWork<'c>(&'c SharedClient);

/// One client, shared by the bodies of its streams.
pub(crate) struct SharedClient {
    caller: Caller,
    node: Arc<Node>,
    identity: Identity,
    /// The node's share of the memory for all nodes.
    _reserved: Reserved,
    /// How other streams of the client find it; `None` for an ADS stream.
    key: Option<ClientKey>,
    clients: Weak<Clients>,
    state: Mutex<ConnectedState>,
    /// How much huge work on it goes on.
    n_huge: AtomicU32,
    doubt: Doubt,
}

/// Whether the client has shown versions that nobody here knows.
#[derive(Debug, Default)]
struct Doubt {
    since: OnceLock<tokio::time::Instant>,
    is_over: AtomicBool,
}

struct ConnectedState {
    client: Client,
    /// The memory for what the client subscribes to.
    share: Share,
    /// The view that the client follows; not kept alive here.
    view: Weak<View>,
    members: HashMap<StreamId, Member>,
    /// When the first stream was logged; `None` until then, and after the last one.
    logged: Option<Instant>,
    /// The status board was told last that something is held back.
    is_held_back: bool,
}

/// One stream of a client.
struct Member {
    entry: Arc<StreamEntry>,
    handle: Arc<StreamHandle<SharedClient>>,
    since: Instant,
    nacks: Repeats,
}

/// The clients of the process: where they get views from, where they report, and the memory that they share.
#[derive(Debug)]
pub(crate) struct Clients {
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    refusals: Arc<Refusals>,
    trail: Arc<Trail>,
    traces: Option<Arc<Traces>>,
    metrics: Arc<Metrics>,
    limits: Limits,
    /// What clients of one program reject.
    culprits: Arc<KeptCulprits>,
    /// True if identities are only tried.
    is_dry_run: bool,
    /// Room for what is kept of the nodes to decide by.
    nodes: Arc<Budget>,
    identities: Identities,
    /// Room for what clients subscribe to.
    subscriptions: Arc<Subscriptions>,
    pub(super) arrivals: Arrivals,
    pub(super) nacks: Nacks,
    unmatched: UnmatchedLog,
    /// Those with per-type streams.
    by_key: Mutex<HashMap<ClientKey, Weak<SharedClient>>>,
}

/// The discovery streams, each of which has a client once it has named its node.
pub(crate) type ClientStreams = Streams<SharedClient>;
/// One of them.
pub(crate) type ClientStream = OpenStream<SharedClient>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClientKey {
    connection: u64,
    node_id: String,
}

/// The nodes that were logged as unmatched.
#[derive(Debug, Default)]
struct UnmatchedLog {
    hasher: RandomState,
    logged: Mutex<HashSet<u64>>,
}

impl Clients {
    /// An empty registry with the limits of `config`.
    pub(crate) fn new(boards: &Boards, metrics: Arc<Metrics>, config: &GrpcConfig) -> Arc<Self> {
        Arc::new(Self {
            publisher: Arc::clone(&boards.publisher),
            board: Arc::clone(&boards.board),
            refusals: Arc::clone(&boards.refusals),
            trail: Arc::clone(&boards.trail),
            traces: boards.traces.clone(),
            metrics,
            limits: config.limits,
            culprits: Arc::clone(&boards.culprits),
            is_dry_run: config.access_dry_run,
            nodes: Budget::new(config.max_node_memory / 2),
            identities: Identities::new(config.max_node_memory / 2),
            subscriptions: Subscriptions::new(config.max_subscription_memory),
            arrivals: Arrivals::default(),
            nacks: Nacks::default(),
            unmatched: UnmatchedLog::default(),
            by_key: Mutex::default(),
        })
    }

    /// The client of a stream, by the stream's first request. The stream is open on it from now on, and on the status
    /// board.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if the request does not say whose it is, `RESOURCE_EXHAUSTED` if there is no room for a large
    /// node, `PERMISSION_DENIED` or `UNAUTHENTICATED` if it claims a group that is not granted to the caller.
    pub(crate) fn join(
        self: &Arc<Self>,
        stream: &ClientStream,
        kind: &StreamKind,
        caller: &Caller,
        sent: Option<SentNode>,
    ) -> Result<(Arc<SharedClient>, ViewReceiver), Status> {
        let peer = caller.peer();
        let sent = sent.filter(|sent| !sent.node.id.is_empty());
        let sent = sent.ok_or_else(|| end_of(&self.refusals, peer, &SessionError::MissingNode.into()))?;
        // Before anything is taken in of what it says.
        let receiver = self.follow(caller, &sent.node).map_err(|denial| self.deny(peer, &denial))?;
        let reserved = self.admit(peer, &sent)?;
        let identity = Identity::new(&sent, &self.identities);
        if !identity.is_whole() {
            self.refuse(Reason::NodeDetails, peer, format_args!("details of node {:.128}", sent.node.id));
        }
        let client = match kind.service {
            None => Arc::new(SharedClient::new(self, caller, sent.node, (identity, reserved), None)),
            Some(_) => self.client_of_connection(caller, sent.node, identity, reserved),
        };
        let info = StreamInfo {
            id: stream.id,
            node: Arc::clone(&client.node),
            address: Arc::clone(peer.address()),
            variant: kind.variant,
            service: kind.service.clone(),
            since: SystemTime::now(),
            proofs: caller.proofs().clone(),
        };
        let subscriber = Arc::downgrade(&client) as Weak<dyn Subscriber>;
        let entry = self.board.register(info, subscriber);
        stream.set_client(&client);
        let mut state = client.lock();
        state.client.open(stream.id, kind.variant, kind.service.clone(), stream.id.0 << NONCE_BITS);
        if let Some(view) = state.view.upgrade() {
            entry.record_view(view.key().clone(), view.is_unmatched());
        }
        let handle = Arc::clone(stream.handle());
        let member = Member { entry, handle, since: Instant::now(), nacks: Repeats::default() };
        state.members.insert(stream.id, member);
        drop(state);
        Ok((client, receiver))
    }

    /// Follows the view of a client as `node`. Groups that it is given only in a dry run are recorded.
    ///
    /// # Errors
    ///
    /// [`Denial`] if it claims a group that is not granted to it.
    pub(crate) fn follow(&self, caller: &Caller, node: &Node) -> Result<ViewReceiver, Denial> {
        let receiver = caller.follow(&self.publisher, node)?;
        self.record_waived(caller, node);
        Ok(receiver)
    }

    /// The view of a client as `node`, of a call that does not follow it; the rest as for [`follow`](Self::follow).
    ///
    /// # Errors
    ///
    /// As [`follow`](Self::follow).
    pub(crate) fn view(&self, caller: &Caller, node: &Node) -> Result<Option<Arc<View>>, Denial> {
        let view = caller.view(&self.publisher, node)?;
        self.record_waived(caller, node);
        Ok(view)
    }

    fn record_waived(&self, caller: &Caller, node: &Node) {
        if !self.is_dry_run {
            return;
        }
        for denial in self.publisher.waived(node, caller.proofs()) {
            let identity = Some(&*denial.identity).filter(|identity| !identity.is_empty());
            self.waive(caller.peer(), denial.reason.slug(), identity, &denial, |entry| {
                entry.with("node", &*denial.node).with("group", denial.group.as_str())
            });
        }
    }

    /// Records a call that is let in only in a dry run.
    pub(crate) fn waive_refusal(&self, peer: &Peer, refusal: &GateRefusal) {
        let identity = refusal.identity(peer);
        self.waive(peer, refusal.reason().as_str(), identity.as_deref(), refusal, |entry| entry);
    }

    /// Counts what would be refused; one line a minute for a reason and an identity, in the log and in the audit log.
    fn waive(
        &self,
        peer: &Peer,
        reason: &'static str,
        identity: Option<&str>,
        why: &dyn fmt::Display,
        more: impl FnOnce(Entry) -> Entry,
    ) {
        self.metrics.would_deny(reason);
        let entry = Entry::new("xds.denied", "would deny").with("reason", reason).with("identity", identity);
        let kind = format!("xds.would-deny {reason} {:.128}", identity.unwrap_or_default());
        if self.trail.refuse(&kind, more(entry).with("peer", &**peer.address()), SystemTime::now()) {
            warn!(peer = %peer.address(), reason, identity, "would deny (--access-dry-run): {why}");
        }
    }

    /// Counts a client that is not let in, and gives the status that it is told.
    pub(crate) fn deny(&self, peer: &Peer, denial: &Denial) -> Status {
        self.refuse(gate::reason_of(denial), peer, format_args!("stream refused: {denial}"));
        self.record_denial(peer, denial);
        gate::status_of(denial)
    }

    /// The same for one that was let in, and is denied since groups or their identities changed.
    pub(crate) fn end(&self, peer: &Peer, denial: &Denial) -> Status {
        self.refuse(gate::reason_of(denial), peer, format_args!("stream ended: {denial}"));
        self.record_denial(peer, denial);
        gate::status_of(denial)
    }

    /// Records a client that is not let in at all, whatever it proved.
    pub(crate) fn record_refusal(&self, peer: &Peer, refusal: &GateRefusal) {
        let identity = refusal.identity(peer);
        self.record(peer, refusal.reason().as_str(), identity.as_deref(), |entry| entry);
    }

    /// Records a stream that ends because the access policy has changed. Where certificates are not trusted any more, or end, the port has
    /// a line about the connection, or nothing was refused.
    pub(crate) fn record_ending(&self, peer: &Peer, proofs: &[Proof], reason: Reason) {
        if matches!(reason, Reason::Denied | Reason::BadToken) {
            let identity = proofs.first().map(|proof| proof.subject.to_string());
            self.record(peer, reason.as_str(), identity.as_deref(), |entry| entry);
        }
    }

    /// Records somebody who may not ask for client status.
    pub(crate) fn record_status_refusal(&self, caller: &Caller) {
        let identity = caller.proofs().first().map(|proof| proof.subject.to_string());
        let reason = Reason::IdentityNotAllowed.as_str();
        self.record(caller.peer(), reason, identity.as_deref(), |entry| {
            entry.with("service", "client-status")
        });
    }

    fn record_denial(&self, peer: &Peer, denial: &Denial) {
        let identity = Some(&*denial.identity).filter(|identity| !identity.is_empty());
        self.record(peer, denial.reason.slug(), identity, |entry| {
            entry.with("node", &*denial.node).with("group", denial.group.as_str())
        });
    }

    /// One line a minute for a reason and an identity.
    fn record(&self, peer: &Peer, reason: &str, identity: Option<&str>, more: impl FnOnce(Entry) -> Entry) {
        let entry = Entry::new("xds.denied", "denied").with("reason", reason).with("identity", identity);
        let kind = format!("xds.denied {reason} {:.128}", identity.unwrap_or_default());
        self.trail.refuse(&kind, more(entry).with("peer", &**peer.address()), SystemTime::now());
    }

    /// The client that the connection's other per-type streams of this node have, or a new one.
    fn client_of_connection(
        self: &Arc<Self>,
        caller: &Caller,
        node: Arc<Node>,
        identity: Identity,
        reserved: Reserved,
    ) -> Arc<SharedClient> {
        let key = ClientKey { connection: caller.peer().connection(), node_id: node.id.clone() };
        let mut by_key = self.lock();
        let found = by_key.get(&key).and_then(Weak::upgrade);
        if let Some(client) = found {
            // A client must not be dropped under the lock: its end takes it too.
            drop(by_key);
            if client.node == node && client.caller.proofs() == caller.proofs() {
                return client;
            }
            return Arc::new(SharedClient::new(self, caller, node, (identity, reserved), None));
        }
        let parts = (identity, reserved);
        let client = Arc::new(SharedClient::new(self, caller, node, parts, Some(key.clone())));
        by_key.insert(key, Arc::downgrade(&client));
        client
    }

    /// Takes room for what is kept of a node, and counts what is not kept.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` for a node of more than [`MAX_TEXT_BYTES`] if there is no room. Smaller ones, which most are,
    /// are always taken: their number is that of the streams.
    pub(crate) fn admit(&self, peer: &Peer, sent: &SentNode) -> Result<Reserved, Status> {
        let id = &sent.node.id;
        if sent.n_left_out > 0 {
            let n = sent.n_left_out;
            self.refuse(
                Reason::NodeMetadata,
                peer,
                format_args!("{n} entries of the metadata of node {id:.128}"),
            );
        }
        let n_bytes = kept_bytes(&sent.node);
        if n_bytes <= MAX_TEXT_BYTES {
            return Ok(self.nodes.reserve_always(n_bytes));
        }
        self.nodes.reserve(n_bytes).ok_or_else(|| {
            self.refuse(Reason::NodeMemory, peer, format_args!("{n_bytes} bytes of node {id:.128}"));
            let limit = self.nodes.limit();
            Status::resource_exhausted(format!(
                "there is no room for the {n_bytes} bytes of `node`: all nodes together may have {limit} (--max-node-memory); nodes of at most {MAX_TEXT_BYTES} bytes are still accepted"
            ))
        })
    }

    fn refuse(&self, reason: Reason, peer: &Peer, detail: impl fmt::Display) {
        refuse(&self.refusals, reason, peer, detail);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientKey, Weak<SharedClient>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl SharedClient {
    fn new(
        clients: &Arc<Clients>,
        caller: &Caller,
        node: Arc<Node>,
        (identity, reserved): (Identity, Reserved),
        key: Option<ClientKey>,
    ) -> Self {
        let client = Client::sharing(clients.limits, Arc::clone(clients.culprits.shared()));
        let share = clients.subscriptions.share(caller.peer().source());
        let (view, members) = (Weak::new(), HashMap::new());
        let state =
            Mutex::new(ConnectedState { client, share, view, members, logged: None, is_held_back: false });
        let (caller, clients) = (caller.clone(), Arc::downgrade(clients));
        let doubt = Doubt::default();
        let n_huge = AtomicU32::new(0);
        Self { caller, node, identity, _reserved: reserved, key, clients, state, doubt, n_huge }
    }

    /// Takes in a request of a stream.
    ///
    /// # Errors
    ///
    /// The client broke the protocol or passed a limit: the stream must be ended.
    pub(crate) fn handle_request(
        &self,
        clients: &Clients,
        stream: StreamId,
        request: Request,
    ) -> Result<(), RequestError> {
        let mut state = self.lock();
        state.client.handle_request(stream, request)?;
        let n_kept = state.client.kept_bytes();
        state.share.resize(n_kept)?;
        state.settle(clients, &self.node);
        Ok(())
    }

    /// Takes in the newest view, and follows another one where the client's groups have changed. Returns what to wait on
    /// for the next.
    ///
    /// # Errors
    ///
    /// [`Denial`] if the client claims a group that is not granted to it any more. It keeps what it has.
    pub(crate) fn handle_view(
        &self,
        clients: &Clients,
        mut receiver: ViewReceiver,
    ) -> Result<ViewReceiver, Denial> {
        // Under the lock, so that of two streams of a client neither brings an older view than the other.
        let mut state = self.lock();
        let view = loop {
            match receiver.take() {
                Some(view) if receiver.is_outdated_by(&view) => {
                    receiver = clients.follow(&self.caller, &self.node)?;
                }
                newest => break newest,
            }
        };
        let Some(view) = view else { return Ok(receiver) };
        let current = Arc::downgrade(&view);
        if Weak::ptr_eq(&state.view, &current) {
            return Ok(receiver);
        }
        state.view = current;
        if view.is_unmatched() {
            clients.unmatched.log(&clients.publisher, &self.node);
        }
        for member in state.members.values() {
            member.entry.record_view(view.key().clone(), view.is_unmatched());
        }
        state.client.handle_view(view);
        state.settle(clients, &self.node);
        Ok(receiver)
    }

    /// Takes in the view that a new stream of the client follows. The log has a line for the client's first.
    ///
    /// # Errors
    ///
    /// As [`handle_view`](Self::handle_view).
    pub(crate) fn follow(
        &self,
        clients: &Clients,
        receiver: ViewReceiver,
        variant: Variant,
    ) -> Result<ViewReceiver, Denial> {
        let receiver = self.handle_view(clients, receiver)?;
        let now = Instant::now();
        let mut state = self.lock();
        if state.logged.is_some() {
            return Ok(receiver);
        }
        state.logged = Some(now);
        let view = state.view.upgrade();
        drop(state);
        let view = view.as_ref().map(|view| view.key());
        clients.arrivals.log_connected(&self.node, self.caller.peer(), variant, view, now);
        Ok(receiver)
    }

    /// Doubts the client if its request shows versions that its view neither has nor had lately.
    pub(crate) fn doubt(&self, resource_type: &ResourceType, request: &Request, now: tokio::time::Instant) {
        let view = self.lock().view.upgrade();
        let Some(view) = view.filter(|view| !view.is_unmatched()) else { return };
        if !request.is_known(&view.recent_tables(resource_type, now.into_std())) {
            let _ = self.doubt.since.set(now);
        }
    }

    /// Since when the client is doubted; `None` if it is not.
    pub(crate) fn doubted(&self) -> Option<tokio::time::Instant> {
        self.doubt.since.get().copied().filter(|_| !self.doubt.is_over.load(Ordering::Acquire))
    }

    /// Serves the client from now on, whatever it shows.
    pub(crate) fn believe(&self) {
        self.doubt.is_over.store(true, Ordering::Release);
    }

    /// Lets time pass.
    pub(crate) fn handle_timeout(&self, clients: &Clients, now: Instant) {
        let mut state = self.lock();
        state.client.handle_timeout(now);
        state.settle(clients, &self.node);
    }

    /// Ends a stream. The log has a line for the client's last, with the reason of that.
    pub(crate) fn handle_close(&self, clients: &Clients, stream: StreamId, reason: &str) {
        let mut state = self.lock();
        state.client.handle_close(stream);
        let n_kept = state.client.kept_bytes();
        // Less always fits.
        let _ = state.share.resize(n_kept);
        let member = state.members.remove(&stream);
        state.settle(clients, &self.node);
        let logged = if state.members.is_empty() { state.logged.take() } else { None };
        drop(state);
        if let Some(since) = logged {
            clients.arrivals.log_disconnected(&self.node, since, reason, Instant::now());
        }
        // Leaves the status board, without the client's lock.
        drop(member);
    }

    /// The next response of a stream, made from the newest view.
    pub(crate) fn poll_response(
        &self,
        clients: &Clients,
        stream: StreamId,
        now: Instant,
    ) -> Option<Response> {
        self.lock().poll_response(clients, &self.node, stream, now)
    }

    /// The same, unless it takes long to make one, or somebody else has to do with the client; the error is that.
    pub(crate) fn try_poll_response(
        &self,
        clients: &Clients,
        stream: StreamId,
        now: Instant,
    ) -> Result<Option<Response>, TakesLong> {
        let mut state = aside::try_lock(&self.state).ok_or(TakesLong)?;
        if state.client.response_size(stream, now) > MAX_AT_ONCE {
            return Err(TakesLong);
        }
        Ok(state.poll_response(clients, &self.node, stream, now))
    }

    /// Returns `true` if it takes long to take in a request, or somebody else has to do with the client.
    pub(crate) fn takes_long(&self, stream: StreamId, request: &Request) -> bool {
        let Some(state) = aside::try_lock(&self.state) else { return true };
        state.client.request_size(stream, request) > MAX_AT_ONCE
    }

    /// How much work it is to take in a request.
    pub(crate) fn size_of_request(&self, stream: StreamId, request: &Request) -> Size {
        self.size(|client| client.request_size(stream, request))
    }

    /// How much work it is to make the next response of a stream.
    pub(crate) fn size_of_response(&self, stream: StreamId, now: Instant) -> Size {
        self.size(|client| client.response_size(stream, now))
    }

    /// How much work something is, or how long it has to wait for what somebody else does with the client.
    fn size(&self, of: impl FnOnce(&Client) -> usize) -> Size {
        match aside::try_lock(&self.state) {
            Some(state) => Size::of(of(&state.client)),
            None if self.n_huge.load(Ordering::Acquire) > 0 => Size::Huge,
            None => Size::Large,
        }
    }

    /// Huge work on the client goes on until the value is dropped.
    pub(crate) fn busy(&self) -> HugeWork<'_> {
        self.n_huge.fetch_add(1, Ordering::AcqRel);
        HugeWork(self)
    }

    /// Returns `true` if it takes long to end a stream.
    pub(crate) fn takes_long_to_close(&self) -> bool {
        let Some(state) = aside::try_lock(&self.state) else { return true };
        state.client.n_names() > MAX_AT_ONCE
    }

    /// Returns `true` if nothing is held back for the client, and nobody is busy with it.
    pub(crate) fn is_settled(&self) -> bool {
        aside::try_lock(&self.state).is_some_and(|state| state.client.held_back().is_empty())
    }

    /// When time has to pass.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.lock().client.poll_timeout()
    }

    /// The first of its streams that are open.
    pub(crate) fn first_stream(&self) -> Option<StreamId> {
        self.lock().members.keys().min().copied()
    }

    /// The streams of the client, each with what it wants or may hold.
    pub(crate) fn holdings(&self) -> Vec<(Arc<StreamEntry>, Vec<Holding>)> {
        let state = self.lock();
        let of = |(stream, member): (&StreamId, &Member)| {
            (Arc::clone(&member.entry), state.client.holdings(*stream))
        };
        state.members.iter().map(of).collect()
    }

    /// The node by which the server decides.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The node as it came.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    fn lock(&self) -> MutexGuard<'_, ConnectedState> {
        aside::lock(&self.state)
    }
}

impl Drop for HugeWork<'_> {
    fn drop(&mut self) {
        self.0.n_huge.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for HugeWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HugeWork({})", self.0.node.id)
    }
}

impl Subscriber for SharedClient {
    fn concerned(&self, change: &ViewChange) -> Option<Vec<ResourceType>> {
        let state = match aside::try_lock(&self.state) {
            Some(state) => state,
            None if self.n_huge.load(Ordering::Acquire) > 0 => return None,
            None => self.lock(),
        };
        Some(state.client.concerned(change))
    }

    fn held_back(&self) -> Vec<HeldBack> {
        self.lock().client.held_back().to_vec()
    }
}

impl fmt::Debug for SharedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedClient({})", self.node.id)
    }
}

impl Drop for SharedClient {
    fn drop(&mut self) {
        let (Some(key), Some(clients)) = (&self.key, self.clients.upgrade()) else { return };
        let mut by_key = clients.lock();
        // Another one may have taken the place already.
        if by_key.get(key).is_some_and(|client| client.strong_count() == 0) {
            by_key.remove(key);
        }
    }
}

impl ConnectedState {
    fn poll_response(
        &mut self,
        clients: &Clients,
        node: &Node,
        stream: StreamId,
        now: Instant,
    ) -> Option<Response> {
        let response = self.client.poll_response(stream, now);
        self.settle(clients, node);
        response
    }

    /// Tells the others what happened: the status board, the metrics, the client's other streams.
    fn settle(&mut self, clients: &Clients, node: &Node) {
        while let Some((stream, event)) = self.client.poll_event() {
            let Some(member) = self.members.get_mut(&stream) else { continue };
            member.observe(clients, node, &event);
            if let Some(traces) = &clients.traces {
                trace(traces, node, stream, &event);
            }
            member.entry.record(&event, SystemTime::now());
        }
        let held_back = self.client.held_back();
        let is_held_back = !held_back.is_empty();
        if std::mem::replace(&mut self.is_held_back, is_held_back) || is_held_back {
            self.members.values().for_each(|member| member.entry.record_held_back(held_back));
        }
        while let Some(stream) = self.client.poll_wake() {
            if let Some(member) = self.members.get(&stream) {
                member.handle.wake();
            }
        }
    }
}

impl Member {
    fn observe(&mut self, clients: &Clients, node: &Node, event: &StreamEvent) {
        let metrics = &clients.metrics;
        match &event.kind {
            EventKind::Acked(sent) => {
                if sent.is_final {
                    metrics.acked(sent.revision, self.since);
                }
            }
            EventKind::Nacked { sent, message, .. } => {
                metrics.nacked(&event.resource_type);
                let said = (&*sent.version_info, &**message);
                clients.nacks.log(&mut self.nacks, node, &event.resource_type, said, Instant::now());
            }
            EventKind::HeldBack => metrics.held_back(&event.resource_type),
            EventKind::GraceExpired => metrics.grace_expired(&event.resource_type),
            EventKind::Standing(_) => clients.culprits.note(),
            EventKind::Subscribed
            | EventKind::CameBack
            | EventKind::CameUpToDate
            | EventKind::Sent(_)
            | EventKind::Current(_) => {}
        }
    }
}

/// Tells of a response, or of an answer to one.
fn trace(traces: &Traces, node: &Node, stream: StreamId, event: &StreamEvent) {
    match &event.kind {
        EventKind::Sent(sent) => traces.sent(stream, &node.id, &event.resource_type, sent),
        EventKind::Acked(sent) => traces.answered(stream, sent, Answer::Ack),
        EventKind::Nacked { sent, message, .. } => traces.answered(stream, sent, Answer::Nack(message)),
        EventKind::Subscribed
        | EventKind::Standing(_)
        | EventKind::CameBack
        | EventKind::CameUpToDate
        | EventKind::Current(_)
        | EventKind::HeldBack
        | EventKind::GraceExpired => {}
    }
}

impl UnmatchedLog {
    /// Logs a node of which the server knows nothing, once (D3).
    fn log(&self, publisher: &Publisher, node: &Node) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_UNMATCHED_LOGGED {
            logged.clear();
        }
        if !logged.insert(self.hasher.hash_one(&node.id)) {
            return;
        }
        drop(logged);
        let (_, groups) = publisher.groups();
        let groups: Vec<&str> = groups.keys().take(MAX_GROUPS_LOGGED).map(|name| name.as_str()).collect();
        warn!(node = %node.id, cluster = %node.cluster, ?groups, "no node group selects a client, and the group default is empty");
    }
}

/// How many names and resources are looked at without going aside. Each takes 2 to 8 µs on a busy machine, so this takes less than
/// 10 ms; `measure_100_000_names` in the session shows it.
pub(crate) const MAX_AT_ONCE: usize = 1000;
/// So many bits of a nonce count a stream's responses; the stream's id is above them.
const NONCE_BITS: u32 = 24;
/// After so many nodes, unmatched ones are logged anew.
const MAX_UNMATCHED_LOGGED: usize = 10_000;
/// How many groups that log event names.
const MAX_GROUPS_LOGGED: usize = 20;
