//! HTTP filters, their overrides in routes, and changes of headers, which need no filter.

use serde_json::{Map, Value as Json, json};

use super::parts::HostContext;
use super::session;
use crate::emit::shared::{STATEFUL_SESSION, http_filter, quote, router, type_of, with};
use crate::model::{Cors, HeaderEdits};
use crate::plan::PlannedRoute;

/// The filters of a listener, the router last. The others have no effect except on routes that override them. They are always there,
/// because adding one later would change the listener, and a changed listener drains its connections.
///
/// If hosts come on demand, the filter that waits for them comes first, because the others need the route.
pub(super) fn http_filters(is_on_demand: bool) -> Vec<Json> {
    let on_demand = is_on_demand.then(|| {
        http_filter("envoy.filters.http.on_demand", "extensions.filters.http.on_demand.v3.OnDemand")
    });
    let others = [
        http_filter(CORS, "extensions.filters.http.cors.v3.Cors"),
        http_filter(STATEFUL_SESSION, "extensions.filters.http.stateful_session.v3.StatefulSession"),
        router(),
    ];
    on_demand.into_iter().chain(others).collect()
}

/// The overrides of a route for filters, by their names.
pub(super) fn overrides(host: &HostContext<'_>, route: &PlannedRoute) -> Option<Json> {
    let mut overrides = Map::new();
    if let Some(cors) = &route.effects.cors {
        overrides.insert(CORS.to_owned(), cors_policy(cors));
    }
    if let Some(session) = &route.effects.session {
        overrides.insert(STATEFUL_SESSION.to_owned(), session::per_route(session, host.frame.port.is_tls));
    }
    (!overrides.is_empty()).then_some(Json::Object(overrides))
}

fn cors_policy(cors: &Cors) -> Json {
    let origins: Vec<Json> = cors.allow_origins.iter().map(|origin| allowed_origin(origin)).collect();
    let mut policy = json!({
        "@type": type_of("extensions.filters.http.cors.v3.CorsPolicy"),
        "allow_origin_string_match": origins,
        "allow_credentials": cors.allow_credentials,
        "max_age": cors.max_age_seconds.to_string(),
    });
    let lists = [
        ("allow_methods", &cors.allow_methods),
        ("allow_headers", &cors.allow_headers),
        ("expose_headers", &cors.expose_headers),
    ];
    for (field, values) in lists.into_iter().filter(|(_, values)| !values.is_empty()) {
        policy = with(policy, field, values.join(", "));
    }
    policy
}

fn allowed_origin(origin: &str) -> Json {
    match origin {
        "*" => json!({"safe_regex": {"regex": ".*"}}),
        origin if origin.contains('*') => {
            let parts: Vec<String> = origin.split('*').map(quote).collect();
            // A wildcard may stand for several labels, but not for `/`, which ends the host.
            json!({"safe_regex": {"regex": parts.join("[^/]+")}})
        }
        origin => json!({"exact": origin}),
    }
}

/// The fields of a route or of a cluster's weight that change headers.
pub(super) fn edits(request: &HeaderEdits, response: &HeaderEdits) -> Vec<(&'static str, Json)> {
    let fields = [
        ("request_headers_to_add", additions(request)),
        ("request_headers_to_remove", removals(request)),
        ("response_headers_to_add", additions(response)),
        ("response_headers_to_remove", removals(response)),
    ];
    fields
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(field, values)| (field, values.into()))
        .collect()
}

/// Joins two lists of changes that apply one after the other. Within one list Envoys remove headers before they set and add others,
/// so a header that `second` removes is taken out of `first`.
pub(super) fn then(first: &HeaderEdits, second: &HeaderEdits) -> HeaderEdits {
    let stays = |(name, _): &&(String, String)| {
        let touched = second.remove.iter().chain(second.set.iter().map(|(name, _)| name));
        !touched.into_iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    let kept = |headers: &[(String, String)]| headers.iter().filter(stays).cloned().collect::<Vec<_>>();
    HeaderEdits {
        set: [kept(&first.set), second.set.clone()].concat(),
        add: [kept(&first.add), second.add.clone()].concat(),
        remove: [first.remove.clone(), second.remove.clone()].concat(),
    }
}

/// The host that changes of the request's headers set. Envoys reject `host` as a header.
pub(super) fn new_host(request: &HeaderEdits) -> Option<&str> {
    request.set.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.as_str())
}

fn additions(edits: &HeaderEdits) -> Vec<Json> {
    let set = edits.set.iter().map(|header| (header, "OVERWRITE_IF_EXISTS_OR_ADD"));
    let add = edits.add.iter().map(|header| (header, "APPEND_IF_EXISTS_OR_ADD"));
    let editable = set.chain(add).filter(|((name, _), _)| is_editable(name));
    editable.map(|((name, value), append_action)| addition(name, value, append_action)).collect()
}

fn removals(edits: &HeaderEdits) -> Vec<Json> {
    edits.remove.iter().filter(|name| is_editable(name)).map(|name| name.as_str().into()).collect()
}

/// A `HeaderValueOption`. The value is literal: `%` is escaped, because it begins a command of Envoy.
pub(super) fn addition(name: &str, value: &str, append_action: &str) -> Json {
    let option = json!({
        "header": {"key": name, "value": value.replace('%', "%%")},
        "append_action": append_action,
    });
    // By default, Envoy does not send an empty header.
    if value.is_empty() { with(option, "keep_empty_value", true) } else { option }
}

/// Returns `false` for the host and pseudo-headers: Envoys reject a RouteConfiguration that changes these as headers.
fn is_editable(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(':') && !name.eq_ignore_ascii_case("host")
}

const CORS: &str = "envoy.filters.http.cors";
