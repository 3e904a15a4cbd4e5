//! Nodes: the server keeps the node of every client, so it keeps it small.

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::config::core::v3::{Extension, Node};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_prost::ProstCodec;
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::server::{Server, Setup};
use xds_tests::shapes::Shape;
use xds_tests::wait::PATIENCE;

use crate::budgets::Wire;

on_both_wires!(
    long_ids_are_refused_and_kept_nowhere,
    metadata_takes_little_whatever_its_shape,
    all_nodes_together_have_a_budget
);

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const REPORTS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const MIB: u64 = 1 << 20;
const NOISE: u64 = 16 * MIB;

fn request(node: Node) -> DiscoveryRequest {
    DiscoveryRequest { node: Some(node), ..raw::sotw_request(CLUSTER, &[]) }
}

/// How a stream ends that begins with this node; `None` if it is served.
async fn outcome(server: &Server, node: Node) -> Result<Option<tonic::Status>> {
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, Node::default());
    stream.send(request(node)).await?;
    Ok(stream.expect_outcome().await?.err())
}

/// Row 4: an id of 60 MB was kept by 1,024 events after its client left, and written to the log whole.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn long_ids_are_refused_and_kept_nowhere(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?)?).await?;
    let healthy = Healthy::start(&server).await?;
    let meter = Meter::of(&server)?;
    let measurement = meter.begin()?;
    for n in 0..20 {
        let id = format!("{n:02}{}", "x".repeat(900_000));
        let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, Node::default());
        stream.send(request(raw::node(&id, ""))).await?;
        let status = stream.expect_end().await?;
        ensure!(status.code() == Code::ResourceExhausted, "{status}");
        ensure!(status.message().contains("`node.id` has 900002 bytes; at most 4096"), "{status}");
        let stats = ClusterStats { cluster_name: "c".into(), ..Default::default() };
        let report = LoadStatsRequest { node: Some(raw::node(&id, "")), cluster_stats: vec![stats] };
        let status = end_of_reports(&server, report).await?;
        ensure!(status.code() == Code::ResourceExhausted, "{status}");
    }
    let cost = measurement.cost()?;
    println!("40 ids of 900 kB: {cost}");
    ensure!(cost.kept <= NOISE, "{cost}");
    ensure!(server.log().containing(&"x".repeat(5000)).is_empty(), "the id is in the log");
    let loads = server.get("/v1/loads").await?.text();
    ensure!(!loads.contains("xxxx"), "{loads}");
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// How a stream of load reports ends that begins so.
async fn end_of_reports(server: &Server, first: LoadStatsRequest) -> Result<tonic::Status> {
    let mut client = tonic::client::Grpc::new(raw::connect(server.xds()).await?);
    client.ready().await?;
    let requests = tonic::Request::new(tokio_stream::once(first).chain(tokio_stream::pending()));
    let codec = ProstCodec::<LoadStatsRequest, LoadStatsResponse>::default();
    let path = http::uri::PathAndQuery::from_static(REPORTS);
    match client.streaming(requests, path, codec).await {
        Err(status) => Ok(status),
        Ok(responses) => match timeout(PATIENCE, responses.into_inner().message()).await? {
            Err(status) => Ok(status),
            Ok(response) => anyhow::bail!("it is taken: {response:?}"),
        },
    }
}

/// Row 4: reading metadata of any shape takes no more memory than is kept of it.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn metadata_takes_little_whatever_its_shape(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?)?).await?;
    let healthy = Healthy::start(&server).await?;
    for shape in Shape::ALL {
        let fields = [("a".to_owned(), shape.value(1_000_000))].into();
        let node = Node { id: "n".into(), metadata: Some(Struct { fields }), ..Node::default() };
        let measurement = Meter::of(&server)?.begin()?;
        let status = outcome(&server, node).await?;
        let cost = measurement.cost()?;
        println!("{shape:?}: {status:?}: {cost}");
        ensure!(cost.peak <= 20 * MIB, "{shape:?}: {cost}");
    }
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// Row 4: clients that stay keep a bounded amount, each and all together, and an Envoy's list of extensions passes.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn all_nodes_together_have_a_budget(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?.arg("--max-node-memory=8MiB"))?).await?;
    let healthy = Healthy::start(&server).await?;
    let channel = raw::connect(server.xds()).await?;
    let measurement = Meter::of(&server)?.begin()?;
    let mut streams = Vec::new();
    let mut n_refused = 0;
    for n in 0..300 {
        let node = own_node(n);
        let mut stream = SotwStream::open(channel.clone(), path::ADS, Node::default());
        stream.send(request(node)).await?;
        match stream.expect_outcome().await? {
            Ok(_) => streams.push(stream),
            Err(status) => {
                ensure!(status.code() == Code::ResourceExhausted, "{status}");
                ensure!(status.message().contains("--max-node-memory"), "{status}");
                n_refused += 1;
            }
        }
    }
    let cost = measurement.cost()?;
    println!("300 nodes of 600 kB, of which {n_refused} are refused: {cost}");
    ensure!(n_refused > 200 && !streams.is_empty(), "{n_refused} refused");
    // A quarter of what was sent: the budget of nodes, and what HTTP/2 keeps of 68 streams on one connection.
    ensure!(cost.kept <= 42 * MIB, "{cost}");
    let metrics = server.get("/metrics").await?.text();
    for reason in ["node-memory", "node-details"] {
        let line = metrics.lines().find(|line| line.contains(&format!("reason=\"{reason}\"")));
        ensure!(!line.context("no such reason")?.ends_with(" 0"), "{line:?}");
    }
    // A client with a small node is served all the same.
    ensure!(outcome(&server, raw::node("small", "")).await?.is_none());
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// 60 KB of metadata and 500 KB of extensions that no other client has.
fn own_node(n: usize) -> Node {
    let text = |i: usize| Value { kind: Some(Kind::StringValue(format!("{n}-{i}-{}", "x".repeat(4000)))) };
    let fields = (0..15).map(|i| (i.to_string(), text(i))).collect();
    let extension =
        |i: usize| Extension { name: format!("{n}-{i}-{}", "x".repeat(1000)), ..Extension::default() };
    Node {
        id: format!("own-{n}"),
        metadata: Some(Struct { fields }),
        extensions: (0..500).map(extension).collect(),
        ..Node::default()
    }
}
