//! The clients as one fleet: how many are in which state, and which are worst off.
//!
//! Counts and lists are made of [`Row`]s, one a node. They are values, so those of several servers become one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::status::ConfigStatus;
use xds_cache::{GroupName, Node, ResourceType};
use xds_control::RosterStream;
use xds_control::peers::ReplicasReport;
use xds_units::rfc3339;

use crate::caller::Caller;
use crate::endpoint::nodes::last_before_wave;
use crate::problem::ApiError;
use crate::seen::seen_groups;
use crate::state::ApiState;

/// The fleet, and a page of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fleet {
    /// The newest revision that this server serves.
    pub revision: u64,
    /// How many nodes are connected. A node with streams at several servers counts at each of them.
    pub total: usize,
    /// How many are in each state, without those that have none.
    pub states: BTreeMap<FleetState, usize>,
    /// How many nodes have each value: `client`, `cluster`, `locality`, `group`. The values that most nodes have come first.
    pub by: BTreeMap<String, Vec<ValueCount>>,
    /// How many nodes fit the filters.
    pub found: usize,
    /// Those of the page.
    pub nodes: Vec<FleetNode>,
    /// The servers whose nodes these are, if several share the store and ask each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
}

/// How a node is. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FleetState {
    /// It rejects something.
    #[serde(alias = "rejects")]
    Rejected,
    /// A change is held back from it, because of what it has or does not have.
    HeldBack,
    /// It has not acknowledged everything that was published for it.
    #[serde(alias = "unanswered", alias = "behind")]
    Pending,
    /// No group but `default` selects it, and that one has nothing.
    Unmatched,
    /// Nothing that it asks for of a type exists.
    #[serde(alias = "missing")]
    Absent,
    /// It has acknowledged everything that was published for it.
    #[serde(alias = "current")]
    Acknowledged,
}

/// How many nodes have a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ValueCount {
    /// The value; empty for nodes that have none.
    pub value: String,
    /// How many they are.
    pub n: usize,
}

/// A node of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetNode {
    /// The id.
    pub id: String,
    /// How it is.
    pub state: FleetState,
    /// Since when nothing has changed about it, as far as this server knows.
    pub since: String,
    /// The cluster that the node says it belongs to.
    pub cluster: String,
    /// Where it says it runs: region, zone and sub-zone, separated by `/`.
    pub locality: String,
    /// Its software and version.
    pub client: String,
    /// Its groups, the one that wins first.
    pub groups: Vec<String>,
    /// The publication up to which it has accepted everything; null before its first answer.
    pub revision: Option<u64>,
    /// The publication that last changed something for it; null before the first load.
    #[serde(default)]
    pub newest: Option<u64>,
    /// How many streams it has.
    pub streams: usize,
    /// The type URL of what it rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_type: Option<String>,
    /// Its words for that, without what is behind the first 512 bytes: `GET /v1/nodes/{id}` has all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<String>,
    /// How many changes are held back.
    pub held_back: usize,
    /// How often it has come back in the last hour or two.
    pub reconnects: u32,
    /// The server that it is connected to, if several share the store and ask each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FleetOrder {
    /// The worst state first; of those with the same, the one that has been so for longest.
    #[default]
    Worst,
    /// By id.
    Id,
    /// The oldest revision first.
    Revision,
    /// Those first that come back most often.
    Reconnects,
}

/// Which nodes are listed, and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FleetQuery {
    /// A part of the id.
    pub(crate) search: Option<String>,
    pub(crate) state: Option<FleetState>,
    pub(crate) group: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) locality: Option<String>,
    #[serde(default)]
    pub(crate) sort: FleetOrder,
    /// From 1.
    pub(crate) page: Option<usize>,
    pub(crate) limit: Option<usize>,
}

/// All streams of one node that the caller may see.
struct Row<'a> {
    node: &'a Node,
    groups: &'a [GroupName],
    state: FleetState,
    since: SystemTime,
    revision: Option<u64>,
    newest: Option<u64>,
    streams: usize,
    rejected: Option<&'a (ResourceType, Arc<str>)>,
    held_back: usize,
    reconnects: u32,
}

