//! The end of old connections, and of those that are too many, so that clients spread over several servers.
//!
//! A client chooses a server when it connects, and stays with it. So a server that is new, or has been away, has no clients until those of
//! the others connect again. Each server therefore ends connections that are old: a few at a time, those of clients first that wait for
//! nothing, and never without telling the client with GOAWAY a moment before. What such a client has is the same on all servers, so it
//! goes on there at the price of a reconnect.
//!
//! Where the others say how many streams they have, a server that has far more than its share sheds some in the same way
//! ([`balance`](crate::grpc::balance)): never in the middle of a change, and never those that have just come.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::grpc::Grpc;
use crate::grpc::balance::Balance;
use crate::grpc::client::SharedClient;
use crate::grpc::streams::StreamHandle;
use crate::listen::Peer;

/// The age at which connections end.
#[derive(Debug)]
struct MaxAge {
    mean: Duration,
    hasher: RandomState,
}

/// A connection that should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    why: Why,
    /// True if its client waits for nothing that is held back, or if it is twice as old as it may be.
    may_end: bool,
    /// True if the client has been told.
    is_told: bool,
    n_streams: u64,
}

/// Why a connection should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It is older than it may be.
    Age,
    /// Other servers have fewer streams.
    Surplus,
}

/// What happens to such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tell,
    End,
}

impl MaxAge {
    fn new(mean: Duration) -> Self {
        Self { mean, hasher: RandomState::new() }
    }

    /// The age of one connection, within a tenth of the mean: those that came at once do not leave at once.
    fn of(&self, connection: u64) -> Duration {
        let part = (self.hasher.hash_one(connection) % 2_001) as u32;
        self.mean * (9_000 + part) / 10_000
    }

    /// How often connections are looked at, if a surplus is shed after `patience`.
    fn interval(&self, patience: Duration) -> Duration {
        (self.mean.min(patience) / 8).clamp(MIN_INTERVAL, MAX_INTERVAL)
    }
}

/// What happens to connections at one look, the oldest first, if `n_streams` are open in all, and `surplus` of them are too many.
fn steps(due: &[Due], n_streams: usize, mut surplus: u64) -> Vec<Option<Step>> {
    let mut n_left = (n_streams / LOOKS_FOR_ALL).max(1);
    let mut step = |due: &Due| match due {
        Due { may_end: false, .. } => None,
        Due { is_told: true, .. } => Some(Step::End),
        Due { why: Why::Surplus, .. } if surplus == 0 => None,
        Due { why, n_streams, .. } => {
            n_left = n_left.checked_sub(1)?;
            if *why == Why::Surplus {
                surplus = surplus.saturating_sub(*n_streams);
            }
            Some(Step::Tell)
        }
    };
    due.iter().map(&mut step).collect()
}

impl Grpc {
    /// Ends connections that are older than they may be, or too many, for ever.
    pub(super) async fn end_old(self: &Arc<Self>) {
        let Some(mean) = self.config.max_connection_age else { return std::future::pending().await };
        let (max_age, patience) = (Arc::new(MaxAge::new(mean)), self.config.shed_after);
        let mut balance = Balance::new(patience);
        let mut ticks = tokio::time::interval(max_age.interval(patience));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (grpc, max_age) = (Arc::clone(self), Arc::clone(&max_age));
            // It looks at every stream.
            let looked = tokio::task::spawn_blocking(move || {
                let surplus = balance.surplus(grpc.n_staying(), &grpc.others.streams(), Instant::now());
                balance.note_told(grpc.look_at_connections(&max_age, surplus));
                balance
            });
            balance = looked.await.unwrap_or_else(|error| {
                warn!(%error, "the connections could not be looked at");
                Balance::new(patience)
            });
        }
    }

    /// How many streams there are, as other servers count them, but for those that were told to leave.
    fn n_staying(&self) -> u64 {
        let n_leaving = self.streams.of_peers(Peer::is_leaving).len();
        self.board.n_streams().saturating_sub(n_leaving) as u64
    }

    /// Tells connections to leave, and ends those that were told. Returns how many streams were told because they are too many.
    fn look_at_connections(&self, max_age: &MaxAge, surplus: u64) -> u64 {
        let is_old = |peer: &Peer| peer.age() >= max_age.of(peer.connection());
        // One that has just come, maybe from a server that shed it, stays.
        let may_be_shed = |peer: &Peer| surplus > 0 && peer.age() >= self.config.shed_after;
        let is_due = |peer: &Peer| is_old(peer) || peer.is_leaving() || may_be_shed(peer);
        let mut due: BTreeMap<u64, Vec<Arc<StreamHandle<SharedClient>>>> = BTreeMap::new();
        for handle in self.streams.of_peers(is_due) {
            due.entry(handle.peer().connection()).or_default().push(handle);
        }
        let why = |streams: &[Arc<StreamHandle<SharedClient>>]| {
            let is_old = streams.first().is_some_and(|stream| is_old(stream.peer()));
            if is_old { Why::Age } else { Why::Surplus }
        };
        let judged: Vec<_> = due
            .iter()
            .map(|(connection, streams)| judge(why(streams), max_age.of(*connection), streams))
            .collect();
        let mut n_told = 0;
        let steps = steps(&judged, self.streams.len(), surplus);
        for ((streams, judged), step) in due.values().zip(&judged).zip(steps) {
            match (step, judged.why) {
                (None, Why::Age | Why::Surplus) => {}
                (Some(Step::Tell), why) => {
                    if let Some(stream) = streams.first() {
                        stream.peer().ask_to_leave();
                    }
                    n_told += if why == Why::Surplus { judged.n_streams } else { 0 };
                }
                (Some(Step::End), Why::Age) => {
                    self.metrics.connection_aged();
                    streams.iter().for_each(|stream| stream.end_of_age());
                }
                (Some(Step::End), Why::Surplus) => {
                    self.metrics.connection_shed();
                    streams.iter().for_each(|stream| stream.end_of_surplus());
                }
            }
        }
        n_told
    }
}

