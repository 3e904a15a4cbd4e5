//! Subscriptions: the server keeps every name that a client asks for, so all names together have a budget.

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use tonic::transport::Channel;
use tonic::{Code, Status};
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::raw::{self, DeltaStream, path};
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};

use crate::budgets::Wire;

on_both_wires!(all_subscriptions_together_have_a_budget, unknown_types_keep_few_names);

const MIB: u64 = 1 << 20;
const N_NAMES: usize = 40_000;

/// The types of which clients ask for names.
const TYPES: [&str; 6] = [
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
];

/// Subscribes to that many names of each of these types, until the server refuses. Returns the stream and the refusal.
async fn subscribe(
    channel: &Channel,
    client: usize,
    n_names: usize,
    types: impl Iterator<Item = String>,
) -> Result<(DeltaStream, Option<Status>)> {
    let mut stream = DeltaStream::open(channel.clone(), path::ADS_DELTA, raw::node("n", ""));
    for type_url in types {
        let request = DeltaDiscoveryRequest {
            node: Some(raw::node("n", "")),
            type_url,
            resource_names_subscribe: (0..n_names).map(|i| format!("{client}/{i}")).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        stream.send(request).await?;
        if let Err(status) = stream.expect_outcome().await? {
            return Ok((stream, Some(status)));
        }
    }
    Ok((stream, None))
}

fn is_refusal(status: Option<&Status>, whose: &str) -> bool {
    status.is_some_and(|status| {
        let words = [whose, "--max-subscription-memory"];
        status.code() == Code::ResourceExhausted && words.iter().all(|word| status.message().contains(word))
    })
}

fn types(n: usize) -> impl Iterator<Item = String> {
    TYPES.into_iter().take(n).map(str::to_owned)
}

/// Of types that nobody knows, 100 on a stream, each up to the limit of names, would be the most that a stream can ask for.
async fn unknown_types_keep_few_names(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?)?).await?;
    let channel = raw::connect(server.xds()).await?;
    let measurement = Meter::of(&server)?.begin()?;
    let unknown = || (0..100).map(|n| format!("type.googleapis.com/example.T{n}"));
    for n_names in [20, 10_000] {
        let (_stream, status) = subscribe(&channel, 0, n_names, unknown()).await?;
        let status = status.context("more than a thousand names were taken")?;
        ensure!(
            status.code() == Code::ResourceExhausted
                && status
                    .message()
                    .contains("more than 1000 names of resource types that this server does not know"),
            "{status:?}"
        );
    }
    let cost = measurement.cost()?;
    ensure!(cost.kept <= 16 * MIB, "{cost}");
    Ok(())
}

/// One stream kept 3.1 GB: 250,000 names of each of 100 types.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn all_subscriptions_together_have_a_budget(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?.arg("--max-subscription-memory=256MiB"))?).await?;
    let healthy = Healthy::start(&server).await?;
    let channel = raw::connect(server.xds()).await?;
    let measurement = Meter::of(&server)?.begin()?;
    let (_stream, status) = subscribe(&channel, 0, N_NAMES, types(6)).await?;
    ensure!(is_refusal(status.as_ref(), "this client"), "{status:?}");
    println!("one client: {}", measurement.cost()?);
    let (mut streams, mut refused) = (Vec::new(), None);
    while refused.is_none() && streams.len() < 30 {
        let (stream, status) = subscribe(&channel, streams.len(), N_NAMES, types(2)).await?;
        streams.push(stream);
        refused = status;
    }
    ensure!(is_refusal(refused.as_ref(), "the clients of this address"), "{refused:?}");
    let cost = measurement.cost()?;
    println!("{} clients with {} names each: {cost}", streams.len(), 2 * N_NAMES);
    ensure!(streams.len() > 10, "only {} clients", streams.len());
    // The half of the budget that an address has, and a request and an answer being handled.
    ensure!(cost.kept <= 128 * MIB + 32 * MIB, "{cost}");
    // Whoever asks for little is served all the same.
    let mut small = DeltaStream::open(channel.clone(), path::ADS_DELTA, raw::node("small", ""));
    small.subscribe("type.googleapis.com/envoy.config.cluster.v3.Cluster", &[]).await?;
    small.expect_response().await?;
    println!("healthy: {:?}", healthy.check().await?.worst);
    // What has ended leaves its room.
    drop(streams);
    wait_for("room", PATIENCE, async || {
        let (_stream, status) = subscribe(&channel, 1, N_NAMES, types(2)).await?;
        ensure!(status.is_none(), "{status:?}");
        Ok(())
    })
    .await
}
