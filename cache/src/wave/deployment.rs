//! The progress of a wave deployment, as a pure state machine. Time and the state of the clients are passed in.

use std::time::{Duration, Instant};

use super::{AWAY_TIME, Losses, Share, WavePolicy};

/// One wave deployment, at one of its waves.
///
/// [`decide`](Self::decide) returns the next action. After the action, the caller calls [`advance`](Self::advance) or drops the
/// wave deployment. Until then the decision stays the same, so nothing is lost if the action failed.
#[derive(Clone, Debug)]
pub struct Deployment {
    policy: WavePolicy,
    /// The index of the present wave.
    wave: usize,
    /// When the present wave started, or was resumed.
    since: Instant,
    /// Since when every member had ACKed, apart from later ones.
    acked_since: Option<Instant>,
    is_paused: bool,
    /// The reason why it did not continue at the last decision.
    obstacle: Option<Obstacle>,
    /// Before that, ACKs of all connected clients mean nothing, because others have yet to reconnect.
    earliest: Instant,
}

/// The state of the members of the waves so far, as the server sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many are connected.
    pub n_members: usize,
    /// How many of these have not answered yet.
    pub n_pending: usize,
    /// How many of these have rejected the change.
    pub n_nacked: usize,
    /// How many of all have restarted, are away or are gone.
    pub losses: Losses,
    /// True if requests ahead fail more often than the policy lets them.
    pub is_failing: bool,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start the next wave.
    Advance,
    /// Every wave is done.
    Complete,
    /// Take the change back.
    PutBack(Fault),
}

/// Why a change is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Too many members rejected it.
    Nacked,
    /// Too many members restarted with it.
    Restarted,
    /// Too many of their requests fail.
    Failing,
}

/// Why a wave deployment does not start the next wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Members have not answered yet.
    Unanswered,
    /// Members are away, and may come back.
    Away,
    /// Too many members are lost: it is paused.
    Lost,
    /// No connected node is in the waves so far.
    Empty,
}

/// The stage that a wave deployment is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for ACKs.
    Progressing,
    /// Every member had ACKed; it lets time pass.
    Holding,
    /// ACKs did not arrive in time, too many members are gone, or somebody paused it; it waits until it is resumed.
    Paused,
}

/// A wave deployment that is paused already cannot be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wave deployment is paused already")]
pub struct AlreadyPaused;

/// Only a wave deployment that is paused can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wave deployment is not paused")]
pub struct NotPaused;

impl Deployment {
    /// A wave deployment whose wave with the index `wave` starts `now`; an index beyond the last means the last.
    #[must_use]
    pub fn new(policy: WavePolicy, wave: usize, now: Instant) -> Self {
        let wave = wave.min(policy.shares().len() - 1);
        Self { policy, wave, since: now, acked_since: None, is_paused: false, obstacle: None, earliest: now }
    }

    /// The same after a restart of the server, when clients have yet to reconnect. If it was paused, it still is. Otherwise it
    /// waits for its ACKs again.
    #[must_use]
    pub fn restored(policy: WavePolicy, wave: usize, stage: Stage, now: Instant) -> Self {
        let is_paused = stage == Stage::Paused;
        Self { is_paused, earliest: now + AWAY_TIME, ..Self::new(policy, wave, now) }
    }