/// What decides about a node's place in a list.
struct Place<'a, T> {
    state: FleetState,
    since: T,
    revision: Option<u64>,
    reconnects: u32,
    id: &'a str,
}

impl FleetState {
    fn of(stream: &RosterStream) -> Self {
        let state = match stream.status {
            ConfigStatus::Error => Self::Rejected,
            ConfigStatus::Stale => Self::Pending,
            ConfigStatus::NotSent | ConfigStatus::Synced if stream.is_unmatched => Self::Unmatched,
            ConfigStatus::NotSent => Self::Absent,
            ConfigStatus::Synced if stream.accepted < stream.newest => Self::Pending,
            ConfigStatus::Synced => Self::Acknowledged,
        };
        if stream.is_held_back { state.min(Self::HeldBack) } else { state }
    }
}

impl FleetQuery {
    /// Reads it of the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`ApiError::BadRequest`] if a number is out of its bounds.
    pub(crate) fn check(self) -> Result<Self, ApiError> {
        let (page, limit) = (self.page(), self.limit());
        if limit == 0 || limit > MAX_LIMIT {
            return Err(ApiError::BadRequest(format!("limit={limit} is not between 1 and {MAX_LIMIT}")));
        }
        if page == 0 || page.saturating_mul(limit) > MAX_REACH {
            let last = MAX_REACH / limit;
            return Err(ApiError::BadRequest(format!(
                "page={page} is not between 1 and {last}: use a filter to see other nodes"
            )));
        }
        Ok(self)
    }

    fn page(&self) -> usize {
        self.page.unwrap_or(1)
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_LIMIT)
    }

    /// The same for another server: everything up to the end of the page.
    pub(crate) fn up_to_the_page(&self) -> Self {
        Self { page: Some(1), limit: Some(self.page() * self.limit()), ..self.clone() }
    }

    fn wants(&self, row: &Row<'_>) -> bool {
        let node = row.node;
        self.search.as_ref().is_none_or(|part| node.id.contains(part.as_str()))
            && self.state.is_none_or(|state| row.state == state)
            && self.group.as_ref().is_none_or(|name| row.groups.iter().any(|group| group.as_str() == name))
            && self.client.as_ref().is_none_or(|client| client_of(node) == *client)
            && self.cluster.as_ref().is_none_or(|cluster| node.cluster == *cluster)
            && self.locality.as_ref().is_none_or(|locality| locality_of(node) == *locality)
    }

    fn compare<T: Ord>(&self, one: Place<'_, T>, other: Place<'_, T>) -> Ordering {
        let order = match self.sort {
            FleetOrder::Worst => one.state.cmp(&other.state).then_with(|| one.since.cmp(&other.since)),
            FleetOrder::Id => Ordering::Equal,
            FleetOrder::Revision => one.revision.cmp(&other.revision),
            FleetOrder::Reconnects => other.reconnects.cmp(&one.reconnects),
        };
        order.then_with(|| one.id.cmp(other.id))
    }

    fn compare_rows(&self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        self.compare(one.place(), other.place())
    }
}

impl Fleet {
    /// The nodes of this server that the caller may see.
    pub(crate) fn here(state: &ApiState, caller: &Caller, query: &FleetQuery) -> Self {
        let streams = state.roster.streams();
        let mut rows = rows(state, caller, &streams);
        let mut fleet = Self { revision: state.publisher.groups().0.0, total: rows.len(), ..Self::default() };
        rows.iter().for_each(|row| *fleet.states.entry(row.state).or_default() += 1);
        fleet.by = values(caller, &rows);
        rows.retain(|row| query.wants(row));
        fleet.found = rows.len();
        let (from, limit) = ((query.page() - 1) * query.limit(), query.limit());
        let end = from + limit;
        if end < rows.len() {
            rows.select_nth_unstable_by(end, |one, other| query.compare_rows(one, other));
            rows.truncate(end);
        }
        rows.sort_unstable_by(|one, other| query.compare_rows(one, other));
        fleet.nodes = rows.iter().skip(from).take(limit).map(|row| row.shown(caller)).collect();
        fleet
    }

