//! Calls that Envoys and gRPC clients answer differently (L9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use xds_cache::{ResourceKey, ResourceType};

use crate::diff::request_text;
use crate::explanation::{ActionKind, Explanation};
use crate::header::Seen;
use crate::lint::place::Place;
use crate::lint::report::{Doubt, DoubtCode};
use crate::lint::used_by::UsedBy;
use crate::model::Model;
use crate::ratio::Ratio;
use crate::request::Request;
use crate::route::{Asked, Route};
use crate::space::destination::chances;
use crate::space::split::{Budget, Lists};
use crate::space::values::Arrival;
use crate::table::RouteTable;

/// The calls that an Envoy and a gRPC client answer differently, each at the route that it was made for.
///
/// Only route configurations that both use as the same resource are looked at, and of them the virtual hosts of targets. The calls are
/// samples: one for each route as the one client sees it, and one as the other does, for a limited number of routes. What is told differs
/// certainly, and there may be more.
#[must_use]
pub fn differences(envoy: &Model, grpc: &Model) -> Vec<Doubt> {
    let used_by_envoys: BTreeSet<String> = UsedBy::of(envoy)
        .0
        .into_iter()
        .filter_map(|(manager, _)| named(&manager.message.route_specifier))
        .collect();
    let mut seen: BTreeSet<(String, usize)> = BTreeSet::new();
    let mut doubts = Vec::new();
    let mut n_looks = MAX_LOOKS;
    for (manager, base) in UsedBy::of(grpc).0 {
        let Some(name) = named(&manager.message.route_specifier).filter(|name| used_by_envoys.contains(name))
        else {
            continue;
        };
        let Some(both) = Both::of(envoy, grpc, &name) else { continue };
        let Some(at) = both.host(&base) else { continue };
        if seen.insert((name, at)) {
            both.look(at, base, &mut n_looks, &mut doubts);
        }
    }
    doubts
}

/// The name of a route configuration that is a resource.
fn named(specifier: &Option<RouteSpecifier>) -> Option<String> {
    match specifier {
        Some(RouteSpecifier::Rds(rds)) => Some(rds.route_config_name.clone()),
        Some(RouteSpecifier::RouteConfig(_) | RouteSpecifier::ScopedRoutes(_)) | None => None,
    }
}

/// A route configuration of both clients.
struct Both<'m> {
    models: [&'m Model; 2],
    tables: [Arc<RouteTable>; 2],
    name: String,
}

impl<'m> Both<'m> {
    /// `None` if the clients get different resources, or one of them refuses it.
    fn of(envoy: &'m Model, grpc: &'m Model, name: &str) -> Option<Self> {
        let models = [envoy, grpc];
        let [one, other] = models.map(|model| model.resource(&ResourceType::RouteConfiguration, name));
        (one?.value() == other?.value()).then_some(())?;
        let [one, other] = models.map(|model| model.table(name).filter(|table| table.refused.is_none()));
        Some(Self { models, tables: [one?, other?], name: name.to_owned() })
    }

    /// The virtual host of a target, if it is that of both.
    fn host(&self, base: &Request) -> Option<usize> {
        let [one, other] = [0, 1].map(|side: usize| {
            let seen = Seen::of(base, self.models[side].semantics);
            self.tables[side].host(&Asked { request: base, path: "/", seen: &seen }).map(|((at, _), _)| at)
        });
        one.filter(|_| one == other)
    }

    fn look(&self, at: usize, base: Request, n_looks: &mut usize, doubts: &mut Vec<Doubt>) {
        let hosts = [0, 1].map(|side: usize| self.tables[side].hosts.get(at));
        let [Some(of_envoy), Some(of_grpc)] = hosts else { return };
        if of_envoy.tree.is_some() {
            return;
        }
        let resource =
            ResourceKey { resource_type: ResourceType::RouteConfiguration, name: self.name.as_str().into() };
        let place = Place { resource: &resource, path: format!("virtual_hosts[{at}]"), host: of_envoy };
        let n_routes = of_envoy.routes.len();
        // Each question looks at all routes of both.
        let n_samples = (*n_looks / (n_routes * 4).max(1)).min(n_routes);
        let step = n_routes.checked_div(n_samples).unwrap_or(1).max(1);
        let (mut told, mut said) = (BTreeSet::new(), BTreeSet::new());
        for (side, host) in [of_envoy, of_grpc].into_iter().enumerate() {
            let semantics = self.models[side].semantics;
            let arrival = Arrival { base: base.clone(), managers: [None, None], semantics };
            let mut lists = Lists::of_calls(&host.routes);
            for index in (0..n_routes).step_by(step) {
                *n_looks = n_looks.saturating_sub(n_routes * 2);
                let Some(route) = host.routes.get(index) else { continue };
                let Some(call) = witness(&mut lists, &host.routes, index, &arrival) else { continue };
                let Some(message) = self.compare(&call) else { continue };
                // Two routes may be asked for by the same call.
                if told.insert(index) && said.insert(message.clone()) {
                    let part = place.of_route(index, route);
                    doubts.push(Doubt::new(DoubtCode::DiffersBetweenClients, part, message));
                }
            }
        }
    }

