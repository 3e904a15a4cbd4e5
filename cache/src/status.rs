//! The status board: by type, what each stream was sent and what it answered.
//!
//! Sessions write to it with [`StreamEvent`]s, and the admin API reads it. Times are passed in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::SystemTime;

use tokio::sync::{broadcast, watch};

use crate::group::GroupName;
use crate::held_back::HeldBack;
use crate::identity::Proofs;
use crate::node::{Node, Profile};
use crate::reconnects::Reconnects;
use crate::rejecting::{COUNTED, RejectedByAll, Rejecting, Rejections};
use crate::resource_key::Name;
use crate::resource_type::ResourceType;
pub use crate::stream_id::StreamId;
use crate::version::{Revision, Version};
use crate::view::{ViewChange, ViewKey, ViewsOf};
use crate::work::{self, Work};

/// The two variants of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// State of the World.
    Sotw,
    /// Incremental.
    Delta,
}

impl Variant {
    /// `sotw` or `delta`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sotw => "sotw",
            Self::Delta => "delta",
        }
    }
}

/// CSDS `ConfigStatus` of one type on one stream, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigStatus {
    /// The last response was ACKed, or the client came with everything that it would have been sent.
    Synced,
    /// Nothing was sent: nothing that the client asks for exists.
    NotSent,
    /// Sent and neither ACKed nor NACKed, or a change is not sent yet.
    Stale,
    /// The last response was NACKed.
    Error,
}

impl ConfigStatus {
    /// The name in CSDS and REST.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "SYNCED",
            Self::NotSent => "NOT_SENT",
            Self::Stale => "STALE",
            Self::Error => "ERROR",
        }
    }
}

/// An event on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// The type that it happened to.
    pub resource_type: ResourceType,
    /// The event itself.
    pub kind: EventKind,
}

/// The kinds of [`StreamEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A request changed what the client asks for.
    Subscribed,
    /// A response was made.
    Sent(Sent),
    /// The client accepted a response.
    Acked(Sent),
    /// The client rejected a response.
    Nacked {
        /// The response.
        sent: Sent,
        /// The client's words, at most [`MAX_NACK_MESSAGE`] bytes of them.
        message: Arc<str>,
        /// The resources that they name.
        named: Named,
    },
    /// The resources that the client does not accept are others than before.
    Standing(Arc<Standing>),
    /// The client said, in its first request of the type, that it holds configuration from an earlier stream.
    CameBack,
    /// The client has everything that it asks for although nothing was sent: it holds that from an earlier stream, or asks for
    /// nothing.
    CameUpToDate,
    /// Everything that the view of this revision owes the client was sent.
    Current(Revision),
    /// A change is not sent yet, because of what the client has or does not have.
    HeldBack,
    /// The server has waited for the client as long as the limits allow, and sends a change without its answer.
    GraceExpired,
}

/// How many bytes of a client's error message are kept.
pub const MAX_NACK_MESSAGE: usize = 4096;

/// One response, as the status remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its nonce, unique on the stream.
    pub nonce: u64,
    /// Its `version_info` or `system_version_info`.
    pub version_info: Arc<str>,
    /// The publication that it shows.
    pub revision: Revision,
    /// True if nothing more of the type was owed when it was made.
    pub is_final: bool,
}

/// The rejections of one type on one stream that stand, resource by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The resources that the client rejects, by name; at most [`MAX_LISTED`](Self::MAX_LISTED).
    pub rejected: Vec<Rejection>,
    /// How many it rejects.
    pub n_rejected: usize,
    /// How many came in a rejected response, without it being known whether the client uses them. They are offered again.
    pub n_unknown: usize,
    /// The publication of the first rejected response among all of these.
    pub since: Option<Revision>,
}

impl Standing {
    /// How many rejected resources are listed.
    pub const MAX_LISTED: usize = 16;

    /// Returns `true` if the client rejects nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n_rejected == 0 && self.n_unknown == 0
    }
}

