//! The board's answers: sums over nodes, localities and time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Cluster, LoadBoard, LoadLimits, NodeReports, STALE_AFTER, bucket};
use crate::group::GroupName;
use crate::loads::report::{Counts, Metrics, PriorityLocality};
use crate::loads::window::{Millis, Period};
use crate::time::{duration_millis, from_millis, millis};

/// The period that counts: those that cover nothing from before `from`, up to `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The beginning; `None` for as long as reports are kept.
    pub from: Option<SystemTime>,
    /// The time of the question.
    pub now: SystemTime,
}

/// The load of one cluster, or of several with the same endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterLoad {
    /// The name of its endpoints in EDS, else the cluster's.
    pub name: Arc<str>,
    /// The names that clients have for it.
    pub clusters: BTreeSet<Arc<str>>,
    /// True if a node that reported it is served a cluster of that name.
    pub is_known: bool,
    /// Over all localities and nodes.
    pub total: LocalityLoad,
    /// Requests that were dropped on purpose, and by circuit breakers.
    pub dropped: u64,
    /// Those of them with a named reason.
    pub dropped_by: BTreeMap<Arc<str>, u64>,
    /// By locality and priority.
    pub localities: BTreeMap<PriorityLocality, LocalityLoad>,
    /// By node: those that reported in the time that counts.
    pub nodes: BTreeMap<Arc<str>, NodeLoad>,
    /// The last report of those, in whatever time.
    pub last_report: Option<SystemTime>,
}

/// Requests to one locality, or to all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityLoad {
    /// In the time that counts.
    pub counts: Counts,
    /// Requests under way, as of the last reports; those of nodes that report no more do not count.
    pub in_progress: u64,
    /// Requests per second, summed over nodes: the requests that a node issued (or that ended, if it does not report issued
    /// ones), divided by the time that its reports cover (row A213).
    pub rate: f64,
    /// The metrics that backends gave in the last reports (row A216). Empty for the total.
    pub metrics: Metrics,
}

/// The report of one node about a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLoad {
    /// The groups of the node at its last report, the one that wins first.
    pub groups: Arc<[GroupName]>,
    /// In the time that counts.
    pub counts: Counts,
    /// The node's last report of the cluster.
    pub last_report: SystemTime,
}

/// The figures for a decision about a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadTotals {
    /// Over all nodes, in the time that counts.
    pub counts: Counts,
    /// Requests that were dropped on purpose, and by circuit breakers.
    pub dropped: u64,
    /// How many nodes have sent a report that counts.
    pub n_nodes: usize,
    /// The time of the oldest of these nodes' last reports; a node that no longer reports shows here.
    pub oldest_report: Option<SystemTime>,
    /// The time of the newest of these nodes' last reports.
    pub newest_report: Option<SystemTime>,
    /// True if every report that came in this time could be kept.
    pub is_complete: bool,
}

impl LoadBoard {
    /// Every cluster that was reported, by name; only those named in `clusters` unless it is empty, by the name of the
    /// cluster or that of its endpoints; only what `node` reported, if it is given.
    #[must_use]
    pub fn query(&self, clusters: &[&str], node: Option<&str>, since: Since) -> Vec<ClusterLoad> {
        self.query_after((clusters, node), |_| true, since, (None, usize::MAX))
    }

    /// The first `at_most` of what a [query](Self::query) for `clusters` and a `node` finds, of the clusters whose names come
    /// after `after`. Only reports of nodes count for whose groups, as of their last report, `wants` is `true`.
    #[must_use]
    pub fn query_after(
        &self,
        (clusters, node): (&[&str], Option<&str>),
        wants: impl Fn(&[GroupName]) -> bool,
        since: Since,
        (after, at_most): (Option<&str>, usize),
    ) -> Vec<ClusterLoad> {
        let range = Range::new(&self.limits, since);
        let state = self.lock();
        let wanted = |key: &Arc<str>, (of, cluster): &(Arc<str>, Arc<str>), reports: &NodeReports| {
            let is_named =
                clusters.is_empty() || clusters.iter().any(|name| **name == **key || **name == **cluster);
            is_named && node.is_none_or(|node| *node == **of) && wants(&reports.groups)
        };
        let mut loads = Vec::new();
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        for (key, cluster) in state.clusters.range::<str, _>(behind) {
            if loads.len() >= at_most {
                break;
            }
            let load = ClusterLoad::new(key, cluster, &range, |of, reports| wanted(key, of, reports));
            loads.extend(load.filter(|load| load.last_report.is_some()));
        }
        loads
    }

    /// The reports of all nodes about the clusters with these names or with endpoints of these names, each report once.
    #[must_use]
    pub fn totals(&self, clusters: &[&str], since: Since) -> LoadTotals {
        let mut totals = LoadTotals { is_complete: self.is_complete(since), ..LoadTotals::default() };
        if clusters.is_empty() {
            return totals;
        }
        let mut last_reports: BTreeMap<Arc<str>, SystemTime> = BTreeMap::new();
        for load in self.query(clusters, None, since) {
            totals.counts += load.total.counts;
            totals.dropped = totals.dropped.saturating_add(load.dropped);
            for (node, load) in load.nodes {
                let last = last_reports.entry(node).or_insert(load.last_report);
                *last = (*last).max(load.last_report);
            }
        }
        totals.n_nodes = last_reports.len();
        totals.oldest_report = last_reports.values().min().copied();
        totals.newest_report = last_reports.values().max().copied();
        totals
    }

