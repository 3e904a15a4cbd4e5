//! The difference of random tables: every example really differs, and no random request differs outside of the classes.
//!
//! The judge is [`Model::explain`], which is compared with real clients elsewhere. `XDS_TESTS_SEED` repeats a run, `XDS_DIFF_PAIRS` asks for
//! more pairs.

use std::collections::BTreeMap;
use std::time::Instant;

use xds_explain::{
    ActionKind, Changes, ClassKind, Client, Explanation, Language, Model, Ratio, Request, diff,
};

use crate::random::{self, Random, Tables};

/// Pairs of tables for each client, and requests for each pair.
const N_PAIRS: usize = 200;
const N_REQUESTS: usize = 60;

/// Where a request goes, as far as it does not depend on the rest of its path: virtual host, and shares by route and destination.
type Taken = (Option<String>, BTreeMap<(Option<usize>, String), Ratio>);

/// Nothing takes requests of some hosts and of some paths alike.
fn taken(explanation: &Explanation) -> Taken {
    let mut shares: BTreeMap<(Option<usize>, String), Ratio> = BTreeMap::new();
    for outcome in explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
        let cluster = outcome.cluster.as_ref().map(|cluster| cluster.name.clone());
        let to = match outcome.action {
            ActionKind::NoRoute | ActionKind::NoVirtualHost => "nothing".to_owned(),
            ActionKind::Cluster
            | ActionKind::Redirect
            | ActionKind::DirectResponse
            | ActionKind::Denied
            | ActionKind::Aborted
            | ActionKind::NoChain
            | ActionKind::NoListener
            | ActionKind::RefusedResource
            | ActionKind::Plugin
            | ActionKind::RefusedRequest => {
                cluster.unwrap_or_else(|| outcome.status.clone().unwrap_or_default())
            }
        };
        let sum = shares.entry((outcome.route, to)).or_insert(Ratio::ZERO);
        *sum = sum.plus(outcome.share).unwrap();
    }
    (explanation.virtual_host.as_ref().map(|host| host.element.name.clone()), shares)
}

/// Destinations alone.
fn destinations(explanation: &Explanation) -> BTreeMap<String, Ratio> {
    let mut shares: BTreeMap<String, Ratio> = BTreeMap::new();
    for ((_, to), share) in taken(explanation).1 {
        let sum = shares.entry(to).or_insert(Ratio::ZERO);
        *sum = sum.plus(share).unwrap();
    }
    shares
}

/// What was compared.
#[derive(Default)]
struct Counts {
    pairs: usize,
    classes: usize,
    requests: usize,
    moved: usize,
    undecided: usize,
}

fn clients() -> Vec<Client> {
    let mut clients: Vec<Client> =
        [Language::Envoy].iter().chain(&Language::GRPC).map(|language| Client::newest(*language)).collect();
    clients.push(Client { language: Language::Envoy, version: (1, 38) });
    clients
}

#[test]
fn every_example_differs_and_no_request_differs_outside_of_a_class() {
    let mut random = Random::from_env();
    let n_pairs = std::env::var("XDS_DIFF_PAIRS").map_or(N_PAIRS, |n| n.parse().unwrap());
    for client in clients() {
        let began = Instant::now();
        let mut counts = Counts::default();
        for _ in 0..n_pairs {
            let tables = Tables::random(&mut random, client);
            compare(&mut random, client, &tables, &mut counts);
        }
        println!(
            "{client}: {} pairs, {} classes, {} requests, {} moved, {} undecided, {:?}",
            counts.pairs,
            counts.classes,
            counts.requests,
            counts.moved,
            counts.undecided,
            began.elapsed(),
        );
        assert!(counts.moved > n_pairs / 2, "only {} requests moved", counts.moved);
        assert!(counts.undecided * 50 < n_pairs, "{} of {n_pairs} pairs were not decided", counts.undecided);
    }
}

#[test]
fn trees_of_matchers_are_compared_as_lists_of_routes_are() {
    let mut random = Random::from_env();
    let n_pairs = std::env::var("XDS_DIFF_PAIRS").map_or(N_PAIRS, |n| n.parse().unwrap());
    for client in clients().into_iter().filter(|client| client.language == Language::Envoy) {
        let mut counts = Counts::default();
        for _ in 0..n_pairs {
            let tables = Tables::with_trees(&mut random, client);
            compare(&mut random, client, &tables, &mut counts);
        }
        let Counts { pairs, classes, requests, moved, undecided } = counts;
        println!(
            "{client}: {pairs} pairs, {classes} classes, {requests} requests, {moved} moved, {undecided} undecided"
        );
        assert!(moved > n_pairs / 2, "only {moved} requests moved");
        assert!(undecided * 50 < n_pairs, "{undecided} of {n_pairs} pairs were not decided");
    }
}

fn compare(random: &mut Random, client: Client, tables: &Tables, counts: &mut Counts) {
    let [before, after] = [&tables.before, &tables.after].map(|table| tables.model(table, client));
    let changes = diff(&before, &after);
    counts.pairs += 1;
    counts.undecided += usize::from(!changes.undecided.is_empty());
    let explained = |request: &Request| {
        let of = |model: &Model| {
            let mut all = model.explain(request);
            assert_eq!(all.len(), 1, "{request:?}");
            all.remove(0)
        };
        [of(&before), of(&after)]
    };
    let mut known: Vec<[Taken; 2]> = Vec::new();
    for class in changes.classes.iter().filter(|class| class.kind == ClassKind::Destination) {
        counts.classes += 1;
        let example = class.example.as_ref().unwrap();
        let both = explained(example);
        assert_ne!(
            destinations(&both[0]),
            destinations(&both[1]),
            "{client}: the example goes to the same\n{example:?}\n{tables}"
        );
        assert!(!class.share.is_zero() && class.parts > 0, "{class:?}\n{tables}");
        known.push(both.map(|one| taken(&one)));
    }
    if changes.n_classes > changes.classes.len() || !changes.undecided.is_empty() {
        return;
    }
    for _ in 0..N_REQUESTS {
        let request = random::request(random, client);
        let both = explained(&request);
        counts.requests += 1;
        if destinations(&both[0]) == destinations(&both[1]) {
            continue;
        }
        counts.moved += 1;
        let wanted = both.map(|one| taken(&one));
        assert!(
            known.contains(&wanted),
            "{client}: no class has this request\n{request:?}\n{wanted:?}\n{}\n{tables}",
            said(&changes),
        );
    }
}

fn said(changes: &Changes) -> String {
    changes
        .classes
        .iter()
        .map(|class| format!("{:?} {:?} {:?}\n", class.kind, class.example, class.what))
        .collect()
}

#[test]
fn equal_tables_have_no_difference() {
    let mut random = Random::from_env();
    for client in clients() {
        for _ in 0..50 {
            let tables = Tables::random(&mut random, client);
            let changes = diff(&tables.model(&tables.before, client), &tables.model(&tables.before, client));
            assert!(
                changes.classes.is_empty() && changes.undecided.is_empty(),
                "{}\n{tables}",
                said(&changes)
            );
        }
    }
}
