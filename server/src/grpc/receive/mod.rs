//! Budgets for incomplete messages: of the process, of one address, and of one connection.
//!
//! A small message that comes as a whole is never counted here, only one that waits for its rest. The decoded form of a message does
//! not count either, because it is handled at once: there is one at most for each thread of the runtime.

mod ledger;

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use futures_util::task::AtomicWaker;
use xds_cache::{Reason, Refusals};

pub use ledger::ReceiveLimits;

use crate::grpc::receive::ledger::{Asked, Ending, Expired, Ledger, Scope};
use crate::listen::Peer;

/// The budgets of the process, and who uses them.
pub(crate) struct Receiving {
    limits: ReceiveLimits,
    refusals: Arc<Refusals>,
    last_id: AtomicU64,
    ledger: Mutex<Ledger<Arc<Incomplete>>>,
}

/// The incomplete messages of one call: at most one message.
pub(crate) struct Meter {
    receiving: Arc<Receiving>,
    peer: Peer,
    incomplete: Option<Arc<Incomplete>>,
}

/// An incomplete message.
struct Incomplete {
    id: u64,
    peer: Peer,
    n_received: AtomicUsize,
    verdict: AtomicU8,
    waker: AtomicWaker,
}

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// It is longer than the limit of messages.
    #[error("a request message has {n_bytes} bytes; at most {limit} are allowed in this call")]
    TooLarge {
        /// How long it is.
        n_bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// It is large and does not begin with the client's node.
    #[error(
        "a message of {n_bytes} bytes names no node within its first {limit} bytes; larger messages are accepted only from known nodes"
    )]
    NoNode {
        /// How long it is.
        n_bytes: usize,
        /// The first bytes, within which the node must be.
        limit: usize,
    },
    /// Others need the room.
    #[error(
        "the server is receiving too many messages at once, and this one has taken longest \
         (--max-receive-bytes); try again later"
    )]
    Displaced,
    /// There was no room in time.
    #[error(
        "the server is receiving too much at once: no room for a message of {n_bytes} bytes ({limit}); try again later"
    )]
    NoRoom {
        /// How long the message is.
        n_bytes: usize,
        /// The limit that was passed.
        limit: &'static str,
    },
    /// It does not come whole.
    #[error("a message did not arrive completely in time, only {n_received} bytes of it")]
    TooSlow {
        /// The bytes that have come.
        n_received: usize,
    },
}

impl Receiving {
    pub(crate) fn new(limits: ReceiveLimits, refusals: Arc<Refusals>) -> Arc<Self> {
        let ledger = Mutex::new(Ledger::new(limits));
        Arc::new(Self { limits, refusals, last_id: AtomicU64::new(0), ledger })
    }

