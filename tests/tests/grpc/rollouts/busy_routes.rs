//! A canary dies while another rule of the same RouteConfiguration changes all the time, and the client is so far away that it always
//! has a change to accept.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use xds_tests::backend::Backend;
use xds_tests::documents::{World, service};
use xds_tests::proxy::{Link, Proxy};
use xds_tests::server::{Server, Setup, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Library, Worker};

use crate::rollouts::clients::{Place, Running};
use crate::rollouts::support::start;

/// The distance between the client and the server.
const FAR: Duration = Duration::from_millis(100);

/// The time between two changes of the other rule.
const EVERY: Duration = Duration::from_secs(1);

/// The time for which the canary is dead: less than a measurement.
const DEAD: Duration = Duration::from_secs(10);

const DOCUMENTS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: xds-server
  listeners: [{name: http, protocol: HTTP, port: {web}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  hostnames: [greeter.example.com]
  rules:
  - backendRefs: [{name: v1, port: 8080, weight: 100}, {name: v2, port: 8080, weight: 0}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: other}
spec:
  parentRefs: [{name: web}]
  hostnames: [greeter.example.com]
  rules:
  - matches: [{method: {service: other.Other}}]
    backendRefs: [{name: o1, port: 8080, weight: 100}, {name: o2, port: 8080, weight: 1}]
---
";

/// Changes the weights of the other rule, back and forth, for ever.
async fn disturb(server: &Server) -> Result<()> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut n = 0;
    loop {
        ticks.tick().await;
        n += 1;
        let body = json!({"backends": {"o1:8080": 100, "o2:8080": 2 + n % 2}}).to_string();
        let headers = [("if-match", "*"), ("content-type", "application/json")];
        server.request("PUT", "/v1/weights/GRPCRoute/default/other/0", &headers, body).await?.success()?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_canary_is_taken_back_while_other_rules_change() -> Result<()> {
    let setup = Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()?;
    let mut world = World::start_with(setup, &["o1", "o2"]).await?;
    world.ports(&["web"])?;
    let stable = Backend::start("v1").await?;
    let mut canary = Backend::start_at("v2", free_addr()?).await?;
    let services =
        [service("default", "v1", 8080, stable.addr()), service("default", "v2", 8080, canary.addr())];
    world.write("routes.yaml", &(services.concat() + DOCUMENTS))?;
    let proxy = Proxy::start(world.server.xds()).await?;
    proxy.set(Link::Slow(FAR));
    let bootstrap = world.server.bootstrap_grpc("grpc").await?;
    let bootstrap = bootstrap.replace(&world.server.xds().to_string(), &proxy.addr().to_string());
    let running =
        Running::Grpc(Box::new(Worker::start(Library::Grpcio, &bootstrap).await?.context("no client")?));
    let load = running.load(&Place::new(&world, "web", "greeter.example.com")?).await?;
    let fields = json!({
        "route": {"kind": "GRPCRoute", "namespace": "default", "name": "web", "rule": "0"},
        "steps": [{"setWeight": 20}, {"analysis": {"interval": "20s", "minRequests": 10}}],
    });
    let path = format!("/v1/rollouts/{}", start(&world.server, &fields).await?);
    world.server.wait_json(&path, |one| one["step"] == 2).await?;
    wait_for("requests", PATIENCE, async || {
        ensure!(canary.n_requests() > 5);
        Ok(())
    })
    .await?;
    canary.stop();
    let died = Instant::now();
    let revive = async {
        tokio::time::sleep_until(died + DEAD).await;
        let addr = canary.addr();
        canary = wait_for("the port", PATIENCE, async || Backend::start_at("v2", addr).await).await?;
        std::future::pending::<Result<()>>().await
    };
    let ended = world.server.wait_json(&path, |one| one["phase"] == "Failed" || one["phase"] == "Succeeded");
    let one = tokio::select! {
        one = ended => one?,
        failed = disturb(&world.server) => return failed,
        failed = revive => return failed,
    };
    let (n, n_lost) = load.stop().await?;
    println!("{n_lost} of {n} lost");
    ensure!(one["phase"] == "Failed", "{one:#}");
    Ok(())
}
