//! Whatever is published, a client never uses what it does not have, and never loses what it uses (P5; pitfalls 38, 40 to 43).
//!
//! Random configurations, each complete in itself, are published to a model of an Envoy or of a gRPC client, with requests and
//! responses in queues, rejected responses and new connections. The models share no code with the session. Time stands still, so
//! nothing is sent because a grace expired. In the end everything is accepted, and the client must have exactly the newest
//! configuration, with nothing held back.
//!
//! `XDS_CASES` (default 256) says how many histories are run of each, `XDS_SEED` which; without it they are always the same, so
//! that a change fails by its own fault. Before a release: `XDS_SEED=$RANDOM XDS_CASES=300000 cargo test --release -p xds-session
//! --test session hitless`. What was found so is kept in `found` and `came_back`.

use std::collections::BTreeMap;

use config::{Config, Edit, LISTENER, references};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::Verdict;
use world::{Setup, World};
use xds_session::Limits;

use crate::check::check;

mod came_back;
mod config;
mod envoy;
mod explore;
mod found;
mod grpc;
#[path = "../../../tests/src/splitmix.rs"]
mod splitmix;
mod vhds;
mod wire;
mod world;

/// The second host of a route is asked for by its alias.
const OTHER_NAME: usize = 2;

/// A client that comes back is believed if it has missed no more changes than this, and one for the end of the history.
const MAX_BEHIND: usize = 10;

/// Which histories are run if nothing else is asked for.
const SEED: u64 = 5;

/// One thing that happens. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<Edit>),
    Reconnect,
    ToServer {
        pipe: usize,
        n: usize,
    },
    Poll {
        pipe: usize,
        n: usize,
    },
    ToClient {
        pipe: usize,
        n: usize,
        verdict: Verdict,
    },
    /// A request comes to a virtual host of a route.
    Request {
        route: usize,
        host: usize,
    },
    /// Everything is delivered.
    Drain,
}

/// The same with scopes.
fn scoped_edits() -> impl Strategy<Value = Vec<Edit>> {
    let scope = (0..2_usize, prop::option::weighted(0.8, 0..3_usize));
    let scopes = vec(scope.prop_map(|(scope, to)| Edit::Scope { scope, to }), 0..3);
    (edits(), scopes).prop_map(|(edits, scopes)| edits.into_iter().chain(scopes).collect())
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let secret = || prop::option::weighted(0.3, 0..2_usize);
    let edit = prop_oneof![
        6 => (0..3_usize, 0..16_u8).prop_map(|(route, clusters)| Edit::Route { route, clusters }),
        3 => (0..4_usize, prop::bool::weighted(0.8), secret())
            .prop_map(|(cluster, is_eds, secret)| Edit::Cluster { cluster, is_eds, secret }),
        1 => (0..4_usize, any::<bool>()).prop_map(|(cluster, is_there)| Edit::Spare { cluster, is_there }),
        1 => (0..4_usize).prop_map(|cluster| Edit::Endpoints { cluster }),
        3 => (0..2_usize, prop::option::weighted(0.9, (prop::bool::weighted(0.8), 0..4_usize)), secret())
            .prop_map(|(listener, to, secret)| Edit::Listener { listener, to, secret }),
        1 => (0..2_usize).prop_map(|secret| Edit::Secret { secret }),
    ];
    vec(edit, 1..5)
}

/// The same with virtual hosts.
fn edits_on_demand() -> impl Strategy<Value = Vec<Edit>> {
    let host = (0..3_usize, prop::option::weighted(0.8, 0..16_u8));
    let edit = prop_oneof![
        2 => host.prop_map(|(route, clusters)| Edit::Host { route, clusters }),
        1 => (0..3_usize).prop_map(|route| Edit::Table { route }),
    ];
    (edits(), vec(edit, 0..3)).prop_map(|(edits, hosts)| edits.into_iter().chain(hosts).collect())
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    (prop::bool::weighted(0.15), 0..32_u8).prop_map(|(is_nack, parts)| Verdict { is_nack, parts })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    steps_with(edits())
}

fn steps_with(edits: impl Strategy<Value = Vec<Edit>> + 'static) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![20 => step_of(edits.boxed()), 1 => Just(Step::Reconnect)];
    vec(step, 1..60)
}

fn steps_on_demand() -> impl Strategy<Value = Vec<Step>> {
    let request = (0..3_usize, 0..3_usize).prop_map(|(route, host)| Step::Request { route, host });
    let step = prop_oneof![
        20 => step_of(edits_on_demand().boxed()),
        1 => Just(Step::Reconnect),
        4 => request,
    ];
    vec(step, 1..60)
}

