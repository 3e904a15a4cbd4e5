//! Whether this server has more clients than its share, so that some should go to another one.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Says how many streams each other server has that answers and has the same store.
type Ask = Box<dyn Fn() -> Vec<u64> + Send + Sync>;

/// The other servers, once they are known.
#[derive(Default)]
pub(super) struct Others(OnceLock<Ask>);

impl Others {
    /// Asks `others` from now on, unless somebody is asked already.
    pub(super) fn set(&self, others: Ask) {
        let _ = self.0.set(others);
    }

    /// How many streams each of them has; empty if there are none.
    pub(super) fn streams(&self) -> Vec<u64> {
        self.0.get().map(|ask| ask()).unwrap_or_default()
    }
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").field("is_set", &self.0.get().is_some()).finish()
    }
}

/// How this server compares with the others over time.
///
/// A server begins to shed when it has more than 1.2 times the mean and at least [`MIN_SURPLUS`] streams more than the mean, for as long as
/// its patience. It stops at the mean. So of two servers only one ever sheds, and neither does over a few clients. Where clients do not go
/// away, because they know no other server, it gives up for [`REST`].
#[derive(Debug)]
pub(super) struct Balance {
    patience: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has its share.
    Fair,
    /// It has had too many since then.
    High { since: Instant },
    /// It sheds. This many streams may still be told to leave.
    Shedding { n_left: u64 },
    /// It shed in vain, and does not begin again before then.
    Resting { until: Instant },
}

impl Balance {
    /// Waits for `patience` before it sheds.
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, state: State::Fair }
    }

    /// How many streams should leave now, if this server has `own` and the others have `others`. Streams that were told to leave already are
    /// not among `own`.
    pub(super) fn surplus(&mut self, own: u64, others: &[u64], now: Instant) -> u64 {
        let total = others.iter().fold(u128::from(own), |total, streams| total + u128::from(*streams));
        let n_servers = others.len() as u128 + 1;
        let mean = total.div_ceil(n_servers);
        // No server has more than all have.
        let surplus = own.saturating_sub(u64::try_from(mean).unwrap_or(u64::MAX));
        // Five times it, and six times the mean, without fractions.
        let is_high = surplus >= MIN_SURPLUS && 5 * u128::from(own) * n_servers > 6 * total;
        self.state = match self.state {
            State::Resting { until } if now < until => self.state,
            State::Shedding { n_left: 0 } if surplus > 0 => State::Resting { until: now + REST },
            State::Shedding { .. } if surplus > 0 => self.state,
            State::High { since } if is_high && now.saturating_duration_since(since) >= self.patience => {
                State::Shedding { n_left: surplus.saturating_mul(TRIES) }
            }
            State::High { .. } if is_high => self.state,
            State::Fair | State::Resting { .. } if is_high => State::High { since: now },
            State::Fair | State::High { .. } | State::Shedding { .. } | State::Resting { .. } => State::Fair,
        };
        match self.state {
            State::Shedding { n_left } => surplus.min(n_left),
            State::Fair | State::High { .. } | State::Resting { .. } => 0,
        }
    }

    /// Notes that so many streams were told to leave.
    pub(super) fn note_told(&mut self, n_streams: u64) {
        if let State::Shedding { n_left } = &mut self.state {
            *n_left = n_left.saturating_sub(n_streams);
        }
    }
}

/// Fewer streams above the mean are not worth a reconnect.
const MIN_SURPLUS: u64 = 10;

/// How many streams are told to leave for each that is too many. A client chooses among all servers anew, so of two every second one comes
/// back.
const TRIES: u64 = 4;

