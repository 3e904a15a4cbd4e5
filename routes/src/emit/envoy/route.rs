//! RouteConfigurations, their virtual hosts and routes.

use serde_json::{Value as Json, json};

use super::draws::{self, Draws};
use super::parts::HostContext;
use super::{action, filters, matcher, path, session};
use crate::emit::shared::{ads, type_of, with};
use crate::plan::{Action, PlannedRoute, Weighted};

/// A RouteConfiguration of this name without its virtual hosts. If `is_on_demand`, Envoys ask for these one by one.
pub(super) fn configuration((name, is_on_demand): &(String, bool)) -> Json {
    let configuration = json!({
        "@type": type_of("config.route.v3.RouteConfiguration"),
        "name": name,
        // Clusters may arrive later than routes. With validation, Envoys would reject the routes.
        "validate_clusters": false,
        // Clients may send the host with or without its port.
        "ignore_port_in_host_matching": true,
    });
    if *is_on_demand { with(configuration, "vhds", json!({"config_source": ads()})) } else { configuration }
}

/// A virtual host.
pub(super) fn virtual_host(host: &HostContext<'_>) -> Json {
    let misdirected =
        host.frame.is_misdirected.then(|| json!({"name": "misdirected", "match": {"prefix": "/", "case_sensitive": true}, "direct_response": {"status": 421}}));
    let draws = draws::of(host.routes);
    let routes = host.routes.iter().zip(&draws).flat_map(|(route, draws)| routes(host, route, draws));
    let routes: Vec<Json> = routes.chain(misdirected).collect();
    let of_type = type_of("config.route.v3.VirtualHost");
    let written = json!({"@type": of_type, "name": host.frame.name, "domains": host.frame.domains});
    if routes.is_empty() { written } else { with(written, "routes", routes) }
}

/// The routes for a planned route. The last one is general; those before it are for special cases.
fn routes(host: &HostContext<'_>, route: &PlannedRoute, draws: &Draws) -> Vec<Json> {
    let name = route.id.to_string();
    match &route.action {
        Action::Forward(targets) => forwards(host, route, draws, targets),
        Action::Redirect(redirect) => {
            let port = path::redirect_port(host, redirect);
            let to = |port| ("redirect", path::redirect(&route.matches, redirect, port));
            let displacing = port.displacing.map(|port| {
                let with_port = matcher::header_regex(":authority", ".*:[0-9]+");
                entry((host, draws), route, format!("{name}/port"), vec![with_port], to(Some(port)))
            });
            let plain = entry((host, draws), route, name, Vec::new(), to(port.written));
            displacing.into_iter().chain([plain]).collect()
        }
        Action::Fail => {
            vec![entry((host, draws), route, name, Vec::new(), ("direct_response", action::failure(route)))]
        }
    }
}

/// The routes that keep sessions with their backends, followed by the one that forwards all other requests.
fn forwards(host: &HostContext<'_>, route: &PlannedRoute, draws: &Draws, targets: &[Weighted]) -> Vec<Json> {
    let mut entries = Vec::new();
    for pin in session::pins_of(host, route, targets) {
        // Existing sessions stay, whatever the weight, even 0 (GEP-1619).
        let target = Weighted { weight: 1, ..pin.target.clone() };
        let action = ("route", action::forward(route, &[target], draws, None));
        entries.push(entry(
            (host, draws),
            route,
            format!("{}/session/{}", route.id, pin.name),
            vec![pin.header],
            action,
        ));
    }
    let marks = session::Marks::new(host, route);
    let action = ("route", action::forward(route, targets, draws, marks.as_ref()));
    entries.push(entry((host, draws), route, route.id.to_string(), Vec::new(), action));
    entries
}

fn entry(
    (host, draws): (&HostContext<'_>, &Draws),
    route: &PlannedRoute,
    name: String,
    headers: Vec<Json>,
    (action_field, action): (&str, Json),
) -> Json {
    let matches = matcher::route_match(host, route, draws, headers);
    let mut entry = json!({"name": name, "match": matches, action_field: action});
    if !action::edits_shares(route) {
        for (field, value) in filters::edits(&route.effects.request_edits, &route.effects.response_edits) {
            entry = with(entry, field, value);
        }
    }
    match filters::overrides(host, route) {
        Some(overrides) => with(entry, "typed_per_filter_config", overrides),
        None => entry,
    }
}
