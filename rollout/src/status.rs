//! The status of a rollout, as users see it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::effect::Event;
use crate::phase::Phase;
use crate::spec::{Policy, RolloutSpec, RuleKey, Step};
use crate::state::{Figures, Rollout};
use xds_units::Percent;

/// A rollout as the REST API shows it, without its specification.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Its id.
    pub id: String,
    /// The rule whose weights it moves.
    #[schema(value_type = Object)]
    pub route: RuleKey,
    /// Where traffic comes from.
    pub stable: String,
    /// Where it goes.
    pub canary: String,
    /// The phase that it is in.
    pub phase: Phase,
    /// The current step, or the one at which it ended, from 1.
    pub step: usize,
    /// How many steps there are; the last one, which gives the canary everything, counts.
    pub n_steps: usize,
    /// The shares of the two backends in their common weight.
    pub weights: Shares,
    /// How the concerned clients took the last change.
    pub acked: AckCounts,
    /// True if all have accepted it, apart from tolerated NACKs.
    pub verified: bool,
    /// Bad measurements so far.
    pub failed_measurements: u32,
    /// The state, in a sentence.
    pub message: String,
    /// Why it goes back to stable, or ended there; absent as long as nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The requests of the last measurement that saw any of the canary; also after the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_measurement: Option<Figures>,
    /// What happens to measurements that say too little; absent without an analysis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inconclusive: Option<String>,
    /// Since when it is in this stage, in milliseconds since 1970.
    pub since_ms: u64,
    /// For how long it has been running, in milliseconds.
    pub elapsed_ms: u64,
    /// The last events, oldest first.
    pub events: Vec<Event>,
}

/// Shares in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Shares {
    /// The share of the stable backend.
    #[schema(value_type = f64)]
    pub stable: Percent,
    /// The share of the canary.
    #[schema(value_type = f64)]
    pub canary: Percent,
}

/// Counts of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AckCounts {
    /// How many have accepted.
    pub n: u64,
    /// How many are concerned.
    pub of: u64,
    /// How many have rejected.
    pub nacked: u64,
}

/// What happens to measurements that say too little.
fn when_inconclusive(spec: &RolloutSpec) -> Option<String> {
    let steps = spec.steps.iter().chain(&spec.promotion_steps);
    let analyses = steps.filter_map(|step| match step {
        Step::Analysis(analysis) => Some(analysis),
        Step::SetWeight { .. } | Step::Pause { .. } | Step::WaitAck { .. } | Step::SetHeaderRoute { .. } => {
            None
        }
    });
    let limit = analyses.chain(&spec.analysis).map(|analysis| analysis.inconclusive_limit).min()?;
    let end = match spec.on_inconclusive {
        Policy::Pause => "pauses, and the weights stay as they are (onInconclusive: pause)",
        Policy::Abort => "aborts (onInconclusive: abort)",
    };
    Some(format!(
        "the canary gets no more while a measurement is inconclusive; after more than {limit} in a row the rollout {end}"
    ))
}

impl From<&Rollout> for RolloutStatus {
    fn from(rollout: &Rollout) -> Self {
        let (spec, acks) = (&rollout.spec, &rollout.acks);
        Self {
            id: rollout.id.clone(),
            route: spec.route.clone(),
            stable: spec.stable.clone(),
            canary: spec.canary.clone(),
            phase: rollout.phase(),
            step: rollout.step_number(),
            n_steps: spec.n_steps().saturating_add(1),
            weights: Shares { stable: rollout.canary.rest(), canary: rollout.canary },
            acked: AckCounts { n: acks.n, of: acks.of, nacked: acks.n_nacked },
            verified: rollout.is_verified(),
            failed_measurements: rollout.n_failed,
            message: rollout.message.clone(),
            reason: rollout.reason.clone(),
            last_measurement: rollout.figures,
            inconclusive: when_inconclusive(spec),
            since_ms: rollout.since_ms,
            elapsed_ms: rollout.clock.total,
            events: rollout.events.iter().cloned().collect(),
        }
    }
}
