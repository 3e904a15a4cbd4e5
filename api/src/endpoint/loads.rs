//! `/v1/loads`: the load reports of clients.

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::GroupName;
use xds_cache::loads::{ClusterLoad, LocalityLoad, Metric, NodeLoad, PriorityLocality, Since};
use xds_cache::time::duration;
use xds_units::{parse_rfc3339, rfc3339};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::Params;
use crate::page;
use crate::problem::ApiError;
use crate::seen::seen_groups;
use crate::state::{ApiState, aside};

/// Reported requests.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadList {
    /// Reports that cover anything from before do not count; null if all count that are kept.
    pub since: Option<String>,
    /// When this was put together.
    pub at: String,
    /// True if every report that came in this time could be kept.
    pub complete: bool,
    /// By name.
    pub clusters: Vec<ClusterLoadEntry>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

/// A cluster, or several with the same endpoints.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterLoadEntry {
    /// The name of its endpoints in EDS, else the cluster's.
    pub name: String,
    /// The names that clients have for it.
    pub clusters: Vec<String>,
    /// True if a node that reported it is served a cluster with this name.
    pub known: bool,
    /// Over all localities and nodes.
    #[serde(flatten)]
    pub load: LoadEntry,
    /// Requests that were dropped on purpose, and by circuit breakers.
    pub dropped: u64,
    /// The dropped requests with a named reason.
    pub dropped_by: BTreeMap<String, u64>,
    /// The others.
    pub dropped_otherwise: u64,
    /// How many nodes have reported in this time.
    pub nodes: usize,
    /// The last report, even if it is older than the window.
    pub last_report: Option<String>,
    /// By priority and locality.
    pub localities: Vec<LocalityLoadEntry>,
    /// The nodes that have reported in this time, by id: only if a cluster or node was asked for, and the first thousand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reporters: Vec<ReporterEntry>,
}

/// Requests in this time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadEntry {
    /// Sent; 0 from clients that do not say.
    pub issued: u64,
    /// Ended well.
    pub successful: u64,
    /// Ended with an error, as the client counts errors: 5xx for HTTP, a status other than OK for gRPC clients.
    pub errors: u64,
    /// Under way, as of the last reports.
    pub in_progress: u64,
    /// Requests per second.
    pub rate: f64,
    /// The share of errors among those that have ended, from 0 to 1; null if none has.
    pub error_rate: Option<f64>,
}

/// A locality of one priority.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalityLoadEntry {
    /// May be empty.
    pub region: String,
    /// May be empty.
    pub zone: String,
    /// May be empty.
    pub sub_zone: String,
    /// 0 is the first.
    pub priority: u32,
    /// Requests.
    #[serde(flatten)]
    pub load: LoadEntry,
    /// Metrics that backends gave in the last reports (ORCA), by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, MetricEntry>,
}

/// A value that backends report with their answers.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetricEntry {
    /// Requests that came with it.
    pub requests: u64,
    /// The sum of the values.
    pub sum: f64,
    /// The mean.
    pub mean: f64,
}

/// A node.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReporterEntry {
    /// The node's id.
    pub node: String,
    /// Its groups at its last report, the one that wins first.
    pub groups: Vec<String>,
    /// Sent.
    pub issued: u64,
    /// Ended well.
    pub successful: u64,
    /// Ended with an error.
    pub errors: u64,
    /// Its last report of the cluster.
    pub last_report: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadParams {
    cluster: Option<String>,
    node: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<LoadParams>,
) -> Result<Answer, ApiError> {
    let now = SystemTime::now();
    let from = params.since.as_deref().map(|text| read_since(text, now)).transpose()?;
    let since = Since { from, now };
    let limit = page::limit(params.limit)?;
    let after = params.after.as_deref().map(page::parts).transpose()?.map(|[name]| name);
    aside(move || {
        let names: Vec<&str> = params.cluster.as_deref().into_iter().collect();
        let asked = (names.as_slice(), params.node.as_deref());
        // One more than wanted shows whether there is a next page.
        let wants = |groups: &[GroupName]| caller.sees_node(groups);
        let loads = state.loads.query_after(asked, wants, since, (after.as_deref(), limit + 1));
        let (loads, next) = page::cut(loads.into_iter(), limit, |load| page::place(&[&load.name]));
        let n_reporters = if params.cluster.is_some() || params.node.is_some() { MAX_REPORTERS } else { 0 };
        Answer::ok(&LoadList {
            since: from.map(rfc3339),
            at: rfc3339(now),
            complete: state.loads.is_complete(since),
            clusters: loads.into_iter().map(|load| cluster(load, n_reporters, &caller)).collect(),
            next,
        })
    })
    .await?
}

fn cluster(load: ClusterLoad, n_reporters: usize, caller: &Caller) -> ClusterLoadEntry {
    ClusterLoadEntry {
        dropped_otherwise: load.dropped_otherwise(),
        name: load.name.to_string(),
        clusters: load.clusters.iter().map(ToString::to_string).collect(),
        known: load.is_known,
        load: entry(&load.total),
        dropped: load.dropped,
        dropped_by: load.dropped_by.iter().map(|(reason, n)| (reason.to_string(), *n)).collect(),
        nodes: load.nodes.len(),
        last_report: load.last_report.map(rfc3339),
        localities: load.localities.into_iter().map(|(place, load)| locality(place, &load)).collect(),
        reporters: load.nodes.iter().take(n_reporters).map(|(id, node)| reporter(id, node, caller)).collect(),
    }
}

fn entry(load: &LocalityLoad) -> LoadEntry {
    LoadEntry {
        issued: load.counts.issued,
        successful: load.counts.successful,
        errors: load.counts.errors,
        in_progress: load.in_progress,
        rate: load.rate,
        error_rate: load.counts.error_rate(),
    }
}

fn locality(place: PriorityLocality, load: &LocalityLoad) -> LocalityLoadEntry {
    let metrics = load.metrics.iter().map(|(name, metric)| (name.to_string(), metric_entry(metric)));
    LocalityLoadEntry {
        region: place.locality.region,
        zone: place.locality.zone,
        sub_zone: place.locality.sub_zone,
        priority: place.priority,
        load: entry(load),
        metrics: metrics.collect(),
    }
}

fn metric_entry(metric: &Metric) -> MetricEntry {
    // A metric without requests is not kept.
    let mean = metric.sum / metric.n_requests.max(1) as f64;
    MetricEntry { requests: metric.n_requests, sum: metric.sum, mean }
}

fn reporter(id: &str, node: &NodeLoad, caller: &Caller) -> ReporterEntry {
    ReporterEntry {
        node: id.to_owned(),
        groups: seen_groups(caller, &node.groups),
        issued: node.counts.issued,
        successful: node.counts.successful,
        errors: node.counts.errors,
        last_report: rfc3339(node.last_report),
    }
}

/// A point in time, or how long ago.
fn read_since(text: &str, now: SystemTime) -> Result<SystemTime, ApiError> {
    let ago = duration(text).ok().map(|ago| now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH));
    ago.or_else(|| parse_rfc3339(text)).ok_or_else(|| {
        ApiError::BadRequest(format!(
            "since={text:?} is not a time: write how long ago, such as 90s or 5m, or when, such as {}",
            rfc3339(now)
        ))
    })
}

/// How many nodes of a cluster are listed.
const MAX_REPORTERS: usize = 1_000;
