//! Judges measurements.

use crate::effect::{Counts, Reading, Traffic, Window};
use crate::evidence::{Expected, judge_absence, proof};
use crate::spec::{Analysis, Prometheus};
use crate::verdict::Verdict;
use xds_units::Percent;

/// The comparison of failures between two kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// By more than the bound.
    Exceeds,
    /// By the bound at most.
    Within,
    /// One kind has fewer requests than required.
    TooFew,
}

/// Compares the share of failures of `one` with that of `other`; the difference may be `bound`.
#[must_use]
pub fn compare(one: Counts, other: Counts, bound: Percent, min_requests: u64) -> Comparison {
    let (one, other) = (plausible(one), plausible(other));
    match one.requests.min(other.requests) {
        n if n < min_requests.max(1) => Comparison::TooFew,
        _ if exceeds(one, other, bound) => Comparison::Exceeds,
        _ => Comparison::Within,
    }
}

/// Judges a measurement by its bounds, and by what did not happen: a broken bound or evidence against the canary makes it bad; otherwise
/// doubt makes it inconclusive.
pub(crate) fn judge(analysis: &Analysis, reading: &Reading, expected: &Expected) -> Verdict {
    let of_bounds = judge_bounds(analysis, &reading.whole(), reading.prometheus.as_ref());
    if let Verdict::Bad(_) = of_bounds {
        return of_bounds;
    }
    // A query is evidence of its own.
    let by_requests = analysis.max_error_rate.or(analysis.max_error_rate_over_stable).is_some();
    match judge_absence(reading, expected, by_requests) {
        Verdict::Good => of_bounds,
        bad @ Verdict::Bad(_) => bad,
        doubt @ Verdict::Inconclusive(_) if of_bounds == Verdict::Good => doubt,
        Verdict::Inconclusive(_) => of_bounds,
    }
}

/// Why waiting will not help: in one of the windows, none of [`DECISIVE_REQUESTS`] to the canary succeeded and that breaks a bound, or
/// there is [proof] that its requests do not arrive or do not end.
pub(crate) fn hopeless(analysis: &Analysis, reading: &Reading, expected: &Expected) -> Option<String> {
    let needed = analysis.min_requests.max(DECISIVE_REQUESTS);
    let of_failures = |window: &Window| {
        let canary = with_dropped(window.canary);
        if canary.requests < needed || canary.failures < canary.requests {
            return None;
        }
        match judge_bounds(analysis, window, None) {
            Verdict::Bad(reason) => Some(reason),
            Verdict::Good | Verdict::Inconclusive(_) => None,
        }
    };
    reading.windows.iter().find_map(of_failures).or_else(|| proof(reading, expected))
}

fn judge_bounds(
    analysis: &Analysis,
    window: &Window,
    prometheus_value: Option<&Result<f64, String>>,
) -> Verdict {
    let (canary, stable) = (plausible(window.canary.counts), plausible(window.stable.counts));
    let has_enough = |counts: Counts| counts.requests > 0 && counts.requests >= analysis.min_requests;
    let mut doubt = None;
    if let Some(bound) = analysis.max_error_rate {
        if !has_enough(canary) {
            doubt = Some(few("the canary", canary, analysis));
        } else if exceeds(canary, NO_FAILURE, bound) {
            return Verdict::Bad(format!("{} of the canary failed; at most {bound} may", shown(canary)));
        }
    }
    if let Some(bound) = analysis.max_error_rate_over_stable {
        if !has_enough(canary) {
            doubt = Some(few("the canary", canary, analysis));
        } else if !has_enough(stable) {
            // If all traffic goes to the canary, there is nothing to compare with; another bound may decide.
            if analysis.max_error_rate.is_none() && analysis.prometheus.is_none() {
                doubt = Some(few("stable", stable, analysis));
            }
        } else if compare(canary, stable, bound, analysis.min_requests) == Comparison::Exceeds {
            let (canary, stable) = (shown(canary), shown(stable));
            return Verdict::Bad(format!(
                "{canary} of the canary failed and {stable} of the stable backend; the difference may be at most {bound}"
            ));
        }
    }
    if let Some(reason) = drops_too_many(analysis, window) {
        return Verdict::Bad(reason);
    }
    if let Some(prometheus) = &analysis.prometheus {
        match judge_value(prometheus, prometheus_value) {
            Verdict::Good => {}
            bad @ Verdict::Bad(_) => return bad,
            Verdict::Inconclusive(reason) => doubt = Some(reason),
        }
    }
    doubt.map_or(Verdict::Good, Verdict::Inconclusive)
}

/// Why clients drop too many requests to the canary: more than may fail, and by as much more than of those to stable, whose drops may be
/// wanted.
fn drops_too_many(analysis: &Analysis, window: &Window) -> Option<String> {
    let bound = analysis.max_error_rate.or(analysis.max_error_rate_over_stable)?;
    let dropped = |traffic: Traffic| plausible(Counts { failures: traffic.dropped, ..with_dropped(traffic) });
    let (canary, stable) = (dropped(window.canary), dropped(window.stable));
    let stable = if stable.requests == 0 { NO_FAILURE } else { stable };
    let is_enough = canary.requests >= analysis.min_requests.max(DECISIVE_REQUESTS);
    (is_enough && exceeds(canary, stable, bound))
        .then(|| format!("clients dropped {} to the canary; at most {bound} may", shown(canary)))
}

/// Requests with those that were dropped, which have failed.
fn with_dropped(traffic: Traffic) -> Counts {
    let Counts { requests, failures } = plausible(traffic.counts);
    let dropped = traffic.dropped.min(MAX_COUNT);
    Counts { requests: requests + dropped, failures: failures + dropped }
}

