//! The log that people read: clients that come and go, and texts of clients that would forge lines.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use xds_tests::config::CLUSTER;
use xds_tests::http::Http;
use xds_tests::process::Process;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup, free_addr, xds_server};
use xds_tests::wait::{PATIENCE, wait_for};

/// Begins a line of its own, colours it, moves the cursor, and turns the direction of writing.
const HOSTILE: &str =
    "edge\r\n2026-11-22T00:00:00.000000Z ERROR xds_server: forged\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\u{7}x";

/// A line begins with its time; nothing in it is a control character or changes the direction of writing.
fn check_line(line: &str) -> Result<()> {
    let time = line.split(' ').next().unwrap_or_default();
    ensure!(time.len() == 27 && time.ends_with('Z') && time.contains('T'), "no line of the server: {line:?}");
    let is_bad = |c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c);
    ensure!(!line.contains(is_bad), "{line:?}");
    ensure!(line.split_whitespace().nth(1) != Some("ERROR"), "forged: {line:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_client_says_begins_a_line_or_moves_the_cursor() -> Result<()> {
    let (data, xds, admin) = (TempDir::with_prefix("xds-log-")?, free_addr()?, free_addr()?);
    let mut command = xds_server().await?;
    command.args(["serve", "--xds-listen", &xds.to_string(), "--admin-listen", &admin.to_string()]);
    command
        .arg("--log-level=debug,h2=off,hyper=off,hyper_util=off,tower=off")
        .arg("--data-dir")
        .arg(data.path());
    let process = Process::spawn("xds-server", command.env_remove("RUST_BACKTRACE"))?;
    let http = Http::new();
    let ready = async || http.get(&format!("http://{admin}/readyz")).await?.success().map(drop);
    wait_for("readiness", PATIENCE, ready).await?;
    let name = HOSTILE.replace(['\r', '\n'], " ");
    let body = resources(&[plain_cluster("one", 1)]);
    let put = |path: &str, body: &Value| {
        let request = http::Request::put(format!("http://{admin}{path}"));
        let request = request.header("content-type", "application/json").header("x-request-id", "a\u{9b}b");
        let request = request.header("user-agent", "evil\u{1b}[2J".replace('\u{1b}', "\u{9b}"));
        request.body(http_body_util::Full::from(body.to_string()))
    };
    http.send(put("/v1/groups/default/resources", &body)?).await?.success()?;

    let mut node = raw::node(HOSTILE, HOSTILE);
    node.user_agent_name = HOSTILE.to_owned();
    let version = node.user_agent_version_type.insert(
        envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType::UserAgentVersion(
            HOSTILE.to_owned(),
        ),
    );
    ensure!(format!("{version:?}").contains("forged"));
    let mut stream = SotwStream::open(raw::connect(xds).await?, path::ADS, node);
    stream.subscribe(CLUSTER, &[]).await?;
    let response = stream.expect_type(CLUSTER).await?;
    stream.nack(&response, &[], "", HOSTILE).await?;
    // Names of resources and types that do not exist.
    stream.subscribe(&format!("type.googleapis.com/{name}"), &[HOSTILE]).await?;
    let log = process.log();
    for (what, text) in [("the NACK", "a client rejected a response"), ("the client", "a client connected")] {
        wait_for(what, PATIENCE, async || log.find(|line| line.contains(text).then_some(())).context(what))
            .await?;
    }
    drop(stream);
    let line = wait_for("the client's end", PATIENCE, async || {
        log.find(|line| line.contains("a client disconnected").then(|| line.to_owned()))
            .context(log.to_string())
    })
    .await?;
    ensure!(line.contains("\\r\\n") && line.contains("forged"), "the id is shown escaped: {line:?}");
    let lines = log.containing("");
    ensure!(lines.len() > 5, "{log}");
    lines.iter().try_for_each(|line| check_line(line))
}

/// The log's events with a message that contains `text`.
fn events(server: &Server, text: &str) -> Vec<Value> {
    server.log().containing(text).iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_and_goes_has_two_lines() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    server.put("/v1/groups/edge", &json!({"selector": {"nodeIds": ["edge-*"]}, "client": "grpc"})).await?;
    let mut node = raw::node("edge-1", "c");
    node.user_agent_name = "envoy".to_owned();
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, node);
    stream.subscribe(CLUSTER, &[]).await?;
    let line =
        wait_for("a line", PATIENCE, async || events(&server, "a client connected").pop().context("none"));
    let line = line.await?;
    let expected = [
        ("node", "edge-1"),
        ("groups", "edge+default"),
        ("profile", "grpc"),
        ("client", "envoy"),
        ("variant", "sotw"),
    ];
    for (field, value) in expected {
        ensure!(line[field] == value, "{field}: {line}");
    }
    ensure!(
        line["level"] == "INFO" && line["address"].as_str().is_some_and(|a| a.contains("127.0.0.1")),
        "{line}"
    );
    stream.half_close();
    let line =
        wait_for("a line", PATIENCE, async || events(&server, "a client disconnected").pop().context("none"));
    let line = line.await?;
    ensure!(line["node"] == "edge-1" && line["reason"] == "the client ended the stream", "{line}");
    ensure!(line["connected_for"].is_string(), "{line}");
    ensure!(events(&server, "a client connected").len() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_all_at_once_are_counted_and_not_listed() -> Result<()> {
    const N_CLIENTS: u64 = 300;
    let mut server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let channel = raw::connect(server.xds()).await?;
    let began = std::time::Instant::now();
    let mut streams = Vec::new();
    for i in 0..N_CLIENTS {
        let mut stream = SotwStream::open(channel.clone(), path::ADS, raw::node(&format!("edge-{i}"), "c"));
        stream.subscribe(CLUSTER, &[]).await?;
        streams.push(stream);
    }
    let n_more = |server: &Server| {
        let rest = events(server, "more clients connected or disconnected");
        let sum = |field: &str| rest.iter().filter_map(|line| line[field].as_u64()).sum::<u64>();
        (sum("n_connected"), sum("n_disconnected"))
    };
    let counted = |server: &Server| n_more(server).0 + events(server, "a client connected").len() as u64;
    wait_for("everyone to be counted", PATIENCE, async || {
        let n = counted(&server);
        ensure!(n == N_CLIENTS, "{n} are counted");
        Ok(())
    })
    .await?;
    let most = 20 * (began.elapsed() + Duration::from_secs(2)).as_secs();
    let n_lines = events(&server, "a client connected").len();
    ensure!(n_lines as u64 <= most && n_lines < 200, "{n_lines} lines");

    // At the end everyone goes, and is counted too.
    server.stop().await?;
    let gone = n_more(&server).1 + events(&server, "a client disconnected").len() as u64;
    ensure!(gone == N_CLIENTS, "{gone} are gone");
    let told = events(&server, "a client disconnected").pop().context("a line of the end")?;
    ensure!(told["reason"] == "the server is shutting down", "{told}");
    Ok(())
}