fn step_of(edits: BoxedStrategy<Vec<Edit>>) -> impl Strategy<Value = Step> {
    let pipe = || 0..5_usize;
    prop_oneof![
        4 => edits.prop_map(Step::Publish),
        7 => (pipe(), 1..4_usize).prop_map(|(pipe, n)| Step::ToServer { pipe, n }),
        7 => (pipe(), 1..4_usize).prop_map(|(pipe, n)| Step::Poll { pipe, n }),
        7 => (pipe(), 1..4_usize, verdicts()).prop_map(|(pipe, n, verdict)| Step::ToClient { pipe, n, verdict }),
        1 => Just(Step::Drain),
    ]
}

fn run(world: &mut World, step: &Step) -> Result<(), String> {
    let n_pipes = world.n_pipes().max(1);
    match step {
        Step::Publish(edits) => {
            edits.iter().for_each(|edit| world.config.edit(edit));
            world.publish();
        }
        Step::Reconnect => world.connect(),
        Step::Request { route, host } => {
            world.request(&format!("r{}/{}", route % 3, ["h0", "h1", "a1"][host % 3]));
        }
        Step::ToServer { pipe, n } => {
            for _ in 0..*n {
                world.deliver_request(pipe % n_pipes);
            }
        }
        Step::Poll { pipe, n } => {
            for _ in 0..*n {
                world.poll(pipe % n_pipes)?;
            }
        }
        Step::ToClient { pipe, n, verdict } => {
            for _ in 0..*n {
                world.deliver_response(pipe % n_pipes, *verdict)?;
            }
        }
        Step::Drain => world.drain()?,
    }
    Ok(())
}

/// What a client has in the end.
fn expected(world: &World, is_grpc: bool) -> BTreeMap<(usize, String), String> {
    let mut all = world.config.resources();
    if !is_grpc {
        let (asked, _) = world.hosts();
        all.retain(|(kind, name), _| *kind != config::HOST || asked.contains(name));
        return all;
    }
    let mut wanted = BTreeMap::new();
    let mut open = vec![(LISTENER, "l0".to_owned())];
    while let Some(key) = open.pop() {
        if let Some(content) = all.get(&key) {
            open.extend(references(content).into_iter().filter(|(kind, _)| *kind != config::SECRET));
            wanted.insert(key, content.clone());
        }
    }
    wanted
}

fn history(setup: Setup, steps: &[Step]) -> Result<(), String> {
    let mut world = World::new(setup);
    world.drain()?;
    world.establish();
    let is_lost = steps.iter().any(|step| matches!(step, Step::Reconnect));
    let mut n_published = 0;
    for step in steps {
        n_published += usize::from(matches!(step, Step::Publish(_)));
        if !is_lost || n_published <= MAX_BEHIND || !matches!(step, Step::Publish(_)) {
            run(&mut world, step)?;
        }
    }
    end(&mut world, setup)
}

/// In the end the client has everything. What was rejected is sent again only when it changes.
fn end(world: &mut World, setup: Setup) -> Result<(), String> {
    if !world.has_rejected() {
        let mut silent = world.clone();
        silent.drain()?;
        lacks_nothing(&silent, setup)?;
        silent.pass(Limits::default().addition_grace);
        silent.drain()?;
        waits_for_nothing(&silent)?;
    }
    world.config.renew();
    world.publish();
    world.drain()?;
    complete(world, setup)
}

/// What is published is there. A client that came back may go on with more until the server takes it for one that is silent.
fn lacks_nothing(world: &World, setup: Setup) -> Result<(), String> {
    let (has, expected) = (world.has(), expected(world, setup.is_grpc));
    match expected.iter().find(|(key, content)| has.get(*key) != Some(*content)) {
        Some(lacking) => Err(format!("{lacking:?} does not come: the client has {has:?}")),
        None => Ok(()),
    }
}

fn waits_for_nothing(world: &World) -> Result<(), String> {
    let held_back = world.held_back();
    if !held_back.is_empty() {
        return Err(format!("everything was accepted, and the client is still not sent {held_back:?}"));
    }
    Ok(())
}

fn complete(world: &World, setup: Setup) -> Result<(), String> {
    waits_for_nothing(world)?;
    let (has, expected) = (world.has(), expected(world, setup.is_grpc));
    if has != expected {
        return Err(format!("the client ends with {has:?} instead of {expected:?}"));
    }
    let (_, pending) = world.hosts();
    if !pending.is_empty() {
        return Err(format!("requests still wait for {pending:?}"));
    }
    Ok(())
}

fn envoy(is_delta: bool) -> impl Strategy<Value = Setup> {
    (any::<bool>(), prop_oneof![4 => Just(3 << 20), 1 => Just(300)]).prop_map(
        move |(is_per_type, max_response_bytes)| Setup {
            is_delta,
            is_per_type,
            is_grpc: false,
            is_phased: true,
            is_scoped: false,
            is_on_demand: false,
            max_response_bytes,
        },
    )
}

#[test]
fn an_envoy_always_has_what_it_uses() {
    check(SEED, &(envoy(false), steps()), |(setup, steps)| history(setup, &steps));
}

