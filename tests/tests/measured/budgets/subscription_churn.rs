//! Clients that subscribe, unsubscribe and never acknowledge, as fast as they can.
//!
//! `XDS_BUDGETS=large` asks for 40,000 names at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;
use xds_tests::footprint::Meter;
use xds_tests::raw::{self, DeltaStream, path};
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;

use crate::budgets::Wire;

on_both_wires!(names_that_come_and_go_without_an_ack_hold_up_nobody);

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const VIRTUAL_HOSTS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

/// The name of a round, by its number.
type Name = fn(usize, usize) -> String;

/// The names that each of the clients asks for: its type, and a name by round and number.
const SHAPES: [(&str, Name); 4] = [
    (ENDPOINTS, |round, i| format!("{round}/{i}")),
    (CLUSTERS, |round, i| format!("cluster-{i}-{round}")),
    ("type.googleapis.com/envoy.config.listener.v3.Listener", |round, i| {
        format!("xdstp://a/envoy.config.listener.v3.Listener/{round}/{i}/*")
    }),
    (VIRTUAL_HOSTS, |round, i| format!("route/{i}.{round}.example.com")),
];

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn names_that_come_and_go_without_an_ack_hold_up_nobody(wire: Wire) -> Result<()> {
    let n_names =
        if std::env::var("XDS_BUDGETS").is_ok_and(|size| size == "large") { 40_000 } else { 10_000 };
    let mut server = Server::start_with(wire(Setup::metered()?)?).await?;
    server.put("/v1/groups/default/resources/clusters/c", &cluster()).await?;
    let meter = Meter::of(&server)?;
    let before = meter.begin()?;
    let rounds: [Arc<AtomicUsize>; SHAPES.len()] = Default::default();
    let mut attack = JoinSet::new();
    for (i, (type_url, name)) in SHAPES.into_iter().enumerate() {
        let (xds, rounds) = (server.xds(), Arc::clone(&rounds[i]));
        attack.spawn(async move {
            let channel = raw::connect(xds).await?;
            churn(channel, type_url, |round| (0..n_names).map(|i| name(round, i)).collect(), &rounds).await
        });
    }
    let mut worst = Worst::default();
    wait_for("twenty rounds of every client", Duration::from_secs(240), async || {
        worst.look(&server).await?;
        if let Some(ended) = attack.try_join_next() {
            ended?.context("an attacker")?;
        }
        let n: Vec<usize> = rounds.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        ensure!(
            n.iter().all(|n| *n >= N_ROUNDS),
            "{n:?} rounds; the server answered {} times, {worst:?}",
            worst.n
        );
        Ok(())
    })
    .await?;
    println!("{n_names} names, {N_ROUNDS} rounds, {} clients: {}; {worst:?}", SHAPES.len(), before.cost()?);
    // In the middle of the churn.
    let began = Instant::now();
    let status = server.stop().await?;
    ensure!(status.success(), "{status}");
    println!("ended {:?} after SIGTERM", began.elapsed());
    Ok(())
}

/// Subscribes to the names of one round after the other, and unsubscribes from those of the round before. Never acknowledges
/// anything. Opens a new stream when the server ends one, and returns why it did.
async fn churn(
    channel: tonic::transport::Channel,
    type_url: &str,
    names: impl Fn(usize) -> Vec<String>,
    rounds: &AtomicUsize,
) -> Result<()> {
    let open = || DeltaStream::open(channel.clone(), path::ADS_DELTA, raw::node("churn", ""));
    let (mut stream, mut before) = (open(), vec![]);
    for round in 0.. {
        let after = names(round);
        let request = DeltaDiscoveryRequest {
            node: Some(raw::node("churn", "")),
            type_url: type_url.to_owned(),
            resource_names_subscribe: after.clone(),
            resource_names_unsubscribe: std::mem::replace(&mut before, after),
            ..DeltaDiscoveryRequest::default()
        };
        let n_names = request.resource_names_subscribe.len();
        if stream.send(request).await.is_ok() && answers(&mut stream, n_names).await? {
            rounds.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        (stream, before) = (open(), vec![]);
    }
    Ok(())
}

/// Takes the answers for a number of names; false if the server refuses more.
async fn answers(stream: &mut DeltaStream, n_names: usize) -> Result<bool> {
    let mut n_answered = 0;
    while n_answered < n_names {
        match stream.expect_response_within(Duration::from_secs(120)).await {
            Ok(response) => n_answered += response.resources.len() + response.removed_resources.len(),
            Err(error) => {
                let text = format!("{error:#}");
                let is_refusal = text.contains(&format!("{:?}", Code::ResourceExhausted))
                    && text.contains("--max-names-per-type");
                // When the server ends, everything else may happen.
                ensure!(
                    is_refusal || text.contains("Unavailable") || !text.contains("no response"),
                    "{text}"
                );
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// How long the server took to answer others, at the worst.
#[derive(Debug, Default)]
struct Worst {
    n: usize,
    health: Duration,
    client: Duration,
}

impl Worst {
    /// Asks for the health, and for a cluster as a new client.
    async fn look(&mut self, server: &Server) -> Result<()> {
        let began = Instant::now();
        timeout(LIMIT, server.get("/healthz")).await.context("/healthz does not answer")??.success()?;
        self.health = self.health.max(began.elapsed());
        let began = Instant::now();
        let served = async {
            let channel = raw::connect(server.xds()).await?;
            let mut stream = DeltaStream::open(channel, path::ADS_DELTA, raw::node("good", ""));
            stream.subscribe(CLUSTERS, &["c"]).await?;
            stream.expect_type(CLUSTERS).await
        };
        let response = timeout(LIMIT, served).await.context("another client is not served")??;
        ensure!(response.resources.len() == 1, "{response:?}");
        self.client = self.client.max(began.elapsed());
        self.n += 1;
        Ok(())
    }
}

fn cluster() -> serde_json::Value {
    serde_json::json!({ "name": "c", "type": "STATIC", "connect_timeout": "1s" })
}

const N_ROUNDS: usize = 20;

/// How long anybody else may wait, on a machine that is busy with the attack.
const LIMIT: Duration = Duration::from_secs(5);
