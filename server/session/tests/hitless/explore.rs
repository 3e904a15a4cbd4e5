//! Every way that things can go in a small world: two clusters, two routes, a listener, maybe a scope.
//!
//! Publications are made to each kind of client, and requests and responses delivered, in every order that there is, with any one of
//! the responses rejected (none or all of it taken up), or the connection lost once at any moment. To an Envoy whose virtual hosts come
//! on demand, `XDS_REQUESTS` (default 0) requests to any of them come at any moment. Nothing may be missing on any way, and at the end of
//! each the client has everything. Ways that lead to the same state go on together.
//!
//! Clients without ADS have so many streams that going all ways is left to a release build:
//! `XDS_REJECTIONS=0 cargo test --release -p xds-session --test session explore -- --include-ignored`. Otherwise they go some ways at
//! random, with all incidents at once: `XDS_WALKS` (default 2) for each script, and `XDS_SEED` says which.
//!
//! `XDS_PUBLICATIONS=2` makes every two of the publications after each other instead of each alone, and `XDS_SCRIPT=3` only the
//! fourth of them. `XDS_REJECTIONS` and
//! `XDS_RECONNECTS` say how many responses are rejected *and* how often the connection is lost on one way; with 1 of both, a release
//! build takes minutes.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use xds_cache::View;
use xds_session::Limits;

use crate::hitless::config::{CLUSTER, Config, ENDPOINTS, Edit, SCOPE};
use crate::hitless::splitmix::Random;
use crate::hitless::wire::Verdict;
use crate::hitless::world::{Culprit, Setup, World};
use crate::hitless::{end, expected};

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    Publish,
    ToServer(usize),
    Poll(usize),
    ToClient(usize, Verdict),
    Reconnect,
    /// A request comes to a virtual host.
    Request(&'static str),
}

/// The virtual hosts that requests come to.
const HOSTS: [&str; 5] = ["r0/h0", "r0/h1", "r0/a1", "r1/h0", "r1/h1"];

const YES: Verdict = Verdict { is_nack: false, parts: 0 };

/// Nothing of a rejected response is taken up, or all of it.
const NO: [Verdict; 2] = [Verdict { is_nack: true, parts: 0 }, Verdict { is_nack: true, parts: 31 }];

/// How much may happen on one way besides publications and messages.
#[derive(Clone, Copy, Debug)]
struct Incidents {
    /// Responses that are rejected.
    n_rejected: usize,
    /// Connections that are lost.
    n_lost: usize,
    /// Requests to virtual hosts that the client has to ask for.
    n_requests: usize,
}

impl Incidents {
    /// A response or the connection, unless the environment says otherwise.
    fn to_explore() -> Vec<Self> {
        let (n_rejected, n_lost) = (number("XDS_REJECTIONS"), number("XDS_RECONNECTS"));
        let n_requests = number("XDS_REQUESTS").unwrap_or(0);
        if n_rejected.is_none() && n_lost.is_none() {
            return [(1, 0), (0, 1)]
                .map(|(n_rejected, n_lost)| Self { n_rejected, n_lost, n_requests })
                .to_vec();
        }
        vec![Self { n_rejected: n_rejected.unwrap_or(0), n_lost: n_lost.unwrap_or(0), n_requests }]
    }
}

/// A state, and how it was come to.
#[derive(Clone)]
struct Point {
    world: World,
    n_published: usize,
    n_rejected: usize,
    n_lost: usize,
    n_requested: usize,
    way: Vec<Event>,
}

impl Point {
    fn at(world: World) -> Self {
        Self { world, n_published: 0, n_rejected: 0, n_lost: 0, n_requested: 0, way: vec![] }
    }
}

/// What was found.
#[derive(Debug, Default)]
struct Explored {
    n_states: usize,
    n_ends: usize,
    longest: usize,
}

struct Explorer {
    setup: Setup,
    script: Vec<(Config, Option<Arc<View>>)>,
    allowed: Incidents,
    seen: HashSet<u64>,
    explored: Explored,
}