    /// The reports of all nodes about these clusters over time: a sum for each bucket, the last of them that of `now`.
    #[must_use]
    pub fn series(&self, clusters: &[&str], now: SystemTime) -> Vec<Counts> {
        let bucket = bucket(&self.limits);
        let n_buckets = duration_millis(self.limits.kept_for) / bucket;
        let last = millis(now) / bucket;
        let first = last.saturating_sub(n_buckets.saturating_sub(1));
        let mut sums = vec![Counts::default(); usize::try_from(last - first + 1).unwrap_or_default()];
        let state = self.lock();
        let all = state.clusters.iter().flat_map(|(key, cluster)| {
            cluster.nodes.iter().map(move |((_, name), reports)| ([key, name], reports))
        });
        for (names, reports) in all {
            if !names.iter().any(|name| clusters.contains(&&***name)) {
                continue;
            }
            for (until, counts) in reports.localities.values().flat_map(|series| series.window.all()) {
                let at = (until / bucket).checked_sub(first).and_then(|at| usize::try_from(at).ok());
                if let Some(sum) = at.and_then(|at| sums.get_mut(at)) {
                    *sum += *counts;
                }
            }
        }
        sums
    }

    /// The reports of the nodes of each of `N` parts about all clusters together; `part` says which part a node is in, if any.
    #[must_use]
    pub fn by_part<const N: usize>(&self, since: Since, part: impl Fn(&str) -> Option<usize>) -> [Counts; N] {
        let Range { period, .. } = Range::new(&self.limits, since);
        let mut sums = [Counts::default(); N];
        let state = self.lock();
        for ((node, _), reports) in state.clusters.values().flat_map(|cluster| &cluster.nodes) {
            let Some(sum) = part(node).and_then(|part| sums.get_mut(part)) else { continue };
            for series in reports.localities.values() {
                series.window.within(period).for_each(|counts| *sum += *counts);
            }
        }
        sums
    }

    /// Returns `true` if every report that came in this time could be kept.
    #[must_use]
    pub fn is_complete(&self, since: Since) -> bool {
        let Range { period, .. } = Range::new(&self.limits, since);
        self.lock().left_out_at.is_none_or(|at| at < period.from || at > period.until)
    }
}

/// The time that counts.
struct Range {
    period: Period,
    now: Millis,
}

impl Range {
    fn new(limits: &LoadLimits, since: Since) -> Self {
        let now = millis(since.now);
        // A report that ended within the time for which reports are kept may have begun an interval of that length before.
        let oldest = now.saturating_sub(duration_millis(limits.kept_for).saturating_mul(2));
        let from = since.from.map_or(oldest, |from| millis(from).max(oldest));
        Self { period: Period { from, until: now }, now }
    }
}

impl ClusterLoad {
    fn new(
        key: &Arc<str>,
        cluster: &Cluster,
        range: &Range,
        wanted: impl Fn(&(Arc<str>, Arc<str>), &NodeReports) -> bool,
    ) -> Option<Self> {
        let mut load = Self {
            name: Arc::clone(key),
            clusters: BTreeSet::new(),
            is_known: cluster.is_known,
            total: LocalityLoad::default(),
            dropped: 0,
            dropped_by: BTreeMap::new(),
            localities: BTreeMap::new(),
            nodes: BTreeMap::new(),
            last_report: None,
        };
        for (reporter, reports) in cluster.nodes.iter().filter(|(of, reports)| wanted(of, reports)) {
            load.add(reporter, reports, range);
        }
        (!load.clusters.is_empty()).then_some(load)
    }

    fn add(&mut self, (node, cluster): &(Arc<str>, Arc<str>), reports: &NodeReports, range: &Range) {
        self.clusters.insert(Arc::clone(cluster));
        let last_report = from_millis(reports.last);
        self.last_report = self.last_report.max(Some(last_report));
        let mut covered: Millis = 0;
        let mut has_reported = false;
        for overall in reports.overall.within(range.period) {
            has_reported = true;
            covered = covered.saturating_add(overall.covered);
            self.dropped = self.dropped.saturating_add(overall.dropped);
            for (reason, n) in reports.drop_reasons.iter().zip(&overall.dropped_by) {
                let sum = self.dropped_by.entry(Arc::clone(reason)).or_default();
                *sum = sum.saturating_add(*n);
            }
        }
        let mut of_node = Counts::default();
        let is_fresh = range.now <= reports.last.saturating_add(reports.interval.saturating_mul(STALE_AFTER));
        for (place, series) in &reports.localities {
            let mut counts = Counts::default();
            series.window.within(range.period).for_each(|sum| counts += *sum);
            of_node += counts;
            let load = self.localities.entry(place.clone()).or_default();
            let in_progress = if is_fresh { series.in_progress } else { 0 };
            for sum in [load, &mut self.total] {
                sum.counts += counts;
                sum.in_progress = sum.in_progress.saturating_add(in_progress);
                sum.rate += rate(counts, covered);
            }
            let load = self.localities.entry(place.clone()).or_default();
            for (name, metric) in series.metrics.iter().filter(|_| is_fresh) {
                *load.metrics.entry(Arc::clone(name)).or_default() += *metric;
            }
        }
        if has_reported {
            let groups = Arc::clone(&reports.groups);
            let new = NodeLoad { groups, counts: Counts::default(), last_report };
            let load = self.nodes.entry(Arc::clone(node)).or_insert(new);
            load.counts += of_node;
            load.last_report = load.last_report.max(last_report);
        }
    }

    /// Dropped requests without a named reason: those of circuit breakers, for instance (row A215).
    #[must_use]
    pub fn dropped_otherwise(&self) -> u64 {
        let named = self.dropped_by.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
        self.dropped.saturating_sub(named)
    }
}

/// Requests per second.
fn rate(counts: Counts, covered: Millis) -> f64 {
    if covered == 0 {
        return 0.0;
    }
    counts.issued.max(counts.finished()) as f64 / Duration::from_millis(covered).as_secs_f64()
}
