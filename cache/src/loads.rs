//! Load reports: the requests that clients report, by cluster, node and locality, for a limited time.
//!
//! Clients report what happened since their last report, so everything is a sum: the reports of a client that reconnects, or of another
//! one with the same node ID, are added. Only requests in progress are a state, which the next report replaces.
//!
//! Everything that clients report is bounded by [`LoadLimits`]. The board leaves out and counts what does not fit, and an answer about
//! that time says that it is incomplete.

mod board;
mod report;
mod window;

pub use board::compare::{Side, SideBySide, SidesIn};
pub use board::query::{ClusterLoad, LoadTotals, LocalityLoad, NodeLoad, Since};
pub use board::{
    LoadBoard, LoadLimits, MAX_DROP_REASONS, MAX_LOCALITIES_PER_CLUSTER, MAX_METRICS, MAX_UNKNOWN_CLUSTERS,
};
pub use report::{
    ClusterReport, Counts, LocalityReport, MAX_LABEL_BYTES, MAX_LOCALITY_BYTES, MAX_NAME_BYTES,
    MAX_REQUESTS_PER_REPORT, Metric, Metrics, PriorityLocality, Recorded, Reporter,
};
