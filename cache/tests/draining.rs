//! Draining: what left is served until its time and no longer, whatever is published meanwhile; as a client would read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use prost::Message;
use xds_cache::layer::{Generated, Groups, Layer, LayerGroup, merge};
use xds_cache::wave::{Behind, Ranking, Share, Split};
use xds_cache::{
    DrainPolicy, GroupName, Node, NodeGroup, Publisher, Reference, Resource, ResourceDraft, ResourceKey,
    ResourceType, Revision, View,
};

#[derive(Clone, PartialEq, Message)]
struct Assignment {
    #[prost(message, repeated, tag = "2")]
    localities: Vec<Locality>,
}

#[derive(Clone, PartialEq, Message)]
struct Locality {
    #[prost(message, optional, tag = "1")]
    locality: Option<Zone>,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LbEndpoint>,
    #[prost(message, optional, tag = "3")]
    weight: Option<u32>,
    #[prost(uint32, tag = "5")]
    priority: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Zone {
    #[prost(string, tag = "2")]
    zone: String,
}

#[derive(Clone, PartialEq, Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<Endpoint>,
    #[prost(int32, tag = "2")]
    health: i32,
    #[prost(message, optional, tag = "4")]
    weight: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    socket: Option<Socket>,
}

#[derive(Clone, PartialEq, Message)]
struct Socket {
    #[prost(string, tag = "2")]
    host: String,
    #[prost(uint32, tag = "3")]
    port: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Cluster {
    #[prost(message, optional, tag = "25")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, Struct>,
}

#[derive(Clone, PartialEq, Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Text>,
}

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "3")]
    text: String,
}

const DRAINING: i32 = 3;
const UNHEALTHY: i32 = 2;

/// An endpoint as the tests write it: its number, its zone, its priority, whether it is ill.
type At = (u32, u8, u32, bool);

/// The clusters of a world; those without endpoints have no assignment, those with `false` only that.
type World = BTreeMap<u8, (bool, Option<BTreeSet<At>>)>;

fn key(resource_type: ResourceType, name: &str) -> ResourceKey {
    ResourceKey { resource_type, name: name.into() }
}

fn cluster(name: &str) -> Arc<Resource> {
    let draft = Resource::plain(ResourceType::Cluster, name, name.to_owned()).to_draft();
    let to = key(ResourceType::ClusterLoadAssignment, name);
    let references = [Reference { to: to.into(), path: "eds".into() }].into_iter().collect();
    Arc::new(Resource::new(ResourceDraft { references, ..draft }))
}

fn assignment(name: &str, endpoints: &BTreeSet<At>) -> Arc<Resource> {
    let mut localities: BTreeMap<(u32, u8), Locality> = BTreeMap::new();
    // Each address comes once, and priorities have no gaps.
    let mut seen = BTreeSet::new();
    let endpoints: Vec<&At> = endpoints.iter().filter(|at| seen.insert(at.0)).collect();
    let priorities: BTreeSet<u32> = endpoints.iter().map(|at| at.2).collect();
    for (number, zone, priority, is_ill) in endpoints {
        let priority = priorities.iter().take_while(|other| *other < priority).count() as u32;
        let locality = localities.entry((priority, *zone)).or_insert_with(|| Locality {
            locality: Some(Zone { zone: format!("z{zone}") }),
            endpoints: vec![],
            weight: Some(7),
            priority,
        });
        let socket = Socket { host: format!("10.0.0.{number}"), port: 80 };
        locality.endpoints.push(LbEndpoint {
            endpoint: Some(Endpoint { address: Some(Address { socket: Some(socket) }) }),
            health: if *is_ill { UNHEALTHY } else { 0 },
            weight: Some(3),
        });
    }
    let message = Assignment { localities: localities.into_values().collect() };
    Arc::new(Resource::plain(ResourceType::ClusterLoadAssignment, name, message.encode_to_vec()))
}

fn groups(world: &World, drain: DrainPolicy) -> Groups {
    let layer =
        Layer { groups: [(GroupName::default_group(), layer_group(world, drain))].into_iter().collect() };
    merge(&layer, &Layer::default(), &Generated::new())
}

fn layer_group(world: &World, drain: DrainPolicy) -> LayerGroup {
    let mut group = LayerGroup {
        definition: Some(NodeGroup { drain, ..NodeGroup::default_group() }),
        ..LayerGroup::default()
    };
    for (number, (has_cluster, endpoints)) in world {
        let name = format!("c{number}");
        let cluster = has_cluster.then(|| cluster(&name));
        let assignment = endpoints.as_ref().map(|endpoints| assignment(&name, endpoints));
        for resource in [cluster, assignment].into_iter().flatten() {
            group.resources.insert(resource);
        }
    }
    group
}