    /// Takes the state of the clients at `now`, and returns the next action, if any.
    ///
    /// NACKs, restarts and failures beyond the tolerance count in every stage, also when paused. A member that is gone may have been
    /// stopped on purpose, so too many of these only pause it. A member that comes while the others have ACKed does not start
    /// the hold time anew, but the next wave waits for it, and for who is away.
    pub fn decide(&mut self, seen: Seen, now: Instant) -> Option<Decision> {
        let Losses { n_known, n_away, n_gone, n_restarted } = seen.losses;
        if seen.n_nacked > self.policy.max_nacks.nodes(seen.n_members) {
            return Some(Decision::PutBack(Fault::Nacked));
        }
        let tolerated = self.policy.tolerated_losses(self.wave, n_known);
        if n_restarted > tolerated {
            return Some(Decision::PutBack(Fault::Restarted));
        }
        if seen.is_failing {
            return Some(Decision::PutBack(Fault::Failing));
        }
        if self.is_paused {
            return None;
        }
        self.obstacle = if n_gone + n_restarted > tolerated {
            Some(Obstacle::Lost)
        } else if seen.n_pending > 0 {
            Some(Obstacle::Unanswered)
        } else if n_away > 0 {
            Some(Obstacle::Away)
        } else if seen.n_members == 0 && !self.policy.allow_empty {
            Some(Obstacle::Empty)
        } else {
            None
        };
        if let Some(obstacle) = self.obstacle {
            let is_late = self.ack_deadline().is_some_and(|deadline| now >= deadline);
            self.is_paused = is_late || obstacle == Obstacle::Lost;
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

    /// Stops until it is resumed. Only too many NACKs or restarts put it back meanwhile.
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

    /// The reason why it did not continue at the last decision; `None` if only time must pass.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
    }

    /// The policy of the wave deployment.
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

    /// The stage that it is in.
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
        self.obstacle = None;
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

    /// A member that has accepted.
    const SOMEBODY: Seen = Seen {
        n_members: 1,
        n_pending: 0,
        n_nacked: 0,
        losses: Losses { n_known: 1, n_away: 0, n_gone: 0, n_restarted: 0 },
        is_failing: false,
    };

    #[test]
    fn after_a_restart_clients_have_time_to_come_back() {
        let now = Instant::now();
        let policy: WavePolicy = "10%".parse().unwrap();
        let mut deployment = Deployment::restored(policy, 0, Stage::Holding, now);
        assert_eq!(deployment.decide(SOMEBODY, now), None);
        assert_eq!(
            (deployment.stage(), deployment.poll_timeout(now)),
            (Stage::Progressing, Some(now + AWAY_TIME))
        );
        assert_eq!(deployment.decide(SOMEBODY, now + AWAY_TIME), Some(Decision::Advance));
    }

    #[test]
    fn a_pause_outlives_a_restart() {
        let now = Instant::now();
        let policy: WavePolicy = "10%".parse().unwrap();
        let mut deployment = Deployment::new(policy.clone(), 0, now);
        deployment.pause().unwrap();
        assert_eq!(deployment.pause(), Err(AlreadyPaused));
        let mut deployment = Deployment::restored(policy, 0, deployment.stage(), now);
        let later = now + Duration::from_secs(3_600);
        assert_eq!((deployment.decide(SOMEBODY, later), deployment.stage()), (None, Stage::Paused));
        deployment.resume(later).unwrap();
        assert_eq!(deployment.decide(SOMEBODY, later), Some(Decision::Advance));
    }

    #[test]
    fn missing_acks_pause_it_until_it_is_resumed() {
        let mut policy: WavePolicy = "10%".parse().unwrap();
        policy.ack_timeout = Some(Duration::from_secs(5));
        let start = Instant::now();
        let mut deployment = Deployment::new(policy, 0, start);
        let waiting = Seen { n_members: 2, n_pending: 1, n_nacked: 0, ..Seen::default() };
        assert_eq!(deployment.decide(waiting, start + Duration::from_secs(4)), None);
        assert_eq!(deployment.stage(), Stage::Progressing);
        assert_eq!(deployment.poll_timeout(start), Some(start + Duration::from_secs(5)));
        assert_eq!(deployment.decide(waiting, start + Duration::from_secs(5)), None);
        assert_eq!(deployment.stage(), Stage::Paused);
        let all = Seen { n_members: 2, ..Seen::default() };
        assert_eq!(deployment.decide(all, start + Duration::from_secs(6)), None, "it waits for a person");
        let rejected = Seen { n_members: 2, n_nacked: 1, ..Seen::default() };
        assert_eq!(deployment.clone().decide(rejected, start), Some(Decision::PutBack(Fault::Nacked)));
        deployment.resume(start + Duration::from_secs(7)).unwrap();
        assert_eq!(deployment.decide(all, start + Duration::from_secs(7)), Some(Decision::Advance));
    }

    #[test]
    fn a_wave_that_nobody_is_in_waits_for_somebody() {
        let mut policy: WavePolicy = "10%".parse().unwrap();
        let now = Instant::now();
        let later = now + Duration::from_secs(3_600);
        let mut deployment = Deployment::new(policy.clone(), 0, now);
        assert_eq!(
            (deployment.decide(Seen::default(), later), deployment.obstacle()),
            (None, Some(Obstacle::Empty))
        );
        assert_eq!(deployment.stage(), Stage::Progressing);
        assert_eq!(deployment.decide(SOMEBODY, later), Some(Decision::Advance));
        policy.allow_empty = true;
        assert_eq!(Deployment::new(policy, 0, now).decide(Seen::default(), now), Some(Decision::Advance));
    }

    #[test]
    fn lost_members_stop_it_beyond_the_tolerance() {
        let lost = |n_gone, n_restarted| Seen {
            n_members: 40,
            losses: Losses { n_known: 40, n_away: 0, n_gone, n_restarted },
            ..Seen::default()
        };
        let (advance, put_back) = (Some(Decision::Advance), Some(Decision::PutBack(Fault::Restarted)));
        // In which wave, what may be lost, what is, and what becomes of it.
        for (wave, max_lost, (n_gone, n_restarted), decision, is_paused) in [
            (0, None, (0, 0), advance, false),
            (0, None, (1, 0), None, true),
            (0, None, (0, 1), put_back, false),
            (1, None, (2, 0), advance, false),
            (1, None, (3, 0), None, true),
            (1, None, (0, 2), advance, false),
            (1, None, (1, 2), None, true),
            (1, None, (0, 3), put_back, false),
            (0, Some("1"), (1, 0), advance, false),
            (0, Some("1"), (2, 0), None, true),
            (0, Some("100%"), (20, 20), advance, false),
        ] {
            let mut policy: WavePolicy = "10%,50%".parse().unwrap();
            policy.max_lost = max_lost.map(|text| text.parse().unwrap());
            let now = Instant::now();
            let mut deployment = Deployment::new(policy, wave, now);
            let case = format!("wave {wave}, {max_lost:?}, {n_gone} gone, {n_restarted} restarted");
            assert_eq!(deployment.decide(lost(n_gone, n_restarted), now), decision, "{case}");
            assert_eq!(deployment.stage() == Stage::Paused, is_paused, "{case}");
        }
    }

    #[test]
    fn who_is_away_is_waited_for() {
        let now = Instant::now();
        let mut deployment = Deployment::new("10%".parse().unwrap(), 0, now);
        let away = Seen { losses: Losses { n_known: 2, n_away: 1, ..Losses::default() }, ..SOMEBODY };
        assert_eq!((deployment.decide(away, now), deployment.obstacle()), (None, Some(Obstacle::Away)));
        assert_eq!(deployment.decide(SOMEBODY, now), Some(Decision::Advance));
    }
}
