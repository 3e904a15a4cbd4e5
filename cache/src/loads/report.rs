//! Load reports, in the form in which the board takes them.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::group::GroupName;
use crate::node::Locality;

/// The client that reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The node's id.
    pub node: Arc<str>,
    /// The groups of the node, the one that wins first.
    pub groups: Arc<[GroupName]>,
}

/// The requests to one cluster since the client's last report, by outcome (row A213).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReport {
    /// The cluster's name.
    pub cluster: String,
    /// The name of its endpoints in EDS; empty if that is the cluster's.
    pub service: String,
    /// How long it is since the last report; zero if the client does not say.
    pub interval: Duration,
    /// Requests that were dropped on purpose, and by circuit breakers.
    pub dropped: u64,
    /// Those of them that were dropped for a reason with a name (row A215).
    pub dropped_by: Vec<(String, u64)>,
    /// Where requests were sent; may be empty (row A214).
    pub localities: Vec<LocalityReport>,
}

/// The requests to one locality, by outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityReport {
    /// The locality.
    pub place: PriorityLocality,
    /// Since the last report.
    pub counts: Counts,
    /// Now.
    pub in_progress: u64,
    /// The metrics that backends report of themselves (ORCA), by name (row A216).
    pub metrics: Vec<(String, Metric)>,
}

/// A locality of a priority. All of it is empty for endpoints that a client found by DNS, and for unknown zones (row A214).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PriorityLocality {
    /// The priority, 0 first.
    pub priority: u32,
    /// The locality.
    pub locality: Locality,
}

/// Numbers of requests. Adding saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent; some clients of old versions leave it 0.
    pub issued: u64,
    /// Ended well.
    pub successful: u64,
    /// Ended with an error, as the client counts errors: 5xx for HTTP, a status other than OK for gRPC clients.
    pub errors: u64,
}

impl Counts {
    /// Requests that have ended.
    #[must_use]
    pub fn finished(self) -> u64 {
        self.successful.saturating_add(self.errors)
    }

    /// The share of errors among the requests that have ended, from 0 to 1; `None` if none has.
    #[must_use]
    pub fn error_rate(self) -> Option<f64> {
        let finished = self.finished();
        (finished > 0).then(|| self.errors as f64 / finished as f64)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.issued = self.issued.saturating_add(other.issued);
        self.successful = self.successful.saturating_add(other.successful);
        self.errors = self.errors.saturating_add(other.errors);
    }
}

/// A value that backends report with their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metric {
    /// Requests that came with it.
    pub n_requests: u64,
    /// The sum of the values; always finite.
    pub sum: f64,
}

impl Metric {
    /// Returns `true` if the board keeps it under that name: it covers requests, and its value is plausible.
    #[must_use]
    pub fn is_kept_as(&self, name: &str) -> bool {
        name.len() <= MAX_LABEL_BYTES && self.sum.is_finite() && self.n_requests > 0
    }
}

impl AddAssign for Metric {
    fn add_assign(&mut self, other: Self) {
        self.n_requests = self.n_requests.saturating_add(other.n_requests);
        // Two finite values can add up to infinity, which JSON cannot express.
        self.sum = (self.sum + other.sum).clamp(f64::MIN, f64::MAX);
    }
}

/// Metrics by name.
pub type Metrics = BTreeMap<Arc<str>, Metric>;

/// The result of recording a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Kept.
    pub n_kept: usize,
    /// Left out because there is no room.
    pub n_over_limit: usize,
    /// Left out because the node is not served such a cluster, and there is no room for more of these.
    pub n_unknown: usize,
    /// Left out because a number cannot be true, such as a negative one that is read as an enormous one.
    pub n_implausible: usize,
    /// Left out because a name is empty or too long.
    pub n_bad_names: usize,
}

impl AddAssign for Recorded {
    fn add_assign(&mut self, other: Self) {
        self.n_kept += other.n_kept;
        self.n_over_limit += other.n_over_limit;
        self.n_unknown += other.n_unknown;
        self.n_implausible += other.n_implausible;
        self.n_bad_names += other.n_bad_names;
    }
}

impl ClusterReport {
    /// The key under which the board keeps it: clusters with the same endpoints count together (row A212).
    #[must_use]
    pub fn key(&self) -> &str {
        if self.service.is_empty() { &self.cluster } else { &self.service }
    }

    pub(super) fn has_bad_name(&self) -> bool {
        let of_locality = |report: &LocalityReport| {
            let Locality { region, zone, sub_zone } = &report.place.locality;
            [region, zone, sub_zone].into_iter().any(|name| name.len() > MAX_LOCALITY_BYTES)
        };
        self.cluster.is_empty()
            || [&self.cluster, &self.service].into_iter().any(|name| name.len() > MAX_NAME_BYTES)
            || self.localities.iter().any(of_locality)
    }

    pub(super) fn is_implausible(&self) -> bool {
        let of_locality = |report: &LocalityReport| {
            let Counts { issued, successful, errors } = report.counts;
            [issued, successful, errors, report.in_progress].into_iter().any(|n| n > MAX_REQUESTS_PER_REPORT)
        };
        self.dropped > MAX_REQUESTS_PER_REPORT
            || self.dropped_by.iter().any(|(_, n)| *n > MAX_REQUESTS_PER_REPORT)
            || self.localities.iter().any(of_locality)
    }
}

/// How long the name of a cluster may be, in bytes: as long as those of resources.
pub const MAX_NAME_BYTES: usize = 4096;
/// How long each part of a locality may be, in bytes; clouds have some twenty.
pub const MAX_LOCALITY_BYTES: usize = 256;
/// More requests than any client sends between two reports: a thousand million a second for a quarter of an hour.
pub const MAX_REQUESTS_PER_REPORT: u64 = 1_000_000_000_000;
/// How long the names of reasons and metrics may be, in bytes.
pub const MAX_LABEL_BYTES: usize = 128;
