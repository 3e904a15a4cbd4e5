//! The discovery streams of the process: their number, how to wake one from outside, and their end at shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use xds_api::rfc3339;
use xds_cache::status::StreamId;
use xds_cache::{Proof, Proofs, Reason, Refusals, Subject};

use crate::listen::{Busy, Crowds, Distrust, Peer};

/// The open streams of a kind, up to a limit.
///
/// At the limit, a new stream displaces the oldest one that has not named its node, or else the oldest one of another address that has
/// more than half of them. `C` is the client that a stream belongs to. The
/// streams' owner keeps it alive, and it can be looked up here.
#[derive(Debug)]
pub(crate) struct Streams<C> {
    max: usize,
    refusals: Arc<Refusals>,
    last_id: AtomicU64,
    is_draining: AtomicBool,
    open: Mutex<Open<C>>,
    /// Told whenever the last stream ended.
    emptied: Notify,
}

#[derive(Debug)]
struct Open<C> {
    all: BTreeMap<StreamId, Arc<StreamHandle<C>>>,
    /// Those that were not told to leave, by address.
    crowds: Crowds,
    /// Those that have not named a node, by age.
    silent: BTreeMap<StreamId, Instant>,
    /// Those that were told to end because of their silence, and when. They have no place any more.
    leaving: BTreeMap<StreamId, Instant>,
    /// Those whose certificate or token ends, the first to do so first.
    expiring: BTreeSet<(SystemTime, StreamId)>,
}

/// The streams whose time is over.
struct Expired<C> {
    /// Those that end now.
    late: Vec<Arc<StreamHandle<C>>>,
    /// Those that should have ended long ago.
    stuck: Vec<Arc<StreamHandle<C>>>,
}

/// A stream, for code that wakes it, ends it, or looks at it.
pub(crate) struct StreamHandle<C> {
    peer: Peer,
    _busy: Busy,
    waker: AtomicWaker,
    ending: AtomicU8,
    /// True if its first message is a large one that is under way.
    is_receiving: AtomicBool,
    client: OnceLock<Weak<C>>,
    /// What the client has proved.
    proofs: Proofs,
}

/// A stream's place among the open ones; dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct OpenStream<C> {
    pub(crate) id: StreamId,
    handle: Arc<StreamHandle<C>>,
    streams: Arc<Streams<C>>,
}

/// Why a stream must end that did nothing wrong, or nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamEnding {
    /// The server is going away.
    #[error("the server is shutting down")]
    Shutdown,
    /// Its connection is older than connections may be.
    #[error(
        "the connection has reached its greatest age (--max-connection-age); connect again, to any server"
    )]
    Aged,
    /// Other servers have fewer streams.
    #[error("this server has more clients than others with the same store; connect again, to any of them")]
    Shed,
    /// A new stream needs its place.
    #[error(
        "the server has reached its limit of streams, and this one has gone longest without naming a node"
    )]
    Displaced,
    /// A new stream of another address needs its place.
    #[error(
        "the server has reached its limit of streams, and the clients of this address have more than half of them"
    )]
    Crowded,
    /// It has not named a node in time.
    #[error("the first request did not arrive in time (--first-request-timeout)")]
    Silent,
    /// The client's certificate or token ended.
    #[error("expired: the {by} ended at {}; {} with a newer one", rfc3339(*at), by.remedy())]
    Expired {
        /// When it did; the leeway of its issuer is a part of a token's time.
        at: SystemTime,
        /// Which of them.
        by: Credential,
    },
    /// The port does not trust the client's certificate any more.
    #[error("{why}; connect with another one")]
    Untrusted {
        /// Why not.
        why: Distrust,
    },
    /// The access policy denies the client.
    #[error("denied: the access policy denies the identity of this {by}")]
    Denied {
        /// What has the identity.
        by: Credential,
    },
    /// The access policy trusts the token no more: its issuer, its audience or its key is gone.
    #[error(
        "bad-token: the access policy no longer trusts the issuer or the key of this token; call again with a newer one"
    )]
    Distrusted,
}

/// How a client proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// It belongs to the connection.
    Certificate,
    /// It belongs to the call.
    Token,
}

impl Credential {
    /// The credential of a proof.
    pub(crate) fn of(proof: &Proof) -> Self {
        match proof.subject {
            Subject::Token(_) => Self::Token,
            Subject::Spiffe(_) | Subject::Dns(_) | Subject::CommonName(_) => Self::Certificate,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Certificate => "connect",
            Self::Token => "call again",
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "client certificate",
            Self::Token => "token",
        })
    }
}

