//! Doubts about random tables, both ways: without a route that is told, nothing differs; any other route is reached by some request.
//!
//! `XDS_TESTS_SEED` repeats a run, `XDS_DIFF_PAIRS` asks for more tables.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{Route, RouteAction, RouteConfiguration};
use xds_explain::{ClassKind, Client, Depth, Doubt, DoubtCode, Language, Model, diff, lint};

use crate::random::{self, Random, Tables};

const N_TABLES: usize = 40;
const N_REQUESTS: usize = 20;

/// The virtual host and the route that a doubt says are never reached.
fn unreached(doubt: &Doubt) -> Option<(usize, usize)> {
    let is_about_routes = matches!(doubt.code, DoubtCode::ShadowedRoute | DoubtCode::NeverMatches);
    is_about_routes.then(|| numbers(&doubt.part.path))
}

/// Those of the virtual host and the route in a path.
fn numbers(path: &str) -> (usize, usize) {
    let mut numbers = path.split(['[', ']']).filter_map(|text| text.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn moves(before: &Model, after: &Model) -> (bool, bool) {
    let changes = diff(before, after);
    let is_any = changes.classes.iter().any(|class| class.kind == ClassKind::Destination);
    (is_any, changes.undecided.is_empty())
}

#[test]
fn a_route_is_told_exactly_if_no_request_reaches_it() {
    let mut random = Random::from_env();
    let n_tables = std::env::var("XDS_DIFF_PAIRS").map_or(N_TABLES, |n| n.parse().unwrap());
    for language in [Language::Envoy, Language::CCore, Language::Go, Language::Js] {
        let client = Client::newest(language);
        let (mut n_told, mut n_reached) = (0, 0);
        for _ in 0..n_tables {
            let tables = Tables::random(&mut random, client);
            let (told, reached) = check(&mut random, &tables, client);
            n_told += told;
            n_reached += reached;
        }
        println!("{client}: {n_tables} tables, {n_told} routes told, {n_reached} reached");
        assert!(n_told > 0 && n_reached > n_told, "{n_told} {n_reached}");
    }
}

#[test]
fn no_request_comes_to_a_route_of_a_tree_that_is_told() {
    let mut random = Random::from_env();
    let client = Client::newest(Language::Envoy);
    for _ in 0..N_TABLES {
        let tables = Tables::with_trees(&mut random, client);
        tell(&mut random, client, &tables);
    }
}

/// Of the routes before and behind the place of a wider one, only that one and the route itself are left: which of both is first matters
/// exactly if the wider one takes something of the route.
#[test]
fn a_wider_route_is_told_exactly_if_it_takes_requests_of_an_exact_path() {
    let mut random = Random::from_env();
    let n_tables = std::env::var("XDS_DIFF_PAIRS").map_or(N_TABLES, |n| n.parse().unwrap());
    let (mut n_told, mut n_not) = (0, 0);
    for language in [Language::Envoy, Language::CCore, Language::Go, Language::Js] {
        let client = Client::newest(language);
        for _ in 0..n_tables {
            let tables = Tables::random(&mut random, client);
            let doubts = lint(&tables.model(&tables.before, client), Depth::All).all;
            let idle: BTreeSet<(usize, usize)> = doubts.iter().filter_map(unreached).collect();
            let partly = doubts.iter().filter(|doubt| doubt.code == DoubtCode::PartlyShadowed);
            let partly: BTreeSet<(usize, usize)> = partly.map(|doubt| numbers(&doubt.part.path)).collect();
            for (at, host) in tables.before.virtual_hosts.iter().enumerate() {
                for index in (0..host.routes.len()).filter(|index| !idle.contains(&(at, *index))) {
                    let is_told = partly.contains(&(at, index));
                    let is_taken = is_partly_taken(&tables, client, at, index);
                    // gRPC clients ask for few hosts.
                    let is_right = is_taken.is_none_or(|is_taken| {
                        is_taken == is_told || is_told && client.language != Language::Envoy
                    });
                    assert!(is_right, "{client}: host{at} route {index}: {is_told}\n{tables}");
                    n_told += usize::from(is_told);
                    n_not += usize::from(!is_told);
                }
            }
        }
    }
    println!("{n_told} routes told, {n_not} not");
    assert!(n_told > 0 && n_not > n_told);
}

fn is_exact(route: &Route) -> bool {
    let path = route.r#match.as_ref().and_then(|matches| matches.path_specifier.as_ref());
    matches!(path, Some(PathSpecifier::Path(_)))
}

/// If a wider route before it takes something of a route; `None` if that cannot be decided.
fn is_partly_taken(tables: &Tables, client: Client, at: usize, index: usize) -> Option<bool> {
    let routes = &tables.before.virtual_hosts[at].routes;
    if !is_exact(&routes[index]) {
        return Some(false);
    }
    let mut is_decided = true;
    for wide in (0..index).filter(|wide| !is_exact(&routes[*wide])) {
        let order = |last: [usize; 2]| {
            let mut table = tables.before.clone();
            table.virtual_hosts[at].routes = (0..wide).chain(last).map(|at| routes[at].clone()).collect();
            tables.model(&table, client)
        };
        let (is_any, is_complete) = moves(&order([wide, index]), &order([index, wide]));
        if is_any {
            return Some(true);
        }
        is_decided &= is_complete;
    }
    is_decided.then_some(false)
}

fn tell(random: &mut Random, client: Client, tables: &Tables) {
    let model = tables.model(&tables.before, client);
    let idle: Vec<String> = lint(&model, Depth::Default)
        .all
        .into_iter()
        .filter(|doubt| matches!(doubt.code, DoubtCode::NeverMatches | DoubtCode::ShadowedRoute))
        .map(|doubt| doubt.part.path)
        .collect();
    for _ in 0..N_REQUESTS {
        let request = random::request(random, client);
        for explanation in model.explain(&request) {
            let taken = explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero());
            for index in taken.filter_map(|outcome| outcome.route) {
                let route = explanation.routes.iter().find(|route| route.index == index).unwrap();
                assert!(!idle.contains(&route.element.part.path), "{idle:?}\n{request:?}\n{tables}");
            }
        }
    }
}

fn check(random: &mut Random, tables: &Tables, client: Client) -> (usize, usize) {
    let table = &tables.before;
    let model = tables.model(table, client);
    let told: BTreeSet<(usize, usize)> =
        lint(&model, Depth::Default).all.iter().filter_map(unreached).collect();
    for _ in 0..N_REQUESTS {
        let request = random::request(random, client);
        for explanation in model.explain(&request) {
            let host = explanation.virtual_host.as_ref().map(|host| host.element.name.clone());
            for outcome in explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
                let hit = told.iter().any(|(at, route)| {
                    host.as_deref() == Some(&*table.virtual_hosts[*at].name) && outcome.route == Some(*route)
                });
                assert!(!hit, "{client}: a route that was told takes\n{request:?}\n{tables}");
            }
        }
    }
    let mut n_reached = 0;
    for (at, host) in table.virtual_hosts.iter().enumerate() {
        for route in 0..host.routes.len() {
            let mut without: RouteConfiguration = table.clone();
            if told.contains(&(at, route)) {
                without.virtual_hosts[at].routes.remove(route);
                let found = moves(&model, &tables.model(&without, client));
                assert_eq!(found, (false, true), "{client}: host{at} route {route} is reached\n{tables}");
                continue;
            }
            let cluster_specifier = Some(ClusterSpecifier::Cluster("of its own".to_owned()));
            let action = RouteAction { cluster_specifier, ..RouteAction::default() };
            without.virtual_hosts[at].routes[route].action = Some(Action::Route(action));
            let is_reached = moves(&model, &tables.model(&without, client)).0;
            // gRPC clients ask for few hosts and leave some routes out, of which nothing is told.
            let is_certain = client.language == Language::Envoy;
            assert!(is_reached || !is_certain, "{client}: host{at} route {route} is not reached\n{tables}");
            n_reached += usize::from(is_reached);
        }
    }
    (told.len(), n_reached)
}
