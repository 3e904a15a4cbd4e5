//! `/v1/nodes`: the connected clients, by node id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use xds_cache::identity::{Proof, Subject};
use xds_cache::status::{ConfigStatus, StreamEntry, StreamStatus, TypeStatus};
use xds_cache::{Draining, HeldBack, Profile, ResourceType};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::{NoParams, Params, Path};
use crate::problem::ApiError;
use crate::seen::seen_groups;
use crate::state::ApiState;

/// Connected nodes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeList {
    /// By id.
    pub nodes: Vec<NodeEntry>,
    /// The id to give as `after` for the next ones; null if these are the last.
    pub next: Option<String>,
}

/// All streams of one node id.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeEntry {
    /// The id.
    pub id: String,
    /// The cluster that the node says it belongs to.
    pub cluster: String,
    /// Its groups, the one that wins first.
    pub groups: Vec<String>,
    /// `envoy` or `grpc`.
    pub profile: String,
    /// The client's software.
    pub client: ClientEntry,
    /// The publication up to which it has accepted everything that it wants; null before its first answer. A node that a wave
    /// deployment has not reached has nothing later than the revision before that began.
    pub revision: Option<u64>,
    /// `ahead` or `behind` while a wave deployment concerns it (`/v1/waves`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<&'static str>,
    /// The worst of its types.
    pub status: &'static str,
    /// True if no group but `default` selects it, and that one has nothing.
    pub unmatched: bool,
    /// Resources and endpoints that are served only until their users end by themselves: the first hundred.
    pub draining: Vec<DrainingEntry>,
    /// How many these are in all.
    pub draining_count: usize,
    /// Its streams, in the order in which they came.
    pub streams: Vec<StreamEntryBody>,
    /// The worst of its streams, by type URL.
    pub types: BTreeMap<String, TypeEntry>,
}

/// The software that a client says it is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientEntry {
    /// Such as `envoy`, `gRPC Go`.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
}

/// A stream.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamEntryBody {
    /// The address that it came from.
    pub address: String,
    /// `sotw` or `delta`.
    pub variant: &'static str,
    /// The type URL of a per-type stream; null for ADS.
    pub service: Option<String>,
    /// When it began.
    pub since: String,
    /// The identity that the client has proved, such as its SPIFFE ID; absent if it has proved nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// How the identity was proved: `certificate` or `jwt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'static str>,
    /// When the first of the proofs ends, and the stream with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Everything that the client has proved, the identity above first: the first hundred.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<IdentityEntry>,
    /// How many these are in all.
    #[serde(skip_serializing_if = "is_none")]
    pub identities_count: usize,
    /// By type URL.
    pub types: BTreeMap<String, TypeEntry>,
    /// Changes that the client is not sent yet, so that it never uses what it does not have: the first hundred. Of a per-type
    /// stream those of its type.
    pub held_back: Vec<HeldBackEntry>,
    /// How many these are in all.
    pub held_back_count: usize,
}

/// Something that a client has proved.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IdentityEntry {
    /// The identity, as in statuses: `spiffe://example.org/edge`, `dns:edge-1`, `cn:edge`, `jwt:ISSUER:SUBJECT`.
    pub identity: String,
    /// How it was proved: `certificate` or `jwt`.
    pub method: &'static str,
    /// When the proof ends; absent if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A change that is not sent yet.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeldBackEntry {
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
    /// `update` or `removal`.
    pub change: &'static str,
    /// The event that must come first.
    pub waits_for: WaitsForEntry,
    /// Since when.
    pub since: String,
}

/// A resource that left, or an endpoint that left an assignment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrainingEntry {
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
    /// The address of the endpoint that drains in it, such as `10.0.0.1:80`; absent if the resource itself does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Until when.
    pub until: String,
}

/// An event that must come before a change is sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitsForEntry {
    /// The event, about the resource below: `sending` to the client; its `request`; its `ack`; `settling`, the time to resolve
    /// names or check health; `change`, because the client rejected it; `disuse`, because it refers to what is removed.
    pub what: &'static str,
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
}

/// A type on one stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TypeEntry {
    /// `SYNCED`, `STALE`, `NOT_SENT` or `ERROR`.
    pub status: &'static str,
    /// The version of the last response.
    pub version_sent: Option<String>,
    /// The version of the last response that was accepted.
    pub version_acked: Option<String>,
    /// The last rejection, kept after it healed.
    pub last_nack: Option<NackEntry>,
}

