//! ACKs: the clients that have applied a publication.
//!
//! *Concerned* are the clients that subscribe to a resource that the publication changes, whenever they came. An ADS stream is a client of
//! its own; the per-type streams of one connection and node are one client together (D13), so several clients may have one node id. A
//! client that disconnects leaves the set. An ACK of a newer response counts, and a rejection counts only of a resource that was changed.
//!
//! A server that takes in several commits of others at once publishes only the newest revision. That publication *covers* the others, so
//! the ACKs of each of these revisions are those of the publication.

mod late;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::ToSchema;
use xds_cache::status::{StreamEntry, StreamId, TypeAnswer, TypeStatus};
use xds_cache::wave::Behind;
use xds_cache::{
    Changes, GroupName, Groups, Moved, Name, Node, Publication, Publisher, Resource, ResourceType, Revision,
    StatusBoard, View, ViewChange, ViewKey,
};

use late::InGroups;

/// Publishes, and remembers the clients that each publication concerned.
pub struct Acks {
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    kept: Mutex<BTreeMap<Revision, Kept>>,
    /// The last publication; `None` before the first.
    published: watch::Sender<Option<Revision>>,
}

/// What is known of the clients that have applied a revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Applied {
    /// Those of the first publication that contains it.
    Known(AcksReport),
    /// No publication contains it yet.
    Behind,
    /// The publication is no longer remembered.
    Forgotten,
}

/// The clients that have applied a publication, and those that have not. `total` is the sum of `acked`, `n_pending`, `n_nacked` and
/// `n_already_failing`. No list has more than [`MAX_LISTED`] entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcksReport {
    /// The revision asked for.
    pub revision: u64,
    /// The clients that are concerned and connected; those that came later count too.
    pub total: usize,
    /// The number of them that have accepted everything that it changed for them.
    pub acked: usize,
    /// The number of those that have not answered yet.
    pub n_pending: usize,
    /// Their node ids.
    pub pending: Vec<String>,
    /// The number of clients that rejected a response with something that it changed.
    pub n_nacked: usize,
    /// Who they are.
    pub nacked: Vec<NodeNack>,
    /// The number of clients that rejected it too, but were in ERROR on that type before.
    pub n_already_failing: usize,
    /// Who they are.
    pub already_failing: Vec<NodeNack>,
    /// How many of `acked` accepted it as part of a newer response.
    pub superseded: usize,
}

/// The clients that a publication concerns and that are still connected, or accepted it before they left, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All of them.
    pub total: usize,
    /// Those that have accepted everything that it changed for them.
    pub acked: usize,
    /// Those that have not answered yet.
    pub pending: usize,
}

/// A client's rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNack {
    /// The node id.
    pub node: String,
    /// The client's words.
    pub message: String,
    /// The type of the resource that it rejects; missing if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_url: Option<String>,
    /// The name of that resource; missing if it is not known which one of the type it rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// How much of what a client answered is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing, as if there were no such client.
    Nothing,
    /// Whether it accepts, and not its words: they may name resources of groups out of scope.
    Outcome,
    /// Its words too.
    Words,
}

impl Sight {
    /// The client's words, if they are shown.
    #[must_use]
    pub fn words(self, words: &str) -> String {
        if self == Self::Words { words.to_owned() } else { WITHHELD.to_owned() }
    }
}

/// In place of what a client said, if that may be about resources that are not shown.
const WITHHELD: &str = "withheld: it may be about resources out of scope";

/// The most clients that each list of an [`AcksReport`] names; the counts include all of them.
pub const MAX_LISTED: usize = 1_000;

/// How many bytes the resources may have that are remembered so that clients that come later are counted; those of the newest publication
/// are kept in any case.
const MAX_KEPT_BYTES: usize = 64 * 1024 * 1024;

/// How many publications are remembered.
const MAX_KEPT: usize = 1_000;

