//! Load reports that no client should send, while a rollout is judged by them.

use std::time::Duration;

use anyhow::{Result, ensure};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UpstreamLocalityStats,
};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use xds_tests::config::ConfigDir;
use xds_tests::documents::service;
use xds_tests::raw;
use xds_tests::route_client::RouteClient;
use xds_tests::server::{Server, Setup, xds_server};
use xds_tests::wait::PATIENCE;

use crate::rollouts::support::{ROUTES, RULE, documents, rollout, start, wait_phase, world};

/// A stream on which anything can be reported.
struct Reports {
    requests: mpsc::Sender<LoadStatsRequest>,
    responses: Streaming<LoadStatsResponse>,
}

impl Reports {
    /// Opens a stream with its first request.
    async fn open(server: &Server, first: LoadStatsRequest) -> Result<Self, Status> {
        let unreachable = |error: anyhow::Error| Status::unknown(format!("{error:#}"));
        let channel = raw::connect(server.xds()).await.map_err(unreachable)?;
        let (requests, receiver) = mpsc::channel(8);
        let _ = requests.send(first).await;
        let mut client = LoadReportingServiceClient::new(channel);
        let responses = client.stream_load_stats(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { requests, responses })
    }

    async fn send(&self, stats: Vec<ClusterStats>) -> Result<()> {
        Ok(self.requests.send(LoadStatsRequest { node: None, cluster_stats: stats }).await?)
    }

    async fn next(&mut self) -> Result<LoadStatsResponse, Status> {
        let next = timeout(PATIENCE, self.responses.message()).await;
        let next = next.map_err(|_| Status::deadline_exceeded("no response"))?;
        next.and_then(|response| response.ok_or_else(|| Status::ok("the stream ended")))
    }
}

fn hello(id: &str) -> LoadStatsRequest {
    LoadStatsRequest {
        node: (!id.is_empty()).then(|| Node { id: id.into(), ..Node::default() }),
        cluster_stats: vec![],
    }
}

/// A second of requests to a cluster.
fn stats(cluster: &str, successful: u64, errors: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        load_report_interval: Some(ProtoDuration { seconds: 1, nanos: 0 }),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            total_successful_requests: successful,
            total_error_requests: errors,
            total_issued_requests: successful.saturating_add(errors),
            ..UpstreamLocalityStats::default()
        }],
        ..ClusterStats::default()
    }
}

/// A report with a value of a backend that is no number.
fn with_metric(cluster: &str, value: f64) -> ClusterStats {
    let mut stats = stats(cluster, 1, 0);
    for locality in &mut stats.upstream_locality_stats {
        locality.load_metric_stats = vec![EndpointLoadMetricStats {
            metric_name: "m".into(),
            num_requests_finished_with_metric: 1,
            total_metric_value: value,
        }];
    }
    stats
}

const CANARY: &str = "default/v2/8080";

/// A report that passes a limit counts for nothing and ends its own stream.
#[tokio::test]
async fn a_report_over_a_limit_is_refused_whole() -> Result<()> {
    let world = world().await?;
    let mut stream = Reports::open(&world.server, hello("large")).await?;
    stream.next().await?;
    stream.send(vec![stats(CANARY, 50, 50), stats(&"x".repeat(5_000), 0, 1_000)]).await?;
    let refused = loop {
        if let Err(status) = stream.next().await {
            break status;
        }
    };
    ensure!(refused.code() == Code::ResourceExhausted && refused.message().contains("4096"), "{refused:?}");
    let loads = world.server.get_json("/v1/loads").await?;
    ensure!(
        !loads.to_string().contains("\"errors\": 50") && !loads.to_string().contains("\"errors\":50"),
        "{loads:#}"
    );
    Ok(())
}

