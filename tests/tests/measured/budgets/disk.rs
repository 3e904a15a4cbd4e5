//! A full disk: `/readyz` and `status` report it until there is room again.

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::process::Command;
use xds_tests::http::{Answer, Http};
use xds_tests::process::Process;
use xds_tests::seen::plain_cluster;
use xds_tests::server::xds_server;
use xds_tests::wait::{PATIENCE, wait_for};

#[tokio::test]
async fn what_cannot_be_stored_shows_until_it_can() -> Result<()> {
    let data = tempfile::TempDir::new()?;
    let server = xds_server().await?;
    let mut command = Command::new("sh");
    // Files may have 1 MiB (2048 blocks); like a full disk, and without one. Whoever ignores the signal gets the error.
    command.arg("-c").arg("trap '' XFSZ; ulimit -S -f 2048; exec \"$@\"").arg("sh");
    command
        .arg(server.as_std().get_program())
        .args(["serve", "--log-format", "json", "--data-dir"])
        .arg(data.path());
    command.args(["--xds-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    let mut server = Process::spawn("xds-server", &mut command)?;
    let admin = server.wait_line("the admin port", PATIENCE, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["service"] == "admin").then(|| line["addr"].as_str().map(str::to_owned))?
    });
    let admin = admin.await?;
    ensure!(problems(&admin).await?.is_empty());

    let big = "x".repeat(40_000);
    let mut refused = None;
    for n in 0..100 {
        let mut cluster = plain_cluster("a", 1);
        cluster["alt_stat_name"] = json!(format!("{n}{big}"));
        let answer = put(&admin, "a", &cluster).await?;
        if answer.status != StatusCode::OK {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.context("a file of 1 MiB took 4 MB")?;
    ensure!(refused.status == StatusCode::INSUFFICIENT_STORAGE, "{}", refused.text());
    let told = problems(&admin).await?.join("\n");
    ensure!(
        told.contains("changes cannot be stored") && told.contains("the limit on file sizes is reached"),
        "{told}"
    );
    let output =
        xds_server().await?.args(["status", "--output", "table", "--admin", &admin]).output().await?;
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(status.contains("problem: changes cannot be stored"), "{status}");

    // Once there is room again it is found out without a write, and writes are taken.
    let id = server.id().context("the server runs")?.to_string();
    let raised = Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited"]).status().await?;
    ensure!(raised.success(), "prlimit");
    wait_for("no problem", PATIENCE, async || {
        let told = problems(&admin).await?;
        ensure!(told.is_empty(), "{told:?}");
        Ok(())
    })
    .await?;
    let answer = put(&admin, "b", &plain_cluster("b", 1)).await?;
    ensure!(answer.status == StatusCode::OK, "{}", answer.text());
    Ok(())
}

async fn put(admin: &str, name: &str, cluster: &Value) -> Result<Answer> {
    let request = http::Request::put(format!("http://{admin}/v1/groups/default/resources/clusters/{name}"))
        .header("content-type", "application/json")
        .body(http_body_util::Full::from(cluster.to_string()))?;
    Http::new().send(request).await
}

/// The problems on `/readyz` that need attention.
async fn problems(admin: &str) -> Result<Vec<String>> {
    let request =
        http::Request::get(format!("http://{admin}/readyz")).body(http_body_util::Full::default())?;
    let health = Http::new().send(request).await?.success()?.json()?;
    let problems = health["problems"].as_array().context("no problems")?;
    Ok(problems.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
