//! The requests to two sets of clusters, side by side in windows that all end now: what a decision between two backends goes by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::{LoadBoard, NodeReports};
use crate::loads::board::query::Since;
use crate::loads::report::Counts;
use crate::loads::window::{Millis, Period};
use crate::time::{duration_millis, millis};

/// The requests to two sets of clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideBySide {
    /// One for each beginning.
    pub windows: Vec<SidesIn>,
    /// Requests that ended in the first window, but not in the second one.
    pub earlier: u64,
    /// Those of them of nodes that have not reported in the second one.
    pub silent: u64,
    /// True if every report of the first window could be kept.
    pub is_complete: bool,
}

/// The requests in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidesIn {
    /// Over all nodes.
    pub sides: [Side; 2],
    /// How many nodes have issued any.
    pub n_nodes: u64,
    /// The most requests that a node has issued, of which none went to the first side.
    pub starved: u64,
}

/// The requests to one set of clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// By outcome.
    pub counts: Counts,
    /// Dropped on purpose, and by circuit breakers.
    pub dropped: u64,
    /// Under way, as of the last reports.
    pub in_progress: u64,
}

/// The reports of one node.
#[derive(Clone, Debug, Default)]
struct OfNode {
    issued: Vec<[u64; 2]>,
    /// Requests that have ended, in the first window and in the second one.
    ended: [u64; 2],
    is_heard: bool,
}

impl LoadBoard {
    /// The reports of all nodes about two sets of clusters, by the names of the clusters or of their endpoints, in windows that begin at
    /// `starts` and end `now`. Only reports count that lie within a window as a whole.
    #[must_use]
    pub fn side_by_side(&self, sides: [&[&str]; 2], starts: &[SystemTime], now: SystemTime) -> SideBySide {
        let since = Since { from: starts.first().copied(), now };
        let mut sums = SideBySide { is_complete: self.is_complete(since), ..SideBySide::default() };
        let now = millis(now);
        let oldest = now.saturating_sub(duration_millis(self.limits().kept_for).saturating_mul(2));
        let period = |start: &SystemTime| Period { from: millis(*start).max(oldest), until: now };
        let periods: Vec<Period> = starts.iter().map(period).collect();
        sums.windows = vec![SidesIn::default(); periods.len()];
        let mut nodes: BTreeMap<Arc<str>, OfNode> = BTreeMap::new();
        let state = self.lock();
        for (key, cluster) in &state.clusters {
            for ((node, name), reports) in &cluster.nodes {
                let is_of = |side: &[&str]| side.iter().any(|one| **one == **key || **one == **name);
                let Some(side) = sides.iter().position(|side| is_of(side)) else { continue };
                sums.add(side, reports, &periods, nodes.entry(Arc::clone(node)).or_default(), now);
            }
        }
        for node in nodes.values() {
            sums.add_node(node);
        }
        sums
    }
}

impl SideBySide {
    fn add(
        &mut self,
        side: usize,
        reports: &NodeReports,
        periods: &[Period],
        node: &mut OfNode,
        now: Millis,
    ) {
        node.issued.resize(periods.len(), [0; 2]);
        let in_progress = reports.in_progress_at(now);
        for (index, (period, window)) in periods.iter().zip(&mut self.windows).enumerate() {
            let Some(sum) = window.sides.get_mut(side) else { continue };
            let mut counts = Counts::default();
            for series in reports.localities.values() {
                series.window.within(*period).for_each(|cell| counts += *cell);
            }
            sum.counts += counts;
            sum.in_progress = sum.in_progress.saturating_add(in_progress);
            for overall in reports.overall.within(*period) {
                sum.dropped = sum.dropped.saturating_add(overall.dropped);
                node.is_heard |= index == LAST_PART;
            }
            if let Some(issued) = node.issued.get_mut(index).and_then(|sides| sides.get_mut(side)) {
                *issued = issued.saturating_add(counts.issued);
            }
            if let Some(ended) = node.ended.get_mut(index) {
                *ended = ended.saturating_add(counts.finished());
            }
        }
    }

    fn add_node(&mut self, node: &OfNode) {
        for ([first, second], window) in node.issued.iter().zip(&mut self.windows) {
            window.n_nodes += u64::from(first.saturating_add(*second) > 0);
            if *first == 0 {
                window.starved = window.starved.max(*second);
            }
        }
        let [all, last] = node.ended;
        let earlier = all.saturating_sub(last);
        self.earlier = self.earlier.saturating_add(earlier);
        if !node.is_heard {
            self.silent = self.silent.saturating_add(earlier);
        }
    }
}

/// The index of the window in which nodes must have reported.
const LAST_PART: usize = 1;