#[tokio::test]
async fn reports_that_cannot_be_true_decide_nothing_and_weights_stay() -> Result<()> {
    let world = world().await?;
    let server = &world.server;
    // A client without a node id is refused, with or without a report.
    for cluster_stats in [vec![], vec![stats(CANARY, 0, 1_000)]] {
        let first = LoadStatsRequest { node: None, cluster_stats };
        let refused = match Reports::open(server, first).await {
            Ok(mut stream) => stream.next().await.map(drop).unwrap_err(),
            Err(status) => status,
        };
        ensure!(refused.code() == Code::InvalidArgument && refused.message().contains("node"), "{refused:?}");
    }
    let routes = format!("default/web/{}", world.port("web")?);
    let _client = RouteClient::start(server.xds(), "edge-1", &routes);
    let fields = json!({"steps": [
        {"setWeight": 20},
        {"analysis": {"interval": "2s", "minRequests": 10, "maxErrorRate": 1, "inconclusiveLimit": 0}},
    ]});
    let id = start(server, &fields).await?;
    let path = format!("/v1/rollouts/{id}");
    server.wait_json(&path, |one| one["step"] == 2).await?;
    // This client never asked for any configuration.
    let mut stream = Reports::open(server, hello("stranger")).await?;
    let asked = stream.next().await?;
    ensure!(asked.clusters.iter().any(|name| name == CANARY), "{asked:?}");
    let negative = u64::MAX - 4; // −5, as a client writes it that takes it for signed.
    let mut without_interval = stats(CANARY, 0, u64::MAX);
    without_interval.load_report_interval = Some(ProtoDuration { seconds: -1, nanos: -1 });
    let hostile = vec![
        stats("nobody/has/this", 0, 1_000),
        stats(CANARY, 0, negative),
        stats(CANARY, negative, 10),
        stats(CANARY, 0, 2_000_000_000_000),
        without_interval,
        stats("", 0, 1_000),
    ];
    let n_left_out = hostile.len() - 1;
    stream.send(hostile).await?;
    // Numbers that are none do not take good ones with them.
    stream.send([f64::NAN, f64::INFINITY, -1e308].map(|value| with_metric(CANARY, value)).into()).await?;
    let paused = wait_phase(server, &id, "Paused", Duration::from_secs(20)).await?;
    ensure!(paused["failedMeasurements"] == 0, "{paused:#}");
    ensure!(paused["message"].to_string().contains("requests; at least 10 are needed"), "{paused:#}");
    let rule = server.get_json(RULE).await?;
    assert_eq!(rule["backends"], json!({"v1:8080": 80, "v2:8080": 20}));
    let loads = server.get_json("/v1/loads").await?;
    let of = |name: &str| {
        let found = loads["clusters"].as_array().into_iter().flatten();
        found.clone().find(|load| load["name"] == name).cloned().unwrap_or_default()
    };
    assert_eq!((&of(CANARY)["issued"], &of(CANARY)["errors"]), (&json!(3), &json!(0)), "{loads:#}");
    assert_eq!(of("nobody/has/this")["known"], false, "{loads:#}");
    let metrics = server.get("/metrics").await?.text();
    let left_out = metrics.lines().filter(|line| line.starts_with("xds_load_reports_left_out_total{"));
    let left_out: usize = left_out.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
    assert_eq!(left_out, n_left_out, "{metrics}");

    // A true report still counts: the stream was not harmed.
    server.post(&format!("{path}:resume"), &json!({})).await?;
    let failed = async {
        loop {
            stream.send(vec![stats(CANARY, 50, 50)]).await?;
            let one = server.get_json(&path).await?;
            if one["phase"] == "Failed" {
                return anyhow::Ok(one);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let failed = timeout(PATIENCE, failed).await??;
    assert_eq!(failed["weights"], json!({"stable": 100, "canary": 0}));
    Ok(())
}

/// A report is enough, however long the measurement still has; and the shell that waits for the end learns why.
#[tokio::test]
async fn a_canary_of_which_everything_fails_ends_the_watch_with_the_reason_and_a_failure() -> Result<()> {
    let dir = ConfigDir::new()?;
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, addr), service("default", "v2", 8080, addr)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", &documents("8080"))?;
    let setup = Setup::new()?.watch(dir.path()).arg("--load-report-interval=1s");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let _client = RouteClient::start(server.xds(), "edge-1", ROUTES);
    let fields = json!({"steps": [
        {"setWeight": 20}, {"analysis": {"interval": "1h", "failureLimit": 100, "maxErrorRate": 1}},
    ]});
    let file = dir.path().with_extension("rollout.json");
    std::fs::write(&file, rollout(&fields).to_string())?;
    let mut command = xds_server().await?;
    command
        .args(["rollout", "start", "--watch", "--output", "table", "--admin", &server.url(""), "-f"])
        .arg(&file);
    let watching = tokio::spawn(async move { command.kill_on_drop(true).output().await });
    server.wait_json("/v1/rollouts", |all| all["rollouts"][0]["step"] == 2).await?;
    let mut stream = Reports::open(&server, hello("edge-1")).await?;
    stream.next().await?;
    let failed = async {
        loop {
            stream.send(vec![stats(CANARY, 0, 42)]).await?;
            let one = server.get_json("/v1/rollouts").await?["rollouts"][0].take();
            if one["phase"] == "Failed" {
                return anyhow::Ok(one);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let failed = timeout(PATIENCE, failed).await??;
    let reason = failed["reason"].as_str().unwrap_or_default();
    ensure!(reason.ends_with("requests of the canary failed; at most 1 % may"), "{failed:#}");
    assert_eq!((&failed["step"], &failed["nSteps"]), (&json!(2), &json!(3)), "{failed:#}");
    let figures = &failed["lastMeasurement"]["canary"];
    ensure!(figures["requests"] == figures["failures"] && figures["requests"] != 0, "{failed:#}");
    let output = timeout(PATIENCE, watching).await???;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (shown, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    let last = shown.rsplit("ROLLOUT ").next().unwrap_or_default();
    ensure!(
        last.contains(&format!("REASON               {reason}\n")) && last.contains("100.00 %"),
        "{last}"
    );
    ensure!(last.contains("STEP                 2 of 3\n") && last.contains("ELAPSED "), "{last}");
    ensure!(said.starts_with("error: the rollout ") && said.contains(" is Failed after "), "{said}");
    std::fs::remove_file(&file)?;
    Ok(())
}
