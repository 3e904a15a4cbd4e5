//! Counts of requests by how they were recognised, for the metrics of both ports.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Requests that were allowed and denied. Its labels are few, because the code names them all.
#[derive(Debug, Default)]
pub struct AuthCounts(Mutex<BTreeMap<AuthCount, u64>>);

/// The labels of one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthCount {
    /// `admin` or `xds`.
    pub port: &'static str,
    /// `certificate`, `jwt`, `token` or `anonymous`.
    pub method: &'static str,
    /// The reason of a refusal; `None` if it was allowed.
    pub denied: Option<&'static str>,
}

impl AuthCounts {
    /// Counts a request.
    pub fn add(&self, count: AuthCount) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(count).or_default() += 1;
    }

    /// All counts.
    #[must_use]
    pub fn all(&self) -> BTreeMap<AuthCount, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
