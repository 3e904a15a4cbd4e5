//! The fate of overrides when the objects change under them, and when time passes.
//!
//! | event | result for the override |
//! |---|---|
//! | only weights changed | it stays, unless the document lets its own win ([`WEIGHT_SOURCE`](super::WEIGHT_SOURCE)) |
//! | the object says the very same by now | it is dropped (D6) |
//! | one of its backends is gone | it loses its weight of that backend |
//! | what is left would be all zero | it is dropped: every request would fail |
//! | the object, or the rule, is gone | it waits for [`GONE_KEPT_MS`], and comes back with it |
//! | its time is up | it is dropped |

use std::collections::BTreeMap;

use xds_codec::weights::RuleWeights;

use super::change::says_nothing;
use super::{GONE_KEPT_MS, Overrides, RuleKey, RuleOverride, effective};

/// An object's own weights for a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its weights.
    pub rule: RuleWeights,
    /// True if they win over an override once they change.
    pub wins: bool,
    /// True if a rollout owns the rule: then its override stays until the rollout changes it.
    pub is_owned: bool,
}

/// An override that was dropped, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The rule.
    pub key: RuleKey,
    /// The backend, if not all of the override is dropped.
    pub backend: Option<String>,
    /// Why.
    pub reason: &'static str,
}

/// The overrides as they are at `now`, with what `source` says of each rule; and what was dropped.
#[must_use]
pub fn reconcile(
    overrides: &Overrides,
    source: impl Fn(&RuleKey) -> Option<Source>,
    now: u64,
) -> (Overrides, Vec<Dropped>) {
    let mut kept = Overrides::new();
    let mut dropped = Vec::new();
    for (key, over) in overrides {
        let mut drop = |backend: Option<&String>, reason: &'static str| {
            dropped.push(Dropped { key: key.clone(), backend: backend.cloned(), reason });
        };
        match judge(over, source(key).as_ref(), now, &mut drop) {
            Ok(over) => _ = kept.insert(key.clone(), over),
            Err(reason) => drop(None, reason),
        }
    }
    (kept, dropped)
}

/// When something has to be done next because of time alone.
#[must_use]
pub fn next_end(overrides: &Overrides) -> Option<u64> {
    let ends = |over: &RuleOverride| {
        let gone = over.gone_since.map(|since| since.saturating_add(GONE_KEPT_MS));
        over.expires.into_iter().chain(gone).min()
    };
    overrides.values().filter_map(ends).min()
}

