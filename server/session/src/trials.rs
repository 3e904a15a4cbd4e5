//! The bounds of the search for resources that one client refuses.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use xds_cache::ResourceType;
use xds_cache::status::StreamId;

use crate::culprits::KnownCulprits;

/// How many trials a client was sent lately: responses that offer again a part of a rejected one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    /// When each of the last minute was sent, oldest first.
    recent: VecDeque<Instant>,
    /// The streams that have to wait with one.
    waiting: BTreeSet<StreamId>,
    /// When these go on, unless an answer comes before.
    timeout: Option<Instant>,
}

/// How many trials may be unanswered on all streams of a client.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

/// How many a client is sent in a minute.
pub(crate) const MAX_A_MINUTE: usize = 256;

const MINUTE: Duration = Duration::from_secs(60);

/// Lets trials through while there is room, and while no other client searches for the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    room: Room,
    now: Instant,
    /// A trial was not let through.
    pub(crate) is_waited_at: bool,
    /// When the first trial that waits may go on by itself.
    opens_at: Option<Instant>,
}

impl Gate {
    pub(crate) fn new(room: Room, now: Instant) -> Self {
        Self { room, now, is_waited_at: false, opens_at: None }
    }

    /// Returns `true` if a trial of a type has to wait.
    pub(crate) fn stops(&mut self, of: &ResourceType, culprits: KnownCulprits<'_>) -> bool {
        let opens_at = match self.room {
            Room::Now => match culprits.search(of, self.now) {
                Ok(()) => return false,
                Err(until) => Some(until),
            },
            Room::At(due) => Some(due),
            Room::AfterAnswer => None,
        };
        self.is_waited_at = true;
        self.opens_at = self.opens_at.into_iter().chain(opens_at).min();
        true
    }

    /// When it opens by itself, for a trial that waits.
    pub(crate) fn opens_at(&self) -> Option<Instant> {
        self.opens_at
    }
}

/// Whether a client may be sent one more trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It may.
    Now,
    /// When it has answered one.
    AfterAnswer,
    /// At that time.
    At(Instant),
}

impl Trials {
    /// Whether there is room for one more. `n_in_flight` are unanswered.
    pub(crate) fn room(&self, n_in_flight: usize, now: Instant) -> Room {
        if n_in_flight >= MAX_IN_FLIGHT {
            return Room::AfterAnswer;
        }
        let first = self.recent.len().checked_sub(MAX_A_MINUTE).and_then(|first| self.recent.get(first));
        let due = first.and_then(|first| first.checked_add(MINUTE)).filter(|due| now < *due);
        due.map_or(Room::Now, Room::At)
    }

    /// A stream has to wait with one, until something is answered or that time has come.
    pub(crate) fn wait(&mut self, stream: StreamId, until: Option<Instant>) {
        self.waiting.insert(stream);
        self.timeout = until;
    }

    /// When streams that wait go on by themselves.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.timeout
    }

    /// The streams that waited, which may go on.
    pub(crate) fn take_waiting(&mut self) -> BTreeSet<StreamId> {
        self.timeout = None;
        std::mem::take(&mut self.waiting)
    }

    /// One is sent.
    pub(crate) fn note(&mut self, now: Instant) {
        let is_over = |sent: &Instant| now.saturating_duration_since(*sent) >= MINUTE;
        while self.recent.len() >= MAX_A_MINUTE || self.recent.front().is_some_and(is_over) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_so_many_trials_are_sent_in_any_minute() {
        let (mut trials, start) = (Trials::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..MAX_A_MINUTE as u64 {
            assert_eq!(trials.room(0, at(second / 10)), Room::Now, "{second}");
            trials.note(at(second / 10));
        }
        assert_eq!(trials.room(0, at(30)), Room::At(at(60)), "the first ten are a minute old then");
        assert_eq!(trials.room(MAX_IN_FLIGHT, at(60)), Room::AfterAnswer);
        for _ in 0..10 {
            assert_eq!(trials.room(0, at(60)), Room::Now);
            trials.note(at(60));
        }
        assert_eq!(trials.room(0, at(60)), Room::At(at(61)));
    }
}
