//! `validate` tells parts that can never act, or act otherwise than they look.

use anyhow::{Result, ensure};
use xds_tests::server::xds_server;

const MANAGER: &str = "[{ name: http, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, \
    stat_prefix: edge, rds: { route_config_name: table, config_source: { ads: {} } }, \
    http_filters: [{ name: router, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }] } }]";

const RESOURCES: &str = "\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: edge
address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
filter_chains:
- filter_chain_match: { destination_port: 10000 }
  filters: MANAGER
- filter_chain_match: { server_names: [a.test] }
  filters: MANAGER
---
\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: table
ignore_port_in_host_matching: true
virtual_hosts:
- name: a
  domains: [\"a.test:80\", \"a.test\"]
  routes:
  - match: { prefix: /cart }
    route: { cluster: one }
  - match: { path: /cart/pay }
    route: { cluster: two }
  - match:
      prefix: /x
      headers:
      - { name: \":method\", string_match: { exact: GET } }
      - { name: \":method\", string_match: { exact: POST } }
    route: { cluster: two }
  - match: { prefix: /w, runtime_fraction: { default_value: { numerator: 10 } } }
    route: { weighted_clusters: { clusters: [{ name: one, weight: 50 }, { name: two, weight: 50 }] } }
  - match: { prefix: /t }
    route: { cluster: one, timeout: 5s, max_stream_duration: { max_stream_duration: 10s } }
  - match: { prefix: / }
    route: { cluster: one }
---
{ \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: one, type: STATIC }
---
{ \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: two, type: STATIC }
";

/// The rule of `shared` acts at one of its two hosts; that of `hidden` at none.
const RULES: &str = "version: xds-server/v1
listeners: {edge: {port: 10000}}
backends: {one: 127.0.0.1:81, two: 127.0.0.1:82}
routes:
  first: {hosts: [a.test], rules: [{match: {prefix: /x}, to: one}]}
  shared: {hosts: [a.test, b.test], rules: [{match: {prefix: /x}, to: two}]}
  hidden: {hosts: [a.test], rules: [{match: {prefix: /x}, to: two}]}
";

/// Envoys and gRPC clients with the same routes. The gRPC clients have a filter for the override of the first route, and nobody has one for
/// that of the second. `one` has a fallback.
const BOTH: &str = "\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: edge
address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
filter_chains: [{ filters: MANAGER }]
---
\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: a.test
api_listener:
  api_listener:
    \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
    stat_prefix: a
    rds: { route_config_name: table, config_source: { ads: {} } }
    http_filters:
    - { name: fault, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault } }
    - { name: router, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }
---
\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: table
virtual_hosts:
- name: a
  domains: [a.test]
  routes:
  - match: { prefix: /beta.Api/, headers: [{ name: X-Beta, string_match: { exact: \"on\" } }] }
    route: { cluster: two }
    typed_per_filter_config:
      fault: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault }
  - match: { path: /beta.Api/Pay }
    route: { cluster: one }
    typed_per_filter_config:
      delay: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault }
  - match: { prefix: \"\" }
    route: { cluster: one }
---
\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: one
type: EDS
eds_cluster_config: { eds_config: { ads: {} } }
---
\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: one
endpoints:
- priority: 0
  load_balancing_weight: 1
  locality: { zone: a }
  lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 81 } } } }]
- priority: 1
  load_balancing_weight: 1
  locality: { zone: b }
  lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 82 } } } }]
---
\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: two
type: EDS
eds_cluster_config: { eds_config: { ads: {} } }
---
\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: two
endpoints:
- load_balancing_weight: 1
  locality: { zone: a }
  lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 83 } } } }]
";

fn both() -> String {
    BOTH.replace("MANAGER", MANAGER)
}

async fn validate(text: &str, args: &[&str]) -> Result<(Option<i32>, String)> {
    validate_for("envoy", text, args).await
}

async fn validate_for(target: &str, text: &str, args: &[&str]) -> Result<(Option<i32>, String)> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("a.yaml"), text)?;
    let mut command = xds_server().await?;
    let args = [&["validate", "a.yaml", "--target", target], args].concat();
    let output = command.args(args).current_dir(dir.path()).output().await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