/// A resource that a client rejects. It goes on with the version that it accepted before, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The resource's name.
    pub name: Name,
    /// The version that was rejected last.
    pub version: Version,
    /// The client's words.
    pub message: Arc<str>,
    /// The version of the response that brought it.
    pub version_info: Arc<str>,
    /// The publication that the response showed.
    pub revision: Revision,
    /// The publication of the first response with the resource that was rejected since it was accepted.
    pub since: Revision,
}

/// A rejected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Its version.
    pub version_info: Arc<str>,
    /// The publication that it shows.
    pub revision: Revision,
    /// The client's words.
    pub message: Arc<str>,
    /// When it came.
    pub at: SystemTime,
}

/// One type on one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeStatus {
    /// The last response.
    pub sent: Option<Sent>,
    /// The last response that was ACKed.
    pub acked: Option<Sent>,
    /// The last rejection, of those that stand if there are any; kept after it healed.
    pub last_nack: Option<Nack>,
    /// True if a rejection stands: of a resource, or of the last response.
    pub is_error: bool,
    /// The publication of the first response of those whose rejection stands; `None` if none does.
    pub failing_since: Option<Revision>,
    /// The resources that the client does not accept.
    pub standing: Option<Arc<Standing>>,
    /// The last answer was a NACK that nothing in `standing` explains.
    is_response_rejected: bool,
    /// The resources that the client named in it.
    named: Vec<NamedRejection>,
    /// It rejects no others of that response.
    names_all: bool,
    /// The publication up to which the client has accepted everything. It never falls.
    acknowledged: Option<Revision>,
    /// True if the last response was not answered.
    pub is_outstanding: bool,
    /// True if a change is not sent yet, because of what the client has or does not have.
    is_held_back: bool,
    /// True if the client said, in its first request, that it holds configuration from an earlier stream.
    pub came_back: bool,
    /// True if the client arrived with everything that it would have been sent.
    pub came_up_to_date: bool,
    /// The publication up to which everything owed was sent.
    pub current: Revision,
    /// When something last happened.
    pub updated_at: Option<SystemTime>,
}

/// The resources that a client names as those that it rejects of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Their names, each with the client's words about it.
    pub resources: Vec<(Name, Arc<str>)>,
    /// True if it rejects no others.
    pub is_all: bool,
}

/// A resource that a client named in its last rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedRejection {
    name: Name,
    words: Arc<str>,
    /// The publication of the first rejection without a break that named it.
    since: Revision,
}

/// The answer of a client to what a publication changed of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeAnswer {
    /// It has not answered everything yet.
    Pending,
    /// It rejected a response, and it is not known yet which of the resources it rejects.
    Unknown,
    /// It uses all of that, or something newer.
    Uses,
    /// It rejects some of that.
    Rejects {
        /// The resource; `None` if it is not known which.
        resource: Option<Name>,
        /// The client's words.
        message: Arc<str>,
        /// It rejected the resource before that publication, too.
        failed_before: bool,
    },
}

impl TypeStatus {
    /// The CSDS status.
    #[must_use]
    pub fn status(&self) -> ConfigStatus {
        match &self.sent {
            _ if self.is_error => ConfigStatus::Error,
            _ if self.is_held_back => ConfigStatus::Stale,
            None if self.came_up_to_date => ConfigStatus::Synced,
            None => ConfigStatus::NotSent,
            Some(_) if self.is_outstanding => ConfigStatus::Stale,
            Some(_) => ConfigStatus::Synced,
        }
    }

    /// Returns `true` if the client has accepted everything that publication `revision` and those before owed it.
    #[must_use]
    pub fn has_acked(&self, revision: Revision) -> bool {
        self.acknowledged.is_some_and(|acknowledged| acknowledged >= revision)
    }

    /// The publication up to which the client has accepted everything; `None` if that is nothing. A rejection does not lower it.
    #[must_use]
    pub fn acknowledged(&self) -> Option<Revision> {
        self.acknowledged
    }

    /// Returns `true` if a rejection of an earlier publication stands.
    #[must_use]
    pub fn failed_before(&self, revision: Revision) -> bool {
        self.failing_since.is_some_and(|since| since < revision)
    }

