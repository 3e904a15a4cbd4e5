//! The boards of the process that the services read and write.

use std::sync::Arc;

use xds_access::Trail;
use xds_cache::{LoadBoard, Publisher, Refusals, StatusBoard};

use crate::culprits::KeptCulprits;
use crate::traces::Traces;

/// The publisher that the services read from, and the boards that they write to.
#[derive(Clone, Debug)]
pub struct Boards {
    /// Gives the views.
    pub publisher: Arc<Publisher>,
    /// Keeps what clients were sent and what they answered.
    pub board: Arc<StatusBoard>,
    /// Keeps the load that clients report.
    pub loads: Arc<LoadBoard>,
    /// Knows what clients reject.
    pub(crate) culprits: Arc<KeptCulprits>,
    /// Counts requests over a limit.
    pub refusals: Arc<Refusals>,
    /// Records the clients that are denied.
    pub trail: Arc<Trail>,
    /// Traces responses and answers, if changes are traced.
    pub(crate) traces: Option<Arc<Traces>>,
}
