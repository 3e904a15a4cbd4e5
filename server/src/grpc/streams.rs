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
use xds_cache::{Reason, Refusals};

use crate::listen::{Busy, Peer};

/// The open streams of a kind, up to a limit.
///
/// At the limit, a new stream displaces the oldest one that has not named its node. `C` is the client that a stream belongs to. The
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
    /// Those that have not named a node, by age.
    silent: BTreeMap<StreamId, Instant>,
    /// Those that were told to end because of their silence, and when. They have no place any more.
    leaving: BTreeMap<StreamId, Instant>,
    /// Those whose certificate ends, the first to do so first.
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
    /// When the certificate of the client ends.
    expires: Option<SystemTime>,
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
    /// A new stream needs its place.
    #[error(
        "the server has reached its limit of streams, and this one has gone longest without naming a node"
    )]
    Displaced,
    /// It has not named a node in time.
    #[error("the first request did not arrive in time (--first-request-timeout)")]
    Silent,
    /// The client's certificate ended.
    #[error("expired: the client certificate ended at {}; connect with a newer one", rfc3339(*at))]
    Expired {
        /// When it did.
        at: SystemTime,
    },
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

    /// Takes a place for a new stream, if need be that of the oldest one that has not named a node.
    ///
    /// # Errors
    ///
    /// There is no place, which is counted, or the server is going away.
    pub(crate) fn open(self: &Arc<Self>, peer: &Peer) -> Result<OpenStream<C>, OpenError> {
        self.open_until(peer, None)
    }

    /// The same for a stream that ends at `expires` at the latest.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub(crate) fn open_until(
        self: &Arc<Self>,
        peer: &Peer,
        expires: Option<SystemTime>,
    ) -> Result<OpenStream<C>, OpenError> {
        let now = Instant::now();
        let mut open = self.lock();
        if self.is_draining.load(Ordering::Acquire) {
            return Err(OpenError::Draining);
        }
        let mut displaced = None;
        if open.all.len() - open.leaving.len() >= self.max {
            displaced = open.displace_oldest(now);
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
            expires,
        });
        open.all.insert(id, Arc::clone(&handle));
        open.silent.insert(id, now);
        open.expiring.extend(expires.map(|end| (end, id)));
        drop(open);
        if let Some(displaced) = displaced {
            self.refuse(&displaced.peer, &StreamEnding::Displaced);
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

    /// Ends the streams whose certificate has ended by `now`, and soon their connections. To be called about every second.
    pub(crate) fn end_expired(&self, now: SystemTime) -> usize {
        let ended = self.lock().take_expired(now);
        for handle in &ended {
            let Some(at) = handle.expires else { continue };
            let detail = format!("{}: stream ended: {}", handle.peer.address(), StreamEnding::Expired { at });
            self.refusals.record(Reason::Expired, &detail, now);
            // A client would come back on the same connection with the same certificate.
            handle.peer.retire();
        }
        ended.len()
    }

    fn refuse(&self, peer: &Peer, why: &dyn fmt::Display) {
        let detail = format!("{}: {why}", peer.address());
        self.refusals.record(Reason::Streams, &detail, SystemTime::now());
    }

    /// The client of a stream, once it has sent its first request.
    pub(crate) fn client(&self, id: StreamId) -> Option<Arc<C>> {
        self.lock().all.get(&id).and_then(|handle| handle.client.get().and_then(Weak::upgrade))
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
    fn displace_oldest(&mut self, now: Instant) -> Option<Arc<StreamHandle<C>>> {
        let (id, _) = self.silent.pop_first()?;
        self.leave(id, now, DISPLACED)
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

    /// The streams whose certificate has ended, which they are told.
    fn take_expired(&mut self, now: SystemTime) -> Vec<Arc<StreamHandle<C>>> {
        let mut ended = Vec::new();
        while let Some((_, id)) = self.expiring.first().copied().filter(|(end, _)| *end <= now) {
            self.expiring.pop_first();
            let Some(handle) = self.all.get(&id) else { continue };
            handle.end_as(EXPIRED);
            ended.push(Arc::clone(handle));
        }
        ended
    }

    fn leave(&mut self, id: StreamId, now: Instant, ending: u8) -> Option<Arc<StreamHandle<C>>> {
        let handle = self.all.get(&id)?;
        self.leaving.insert(id, now);
        handle.end_as(ending);
        Some(Arc::clone(handle))
    }
}

impl<C> StreamHandle<C> {
    /// Has the stream look for something to do.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Ends the stream as soon as it has written what it is writing.
    pub(crate) fn end(&self) {
        self.end_as(SHUTDOWN);
    }

    fn end_as(&self, ending: u8) {
        self.ending.store(ending, Ordering::Release);
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
            DISPLACED => Some(StreamEnding::Displaced),
            SILENT => Some(StreamEnding::Silent),
            EXPIRED => self.handle.expires.map(|at| StreamEnding::Expired { at }),
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
        open.leaving.remove(&self.id);
        if let Some(end) = self.handle.expires {
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
/// How long a stream may take to end that is told to; it takes longer only where the client does not let it write.
const STUCK_AFTER: Duration = Duration::from_secs(2);