    /// The answer of the client to what publication `revision` changed of the type: to the resources for whose names `is_changed` is `true`.
    ///
    /// A rejection of other resources does not count, as soon as it is known that they alone are rejected.
    #[must_use]
    pub fn answer(&self, revision: Revision, is_changed: impl Fn(&str) -> bool) -> TypeAnswer {
        if self.has_acked(revision) {
            return TypeAnswer::Uses;
        }
        let has_answered = !self.is_outstanding && self.current >= revision;
        let is_answer = |of: Revision| has_answered || of >= revision;
        let nothing = Standing::default();
        let standing = self.standing.as_deref().unwrap_or(&nothing);
        let of_change =
            standing.rejected.iter().filter(|one| is_changed(&one.name) && is_answer(one.revision));
        if let Some(first) = of_change.min_by_key(|one| one.since) {
            return TypeAnswer::Rejects {
                resource: Some(Arc::clone(&first.name)),
                message: Arc::clone(&first.message),
                failed_before: first.since < revision,
            };
        }
        let Some(nack) = self.last_nack.as_ref().filter(|_| self.is_error) else {
            return TypeAnswer::Pending;
        };
        let is_known = match self.is_response_rejected {
            true => self.names_all,
            false => standing.n_unknown == 0 && standing.rejected.len() == standing.n_rejected,
        };
        if is_known && !is_answer(nack.revision) {
            return TypeAnswer::Pending;
        }
        if let Some(one) = self.named.iter().find(|one| self.is_response_rejected && is_changed(&one.name)) {
            return TypeAnswer::Rejects {
                resource: Some(Arc::clone(&one.name)),
                message: Arc::clone(&one.words),
                failed_before: one.since < revision,
            };
        }
        if is_known {
            return if has_answered { TypeAnswer::Uses } else { TypeAnswer::Pending };
        }
        let is_sought = standing.n_unknown > 0 && !has_answered;
        if is_sought {
            return TypeAnswer::Unknown;
        }
        if !is_answer(nack.revision) {
            return TypeAnswer::Pending;
        }
        let failed_before = self.failed_before(revision);
        TypeAnswer::Rejects { resource: None, message: Arc::clone(&nack.message), failed_before }
    }

    /// The names of all resources that the client rejects; `None` if it is not known which these are.
    #[must_use]
    pub fn rejected_names(&self) -> Option<impl Iterator<Item = &Name>> {
        let standing = self.standing.as_deref();
        let is_known = standing.is_none_or(|all| all.n_unknown == 0 && all.rejected.len() == all.n_rejected)
            && (!self.is_response_rejected || self.names_all);
        let standing = standing.into_iter().flat_map(|standing| &standing.rejected).map(|one| &one.name);
        let named = self.named.iter().filter(|_| self.is_response_rejected).map(|one| &one.name);
        is_known.then(|| standing.chain(named))
    }

    /// The resources that the client rejects; `None` before its first answer.
    ///
    /// The session finds which resources of a response are rejected. An Envoy also names each listener and each cluster that it rejects.
    #[must_use]
    pub fn rejections(&self) -> Option<Rejections> {
        if !self.is_error {
            let has_answered = self.acked.is_some() || self.came_up_to_date;
            return has_answered.then(Rejections::default);
        }
        let named = self.named.iter().take(MAX_REJECTIONS);
        let mut rejections: BTreeMap<Name, Arc<str>> =
            named.map(|one| (Arc::clone(&one.name), Arc::clone(&one.words))).collect();
        for rejection in self.standing.iter().flat_map(|standing| &standing.rejected) {
            let words = || Arc::clone(&rejection.message);
            rejections.entry(Arc::clone(&rejection.name)).or_insert_with(words);
        }
        Some(rejections.into_iter().collect())
    }

