//! The reports of all clients, within bounds.

pub(super) mod compare;
pub(super) mod query;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::report::{
    ClusterReport, Counts, MAX_LABEL_BYTES, Metric, Metrics, PriorityLocality, Recorded, Reporter,
};
use super::window::{Millis, Period, Window};
use crate::group::GroupName;
use crate::time::{duration_millis, millis};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// How long a report counts.
    pub kept_for: Duration,
    /// Reports of a series within this time share a cell; at least a millisecond. As long as the reporting interval, no
    /// client can make a series grow by reporting faster.
    pub bucket: Duration,
    /// How many series there are: one for each cluster of a node, and one for each of its localities. With the defaults, one
    /// that is reported all the time costs some 4 KiB.
    pub max_series: usize,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self { kept_for: Duration::from_secs(15 * 60), bucket: Duration::from_secs(10), max_series: 50_000 }
    }
}

/// The reports of all clients. Shared by reference; every call takes one short lock.
#[derive(Debug)]
pub struct LoadBoard {
    limits: LoadLimits,
    state: Mutex<BoardState>,
}

#[derive(Debug, Default)]
struct BoardState {
    /// By [`ClusterReport::key`].
    clusters: BTreeMap<Arc<str>, Cluster>,
    n_series: usize,
    /// How many clusters no reporting node is served.
    n_unknown: usize,
    swept_at: Millis,
    /// When a report was last left out because there was no room.
    left_out_at: Option<Millis>,
}

#[derive(Debug, Default)]
struct Cluster {
    /// True if a node that reported it was served a cluster of that name.
    is_known: bool,
    /// By node, and by the name that the node has for the cluster.
    nodes: BTreeMap<(Arc<str>, Arc<str>), NodeReports>,
}

/// The reports of one node about a cluster.
#[derive(Debug)]
struct NodeReports {
    groups: Arc<[GroupName]>,
    last: Millis,
    /// The period of the last report.
    interval: Millis,
    overall: Window<Overall>,
    /// The names of reasons for drops; cells tell their numbers in this order.
    drop_reasons: Vec<Arc<str>>,
    localities: BTreeMap<PriorityLocality, Series>,
}

/// The part of a report that is about a cluster as a whole.
#[derive(Clone, Debug, Default)]
struct Overall {
    covered: Millis,
    dropped: u64,
    dropped_by: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Series {
    in_progress: u64,
    /// The metrics of the last report that had any.
    metrics: Metrics,
    window: Window<Counts>,
}

impl LoadBoard {
    /// Nothing is reported yet.
    #[must_use]
    pub fn new(limits: LoadLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// The limits of the board.
    #[must_use]
    pub fn limits(&self) -> &LoadLimits {
        &self.limits
    }

    /// Records a report that a client sent at `now`. `is_served` says whether the node is served a cluster of that name.
    ///
    /// A report covers the interval that it states, or the reporting interval if it states none, but at most the time for which
    /// reports are kept.
    pub fn record(
        &self,
        reporter: &Reporter,
        reports: &[ClusterReport],
        is_served: impl Fn(&str) -> bool,
        now: SystemTime,
    ) -> Recorded {
        let now = millis(now);
        let mut recorded = Recorded::default();
        let mut state = self.lock();
        state.sweep(&self.limits, now);
        for report in reports {
            if report.has_bad_name() {
                recorded.n_bad_names += 1;
            } else if report.is_implausible() {
                recorded.n_implausible += 1;
            } else {
                let is_known = is_served(&report.cluster);
                match state.record(&self.limits, reporter, report, is_known, now) {
                    Ok(()) => recorded.n_kept += 1,
                    Err(Full::Unknown) => recorded.n_unknown += 1,
                    Err(Full::Series) => recorded.n_over_limit += 1,
                }
            }
        }
        recorded
    }

    /// How many series are kept.
    #[must_use]
    pub fn n_series(&self) -> usize {
        self.lock().n_series
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// For a cluster that the node is not served.
    Unknown,
    /// For anything more.
    Series,
}

impl BoardState {
    fn record(
        &mut self,
        limits: &LoadLimits,
        reporter: &Reporter,
        report: &ClusterReport,
        is_known: bool,
        now: Millis,
    ) -> Result<(), Full> {
        let Self { clusters, n_series, n_unknown, left_out_at, .. } = self;
        if !clusters.contains_key(report.key()) {
            if !is_known && *n_unknown >= MAX_UNKNOWN_CLUSTERS {
                return Err(Full::Unknown);
            }
            if *n_series >= limits.max_series {
                *left_out_at = Some(now);
                return Err(Full::Series);
            }
            *n_unknown += usize::from(!is_known);
            clusters.insert(report.key().into(), Cluster { is_known, nodes: BTreeMap::new() });
        }
        let Some(cluster) = clusters.get_mut(report.key()) else { return Err(Full::Series) };
        if is_known && !cluster.is_known {
            cluster.is_known = true;
            *n_unknown -= 1;
        }
        let key = (Arc::clone(&reporter.node), report.cluster.as_str().into());
        let node = match cluster.nodes.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if *n_series >= limits.max_series => {
                *left_out_at = Some(now);
                return Err(Full::Series);
            }
            Entry::Vacant(entry) => {
                *n_series += 1;
                entry.insert(NodeReports::new(reporter))
            }
        };
        node.groups = Arc::clone(&reporter.groups);
        let room = limits.max_series - *n_series;
        let n_before = node.localities.len();
        let is_whole = node.record(limits, report, room, now);
        *n_series += node.localities.len() - n_before;
        if is_whole {
            return Ok(());
        }
        *left_out_at = Some(now);
        Err(Full::Series)
    }

    /// Removes everything that is too old, once in each bucket.
    fn sweep(&mut self, limits: &LoadLimits, now: Millis) {
        let bucket = bucket(limits);
        if (self.swept_at..self.swept_at.saturating_add(bucket)).contains(&now) {
            return;
        }
        self.swept_at = now;
        let horizon = now.saturating_sub(duration_millis(limits.kept_for));
        let Self { clusters, n_series, n_unknown, .. } = self;
        clusters.retain(|_, cluster| {
            cluster.nodes.retain(|_, node| {
                let n_before = node.localities.len();
                let is_kept = node.forget_before(horizon);
                *n_series -= if is_kept { n_before - node.localities.len() } else { n_before + 1 };
                is_kept
            });
            let is_kept = !cluster.nodes.is_empty();
            *n_unknown -= usize::from(!is_kept && !cluster.is_known);
            is_kept
        });
    }
}

impl NodeReports {
    fn new(reporter: &Reporter) -> Self {
        Self {
            groups: Arc::clone(&reporter.groups),
            last: 0,
            interval: 0,
            overall: Window::default(),
            drop_reasons: Vec::new(),
            localities: BTreeMap::new(),
        }
    }