#[tokio::test]
async fn parts_that_never_act_are_warnings_with_their_lines() -> Result<()> {
    let (code, text) = validate(&RESOURCES.replace("MANAGER", MANAGER), &[]).await?;
    for wanted in [
        "a.yaml:7:1: warning[unreachable-chain] no connection reaches the filter chain",
        "a.yaml:15:1: warning[unreachable-domain] no host reaches \"a.test:80\"",
        "a.yaml:19:1: warning[shadowed-route] no request reaches the route, because of the route 1 (prefix \"/cart\") before it (see a.yaml:17:1)",
        "a.yaml:21:1: warning[never-matches] no request fulfils the conditions of the route",
        "a.yaml:27:1: warning[weight-never-applies] the cluster \"two\" has a weight and gets no request",
        "a.yaml:29:1: warning[timeout-off] the timeout has no effect",
    ] {
        ensure!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert_eq!(code, Some(0), "{text}");
    Ok(())
}

#[tokio::test]
async fn they_are_errors_if_the_check_is_strict() -> Result<()> {
    let (code, text) = validate(&RESOURCES.replace("MANAGER", MANAGER), &["--strict"]).await?;
    ensure!(code == Some(1) && text.contains("error[shadowed-route]"), "{code:?} {text}");
    Ok(())
}

#[tokio::test]
async fn a_rule_that_acts_at_one_of_its_hosts_is_none_of_them() -> Result<()> {
    let (code, text) = validate(RULES, &[]).await?;
    assert_eq!(code, Some(0), "{text}");
    ensure!(text.matches("warning[shadowed-route]").count() == 1 && text.contains("a.yaml:7:"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_override_that_acts_for_some_clients_is_none_of_them() -> Result<()> {
    let (code, text) = validate_for("all", &both(), &[]).await?;
    assert_eq!(code, Some(0), "{text}");
    let wanted = "a.yaml:30:1: warning[unused-override] no listener that uses these routes has an HTTP filter \"delay\", so the override does nothing";
    ensure!(text.contains(wanted) && text.matches("[unused-override]").count() == 1, "{text}");
    let (_, text) = validate_for("envoy", &both(), &[]).await?;
    ensure!(text.matches("[unused-override]").count() == 2, "only Envoys are checked\n{text}");
    Ok(())
}

#[tokio::test]
async fn notes_tell_what_is_often_meant_if_all_of_it_is_asked_for() -> Result<()> {
    let often = ["partly-shadowed", "only-when-unhealthy", "differs-between-clients"];
    let (_, text) = validate_for("all", &both(), &[]).await?;
    ensure!(!often.iter().any(|code| text.contains(code)), "{text}");
    let clean = both().replace("delay:", "fault:");
    let (code, text) = validate_for("all", &clean, &["--lint", "all", "--strict"]).await?;
    for wanted in [
        "a.yaml:27:1: info[partly-shadowed] the route 1 (prefix \"/beta.Api/\") before it takes requests of this exact path that fulfil its conditions, such as",
        "info[only-when-unhealthy] the priority 1 of the cluster \"one\" gets requests only while the priority 0 is not healthy",
        "info[differs-between-clients] call of beta.Api/a at xds:///a.test, header x-beta: \"on\": to two with envoy@1.40, to one with grpc-core@1.85",
    ] {
        ensure!(text.contains(wanted), "{wanted}\n{text}");
    }
    ensure!(!often.iter().any(|code| text.contains(&format!("error[{code}]"))), "{code:?} {text}");
    Ok(())
}

#[tokio::test]
async fn a_rule_that_acts_at_one_of_its_hosts_is_partly_shadowed_at_the_other() -> Result<()> {
    let (code, text) = validate(RULES, &["--lint", "all"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let wanted =
        "info[partly-shadowed] the rule acts elsewhere, but no request reaches it at a.test with the path";
    ensure!(text.contains(wanted) && text.matches("[partly-shadowed]").count() == 1, "{text}");
    Ok(())
}
