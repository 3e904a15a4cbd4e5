//! Shared parts of the tests of rollouts: a rule with two backends, requests that never stop, and how a rollout is begun.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use xds_tests::documents::World;
use xds_tests::http::Connection;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};

/// The RouteConfiguration of the Gateway's listener on port 8080.
pub(crate) const ROUTES: &str = "default/web/8080";

pub(crate) const RULE: &str = "/v1/weights/HTTPRoute/default/web/0";

pub(crate) fn documents(port: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: web}}\nspec:\n  \
         gatewayClassName: xds-server\n  listeners: [{{name: http, protocol: HTTP, port: {port}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  rules:\n  - backendRefs: \
         [{{name: v1, port: 8080, weight: 100}}, {{name: v2, port: 8080, weight: 0}}]\n"
    )
}

pub(crate) fn rollout(fields: &Value) -> Value {
    let mut body = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "web", "rule": "0"},
        "stable": "v1:8080", "canary": "v2:8080",
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

/// A world with an Envoy that reports its load every second.
pub(crate) async fn world() -> Result<World> {
    let setup = Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()?;
    let mut world = World::start_with(setup, &["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &documents("{web}"))?;
    wait_for("the rule", PATIENCE, async || world.server.get(RULE).await?.success()).await?;
    Ok(world)
}

/// A rule for gRPC: a GRPCRoute that an Envoy and gRPC clients get.
pub(crate) async fn grpc_world() -> Result<World> {
    let setup = Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()?;
    let mut world = World::start_with(setup, &["v1", "v2"]).await?;
    world.ports(&["web"])?;
    let documents = documents("{web}").replace("kind: HTTPRoute", "kind: GRPCRoute");
    let hosts = "  hostnames: [greeter.example.com]\n  rules:";
    world.write("routes.yaml", &documents.replace("  rules:", hosts))?;
    let rule = RULE.replace("HTTPRoute", "GRPCRoute");
    wait_for("the rule", PATIENCE, async || world.server.get(&rule).await?.success()).await?;
    Ok(world)
}

/// The route of [`grpc_world`], for a rollout.
pub(crate) fn grpc_route() -> Value {
    json!({"kind": "GRPCRoute", "namespace": "default", "name": "web", "rule": "0"})
}

/// Requests that never stop, one after the other.
pub(crate) struct Load {
    is_stopped: Arc<AtomicBool>,
    n_failed: Arc<AtomicU64>,
    task: JoinHandle<Result<u64>>,
}

impl Load {
    pub(crate) async fn start(addr: SocketAddr) -> Result<Self> {
        let mut connection = wait_for("a route", PATIENCE, async || {
            let mut connection = Connection::open(addr).await?;
            ensure!(connection.get("/").await?.status == 200);
            Ok(connection)
        })
        .await?;
        let (is_stopped, n_failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, failed) = (Arc::clone(&is_stopped), Arc::clone(&n_failed));
        let task = tokio::spawn(async move {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                if connection.get("/").await?.status != 200 {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                n += 1;
                // A few hundred a second, so that the test does not starve what it tests.
                sleep(Duration::from_millis(2)).await;
            }
            Ok(n)
        });
        Ok(Self { is_stopped, n_failed, task })
    }

    pub(crate) async fn stop(self) -> Result<(u64, u64)> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let n = self.task.await??;
        Ok((n, self.n_failed.load(Ordering::Relaxed)))
    }
}

pub(crate) async fn start(server: &Server, fields: &Value) -> Result<String> {
    let answer = server.post("/v1/rollouts", &rollout(fields)).await?;
    Ok(answer["id"].as_str().context("no id")?.to_owned())
}

/// Starts a rollout whose second step is an analysis with an interval of 4 s, by which it fails.
pub(crate) async fn fails_within_two_intervals(server: &Server, fields: &Value) -> Result<Value> {
    let id = start(server, fields).await?;
    server.wait_json(&format!("/v1/rollouts/{id}"), |one| one["step"] == 2).await?;
    let analysing = Instant::now();
    let failed = wait_phase(server, &id, "Failed", PATIENCE).await?;
    let took = analysing.elapsed();
    ensure!(took < Duration::from_secs(9), "two intervals are 8 s, it took {took:?}: {failed:#}");
    Ok(failed)
}

pub(crate) async fn wait_phase(server: &Server, id: &str, phase: &str, limit: Duration) -> Result<Value> {
    wait_for(phase, limit, async || {
        let rollout = server.get_json(&format!("/v1/rollouts/{id}")).await?;
        ensure!(rollout["phase"] == phase, "{rollout:#}");
        Ok(rollout)
    })
    .await
}
