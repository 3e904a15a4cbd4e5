//! The canary: weights over REST move the traffic of real clients, step by step, without a failed request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use xds_tests::documents::World;
use xds_tests::http::Answer;
use xds_tests::raw::{self, DeltaStream, SotwStream, path};
use xds_tests::rpc::Ask;
use xds_tests::server::{Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Channel, Library};

const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const RULE: &str = "/v1/weights/GRPCRoute/default/greeter/0";

/// The steps of a canary: the weights of v1 and v2. That of v3 stays what it is.
const STEPS: [(u64, u64); 4] = [(100, 0), (90, 10), (50, 50), (0, 100)];
const V3: u64 = 25;

/// How many requests are measured at each step.
fn n_requests() -> Result<u32> {
    match std::env::var("XDS_CANARY_REQUESTS") {
        Ok(text) => text.parse().context("XDS_CANARY_REQUESTS"),
        Err(_) => Ok(2_000),
    }
}

fn documents() -> String {
    "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web}\nspec:\n  \
     gatewayClassName: xds-server\n  listeners: [{name: http, protocol: HTTP, port: {web}}]\n---\n\
     apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: greeter}\nspec:\n  \
     parentRefs: [{name: web}]\n  hostnames: [greeter.example.com]\n  rules:\n  - backendRefs: \
     [{name: v1, port: 8080, weight: 100}, {name: v2, port: 8080, weight: 0}, {name: v3, port: 8080, weight: 25}]\n"
        .to_owned()
}

