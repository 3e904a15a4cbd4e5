//! The specification of a rollout. A [`RolloutSpec`] that exists is valid.

mod analysis;
mod hook;
mod read;
mod short;
mod step;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::SpecFault;
use xds_units::{Percent, Span};

pub use analysis::{Analysis, Prometheus};
pub use hook::{Hook, HookKind};
pub use step::{HeaderMatch, HeaderValue, Step};

/// The specification of a rollout: in its long form, with every default filled in.
///
/// Serialising gives the long form as the REST API takes it; deserialising checks everything again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", rename_all = "camelCase")]
pub struct RolloutSpec {
    /// The rule whose weights are moved.
    pub route: RuleKey,
    /// The backend that has the traffic at the beginning, as the weights API names it.
    pub stable: String,
    /// The backend that has the traffic at the end; not the stable one.
    pub canary: String,
    /// The steps before promotion; at least one, and with the promotion's at most [`MAX_STEPS`].
    pub steps: Vec<Step>,
    /// The steps of the promotion, before everything goes to the canary; may be empty.
    pub promotion_steps: Vec<Step>,
    /// True if promotion follows the last step automatically.
    pub auto_promote: bool,
    /// The largest share of the canary before promotion; no step goes beyond it.
    pub max_weight: Percent,
    /// The effect of a NACK.
    pub on_nack: Policy,
    /// The share of the concerned clients whose NACK does nothing, so that one bad client does not stop the rollout (pitfall
    /// 79).
    pub nack_tolerance: Percent,
    /// How long a change waits for its ACKs unless its step says otherwise.
    pub wait_ack: Span,
    /// The effect of ACKs that do not come in that time.
    pub on_ack_timeout: AckTimeout,
    /// How long the whole may take, pauses included; then it aborts. `None` is for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// How often webhooks that say "not yet" are called again.
    pub interval: Span,
    /// The analysis that runs in the background while the canary has traffic and no step analyses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analysis: Option<Analysis>,
    /// What happens when too many measurements in a row are inconclusive: a pause, with the weights as they are, or an abort.
    pub on_inconclusive: Policy,
    /// The webhooks; names are unique.
    pub webhooks: Vec<Hook>,
}

/// One rule of one route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleKey {
    /// The kind of route, such as `HTTPRoute`.
    pub kind: String,
    /// Its namespace; the group for a raw RouteConfiguration.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The rule: its name or index.
    pub rule: String,
}

/// The reaction to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Policy {
    /// All traffic goes back.
    Abort,
    /// The rollout waits for a person.
    Pause,
}

/// The reaction to ACKs that do not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AckTimeout {
    /// All traffic goes back.
    Abort,
    /// The rollout waits for a person.
    Pause,
    /// The step counts all the same.
    Continue,
}

/// Why a rollout was refused: all of its faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rollout is not valid: {}", shown(faults))]
pub struct SpecError {
    /// The faults; never empty.
    pub faults: Vec<SpecFault>,
}

impl RolloutSpec {
    /// The step at an index that counts through steps and promotion; `None` behind the last one, where all goes to the canary.
    #[must_use]
    pub fn step(&self, index: usize) -> Option<&Step> {
        self.steps.iter().chain(&self.promotion_steps).nth(index)
    }

    /// How many steps there are before everything goes to the canary.
    #[must_use]
    pub fn n_steps(&self) -> usize {
        self.steps.len() + self.promotion_steps.len()
    }

    /// Every share that the canary may have.
    #[must_use]
    pub fn plan(&self) -> Vec<Percent> {
        let steps = self.steps.iter().chain(&self.promotion_steps);
        let weights = steps.filter_map(|step| match step {
            Step::SetWeight { weight, .. } => Some(*weight),
            Step::Pause { .. } | Step::Analysis(_) | Step::WaitAck { .. } | Step::SetHeaderRoute { .. } => {
                None
            }
        });
        [Percent::NONE, Percent::ALL].into_iter().chain(weights).collect()
    }

    /// The hooks of one kind, with their index.
    pub(crate) fn hooks(&self, kind: HookKind) -> impl Iterator<Item = usize> {
        self.webhooks.iter().enumerate().filter(move |(_, hook)| hook.kind == kind).map(|(index, _)| index)
    }

    /// A number that distinguishes specifications, for the `checksum` of Flagger's webhooks; FNV-1a of the long form.
    #[must_use]
    pub fn checksum(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }
}

impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.namespace, self.name, self.rule)
    }
}

fn shown(faults: &[SpecFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The most steps of a rollout: one for each percent.
pub const MAX_STEPS: usize = 100;
/// The most webhooks of a rollout.
pub const MAX_HOOKS: usize = 20;
