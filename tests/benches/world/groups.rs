//! Changes among many node groups.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};
use xds_tests::footprint::Meter;
use xds_tests::raw;
use xds_tests::server::{Server, Setup};

use crate::clients::{CLUSTERS, Follower, envoy};
use crate::samples::sample;

/// A table of kinds of changes by number of groups.
pub(crate) async fn table(sizes: &[usize]) -> Result<String> {
    let mut table = "| groups | created one by one | `PUT` to one, nobody connected | all nodes connected | a change in `default` of 1,000 \
                     clusters, until the last of at most 1,000 nodes has it |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    for n in sizes {
        table += &measure(*n).await?;
    }
    Ok(table + "\nMedian until it is answered or seen / processor time of the server.\n")
}

/// How many nodes share a connection.
const NODES_A_CONNECTION: usize = 50;
const N_SHARED: usize = 1_000;
const MAX_NODES_OF_DEFAULT: usize = 1_000;

async fn measure(n_groups: usize) -> Result<String> {
    let server = Server::start_with(Setup::metered()?).await?;
    server.wait_ready().await?;
    let meter = Meter::of(&server)?;
    let begun = Instant::now();
    for group in 0..n_groups {
        put(&server, group, 0).await?;
    }
    let created = begun.elapsed();
    let alone = sample(meter, async |i| put(&server, i % n_groups, i + 1).await).await?;
    let mut nodes = connect(&server, n_groups).await?;
    let connected = sample(meter, async |i| put(&server, i % n_groups, i + 100).await).await?;
    nodes.truncate(MAX_NODES_OF_DEFAULT);
    let shared: Map<String, Value> =
        (0..N_SHARED).map(|i| (format!("shared-{i}"), cluster(&format!("shared-{i}"), 1))).collect();
    let resources: Vec<&Value> = shared.values().collect();
    nodes.iter_mut().for_each(Follower::mark);
    server.put("/v1/groups/default/resources", &json!({"resources": resources})).await?;
    all(&mut nodes).await?;
    let below = sample(meter, async |i| {
        nodes.iter_mut().for_each(Follower::mark);
        let name = format!("shared-{i}");
        server.put(&format!("/v1/groups/default/resources/clusters/{name}"), &cluster(&name, i + 2)).await?;
        all(&mut nodes).await
    });
    let below = below.await?;
    let created = format!("{:.1} s", created.as_secs_f64());
    Ok(format!("| {n_groups} | {created} | {} | {} | {} |\n", alone.cell(), connected.cell(), below.cell()))
}

/// One node for each group.
async fn connect(server: &Server, n_groups: usize) -> Result<Vec<Follower>> {
    let mut nodes = Vec::with_capacity(n_groups);
    for first in (0..n_groups).step_by(NODES_A_CONNECTION) {
        let channel = raw::connect(server.xds()).await?;
        for group in first..n_groups.min(first + NODES_A_CONNECTION) {
            nodes.push(Follower::start(channel.clone(), envoy(&name(group)), &[(CLUSTERS, &[])]).await?);
        }
    }
    Ok(nodes)
}

async fn all(nodes: &mut [Follower]) -> Result<()> {
    let all = try_join_all(nodes.iter_mut().map(Follower::next));
    tokio::time::timeout(LONG, all).await.context("not all nodes have it")?.map(drop)
}

async fn put(server: &Server, group: usize, timeout: usize) -> Result<()> {
    let path = format!("/v1/groups/{}/resources/clusters/own", name(group));
    server.put(&path, &cluster("own", timeout)).await.map(drop)
}

fn name(group: usize) -> String {
    format!("node-{group:05}")
}

fn cluster(name: &str, timeout: usize) -> Value {
    json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name, "type": "STATIC", "connect_timeout": format!("{}s", timeout + 1),
    })
}

const LONG: Duration = Duration::from_secs(60);