    /// Adds a report, of whose localities at most `room` may be new ones. Tells whether all of it had room.
    fn record(&mut self, limits: &LoadLimits, report: &ClusterReport, room: usize, now: Millis) -> bool {
        let bucket = bucket(limits);
        let interval = if report.interval.is_zero() { limits.bucket } else { report.interval };
        let interval = duration_millis(interval.min(limits.kept_for));
        let period = Period { from: now.saturating_sub(interval), until: now };
        (self.last, self.interval) = (now, interval);
        let dropped_by = self.drops_by_reason(report);
        self.overall.add(period, bucket, |sum| {
            sum.covered = sum.covered.saturating_add(interval);
            sum.dropped = sum.dropped.saturating_add(report.dropped);
            let n_reasons = sum.dropped_by.len().max(dropped_by.len());
            sum.dropped_by.resize(n_reasons, 0);
            for (sum, n) in sum.dropped_by.iter_mut().zip(&dropped_by) {
                *sum = sum.saturating_add(*n);
            }
        });
        // A place that a report does not mention has no request in progress any more.
        self.localities.values_mut().for_each(|series| series.in_progress = 0);
        let max_localities = (self.localities.len() + room).min(MAX_LOCALITIES_PER_CLUSTER);
        let mut is_whole = true;
        for locality in &report.localities {
            if !self.localities.contains_key(&locality.place) && self.localities.len() >= max_localities {
                is_whole = false;
                continue;
            }
            let series = self.localities.entry(locality.place.clone()).or_default();
            series.in_progress = series.in_progress.saturating_add(locality.in_progress);
            series.keep_metrics(&locality.metrics);
            series.window.add(period, bucket, |sum| *sum += locality.counts);
        }
        is_whole
    }

    /// The numbers of drops in the order of [`drop_reasons`](Self::drop_reasons); reasons beyond what is kept have no name.
    fn drops_by_reason(&mut self, report: &ClusterReport) -> Vec<u64> {
        let mut drops = Vec::new();
        for (reason, n) in &report.dropped_by {
            let known = self.drop_reasons.iter().position(|known| **known == **reason);
            let index = match known {
                Some(index) => index,
                None if self.drop_reasons.len() >= MAX_DROP_REASONS || reason.len() > MAX_LABEL_BYTES => {
                    continue;
                }
                None => {
                    self.drop_reasons.push(reason.as_str().into());
                    self.drop_reasons.len() - 1
                }
            };
            let n_reasons = drops.len().max(index + 1);
            drops.resize(n_reasons, 0_u64);
            if let Some(sum) = drops.get_mut(index) {
                *sum = sum.saturating_add(*n);
            }
        }
        drops
    }

    /// Requests under way; none if its last report is too old for that.
    fn in_progress_at(&self, now: Millis) -> u64 {
        if now > self.last.saturating_add(self.interval.saturating_mul(STALE_AFTER)) {
            return 0;
        }
        self.localities.values().fold(0, |sum: u64, series| sum.saturating_add(series.in_progress))
    }

    /// Tells whether anything is left.
    fn forget_before(&mut self, horizon: Millis) -> bool {
        self.overall.forget_before(horizon);
        self.localities.retain(|_, series| {
            series.window.forget_before(horizon);
            !series.window.is_empty()
        });
        !self.overall.is_empty()
    }
}

impl Series {
    fn keep_metrics(&mut self, reported: &[(String, Metric)]) {
        if reported.is_empty() {
            return;
        }
        self.metrics.clear();
        let is_kept = |(name, metric): &&(String, Metric)| metric.is_kept_as(name);
        for (name, metric) in reported.iter().filter(is_kept).take(MAX_METRICS) {
            *self.metrics.entry(name.as_str().into()).or_default() += *metric;
        }
    }
}

fn bucket(limits: &LoadLimits) -> Millis {
    duration_millis(limits.bucket).max(1)
}

/// After so many intervals without a report, requests in progress no longer count.
const STALE_AFTER: u64 = 3;
/// The number of clusters that are kept although nodes are not served them, such as those of an Envoy's own bootstrap. The
/// limit prevents invented clusters from using up the room of others.
pub const MAX_UNKNOWN_CLUSTERS: usize = 1_000;
/// How many localities and priorities a node may report of one cluster.
pub const MAX_LOCALITIES_PER_CLUSTER: usize = 64;
/// How many reasons for drops have a name, for one cluster of a node.
pub const MAX_DROP_REASONS: usize = 8;
/// How many metrics of backends are kept for one locality.
pub const MAX_METRICS: usize = 16;
