//! Whether this server may answer a client that has seen something newer.
//!
//! A server that cannot reach its store serves what it has. A client that was served by a server that knows more would go back to an older
//! state. So as long as this server is not *current*, a client that shows versions that it does not know gets no answer, and keeps what it
//! has. Its streams end after a moment, so that it may find a better server. If there is none for long, it is served.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Says when the store was last seen to be followed; `None` if never.
type Confirmed = Box<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Whether this server knows the newest state.
#[derive(Default)]
pub(super) struct Currency {
    /// Not set if the store is the server's own, which is always the newest.
    confirmed: OnceLock<Confirmed>,
    doubts: Mutex<Doubts>,
}

/// What a client gets that shows versions which nobody here knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Answers, as any other.
    Serve,
    /// Nothing yet. It is to be judged again then.
    Wait {
        /// When.
        until: Instant,
    },
    /// The end of its stream.
    Leave,
}

/// The doubts of a server that is not current.
#[derive(Debug, Default)]
struct Doubts {
    /// When the first client came that showed something newer, since the server was current.
    first: Option<Instant>,
}

impl Currency {
    /// Counts as current only for a moment after what `confirmed` says, from now on.
    pub(super) fn set(&self, confirmed: Confirmed) {
        let _ = self.confirmed.set(confirmed);
    }

    pub(super) fn is_current(&self) -> bool {
        self.confirmed.get().is_none_or(|confirmed| is_recent(confirmed(), Instant::now()))
    }

    /// Judges a client that has waited since `since`.
    pub(super) fn judge(&self, since: Instant) -> Verdict {
        let Some(confirmed) = self.confirmed.get() else { return Verdict::Serve };
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        doubts.judge(confirmed(), since, Instant::now())
    }
}

impl Doubts {
    fn judge(&mut self, confirmed: Option<Instant>, since: Instant, now: Instant) -> Verdict {
        if is_recent(confirmed, now) {
            return Verdict::Serve;
        }
        if self.first.zip(confirmed).is_some_and(|(first, confirmed)| confirmed > first) {
            self.first = None;
        }
        let first = *self.first.get_or_insert(since);
        let (leaves, is_served) = (since + PATIENCE, first + LAST_RESORT);
        if now >= is_served {
            Verdict::Serve
        } else if now >= leaves {
            Verdict::Leave
        } else {
            Verdict::Wait { until: leaves.min(is_served).min(now + LOOK) }
        }
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Currency").field("is_current", &self.is_current()).finish_non_exhaustive()
    }
}

fn is_recent(confirmed: Option<Instant>, now: Instant) -> bool {
    confirmed.is_some_and(|at| now.saturating_duration_since(at) < CURRENT_FOR)
}

/// How long a server is current after it has followed its store, which it does every 5 s.
const CURRENT_FOR: Duration = Duration::from_secs(15);

/// How long a client waits before its stream ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long after the first such client all are served: there is no better server.
const LAST_RESORT: Duration = Duration::from_secs(300);

/// How often it is looked whether the server has become current.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_seen_more_waits_leaves_and_is_served_in_the_end() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut doubts = Doubts::default();
        let confirmed = Some(at(0));
        let wait = |seconds| Verdict::Wait { until: at(seconds) };
        for (since, now, verdict) in [
            (14, 14, Verdict::Serve),
            (15, 15, wait(16)),
            (15, 44, wait(45)),
            (15, 45, Verdict::Leave),
            // It comes back, and others come.
            (46, 46, wait(47)),
            (200, 231, Verdict::Leave),
            (310, 314, wait(315)),
            (310, 315, Verdict::Serve),
            (400, 400, Verdict::Serve),
        ] {
            assert_eq!(doubts.judge(confirmed, at(since), at(now)), verdict, "{since} {now}");
        }
        // It was current again meanwhile, without anybody who asked.
        let confirmed = Some(at(500));
        assert_eq!(doubts.judge(confirmed, at(520), at(520)), wait(521));
        assert_eq!(doubts.judge(Some(at(521)), at(520), at(522)), Verdict::Serve);
    }

    #[test]
    fn a_server_that_never_reached_its_store_is_not_current_and_one_with_its_own_always_is() {
        let now = Instant::now();
        assert!(matches!(Doubts::default().judge(None, now, now), Verdict::Wait { .. }));
        let currency = Currency::default();
        assert!(currency.is_current());
        assert_eq!(currency.judge(now), Verdict::Serve);
        currency.set(Box::new(|| None));
        assert!(!currency.is_current());
    }
}