    /// The nodes of all servers, of each of which this has everything up to the end of the page.
    pub(crate) fn of_all(
        servers: impl Iterator<Item = (String, Self)>,
        replicas: ReplicasReport,
        query: &FleetQuery,
    ) -> Self {
        let mut all = Self { replicas: Some(replicas), ..Self::default() };
        let mut by: BTreeMap<String, HashMap<String, usize>> = BTreeMap::new();
        for (id, fleet) in servers {
            all.revision = all.revision.max(fleet.revision);
            all.total += fleet.total;
            all.found += fleet.found;
            fleet.states.into_iter().for_each(|(state, n)| *all.states.entry(state).or_default() += n);
            for (what, counts) in fleet.by {
                let known = by.entry(what).or_default();
                counts.into_iter().for_each(|count| *known.entry(count.value).or_default() += count.n);
            }
            let nodes = fleet.nodes.into_iter();
            all.nodes.extend(nodes.map(|node| FleetNode { replica: Some(id.clone()), ..node }));
        }
        all.by = by.into_iter().map(|(what, counts)| (what, first_values(counts))).collect();
        all.nodes.sort_by(|one, other| query.compare(one.place(), other.place()));
        let from = (query.page() - 1) * query.limit();
        all.nodes = all.nodes.into_iter().skip(from).take(query.limit()).collect();
        all
    }
}

impl FleetNode {
    fn place(&self) -> Place<'_, &str> {
        let Self { state, since, revision, reconnects, id, .. } = self;
        // These times are as long as each other, so texts are in the order of times.
        Place { state: *state, since, revision: *revision, reconnects: *reconnects, id }
    }
}

impl<'a> Row<'a> {
    fn of(stream: &'a RosterStream, last_before_wave: Option<u64>) -> Self {
        let of_wave = last_before_wave.filter(|_| stream.is_behind_wave);
        Self {
            node: &stream.node,
            groups: &stream.groups,
            state: FleetState::of(stream),
            since: stream.since,
            revision: stream.accepted.map(|accepted| of_wave.map_or(accepted.0, |last| last.min(accepted.0))),
            newest: stream.newest.map(|newest| newest.0),
            streams: 1,
            rejected: stream.rejected.as_ref(),
            held_back: stream.n_held_back,
            reconnects: stream.reconnects,
        }
    }

    fn place(&self) -> Place<'_, SystemTime> {
        let Self { state, since, revision, reconnects, node, .. } = self;
        Place { state: *state, since: *since, revision: *revision, reconnects: *reconnects, id: &node.id }
    }

    fn shown(&self, caller: &Caller) -> FleetNode {
        let (node, sight) = (self.node, caller.sight_of_node(self.groups));
        FleetNode {
            id: node.id.clone(),
            state: self.state,
            since: rfc3339(self.since),
            cluster: node.cluster.clone(),
            locality: locality_of(node),
            client: client_of(node),
            groups: seen_groups(caller, self.groups),
            revision: self.revision,
            newest: self.newest,
            streams: self.streams,
            rejected_type: self.rejected.map(|(of, _)| of.type_url().to_owned()),
            rejection: self
                .rejected
                .map(|(_, words)| sight.words(&words[..words.floor_char_boundary(MAX_WORDS)])),
            held_back: self.held_back,
            reconnects: self.reconnects,
            replica: None,
        }
    }

    /// Adds another stream of the node.
    fn join(&mut self, other: Self) {
        self.streams += other.streams;
        self.revision = self.revision.zip(other.revision).map(|(one, other)| one.min(other));
        self.newest = self.newest.max(other.newest);
        // Streams of one client have the same changes held back.
        self.held_back = self.held_back.max(other.held_back);
        self.reconnects = self.reconnects.max(other.reconnects);
        self.rejected = self.rejected.or(other.rejected);
        if other.state < self.state {
            (self.state, self.since) = (other.state, other.since);
        }
    }
}

