//! Calls of rollouts over https: a gate and Prometheus, with certificates of an authority that is made for the test.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use xds_tests::config::ConfigDir;
use xds_tests::documents::service;
use xds_tests::route_client::RouteClient;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::PATIENCE;

use crate::rollouts::support::{ROUTES, RULE, documents, start, wait_phase};
use xds_tests::certificates::{Authority, TlsFront};

/// Answers everything with a go, which is also the number 7 for those who ask Prometheus.
async fn answering() -> Result<SocketAddr> {
    const BODY: &str = r#"{"status": "success", "data": {"resultType": "scalar", "result": [1, "7"]}}"#;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 8192]).await;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    Ok(addr)
}

#[tokio::test]
async fn webhooks_and_prometheus_are_called_over_https_by_those_who_trust_them() -> Result<()> {
    let (known, unknown) = (Authority::new()?, Authority::new()?);
    let backend = answering().await?;
    let good = TlsFront::start(&known.issue(&["localhost"])?, backend).await?;
    let bad = TlsFront::start(&unknown.issue(&["localhost"])?, backend).await?;
    let dir = ConfigDir::new()?;
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, nobody), service("default", "v2", 8080, nobody)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", &documents("8080"))?;
    let ca = tempfile::NamedTempFile::new()?;
    std::fs::write(ca.path(), known.pem())?;
    let setup = Setup::new()?.watch(dir.path()).arg(format!("--rollout-ca={}", ca.path().display()));
    let server = Server::start_with(setup.arg("--log-level=trace")).await?;
    server.wait_ready().await?;
    let _client = RouteClient::start(server.xds(), "edge-1", ROUTES);

    let url = |front: &TlsFront| format!("https://localhost:{}/gate?token=hunter2", front.addr.port());
    let prometheus =
        json!({"address": format!("https://localhost:{}", good.addr.port()), "query": "x", "min": 7});
    let healthy = json!({
        "steps": [
            {"setWeight": 20},
            {"analysis": {"interval": "1s", "minRequests": 0, "prometheus": prometheus}},
        ],
        "webhooks": [
            {"name": "gate", "type": "confirm-rollout", "url": url(&good)},
            {"name": "check", "type": "pre-rollout", "url": url(&good)},
        ],
    });
    let id = start(&server, &healthy).await?;
    wait_phase(&server, &id, "Succeeded", PATIENCE).await?;
    let names = good.server_names();
    ensure!(names.len() >= 3 && names.iter().all(|name| name == "localhost"), "{names:?}");

    let before = server.get_json(RULE).await?["backends"].take();
    let fields = json!({
        "steps": [{"setWeight": 20}],
        "stable": "v2:8080", "canary": "v1:8080",
        "webhooks": [{"name": "check", "type": "pre-rollout", "url": url(&bad), "retries": 1}],
    });
    let id = start(&server, &fields).await?;
    let failed = wait_phase(&server, &id, "Failed", PATIENCE).await?;
    let said = failed["events"].to_string();
    ensure!(
        said.contains("the certificate of localhost is not trusted") && said.contains("--rollout-ca"),
        "{said}"
    );
    assert_eq!((bad.server_names().len(), server.get_json(RULE).await?["backends"].take()), (0, before));
    ensure!(bad.n_failed() == 2, "it is tried again once, not {}", bad.n_failed());
    let told = server.log().containing("hunter2");
    ensure!(told.is_empty() && !said.contains("hunter2"), "{told:?} {said}");
    ensure!(!server.log().containing("is not trusted").is_empty(), "{}", server.log());
    Ok(())
}
