//! What holds for every history: random interleavings of a client, a server and the wires between them.
//!
//! P1: when nothing is left to send, the client holds exactly what it asked for and the server has. P2: without new input the
//! session falls silent, even if every response is rejected. P3: nonces are unique on a stream. P4: no name is twice in a
//! response. P5: on a stream that wants every cluster, no route is sent before the cluster that it goes to (D7), if
//! everything is sent at once; the order that waits is the claim of `hitless.rs`. P6: no request panics (`garbage`). P7: every
//! name that is subscribed to is answered (delta), except as R9 says. Besides: only what was asked for is sent (A60); a changed cluster's endpoints
//! follow it (R14); what the status board says was acknowledged is held; and a delta client ends with what a SotW client ends with.
//!
//! A client that rejects by contents, and stops at the first resource that it refuses, ends with everything else (D26); `rejections`
//! has what the search for that may cost.
//!
//! `XDS_CASES` (default 256) says how many histories are run of each, `XDS_SEED` repeats a run that failed. Before a release:
//! `XDS_CASES=300000 cargo test --release -p xds-session --test session properties`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use proptest::collection::vec;
use proptest::prelude::*;
use xds_cache::status::Variant;

use crate::check::check;
use crate::model::{Taste, TypeClient, is_below, same_name};
use crate::world::{N_KINDS, World, aliases, asked_names, in_wildcard, is_pattern, resource_names};

/// The same histories at every run; `XDS_SEED` makes others.
pub(crate) const SEED: u64 = 20_261_123;

/// One thing that happens. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Change { kind: usize, add: Vec<usize>, remove: Vec<usize>, is_legacy: bool },
    Repeat { kind: usize, staleness: u64 },
    Reconnect { kind: usize, is_legacy: bool, tells_versions: bool },
    Publish { puts: Vec<(usize, usize, u8)>, in_other: bool },
    SwitchView,
    ToServer { pipe: usize, n: usize },
    Poll { pipe: usize, n: usize },
    ToClient { pipe: usize, n: usize, nacks: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || 0..N_KINDS;
    let some = || vec(0..8_usize, 0..3);
    let step = prop_oneof![
        6 => (kind(), vec(0..8_usize, 0..3), some(), any::<bool>())
            .prop_map(|(kind, add, remove, is_legacy)| Step::Change { kind, add, remove, is_legacy }),
        1 => (kind(), 0..4_u64).prop_map(|(kind, staleness)| Step::Repeat { kind, staleness }),
        1 => (kind(), any::<bool>(), any::<bool>())
            .prop_map(|(kind, is_legacy, tells_versions)| Step::Reconnect { kind, is_legacy, tells_versions }),
        5 => (vec((kind(), 0..4_usize, 0..5_u8), 1..6), any::<bool>())
            .prop_map(|(puts, in_other)| Step::Publish { puts, in_other }),
        1 => Just(Step::SwitchView),
        6 => (kind(), 1..4_usize).prop_map(|(pipe, n)| Step::ToServer { pipe, n }),
        6 => (kind(), 1..4_usize).prop_map(|(pipe, n)| Step::Poll { pipe, n }),
        5 => (kind(), 1..4_usize, prop::bool::weighted(0.2))
            .prop_map(|(pipe, n, nacks)| Step::ToClient { pipe, n, nacks }),
    ];
    vec(step, 1..60)
}

fn limits() -> impl Strategy<Value = usize> {
    prop_oneof![Just(3 << 20), Just(300), Just(1)]
}

/// Steps, whether every type has a stream of its own, the size of responses, and whether changes wait for each other; then nothing
/// is rejected, for what refers to that would wait for ever (`hitless` has a model that knows).
fn histories() -> impl Strategy<Value = (Vec<Step>, bool, usize, bool)> {
    (steps(), any::<bool>(), limits(), any::<bool>()).prop_map(
        |(mut steps, is_per_type, max_bytes, is_phased)| {
            for step in &mut steps {
                if let Step::ToClient { nacks, .. } = step {
                    *nacks &= !is_phased;
                }
            }
            (steps, is_per_type, max_bytes, is_phased)
        },
    )
}

