//! The ledger of bytes that incomplete messages take. It is a value without clock and I/O, and wakes no task.
//!
//! A message begins among the *small* ones. They never wait: when their half of the budget is used up, the oldest one is displaced.
//! A message that completes in time is never the oldest, so a client cannot block small messages by holding unfinished ones. A
//! message that turns out to be large asks for all of its bytes at once, and is *admitted* when they are free. So half-received
//! messages never wait for each other. Without room, it waits for its turn.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::listen::Source;

#[cfg(test)]
mod tests;

/// Limits on the bytes of incomplete messages.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveLimits {
    /// Bytes in the whole process: one half for small messages, and the other for large ones.
    pub process: usize,
    /// Bytes of large messages from one address.
    pub per_source: usize,
    /// Bytes of large messages on one connection.
    pub per_connection: usize,
    /// How long a message may make no progress, and how long a large one may wait for its turn.
    pub patience: Duration,
}

/// All messages under way. `T` is a value of the caller for each.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    limits: ReceiveLimits,
    /// By age.
    messages: BTreeMap<u64, Message<T>>,
    /// The messages that were not admitted and hold bytes, by age.
    small: BTreeSet<u64>,
    /// The messages that wait for their turn, by age.
    waiting: BTreeSet<u64>,
    n_small: usize,
    n_admitted: usize,
    by_source: HashMap<Source, usize>,
    by_connection: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Message<T> {
    tag: T,
    connection: u64,
    source: Source,
    stage: Stage,
    /// When it began, was admitted, or had to go.
    since: Instant,
    /// The bytes that had come at the last look, and the time of their last change.
    n_seen: usize,
    progressed_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Holds this many bytes.
    Small(usize),
    /// Holds the first, wants the second.
    Waiting(usize, usize),
    /// Has room for this many bytes.
    Admitted(usize),
    /// Has to go.
    Ended,
}

/// The answer for a message that asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It has the room.
    Admitted,
    /// It waits for its turn.
    Waits,
    /// It must go: it asks for more bytes than it can ever have, or too many others wait.
    Refused(Scope),
}

/// The owner of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Process,
    Source,
    Connection,
}

/// Why the time of a message is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It did not get its turn in time.
    NoTurn,
    /// It comes too slowly, or not at all.
    TooSlow,
}

/// The result of a look at the clock.
#[derive(Debug)]
pub(crate) struct Expired<T> {
    /// The messages that have to go.
    pub(crate) ended: Vec<(T, Ending)>,
    /// The messages that had to go long ago, and still hold their bytes.
    pub(crate) stuck: Vec<T>,
    /// The messages whose turn it is now.
    pub(crate) admitted: Vec<T>,
}

impl<T: Clone> Ledger<T> {
    pub(crate) fn new(limits: ReceiveLimits) -> Self {
        Self {
            limits,
            messages: BTreeMap::new(),
            small: BTreeSet::new(),
            waiting: BTreeSet::new(),
            n_small: 0,
            n_admitted: 0,
            by_source: HashMap::new(),
            by_connection: HashMap::new(),
        }
    }

    /// Takes in a message that has begun, under a number larger than all before it.
    pub(crate) fn begin(&mut self, id: u64, tag: T, connection: u64, source: Source, now: Instant) {
        let stage = Stage::Small(0);
        let message = Message { tag, connection, source, stage, since: now, n_seen: 0, progressed_at: now };
        self.messages.insert(id, message);
        self.small.insert(id);
    }

    /// Records that a message that was not admitted holds `n_bytes` now. Returns the messages that have to go for it.
    pub(crate) fn hold(&mut self, id: u64, n_bytes: usize, now: Instant) -> Vec<T> {
        let Some(message) = self.messages.get_mut(&id) else { return vec![] };
        let Stage::Small(n_before) = message.stage else { return vec![] };
        message.stage = Stage::Small(n_bytes);
        self.n_small = self.n_small - n_before + n_bytes;
        let mut displaced = Vec::new();
        while self.n_small > self.limits.process / 2 {
            // Like any other message, it goes itself when it is the oldest.
            let Some(oldest) = self.small.first().copied() else { break };
            displaced.extend(self.end(oldest, now));
        }
        displaced
    }

    /// Asks for room for `n_bytes` in all, once for a message.
    pub(crate) fn ask(&mut self, id: u64, n_bytes: usize, now: Instant) -> Asked {
        let Some(message) = self.messages.get_mut(&id) else { return Asked::Refused(Scope::Process) };
        let Stage::Small(n_kept) = message.stage else { return Asked::Refused(Scope::Process) };
        let (connection, source) = (message.connection, message.source);
        message.stage = Stage::Waiting(n_kept, n_bytes);
        (message.since, message.progressed_at) = (now, now);
        if let Some(scope) = self.never_fits(n_bytes) {
            return Asked::Refused(scope);
        }
        // A later message may pass an earlier one only if that waits for room of its own address or connection.
        let is_free = self.waiting.iter().all(|id| self.missing(*id) != Some(Scope::Process));
        if is_free && self.lacks(connection, source, n_bytes).is_none() {
            self.admit(id, now);
            return Asked::Admitted;
        }
        // The bytes of a message that waits fill the connection's window. Two leave room for the other streams.
        let of_connection = |id: &&u64| self.messages.get(id).is_some_and(|m| m.connection == connection);
        if self.waiting.len() >= MAX_WAITING {
            return Asked::Refused(Scope::Process);
        }
        if self.waiting.iter().filter(of_connection).count() >= MAX_WAITING_PER_CONNECTION {
            return Asked::Refused(Scope::Connection);
        }
        self.waiting.insert(id);
        Asked::Waits
    }

