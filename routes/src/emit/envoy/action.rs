//! The actions of routes.

use serde_json::{Map, Value as Json, json};

use super::draws::Draws;
use super::{cluster, filters, limits, path, session};
use crate::emit::shared::UNAVAILABLE;
use crate::model::HeaderEdits;
use crate::plan::{Action, Mirror, PlannedRoute, Target, Weighted};

/// A `DirectResponseAction` for requests that fail. For gRPC, Envoys turn 503 into UNAVAILABLE, but 500 into UNKNOWN.
pub(super) fn failure(route: &PlannedRoute) -> Json {
    json!({"status": if route.is_grpc { 503 } else { 500 }})
}

/// A `RouteAction` that sends requests to the targets by weight, and marks new sessions with their backend.
pub(super) fn forward(
    route: &PlannedRoute,
    targets: &[Weighted],
    draws: &Draws,
    marks: Option<&session::Marks<'_>>,
) -> Json {
    let mut action = Map::new();
    let mut shares = shares(route, targets, marks);
    draws.scale(shares.iter_mut().map(|share| &mut share.weight));
    let (specifier, value) = match shares.as_slice() {
        [share] if share.fields.is_empty() => ("cluster", share.name.as_str().into()),
        _ => {
            let entries: Vec<Json> = shares.into_iter().map(Share::into_json).collect();
            ("weighted_clusters", json!({"clusters": entries}))
        }
    };
    action.insert(specifier.to_owned(), value);
    if !route.is_grpc && targets.iter().any(|weighted| weighted.target == Target::Broken) {
        action.insert("cluster_not_found_response_code".to_owned(), "INTERNAL_SERVER_ERROR".into());
    }
    let path = route.effects.path_rewrite.as_ref().and_then(|rewrite| path::rewrite(&route.matches, rewrite));
    action.extend(path.map(|(field, value)| (field.to_owned(), value)));
    if let Some(host) = rule_host(route).filter(|_| !has_hosts(targets)) {
        action.insert("host_rewrite_literal".to_owned(), host.into());
        action.insert("append_x_forwarded_host".to_owned(), true.into());
    }
    action.extend(limits::timeouts(route).into_iter().map(|(field, value)| (field.to_owned(), value)));
    if let Some(retry) = &route.effects.retry {
        action.insert("retry_policy".to_owned(), limits::retry_policy(route, retry));
    }
    if !route.effects.mirrors.is_empty() {
        let mirrors: Vec<Json> = route
            .effects
            .mirrors
            .iter()
            .enumerate()
            .map(|(index, to)| mirror(to, draws.mirror(index)))
            .collect();
        action.insert("request_mirror_policies".to_owned(), mirrors.into());
    }
    Json::Object(action)
}

/// A cluster's share of the requests.
struct Share {
    name: String,
    weight: u32,
    /// The other fields of a `ClusterWeight`.
    fields: Map<String, Json>,
}

impl Share {
    fn into_json(mut self) -> Json {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), self.name.as_str().into());
        entry.insert("weight".to_owned(), self.weight.into());
        entry.append(&mut self.fields);
        Json::Object(entry)
    }
}

/// Returns `true` if all changes of headers, also those of the rule, are written for each share. Envoys apply the changes of a share
/// first, but the filters of a backend must come after those of its rule.
pub(super) fn edits_shares(route: &PlannedRoute) -> bool {
    let is_edited = |weighted: &Weighted| {
        let none = HeaderEdits::default();
        *weighted.request_edits != none || *weighted.response_edits != none
    };
    match &route.action {
        Action::Forward(targets) => targets.iter().any(is_edited),
        Action::Redirect(_) | Action::Fail => false,
    }
}

/// The new host that a rule sets.
fn rule_host(route: &PlannedRoute) -> Option<&str> {
    route.effects.host_rewrite.as_deref().or_else(|| filters::new_host(&route.effects.request_edits))
}

/// Returns `true` if a share sets a host of its own. Then the rule's host is written for each share too, because Envoys would use that
/// of the route for all shares.
fn has_hosts(targets: &[Weighted]) -> bool {
    targets.iter().any(|weighted| filters::new_host(&weighted.request_edits).is_some())
}

/// The shares in the order of the document. All broken references together are one share, with the sum of their weights, whose
/// requests fail.
fn shares(route: &PlannedRoute, targets: &[Weighted], marks: Option<&session::Marks<'_>>) -> Vec<Share> {
    let broken = if route.is_grpc { UNAVAILABLE } else { ERROR };
    let mut shares: Vec<Share> = Vec::new();
    for weighted in targets {
        let Target::Backend(backend) = &weighted.target else {
            match shares.iter_mut().find(|share| share.name == broken) {
                Some(share) => share.weight = share.weight.saturating_add(weighted.weight),
                None => shares.push(Share {
                    name: broken.to_owned(),
                    weight: weighted.weight,
                    fields: Map::new(),
                }),
            }
            continue;
        };
        let name = cluster::name(backend);
        let (mut request_edits, mut response_edits) =
            ((*weighted.request_edits).clone(), (*weighted.response_edits).clone());
        if edits_shares(route) {
            request_edits = filters::then(&route.effects.request_edits, &request_edits);
            response_edits = filters::then(&route.effects.response_edits, &response_edits);
        }
        response_edits.add.extend(marks.map(|marks| marks.set_cookie(&name)));
        let edits = filters::edits(&request_edits, &response_edits).into_iter();
        let mut fields: Map<String, Json> = edits.map(|(field, value)| (field.to_owned(), value)).collect();
        let own_host = filters::new_host(&weighted.request_edits);
        if let Some(host) = own_host.or_else(|| rule_host(route).filter(|_| has_hosts(targets))) {
            fields.insert("host_rewrite_literal".to_owned(), host.into());
        }
        shares.push(Share { name, weight: weighted.weight, fields });
    }
    shares
}

/// A `RequestMirrorPolicy`.
fn mirror(mirror: &Mirror, share: Option<Json>) -> Json {
    let mut policy = Map::new();
    policy.insert("cluster".to_owned(), cluster::name(&mirror.backend).into());
    if let Some(share) = share {
        policy.insert("runtime_fraction".to_owned(), share);
    }
    // The mirrored request keeps its host; by default it would be `host-shadow`.
    policy.insert("disable_shadow_host_suffix_append".to_owned(), true.into());
    Json::Object(policy)
}

/// The name of a cluster that does not exist. Requests to it fail with the route's status, 500.
pub(super) const ERROR: &str = "xds-server/error";