/// How many clients are remembered over all publications (about 100 bytes each); the newest publication is kept whole.
const MAX_KEPT_CLIENTS: usize = 500_000;

/// The shortest time between two looks at the clients: a push to thousands ends in thousands of ticks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

struct Kept {
    /// The publication before it: revisions between the two are covered by it.
    after: Revision,
    concerned: Arc<Mutex<Concerned>>,
    n_clients: usize,
    n_bytes: usize,
    /// When it began.
    at: Instant,
    /// The `version_info`s that the publication gave to changed types.
    versions: HashSet<Arc<str>>,
}

#[derive(Default)]
struct Concerned {
    revision: Revision,
    /// What it changed, by view.
    changes: BTreeMap<ViewKey, Changed>,
    /// What it changed in views that came later.
    in_groups: InGroups,
    /// The clients that were connected at the publication.
    clients: Vec<ConcernedClient>,
    /// Those that came later.
    late: Vec<ConcernedClient>,
}

struct ConcernedClient {
    node: Arc<Node>,
    /// Those that it had at the publication.
    groups: Arc<[GroupName]>,
    streams: Vec<ConcernedStream>,
    state: AckState,
}

/// A change of a view, as long as clients that come later are counted.
#[derive(Clone)]
struct Changed {
    change: Arc<ViewChange>,
    names: Arc<Names>,
}

/// The names of the resources that were changed in a view, by type; `None` if clients may know one of them by another name, or there are
/// very many.
struct Names(HashMap<ResourceType, Option<HashSet<Name>>>);

struct ConcernedStream {
    id: StreamId,
    names: Arc<Names>,
    /// The changed types that it subscribes to.
    types: Vec<ResourceType>,
}

#[derive(Clone, Debug, PartialEq)]
enum AckState {
    Pending,
    Acked { by_newer: bool },
    Nacked(Rejected),
    Gone,
}

/// A client's rejection of something that was changed.
#[derive(Clone, Debug, PartialEq)]
struct Rejected {
    resource_type: ResourceType,
    /// `None` if it is not known which resource it is.
    resource: Option<Name>,
    message: Arc<str>,
    failed_before: bool,
}

impl Acks {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(publisher: Arc<Publisher>, board: Arc<StatusBoard>) -> Self {
        Self { publisher, board, kept: Mutex::default(), published: watch::Sender::default() }
    }

    /// Publishes `groups` as `revision`, and finds the concerned clients.
    pub fn publish(&self, revision: Revision, groups: Groups) -> Publication {
        self.publish_split(revision, groups, None)
    }

    /// Publishes during a wave deployment. Concerned are then the clients for which this publication changes something, such as those
    /// of the wave that it starts.
    pub fn publish_split(&self, revision: Revision, groups: Groups, behind: Option<Behind>) -> Publication {
        let at = Instant::now();
        let (_, before) = self.publisher.groups();
        // While some nodes are behind, whether a client that comes gets the change is for the wave to say.
        let in_groups = match &behind {
            None => InGroups::new(&before, &groups, &self.board),
            Some(_) => InGroups::default(),
        };
        let publication = self.publisher.publish_split(revision, groups, behind, at.into_std());
        let concerned = Concerned { in_groups, ..self.concerned(&publication) };
        self.remember(&publication, concerned, at);
        self.published.send_replace(Some(revision));
        publication
    }

