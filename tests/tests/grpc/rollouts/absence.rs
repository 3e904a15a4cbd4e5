//! Canaries that fail in each way, under the requests of real clients: the verdict, the time until the weights are back, and what is lost.
//! Requests of gRPC clients that fail before an endpoint is chosen are in no load report. `--nocapture` shows the table of the page.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use xds_tests::documents::{World, service, service_with};
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};

use crate::rollouts::clients::{Client, Place};
use crate::rollouts::support::{grpc_route, grpc_world, start, wait_phase, world};

/// How a canary fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Connections are refused.
    Dead,
    /// The same, when most of the measurement is over and was good.
    DiesLate,
    NotReady,
    NoEndpoints,
    Hangs,
    Fails,
}

impl Fault {
    fn happen(self, world: &World) -> Result<()> {
        let canary = &world.backends["v2"];
        let stable = service("default", "v1", 8080, world.backends["v1"].addr());
        let services = |canary: String| world.write("services.yaml", &[stable, canary].concat());
        match self {
            Self::Dead | Self::DiesLate => canary.stop(),
            Self::NotReady => {
                let ready = service("default", "v2", 8080, canary.addr());
                let with_conditions = "endpoints: [{conditions: {ready: false}, addresses";
                services(ready.replace("endpoints: [{addresses", with_conditions))?;
            }
            Self::NoEndpoints => services(service_with("default", "v2", 8080, &[], ""))?,
            Self::Hangs => canary.hang(),
            Self::Fails => canary.fail(1.0),
        }
        Ok(())
    }
}

/// What became of a rollout.
struct Outcome {
    rollout: Value,
    /// From the fault until stable had all traffic.
    after: Duration,
}

/// A share of 20 % that is measured.
fn fields(client: Client, analysis: &Value) -> Value {
    let mut fields = json!({"steps": [{"setWeight": 20}, {"analysis": analysis}]});
    if client != Client::Envoy {
        fields["route"] = grpc_route();
    }
    fields
}

/// Begins a rollout and waits until it measures.
async fn measuring(world: &World, fields: &Value) -> Result<String> {
    let id = start(&world.server, fields).await?;
    let measured = world.server.wait_json(&format!("/v1/rollouts/{id}"), |one| one["step"] == 2).await?;
    ensure!(measured["weights"]["canary"] == 20, "{measured:#}");
    Ok(id)
}

/// Waits until the canary has answered so many requests more.
async fn answers(world: &World, n: u64) -> Result<()> {
    let before = world.backends["v2"].n_requests();
    wait_for("requests of the canary", PATIENCE, async || {
        let n_new = world.backends["v2"].n_requests() - before;
        ensure!(n_new >= n, "{n_new} of {n}");
        Ok(())
    })
    .await
}

/// Lets the canary answer requests, breaks it, and waits until it is taken back.
async fn breaks(world: &World, client: Client, fault: Fault) -> Result<Outcome> {
    let analysis = json!({"interval": "20s", "minRequests": 10});
    let id = measuring(world, &fields(client, &analysis)).await?;
    let began = Instant::now();
    answers(world, 30).await?;
    if fault == Fault::DiesLate {
        wait_for("most of the measurement", PATIENCE, async || {
            ensure!(began.elapsed() >= Duration::from_secs(16));
            Ok(())
        })
        .await?;
    }
    fault.happen(world)?;
    let broke = Instant::now();
    let rollout = wait_phase(&world.server, &id, "Failed", 2 * PATIENCE).await?;
    let after = broke.elapsed();
    ensure!(rollout["weights"] == json!({"stable": 100, "canary": 0}), "{rollout:#}");
    Ok(Outcome { rollout, after })
}

/// One line of the table.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn show(client: Client, fault: Fault) -> Result<()> {
    let Some((outcome, n, n_lost)) =
        story(client, fault).await.with_context(|| format!("{client:?} {fault:?}"))?
    else {
        return Ok(());
    };
    let Outcome { rollout, after } = outcome;
    let after = after.as_secs_f64();
    println!("| {fault:?} | {client:?} | {after:.1} s | {n_lost} of {n} | {} |", rollout["reason"]);
    let reason = rollout["reason"].as_str().unwrap_or_default();
    let wanted = match fault {
        Fault::NotReady | Fault::NoEndpoints => "no ready endpoint",
        Fault::Fails => "of the canary failed",
        Fault::Dead | Fault::DiesLate | Fault::Hangs => "the canary",
    };
    ensure!(reason.contains(wanted), "{rollout:#}");
    Ok(())
}

/// What became of the rollout and of the requests; `None` if there is no such client here.
async fn story(client: Client, fault: Fault) -> Result<Option<(Outcome, u64, u64)>> {
    let world = match client {
        Client::Envoy => world().await?,
        Client::Grpc(_) => grpc_world().await?,
    };
    let Some(running) = client.start(&world).await? else { return Ok(None) };
    let place = Place::new(&world, "web", HOST)?;
    let load = running.load(&place).await?;
    let outcome = breaks(&world, client, fault).await?;
    let (n, n_lost) = load.stop().await?;
    running.expect_all_from(&place, "v1").await?;
    Ok(Some((outcome, n, n_lost)))
}

