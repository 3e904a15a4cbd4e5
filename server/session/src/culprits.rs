//! Resources that clients of one program reject, as far as some client has shown it.
//!
//! A bad push to many clients of the same version would be as many searches for the same culprit. So one client of a program searches
//! at a time, the others wait for a moment, and what was found goes apart to all of them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xds_cache::status::StreamId;
use xds_cache::{Node, Resource, ResourceKey, ResourceType, Version};

/// What the clients of a server tell each other of the resources that they reject. Bounded: the oldest of [`MAX_KNOWN`] resources is
/// forgotten.
#[derive(Debug, Default)]
pub struct Culprits {
    state: Mutex<State>,
    /// How many are known; almost always none.
    n_known: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// By program. Clients read a set of these without a lock.
    known: BTreeMap<Program, Arc<Known>>,
    /// In the order in which they were found.
    order: VecDeque<(Program, Culprit)>,
    /// The search that others wait for, by program and type.
    searches: BTreeMap<(Program, ResourceType), Search>,
}

/// The name and version of a client's program.
type Program = (String, String);

/// A version of a resource that clients of a program reject.
type Culprit = (ResourceKey, Version);

/// What clients of one program reject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(HashSet<Culprit>);

#[derive(Debug)]
struct Search {
    by: StreamId,
    since: Instant,
}

/// What is known of the clients of one node's program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownCulprits<'a> {
    pub(crate) all: &'a Culprits,
    pub(crate) node: &'a Node,
    /// The stream that is looked at. No other client has one of this id.
    pub(crate) stream: StreamId,
}

impl Culprits {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_oldest(&mut self) {
        let Some((program, culprit)) = self.order.pop_front() else { return };
        let Some(known) = self.known.get_mut(&program) else { return };
        Arc::make_mut(known).0.remove(&culprit);
        if known.0.is_empty() {
            self.known.remove(&program);
        }
    }
}

impl Known {
    /// Returns `true` if clients of the program reject the resource.
    pub(crate) fn has(&self, resource: &Resource) -> bool {
        self.0.contains(&(resource.key().clone(), resource.version()))
    }
}

impl KnownCulprits<'_> {
    /// What clients of the program reject, if anything is known.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        if self.all.n_known.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let program = program(self.node)?;
        self.all.state().known.get(&program).cloned()
    }

    /// The client has rejected a response that brought nothing but this.
    pub(crate) fn add(&self, key: ResourceKey, version: Version) {
        let Some(program) = program(self.node) else { return };
        let mut state = self.all.state();
        let culprit = (key, version);
        let known = state.known.entry(program.clone()).or_default();
        if known.0.contains(&culprit) {
            return;
        }
        Arc::make_mut(known).0.insert(culprit.clone());
        state.order.push_back((program, culprit));
        while state.order.len() > MAX_KNOWN {
            state.forget_oldest();
        }
        self.all.n_known.store(state.order.len(), Ordering::Relaxed);
    }

    /// Begins or continues a search.
    ///
    /// # Errors
    ///
    /// The time until which the client waits, because another one searches.
    pub(crate) fn search(&self, of: &ResourceType, now: Instant) -> Result<(), Instant> {
        let Some(program) = program(self.node) else { return Ok(()) };
        let mut state = self.all.state();
        let is_full = state.searches.len() >= MAX_KNOWN;
        let place = (program, of.clone());
        let own = Search { by: self.stream, since: now };
        let Some(search) = state.searches.get_mut(&place) else {
            if !is_full {
                state.searches.insert(place, own);
            }
            return Ok(());
        };
        let age = now.saturating_duration_since(search.since);
        if age >= MAX_SEARCH {
            *search = own;
        }
        let is_awaited = search.by != self.stream && age < MAX_WAIT;
        match search.since.checked_add(MAX_WAIT).filter(|_| is_awaited) {
            Some(until) => Err(until),
            None => Ok(()),
        }
    }

    /// The client has found everything, or searches no more.
    pub(crate) fn end_search(&self, of: &ResourceType) {
        let Some(program) = program(self.node) else { return };
        let mut state = self.all.state();
        let place = (program, of.clone());
        if state.searches.get(&place).is_some_and(|search| search.by == self.stream) {
            state.searches.remove(&place);
        }
    }
}

/// The program of a client; `None` if what it says of that is longer than any program's.
fn program(node: &Node) -> Option<Program> {
    let is_short = node.user_agent_name.len() + node.user_agent_version.len() <= MAX_PROGRAM_BYTES;
    is_short.then(|| (node.user_agent_name.clone(), node.user_agent_version.clone()))
}

/// The most resources, and the most searches, that are remembered.
const MAX_KNOWN: usize = 1000;

/// The most bytes of the name and version of a program.
const MAX_PROGRAM_BYTES: usize = 256;

/// After so long, a search counts as given up, and the next client's takes its place.
const MAX_SEARCH: Duration = Duration::from_secs(10);

/// How long a client waits for the search of another. With the longest search of one culprit, which takes as many answers as the
/// number of resources has binary digits, what came with it still arrives within a second.
const MAX_WAIT: Duration = Duration::from_millis(500);
