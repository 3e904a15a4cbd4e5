//! Route configurations.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::emission::Emission;
use super::listener::Dialled;
use super::matcher::RouteMatch;
use super::{limits, matcher, session};
use crate::conditions::GrpcFeature;
use crate::emit::shared::{STATEFUL_SESSION, type_of};
use crate::model::{HeaderEdits, Retry, Timeouts};
use crate::plan::{Action, PlannedRoute, RouteId, Session, Target, Weighted};

/// A RouteConfiguration: the routes of a host that gRPC clients support.
#[derive(Hash)]
pub(super) struct Configuration<'p> {
    /// Its name.
    name: Arc<str>,
    host: Arc<str>,
    /// At least one.
    routes: Vec<Route<'p>>,
}

/// A route.
#[derive(Hash)]
struct Route<'p> {
    /// `None` for the stand-in of a host without routes.
    id: Option<&'p RouteId>,
    route_match: RouteMatch<'p>,
    /// The clusters with their weights: at least one, and no duplicates.
    clusters: Vec<(&'p str, u64)>,
    /// The other fields for calls that go to a backend.
    forward: Option<Forward<'p>>,
}

/// The fields for calls that go to a backend.
#[derive(Hash)]
struct Forward<'p> {
    timeouts: &'p Timeouts,
    retry: Option<&'p Retry>,
    /// The session, if clients can keep it.
    session: Option<&'p Session>,
}

/// Selects the routes of a host that clients support.
pub(super) fn configuration<'p>(
    dialled: &Dialled,
    planned: &'p [PlannedRoute],
    emission: &mut Emission<'_, 'p>,
) -> Configuration<'p> {
    let mut routes: Vec<Route<'_>> = planned.iter().filter_map(|planned| route(planned, emission)).collect();
    // C-core rejects a virtual host without routes. Both "no route" and "no endpoint" are UNAVAILABLE.
    if routes.is_empty() {
        let (route_match, clusters) = (RouteMatch::everything(), nowhere(emission));
        routes.push(Route { id: None, route_match, clusters, forward: None });
    }
    Configuration { name: Arc::clone(&dialled.name), host: Arc::clone(&dialled.host), routes }
}

impl Configuration<'_> {
    /// Returns `true` if a route overrides the session filter. Then its listeners need the filter.
    pub(super) fn has_sessions(&self) -> bool {
        self.routes.iter().filter_map(|route| route.forward.as_ref()).any(|forward| forward.session.is_some())
    }

    /// The message. It has one virtual host for every domain, because a client finds it by the listener that it dialled.
    pub(super) fn message(&self) -> Json {
        let routes: Vec<Json> = self.routes.iter().map(Route::message).collect();
        json!({
            "@type": type_of("config.route.v3.RouteConfiguration"),
            "name": &*self.name,
            "virtual_hosts": [{"name": &*self.host, "domains": ["*"], "routes": routes}],
        })
    }
}

impl Route<'_> {
    fn message(&self) -> Json {
        let mut action = match self.clusters.as_slice() {
            [(name, _)] => Map::from_iter([("cluster".to_owned(), Json::from(*name))]),
            clusters => {
                // Always written, because C-core rejects an entry without a weight (row B114).
                let entry = |(name, weight): &(&str, u64)| json!({"name": name, "weight": weight});
                let clusters: Vec<Json> = clusters.iter().map(entry).collect();
                Map::from_iter([("weighted_clusters".to_owned(), json!({"clusters": clusters}))])
            }
        };
        let mut route = Map::new();
        route.insert("name".to_owned(), self.id.map_or("no-route".to_owned(), ToString::to_string).into());
        route.insert("match".to_owned(), self.route_match.message());
        if let Some(Forward { timeouts, retry, session }) = &self.forward {
            let policy = retry.and_then(|retry| limits::retry_policy(retry).0);
            let limit = limits::max_stream_duration(timeouts, policy.is_some());
            action.insert("max_stream_duration".to_owned(), limit);
            action.extend(policy.map(|policy| ("retry_policy".to_owned(), policy)));
            let overrides = session.and_then(session::per_route);
            let overrides = overrides.map(|config| json!({STATEFUL_SESSION: config}));
            route.extend(overrides.map(|overrides| ("typed_per_filter_config".to_owned(), overrides)));
        }
        route.insert("route".to_owned(), action.into());
        route.into()
    }
}

/// One route; `None` if it is left out.
///
/// A route that gRPC can match but not carry out fails its calls. It is left out if calls would reach the backend in a wrong form, or
/// if no call can match it.
fn route<'p>(planned: &'p PlannedRoute, emission: &mut Emission<'_, 'p>) -> Option<Route<'p>> {
    let id = &planned.id;
    let route_match = match matcher::route_match(&planned.matches) {
        Ok(route_match) => route_match,
        Err(reason) => {
            emission.drops(id, GrpcFeature::Match, reason);
            return None;
        }
    };
    let (clusters, forward) = match &planned.action {
        Action::Forward(targets) => {
            if !takes_filters(planned, targets, emission) {
                return None;
            }
            (clusters(planned, targets, emission), Some(forward(planned, emission)))
        }
        // Java rejects redirects (row B109).
        Action::Redirect(_) => {
            let reason = "gRPC clients do not follow redirects, so calls fail with UNAVAILABLE";
            emission.drops(id, GrpcFeature::Redirect, reason);
            (nowhere(emission), None)
        }
        Action::Fail => (nowhere(emission), None),
    };
    Some(Route { id: Some(id), route_match, clusters, forward })
}

