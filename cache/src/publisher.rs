//! The one publisher: owns the effective groups, the views compiled from them, and which node follows which view (D14).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::admission::Denial;
use crate::drain::DrainPolicy;
use crate::group::GroupName;
use crate::identity::Proof;
use crate::layer::{self, EffectiveGroup, Groups};
use crate::node::{Node, Profile};
use crate::version::Revision;
use crate::view::compile::{Circumstances, compile};
use crate::view::{Base, View, ViewChange, ViewKey, ViewsOf};
use crate::wave::{Behind, Split};

mod former;
mod index;
#[cfg(test)]
mod tests;

use former::{Former, Formers};
pub use index::Moved;
use index::NodeIndex;

/// Publishes groups as views. Shared by reference; every call takes one short lock and none waits for a client.
#[derive(Debug)]
pub struct Publisher {
    state: Mutex<PublisherState>,
    /// When the first drain ends.
    drain_end: watch::Sender<Option<Instant>>,
}

#[derive(Debug)]
struct PublisherState {
    /// Nothing is served before the first complete load (D3).
    is_loaded: bool,
    revision: Revision,
    epoch: u64,
    /// The last publication that could change the groups of a node.
    moved_at: Revision,
    groups: Groups,
    /// The state for nodes that a wave deployment has not reached; `None` if there is none.
    behind: Option<Behind>,
    /// The groups in which the two differ; cohorts matter only to their nodes.
    differing: BTreeSet<GroupName>,
    index: NodeIndex,
    views: HashMap<ViewKey, watch::Sender<Option<Arc<View>>>>,
    /// The publication that last changed each of them; those that none has changed since they were compiled are left out.
    changed: HashMap<ViewKey, Revision>,
    views_of: ViewsOf,
    /// Views of nodes that no group selects by their ids.
    unlisted: BTreeSet<ViewKey>,
    /// When the first drain in a view ends.
    drain_ends: BTreeSet<(Instant, ViewKey)>,
    /// The tables of the default group, by kind of client and cohort.
    bases: BTreeMap<(Profile, u32), Arc<Base>>,
    /// Views that nobody followed at the last call of [`Publisher::retire_unused`].
    unused: BTreeSet<ViewKey>,
    /// How long resources drain if no group says so.
    drain: DrainPolicy,
    /// The time of the last call that had one; without a time, nothing drains.
    now: Option<Instant>,
    /// What was published a moment ago.
    formers: Formers,
}

/// The changes that one call of [`Publisher::publish`] made.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// The revision that was published.
    pub revision: Revision,
    /// The views that somebody follows and in which a resource changed.
    pub views: Vec<ViewChange>,
    /// The nodes whose groups may have changed.
    pub moved: Moved,
    /// The previous views of the nodes whose groups may have changed.
    pub former: Vec<Arc<View>>,
}

/// The result that a publication would have for a view.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The view now.
    pub before: Arc<View>,
    /// The view that would be published.
    pub after: Arc<View>,
    /// The view when everything has drained, and how long after the publication; `None` if nothing drains.
    pub drained: Option<(Duration, Arc<View>)>,
}

/// One client's end of its view.
#[derive(Debug)]
pub struct ViewReceiver {
    receiver: watch::Receiver<Option<Arc<View>>>,
    epoch: u64,
}

impl ViewReceiver {
    /// The newest view, which counts as seen from now on; `None` before the first complete load.
    pub fn take(&mut self) -> Option<Arc<View>> {
        self.receiver.borrow_and_update().clone()
    }

    /// Waits until there is a view that was not seen. Loses nothing when dropped.
    ///
    /// # Errors
    ///
    /// If the publisher is gone.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.receiver.changed().await
    }

    /// Returns `true` if `view` was published after the selection of groups changed, so that the client must follow anew.
    #[must_use]
    pub fn is_outdated_by(&self, view: &View) -> bool {
        view.epoch() != self.epoch
    }

    /// The channel itself, for callers that poll it.
    #[must_use]
    pub fn into_inner(self) -> watch::Receiver<Option<Arc<View>>> {
        self.receiver
    }
}

impl Publisher {
    /// Nothing is loaded yet: clients can follow, and wait. Resources drain only if groups say so.
    #[must_use]
    pub fn new() -> Self {
        Self::draining(DrainPolicy::default())
    }