/// A rejection.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct NackEntry {
    /// The version of the rejected response.
    pub version: String,
    /// The client's words.
    pub message: String,
    /// When it came.
    pub at: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeParams {
    limit: Option<usize>,
    after: Option<String>,
    status: Option<String>,
    group: Option<String>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<NodeParams>,
) -> Result<Answer, ApiError> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ApiError::BadRequest(format!("limit={limit} is not between 1 and {MAX_LIMIT}")));
    }
    let status = params.status.as_deref().map(read_status).transpose()?;
    let mut by_id: BTreeMap<String, Vec<Arc<StreamEntry>>> = BTreeMap::new();
    for stream in state.board.streams() {
        let id = stream.with(|status| status.info.node.id.clone());
        if params.after.as_ref().is_none_or(|after| id > *after) {
            by_id.entry(id).or_default().push(stream);
        }
    }
    let is_wanted = |node: &NodeEntry| {
        status.is_none_or(|status| node.status == status.as_str())
            && params.group.as_ref().is_none_or(|group| node.groups.contains(group))
    };
    let seen = |streams: Vec<Arc<StreamEntry>>| node(&state, &caller, &streams);
    // One more than wanted shows whether there is a next one.
    let mut nodes: Vec<NodeEntry> =
        by_id.into_values().filter_map(seen).filter(is_wanted).take(limit + 1).collect();
    let has_more = nodes.len() > limit;
    nodes.truncate(limit);
    let next = if has_more { nodes.last().map(|node| node.id.clone()) } else { None };
    Answer::ok(&NodeList { nodes, next })
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    let streams = state.board.streams();
    let of_node: Vec<_> =
        streams.into_iter().filter(|stream| stream.with(|status| status.info.node.id == id)).collect();
    let node = node(&state, &caller, &of_node);
    Answer::ok(&node.ok_or_else(|| ApiError::NotFound(format!("no node {id:?} is connected")))?)
}

/// All that is known of the streams of one node; `None` if there are none, or if it is out of the caller's scope. What a node is
/// served by groups out of scope is left out by name: its other groups, what drains, and what is held back.
fn node(state: &ApiState, caller: &Caller, streams: &[Arc<StreamEntry>]) -> Option<NodeEntry> {
    let entries = streams;
    let streams: Vec<StreamStatus> = streams.iter().map(|stream| stream.status()).collect();
    let first = streams.first()?;
    let node = &first.info.node;
    let view = streams.iter().find_map(|stream| stream.view.clone());
    // A client that has lost its grant keeps what it has until it is told so.
    let served = state.publisher.view_as(node, &first.info.proofs).ok().flatten();
    let view = view.or_else(|| served.as_ref().map(|view| view.key().clone()));
    let (groups, profile) = match view {
        Some(key) => (key.groups, key.profile),
        None => (Arc::default(), Profile::of_user_agent(&node.user_agent_name)),
    };
    if !caller.sees_node(&groups) {
        return None;
    }
    let sees_all = caller.sees_all_of_node(&groups);
    let held_back = |entry: &StreamEntry| if sees_all { entry.held_back() } else { vec![] };
    let bodies = entries.iter().map(|entry| stream(&entry.status(), held_back(entry))).collect();
    let draining = || served.iter().filter(|_| sees_all).flat_map(|view| view.draining());
    let is_ahead = state.publisher.is_ahead(node);
    let behind = is_ahead.is_some_and(|is_ahead| !is_ahead).then(|| last_before_wave(state)).flatten();
    Some(NodeEntry {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        groups: seen_groups(caller, &groups),
        profile: profile.to_string(),
        client: ClientEntry { name: node.user_agent_name.clone(), version: node.user_agent_version.clone() },
        status: streams.iter().map(StreamStatus::status).max().unwrap_or(ConfigStatus::NotSent).as_str(),
        revision: accepted(&streams).map(|revision| behind.map_or(revision, |last| revision.min(last))),
        wave: is_ahead.map(|is_ahead| if is_ahead { "ahead" } else { "behind" }),
        unmatched: streams.iter().any(|stream| stream.is_unmatched),
        types: worst(&streams),
        draining: draining().take(MAX_SHOWN).map(draining_entry).collect(),
        draining_count: draining().count(),
        streams: bodies,
    })
}

/// The last whole revision of nodes that the present wave has not reached; `None` if there is no wave, or no node has been reached.
fn last_before_wave(state: &ApiState) -> Option<u64> {
    let split = state.publisher.split()?;
    split.share.map(|_| split.deployment.saturating_sub(1))
}

