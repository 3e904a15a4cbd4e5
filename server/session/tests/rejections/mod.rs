//! The search for what a client refuses: it takes few rejections, and everything else arrives (D26).

mod came_back;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamEntry, StreamId, StreamInfo, Subscriber, TypeStatus, Variant};
use xds_cache::{
    Node, NodeGroup, Publisher, Resource, ResourceKey, ResourceType, Revision, StatusBoard, ViewChange,
    ViewReceiver,
};
use xds_session::{
    Client, Culprit, Culprits, DeltaRequest, Entries, Entry, Limits, Nonce, Request, Response, SotwRequest,
};

use crate::check::check;
use crate::properties::SEED;

/// A client that asks for all resources of a type by name, and stops at the first of a response that it refuses, or goes on.
struct World {
    publisher: Publisher,
    receiver: Option<ViewReceiver>,
    entry: Arc<StreamEntry>,
    client: Client,
    stream: StreamId,
    node: Arc<Node>,
    variant: Variant,
    of: ResourceType,
    names: Vec<String>,
    stops: bool,
    revision: u64,
    now: Instant,
    held: BTreeMap<String, String>,
    /// What was received last, in use or not: of some types, a client does not look at that again.
    seen: BTreeMap<String, String>,
    /// What was acknowledged last, in use or not: what an incremental client says that it has when it comes back.
    shown: BTreeMap<String, String>,
    to_client: VecDeque<Response>,
    n_nacks: usize,
    /// How often each refused content was received.
    offers: BTreeMap<String, usize>,
    max_on_their_way: usize,
    n_responses: usize,
}

struct Nobody;

impl Subscriber for Nobody {
    fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(vec![])
    }
}

impl World {
    fn new(variant: Variant, of: ResourceType, n: usize, stops: bool) -> Self {
        Self::sharing(&Arc::default(), 1, (variant, of), n, stops)
    }

    /// One of several clients that share what they find.
    fn sharing(
        culprits: &Arc<Culprits>,
        number: u64,
        (variant, of): (Variant, ResourceType),
        n: usize,
        stops: bool,
    ) -> Self {
        let stream = StreamId(number);
        let node = Arc::new(Node { user_agent_name: "envoy".to_owned(), ..Node::with_id("n") });
        let mut client = Client::sharing(Limits::default(), Arc::clone(culprits));
        client.open(stream, variant, None, 1);
        Self {
            publisher: Publisher::new(),
            receiver: None,
            entry: entry(stream, variant, &node),
            client,
            stream,
            node,
            variant,
            of,
            names: (0..n).map(|i| format!("r{i:04}")).collect(),
            stops,
            revision: 0,
            now: Instant::now(),
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            shown: BTreeMap::new(),
            to_client: VecDeque::new(),
            n_nacks: 0,
            offers: BTreeMap::new(),
            max_on_their_way: 0,
            n_responses: 0,
        }
    }

    /// Publishes all resources with this content; those that the client refuses have `bad` in it.
    fn publish(&mut self, content: &str, bad: &BTreeSet<usize>) {
        let contents = self.names.iter().enumerate().map(|(i, name)| {
            let content = if bad.contains(&i) { format!("bad{content}") } else { content.to_owned() };
            Resource::plain(self.of.clone(), name, content)
        });
        self.publish_all(contents.collect());
    }

    fn publish_all(&mut self, contents: Vec<Resource>) {
        self.revision += 1;
        // So that every publication makes a view of its revision.
        let other = ResourceType::from_type_url("type.googleapis.com/T");
        let always = Resource::plain(other, "always", self.revision.to_string());
        let resources = contents.into_iter().chain([always]).map(Arc::new).collect();
        let definition = NodeGroup::default_group();
        let name = definition.name.clone();
        let group = EffectiveGroup::new(definition, resources);
        self.publisher.publish(Revision(self.revision), Groups::from_iter([(name, Arc::new(group))]));
        if let Some(view) = self.receiver.as_mut().and_then(ViewReceiver::take) {
            self.client.handle_view(view);
        }
    }

    fn ask(&mut self) {
        let names = self.names.clone();
        self.send(Nonce::None, None, names);
        let mut receiver = self.publisher.follow(&self.node);
        self.client.handle_view(receiver.take().expect("a view"));
        self.receiver = Some(receiver);
    }