/// A row for each node that the caller may see, in the order of ids.
fn rows<'a>(state: &ApiState, caller: &Caller, streams: &'a [RosterStream]) -> Vec<Row<'a>> {
    let last_before_wave = last_before_wave(state);
    let mut rows: Vec<Row<'a>> = Vec::with_capacity(streams.len());
    for stream in streams.iter().filter(|stream| caller.sees_node(&stream.groups)) {
        let row = Row::of(stream, last_before_wave);
        match rows.last_mut().filter(|last| last.node.id == row.node.id) {
            Some(known) => known.join(row),
            None => rows.push(row),
        }
    }
    rows
}

/// The values that most nodes have, of everything that they are counted by.
fn values(caller: &Caller, rows: &[Row<'_>]) -> BTreeMap<String, Vec<ValueCount>> {
    let clients = counted(rows.iter().map(|row| client_parts(row.node)));
    let localities = counted(rows.iter().map(|row| locality_parts(row.node)));
    let clusters = counted(rows.iter().map(|row| row.node.cluster.as_str()));
    let groups = rows.iter().flat_map(|row| row.groups).filter(|group| caller.sees_group(group));
    let first = |what: &str, counts| (what.to_owned(), first_values(counts));
    BTreeMap::from([
        first("client", named(clients, |parts| joined(&parts, ' '))),
        first("locality", named(localities, |parts| joined(&parts, '/'))),
        first("cluster", named(clusters, str::to_owned)),
        first("group", named(counted(groups.map(GroupName::as_str)), str::to_owned)),
    ])
}

fn counted<T: Eq + Hash>(values: impl Iterator<Item = T>) -> HashMap<T, usize> {
    values.fold(HashMap::new(), |mut counts, value| {
        *counts.entry(value).or_default() += 1;
        counts
    })
}

/// Different values may have the same name.
fn named<T>(counts: HashMap<T, usize>, name: impl Fn(T) -> String) -> HashMap<String, usize> {
    counts.into_iter().fold(HashMap::new(), |mut by_name, (value, n)| {
        *by_name.entry(name(value)).or_default() += n;
        by_name
    })
}

fn client_of(node: &Node) -> String {
    joined(&client_parts(node), ' ')
}

fn client_parts(node: &Node) -> [&str; 2] {
    [node.user_agent_name.as_str(), node.user_agent_version.as_str()]
}

fn locality_of(node: &Node) -> String {
    joined(&locality_parts(node), '/')
}

fn locality_parts(node: &Node) -> [&str; 3] {
    let of = &node.locality;
    [of.region.as_str(), of.zone.as_str(), of.sub_zone.as_str()]
}

/// The parts with something between them, without those at the end that are empty.
fn joined(parts: &[&str], between: char) -> String {
    let n = parts.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
    parts[..n].join(between.encode_utf8(&mut [0; 4]))
}

/// The values that most nodes have.
fn first_values(counts: HashMap<String, usize>) -> Vec<ValueCount> {
    let mut counts: Vec<ValueCount> = counts.into_iter().map(|(value, n)| ValueCount { value, n }).collect();
    counts.sort_unstable_by(|one, other| other.n.cmp(&one.n).then_with(|| one.value.cmp(&other.value)));
    counts.truncate(MAX_VALUES);
    counts
}

/// How many nodes a page has if the request does not say.
const DEFAULT_LIMIT: usize = 100;

/// How many nodes a page has at most.
const MAX_LIMIT: usize = 1_000;

/// The place of the last node that can be listed: other servers are asked for all up to it.
const MAX_REACH: usize = 1_000;

/// How much is shown of what a client says: pages of thousands of nodes have to fit into the answers of servers to each other.
const MAX_WORDS: usize = 512;

/// How many values are counted apart.
const MAX_VALUES: usize = 50;
