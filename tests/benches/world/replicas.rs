//! What a store that servers share costs, beside that of one server; and what it costs to count the clients of another server.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;
use xds_tests::config::CLUSTER;
use xds_tests::envoy::Envoy;
use xds_tests::etcd::Etcd;
use xds_tests::footprint::Meter;
use xds_tests::raw;
use xds_tests::seen::plain_cluster;
use xds_tests::server::{Server, Setup, cli};
use xds_tests::wait::wait_for;

use crate::clients::{Follower, envoy};

/// Writes of one writer, one after the other.
const N_WRITES: usize = 300;
/// How long writers write at once.
const WRITING: Duration = Duration::from_secs(10);
/// How often the server of an Envoy is killed.
const N_FAILOVERS: usize = 7;
/// How often a write waits for all clients.
const N_WAITS: usize = 9;

/// Servers that share a store, or one alone.
struct Group {
    servers: Vec<Arc<Server>>,
    _etcd: Option<Etcd>,
    _key: TempDir,
}

impl Group {
    /// Two servers with an etcd of so many members; one alone with none.
    async fn start(n_members: usize) -> Result<Self> {
        let key = TempDir::new()?;
        fs::write(key.path().join("key"), "5a".repeat(32))?;
        let etcd = match n_members {
            0 => None,
            n => Some(Etcd::start(n, &[]).await?.context("there is no etcd")?),
        };
        let mut servers = Vec::new();
        for n in 0..if etcd.is_some() { 2 } else { 1 } {
            // One server has all clients on purpose: it is not to send any to the other one.
            let mut setup = Setup::metered()?
                .fixed_xds_port()?
                .arg("--hold-mass-removal=off")
                .arg("--max-connection-age=0s");
            if let Some(etcd) = &etcd {
                setup = setup
                    .arg(format!("--store={}", etcd.url()))
                    .arg(format!("--store-key-file={}", key.path().join("key").display()))
                    .arg(format!("--instance-id=s{n}"))
                    .arg("--peer-listen=127.0.0.1:0");
            }
            let server = Server::start_with(setup).await?;
            server.wait_ready().await?;
            servers.push(Arc::new(server));
        }
        let n_servers = servers.len();
        if n_servers > 1 {
            for server in &servers {
                let all = |list: &Value| {
                    list["replicas"].to_string().matches("\"reached\":\"yes\"").count() == n_servers
                };
                server.wait_json("/v1/replicas", all).await?;
            }
        }
        Ok(Self { servers, _etcd: etcd, _key: key })
    }
}

/// A table of writes, for one server and for two with an etcd of one and three members.
pub(crate) async fn table() -> Result<String> {
    let mut lines =
        vec!["| | own store | etcd of one | etcd of three |".to_owned(), "|---|---|---|---|".to_owned()];
    let mut cells: Vec<Vec<String>> = Vec::new();
    for n_members in [0, 1, 3] {
        let group = Group::start(n_members).await?;
        cells.push(column(&group).await?);
    }
    let rows = [
        "a write, 50th / 99th",
        "seen by a client of the last server after its answer, 50th / 99th",
        "writes a second, one writer",
        "three writers, at all servers",
        "eight writers",
    ];
    for (index, row) in rows.iter().enumerate() {
        let all: Vec<&str> = cells.iter().map(|column| column[index].as_str()).collect();
        lines.push(format!("| {row} | {} |", all.join(" | ")));
    }
    Ok(lines.join("\n"))
}

async fn column(group: &Group) -> Result<Vec<String>> {
    let (first, last) = (&group.servers[0], &group.servers[group.servers.len() - 1]);
    write(first, "c", 0).await?;
    let channel = raw::connect(last.xds()).await?;
    let mut client = Follower::start(channel, envoy("bench"), &[(CLUSTER, &[])]).await?;
    let (mut took, mut seen) = (Vec::new(), Vec::new());
    for n in 1..=N_WRITES {
        client.mark();
        let begun = Instant::now();
        write(first, "c", n).await?;
        let answered = Instant::now();
        took.push(answered - begun);
        client.next().await?;
        // A client of the same server may have it before the answer.
        seen.push(answered.elapsed());
    }
    drop(client);
    let mut cells = vec![two(&mut took), two(&mut seen)];
    for n_writers in [1, 3, 8] {
        let (a_second, n_refused) = throughput(group, n_writers).await?;
        let refused = if n_refused > 0 { format!(", {n_refused} given up") } else { String::new() };
        cells.push(format!("{a_second:.0}{refused}"));
    }
    Ok(cells)
}

