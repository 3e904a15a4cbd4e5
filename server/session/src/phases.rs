//! A preview of a change: the steps in which a client is sent it.
//!
//! There are no phases in the order of sending, only what waits and what it waits for. What a person calls phases is what comes of
//! it for one client that answers at once and accepts everything; so that client is played here, against the very session that
//! clients have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::status::{StreamId, Variant};
use xds_cache::{Node, Phase, Profile, Resource, ResourceKey, ResourceType, View, WaitsFor};

use crate::client::Client;
use crate::limits::Limits;
use crate::quirks::Quirk;
use crate::references::is_referred_to;
use crate::request::{DeltaRequest, Nonce, Request};
use crate::response::{Contents, Entries, Entry};

/// The phases in which a client that has everything of `before` gets to `after`: over ADS, incremental, and answering each phase as
/// soon as it has all of it. An Envoy takes all clusters and listeners, and asks for what these refer to; a gRPC client asks for all
/// listeners, and for what they refer to. At most [`MAX_PHASES`]; none if a client never gets to have everything of `before`.
#[must_use]
pub fn phases(before: &Arc<View>, after: &Arc<View>, limits: &Limits, now: Instant) -> Vec<Phase> {
    let mut follower = Follower::new(before.key().profile, *limits, now);
    follower.ask_for_listeners([before, after]);
    follower.client.handle_view(Arc::clone(before));
    let has_everything = (0..MAX_FIRST_ROUNDS).any(|_| follower.next_phase().is_none());
    if !has_everything {
        return Vec::new();
    }
    follower.client.handle_view(Arc::clone(after));
    let phases = std::iter::from_fn(|| follower.next_phase()).take(MAX_PHASES);
    phases.filter(|phase| !(phase.sent.is_empty() && phase.removed.is_empty())).collect()
}

/// A client that accepts everything.
struct Follower {
    client: Client,
    profile: Profile,
    /// Resources that it was sent and asks for.
    held: BTreeMap<ResourceKey, Arc<Resource>>,
    /// The names that it asks for.
    asked: BTreeMap<ResourceType, BTreeSet<Arc<str>>>,
    /// Listeners that it asks for by name.
    dialled: BTreeSet<Arc<str>>,
    now: Instant,
}

impl Follower {
    fn new(profile: Profile, limits: Limits, now: Instant) -> Self {
        let mut client = Client::new(limits);
        client.open(STREAM, Variant::Delta, None, 1);
        Self { client, profile, held: BTreeMap::new(), asked: BTreeMap::new(), dialled: BTreeSet::new(), now }
    }

    fn ask_for_listeners(&mut self, views: [&Arc<View>; 2]) {
        match self.profile {
            Profile::Envoy => {
                // It asks for scopes only if its listeners have any.
                let is_needed = |of: &ResourceType| {
                    !Quirk::NotAskedByReference.is_of(of)
                        || views.into_iter().any(|view| !view.table(of).is_empty())
                };
                let unasked = ResourceType::KNOWN.into_iter().filter(|of| Quirk::TakenUnasked.is_of(of));
                for of_type in unasked.filter(is_needed) {
                    self.subscribe(of_type, ["*".into()].into(), BTreeSet::new());
                }
            }
            Profile::Grpc => {
                let tables = views.into_iter().map(|view| view.table(&ResourceType::Listener));
                let names =
                    tables.flat_map(|table| table.resources()).map(|listener| Arc::clone(listener.name()));
                self.dialled = names.collect();
                self.ask();
            }
        }
    }

    /// Takes and accepts the next that comes, however long that takes; `None` if nothing comes any more.
    fn next_phase(&mut self) -> Option<Phase> {
        let mut after = None;
        loop {
            let waiting: Vec<_> = self.client.held_back().to_vec();
            let responses = self.take();
            let mut phase = Phase { after, ..Phase::default() };
            for contents in responses.iter().map(|(_, contents)| contents) {
                self.apply(contents, &mut phase);
            }
            let told: BTreeSet<&ResourceKey> = phase.sent.iter().chain(&phase.removed).collect();
            for held in waiting.iter().filter(|held| told.contains(&held.resource)) {
                let waits_for = to_the_end(&held.waits_for);
                if !phase.waits_for.contains(&waits_for) {
                    phase.waits_for.push(waits_for);
                }
            }
            for (nonce, contents) in &responses {
                self.request(DeltaRequest {
                    type_url: contents.resource_type.type_url().to_owned(),
                    response_nonce: Nonce::Ours(*nonce),
                    ..DeltaRequest::default()
                });
            }
            // A resource that it gives up may refer to more that it then gives up.
            let mut has_asked = false;
            while self.ask() {
                has_asked = true;
            }
            if !responses.is_empty() {
                return Some(phase);
            }
            if !has_asked {
                after = Some(after.unwrap_or_default() + self.let_time_pass()?);
            }
        }
    }

    fn take(&mut self) -> Vec<(u64, Contents)> {
        let mut responses = Vec::new();
        while let Some(response) = self.client.poll_response(STREAM, self.now) {
            responses.push((response.nonce, response.contents));
        }
        while self.client.poll_event().is_some() {}
        while self.client.poll_wake().is_some() {}
        responses
    }