    /// In words, how the clients answer a call differently; `None` if they do not, or if that is not certain.
    fn compare(&self, call: &Request) -> Option<String> {
        let request = Request { route_config: Some(self.name.clone()), ..call.clone() };
        let [one, other] = self.models.map(|model| answer(&model.explain(&request)));
        let (one, other) = (one?, other?);
        if one == other {
            return None;
        }
        let say = |answer: &Answer| {
            let all = answer.iter().map(|(what, share)| match *share == Ratio::ONE {
                true => what.clone(),
                false => format!("{share} {what}"),
            });
            all.collect::<Vec<_>>().join(", ")
        };
        let clients = self.models.map(Model::client);
        let call = request_text(call);
        Some(format!("{}: {} with {}, {} with {}", call, say(&one), clients[0], say(&other), clients[1]))
    }
}

/// Destinations with their shares.
type Answer = BTreeMap<String, Ratio>;

/// `None` if the answer is not certain.
fn answer(explanations: &[Explanation]) -> Option<Answer> {
    let [explanation] = explanations else { return None };
    if !explanation.unknown.is_empty() || explanation.has_more {
        return None;
    }
    let mut answer = Answer::new();
    for outcome in explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
        if !outcome.when.is_empty() {
            return None;
        }
        let what = match (outcome.action, &outcome.cluster) {
            (ActionKind::Cluster, Some(cluster)) => format!("to {}", cluster.name),
            (ActionKind::NoRoute | ActionKind::NoVirtualHost, _) => outcome.what.clone(),
            (_, _) => format!("{} ({})", outcome.what, outcome.status.as_deref().unwrap_or_default()),
        };
        let sum = answer.entry(what).or_insert(Ratio::ZERO);
        *sum = sum.plus(outcome.share)?;
    }
    Some(answer)
}

/// A call that the route takes, at least in part.
fn witness(lists: &mut Lists<'_>, routes: &[Route], index: usize, arrival: &Arrival<'_>) -> Option<Request> {
    let at = u32::try_from(index).ok()?;
    let route = routes.get(index)?;
    let mut budget = Budget { n_steps: MAX_STEPS, n_parts: MAX_PARTS };
    let parts = lists.some_of(arrival, at, MAX_REGIONS, &mut budget);
    let mut calls = parts.into_iter().filter(|part| part.when.is_empty() && !part.is_linked).filter(|part| {
        let of_list = part.lists[0].iter().filter_map(|at| routes.get(*at as usize));
        chances(of_list, arrival.semantics).is_some_and(|(taken, _)| {
            taken.iter().any(|(taker, chance)| std::ptr::eq(*taker, route) && !chance.share().is_zero())
        })
    });
    calls.find_map(|part| call(as_written(part.example, route)))
}

/// The request with the path in the case of the route's own, which clients may have: others are asked for by nobody.
fn as_written(request: Request, route: &Route) -> Request {
    let path = route.message.r#match.as_ref().and_then(|matches| matches.path_specifier.as_ref());
    let Some(PathSpecifier::Prefix(written) | PathSpecifier::Path(written)) = path else { return request };
    let head = request.path.get(..written.len()).filter(|head| head.eq_ignore_ascii_case(written));
    match head.and_then(|_| request.path.get(written.len()..)) {
        Some(rest) => Request { path: format!("{written}{rest}"), ..request },
        None => request,
    }
}

/// The request, if a gRPC client can send it: conditions may want what it never sends. No value is empty: clients differ about those, but
/// nobody sends them.
fn call(mut request: Request) -> Option<Request> {
    for (_, value) in request.headers.iter_mut().filter(|(_, value)| value.is_empty()) {
        "any".clone_into(value);
    }
    let mut seen = BTreeSet::new();
    request.headers.retain(|header| seen.insert(header.clone()));
    let own = ["content-type", "te", "grpc-timeout", "user-agent", "cookie"];
    let n_own = request.headers.iter().filter(|(name, _)| own.contains(&&**name)).count();
    let has_own = request.headers.iter().any(|(name, _)| name.starts_with(':') || name.ends_with("-bin"));
    let is_call = request.method == "POST" && n_own == 2 && !has_own && !request.path.contains('?');
    is_call.then_some(request)
}

/// Routes that are looked at for all calls together.
const MAX_LOOKS: usize = 4_000_000;

/// For each route: regions of paths, steps of automata, and parts.
const MAX_REGIONS: usize = 64;
const MAX_STEPS: usize = 50_000;
const MAX_PARTS: usize = 500;
