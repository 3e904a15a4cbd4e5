//! Metrics of the SPIFFE agent.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::spiffe::{Agent, Fault};

/// The agent that certificates come from.
#[derive(Debug)]
pub(super) struct AgentCounts(pub(super) Arc<Agent>);

impl Collector for AgentCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.0.state();
        let help = "1 if the last thing that the SPIFFE agent did was to send a usable certificate, else 0";
        let is_good = i64::from(state.svid.is_some() && state.trouble.is_none());
        let mut healthy = encoder.encode_descriptor("xds_spiffe_healthy", help, None, MetricType::Gauge)?;
        healthy.encode_gauge(&is_good)?;
        let help = "Certificates that the SPIFFE agent sent";
        let mut updates = encoder.encode_descriptor("xds_spiffe_updates", help, None, MetricType::Counter)?;
        updates.encode_counter::<NoLabelSet, _, u64>(&state.n_updates, None)?;
        let help = "Failures of the SPIFFE agent: it did not answer (away), it had no identity for the server (denied), or its answer made no sense (unusable)";
        let mut failures =
            encoder.encode_descriptor("xds_spiffe_failures", help, None, MetricType::Counter)?;
        for fault in [Fault::Away, Fault::Denied, Fault::Unusable] {
            let n = state.n_failures.get(&fault).copied().unwrap_or_default();
            let labels = [("reason", fault.label())];
            failures.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        Ok(())
    }
}