    /// The same, with `drain` as the policy where groups have none.
    #[must_use]
    pub fn draining(drain: DrainPolicy) -> Self {
        let state = PublisherState {
            is_loaded: false,
            revision: Revision(0),
            epoch: 0,
            moved_at: Revision(0),
            groups: Groups::new(),
            behind: None,
            differing: BTreeSet::new(),
            index: NodeIndex::default(),
            views: HashMap::new(),
            changed: HashMap::new(),
            views_of: ViewsOf::default(),
            unlisted: BTreeSet::new(),
            drain_ends: BTreeSet::new(),
            bases: BTreeMap::new(),
            unused: BTreeSet::new(),
            drain,
            now: None,
            formers: Formers::default(),
        };
        Self { state: Mutex::new(state), drain_end: watch::Sender::new(None) }
    }

    /// Serves `groups`, at the time of the last call. Wakes exactly the clients of views in which something changed, and those
    /// whose groups may have changed.
    ///
    /// `revision` must not be lower than the last one. `groups` should be derived from those of the last publication: then the
    /// cost is that of the difference, and only the views of changed groups are visited.
    pub fn publish(&self, revision: Revision, groups: Groups) -> Publication {
        self.publish_at(None, revision, groups, None)
    }

    /// The same at the time `now`, also during a wave deployment: nodes that are ahead are served `groups`, and `behind` says
    /// what the others are served, and who is ahead. When that changes, clients move to the view of the other state and are
    /// sent the difference. Resources that only their previous view has drain in the new one.
    pub fn publish_split(
        &self,
        revision: Revision,
        groups: Groups,
        behind: Option<Behind>,
        now: Instant,
    ) -> Publication {
        self.publish_at(Some(now), revision, groups, behind)
    }

    fn publish_at(
        &self,
        now: Option<Instant>,
        revision: Revision,
        groups: Groups,
        behind: Option<Behind>,
    ) -> Publication {
        let mut state = self.lock();
        debug_assert!(revision >= state.revision, "revisions only grow");
        let differing: BTreeSet<GroupName> = match &behind {
            Some(behind) => layer::differing(&groups, &behind.groups).into_iter().cloned().collect(),
            None => BTreeSet::new(),
        };
        let same_split = state.behind.as_ref().map(|behind| &behind.split)
            == behind.as_ref().map(|behind| &behind.split)
            && state.differing == differing;
        let siblings = if same_split { HashMap::new() } else { state.siblings() };
        let everyone = !state.is_loaded || !same_split;
        let was_loaded = std::mem::replace(&mut state.is_loaded, true);
        let former = std::mem::replace(&mut state.revision, revision);
        state.now = now.or(state.now);
        state.differing = differing;
        let before = std::mem::replace(&mut state.groups, groups);
        let behind_before = std::mem::replace(&mut state.behind, behind);
        if let Some(now) = now.filter(|_| was_loaded) {
            let replaced = (before.clone(), behind_before.clone());
            let former = Former::new(former, replaced, &state.groups, now);
            state.formers.note(former);
        }
        let mut touched = BTreeSet::new();
        for cohort in [AHEAD, 0] {
            let before = groups_of(cohort, &before, behind_before.as_ref());
            let after = groups_of(cohort, &state.groups, state.behind.as_ref());
            for name in layer::differing(before, after) {
                touched.extend(state.views_of.of(name).filter(|key| key.cohort == cohort).cloned());
            }
        }
        let (moved, concerned) = state.reselect(&before, everyone);
        if moved != Moved::Nobody {
            state.epoch += 1;
            state.moved_at = revision;
        }
        let mut publication = Publication { revision, moved, ..Publication::default() };
        for key in touched.union(&concerned) {
            let Some(previous) = state.views.get(key).map(|sender| sender.borrow().clone()) else { continue };
            let is_concerned = concerned.contains(key);
            let epoch = previous.as_ref().filter(|_| !is_concerned).map_or(state.epoch, |view| view.epoch());
            let sibling = siblings.get(key).map(|view| &**view);
            let view = state.compile(key, (revision, epoch), previous.as_deref(), sibling);
            let change = view.change_since(previous.as_deref());
            if let Some(sibling) = sibling {
                view.replaces(sibling, state.now);
            }
            state.replace(key, view, is_concerned || !change.changes.is_empty());
            if !change.changes.is_empty() {
                state.changed.insert(key.clone(), revision);
                publication.views.push(change);
            }
            publication.former.extend(previous.filter(|_| is_concerned));
        }
        self.tell_drain_end(&state);
        publication
    }