impl Explorer {
    /// Goes all ways.
    fn explore(mut self, start: World) -> Result<Explored, String> {
        let mut open = vec![Point::at(start)];
        while let Some(point) = open.pop() {
            self.explored.longest = self.explored.longest.max(point.way.len());
            let mut is_end = true;
            for event in self.events(&point) {
                let mut next = point.clone();
                next.way.push(event);
                let has_moved = self.happen(&mut next, event);
                let has_moved = has_moved.map_err(|fault| format!("{fault}\n{:#?}", next.way))?;
                is_end &= !has_moved;
                if has_moved && self.is_new(&next) {
                    open.push(next);
                }
            }
            if is_end {
                let way = point.way.clone();
                self.check_end(point).map_err(|fault| format!("{fault}\n{way:#?}"))?;
            }
        }
        Ok(self.explored)
    }

    /// Goes one way, with each step chosen at random.
    fn walk(&mut self, start: World, random: &mut Random) -> Result<(), String> {
        let mut point = Point::at(start);
        loop {
            let mut events = self.events(&point);
            let next = loop {
                if events.is_empty() {
                    let way = point.way.clone();
                    return self.check_end(point).map_err(|fault| format!("{fault}\n{way:#?}"));
                }
                let event = events.swap_remove(random.below(events.len()));
                let mut next = point.clone();
                next.way.push(event);
                let has_moved = self.happen(&mut next, event);
                if has_moved.map_err(|fault| format!("{fault}\n{:#?}", next.way))? {
                    break next;
                }
            };
            point = next;
        }
    }

    fn events(&self, point: &Point) -> Vec<Event> {
        let mut events = vec![Event::Publish];
        if point.n_lost < self.allowed.n_lost && !point.world.is_silent() {
            events.push(Event::Reconnect);
        }
        if self.setup.is_on_demand && point.n_requested < self.allowed.n_requests {
            events.extend(HOSTS.map(Event::Request));
        }
        for pipe in 0..point.world.n_pipes() {
            events.extend([Event::ToServer(pipe), Event::Poll(pipe), Event::ToClient(pipe, YES)]);
            if point.n_rejected < self.allowed.n_rejected {
                events.extend(NO.map(|verdict| Event::ToClient(pipe, verdict)));
            }
        }
        events
    }

    /// Tells whether anything happened.
    fn happen(&self, point: &mut Point, event: Event) -> Result<bool, String> {
        match event {
            Event::Publish => {
                let Some(published) = self.script.get(point.n_published) else { return Ok(false) };
                point.world.publish_again(published.clone());
                point.n_published += 1;
                Ok(true)
            }
            Event::Reconnect => {
                point.world.connect();
                point.n_lost += 1;
                Ok(true)
            }
            Event::Request(host) => {
                let has_asked = point.world.request(host);
                point.n_requested += usize::from(has_asked);
                Ok(has_asked)
            }
            Event::ToServer(pipe) => Ok(point.world.deliver_request(pipe)),
            // To find that nothing is to be sent changes what is known.
            Event::Poll(pipe) => {
                let before = point.world.state();
                Ok(point.world.poll(pipe)? || point.world.state() != before)
            }
            Event::ToClient(pipe, verdict) => {
                point.n_rejected += usize::from(verdict.is_nack);
                point.world.deliver_response(pipe, verdict)
            }
        }
    }

    fn is_new(&mut self, point: &Point) -> bool {
        let mut hasher = DefaultHasher::new();
        (point.n_published, point.n_rejected, point.n_lost, point.n_requested).hash(&mut hasher);
        point.world.state().hash(&mut hasher);
        let is_new = self.seen.insert(hasher.finish());
        self.explored.n_states += usize::from(is_new);
        is_new
    }

    /// Nothing happens any more: the client has everything, or has rejected something.
    fn check_end(&mut self, mut point: Point) -> Result<(), String> {
        self.explored.n_ends += 1;
        if point.n_rejected > 0 {
            return end(&mut point.world, self.setup);
        }
        let (has, expected) = (point.world.has(), expected(&point.world, self.setup.is_grpc));
        if point.world.culprit.is_some() {
            return point.world.check_all_but_the_culprit(&expected);
        }
        let held_back = point.world.held_back();
        if has != expected || !held_back.is_empty() {
            return Err(format!("it ends with {has:?} instead of {expected:?}, held back: {held_back:?}"));
        }
        Ok(())
    }
}

