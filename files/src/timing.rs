//! Decides when to look at the files: a state machine that takes events and gives steps. Time is passed in.
//!
//! An event means only "look again". Additions and changes are applied after a short quiet time, or when the first event is old
//! enough. A missing object counts as removed only after a longer quiet time, however long that takes: a half-done `git pull` must
//! never be published.

use std::time::{Duration, Instant};

/// The times to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The quiet time before additions and changes are applied. Editors save in several steps, and one save must be one change.
    pub debounce: Duration,
    /// The age of the first event at which they are applied without a quiet time.
    pub max_delay: Duration,
    /// The quiet time before a missing object counts as removed.
    pub removal_quiet: Duration,
    /// How often the files are looked at without an event, for file systems without notifications.
    pub poll_interval: Duration,
}

impl Timing {
    /// The times of D5.
    #[must_use]
    pub fn with_poll_interval(poll_interval: Duration) -> Self {
        Self {
            debounce: Duration::from_millis(100),
            max_delay: Duration::from_secs(1),
            removal_quiet: Duration::from_secs(2),
            poll_interval,
        }
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until the next deadline or event.
    Wait,
    /// Walk, and report an event if the walk differs from the last one.
    Poll,
    /// Read everything.
    Load(Removals),
}

/// The treatment of missing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removals {
    /// They stay: a change may still be under way.
    Postponed,
    /// They are removed.
    Due,
}

/// Decides when to look.
#[derive(Clone, Debug)]
pub struct Pace {
    timing: Timing,
    /// The first event since the last load.
    first_event: Option<Instant>,
    /// The last event ever.
    last_event: Option<Instant>,
    /// True if the last load kept missing objects.
    postpones_removals: bool,
    /// True if a look was requested, regardless of the clock.
    is_asked: bool,
    /// When a load that was not taken is offered again, and how long after the failure.
    again: Option<(Instant, Duration)>,
    next_poll: Instant,
}

impl Pace {
    /// Nothing has been loaded yet: the first step is a load.
    #[must_use]
    pub fn new(timing: Timing, now: Instant) -> Self {
        let next_poll = now + timing.poll_interval;
        let (first_event, last_event, again) = (None, None, None);
        Self { timing, first_event, last_event, postpones_removals: false, is_asked: true, again, next_poll }
    }

    /// Something may have changed.
    pub fn handle_event(&mut self, now: Instant) {
        self.first_event.get_or_insert(now);
        self.last_event = Some(now);
    }

    /// A caller wants a look now.
    pub fn handle_request(&mut self) {
        self.is_asked = true;
    }

    /// A load is done that began at `began`; `postpones_removals` if it kept missing objects.
    ///
    /// Events since then still count, because the load may have missed their changes.
    pub fn handle_loaded(&mut self, began: Instant, postpones_removals: bool) {
        self.postpones_removals = postpones_removals;
        self.is_asked = false;
        if self.last_event.is_none_or(|last| last < began) {
            self.first_event = None;
        } else {
            self.first_event = self.last_event;
        }
        self.next_poll = began + self.timing.poll_interval;
    }

    /// The result of a load was not taken. It is offered again, after a wait that doubles each time.
    pub fn handle_refused(&mut self, now: Instant) {
        let wait = self.again.map_or(FIRST_WAIT, |(_, wait)| (wait * 2).min(LONGEST_WAIT));
        self.again = Some((now + wait, wait));
    }

    /// The result of a load was taken.
    pub fn handle_taken(&mut self) {
        self.again = None;
    }

    /// A walk without a load is done.
    pub fn handle_polled(&mut self, now: Instant) {
        self.next_poll = now + self.timing.poll_interval;
    }

    /// The step to take at `now`.
    #[must_use]
    pub fn poll_step(&self, now: Instant) -> Step {
        let is_quiet = self.quiet_at().is_none_or(|quiet| quiet <= now);
        let is_again = self.again.is_some_and(|(at, _)| at <= now);
        if self.is_asked || is_again || self.load_at().is_some_and(|due| due <= now) {
            return Step::Load(if is_quiet { Removals::Due } else { Removals::Postponed });
        }
        if self.postpones_removals && is_quiet {
            return Step::Load(Removals::Due);
        }
        if self.next_poll <= now { Step::Poll } else { Step::Wait }
    }

    /// When to ask for a step again if nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let quiet = self.quiet_at().filter(|_| self.postpones_removals);
        [self.load_at(), quiet, self.again.map(|(at, _)| at)]
            .into_iter()
            .flatten()
            .fold(self.next_poll, Instant::min)
    }

    /// Returns `true` if removals of missing objects still wait.
    #[must_use]
    pub fn postpones_removals(&self) -> bool {
        self.postpones_removals
    }

    fn load_at(&self) -> Option<Instant> {
        let (first, last) = (self.first_event?, self.last_event?);
        Some((last + self.timing.debounce).min(first + self.timing.max_delay))
    }

    fn quiet_at(&self) -> Option<Instant> {
        self.last_event.map(|last| last + self.timing.removal_quiet)
    }
}

