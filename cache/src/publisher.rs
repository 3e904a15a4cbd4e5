//! The one publisher: owns the effective groups, the views compiled from them, and which node follows which view (D14).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::drain::DrainPolicy;
use crate::group::GroupName;
use crate::layer::{Groups, differing};
use crate::node::{Node, Profile};
use crate::resource_type::ResourceType;
use crate::table::Changes;
use crate::version::Revision;
use crate::view::{Circumstances, View, ViewKey, compile};
use crate::wave::{Behind, Split};

/// Publishes groups as views. Shared by reference; every call takes one short lock and none waits for a client.
#[derive(Debug)]
pub struct Publisher {
    state: Mutex<State>,
    /// When the first thing that drains ends.
    drain_end: watch::Sender<Option<Instant>>,
}

#[derive(Debug)]
struct State {
    /// Nothing is served before the first complete load (D3).
    is_loaded: bool,
    revision: Revision,
    epoch: u64,
    groups: Groups,
    /// What the nodes are served that a wave deployment has not reached; `None` if there is none.
    behind: Option<Behind>,
    /// The groups in which the two differ; only nodes of these are told apart.
    differing: BTreeSet<GroupName>,
    index: NodeIndex,
    views: HashMap<ViewKey, watch::Sender<Option<Arc<View>>>>,
    /// Views that nobody followed at the last call of [`Publisher::retire_unused`].
    unused: BTreeSet<ViewKey>,
    /// How long things drain that no group says it of.
    drain: DrainPolicy,
    /// The time that was told last; without one nothing drains.
    now: Option<Instant>,
}

/// What one call of [`Publisher::publish`] changed.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// The revision that was published.
    pub revision: Revision,
    /// The views that somebody follows and in which a resource changed.
    pub views: Vec<ViewChange>,
}

/// What changed in one view.
#[derive(Clone, Debug)]
pub struct ViewChange {
    /// The view.
    pub key: ViewKey,
    /// By type; never empty, and no entry is.
    pub changes: BTreeMap<ResourceType, Arc<Changes>>,
}