fn explore(setup: Setup, script: &[&[Edit]], allowed: Incidents) -> Result<Explored, String> {
    let (explorer, world) = begin(setup, script, allowed);
    explorer.explore(world)
}

/// An explorer, and the world that it begins in.
fn begin(setup: Setup, script: &[&[Edit]], allowed: Incidents) -> (Explorer, World) {
    let small = Config::small(setup.is_grpc, setup.is_scoped, setup.is_on_demand);
    let (mut explorer, world) = begin_with(setup, small, allowed);
    let mut publishing = world.clone();
    for edits in script {
        edits.iter().for_each(|edit| publishing.config.edit(edit));
        publishing.publish();
        explorer.script.push(publishing.published());
    }
    (explorer, world)
}

/// The same with this configuration, and nothing to be published.
fn begin_with(setup: Setup, config: Config, allowed: Incidents) -> (Explorer, World) {
    let mut world = World::with(setup, config);
    world.drain().expect("a client that comes gets everything");
    if world.request("r0/h0") {
        world.drain().expect("a host that is asked for is sent");
    }
    world.establish();
    let (seen, explored) = (HashSet::new(), Explored::default());
    (Explorer { setup, script: vec![], allowed, seen, explored }, world)
}

fn number(key: &str) -> Option<usize> {
    std::env::var(key).ok().and_then(|value| value.parse().ok())
}

fn route(route: usize, clusters: u8) -> Edit {
    Edit::Route { route, clusters }
}

/// Plays the publications to one kind of client, each alone or every two.
#[expect(clippy::print_stdout, reason = "says how much was explored")]
fn explore_all(setup: Setup) {
    let publications = publications(setup);
    let scripts: Vec<Vec<&[Edit]>> = match number("XDS_PUBLICATIONS") {
        Some(2) => every_two(&publications),
        _ => publications.iter().map(|one| vec![&one[..]]).collect(),
    };
    let scripts = match number("XDS_SCRIPT") {
        Some(only) => scripts.get(only..=only).unwrap_or_default(),
        None => &scripts[..],
    };
    for allowed in Incidents::to_explore() {
        let mut all = Explored::default();
        for script in scripts {
            let explored = explore(setup, script, allowed);
            let explored = explored.unwrap_or_else(|fault| panic!("{setup:?} {script:?}: {fault}"));
            all.n_states += explored.n_states;
            all.n_ends += explored.n_ends;
            all.longest = all.longest.max(explored.longest);
        }
        println!("{setup:?} {allowed:?}: {all:?}");
    }
}

/// Plays each publication, and one that changes everything, to clients of one kind of which each refuses another of the new resources,
/// whenever that comes.
#[expect(clippy::print_stdout, reason = "says how much was explored")]
fn explore_culprits(setup: Setup) {
    let allowed = Incidents { n_rejected: 0, n_lost: 0, n_requests: 0 };
    let small = Config::small(setup.is_grpc, setup.is_scoped, false);
    let edited = publications(setup).into_iter().map(|edits| {
        let mut config = small.clone();
        edits.iter().for_each(|edit| config.edit(edit));
        (small.clone(), config)
    });
    let two = Config::two_of_each(setup.is_scoped);
    let mut renewed = two.clone();
    renewed.renew();
    let mut all = Explored::default();
    for (config, next) in edited.chain([(two, renewed)]) {
        let before = config.resources();
        let new = next.resources().into_iter().filter(|(key, content)| before.get(key) != Some(content));
        for ((kind, name), content) in new {
            let culprit = Culprit { kind, name, content };
            let (mut explorer, mut world) = begin_with(setup, config.clone(), allowed);
            let mut publishing = world.clone();
            publishing.config = next.clone();
            publishing.publish();
            explorer.script.push(publishing.published());
            world.culprit = Some(culprit.clone());
            let explored = explorer.explore(world);
            let explored = explored.unwrap_or_else(|fault| panic!("{setup:?} {culprit:?}: {fault}"));
            all.n_states += explored.n_states;
            all.n_ends += explored.n_ends;
        }
    }
    println!("{setup:?}: {all:?}");
}