/// The publication up to which everything was accepted on every stream, of every type.
fn accepted(streams: &[StreamStatus]) -> Option<u64> {
    let of_type = |status: &TypeStatus| {
        let acked = status.acked.as_ref().filter(|acked| acked.is_final).map(|acked| acked.revision);
        let is_settled = !status.is_error && !status.is_outstanding && status.current.0 > 0;
        acked.max(is_settled.then_some(status.current)).map(|revision| revision.0)
    };
    // A type without any accepted response is older than every revision.
    streams.iter().flat_map(|stream| stream.types.values()).map(of_type).min().flatten()
}

/// The worst entry of all streams for each type; among equally bad ones that of the newest stream.
fn worst(streams: &[StreamStatus]) -> BTreeMap<String, TypeEntry> {
    let mut worst: BTreeMap<&ResourceType, &TypeStatus> = BTreeMap::new();
    for (resource_type, status) in streams.iter().flat_map(|stream| &stream.types) {
        let entry = worst.entry(resource_type).or_insert(status);
        if status.status() >= entry.status() {
            *entry = status;
        }
    }
    worst.into_iter().map(|(t, status)| (t.type_url().to_owned(), type_entry(status))).collect()
}

fn stream(status: &StreamStatus, mut held_back: Vec<HeldBack>) -> StreamEntryBody {
    let info = &status.info;
    held_back
        .retain(|held| info.service.as_ref().is_none_or(|service| *service == held.resource.resource_type));
    let types = status.types.iter().map(|(t, status)| (t.type_url().to_owned(), type_entry(status)));
    let subject = info.proofs.first().map(|proof| &proof.subject);
    StreamEntryBody {
        address: info.address.to_string(),
        variant: info.variant.as_str(),
        service: info.service.as_ref().map(|service| service.type_url().to_owned()),
        since: rfc3339(info.since),
        identity: subject.map(ToString::to_string),
        method: subject.map(Subject::method),
        expires_at: Proof::first_end(&info.proofs).map(rfc3339),
        identities: info.proofs.iter().take(MAX_SHOWN).map(identity_entry).collect(),
        identities_count: info.proofs.len(),
        types: types.collect(),
        held_back_count: held_back.len(),
        held_back: held_back.iter().take(MAX_SHOWN).map(held_back_entry).collect(),
    }
}

fn identity_entry(proof: &Proof) -> IdentityEntry {
    IdentityEntry {
        identity: proof.subject.to_string(),
        method: proof.subject.method(),
        expires_at: proof.expires.map(rfc3339),
    }
}

/// Leaves out a count of nothing.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

fn held_back_entry(held: &HeldBack) -> HeldBackEntry {
    let of = held.waits_for.resource();
    let now = SystemTime::now();
    HeldBackEntry {
        r#type: held.resource.resource_type.type_url().to_owned(),
        name: held.resource.name.to_string(),
        change: if held.is_removal { "removal" } else { "update" },
        waits_for: WaitsForEntry {
            what: held.waits_for.as_str(),
            r#type: of.resource_type.type_url().to_owned(),
            name: of.name.to_string(),
        },
        since: rfc3339(now.checked_sub(held.since.elapsed()).unwrap_or(now)),
    }
}

fn draining_entry(draining: Draining) -> DrainingEntry {
    let left = draining.until.saturating_duration_since(Instant::now().into_std());
    DrainingEntry {
        r#type: draining.resource.resource_type.type_url().to_owned(),
        name: draining.resource.name.to_string(),
        endpoint: draining.endpoint,
        until: rfc3339(SystemTime::now().checked_add(left).unwrap_or_else(SystemTime::now)),
    }
}

fn type_entry(status: &TypeStatus) -> TypeEntry {
    TypeEntry {
        status: status.status().as_str(),
        version_sent: status.sent.as_ref().map(|sent| sent.version_info.to_string()),
        version_acked: status.acked.as_ref().map(|acked| acked.version_info.to_string()),
        last_nack: status.last_nack.as_ref().map(|nack| NackEntry {
            version: nack.version_info.to_string(),
            message: nack.message.to_string(),
            at: rfc3339(nack.at),
        }),
    }
}

fn read_status(text: &str) -> Result<ConfigStatus, ApiError> {
    let all = [ConfigStatus::Synced, ConfigStatus::Stale, ConfigStatus::NotSent, ConfigStatus::Error];
    all.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
        ApiError::BadRequest(format!("status={text:?} is not one of SYNCED, STALE, NOT_SENT, ERROR"))
    })
}

/// How many changes that are held back and identities are shown of one stream, and how many things that drain of one node.
const MAX_SHOWN: usize = 100;

/// How many nodes are listed if the request does not say.
const DEFAULT_LIMIT: usize = 1_000;

/// How many nodes are listed at most: some 20 MB of JSON.
const MAX_LIMIT: usize = 10_000;