/// Runs one step. What would break the protocol is left out.
fn run(world: &mut World, step: &Step, now: Instant) -> Result<(), String> {
    let n_pipes = world.pipes.len();
    match step {
        Step::Change { kind, add, remove, is_legacy } => {
            let kind = kind % kinds_of(world);
            let names = asked_names(kind);
            let pick = |which: &[usize]| -> Vec<String> {
                which
                    .iter()
                    .map(|i| names[i % names.len()].to_owned())
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect()
            };
            let mut gone = pick(remove);
            // To unsubscribe from a virtual host by a name that was not subscribed to ends what aliases brought it (row A109).
            gone.retain(|name| kind != 4 || name == "*" || world.types[kind].names.contains(name));
            if let Some(ask) = world.types[kind].change(&pick(add), &gone, *is_legacy) {
                world.ask(ask);
            }
        }
        Step::Repeat { kind, staleness } => {
            let kind = kind % kinds_of(world);
            if world.types[kind].has_asked() {
                let ask = world.types[kind].repeat(*staleness);
                world.ask(ask);
            }
        }
        Step::Reconnect { kind, is_legacy, tells_versions } => {
            world.reconnect(*kind, *is_legacy, *tells_versions);
        }
        Step::Publish { puts, in_other } => {
            for (kind, name, content) in puts {
                world.put(*kind, resource_names(*kind)[*name], *content, *in_other);
            }
            world.publish();
        }
        Step::SwitchView => {
            world.switch_view();
            world.publish();
        }
        Step::ToServer { pipe, n } => {
            for _ in 0..*n {
                world.deliver_request(pipe % n_pipes);
            }
        }
        Step::Poll { pipe, n } => {
            for _ in 0..*n {
                world.poll(pipe % n_pipes, now)?;
            }
        }
        Step::ToClient { pipe, n, nacks } => {
            for _ in 0..*n {
                world.deliver_response(pipe % n_pipes, *nacks);
            }
        }
    }
    acked_is_held(world)
}

/// Aliases and globs are delta's.
fn kinds_of(world: &World) -> usize {
    if world.types.iter().all(|client| client.is_delta) { N_KINDS } else { 4 }
}

/// Delivers everything until nothing is on its way (P2).
fn drain(world: &mut World, mut now: Instant, nacks: bool) -> Result<(), String> {
    let before = world.n_responses;
    loop {
        let mut has_moved = false;
        for pipe in 0..world.pipes.len() {
            has_moved |= world.deliver_request(pipe);
            has_moved |= world.poll(pipe, now)?;
            has_moved |= world.deliver_response(pipe, nacks);
        }
        if !has_moved {
            // What waits for something that never comes goes on when its time has come.
            let Some(later) = world.pass_time() else { return Ok(()) };
            now = now.max(later);
        }
        if world.n_responses > before + MAX_RESPONSES {
            return Err("P2: the session does not fall silent".into());
        }
    }
}

/// More than any history can leave to send: every resource of every kind alone, renewed once.
const MAX_RESPONSES: usize = 120;

/// What a client that wants this should hold: the reference, without indices and without regard to speed.
fn expected(client: &TypeClient, served: &BTreeMap<String, u8>) -> BTreeMap<String, String> {
    let mut wanted = BTreeSet::new();
    for (name, content) in served {
        let is_named = client.names.iter().any(|asked| same_name(asked, name) || is_below(asked, name));
        if is_named || (client.wants_all && in_wildcard(client.kind, name, *content)) {
            wanted.insert(name.clone());
        }
    }
    let hosts = client.names.iter().filter(|_| client.kind == 4);
    wanted.extend(hosts.filter(|asked| !served.contains_key(*asked)).filter_map(|asked| host(asked, served)));
    let content = |name: String| {
        let content = served.get(&name).map(ToString::to_string).unwrap_or_default();
        (name, content)
    };
    let dialled = client.names.iter().filter(|asked| client.kind == 2 && !served.contains_key(*asked));
    let made = dialled.filter_map(|asked| Some((canonical(asked), listener(asked, served)?.to_string())));
    wanted.into_iter().map(content).chain(made).collect()
}

/// The content of the listener that is made for an authority that was dialled: of the pattern that matches best.
fn listener(asked: &str, served: &BTreeMap<String, u8>) -> Option<u8> {
    let path = asked.strip_prefix("xdstp://").map(|path| path.split('?').next().unwrap_or_default());
    let plain = path
        .map_or(Some(asked), |path| path.split_once("/envoy.config.listener.v3.Listener/").map(|id| id.1))?;
    if plain.contains(['/', '*']) {
        return None;
    }
    // Without any pattern, names are only names.
    if !served.values().any(|content| is_pattern(2, *content)) {
        return None;
    }
    let authority = plain.to_lowercase();
    let host = authority.split(':').next().unwrap_or_default();
    let rank = |name: &str, content: u8| -> Option<usize> {
        let is_meant = path.is_some() && name == plain;
        if !is_pattern(2, content) && !is_meant {
            return None;
        }
        let suffix = name.strip_prefix('*').unwrap_or("nothing");
        let best = [is_meant, name == authority, name == host].iter().position(|is_so| *is_so);
        let matches = host.ends_with(suffix) && host.len() > suffix.len();
        best.map(|best| 1000 - best).or_else(|| matches.then_some(suffix.len()))
    };
    let ranked = served.iter().filter_map(|(name, content)| Some((rank(name, *content)?, *content)));
    ranked.max().map(|(_, content)| content)
}

