//! What servers export at `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::google::protobuf::Duration;
use promql_parser::parser::{Expr, parse};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use xds_tests::config::{CLUSTER, ConfigDir};
use xds_tests::etcd::Etcd;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup};
use xds_tests::spiffe_agent::SpiffeAgent;
use xds_tests::wait::{PATIENCE, wait_for};

/// The metrics, by the name that is documented: that of the samples, and of a histogram that of the whole.
#[derive(Debug, Default)]
pub(crate) struct Exported(pub(crate) BTreeMap<String, Metric>);

/// A metric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metric {
    /// `counter`, `gauge` or `histogram`.
    pub(crate) kind: String,
    /// True if there is any sample of it.
    pub(crate) is_seen: bool,
    /// The upper bounds of the buckets of a histogram.
    pub(crate) bounds: BTreeSet<String>,
    /// The values of each label, without those of Prometheus itself.
    pub(crate) labels: BTreeMap<String, BTreeSet<String>>,
}

impl Exported {
    /// Reads the text format.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let mut exported = Self::default();
        exported.add(text)?;
        Ok(exported)
    }

    /// Takes in what another server exports.
    fn add(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').context(line.to_owned())?;
                let suffix = if kind == "counter" { "_total" } else { "" };
                let metric = self.0.entry(format!("{name}{suffix}")).or_default();
                kind.clone_into(&mut metric.kind);
            } else if !line.starts_with('#') {
                let end = line.rfind(' ').context(line.to_owned())?;
                self.add_sample(&line[..end]).with_context(|| line.to_owned())?;
            }
        }
        Ok(())
    }

    /// A sample is written as PromQL selects it.
    fn add_sample(&mut self, sample: &str) -> Result<()> {
        let Ok(Expr::VectorSelector(selector)) = parse(sample) else { bail!("not a sample") };
        let name = selector.name.context("a name")?;
        let name = self.family(&name).context("a type")?.to_owned();
        let metric = self.0.entry(name).or_default();
        metric.is_seen = true;
        for label in selector.matchers.matchers {
            let values = match label.name.as_str() {
                "le" => &mut metric.bounds,
                _ => metric.labels.entry(label.name).or_default(),
            };
            values.insert(label.value);
        }
        Ok(())
    }

    /// The metric that has samples of this name.
    pub(crate) fn family(&self, sample: &str) -> Option<&str> {
        let of_histogram =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.strip_suffix(suffix));
        let is_histogram = |name: &str| self.0.get(name).is_some_and(|metric| metric.kind == "histogram");
        let found = of_histogram.filter(|name| is_histogram(name));
        let name = found.unwrap_or(sample);
        // A histogram has no samples of its own name.
        let is_it = found.is_some() || !is_histogram(name);
        self.0.get_key_value(name).filter(|_| is_it).map(|(name, _)| name.as_str())
    }
}

/// What a server exports that has everything, put together from several: one alone with TLS, two that share a store, one that relays
/// another, and one with a SPIFFE agent. `None` without an etcd.
pub(crate) async fn all() -> Result<Option<Exported>> {
    let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(None) };
    let mut exported = Exported::default();
    let dir = ConfigDir::new()?;
    dir.write("shop.yaml", ROUTES)?;
    dir.write("bad.yaml", "version: xds-server/v1\nroutes: { bad: { to: { one: 5% } } }\n")?;
    let alone = Setup::new()?.watch(dir.path()).arg("--partial-start").encrypted()?;
    let alone = Server::start_with(alone).await?;
    alone.wait_ready().await?;
    let _client = take_part(&alone, 1).await?;
    do_harm(&alone).await?;
    wait_samples(&alone, &["xds_rollout_failure_ratio{", "xds_snapshot_resources{"]).await?;
    exported.add(&metrics(&alone).await?)?;

    let relay = json!({
        "servers": [alone.xds().to_string()],
        "identities": [{"group": {"name": "default"}, "node": {"id": "relay-1", "cluster": "edge"}}],
    });
    let relay = dir.write("relay.conf", &relay.to_string())?;
    let relay = Server::start_with(Setup::new()?.arg("--relay").arg(relay.display().to_string())).await?;
    exported.add(&metrics(&relay).await?)?;

    let key = TempDir::new()?;
    fs::write(key.path().join("key"), "5a".repeat(32))?;
    let mut sharing = Vec::new();
    for id in ["one", "two"] {
        let setup = Setup::new()?.arg("--store").arg(etcd.url()).arg(format!("--instance-id={id}"));
        let setup = setup.arg("--store-key-file").arg(key.path().join("key").display().to_string());
        sharing.push(Server::start_with(setup.arg("--peer-listen=127.0.0.1:0")).await?);
    }
    exported.add(&metrics(&sharing[0]).await?)?;

    let mut agent = SpiffeAgent::new()?;
    agent.start()?;
    let with_agent = Setup::new()?.probe().arg(format!("--spiffe-endpoint={}", agent.endpoint()));
    let with_agent = Server::start_with(with_agent).await?;
    exported.add(&metrics(&with_agent).await?)?;
    Ok(Some(exported))
}