/// A client of one kind comes that has nothing, and refuses one resource, whichever that is. One of the listeners is there from the beginning,
/// or comes when everything else has come.
#[expect(clippy::print_stdout, reason = "says how much was explored")]
fn explore_culprits_of_new_clients(setup: Setup) {
    let allowed = Incidents { n_rejected: 0, n_lost: 0, n_requests: 0 };
    let whole = Config::two_of_each(setup.is_scoped);
    let mut smaller = whole.clone();
    smaller.edit(&Edit::Listener { listener: 0, to: None, secret: None });
    let mut all = Explored::default();
    for ((kind, name), content) in whole.resources() {
        let culprit = Culprit { kind, name, content };
        let new = |config: &Config| {
            let mut world = World::with(setup, config.clone());
            world.culprit = Some(culprit.clone());
            world
        };
        let mut grown = new(&smaller);
        grown.drain().expect("nothing is missing that a new client does not refuse");
        grown.config = whole.clone();
        grown.publish();
        for world in [new(&whole), grown] {
            let (seen, explored) = (HashSet::new(), Explored::default());
            let explored = Explorer { setup, script: vec![], allowed, seen, explored }.explore(world);
            let explored = explored.unwrap_or_else(|fault| panic!("{setup:?} {culprit:?}: {fault}"));
            all.n_states += explored.n_states;
            all.n_ends += explored.n_ends;
        }
    }
    println!("{setup:?}: {all:?}");
}

/// Plays every two of the publications, of which the first has a resource that the client refuses, on some ways.
fn walk_culprits(setup: Setup) {
    let allowed = Incidents { n_rejected: 0, n_lost: 0, n_requests: 0 };
    let start = Config::two_of_each(setup.is_scoped);
    let mut renewed = start.clone();
    renewed.renew();
    let before = start.resources();
    let new = renewed.resources().into_iter().filter(|(key, content)| before.get(key) != Some(content));
    let new: Vec<_> = new.filter(|((kind, _), _)| *kind == SCOPE).collect();
    let scope = |scope, to| Edit::Scope { scope, to };
    let seconds = [
        vec![scope(0, Some(1))],
        vec![scope(1, Some(0))],
        vec![scope(0, Some(2)), route(2, 4)],
        vec![scope(1, Some(2)), route(2, 8)],
        vec![scope(0, None)],
        vec![scope(1, None), scope(0, Some(2)), route(2, 8)],
        vec![route(0, 8)],
    ];
    let n_walks = number("XDS_WALKS").unwrap_or(200);
    let first = number("XDS_SEED").unwrap_or(0) as u64;
    for (nth, second) in seconds.iter().enumerate() {
        for ((kind, name), content) in &new {
            let culprit = Culprit { kind: *kind, name: name.clone(), content: content.clone() };
            let (mut explorer, mut world) = begin_with(setup, start.clone(), allowed);
            let mut publishing = world.clone();
            publishing.config = renewed.clone();
            publishing.publish();
            explorer.script.push(publishing.published());
            second.iter().for_each(|edit| publishing.config.edit(edit));
            publishing.publish();
            explorer.script.push(publishing.published());
            world.culprit = Some(culprit.clone());
            for walk in 0..n_walks {
                let seed = (first << 40) + ((nth as u64) << 20) + walk as u64;
                let gone = explorer.walk(world.clone(), &mut Random(seed));
                gone.unwrap_or_else(|fault| {
                    panic!("{second:?} {culprit:?} {walk} of XDS_SEED={first}: {fault}")
                });
            }
        }
    }
}

