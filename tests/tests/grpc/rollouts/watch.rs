//! Watchers of a rollout continue across a restart of the server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{sleep, timeout};
use xds_tests::config::ConfigDir;
use xds_tests::documents::service;
use xds_tests::route_client::RouteClient;
use xds_tests::server::{Server, Setup, xds_server};
use xds_tests::wait::PATIENCE;

use crate::rollouts::support::{ROUTES, documents, start, wait_phase};

/// More than twice as long as the command line waits between two looks.
const LOOKS: Duration = Duration::from_millis(2_500);

#[tokio::test]
async fn the_command_line_watches_on_across_a_restart_until_the_end() -> Result<()> {
    let dir = ConfigDir::new()?;
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, addr), service("default", "v2", 8080, addr)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", &documents("8080"))?;
    let setup = Setup::new()?.watch(dir.path()).fixed_xds_port()?.fixed_admin_port()?;
    let last_good = setup.data_dir().join("last-good");
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let _client = RouteClient::start(server.xds(), "edge-1", ROUTES);
    let id = start(&server, &json!({"steps": [{"setWeight": 20}, {"pause": {}}]})).await?;
    wait_phase(&server, &id, "Paused", PATIENCE).await?;

    let mut command = xds_server().await?;
    command.args(["rollout", "status", &id, "--watch", "--output", "json", "--admin", &server.url("")]);
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut watching = command.spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().context("stdout")?).lines();
    let mut next = async || -> Result<Value> {
        let line = timeout(PATIENCE, lines.next_line()).await??.context("the watch has ended")?;
        Ok(serde_json::from_str(&line)?)
    };
    let first = next().await?;
    assert_eq!((&first["phase"], &first["step"]), (&json!("Paused"), &json!(2)), "{first:#}");

    // It is away for some looks, and back without serving anything for the next ones.
    server.kill().await?;
    sleep(LOOKS).await;
    std::fs::remove_dir_all(&last_good)?;
    dir.write("services.yaml", "broken: [")?;
    server.restart().await?;
    let path = format!("/v1/rollouts/{id}");
    let early = server.get(&path).await?;
    assert_eq!(early.status, 503, "{}", early.text());
    sleep(LOOKS).await;
    dir.write("services.yaml", &services)?;
    server.wait_ready().await?;
    server.post(&format!("/v1/rollouts/{id}:promote"), &json!({"full": true})).await?;
    let last = loop {
        let seen = next().await?;
        if seen["phase"] == "Succeeded" {
            break seen;
        }
    };
    assert_eq!(last["weights"], json!({"stable": 0, "canary": 100}));
    let status = timeout(PATIENCE, watching.wait()).await??;
    ensure!(status.success(), "{status}");
    Ok(())
}
