//! `/v1/nodes`: the connected clients, by node id.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use xds_cache::identity::{Proof, Subject};
use xds_cache::status::{ConfigStatus, Standing, StreamEntry, StreamStatus, TypeStatus, accepted};
use xds_cache::{Draining, HeldBack, Name, Profile};
use xds_control::acks::Sight;
use xds_control::peers::{Question, ReplicasReport};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::everyone::{Everyone, MAX_ASKED, OfReplica, Part, merge, scope_texts};
use crate::input::{Params, Path};
use crate::page;
use crate::problem::ApiError;
use crate::seen::seen_groups;
use crate::state::ApiState;

/// Connected nodes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NodeList {
    /// By id.
    pub nodes: Vec<NodeEntry>,
    /// The id to give as `after` for the next ones; null if these are the last. A page may have less than its limit.
    pub next: Option<String>,
    /// The servers whose nodes these are, if several share the store and ask each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
}

/// All streams of one node id.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
    /// The worst of its types.
    pub status: String,
    /// True if no group but `default` selects it, and that one has nothing.
    pub unmatched: bool,
    /// Resources and endpoints that are served only until their users end by themselves: the first hundred.
    pub draining: Vec<DrainingEntry>,
    /// How many these are in all.
    pub draining_count: usize,
    /// Its streams, in the order in which they came.
    pub streams: Vec<StreamEntryBody>,
    /// By type URL: the worst status of its streams, and what it rejects on any of them.
    pub types: BTreeMap<String, TypeEntry>,
    /// The servers that were asked for it, if it was asked for alone, and several share the store and ask each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
}

/// The software that a client says it is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClientEntry {
    /// Such as `envoy`, `gRPC Go`.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
}

/// A stream.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamEntryBody {
    /// The server that it is connected to, if several share the store and ask each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// The address that it came from.
    pub address: String,
    /// `sotw` or `delta`.
    pub variant: String,
    /// The type URL of a per-type stream; null for ADS.
    pub service: Option<String>,
    /// When it began.
    pub since: String,
    /// The identity that the client has proved, such as its SPIFFE ID; absent if it has proved nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// How the identity was proved: `certificate` or `jwt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// When the first of the proofs ends, and the stream with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Everything that the client has proved, the identity above first: the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<IdentityEntry>,
    /// How many these are in all.
    #[serde(default, skip_serializing_if = "is_none")]
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
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IdentityEntry {
    /// The identity, as in statuses: `spiffe://example.org/edge`, `dns:edge-1`, `cn:edge`, `jwt:ISSUER:SUBJECT`.
    pub identity: String,
    /// How it was proved: `certificate` or `jwt`.
    pub method: String,
    /// When the proof ends; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A change that is not sent yet.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeldBackEntry {
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
    /// `update` or `removal`.
    pub change: String,
    /// The event that must come first.
    pub waits_for: WaitsForEntry,
    /// Since when.
    pub since: String,
}

/// A resource that left, or an endpoint that left an assignment.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrainingEntry {
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
    /// The address of the endpoint that drains in it, such as `10.0.0.1:80`; absent if the resource itself does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Until when.
    pub until: String,
}

/// An event that must come before a change is sent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaitsForEntry {
    /// The event, about the resource below: `sending` to the client; its `request`; its `ack`; `settling`, the time to resolve
    /// names or check health; `change`, because the client rejected it; `disuse`, because it refers to what is removed.
    pub what: String,
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
}

/// A type on one stream.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TypeEntry {
    /// `SYNCED`, `STALE`, `NOT_SENT` or `ERROR`.
    pub status: String,
    /// The version of the last response.
    pub version_sent: Option<String>,
    /// The version of the last response that was accepted.
    pub version_acked: Option<String>,
    /// The last rejection, kept after it healed.
    pub last_nack: Option<NackEntry>,
    /// The resources that the client rejects, at most 16 of a response; absent if there are none. It goes on with the version that it
    /// accepted before, if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedEntry>,
    /// How many resources came in a rejected response, without it being known whether the client uses them; absent if none. They are
    /// offered again.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unknown_count: usize,
}

/// A resource that a client rejects.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RejectedEntry {
    /// Its name.
    pub name: String,
    /// The client's words.
    pub message: String,
}

/// A rejection.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
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
    replica: Option<String>,
}