/// The name under which an `xdstp:` name with its parameters in another order is given.
fn canonical(asked: &str) -> String {
    asked.replace("?b=2&a=1", "?a=1&b=2")
}

/// The virtual host that serves a host: the domain that matches best, then the first name; else the one of the host without port.
fn host(asked: &str, served: &BTreeMap<String, u8>) -> Option<String> {
    serving(asked, served).or_else(|| serving(asked.strip_suffix(":80")?, served))
}

fn serving(asked: &str, served: &BTreeMap<String, u8>) -> Option<String> {
    let mut best: Option<((usize, usize), String)> = None;
    for (name, content) in served {
        for alias in aliases(4, name, *content) {
            let Some(rank) = rank(asked, &alias) else { continue };
            if best.as_ref().is_none_or(|(found, _)| rank > *found) {
                best = Some((rank, name.clone()));
            }
        }
    }
    best.map(|(_, name)| name)
}

/// How well a domain fits: exactly, by a suffix, by a prefix, by anything; the longer the better.
fn rank(asked: &str, domain: &str) -> Option<(usize, usize)> {
    let asked_lower = asked.to_lowercase();
    let (route, pattern) = domain.split_at(2);
    let host = asked_lower.strip_prefix(route)?;
    if host == pattern || asked == domain {
        return Some((4, 0));
    }
    if pattern == "*" {
        return Some((1, 0));
    }
    let fits = |part: &str, is_there: bool| is_there && host.len() > part.len();
    if let Some(suffix) = pattern.strip_prefix('*') {
        return fits(suffix, host.ends_with(suffix)).then_some((3, suffix.len()));
    }
    let prefix = pattern.strip_suffix('*')?;
    fits(prefix, host.starts_with(prefix)).then_some((2, prefix.len()))
}

/// What a client holds, as far as the protocol lets it know: in SotW nobody tells it that a route or endpoints are gone.
fn held(client: &TypeClient, served: &BTreeMap<String, u8>) -> BTreeMap<String, String> {
    let knows_deletions = client.is_delta || client.is_complete;
    let known = client.held.iter().filter(|(name, _)| {
        knows_deletions
            || served.get(*name).is_some_and(|content| {
                client.names.contains(*name) || in_wildcard(client.kind, name, *content)
            })
    });
    known.map(|(name, held)| (name.clone(), held.content.clone())).collect()
}

/// The names whose content the client refuses.
fn refused(taste: Taste, contents: &BTreeMap<String, String>) -> Vec<String> {
    contents.iter().filter(|(_, content)| taste.refuses(content)).map(|(name, _)| name.clone()).collect()
}

/// The kind of route configurations.
const ROUTES: usize = 3;

/// P1 and P7.
fn settled(world: &World) -> Result<(), String> {
    for client in &world.types {
        let served = world.served(client.kind);
        let (mut held, mut expected) = (held(client, &served), expected(client, &served));
        // Whatever the client refuses it has in an older version, or not at all.
        if let Some(taste) = world.taste {
            let bad: Vec<String> = refused(taste, &expected);
            bad.iter().for_each(|name| drop((held.remove(name), expected.remove(name))));
        }
        if held != expected {
            return Err(format!("P1: kind {} holds {held:?} instead of {expected:?}", client.kind));
        }
        // An Envoy is not told of a route configuration that it never received (R9).
        let is_told = |name: &&String| client.kind != ROUTES || served.contains_key(*name);
        let unanswered: Vec<&String> = client.unanswered.iter().filter(is_told).collect();
        if client.is_delta && !unanswered.is_empty() {
            return Err(format!("P7: kind {}: {unanswered:?} were not answered", client.kind));
        }
        if client.has_asked() && !world.has_nacked && !world.has_acked(client.kind) {
            return Err(format!(
                "everything was accepted of kind {}, and the status does not say so",
                client.kind
            ));
        }
    }
    let endpoints = world.served(1);
    let wanted = expected(&world.types[1], &endpoints);
    let wants = |name: &String| wanted.contains_key(name);
    let cold: Vec<&String> = world.warming.iter().filter(|name| wants(name)).collect();
    if !cold.is_empty() {
        return Err(format!("R14: clusters {cold:?} changed, and their endpoints did not follow"));
    }
    Ok(())
}

