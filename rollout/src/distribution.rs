//! From the canary's share to the weights of a whole rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::RolloutSpec;
use xds_units::Percent;

/// The weights of a rule without the rollout, which moves traffic between two of its backends.
///
/// Stable and canary divide their common weight; every other backend keeps its share of the whole. Weights are whole numbers,
/// so all of them are multiplied by one factor, until the shares of all steps are whole: 1 and 0 become 95 and 5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Every backend but the two.
    others: BTreeMap<String, u32>,
    /// The share of stable and canary together; from 1.
    pair: u32,
    /// The factor of all weights while both backends may have traffic.
    scale: u32,
    /// True if the canary is still a backend of the rule.
    has_canary: bool,
}

/// Why weights of a rule cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    /// A backend of the rollout is not one of the rule.
    #[error("the rule has no backend {name:?}; it has {}", known.join(", "))]
    UnknownBackend {
        /// The one that is missing.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The rule sends nothing to either, so there is nothing to move.
    #[error("neither stable nor canary has a weight in the rule; give stable one")]
    NothingToMove,
    /// The steps' shares need weights beyond the limit.
    #[error("the shares of the steps need weights above {MAX_WEIGHT}; use smaller weights or rounder shares")]
    TooLarge,
}

impl Distribution {
    /// Takes the weights of the rule, by backend.
    ///
    /// # Errors
    ///
    /// If stable or canary are none of them, if both have no weight, or if weights would become too large.
    pub fn try_new(weights: &BTreeMap<String, u32>, spec: &RolloutSpec) -> Result<Self, DistributionError> {
        let weight = |name: &str| {
            let known = || weights.keys().cloned().collect();
            let weight = weights.get(name).copied();
            weight.ok_or_else(|| DistributionError::UnknownBackend { name: name.to_owned(), known: known() })
        };
        let pair = weight(&spec.stable)?.saturating_add(weight(&spec.canary)?);
        if pair == 0 {
            return Err(DistributionError::NothingToMove);
        }
        let is_other = |name: &String| *name != spec.stable && *name != spec.canary;
        let others: BTreeMap<String, u32> = weights
            .iter()
            .filter(|(name, _)| is_other(name))
            .map(|(name, weight)| (name.clone(), *weight))
            .collect();
        let is_whole = spec.plan().iter().all(|share| share.hundredths().is_multiple_of(100));
        let parts = if is_whole { 100 } else { 10_000 };
        let scale = parts / gcd(pair, parts);
        let largest = others.values().copied().chain([pair]).max().unwrap_or(pair);
        if u64::from(largest) * u64::from(scale) > u64::from(MAX_WEIGHT) {
            return Err(DistributionError::TooLarge);
        }
        Ok(Self { others, pair, scale, has_canary: true })
    }

    /// Updates the other backends of the rule when the two themselves can no longer be moved.
    ///
    /// Only nothing or everything may go to the canary after it.
    pub(crate) fn replace_others(&mut self, weights: &BTreeMap<String, u32>, spec: &RolloutSpec) {
        let is_other = |name: &String| *name != spec.stable && *name != spec.canary;
        let others = weights.iter().filter(|(name, _)| is_other(name));
        self.others = others.map(|(name, weight)| (name.clone(), *weight)).collect();
        self.scale = 1;
        self.has_canary = weights.contains_key(&spec.canary);
    }

    /// The weights of the whole rule if the canary has a share of their common weight.
    ///
    /// With nothing or everything at the canary, they are the rule's own numbers.
    #[must_use]
    pub fn weights(&self, spec: &RolloutSpec, share: Percent) -> BTreeMap<String, u32> {
        let is_mixed = share != Percent::NONE && share != Percent::ALL;
        let scale = if is_mixed { self.scale } else { 1 };
        let pair = u64::from(self.pair * scale);
        // Even by the scale: nothing is cut off.
        let canary = pair * u64::from(share.hundredths()) / u64::from(Percent::ALL.hundredths());
        let whole = |weight: u64| u32::try_from(weight).unwrap_or(MAX_WEIGHT);
        let mut weights: BTreeMap<String, u32> =
            self.others.iter().map(|(name, weight)| (name.clone(), weight * scale)).collect();
        weights.insert(spec.stable.clone(), whole(pair - canary));
        if self.has_canary {
            weights.insert(spec.canary.clone(), whole(canary));
        }
        weights
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest weight of the Gateway API.
const MAX_WEIGHT: u32 = 1_000_000;