/// How long after a failure a load is offered again: a store that could not be read may be readable by then.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest time between two such offers.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Runs a pace through events at the given milliseconds, with loads that take no time and hold removals or not; returns
    /// the times and kinds of the loads, without the first one.
    fn loads(events: &[u64], until: u64, postpones_removals: bool) -> Vec<(u64, Removals)> {
        let start = Instant::now();
        let at = |n| start + millis(n);
        let mut pace = Pace::new(Timing::with_poll_interval(millis(5000)), start);
        assert_eq!(pace.poll_step(start), Step::Load(Removals::Due));
        pace.handle_loaded(start, false);
        let mut loads = Vec::new();
        for now in 1..=until {
            if events.contains(&now) {
                pace.handle_event(at(now));
            }
            match pace.poll_step(at(now)) {
                Step::Load(removals) => {
                    loads.push((now, removals));
                    pace.handle_loaded(at(now), postpones_removals && removals == Removals::Postponed);
                }
                Step::Poll => pace.handle_polled(at(now)),
                Step::Wait => assert!(pace.deadline() > at(now), "at {now}"),
            }
        }
        loads
    }

    #[test]
    fn a_change_is_loaded_after_a_quiet_of_100_ms() {
        assert_eq!(loads(&[10], 3000, false), [(110, Removals::Postponed)]);
        assert_eq!(loads(&[10, 60, 150], 3000, false), [(250, Removals::Postponed)]);
    }

    #[test]
    fn pitfall_73_continuous_writes_are_loaded_every_second() {
        let events: Vec<u64> = (1..=5000).step_by(10).collect();
        let times: Vec<u64> = loads(&events, 6000, false).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times.len(), 5, "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 1100), "{times:?}");
    }

    #[test]
    fn pitfall_73_500_files_in_300_ms_are_one_load() {
        let events: Vec<u64> = (1..=300).collect();
        assert_eq!(loads(&events, 3000, false), [(400, Removals::Postponed)]);
    }

    #[test]
    fn what_is_missing_goes_after_two_quiet_seconds() {
        assert_eq!(loads(&[10], 3000, true), [(110, Removals::Postponed), (2010, Removals::Due)]);
        // An event within them starts them anew.
        let expected = [(110, Removals::Postponed), (2009, Removals::Postponed), (3909, Removals::Due)];
        assert_eq!(loads(&[10, 1909], 5000, true), expected);
    }

    #[test]
    fn a_slow_pull_never_makes_removals_due() {
        let events: Vec<u64> = (1..=60_000).step_by(1500).collect();
        let due: Vec<_> =
            loads(&events, 60_000, true).into_iter().filter(|(_, kind)| *kind == Removals::Due).collect();
        assert_eq!(due, []);
    }

    #[test]
    fn a_request_is_answered_now_and_still_holds_what_is_too_young() {
        let start = Instant::now();
        let mut pace = Pace::new(Timing::with_poll_interval(millis(5000)), start);
        pace.handle_loaded(start, false);
        pace.handle_event(start + millis(10));
        pace.handle_request();
        assert_eq!(pace.poll_step(start + millis(11)), Step::Load(Removals::Postponed));
        pace.handle_loaded(start + millis(11), true);
        assert_eq!(pace.deadline(), start + millis(2010));
    }

    #[test]
    fn what_is_not_taken_is_offered_again_and_again() {
        let start = Instant::now();
        let mut pace = Pace::new(Timing::with_poll_interval(millis(1_000_000)), start);
        let mut now = start;
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            pace.handle_loaded(now, false);
            pace.handle_refused(now);
            assert_eq!(pace.deadline(), now + Duration::from_secs(wait));
            assert_eq!(pace.poll_step(now), Step::Wait);
            now = pace.deadline();
            assert_eq!(pace.poll_step(now), Step::Load(Removals::Due));
        }
        pace.handle_loaded(now, false);
        pace.handle_taken();
        assert_eq!(pace.poll_step(now), Step::Wait);
        assert_eq!(pace.deadline(), now + millis(1_000_000));
    }

    #[test]
    fn an_event_during_a_load_is_not_lost() {
        let start = Instant::now();
        let mut pace = Pace::new(Timing::with_poll_interval(millis(5000)), start);
        pace.handle_event(start + millis(50));
        pace.handle_loaded(start, false);
        assert_eq!(pace.deadline(), start + millis(150));
    }

    proptest! {
        #[test]
        fn no_event_is_left_without_a_load(events in proptest::collection::btree_set(1_u64..8000, 0..40)) {
            let events: Vec<u64> = events.into_iter().collect();
            let loads = loads(&events, 12_000, true);
            for event in &events {
                let next = loads.iter().find(|(at, _)| at >= event).map(|(at, _)| *at);
                prop_assert!(next.is_some_and(|at| at - event <= 1000), "{event} in {loads:?}");
            }
            for (at, removals) in &loads {
                let is_quiet = events.iter().all(|event| event > at || at - event >= 2000);
                prop_assert_eq!(is_quiet, *removals == Removals::Due);
            }
        }
    }
}