/// The override as it is then.
///
/// # Errors
///
/// Why it is dropped.
fn judge(
    over: &RuleOverride,
    source: Option<&Source>,
    now: u64,
    drop: &mut impl FnMut(Option<&String>, &'static str),
) -> Result<RuleOverride, &'static str> {
    let is_owned = source.is_some_and(|source| source.is_owned);
    if !is_owned && over.expires.is_some_and(|end| end <= now) {
        return Err("it has expired");
    }
    let mut after = over.clone();
    let Some(Source { rule, wins, .. }) = source else {
        let since = *after.gone_since.get_or_insert(now);
        // A clock that was set back must not keep it for ever.
        after.gone_since = Some(since.min(now));
        let is_over = since.saturating_add(GONE_KEPT_MS) <= now;
        return if is_over { Err("the rule has been gone for an hour") } else { Ok(after) };
    };
    after.gone_since = None;
    let base: BTreeMap<String, u64> = rule.backends.iter().cloned().collect();
    if base == over.base {
        return Ok(after);
    }
    if *wins && !is_owned {
        return Err("the document has new weights, which take precedence");
    }
    let gone = |key: &String| !base.contains_key(key);
    for key in over.overlay.backends.keys().filter(|key| gone(key)) {
        drop(Some(key), "the rule no longer has this backend");
    }
    after.overlay.backends.retain(|key, _| !gone(key));
    after.overlay.header_routes.retain(|one| !gone(&one.backend));
    if !is_owned && says_nothing(rule, &after.overlay) {
        let is_empty = after.overlay.backends.is_empty();
        return Err(if is_empty { "nothing of it is left" } else { "the document says the same now" });
    }
    let is_zero = |weights: &[(String, u64)]| weights.iter().all(|(_, weight)| *weight == 0);
    if is_zero(&effective(rule, &after.overlay)) && !is_zero(&rule.backends) {
        return Err("the remaining weights would all be 0");
    }
    after.base = base;
    Ok(after)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xds_codec::weights::{HeaderRoute, Overlay};
    use xds_routes::{DocumentKey, Kind};

    use super::super::WeightedObject;
    use super::*;

    fn key() -> RuleKey {
        let object = WeightedObject::Document(DocumentKey::new(Kind::GrpcRoute, "prod", "greeter"));
        RuleKey { object, rule: Arc::from("0") }
    }

    fn source(weights: &[(&str, u64)]) -> Source {
        let backends = weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        Source { rule: RuleWeights { id: "0".to_owned(), backends }, wins: false, is_owned: false }
    }

    fn over(weights: &[(&str, u32)]) -> RuleOverride {
        let backends = weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        let overlay = Overlay { backends, header_routes: vec![] };
        let base = source(&[("a", 90), ("b", 10)]).rule.backends.into_iter().collect();
        RuleOverride { overlay, base, ..RuleOverride::default() }
    }

    /// The part of an override that is kept; `drop` gets the reasons for the others.
    fn after(over: &RuleOverride, source: Option<Source>, now: u64) -> (Option<RuleOverride>, Vec<String>) {
        let overrides = Overrides::from([(key(), over.clone())]);
        let (mut kept, dropped) = reconcile(&overrides, |_| source.clone(), now);
        let dropped =
            dropped.into_iter().map(|one| format!("{}: {}", one.backend.unwrap_or_default(), one.reason));
        (kept.remove(&key()), dropped.collect())
    }

    #[test]
    fn it_stays_when_only_weights_change() {
        let half = over(&[("a", 50), ("b", 50)]);
        let (kept, dropped) = after(&half, Some(source(&[("a", 80), ("b", 20)])), 1);
        assert_eq!((kept.map(|kept| kept.overlay), dropped), (Some(half.overlay), vec![]));
    }

    #[test]
    fn it_goes_when_the_weights_of_the_document_are_to_win_and_change() {
        let half = over(&[("a", 50), ("b", 50)]);
        let wins = |weights| Some(Source { wins: true, ..source(weights) });
        assert_eq!(after(&half, wins(&[("a", 90), ("b", 10)]), 1), (Some(half.clone()), vec![]));
        let (kept, dropped) = after(&half, wins(&[("a", 80), ("b", 20)]), 1);
        assert_eq!((kept, dropped.len()), (None, 1));
    }

    #[test]
    fn what_it_says_of_a_backend_that_is_gone_goes() {
        let half = over(&[("a", 50), ("b", 50)]);
        let (kept, dropped) = after(&half, Some(source(&[("b", 10), ("c", 3)])), 1);
        let kept = kept.unwrap();
        assert_eq!(kept.overlay.backends, BTreeMap::from([("b".to_owned(), 50)]));
        assert_eq!(dropped, ["a: the rule no longer has this backend"]);
        assert_ne!(kept.base_hash(), half.base_hash());
        let (kept, dropped) = after(&half, Some(source(&[("c", 3)])), 1);
        assert_eq!((kept, dropped.last().unwrap().as_str()), (None, ": nothing of it is left"));
    }

    #[test]
    fn header_routes_to_a_backend_that_is_gone_go() {
        let testers = HeaderRoute { name: "t".to_owned(), headers: vec![], backend: "b".to_owned() };
        let mut canary = over(&[("a", 100)]);
        canary.overlay.header_routes = vec![testers];
        assert_eq!(after(&canary, Some(source(&[("a", 90), ("b", 10)])), 1).0, Some(canary.clone()));
        let (kept, _) = after(&canary, Some(source(&[("a", 90)])), 1);
        assert!(kept.unwrap().overlay.header_routes.is_empty());
    }

    #[test]
    fn it_goes_when_the_document_says_the_same_d6() {
        let half = over(&[("a", 50), ("b", 50)]);
        let (kept, dropped) = after(&half, Some(source(&[("a", 50), ("b", 50)])), 1);
        assert_eq!((kept, dropped), (None, vec![": the document says the same now".to_owned()]));
    }

    #[test]
    fn it_goes_rather_than_leave_nothing_but_zeros() {
        let all_to_b = over(&[("a", 0), ("b", 100)]);
        let (kept, dropped) = after(&all_to_b, Some(source(&[("a", 90)])), 1);
        assert_eq!((kept, dropped.len()), (None, 2), "{dropped:?}");
    }

    #[test]
    fn it_waits_an_hour_for_a_rule_that_is_gone() {
        let half = over(&[("a", 50), ("b", 50)]);
        let (gone, dropped) = after(&half, None, 1_000);
        let gone = gone.unwrap();
        assert_eq!((gone.gone_since, dropped.len()), (Some(1_000), 0));
        let overrides = Overrides::from([(key(), gone.clone())]);
        assert_eq!(next_end(&overrides), Some(1_000 + GONE_KEPT_MS));
        assert_eq!(after(&gone, None, 999 + GONE_KEPT_MS).0, Some(gone.clone()));
        assert_eq!(after(&gone, None, 1_000 + GONE_KEPT_MS).1, [": the rule has been gone for an hour"]);
        let back = after(&gone, Some(source(&[("a", 90), ("b", 10)])), 2_000);
        assert_eq!(back, (Some(half), vec![]));
        // The clock was set back by more than the hour.
        assert_eq!(after(&gone, None, 10).0.unwrap().gone_since, Some(10));
    }

    #[test]
    fn it_ends_with_its_time() {
        let half = RuleOverride { expires: Some(500), ..over(&[("a", 50)]) };
        let unchanged = || Some(source(&[("a", 90), ("b", 10)]));
        assert_eq!(after(&half, unchanged(), 499), (Some(half.clone()), vec![]));
        assert_eq!(after(&half, unchanged(), 500), (None, vec![": it has expired".to_owned()]));
        assert_eq!(next_end(&Overrides::from([(key(), half)])), Some(500));
    }
}