    /// Removes a message. Returns the messages whose turn it is now.
    pub(crate) fn remove(&mut self, id: u64, now: Instant) -> Vec<T> {
        self.give_back(id);
        self.messages.remove(&id);
        self.admit_waiting(now)
    }

    /// Looks at the clock. `n_received` returns the bytes of a message that have come.
    pub(crate) fn expire(&mut self, now: Instant, n_received: impl Fn(&T) -> usize) -> Expired<T> {
        let patience = self.limits.patience;
        let mut stuck = Vec::new();
        let mut late = Vec::new();
        for (id, message) in &mut self.messages {
            let n_seen = n_received(&message.tag);
            if n_seen != message.n_seen {
                (message.n_seen, message.progressed_at) = (n_seen, now);
            }
            let age = now.saturating_duration_since(message.since);
            let allowed = |n_bytes: usize| patience + Duration::from_secs((n_bytes / MIN_RATE) as u64);
            let is_silent = now.saturating_duration_since(message.progressed_at) >= patience;
            match message.stage {
                Stage::Small(n) if is_silent || age >= allowed(n) => late.push((*id, Ending::TooSlow)),
                Stage::Admitted(n) if is_silent || age >= allowed(n) => late.push((*id, Ending::TooSlow)),
                Stage::Waiting(..) if age >= patience => late.push((*id, Ending::NoTurn)),
                Stage::Ended if age >= STUCK_AFTER => stuck.push(message.tag.clone()),
                Stage::Small(_) | Stage::Admitted(_) | Stage::Waiting(..) | Stage::Ended => {}
            }
        }
        let ended = late.into_iter().filter_map(|(id, why)| Some((self.end(id, now)?, why))).collect();
        Expired { ended, stuck, admitted: self.admit_waiting(now) }
    }

    /// The reserved bytes.
    #[cfg(test)]
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_small + self.n_admitted
    }

    fn admit_waiting(&mut self, now: Instant) -> Vec<T> {
        let mut admitted = Vec::new();
        for id in self.waiting.clone() {
            match self.missing(id) {
                // A later message must not take the room that the first one waits for.
                Some(Scope::Process) => break,
                Some(Scope::Source | Scope::Connection) => {}
                None => {
                    self.admit(id, now);
                    admitted.extend(self.messages.get(&id).map(|message| message.tag.clone()));
                }
            }
        }
        admitted
    }

    fn admit(&mut self, id: u64, now: Instant) {
        let Some(message) = self.messages.get(&id) else { return };
        let Stage::Waiting(_, n_bytes) = message.stage else { return };
        self.give_back(id);
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.stage = Stage::Admitted(n_bytes);
        (message.since, message.progressed_at) = (now, now);
        self.n_admitted += n_bytes;
        *self.by_source.entry(message.source).or_default() += n_bytes;
        *self.by_connection.entry(message.connection).or_default() += n_bytes;
    }

    /// Ends a message: it holds nothing from now on.
    fn end(&mut self, id: u64, now: Instant) -> Option<T> {
        self.give_back(id);
        let message = self.messages.get_mut(&id)?;
        message.stage = Stage::Ended;
        message.since = now;
        Some(message.tag.clone())
    }

    /// Removes a message from all sums.
    fn give_back(&mut self, id: u64) {
        let Some(message) = self.messages.get(&id) else { return };
        self.small.remove(&id);
        self.waiting.remove(&id);
        match message.stage {
            Stage::Small(n) | Stage::Waiting(n, _) => self.n_small -= n,
            Stage::Admitted(n) => {
                self.n_admitted -= n;
                subtract(&mut self.by_source, message.source, n);
                subtract(&mut self.by_connection, message.connection, n);
            }
            Stage::Ended => {}
        }
    }

    /// The scope whose room a waiting message needs.
    fn missing(&self, id: u64) -> Option<Scope> {
        let message = self.messages.get(&id)?;
        let Stage::Waiting(_, n_bytes) = message.stage else { return None };
        self.lacks(message.connection, message.source, n_bytes)
    }

    fn lacks(&self, connection: u64, source: Source, n_bytes: usize) -> Option<Scope> {
        let of = |used: Option<&usize>| used.copied().unwrap_or(0) + n_bytes;
        if of(self.by_connection.get(&connection)) > self.limits.per_connection {
            Some(Scope::Connection)
        } else if of(self.by_source.get(&source)) > self.limits.per_source {
            Some(Scope::Source)
        } else {
            (self.n_admitted + n_bytes > self.limits.process / 2).then_some(Scope::Process)
        }
    }

    fn never_fits(&self, n_bytes: usize) -> Option<Scope> {
        let ReceiveLimits { process, per_source, per_connection, .. } = self.limits;
        let limits =
            [(per_connection, Scope::Connection), (per_source, Scope::Source), (process / 2, Scope::Process)];
        limits.into_iter().find(|(limit, _)| n_bytes > *limit).map(|(_, scope)| scope)
    }
}

fn subtract<K: Eq + Hash>(sums: &mut HashMap<K, usize>, key: K, n_bytes: usize) {
    if let Some(sum) = sums.get_mut(&key) {
        *sum = sum.saturating_sub(n_bytes);
        if *sum == 0 {
            sums.remove(&key);
        }
    }
}

/// The least bytes a second of a message on average: 64 MiB may take four minutes, over a slow line between two sites.
const MIN_RATE: usize = 256 * 1024;
/// How long a stream may take to notice that its message has to go. A stream whose client does not read cannot notice.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// Messages that wait in all: each keeps its beginning, and is looked at whenever another one ends.
const MAX_WAITING: usize = 1000;
/// Messages that wait on one connection, each with up to 1 MiB of its window of 4 MiB.
const MAX_WAITING_PER_CONNECTION: usize = 2;
