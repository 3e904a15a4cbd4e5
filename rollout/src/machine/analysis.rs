//! Measurements in rounds: each is one reading of the canary, and the answers of the webhooks that are called with it.

use crate::effect::{EventKind, Reading};
use crate::evidence::Expected;
use crate::judge::{hopeless, judge};
use crate::spec::{Analysis, HookKind, Policy, Step};
use crate::state::{Cause, Figures, Hold, Purpose, Rollout, Run, Stage};
use crate::verdict::Verdict;
use xds_units::Percent;

impl Rollout {
    /// Begins or ends an analysis, as the stage requires.
    pub(crate) fn ensure_run(&mut self) {
        let is_step = matches!(self.stage, Stage::Analysing(_));
        let is_over = matches!(self.stage, Stage::Aborting | Stage::Ended(_));
        let in_background = self.spec.analysis.is_some() && self.canary > Percent::NONE && !is_over;
        let wanted = if is_step || in_background { Some(is_step) } else { None };
        if wanted == self.run.as_ref().map(|run| run.is_step) {
            return;
        }
        self.calls.retain(|call| call.purpose != Purpose::Round);
        self.run = wanted.map(Run::new);
        self.restart_run();
    }

    /// Starts to collect again: counts from before a restart are gone.
    pub(crate) fn restart_run(&mut self) {
        let Some(interval) = self.analysis().map(|analysis| analysis.interval.millis()) else { return };
        self.calls.retain(|call| call.purpose != Purpose::Round);
        let (total, wall_ms) = (self.clock.total, self.clock.wall_ms);
        let Some(run) = &mut self.run else { return };
        run.due = total.saturating_add(interval);
        run.window_ms = wall_ms;
        run.measurement = None;
        run.is_confirming = false;
        (run.look, run.look_due) = (None, total.saturating_add(LOOK_MS));
        run.verdict = None;
        run.has_bad_hook = false;
    }

    /// The analysis that is under way.
    pub(crate) fn analysis(&self) -> Option<&Analysis> {
        if !self.run.as_ref()?.is_step {
            return self.spec.analysis.as_ref();
        }
        match self.spec.step(self.step)? {
            Step::Analysis(analysis) => Some(analysis),
            Step::SetWeight { .. }
            | Step::Pause { .. }
            | Step::WaitAck { .. }
            | Step::SetHeaderRoute { .. } => None,
        }
    }

    /// Begins the round that is due, and gives up a measurement that never completed.
    pub(crate) fn look_at_run(&mut self) {
        let total = self.clock.total;
        let Some(run) = &self.run else { return };
        if run.measurement.is_some() && total >= run.due.saturating_add(MEASURE_MS) {
            self.conclude_measurement(Verdict::Inconclusive("the measurement was not answered".to_owned()));
            return;
        }
        if run.measurement.is_some() || run.verdict.is_some() {
            return;
        }
        if total < run.due {
            self.look_early();
            return;
        }
        let is_confirming = run.is_confirming;
        let id = self.next_id();
        if let Some(run) = &mut self.run {
            run.measurement = Some(id);
            run.look = None;
            run.due = total;
        }
        if !is_confirming {
            self.call_all(HookKind::Rollout, &Purpose::Round);
        }
    }

    /// Looks at the requests so far, before the measurement is due.
    fn look_early(&mut self) {
        let total = self.clock.total;
        if self.run.as_ref().is_none_or(|run| total < run.look_due) {
            return;
        }
        let id = self.next_id();
        if let Some(run) = &mut self.run {
            run.look = Some(id);
            run.look_due = total.saturating_add(LOOK_MS);
        }
    }

    /// Judges a measurement. A hopeless canary ends the rollout at once, however many bad measurements are allowed. An early look can do
    /// nothing else.
    pub(crate) fn handle_reading(&mut self, measurement: u64, reading: &Reading) {
        let Some(run) = &mut self.run else { return };
        let is_look = run.look == Some(measurement);
        if is_look {
            run.look = None;
        } else if run.measurement != Some(measurement) {
            return;
        }
        self.n_looks = self.n_looks.saturating_add(1);
        self.n_measured = self.n_measured.saturating_add(u64::from(!is_look));
        let expected = Expected {
            share: self.canary,
            since_ms: self.acks.by_all_since_ms,
            now_ms: self.clock.wall_ms,
            n_looks: self.n_looks,
            n_measured: self.n_measured,
        };
        let Some(analysis) = self.analysis() else { return };
        let is_hopeless = hopeless(analysis, reading, &expected);
        let verdict = if is_look { None } else { Some(judge(analysis, reading, &expected)) };
        let whole = reading.whole();
        if whole.canary.counts.requests > 0 {
            self.figures = Some(Figures { canary: whole.canary.counts, stable: whole.stable.counts });
        }
        match (is_hopeless, verdict) {
            (Some(reason), _) => self.abort(Cause::Itself, &reason),
            (None, Some(Verdict::Good)) if self.awaits_last_reports(reading.report_ms) => {}
            (None, Some(verdict)) => self.conclude_measurement(verdict),
            (None, None) => {}
        }
    }

