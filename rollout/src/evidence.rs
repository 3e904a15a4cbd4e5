//! Evidence in what did not happen: requests that the canary should have had, by its weight, and that nobody reports; requests that never
//! end; clients that fall silent.
//!
//! A request that fails before its client has chosen an endpoint is in no load report: the canary looks perfect while everything that it
//! should do fails. But each request goes to the canary with a known probability. How few arrive by chance is bounded by Chernoff's bound
//! of the binomial distribution, exp(−n·D(k/n ‖ p)): simple, never smaller than the exact value, and exact where none arrives.

use crate::effect::{PerClient, Reading, Split, Traffic, Window};
use crate::verdict::Verdict;
use xds_units::Percent;

/// What is known of the step besides its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The canary's share.
    pub(crate) share: Percent,
    /// Since when every client divides its requests so, in milliseconds since 1970; `None` if not all do.
    pub(crate) since_ms: Option<u64>,
    pub(crate) now_ms: u64,
    /// How many readings of the rollout were tested for [`proof`], with this one.
    pub(crate) n_looks: u64,
    /// How many of them were measurements.
    pub(crate) n_measured: u64,
}

/// When the windows of a [`Reading`] begin, in milliseconds since 1970: the whole since `since_ms`, its last part, all but its first report,
/// and shorter ones down to two reports, each about two thirds of the next longer one. So whenever a canary dies, a window soon holds
/// little but that.
#[must_use]
pub fn windows(since_ms: u64, now_ms: u64, report_ms: u64) -> Vec<u64> {
    let whole_ms = now_ms.saturating_sub(since_ms);
    let half_ms = whole_ms / 2;
    // A shorter part may hold no report as a whole, though clients report all the time.
    let last_ms = if half_ms < report_ms.saturating_mul(REPORTS_IN_LAST_PART) { whole_ms } else { half_ms };
    let mut starts = vec![now_ms - whole_ms, now_ms - last_ms];
    // A measurement begins with its step, and the first report after that may not count what goes to the canary.
    if report_ms < whole_ms {
        starts.push(since_ms + report_ms);
    }
    let mut length_ms = report_ms.max(1).saturating_mul(2);
    while length_ms < whole_ms && starts.len() < MAX_WINDOWS {
        starts.push(now_ms - length_ms);
        length_ms = length_ms.saturating_add(length_ms / 2);
    }
    starts
}

impl Reading {
    /// All requests of the measurement.
    pub(crate) fn whole(&self) -> Window {
        self.windows.first().copied().unwrap_or_default()
    }

    /// The last part of the measurement.
    fn last_part(&self) -> Window {
        self.windows.get(1).copied().unwrap_or_default()
    }

    /// The windows in which every client divides its requests as the step says, and counts those to the canary: an Envoy counts a cluster
    /// only from the first report after it has received the cluster.
    fn of_step(&self, expected: &Expected) -> impl Iterator<Item = &Window> {
        let since = expected.since_ms.map(|since| since.saturating_add(self.report_ms));
        self.windows.iter().filter(move |window| since.is_some_and(|since| window.since_ms >= since))
    }

    /// The strength that evidence in one window must have, as the logarithm of the odds against chance. The chances of all `n_tests` of
    /// a rollout add up to [`FALSE_ALARM`], however many there are: the kth has the k(k+1)th part of it, and its windows share that.
    fn needed(&self, n_tests: u64) -> f64 {
        let (n_tests, n_windows) = (n_tests.max(1) as f64, self.windows.len().max(1) as f64);
        -FALSE_ALARM.ln() + (n_tests * (n_tests + 1.0)).ln() + n_windows.ln()
    }
}

/// Evidence strong enough to take the canary back at once, whatever else is allowed: most of its requests never arrive, or none of them
/// ends.
pub(crate) fn proof(reading: &Reading, expected: &Expected) -> Option<String> {
    let needed = reading.needed(expected.n_looks);
    let mut of_step = reading.of_step(expected);
    of_step.find_map(|window| {
        let few = (reading.split == Split::ByWeight)
            .then(|| too_few(window, expected.share, HALF, needed))
            .flatten();
        few.or_else(|| never_ends(window, expected.now_ms, needed))
    })
}

/// The verdict of a measurement by what did not happen.
pub(crate) fn judge_absence(reading: &Reading, expected: &Expected, needs_success: bool) -> Verdict {
    let needed = reading.needed(expected.n_measured);
    let few = reading.of_step(expected).find_map(|window| {
        too_few(window, expected.share, TOLERATED_SHORTFALL, needed)
            .or_else(|| starves_client(window, expected.share, needed))
    });
    match (few, &reading.split) {
        (Some(few), Split::ByWeight) => return Verdict::Bad(few),
        (Some(few), Split::Biased(by)) => {
            return Verdict::Inconclusive(format!("{few}, but requests are also divided by {by}"));
        }
        (Some(_), Split::Unknown) | (None, _) => {}
    }
    if !needs_success {
        return Verdict::Good;
    }
    let (silence, last) = (reading.silence, reading.last_part());
    if silence.silent.saturating_mul(2) > silence.requests {
        let said = format!(
            "{} of {} earlier requests are of clients that no longer report",
            silence.silent, silence.requests
        );
        return Verdict::Inconclusive(said);
    }
    if successes(last.canary) == 0 {
        let said = match last.stable.counts.requests {
            0 => "no client has reported requests in the last part of the measurement".to_owned(),
            n => format!(
                "no request of the canary has succeeded in the last part of the measurement; stable had {n}"
            ),
        };
        return Verdict::Inconclusive(said);
    }
    match reading.of_step(expected).find_map(|window| lacks_success(reading, window, expected.share)) {
        Some(said) => Verdict::Inconclusive(said),
        None => Verdict::Good,
    }
}

