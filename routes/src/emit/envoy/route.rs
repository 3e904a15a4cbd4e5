//! RouteConfigurations, their virtual hosts and routes.

use serde_json::{Value as Json, json};

use super::{Hosts, Scene, Table, action, filters, matcher, session};
use crate::emit::shared::{type_of, with};
use crate::plan::{Action, PlannedRoute, Weighted};

/// A RouteConfiguration.
pub(super) fn configuration(scene: &Scene<'_>, table: &Table<'_>) -> Json {
    let hosts: Vec<Json> = table.hosts.iter().map(|hosts| virtual_host(scene, hosts)).collect();
    json!({
        "@type": type_of("config.route.v3.RouteConfiguration"),
        "name": table.name,
        "virtual_hosts": hosts,
        // Clusters may arrive later than routes; refusing the routes for it would keep the old ones (§1.11).
        "validate_clusters": false,
        // A client may write the port behind the host or not (C44).
        "ignore_port_in_host_matching": true,
        // The filters of a backend are applied after those of its rule, so they have the last word.
        "most_specific_header_mutations_wins": true,
    })
}

fn virtual_host(scene: &Scene<'_>, hosts: &Hosts<'_>) -> Json {
    let routes: Vec<Json> = hosts.routes.iter().flat_map(|route| routes(scene, route)).collect();
    let host = json!({"name": hosts.name, "domains": hosts.domains});
    if routes.is_empty() { host } else { with(host, "routes", routes) }
}

/// A route, after those that keep sessions with their backends.
fn routes(scene: &Scene<'_>, route: &PlannedRoute) -> Vec<Json> {
    let Action::Forward(targets) = &route.action else {
        return vec![entry(scene, route, route.id.to_string(), Vec::new(), action::ending(scene, route))];
    };
    let mut entries = Vec::new();
    for pin in session::pins(scene.plan, route, targets) {
        // The weight says nothing about sessions that exist: they stay, also at weight 0 (GEP-1619).
        let target = Weighted { weight: 1, ..pin.target.clone() };
        let action = ("route", action::forward(scene, route, &[target], None));
        entries.push(entry(
            scene,
            route,
            format!("{}/session/{}", route.id, pin.name),
            vec![pin.header],
            action,
        ));
    }
    let marks = session::Marks::new(scene, route, targets);
    let action = ("route", action::forward(scene, route, targets, marks.as_ref()));
    entries.push(entry(scene, route, route.id.to_string(), Vec::new(), action));
    entries
}

fn entry(
    scene: &Scene<'_>,
    route: &PlannedRoute,
    name: String,
    headers: Vec<Json>,
    (action_field, action): (&str, Json),
) -> Json {
    let matches = matcher::route_match(scene, route, headers);
    let mut entry = json!({"name": name, "match": matches, action_field: action});
    for (field, value) in filters::edits(&route.request_edits, &route.response_edits) {
        entry = with(entry, field, value);
    }
    match filters::overrides(scene, route) {
        Some(overrides) => with(entry, "typed_per_filter_config", overrides),
        None => entry,
    }
}
