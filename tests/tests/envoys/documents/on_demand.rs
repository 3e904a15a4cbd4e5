//! Virtual hosts on demand: a Gateway's annotation, real Envoys, and what they do with requests for hosts that they do not have yet.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::rpc::Ask;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};

/// A Gateway that sends virtual hosts in this way.
pub(crate) fn gateway(way: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: web, annotations: \
         {{xds-server.io/virtual-hosts: {way}}}}}\nspec: {{gatewayClassName: xds-server, listeners: [{{name: http, \
         protocol: HTTP, port: {{web}}}}]}}\n---\n"
    )
}

/// A route for a host to the backends `v1` and `v2`.
pub(crate) fn route(name: &str, host: &str, (v1, v2): (u32, u32)) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: ['{host}']\n  rules: [{{backendRefs: [{{name: v1, port: 8080, weight: \
         {v1}}}, {{name: v2, port: 8080, weight: {v2}}}]}}]\n---\n"
    )
}

/// The services `v1` and `v2`, the Gateway, and these routes.
async fn world(way: &str, routes: &[String]) -> Result<World> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    // One file, because a client with the listener asks for a host, and is answered at once if there is no route for it.
    world.write("gateway.yaml", &(gateway(way) + &routes.concat()))?;
    world.server.wait_ready().await?;
    Ok(world)
}

/// The name of the Listener and RouteConfiguration.
pub(crate) fn table(world: &World) -> Result<String> {
    Ok(format!("default/web/{}", world.port("web")?))
}

/// A running Envoy that listens; it asks for no host yet.
async fn listening(world: &World, variant: Variant) -> Result<Envoy> {
    let envoy = Envoy::start(&world.server.bootstrap_envoy("envoy", variant).await?).await?;
    envoy.wait_live().await?;
    envoy.wait_listener(&table(world)?).await?;
    Ok(envoy)
}

/// The domains of the RouteConfiguration as an Envoy has it.
async fn domains(envoy: &Envoy) -> Result<BTreeSet<String>> {
    let dump = envoy.config_dump().await?;
    let mut found = BTreeSet::new();
    collect(&dump.0, &mut found);
    Ok(found)
}