#[test]
fn an_envoy_with_delta_always_has_what_it_uses() {
    check(SEED, &(envoy(true), steps()), |(setup, steps)| history(setup, &steps));
}

#[test]
fn an_envoy_with_scopes_always_has_what_it_uses() {
    let setup = any::<bool>().prop_flat_map(envoy).prop_map(|setup| Setup { is_scoped: true, ..setup });
    check(SEED, &(setup, steps_with(scoped_edits())), |(setup, steps)| history(setup, &steps));
}

#[test]
fn an_envoy_with_hosts_on_demand_always_has_what_it_uses() {
    let setup = envoy(true).prop_map(|setup| Setup { is_on_demand: true, ..setup });
    check(SEED, &(setup, steps_on_demand()), |(setup, steps)| history(setup, &steps));
}

#[test]
fn a_grpc_client_always_has_what_it_uses() {
    let setup = Setup {
        is_delta: false,
        is_per_type: false,
        is_grpc: true,
        is_phased: true,
        is_scoped: false,
        is_on_demand: false,
        max_response_bytes: 3 << 20,
    };
    check(SEED, &steps(), |steps| history(setup, &steps));
}

/// The changes of the table in docs/hitless.md, and how many round trips pass until an Envoy with the State of the World, an incremental
/// one, and a gRPC client have everything and have said so. A real incremental Envoy confirms some removals after that, and a gRPC client may
/// accept the change itself before it has asked for what is new.
#[test]
fn a_change_takes_one_round_trip_for_each_phase() {
    let cluster = |cluster, secret| Edit::Cluster { cluster, is_eds: true, secret };
    let listener =
        |route, secret| Edit::Listener { listener: 1, to: Some((true, route)), secret: Some(secret) };
    let route = |clusters| Edit::Route { route: 0, clusters };
    let changes = [
        ("weights", vec![route(0b11)], [1, 1, 1]),
        ("endpoints", vec![Edit::Endpoints { cluster: 0 }], [1, 1, 1]),
        ("settings of a cluster", vec![cluster(0, None)], [1, 2, 1]),
        ("a certificate", vec![Edit::Secret { secret: 0 }], [1, 1, 0]),
        ("a cluster removed", vec![route(0b1)], [2, 2, 1]),
        (
            "a route configuration renamed",
            vec![listener(1, 0), Edit::Route { route: 1, clusters: 0b11 }],
            [2, 2, 2],
        ),
        ("a secret renamed", vec![listener(0, 1)], [2, 2, 1]),
        ("a cluster added", vec![route(0b111)], [3, 3, 3]),
        ("a cluster renamed", vec![route(0b101)], [4, 4, 3]),
        ("all clusters renamed", vec![route(0b1100)], [4, 4, 3]),
    ];
    for (words, edits, expected) in changes {
        let takes = [(false, false), (true, false), (false, true)].map(|(is_delta, is_grpc)| {
            let setup = Setup {
                is_delta,
                is_per_type: false,
                is_grpc,
                is_phased: true,
                is_scoped: false,
                is_on_demand: false,
                max_response_bytes: 3 << 20,
            };
            let mut world = World::with(setup, Config::small(is_grpc, false, false));
            let of_client = |edit: &Edit| {
                let edit = edit.clone();
                if let (true, Edit::Listener { to, .. }) = (is_grpc, &edit) {
                    return Edit::Listener { listener: 0, to: *to, secret: None };
                }
                edit
            };
            world.config.edit(&of_client(&listener(0, 0)));
            world.config.edit(&route(0b11));
            world.publish();
            world.drain().expect("complete");
            world.establish();
            edits.iter().for_each(|edit| world.config.edit(&of_client(edit)));
            world.publish();
            let n = world.round_trips().expect("silence");
            complete(&world, setup).expect("all has arrived");
            n
        });
        assert_eq!(takes, expected, "{words}");
    }
}

#[test]
fn without_waiting_every_model_finds_faults() {
    let (route, listener) = (0, 0);
    let repoint = [
        Step::Publish(vec![Edit::Route { route, clusters: 4 }]),
        Step::Drain,
        Step::Publish(vec![Edit::Listener { listener, to: Some((true, 2)), secret: None }]),
    ];
    for (is_delta, is_per_type, is_grpc) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (false, false, true),
    ] {
        let setup = |is_phased| Setup {
            is_delta,
            is_per_type,
            is_grpc,
            is_phased,
            is_scoped: false,
            is_on_demand: false,
            max_response_bytes: 3 << 20,
        };
        assert_eq!(history(setup(true), &repoint), Ok(()), "{:?}", setup(true));
        let naive = history(setup(false), &repoint);
        assert!(naive.as_ref().is_err_and(|fault| fault.contains("in use")), "{naive:?} {:?}", setup(false));
    }
}