    /// Makes a revision known by the versions that a publisher was given.
    pub fn remember_versions<'a>(&self, revision: Revision, versions: impl Iterator<Item = &'a str>) {
        if let Some(kept) = self.lock().get_mut(&revision) {
            kept.versions.extend(versions.map(Arc::from));
        }
    }

    /// The newest remembered revision that gave a type this version.
    #[must_use]
    pub fn revision_of(&self, version: &str) -> Option<Revision> {
        let kept = self.lock();
        kept.iter().rev().find(|(_, kept)| kept.versions.contains(version)).map(|(revision, _)| *revision)
    }

    /// The clients that have applied a revision by now.
    #[must_use]
    pub fn report(&self, revision: Revision) -> Applied {
        self.report_of(revision, |_| Sight::Words)
    }

    /// The same of clients by the groups that they had when it was published.
    #[must_use]
    pub fn report_of(&self, revision: Revision, sight: impl Fn(&[GroupName]) -> Sight) -> Applied {
        if *self.published.borrow() < Some(revision) {
            return Applied::Behind;
        }
        let covering = {
            let kept = self.lock();
            let first = kept.range(revision..).next();
            let covering = first.filter(|(published, kept)| **published == revision || kept.after < revision);
            covering.map(|(_, kept)| Arc::clone(&kept.concerned))
        };
        let Some(concerned) = covering else { return Applied::Forgotten };
        let mut concerned = concerned.lock().unwrap_or_else(PoisonError::into_inner);
        concerned.find_late(&self.board);
        concerned.look(&self.board);
        Applied::Known(AcksReport { revision: revision.0, ..concerned.report(sight) })
    }

    /// The last publication, as it changes; `None` before the first.
    #[must_use]
    pub fn published(&self) -> watch::Receiver<Option<Revision>> {
        self.published.subscribe()
    }

    /// The remembered publications after a revision that concern anyone, the oldest first, and when each began.
    #[must_use]
    pub fn concerning_after(&self, revision: Option<Revision>) -> Vec<(Revision, Instant)> {
        let after = (revision.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let kept = self.lock();
        let concerning = kept.range(after).filter(|(_, kept)| kept.n_clients > 0);
        concerning.map(|(revision, kept)| (*revision, kept.at)).collect()
    }

    /// How far a publication is by now; `None` if it is not remembered.
    #[must_use]
    pub fn progress(&self, revision: Revision) -> Option<Progress> {
        let concerned = self.lock().get(&revision).map(|kept| Arc::clone(&kept.concerned))?;
        let mut concerned = concerned.lock().unwrap_or_else(PoisonError::into_inner);
        concerned.look(&self.board);
        Some(concerned.progress())
    }

    /// Waits until the revision is published, and then until every concerned client has accepted it, one that worked before has
    /// rejected it, or the time is up. A publication that is no longer remembered has no concerned clients. Never
    /// [forgotten](Applied::Forgotten).
    pub async fn wait(&self, revision: Revision, timeout: Duration) -> Applied {
        self.wait_for((revision, 0), timeout, |_| Sight::Words).await
    }

    /// The same of clients by the groups that they had when it was published, and until at least so many have accepted it.
    pub async fn wait_for(
        &self,
        (revision, min_clients): (Revision, usize),
        timeout: Duration,
        sight: impl Fn(&[GroupName]) -> Sight,
    ) -> Applied {
        let deadline = Instant::now() + timeout;
        let mut published = self.published.subscribe();
        // The sender lives as long as this.
        let _ = timeout_at(deadline, published.wait_for(|published| *published >= Some(revision))).await;
        let mut ticks = self.board.ticks();
        loop {
            ticks.mark_unchanged();
            let report = match self.report_of(revision, &sight) {
                Applied::Known(report) => report,
                Applied::Behind => return Applied::Behind,
                Applied::Forgotten => AcksReport { revision: revision.0, ..AcksReport::default() },
            };
            if !report.is_waiting_for(min_clients) || Instant::now() >= deadline {
                return Applied::Known(report);
            }
            // In any case, the clients are looked at once more: the board may be gone, or the time may be up.
            let _ = timeout_at(deadline, ticks.changed()).await;
            sleep(LOOK_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// The clients that a publication concerns: those of changed views, and those that may have moved to another view.
    fn concerned(&self, publication: &Publication) -> Concerned {
        let changed = |change: &ViewChange| (change.key.clone(), Changed::new(change.clone()));
        let changes: BTreeMap<ViewKey, Changed> = publication.views.iter().map(changed).collect();
        let former: HashMap<&ViewKey, &Arc<View>> =
            publication.former.iter().map(|view| (view.key(), view)).collect();
        let mut concerned = BTreeMap::new();
        let mut moves = Moves::default();
        let mut look_at = |key: Option<&ViewKey>| {
            for entry in self.board.streams_of(key) {
                let (node, proofs) =
                    entry.with(|status| (Arc::clone(&status.info.node), Arc::clone(&status.info.proofs)));
                let is_moved = publication.moved.may_be(&node);
                // The view that the client is granted. Without a grant its stream ends, and it is sent nothing.
                let Ok(view) = is_moved.then(|| self.publisher.view_as(&node, &proofs)).transpose() else {
                    continue;
                };
                let view = view.flatten();
                let moved = view.filter(|view| key != Some(view.key())).map(|view| {
                    let old = key.and_then(|key| former.get(key)).map(|view| &***view);
                    moves.change(old, &view)
                });
                let of_view = || key.and_then(|key| changes.get(key)).cloned();
                let Some(changed) = moved.or_else(of_view) else { continue };
                if let Some(stream) = changed.concerned(&entry) {
                    concerned.insert(entry.id(), (entry, stream));
                }
            }
        };
        let of_changed = changes.keys().chain(former.keys().copied());
        of_changed.collect::<BTreeSet<&ViewKey>>().into_iter().for_each(|key| look_at(Some(key)));
        if publication.moved != Moved::Nobody {
            look_at(None);
        }
        let mut clients = Clients::default();
        for (entry, stream) in concerned.into_values() {
            clients.add(&entry, stream);
        }
        Concerned { revision: publication.revision, changes, clients: clients.list, ..Concerned::default() }
    }

    fn remember(&self, publication: &Publication, concerned: Concerned, at: Instant) {
        let mut versions = HashSet::new();
        for change in &publication.views {
            let Some(view) = self.publisher.view_at(&change.key) else { continue };
            versions.extend(change.changes.keys().map(|changed| Arc::clone(view.version_info(changed))));
        }
        let revision = publication.revision;
        let before = *self.published.borrow();
        let mut kept = self.lock();
        // The first publication covers none: nobody was connected when the revisions before it came. One that is made again covers
        // what it did.
        let after = match kept.get(&revision) {
            Some(again) => again.after,
            None => before.unwrap_or(Revision(revision.0.saturating_sub(1))),
        };
        if concerned.clients.is_empty() && kept.contains_key(&revision) {
            return;
        }
        let (n_clients, n_bytes) = (concerned.clients.len(), concerned.n_bytes());
        let concerned = Arc::new(Mutex::new(concerned));
        kept.insert(revision, Kept { after, concerned, n_clients, n_bytes, at, versions });
        let mut n_kept: usize = kept.values().map(|kept| kept.n_clients).sum();
        while kept.len() > 1 && (kept.len() > MAX_KEPT || n_kept > MAX_KEPT_CLIENTS) {
            let Some((_, oldest)) = kept.pop_first() else { break };
            n_kept -= oldest.n_clients;
        }
        let mut n_kept_bytes: usize = kept.values().map(|kept| kept.n_bytes).sum();
        let n_older = kept.len() - 1;
        for older in kept.values_mut().take(n_older) {
            if n_kept_bytes <= MAX_KEPT_BYTES {
                break;
            }
            n_kept_bytes -= std::mem::take(&mut older.n_bytes);
            older.concerned.lock().unwrap_or_else(PoisonError::into_inner).forget_changes();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Revision, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Acks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acks({} publications)", self.lock().len())
    }
}

impl Applied {
    /// The clients, if they are known.
    #[must_use]
    pub fn known(self) -> Option<AcksReport> {
        match self {
            Self::Known(report) => Some(report),
            Self::Behind | Self::Forgotten => None,
        }
    }
}

impl AcksReport {
    /// Returns `true` if an answer is still to come and none has failed the publication yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.n_nacked == 0 && self.n_pending > 0
    }

    /// The same if at least so many clients must accept it.
    #[must_use]
    pub fn is_waiting_for(&self, min_clients: usize) -> bool {
        self.is_waiting() || (self.n_nacked + self.n_already_failing == 0 && self.acked < min_clients)
    }

    /// Counts the clients of another server too. A client of both counts twice, because each of its streams has to answer.
    pub fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.acked = self.acked.saturating_add(other.acked);
        self.superseded = self.superseded.saturating_add(other.superseded);
        self.n_pending = self.n_pending.saturating_add(other.n_pending);
        self.n_nacked = self.n_nacked.saturating_add(other.n_nacked);
        self.n_already_failing = self.n_already_failing.saturating_add(other.n_already_failing);
        other.pending.iter().for_each(|node| list(&mut self.pending, node.clone()));
        for (own, others) in
            [(&mut self.nacked, &other.nacked), (&mut self.already_failing, &other.already_failing)]
        {
            others.iter().for_each(|nack| list(own, nack.clone()));
        }
    }
}

impl Concerned {
    /// How many bytes the resources have that it keeps.
    fn n_bytes(&self) -> usize {
        let changes = self.changes.values().flat_map(|changed| changed.change.changes.values());
        let n_bytes: usize =
            changes.flat_map(|changes| &changes.changed).map(|resource| resource.n_bytes()).sum();
        n_bytes + self.in_groups.n_bytes()
    }

    /// From now on, no more clients are counted that come later.
    fn forget_changes(&mut self) {
        self.changes.clear();
        self.in_groups = InGroups::default();
    }

    /// Finds the clients that came after the publication, and that it concerns.
    fn find_late(&mut self, board: &StatusBoard) {
        let counted = self.clients.iter().chain(&self.late).flat_map(|client| &client.streams);
        let counted: HashSet<StreamId> = counted.map(|stream| stream.id).collect();
        let new = self.in_groups.in_new_views(board, |key| self.changes.contains_key(key));
        let new = new.into_iter().map(|change| (change.key.clone(), Changed::new(change)));
        self.changes.extend(new.collect::<Vec<_>>());
        let mut late = Clients::default();
        for (key, changed) in &self.changes {
            let came = board.streams_of(Some(key)).into_iter().filter(|entry| !counted.contains(&entry.id()));
            for entry in came {
                if let Some(stream) = changed.concerned(&entry) {
                    late.add(&entry, stream);
                }
            }
        }
        self.late.extend(late.list);
    }

    /// Reads what the clients have answered since the last look.
    fn look(&mut self, board: &StatusBoard) {
        self.late.retain(|client| client.streams.iter().any(|stream| board.stream(stream.id).is_some()));
        for client in self.clients.iter_mut().chain(&mut self.late) {
            match client.state {
                AckState::Acked { .. } | AckState::Gone => {}
                AckState::Pending | AckState::Nacked(_) => {
                    client.state = client.look(board, self.revision);
                }
            }
            // The state of a client that left is of no use, and neither is a settled one's after it left.
            if client.streams.iter().all(|stream| board.stream(stream.id).is_none()) {
                client.state = match &client.state {
                    acked @ AckState::Acked { .. } => acked.clone(),
                    AckState::Pending | AckState::Nacked(_) | AckState::Gone => AckState::Gone,
                };
            }
        }
    }

    fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        for client in &self.clients {
            match &client.state {
                AckState::Gone => continue,
                AckState::Pending => progress.pending += 1,
                AckState::Acked { .. } => progress.acked += 1,
                AckState::Nacked(_) => {}
            }
            progress.total += 1;
        }
        progress
    }

    fn report(&self, sight: impl Fn(&[GroupName]) -> Sight) -> AcksReport {
        let mut report = AcksReport { revision: self.revision.0, ..AcksReport::default() };
        for client in self.clients.iter().chain(&self.late) {
            let sight = sight(&client.groups);
            if sight == Sight::Nothing {
                continue;
            }
            let node = || client.node.id.clone();
            match &client.state {
                AckState::Gone => continue,
                AckState::Pending => {
                    report.n_pending += 1;
                    list(&mut report.pending, node());
                }
                AckState::Acked { by_newer } => {
                    report.acked += 1;
                    report.superseded += usize::from(*by_newer);
                }
                AckState::Nacked(rejected) => {
                    let nack = rejected.of_node(node(), sight);
                    let (n, listed) = match rejected.failed_before {
                        true => (&mut report.n_already_failing, &mut report.already_failing),
                        false => (&mut report.n_nacked, &mut report.nacked),
                    };
                    *n += 1;
                    list(listed, nack);
                }
            }
            report.total += 1;
        }
        report
    }
}

impl ConcernedClient {
    fn look(&self, board: &StatusBoard, revision: Revision) -> AckState {
        let mut n_open = 0;
        let mut pending = false;
        let mut by_newer = false;
        let mut rejected: Option<Rejected> = None;
        for stream in &self.streams {
            let Some(entry) = board.stream(stream.id) else { continue };
            n_open += 1;
            entry.with(|status| {
                for resource_type in &stream.types {
                    let Some(of_type) = status.types.get(resource_type) else {
                        pending = true;
                        continue;
                    };
                    let answer = of_type.answer(revision, |name| stream.names.has(resource_type, name));
                    match answer {
                        TypeAnswer::Pending => pending = true,
                        TypeAnswer::Uses => by_newer |= is_newer(of_type, revision),
                        TypeAnswer::Rejects { resource, message, failed_before } => {
                            if rejected.as_ref().is_none_or(|rejected| rejected.failed_before) {
                                let resource_type = resource_type.clone();
                                rejected = Some(Rejected { resource_type, resource, message, failed_before });
                            }
                        }
                    }
                }
            });
        }
        match rejected {
            _ if n_open == 0 => AckState::Gone,
            // A resource that was rejected before does not end the wait for the others.
            Some(rejected) if rejected.failed_before && pending => AckState::Pending,
            Some(rejected) => AckState::Nacked(rejected),
            None if pending => AckState::Pending,
            None => AckState::Acked { by_newer },
        }
    }
}

impl Changed {
    fn new(change: ViewChange) -> Self {
        let of_type = |(of, changes): (&ResourceType, &Arc<Changes>)| (of.clone(), names(changes));
        let names = Arc::new(Names(change.changes.iter().map(of_type).collect()));
        Self { change: Arc::new(change), names }
    }

    /// The client of a stream, if the change concerns it.
    fn concerned(&self, entry: &StreamEntry) -> Option<ConcernedStream> {
        let types = entry.concerned(&self.change);
        let is_any = !types.is_empty();
        is_any.then(|| ConcernedStream { id: entry.id(), names: Arc::clone(&self.names), types })
    }
}

impl Names {
    /// Returns `true` if a resource that a client rejects by this name may be among those that were changed.
    fn has(&self, resource_type: &ResourceType, name: &str) -> bool {
        self.0.get(resource_type).is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(name)))
    }
}

