//! The verbs of a rollout, and the phases in which each is allowed.

use std::fmt;

use crate::effect::{EventKind, Verb};
use crate::phase::Phase;
use crate::state::{Cause, Hold, Rollout, Stage};

/// A verb that does not fit the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rollout that is {phase:?} cannot {verb}")]
pub struct IllegalTransition {
    /// The verb.
    pub verb: Verb,
    /// The phase of the rollout.
    pub phase: Phase,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Promote | Self::PromoteFull => "be promoted",
            Self::Abort => "be aborted",
            Self::Retry => "be retried",
        })
    }
}

impl Rollout {
    /// Returns `true` if a verb fits the phase. A verb without effect is not an error: asking twice does no harm.
    pub(crate) fn check(&self, verb: Verb) -> Result<(), IllegalTransition> {
        let phase = self.phase();
        let is_on_its_way =
            matches!(phase, Phase::Pending | Phase::Progressing | Phase::Paused | Phase::Promoting);
        let is_legal = match verb {
            Verb::Pause | Verb::Resume => is_on_its_way,
            Verb::Promote | Verb::PromoteFull => is_on_its_way || phase == Phase::Succeeded,
            Verb::Abort => phase != Phase::Succeeded,
            Verb::Retry => matches!(phase, Phase::Aborted | Phase::Failed),
        };
        if is_legal { Ok(()) } else { Err(IllegalTransition { verb, phase }) }
    }

    /// Does what [`check`](Self::check) has let pass.
    pub(crate) fn handle_verb(&mut self, verb: Verb) {
        match verb {
            Verb::Pause => self.pause(),
            Verb::Resume => self.resume(),
            Verb::Promote => self.promote(),
            Verb::PromoteFull if self.owns_rule() && !self.is_last() => {
                self.emit(EventKind::Normal, "promoted fully by hand");
                self.promote_fully();
            }
            Verb::PromoteFull => self.resume_last(),
            Verb::Abort => self.abort(Cause::Operator, "someone asked for it"),
            Verb::Retry => {
                self.calls.clear();
                self.begin("retried");
            }
        }
    }

    fn pause(&mut self) {
        let waits_already = self.stage == Stage::Pausing(None) || self.hold == Some(Hold::Operator);
        if !waits_already {
            // Whatever held it before, a person holds it now, and only a person can resume it.
            self.forgive();
            self.hold(Hold::Operator, "by hand");
        }
    }

    fn resume(&mut self) {
        match (self.hold, self.stage) {
            (None, Stage::Pausing(_)) => self.is_skipped = true,
            (None, _) => return,
            (Some(_), _) => self.forgive(),
        }
        self.hold = None;
        self.since_ms = self.clock.wall_ms;
        self.emit(EventKind::Normal, "resumed");
    }

    /// The reason why it stopped has been seen, and does not stop it again.
    fn forgive(&mut self) {
        match self.hold {
            Some(Hold::Nacked) => self.acks.n_forgiven = self.acks.n_nacked,
            Some(Hold::Gone) => self.acks.n_gone_forgiven = self.acks.n_gone,
            Some(Hold::AckTimeout) => self.is_skipped = true,
            Some(Hold::Inconclusive) => self.forgive_inconclusive(),
            Some(Hold::Operator | Hold::Promotion | Hold::Refused) | None => {}
        }
    }

    /// Skips the wait of the stage. The last stage cannot be skipped: success means that clients have ACKed.
    fn promote(&mut self) {
        if !self.owns_rule() {
            return;
        }
        if self.is_last() {
            self.resume_last();
            return;
        }
        self.forgive();
        self.hold = None;
        self.drop_calls_of_stage();
        self.is_skipped = true;
        self.emit(EventKind::Normal, "the step was skipped by hand");
    }

    fn resume_last(&mut self) {
        if self.hold.is_some() {
            self.resume();
        }
    }

    /// Returns `true` if all traffic is moving to the canary.
    fn is_last(&self) -> bool {
        self.step == self.spec.n_steps() && matches!(self.stage, Stage::Applying(_))
    }
}