/// Plays every two of the publications to one kind of client on some ways.
fn walk_all(setup: Setup) {
    let publications = publications(setup);
    let n_walks = number("XDS_WALKS").unwrap_or(2);
    let first = number("XDS_SEED").unwrap_or(0) as u64;
    let most = |key| number(key).unwrap_or(1);
    let allowed = Incidents {
        n_rejected: most("XDS_REJECTIONS"),
        n_lost: most("XDS_RECONNECTS"),
        n_requests: most("XDS_REQUESTS"),
    };
    for (nth, script) in every_two(&publications).iter().enumerate() {
        let (mut explorer, world) = begin(setup, script, allowed);
        for walk in 0..n_walks {
            // Each has numbers of its own.
            let seed = (first << 40) + ((nth as u64) << 20) + walk as u64;
            let gone = explorer.walk(world.clone(), &mut Random(seed));
            gone.unwrap_or_else(|fault| panic!("{setup:?} {script:?} {walk} of XDS_SEED={first}: {fault}"));
        }
    }
}

fn every_two(publications: &[Vec<Edit>]) -> Vec<Vec<&[Edit]>> {
    let both = |first| publications.iter().map(move |second: &Vec<Edit>| vec![first, &second[..]]);
    publications.iter().flat_map(|first| both(&first[..])).collect()
}

fn publications(setup: Setup) -> Vec<Vec<Edit>> {
    let of_listener = usize::from(!setup.is_grpc);
    let listener = |to| Edit::Listener { listener: of_listener, to: Some((true, to)), secret: None };
    let cluster = |is_eds| Edit::Cluster { cluster: 0, is_eds, secret: None };
    let scope = |to| Edit::Scope { scope: 0, to };
    let mut publications = vec![
        vec![route(0, 1)],
        vec![route(0, 2)],
        vec![route(0, 3)],
        vec![listener(0)],
        vec![route(1, 2), listener(1)],
        vec![route(1, 1), listener(1)],
        vec![cluster(false)],
    ];
    if setup.is_scoped {
        publications = vec![
            vec![scope(Some(0))],
            vec![route(1, 2), scope(Some(1))],
            vec![route(1, 1), scope(Some(1))],
            vec![scope(None)],
            vec![route(1, 3)],
        ];
    }
    if setup.is_on_demand {
        let host = |route, clusters| Edit::Host { route, clusters };
        publications.extend([
            vec![host(0, Some(2))],
            vec![host(1, Some(2)), listener(1)],
            vec![Edit::Table { route: 0 }],
        ]);
    }
    publications
}

fn setup(is_delta: bool, is_per_type: bool) -> Setup {
    Setup {
        is_delta,
        is_per_type,
        is_grpc: false,
        is_phased: true,
        is_scoped: false,
        is_on_demand: false,
        max_response_bytes: 3 << 20,
    }
}

#[test]
fn a_state_of_the_world_envoy_in_every_way() {
    explore_all(setup(false, false));
}

#[test]
fn an_incremental_envoy_in_every_way() {
    explore_all(setup(true, false));
}

#[test]
fn a_grpc_client_in_every_way() {
    explore_all(Setup { is_grpc: true, ..setup(false, false) });
}

#[test]
fn an_envoy_without_ads_in_some_ways() {
    walk_all(setup(false, true));
}

#[test]
fn an_incremental_envoy_without_ads_in_some_ways() {
    walk_all(setup(true, true));
}

#[test]
fn an_envoy_without_ads_with_scopes_in_some_ways() {
    walk_all(Setup { is_scoped: true, ..setup(true, true) });
}

#[test]
fn an_envoy_without_ads_with_hosts_on_demand_in_some_ways() {
    walk_all(Setup { is_on_demand: true, ..setup(true, true) });
}

#[test]
#[ignore = "takes a release build minutes"]
fn an_envoy_without_ads_in_every_way() {
    explore_all(setup(false, true));
}

#[test]
#[ignore = "takes a release build minutes"]
fn an_incremental_envoy_without_ads_in_every_way() {
    explore_all(setup(true, true));
}

#[test]
fn an_envoy_with_scopes_in_every_way() {
    explore_all(Setup { is_scoped: true, ..setup(false, false) });
}

