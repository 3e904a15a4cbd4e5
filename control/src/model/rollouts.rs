//! The records of rollouts, the rules that they own, and the weights that they give these rules.
//!
//! [`xds_rollout`] computes how a rollout moves, and the server drives it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xds_codec::weights::{HeaderCondition, HeaderRoute, HeaderText};
use xds_rollout::{HeaderMatch, HeaderValue, Rollout, RolloutSpec};

use super::weights::change::WeightChange;
use super::weights::{RuleKey, WeightedObject};

/// The record of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// The rollout.
    pub rollout: Rollout,
    /// The weights of the rule's object at the last look; a difference shows that somebody changed them.
    pub source: BTreeMap<String, u64>,
}

/// The rollouts that are kept, by id.
pub type RolloutRecords = BTreeMap<String, Arc<RolloutRecord>>;

/// New states of rollouts; `None` takes one away.
pub(crate) type RolloutPatch = BTreeMap<String, Option<Arc<RolloutRecord>>>;

/// Steps of rollouts, by id.
pub type RolloutSteps = BTreeMap<String, RolloutStep>;

/// A step of a rollout, from the stored state that it was computed from. If another one is stored by then, the step is not done.
#[derive(Clone, Debug)]
pub struct RolloutStep {
    /// The state that is stored; `None` for a rollout that begins.
    pub before: Option<Arc<RolloutRecord>>,
    /// The state after it; `None` takes the rollout away.
    pub after: Option<Arc<RolloutRecord>>,
}

impl RolloutRecord {
    /// The rule that it owns; `None` if it has ended.
    #[must_use]
    pub fn owned_rule(&self) -> Option<RuleKey> {
        self.rollout.owns_rule().then(|| rule_key(&self.rollout.spec().route).ok()).flatten()
    }
}

/// The id of the rollout that owns a rule.
#[must_use]
pub fn owner_of<'r>(records: &'r RolloutRecords, key: &RuleKey) -> Option<&'r str> {
    let owns = |record: &RolloutRecord| record.owned_rule().as_ref() == Some(key);
    records.iter().find(|(_, record)| owns(record)).map(|(id, _)| id.as_str())
}

/// The rule that a rollout names.
///
/// # Errors
///
/// Explains why there is no such rule.
pub fn rule_key(rule: &xds_rollout::RuleKey) -> Result<RuleKey, String> {
    let object = WeightedObject::parse(&rule.kind, &rule.namespace, &rule.name)?;
    Ok(RuleKey { object, rule: rule.rule.as_str().into() })
}

/// The weights that a rollout lays over its rule.
#[must_use]
pub fn weight_change(
    spec: &RolloutSpec,
    weights: &BTreeMap<String, u32>,
    header_routes: &BTreeMap<String, Vec<HeaderMatch>>,
) -> WeightChange {
    let condition = |one: &HeaderMatch| HeaderCondition {
        name: one.header_name.clone(),
        value: match &one.header_value {
            HeaderValue::Exact(text) => HeaderText::Exact(text.clone()),
            HeaderValue::Regex(regex) => HeaderText::Regex(regex.clone()),
            HeaderValue::Prefix(prefix) => HeaderText::Regex(format!("{}.*", regex::escape(prefix))),
        },
    };
    let header_route = |(name, matches): (&String, &Vec<HeaderMatch>)| HeaderRoute {
        name: name.clone(),
        headers: matches.iter().map(condition).collect(),
        backend: spec.canary.clone(),
    };
    WeightChange {
        forgets: true,
        pins: true,
        backends: weights.iter().map(|(key, weight)| (key.clone(), Some(*weight))).collect(),
        expires: Some(None),
        header_routes: Some(header_routes.iter().map(header_route).collect()),
        ..WeightChange::default()
    }
}