/// The nodes that are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeQuery {
    pub(crate) id: Option<String>,
    pub(crate) limit: usize,
    pub(crate) after: Option<String>,
    pub(crate) status: Option<ConfigStatus>,
    pub(crate) group: Option<String>,
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
    let query = NodeQuery { id: None, limit, after: params.after, status, group: params.group };
    let Some(all) = Everyone::new(&state, params.replica.as_deref())? else {
        return Answer::ok(&page(&state, &caller, &query));
    };
    Answer::ok(&of_all(&state, &caller, all, query).await)
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<OfReplica>,
) -> Result<Answer, ApiError> {
    let query = NodeQuery { id: Some(id.clone()), limit: 1, ..NodeQuery::default() };
    let found = match Everyone::new(&state, params.replica.as_deref())? {
        None => page(&state, &caller, &query),
        Some(all) => of_all(&state, &caller, all, query).await,
    };
    let missing = found.replicas.iter().flat_map(|replicas| &replicas.missing).map(|one| one.id.as_str());
    let missing = missing.collect::<Vec<_>>().join(", ");
    let node = found.nodes.into_iter().next().map(|node| NodeEntry { replicas: found.replicas, ..node });
    Answer::ok(&node.ok_or_else(|| {
        ApiError::NotFound(match missing.is_empty() {
            true => format!("no node {id:?} is connected"),
            false => format!("no node {id:?} is connected to the servers that answer; {missing} did not"),
        })
    })?)
}

/// A page of the nodes of this server.
pub(crate) fn page(state: &ApiState, caller: &Caller, query: &NodeQuery) -> NodeList {
    let mut by_id: BTreeMap<String, Vec<Arc<StreamEntry>>> = BTreeMap::new();
    for stream in state.board.streams() {
        let id = stream.with(|status| status.info.node.id.clone());
        let is_it = query.id.as_ref().is_none_or(|wanted| id == *wanted);
        if is_it && query.after.as_ref().is_none_or(|after| id > *after) {
            by_id.entry(id).or_default().push(stream);
        }
    }
    let is_wanted = |node: &NodeEntry| {
        query.status.is_none_or(|status| node.status == status.as_str())
            && query.group.as_ref().is_none_or(|group| node.groups.contains(group))
    };
    let seen = |streams: Vec<Arc<StreamEntry>>| node(state, caller, &streams);
    let nodes = by_id.into_values().filter_map(seen).filter(is_wanted);
    let (nodes, next) = page::cut(nodes, query.limit, |node| node.id.clone());
    NodeList { nodes, next, replicas: None }
}

/// A page of the nodes of all servers.
async fn of_all(state: &ApiState, caller: &Caller, all: Everyone, query: NodeQuery) -> NodeList {
    let query = NodeQuery { limit: query.limit.min(MAX_ASKED), ..query };
    let question = Question::Nodes {
        id: query.id.clone(),
        limit: query.limit,
        after: query.after.clone(),
        status: query.status.map(|status| status.as_str().to_owned()),
        group: query.group.clone(),
        scope: caller.scope().map(scope_texts),
    };
    let found = all.pages::<NodeList>(question, page(state, caller, &query)).await;
    let replicas = found.report();
    let parts = found.into_answers().map(|(id, mut list)| {
        let streams = list.nodes.iter_mut().flat_map(|node| &mut node.streams);
        streams.for_each(|stream| stream.replica = Some(id.clone()));
        Part { items: list.nodes, is_last: list.next.is_none() }
    });
    let (nodes, has_more) = merge(parts.collect(), query.limit, |node| node.id.clone(), NodeEntry::join);
    let next = if has_more { nodes.last().map(|node| node.id.clone()) } else { None };
    NodeList { nodes, next, replicas: Some(replicas) }
}

impl NodeEntry {
    /// Adds what another server knows of the node.
    fn join(&mut self, other: Self) {
        if badness(&other.status) > badness(&self.status) {
            self.status = other.status;
        }
        // Without an answer on one of them, it has accepted nothing for sure.
        self.revision = self.revision.zip(other.revision).map(|(one, other)| one.min(other));
        self.wave = self.wave.take().or(other.wave);
        self.unmatched |= other.unmatched;
        self.streams.extend(other.streams);
        join_types(&mut self.types, other.types);
    }
}

impl TypeEntry {
    /// Adds what another stream says of the type: the status and the versions are those of the worse stream, of two equal ones those of
    /// the other, and the client rejects what it rejects on any.
    fn join(&mut self, other: Self) {
        let known: BTreeSet<&str> = self.rejected.iter().map(|one| one.name.as_str()).collect();
        let others: Vec<RejectedEntry> =
            other.rejected.iter().filter(|one| !known.contains(one.name.as_str())).cloned().collect();
        let mut rejected = std::mem::take(&mut self.rejected);
        rejected.extend(others);
        rejected.truncate(Standing::MAX_LISTED);
        let unknown_count = self.unknown_count + other.unknown_count;
        if badness(&other.status) >= badness(&self.status) {
            *self = other;
        }
        (self.rejected, self.unknown_count) = (rejected, unknown_count);
    }
}