fn names(changes: &Changes) -> Option<HashSet<Name>> {
    let has_others = |resource: &Arc<Resource>| {
        *resource.resource_type() == ResourceType::VirtualHost
            || resource.is_host_pattern()
            || !resource.aliases().is_empty()
    };
    let n_changed = changes.changed.len() + changes.removed.len();
    if n_changed > MAX_NAMES || changes.changed.iter().any(has_others) {
        return None;
    }
    let changed = changes.changed.iter().map(|resource| resource.name());
    Some(changed.chain(&changes.removed).cloned().collect())
}

/// Of how many changed resources of a type the names are remembered.
const MAX_NAMES: usize = 1_000;

impl Rejected {
    fn of_node(&self, node: String, sight: Sight) -> NodeNack {
        let resource = self.resource.as_ref().filter(|_| sight == Sight::Words);
        NodeNack {
            node,
            message: sight.words(&self.message),
            type_url: Some(self.resource_type.type_url().to_owned()),
            resource: resource.map(|name| name.to_string()),
        }
    }
}

fn is_newer(status: &TypeStatus, revision: Revision) -> bool {
    status.acked.as_ref().is_some_and(|acked| acked.revision > revision)
}

fn list<T>(entries: &mut Vec<T>, entry: T) {
    if entries.len() < MAX_LISTED {
        entries.push(entry);
    }
}