    /// A measurement that is good is taken once more when the reports about its end are in: a canary that has just died looks good in all
    /// earlier ones. Returns `true` if these are still to come.
    fn awaits_last_reports(&mut self, report_ms: u64) -> bool {
        let total = self.clock.total;
        let Some(run) = &mut self.run else { return false };
        if run.is_confirming || report_ms == 0 {
            return false;
        }
        run.is_confirming = true;
        run.measurement = None;
        run.due = total.saturating_add(report_ms);
        true
    }

    fn conclude_measurement(&mut self, verdict: Verdict) {
        if let Some(run) = &mut self.run {
            run.measurement = None;
            run.is_confirming = false;
            run.verdict = Some(verdict);
        }
        self.conclude_round();
    }

    /// A hook of the round did not approve.
    pub(crate) fn spoil_round(&mut self, reason: &str) {
        if let Some(run) = &mut self.run {
            run.has_bad_hook = true;
        }
        self.emit(EventKind::Warning, reason);
        self.conclude_round();
    }

    /// Counts the round if all of it is in.
    pub(crate) fn conclude_round(&mut self) {
        if self.calls.iter().any(|call| call.purpose == Purpose::Round) {
            return;
        }
        let Some(analysis) = self.analysis() else { return };
        let (interval, bad_limit, doubt_limit) =
            (analysis.interval.millis(), analysis.failure_limit, analysis.inconclusive_limit);
        let (total, wall_ms) = (self.clock.total, self.clock.wall_ms);
        let Some(run) = &mut self.run else { return };
        let Some(verdict) = run.verdict.take() else { return };
        let verdict = match verdict {
            Verdict::Good | Verdict::Inconclusive(_) if run.has_bad_hook => {
                Verdict::Bad("a webhook did not approve".to_owned())
            }
            Verdict::Good | Verdict::Bad(_) | Verdict::Inconclusive(_) => verdict,
        };
        run.has_bad_hook = false;
        run.due = total.saturating_add(interval);
        match verdict {
            Verdict::Good => {
                run.n_good = run.n_good.saturating_add(1);
                run.n_inconclusive = 0;
                run.window_ms = wall_ms;
            }
            Verdict::Bad(reason) => {
                run.n_inconclusive = 0;
                run.window_ms = wall_ms;
                self.count_bad(bad_limit, &reason);
            }
            // Too few requests are counted on, until they are enough.
            Verdict::Inconclusive(reason) => {
                run.n_inconclusive = run.n_inconclusive.saturating_add(1);
                let is_enough = run.n_inconclusive > doubt_limit;
                if !is_enough {
                    return;
                }
                match self.spec.on_inconclusive {
                    Policy::Abort => self.abort(Cause::Itself, &format!("too little is known: {reason}")),
                    Policy::Pause if self.hold.is_none() && self.stage != Stage::Pausing(None) => {
                        self.hold(Hold::Inconclusive, &reason);
                    }
                    Policy::Pause => {}
                }
            }
        }
    }

    fn count_bad(&mut self, limit: u32, reason: &str) {
        self.n_failed = self.n_failed.saturating_add(1);
        let n_failed = self.n_failed;
        if n_failed > limit {
            self.abort(Cause::Itself, reason);
            return;
        }
        self.emit(EventKind::Warning, &format!("bad measurement {n_failed}; {limit} are allowed: {reason}"));
    }

    pub(crate) fn forgive_inconclusive(&mut self) {
        if let Some(run) = &mut self.run {
            run.n_inconclusive = 0;
        }
    }
}

/// How often requests are looked at before a measurement is due: clients report every few seconds.
const LOOK_MS: u64 = 2_000;
/// How long a measurement may take; it is a look at counters, or one query.
const MEASURE_MS: u64 = 60_000;
