//! The rest of the server, as rollouts see it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::time::millis;
use xds_cache::{LoadBoard, Publisher, StatusBoard};
use xds_control::Control;
use xds_control::peers::Peers;
use xds_rollout::Phase;

use super::fetch::Caller;

/// The parts with which rollouts are driven.
#[derive(Clone)]
pub struct DriverParts {
    /// Stores states, and publishes weights.
    pub control: Control,
    /// The views that are served.
    pub publisher: Arc<Publisher>,
    /// The clients that are connected.
    pub board: Arc<StatusBoard>,
    /// The requests that clients report.
    pub loads: Arc<LoadBoard>,
    /// The wall clock, in milliseconds since 1970.
    pub clock: Clock,
    /// Calls webhooks and Prometheus.
    pub caller: Caller,
    /// The other servers with the same store, if they ask each other.
    pub peers: Option<Arc<dyn Peers>>,
    /// Gets the number of rollouts in each phase.
    pub observer: Option<Arc<dyn Observer>>,
}

/// A clock.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Reports of the driver about its work, for the metrics.
pub trait Observer: Send + Sync {
    /// How many rollouts of each phase are kept; phases without any are left out.
    fn rollouts(&self, counts: &BTreeMap<Phase, usize>);
}

/// The wall clock.
#[must_use]
pub fn wall_clock() -> Clock {
    Arc::new(|| millis(SystemTime::now()))
}

impl fmt::Debug for DriverParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverParts").field("control", &self.control).finish_non_exhaustive()
    }
}