    fn record(&mut self, kind: &EventKind, at: SystemTime) {
        match kind {
            EventKind::Subscribed | EventKind::HeldBack | EventKind::GraceExpired => {}
            EventKind::CameBack => self.came_back = true,
            EventKind::CameUpToDate => self.came_up_to_date = true,
            EventKind::Current(revision) => {
                self.current = *revision;
                self.note_settled();
                return;
            }
            EventKind::Sent(sent) => {
                self.sent = Some(sent.clone());
                self.is_outstanding = true;
            }
            EventKind::Acked(sent) => {
                self.is_outstanding = self.sent.as_ref() != Some(sent);
                self.is_response_rejected = false;
                self.named.clear();
                self.note_error();
                if sent.is_final && !self.is_error {
                    self.acknowledged = self.acknowledged.max(Some(sent.revision));
                }
                self.note_settled();
                self.acked = Some(sent.clone());
            }
            EventKind::Nacked { sent, message, named } => {
                self.is_outstanding = self.sent.as_ref() != Some(sent);
                self.is_response_rejected = true;
                self.note_error();
                self.failing_since.get_or_insert(sent.revision);
                let nack = Nack {
                    version_info: Arc::clone(&sent.version_info),
                    revision: sent.revision,
                    message: Arc::clone(message),
                    at,
                };
                self.note_named(named, sent.revision);
                self.last_nack = Some(nack);
            }
            EventKind::Standing(standing) => {
                self.is_response_rejected = false;
                // While a search goes on, what the client named is the best that is known.
                let stands = |name: &Name| standing.rejected.iter().any(|one| one.name == *name);
                self.named.retain(|one| standing.n_unknown > 0 || stands(&one.name));
                self.standing = (!standing.is_empty()).then(|| Arc::clone(standing));
                self.note_error();
                self.show_standing(at);
                self.note_settled();
            }
        }
        self.updated_at = Some(at);
    }

    /// Remembers since when the client has rejected the resources that it names.
    fn note_named(&mut self, named: &Named, revision: Revision) {
        let since = |name: &Name| self.named.iter().find(|one| one.name == *name).map(|one| one.since);
        let named_rejection = |(name, words): &(Name, Arc<str>)| NamedRejection {
            name: Arc::clone(name),
            words: Arc::clone(words),
            since: since(name).unwrap_or(revision),
        };
        (self.named, self.names_all) = (named.resources.iter().map(named_rejection).collect(), named.is_all);
    }

    /// Nothing is on its way: the client has accepted all that it was owed, unless it rejects something.
    fn note_settled(&mut self) {
        if !self.is_error && !self.is_outstanding && self.current.0 > 0 {
            self.acknowledged = self.acknowledged.max(Some(self.current));
        }
    }

    fn note_error(&mut self) {
        self.is_error = self.is_response_rejected || self.standing.is_some();
        let since = self.standing.as_ref().and_then(|standing| standing.since);
        self.failing_since = since.or(self.failing_since).filter(|_| self.is_error);
    }

    /// The rejection that is shown is one that stands.
    fn show_standing(&mut self, at: SystemTime) {
        let standing = self.standing.as_ref().map(|standing| &standing.rejected[..]).unwrap_or_default();
        let is_shown = |rejection: &Rejection| {
            self.last_nack
                .as_ref()
                .is_some_and(|nack| nack.revision == rejection.revision && nack.message == rejection.message)
        };
        let Some(first) = standing.first().filter(|_| !standing.iter().any(is_shown)) else { return };
        self.last_nack = Some(Nack {
            version_info: Arc::clone(&first.version_info),
            revision: first.revision,
            message: Arc::clone(&first.message),
            at,
        });
    }
}

/// How many resources of one type on one stream [`TypeStatus::rejections`] lists.
const MAX_REJECTIONS: usize = 16;

/// The resources of a publication that concern a client; the stream's client answers it.
pub trait Subscriber: Send + Sync {
    /// The changed types of which the client subscribes to a changed resource; `None` while that is not known, because the client's
    /// subscriptions are being changed and that takes seconds. Waits for nothing that takes so long.
    fn concerned(&self, change: &ViewChange) -> Option<Vec<ResourceType>>;

    /// Changes that were not sent to the client yet, and why. This concerns the client, so all its streams have the same.
    fn held_back(&self) -> Vec<HeldBack> {
        vec![]
    }
}

