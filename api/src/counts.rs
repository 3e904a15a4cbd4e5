//! Counts of requests to the admin API: how long they took, and what was refused. For the metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The requests since the server started. Its labels are those of the table of endpoints and of problems, so they are few.
#[derive(Debug, Default)]
pub struct RequestCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    durations: BTreeMap<Route, Durations>,
    refusals: BTreeMap<Refusal, u64>,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// `GET`, which includes `HEAD`, another method of the API, or `other`.
    pub method: &'static str,
    /// The path with its parameters in braces; `other` for everything that is no endpoint of the API.
    pub path: &'static str,
}

/// The reason why requests were not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The status code.
    pub status: u16,
    /// The last part of the problem's `type`.
    pub problem: &'static str,
}

/// The times until answers began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    /// How many took no longer than each of [`BUCKETS`], and longer than the one before; the last took longer than all.
    pub counts: [u64; BUCKETS.len() + 1],
    /// All of them together, in seconds.
    pub sum: f64,
}

/// Upper bounds in seconds: from a read of one object to a write that waits for its clients.
pub const BUCKETS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

impl RequestCounts {
    /// The times of the endpoints that were asked.
    #[must_use]
    pub fn durations(&self) -> BTreeMap<Route, Durations> {
        self.lock().durations.clone()
    }

    /// How many requests were refused.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<Refusal, u64> {
        self.lock().refusals.clone()
    }

    pub(crate) fn add(&self, route: Route, refusal: Option<Refusal>, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut counts = self.lock();
        let durations = counts.durations.entry(route).or_default();
        durations.sum += seconds;
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        if let Some(count) = durations.counts.get_mut(bucket) {
            *count += 1;
        }
        if let Some(refusal) = refusal {
            *counts.refusals.entry(refusal).or_default() += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_in_the_bucket_of_its_time_and_a_refusal_by_its_type() {
        let counts = RequestCounts::default();
        let route = Route { method: "GET", path: "/v1/nodes" };
        let refusal = Refusal { status: 404, problem: "not-found" };
        counts.add(route, None, Duration::from_millis(1));
        counts.add(route, Some(refusal), Duration::from_millis(2));
        counts.add(route, None, Duration::from_secs(600));
        let durations = counts.durations()[&route];
        assert_eq!(durations.counts, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((durations.sum - 600.003).abs() < 1e-9);
        assert_eq!(counts.refusals(), [(refusal, 1)].into());
    }
}
