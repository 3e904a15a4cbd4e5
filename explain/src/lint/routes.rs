//! Routes that no request reaches (L1, L3), and domains that no host reaches (L4).

use crate::explanation::Part;
use crate::header::Seen;
use crate::lint::partly;
use crate::lint::place::Place;
use crate::lint::report::{Doubt, DoubtCode};
use crate::request::Request;
use crate::route::{Asked, Condition, Route};
use crate::semantics::Difference;
use crate::space::destination::chances;
use crate::space::flat::Flat;
use crate::space::split::{Budget, Lists, Reach};
use crate::space::universe::PathRules;
use crate::space::values::Arrival;
use crate::table::{RouteTable, VirtualHost};

/// Tells each route that no request reaches, with the routes that hide it.
pub(super) fn look(
    table: &RouteTable,
    host: &VirtualHost,
    arrival: &Arrival<'_>,
    place: &Place<'_>,
    doubts: &mut Vec<Doubt>,
) {
    let rules = arrival.path_rules(table);
    match Flat::of_host(Some(host), arrival.semantics) {
        Ok(None) => {}
        Ok(Some(flat)) => return in_tree(&flat, host, rules, arrival, place, doubts),
        Err(_) => return,
    }
    let mut lists = Lists::of([&host.routes, &[]], arrival, rules);
    let mut n_steps = MAX_STEPS;
    for (at, route) in (0..).zip(host.routes.iter()) {
        // What a client leaves out is told where its resources are checked.
        if route.conditions().any(|condition| matches!(condition, Condition::LeftOut(_))) {
            continue;
        }
        let part = place.of_route(at as usize, route);
        let never = |message: &str| Doubt::new(DoubtCode::NeverMatches, part.clone(), message);
        if route.conditions().any(|condition| matches!(condition, Condition::Never)) {
            doubts.push(never("the route takes 0 % of requests"));
            continue;
        }
        let mut ask = |routes: &dyn Fn(u32) -> bool| {
            let mut budget = Budget { n_steps: n_steps.min(MAX_STEPS_EACH), n_parts: MAX_PARTS };
            let before = budget.n_steps;
            let takes = |list: &[u32]| takes(&host.routes, list, at, arrival);
            let reach = lists.reach(arrival, at, routes, takes, &mut budget);
            n_steps = n_steps.saturating_sub(before - budget.n_steps);
            reach
        };
        let Reach::No(others) = ask(&|other| other <= at) else { continue };
        match ask(&|other| other == at) {
            Reach::Yes => {}
            Reach::No(_) => {
                doubts.push(never("no request fulfils the conditions of the route"));
                continue;
            }
            Reach::Undecided => continue,
        }
        let alone = others
            .iter()
            .copied()
            .find(|other| matches!(ask(&|one| one == at || one == *other), Reach::No(_)));
        let hiding: Vec<u32> = alone.map_or(others, |one| vec![one]);
        let hidden_by: Vec<_> = hiding
            .iter()
            .take(MAX_HIDING)
            .filter_map(|other| Some(place.of_route(*other as usize, host.routes.get(*other as usize)?)))
            .collect();
        let because = format!("because of the {} before it", say(&host.routes, &hiding));
        let message = format!("no request reaches the route, {because}");
        let partly = partly::at_one_place(host, route, &hiding, arrival.semantics)
            .map(|place| format!("the rule acts elsewhere, but no request reaches it at {place}, {because}"));
        doubts.push(Doubt { hidden_by, partly, ..Doubt::new(DoubtCode::ShadowedRoute, part, message) });
    }
}

