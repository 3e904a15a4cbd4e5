//! Route configurations.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};
use xds_cache::Origin;

use super::listener::Table;
use super::{Emission, Emitted, limits, matcher, session};
use crate::emit::shared::type_of;
use crate::model::HeaderEdits;
use crate::plan::{Action, PlannedRoute, Target, Weighted};

/// A RouteConfiguration.
pub(super) struct Written {
    pub(super) emitted: Emitted,
    /// Whether a route in it overrides the session filter, so that its listeners need one.
    pub(super) has_sessions: bool,
}

/// Writes the RouteConfiguration of a host, with what gRPC clients can have of its routes.
///
/// It has one virtual host that takes every domain: a client finds it by the listener that it dialled.
pub(super) fn configuration(table: &Table<'_>, emission: &mut Emission<'_>) -> Written {
    let mut routes = Vec::new();
    for planned in table.routes {
        routes.extend(route(planned, table.origin, emission));
    }
    // C-core refuses a virtual host without routes. "No route" and "no endpoint" are UNAVAILABLE alike.
    if routes.is_empty() {
        let cluster = emission.clusters.unavailable(table.origin);
        let route_match = json!({"prefix": "/", "case_sensitive": true});
        routes.push(json!({"name": "no-route", "match": route_match, "route": {"cluster": cluster}}));
    }
    let has_sessions = routes.iter().any(|route| route.get(OVERRIDES).is_some());
    let message = json!({
        "@type": type_of("config.route.v3.RouteConfiguration"),
        "name": table.name,
        "virtual_hosts": [{"name": table.host, "domains": ["*"], "routes": routes}],
    });
    Written { emitted: Emitted::plain(message, table.origin), has_sessions }
}

/// One route, unless it is left out.
///
/// A route that is matched but cannot do what it says fails; one whose requests would reach the backend as they must not
/// is left out, which also is what becomes of routes that no call can match.
fn route(planned: &PlannedRoute, origin: &Origin, emission: &mut Emission<'_>) -> Option<Json> {
    let id = &planned.id;
    let route_match = match matcher::route_match(&planned.matches) {
        Ok(route_match) => route_match,
        Err(reason) => {
            emission.drops(id, reason);
            return None;
        }
    };
    let mut route = Map::new();
    route.insert("name".to_owned(), id.to_string().into());
    route.insert("match".to_owned(), route_match);
    let action = match &planned.action {
        Action::Forward(targets) => {
            if !takes_filters(planned, targets, emission) {
                return None;
            }
            let mut action = forward(planned, targets, origin, emission);
            add_limits(planned, &mut action, emission);
            route.extend(overrides(planned, emission));
            action
        }
        // Java refuses redirects (row B109).
        Action::Redirect(_) => {
            emission.drops(id, "gRPC clients follow no redirects; calls fail as UNAVAILABLE".to_owned());
            nowhere(origin, emission)
        }
        Action::Fail => nowhere(origin, emission),
    };
    route.insert("route".to_owned(), action.into());
    Some(route.into())
}

/// Whether the route can be had although gRPC applies none of the filters (row B137); says what is lost.
///
/// A header that is missing, or a copy, leaves a call what it is, and the route is used unless the options are strict. With
/// another path a call is another method, which is never right, so the route is left out.
fn takes_filters(planned: &PlannedRoute, targets: &[Weighted], emission: &mut Emission<'_>) -> bool {
    if planned.path_rewrite.is_some() {
        let reason = "gRPC clients cannot rewrite paths, and the backend would be asked for another method";
        emission.drops(&planned.id, reason.to_owned());
        return false;
    }
    let nothing = HeaderEdits::default();
    let edits_requests =
        planned.request_edits != nothing || targets.iter().any(|target| target.request_edits != nothing);
    let edits_responses =
        planned.response_edits != nothing || targets.iter().any(|target| target.response_edits != nothing);
    let filters = [
        (edits_requests, "RequestHeaderModifier"),
        (edits_responses, "ResponseHeaderModifier"),
        (!planned.mirrors.is_empty(), "RequestMirror"),
        (planned.host_rewrite.is_some(), "URLRewrite"),
        (planned.cors.is_some(), "CORS"),
    ];
    let is_strict = emission.options.is_grpc_strict;
    let mut takes = true;
    for (_, filter) in filters.into_iter().filter(|(is_used, _)| *is_used) {
        let reason = format!("gRPC clients ignore the filter {filter}");
        match is_strict {
            true => emission.drops(&planned.id, reason),
            false => emission.lacks(&planned.id, reason),
        }
        takes &= !is_strict;
    }
    takes
}

