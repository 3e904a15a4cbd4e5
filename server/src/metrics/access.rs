//! Metrics of access: requests by how they were recognised, and the audit log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use xds_access::{AuthCounts, Trail};

/// The counts of both ports, and the audit log.
#[derive(Debug)]
pub(super) struct AccessCounts(pub(super) Arc<AuthCounts>, pub(super) Arc<Trail>);

impl Collector for AccessCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.all();
        let help = "Requests by the way in which they said who they are, and whether they were allowed";
        let mut requests = encoder.encode_descriptor("xds_auth", help, None, MetricType::Counter)?;
        let mut by_outcome: BTreeMap<_, u64> = BTreeMap::new();
        for (count, n) in &counts {
            let outcome = if count.denied.is_some() { "denied" } else { "allowed" };
            *by_outcome.entry((count.port, count.method, outcome)).or_default() += n;
        }
        for ((port, method, outcome), n) in by_outcome {
            let labels = [("port", port), ("method", method), ("outcome", outcome)];
            requests.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        let help = "Requests that were refused, by the reason";
        let mut denied = encoder.encode_descriptor("xds_auth_denied", help, None, MetricType::Counter)?;
        let mut by_reason: BTreeMap<_, u64> = BTreeMap::new();
        for (count, n) in &counts {
            let Some(reason) = count.denied else { continue };
            *by_reason.entry((count.port, reason)).or_default() += n;
        }
        for ((port, reason), n) in by_reason {
            let labels = [("port", port), ("reason", reason)];
            denied.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        let help = "Lines of the audit log that could not be written at once";
        let errors = encoder.encode_descriptor("xds_audit_errors", help, None, MetricType::Counter)?;
        encode_total(errors, self.1.n_errors())
    }
}

fn encode_total(
    mut encoder: prometheus_client::encoding::MetricEncoder<'_>,
    n: u64,
) -> Result<(), fmt::Error> {
    encoder.encode_counter::<NoLabelSet, _, u64>(&n, None)
}