impl StreamEnding {
    /// The ending by the first proof that ends; `None` if none does. A certificate counts before a token of the same time.
    pub(crate) fn by_time(proofs: &[Proof]) -> Option<Self> {
        let at = Proof::first_end(proofs)?;
        let ending = |by| Self::Expired { at, by };
        proofs.iter().find(|proof| proof.expires == Some(at)).map(|proof| ending(Credential::of(proof)))
    }

    /// Returns `true` if the certificate is the reason, so that the connection is of no use any more.
    fn is_of_connection(self) -> bool {
        match self {
            Self::Expired { by, .. } | Self::Denied { by } => by == Credential::Certificate,
            Self::Untrusted { .. } => true,
            Self::Shutdown
            | Self::Aged
            | Self::Shed
            | Self::Displaced
            | Self::Crowded
            | Self::Silent
            | Self::Distrusted => false,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Shutdown => SHUTDOWN,
            Self::Aged => AGED,
            Self::Shed => SHED,
            Self::Displaced => DISPLACED,
            Self::Crowded => CROWDED,
            Self::Silent => SILENT,
            Self::Expired { .. } => EXPIRED,
            Self::Untrusted { .. } => UNTRUSTED,
            Self::Denied { by: Credential::Certificate } => DENIED_CERTIFICATE,
            Self::Denied { by: Credential::Token } => DENIED_TOKEN,
            Self::Distrusted => DISTRUSTED,
        }
    }
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// There are as many as there may be.
    #[error("the server has {limit} streams, which is its limit")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// The server is going away.
    #[error("the server is shutting down")]
    Draining,
}

impl<C> Streams<C> {
    pub(crate) fn new(max: usize, refusals: Arc<Refusals>) -> Arc<Self> {
        Arc::new(Self {
            max,
            refusals,
            last_id: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            open: Mutex::new(Open {
                all: BTreeMap::new(),
                crowds: Crowds::new(max / 2),
                silent: BTreeMap::new(),
                leaving: BTreeMap::new(),
                expiring: BTreeSet::new(),
            }),
            emptied: Notify::new(),
        })
    }

