//! Metrics of requests to the admin API.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use xds_api::counts::{BUCKETS, Durations, Refusal, RequestCounts, Route};

/// The requests to the admin port and to that of probes.
#[derive(Debug)]
pub(super) struct ApiRequests(pub(super) Arc<RequestCounts>);

impl Collector for ApiRequests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help =
            "Time until the answer to a request to the admin API, by endpoint; of a stream until it begins";
        let name = "xds_api_request_duration_seconds";
        let mut durations = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (Route { method, path }, Durations { counts, sum }) in self.0.durations() {
            let bounds = BUCKETS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let labels = [("method", method), ("route", path)];
            let n = counts.iter().sum();
            durations.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, n, &buckets, None)?;
        }
        let help = "Requests to the admin API that were not done, by status code and type of problem";
        let mut refusals = encoder.encode_descriptor("xds_api_refusals", help, None, MetricType::Counter)?;
        for (Refusal { status, problem }, n) in self.0.refusals() {
            let status = status.to_string();
            let labels = [("status", status.as_str()), ("type", problem)];
            refusals.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        Ok(())
    }
}