    /// Ends the drains that are over at `now`. This is not a change: the views keep their revision.
    pub fn end_drains(&self, now: Instant) {
        let mut state = self.lock();
        state.now = Some(now);
        let ended = state.drain_ends.iter().take_while(|(end, _)| *end <= now);
        let ended: Vec<ViewKey> = ended.map(|(_, key)| key.clone()).collect();
        for key in ended {
            let Some(previous) = state.views.get(&key).and_then(|sender| sender.borrow().clone()) else {
                continue;
            };
            let view = state.compile(&key, (previous.revision(), previous.epoch()), Some(&previous), None);
            let wakes = !view.change_since(Some(&previous)).changes.is_empty();
            state.replace(&key, view, wakes);
        }
        self.tell_drain_end(&state);
    }

    /// When [`end_drains`](Self::end_drains) has to be called; `None` while nothing drains. The time may be too early, never
    /// too late.
    #[must_use]
    pub fn drain_end(&self) -> watch::Receiver<Option<Instant>> {
        self.drain_end.subscribe()
    }

    fn tell_drain_end(&self, state: &PublisherState) {
        let end = state.drain_ends.first().map(|(end, _)| *end);
        self.drain_end.send_if_modified(|current| std::mem::replace(current, end) != end);
    }

    /// Follows the view of a client that claims to be `node` and has proved `proofs`; compiles it if this is its first client.
    ///
    /// # Errors
    ///
    /// [`Denial`] if the client claims a group that is not granted to it.
    pub fn follow_as(&self, node: &Node, proofs: &[Proof]) -> Result<ViewReceiver, Denial> {
        let mut state = self.lock();
        let key = state.index.admitted(node, proofs, &state.groups)?;
        let key = state.in_cohort(key, node);
        Ok(self.follow_key(&mut state, key))
    }

    /// Follows the view of `node` without what identities grant, whether or not a guarded group selects it.
    #[must_use]
    pub fn follow(&self, node: &Node) -> ViewReceiver {
        let mut state = self.lock();
        let key = state.index.unguarded(node, &state.groups);
        let key = state.in_cohort(key, node);
        self.follow_key(&mut state, key)
    }

    fn follow_key(&self, state: &mut PublisherState, key: ViewKey) -> ViewReceiver {
        let now = (state.revision, state.epoch);
        match state.views.get(&key).map(|sender| sender.borrow().clone()) {
            None => {
                let sibling = state.sibling(&key);
                let view = state.is_loaded.then(|| state.first(&key, now, sibling.as_deref()));
                state.insert(key.clone());
                if let Some(view) = view {
                    if let Some(sibling) = &sibling {
                        view.replaces(sibling, state.now);
                    }
                    state.replace(&key, view, false);
                }
                self.tell_drain_end(state);
            }
            // A client that comes from another view never sees an older publication than there. The others also learn of it,
            // because their answers are compared with it.
            Some(Some(view)) if view.revision() < state.moved_at => {
                let view = state.compile(&key, (now.0, view.epoch()), Some(&view), None);
                state.replace(&key, view, true);
            }
            Some(_) => {}
        }
        let receiver = state.views.entry(key).or_default().subscribe();
        let epoch = receiver.borrow().as_ref().map_or(state.epoch, |view| view.epoch());
        ViewReceiver { receiver, epoch }
    }

    /// The view of a client that claims to be `node` and has proved `proofs`; `None` before the first complete load.
    ///
    /// # Errors
    ///
    /// [`Denial`] if the client claims a group that is not granted to it.
    pub fn view_as(&self, node: &Node, proofs: &[Proof]) -> Result<Option<Arc<View>>, Denial> {
        let mut state = self.lock();
        let key = state.index.admitted(node, proofs, &state.groups)?;
        let key = state.in_cohort(key, node);
        Ok(state.view(&key))
    }

    /// The groups that a client is given only because they try their identities ([`NodeGroup::tries_identities`]), each with the
    /// denial that it would be.
    ///
    /// [`NodeGroup::tries_identities`]: crate::NodeGroup::tries_identities
    #[must_use]
    pub fn waived(&self, node: &Node, proofs: &[Proof]) -> Vec<Denial> {
        let state = self.lock();
        state.index.waived(node, proofs, &state.groups)
    }

    /// The view of all groups that select `node`, whatever identities they ask for. For people and tests: no client may be served
    /// it. `None` before the first complete load.
    #[must_use]
    pub fn view_of(&self, node: &Node) -> Option<Arc<View>> {
        let mut state = self.lock();
        let key = state.index.claimed(node, &state.groups);
        let key = state.in_cohort(key, node);
        state.view(&key)
    }