/// Collects concerned streams into clients.
#[derive(Default)]
struct Clients {
    list: Vec<ConcernedClient>,
    /// Clients of per-type streams by connection and node id.
    by_connection: HashMap<(Arc<str>, String), usize>,
}

impl Clients {
    fn add(&mut self, entry: &StreamEntry, stream: ConcernedStream) {
        let (node, groups, connection) = entry.with(|status| {
            let info = &status.info;
            let connection = info.service.as_ref().map(|_| (Arc::clone(&info.address), info.node.id.clone()));
            let groups = status.view.as_ref().map(|view| Arc::clone(&view.groups)).unwrap_or_default();
            (Arc::clone(&info.node), groups, connection)
        });
        if let Some(connection) = connection {
            let position = *self.by_connection.entry(connection).or_insert(self.list.len());
            if let Some(client) = self.list.get_mut(position) {
                client.streams.push(stream);
                return;
            }
        }
        self.list.push(ConcernedClient { node, groups, streams: vec![stream], state: AckState::Pending });
    }
}

/// The changes for nodes that move to another view, by both views.
#[derive(Default)]
struct Moves(HashMap<(Option<ViewKey>, ViewKey), Changed>);

impl Moves {
    fn change(&mut self, old: Option<&View>, new: &View) -> Changed {
        let key = (old.map(|view| view.key().clone()), new.key().clone());
        let change = self.0.entry(key).or_insert_with(|| Changed::new(new.change_since(old)));
        change.clone()
    }
}