    fn apply(&mut self, contents: &Contents, phase: &mut Phase) {
        let key = |name: &Arc<str>| ResourceKey {
            resource_type: contents.resource_type.clone(),
            name: Arc::clone(name),
        };
        let mut take = |resource: &Arc<Resource>| {
            self.held.insert(resource.key().clone(), Arc::clone(resource));
            phase.sent.push(resource.key().clone());
        };
        match &contents.entries {
            Entries::Table(table) => table.resources().for_each(&mut take),
            Entries::Listed(entries) => entries.iter().for_each(|entry| match entry {
                Entry::Full(resource) => take(resource),
                Entry::Heartbeat(_) | Entry::Unpopulated(_) => {}
            }),
        }
        for name in &contents.removed {
            // A removal may also say that a requested name does not exist.
            if self.held.remove(&key(name)).is_some() {
                phase.removed.push(key(name));
            }
        }
    }

    /// Asks for what it now refers to, and for nothing else by name; whether that is something else than before.
    fn ask(&mut self) -> bool {
        let mut wanted: BTreeMap<ResourceType, BTreeSet<Arc<str>>> = BTreeMap::new();
        wanted.insert(ResourceType::Listener, self.dialled.clone());
        let references = self.held.values().flat_map(|resource| resource.references().targets());
        for to in references.filter(|to| self.asks_by_name(&to.resource_type)) {
            wanted.entry(to.resource_type.clone()).or_default().insert(Arc::clone(&to.name));
        }
        let mut has_asked = false;
        for of_type in ResourceType::KNOWN {
            if !self.asks_by_name(&of_type) {
                continue;
            }
            let wanted = wanted.remove(&of_type).unwrap_or_default();
            let asked = self.asked.get(&of_type).cloned().unwrap_or_default();
            if wanted != asked {
                has_asked = true;
                self.held.retain(|key, _| key.resource_type != of_type || wanted.contains(&key.name));
                let (more, less) = (&wanted - &asked, &asked - &wanted);
                self.asked.insert(of_type.clone(), wanted);
                self.subscribe(of_type, more, less);
            }
        }
        has_asked
    }

    fn asks_by_name(&self, of_type: &ResourceType) -> bool {
        let (is_referred_to, is_unasked) = (is_referred_to(of_type), Quirk::TakenUnasked.is_of(of_type));
        let is_named = match self.profile {
            Profile::Envoy => is_referred_to && !is_unasked,
            Profile::Grpc => is_referred_to || is_unasked,
        };
        is_named && !Quirk::NotAskedByReference.is_of(of_type)
    }

    fn subscribe(&mut self, of_type: ResourceType, more: BTreeSet<Arc<str>>, less: BTreeSet<Arc<str>>) {
        let names = |names: BTreeSet<Arc<str>>| names.iter().map(ToString::to_string).collect();
        self.request(DeltaRequest {
            type_url: of_type.type_url().to_owned(),
            resource_names_subscribe: names(more),
            resource_names_unsubscribe: names(less),
            ..DeltaRequest::default()
        });
    }

    fn request(&mut self, request: DeltaRequest) {
        let name = match self.profile {
            Profile::Envoy => "envoy",
            Profile::Grpc => "gRPC",
        };
        let node = Node { user_agent_name: name.to_owned(), ..Node::with_id("preview") };
        let request = DeltaRequest { node: Some(Arc::new(node)), ..request };
        // More names than a client may ask for end its stream; then there is nothing more to show.
        let _ = self.client.handle_request(STREAM, Request::from(request));
    }

    /// Lets time pass until something happens that the client waits for by itself; how much, if there is such a thing.
    fn let_time_pass(&mut self) -> Option<Duration> {
        let settles = |waits_for: &WaitsFor| matches!(waits_for, WaitsFor::Settling(_));
        self.client.held_back().iter().find(|held| settles(&held.waits_for))?;
        let until = self.client.poll_timeout()?.max(self.now);
        let waited = until - self.now;
        self.now = until;
        self.client.handle_timeout(until);
        (!waited.is_zero()).then_some(waited)
    }
}

/// The end of a wait: a resource that is about to be sent or asked for is accepted.
fn to_the_end(waits_for: &WaitsFor) -> WaitsFor {
    match waits_for {
        WaitsFor::Sending(key) | WaitsFor::Request(key) => WaitsFor::Ack(key.clone()),
        WaitsFor::Ack(_) | WaitsFor::Settling(_) | WaitsFor::Change(_) | WaitsFor::Disuse(_) => {
            waits_for.clone()
        }
    }
}

/// The only stream.
const STREAM: StreamId = StreamId(1);

/// How many phases are told; a change that needs more waits in circles.
pub const MAX_PHASES: usize = 32;

/// In how many rounds a client has to have everything before the change: one for each type that leads to the next, and for each
/// cluster of a chain of aggregates one more. No client follows sixteen of these (gRFC A37), and what is served may say anything.
const MAX_FIRST_ROUNDS: usize = 512;