    /// The view that a client of exactly these groups would be served, in the cohort of the key: [`AHEAD`] has everything that
    /// was accepted, 0 is what nodes are served that a wave deployment has not reached. `None` before the first complete load.
    #[must_use]
    pub fn view_at(&self, key: &ViewKey) -> Option<Arc<View>> {
        self.lock().view(key)
    }

    /// The views that clients would be served if `groups` were published at `now`: at once, and when everything has drained, with
    /// how long that takes. The two are the same if nothing drains. `None` before the first complete load.
    #[must_use]
    pub fn preview(&self, key: &ViewKey, groups: &Groups, now: Instant) -> Option<Preview> {
        let mut state = self.lock();
        let before = state.view(key)?;
        let revision = Revision(state.revision.0 + 1);
        let base = state.base(key).next(groups, key.profile);
        let circumstances = Circumstances {
            revision,
            epoch: state.epoch,
            base: &base,
            previous: Some(&before),
            sibling: None,
            drain: state.drain,
            now: Some(now),
        };
        let after = Arc::new(compile(key.clone(), groups, circumstances));
        let end = after.draining().map(|one| one.until).max();
        let drained = end.map(|end| {
            let circumstances = Circumstances { previous: Some(&after), now: Some(end), ..circumstances };
            (end - now, Arc::new(compile(key.clone(), groups, circumstances)))
        });
        Some(Preview { before, after, drained })
    }

    /// How long resources drain if no group says so.
    #[must_use]
    pub fn drain_policy(&self) -> DrainPolicy {
        self.lock().drain
    }

    /// The groups with everything that was accepted, and the revision.
    #[must_use]
    pub fn groups(&self) -> (Revision, Groups) {
        let state = self.lock();
        (state.revision, state.groups.clone())
    }

    /// The state for nodes that a wave deployment has not reached; `None` if there is no wave deployment.
    #[must_use]
    pub fn behind(&self) -> Option<Behind> {
        self.lock().behind.clone()
    }

    /// The nodes that the current wave deployment has reached; `None` if there is none.
    #[must_use]
    pub fn split(&self) -> Option<Split> {
        self.lock().behind.as_ref().map(|behind| behind.split.clone())
    }

    /// Returns `true` if a wave deployment has reached `node`; `None` if none concerns it.
    #[must_use]
    pub fn is_ahead(&self, node: &Node) -> Option<bool> {
        let state = self.lock();
        let behind = state.behind.as_ref()?;
        let key = state.index.claimed(node, &state.groups);
        let is_concerned = key.groups.iter().any(|name| state.differing.contains(name));
        is_concerned.then(|| behind.split.is_ahead(node))
    }

    /// Returns `true` if the first complete load was published.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Drops the views that nobody has followed since the previous call, and tables that were served so long before `now` that
    /// a client that reconnects no longer counts as using them. Call it from time to time.
    pub fn retire_unused(&self, now: Instant) {
        let mut state = self.lock();
        for view in state.views.values().filter_map(|sender| sender.borrow().clone()) {
            view.forget_past(now);
        }
        state.formers.forget(now);
        let unused = state.views.iter().filter(|(_, sender)| sender.receiver_count() == 0);
        let unused: BTreeSet<ViewKey> = unused.map(|(key, _)| key.clone()).collect();
        let known = std::mem::take(&mut state.unused);
        let (retired, unused) = unused.into_iter().partition(|key| known.contains(key));
        state.unused = unused;
        state.retire(&retired);
    }

    /// How many resources and how many endpoints drain, each counted once in every view that has it.
    #[must_use]
    pub fn n_draining(&self) -> (usize, usize) {
        let state = self.lock();
        let keys = state.drain_ends.iter().map(|(_, key)| key);
        let views = keys.filter_map(|key| state.views.get(key)?.borrow().clone());
        views.map(|view| view.drain().count()).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    }

    /// The publication that last changed a view. A client of it that has accepted everything up to there has the newest resources.
    /// `Revision(0)` if none has since the view was compiled.
    #[must_use]
    pub fn changed_at(&self, key: &ViewKey) -> Revision {
        self.lock().changed.get(key).copied().unwrap_or_default()
    }

    /// How many views are kept.
    #[must_use]
    pub fn n_views(&self) -> usize {
        self.lock().views.len()
    }

