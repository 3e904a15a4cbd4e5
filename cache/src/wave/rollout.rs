//! How far a rollout in waves is: a pure state machine. Time and what is seen of the clients are passed in.

use std::time::{Duration, Instant};

use super::{Share, WavePolicy};

/// One rollout, at one of its waves.
///
/// [`decide`](Self::decide) says what is to be done; whoever does it says so with [`advance`](Self::advance) or drops the
/// rollout. Until then the same is decided again, so that nothing is lost if it could not be done.
#[derive(Clone, Debug)]
pub struct Rollout {
    policy: WavePolicy,
    /// The index of the present wave.
    wave: usize,
    /// When the present wave started, or was resumed.
    since: Instant,
    /// Since when every member had ACKed, but for those that came later.
    acked_since: Option<Instant>,
    is_paused: bool,
    /// Before that, ACKs of all who are connected say nothing: others are still to come back.
    earliest: Instant,
}

/// How long the clients of a server that restarted have to come back, before ACKs count as those of all of them.
const RECONNECT_TIME: Duration = Duration::from_secs(10);

/// What is known of the members of the waves so far that are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many there are.
    pub n_members: usize,
    /// How many have not answered yet.
    pub n_pending: usize,
    /// How many have rejected the change.
    pub n_nacked: usize,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start the next wave.
    Advance,
    /// Every wave is done.
    Complete,
    /// Too many members rejected the change: take it back.
    PutBack,
}

/// What a rollout is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for ACKs.
    Progressing,
    /// Every member had ACKed; it lets time pass.
    Holding,
    /// ACKs did not come in time, or somebody stopped it; it waits to be resumed, for ever.
    Paused,
}

/// A rollout that is paused already cannot be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rollout is paused already")]
pub struct AlreadyPaused;

/// Only a rollout that is paused can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rollout is not paused")]
pub struct NotPaused;

impl Rollout {
    /// A rollout whose wave with the index `wave` starts `now`; an index beyond the last means the last.
    #[must_use]
    pub fn new(policy: WavePolicy, wave: usize, now: Instant) -> Self {
        let wave = wave.min(policy.shares().len() - 1);
        Self { policy, wave, since: now, acked_since: None, is_paused: false, earliest: now }
    }

    /// The same after a restart of the server, to which clients are still to come back. What it was doing matters only if it
    /// was paused: then it still is. Else it waits for its ACKs anew.
    #[must_use]
    pub fn restored(policy: WavePolicy, wave: usize, stage: Stage, now: Instant) -> Self {
        let is_paused = stage == Stage::Paused;
        Self { is_paused, earliest: now + RECONNECT_TIME, ..Self::new(policy, wave, now) }
    }

    /// Takes in what is seen `now`, and says what is to be done, if anything.
    ///
    /// A NACK beyond the tolerance counts in every stage, also when paused. A member that comes while the others have ACKed
    /// does not start the hold time anew, but the next wave waits for it.
    pub fn decide(&mut self, seen: Seen, now: Instant) -> Option<Decision> {
        if seen.n_nacked > self.policy.max_nacks.nodes(seen.n_members) {
            return Some(Decision::PutBack);
        }
        if self.is_paused {
            return None;
        }
        if seen.n_pending > 0 {
            self.is_paused = self.ack_deadline().is_some_and(|deadline| now >= deadline);
            return None;
        }
        if now < self.earliest {
            return None;
        }
        let acked_since = *self.acked_since.get_or_insert(now);
        if now < acked_since + self.policy.hold {
            return None;
        }
        Some(if self.is_last() { Decision::Complete } else { Decision::Advance })
    }

    /// The next wave starts `now`. Does nothing at the last one.
    pub fn advance(&mut self, now: Instant) {
        if !self.is_last() {
            self.wave += 1;
            self.restart(now);
        }
    }

    /// Stops until it is resumed. Only too many NACKs put it back meanwhile.
    ///
    /// # Errors
    ///
    /// [`AlreadyPaused`] if it is.
    pub fn pause(&mut self) -> Result<(), AlreadyPaused> {
        if self.is_paused {
            return Err(AlreadyPaused);
        }
        self.is_paused = true;
        Ok(())
    }

    /// Lets the present wave wait for its ACKs anew.
    ///
    /// # Errors
    ///
    /// [`NotPaused`] if it is not paused.
    pub fn resume(&mut self, now: Instant) -> Result<(), NotPaused> {
        if !self.is_paused {
            return Err(NotPaused);
        }
        self.restart(now);
        Ok(())
    }

