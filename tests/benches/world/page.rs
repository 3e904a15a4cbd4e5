//! What the page costs while many look at it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::interval;
use xds_tests::config::CLUSTER;
use xds_tests::footprint::Meter;
use xds_tests::raw;
use xds_tests::seen::plain_cluster;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;

use crate::clients::{Follower, envoy};

/// How long is measured.
const MEASURED: Duration = Duration::from_secs(15);

/// A table: so many pages are open that show so many nodes, while everybody gets a change each second.
pub(crate) async fn table(n_nodes: usize, n_pages: usize) -> Result<String> {
    let setup = Setup::metered()?.arg("--hold-mass-removal=off").arg("--max-admin-connections=2000");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    write(&server, 0).await?;
    let mut tasks = JoinSet::new();
    for first in (0..n_nodes).step_by(NODES_A_CONNECTION) {
        let channel = raw::connect(server.xds()).await?;
        for n in first..n_nodes.min(first + NODES_A_CONNECTION) {
            let node = envoy(&format!("n-{n}"));
            let mut client = Follower::start(channel.clone(), node, &[(CLUSTER, &[])]).await?;
            tasks.spawn(async move { while client.next().await.is_ok() {} });
        }
    }
    let mut lines = vec![
        "| pages open | processor time of the server a second | bytes a second to each page |".to_owned(),
        "|---|---|---|".to_owned(),
    ];
    let n_bytes = Arc::<AtomicU64>::default();
    let mut n_open = 0;
    let mut n_writes = 0;
    for wanted in [0, 1, n_pages] {
        for _ in n_open..wanted {
            tasks.spawn(look(server.admin(), Arc::clone(&n_bytes)));
        }
        n_open = wanted;
        let before = n_bytes.load(Ordering::Relaxed);
        wait_for("what is shown", Duration::from_secs(60), async || {
            ensure!(wanted == 0 || n_bytes.load(Ordering::Relaxed) > before);
            Ok(())
        })
        .await?;
        let (cpu, bytes) = measured(&server, &n_bytes, &mut n_writes).await?;
        let each = if wanted == 0 { 0.0 } else { bytes / wanted as f64 };
        lines.push(format!("| {wanted} | {:.0} ms | {each:.0} |", cpu * 1e3));
    }
    Ok(format!("{n_nodes} nodes, one change a second for all of them:\n{}", lines.join("\n")))
}

/// Seconds of processor time, and bytes to all pages, in a second.
async fn measured(server: &Server, n_bytes: &AtomicU64, n_writes: &mut usize) -> Result<(f64, f64)> {
    let meter = Meter::of(server)?;
    let (cpu, bytes, begun) = (meter.cpu()?, n_bytes.load(Ordering::Relaxed), Instant::now());
    let mut seconds = interval(Duration::from_secs(1));
    while begun.elapsed() < MEASURED {
        seconds.tick().await;
        *n_writes += 1;
        write(server, *n_writes).await?;
    }
    let took = begun.elapsed().as_secs_f64();
    let sent = n_bytes.load(Ordering::Relaxed) - bytes;
    Ok((meter.cpu()?.saturating_sub(cpu).as_secs_f64() / took, sent as f64 / took))
}

/// Looks at the fleet as a browser does.
async fn look(admin: SocketAddr, n_bytes: Arc<AtomicU64>) {
    let Ok(mut stream) = TcpStream::connect(admin).await else { return };
    let request = format!("GET /ui/live?of=%2F HTTP/1.1\r\nhost: {admin}\r\n\r\n");
    if stream.write_all(request.as_bytes()).await.is_err() {
        return;
    }
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        n_bytes.fetch_add(n as u64, Ordering::Relaxed);
    }
}

async fn write(server: &Server, n: usize) -> Result<()> {
    let path = "/v1/groups/default/resources/clusters/c";
    server.put(path, &plain_cluster("c", 1 + n as u64)).await.map(drop)
}

const NODES_A_CONNECTION: usize = 50;