fn policy(endpoints: u64, clusters: u64) -> DrainPolicy {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    DrainPolicy { endpoints: seconds(endpoints), clusters: seconds(clusters) }
}

/// The contents of an assignment as a client reads it: the health of each endpoint by its number. Checks what gRPC clients reject.
fn read(view: &View, name: &str) -> Option<BTreeMap<u32, i32>> {
    let resource = view.resolve(&ResourceType::ClusterLoadAssignment, name)?;
    let message = Assignment::decode(&**resource.value()).expect("an assignment");
    let mut found = BTreeMap::new();
    let mut places = BTreeSet::new();
    for locality in &message.localities {
        assert!(locality.weight.is_some_and(|weight| weight > 0), "a locality is skipped: {message:?}");
        let zone = locality.locality.as_ref().map(|zone| zone.zone.clone());
        assert!(places.insert((locality.priority, zone)), "a locality appears twice: {message:?}");
        for endpoint in &locality.endpoints {
            assert_ne!(endpoint.weight, Some(0), "{message:?}");
            let address = endpoint.endpoint.as_ref().and_then(|endpoint| endpoint.address.as_ref());
            let socket = address.and_then(|address| address.socket.as_ref()).expect("an address");
            let number = socket.host.trim_start_matches("10.0.0.").parse().expect("a number");
            assert!(found.insert(number, endpoint.health).is_none(), "an address appears twice: {message:?}");
            let is_last = message.localities.iter().all(|other| other.priority <= locality.priority);
            assert!(endpoint.health != DRAINING || is_last, "it drains among others: {message:?}");
        }
    }
    let priorities: BTreeSet<u32> = message.localities.iter().map(|locality| locality.priority).collect();
    assert!(priorities.iter().copied().eq(0..priorities.len() as u32), "priorities have gaps: {message:?}");
    Some(found)
}

fn view(publisher: &Publisher) -> Arc<View> {
    publisher.view_of(&Node::with_id("n")).expect("loaded")
}

/// A model of the resources that should be served, by the rules of the documentation.
#[derive(Default)]
struct Model {
    clusters: BTreeMap<u8, Served>,
}

#[derive(Clone, Default)]
struct Served {
    /// The cluster: `None` if it is not served, else until when, if not for ever.
    cluster: Option<Option<u64>>,
    /// The same of each endpoint, and whether it is ill; `None` without an assignment.
    endpoints: Option<BTreeMap<u32, (Option<u64>, bool)>>,
    /// True if the assignment is served only with the cluster.
    is_kept: bool,
}

impl Model {
    fn publish(&mut self, world: &World, (endpoint_time, cluster_time): (u64, u64), now: u64) {
        self.pass(now);
        let names: BTreeSet<u8> = self.clusters.keys().chain(world.keys()).copied().collect();
        for name in names {
            let before = self.clusters.remove(&name).unwrap_or_default();
            let (has_cluster, endpoints) = world.get(&name).cloned().unwrap_or_default();
            let cluster = match (has_cluster, before.cluster) {
                (true, _) => Some(None),
                (false, Some(None)) => (cluster_time > 0).then_some(Some(now + cluster_time)),
                (false, kept) => kept,
            };
            let is_kept = endpoints.is_none();
            let endpoints = match endpoints {
                Some(new) => {
                    let mut seen = BTreeSet::new();
                    let first = new.iter().filter(|at| seen.insert(at.0));
                    let mut all: BTreeMap<_, _> = first.map(|at| (at.0, (None, at.3))).collect();
                    for (number, (until, is_ill)) in before.endpoints.unwrap_or_default() {
                        let fresh = (endpoint_time > 0 && !is_ill).then_some(now + endpoint_time);
                        if let Some(until) = until.or(fresh) {
                            all.entry(number).or_insert((Some(until), is_ill));
                        }
                    }
                    Some(all)
                }
                // Only with its cluster.
                None => before.endpoints.filter(|_| matches!(cluster, Some(Some(_)))),
            };
            self.clusters.insert(name, Served { cluster, endpoints, is_kept });
        }
        self.pass(now);
    }

    fn pass(&mut self, now: u64) {
        for served in self.clusters.values_mut() {
            let is_over = |until: &Option<u64>| until.is_some_and(|until| until <= now);
            served.endpoints.iter_mut().for_each(|all| all.retain(|_, (until, _)| !is_over(until)));
            if served.cluster.as_ref().is_some_and(is_over) {
                served.cluster = None;
                served.endpoints.take_if(|_| served.is_kept);
            }
        }
    }