    /// When, after `now`, time alone may change the decision; `None` if it cannot.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let times = [Some(self.earliest), self.hold_until(), self.ack_deadline().filter(|_| !self.is_paused)];
        times.into_iter().flatten().filter(|time| *time > now).min()
    }

    /// When the next wave starts if nothing happens; `None` if that is not known.
    #[must_use]
    pub fn hold_until(&self) -> Option<Instant> {
        self.acked_since.filter(|_| !self.is_paused).map(|since| since + self.policy.hold)
    }

    /// How the rollout is to go.
    #[must_use]
    pub fn policy(&self) -> &WavePolicy {
        &self.policy
    }

    /// The index of the present wave.
    #[must_use]
    pub fn wave(&self) -> usize {
        self.wave
    }

    /// The share of the present wave, which includes those before.
    #[must_use]
    pub fn share(&self) -> Share {
        self.policy.shares().get(self.wave).copied().unwrap_or(Share::ALL)
    }

    /// What it is doing.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.acked_since {
            _ if self.is_paused => Stage::Paused,
            Some(_) => Stage::Holding,
            None => Stage::Progressing,
        }
    }

    fn is_last(&self) -> bool {
        self.wave + 1 >= self.policy.shares().len()
    }

    fn restart(&mut self, now: Instant) {
        self.since = now;
        self.acked_since = None;
        self.is_paused = false;
    }

    /// When ACKs that are still missing pause it. Who comes during the hold time has until then, and as long again.
    fn ack_deadline(&self) -> Option<Instant> {
        let timeout: Duration = self.policy.ack_timeout?;
        Some(self.hold_until().unwrap_or(self.since) + timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_restart_clients_have_time_to_come_back() {
        let now = Instant::now();
        let policy: WavePolicy = "10%".parse().unwrap();
        let mut rollout = Rollout::restored(policy, 0, Stage::Holding, now);
        assert_eq!(rollout.decide(Seen::default(), now), None);
        assert_eq!(
            (rollout.stage(), rollout.poll_timeout(now)),
            (Stage::Progressing, Some(now + RECONNECT_TIME))
        );
        assert_eq!(rollout.decide(Seen::default(), now + RECONNECT_TIME), Some(Decision::Advance));
    }

    #[test]
    fn a_pause_outlives_a_restart() {
        let now = Instant::now();
        let policy: WavePolicy = "10%".parse().unwrap();
        let mut rollout = Rollout::new(policy.clone(), 0, now);
        rollout.pause().unwrap();
        assert_eq!(rollout.pause(), Err(AlreadyPaused));
        let mut rollout = Rollout::restored(policy, 0, rollout.stage(), now);
        let later = now + Duration::from_secs(3_600);
        assert_eq!((rollout.decide(Seen::default(), later), rollout.stage()), (None, Stage::Paused));
        rollout.resume(later).unwrap();
        assert_eq!(rollout.decide(Seen::default(), later), Some(Decision::Advance));
    }

    #[test]
    fn missing_acks_pause_it_until_it_is_resumed() {
        let mut policy: WavePolicy = "10%".parse().unwrap();
        policy.ack_timeout = Some(Duration::from_secs(5));
        let start = Instant::now();
        let mut rollout = Rollout::new(policy, 0, start);
        let waiting = Seen { n_members: 2, n_pending: 1, n_nacked: 0 };
        assert_eq!(rollout.decide(waiting, start + Duration::from_secs(4)), None);
        assert_eq!(rollout.stage(), Stage::Progressing);
        assert_eq!(rollout.poll_timeout(start), Some(start + Duration::from_secs(5)));
        assert_eq!(rollout.decide(waiting, start + Duration::from_secs(5)), None);
        assert_eq!(rollout.stage(), Stage::Paused);
        let all = Seen { n_members: 2, ..Seen::default() };
        assert_eq!(rollout.decide(all, start + Duration::from_secs(6)), None, "it waits for a person");
        let rejected = Seen { n_members: 2, n_nacked: 1, n_pending: 0 };
        assert_eq!(rollout.clone().decide(rejected, start), Some(Decision::PutBack));
        rollout.resume(start + Duration::from_secs(7)).unwrap();
        assert_eq!(rollout.decide(all, start + Duration::from_secs(7)), Some(Decision::Advance));
    }
}