async fn world() -> Result<World> {
    let mut world = World::start_with(Setup::new()?.fixed_xds_port()?, &["v1", "v2", "v3"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &documents())?;
    wait_for("the route", PATIENCE, async || world.server.get(RULE).await?.success()).await?;
    Ok(world)
}

/// Changes weights as a script does: reads the entity tag, then patches with it.
async fn patch(world: &World, query: &str, (v1, v2): (u64, u64)) -> Result<Answer> {
    let seen = world.server.get(RULE).await?.success()?;
    let tag = seen.header("etag").to_owned();
    let body = json!({"backends": {"v1:8080": v1, "v2:8080": v2}}).to_string();
    let headers = [MERGE, ("if-match", tag.as_str())];
    world.server.request("PATCH", &format!("{RULE}{query}"), &headers, body).await
}

/// Patches, and waits until every client has it.
async fn step(world: &World, weights: (u64, u64)) -> Result<()> {
    let answer = patch(world, "?wait=acked&timeout=30s", weights).await?;
    ensure!(answer.status == StatusCode::OK, "{}", answer.text());
    Ok(())
}

/// How many requests each backend answered.
type Shares = BTreeMap<String, u64>;

/// Compares what was measured with the weights: ±5 %, and ±3 % from 10,000 requests on.
#[expect(clippy::print_stderr, reason = "what was measured is for people")]
fn check_shares(client: &str, shares: &Shares, (v1, v2): (u64, u64)) -> Result<()> {
    let n: u64 = shares.values().sum();
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole as f64;
    let tolerance = if n >= 10_000 { 3.0 } else { 5.0 };
    let mut line = format!("{client}, {n} requests at {v1}/{v2}/{V3}:");
    let mut is_good = true;
    for (name, weight) in [("v1", v1), ("v2", v2), ("v3", V3)] {
        let measured = percent(shares.get(name).copied().unwrap_or(0), n);
        let wanted = percent(weight, v1 + v2 + V3);
        line.push_str(&format!(" {name} {measured:.2} % (of {wanted:.2} %)"));
        is_good &= (measured - wanted).abs() <= tolerance;
    }
    eprintln!("{line}");
    ensure!(is_good, "{line}");
    Ok(())
}

#[tokio::test]
async fn a_canary_moves_the_traffic_of_an_envoy_and_fails_no_request() -> Result<()> {
    let world = world().await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let ask = Ask::call("greeter.example.com", "/hello.Greeter/Hello");
    world.expect_from("web", &ask, "v1").await?;

    // Requests that never stop, across every change.
    let (stop, n_asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let addr = SocketAddr::from(([127, 0, 0, 1], world.port("web")?));
    let load = tokio::spawn({
        let (ask, stop, n_asked) = (ask.clone(), Arc::clone(&stop), Arc::clone(&n_asked));
        async move {
            while !stop.load(Ordering::Relaxed) {
                ask.send(addr).await?.ensure_ok()?;
                n_asked.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        }
    });
    for weights in STEPS {
        step(&world, weights).await?;
        // Every response was ACKed; the workers of the Envoy take the routes in right after.
        check_shares("Envoy", &count(addr, &ask).await?, weights)?;
    }
    stop.store(true, Ordering::Relaxed);
    load.await??;
    ensure!(n_asked.load(Ordering::Relaxed) > 100, "only {n_asked:?} requests of load");
    Ok(())
}

/// Makes the requests of a step, several at a time, and counts who answered.
async fn count(addr: SocketAddr, ask: &Ask) -> Result<Shares> {
    let n_each = n_requests()? / N_IN_FLIGHT;
    let mut tasks = JoinSet::new();
    for _ in 0..N_IN_FLIGHT {
        let ask = ask.clone();
        tasks.spawn(async move {
            let mut shares = Shares::new();
            for _ in 0..n_each {
                let told = ask.send(addr).await?;
                told.ensure_ok()?;
                *shares.entry(told.backend).or_default() += 1;
            }
            anyhow::Ok(shares)
        });
    }
    let mut sum = Shares::new();
    while let Some(shares) = tasks.join_next().await {
        for (name, n) in shares?? {
            *sum.entry(name).or_default() += n;
        }
    }
    Ok(sum)
}

/// Makes the calls with a gRPC client, in portions that it answers in time.
async fn count_calls(channel: &Channel<'_>) -> Result<Shares> {
    let mut sum = Shares::new();
    for _ in 0..n_requests()?.div_ceil(PORTION) {
        let counts = channel.call(&Calls::new(PORTION)).await?;
        counts.ensure_no_errors()?;
        for (name, n) in counts.names {
            *sum.entry(name).or_default() += n;
        }
    }
    Ok(sum)
}

const PORTION: u32 = 500;
const N_IN_FLIGHT: u32 = 8;

async fn grpc_canary(library: Library) -> Result<()> {
    let world = world().await?;
    let Some(worker) = world.worker(library).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter.example.com").await?;
    wait_for("a route", PATIENCE, async || channel.who().await).await?;
    let hold = channel.hold(&Calls::new(0), 50).await?;
    for weights in STEPS {
        step(&world, weights).await?;
        let patience = PATIENCE * n_requests()?.div_ceil(2_000);
        wait_for("the share", patience, async || {
            check_shares(&library.to_string(), &count_calls(&channel).await?, weights)
        })
        .await?;
    }
    let counts = hold.stop().await?;
    counts.ensure_no_errors()?;
    ensure!(counts.n_of("v1") > 0 && counts.n_of("v2") > 0, "{counts:?}");
    Ok(())
}

#[tokio::test]
async fn a_canary_moves_the_calls_of_grpcio_and_fails_none() -> Result<()> {
    grpc_canary(Library::Grpcio).await
}

#[tokio::test]
async fn a_canary_moves_the_calls_of_grpc_go_and_fails_none() -> Result<()> {
    grpc_canary(Library::GrpcGo).await
}

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

/// The names that an Envoy subscribes to of each type, in its order.
fn subscriptions(routes: &str) -> Vec<(&'static str, Vec<&str>)> {
    let endpoints = vec!["default/v1/8080", "default/v2/8080", "default/v3/8080"];
    vec![(CLUSTER, vec![]), (ENDPOINTS, endpoints), (LISTENER, vec![]), (ROUTES, vec![routes])]
}

/// Resources of a type that is not used otherwise. A request for one is answered at once, after everything that is owed.
async fn put_markers(world: &World) -> Result<()> {
    for index in 0..N_MARKERS {
        let name = marker(index);
        let path = format!("/v1/groups/default/resources/runtimes/{name}");
        world.server.put(&path, &json!({"name": name, "layer": {"a": index}})).await?;
    }
    Ok(())
}

fn marker(index: usize) -> String {
    format!("marker-{index}")
}

const N_MARKERS: usize = 5;

#[tokio::test]
async fn a_patch_is_one_route_response_on_a_stream_and_nothing_else_pitfall_44() -> Result<()> {
    let world = world().await?;
    put_markers(&world).await?;
    let routes = format!("default/web/{}", world.port("web")?);
    let channel = raw::connect(world.server.xds()).await?;
    let mut stream = SotwStream::open(channel, path::ADS, raw::node("envoy", "edge"));
    let subscriptions = subscriptions(&routes);
    for (url, names) in &subscriptions {
        stream.subscribe(url, names).await?;
        let response = stream.expect_type(url).await?;
        ensure!(!response.resources.is_empty(), "no {url}");
        stream.ack(&response, names).await?;
    }
    for (index, weights) in [(90, 10), (50, 50), (0, 100), (100, 0), (100, 0)].into_iter().enumerate() {
        let answer = patch(&world, "", weights).await?.success()?.json()?;
        if answer["changed"] == Value::Bool(true) {
            let response = stream.expect_type(ROUTES).await?;
            assert_eq!(response.resources.len(), 1);
            stream.ack(&response, &[&routes]).await?;
        }
        let wanted: Vec<String> = (0..=index).map(marker).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        stream.expect_silence_by_marker(raw::sotw_request(RUNTIME, &wanted), RUNTIME).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_patch_is_one_route_response_on_an_incremental_stream_too() -> Result<()> {
    let world = world().await?;
    put_markers(&world).await?;
    let routes = format!("default/web/{}", world.port("web")?);
    let channel = raw::connect(world.server.xds()).await?;
    let mut stream = DeltaStream::open(channel, path::ADS_DELTA, raw::node("envoy", "edge"));
    for (url, names) in subscriptions(&routes) {
        stream.subscribe(url, &names).await?;
        let response = stream.expect_type(url).await?;
        ensure!(!response.resources.is_empty(), "no {url}");
        stream.ack(&response).await?;
    }
    for (index, weights) in [(90, 10), (0, 100), (50, 50)].into_iter().enumerate() {
        patch(&world, "", weights).await?.success()?;
        let response = stream.expect_type(ROUTES).await?;
        assert_eq!((response.resources.len(), response.removed_resources.len()), (1, 0));
        stream.ack(&response).await?;
        let request = raw::delta_request(RUNTIME, &[&marker(index)], &[]);
        stream.expect_silence_by_marker(request, RUNTIME).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_dry_run_names_the_nodes_and_weights_outlive_a_kill() -> Result<()> {
    let mut world = world().await?;
    let envoy = world.envoy(Variant::Sotw).await?;
    let ask = Ask::call("greeter.example.com", "/hello.Greeter/Hello");
    world.expect_from("web", &ask, "v1").await?;
    let answer = patch(&world, "?dryRun=true", (0, 100)).await?.success()?.json()?;
    assert_eq!(answer["affectedNodes"], json!(["envoy"]), "{answer:#}");
    let revision = answer["revision"].as_u64().context("no revision")?;
    step(&world, (0, 100)).await?;
    world.expect_from("web", &ask, "v2").await?;
    world.server.kill().await?;
    world.server.restart().await?;
    world.server.wait_ready().await?;
    let rule = world.server.get_json(RULE).await?;
    assert_eq!(
        (&rule["source"], &rule["backends"]["v2:8080"]),
        (&json!("override"), &json!(100)),
        "{rule:#}"
    );
    let history = world.server.get_json("/v1/history?limit=1").await?;
    assert_eq!(history["revisions"][0]["revision"], json!(revision + 1), "{history:#}");
    world.expect_from("web", &ask, "v2").await?;
    drop(envoy);
    Ok(())
}
