//! The forms of results, and what is written again when something changes.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;
use xds_tests::config::CLUSTER;
use xds_tests::raw::{self, DeltaStream};
use xds_tests::server::{Server, Setup, cli, xds_server};
use xds_tests::wait::PATIENCE;

#[tokio::test]
async fn lists_have_five_forms() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let group = json!({"priority": 1, "selector": {"nodeIds": ["edge-1"]}});
    server.put("/v1/groups/edge", &group).await?;
    let admin = format!("--admin=http://{}", server.admin());
    let ask = async |args: &[&str]| cli(&[args, &[admin.as_str()]].concat()).await;
    let names = ask(&["groups", "list", "--output", "name"]).await?;
    ensure!(names.lines().any(|name| name == "edge"), "{names}");
    let json: Value = serde_json::from_str(&ask(&["groups", "list", "--output", "json"]).await?)?;
    let yaml: Value = serde_saphyr::from_str(&ask(&["groups", "list", "--output", "yaml"]).await?)?;
    assert_eq!(yaml, json);
    let [table, wide] = ["table", "wide"];
    let (table, wide) =
        (ask(&["history", "--output", table]).await?, ask(&["history", "--output", wide]).await?);
    ensure!(table.starts_with("REVISION") && !table.contains("SOURCE"), "{table}");
    ensure!(wide.lines().next().is_some_and(|head| head.ends_with("SOURCE  FOR  CHANGES")), "{wide}");
    ensure!(wide.contains("group/edge"), "{wide}");
    // A change is called by its revision.
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("edge.yaml");
    std::fs::write(&path, "{priority: 2, selector: {nodeIds: [edge-1]}}")?;
    let path = path.to_str().context("a path that is not UTF-8")?;
    let name = ask(&["groups", "put", "edge", "-f", path, "--output", "name"]).await?;
    let history = server.get_json("/v1/history?limit=1").await?;
    assert_eq!(name.trim(), history["revisions"][0]["revision"].to_string());
    Ok(())
}

#[tokio::test]
async fn the_server_knows_every_state_and_order_of_the_fleet() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let admin = format!("--admin=http://{}", server.admin());
    for state in ["rejected", "heldBack", "pending", "unmatched", "absent", "acknowledged"] {
        cli(&["fleet", "--state", state, &admin]).await?;
    }
    for order in ["worst", "id", "revision", "reconnects"] {
        cli(&["fleet", "--sort", order, &admin]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn nodes_that_come_and_go_are_lines_of_a_pipe() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    for command in ["nodes", "fleet"] {
        let admin = format!("--admin=http://{}", server.admin());
        let mut watch = xds_server().await?;
        watch
            .args([command, "--watch", "--output", "table", &admin])
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut watch = watch.spawn()?;
        let mut lines = BufReader::new(watch.stdout.take().context("no standard output")?).lines();
        let mut expect = async |text: &str| loop {
            let line = timeout(PATIENCE, lines.next_line()).await.with_context(|| format!("no {text}"))??;
            let line = line.with_context(|| format!("it ended before {text}"))?;
            if line.starts_with(text) {
                return anyhow::Ok(());
            }
        };
        expect("ID").await?;
        let channel = raw::connect(server.xds()).await?;
        let mut stream = DeltaStream::open(channel, raw::path::ADS_DELTA, raw::node("edge-1", "edge"));
        stream.subscribe(CLUSTER, &["*"]).await?;
        expect("edge-1").await?;
        drop(stream);
        expect("gone: edge-1").await?;
    }
    Ok(())
}