/// Returns `true` if the route can be served although gRPC applies no filters (row B137). Reports the filters that are lost.
///
/// A call without a changed header or a mirror is still the same call, so the route is used unless the options are strict. A route
/// that rewrites the path is always left out: with the old path, a call would reach a different method.
fn takes_filters(planned: &PlannedRoute, targets: &[Weighted], emission: &mut Emission<'_, '_>) -> bool {
    if planned.effects.path_rewrite.is_some() {
        let reason = "gRPC clients cannot rewrite paths, so the call would reach a different method";
        emission.drops(&planned.id, GrpcFeature::Rewrite, reason);
        return false;
    }
    let nothing = HeaderEdits::default();
    let edits_requests = planned.effects.request_edits != nothing
        || targets.iter().any(|target| *target.request_edits != nothing);
    let edits_responses = planned.effects.response_edits != nothing
        || targets.iter().any(|target| *target.response_edits != nothing);
    let filters = [
        (edits_requests, GrpcFeature::Headers, "RequestHeaderModifier"),
        (edits_responses, GrpcFeature::Headers, "ResponseHeaderModifier"),
        (!planned.effects.mirrors.is_empty(), GrpcFeature::Mirror, "RequestMirror"),
        (planned.effects.host_rewrite.is_some(), GrpcFeature::Rewrite, "URLRewrite"),
        (planned.effects.cors.is_some(), GrpcFeature::Cors, "CORS"),
    ];
    let is_strict = emission.options.is_grpc_strict;
    let mut takes = true;
    for (_, feature, filter) in filters.into_iter().filter(|(is_used, ..)| *is_used) {
        let reason = format!("gRPC clients ignore the filter {filter}");
        match is_strict {
            true => emission.drops(&planned.id, feature, reason),
            false => emission.lacks(&planned.id, feature, reason),
        }
        takes &= !is_strict;
    }
    takes
}

/// The clusters of a route.
///
/// If only weights change in a document, only weights change here: clusters of weight 0 stay, so clients keep their connections (C15).
fn clusters<'p>(
    planned: &PlannedRoute,
    targets: &'p [Weighted],
    emission: &mut Emission<'_, 'p>,
) -> Vec<(&'p str, u64)> {
    let mut clusters: Vec<(&str, u64)> = Vec::new();
    let mut reasons = BTreeSet::new();
    for target in targets {
        let name = match &target.target {
            Target::Backend(backend) => {
                let name = emission.clusters.backend(&backend.name);
                reasons.append(&mut emission.clusters.losses(&backend.name));
                name
            }
            Target::Broken => None,
        };
        let name = name.unwrap_or_else(|| emission.clusters.unavailable());
        let weight = u64::from(target.weight);
        match clusters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += weight,
            None => clusters.push((name, weight)),
        }
    }
    reasons.into_iter().for_each(|(feature, reason)| emission.lacks(&planned.id, feature, reason));
    // Clients reject a route if all weights are 0 (row B113).
    if clusters.iter().all(|(_, weight)| *weight == 0) {
        return nowhere(emission);
    }
    let keeps_sessions =
        planned.effects.session.as_ref().is_some_and(|session| session::loss(session).is_none());
    if clusters.len() > 1 && keeps_sessions && session::keep_drained(&mut clusters) {
        let reason = "gRPC clients keep the sessions of a backend with weight 0 only if it still gets calls, so it gets the \
                      smallest possible share";
        emission.lacks(&planned.id, GrpcFeature::Session, reason);
    }
    clusters
}

/// The cluster without endpoints.
fn nowhere<'p>(emission: &mut Emission<'_, 'p>) -> Vec<(&'p str, u64)> {
    vec![(emission.clusters.unavailable(), 1)]
}

/// Limits and session of a route. Reports those that are lost.
fn forward<'p>(planned: &'p PlannedRoute, emission: &mut Emission<'_, 'p>) -> Forward<'p> {
    let (policy, lost) = planned.effects.retry.as_ref().map(limits::retry_policy).unwrap_or_default();
    let lost_timeout = limits::lost_timeout(&planned.effects.timeouts, policy.is_some());
    lost.into_iter().for_each(|reason| emission.lacks(&planned.id, GrpcFeature::Retry, reason));
    lost_timeout.into_iter().for_each(|reason| emission.lacks(&planned.id, GrpcFeature::Timeout, reason));
    let lost_session = planned.effects.session.as_ref().and_then(session::loss);
    lost_session.into_iter().for_each(|reason| emission.lacks(&planned.id, GrpcFeature::Session, reason));
    let session = planned.effects.session.as_ref().filter(|_| lost_session.is_none());
    Forward { timeouts: &planned.effects.timeouts, retry: planned.effects.retry.as_ref(), session }
}