/// Tells each route of a tree of matchers that no request reaches.
fn in_tree(
    flat: &Flat,
    host: &VirtualHost,
    rules: PathRules,
    arrival: &Arrival<'_>,
    place: &Place<'_>,
    doubts: &mut Vec<Doubt>,
) {
    let mut lists = Lists::of([&flat.routes, &[]], arrival, rules);
    let mut n_steps = MAX_STEPS;
    for (index, route) in host.routes.iter().enumerate() {
        let mut copies =
            (0..).zip(&flat.of).filter(|(_, of)| **of == Some(index)).map(|(at, _): (u32, _)| at);
        let is_idle = copies.all(|at| {
            if flat
                .routes
                .get(at as usize)
                .is_some_and(|one| one.conditions().any(|one| matches!(one, Condition::Never)))
            {
                return true;
            }
            let mut budget = Budget { n_steps: n_steps.min(MAX_STEPS_EACH), n_parts: MAX_PARTS };
            let before = budget.n_steps;
            let takes = |list: &[u32]| takes(&flat.routes, list, at, arrival);
            let reach = lists.reach(arrival, at, &|other| other <= at, takes, &mut budget);
            n_steps = n_steps.saturating_sub(before - budget.n_steps);
            matches!(reach, Reach::No(_))
        });
        if is_idle {
            let message = "no request comes to the route in the tree of matchers and fulfils its conditions";
            doubts.push(Doubt::new(DoubtCode::NeverMatches, place.of_route(index, route), message));
        }
    }
}

/// Routes by their names or numbers, with their paths.
pub(super) fn say(routes: &[Route], hiding: &[u32]) -> String {
    let names: Vec<String> = hiding
        .iter()
        .take(MAX_HIDING)
        .filter_map(|at| Some((at, routes.get(*at as usize)?)))
        .map(|(at, route)| match &*route.message.name {
            "" => format!("{} ({})", at + 1, route.wanted_path()),
            name => format!("{name} ({})", route.wanted_path()),
        })
        .collect();
    let more = if hiding.len() > MAX_HIDING { ", and others" } else { "" };
    let plural = if hiding.len() == 1 { "route" } else { "routes" };
    format!("{plural} {}{more}", names.join(", "))
}

/// Returns `true` if the route gets some of the requests of a list.
fn takes(routes: &[Route], list: &[u32], wanted: u32, arrival: &Arrival<'_>) -> bool {
    let of_list = list.iter().filter_map(|at| routes.get(*at as usize));
    let Some((taken, _)) = chances(of_list, arrival.semantics) else { return true };
    let Some(wanted) = routes.get(wanted as usize) else { return false };
    taken.iter().any(|(route, chance)| std::ptr::eq(*route, wanted) && !chance.share().is_zero())
}

/// Tells each domain without a star at its end that no host reaches.
pub(super) fn domains(
    table: &RouteTable,
    at: usize,
    host: &VirtualHost,
    arrival: &Arrival<'_>,
    place: &Place<'_>,
    doubts: &mut Vec<Doubt>,
) {
    if !table.message.vhost_header.is_empty() || !arrival.semantics.has(Difference::HostIsAuthority) {
        return;
    }
    for (index, domain) in host.message.domains.iter().enumerate() {
        if domain.starts_with('*') || domain.ends_with('*') {
            continue;
        }
        let request = Request { authority: domain.clone(), ..arrival.base.clone() };
        let seen = Seen::of(&request, arrival.semantics);
        let found = table.host(&Asked { request: &request, path: "/", seen: &seen });
        let is_reached = found.is_some_and(|(found, _)| found == (at, index));
        let message = if domain.contains('*') {
            format!("the star inside {domain:?} stands for itself, and no host has one")
        } else if !is_reached && table.message.ignore_port_in_host_matching {
            format!("no host reaches {domain:?}, because ports are cut off before hosts are compared")
        } else {
            continue;
        };
        let path = format!("{}.domains[{index}]", place.path);
        let part = Part { resource: place.resource.clone(), path, route: None };
        doubts.push(Doubt::new(DoubtCode::UnreachableDomain, part, message));
    }
}

/// Routes that are named as hiding another one.
const MAX_HIDING: usize = 3;

/// Steps of automata for all routes of a virtual host, and for one of them; parts for one of them.
const MAX_STEPS: usize = 20_000_000;
const MAX_STEPS_EACH: usize = 400_000;
const MAX_PARTS: usize = 2_000;