/// What the status board calls acknowledged, the client holds.
fn acked_is_held(world: &World) -> Result<(), String> {
    for client in &world.types {
        if !world.has_nacked && world.is_told(client.kind) && world.has_acked(client.kind) {
            let served = world.served(client.kind);
            let (held, expected) = (held(client, &served), expected(client, &served));
            if held != expected {
                return Err(format!(
                    "kind {} is called acknowledged and holds {held:?}, not {expected:?}",
                    client.kind
                ));
            }
        }
    }
    Ok(())
}

fn history(
    variant: Variant,
    is_per_type: bool,
    max_bytes: usize,
    is_phased: bool,
    steps: &[Step],
) -> Result<World, String> {
    let now = Instant::now();
    let mut world = World::new(variant, is_per_type, max_bytes, is_phased);
    world.publish();
    for step in steps {
        run(&mut world, step, now)?;
    }
    drain(&mut world, now, false)?;
    settled(&world)?;
    Ok(world)
}

#[test]
fn sotw_clients_end_with_what_they_asked_for() {
    check(SEED, &histories(), |(steps, is_per_type, max_bytes, is_phased)| {
        history(Variant::Sotw, is_per_type, max_bytes, is_phased, &steps).map(drop)
    });
}

#[test]
fn delta_clients_end_with_what_they_asked_for() {
    check(SEED, &histories(), |(steps, is_per_type, max_bytes, is_phased)| {
        history(Variant::Delta, is_per_type, max_bytes, is_phased, &steps).map(drop)
    });
}

#[test]
fn the_session_falls_silent_though_everything_is_rejected() {
    let strategy = (steps(), any::<bool>(), limits(), any::<bool>());
    check(SEED, &strategy, |(steps, is_per_type, max_bytes, is_delta)| {
        let now = Instant::now();
        let variant = if is_delta { Variant::Delta } else { Variant::Sotw };
        // What refers to something that was rejected waits for ever.
        let mut world = World::new(variant, is_per_type, max_bytes, false);
        world.publish();
        steps.iter().try_for_each(|step| run(&mut world, step, now))?;
        drain(&mut world, now, true)?;
        settled(&world)
    });
}

#[test]
fn both_variants_end_alike() {
    check(SEED, &histories(), |(steps, is_per_type, max_bytes, is_phased)| {
        let now = Instant::now();
        let mut worlds = [Variant::Sotw, Variant::Delta]
            .map(|variant| World::new(variant, is_per_type, max_bytes, is_phased));
        worlds.iter_mut().for_each(World::publish);
        for step in &steps {
            // Kinds that only delta has would make the two differ.
            let mut step = step.clone();
            if let Step::Change { kind, .. } | Step::Repeat { kind, .. } = &mut step {
                *kind %= 4;
            }
            if let Step::Change { is_legacy, .. } = &mut step {
                *is_legacy = false;
            }
            worlds.iter_mut().try_for_each(|world| run(world, &step, now))?;
        }
        for world in &mut worlds {
            drain(world, now, false)?;
            settled(world)?;
        }
        let [sotw, delta] = &worlds;
        for kind in (0..4).filter(|kind| sotw.types[*kind].names == delta.types[*kind].names) {
            if sotw.types[kind].wants_all != delta.types[kind].wants_all {
                continue;
            }
            let served = sotw.served(kind);
            let (of_sotw, of_delta) = (held(&sotw.types[kind], &served), held(&delta.types[kind], &served));
            if of_sotw != of_delta {
                return Err(format!("kind {kind}: SotW ends with {of_sotw:?}, delta with {of_delta:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn whatever_is_not_refused_is_there_in_the_end() {
    let taste = (prop_oneof![Just(2_u8), Just(4), Just(8), Just(12)], any::<bool>());
    let taste = taste.prop_map(|(refused, stops)| Taste { refused, stops });
    let strategy = (steps(), any::<bool>(), limits(), any::<bool>(), taste);
    check(SEED, &strategy, |(steps, is_per_type, max_bytes, is_delta, taste)| {
        let now = Instant::now();
        let variant = if is_delta { Variant::Delta } else { Variant::Sotw };
        // What refers to something that is refused waits until that changes.
        let mut world = World::new(variant, is_per_type, max_bytes, false);
        world.taste = Some(taste);
        world.publish();
        steps.iter().try_for_each(|step| run(&mut world, step, now))?;
        drain(&mut world, now, false)?;
        settled(&world)
    });
}