    fn send(&mut self, response_nonce: Nonce, error_detail: Option<String>, subscribe: Vec<String>) {
        let (node, type_url) = (Some(Arc::clone(&self.node)), self.of.type_url().to_owned());
        let request: Request = match self.variant {
            Variant::Sotw => {
                let is_wildcard = self.refuses_lists_whole();
                let resource_names = if is_wildcard { vec![] } else { self.names.clone() };
                let request = SotwRequest {
                    node,
                    type_url,
                    resource_names,
                    response_nonce,
                    error_detail,
                    ..Default::default()
                };
                request.into()
            }
            Variant::Delta => {
                let resource_names_subscribe = subscribe;
                let request = DeltaRequest {
                    node,
                    type_url,
                    resource_names_subscribe,
                    response_nonce,
                    error_detail,
                    ..Default::default()
                };
                request.into()
            }
        };
        self.client.handle_request(self.stream, request).expect("a client within the protocol");
        self.tell_events();
    }

    fn tell_events(&mut self) {
        while let Some((_, event)) = self.client.poll_event() {
            self.entry.record(&event, SystemTime::UNIX_EPOCH);
        }
        while self.client.poll_wake().is_some() {}
    }

    /// Delivers everything without letting time pass.
    fn drain(&mut self) {
        while self.go_on() {}
    }

    /// Sends everything, and delivers one response; tells whether there was any.
    fn go_on(&mut self) -> bool {
        while let Some(response) = self.client.poll_response(self.stream, self.now) {
            self.tell_events();
            self.n_responses += 1;
            self.to_client.push_back(response);
        }
        self.tell_events();
        self.max_on_their_way = self.max_on_their_way.max(self.to_client.len());
        let Some(response) = self.to_client.pop_front() else { return false };
        self.receive(&response);
        true
    }

    /// Lets time pass until there is something to send; tells whether there is.
    fn pass_time(&mut self) -> bool {
        let Some(due) = self.client.poll_timeout() else { return false };
        self.now = due;
        self.client.handle_timeout(due);
        true
    }

    fn receive(&mut self, response: &Response) {
        let resources: Vec<Arc<Resource>> = match &response.contents.entries {
            Entries::Table(table) => table.resources().cloned().collect(),
            Entries::Listed(entries) => entries
                .iter()
                .filter_map(|entry| match entry {
                    Entry::Full(resource) => Some(Arc::clone(resource)),
                    Entry::Heartbeat(_) | Entry::Unpopulated(_) => None,
                })
                .collect(),
        };
        let is_rejected = if self.refuses_lists_whole() {
            self.refuses_list(&resources)
        } else {
            self.refuses_some(&resources)
        };
        self.n_nacks += usize::from(is_rejected);
        self.send(Nonce::Ours(response.nonce), is_rejected.then(|| "no".to_owned()), vec![]);
    }

    /// Takes a list, or nothing of it.
    fn refuses_list(&mut self, resources: &[Arc<Resource>]) -> bool {
        let content = |resource: &Resource| String::from_utf8_lossy(&resource.value()).into_owned();
        let list: BTreeMap<String, String> =
            resources.iter().map(|one| (one.name().to_string(), content(one))).collect();
        let keys: Vec<&[u8]> = resources.iter().filter_map(|one| one.scope_key()).collect();
        let has_conflict = keys.len() > keys.iter().collect::<BTreeSet<_>>().len();
        let is_rejected = has_conflict || list.values().any(|content| content.contains("bad"));
        if !is_rejected {
            self.held = list;
        }
        is_rejected
    }

    /// Takes up to the first that it refuses, or all others.
    fn refuses_some(&mut self, resources: &[Arc<Resource>]) -> bool {
        let mut is_rejected = false;
        for resource in resources {
            let content = String::from_utf8_lossy(&resource.value()).into_owned();
            let before = self.seen.insert(resource.name().to_string(), content.clone());
            if self.rejects_only_once() && before.as_ref() == Some(&content) {
                self.shown.insert(resource.name().to_string(), content);
                continue;
            }
            if content.starts_with("bad") {
                is_rejected = true;
                *self.offers.entry(format!("{}@{content}", resource.name())).or_default() +=
                    usize::from(resources.len() == 1);
                if self.stops {
                    break;
                }
            } else {
                self.held.insert(resource.name().to_string(), content.clone());
                self.shown.insert(resource.name().to_string(), content);
            }
        }
        is_rejected
    }

