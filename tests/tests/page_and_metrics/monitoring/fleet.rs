//! Numbers that a server exports, while clients answer, lag, reject and wait.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::config::{CLUSTER, ConfigDir};
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};

#[tokio::test]
async fn nodes_count_by_what_they_have_accepted() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    put(&server, 1).await?;
    let (mut fast, mut slow) = (client(&server, "fast").await?, client(&server, "slow").await?);
    for stream in [&mut fast, &mut slow] {
        let response = stream.expect_type(CLUSTER).await?;
        stream.ack(&response, &[]).await?;
    }
    wait_numbers(
        &server,
        &[("xds_nodes_in_state{state=\"acknowledged\"}", 2.0), ("xds_nodes{status=\"SYNCED\"}", 2.0)],
    )
    .await?;

    put(&server, 2).await?;
    let response = fast.expect_type(CLUSTER).await?;
    fast.ack(&response, &[]).await?;
    let response = slow.expect_type(CLUSTER).await?;
    let half = [
        ("xds_nodes_in_state{state=\"acknowledged\"}", 1.0),
        ("xds_nodes_in_state{state=\"pending\"}", 1.0),
        ("xds_nodes{status=\"STALE\"}", 1.0),
        ("xds_fleet_lag_seconds_count{share=\"50\"}", 1.0),
        ("xds_fleet_lag_seconds_count{share=\"99\"}", 0.0),
    ];
    wait_numbers(&server, &half).await?;
    ensure!(number(&server, "xds_fleet_waiting_seconds").await? > 0.0);
    slow.ack(&response, &[]).await?;
    let all = [
        ("xds_nodes_in_state{state=\"acknowledged\"}", 2.0),
        ("xds_fleet_lag_seconds_count{share=\"50\"}", 1.0),
        ("xds_fleet_lag_seconds_count{share=\"100\"}", 1.0),
        ("xds_fleet_waiting_seconds", 0.0),
    ];
    wait_numbers(&server, &all).await?;

    // A change of another group is none for these clients.
    let other = json!({"selector": {"nodeIds": ["other"]}});
    server.put("/v1/groups/other", &other).await?;
    server.put("/v1/groups/other/resources", &resources(&[plain_cluster("own", 1)])).await?;
    wait_numbers(&server, &all).await?;

    // A rejection is an answer, but not the newest resources.
    put(&server, 3).await?;
    let response = fast.expect_type(CLUSTER).await?;
    fast.nack(&response, &[], "1", "no").await?;
    let response = slow.expect_type(CLUSTER).await?;
    slow.ack(&response, &[]).await?;
    let rejected = [
        ("xds_nodes{status=\"ERROR\"}", 1.0),
        ("xds_nodes_in_state{state=\"pending\"}", 1.0),
        ("xds_fleet_lag_seconds_count{share=\"50\"}", 2.0),
        ("xds_fleet_lag_seconds_count{share=\"100\"}", 1.0),
        ("xds_fleet_waiting_seconds", 0.0),
        ("xds_nacks_total{type=\"clusters\"}", 1.0),
    ];
    wait_numbers(&server, &rejected).await?;
    drop((fast, slow));
    wait_numbers(&server, &[("xds_nodes{status=\"ERROR\"}", 0.0), ("xds_nodes{status=\"SYNCED\"}", 0.0)])
        .await
}

#[tokio::test]
async fn requests_rollouts_and_problems_count_by_what_they_are() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write("shop.yaml", ROUTES)?;
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    for _ in 0..2 {
        ensure!(server.get("/v1/nodes/hidden-name").await?.status == 404);
    }
    ensure!(server.get("/hidden-path").await?.status == 404);
    let rollout = json!({
        "route": {"kind": "Route", "namespace": "default", "name": "shop", "rule": "0"},
        "stable": "one", "canary": "two", "steps": [{"setWeight": 25}, {"pause": {}}],
    });
    let begun = server.post("/v1/rollouts", &rollout).await?;
    let id = begun["id"].as_str().context("an id")?;
    let weight = format!("xds_rollout_canary_weight_ratio{{rollout=\"{id}\"}}");
    let counted = [
        ("xds_api_refusals_total{status=\"404\",type=\"not-found\"}", 2.0),
        ("xds_api_refusals_total{status=\"404\",type=\"no-such-path\"}", 1.0),
        ("xds_api_request_duration_seconds_count{method=\"GET\",route=\"/v1/nodes/{id}\"}", 2.0),
        ("xds_api_request_duration_seconds_count{method=\"GET\",route=\"other\"}", 1.0),
        ("xds_problems{subject=\"broken-files\"}", 0.0),
        (&*weight, 0.25),
    ];
    wait_numbers(&server, &counted).await?;
    let text = server.get("/metrics").await?.text();
    ensure!(!text.contains("hidden"), "{text}");

    server.request("POST", &format!("/v1/rollouts/{id}:abort"), &[], "").await?.success()?;
    let has_ended = |rollout: &Value| rollout["phase"] == "Aborted";
    server.wait_json(&format!("/v1/rollouts/{id}"), has_ended).await?;
    ensure!(!server.get("/metrics").await?.text().contains(&weight), "a rollout that has ended has a weight");
    dir.write("bad.yaml", "version: xds-server/v1\nroutes: { bad: { to: { one: 5% } } }\n")?;
    wait_numbers(&server, &[("xds_problems{subject=\"broken-files\"}", 1.0), ("xds_file_errors", 1.0)]).await
}

async fn put(server: &Server, content: u64) -> Result<Value> {
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", content)])).await
}

async fn client(server: &Server, node_id: &str) -> Result<SotwStream> {
    let channel = raw::connect(server.xds()).await?;
    let mut stream = SotwStream::open(channel, path::ADS, raw::node(node_id, "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    Ok(stream)
}

async fn wait_numbers(server: &Server, expected: &[(&str, f64)]) -> Result<()> {
    wait_for("numbers", PATIENCE, async || {
        for (name, expected) in expected {
            let found = number(server, name).await?;
            ensure!(found == *expected, "{name} is {found}, not {expected}");
        }
        Ok(())
    })
    .await
}

/// A sample, whatever the order of its labels.
async fn number(server: &Server, sample: &str) -> Result<f64> {
    let text = server.get("/metrics").await?.success()?.text();
    let (wanted, mut wanted_labels) = parts(sample);
    wanted_labels.sort_unstable();
    let found = text.lines().find_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let (name, mut labels) = parts(sample);
        labels.sort_unstable();
        (name == wanted && labels == wanted_labels).then(|| value.parse().ok())?
    });
    found.with_context(|| format!("there is no {sample}"))
}

fn parts(sample: &str) -> (&str, Vec<&str>) {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
    (name, labels.trim_end_matches('}').split("\",").map(|label| label.trim_end_matches('"')).collect())
}

const ROUTES: &str = "version: xds-server/v1
listeners: { edge: { port: 10000, address: 127.0.0.1 } }
routes: { shop: { hosts: [shop.example.com], to: { one: 90, two: 10 } } }
backends:
  one: { endpoints: ['127.0.0.1:1'] }
  two: { endpoints: ['127.0.0.1:2'] }
";