fn collect(json: &Value, domains: &mut BTreeSet<String>) {
    match json {
        Value::Object(fields) => {
            for one in fields.get("domains").and_then(Value::as_array).into_iter().flatten() {
                domains.extend(one.as_str().map(str::to_owned));
            }
            fields.values().for_each(|field| collect(field, domains));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, domains)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub(crate) fn get(host: &str) -> Ask {
    Ask::get(host, "/")
}

/// Gives the backends of a route other weights, and waits for those whom that concerns.
pub(crate) async fn patch(world: &World, name: &str, v1: u32, v2: u32) -> Result<Value> {
    let path = format!("/v1/weights/HTTPRoute/default/{name}/0?wait=acked&timeout=20s");
    let headers = [("content-type", "application/merge-patch+json"), ("if-match", "*")];
    let body = json!({"backends": {"v1:8080": v1, "v2:8080": v2}}).to_string();
    world.server.request("PATCH", &path, &headers, body).await?.success()?.json()
}

/// The state of a type at the only Envoy.
async fn of_type(world: &World, name: &str) -> Result<Value> {
    let node = world.server.get_json("/v1/nodes/envoy").await?;
    let types = node["types"].as_object().with_context(|| format!("no types: {node:#}"))?;
    let found = types.iter().find(|(url, _)| url.ends_with(name));
    Ok(found.map(|(_, status)| status.clone()).unwrap_or_default())
}

#[tokio::test]
async fn a_first_request_waits_for_its_virtual_host_and_is_answered() -> Result<()> {
    let routes = [route("a", "a.example.com", (1, 0)), route("b", "b.example.com", (0, 1))];
    let world = world("on-demand", &routes).await?;
    let envoy = listening(&world, Variant::Delta).await?;
    assert_eq!(domains(&envoy).await?, set(&[]));

    // The first request is answered, for any port and any case of letters.
    world.ask("web", &get("a.example.com")).await?.ensure_from("v1")?;
    assert_eq!(domains(&envoy).await?, set(&["a.example.com"]));
    world.ask("web", &get("B.example.com:8080")).await?.ensure_from("v2")?;
    assert_eq!(domains(&envoy).await?, set(&["a.example.com", "b.example.com"]));
    world.ask("web", &get("b.example.com")).await?.ensure_from("v2")?;

    // A host that no document has is not found; a document that comes later is.
    world.ask("web", &get("c.example.com")).await?.ensure_code(404)?;
    world.write("more.yaml", &route("c", "c.example.com", (1, 0)))?;
    world.expect_from("web", &get("c.example.com"), "v1").await?;
    world.config.remove("more.yaml")?;
    world.expect_code("web", &get("c.example.com"), 404).await?;
    world.ask("web", &get("a.example.com")).await?.ensure_from("v1")?;
    Ok(())
}

#[tokio::test]
async fn a_first_request_with_a_body_is_answered_as_the_docs_say() -> Result<()> {
    let hosts: Vec<String> = (0..8).map(|index| format!("h{index}.example.com")).collect();
    let routes: Vec<String> =
        hosts.iter().enumerate().map(|(index, host)| route(&format!("r{index}"), host, (1, 0))).collect();
    let world = world("on-demand", &routes).await?;
    let _envoy = listening(&world, Variant::Delta).await?;
    let post = |host: &str, n: usize| get(host).method(Method::POST).with_body(vec![b'x'; n]);
    for (host, n) in hosts.iter().zip([1, 1_000, 100_000, 1_000_000, 4_000_000]) {
        // Older Envoys answered 404 (envoy#17891).
        world.ask("web", &post(host, n)).await?.ensure_from("v1")?;
    }
    Ok(())
}

#[tokio::test]
async fn hosts_below_a_wildcard_are_served_right_because_nothing_is_on_demand_then() -> Result<()> {
    let exact = route("exact", "a.example.com", (1, 0));
    let world = world("on-demand", &[exact]).await?;
    let envoy = listening(&world, Variant::Delta).await?;
    world.write("wild.yaml", &route("wild", "*.example.com", (0, 1)))?;
    // With the wildcard alone the Envoy would never ask for the exact host. It is not asked before it has the wildcard: see the docs.
    wait_for("all hosts", PATIENCE, async || {
        let domains = domains(&envoy).await?;
        ensure!(domains == set(&["*.example.com", "a.example.com"]), "{domains:?}");
        Ok(())
    })
    .await?;
    world.ask("web", &get("x.example.com")).await?.ensure_from("v2")?;
    world.ask("web", &get("a.example.com")).await?.ensure_from("v1")?;
    let files = world.server.get_json("/v1/status/files").await?.to_string();
    ensure!(files.contains("not-on-demand"), "{files}");

    world.config.remove("wild.yaml")?;
    wait_for("nothing but what is asked for", PATIENCE, async || {
        let domains = domains(&envoy).await?;
        ensure!(domains.is_empty(), "{domains:?}");
        Ok(())
    })
    .await?;
    world.ask("web", &get("a.example.com")).await?.ensure_from("v1")?;
    world.ask("web", &get("y.example.com")).await?.ensure_code(404)?;
    assert_eq!(domains(&envoy).await?, set(&["a.example.com"]));
    Ok(())
}

#[tokio::test]
async fn a_change_of_weights_is_waited_for_by_those_who_asked_for_the_host() -> Result<()> {
    let routes = [route("a", "a.example.com", (1, 0)), route("b", "b.example.com", (1, 0))];
    let world = world("on-demand", &routes).await?;
    let _envoy = listening(&world, Variant::Delta).await?;
    world.ask("web", &get("a.example.com")).await?.ensure_from("v1")?;
    let routes_before = of_type(&world, "RouteConfiguration").await?;

    let answer = patch(&world, "a", 0, 1).await?;

    assert_eq!((&answer["total"], &answer["acked"]), (&1.into(), &1.into()), "{answer:#}");
    world.ask("web", &get("a.example.com")).await?.ensure_from("v2")?;
    // No client has asked for this one, so there is no ACK to wait for.
    let answer = patch(&world, "b", 0, 1).await?;
    assert_eq!((&answer["total"], &answer["pending"]), (&0.into(), &json!([])), "{answer:#}");
    world.ask("web", &get("b.example.com")).await?.ensure_from("v2")?;
    let routes_after = of_type(&world, "RouteConfiguration").await?;
    assert_eq!(routes_after["versionAcked"], routes_before["versionAcked"], "{routes_after:#}");
    Ok(())
}

#[tokio::test]
async fn a_rollout_waits_for_those_who_asked_for_the_host() -> Result<()> {
    let world = world("on-demand", &[route("a", "a.example.com", (1, 0))]).await?;
    let _envoy = listening(&world, Variant::Delta).await?;
    world.ask("web", &get("a.example.com")).await?.ensure_from("v1")?;
    let rollout = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "a", "rule": "0"},
        "stable": "v1:8080", "canary": "v2:8080",
        "steps": [{"setWeight": 100}, {"pause": {}}], "autoPromote": true,
    });
    let headers = [("content-type", "application/json")];
    let answer =
        world.server.request("POST", "/v1/rollouts", &headers, rollout.to_string()).await?.success()?;
    let path = answer.header("location").to_owned();
    let paused = world.server.wait_json(&path, |one| one["phase"] == "Paused").await?;
    assert_eq!(paused["acked"], json!({"n": 1, "of": 1, "nacked": 0}), "{paused:#}");
    world.ask("web", &get("a.example.com")).await?.ensure_from("v2")
}

#[tokio::test]
async fn an_envoy_without_incremental_says_that_it_cannot_and_keeps_what_it_has() -> Result<()> {
    let world = world("all", &[route("a", "a.example.com", (1, 0))]).await?;
    let envoy = listening(&world, Variant::Sotw).await?;
    world.expect_from("web", &get("a.example.com"), "v1").await?;
    let rejected = async || {
        let routes = of_type(&world, "RouteConfiguration").await?;
        let text = routes.to_string();
        ensure!(text.contains("DELTA_GRPC"), "{routes:#}");
        Ok(routes)
    };
    let body = world.filled(&gateway("on-demand"));
    let headers = [("content-type", "application/yaml")];
    let answer = world.server.request("POST", "/v1/apply?wait=acked&timeout=20s", &headers, body).await?;
    let routes = wait_for("the rejection", PATIENCE, rejected).await?;
    // A caller that waits for the ACK of the change learns of it.
    assert_eq!(answer.status, StatusCode::FAILED_DEPENDENCY, "{}", answer.text());
    assert_eq!(routes["status"], "ERROR", "{routes:#}");
    // It goes on with the routes that it has; one that starts now has none.
    world.expect_from("web", &get("a.example.com"), "v1").await?;
    drop(envoy);
    let _envoy = world.envoy(Variant::Sotw).await?;
    wait_for("the rejection", PATIENCE, rejected).await?;
    world.expect_code("web", &get("a.example.com"), 404).await?;
    Ok(())
}
