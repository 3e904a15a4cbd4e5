//! The roster: every stream that is open, and how its client is. One look over all streams, which all who ask at about the same time
//! share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use xds_cache::status::{self, ConfigStatus, StreamEntry, StreamStatus};
use xds_cache::{GroupName, Node, Publisher, ResourceType, Revision, StatusBoard, ViewKey};

/// Looks over all streams for whoever asks.
///
/// A look costs some microseconds for each stream. A fleet of thousands is looked over at most ten times as long after the last look as
/// that took, and a second after it in any case; smaller ones, for each question.
#[derive(Debug)]
pub struct Roster {
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    last: Mutex<Option<Look>>,
}

/// How a stream's client is.
#[derive(Clone, Debug)]
pub struct RosterStream {
    /// Its node.
    pub node: Arc<Node>,
    /// Its groups, the one that wins first; empty before the first load.
    pub groups: Arc<[GroupName]>,
    /// The worst status of its types.
    pub status: ConfigStatus,
    /// Since when the type with that status is as it is.
    pub since: SystemTime,
    /// The publication up to which it has accepted everything; `None` before its first answer.
    pub accepted: Option<Revision>,
    /// The publication that last changed what it is served; `None` before the first load.
    pub newest: Option<Revision>,
    /// True if it has accepted everything of `newest`, of every type, and no wave deployment passes it by.
    pub is_current: bool,
    /// True if a wave deployment has not reached it.
    pub is_behind_wave: bool,
    /// True if the server knows nothing of the node.
    pub is_unmatched: bool,
    /// The type that it rejects, and its words for that.
    pub rejected: Option<(ResourceType, Arc<str>)>,
    /// True if it rejected responses, and which of their resources it uses is not known yet.
    pub is_unknown: bool,
    /// True if changes are held back from it, as was recorded last.
    pub is_held_back: bool,
    /// How many they are now.
    pub n_held_back: usize,
    /// How many streams of the same node and service began before, in an hour or two.
    pub reconnects: u32,
}

#[derive(Debug)]
struct Look {
    ended: Instant,
    took: Duration,
    streams: Arc<[RosterStream]>,
}

impl Roster {
    /// A roster of the streams on a board, whose clients are served by a publisher.
    #[must_use]
    pub fn new(publisher: Arc<Publisher>, board: Arc<StatusBoard>) -> Self {
        Self { publisher, board, last: Mutex::default() }
    }

    /// All streams, ordered by the ids of their nodes. Blocks while somebody else looks.
    #[must_use]
    pub fn streams(&self) -> Arc<[RosterStream]> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = last.as_ref().filter(|look| look.is_fresh(Instant::now())) {
            return Arc::clone(&look.streams);
        }
        let began = Instant::now();
        let streams = self.look();
        let ended = Instant::now();
        *last = Some(Look { ended, took: ended - began, streams: Arc::clone(&streams) });
        streams
    }

    fn look(&self) -> Arc<[RosterStream]> {
        let has_wave = self.publisher.split().is_some();
        let mut newest: HashMap<ViewKey, Revision> = HashMap::new();
        let mut streams: Vec<RosterStream> = Vec::with_capacity(self.board.n_streams());
        for entry in self.board.streams() {
            // The publisher is asked while nothing of the stream is locked: the stream answers its client meanwhile.
            let (view, node) = entry.with(|status| (status.view.clone(), Arc::clone(&status.info.node)));
            let newest = view.map(|key| match newest.get(&key) {
                Some(revision) => *revision,
                None => *newest.entry(key.clone()).or_insert(self.publisher.changed_at(&key)),
            });
            let is_behind_wave = has_wave && self.publisher.is_ahead(&node) == Some(false);
            let stream = entry.with(|status| RosterStream::of(status, newest, is_behind_wave));
            streams.push(stream.with_client(&entry));
        }
        streams.sort_by(|one, other| one.node.id.cmp(&other.node.id));
        streams.into()
    }
}

impl RosterStream {
    fn of(status: &StreamStatus, newest: Option<Revision>, is_behind_wave: bool) -> Self {
        let worst = status.types.iter().max_by_key(|(_, of)| (of.status(), of.updated_at));
        let rejected = worst.filter(|(_, of)| of.status() == ConfigStatus::Error);
        // Nothing is published as revision 0, and whoever was sent nothing has nothing.
        let has_all = |newest: Revision| {
            let newest = newest.max(Revision(1));
            status.types.values().all(|of_type| of_type.has_acked(newest))
        };
        let standing = || status.types.values().filter_map(|of_type| of_type.standing.as_ref());
        Self {
            node: Arc::clone(&status.info.node),
            groups: status.view.as_ref().map(|view| Arc::clone(&view.groups)).unwrap_or_default(),
            status: status.status(),
            since: worst.and_then(|(_, of)| of.updated_at).unwrap_or(status.info.since),
            accepted: status::accepted([status]),
            newest,
            is_current: !is_behind_wave && newest.is_some_and(has_all),
            is_behind_wave,
            is_unmatched: status.is_unmatched,
            rejected: rejected
                .and_then(|(of, status)| Some((of.clone(), Arc::clone(&status.last_nack.as_ref()?.message)))),
            is_unknown: standing().any(|standing| standing.n_unknown > 0),
            is_held_back: status.is_held_back(),
            n_held_back: 0,
            reconnects: 0,
        }
    }

    /// Adds what the stream's entry and its client's session know.
    fn with_client(mut self, entry: &StreamEntry) -> Self {
        self.reconnects = entry.reconnects();
        if self.is_held_back {
            self.n_held_back = entry.held_back().len();
        }
        self
    }
}

impl Look {
    fn is_fresh(&self, now: Instant) -> bool {
        let is_large = self.took >= TAKES_LONG;
        is_large && now.saturating_duration_since(self.ended) < (self.took * LOOKS_APART).min(MAX_AGE)
    }
}

/// A look that took less is not kept.
const TAKES_LONG: Duration = Duration::from_millis(5);

/// How many times as long as a look takes it is kept: looks take a tenth of a thread, however many ask.
const LOOKS_APART: u32 = 10;

/// How old a look may be.
const MAX_AGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_ask_get_the_same_look_while_it_is_fresh() {
        let roster = Roster::new(Arc::new(Publisher::new()), StatusBoard::new());
        assert!(!Arc::ptr_eq(&roster.streams(), &roster.streams()), "a short one is made for each");
        let look = Look { ended: Instant::now(), took: Duration::from_secs(60), streams: Arc::default() };
        let streams = Arc::clone(&look.streams);
        *roster.last.lock().unwrap() = Some(look);
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| roster.streams())).collect();
            assert!(asked.into_iter().all(|one| Arc::ptr_eq(&one.join().unwrap(), &streams)));
        });
    }

    #[test]
    fn a_look_that_took_long_is_shared_for_a_while_and_a_short_one_is_not() {
        let ended = Instant::now();
        let is_fresh = |took: u64, age: u64| {
            let look = Look { ended, took: Duration::from_millis(took), streams: Arc::default() };
            look.is_fresh(ended + Duration::from_millis(age))
        };
        assert!(!is_fresh(4, 0), "a short one is made for each");
        assert!(is_fresh(5, 49) && !is_fresh(5, 50));
        assert!(
            is_fresh(2_000, 999) && !is_fresh(2_000, 1_000),
            "nobody is told what is older than a second"
        );
    }
}