    /// An id that no other stream of the process has.
    pub(crate) fn next_id(&self) -> StreamId {
        StreamId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Takes a place for a new stream of somebody who has proved this, if need be that of the oldest one that has not named a node.
    /// The stream ends when the first of the proofs does.
    ///
    /// # Errors
    ///
    /// There is no place, which is counted, or the server is going away.
    pub(crate) fn open(self: &Arc<Self>, peer: &Peer, proofs: &Proofs) -> Result<OpenStream<C>, OpenError> {
        let now = Instant::now();
        let mut open = self.lock();
        if self.is_draining.load(Ordering::Acquire) {
            return Err(OpenError::Draining);
        }
        let mut displaced = None;
        if open.all.len() - open.leaving.len() >= self.max {
            displaced = open.displace_silent(now).or_else(|| open.displace_crowd(peer, now));
            if displaced.is_none() {
                drop(open);
                let error = OpenError::TooMany { limit: self.max };
                self.refuse(peer, &error);
                return Err(error);
            }
        }
        let id = self.next_id();
        let handle = Arc::new(StreamHandle {
            peer: peer.clone(),
            _busy: peer.busy(),
            waker: AtomicWaker::new(),
            ending: AtomicU8::new(GOES_ON),
            is_receiving: AtomicBool::new(false),
            client: OnceLock::new(),
            proofs: Arc::clone(proofs),
        });
        open.all.insert(id, Arc::clone(&handle));
        open.crowds.add(peer.source());
        open.silent.insert(id, now);
        open.expiring.extend(Proof::first_end(proofs).map(|end| (end, id)));
        drop(open);
        if let Some((displaced, why)) = displaced {
            self.refuse(&displaced.peer, &why);
        }
        Ok(OpenStream { id, handle, streams: Arc::clone(self) })
    }

    /// Ends the streams that have not named a node for `timeout`. To be called about every second.
    pub(crate) fn sweep(&self, now: Instant, timeout: Duration) {
        let Expired { late, stuck } = self.lock().expire(now, timeout);
        for handle in late {
            let detail = format!("{}: {}", handle.peer.address(), StreamEnding::Silent);
            self.refusals.record(Reason::FirstRequest, &detail, SystemTime::now());
        }
        // The client lets none of its streams write, so they cannot be told.
        stuck.iter().for_each(|handle| handle.peer.cut_off());
    }

    /// Ends the streams whose certificate or token has ended by `now`, and soon the connections of such certificates. To be called
    /// about every second.
    pub(crate) fn end_expired(&self, now: SystemTime) -> usize {
        let expired = self.lock().take_expired(now);
        let is_ended = |handle: &Arc<StreamHandle<C>>| {
            let ending = StreamEnding::by_time(&handle.proofs);
            ending.is_some_and(|ending| self.withdraw(handle, ending, Reason::Expired, now, |_, _, _| ()))
        };
        expired.iter().filter(|handle| is_ended(handle)).count()
    }

    /// Ends the streams of those for whom, with what they have proved, `judge` has an ending, and soon the connections of their certificates.
    /// `record` is told of each, before its client can know. Returns how many; streams that were told to end before, and have not yet, are
    /// not among them.
    pub(crate) fn end_withdrawn(
        &self,
        judge: impl Fn(&Peer, &[Proof]) -> Option<(StreamEnding, Reason)>,
        record: impl Fn(&Peer, &[Proof], Reason),
        now: SystemTime,
    ) -> usize {
        let handles: Vec<_> = self.lock().all.values().cloned().collect();
        let is_ended = |handle: &Arc<StreamHandle<C>>| {
            let ending = judge(&handle.peer, &handle.proofs);
            ending.is_some_and(|(ending, reason)| self.withdraw(handle, ending, reason, now, &record))
        };
        handles.iter().filter(|handle| is_ended(handle)).count()
    }

    /// Ends a stream whose client may not go on, and counts it, unless it was told to end before; tells whether it was not.
    fn withdraw(
        &self,
        handle: &StreamHandle<C>,
        ending: StreamEnding,
        reason: Reason,
        now: SystemTime,
        record: impl Fn(&Peer, &[Proof], Reason),
    ) -> bool {
        if handle.ending.load(Ordering::Acquire) != GOES_ON {
            return false;
        }
        let detail = format!("{}: stream ended: {ending}", handle.peer.address());
        // Before its client can know, which may look at the count.
        self.refusals.record(reason, &detail, now);
        record(&handle.peer, &handle.proofs, reason);
        handle.end_as(ending.code());
        // A client would come back on the same connection with the same certificate.
        if ending.is_of_connection() {
            handle.peer.retire();
        }
        true
    }

    fn refuse(&self, peer: &Peer, why: &dyn fmt::Display) {
        let detail = format!("{}: {why}", peer.address());
        self.refusals.record(Reason::Streams, &detail, SystemTime::now());
    }

    /// The streams of the connections for which `wants` is `true`.
    pub(crate) fn of_peers(&self, wants: impl Fn(&Peer) -> bool) -> Vec<Arc<StreamHandle<C>>> {
        let open = self.lock();
        open.all.values().filter(|handle| wants(&handle.peer)).cloned().collect()
    }

    /// The client of a stream, once it has sent its first request.
    pub(crate) fn client(&self, id: StreamId) -> Option<Arc<C>> {
        self.lock().all.get(&id).and_then(|handle| handle.client())
    }

    /// How many streams are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().all.len()
    }

    /// Opens no more streams from now on, and returns those that are open.
    pub(crate) fn drain(&self) -> Vec<Arc<StreamHandle<C>>> {
        let open = self.lock();
        self.is_draining.store(true, Ordering::Release);
        open.all.values().cloned().collect()
    }

