//! Load reports: what clients say of the requests that they send, by cluster, node and locality, for a while.
//!
//! Clients report what happened since their last report, so everything is a sum: a client that comes back, or another one of
//! the same node id, adds to what is there. Only requests in progress are a state, which the next report replaces.
//!
//! Everything has a bound, whatever clients say: [`LoadLimits`]. What does not fit is left out and counted, and an answer about
//! the time in which that happened says that it is not complete.

mod board;
mod report;
mod window;

pub use board::query::{ClusterLoad, LoadTotals, NodeLoad, PlaceLoad, Since};
pub use board::{LoadBoard, LoadLimits, MAX_DROP_REASONS, MAX_METRICS, MAX_PLACES, MAX_UNKNOWN_CLUSTERS};
pub use report::{
    ClusterReport, Counts, LocalityReport, MAX_LABEL_BYTES, MAX_LOCALITY_BYTES, MAX_NAME_BYTES,
    MAX_REQUESTS_PER_REPORT, Metric, Metrics, Place, Recorded, Reporter,
};
