//! Rollouts, one after the other: whichever server leads goes on with the one that is under way.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use xds_tests::http::Http;
use xds_tests::random::Random;
use xds_tests::server::{Server, free_addr};
use xds_tests::wait::wait_for;

use crate::faults::world::N_SERVERS;
use crate::faults::writers::Board;

/// Gives the servers a route of the mesh with two backends.
///
/// # Errors
///
/// If they do not take it.
pub(crate) async fn prepare(server: &Server) -> Result<()> {
    // An Envoy listens at the port of the Service, on the loopback.
    let port = free_addr()?.port();
    let yaml = [("content-type", "application/yaml")];
    let applied =
        server.request("POST", "/v1/apply", &yaml, DOCUMENTS.replace("PORT", &port.to_string())).await?;
    ensure!(applied.status.is_success(), "{}", applied.text());
    Ok(())
}

/// Begins a rollout whenever none is under way, until the run is over.
///
/// # Errors
///
/// If one ends otherwise than it should.
pub(crate) async fn begin(board: Arc<Board>, mut random: Random) -> Result<()> {
    while !board.is_over() {
        let server = usize::try_from(random.within(0..N_SERVERS as u64))?;
        // A server that does not answer is a fault like others; whoever answers next may know of the rollout.
        if let Some(list) = list(&board, server).await
            && let Some(n_done) = n_done(&list)?
        {
            let (stable, canary) = if n_done % 2 == 0 { ("v1:80", "v2:80") } else { ("v2:80", "v1:80") };
            let body = json!({
                "route": {"kind": "HTTPRoute", "namespace": "prod", "name": "web", "rule": "0"},
                "stable": stable, "canary": canary,
                "steps": [{"setWeight": 20}, {"pause": {"duration": "500ms"}}, {"setWeight": 60}],
            });
            let request = Request::post(url(&board, server)).header("content-type", "application/json");
            // Another server may have begun one meanwhile, or this one may end: the list says so the next time.
            drop(timeout(PATIENCE, Http::new().send(request.body(body.to_string().into())?)).await);
        }
        sleep(Duration::from_millis(random.within(200..600))).await;
    }
    Ok(())
}

/// Waits until no rollout is under way. Returns how many there were.
///
/// # Errors
///
/// If one does not end, or not as it should.
pub(crate) async fn end(board: &Board) -> Result<usize> {
    wait_for("the end of the last rollout", LONG, async || {
        let list = list(board, 0).await.context("no answer")?;
        match n_done(&list) {
            Ok(Some(n)) => Ok(Ok(n)),
            Ok(None) => anyhow::bail!("{list:#}"),
            Err(error) => Ok(Err(error)),
        }
    })
    .await?
}

/// How many rollouts are done; `None` while one is under way.
fn n_done(list: &Value) -> Result<Option<usize>> {
    let rollouts = list["rollouts"].as_array().context("rollouts")?;
    let mut n_done = 0;
    for rollout in rollouts {
        match rollout["phase"].as_str().context("phase")? {
            "Succeeded" => n_done += 1,
            "Failed" | "Aborted" | "Aborting" => anyhow::bail!("it did not succeed: {rollout:#}"),
            _ => return Ok(None),
        }
    }
    Ok(Some(n_done))
}

async fn list(board: &Board, server: usize) -> Option<Value> {
    let answer = timeout(PATIENCE, Http::new().get(&url(board, server))).await.ok()?.ok()?;
    answer.status.is_success().then(|| answer.json().ok()).flatten()
}

fn url(board: &Board, server: usize) -> String {
    format!("http://{}/v1/rollouts", board.addresses[server].admin)
}

const DOCUMENTS: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: prod}
spec: {ports: [{port: PORT}]}
---
apiVersion: v1
kind: Service
metadata: {name: v1, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: v2, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: v1, namespace: prod, labels: {kubernetes.io/service-name: v1}}
addressType: IPv4
ports: [{port: 1}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: v2, namespace: prod, labels: {kubernetes.io/service-name: v2}}
addressType: IPv4
ports: [{port: 2}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: prod}
spec:
  parentRefs: [{group: \"\", kind: Service, name: web, port: PORT}]
  rules: [{backendRefs: [{name: v1, port: 80, weight: 1}, {name: v2, port: 80, weight: 0}]}]
";

const PATIENCE: Duration = Duration::from_secs(2);
/// A leader that was stopped is replaced after 15 s, and its clients are waited for.
const LONG: Duration = Duration::from_secs(120);
