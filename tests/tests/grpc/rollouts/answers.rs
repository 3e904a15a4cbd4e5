//! Steps that real clients reject, or never answer.

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::json;
use tokio::time::Instant;
use xds_tests::process::Signal;
use xds_tests::proxy::{Link, Proxy};
use xds_tests::wait::PATIENCE;
use xds_tests::worker::Worker;

use crate::rollouts::clients::{Client, Place, Running};
use crate::rollouts::support::{grpc_route, grpc_world, start, wait_phase, world};

#[tokio::test]
async fn a_step_that_an_envoy_rejects_does_what_the_rollout_says() -> Result<()> {
    let world = world().await?;
    let running = Client::Envoy.start(&world).await?.context("an Envoy")?;
    let place = Place::new(&world, "web", HOST)?;
    let load = running.load(&place).await?;
    // Envoy refuses expressions that are so large; the server warns of it.
    let value = json!({"regex": "[a-z]{50}[0-9]{50}"});
    let testers = json!({"name": "testers", "match": [{"headerName": "x-build", "headerValue": value}]});
    for (policy, phase) in [("pause", "Paused"), ("abort", "Failed")] {
        let fields = json!({"steps": [{"setHeaderRoute": testers}, {"setWeight": 20}, {"pause": {}}], "onNack": policy});
        let began = Instant::now();
        let id = start(&world.server, &fields).await?;
        let end = wait_phase(&world.server, &id, phase, PATIENCE).await?;
        println!("| {policy} | {phase} after {:.1} s | {} |", began.elapsed().as_secs_f64(), end["message"]);
        ensure!(end["message"].to_string().contains("program size"), "{end:#}");
        assert_eq!(end["weights"], json!({"stable": 100, "canary": 0}), "{end:#}");
        if phase == "Paused" {
            assert_eq!(end["acked"], json!({"n": 0, "of": 1, "nacked": 1}), "{end:#}");
            world.server.post(&format!("/v1/rollouts/{id}:abort"), &json!({})).await?;
            wait_phase(&world.server, &id, "Aborted", PATIENCE).await?;
        }
        world.server.wait_json("/v1/nodes/envoy", |node| node["status"] == "SYNCED").await?;
    }
    assert_eq!(load.stop().await?.1, 0, "lost");
    running.expect_all_from(&place, "v1").await
}

/// Has a client answer nothing from the moment when it has its routes, until the rollout has paused.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn never_acks(client: Client) -> Result<()> {
    let world = match client {
        Client::Envoy => world().await?,
        Client::Grpc(_) => grpc_world().await?,
    };
    let proxy = Proxy::start(world.server.xds()).await?;
    let mut running = match client {
        Client::Envoy => client.start(&world).await?.context("an Envoy")?,
        Client::Grpc(library) => {
            let bootstrap = world.server.bootstrap_grpc("grpc").await?;
            let bootstrap = bootstrap.replace(&world.server.xds().to_string(), &proxy.addr().to_string());
            let Some(worker) = Worker::start(library, &bootstrap).await? else { return Ok(()) };
            Running::Grpc(Box::new(worker))
        }
    };
    let place = Place::new(&world, "web", HOST)?;
    running.follow(&place).await?;
    if let Running::Envoy(envoy) = &mut running {
        envoy.process_mut().signal(Signal::STOP)?;
    }
    proxy.set(Link::Frozen);
    let mut fields = json!({"steps": [{"setWeight": 20, "waitAck": "2s"}]});
    if client != Client::Envoy {
        fields["route"] = grpc_route();
    }
    let began = Instant::now();
    let id = start(&world.server, &fields).await?;
    let paused = wait_phase(&world.server, &id, "Paused", PATIENCE).await?;
    println!("| {client:?} | Paused after {:.1} s | {} |", began.elapsed().as_secs_f64(), paused["message"]);
    assert_eq!(paused["acked"], json!({"n": 0, "of": 1, "nacked": 0}), "{paused:#}");
    assert_eq!(paused["weights"], json!({"stable": 80, "canary": 20}), "{paused:#}");
    if let Running::Grpc(_) = running {
        // It goes on with the routes that it has.
        running.expect_all_from(&place, "v1").await?;
    }

    // Then it answers, and the rollout goes on when someone says so.
    if let Running::Envoy(envoy) = &mut running {
        envoy.process_mut().signal(Signal::CONT)?;
    }
    proxy.set(Link::Open);
    let path = format!("/v1/rollouts/{id}");
    world.server.wait_json(&path, |one| one["acked"] == json!({"n": 1, "of": 1, "nacked": 0})).await?;
    world.server.post(&format!("{path}:resume"), &json!({})).await?;
    wait_phase(&world.server, &id, "Succeeded", PATIENCE).await?;
    running.expect_all_from(&place, "v2").await
}

#[tokio::test]
async fn a_step_that_a_real_client_never_answers_is_not_passed() -> Result<()> {
    try_join_all(Client::ALL.map(never_acks)).await.map(drop)
}

/// A host of the routes of both worlds.
const HOST: &str = "greeter.example.com";