/// How many writes a second so many writers do, each to an object of its own, and how many were given up because others were faster again
/// and again.
async fn throughput(group: &Group, n_writers: usize) -> Result<(f64, usize)> {
    let mut writers = JoinSet::new();
    let begun = Instant::now();
    for writer in 0..n_writers {
        let server = Arc::clone(&group.servers[writer % group.servers.len()]);
        writers.spawn(async move {
            let (mut n, mut n_refused) = (0, 0);
            let path = format!("/v1/groups/default/resources/clusters/w{writer}");
            while begun.elapsed() < WRITING {
                let body = plain_cluster(&format!("w{writer}"), 1 + n as u64).to_string();
                let answer =
                    server.request("PUT", &path, &[("content-type", "application/json")], body).await?;
                match answer.status {
                    StatusCode::SERVICE_UNAVAILABLE => n_refused += 1,
                    _ => _ = answer.success()?,
                }
                n += 1;
            }
            Ok::<(usize, usize), anyhow::Error>((n - n_refused, n_refused))
        });
    }
    let (mut n_done, mut n_refused) = (0, 0);
    while let Some(ended) = writers.join_next().await {
        let (done, refused) = ended??;
        (n_done, n_refused) = (n_done + done, n_refused + refused);
    }
    Ok((n_done as f64 / begun.elapsed().as_secs_f64(), n_refused))
}

async fn write(server: &Server, name: &str, n: usize) -> Result<()> {
    let path = format!("/v1/groups/default/resources/clusters/{name}");
    server.put(&path, &plain_cluster(name, 1 + n as u64)).await.map(drop)
}

/// From the end of an Envoy's server until it is connected to the other one.
pub(crate) async fn failover() -> Result<String> {
    let mut group = Group::start(1).await?;
    write(&group.servers[0], "c", 0).await?;
    let addresses: Vec<String> = group.servers.iter().map(|server| server.xds().to_string()).collect();
    let bootstrap = ["bootstrap", "envoy", "--node-id", "edge-1", "--xds-address", &addresses.join(",")];
    let _envoy = Envoy::start(&cli(&bootstrap).await?).await?;
    let mut took = Vec::new();
    for _ in 0..N_FAILOVERS {
        let at = connected(&group.servers, None).await?;
        let begun = Instant::now();
        Arc::get_mut(&mut group.servers[at]).context("nobody else uses it")?.kill().await?;
        connected(&group.servers, Some(at)).await?;
        took.push(begun.elapsed());
        let gone = Arc::get_mut(&mut group.servers[at]).context("nobody else uses it")?;
        gone.restart().await?;
        gone.wait_ready().await?;
    }
    Ok(format!("an Envoy is at the other server after {} (50th / most of {N_FAILOVERS})", two(&mut took)))
}

/// The server that the Envoy is connected to, besides one.
async fn connected(servers: &[Arc<Server>], besides: Option<usize>) -> Result<usize> {
    wait_for("the Envoy", Duration::from_secs(60), async || {
        for (n, server) in servers.iter().enumerate().filter(|(n, _)| Some(*n) != besides) {
            let nodes = server.get_json(&format!("/v1/nodes?replica=s{n}")).await?;
            if nodes["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()) {
                return Ok(n);
            }
        }
        anyhow::bail!("it is nowhere")
    })
    .await
}

/// Writes that wait for so many clients of another server.
pub(crate) async fn acks(n_clients: usize) -> Result<String> {
    let group = Group::start(1).await?;
    let (asks, has) = (&group.servers[0], &group.servers[1]);
    write(asks, "c", 0).await?;
    let mut clients = Vec::with_capacity(n_clients);
    for first in (0..n_clients).step_by(NODES_A_CONNECTION) {
        let channel = raw::connect(has.xds()).await?;
        for n in first..n_clients.min(first + NODES_A_CONNECTION) {
            clients
                .push(Follower::start(channel.clone(), envoy(&format!("n-{n}")), &[(CLUSTER, &[])]).await?);
        }
    }
    let meters = [Meter::of(asks)?, Meter::of(has)?];
    let cpu = || -> Result<Duration> { Ok(meters[0].cpu()? + meters[1].cpu()?) };
    let (mut plain, mut waited) = (Vec::new(), Vec::new());
    let mut costs = [Duration::ZERO; 2];
    for n in 1..=N_WAITS {
        for (is_waited, times) in [(false, &mut plain), (true, &mut waited)] {
            let wait = if is_waited { "?wait=acked&timeout=300s" } else { "" };
            let path = format!("/v1/groups/default/resources/clusters/c{wait}");
            clients.iter_mut().for_each(Follower::mark);
            let (before, begun) = (cpu()?, Instant::now());
            let body = plain_cluster("c", 2 * n as u64 + u64::from(is_waited));
            let answer = asks.put(&path, &body).await?;
            ensure!(!is_waited || answer["acked"] == n_clients, "{answer:#}");
            // Both are over when every client has it.
            for client in &mut clients {
                client.next().await?;
            }
            times.push(begun.elapsed());
            costs[usize::from(is_waited)] += cpu()?.saturating_sub(before) / u32::try_from(N_WAITS)?;
        }
    }
    Ok(format!(
        "{n_clients} clients of another server: a write until all have it {} and {:.0} ms of processor time of both servers; waiting for their ACKs: {} and {:.0} ms",
        two(&mut plain),
        costs[0].as_secs_f64() * 1e3,
        two(&mut waited),
        costs[1].as_secs_f64() * 1e3,
    ))
}

/// The 50th and the 99th percentile.
fn two(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    format!("{:.1} / {:.1} ms", at(0.5), at(0.99))
}

const NODES_A_CONNECTION: usize = 50;
