//! Changes of the override of a rule by a write.

use std::collections::BTreeMap;

use xds_codec::weights::{HeaderRoute, MAX_SUM, Overlay, RuleWeights};
use xds_units::Percent;

use super::{RuleOverride, effective};

/// A write's change to the override of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightChange {
    /// True if the weights that are laid over the rule now go first.
    pub forgets: bool,
    /// New weights, at most [`MAX_WEIGHT`](xds_codec::weights::MAX_WEIGHT); `None` gives the backend its own weight back.
    pub backends: BTreeMap<String, Option<u32>>,
    /// Shares of the requests. What is left is shared by the backends that are not named, as they share now. Either this or [`backends`](Self::backends) is empty.
    pub percent: BTreeMap<String, Percent>,
    /// When the override ends by itself, in milliseconds since 1970; `None` leaves that as it is, `Some(None)` ends never.
    pub expires: Option<Option<u64>>,
    /// True if the override stays though it says what the rule says itself: then the weights stay when those of the rule change.
    pub pins: bool,
    /// Other header routes; `None` leaves them as they are.
    pub header_routes: Option<Vec<HeaderRoute>>,
}

/// All requests, in hundredths of a percent.
const WHOLE: u32 = Percent::ALL.hundredths();

/// Why a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeFault {
    /// The rule has not these backends.
    #[error("the rule has no backend {}", unknown.join(", "))]
    UnknownBackend {
        /// The keys that are none of the rule's.
        unknown: Vec<String>,
        /// The rule's.
        known: Vec<String>,
    },
    /// Every weight would be 0: then every request fails.
    #[error("the weights would all be 0, so every request would fail")]
    SumZero,
    /// Clients refuse such a route.
    #[error("the sum of the weights would be {sum}; clients accept at most {MAX_SUM}")]
    SumTooLarge {
        /// The sum.
        sum: u64,
    },
    /// Requests to the object cannot be told apart by headers.
    #[error("a TrafficSplit does not support header routes")]
    NoHeaderRoutes,
    /// The shares are not those of a whole.
    #[error("{0}")]
    Percent(String),
}

impl WeightChange {
    /// The change that removes an override.
    #[must_use]
    pub fn reset() -> Self {
        Self { forgets: true, expires: Some(None), header_routes: Some(vec![]), ..Self::default() }
    }

    /// The override after the change; `None` if it would say nothing but what the rule says itself.
    ///
    /// # Errors
    ///
    /// [`ChangeFault`].
    pub fn apply(
        &self,
        rule: &RuleWeights,
        present: Option<&RuleOverride>,
    ) -> Result<Option<RuleOverride>, ChangeFault> {
        self.check_keys(rule)?;
        let mut overlay = present.map(|present| present.overlay.clone()).unwrap_or_default();
        if self.forgets {
            overlay.backends.clear();
        }
        for (key, weight) in &self.backends {
            match weight {
                Some(weight) => _ = overlay.backends.insert(key.clone(), *weight),
                None => _ = overlay.backends.remove(key),
            }
        }
        if !self.percent.is_empty() {
            overlay.backends = self.shares(&effective(rule, &overlay))?;
        }
        if let Some(header_routes) = &self.header_routes {
            overlay.header_routes.clone_from(header_routes);
        }
        let sum =
            effective(rule, &overlay).iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(*weight));
        let names_any = !self.backends.is_empty() || !self.percent.is_empty();
        if names_any && sum == 0 {
            return Err(ChangeFault::SumZero);
        }
        if names_any && sum > MAX_SUM {
            return Err(ChangeFault::SumTooLarge { sum });
        }
        if !self.pins && says_nothing(rule, &overlay) {
            return Ok(None);
        }
        let expires = match self.expires {
            Some(expires) => expires,
            None => present.and_then(|present| present.expires),
        };
        let base = rule.backends.iter().cloned().collect();
        Ok(Some(RuleOverride { overlay, base, expires, gone_since: None }))
    }

    fn check_keys(&self, rule: &RuleWeights) -> Result<(), ChangeFault> {
        let known: Vec<String> = rule.backends.iter().map(|(key, _)| key.clone()).collect();
        let header_routes = self.header_routes.iter().flatten().map(|one| &one.backend);
        let named = self.backends.keys().chain(self.percent.keys()).chain(header_routes);
        let unknown: Vec<String> = named.filter(|key| !known.contains(key)).cloned().collect();
        if unknown.is_empty() { Ok(()) } else { Err(ChangeFault::UnknownBackend { unknown, known }) }
    }

    /// Weights of all backends that give these shares; their sum is [`WHOLE`].
    fn shares(&self, present: &[(String, u64)]) -> Result<BTreeMap<String, u32>, ChangeFault> {
        let named: u32 = self.percent.values().map(|share| share.hundredths()).fold(0, u32::saturating_add);
        let text = |share: u32| format!("{}", f64::from(share) / 100.0);
        if named > WHOLE {
            return Err(ChangeFault::Percent(format!("the shares add up to {} percent", text(named))));
        }
        let others: Vec<&(String, u64)> =
            present.iter().filter(|(key, _)| !self.percent.contains_key(key)).collect();
        if others.is_empty() && named < WHOLE {
            let named = text(named);
            let message = format!("the shares of all backends add up to {named} percent, not 100");
            return Err(ChangeFault::Percent(message));
        }
        let named_shares = self.percent.iter().map(|(key, share)| (key.clone(), share.hundredths()));
        let mut shares: BTreeMap<String, u32> = named_shares.collect();
        let weights: Vec<u64> = others.iter().map(|(_, weight)| *weight).collect();
        for ((key, _), share) in others.into_iter().zip(divide(WHOLE - named, &weights)) {
            shares.insert(key.clone(), share);
        }
        Ok(shares)
    }
}