/// The state of a connection that should end, by its streams. `age` is the greatest that it may have.
fn judge(why: Why, age: Duration, streams: &[Arc<StreamHandle<SharedClient>>]) -> Due {
    let is_settled = |stream: &Arc<StreamHandle<SharedClient>>| {
        // One that has not named its node waits for nothing.
        stream.client().is_none_or(|client| client.is_settled())
    };
    let peer = streams.first().map(|stream| stream.peer());
    let is_overdue = peer.is_some_and(|peer| peer.age() >= age * 2);
    Due {
        why,
        may_end: is_overdue || streams.iter().all(is_settled),
        is_told: peer.is_some_and(Peer::is_leaving),
        n_streams: streams.len() as u64,
    }
}

/// At a look, this fraction of all streams is told to leave: a hundredth, but at least one connection.
const LOOKS_FOR_ALL: usize = 100;
/// How often connections are looked at: an eighth of the greatest age, or of the time before a surplus is shed, within these bounds.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLED: Due = Due { why: Why::Age, may_end: true, is_told: false, n_streams: 1 };
    const WAITING: Due = Due { may_end: false, ..SETTLED };

    #[test]
    fn connections_are_told_first_and_end_at_the_next_look() {
        assert_eq!(steps(&[SETTLED], 1, 0), [Some(Step::Tell)]);
        assert_eq!(steps(&[Due { is_told: true, ..SETTLED }], 1, 0), [Some(Step::End)]);
    }

    #[test]
    fn one_in_a_hundred_streams_at_a_look_and_the_oldest_that_may() {
        assert_eq!(steps(&[WAITING, SETTLED, SETTLED], 199, 0), [None, Some(Step::Tell), None]);
        let told = steps(&[SETTLED; 200], 1_000, 0);
        assert_eq!(told.iter().flatten().count(), 10);
    }

    #[test]
    fn what_is_held_back_keeps_a_connection_that_was_told() {
        assert_eq!(steps(&[Due { is_told: true, ..WAITING }, SETTLED], 100, 0), [None, Some(Step::Tell)]);
    }

    #[test]
    fn no_more_are_shed_than_are_too_many_and_whoever_was_told_ends() {
        let many = Due { why: Why::Surplus, n_streams: 3, ..SETTLED };
        let told = Due { is_told: true, ..many };
        let waiting = Due { may_end: false, ..many };
        let (tell, end) = (Some(Step::Tell), Some(Step::End));
        assert_eq!(steps(&[many, waiting, many, many], 1_000, 4), [tell, None, tell, None]);
        assert_eq!(steps(&[many, told, SETTLED], 1_000, 0), [None, end, tell]);
        assert_eq!(steps(&[SETTLED, many], 199, 100), [tell, None], "both count for the rate");
    }

    #[test]
    fn ages_are_spread_over_a_tenth_each_way() {
        let max_age = MaxAge::new(Duration::from_secs(1_000));
        let ages: Vec<u64> = (0..1_000).map(|connection| max_age.of(connection).as_secs()).collect();
        let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!((900..930).contains(least) && (1_070..=1_100).contains(most), "{least} to {most}");
    }
}
