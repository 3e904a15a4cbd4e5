//! Metrics of each rollout, read at each scrape.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use xds_api::rollouts::Rollouts;
use xds_rollout::{Counts, Rollout, RolloutStatus};

/// The rollouts that move weights; none until they are set. They hold the control, which holds the metrics and the store: held by these in
/// turn, nothing would ever be closed.
#[derive(Debug)]
pub(super) struct Canaries(pub(super) Arc<OnceLock<Weak<dyn Rollouts>>>);

impl Collector for Canaries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(rollouts) = self.0.get().and_then(Weak::upgrade) else { return Ok(()) };
        let all = rollouts.list();
        let moving: Vec<&Arc<Rollout>> =
            all.values().filter(|rollout| rollout.owns_rule()).take(MAX_ROLLOUTS).collect();
        let help = "The canary's share in the traffic of a rollout that goes on, of the first hundred by id";
        let name = "xds_rollout_canary_weight_ratio";
        let mut weights = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for rollout in &moving {
            let share = RolloutStatus::from(&***rollout).weights.canary.number() / 100.0;
            weights.encode_family(&[("rollout", rollout.id())])?.encode_gauge(&share)?;
        }
        let help = "The share of failed requests of each backend of a rollout, as the clients of this server reported in the last minute";
        let mut failures =
            encoder.encode_descriptor("xds_rollout_failure_ratio", help, None, MetricType::Gauge)?;
        for rollout in &moving {
            let loads = rollouts.loads(rollout);
            for (backend, counts) in [("canary", loads.canary), ("stable", loads.stable)] {
                let Some(ratio) = ratio(counts) else { continue };
                let labels = [("rollout", rollout.id()), ("backend", backend)];
                failures.encode_family(&labels)?.encode_gauge(&ratio)?;
            }
        }
        Ok(())
    }
}

/// `None` if there were no requests.
fn ratio(Counts { requests, failures }: Counts) -> Option<f64> {
    (requests > 0).then(|| failures as f64 / requests as f64)
}

/// How many rollouts have a label.
const MAX_ROLLOUTS: usize = 100;
