//! The end of old connections, so that clients spread over several servers.
//!
//! A client chooses a server when it connects, and stays with it. So a server that is new, or has been away, has no clients until those of
//! the others connect again. Each server therefore ends connections that are old: a few at a time, those of clients first that wait for
//! nothing, and never without telling the client with GOAWAY a moment before. What such a client has is the same on all servers, so it
//! goes on there at the price of a reconnect.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::grpc::Grpc;
use crate::grpc::client::SharedClient;
use crate::grpc::streams::StreamHandle;
use crate::listen::Peer;

/// The age at which connections end.
#[derive(Debug)]
struct MaxAge {
    mean: Duration,
    hasher: RandomState,
}

/// A connection that is older than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Old {
    /// True if its client waits for nothing that is held back, or if it is twice as old as it may be.
    may_end: bool,
    /// True if the client has been told.
    is_told: bool,
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

    fn interval(&self) -> Duration {
        (self.mean / 8).clamp(MIN_INTERVAL, MAX_INTERVAL)
    }
}

/// What happens to old connections at one look, the oldest first, if `n_streams` are open in all.
fn steps(old: &[Old], n_streams: usize) -> Vec<Option<Step>> {
    let mut n_left = (n_streams / LOOKS_FOR_ALL).max(1);
    let mut step = |old: &Old| match old {
        Old { may_end: false, .. } => None,
        Old { is_told: true, .. } => Some(Step::End),
        Old { is_told: false, .. } => {
            n_left = n_left.checked_sub(1)?;
            Some(Step::Tell)
        }
    };
    old.iter().map(&mut step).collect()
}

impl Grpc {
    /// Ends connections that are older than they may be, for ever.
    pub(super) async fn end_old(self: &Arc<Self>) {
        let Some(mean) = self.config.max_connection_age else { return std::future::pending().await };
        let max_age = Arc::new(MaxAge::new(mean));
        let mut ticks = tokio::time::interval(max_age.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (grpc, max_age) = (Arc::clone(self), Arc::clone(&max_age));
            // It looks at every stream.
            if let Err(error) = tokio::task::spawn_blocking(move || grpc.look_at_ages(&max_age)).await {
                warn!(%error, "the ages of the connections could not be looked at");
            }
        }
    }

    fn look_at_ages(&self, max_age: &MaxAge) {
        let is_old = |peer: &Peer| peer.age() >= max_age.of(peer.connection());
        let mut old: BTreeMap<u64, Vec<Arc<StreamHandle<SharedClient>>>> = BTreeMap::new();
        for handle in self.streams.of_peers(is_old) {
            old.entry(handle.peer().connection()).or_default().push(handle);
        }
        let judged: Vec<_> =
            old.iter().map(|(connection, streams)| judge(max_age.of(*connection), streams)).collect();
        for (streams, step) in old.values().zip(steps(&judged, self.streams.len())) {
            match step {
                None => {}
                Some(Step::Tell) => {
                    if let Some(stream) = streams.first() {
                        stream.peer().ask_to_leave();
                    }
                }
                Some(Step::End) => {
                    self.metrics.connection_aged();
                    streams.iter().for_each(|stream| stream.end_of_age());
                }
            }
        }
    }
}

/// The state of a connection that is older than `age`, by its streams.
fn judge(age: Duration, streams: &[Arc<StreamHandle<SharedClient>>]) -> Old {
    let is_settled = |stream: &Arc<StreamHandle<SharedClient>>| {
        // One that has not named its node waits for nothing.
        stream.client().is_none_or(|client| client.is_settled())
    };
    let peer = streams.first().map(|stream| stream.peer());
    let is_overdue = peer.is_some_and(|peer| peer.age() >= age * 2);
    Old { may_end: is_overdue || streams.iter().all(is_settled), is_told: peer.is_some_and(Peer::is_leaving) }
}

/// At a look, this fraction of all streams is told to leave: a hundredth, but at least one connection.
const LOOKS_FOR_ALL: usize = 100;
/// How often the ages are looked at: an eighth of the greatest age, within these bounds.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLED: Old = Old { may_end: true, is_told: false };
    const WAITING: Old = Old { may_end: false, is_told: false };

    #[test]
    fn connections_are_told_first_and_end_at_the_next_look() {
        assert_eq!(steps(&[SETTLED], 1), [Some(Step::Tell)]);
        assert_eq!(steps(&[Old { is_told: true, ..SETTLED }], 1), [Some(Step::End)]);
    }

    #[test]
    fn one_in_a_hundred_streams_at_a_look_and_the_oldest_that_may() {
        assert_eq!(steps(&[WAITING, SETTLED, SETTLED], 199), [None, Some(Step::Tell), None]);
        let told = steps(&[SETTLED; 200], 1_000);
        assert_eq!(told.iter().flatten().count(), 10);
    }

    #[test]
    fn what_is_held_back_keeps_a_connection_that_was_told() {
        assert_eq!(steps(&[Old { is_told: true, ..WAITING }, SETTLED], 100), [None, Some(Step::Tell)]);
    }

    #[test]
    fn ages_are_spread_over_a_tenth_each_way() {
        let max_age = MaxAge::new(Duration::from_secs(1_000));
        let ages: Vec<u64> = (0..1_000).map(|connection| max_age.of(connection).as_secs()).collect();
        let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!((900..930).contains(least) && (1_070..=1_100).contains(most), "{least} to {most}");
    }
}