/// Why so few requests went to the canary that its share cannot be `part` of what the weights say.
fn too_few(window: &Window, share: Percent, part: f64, needed: f64) -> Option<String> {
    let canary = window.canary.issued;
    let all = canary.saturating_add(window.stable.issued);
    if share >= Percent::ALL || strength(canary, all, part * fraction(share)) < needed {
        return None;
    }
    Some(format!("{canary} of {all} requests reached the canary, whose weight is {share}"))
}

/// Why a client does not reach the canary, though others may: it sends so many requests, and none goes there.
fn starves_client(window: &Window, share: Percent, needed: f64) -> Option<String> {
    let PerClient { n, starved } = window.clients;
    let needed = needed + (n.max(1) as f64).ln();
    if share >= Percent::ALL || strength(0, starved, TOLERATED_SHORTFALL * fraction(share)) < needed {
        return None;
    }
    Some(format!("0 of {starved} requests of one client reached the canary, whose weight is {share}"))
}

/// Why the requests to the canary will never end: less than half of them have, in a time in which those of stable would have many times.
fn never_ends(window: &Window, now_ms: u64, needed: f64) -> Option<String> {
    let Window { since_ms, canary, stable, clients: _ } = *window;
    let took_ms = now_ms.saturating_sub(since_ms);
    // By Little's law, requests take as long as it takes to send those that are under way.
    let is_long =
        took_ms >= SLOW_MS && u128::from(stable.issued) > u128::from(stable.in_progress) * LIFETIMES;
    let ended = canary.counts.requests.min(canary.issued);
    if !is_long || strength(ended, canary.issued, HALF) < needed {
        return None;
    }
    let seconds = took_ms / 1_000;
    Some(format!("{ended} of {} requests sent to the canary have ended in {seconds} s", canary.issued))
}

/// Why success is doubtful: in this window the canary should have had several requests, and none has succeeded.
fn lacks_success(reading: &Reading, window: &Window, share: Percent) -> Option<String> {
    let all = window.canary.issued.saturating_add(window.stable.issued);
    let is_divided = share < Percent::ALL && reading.split != Split::Unknown;
    let is_missed = is_divided && all as f64 * fraction(share) >= MISSED;
    (is_missed && successes(window.canary) == 0).then(|| {
        format!("none of the last {all} requests has succeeded at the canary, whose weight is {share}")
    })
}

/// The logarithm of the odds against chance that at most `k` of `n` happen, each with the probability `p`; 0 if that is no less than expected.
fn strength(k: u64, n: u64, p: f64) -> f64 {
    if n == 0 || p <= 0.0 || p >= 1.0 {
        return 0.0;
    }
    let (n, seen) = (n as f64, k as f64 / n as f64);
    if seen >= p {
        return 0.0;
    }
    let term = |seen: f64, p: f64| if seen > 0.0 { seen * (seen / p).ln() } else { 0.0 };
    n * (term(seen, p) + term(1.0 - seen, 1.0 - p))
}

fn successes(traffic: Traffic) -> u64 {
    traffic.counts.requests.saturating_sub(traffic.counts.failures)
}

fn fraction(share: Percent) -> f64 {
    f64::from(share.hundredths()) / 10_000.0
}

/// The chance that a healthy canary is taken back by all early looks of a rollout together, and by all of its measurements.
const FALSE_ALARM: f64 = 0.001;
/// A canary's share that is this part of its weight is no fault: clients that are only just coming or going, and retries at stable, make a
/// share smaller than its weight.
const TOLERATED_SHORTFALL: f64 = 0.9;
/// Half of what is expected: less cannot be explained but by a canary that does not work.
const HALF: f64 = 0.5;
/// How many requests a canary must have missed for its success to be doubtful: a healthy one misses so many once in a thousand times.
const MISSED: f64 = 7.0;
/// A window in which stable's requests would have ended so many times over is long enough for those of the canary.
const LIFETIMES: u128 = 10;
/// The shortest window that says something of requests that do not end; Envoy gives them so long by default.
const SLOW_MS: u64 = 15_000;
/// How many reports the last part of a measurement holds at least.
const REPORTS_IN_LAST_PART: u64 = 3;
/// As many as a window of an hour with a report each second needs.
const MAX_WINDOWS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_a_measurement_that_begins_with_its_step() {
        let (since_ms, report_ms) = (5_000, 1_000);
        let windows: Vec<_> = windows(since_ms, 25_000, report_ms)
            .into_iter()
            .map(|since_ms| Window { since_ms, ..Window::default() })
            .collect();
        let reading = Reading { windows, report_ms, ..Reading::default() };
        let expected = Expected {
            share: Percent::ALL,
            since_ms: Some(since_ms),
            now_ms: 25_000,
            n_looks: 1,
            n_measured: 1,
        };
        let longest = reading.of_step(&expected).map(|window| 25_000 - window.since_ms).max();
        assert_eq!(longest, Some(19_000));
    }
}
