//! The clients that use a rule: their ACKs, and their load reports about its backends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_api::rollouts::{LoadSeries, RolloutEvidence, RolloutLoads};
use xds_cache::layer::EffectiveGroup;
use xds_cache::loads::{Side, Since};
use xds_cache::status::{StreamEntry, StreamId, StreamInfo, TypeStatus};
use xds_cache::time::from_millis;
use xds_cache::wave::{ClientId, Present};
use xds_cache::{
    Changes, GroupName, Groups, Profile, Publisher, Resource, ResourceType, Revision, StatusBoard,
    ViewChange, ViewKey,
};
use xds_control::Control;
use xds_control::acks::{AckState, Changed, ConcernedStream, Fold, Sight};
use xds_control::model::rollouts::rule_key;
use xds_control::model::weights::WeightedObject;
use xds_rollout::{AckStatus, Counts, PerClient, RolloutSpec, Silence, Traffic, Window};
use xds_routes::weights::ClusterNames;

use super::backends::Backends;
use super::parts::DriverParts;

/// The RouteConfigurations and virtual hosts on demand with a rule, as served at a revision.
#[derive(Debug, Default)]
pub(super) struct Concern {
    pub(super) revision: Revision,
    /// By group and profile.
    routes: BTreeMap<(GroupName, Profile), Vec<Arc<Resource>>>,
}

/// The streams that rejected their last response of a type with routes.
pub(super) type Failing = BTreeSet<StreamId>;

impl Concern {
    /// Finds them by their references: to both backends, or if none has these, to the canary.
    pub(super) fn new(parts: &DriverParts, spec: &RolloutSpec) -> Self {
        let (revision, groups) = parts.publisher.groups();
        let mut concern = Self { revision, routes: BTreeMap::new() };
        let Ok(key) = rule_key(&spec.route) else { return concern };
        if let WeightedObject::Routes(group, name) = &key.object {
            let Some(effective) = groups.get(group) else { return concern };
            for profile in Profile::ALL {
                let is_it = |one: &&Arc<Resource>| {
                    *one.resource_type() == ResourceType::RouteConfiguration && **one.name() == **name
                };
                let found = routes(effective, profile).filter(is_it).cloned().collect();
                concern.routes.insert((group.clone(), profile), found);
            }
            return concern;
        }
        let names = [&spec.stable, &spec.canary].map(|backend| names(&parts.control, spec, backend));
        for (name, group) in &groups {
            for profile in Profile::ALL {
                let refers = |resource: &Resource, to: &Option<Names>| {
                    let mut clusters = resource.references().of_type(&ResourceType::Cluster);
                    clusters.any(|name| to.as_ref().is_some_and(|names| names.matches(name)))
                };
                let refer_to = |wanted: &[Option<Names>]| -> Vec<Arc<Resource>> {
                    let all = routes(group, profile);
                    all.filter(|one| wanted.iter().all(|names| refers(one, names))).cloned().collect()
                };
                let mut found = refer_to(&names);
                if found.is_empty() {
                    found = refer_to(&names[1..]);
                }
                concern.routes.insert((name.clone(), profile), found);
            }
        }
        concern
    }

    /// The groups and kinds of clients that are served the rule.
    pub(super) fn clients(&self) -> impl Iterator<Item = &(GroupName, Profile)> {
        self.routes.iter().filter(|(_, routes)| !routes.is_empty()).map(|(client, _)| client)
    }

    /// The concern of a view's clients, as if all of its resources had changed.
    fn of_view(&self, key: &ViewKey) -> ViewChange {
        let found = key.groups.iter().filter_map(|group| self.routes.get(&(group.clone(), key.profile)));
        let mut all: Vec<Arc<Resource>> = found.flatten().cloned().collect();
        all.sort_by(|a, b| a.key().cmp(b.key()));
        all.dedup_by(|a, b| a.key() == b.key());
        let mut by_type: BTreeMap<ResourceType, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in all {
            by_type.entry(resource.resource_type().clone()).or_default().push(resource);
        }
        let changes = by_type.into_iter().map(|(of_type, changed)| {
            let of_type_changed = Changes { changed, removed: vec![] };
            (of_type, Arc::new(of_type_changed))
        });
        ViewChange { key: key.clone(), changes: changes.collect() }
    }

