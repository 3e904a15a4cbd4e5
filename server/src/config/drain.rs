//! The drain times of groups that set none, as flags.

use std::time::Duration;

use xds_cache::DrainPolicy;
use xds_cache::time::duration;

/// The flags of draining.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Draining")]
pub struct DrainArgs {
    /// How long to send removed endpoints as DRAINING; 0s disables this. A node group may set another time
    #[arg(long, env = "XDS_SERVER_DRAIN_ENDPOINTS", value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub drain_endpoints: Duration,
    /// How long to keep removed clusters and their endpoints for requests that were already routed to them; 0s disables this. A
    /// node group may set another time
    #[arg(long, env = "XDS_SERVER_DRAIN_CLUSTERS", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub drain_clusters: Duration,
}

impl From<DrainArgs> for DrainPolicy {
    fn from(args: DrainArgs) -> Self {
        Self { endpoints: Some(args.drain_endpoints), clusters: Some(args.drain_clusters) }
    }
}
