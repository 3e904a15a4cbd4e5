//! ACKs: the clients that have applied a publication.
//!
//! *Concerned* are the clients that subscribe to a resource that the publication changes, whenever they came. An ADS stream is a client of
//! its own; the per-type streams of one connection and node are one client together (D13), so several clients may have one node id. A
//! client that disconnects leaves the set. An ACK of a newer response counts, and a rejection counts only of a resource that was changed.
//!
//! A server that takes in several commits of others at once publishes only the newest revision. That publication *covers* the others, so
//! the ACKs of each of these revisions are those of the publication.

mod changed;
mod concerned;
mod fold;
mod late;
mod query;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use xds_cache::wave::Behind;
use xds_cache::{
    GroupName, Groups, Moved, Publication, Publisher, Revision, StatusBoard, View, ViewChange, ViewKey,
};

pub use changed::{Changed, ConcernedStream};
use concerned::{Clients, Concerned};
pub use fold::{AckState, Fold, Rejected};
use late::InGroups;
pub use query::{AcksQuery, Whose};
pub use report::{AcksReport, MAX_LISTED, NodeNack, Progress, Sight};

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

/// How many bytes the resources may have that are remembered so that clients that come later are counted; those of the newest publication
/// are kept in any case.
const MAX_KEPT_BYTES: usize = 64 * 1024 * 1024;

/// How many publications are remembered.
const MAX_KEPT: usize = 1_000;

/// How many clients are remembered over all publications (about 100 bytes each); the newest publication is kept whole.
const MAX_KEPT_CLIENTS: usize = 500_000;

/// The shortest time between two looks at the clients: a push to thousands ends in thousands of ticks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How many times as long as the last look the time to the next one is: a question about 100,000 clients takes a tenth of a thread.
const PAUSE_OF_LOOK: u32 = 10;

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
        self.report_of(&AcksQuery::concerned(revision), |_| Sight::Words)
    }

    /// The same of the clients that are asked about, by the groups that they had when it was published.
    #[must_use]
    pub fn report_of(&self, query: &AcksQuery, sight: impl Fn(&[GroupName]) -> Sight) -> Applied {
        let revision = query.revision;
        if *self.published.borrow() < Some(revision) {
            return Applied::Behind;
        }
        if query.of == Whose::Everyone {
            return Applied::Known(concerned::of_everyone(&self.board, query, sight));
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
        Applied::Known(AcksReport { revision: revision.0, ..concerned.report(query, sight) })
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
        self.wait_for(&AcksQuery::concerned(revision), 0, timeout, |_| Sight::Words).await
    }

    /// The same of the clients that are asked about, by the groups that they had when it was published, and until at least `min_clients`
    /// of them have accepted it.
    pub async fn wait_for(
        &self,
        query: &AcksQuery,
        min_clients: usize,
        timeout: Duration,
        sight: impl Fn(&[GroupName]) -> Sight,
    ) -> Applied {
        let revision = query.revision;
        let deadline = Instant::now() + timeout;
        let mut published = self.published.subscribe();
        // The sender lives as long as this.
        let _ = timeout_at(deadline, published.wait_for(|published| *published >= Some(revision))).await;
        let mut ticks = self.board.ticks();
        loop {
            ticks.mark_unchanged();
            let began = Instant::now();
            let report = match self.report_of(query, &sight) {
                Applied::Known(report) => report,
                Applied::Behind => return Applied::Behind,
                Applied::Forgotten => AcksReport { revision: revision.0, ..AcksReport::default() },
            };
            if !report.is_waiting_for(min_clients) || Instant::now() >= deadline {
                return Applied::Known(report);
            }
            // In any case, the clients are looked at once more: the board may be gone, or the time may be up.
            let pause = LOOK_INTERVAL.max(PAUSE_OF_LOOK * began.elapsed());
            let _ = timeout_at(deadline, ticks.changed()).await;
            sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
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