    /// The answers of the concerned clients to the present state, and these clients by node. All connected clients count, whenever they
    /// came; clients that were failing before the change, and still are, are left out. `since` is the revision of the change.
    pub(super) fn acks(
        &self,
        publisher: &Publisher,
        board: &StatusBoard,
        (change, since): (u64, Revision),
        failing: &Failing,
    ) -> (AckStatus, BTreeMap<Arc<str>, Present>) {
        let mut status = AckStatus { change, ..AckStatus::default() };
        let mut present: BTreeMap<Arc<str>, Present> = BTreeMap::new();
        let groups: BTreeSet<&GroupName> = self.clients().map(|(group, _)| group).collect();
        let views: BTreeSet<ViewKey> = groups.into_iter().flat_map(|group| board.views_of(group)).collect();
        let mut streams = BTreeMap::new();
        for key in views {
            let change = Changed::new(self.of_view(&key));
            let revision = publisher.view_at(&key).map(|view| view.revision()).unwrap_or_default();
            let concerned = board.streams_of(Some(&key)).into_iter().filter_map(|entry| {
                let stream = change.concerned(&entry)?;
                Some((entry.id(), (entry, stream, revision)))
            });
            streams.extend(concerned);
        }
        for (entry, stream, revision) in streams.values() {
            let state = state_of(entry, stream, *revision);
            if matches!(state, AckState::Nacked(_)) && failing.contains(&entry.id()) {
                status.n_failing += 1;
                continue;
            }
            let (node, client) =
                entry.with(|status| (Arc::clone(&status.info.node), client_of(&status.info)));
            present.entry(node.id.as_str().into()).or_default().insert(client, true);
            status.of += 1;
            match state {
                AckState::Acked { .. } => status.acked += 1,
                AckState::Pending | AckState::Unknown | AckState::Gone => {
                    let has_change = matches!(state_of(entry, stream, since), AckState::Acked { .. });
                    status.n_behind += u64::from(has_change);
                }
                AckState::Nacked(rejected) => {
                    status.n_nacked += 1;
                    if status.nacked.len() < AckStatus::MAX_NAMED {
                        let nack = rejected.of_node(node.id.clone(), Sight::Words);
                        let words = nack.words();
                        status.nacked.push((nack.node, words));
                    }
                }
            }
        }
        (status, present)
    }
}

/// What a stream makes of the routes as they are at a revision.
fn state_of(entry: &StreamEntry, stream: &ConcernedStream, revision: Revision) -> AckState {
    let mut fold = Fold::default();
    fold.count();
    fold.read(entry, stream, revision, |_, _| false);
    fold.state()
}

/// The client of a stream: its types may come on several.
fn client_of(info: &StreamInfo) -> ClientId {
    match info.service {
        None => ClientId::Stream(info.id),
        Some(_) => ClientId::Address(Arc::clone(&info.address)),
    }
}

/// The clients that rejected their last response with routes.
pub(super) fn failing(board: &StatusBoard) -> Failing {
    failing_as(board, |routes| routes.is_error)
}

/// The clients that rejected something with routes before a publication, and accepted nothing since.
pub(super) fn failing_before(board: &StatusBoard, revision: Revision) -> Failing {
    failing_as(board, |routes| routes.failed_before(revision))
}

fn failing_as(board: &StatusBoard, is_failing: impl Fn(&TypeStatus) -> bool) -> Failing {
    let streams = board.streams();
    let failing = streams.iter().filter_map(|entry| {
        entry.with(|stream| {
            let mut of_types = ROUTES.iter().filter_map(|of_type| stream.types.get(of_type));
            of_types.any(&is_failing).then_some(stream.info.id)
        })
    });
    failing.collect()
}

/// The reports of clients about both backends in windows that begin at these times, in milliseconds since 1970; `None` if a report had no
/// room.
pub(super) fn evidence(
    parts: &DriverParts,
    backends: &Backends,
    starts_ms: &[u64],
) -> Option<RolloutEvidence> {
    let names = |clusters: &BTreeSet<Arc<str>>| clusters.iter().map(Arc::clone).collect::<Vec<_>>();
    let [canary, stable] = [&backends.canary, &backends.stable].map(names);
    let [canary, stable] =
        [&canary, &stable].map(|names| names.iter().map(|name| &**name).collect::<Vec<_>>());
    let starts: Vec<SystemTime> = starts_ms.iter().map(|ms| from_millis(*ms)).collect();
    let compared = parts.loads.side_by_side([&canary, &stable], &starts, from_millis((parts.clock)()));
    let traffic = |side: Side| Traffic {
        counts: Counts { requests: side.counts.finished(), failures: side.counts.errors },
        issued: side.counts.issued,
        dropped: side.dropped,
        in_progress: side.in_progress,
    };
    let windows = starts_ms.iter().zip(compared.windows).map(|(since_ms, window)| {
        let [canary, stable] = window.sides.map(traffic);
        let clients = PerClient { n: window.n_nodes, starved: window.starved };
        Window { since_ms: *since_ms, canary, stable, clients }
    });
    let silence = Silence { requests: compared.earlier, silent: compared.silent };
    compared.is_complete.then(|| RolloutEvidence { windows: windows.collect(), silence })
}

/// The requests of clients to both backends since a time, where the clusters are known; nothing for a backend of which a report had no
/// room.
pub(super) fn loads_of(
    parts: &DriverParts,
    spec: &RolloutSpec,
    since_ms: u64,
    behind: &ClustersBehind,
) -> RolloutLoads {
    let [canary, stable] = counts(parts, spec, since_ms, behind).map(Option::unwrap_or_default);
    RolloutLoads { canary, stable }
}

