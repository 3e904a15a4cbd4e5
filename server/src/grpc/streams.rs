//! The discovery streams of the process: their number, how to wake one from outside, and their end at shutdown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use xds_cache::status::StreamId;

use crate::grpc::client::SharedClient;

/// All open discovery streams.
#[derive(Debug)]
pub(crate) struct Streams {
    max: usize,
    last_id: AtomicU64,
    is_draining: AtomicBool,
    open: Mutex<BTreeMap<StreamId, Arc<StreamHandle>>>,
    /// Told whenever the last stream ended.
    emptied: Notify,
}

/// One stream, for those who wake it, end it, or look at it.
pub(crate) struct StreamHandle {
    waker: AtomicWaker,
    is_ending: AtomicBool,
    client: OnceLock<Weak<SharedClient>>,
}

/// A stream's place among the open ones; dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) id: StreamId,
    handle: Arc<StreamHandle>,
    streams: Arc<Streams>,
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// There are as many as there may be.
    #[error("the server has {limit} streams already, which is its limit")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// The server is going away.
    #[error("the server is shutting down")]
    Draining,
}

impl Streams {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            last_id: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            open: Mutex::default(),
            emptied: Notify::new(),
        })
    }

    /// An id that no other stream of the process has.
    pub(crate) fn next_id(&self) -> StreamId {
        StreamId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Takes a place for a new stream.
    pub(crate) fn open(self: &Arc<Self>) -> Result<OpenStream, OpenError> {
        let mut open = self.lock();
        if self.is_draining.load(Ordering::Acquire) {
            return Err(OpenError::Draining);
        }
        if open.len() >= self.max {
            return Err(OpenError::TooMany { limit: self.max });
        }
        let id = self.next_id();
        let handle = Arc::new(StreamHandle {
            waker: AtomicWaker::new(),
            is_ending: AtomicBool::new(false),
            client: OnceLock::new(),
        });
        open.insert(id, Arc::clone(&handle));
        Ok(OpenStream { id, handle, streams: Arc::clone(self) })
    }

    /// The client of a stream, once it has sent its first request.
    pub(crate) fn client(&self, id: StreamId) -> Option<Arc<SharedClient>> {
        self.lock().get(&id).and_then(|handle| handle.client.get().and_then(Weak::upgrade))
    }

    /// How many streams are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Opens no more streams from now on, and returns those that are open.
    pub(crate) fn drain(&self) -> Vec<Arc<StreamHandle>> {
        let open = self.lock();
        self.is_draining.store(true, Ordering::Release);
        open.values().cloned().collect()
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<StreamId, Arc<StreamHandle>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamHandle {
    /// Has the stream look for something to do.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Ends the stream as soon as it has written what it is writing.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl fmt::Debug for StreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamHandle").field("is_ending", &self.is_ending).finish_non_exhaustive()
    }
}

impl OpenStream {
    /// Remembers whom to wake.
    pub(crate) fn register(&self, waker: &Waker) {
        self.handle.waker.register(waker);
    }

    /// Remembers whose stream it is.
    pub(crate) fn set_client(&self, client: &Arc<SharedClient>) {
        // A stream has one client for life; a second call changes nothing.
        let _ = self.handle.client.set(Arc::downgrade(client));
    }

    /// Whether the stream must end.
    pub(crate) fn is_ending(&self) -> bool {
        self.handle.is_ending.load(Ordering::Acquire)
    }

    /// For those who wake it.
    pub(crate) fn handle(&self) -> &Arc<StreamHandle> {
        &self.handle
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.remove(&self.id);
        if open.is_empty() {
            self.streams.emptied.notify_waiters();
        }
    }
}