    fn check(&self, view: &View) {
        for (number, served) in &self.clusters {
            let name = format!("c{number}");
            let cluster = view.table(&ResourceType::Cluster).find(&name);
            assert_eq!(cluster.is_some(), served.cluster.is_some(), "cluster {name}");
            let expected: Option<BTreeMap<u32, i32>> = served.endpoints.as_ref().map(|all| {
                let health = |until: &Option<u64>, is_ill: &bool| match (until, is_ill) {
                    (Some(_), _) => DRAINING,
                    (None, true) => UNHEALTHY,
                    (None, false) => 0,
                };
                all.iter().map(|(number, (until, is_ill))| (*number, health(until, is_ill))).collect()
            });
            assert_eq!(read(view, &name), expected, "assignment {name}");
        }
        let kept = self.clusters.values().filter(|served| matches!(served.cluster, Some(Some(_))));
        let told = view.draining().filter(|one| one.resource.resource_type == ResourceType::Cluster);
        assert_eq!(told.count(), kept.count());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish(World, (u64, u64)),
    Pass(u64),
}

fn worlds() -> impl Strategy<Value = World> {
    let at = (0..6_u32, 0..2_u8, 0..3_u32, prop::bool::weighted(0.1));
    let endpoints = prop::collection::btree_set(at, 0..5);
    let of_cluster = (prop::bool::weighted(0.8), prop::option::weighted(0.9, endpoints));
    prop::collection::btree_map(0..3_u8, of_cluster, 0..3)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let times = (prop::sample::select(vec![0, 5, 30]), prop::sample::select(vec![0, 10, 30]));
    let step = prop_oneof![
        (worlds(), times).prop_map(|(world, times)| Step::Publish(world, times)),
        (0..20_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    #[test]
    fn what_left_is_served_until_its_time_and_no_longer_and_once(steps in steps()) {
        let publisher = Publisher::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut published = groups(&World::new(), policy(0, 0));
        publisher.publish_split(Revision(0), published.clone(), None, start);
        let mut receiver = publisher.follow(&Node::with_id("n"));
        let drain_end = publisher.drain_end();
        let (mut model, mut now, mut revision, mut changed) = (Model::default(), 0, 0, 0);
        let mut last = World::new();
        for step in steps {
            match step {
                Step::Publish(world, times) => {
                    revision += 1;
                    let groups = groups(&world, policy(times.0, times.1));
                    if groups != published {
                        changed = revision;
                    }
                    published = groups.clone();
                    publisher.publish_split(Revision(revision), groups, None, at(now));
                    model.publish(&world, times, now);
                    last = world;
                }
                Step::Pass(seconds) => {
                    let until = now + seconds;
                    // As a timer would: at each end that was told, and then not again before the next one.
                    loop {
                        let end = *drain_end.borrow();
                        let Some(end) = end.filter(|end| *end <= at(until)) else { break };
                        publisher.end_drains(end);
                        now = now.max((end - start).as_secs());
                        model.pass(now);
                        model.check(&view(&publisher));
                    }
                    now = until;
                }
            }
            model.pass(now);
            model.check(&view(&publisher));
            prop_assert_eq!(view(&publisher).revision(), Revision(changed));
        }
        publisher.end_drains(at(now + 1_000));
        prop_assert_eq!(*drain_end.borrow(), None);
        let fresh = Publisher::new();
        fresh.publish(Revision(revision), groups(&last, policy(0, 0)));
        let (served, fresh) = (receiver.take().expect("loaded"), view(&fresh));
        for of_type in [ResourceType::Cluster, ResourceType::ClusterLoadAssignment] {
            prop_assert_eq!(served.version_info(&of_type), fresh.version_info(&of_type));
        }
    }
}

fn world(clusters: &[(u8, &[u32])]) -> World {
    let endpoints = |all: &[u32]| Some(all.iter().map(|number| (*number, 0, 0, false)).collect());
    clusters.iter().map(|(name, all)| (*name, (true, endpoints(all)))).collect()
}

#[test]
fn only_the_clients_of_what_drained_are_woken_at_its_end() {
    let publisher = Publisher::draining(policy(5, 0));
    let start = Instant::now();
    publisher.publish_split(
        Revision(1),
        groups(&world(&[(0, &[1, 2])]), DrainPolicy::default()),
        None,
        start,
    );
    let mut receiver = publisher.follow(&Node::with_id("n"));
    drop(receiver.take());
    let after = groups(&world(&[(0, &[2])]), DrainPolicy::default());
    let publication = publisher.publish_split(Revision(2), after, None, start);
    assert_eq!(publication.views.len(), 1);
    let served = receiver.take().expect("loaded");
    let told: Vec<_> =
        served.draining().map(|one| (one.endpoint.unwrap_or_default(), one.until - start)).collect();
    assert_eq!(told, [("10.0.0.1:80".to_owned(), Duration::from_secs(5))]);
    publisher.end_drains(start + Duration::from_secs(4));
    assert!(!receiver.into_inner().has_changed().expect("open"), "too early");
    let mut receiver = publisher.follow(&Node::with_id("n"));
    drop(receiver.take());
    publisher.end_drains(start + Duration::from_secs(5));
    assert_eq!(read(&receiver.take().expect("loaded"), "c0"), Some([(2, 0)].into()));
    assert_eq!(*publisher.drain_end().borrow(), None);
}

#[test]
fn who_moves_in_a_wave_finds_draining_what_it_used_before() {
    let publisher = Publisher::draining(policy(5, 5));
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let old = groups(&world(&[(0, &[1]), (1, &[1])]), DrainPolicy::default());
    let new = groups(&world(&[(0, &[2])]), DrainPolicy::default());
    publisher.publish_split(Revision(1), old.clone(), None, start);
    let behind = |share: &str| {
        let share = share.parse::<Share>().ok();
        Some(Behind { split: Split { deployment: 1, share, ranking: Ranking::Hash }, groups: old.clone() })
    };
    let node = Node::with_id("n");
    let _first = publisher.follow(&node);
    // Long before anybody is ahead nothing of it drains for those who come later.
    publisher.publish_split(Revision(2), new.clone(), behind("0.01%"), start);
    publisher.end_drains(at(60));
    assert_eq!(read(&view(&publisher), "c0"), Some([(1, 0)].into()));
    publisher.publish_split(Revision(3), new.clone(), behind("100%"), at(60));
    let mut ahead = publisher.follow(&node);
    let served = ahead.take().expect("loaded");
    assert_eq!(read(&served, "c0"), Some([(1, DRAINING), (2, 0)].into()));
    assert_eq!(read(&served, "c1"), Some([(1, 0)].into()), "with its cluster");
    publisher.end_drains(at(65));
    assert_eq!(read(&ahead.take().expect("loaded"), "c0"), Some([(2, 0)].into()));
    // Put back: what it has now drains in turn.
    publisher.publish_split(Revision(4), new, behind("none"), at(70));
    let served = publisher.follow(&node).take().expect("loaded");
    assert_eq!(read(&served, "c0"), Some([(1, 0), (2, DRAINING)].into()));
}

/// The cluster `c0` with what it says for itself, and an assignment.
fn saying(world: &World, said: &[(&str, &str)]) -> Groups {
    let fields = said.iter().map(|(key, text)| ((*key).to_owned(), Text { text: (*text).to_owned() }));
    let own = Struct { fields: fields.collect() };
    let metadata = Metadata { filter_metadata: [("xds-server.io".to_owned(), own)].into() };
    let message = Cluster { metadata: Some(metadata) };
    let mut group = layer_group(world, policy(0, 30));
    let mut draft = cluster("c0").to_draft();
    draft.value = message.encode_to_vec().into();
    group.resources.insert(Arc::new(Resource::new(draft)));
    let layer = Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() };
    merge(&layer, &Layer::default(), &Generated::new())
}

#[test]
fn what_a_cluster_says_for_itself_counts_more_than_what_its_groups_say() {
    let start = Instant::now();
    let ends = |said: &[(&str, &str)]| {
        let publisher = Publisher::new();
        publisher.publish_split(Revision(1), saying(&world(&[(0, &[1, 2])]), said), None, start);
        let _followed = publisher.follow(&Node::with_id("n"));
        let ends = |revision, groups| {
            publisher.publish_split(Revision(revision), groups, None, start);
            view(&publisher).draining().map(|one| (one.until - start).as_secs()).collect::<Vec<_>>()
        };
        let endpoint = ends(2, saying(&world(&[(0, &[2])]), said));
        let cluster = ends(3, groups(&World::new(), policy(0, 30)));
        (endpoint, cluster)
    };
    assert_eq!(ends(&[]), (vec![], vec![30, 30]));
    assert_eq!(ends(&[("drain-endpoints", "7s"), ("drain-cluster", "1m")]), (vec![7], vec![60, 60, 7]));
    assert_eq!(ends(&[("drain-cluster", "0s")]), (vec![], vec![]));
    assert_eq!(ends(&[("drain-cluster", "soon"), ("other", "1s")]), (vec![], vec![30, 30]));
}