async fn show_all(fault: Fault) -> Result<()> {
    try_join_all(Client::ALL.map(|client| show(client, fault))).await.map(drop)
}

#[tokio::test]
async fn a_canary_whose_process_dies_is_taken_back() -> Result<()> {
    show_all(Fault::Dead).await
}

#[tokio::test]
async fn a_canary_that_dies_when_its_measurement_is_almost_over_is_taken_back() -> Result<()> {
    show_all(Fault::DiesLate).await
}

#[tokio::test]
async fn a_canary_whose_endpoints_are_not_ready_is_taken_back_at_once() -> Result<()> {
    show_all(Fault::NotReady).await
}

#[tokio::test]
async fn a_canary_without_endpoints_is_taken_back_at_once() -> Result<()> {
    show_all(Fault::NoEndpoints).await
}

#[tokio::test]
async fn a_canary_that_answers_nothing_is_taken_back() -> Result<()> {
    show_all(Fault::Hangs).await
}

#[tokio::test]
async fn a_canary_that_answers_only_errors_is_taken_back() -> Result<()> {
    show_all(Fault::Fails).await
}

#[tokio::test]
async fn a_canary_without_requests_is_not_promoted() -> Result<()> {
    let world = world().await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    for (policy, phase) in [("pause", "Paused"), ("abort", "Failed")] {
        let analysis = json!({"interval": "2s", "minRequests": 0, "inconclusiveLimit": 1});
        let mut fields = fields(Client::Envoy, &analysis);
        fields["onInconclusive"] = policy.into();
        let id = start(&world.server, &fields).await?;
        let end = wait_phase(&world.server, &id, phase, PATIENCE).await?;
        assert_eq!(end["acked"]["of"], 1, "{end:#}");
        let (message, reason) = (end["message"].to_string(), end["reason"].to_string());
        ensure!(message.contains("requests") || reason.contains("requests"), "{end:#}");
        if phase == "Paused" {
            assert_eq!(end["weights"], json!({"stable": 80, "canary": 20}));
            world.server.post(&format!("/v1/rollouts/{id}:abort"), &json!({})).await?;
            wait_phase(&world.server, &id, "Aborted", PATIENCE).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_step_that_a_client_never_acks_or_that_no_client_has_is_not_passed() -> Result<()> {
    let world = world().await?;
    let fields = json!({"steps": [{"setWeight": 20, "waitAck": "1s"}]});
    let id = start(&world.server, &fields).await?;
    let paused = wait_phase(&world.server, &id, "Paused", PATIENCE).await?;
    ensure!(paused["message"].to_string().contains("nobody has the step"), "{paused:#}");
    world.server.post(&format!("/v1/rollouts/{id}:abort"), &json!({})).await?;
    wait_phase(&world.server, &id, "Aborted", PATIENCE).await?;
    let routes = format!("default/web/{}", world.port("web")?);
    let channel = raw::connect(world.server.xds()).await?;
    let mut silent = SotwStream::open(channel, path::ADS, raw::node("silent", ""));
    silent.subscribe(ROUTE_TYPE, &[&routes]).await?;
    silent.expect_type(ROUTE_TYPE).await?;
    let id = start(&world.server, &fields).await?;
    let paused = wait_phase(&world.server, &id, "Paused", PATIENCE).await?;
    assert_eq!(paused["acked"], json!({"n": 0, "of": 1, "nacked": 0}), "{paused:#}");
    Ok(())
}

/// Has the only client leave while the canary is measured.
async fn leaves(client: Client) -> Result<()> {
    let world = match client {
        Client::Envoy => world().await?,
        Client::Grpc(_) => grpc_world().await?,
    };
    let Some(running) = client.start(&world).await? else { return Ok(()) };
    let id = {
        let _load = running.load(&Place::new(&world, "web", HOST)?).await?;
        let id = measuring(&world, &fields(client, &json!({"interval": "1h"}))).await?;
        answers(&world, 30).await?;
        id
    };
    drop(running);
    let paused = wait_phase(&world.server, &id, "Paused", PATIENCE).await?;
    ensure!(paused["message"].to_string().contains("1 of 1 clients have gone"), "{paused:#}");
    assert_eq!(paused["weights"], json!({"stable": 80, "canary": 20}));
    Ok(())
}

#[tokio::test]
async fn a_rollout_whose_clients_leave_in_the_middle_of_a_step_pauses() -> Result<()> {
    try_join_all(Client::ALL.map(leaves)).await.map(drop)
}

/// A host of the routes of both worlds.
const HOST: &str = "greeter.example.com";
const ROUTE_TYPE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