/// The key of the view that a client of exactly this group follows.
#[must_use]
pub fn view_key_of_group(group: &GroupName, profile: xds_cache::Profile) -> ViewKey {
    let default = GroupName::default_group();
    let groups = if group.is_default() { vec![default] } else { vec![group.clone(), default] };
    ViewKey { groups: groups.into(), profile, cohort: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_not_named_count() {
        let client = |n: usize| {
            let nack = |failed_before| {
                let resource_type = ResourceType::Listener;
                AckState::Nacked(Rejected {
                    resource_type,
                    resource: None,
                    message: "no".into(),
                    failed_before,
                })
            };
            let state = match n % 4 {
                0 => AckState::Acked { by_newer: false },
                1 => AckState::Pending,
                2 => nack(false),
                _ => nack(true),
            };
            ConcernedClient { node: Arc::new(Node::default()), groups: [].into(), streams: vec![], state }
        };
        let clients = (0..4 * (MAX_LISTED + 1)).map(client).collect();
        let concerned = Concerned { revision: Revision(7), clients, ..Concerned::default() };
        let mut report = concerned.report(|_| Sight::Words);
        let counts = |of: &AcksReport| [of.acked, of.n_pending, of.n_nacked, of.n_already_failing];
        let lists = |of: &AcksReport| [of.pending.len(), of.nacked.len(), of.already_failing.len()];
        assert_eq!((counts(&report), lists(&report)), ([MAX_LISTED + 1; 4], [MAX_LISTED; 3]));
        assert_eq!(report.total, counts(&report).iter().sum::<usize>());
        let other = report.clone();
        report.add(&other);
        assert_eq!((counts(&report), lists(&report)), ([2 * (MAX_LISTED + 1); 4], [MAX_LISTED; 3]));
        assert_eq!(report.total, counts(&report).iter().sum::<usize>());
    }
}