    /// Waits until no stream is open.
    pub(crate) async fn wait_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open<C>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Open<C> {
    /// Ends the stream that has been silent for longest.
    fn displace_silent(&mut self, now: Instant) -> Option<(Arc<StreamHandle<C>>, StreamEnding)> {
        let (id, _) = self.silent.pop_first()?;
        Some((self.leave(id, now, DISPLACED)?, StreamEnding::Displaced))
    }

    /// Ends the oldest stream of an address that has more than its share, for one of another address.
    fn displace_crowd(
        &mut self,
        newcomer: &Peer,
        now: Instant,
    ) -> Option<(Arc<StreamHandle<C>>, StreamEnding)> {
        let crowd = self.crowds.displaced_by(newcomer.source())?;
        let mut stays = self.all.iter().filter(|(id, _)| !self.leaving.contains_key(id));
        let (id, _) = stays.find(|(_, handle)| handle.peer.source() == crowd)?;
        Some((self.leave(*id, now, CROWDED)?, StreamEnding::Crowded))
    }

    /// Ends the streams that were silent for `timeout`.
    fn expire(&mut self, now: Instant, timeout: Duration) -> Expired<C> {
        let is_late = |since: Instant| now.saturating_duration_since(since) >= timeout;
        let is_receiving = |id: &StreamId| {
            self.all.get(id).is_some_and(|handle| handle.is_receiving.load(Ordering::Relaxed))
        };
        let late = self.silent.iter().take_while(|(_, since)| is_late(**since)).map(|(id, _)| *id);
        let late: Vec<_> = late.filter(|id| !is_receiving(id)).collect();
        let late = late.into_iter().filter_map(|id| {
            self.silent.remove(&id);
            self.leave(id, now, SILENT)
        });
        let late = late.collect();
        let is_stuck = |since: &Instant| now.saturating_duration_since(*since) >= STUCK_AFTER;
        let stuck = self.leaving.iter().filter(|(_, since)| is_stuck(since));
        Expired { late, stuck: stuck.filter_map(|(id, _)| self.all.get(id).cloned()).collect() }
    }

    /// The streams whose certificate or token has ended.
    fn take_expired(&mut self, now: SystemTime) -> Vec<Arc<StreamHandle<C>>> {
        let mut ended = Vec::new();
        while let Some((_, id)) = self.expiring.first().copied().filter(|(end, _)| *end <= now) {
            self.expiring.pop_first();
            ended.extend(self.all.get(&id).cloned());
        }
        ended
    }

    fn leave(&mut self, id: StreamId, now: Instant, ending: u8) -> Option<Arc<StreamHandle<C>>> {
        let handle = self.all.get(&id)?;
        if self.leaving.insert(id, now).is_none() {
            self.crowds.remove(handle.peer.source());
        }
        handle.end_as(ending);
        Some(Arc::clone(handle))
    }
}

impl<C> StreamHandle<C> {
    /// Has the stream look for something to do.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The stream's client, once it has sent its first request.
    pub(crate) fn client(&self) -> Option<Arc<C>> {
        self.client.get().and_then(Weak::upgrade)
    }

    /// Ends the stream because its connection is old, and soon the connection.
    pub(crate) fn end_of_age(&self) {
        self.end_as(AGED);
        self.peer.retire();
    }

    /// Ends the stream because others have fewer, and soon the connection.
    pub(crate) fn end_of_surplus(&self) {
        self.end_as(SHED);
        self.peer.retire();
    }

    /// Ends the stream as soon as it has written what it is writing.
    pub(crate) fn end(&self) {
        self.end_as(SHUTDOWN);
    }

    /// Tells the stream why to end, unless it was told before.
    fn end_as(&self, ending: u8) {
        let _ = self.ending.compare_exchange(GOES_ON, ending, Ordering::AcqRel, Ordering::Acquire);
        self.waker.wake();
    }
}

impl<C> fmt::Debug for StreamHandle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamHandle").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl<C> OpenStream<C> {
    /// Remembers whom to wake.
    pub(crate) fn register(&self, waker: &Waker) {
        self.handle.waker.register(waker);
    }

    /// Remembers whose stream it is, which has [named](Self::set_named) itself.
    pub(crate) fn set_client(&self, client: &Arc<C>) {
        self.set_named();
        // A stream has one client for life; a second call changes nothing.
        let _ = self.handle.client.set(Arc::downgrade(client));
    }

    /// The stream has named its node: its place is its own from now on.
    pub(crate) fn set_named(&self) {
        self.streams.lock().silent.remove(&self.id);
    }

    /// Takes down whether the first message is a large one that is under way, which has its own time.
    pub(crate) fn set_receiving(&self, is_receiving: bool) {
        self.handle.is_receiving.store(is_receiving, Ordering::Relaxed);
    }

    /// Why the stream must end, if it must.
    pub(crate) fn ending(&self) -> Option<StreamEnding> {
        match self.handle.ending.load(Ordering::Acquire) {
            GOES_ON => None,
            AGED => Some(StreamEnding::Aged),
            SHED => Some(StreamEnding::Shed),
            DISPLACED => Some(StreamEnding::Displaced),
            CROWDED => Some(StreamEnding::Crowded),
            SILENT => Some(StreamEnding::Silent),
            EXPIRED => StreamEnding::by_time(&self.handle.proofs),
            UNTRUSTED => self.handle.peer.distrust().map(|why| StreamEnding::Untrusted { why }),
            DENIED_CERTIFICATE => Some(StreamEnding::Denied { by: Credential::Certificate }),
            DENIED_TOKEN => Some(StreamEnding::Denied { by: Credential::Token }),
            DISTRUSTED => Some(StreamEnding::Distrusted),
            _ => Some(StreamEnding::Shutdown),
        }
    }