/// Facts about a stream that are known from its first request on.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    /// The stream.
    pub id: StreamId,
    /// The client's node.
    pub node: Arc<Node>,
    /// The address that the connection came from.
    pub address: Arc<str>,
    /// The variant of the protocol.
    pub variant: Variant,
    /// The type of a per-type stream; `None` for ADS.
    pub service: Option<ResourceType>,
    /// When the stream began.
    pub since: SystemTime,
    /// What the client has proved about itself.
    pub proofs: Proofs,
}

/// The board's record of one stream.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    /// The stream.
    pub info: StreamInfo,
    /// The view that it follows; `None` before the first complete load.
    pub view: Option<ViewKey>,
    /// True if the server knows nothing of the node (D3).
    pub is_unmatched: bool,
    /// By type.
    pub types: BTreeMap<ResourceType, TypeStatus>,
}

impl StreamStatus {
    /// Returns `true` if a change is not sent yet, because of what the client has or does not have.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.types.values().any(|of_type| of_type.is_held_back)
    }

    /// The worst status of its types; `NotSent` if it asked for nothing.
    #[must_use]
    pub fn status(&self) -> ConfigStatus {
        self.types.values().map(TypeStatus::status).max().unwrap_or(ConfigStatus::NotSent)
    }
}

/// The publication up to which everything was accepted on every stream, of every type; `None` if that is nothing.
#[must_use]
pub fn accepted<'a>(streams: impl IntoIterator<Item = &'a StreamStatus>) -> Option<Revision> {
    // A type without any accepted response is older than every revision.
    let types = streams.into_iter().flat_map(|stream| stream.types.values());
    types.map(TypeStatus::acknowledged).min().flatten()
}

/// One stream's place on the board; dropping it takes the stream off.
pub struct StreamEntry {
    status: Mutex<StreamStatus>,
    subscriber: Weak<dyn Subscriber>,
    board: Weak<StatusBoard>,
    id: StreamId,
    reconnects: u32,
}

impl fmt::Debug for StreamEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamEntry({})", self.id)
    }
}

impl StreamEntry {
    /// The stream.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// How many streams of the same node and service began before, in an hour or two.
    #[must_use]
    pub fn reconnects(&self) -> u32 {
        self.reconnects
    }

