//! `/v1/loads`: the load reports of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::GroupName;
use xds_cache::loads::{ClusterLoad, LocalityLoad, Metric, NodeLoad, PriorityLocality, Since};
use xds_cache::time::{duration, duration_millis};
use xds_control::peers::{Question, ReplicasReport};
use xds_units::{parse_rfc3339, rfc3339};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::everyone::{Everyone, MAX_ASKED, Part, merge, scope_texts};
use crate::input::Params;
use crate::page;
use crate::problem::ApiError;
use crate::seen::seen_groups;
use crate::state::{ApiState, aside};

/// Reported requests.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadList {
    /// Reports that cover anything from before do not count; null if all count that are kept.
    pub since: Option<String>,
    /// When this was put together.
    pub at: String,
    /// True if every report that came in this time could be kept, and every server whose clients count has answered.
    pub complete: bool,
    /// By name.
    pub clusters: Vec<ClusterLoadEntry>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
    /// The servers whose clients these are, if several share the store and ask each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
}

/// A cluster, or several with the same endpoints.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reporters: Vec<ReporterEntry>,
}

/// Requests in this time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, MetricEntry>,
}

/// A value that backends report with their answers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
    replica: Option<String>,
}

/// The load reports that are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadQuery {
    pub(crate) cluster: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) from: Option<SystemTime>,
    pub(crate) limit: usize,
    /// As a caller gave it.
    pub(crate) after: Option<String>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<LoadParams>,
) -> Result<Answer, ApiError> {
    let now = SystemTime::now();
    let from = params.since.as_deref().map(|text| read_since(text, now)).transpose()?;
    let limit = page::limit(params.limit)?;
    let query = LoadQuery { cluster: params.cluster, node: params.node, from, limit, after: params.after };
    let Some(all) = Everyone::new(&state, params.replica.as_deref())? else {
        return Answer::ok(&aside(move || page(&state, &caller, &query, now)).await??);
    };
    let query = LoadQuery { limit: limit.min(MAX_ASKED), ..query };
    let question = Question::Loads {
        cluster: query.cluster.clone(),
        node: query.node.clone(),
        ago_ms: from.map(|from| duration_millis(now.duration_since(from).unwrap_or_default())),
        limit: query.limit,
        after: query.after.clone(),
        scope: caller.scope().map(scope_texts),
    };
    let limit = query.limit;
    let own = aside(move || page(&state, &caller, &query, now)).await??;
    let found = all.pages::<LoadList>(question, own).await;
    let (is_complete, replicas) = (found.is_complete(), found.report());
    let mut complete = is_complete;
    let parts = found.into_answers().map(|(_, list)| {
        complete &= list.complete;
        Part { items: list.clusters, is_last: list.next.is_none() }
    });
    let parts = parts.collect();
    let (clusters, has_more) = merge(parts, limit, |load| load.name.clone(), ClusterLoadEntry::join);
    let last = clusters.last().filter(|_| has_more);
    let next = last.map(|load| page::place(&[&load.name]));
    let (since, at) = (from.map(rfc3339), rfc3339(now));
    Answer::ok(&LoadList { since, at, complete, clusters, next, replicas: Some(replicas) })
}

/// A page of what the clients of this server report.
pub(crate) fn page(
    state: &ApiState,
    caller: &Caller,
    query: &LoadQuery,
    now: SystemTime,
) -> Result<LoadList, ApiError> {
    let since = Since { from: query.from, now };
    let after = query.after.as_deref().map(page::parts).transpose()?.map(|[name]| name);
    let names: Vec<&str> = query.cluster.as_deref().into_iter().collect();
    let asked = (names.as_slice(), query.node.as_deref());
    // One more than wanted shows whether there is a next page.
    let wants = |groups: &[GroupName]| caller.sees_node(groups);
    let loads = state.loads.query_after(asked, wants, since, (after.as_deref(), query.limit + 1));
    let (loads, next) = page::cut(loads.into_iter(), query.limit, |load| page::place(&[&load.name]));
    let n_reporters = if query.cluster.is_some() || query.node.is_some() { MAX_REPORTERS } else { 0 };
    Ok(LoadList {
        since: query.from.map(rfc3339),
        at: rfc3339(now),
        complete: state.loads.is_complete(since),
        clusters: loads.into_iter().map(|load| cluster(load, n_reporters, caller)).collect(),
        next,
        replicas: None,
    })
}

