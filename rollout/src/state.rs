//! The state of a rollout: a value that is stored. All effects follow from it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::distribution::Distribution;
use crate::effect::{Counts, Event};
use crate::phase::Phase;
use crate::spec::{HeaderMatch, RolloutSpec};
use xds_units::{Percent, Span};

/// A rollout.
///
/// [`handle`](Self::handle) takes an input and returns the wanted effects; the [crate] page explains how to drive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    pub(crate) id: String,
    pub(crate) spec: RolloutSpec,
    pub(crate) base: Distribution,
    /// The current step; [`RolloutSpec::n_steps`] when everything goes to the canary.
    pub(crate) step: usize,
    pub(crate) stage: Stage,
    /// Why it does not continue although its stage may be done.
    pub(crate) hold: Option<Hold>,
    /// True if the stage counts as done, because someone said so or its time is over.
    pub(crate) is_skipped: bool,
    /// The canary's share.
    pub(crate) canary: Percent,
    pub(crate) header_routes: BTreeMap<String, Vec<HeaderMatch>>,
    /// The number of the last change of weights or header routes.
    pub(crate) change: u64,
    pub(crate) acks: Acks,
    pub(crate) clock: Clock,
    /// Total time at which the stage began.
    pub(crate) stage_began: u64,
    /// When the stage began, in milliseconds since 1970; to be shown.
    pub(crate) since_ms: u64,
    pub(crate) run: Option<Run>,
    /// When it began, in milliseconds since 1970; 0 in records of earlier releases.
    #[serde(default)]
    pub(crate) began_ms: u64,
    /// Why the canary cannot answer by what is served, as last reported.
    #[serde(default)]
    pub(crate) no_endpoint: Option<String>,
    /// How many readings were tested so far: the more tests, the stronger the evidence must be.
    #[serde(default)]
    pub(crate) n_looks: u64,
    /// How many of them were measurements.
    #[serde(default)]
    pub(crate) n_measured: u64,
    /// Bad measurements so far.
    pub(crate) n_failed: u32,
    pub(crate) calls: Vec<Call>,
    /// Total time after which hooks of type `rollback` are called again.
    pub(crate) rollback_due: u64,
    /// The last number given to a call or measurement.
    pub(crate) last_id: u64,
    /// The one who aborted it.
    pub(crate) cause: Option<Cause>,
    /// Why it goes back to stable, or ended there.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// The requests of the last measurement that saw any.
    #[serde(default)]
    pub(crate) figures: Option<Figures>,
    /// The present state, in a sentence.
    pub(crate) message: String,
    pub(crate) events: VecDeque<Event>,
    pub(crate) n_events: u64,
}

/// The stage that a rollout is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Waits for webhooks that must say go.
    Confirming(Gate),
    /// Waits for the ACKs of the last change, so long.
    Applying(Span),
    /// A pause; `None` until someone resumes.
    Pausing(Option<Span>),
    /// Measures, until so many measurements are good.
    Analysing(u32),
    /// Everything goes back; waits for the ACKs of that.
    Aborting,
    /// There is nothing more to come.
    Ended(End),
}

/// The purpose of a call to webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gate {
    Rollout,
    PreRollout,
    TrafficIncrease,
    Promotion,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Succeeded,
    Aborted,
    Failed,
}

/// Why a rollout is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hold {
    Operator,
    Nacked,
    AckTimeout,
    Inconclusive,
    Promotion,
    Refused,
    /// Clients have gone with the change.
    Gone,
}

/// The one who aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// Somebody asked for it: it ends as Aborted.
    Operator,
    /// The rollout itself: it ends as Failed.
    Itself,
}