    /// An Envoy takes nothing of a list of scopes that has one which it refuses.
    fn refuses_lists_whole(&self) -> bool {
        self.of == ResourceType::ScopedRouteConfiguration && self.variant == Variant::Sotw
    }

    /// An Envoy accepts such a resource that it has rejected if that comes again, and does not use it.
    fn rejects_only_once(&self) -> bool {
        [ResourceType::Secret, ResourceType::ExtensionConfig].contains(&self.of)
    }

    fn status(&self) -> TypeStatus {
        self.entry.status().types.remove(&self.of).unwrap_or_default()
    }

    /// The resources whose rejection stands, and how many are unknown.
    fn standing(&self) -> (Vec<String>, usize) {
        let Some(standing) = self.status().standing else { return (vec![], 0) };
        let rejected = standing.rejected.iter().map(|rejection| rejection.name.to_string()).collect();
        (rejected, standing.n_unknown)
    }
}

/// The entry of a stream on a board of its own.
fn entry(id: StreamId, variant: Variant, node: &Arc<Node>) -> Arc<StreamEntry> {
    let info = StreamInfo {
        id,
        node: Arc::clone(node),
        address: "here".into(),
        variant,
        service: None,
        since: SystemTime::UNIX_EPOCH,
        proofs: Arc::default(),
    };
    let nobody: Weak<dyn Subscriber> = Weak::<Nobody>::new();
    StatusBoard::new().register(info, nobody)
}

/// The types of which a client may lose what stands behind a resource that it refuses.
fn types() -> impl Strategy<Value = (Variant, ResourceType)> {
    let both = [
        ResourceType::RouteConfiguration,
        ResourceType::ClusterLoadAssignment,
        ResourceType::Secret,
        ResourceType::ExtensionConfig,
        ResourceType::Runtime,
    ];
    let delta = [
        ResourceType::LbEndpoint,
        ResourceType::Cluster,
        ResourceType::Listener,
        ResourceType::ScopedRouteConfiguration,
    ];
    let sotw = both.clone().into_iter().chain([ResourceType::ScopedRouteConfiguration]);
    let sotw = sotw.map(|of| (Variant::Sotw, of));
    let all: Vec<_> = sotw.chain(both.into_iter().chain(delta).map(|of| (Variant::Delta, of))).collect();
    prop::sample::select(all)
}

/// The most rejections that finding `k` of `n` may take after the first.
fn bound(n: usize, k: usize) -> usize {
    let (n, k) = (n as f64, k as f64);
    (k * ((n / k).log2().ceil() + 2.0)) as usize
}

#[test]
fn few_rejections_find_what_is_refused_and_everything_else_arrives() {
    let strategy = (types(), 1..65_usize, btree_set(0..64_usize, 1..6), any::<bool>(), any::<bool>());
    check(SEED, &strategy, |((variant, of), n, bad, is_fresh, stops)| {
        let bad: BTreeSet<usize> = bad.into_iter().map(|i| i % n).collect();
        let mut world = World::new(variant, of, n, stops);
        if !is_fresh {
            world.publish("1", &BTreeSet::new());
            world.ask();
            world.drain();
        }
        world.publish("2", &bad);
        if is_fresh {
            world.ask();
        }
        world.drain();
        let names = |content: &str| -> BTreeSet<String> {
            world.held.iter().filter(|(_, held)| *held == content).map(|(name, _)| name.clone()).collect()
        };
        let refused: Vec<String> = bad.iter().map(|i| format!("r{i:04}")).collect();
        let others: BTreeSet<String> =
            world.names.iter().filter(|name| !refused.contains(*name)).cloned().collect();
        ensure(names("2") == others, || format!("lacks {:?}", others.difference(&names("2"))))?;
        ensure(names("1").len() == if is_fresh { 0 } else { bad.len() }, || "loses what it had".into())?;
        let n_further = world.n_nacks - 1;
        ensure(n_further <= bound(n, bad.len()), || format!("{n_further} further rejections"))?;
        ensure(world.standing() == (refused.clone(), 0), || format!("{:?} stand", world.standing()))?;
        ensure(world.offers.values().all(|n| *n == 1), || format!("offered {:?}", world.offers))?;
        ensure(!world.status().has_acked(Revision(world.revision)), || "is called acknowledged".into())?;
        // Others change; what is refused stays refused, and is not offered again.
        let n_nacks = world.n_nacks;
        world.names.push("z".to_owned());
        world.publish("2", &bad);
        world.send(Nonce::None, None, vec!["z".to_owned()]);
        world.drain();
        ensure(world.held.contains_key("z"), || "a new one does not arrive".into())?;
        ensure(world.n_nacks == n_nacks, || "what is refused is offered again".into())?;
        ensure(world.standing() == (refused, 0), || format!("{:?} stand afterwards", world.standing()))?;
        world.publish("3", &BTreeSet::new());
        world.drain();
        ensure(world.held.values().all(|held| held == "3"), || format!("ends with {:?}", world.held))?;
        ensure(world.standing() == (vec![], 0), || format!("{:?} stand in the end", world.standing()))?;
        ensure(world.status().has_acked(Revision(world.revision)), || "is not called acknowledged".into())
    });
}