impl ClusterLoadEntry {
    /// Adds what the clients of another server report.
    fn join(&mut self, other: Self) {
        let mut names: BTreeSet<String> = self.clusters.drain(..).collect();
        names.extend(other.clusters);
        self.clusters = names.into_iter().collect();
        self.known |= other.known;
        self.load.add(&other.load);
        self.dropped = self.dropped.saturating_add(other.dropped);
        for (reason, n) in other.dropped_by {
            let known = self.dropped_by.entry(reason).or_default();
            *known = known.saturating_add(n);
        }
        self.dropped_otherwise = self.dropped_otherwise.saturating_add(other.dropped_otherwise);
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.last_report = self.last_report.take().max(other.last_report);
        for locality in other.localities {
            let is_it = |known: &&mut LocalityLoadEntry| known.place() == locality.place();
            match self.localities.iter_mut().find(is_it) {
                Some(known) => known.join(locality),
                None => self.localities.push(locality),
            }
        }
        self.localities.sort_by(|one, other| one.place().cmp(&other.place()));
        self.reporters.extend(other.reporters);
        self.reporters.sort_by(|one, other| one.node.cmp(&other.node));
        self.reporters.truncate(MAX_REPORTERS);
    }
}

impl LocalityLoadEntry {
    fn place(&self) -> (u32, &str, &str, &str) {
        (self.priority, &self.region, &self.zone, &self.sub_zone)
    }

    fn join(&mut self, other: Self) {
        self.load.add(&other.load);
        for (name, metric) in other.metrics {
            let known = self.metrics.entry(name).or_insert(MetricEntry { requests: 0, sum: 0.0, mean: 0.0 });
            known.requests = known.requests.saturating_add(metric.requests);
            known.sum += metric.sum;
            known.mean = known.sum / known.requests.max(1) as f64;
        }
    }
}

impl LoadEntry {
    fn add(&mut self, other: &Self) {
        self.issued = self.issued.saturating_add(other.issued);
        self.successful = self.successful.saturating_add(other.successful);
        self.errors = self.errors.saturating_add(other.errors);
        self.in_progress = self.in_progress.saturating_add(other.in_progress);
        self.rate += other.rate;
        let ended = self.successful.saturating_add(self.errors);
        self.error_rate = (ended > 0).then(|| self.errors as f64 / ended as f64);
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(issued: u64, errors: u64, zone: &str, node: &str) -> ClusterLoadEntry {
        let load = json!({"issued": issued, "successful": issued - errors, "errors": errors, "inProgress": 1, "rate": 2.0,
            "errorRate": null});
        let with = |more: Value| {
            let mut all = load.clone();
            for (key, value) in more.as_object().into_iter().flatten() {
                all[key] = value.clone();
            }
            all
        };
        let locality = with(json!({"region": "", "zone": zone, "subZone": "", "priority": 0,
            "metrics": {"cpu": {"requests": 2, "sum": 1.0, "mean": 0.5}}}));
        let reporter = json!({"node": node, "groups": [], "issued": issued, "successful": 0, "errors": 0, "lastReport": "t"});
        serde_json::from_value(with(json!({"name": "api", "clusters": ["api"], "known": true, "dropped": 1,
            "droppedBy": {"lb": 1}, "droppedOtherwise": 0, "nodes": 1, "lastReport": format!("2026-01-0{errors}"),
            "localities": [locality], "reporters": [reporter]})))
        .unwrap()
    }

    #[test]
    fn the_loads_of_a_cluster_at_several_servers_are_added() {
        let mut all = entry(10, 1, "b", "n2");
        all.join(entry(30, 3, "b", "n3"));
        all.join(entry(10, 2, "a", "n1"));
        let all = serde_json::to_value(&all).unwrap();
        assert_eq!((&all["issued"], &all["errors"], &all["rate"]), (&json!(50), &json!(6), &json!(6.0)));
        assert_eq!((&all["errorRate"], &all["lastReport"]), (&json!(0.12), &json!("2026-01-03")));
        assert_eq!(
            (&all["dropped"], &all["droppedBy"], &all["nodes"]),
            (&json!(3), &json!({"lb": 3}), &json!(3))
        );
        let localities = all["localities"].as_array().unwrap();
        let zones: Vec<_> = localities.iter().map(|one| (&one["zone"], &one["issued"])).collect();
        assert_eq!(zones, [(&json!("a"), &json!(10)), (&json!("b"), &json!(40))]);
        assert_eq!(localities[1]["metrics"]["cpu"], json!({"requests": 4, "sum": 2.0, "mean": 0.5}));
        let nodes: Vec<_> = all["reporters"].as_array().unwrap().iter().map(|one| &one["node"]).collect();
        assert_eq!(nodes, ["n1", "n2", "n3"]);
    }
}
