//! Resources that clients of one program reject, as far as some client has shown it.
//!
//! A bad push to many clients of the same version would be as many searches for the same culprit. So one client of a program searches
//! at a time, the others wait for a moment, and what was found goes apart to all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xds_cache::status::StreamId;
use xds_cache::{Name, Node, Resource, ResourceKey, ResourceType, Version};

use crate::quirks::Quirk;

/// What the clients of a server tell each other of the resources that they reject. Bounded: the oldest of [`MAX_KNOWN`] resources is
/// forgotten.
#[derive(Debug, Default)]
pub struct Culprits {
    state: Mutex<State>,
    /// How many were ever added; almost always none.
    n_found: AtomicU64,
}

/// A version of a resource that a client rejected when it was sent nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The name and version of the client's program.
    pub program: Program,
    /// The resource.
    pub key: ResourceKey,
    /// The version that was rejected.
    pub version: Version,
    /// The client's words.
    pub words: Arc<str>,
}

#[derive(Debug, Default)]
struct State {
    /// By program. Clients read a set of these without a lock.
    known: BTreeMap<Program, Arc<Known>>,
    /// In the order in which they were found.
    order: VecDeque<(Program, Content)>,
    /// The search that others wait for, by program and type.
    searches: BTreeMap<(Program, ResourceType), Search>,
}

/// The name and version of a client's program.
pub type Program = (String, String);

/// A version of a resource.
type Content = (ResourceKey, Version);

/// What clients of one program reject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(HashMap<Content, Found>);

/// How a culprit was found.
#[derive(Clone, Debug)]
struct Found {
    words: Arc<str>,
    /// How many were found before.
    number: u64,
}

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
    /// How many had been found when the client connected; 0 for one that shows no configuration, and so did not reject anything before.
    pub(crate) n_before: u64,
}

impl Culprits {
    /// How many were ever added, those included that are forgotten.
    #[must_use]
    pub fn n_found(&self) -> u64 {
        self.n_found.load(Ordering::Relaxed)
    }

    /// Those that a client accepts when they come again, the oldest first. Of others it says itself what it rejects.
    #[must_use]
    pub fn accepted_later(&self) -> Vec<Culprit> {
        let state = self.state();
        let culprit = |(program, content): &(Program, Content)| {
            let found = state.known.get(program)?.0.get(content)?;
            let (program, (key, version)) = (program.clone(), content.clone());
            Some(Culprit { program, key, version, words: Arc::clone(&found.words) })
        };
        let is_accepted_later =
            |(_, (key, _)): &&(Program, Content)| Quirk::RejectsOnlyOnce.is_of(&key.resource_type);
        state.order.iter().filter(is_accepted_later).filter_map(culprit).collect()
    }

    /// Adds one that another server or an earlier process knew, if there is room: servers that tell each other more than each can keep
    /// would never come to rest.
    pub fn add_told(&self, culprit: Culprit) {
        if self.state().order.len() < MAX_KNOWN {
            self.add(culprit);
        }
    }

    /// Adds one, unless it is known. Long words are cut.
    pub fn add(&self, culprit: Culprit) {
        let Culprit { program, key, version, words } = culprit;
        let kept = words.floor_char_boundary(MAX_WORDS);
        let words =
            words.get(..kept).filter(|kept| kept.len() < words.len()).map_or(words.clone(), Arc::from);
        let mut state = self.state();
        let content = (key, version);
        let known = state.known.entry(program.clone()).or_default();
        if known.0.contains_key(&content) {
            return;
        }
        let number = self.n_found.load(Ordering::Relaxed);
        Arc::make_mut(known).0.insert(content.clone(), Found { words, number });
        state.order.push_back((program, content));
        while state.order.len() > MAX_KNOWN {
            state.forget_oldest();
        }
        self.n_found.store(number + 1, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_oldest(&mut self) {
        let Some((program, content)) = self.order.pop_front() else { return };
        let Some(known) = self.known.get_mut(&program) else { return };
        Arc::make_mut(known).0.remove(&content);
        if known.0.is_empty() {
            self.known.remove(&program);
        }
    }
}

impl Known {
    /// Returns `true` if clients of the program reject the resource.
    pub(crate) fn has(&self, resource: &Resource) -> bool {
        self.find(resource).is_some()
    }

    fn find(&self, resource: &Resource) -> Option<&Found> {
        self.0.get(&(resource.key().clone(), resource.version()))
    }

    /// The resources of a type of which the first `n_before` had some version.
    pub(crate) fn names(&self, of: &ResourceType, n_before: u64) -> BTreeSet<Name> {
        let early =
            self.0.iter().filter(|((key, _), found)| found.number < n_before && key.resource_type == *of);
        early.map(|((key, _), _)| Arc::clone(&key.name)).collect()
    }

    /// What a client said of the resource, if it is of the first `n_before`.
    pub(crate) fn words(&self, resource: &Resource, n_before: u64) -> Option<&Arc<str>> {
        self.find(resource).filter(|found| found.number < n_before).map(|found| &found.words)
    }
}

impl KnownCulprits<'_> {
    /// What clients of the program reject, if anything is known.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        if self.all.n_found() == 0 {
            return None;
        }
        let program = program(self.node)?;
        self.all.state().known.get(&program).cloned()
    }

    /// The client has rejected a response that brought nothing but this.
    pub(crate) fn add(&self, key: ResourceKey, version: Version, words: &Arc<str>) {
        let Some(program) = program(self.node) else { return };
        self.all.add(Culprit { program, key, version, words: Arc::clone(words) });
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

/// The most bytes that are remembered of a client's words.
const MAX_WORDS: usize = 512;

/// The most bytes of the name and version of a program.
const MAX_PROGRAM_BYTES: usize = 256;

/// After so long, a search counts as given up, and the next client's takes its place.
const MAX_SEARCH: Duration = Duration::from_secs(10);

/// How long a client waits for the search of another. With the longest search of one culprit, which takes as many answers as the
/// number of resources has binary digits, what came with it still arrives within a second.
const MAX_WAIT: Duration = Duration::from_millis(500);