/// The reports of clients about both backends, for as long as they are kept.
pub(super) fn series(parts: &DriverParts, spec: &RolloutSpec) -> LoadSeries {
    let behind = ClustersBehind::new(&parts.publisher.groups().1);
    let now = from_millis((parts.clock)());
    let [canary, stable] = [&spec.canary, &spec.stable].map(|backend| behind.of(parts, spec, backend));
    let [canary, stable] = [(&canary, &stable), (&stable, &canary)].map(|(own, other)| {
        let clusters: Vec<&str> = own.difference(other).copied().collect();
        let counts = parts.loads.series(&clusters, now).into_iter();
        counts.map(|counts| Counts { requests: counts.finished(), failures: counts.errors })
    });
    let points = canary.zip(stable).map(|(canary, stable)| [canary, stable]).collect();
    LoadSeries { bucket: parts.loads.limits().bucket, until: now, points }
}

/// The requests to the canary and to stable.
fn counts(
    parts: &DriverParts,
    spec: &RolloutSpec,
    since_ms: u64,
    behind: &ClustersBehind,
) -> [Option<Counts>; 2] {
    let [canary, stable] = [&spec.canary, &spec.stable].map(|backend| behind.of(parts, spec, backend));
    let since = Since { from: Some(from_millis(since_ms)), now: from_millis((parts.clock)()) };
    let count = |own: &BTreeSet<&str>, other: &BTreeSet<&str>| {
        // A cluster behind both, such as a common fallback, counts for neither.
        let clusters: Vec<&str> = own.difference(other).copied().collect();
        let totals = parts.loads.totals(&clusters, since);
        let counts = Counts { requests: totals.counts.finished(), failures: totals.counts.errors };
        totals.is_complete.then_some(counts)
    };
    [count(&canary, &stable), count(&stable, &canary)]
}

/// The clusters of all groups and for all clients, by name, with those that each refers to.
#[derive(Debug, Default)]
pub(super) struct ClustersBehind(BTreeMap<Arc<str>, BTreeSet<Arc<str>>>);

impl ClustersBehind {
    pub(super) fn new(groups: &Groups) -> Self {
        let mut by_name: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for group in groups.values() {
            for profile in Profile::ALL {
                for (key, cluster) in group.resources_for(profile) {
                    if key.resource_type != ResourceType::Cluster {
                        continue;
                    }
                    let behind = cluster.references().of_type(&ResourceType::Cluster).cloned();
                    by_name.entry(Arc::clone(&key.name)).or_default().extend(behind);
                }
            }
        }
        Self(by_name)
    }

    /// The names of the clusters of both backends, and of those behind them.
    pub(super) fn backends(&self, parts: &DriverParts, spec: &RolloutSpec) -> Backends {
        let [canary, stable] = [&spec.canary, &spec.stable].map(|backend| self.of(parts, spec, backend));
        let own = |own: &BTreeSet<&str>, other: &BTreeSet<&str>| {
            own.difference(other).map(|name| Arc::from(*name)).collect()
        };
        Backends { canary: own(&canary, &stable), stable: own(&stable, &canary) }
    }

    /// The names of the clusters of a backend, with those behind them.
    fn of(&self, parts: &DriverParts, spec: &RolloutSpec, backend: &str) -> BTreeSet<&str> {
        let Some(names) = names(&parts.control, spec, backend) else { return BTreeSet::new() };
        let mut left: Vec<&str> =
            self.0.keys().map(|name| &**name).filter(|name| names.matches(name)).collect();
        let mut found = BTreeSet::new();
        while let Some(name) = left.pop() {
            if found.insert(name) {
                left.extend(self.0.get(name).into_iter().flatten().map(|name| &**name));
            }
        }
        found
    }
}

/// The names of the clusters of a backend.
enum Names {
    Cluster(String),
    Object(ClusterNames),
}

impl Names {
    fn matches(&self, cluster: &str) -> bool {
        match self {
            Self::Cluster(name) => name == cluster,
            Self::Object(names) => names.matches(cluster),
        }
    }
}

fn names(control: &Control, spec: &RolloutSpec, backend: &str) -> Option<Names> {
    let key = rule_key(&spec.route).ok()?;
    match &key.object {
        WeightedObject::Routes(..) => Some(Names::Cluster(backend.to_owned())),
        WeightedObject::Document(document) => {
            let documents = control.documents();
            let document = &documents.written(document)?.document;
            xds_routes::weights::clusters(document, &key.rule, backend).map(Names::Object)
        }
    }
}

fn routes(group: &EffectiveGroup, profile: Profile) -> impl Iterator<Item = &Arc<Resource>> {
    let all = group.resources_for(profile);
    all.filter(|(key, _)| ROUTES.contains(&key.resource_type)).map(|(_, resource)| resource)
}

/// The types that have routes.
const ROUTES: [ResourceType; 2] = [ResourceType::RouteConfiguration, ResourceType::VirtualHost];