    /// Ends messages that have taken too long. To be called about every second; costs nothing without incomplete messages.
    pub(crate) fn sweep(&self, now: Instant) {
        let n_received = |message: &Arc<Incomplete>| message.n_received.load(Ordering::Relaxed);
        let Expired { ended, stuck, admitted } = self.lock().expire(now, n_received);
        for (message, why) in ended {
            message.decide(match why {
                Ending::NoTurn => NO_TURN,
                Ending::TooSlow => TOO_SLOW,
            });
        }
        admitted.iter().for_each(|message| message.decide(ADMITTED));
        for message in stuck {
            // Its stream waits for a client that does not read, so it cannot send a status.
            message.peer.cut_off();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger<Arc<Incomplete>>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of all incomplete messages.
    #[cfg(test)]
    pub(crate) fn n_bytes(&self) -> usize {
        self.lock().n_bytes()
    }
}

impl Meter {
    /// Nothing is under way.
    pub(crate) fn new(receiving: &Arc<Receiving>, peer: Peer) -> Self {
        Self { receiving: Arc::clone(receiving), peer, incomplete: None }
    }

    /// Records that a message is incomplete, and that its call will be polled again when more has come.
    ///
    /// `n_received` bytes have come, and `n_kept` are kept for it. Kept bytes are only counted until the message is admitted.
    pub(crate) fn hold(&mut self, n_received: usize, n_kept: usize, cx: &Context<'_>) {
        let message = self.incomplete();
        message.waker.register(cx.waker());
        let n_before = message.n_received.swap(n_received, Ordering::Relaxed);
        // The buffer grows by doubling, so that most frames change nothing.
        if n_before == 0 || n_received.next_power_of_two() != n_before.next_power_of_two() {
            let id = message.id;
            let displaced = self.receiving.lock().hold(id, n_kept, Instant::now());
            displaced.iter().for_each(|message| message.decide(DISPLACED));
        }
    }

    /// Waits for room for a message of `n_bytes`.
    ///
    /// # Errors
    ///
    /// There is none, or the message has to go.
    pub(crate) fn poll_admission(
        &mut self,
        n_bytes: usize,
        cx: &Context<'_>,
    ) -> Poll<Result<(), ReceiveError>> {
        let message = Arc::clone(self.incomplete());
        message.waker.register(cx.waker());
        let verdict = message.verdict.load(Ordering::Acquire);
        if verdict == UNDECIDED {
            let asked = self.receiving.lock().ask(message.id, n_bytes, Instant::now());
            match asked {
                Asked::Admitted => message.verdict.store(ADMITTED, Ordering::Release),
                Asked::Waits => {
                    // Only if there was no verdict since.
                    let _ = message.verdict.compare_exchange(
                        UNDECIDED,
                        WAITING,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    );
                }
                Asked::Refused(scope) => {
                    return Poll::Ready(Err(self.refuse(ReceiveError::no_room(n_bytes, scope))));
                }
            }
        }
        match message.verdict.load(Ordering::Acquire) {
            ADMITTED => Poll::Ready(Ok(())),
            NO_TURN => Poll::Ready(Err(self.refuse(ReceiveError::no_room(n_bytes, Scope::Process)))),
            UNDECIDED | WAITING => Poll::Pending,
            _ => Poll::Ready(self.check()),
        }
    }

    /// Returns `true` if the message may continue.
    ///
    /// # Errors
    ///
    /// It has to go.
    pub(crate) fn check(&self) -> Result<(), ReceiveError> {
        let Some(message) = &self.incomplete else { return Ok(()) };
        match message.verdict.load(Ordering::Acquire) {
            DISPLACED => Err(self.refuse(ReceiveError::Displaced)),
            TOO_SLOW => {
                let n_received = message.n_received.load(Ordering::Relaxed);
                Err(self.refuse(ReceiveError::TooSlow { n_received }))
            }
            _ => Ok(()),
        }
    }

    /// Returns `true` if a large message is under way that has room or waits for it.
    pub(crate) fn is_large(&self) -> bool {
        let verdict = self.incomplete.as_ref().map(|message| message.verdict.load(Ordering::Acquire));
        matches!(verdict, Some(ADMITTED | WAITING))
    }

    /// Ends the message: it is complete and was handled, or it is dropped.
    pub(crate) fn release(&mut self) {
        if let Some(message) = self.incomplete.take() {
            let admitted = self.receiving.lock().remove(message.id, Instant::now());
            admitted.iter().for_each(|message| message.decide(ADMITTED));
        }
    }

    fn incomplete(&mut self) -> &Arc<Incomplete> {
        let Self { receiving, peer, incomplete } = self;
        incomplete.get_or_insert_with(|| {
            let id = receiving.last_id.fetch_add(1, Ordering::Relaxed) + 1;
            let message = Arc::new(Incomplete {
                id,
                peer: peer.clone(),
                n_received: AtomicUsize::new(0),
                verdict: AtomicU8::new(UNDECIDED),
                waker: AtomicWaker::new(),
            });
            let (connection, source) = (peer.connection(), peer.source());
            receiving.lock().begin(id, Arc::clone(&message), connection, source, Instant::now());
            message
        })
    }

    /// Counts a refusal.
    pub(crate) fn refuse(&self, error: ReceiveError) -> ReceiveError {
        let reason = match error {
            ReceiveError::TooLarge { .. } | ReceiveError::NoNode { .. } => Reason::MessageSize,
            ReceiveError::Displaced | ReceiveError::NoRoom { .. } => Reason::ReceiveBytes,
            ReceiveError::TooSlow { .. } => Reason::SlowMessage,
        };
        let detail = format!("{}: {error}", self.peer.address());
        self.receiving.refusals.record(reason, &detail, SystemTime::now());
        error
    }
}

impl ReceiveError {
    fn no_room(n_bytes: usize, scope: Scope) -> Self {
        let limit = match scope {
            Scope::Process => "--max-receive-bytes",
            Scope::Source => "--max-receive-bytes-per-address",
            Scope::Connection => "--max-message-bytes on one connection",
        };
        Self::NoRoom { n_bytes, limit }
    }
}

impl Incomplete {
    fn decide(&self, verdict: u8) {
        self.verdict.store(verdict, Ordering::Release);
        self.waker.wake();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter({:?})", self.peer)
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving").field("limits", &self.limits).finish_non_exhaustive()
    }
}

const UNDECIDED: u8 = 0;
const WAITING: u8 = 1;
const ADMITTED: u8 = 2;
const DISPLACED: u8 = 3;
const NO_TURN: u8 = 4;
const TOO_SLOW: u8 = 5;
