//! The results of an experiment.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use xds_tests::transitions::Transition;

use crate::hitless::experiment::Experiment;

/// A transition, or several in a row.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) transitions: Vec<Transition>,
    /// From the last publication to the last ACK.
    pub(crate) acked: Duration,
    pub(crate) n_requests: u64,
    pub(crate) n_failed: u64,
    /// Requests whose failure the server cannot prevent; not counted as failed.
    pub(crate) n_failed_by_itself: u64,
    pub(crate) n_misrouted: u64,
    /// The faults, by target.
    pub(crate) faults: Vec<String>,
}

impl Step {
    pub(crate) fn new(transitions: Vec<Transition>, acked: Duration) -> Self {
        let (n_requests, n_failed, n_failed_by_itself, n_misrouted) = (0, 0, 0, 0);
        Self { transitions, acked, n_requests, n_failed, n_failed_by_itself, n_misrouted, faults: Vec::new() }
    }
}

/// All steps of an experiment.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) experiment: Experiment,
    pub(crate) steps: Vec<Step>,
    pub(crate) n_requests: u64,
    pub(crate) n_failed: u64,
    pub(crate) n_misrouted: u64,
}

impl Report {
    pub(crate) fn new(experiment: Experiment) -> Self {
        Self { experiment, steps: Vec::new(), n_requests: 0, n_failed: 0, n_misrouted: 0 }
    }

    pub(crate) fn add(&mut self, step: Step) {
        self.n_requests += step.n_requests;
        self.n_failed += step.n_failed;
        self.n_misrouted += step.n_misrouted;
        self.steps.push(step);
    }

    pub(crate) fn n_transitions(&self) -> usize {
        self.steps.iter().map(|step| step.transitions.len()).sum()
    }

    /// Fails unless nothing was lost, and nothing waited for a grace, however busy the machine.
    pub(crate) fn judge(&self) -> Result<()> {
        let bad: Vec<_> = self.steps.iter().filter(|step| !step.faults.is_empty()).collect();
        ensure!(
            bad.is_empty(),
            "{} requests failed, {} went astray: {bad:#?}",
            self.n_failed,
            self.n_misrouted
        );
        self.judge_times(NO_GRACE)
    }

    /// Fails unless every kind of change was accepted within its phases and `more`, at least once.
    pub(crate) fn judge_times(&self, more: Duration) -> Result<()> {
        for (transition, (fastest, _)) in self.times() {
            let bound = self.bound(transition) + more;
            ensure!(fastest <= bound, "{transition:?} was accepted after {fastest:?} instead of {bound:?}");
        }
        Ok(())
    }

    /// How long a change may take: less than if a phase took a round trip more.
    pub(crate) fn bound(&self, transition: Transition) -> Duration {
        let round_trip = 2 * self.experiment.each_way;
        let drains = self.experiment.client.drains(transition);
        let n_phases = self.experiment.client.n_phases(transition);
        n_phases * round_trip + round_trip.max(SLACK) + if drains { DRAINING } else { Duration::ZERO }
    }

    /// Prints a row of a table, and below it what each kind of change took from publication to the last ACK.
    #[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
    pub(crate) fn print(&self) {
        let Experiment { client, order, each_way, .. } = self.experiment;
        let n_by_itself: u64 = self.steps.iter().map(|step| step.n_failed_by_itself).sum();
        let n_bad = self.steps.iter().filter(|step| step.n_failed > 0).count();
        println!(
            "| {client} | {order} | {each_way:?} | {} transitions | {} requests | {} failed ({n_by_itself} more by the client itself) | {} astray | {n_bad} steps of {} |",
            self.n_transitions(),
            self.n_requests,
            self.n_failed,
            self.n_misrouted,
            self.steps.len(),
        );
        let times = self.times().into_iter();
        let times = times.map(|(of, (fastest, slowest))| {
            format!("{of:?} {}-{} ms", fastest.as_millis(), slowest.as_millis())
        });
        println!("  publication to last ACK: {}", times.collect::<Vec<_>>().join(", "));
    }

    /// The shortest and longest times of single transitions, by kind.
    fn times(&self) -> BTreeMap<Transition, (Duration, Duration)> {
        let mut times = BTreeMap::new();
        for step in &self.steps {
            if let [transition] = step.transitions[..] {
                let (fastest, slowest) = times.entry(transition).or_insert((step.acked, step.acked));
                *fastest = step.acked.min(*fastest);
                *slowest = step.acked.max(*slowest);
            }
        }
        times
    }
}

/// Less than the shortest wait for a client that does not answer.
const NO_GRACE: Duration = Duration::from_secs(4);
/// The time that the machine and the client need for themselves at least once, however near the server is.
const SLACK: Duration = Duration::from_millis(500);
/// How long an Envoy of these tests drains what was replaced.
const DRAINING: Duration = Duration::from_secs(2);