fn judge_value(prometheus: &Prometheus, value: Option<&Result<f64, String>>) -> Verdict {
    let value = match value {
        Some(Ok(value)) if !value.is_nan() => *value,
        Some(Ok(_)) => return Verdict::Inconclusive("the query returned no number".to_owned()),
        Some(Err(reason)) => return Verdict::Inconclusive(format!("the query failed: {reason}")),
        None => return Verdict::Inconclusive("the query was not run".to_owned()),
    };
    if let Some(min) = prometheus.min.filter(|min| value < *min) {
        return Verdict::Bad(format!("the query returned {value}, less than {min}"));
    }
    if let Some(max) = prometheus.max.filter(|max| value > *max) {
        return Verdict::Bad(format!("the query returned {value}, more than {max}"));
    }
    Verdict::Good
}

/// Returns `true` if the share of failures of `one` is larger than that of `other` by more than `bound`.
fn exceeds(one: Counts, other: Counts, bound: Percent) -> bool {
    // Cross-multiplied, so that nothing is rounded. Counts are capped, so that nothing overflows.
    let (requests, failures) = (u128::from(one.requests), u128::from(one.failures));
    let (other_requests, other_failures) = (u128::from(other.requests), u128::from(other.failures));
    let allowed =
        other_failures * requests * 10_000 + u128::from(bound.hundredths()) * requests * other_requests;
    failures * other_requests * 10_000 > allowed
}

/// Plausible counts: reports come from clients.
fn plausible(counts: Counts) -> Counts {
    let requests = counts.requests.min(MAX_COUNT);
    Counts { requests, failures: counts.failures.min(requests) }
}

fn few(whose: &str, counts: Counts, analysis: &Analysis) -> String {
    let wanted = analysis.min_requests.max(1);
    format!("{whose} had {} requests; at least {wanted} are needed", counts.requests)
}

fn shown(counts: Counts) -> String {
    format!("{} of {} requests", counts.failures, counts.requests)
}

/// A comparison with this is one with nothing.
const NO_FAILURE: Counts = Counts { requests: 1, failures: 0 };
/// A canary of which half the requests succeed fails so many in a row once in a thousand times.
const DECISIVE_REQUESTS: u64 = 10;
/// No window has more requests: a million a second for a month.
const MAX_COUNT: u64 = 1 << 42;

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic((requests, failures): (u64, u64)) -> Traffic {
        Traffic { counts: Counts { requests, failures }, ..Traffic::default() }
    }

    fn reading(canary: (u64, u64), stable: (u64, u64)) -> Reading {
        let whole = Window { canary: traffic(canary), stable: traffic(stable), ..Window::default() };
        Reading { windows: vec![whole, whole], ..Reading::default() }
    }

    fn verdict(analysis: &Analysis, reading: &Reading) -> &'static str {
        let share = Percent::whole(20);
        let expected = Expected { share, since_ms: None, now_ms: 60_000, n_looks: 1, n_measured: 1 };
        match judge(analysis, reading, &expected) {
            Verdict::Good => "good",
            Verdict::Bad(_) => "bad",
            Verdict::Inconclusive(_) => "inconclusive",
        }
    }

    #[test]
    fn a_canary_is_held_to_its_bound_and_to_stable() {
        let bound = Analysis { min_requests: 100, ..Analysis::default() };
        let over = Analysis {
            max_error_rate: None,
            max_error_rate_over_stable: Some(Percent::whole(1)),
            ..bound.clone()
        };
        let both = Analysis { max_error_rate: Some(Percent::whole(5)), ..over.clone() };
        for (canary, stable, expected) in [
            ((1_000, 10), (1_000, 0), ["good", "good", "good"]),
            ((1_000, 11), (1_000, 0), ["bad", "bad", "bad"]),
            ((1_000, 40), (1_000, 35), ["bad", "good", "good"]),
            ((99, 99), (1_000, 0), ["inconclusive"; 3]),
            ((1_000, 0), (99, 0), ["good", "inconclusive", "good"]),
            ((0, 0), (0, 0), ["inconclusive"; 3]),
            ((u64::MAX, u64::MAX), (u64::MAX, 0), ["bad"; 3]),
            ((100, u64::MAX), (100, 0), ["bad"; 3]),
        ] {
            let reading = reading(canary, stable);
            let verdicts = [&bound, &over, &both].map(|analysis| verdict(analysis, &reading));
            assert_eq!(verdicts, expected, "{canary:?} {stable:?}");
        }
    }

    #[test]
    fn no_requests_say_nothing_though_none_are_demanded() {
        let analysis = Analysis { min_requests: 0, ..Analysis::default() };
        assert_eq!(verdict(&analysis, &reading((0, 0), (10, 0))), "inconclusive");
    }

    #[test]
    fn a_query_is_held_to_its_bounds() {
        let prometheus =
            Prometheus { address: String::new(), query: String::new(), min: Some(99.0), max: Some(100.0) };
        let analysis = Analysis { max_error_rate: None, prometheus: Some(prometheus), ..Analysis::default() };
        for (value, expected) in [
            (Some(Ok(99.5)), "good"),
            (Some(Ok(98.9)), "bad"),
            (Some(Ok(f64::INFINITY)), "bad"),
            (Some(Ok(f64::NAN)), "inconclusive"),
            (Some(Err("down".to_owned())), "inconclusive"),
            (None, "inconclusive"),
        ] {
            let reading = Reading { prometheus: value.clone(), ..Reading::default() };
            assert_eq!(verdict(&analysis, &reading), expected, "{value:?}");
        }
    }
}
