//! Exact paths and hosts of which a wider route takes a part (L2).

use std::collections::HashSet;

use crate::diff::request_text;
use crate::draw::Chance;
use crate::lint::place::Place;
use crate::lint::report::{Doubt, DoubtCode};
use crate::lint::routes::say;
use crate::request::Request;
use crate::route::Route;
use crate::semantics::Semantics;
use crate::space::destination::{chances, taken_to};
use crate::space::split::{Both, Budget, Lists, Part};
use crate::space::values::Arrival;
use crate::table::{RouteTable, VirtualHost};

/// Tells each route with an exact path of which a wider route before it takes some requests and sends them elsewhere.
///
/// A virtual host with a tree of matchers is left out: there, nothing is before anything else by its place alone. So are routes that
/// never act, which `doubts` has from `n_before` on.
pub(super) fn look(
    table: &RouteTable,
    host: &VirtualHost,
    arrival: &Arrival<'_>,
    place: &Place<'_>,
    n_before: usize,
    doubts: &mut Vec<Doubt>,
) {
    let Some(first_wide) = host.routes.iter().position(|route| !route.path.is_exact()) else { return };
    if host.tree.is_some() {
        return;
    }
    let mut lists = Lists::of([&host.routes, &host.routes], arrival, arrival.path_rules(table));
    let idle: HashSet<String> = doubts.iter().skip(n_before).map(|doubt| doubt.part.path.clone()).collect();
    let mut n_steps = MAX_STEPS;
    for (at, route) in (0_u32..).zip(host.routes.iter()).skip(first_wide + 1) {
        if !route.path.is_exact() || route.left_out.is_some() {
            continue;
        }
        let is_rival = |other: u32| {
            let other = host.routes.get(other as usize).filter(|_| other < at);
            other.is_some_and(|other| !other.path.is_exact() && other.message.action != route.message.action)
        };
        let settled = |both: &Both| !both[1].contains(&at) || !both[0].iter().any(|one| is_rival(*one));
        let mut budget = Budget { n_steps: n_steps.min(MAX_STEPS_EACH), n_parts: MAX_PARTS };
        let before = budget.n_steps;
        let parts = lists.overlap(arrival, at, &mut budget, settled);
        n_steps = n_steps.saturating_sub(before - budget.n_steps);
        // What depends on things that no request says is not certain.
        let certain = parts.iter().filter(|part| part.when.is_empty() && !part.is_linked);
        let found = certain
            .filter_map(|part| {
                Some((part, first_taker(&host.routes, part, route, &is_rival, arrival.semantics)?))
            })
            .next();
        let Some((part, rival)) = found else { continue };
        let example = example(part, host);
        let message = format!(
            "the {} before it takes requests of this exact path that fulfil its conditions, such as {example}",
            say(&host.routes, &[rival])
        );
        let hidden_by =
            host.routes.get(rival as usize).map(|route| place.of_route(rival as usize, route)).into_iter();
        let code = DoubtCode::PartlyShadowed;
        let of_route = place.of_route(at as usize, route);
        if idle.contains(&of_route.path) {
            continue;
        }
        doubts.push(Doubt { hidden_by: hidden_by.collect(), ..Doubt::new(code, of_route, message) });
    }
}

/// The exact path or the exact hosts of a route that never acts, in words, if all routes that hide it are wider and send requests
/// elsewhere.
pub(super) fn at_one_place(
    host: &VirtualHost,
    route: &Route,
    hiding: &[u32],
    semantics: Semantics,
) -> Option<String> {
    let all = Chance::new(&Request::default(), semantics);
    let own = taken_to(route, &all, semantics)?;
    let mut others = hiding.iter().filter_map(|at| host.routes.get(*at as usize));
    if !others.all(|other| taken_to(other, &all, semantics).is_some_and(|to| to != own)) {
        return None;
    }
    let domains = &host.message.domains;
    let has_exact_hosts = domains.iter().all(|domain| !domain.contains('*'));
    (route.path.is_exact() || has_exact_hosts).then(|| {
        let more = if domains.len() > MAX_DOMAINS { ", …" } else { "" };
        let shown: Vec<&str> = domains.iter().take(MAX_DOMAINS).map(String::as_str).collect();
        format!("{}{more} with the path {}", shown.join(", "), route.wanted_path())
    })
}

/// The first rival that takes something of a part that the route would take, and sends it elsewhere.
fn first_taker(
    routes: &[Route],
    part: &Part,
    route: &Route,
    is_rival: &impl Fn(u32) -> bool,
    semantics: Semantics,
) -> Option<u32> {
    let list = &part.lists[0];
    let of_list = list.iter().filter_map(|at| routes.get(*at as usize));
    let (taken, _) = chances(of_list, semantics)?;
    let takes = |at: u32| {
        let rival = routes.get(at as usize)?;
        let (_, chance) = taken.iter().find(|(taker, _)| std::ptr::eq(*taker, rival))?;
        let both = match &route.fraction {
            None => chance.clone(),
            Some(fraction) => chance.split(fraction)?.0?,
        };
        // With one random number, the same weights may send all of a share to one cluster.
        let elsewhere = taken_to(rival, &both, semantics)? != taken_to(route, &both, semantics)?;
        Some(elsewhere && !both.share().is_zero())
    };
    list.iter().copied().find(|at| is_rival(*at) && takes(*at) == Some(true))
}

/// The example of a part at the first domain of its host.
fn example(part: &Part, host: &VirtualHost) -> String {
    let mut request = part.example.clone();
    if let Some(domain) = host.message.domains.first() {
        request.authority = domain.replacen('*', "any", 1);
    }
    request_text(&request)
}

/// Domains that are named.
const MAX_DOMAINS: usize = 3;

/// Steps of automata for all routes of a virtual host, and for one of them; parts for one of them.
const MAX_STEPS: usize = 20_000_000;
const MAX_STEPS_EACH: usize = 100_000;
const MAX_PARTS: usize = 500;