/// Has a server do everything once of which a metric has labels, and that is good. Returns the client, which reported that so many of 10
/// requests failed.
pub(crate) async fn take_part(server: &Server, n_failed: u64) -> Result<SotwStream> {
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("one", 1)])).await?;
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("edge-1", "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    let response = stream.expect_type(CLUSTER).await?;
    stream.ack(&response, &[]).await?;
    let rollout = json!({
        "route": {"kind": "Route", "namespace": "default", "name": "shop", "rule": "0"},
        "stable": "one", "canary": "two", "steps": [{"setWeight": 5}, {"pause": {}}],
    });
    server.post("/v1/rollouts", &rollout).await?;
    // A report counts from when all of its time is after the beginning of the rollout.
    wait_for("requests of the rollout", PATIENCE, async || {
        report_loads(server.xds(), n_failed).await?;
        ensure!(metrics(server).await?.contains("xds_rollout_failure_ratio{"));
        Ok(())
    })
    .await?;
    Ok(stream)
}

/// The same of what is bad.
pub(crate) async fn do_harm(server: &Server) -> Result<()> {
    ensure!(server.get("/v1/nodes/nobody").await?.status == 404);
    let denied = server.request("GET", "/v1/nodes", &[("host", "evil.example")], "").await?;
    ensure!(denied.status == 421, "{}", denied.status);
    // Neither a handshake nor anything else.
    let listens = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        let is_it = event["message"] == "listening" && event["service"] == "xds";
        event["addr"].as_str().filter(|_| is_it)?.parse::<SocketAddr>().ok()
    };
    let xds = server.log().find(listens).context("the xDS port")?;
    TcpStream::connect(xds).await?.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
    wait_samples(server, &["xds_tls_handshake_failures_total{"]).await
}

async fn wait_samples(server: &Server, wanted: &[&str]) -> Result<()> {
    wait_for("metrics", PATIENCE, async || {
        let text = metrics(server).await?;
        let missing = wanted.iter().find(|name| !text.contains(*name));
        ensure!(missing.is_none(), "there is no {missing:?}: {text}");
        Ok(())
    })
    .await
}

/// Reports requests of all clusters that the server asks about, as a client does.
async fn report_loads(xds: SocketAddr, n_failed: u64) -> Result<()> {
    let (requests, receiver) = mpsc::channel(2);
    let mut client = LoadReportingServiceClient::new(raw::connect(xds).await?);
    let node = Some(raw::node("edge-1", "c"));
    requests.send(LoadStatsRequest { node: node.clone(), ..LoadStatsRequest::default() }).await?;
    let mut answers = client.stream_load_stats(ReceiverStream::new(receiver)).await?.into_inner();
    answers.message().await?.context("an answer")?;
    let stats = |name: &str| ClusterStats {
        cluster_name: name.to_owned(),
        load_report_interval: Some(Duration { seconds: 1, nanos: 0 }),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            total_successful_requests: 10 - n_failed,
            total_error_requests: n_failed,
            total_issued_requests: 10,
            ..UpstreamLocalityStats::default()
        }],
        ..ClusterStats::default()
    };
    let cluster_stats = ["default/one", "default/two"].map(stats).to_vec();
    requests.send(LoadStatsRequest { node, cluster_stats }).await?;
    // The server has read everything that came before the end.
    drop(requests);
    while answers.message().await.is_ok_and(|answer| answer.is_some()) {}
    Ok(())
}

async fn metrics(server: &Server) -> Result<String> {
    Ok(server.get("/metrics").await?.success()?.text())
}

pub(crate) const ROUTES: &str = "version: xds-server/v1
listeners: { edge: { port: 10000, address: 127.0.0.1 } }
routes: { shop: { hosts: [shop.example.com], to: { one: 90, two: 10 } } }
backends:
  one: { endpoints: ['127.0.0.1:1'] }
  two: { endpoints: ['127.0.0.1:2'] }
";