    /// Why the stream must end, as soon as it must: the task is woken then.
    pub(crate) fn poll_ending(&self, cx: &Context<'_>) -> Poll<StreamEnding> {
        self.register(cx.waker());
        self.ending().map_or(Poll::Pending, Poll::Ready)
    }

    /// For those who wake it.
    pub(crate) fn handle(&self) -> &Arc<StreamHandle<C>> {
        &self.handle
    }
}

impl<C> Drop for OpenStream<C> {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.all.remove(&self.id);
        open.silent.remove(&self.id);
        if open.leaving.remove(&self.id).is_none() {
            open.crowds.remove(self.handle.peer.source());
        }
        if let Some(end) = Proof::first_end(&self.handle.proofs) {
            open.expiring.remove(&(end, self.id));
        }
        if open.all.is_empty() {
            self.streams.emptied.notify_waiters();
        }
    }
}

const GOES_ON: u8 = 0;
const SHUTDOWN: u8 = 1;
const DISPLACED: u8 = 2;
const SILENT: u8 = 3;
const EXPIRED: u8 = 4;
const DENIED_CERTIFICATE: u8 = 5;
const DENIED_TOKEN: u8 = 6;
const DISTRUSTED: u8 = 7;
const UNTRUSTED: u8 = 8;
const AGED: u8 = 9;
const SHED: u8 = 10;
const CROWDED: u8 = 11;
/// How long a stream may take to end that is told to; it takes longer only where the client does not let it write.
const STUCK_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_more_than_half_of_the_streams_makes_room_for_another_one() {
        let refusals = Arc::new(Refusals::default());
        let streams: Arc<Streams<()>> = Streams::new(4, Arc::clone(&refusals));
        let peer = |last: u8| Peer::new(std::net::SocketAddr::from(([192, 0, 2, last], 1)));
        let open = |last: u8| {
            let opened = streams.open(&peer(last), &Proofs::default())?;
            opened.set_named();
            Ok::<_, OpenError>(opened)
        };
        let many: Vec<_> = (0..4).map(|_| open(1).unwrap()).collect();
        assert_eq!(
            open(1).unwrap_err(),
            OpenError::TooMany { limit: 4 },
            "for its own address it makes none"
        );
        let others = [open(2).unwrap(), open(3).unwrap()];
        let endings: Vec<_> = many.iter().map(OpenStream::ending).collect();
        assert_eq!(endings, [Some(StreamEnding::Crowded), Some(StreamEnding::Crowded), None, None]);
        assert_eq!(open(4).unwrap_err(), OpenError::TooMany { limit: 4 }, "half is its own");
        drop((many, others));
        assert_eq!(streams.lock().crowds.displaced_by(peer(9).source()), None);
    }

    #[test]
    fn a_stream_that_was_told_to_end_is_neither_told_nor_counted_again() {
        let refusals = Arc::new(Refusals::default());
        let streams: Arc<Streams<()>> = Streams::new(1, Arc::clone(&refusals));
        let now = SystemTime::now();
        let proof =
            Proof { subject: Subject::CommonName("edge".into()), expires: Some(now), certificate: None };
        let open = streams.open(&Peer::unknown(), &[proof].into_iter().collect()).unwrap();
        let denied = StreamEnding::Denied { by: Credential::Certificate };
        let deny = |_: &Peer, _: &[Proof]| Some((denied, Reason::Denied));
        assert_eq!(streams.end_withdrawn(deny, |_, _, _| (), now), 1);
        let distrust = |_: &Peer, _: &[Proof]| Some((StreamEnding::Distrusted, Reason::BadToken));
        assert_eq!(
            (
                streams.end_withdrawn(deny, |_, _, _| (), now),
                streams.end_withdrawn(distrust, |_, _, _| (), now)
            ),
            (0, 0)
        );
        assert_eq!(streams.end_expired(now), 0);
        assert_eq!(open.ending(), Some(denied));
        assert_eq!(refusals.counts().values().sum::<u64>(), 1);
    }
}