#[test]
fn an_incremental_envoy_with_scopes_in_every_way() {
    explore_all(Setup { is_scoped: true, ..setup(true, false) });
}

#[test]
fn an_envoy_with_hosts_on_demand_in_every_way() {
    explore_all(Setup { is_on_demand: true, ..setup(true, false) });
}

#[test]
#[ignore = "takes a release build minutes"]
fn an_envoy_without_ads_with_hosts_on_demand_in_every_way() {
    explore_all(Setup { is_on_demand: true, ..setup(true, true) });
}

#[test]
fn clients_that_refuse_one_resource_get_the_others_in_every_way() {
    explore_culprits(setup(false, false));
    explore_culprits(setup(true, false));
    explore_culprits(Setup { is_grpc: true, ..setup(false, false) });
}

#[test]
fn new_clients_that_refuse_one_resource_get_all_others_in_every_way() {
    // They ask for routes when they have accepted others.
    let one_by_one = Setup { max_response_bytes: 1, ..setup(false, false) };
    explore_culprits_of_new_clients(one_by_one);
    explore_culprits_of_new_clients(Setup { is_delta: true, ..one_by_one });
    explore_culprits_of_new_clients(Setup { is_grpc: true, ..one_by_one });
}

/// A listener is on its way when a cluster is refused that its new routes lead to. The Envoy goes on with the older listener for 15 s, and
/// so long the routes wait for a correction.
#[test]
fn routes_that_a_newer_listener_waits_for_wait_no_longer_than_the_envoy() {
    let setup = setup(true, false);
    let none = Incidents { n_rejected: 0, n_lost: 0, n_requests: 0 };
    let (_, mut world) = begin_with(setup, Config::small(false, false, false), none);
    world.config.edit(&route(1, 2));
    world.config.edit(&Edit::Listener { listener: 1, to: Some((true, 1)), secret: None });
    world.publish();
    world.culprit =
        Some(Culprit { kind: CLUSTER, name: "c1".to_owned(), content: format!("0 {ENDPOINTS}/s1") });
    // The listener is sent before the cluster is answered.
    for _ in 0..2 {
        assert_eq!(world.poll(0), Ok(true));
    }
    for _ in 0..2 {
        assert_eq!(world.deliver_response(0, YES), Ok(true));
    }
    world.drain().expect("the older listener and routes are in use");
    let waits = world.held_back().into_iter().find(|held| held.contains("r1"));
    assert_eq!(waits.as_deref(), Some("RouteConfiguration \"r1\": change of Cluster \"c1\""));
    world.pass(Limits::default().addition_grace);
    assert_eq!(world.poll(0), Ok(true));
    assert!(!world.held_back().iter().any(|held| held.contains("r1")), "{:?}", world.held_back());
}

#[test]
fn an_envoy_that_refuses_one_scope_gets_the_others_in_every_way() {
    explore_culprits(Setup { is_scoped: true, ..setup(false, false) });
}

#[test]
fn an_envoy_that_refuses_one_scope_of_two_changes_gets_the_others_in_some_ways() {
    walk_culprits(Setup { is_scoped: true, ..setup(false, false) });
}

#[test]
#[ignore = "takes a minute"]
fn an_incremental_envoy_that_refuses_one_scope_gets_the_others_in_every_way() {
    explore_culprits(Setup { is_scoped: true, ..setup(true, false) });
}

#[test]
fn without_waiting_some_way_leads_to_a_fault() {
    for (is_delta, is_grpc) in [(false, false), (true, false), (false, true)] {
        let setup = Setup { is_phased: false, is_grpc, ..setup(is_delta, false) };
        let listener = Edit::Listener { listener: usize::from(!is_grpc), to: Some((true, 1)), secret: None };
        let none = Incidents { n_rejected: 0, n_lost: 0, n_requests: 0 };
        let found = explore(setup, &[&[route(1, 2), listener]], none);
        assert!(found.as_ref().is_err_and(|fault| fault.contains("in use")), "{setup:?}: {found:?}");
    }
}
