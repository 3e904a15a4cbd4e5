//! The same configurations with virtual hosts on demand (VHDS): route configurations have none, and an Envoy asks for the one of a
//! host when the first request for it comes.

use serde_json::{Value, json};
use xds_tests::config;
use xds_tests::transitions::HOSTS;

use crate::hitless::scoped::{add_on_demand, manager};

/// Rewrites what [`State::for_envoy`](xds_tests::transitions::State::for_envoy) gives.
pub(crate) fn on_demand(resources: Vec<Value>) -> Vec<Value> {
    resources.into_iter().flat_map(rewrite).collect()
}

fn rewrite(mut resource: Value) -> Vec<Value> {
    if resource["@type"] == config::LISTENER {
        add_on_demand(manager(&mut resource));
        return vec![resource];
    }
    if resource["@type"] == config::ROUTE {
        return split(&resource);
    }
    vec![resource]
}

/// A route configuration without virtual hosts, and these.
fn split(route_config: &Value) -> Vec<Value> {
    let name = route_config["name"].as_str().unwrap_or_default();
    let source = json!({"ads": {}, "resource_api_version": "V3"});
    let rest = json!({"@type": config::ROUTE, "name": name, "vhds": {"config_source": source}});
    let hosts = route_config["virtual_hosts"].as_array().into_iter().flatten().zip(HOSTS);
    let hosts = hosts.map(|(host, domain)| {
        let mut host = host.clone();
        host["@type"] = json!(VIRTUAL_HOST);
        host["name"] = json!(format!("{name}/{domain}"));
        host["domains"] = json!([domain]);
        host
    });
    [rest].into_iter().chain(hosts).collect()
}

const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