    /// A copy of the record.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        self.lock().clone()
    }

    /// Reads without copying.
    pub fn with<T>(&self, read: impl FnOnce(&StreamStatus) -> T) -> T {
        read(&self.lock())
    }

    /// Records which view the stream follows.
    pub fn record_view(&self, view: ViewKey, is_unmatched: bool) {
        let before = {
            let mut status = self.lock();
            status.is_unmatched = is_unmatched;
            status.view.replace(view.clone())
        };
        if before.as_ref() == Some(&view) {
            return;
        }
        let types = self.with(|status| {
            let types = status.types.iter().filter(|(of, _)| COUNTED.contains(of));
            types.map(|(of, status)| (of.clone(), status.rejections(), status.updated_at)).collect::<Vec<_>>()
        });
        let Some(board) = self.board.upgrade() else { return };
        let mut streams = board.write();
        streams.leave(before.as_ref(), self.id);
        streams.join(Some(&view), self.id);
        for (of, rejections, at) in types {
            streams.rejecting.set(&view, &of, self.id, rejections, at.unwrap_or(SystemTime::UNIX_EPOCH));
        }
    }

    /// Records the changes that the stream's client is not sent yet, in the order of their keys.
    pub fn record_held_back(&self, held_back: &[HeldBack]) {
        for (of, status) in &mut self.lock().types {
            let first = held_back.partition_point(|held| held.resource.resource_type < *of);
            status.is_held_back = held_back.get(first).is_some_and(|held| held.resource.resource_type == *of);
        }
    }

    /// Records an event, and notifies those who wait for it.
    pub fn record(&self, event: &StreamEvent, at: SystemTime) {
        // A change that is held back may be of a type that another stream of the client has.
        let is_of_type = !matches!(event.kind, EventKind::HeldBack | EventKind::GraceExpired);
        let changed = if is_of_type { self.record_of_type(event, at) } else { None };
        let Some(board) = self.board.upgrade() else { return };
        if let Some((view, rejections)) = changed {
            board.write().rejecting.set(&view, &event.resource_type, self.id, rejections, at);
        }
        match event.kind {
            EventKind::Acked(_)
            | EventKind::Nacked { .. }
            | EventKind::Standing(_)
            | EventKind::Current(_) => board.tick(),
            EventKind::Subscribed
            | EventKind::CameBack
            | EventKind::Sent(_)
            | EventKind::CameUpToDate
            | EventKind::HeldBack
            | EventKind::GraceExpired => {}
        }
        // It is not an error to have no receiver: then nobody watches.
        let _ = board.news.send(News::Stream { id: self.id, event: event.clone() });
    }

    /// Records an event of a type. Returns the view and what the client rejects now, if others must count that anew.
    fn record_of_type(&self, event: &StreamEvent, at: SystemTime) -> Option<(ViewKey, Option<Rejections>)> {
        let mut status = self.lock();
        let of_type = status.types.entry(event.resource_type.clone()).or_default();
        if !COUNTED.contains(&event.resource_type) {
            of_type.record(&event.kind, at);
            return None;
        }
        let before = of_type.rejections();
        of_type.record(&event.kind, at);
        let now = of_type.rejections();
        (before != now).then_some(())?;
        Some((status.view.clone()?, now))
    }

    /// The changed types that concern the stream's client and come on this stream; `None` while that is not known, as for
    /// [`Subscriber::concerned`].
    #[must_use]
    pub fn concerned(&self, change: &ViewChange) -> Option<Vec<ResourceType>> {
        let Some(subscriber) = self.subscriber.upgrade() else { return Some(vec![]) };
        let mut types = subscriber.concerned(change)?;
        let service = self.lock().info.service.clone();
        types.retain(|of| service.as_ref().is_none_or(|service| service == of));
        Some(types)
    }

    /// Changes that the stream's client is not sent yet, and why.
    #[must_use]
    pub fn held_back(&self) -> Vec<HeldBack> {
        self.subscriber.upgrade().map(|subscriber| subscriber.held_back()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, StreamStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamEntry {
    fn drop(&mut self) {
        let Some(board) = self.board.upgrade() else { return };
        let view = self.lock().view.clone();
        let mut streams = board.write();
        streams.all.remove(&self.id);
        streams.leave(view.as_ref(), self.id);
        drop(streams);
        let _ = board.news.send(News::Disconnected(self.lock().info.clone()));
        board.tick();
    }
}

/// News for watchers of the board.
#[derive(Clone, Debug)]
pub enum News {
    /// A stream's first request came.
    Connected(StreamInfo),
    /// A stream ended.
    Disconnected(StreamInfo),
    /// Something happened on a stream.
    Stream {
        /// The stream.
        id: StreamId,
        /// The event itself.
        event: StreamEvent,
    },
}

/// How many [`News`] a slow reader may lag behind before it loses the oldest.
const NEWS_CAPACITY: usize = 1024;

/// All streams. Shared by reference.
pub struct StatusBoard {
    streams: RwLock<Streams>,
    ticks: watch::Sender<u64>,
    news: broadcast::Sender<News>,
}

#[derive(Default)]
struct Streams {
    all: BTreeMap<StreamId, Weak<StreamEntry>>,
    /// By the view that they follow; `None` for those that have none yet.
    by_view: HashMap<Option<ViewKey>, BTreeSet<StreamId>>,
    views_of: ViewsOf,
    reconnects: Reconnects,
    rejecting: Rejecting,
}

impl Streams {
    fn join(&mut self, view: Option<&ViewKey>, id: StreamId) {
        let of_view = self.by_view.entry(view.cloned()).or_default();
        if let Some(view) = view.filter(|_| of_view.is_empty()) {
            self.views_of.insert(view);
        }
        of_view.insert(id);
    }

    fn leave(&mut self, view: Option<&ViewKey>, id: StreamId) {
        if let Some(view) = view {
            self.rejecting.take_out(view, id);
        }
        let view = view.cloned();
        let Some(of_view) = self.by_view.get_mut(&view) else { return };
        of_view.remove(&id);
        if of_view.is_empty() {
            self.by_view.remove(&view);
            view.iter().for_each(|view| self.views_of.remove(view));
        }
    }
}

impl fmt::Debug for StatusBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatusBoard({} streams)", self.n_streams())
    }
}

