//! The transitions between stages.

use crate::effect::EventKind;
use crate::spec::{HookKind, Step};
use crate::state::{Acks, Cause, End, Gate, Hold, Rollout, Stage};
use xds_units::{Percent, Span};

impl Rollout {
    /// From the very beginning, with everything at stable.
    pub(crate) fn begin(&mut self, said: &str) {
        self.step = 0;
        self.canary = Percent::NONE;
        self.header_routes.clear();
        self.hold = None;
        self.cause = None;
        self.reason = None;
        self.figures = None;
        self.n_failed = 0;
        (self.n_looks, self.n_measured) = (0, 0);
        self.began_ms = self.clock.wall_ms;
        self.clock.total = 0;
        self.acks = Acks::default();
        self.rollback_due = 0;
        self.renew_change();
        self.enter_gate(Gate::Rollout);
        self.emit(EventKind::Normal, said);
    }

    /// Enters the next stages as long as the stage is done and nothing holds it.
    pub(crate) fn go_on(&mut self) {
        while self.hold.is_none() && (self.is_skipped || self.is_done() && !self.awaits_evidence()) {
            self.next();
        }
        if self.hold.is_none() && self.is_done() && self.awaits_evidence() {
            WAITING.clone_into(&mut self.message);
        }
        self.ensure_run();
    }

    fn is_done(&self) -> bool {
        match self.stage {
            Stage::Confirming(_) => !self.has_gate_calls(),
            Stage::Applying(_) => self.is_verified(),
            Stage::Pausing(duration) => {
                duration.is_some_and(|duration| self.stage_elapsed() >= duration.millis())
            }
            Stage::Analysing(count) => {
                self.run.as_ref().is_some_and(|run| run.is_step && run.n_good >= count)
            }
            // Clients that never answer must not keep it from ending; the way back is published already.
            Stage::Aborting => {
                self.is_with_all() || self.acks.is_known && self.stage_elapsed() >= ABORT_ACK_MS
            }
            Stage::Ended(_) => false,
        }
    }

    /// Returns `true` if the next step would give the canary more, and the analysis in the background does not know enough for that: its
    /// last measurement said too little, or none was good yet and everything is to go to the canary.
    fn awaits_evidence(&self) -> bool {
        let Some(run) = self.run.as_ref().filter(|run| !run.is_step) else { return false };
        let is_wait = matches!(self.stage, Stage::Applying(_) | Stage::Pausing(_));
        let next = self.step + 1;
        if !is_wait || self.step >= self.spec.n_steps() {
            return false;
        }
        let gives_more = match self.spec.step(next) {
            Some(Step::SetWeight { weight, .. }) => *weight > self.canary,
            Some(_) => false,
            None => self.canary < Percent::ALL,
        };
        let is_promotion = next >= self.spec.steps.len();
        (gives_more || is_promotion) && (run.n_inconclusive > 0 || is_promotion && run.n_good == 0)
    }

    fn next(&mut self) {
        self.is_skipped = false;
        match self.stage {
            Stage::Confirming(Gate::Rollout) => self.enter_gate(Gate::PreRollout),
            Stage::Confirming(Gate::PreRollout) => self.enter(0),
            Stage::Confirming(Gate::TrafficIncrease) => self.apply_step_weight(),
            Stage::Confirming(Gate::Promotion) => self.run_step(),
            Stage::Applying(_) | Stage::Pausing(_) | Stage::Analysing(_) => {
                if self.step >= self.spec.n_steps() {
                    self.end(End::Succeeded, "the canary has all traffic");
                } else {
                    self.enter(self.step + 1);
                }
            }
            Stage::Aborting => self.end_abort(),
            Stage::Ended(_) => {}
        }
    }

    fn set_stage(&mut self, stage: Stage) {
        if self.run.as_ref().is_some_and(|run| run.is_step) {
            self.run = None;
        }
        self.stage = stage;
        self.is_skipped = false;
        self.stage_began = self.clock.total;
        self.since_ms = self.clock.wall_ms;
    }

    fn enter_gate(&mut self, gate: Gate) {
        self.set_stage(Stage::Confirming(gate));
        self.call_gate(gate);
    }

    /// Begins the step of an index; the promotion begins behind the last of the steps before it.
    fn enter(&mut self, step: usize) {
        self.step = step;
        if step != self.spec.steps.len() {
            self.run_step();
            return;
        }
        self.enter_gate(Gate::Promotion);
        if !self.spec.auto_promote {
            self.hold(Hold::Promotion, "all steps are done; resume or promote gives the canary all traffic");
        }
    }