/// Returns `true` if an overlay leaves a rule as it is.
pub(super) fn says_nothing(rule: &RuleWeights, overlay: &Overlay) -> bool {
    let own: BTreeMap<&String, u64> = rule.backends.iter().map(|(key, weight)| (key, *weight)).collect();
    let is_own = |(key, weight): (&String, &u32)| own.get(key) == Some(&u64::from(*weight));
    overlay.header_routes.is_empty() && overlay.backends.iter().all(is_own)
}

/// Shares out `whole` by weights, equally if they are all 0; what rounding leaves goes to those that lost most by it.
fn divide(whole: u32, weights: &[u64]) -> Vec<u32> {
    let is_zero = weights.iter().all(|weight| *weight == 0);
    let weights: Vec<u128> =
        weights.iter().map(|weight| if is_zero { 1 } else { u128::from(*weight) }).collect();
    let sum: u128 = weights.iter().sum::<u128>().max(1);
    let exact = |weight: &u128| u128::from(whole) * weight;
    let mut shares: Vec<u32> =
        weights.iter().map(|weight| u32::try_from(exact(weight) / sum).unwrap_or(whole)).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(weights.get(*index).map(|weight| exact(weight) % sum)));
    let left = whole.saturating_sub(shares.iter().sum());
    for index in order.into_iter().take(usize::try_from(left).unwrap_or_default()) {
        if let Some(share) = shares.get_mut(index) {
            *share += 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(weights: &[(&str, u64)]) -> RuleWeights {
        let backends = weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        RuleWeights { id: "0".to_owned(), backends }
    }

    fn merge(weights: &[(&str, Option<u32>)]) -> WeightChange {
        let backends = weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        WeightChange { backends, ..WeightChange::default() }
    }

    fn percent(shares: &[(&str, u16)]) -> WeightChange {
        let percent =
            shares.iter().map(|(key, share)| ((*key).to_owned(), Percent::of_hundredths(*share))).collect();
        WeightChange { percent, ..WeightChange::default() }
    }

    fn laid(change: &WeightChange, rule: &RuleWeights, present: Option<&RuleOverride>) -> Vec<(String, u32)> {
        change.apply(rule, present).unwrap().unwrap_or_default().overlay.backends.into_iter().collect()
    }

    fn of(weights: &[(&str, u32)]) -> Vec<(String, u32)> {
        weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect()
    }

    #[test]
    fn a_patch_changes_what_it_names_and_a_replacement_everything() {
        let rule = rule(&[("a", 90), ("b", 10), ("c", 0)]);
        let first = merge(&[("a", Some(50))]).apply(&rule, None).unwrap().unwrap();
        assert_eq!(first.base.len(), 3);
        assert_eq!(laid(&merge(&[("b", Some(50))]), &rule, Some(&first)), of(&[("a", 50), ("b", 50)]));
        assert_eq!(laid(&merge(&[("a", None), ("b", Some(1))]), &rule, Some(&first)), of(&[("b", 1)]));
        let put = WeightChange { forgets: true, ..merge(&[("c", Some(5))]) };
        assert_eq!(laid(&put, &rule, Some(&first)), of(&[("c", 5)]));
        assert_eq!(WeightChange::reset().apply(&rule, Some(&first)), Ok(None));
    }

    #[test]
    fn an_override_that_says_what_the_rule_says_is_none() {
        let rule = rule(&[("a", 90), ("b", 10)]);
        assert_eq!(merge(&[("a", Some(90))]).apply(&rule, None), Ok(None));
        let first = merge(&[("a", Some(50))]).apply(&rule, None).unwrap();
        assert_eq!(merge(&[("a", None)]).apply(&rule, first.as_ref()), Ok(None));
        assert_eq!(merge(&[("a", Some(90)), ("b", Some(10))]).apply(&rule, first.as_ref()), Ok(None));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let two = rule(&[("a", 90), ("b", 10)]);
        let unknown = merge(&[("z", Some(1)), ("a", Some(1))]).apply(&two, None);
        let known = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(unknown, Err(ChangeFault::UnknownBackend { unknown: vec!["z".to_owned()], known }));
        assert_eq!(merge(&[("a", Some(0)), ("b", Some(0))]).apply(&two, None), Err(ChangeFault::SumZero));
        let large = rule(&[("a", MAX_SUM), ("b", 0)]);
        let sum = MAX_SUM + 1;
        assert_eq!(merge(&[("b", Some(1))]).apply(&large, None), Err(ChangeFault::SumTooLarge { sum }));
        for shares in [&[("a", 5_000), ("b", 6_000)][..], &[("a", 10), ("b", 10)]] {
            assert!(matches!(percent(shares).apply(&two, None), Err(ChangeFault::Percent(_))), "{shares:?}");
        }
        // Weights that are all zero already can be taken back and left alone.
        assert_eq!(WeightChange::reset().apply(&rule(&[("a", 0)]), None), Ok(None));
    }

    #[test]
    fn percents_leave_the_rest_to_the_others_as_they_share_it() {
        let two = rule(&[("a", 90), ("b", 10)]);
        assert_eq!(laid(&percent(&[("b", 1_250)]), &two, None), of(&[("a", 8_750), ("b", 1_250)]));
        let three = rule(&[("a", 2), ("b", 1), ("c", 7)]);
        let expected = of(&[("a", 6_600), ("b", 3_300), ("c", 100)]);
        assert_eq!(laid(&percent(&[("c", 100)]), &three, None), expected);
        let idle = rule(&[("a", 1), ("b", 0), ("c", 0)]);
        let expected = of(&[("a", 9_999), ("b", 1), ("c", 0)]);
        assert_eq!(laid(&percent(&[("a", 9_999)]), &idle, None), expected);
    }

    #[test]
    fn the_time_of_an_override_stays_unless_it_is_said() {
        let rule = rule(&[("a", 1), ("b", 1)]);
        let first = WeightChange { expires: Some(Some(7)), ..merge(&[("a", Some(5))]) };
        let first = first.apply(&rule, None).unwrap().unwrap();
        assert_eq!(first.expires, Some(7));
        let second = merge(&[("a", Some(6))]).apply(&rule, Some(&first)).unwrap().unwrap();
        assert_eq!(second.expires, Some(7));
        let third = WeightChange { expires: Some(None), ..merge(&[]) };
        assert_eq!(third.apply(&rule, Some(&first)).unwrap().unwrap().expires, None);
    }

    proptest! {
        #[test]
        fn shares_come_to_the_whole_and_zero_stays_zero(whole in 0..=WHOLE, weights in prop::collection::vec(0..u64::MAX, 1..8)) {
            let shares = divide(whole, &weights);
            prop_assert_eq!(shares.iter().sum::<u32>(), whole);
            if weights.iter().any(|weight| *weight > 0) {
                for (share, weight) in shares.iter().zip(&weights) {
                    prop_assert!(*weight > 0 || *share == 0);
                }
            }
        }
    }
}
