//! Rollouts call only the hosts that a flag names, and never metadata services. Answers are not shown.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use xds_tests::config::ConfigDir;
use xds_tests::documents::service;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};

const DOCUMENTS: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules:
  - backendRefs: [{name: v1, port: 8080, weight: 100}, {name: v2, port: 8080, weight: 0}]
";

/// The answer of an internal service to someone who may ask it.
const SECRET: &str = "AKIA-credentials";

#[tokio::test]
async fn metadata_services_are_never_called_and_answers_are_not_shown() -> Result<()> {
    let (server, _dir) = server(&[]).await?;
    for host in [
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "0.0.0.0",
    ] {
        let url = format!("http://{host}/latest/meta-data/");
        refused(&server, &webhook(&url), "#/webhooks/0/url", "which is never called").await?;
        let prometheus = json!({"address": url, "query": "up", "min": 1});
        let analysis = json!({"steps": [{"setWeight": 20}], "analysis": {"prometheus": prometheus}});
        refused(&server, &analysis, "#/analysis/prometheus/address", "which is never called").await?;
    }
    // Forms that only the resolver understands, as a name that leads there would be: refused when they are called.
    let events = failing(&server, &webhook("http://2852039166/latest/")).await?;
    ensure!(events.contains("resolves to 169.254.169.254, a link-local address"), "{events}");
    let metrics = server.get("/metrics").await?.text();
    ensure!(metrics.contains(r#"xds_refused_total{reason="call-target"} 1"#), "{metrics}");

    let inside = answering().await?;
    let events = failing(&server, &webhook(&format!("http://{inside}/"))).await?;
    ensure!(events.contains("403 Forbidden after ") && !events.contains(SECRET), "{events}");
    ensure!(server.log().containing(SECRET).is_empty());
    Ok(())
}

#[tokio::test]
async fn a_flag_narrows_what_is_called() -> Result<()> {
    let inside = answering().await?;
    let (server, _dir) = server(&["--webhook-allow=hooks.example.com", "--webhook-allow=10.0.0.0/8"]).await?;
    refused(&server, &webhook(&format!("http://{inside}/")), "#/webhooks/0/url", "is not in --webhook-allow")
        .await?;
    let by_name = webhook(&format!("http://localhost:{}/", inside.port()));
    let events = failing(&server, &by_name).await?;
    ensure!(events.contains("and neither is in --webhook-allow"), "{events}");
    Ok(())
}

async fn server(args: &[&str]) -> Result<(Server, ConfigDir)> {
    let dir = ConfigDir::new()?;
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, nobody), service("default", "v2", 8080, nobody)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", DOCUMENTS)?;
    let setup = args.iter().fold(Setup::new()?.watch(dir.path()), |setup, arg| setup.arg(*arg));
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    Ok((server, dir))
}

/// Refuses all requests, with a text that must stay secret.
async fn answering() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 8192]).await;
            let answer =
                format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n{SECRET}", SECRET.len());
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    Ok(addr)
}

fn webhook(url: &str) -> Value {
    json!({"steps": [{"setWeight": 20}], "webhooks": [{"name": "check", "type": "pre-rollout", "url": url}]})
}

fn rollout(fields: &Value) -> Value {
    let mut body = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "web", "rule": "0"},
        "stable": "v1:8080", "canary": "v2:8080",
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

/// Begins a rollout that must be refused at a place in its body.
async fn refused(server: &Server, fields: &Value, pointer: &str, said: &str) -> Result<()> {
    let headers = [("content-type", "application/json")];
    let body = rollout(fields).to_string();
    let answer = server.request("POST", "/v1/rollouts", &headers, body).await?;
    ensure!(answer.status == StatusCode::UNPROCESSABLE_ENTITY, "{}: {}", answer.status, answer.text());
    let problem = answer.json()?;
    ensure!(problem["errors"][0]["pointer"] == pointer, "{problem:#}");
    ensure!(problem["errors"][0]["detail"].to_string().contains(said), "{problem:#}");
    Ok(())
}

/// Begins a rollout, waits until its webhook has failed it, and returns its message about that.
async fn failing(server: &Server, fields: &Value) -> Result<String> {
    let id =
        server.post("/v1/rollouts", &rollout(fields)).await?["id"].as_str().unwrap_or_default().to_owned();
    wait_for("Failed", PATIENCE, async || {
        let rollout = server.get_json(&format!("/v1/rollouts/{id}")).await?;
        ensure!(rollout["phase"] == "Failed", "{rollout:#}");
        Ok(rollout["events"].to_string())
    })
    .await
}