/// The clients' answers to the last change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acks {
    /// True if anything was said yet.
    pub(crate) is_known: bool,
    pub(crate) n: u64,
    pub(crate) of: u64,
    pub(crate) n_nacked: u64,
    /// NACKs that someone has seen, and resumed.
    pub(crate) n_forgiven: u64,
    /// Total time before which no set of answers counts as complete, because clients need time to reconnect.
    pub(crate) not_before: u64,
    /// Clients that have gone with this change.
    #[serde(default)]
    pub(crate) n_gone: u64,
    /// Those that someone has seen, and resumed.
    #[serde(default)]
    pub(crate) n_gone_forgiven: u64,
    /// Since when every client that may report requests divides them by this change, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) by_all_since_ms: Option<u64>,
}

/// Elapsed time, summed up from readings of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// The last reading of the wall clock, in milliseconds since 1970.
    pub(crate) wall_ms: u64,
    /// Milliseconds since the rollout began.
    pub(crate) total: u64,
}

/// The requests that a measurement saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// The counts of the canary.
    pub canary: Counts,
    /// The counts of stable.
    pub stable: Counts,
}

/// A running analysis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// True if it is a step's; else it is the one in the background.
    pub(crate) is_step: bool,
    /// Total time at which the next measurement is due.
    pub(crate) due: u64,
    /// Since when requests count, in milliseconds since 1970.
    pub(crate) window_ms: u64,
    /// The current measurement.
    pub(crate) measurement: Option<u64>,
    /// True once the measurement was good, and only the last reports are waited for.
    #[serde(default)]
    pub(crate) is_confirming: bool,
    /// A look before the measurement is due, which ends the rollout if everything fails.
    #[serde(default)]
    pub(crate) look: Option<u64>,
    /// Total time at which the next such look is due.
    #[serde(default)]
    pub(crate) look_due: u64,
    /// The verdict, while webhooks of the same round are still out.
    pub(crate) verdict: Option<crate::verdict::Verdict>,
    /// True if a webhook of this round did not approve.
    pub(crate) has_bad_hook: bool,
    pub(crate) n_good: u32,
    pub(crate) n_inconclusive: u32,
}

/// A webhook that is being called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: u64,
    /// The index of the hook.
    pub(crate) hook: usize,
    pub(crate) purpose: Purpose,
    /// How often it failed.
    pub(crate) n_failed: u32,
    /// Total time at which it was called; later than now while it waits to be called again.
    pub(crate) at: u64,
    pub(crate) is_out: bool,
    /// The phase that it reports.
    pub(crate) phase: Phase,
}

/// The purpose of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    Gate,
    Round,
    Rollback,
    Post,
    Event(Event),
}

impl Rollout {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The number of the current step, from 1.
    pub(crate) fn step_number(&self) -> usize {
        self.step.saturating_add(1)
    }

    /// When it began, in milliseconds since 1970; 0 if that was in an earlier release.
    #[must_use]
    pub fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// The canary's share.
    #[must_use]
    pub fn canary(&self) -> Percent {
        self.canary
    }

    /// The task of the rollout.
    #[must_use]
    pub fn spec(&self) -> &RolloutSpec {
        &self.spec
    }