#[test]
fn what_is_rejected_only_once_is_never_called_accepted() {
    let strategy = (any::<bool>(), any::<bool>(), 65..300_usize, btree_set(0..300_usize, 1..6));
    check(SEED, &strategy, |(is_delta, is_fresh, n, bad)| {
        let bad: BTreeSet<usize> = bad.into_iter().map(|i| i % n).collect();
        let variant = if is_delta { Variant::Delta } else { Variant::Sotw };
        let mut world = World::new(variant, ResourceType::Secret, n, true);
        if !is_fresh {
            world.publish("1", &BTreeSet::new());
            world.ask();
            world.drain();
        }
        world.publish("2", &bad);
        if is_fresh {
            world.ask();
        }
        world.drain();
        let n_held = world.held.values().filter(|held| *held == "2").count();
        ensure(n_held == n - bad.len(), || format!("{n_held} of {n} arrive"))?;
        let (rejected, n_unknown) = world.standing();
        ensure(rejected.len() + n_unknown >= bad.len(), || {
            format!("{rejected:?} and {n_unknown} others stand")
        })?;
        // Where a response has several, all of them are unknown.
        let n_together = n.div_ceil(64);
        let most = n_together * bad.len();
        ensure(n_unknown <= most, || format!("{n_unknown} are unknown instead of {most}"))?;
        ensure(!world.status().has_acked(Revision(world.revision)), || "is called acknowledged".into())?;
        world.publish("3", &BTreeSet::new());
        world.drain();
        ensure(world.held.values().all(|held| held == "3"), || format!("ends with {:?}", world.held))?;
        ensure(world.standing() == (vec![], 0), || format!("{:?} stand in the end", world.standing()))?;
        ensure(world.status().has_acked(Revision(world.revision)), || "is not called acknowledged".into())
    });
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

#[test]
fn what_a_client_is_sent_to_find_what_it_refuses_is_bounded() {
    let n = 500;
    let mut world = World::new(Variant::Sotw, ResourceType::RouteConfiguration, n, true);
    world.publish("1", &BTreeSet::new());
    world.ask();
    world.drain();
    let (n_before, start) = (world.n_responses, world.now);
    world.publish("2", &(0..n).collect());
    world.drain();
    assert_eq!(world.n_responses - n_before, 1 + 256, "in the first minute");
    assert!(world.max_on_their_way <= 64, "{} on their way", world.max_on_their_way);
    let (_, n_unknown) = world.standing();
    assert!(n_unknown > 0, "what is not found yet is said to be unknown");
    while world.standing().1 > 0 {
        assert!(world.pass_time(), "the search goes on");
        world.drain();
    }
    assert_eq!(world.status().standing.map(|standing| standing.n_rejected), Some(n));
    assert!(world.now - start >= Duration::from_secs(180), "a thousand trials take four minutes");
    world.publish("3", &BTreeSet::new());
    world.drain();
    assert!(world.held.values().all(|held| held == "3"));
    assert_eq!(world.client.poll_timeout(), None, "nothing waits for time");
}

#[test]
fn a_correction_does_not_wait_for_the_search() {
    let n = 500;
    let mut world = World::new(Variant::Delta, ResourceType::ClusterLoadAssignment, n, true);
    world.publish("1", &(0..n).collect());
    world.ask();
    world.drain();
    assert!(world.standing().1 > 0, "the search waits");
    let now = world.now;
    world.publish("2", &BTreeSet::new());
    world.drain();
    assert_eq!(world.now, now);
    assert!(world.held.len() == n && world.held.values().all(|held| held == "2"));
    assert_eq!(world.standing(), (vec![], 0));
}

#[test]
fn a_revision_does_not_fall_because_of_a_rejection() {
    let mut world = World::new(Variant::Delta, ResourceType::RouteConfiguration, 3, true);
    world.publish("1", &BTreeSet::new());
    world.ask();
    world.drain();
    // Nothing of the type changes.
    world.publish("1", &BTreeSet::new());
    world.drain();
    assert_eq!(world.status().acknowledged(), Some(Revision(2)));
    world.publish("2", &BTreeSet::from([1]));
    world.drain();
    assert_eq!(world.status().acknowledged(), Some(Revision(2)), "it had that, and still has");
    world.publish("3", &BTreeSet::new());
    world.drain();
    assert_eq!(world.status().acknowledged(), Some(Revision(4)));
}

#[test]
fn clients_of_one_program_search_once() {
    let (n, bad) = (1000, BTreeSet::from([7, 500]));
    let routes = ResourceType::RouteConfiguration;
    let listed = (Variant::Sotw, ResourceType::ScopedRouteConfiguration);
    for of in [(Variant::Sotw, routes.clone()), (Variant::Delta, routes), listed.clone()] {
        let culprits = Arc::default();
        let new = |number| World::sharing(&culprits, number, of.clone(), n, true);
        let mut worlds: Vec<World> = (1..=20).map(new).collect();
        let start = worlds[0].now;
        for world in &mut worlds {
            world.now = start;
            world.publish("1", &BTreeSet::new());
            world.ask();
            world.drain();
            world.publish("2", &bad);
        }
        while worlds.iter_mut().filter_map(|world| world.go_on().then_some(())).count() > 0 {}
        for world in &mut worlds {
            while world.held.values().any(|held| held == "1") && world.pass_time() {
                world.drain();
            }
        }
        let mut n_nacks: Vec<usize> = worlds.iter().map(|world| world.n_nacks).collect();
        n_nacks.sort_unstable();
        let first = n_nacks.pop().expect("a client");
        assert!(first <= 1 + bound(n, bad.len()), "{first} rejections");
        assert_eq!(n_nacks, [1 + bad.len(); 19], "only the response, and each culprit");
        for world in &worlds {
            assert_eq!(world.held.values().filter(|held| *held == "2").count(), n - bad.len());
            assert_eq!(world.standing(), (vec!["r0007".to_owned(), "r0500".to_owned()], 0));
            assert!(world.now - start <= Duration::from_secs(1), "{:?}", world.now - start);
        }
        // One that comes later is sent the culprits apart at once; a list of everything first.
        let mut late = new(21);
        late.publish("2", &bad);
        late.ask();
        late.drain();
        assert_eq!(late.n_nacks, bad.len() + usize::from(of == listed));
    }
}

#[test]
fn a_client_that_gives_up_its_search_holds_up_others_for_a_moment() {
    let (n, bad) = (100, BTreeSet::from([7]));
    let culprits = Arc::default();
    let of = (Variant::Sotw, ResourceType::RouteConfiguration);
    let mut worlds = [1, 2].map(|number| World::sharing(&culprits, number, of.clone(), n, true));
    let start = worlds[0].now;
    for world in &mut worlds {
        world.now = start;
        world.publish("2", &bad);
        world.ask();
        world.go_on();
    }
    let [first, second] = &mut worlds;
    assert!(first.client.poll_response(first.stream, first.now).is_some(), "the first searches, and stops");
    second.drain();
    assert_eq!(second.held.len(), 7, "what came before the culprit");
    assert!(second.pass_time());
    second.drain();
    assert_eq!(second.held.len(), n - 1);
    assert!(second.now - start <= Duration::from_secs(1));
}

/// A scope as it is encoded: where it leads, and its key.
fn scope((name, to, key): (&str, &str, &str)) -> Resource {
    let field = |number: u8, text: &str| [&[number << 3 | 2, text.len() as u8], text.as_bytes()].concat();
    let value = [field(2, to), field(3, key)].concat();
    Resource::plain(ResourceType::ScopedRouteConfiguration, name, value)
}

#[test]
fn scopes_that_exchange_their_keys_are_told_from_one_that_takes_the_key_of_another() {
    let mut world = World::new(Variant::Sotw, ResourceType::ScopedRouteConfiguration, 0, true);
    world.names = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
    let scopes = |all: &[(&str, &str, &str)]| all.iter().map(|one| scope(*one)).collect::<Vec<_>>();
    let leads = |world: &World, name: &str| world.held.get(name).cloned().unwrap_or_default();
    world.publish_all(scopes(&[("a", "1", "A"), ("b", "1", "B"), ("c", "1", "C"), ("d", "1", "D")]));
    world.ask();
    world.drain();
    // `a` and `b` exchange their keys, `e` takes that of `d`, which goes, and `c` is bad.
    world.publish_all(scopes(&[("a", "2", "B"), ("b", "2", "A"), ("c", "bad", "C"), ("e", "2", "D")]));
    world.drain();
    assert_eq!(world.standing(), (vec!["c".to_owned()], 0));
    for (name, to, key) in [("a", "2", "B"), ("b", "2", "A"), ("c", "1", "C"), ("e", "2", "D")] {
        assert_eq!(leads(&world, name).into_bytes(), *scope((name, to, key)).value(), "{name}");
    }
    assert_eq!(leads(&world, "d"), "", "it is gone");
    // `a` takes the key of `b`: only `a` is refused.
    world.publish_all(scopes(&[("a", "3", "A"), ("b", "3", "A"), ("c", "3", "C"), ("e", "3", "D")]));
    world.drain();
    assert_eq!(world.standing(), (vec!["a".to_owned()], 0));
    for (name, to, key) in [("a", "2", "B"), ("b", "3", "A"), ("c", "3", "C"), ("e", "3", "D")] {
        assert_eq!(leads(&world, name).into_bytes(), *scope((name, to, key)).value(), "{name}");
    }
    // A new one has the key that `a` goes on with, and is refused because of that, until `a` is corrected.
    let new = [("a", "3", "A"), ("b", "3", "A"), ("c", "3", "C"), ("d", "4", "B"), ("e", "3", "D")];
    world.publish_all(scopes(&new));
    world.send(Nonce::None, None, vec![]);
    world.drain();
    assert_eq!(world.standing(), (vec!["a".to_owned(), "d".to_owned()], 0));
    let corrected = [("a", "5", "X"), ("b", "3", "A"), ("c", "3", "C"), ("d", "4", "B"), ("e", "3", "D")];
    world.publish_all(scopes(&corrected));
    world.drain();
    assert_eq!(world.standing(), (vec![], 0));
    for one in corrected {
        assert_eq!(leads(&world, one.0).into_bytes(), *scope(one).value(), "{}", one.0);
    }
    assert!(world.status().has_acked(Revision(world.revision)));
}

/// What happens to a client that takes lists whole or not at all.
#[derive(Clone, Debug)]
enum Event {
    /// Scopes change, are removed or are added: which, whether they are there, whether they are bad, and their keys.
    Publish(Vec<(usize, bool, bool, usize)>),
    /// So many responses are delivered.
    Deliver(usize),
    /// All are.
    Drain,
}

fn events(n_keys: usize) -> impl Strategy<Value = Vec<Event>> {
    let scope = (0..N_SCOPES, prop::bool::weighted(0.8), prop::bool::weighted(0.2), 0..n_keys);
    let event = prop_oneof![
        2 => vec(scope, 1..N_SCOPES).prop_map(Event::Publish),
        3 => (1..6_usize).prop_map(Event::Deliver),
        1 => Just(Event::Drain),
    ];
    vec(event, 1..20)
}

const N_SCOPES: usize = 6;

/// The scopes of a history: edition, whether they are bad, and the key, by number.
#[derive(Clone, Default)]
struct Scopes(BTreeMap<usize, (usize, bool, String)>, MayConflict);

/// Whether two scopes may have the same key.
type MayConflict = bool;

impl Scopes {
    fn change(&mut self, edition: usize, edits: &[(usize, bool, bool, usize)]) {
        for (i, is_there, is_bad, key) in edits {
            let key = if *key == 0 { format!("own{i}") } else { format!("k{key}") };
            let is_taken = self.0.iter().any(|(other, (_, _, of_other))| other != i && *of_other == key);
            if *is_there && (self.1 || !is_taken) {
                self.0.insert(*i, (edition, *is_bad, key));
            } else if !is_there {
                self.0.remove(i);
            }
        }
    }

    /// None is bad, and none has the key of another.
    fn correct(&mut self) {
        let mut keys = BTreeSet::new();
        for (i, (_, is_bad, key)) in &mut self.0 {
            *is_bad = false;
            if !keys.insert(key.clone()) {
                *key = format!("own{i}");
            }
        }
    }

    fn resources(&self) -> Vec<Resource> {
        let resource = |(i, (edition, is_bad, key)): (&usize, &(usize, bool, String))| {
            let bad = if *is_bad { "bad" } else { "" };
            scope((&format!("r{i}"), &format!("{bad}{edition}"), key))
        };
        self.0.iter().map(resource).collect()
    }

    fn expected(&self) -> BTreeMap<String, String> {
        let resources = self.resources();
        let content = |one: &Resource| String::from_utf8_lossy(&one.value()).into_owned();
        resources.iter().map(|one| (one.name().to_string(), content(one))).collect()
    }
}

/// Plays a history. At each quiet point `is_right` holds; in the end everything is corrected, and the client has it.
fn play(
    events: &[Event],
    may_conflict: MayConflict,
    is_right: impl Fn(&World, &Scopes) -> Result<(), String>,
) -> Result<(), String> {
    let mut world = World::new(Variant::Sotw, ResourceType::ScopedRouteConfiguration, 0, true);
    let mut scopes = Scopes(BTreeMap::new(), may_conflict);
    world.publish_all(vec![]);
    world.ask();
    for (edition, event) in events.iter().enumerate() {
        match event {
            Event::Publish(edits) => {
                scopes.change(edition, edits);
                world.publish_all(scopes.resources());
            }
            Event::Deliver(n) => {
                for _ in 0..*n {
                    world.go_on();
                }
            }
            Event::Drain => {
                world.drain();
                is_right(&world, &scopes).map_err(|fault| format!("after {edition}: {fault}"))?;
            }
        }
    }
    scopes.correct();
    world.publish_all(scopes.resources());
    world.drain();
    ensure(world.held == scopes.expected(), || format!("ends with {:?}", world.held))?;
    ensure(world.standing() == (vec![], 0), || format!("{:?} stand in the end", world.standing()))?;
    ensure(world.status().has_acked(Revision(world.revision)), || "is not called acknowledged".into())
}

#[test]
fn what_is_said_of_lists_is_so_while_they_change() {
    check(SEED, &events(1), |events| {
        play(&events, false, |world, scopes| {
            let expected = scopes.expected();
            let is_bad = |content: &str| content.contains("bad");
            for (name, content) in expected.iter().filter(|(_, content)| !is_bad(content)) {
                let held = world.held.get(name);
                ensure(held == Some(content), || format!("has {held:?} of {name} instead of {content:?}"))?;
            }
            let lacks = |name: &String| !expected.contains_key(name);
            ensure(!world.held.keys().any(lacks), || format!("goes on with {:?}", world.held))?;
            let bad: Vec<String> = expected
                .iter()
                .filter(|(_, content)| is_bad(content))
                .map(|(name, _)| name.clone())
                .collect();
            ensure(world.standing() == (bad.clone(), 0), || {
                format!("{:?} instead of {bad:?}", world.standing())
            })
        })
    });
}

#[test]
fn scopes_that_pass_their_keys_on_are_all_there_in_the_end() {
    check(SEED, &(events(3), any::<bool>()), |(events, may_conflict)| {
        play(&events, may_conflict, |world, _| {
            ensure(world.standing().1 == 0, || format!("{:?}", world.standing()))
        })
    });
}