/// The clusters of a route.
///
/// As long as only weights change, so does nothing but weights: clusters of weight 0 stay, and clients keep their connections
/// (C15).
fn forward(
    planned: &PlannedRoute,
    targets: &[Weighted],
    origin: &Origin,
    emission: &mut Emission<'_>,
) -> Map<String, Json> {
    let mut clusters: Vec<(String, u64)> = Vec::new();
    for target in targets {
        let name = match &target.target {
            Target::Backend(backend) => emission.clusters.backend(&backend.name),
            Target::Broken => None,
        };
        let name = name.unwrap_or_else(|| emission.clusters.unavailable(origin).to_owned());
        let weight = u64::from(target.weight);
        match clusters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += weight,
            None => clusters.push((name, weight)),
        }
    }
    let backends = targets.iter().filter_map(|target| match &target.target {
        Target::Backend(backend) => Some(backend.name.as_str()),
        Target::Broken => None,
    });
    let reasons: BTreeSet<String> = backends.flat_map(|name| emission.clusters.losses(name)).collect();
    reasons.into_iter().for_each(|reason| emission.lacks(&planned.id, reason));
    // All weights 0 would be refused (row B113, C49).
    if clusters.iter().all(|(_, weight)| *weight == 0) {
        return nowhere(origin, emission);
    }
    if let [(name, _)] = clusters.as_slice() {
        return Map::from_iter([("cluster".to_owned(), name.as_str().into())]);
    }
    if keeps_sessions(planned) && session::keep_drained(&mut clusters) {
        let reason = "gRPC clients keep the sessions of a backend of weight 0 only if it gets some calls, so it gets the \
                      smallest possible share";
        emission.lacks(&planned.id, reason.to_owned());
    }
    // A weight is always there: C-core refuses an entry without (row B114).
    let clusters = clusters.iter().map(|(name, weight)| json!({"name": name, "weight": weight})).collect();
    Map::from_iter([("weighted_clusters".to_owned(), json!({"clusters": Json::Array(clusters)}))])
}

/// The cluster without endpoints.
fn nowhere(origin: &Origin, emission: &mut Emission<'_>) -> Map<String, Json> {
    Map::from_iter([("cluster".to_owned(), emission.clusters.unavailable(origin).into())])
}

fn add_limits(planned: &PlannedRoute, action: &mut Map<String, Json>, emission: &mut Emission<'_>) {
    let (policy, lost) = planned.retry.as_ref().map(limits::retry_policy).unwrap_or_default();
    let is_retried = policy.is_some();
    let lost_timeout = limits::lost_timeout(&planned.timeouts, is_retried);
    lost.into_iter().chain(lost_timeout).for_each(|reason| emission.lacks(&planned.id, reason));
    let limit = limits::max_stream_duration(&planned.timeouts, is_retried);
    action.insert("max_stream_duration".to_owned(), limit);
    if let Some(policy) = policy {
        action.insert("retry_policy".to_owned(), policy);
    }
}

fn keeps_sessions(planned: &PlannedRoute) -> bool {
    planned.session.as_ref().is_some_and(|session| session::per_route(session).is_ok())
}

/// The overrides of filters, by field of the route.
fn overrides(planned: &PlannedRoute, emission: &mut Emission<'_>) -> Option<(String, Json)> {
    match session::per_route(planned.session.as_ref()?) {
        Ok(config) => Some((OVERRIDES.to_owned(), json!({session::FILTER: config}))),
        Err(reason) => {
            emission.lacks(&planned.id, reason);
            None
        }
    }
}

const OVERRIDES: &str = "typed_per_filter_config";