    fn run_step(&mut self) {
        match self.spec.step(self.step).cloned() {
            None => self.apply_step_weight(),
            Some(Step::SetWeight { weight, .. }) => {
                let asks = self.spec.hooks(HookKind::ConfirmTrafficIncrease).next().is_some();
                if asks && weight > self.canary {
                    self.enter_gate(Gate::TrafficIncrease);
                } else {
                    self.apply_step_weight();
                }
            }
            Some(Step::Pause { duration }) => {
                self.set_stage(Stage::Pausing(duration));
                let said =
                    duration.map_or_else(|| "until someone resumes".to_owned(), |d| format!("for {d}"));
                self.emit(EventKind::Normal, &format!("step {}: pause {said}", self.step_number()));
            }
            Some(Step::Analysis(analysis)) => {
                self.set_stage(Stage::Analysing(analysis.count));
                self.emit(EventKind::Normal, &format!("step {}: analysis", self.step_number()));
                self.ensure_run();
            }
            Some(Step::WaitAck { timeout }) => {
                self.set_stage(Stage::Applying(timeout));
                self.emit(EventKind::Normal, &format!("step {}: waiting for ACKs", self.step_number()));
            }
            Some(Step::SetHeaderRoute { name, matches }) => {
                let said = format!("step {}: header route {name:?}", self.step_number());
                if matches.is_empty() {
                    self.header_routes.remove(&name);
                } else {
                    self.header_routes.insert(name, matches);
                }
                self.apply(self.canary, self.spec.wait_ack, &said);
            }
        }
    }

    /// The weight of the step, or everything behind the last one.
    fn apply_step_weight(&mut self) {
        let (weight, wait_ack) = match self.spec.step(self.step) {
            Some(Step::SetWeight { weight, wait_ack }) => (*weight, wait_ack.unwrap_or(self.spec.wait_ack)),
            Some(_) => (self.canary, self.spec.wait_ack),
            None => {
                self.header_routes.clear();
                (Percent::ALL, self.spec.wait_ack)
            }
        };
        self.apply(weight, wait_ack, &format!("step {}: {weight} to the canary", self.step_number()));
    }

    fn apply(&mut self, weight: Percent, wait_ack: Span, said: &str) {
        if weight > Percent::NONE && self.abort_without_endpoint() {
            return;
        }
        self.canary = weight;
        self.renew_change();
        self.set_stage(Stage::Applying(wait_ack));
        self.emit(EventKind::Normal, said);
    }

    /// The wanted state of the rule changed; ACKs count from here on.
    pub(crate) fn renew_change(&mut self) {
        self.change += 1;
        self.acks = Acks { not_before: self.acks.not_before, ..Acks::default() };
    }

    /// All at once to the canary, whatever was to come before.
    pub(crate) fn promote_fully(&mut self) {
        self.drop_calls_of_stage();
        self.hold = None;
        self.step = self.spec.n_steps();
        self.apply_step_weight();
    }

    /// Everything back to stable, in one change.
    pub(crate) fn abort(&mut self, cause: Cause, said: &str) {
        if matches!(self.stage, Stage::Aborting | Stage::Ended(_)) {
            return;
        }
        self.drop_calls_of_stage();
        self.run = None;
        self.hold = None;
        self.cause = Some(cause);
        self.reason = Some(said.to_owned());
        self.canary = Percent::NONE;
        self.header_routes.clear();
        self.renew_change();
        self.set_stage(Stage::Aborting);
        self.emit(EventKind::Warning, &format!("aborting: {said}"));
    }

    fn end_abort(&mut self) {
        let (end, said) = match self.cause {
            Some(Cause::Operator) | None => (End::Aborted, "aborted"),
            Some(Cause::Itself) => (End::Failed, "failed"),
        };
        let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let late = self.acks.of.saturating_sub(self.acks.n);
        let said = match late {
            0 => format!("{said}{why}; stable has all traffic"),
            _ => format!(
                "{said}{why}; stable has all traffic; {late} of {} clients have not ACKed it",
                self.acks.of
            ),
        };
        self.end(end, &said);
    }

    /// The end of a rollout whose rule someone else has taken over.
    pub(crate) fn end_taken(&mut self) {
        self.drop_calls_of_stage();
        self.canary = Percent::NONE;
        self.header_routes.clear();
        self.cause = Some(Cause::Operator);
        self.reason = Some("the weights were changed by hand".to_owned());
        self.end(End::Aborted, "aborted: the weights were changed by hand");
    }

    /// The end of a rollout whose rule can no longer be changed.
    pub(crate) fn end_without_rule(&mut self, said: &str) {
        self.drop_calls_of_stage();
        self.canary = Percent::NONE;
        self.header_routes.clear();
        self.reason = Some(said.to_owned());
        self.end(End::Failed, said);
    }

    fn end(&mut self, end: End, said: &str) {
        self.run = None;
        self.hold = None;
        self.set_stage(Stage::Ended(end));
        self.call_post_hooks();
        let kind = if end == End::Succeeded { EventKind::Normal } else { EventKind::Warning };
        self.emit(kind, said);
    }
}

/// The message while the canary must not have more yet.
const WAITING: &str = "waiting for a good measurement before the canary gets more";
/// How long an abort waits for the last clients before it counts as done.
pub(crate) const ABORT_ACK_MS: u64 = 30_000;