/// Adds what other streams say of each type.
fn join_types(
    types: &mut BTreeMap<String, TypeEntry>,
    others: impl IntoIterator<Item = (String, TypeEntry)>,
) {
    for (type_url, entry) in others {
        match types.entry(type_url) {
            Entry::Vacant(place) => drop(place.insert(entry)),
            Entry::Occupied(mut known) => known.get_mut().join(entry),
        }
    }
}

/// How bad a status is; the worst has the largest number.
fn badness(status: &str) -> usize {
    let all = [ConfigStatus::Synced, ConfigStatus::Stale, ConfigStatus::NotSent, ConfigStatus::Error];
    let mut known = all.map(|status| (status, status.as_str()));
    known.sort_by_key(|(status, _)| *status);
    known.iter().position(|(_, text)| *text == status).unwrap_or_default()
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
    let sight = caller.sight_of_node(&groups);
    let bodies = entries.iter().map(|entry| stream(&entry.status(), held_back(entry), sight)).collect();
    let draining = || served.iter().filter(|_| sees_all).flat_map(|view| view.draining());
    let is_ahead = state.publisher.is_ahead(node);
    let behind = is_ahead.is_some_and(|is_ahead| !is_ahead).then(|| last_before_wave(state)).flatten();
    Some(NodeEntry {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        groups: seen_groups(caller, &groups),
        profile: profile.to_string(),
        client: ClientEntry { name: node.user_agent_name.clone(), version: node.user_agent_version.clone() },
        status: streams
            .iter()
            .map(StreamStatus::status)
            .max()
            .unwrap_or(ConfigStatus::NotSent)
            .as_str()
            .to_owned(),
        revision: accepted(&streams).map(|revision| behind.map_or(revision.0, |last| revision.0.min(last))),
        wave: is_ahead.map(|is_ahead| if is_ahead { "ahead" } else { "behind" }.to_owned()),
        unmatched: streams.iter().any(|stream| stream.is_unmatched),
        types: types(&streams, sight),
        draining: draining().take(MAX_SHOWN).map(draining_entry).collect(),
        draining_count: draining().count(),
        streams: bodies,
        replicas: None,
    })
}

/// The last whole revision of nodes that the present wave has not reached; `None` if there is no wave, or no node has been reached.
pub(crate) fn last_before_wave(state: &ApiState) -> Option<u64> {
    let split = state.publisher.split()?;
    split.share.map(|_| split.deployment.saturating_sub(1))
}

/// What all streams together say of each type.
fn types(streams: &[StreamStatus], sight: Sight) -> BTreeMap<String, TypeEntry> {
    let mut types = BTreeMap::new();
    for (resource_type, status) in streams.iter().flat_map(|stream| &stream.types) {
        join_types(&mut types, [(resource_type.type_url().to_owned(), type_entry(status, sight))]);
    }
    types
}

fn stream(status: &StreamStatus, mut held_back: Vec<HeldBack>, sight: Sight) -> StreamEntryBody {
    let info = &status.info;
    held_back
        .retain(|held| info.service.as_ref().is_none_or(|service| *service == held.resource.resource_type));
    let types = status.types.iter().map(|(t, status)| (t.type_url().to_owned(), type_entry(status, sight)));
    let subject = info.proofs.first().map(|proof| &proof.subject);
    StreamEntryBody {
        replica: None,
        address: info.address.to_string(),
        variant: info.variant.as_str().to_owned(),
        service: info.service.as_ref().map(|service| service.type_url().to_owned()),
        since: rfc3339(info.since),
        identity: subject.map(ToString::to_string),
        method: subject.map(Subject::method).map(ToOwned::to_owned),
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
        method: proof.subject.method().to_owned(),
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
        change: if held.is_removal { "removal" } else { "update" }.to_owned(),
        waits_for: WaitsForEntry {
            what: held.waits_for.as_str().to_owned(),
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

fn type_entry(status: &TypeStatus, sight: Sight) -> TypeEntry {
    let rejected_entry = |(name, message): &(Name, Arc<str>)| RejectedEntry {
        name: name.to_string(),
        message: sight.words(message),
    };
    // Names of resources are for those who may read the client's words.
    let rejections = status.rejections().filter(|_| matches!(sight, Sight::Words));
    TypeEntry {
        status: status.status().as_str().to_owned(),
        version_sent: status.sent.as_ref().map(|sent| sent.version_info.to_string()),
        version_acked: status.acked.as_ref().map(|acked| acked.version_info.to_string()),
        last_nack: status.last_nack.as_ref().map(|nack| NackEntry {
            version: nack.version_info.to_string(),
            message: sight.words(&nack.message),
            at: rfc3339(nack.at),
        }),
        rejected: rejections.iter().flat_map(|all| all.iter()).map(rejected_entry).collect(),
        unknown_count: status.standing.as_ref().map_or(0, |standing| standing.n_unknown),
    }
}

pub(crate) fn read_status(text: &str) -> Result<ConfigStatus, ApiError> {
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