    /// Continuing to serve matters more than a state that a panic elsewhere may have left half changed.
    fn lock(&self) -> MutexGuard<'_, PublisherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}

impl PublisherState {
    fn view(&mut self, key: &ViewKey) -> Option<Arc<View>> {
        if let Some(view) = self.views.get(key).and_then(|sender| sender.borrow().clone()) {
            return Some(view);
        }
        self.is_loaded.then(|| self.compile(key, (self.revision, self.epoch), None, None))
    }

    /// A view that nobody followed: what was published a moment ago is remembered and drains as if somebody had. The cost is that of
    /// the publications that changed its groups.
    fn first(&mut self, key: &ViewKey, now: (Revision, u64), sibling: Option<&View>) -> Arc<View> {
        let current = groups_of(key.cohort, &self.groups, self.behind.as_ref()).clone();
        let mut base = self.base(key);
        let mut steps: Vec<(Revision, Groups, Instant, Arc<Base>)> = Vec::new();
        for former in self.now.into_iter().flat_map(|now| self.formers.at(now)).rev() {
            let groups = groups_of(key.cohort, &former.groups, former.behind.as_ref());
            let next = steps.last().map_or(&current, |(_, groups, _, _)| groups);
            if key
                .groups
                .iter()
                .all(|name| groups.get(name).map(Arc::as_ptr) == next.get(name).map(Arc::as_ptr))
            {
                continue;
            }
            base = base.next(groups, key.profile);
            steps.push((former.revision, groups.clone(), former.ended, Arc::clone(&base)));
        }
        let mut previous: Option<(Arc<View>, Instant)> = None;
        for (revision, groups, ended, base) in steps.into_iter().rev() {
            let circumstances = Circumstances {
                revision,
                epoch: now.1,
                base: &base,
                previous: previous.as_ref().map(|(view, _)| &**view),
                sibling: None,
                drain: self.drain,
                now: previous.as_ref().map(|(_, began)| *began),
            };
            let view = Arc::new(compile(key.clone(), &groups, circumstances));
            if let Some((before, began)) = previous {
                view.replaces(&before, Some(began));
            }
            previous = Some((view, ended));
        }
        let Some((before, began)) = previous else { return self.compile(key, now, None, sibling) };
        let latest = self.now.replace(began);
        let view = self.compile(key, now, Some(&before), sibling);
        self.now = latest;
        view.replaces(&before, Some(began));
        view
    }

    fn compile(
        &mut self,
        key: &ViewKey,
        (revision, epoch): (Revision, u64),
        previous: Option<&View>,
        sibling: Option<&View>,
    ) -> Arc<View> {
        let base = self.base(key);
        let groups = groups_of(key.cohort, &self.groups, self.behind.as_ref());
        let circumstances = Circumstances {
            revision,
            epoch,
            base: &base,
            previous,
            sibling,
            drain: self.drain,
            now: self.now,
        };
        Arc::new(compile(key.clone(), groups, circumstances))
    }

    /// The tables of the default group for the clients of a view. They are derived from the previous ones, and shared by both
    /// cohorts unless the cohorts differ in that group.
    fn base(&mut self, key: &ViewKey) -> Arc<Base> {
        let groups = groups_of(key.cohort, &self.groups, self.behind.as_ref());
        let default = groups.get(&GroupName::default_group());
        let place = (key.profile, key.cohort);
        let known =
            || self.bases.iter().filter(|((profile, _), _)| *profile == key.profile).map(|(_, base)| base);
        if let Some(base) = self.bases.get(&place).filter(|base| base.is_of(default)) {
            return Arc::clone(base);
        }
        let same = known().find(|base| base.is_of(default)).cloned();
        let base = same.unwrap_or_else(|| {
            let before = self.bases.get(&place).or_else(|| known().next()).cloned();
            before.unwrap_or_default().next(groups, key.profile)
        });
        self.bases.insert(place, Arc::clone(&base));
        base
    }

    /// Begins to keep a view.
    fn insert(&mut self, key: ViewKey) {
        self.views_of.insert(&key);
        if self.is_unlisted(&key) {
            self.unlisted.insert(key.clone());
        }
        self.views.insert(key, watch::Sender::default());
    }

    fn is_unlisted(&self, key: &ViewKey) -> bool {
        let is_listed = |group: &EffectiveGroup| group.definition.selector.literal_node_ids().is_some();
        !key.groups.iter().any(|name| self.groups.get(name).is_some_and(|group| is_listed(group)))
    }

