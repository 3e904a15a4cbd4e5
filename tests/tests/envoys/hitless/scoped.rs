//! The same configurations with scoped routes (SRDS): every virtual host has a route configuration of its own, and a scope leads
//! there from the listener and the host of a request.
//!
//! An Envoy uses a scope at once, even before it has the route configuration. Only the filter `on_demand` makes requests wait for it.

use serde_json::{Value, json};
use xds_tests::config;
use xds_tests::load::LISTENER_HEADER;
use xds_tests::transitions::{MORE_HOST, Outside, Scopes, State};

/// The whole configuration.
pub(crate) fn scoped(state: &State, outside: &Outside) -> Vec<Value> {
    let resources = state.for_envoy(outside).into_iter();
    resources.flat_map(|resource| rewrite(resource, state.scopes())).collect()
}

fn rewrite(mut resource: Value, scopes: Scopes) -> Vec<Value> {
    if resource["@type"] == config::LISTENER {
        let manager = manager(&mut resource);
        manager.as_object_mut().map(|manager| manager.remove("rds"));
        manager["scoped_routes"] = scoped_routes();
        add_on_demand(manager);
        return vec![resource];
    }
    if resource["@type"] == config::ROUTE {
        return split(&resource, scopes);
    }
    vec![resource]
}

/// The filter that lets requests wait for their routes.
pub(crate) fn add_on_demand(manager: &mut Value) {
    let on_demand = json!({
        "name": "envoy.filters.http.on_demand",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand"},
    });
    let filters = manager["http_filters"].as_array_mut();
    filters.into_iter().for_each(|filters| filters.insert(0, on_demand.clone()));
}

/// The HTTP connection manager of a listener.
pub(crate) fn manager(listener: &mut Value) -> &mut Value {
    &mut listener["filter_chains"][0]["filters"][0]["typed_config"]
}

fn scoped_routes() -> Value {
    let header = |name: &str| json!({"header_value_extractor": {"name": name, "index": 0}});
    json!({
        "name": "all",
        "scope_key_builder": {"fragments": [header(LISTENER_HEADER), header(":authority")]},
        "rds_config_source": source(),
        "scoped_rds": {"scoped_rds_config_source": source()},
    })
}

/// A route configuration and a scope for each of its virtual hosts, and maybe one more.
fn split(route_config: &Value, scopes: Scopes) -> Vec<Value> {
    let name = route_config["name"].as_str().unwrap_or_default();
    let listener = name.rsplit_once('-').unwrap_or_default().0;
    let mut hosts = route_config["virtual_hosts"].as_array().cloned().unwrap_or_default();
    if scopes.has_more
        && let Some(mut more) = hosts.first().cloned()
    {
        more["name"] = json!(MORE_HOST);
        let routes = more["routes"].as_array_mut();
        routes.into_iter().for_each(|routes| routes.retain(|route| route["match"]["prefix"] == "/"));
        hosts.push(more);
    }
    let of_host = |mut host: Value| {
        let host_name = host["name"].as_str().unwrap_or_default().to_owned();
        let own_name = format!("{name}-{host_name}");
        host["domains"] = json!(["*"]);
        let fragment = |key: &str| json!({"string_key": key});
        let scope = json!({
            "@type": SCOPE,
            "name": format!("{listener}-{host_name}-{}", scopes.name),
            "route_configuration_name": own_name,
            "key": {"fragments": [fragment(listener), fragment(&host_name)]},
        });
        [scope, json!({"@type": config::ROUTE, "name": own_name, "virtual_hosts": [host]})]
    };
    hosts.into_iter().flat_map(of_host).collect()
}

fn source() -> Value {
    json!({"ads": {}, "resource_api_version": "V3"})
}

const SCOPE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