/// What a publication would make of a view.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The view now.
    pub before: Arc<View>,
    /// The view that would be published.
    pub after: Arc<View>,
    /// What becomes of it when everything has drained, and how long after the publication; `None` if nothing drains.
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

    /// Whether `view` was published after the selection of groups changed, so that the client must follow anew.
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
    /// Nothing is loaded yet: clients can follow, and wait. Only what groups say it of drains.
    #[must_use]
    pub fn new() -> Self {
        Self::draining(DrainPolicy::default())
    }

    /// The same; what leaves drains as `drain` says where groups say nothing.
    #[must_use]
    pub fn draining(drain: DrainPolicy) -> Self {
        let state = State {
            is_loaded: false,
            revision: Revision(0),
            epoch: 0,
            groups: Groups::new(),
            behind: None,
            differing: BTreeSet::new(),
            index: NodeIndex::default(),
            views: HashMap::new(),
            unused: BTreeSet::new(),
            drain,
            now: None,
        };
        Self { state: Mutex::new(state), drain_end: watch::Sender::new(None) }
    }

    /// Makes `groups` what is served, at the time that was told last. Wakes exactly the clients of the views in which something
    /// changed, or all of them if the selection of groups changed.
    ///
    /// `revision` must not be lower than the last one.
    pub fn publish(&self, revision: Revision, groups: Groups) -> Publication {
        self.publish_at(None, revision, groups, None)
    }

    /// The same, at the time `now`, and during a wave deployment: `groups` are what nodes are served that are ahead,
    /// `behind` says what the others are, and who is which. When that changes, clients move to the view of the other state and
    /// are sent what differs; what only the view has that they come from drains in the other one.
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
        let differing = behind.as_ref().map(|behind| differing(&groups, &behind.groups)).unwrap_or_default();
        let differing: BTreeSet<GroupName> = differing.into_iter().cloned().collect();
        let same_split = state.behind.as_ref().map(|behind| &behind.split)
            == behind.as_ref().map(|behind| &behind.split)
            && state.differing == differing;
        let reselect = !state.is_loaded || !same_split || !same_selection(&state.groups, &groups);
        if reselect {
            state.epoch += 1;
            state.index = NodeIndex::new(&groups);
        }
        let siblings = if same_split { HashMap::new() } else { state.siblings() };
        state.is_loaded = true;
        state.revision = revision;
        state.now = now.or(state.now);
        let before = std::mem::replace(&mut state.groups, groups);
        let behind_before = std::mem::replace(&mut state.behind, behind);
        state.differing = differing;
        let mut publication = Publication { revision, views: vec![] };
        let [of_ahead, of_others] = [AHEAD, 0].map(|cohort| {
            let before = groups_of(cohort, &before, behind_before.as_ref());
            crate::layer::differing(before, groups_of(cohort, &state.groups, state.behind.as_ref()))
        });
        for (key, sender) in &state.views {
            let touched = if key.cohort == AHEAD { &of_ahead } else { &of_others };
            if !reselect && !key.groups.iter().any(|name| touched.contains(name)) {
                continue;
            }
            let previous = sender.borrow().clone();
            let view = state.compile(key, previous.as_deref(), siblings.get(key).map(|view| &**view));
            let changes = changes(previous.as_deref(), &view);
            let wakes = reselect || !changes.is_empty();
            sender.send_if_modified(|current| {
                *current = Some(view);
                wakes
            });
            if !changes.is_empty() {
                publication.views.push(ViewChange { key: key.clone(), changes });
            }
        }
        self.tell_drain_end(&state);
        publication
    }

    /// Ends what has drained by `now`. That is no change: the views keep their revision.
    pub fn end_drains(&self, now: Instant) {
        let mut state = self.lock();
        state.now = Some(now);
        for (key, sender) in &state.views {
            let previous = sender.borrow().clone();
            let Some(previous) =
                previous.filter(|view| view.drain().next_end().is_some_and(|end| end <= now))
            else {
                continue;
            };
            let view = state.compile(key, Some(&previous), None);
            let wakes = !changes(Some(&previous), &view).is_empty();
            sender.send_if_modified(|current| {
                *current = Some(view);
                wakes
            });
        }
        self.tell_drain_end(&state);
    }

    /// When [`end_drains`](Self::end_drains) has to be called; `None` while nothing drains. May be told too early, never too late.
    #[must_use]
    pub fn drain_end(&self) -> watch::Receiver<Option<Instant>> {
        self.drain_end.subscribe()
    }

    fn tell_drain_end(&self, state: &State) {
        let views = state.views.values().filter_map(|sender| sender.borrow().as_ref()?.drain().next_end());
        let end = views.min();
        self.drain_end.send_if_modified(|current| std::mem::replace(current, end) != end);
    }

    /// Follows the view of `node`; compiles it if `node` is its first client.
    #[must_use]
    pub fn follow(&self, node: &Node) -> ViewReceiver {
        let mut state = self.lock();
        let key = state.key_of(node);
        let epoch = state.epoch;
        if let Some(sender) = state.views.get(&key) {
            return ViewReceiver { receiver: sender.subscribe(), epoch };
        }
        let sibling = state.sibling(&key);
        let view = state.is_loaded.then(|| state.compile(&key, None, sibling.as_deref()));
        let (sender, receiver) = watch::channel(view);
        state.views.insert(key, sender);
        self.tell_drain_end(&state);
        ViewReceiver { receiver, epoch }
    }

    /// What `node` is served now, whether or not it is connected; `None` before the first complete load.
    #[must_use]
    pub fn view_of(&self, node: &Node) -> Option<Arc<View>> {
        let state = self.lock();
        let key = state.key_of(node);
        state.view(&key)
    }

    /// What a client of exactly these groups would be served, in the cohort that the key says: [`AHEAD`] is everything that was
    /// accepted, 0 what nodes are served that a wave deployment has not reached. `None` before the first complete load.
    #[must_use]
    pub fn view_at(&self, key: &ViewKey) -> Option<Arc<View>> {
        self.lock().view(key)
    }

    /// What the clients of a view would be served if `groups` were published at `now`: at once, and when everything has drained,
    /// with how long that takes. The two are the same if nothing drains. `None` before the first complete load.
    #[must_use]
    pub fn preview(&self, key: &ViewKey, groups: &Groups, now: Instant) -> Option<Preview> {
        let state = self.lock();
        let before = state.view(key)?;
        let revision = Revision(state.revision.0 + 1);
        let circumstances = Circumstances {
            revision,
            epoch: state.epoch,
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

    /// The groups with everything that was accepted, and the revision.
    #[must_use]
    pub fn groups(&self) -> (Revision, Groups) {
        let state = self.lock();
        (state.revision, state.groups.clone())
    }

    /// What nodes are served that a wave deployment has not reached; `None` if none is under way.
    #[must_use]
    pub fn behind(&self) -> Option<Behind> {
        self.lock().behind.clone()
    }

    /// Which nodes the wave deployment that is under way has reached; `None` if there is none.
    #[must_use]
    pub fn split(&self) -> Option<Split> {
        self.lock().behind.as_ref().map(|behind| behind.split.clone())
    }

    /// Whether a wave deployment has reached `node`; `None` if none concerns it.
    #[must_use]
    pub fn is_ahead(&self, node: &Node) -> Option<bool> {
        let state = self.lock();
        let behind = state.behind.as_ref()?;
        let key = state.index.key_of(node, &state.groups);
        let is_concerned = key.groups.iter().any(|name| state.differing.contains(name));
        is_concerned.then(|| behind.split.is_ahead(node))
    }

    /// Whether the first complete load was published.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Drops the views that nobody has followed since the call before. Call it now and then.
    pub fn retire_unused(&self) {
        let mut state = self.lock();
        let State { views, unused, .. } = &mut *state;
        views.retain(|key, sender| sender.receiver_count() > 0 || !unused.contains(key));
        *unused = views
            .iter()
            .filter(|(_, sender)| sender.receiver_count() == 0)
            .map(|(key, _)| key.clone())
            .collect();
    }

    /// How many resources and how many endpoints drain, each counted once in every view that has it.
    #[must_use]
    pub fn n_draining(&self) -> (usize, usize) {
        let state = self.lock();
        let views = state.views.values().filter_map(|sender| sender.borrow().clone());
        views.map(|view| view.drain().count()).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    }

    /// How many views are kept.
    #[must_use]
    pub fn n_views(&self) -> usize {
        self.lock().views.len()
    }

    /// A panic elsewhere cannot leave the state half changed in a way that matters more than serving on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn view(&self, key: &ViewKey) -> Option<Arc<View>> {
        if let Some(view) = self.views.get(key).and_then(|sender| sender.borrow().clone()) {
            return Some(view);
        }
        self.is_loaded.then(|| self.compile(key, None, None))
    }

    fn compile(&self, key: &ViewKey, previous: Option<&View>, sibling: Option<&View>) -> Arc<View> {
        let groups = groups_of(key.cohort, &self.groups, self.behind.as_ref());
        let circumstances = Circumstances {
            revision: self.revision,
            epoch: self.epoch,
            previous,
            sibling,
            drain: self.drain,
            now: self.now,
        };
        Arc::new(compile(key.clone(), groups, circumstances))
    }

    /// What the clients of a view are served when a wave deployment has another state for them.
    fn sibling(&self, key: &ViewKey) -> Option<Arc<View>> {
        let cohort = if key.cohort == AHEAD { 0 } else { AHEAD };
        self.views.get(&ViewKey { cohort, ..key.clone() })?.borrow().clone()
    }

    /// The same of all views.
    fn siblings(&self) -> HashMap<ViewKey, Arc<View>> {
        let keys = self.views.keys();
        keys.filter_map(|key| Some((key.clone(), self.sibling(key)?))).collect()
    }

    fn key_of(&self, node: &Node) -> ViewKey {
        let key = self.index.key_of(node, &self.groups);
        let is_ahead = self.behind.as_ref().is_some_and(|behind| {
            key.groups.iter().any(|name| self.differing.contains(name)) && behind.split.is_ahead(node)
        });
        if is_ahead { ViewKey { cohort: AHEAD, ..key } } else { key }
    }
}