    /// The last events, from the oldest; at most [`MAX_EVENTS`].
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Its phase, which follows from its state.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Ended(End::Succeeded) => Phase::Succeeded,
            Stage::Ended(End::Aborted) => Phase::Aborted,
            Stage::Ended(End::Failed) => Phase::Failed,
            Stage::Aborting => Phase::Aborting,
            Stage::Pausing(_) => Phase::Paused,
            Stage::Confirming(_) | Stage::Applying(_) | Stage::Analysing(_) if self.hold.is_some() => {
                Phase::Paused
            }
            Stage::Confirming(Gate::Rollout | Gate::PreRollout) => Phase::Pending,
            Stage::Confirming(_) | Stage::Applying(_) | Stage::Analysing(_) => {
                if self.step < self.spec.steps.len() { Phase::Progressing } else { Phase::Promoting }
            }
        }
    }

    /// Returns `true` if nothing more is to come or to be done.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Ended(_)) && self.calls.is_empty()
    }

    /// Returns `true` if it still owns the rule; then nobody else may change its weights.
    #[must_use]
    pub fn owns_rule(&self) -> bool {
        !matches!(self.stage, Stage::Ended(_))
    }

    /// Returns `true` if something other than its steps keeps it where it is.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Returns `true` if it has gone on since `before`: other requests go to the canary, and not because it goes back.
    #[must_use]
    pub fn has_gone_on(&self, before: &Self) -> bool {
        let is_on_its_way = self.owns_rule() && self.stage != Stage::Aborting;
        is_on_its_way && (self.canary, &self.header_routes) != (before.canary, &before.header_routes)
    }

    /// Returns `true` if the clients have accepted the last change, but for NACKs that are tolerated. Where there is no client, nobody has.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.acks.of > 0 && self.is_with_all()
    }

    /// Returns `true` if no client is known without the last change; there may be no client.
    pub(crate) fn is_with_all(&self) -> bool {
        let acks = &self.acks;
        let tolerated = acks.n_nacked.min(self.n_tolerated());
        acks.is_known && self.clock.total >= acks.not_before && acks.n.saturating_add(tolerated) >= acks.of
    }

    /// How many clients may go: in a large fleet, some machine always restarts.
    pub(crate) fn n_gone_tolerated(&self) -> u64 {
        let n_all = self.acks.of.saturating_add(self.acks.n_gone);
        (n_all / GONE_TOLERATED).max(self.acks.n_gone_forgiven)
    }

    /// How many NACKs do nothing.
    pub(crate) fn n_tolerated(&self) -> u64 {
        let share = u128::from(self.acks.of) * u128::from(self.spec.nack_tolerance.hundredths()) / 10_000;
        u64::try_from(share).unwrap_or(u64::MAX).max(self.acks.n_forgiven)
    }
}

impl Acks {
    /// Nothing is known of the answers; what someone has seen stays seen.
    pub(crate) fn anew(&self) -> Self {
        let Self { n_forgiven, n_gone_forgiven, not_before, .. } = *self;
        Self { n_forgiven, n_gone_forgiven, not_before, ..Self::default() }
    }
}

impl Run {
    /// One that has measured nothing.
    pub(crate) fn new(is_step: bool) -> Self {
        Self {
            is_step,
            due: 0,
            window_ms: 0,
            measurement: None,
            is_confirming: false,
            look: None,
            look_due: 0,
            verdict: None,
            has_bad_hook: false,
            n_good: 0,
            n_inconclusive: 0,
        }
    }
}

impl Clock {
    /// Takes the time of the wall clock; says whether it jumped.
    ///
    /// A clock that goes back adds nothing, and one that leaps ahead adds no more than the longest time between two ticks: a pause
    /// is never cut short by the clock.
    pub(crate) fn advance(&mut self, wall_ms: u64) -> bool {
        let passed = wall_ms.saturating_sub(self.wall_ms);
        // A clock that is put right by a little all the time does not jump.
        let jumped = self.wall_ms.saturating_sub(wall_ms) > SMALL_JUMP_MS || passed > MAX_TICK_MS;
        self.total = self.total.saturating_add(passed.min(MAX_TICK_MS));
        self.wall_ms = wall_ms;
        jumped
    }

    /// Takes the time after a restart: all of the time in between counts, because nobody could tick.
    pub(crate) fn advance_after_restart(&mut self, wall_ms: u64) {
        self.total = self.total.saturating_add(wall_ms.saturating_sub(self.wall_ms));
        self.wall_ms = wall_ms;
    }
}

/// One client of so many may go with a change, as after the first wave of a wave deployment.
const GONE_TOLERATED: u64 = 20;
/// How many events are kept.
pub const MAX_EVENTS: usize = 50;
/// The longest time that counts between two inputs without a restart. Twice that of [`MAX_WAKE_MS`].
pub const MAX_TICK_MS: u64 = 60_000;
/// How far a clock may go back unnoticed: after a restart, so much less counts.
const SMALL_JUMP_MS: u64 = 1_000;
/// The longest time until a rollout wants to be woken.
pub const MAX_WAKE_MS: u64 = 30_000;