impl StatusBoard {
    /// An empty board.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (ticks, _) = watch::channel(0);
        let (news, _) = broadcast::channel(NEWS_CAPACITY);
        Arc::new(Self { streams: RwLock::default(), ticks, news })
    }

    /// Puts a stream on the board, until the entry is dropped.
    #[must_use]
    pub fn register(
        self: &Arc<Self>,
        info: StreamInfo,
        subscriber: Weak<dyn Subscriber>,
    ) -> Arc<StreamEntry> {
        let id = info.id;
        let status =
            StreamStatus { info: info.clone(), view: None, is_unmatched: false, types: BTreeMap::new() };
        let mut streams = self.write();
        let reconnects = streams.reconnects.arrive(&info.node.id, info.service.as_ref(), info.since);
        let (status, board) = (Mutex::new(status), Arc::downgrade(self));
        let entry = Arc::new(StreamEntry { status, subscriber, board, id, reconnects });
        streams.all.insert(id, Arc::downgrade(&entry));
        streams.join(None, id);
        drop(streams);
        let _ = self.news.send(News::Connected(info));
        entry
    }

    /// All streams, in the order in which they came.
    #[must_use]
    pub fn streams(&self) -> Vec<Arc<StreamEntry>> {
        self.read().all.values().filter_map(Weak::upgrade).collect()
    }

    /// The streams that follow a view, or that follow none yet, in the order in which they came.
    #[must_use]
    pub fn streams_of(&self, view: Option<&ViewKey>) -> Vec<Arc<StreamEntry>> {
        let streams = self.read();
        let ids = streams.by_view.get(&view.cloned()).into_iter().flatten();
        let found: Vec<_> = ids.filter_map(|id| streams.all.get(id)?.upgrade()).collect();
        work::count(Work::Stream, found.len());
        found
    }

    /// The views of a group that streams follow, in order.
    #[must_use]
    pub fn views_of(&self, group: &GroupName) -> Vec<ViewKey> {
        self.read().views_of.of(group).cloned().collect()
    }

    /// The rejection of a resource by all Envoys of a group that have answered; `None` if one accepts it, or none has answered.
    #[must_use]
    pub fn rejected_by_all_envoys(
        &self,
        group: &GroupName,
        resource_type: &ResourceType,
        name: &str,
    ) -> Option<RejectedByAll> {
        let streams = self.read();
        let views = streams.views_of.of(group).filter(|view| view.profile == Profile::Envoy);
        streams.rejecting.by_all(views, resource_type, name)
    }

    /// One stream.
    #[must_use]
    pub fn stream(&self, id: StreamId) -> Option<Arc<StreamEntry>> {
        self.read().all.get(&id).and_then(Weak::upgrade)
    }

    /// The next stream after `after`, or the first, in the order in which they came.
    #[must_use]
    pub fn stream_after(&self, after: Option<StreamId>) -> Option<Arc<StreamEntry>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.read().all.range((from, Bound::Unbounded)).find_map(|(_, entry)| entry.upgrade())
    }

    /// How many streams there are.
    #[must_use]
    pub fn n_streams(&self) -> usize {
        self.read().all.len()
    }

    /// Changes whenever a client answered, caught up, or left.
    #[must_use]
    pub fn ticks(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    /// Everything that happens from now on. A reader that lags loses the oldest news, and learns that it did.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    fn read(&self) -> RwLockReadGuard<'_, Streams> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Streams> {
        self.streams.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        self.ticks.send_modify(|ticks| *ticks = ticks.wrapping_add(1));
    }
}
