//! Texts from outside cannot forge lines of the log, nor move the cursor of a terminal that shows the log or a table.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use xds_tests::config::{CLUSTER, ConfigDir};
use xds_tests::process::Process;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::plain_cluster;
use xds_tests::server::xds_server;
use xds_tests::wait::{PATIENCE, wait_for};

/// A line feed, an escape sequence with one byte and with two, a mark that turns the direction of writing, a separator.
const BAD: &str = "x\nforged\u{1b}[2J\u{9b}2J\u{202e}\u{2028}y";

#[tokio::test]
async fn node_ids_nacks_and_file_names_are_one_line_of_the_log_and_of_a_table() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("good.yaml", &[plain_cluster("a", 1)])?;
    dir.write(&format!("{BAD}.yaml"), "resources: [{'@type': 'what'}]")?;
    let data = tempfile::TempDir::new()?;
    let mut command = xds_server().await?;
    command.args(["serve", "--partial-start", "--log-level", "debug", "--watch"]).arg(dir.path());
    command
        .args(["--xds-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir"])
        .arg(data.path());
    let mut server = Process::spawn("xds-server", &mut command)?;
    let address = |line: &str, service: &str| -> Option<SocketAddr> {
        let (_, rest) = line.split_once(&format!("service=\"{service}\" addr="))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let xds = server.wait_line("the xDS port", PATIENCE, |line| address(line, "xds")).await?;
    let admin = server.wait_line("the admin port", PATIENCE, |line| address(line, "admin")).await?;

    let mut stream = SotwStream::open(raw::connect(xds).await?, path::ADS, raw::node(BAD, BAD));
    stream.subscribe(CLUSTER, &[]).await?;
    let response = stream.expect_type(CLUSTER).await?;
    stream.nack(&response, &[], "", BAD).await?;
    let admin = admin.to_string();
    let nodes = wait_for("the NACK", PATIENCE, async || {
        let text = cli(&["nodes", "--output", "table", "--admin", &admin]).await?;
        ensure!(text.contains("NACK") || text.contains("ERROR") || text.contains("REJECTED"), "{text}");
        Ok(text)
    })
    .await?;
    let status = cli(&["status", "--output", "table", "--admin", &admin]).await?;
    ensure!(status.lines().any(|line| line.contains(" rejects Cluster: x\\nforged")), "{status}");
    for (what, text) in [
        ("nodes", nodes),
        ("nodes of one", cli(&["nodes", BAD, "--output", "table", "--admin", &admin]).await?),
        ("status", status),
        ("events", cli(&["events", "--output", "table", "--admin", &admin]).await?),
        ("an error", cli(&["nodes", &format!("{BAD}z"), "--output", "table", "--admin", &admin]).await?),
    ] {
        plain(&text).with_context(|| format!("{what}: {text}"))?;
    }
    let log = wait_for("the NACK in the log", PATIENCE, async || {
        let log = server.log().containing("");
        ensure!(log.iter().any(|line| line.contains("forged") && line.contains("rejected")), "{log:#?}");
        Ok(log)
    })
    .await?;
    ensure!(log.iter().any(|line| line.contains("forged") && line.contains(".yaml")), "{log:#?}");
    plain(&log.join("\n"))?;
    ensure!(log.iter().all(|line| line.starts_with("20")), "a line without a time: {log:#?}");
    Ok(())
}

/// Nothing moves the cursor, and no line was forged.
fn plain(text: &str) -> Result<()> {
    let is_bad = |c: &char| c.is_control() && *c != '\n' || ('\u{2028}'..='\u{202e}').contains(c);
    ensure!(text.contains("forged"), "it is not about the test: {text}");
    ensure!(!text.chars().any(|c| is_bad(&c)), "{text:?}");
    ensure!(!text.lines().any(|line| line.starts_with("forged")), "{text:?}");
    Ok(())
}

/// Everything that a command writes, even if it fails.
async fn cli(args: &[&str]) -> Result<String> {
    let output = tokio::time::timeout(PATIENCE, xds_server().await?.args(args).output()).await??;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