    fn replace(&mut self, key: &ViewKey, view: Arc<View>, wakes: bool) {
        let Some(sender) = self.views.get(key) else { return };
        if let Some(before) = &*sender.borrow() {
            view.replaces(before, self.now);
        }
        let end = view.drain().next_end();
        let mut before = None;
        sender.send_if_modified(|current| {
            before = current.replace(view);
            wakes
        });
        if let Some(end) = before.and_then(|view| view.drain().next_end()) {
            self.drain_ends.remove(&(end, key.clone()));
        }
        self.drain_ends.extend(end.map(|end| (end, key.clone())));
    }

    fn retire(&mut self, keys: &BTreeSet<ViewKey>) {
        for key in keys {
            let view = self.views.remove(key).and_then(|sender| sender.borrow().clone());
            if let Some(end) = view.and_then(|view| view.drain().next_end()) {
                self.drain_ends.remove(&(end, key.clone()));
            }
            self.changed.remove(key);
            self.views_of.remove(key);
            self.unlisted.remove(key);
        }
        if !keys.is_empty() {
            let used: BTreeSet<(Profile, u32)> =
                self.views.keys().map(|key| (key.profile, key.cohort)).collect();
            self.bases.retain(|place, _| used.contains(place));
        }
    }

    /// Finds the nodes whose groups may differ from those in `before`, and the views that these nodes follow.
    fn reselect(&mut self, before: &Groups, everyone: bool) -> (Moved, BTreeSet<ViewKey>) {
        let definition = |group: Option<&'_ Arc<EffectiveGroup>>| group.map(|group| group.definition.clone());
        let (mut ids, mut is_everyone) = (BTreeSet::new(), everyone);
        let mut concerned: BTreeSet<ViewKey> = BTreeSet::new();
        let after = self.groups.clone();
        for name in layer::differing(before, &after) {
            let [old, new] = [before, &after].map(|groups| definition(groups.get(name)));
            if old == new {
                continue;
            }
            let names =
                [&old, &new].into_iter().flatten().filter_map(|group| group.selector.literal_node_ids());
            for id in names.flatten() {
                concerned.extend(self.index.of_id(id).flat_map(|group| self.views_of.of(group)).cloned());
                if self.index.of_id(id).next().is_none() {
                    concerned.extend(self.unlisted.iter().cloned());
                }
            }
            match self.index.redefine(old.as_ref(), new.as_ref()) {
                Moved::Nobody => {}
                Moved::Ids(found) => ids.extend(found),
                Moved::Everyone => is_everyone = true,
            }
        }
        if is_everyone {
            let keys: Vec<ViewKey> = self.views.keys().cloned().collect();
            self.unlisted = keys.iter().filter(|key| self.is_unlisted(key)).cloned().collect();
            return (Moved::Everyone, keys.into_iter().collect());
        }
        if ids.is_empty() { (Moved::Nobody, BTreeSet::new()) } else { (Moved::Ids(ids), concerned) }
    }

    /// The view of the same clients in the other state of a wave deployment.
    fn sibling(&self, key: &ViewKey) -> Option<Arc<View>> {
        let cohort = if key.cohort == AHEAD { 0 } else { AHEAD };
        self.views.get(&ViewKey { cohort, ..key.clone() })?.borrow().clone()
    }

    /// The same of all views.
    fn siblings(&self) -> HashMap<ViewKey, Arc<View>> {
        let keys = self.views.keys();
        keys.filter_map(|key| Some((key.clone(), self.sibling(key)?))).collect()
    }

    /// The view in the state that a wave deployment has for `node`.
    fn in_cohort(&self, key: ViewKey, node: &Node) -> ViewKey {
        let is_ahead = self.behind.as_ref().is_some_and(|behind| {
            key.groups.iter().any(|name| self.differing.contains(name)) && behind.split.is_ahead(node)
        });
        if is_ahead { ViewKey { cohort: AHEAD, ..key } } else { key }
    }
}

/// The cohort of the nodes that a wave deployment has reached; all others have 0, and so has everyone if there is no wave deployment.
pub const AHEAD: u32 = 1;

/// The groups that a cohort is served.
fn groups_of<'a>(cohort: u32, ahead: &'a Groups, behind: Option<&'a Behind>) -> &'a Groups {
    match behind {
        Some(behind) if cohort != AHEAD => &behind.groups,
        Some(_) | None => ahead,
    }
}