/// The cohort of the nodes that a wave deployment has reached; all others have 0, and so has everyone if there is no wave deployment.
pub const AHEAD: u32 = 1;

/// What a cohort is served.
fn groups_of<'a>(cohort: u32, ahead: &'a Groups, behind: Option<&'a Behind>) -> &'a Groups {
    match behind {
        Some(behind) if cohort != AHEAD => &behind.groups,
        Some(_) | None => ahead,
    }
}

/// What changed from `previous`; everything, if there was none.
fn changes(previous: Option<&View>, view: &View) -> BTreeMap<ResourceType, Arc<Changes>> {
    let before = previous.into_iter().flat_map(View::types);
    let types: BTreeSet<&ResourceType> = before.chain(view.types()).collect();
    types
        .into_iter()
        .filter_map(|resource_type| {
            let changes = match previous {
                Some(previous) => view.table(resource_type).changes_since(previous.table(resource_type)),
                None => view.table(resource_type).changes_since(&crate::TypeTable::default()),
            };
            (!changes.is_empty()).then(|| (resource_type.clone(), changes))
        })
        .collect()
}

/// Whether every node would resolve to the same groups and profile.
fn same_selection(before: &Groups, after: &Groups) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|((_, before), (_, after))| {
            Arc::ptr_eq(before, after) || before.definition == after.definition
        })
}

/// Finds the groups of a node: literal node ids by hash, other selectors one by one.
#[derive(Debug, Default)]
struct NodeIndex {
    by_id: HashMap<String, Vec<GroupName>>,
    by_selector: Vec<GroupName>,
}

impl NodeIndex {
    fn new(groups: &Groups) -> Self {
        let mut index = Self::default();
        for (name, group) in groups.iter().filter(|(name, _)| !name.is_default()) {
            match group.definition.selector.literal_node_ids() {
                Some(ids) => {
                    for id in ids {
                        index.by_id.entry(id.to_owned()).or_default().push(name.clone());
                    }
                }
                None => index.by_selector.push(name.clone()),
            }
        }
        index
    }

    /// The groups that select `node`, the winner first: by priority, then by name, the default group last.
    fn key_of(&self, node: &Node, groups: &Groups) -> ViewKey {
        let selects = |name: &&GroupName| {
            groups.get(*name).is_some_and(|group| group.definition.selector.selects(node))
        };
        let by_selector = self.by_selector.iter().filter(selects);
        let mut names: Vec<&GroupName> =
            self.by_id.get(&node.id).into_iter().flatten().chain(by_selector).collect();
        let priority = |name: &GroupName| groups.get(name).map_or(0, |group| group.definition.priority);
        names.sort_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| a.cmp(b)));
        names.dedup();
        let default = GroupName::default_group();
        names.push(&default);
        let profile = names
            .iter()
            .find_map(|name| groups.get(*name).and_then(|group| group.definition.client))
            .unwrap_or_else(|| Profile::of_user_agent(&node.user_agent_name));
        ViewKey { groups: names.into_iter().cloned().collect(), profile, cohort: 0 }
    }
}