/// How long a server that shed in vain does not try again.
const REST: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// What a server does that always has so many.
    fn after(own: u64, others: &[u64], seconds: u64) -> u64 {
        let (mut balance, now) = (Balance::new(PATIENCE), Instant::now());
        assert_eq!(balance.surplus(own, others, now), 0);
        balance.surplus(own, others, now + Duration::from_secs(seconds))
    }

    #[test]
    fn a_server_with_far_more_than_the_mean_sheds_down_to_it_after_a_minute() {
        for (own, others, surplus) in [
            (1_000, &[0][..], 500),
            (1_000, &[700], 0),
            (1_000, &[600], 200),
            (1_000, &[0, 1_000], 333),
            (0, &[1_000], 0),
            (500, &[], 0),
            (u64::MAX, &[u64::MAX, 0], u64::MAX / 3),
        ] {
            assert_eq!(after(own, others, 59), 0, "{own} {others:?}");
            assert_eq!(after(own, others, 60), surplus, "{own} {others:?}");
        }
    }

    #[test]
    fn few_clients_never_move() {
        for (own, others) in [(3, &[0][..]), (19, &[0]), (2, &[1]), (14, &[0, 0])] {
            assert_eq!(after(own, others, 3_600), 0, "{own} {others:?}");
        }
        assert_eq!(after(20, &[0], 60), 10);
    }

    #[test]
    fn an_imbalance_that_ends_meanwhile_begins_anew() {
        let (mut balance, began) = (Balance::new(PATIENCE), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(balance.surplus(100, &[0], at(0)), 0);
        assert_eq!(balance.surplus(100, &[90], at(30)), 0);
        assert_eq!(balance.surplus(100, &[0], at(50)), 0);
        assert_eq!(balance.surplus(100, &[0], at(109)), 0);
        assert_eq!(balance.surplus(100, &[0], at(110)), 50);
        // It goes on down to the mean, and then only from 1.2 times the mean on.
        assert_eq!(balance.surplus(60, &[50], at(111)), 5);
        assert_eq!(balance.surplus(55, &[55], at(112)), 0);
        assert_eq!(balance.surplus(60, &[50], at(1_000)), 0);
        // The other servers are gone.
        assert_eq!(balance.surplus(500, &[], at(2_000)), 0);
    }

    #[test]
    fn a_server_whose_clients_come_back_gives_up() {
        let (mut balance, began) = (Balance::new(PATIENCE), Instant::now());
        let (mut n_told, mut seconds) = (0, 0);
        while seconds < 600 {
            let surplus = balance.surplus(100, &[0], began + Duration::from_secs(seconds));
            balance.note_told(surplus.min(1));
            n_told += surplus.min(1);
            seconds += 1;
        }
        assert_eq!(n_told, 50 * TRIES);
    }

    /// Servers whose clients choose anew at random, as often as they are told to leave.
    #[test]
    fn servers_come_to_the_same_number_and_stay_there() {
        for (seed, mut streams) in [(1, vec![1_000, 0]), (2, vec![400, 400, 0]), (3, vec![300, 100, 200, 0])]
        {
            let mut balances: Vec<_> = streams.iter().map(|_| Balance::new(PATIENCE)).collect();
            let began = Instant::now();
            let mut state: u64 = seed;
            let (mut last, mean) = (0, streams.iter().sum::<u64>() / streams.len() as u64);
            for second in 0..3_600 {
                for at in 0..streams.len() {
                    let others: Vec<u64> =
                        streams.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, n)| *n).collect();
                    let now = began + Duration::from_secs(second);
                    let surplus = balances[at].surplus(streams[at], &others, now);
                    let told = surplus.min((streams[at] / 100).max(1));
                    balances[at].note_told(told);
                    for _ in 0..told {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        let to = (state >> 33) as usize % streams.len();
                        streams[at] -= 1;
                        streams[to] += 1;
                        last = second;
                    }
                }
            }
            let most = streams.iter().max().unwrap();
            assert!(*most < mean + mean / 5 + MIN_SURPLUS, "seed {seed}: {streams:?}");
            assert!(last < 600, "seed {seed}: something still moved after {last} s");
        }
    }
}
