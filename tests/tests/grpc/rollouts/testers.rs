//! Header routes: testers reach the canary before anyone else does.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::documents::World;
use xds_tests::rpc::Ask;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Channel, Library};

use crate::rollouts::support::{grpc_route, grpc_world, start, wait_phase};

/// Three ways to be a tester: an exact value and a second header, a prefix, an expression. What is special in an expression is not
/// special in a prefix.
fn header_routes() -> Value {
    json!([
        {"setHeaderRoute": {"name": "exact", "match": [
            {"headerName": "x-canary", "headerValue": {"exact": "yes"}},
            {"headerName": "x-team", "headerValue": {"exact": "web"}},
        ]}},
        {"setHeaderRoute": {"name": "prefix", "match": [
            {"headerName": "x-user", "headerValue": {"prefix": "q.a-"}},
        ]}},
        {"setHeaderRoute": {"name": "regex", "match": [
            {"headerName": "x-build", "headerValue": {"regex": "[0-9]+-(beta|rc)"}},
        ]}},
        {"pause": {}},
    ])
}

/// Headers, and whether they lead to the canary.
const TABLE: [(&[(&str, &str)], bool); 11] = [
    (&[], false),
    (&[("x-canary", "yes"), ("x-team", "web")], true),
    (&[("x-canary", "yes")], false),
    (&[("x-canary", "yes"), ("x-team", "ops")], false),
    (&[("x-canary", "yesyes"), ("x-team", "web")], false),
    (&[("x-user", "q.a-jo")], true),
    (&[("x-user", "q.a-")], true),
    (&[("x-user", "qxa-jo")], false),
    (&[("x-build", "12-rc")], true),
    (&[("x-build", "12-rc1")], false),
    (&[("x-build", "rc")], false),
];

/// Asks as everyone of the table, by way of the Envoy and by the gRPC client.
async fn check(world: &World, channel: Option<&Channel<'_>>, has_header_routes: bool) -> Result<()> {
    for (headers, leads) in TABLE {
        let backend = if leads && has_header_routes { "v2" } else { "v1" };
        let mut ask = Ask::call("greeter.example.com", "/hello.Greeter/Hello");
        let mut calls = Calls::new(20);
        for (name, value) in headers {
            ask = ask.with(name, value);
            calls.metadata.insert((*name).to_owned(), (*value).to_owned());
        }
        world.expect_from("web", &ask, backend).await.with_context(|| format!("{headers:?}"))?;
        let Some(channel) = channel else { continue };
        wait_for("the gRPC client's route", PATIENCE, async || {
            let counts = channel.call(&calls).await?;
            ensure!(counts.n_of(backend) == 20, "{headers:?}: {counts:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn testers_reach_the_canary_at_weight_0_by_their_headers_and_nobody_else_does() -> Result<()> {
    let world = grpc_world().await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let worker = world.worker(Library::Grpcio).await?;
    let channel = match &worker {
        Some(worker) => Some(worker.open("xds:///greeter.example.com").await?),
        None => None,
    };
    let channel = channel.as_ref();
    check(&world, channel, false).await?;
    let rule = "/v1/weights/GRPCRoute/default/web/0";
    let mut steps = header_routes();
    let id = start(&world.server, &json!({"route": grpc_route(), "steps": steps})).await?;
    let paused = wait_phase(&world.server, &id, "Paused", PATIENCE).await?;
    assert_eq!(paused["weights"], json!({"stable": 100, "canary": 0}));
    check(&world, channel, true).await?;
    let held = world.server.get_json(rule).await?;
    assert_eq!(held["headerRoutes"].as_array().map(Vec::len), Some(3), "{held:#}");

    // An abort takes them away.
    world.server.post(&format!("/v1/rollouts/{id}:abort"), &json!({})).await?;
    wait_phase(&world.server, &id, "Aborted", PATIENCE).await?;
    check(&world, channel, false).await?;

    // So does a step without a match, each its own; and so does the end.
    if let Some(steps) = steps.as_array_mut() {
        steps.push(json!({"setHeaderRoute": {"name": "exact"}}));
        steps.push(json!({"pause": {}}));
    }
    let id = start(&world.server, &json!({"route": grpc_route(), "steps": steps})).await?;
    wait_phase(&world.server, &id, "Paused", PATIENCE).await?;
    world.server.post(&format!("/v1/rollouts/{id}:resume"), &json!({})).await?;
    let path = format!("/v1/rollouts/{id}");
    world.server.wait_json(&path, |one| one["step"] == 6 && one["phase"] == "Paused").await?;
    let exact = Ask::call("greeter.example.com", "/hello.Greeter/Hello");
    let exact = exact.with("x-canary", "yes").with("x-team", "web");
    world.expect_from("web", &exact, "v1").await?;
    let prefix = Ask::call("greeter.example.com", "/hello.Greeter/Hello").with("x-user", "q.a-jo");
    world.expect_from("web", &prefix, "v2").await?;
    world.server.post(&format!("{path}:promote"), &json!({})).await?;
    wait_phase(&world.server, &id, "Succeeded", PATIENCE).await?;
    let left = world.server.get_json(rule).await?;
    ensure!(left["headerRoutes"].as_array().is_none_or(Vec::is_empty), "{left:#}");
    assert_eq!(left["backends"], json!({"v1:8080": 0, "v2:8080": 100}));
    world.expect_from("web", &exact, "v2").await?;
    Ok(())
}
