//! Rollouts from the shell: begun, steered and listed, and their entries in the history.

use anyhow::{Result, ensure};
use serde_json::Value;
use xds_tests::config::ConfigDir;
use xds_tests::documents::service;
use xds_tests::route_client::RouteClient;
use xds_tests::server::{Server, Setup, cli};
use xds_tests::wait::PATIENCE;

use crate::rollouts::support::{ROUTES, documents, wait_phase};

const ROLLOUT: &str = "
route: {kind: HTTPRoute, namespace: default, name: web, rule: '0'}
stable: v1:8080
canary: v2:8080
steps:
- setWeight: 20
- pause: {}
- setWeight: 60
- pause: {}
";

#[tokio::test]
async fn the_command_line_begins_steers_and_lists_rollouts_and_history_tells_them_apart() -> Result<()> {
    let dir = ConfigDir::new()?;
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, addr), service("default", "v2", 8080, addr)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", &documents("8080"))?;
    let server = Server::start_with(Setup::new()?.watch(dir.path())).await?;
    server.wait_ready().await?;
    let _client = RouteClient::start(server.xds(), "edge-1", ROUTES);
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), ROLLOUT)?;
    let file = file.path().to_string_lossy().into_owned();
    let admin = server.url("");
    let run = async |form: &str, args: &[&str]| -> Result<String> {
        cli(&[args, &["--output", form, "--admin", &admin]].concat()).await
    };
    let json =
        async |args: &[&str]| -> Result<Value> { Ok(serde_json::from_str(&run("json", args).await?)?) };

    let plan = run("table", &["rollout", "start", "-f", &file, "--dry-run"]).await?;
    assert_eq!(plan, "would progress to 0, 20, 60, 100 %\n");
    let id = json(&["rollout", "start", "-f", &file]).await?["id"].as_str().unwrap_or_default().to_owned();
    wait_phase(&server, &id, "Paused", PATIENCE).await?;
    let refused = run("table", &["weights", "set", "HTTPRoute", "default/web", "0", "v2:8080=50"]).await;
    let refused = format!("{:#}", refused.unwrap_err());
    ensure!(refused.contains(&id), "{refused}");
    json(&["rollout", "resume", &id]).await?;
    server.wait_json(&format!("/v1/rollouts/{id}"), |one| one["step"] == 4).await?;
    assert_eq!(json(&["rollout", "pause", &id]).await?["phase"], "Paused");
    let listed = run("table", &["rollout", "list"]).await?;
    ensure!(listed.contains(&id) && listed.contains("60 %"), "{listed}");
    json(&["rollout", "abort", &id]).await?;
    wait_phase(&server, &id, "Aborted", PATIENCE).await?;
    let refused = format!("{:#}", run("table", &["rollout", "promote", &id]).await.unwrap_err());
    ensure!(refused.contains("a rollout that is Aborted cannot be promoted"), "{refused}");
    json(&["rollout", "retry", &id]).await?;
    server
        .wait_json(&format!("/v1/rollouts/{id}"), |one| one["phase"] == "Paused" && one["step"] == 2)
        .await?;
    json(&["rollout", "promote", &id]).await?;
    server.wait_json(&format!("/v1/rollouts/{id}"), |one| one["step"] == 4).await?;
    json(&["rollout", "promote", "--full", &id]).await?;
    wait_phase(&server, &id, "Succeeded", PATIENCE).await?;
    let shown = run("table", &["rollout", "status", &id]).await?;
    ensure!(shown.contains("commit this to the file:\n# HTTPRoute default/web"), "{shown}");

    let actors = async |args: &[&str]| -> Result<Vec<Value>> {
        let mut history = json(&[&["history"], args].concat()).await?;
        let revisions = history["revisions"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(revisions.into_iter().map(|mut one| one["actor"].take()).collect())
    };
    let by_files = actors(&["--actor", "files"]).await?;
    ensure!(!by_files.is_empty() && by_files.iter().all(|actor| actor == "files"), "{by_files:?}");
    let steps = actors(&["--source", "rollout", "--limit", "100"]).await?;
    ensure!(steps.iter().any(|actor| actor == "rollout") && steps.len() < 40, "{steps:?}");
    let all = actors(&["--limit", "100"]).await?;
    assert_eq!(all.len(), steps.len() + by_files.len(), "{all:?}");
    Ok(())
}
