//! Clients that behave badly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Endpoint;
use xds_tests::config::{CLUSTER, ENDPOINTS, endpoints};
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{plain_cluster, resident_bytes, resources, timeout_of};
use xds_tests::server::{Server, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_cost_bounded_memory_delay_nobody_and_resume_with_the_newest() -> Result<()> {
    const N_PUBLICATIONS: u64 = 1_000;
    const N_SLOW: usize = 10;
    let server = Server::start_with(Setup::new()?).await?;
    let publish = async |n: u64| {
        // Large enough to fill the windows of the network soon.
        let mut large = plain_cluster("large", n);
        large["alt_stat_name"] = json!("x".repeat(20_000));
        let small = endpoints("small", &[SocketAddr::from(([127, 0, 0, 1], u16::try_from(n)?))]);
        server.put("/v1/groups/default/resources", &resources(&[large, small])).await
    };
    publish(1).await?;
    let mut slow = Vec::new();
    for i in 0..N_SLOW {
        // The window that most gRPC clients have; hyper's own would take in a hundred responses unread.
        let endpoint = Endpoint::from_shared(format!("http://{}", server.xds()))?;
        let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
        let node = raw::node(&format!("slow-{i}"), "c");
        let mut stream = SotwStream::open(endpoint.connect().await?, path::ADS, node);
        stream.subscribe(CLUSTER, &[]).await?;
        slow.push(stream);
    }
    let channel = raw::connect(server.xds()).await?;
    let mut good = SotwStream::open(channel, path::ADS, raw::node("good", "c"));
    good.subscribe(ENDPOINTS, &["small"]).await?;
    let mut last = good.expect_type(ENDPOINTS).await?;
    let all_connected =
        |nodes: &serde_json::Value| nodes["nodes"].as_array().is_some_and(|n| n.len() > N_SLOW);
    server.wait_json("/v1/nodes", all_connected).await?;

    let pid = server.id().context("the server runs")?;
    let before = resident_bytes(pid)?;
    let mut slowest = Duration::ZERO;
    for n in 2..=N_PUBLICATIONS {
        publish(n).await?;
        let published = Instant::now();
        good.ack(&last, &["small"]).await?;
        last = good.expect_type(ENDPOINTS).await?;
        slowest = slowest.max(published.elapsed());
    }
    let grown = resident_bytes(pid)?.saturating_sub(before);
    println!("{} KiB more after {N_PUBLICATIONS} publications, slowest {slowest:?}", grown / 1024);
    // Had each publication been kept for each, it would be 200 MB; some is the history.
    ensure!(grown < 80_000_000, "grown by {grown} bytes");
    ensure!(slowest < Duration::from_secs(2), "a client waited {slowest:?}");

    for stream in &mut slow {
        let mut n_responses = 0;
        loop {
            let response = stream.expect_type(CLUSTER).await?;
            n_responses += 1;
            if timeout_of(&response, "large")? == N_PUBLICATIONS {
                break;
            }
            // Responses that had left before the windows were full, and one that was being written.
            ensure!(n_responses < 10, "still {}", timeout_of(&response, "large")?);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_5000_requests_a_second_delays_nobody() -> Result<()> {
    const N_REQUESTS: usize = 5_000;
    const N_UPDATES: usize = 50;
    let server = Server::start_with(Setup::new()?).await?;
    let put = async |n: u64| {
        let all: Vec<_> = ["a", "b", "c"].iter().map(|name| plain_cluster(name, n)).collect();
        server.put("/v1/groups/default/resources", &resources(&all)).await
    };
    put(1).await?;
    let mut good = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("good", "c"));
    good.subscribe(CLUSTER, &[]).await?;
    let mut last = good.expect_type(CLUSTER).await?;

    let channel = raw::connect(server.xds()).await?;
    let n_requests = Arc::new(AtomicUsize::new(0));
    let n_sent = Arc::clone(&n_requests);
    let flood: JoinHandle<Result<()>> = tokio::spawn(async move {
        let mut stream = SotwStream::open(channel, path::ADS, raw::node("flood", "c"));
        stream.subscribe(CLUSTER, &["a"]).await?;
        let first = stream.expect_type(CLUSTER).await?;
        for i in 0.. {
            let names: &[&str] = if i % 2 == 0 { &["a", "b"] } else { &["c"] };
            stream.ack(&first, names).await?;
            n_sent.fetch_add(1, Ordering::Relaxed);
            // A client that does not read would only slow itself down.
            while let Ok(response) = stream.expect_response_within(Duration::ZERO).await {
                ensure!(response.type_url == CLUSTER, "{response:?}");
            }
        }
        Ok(())
    });
    let mut latencies = Vec::new();
    let mut n = 1;
    let started = Instant::now();
    while n_requests.load(Ordering::Relaxed) < N_REQUESTS || latencies.len() < N_UPDATES {
        ensure!(!flood.is_finished(), "the flood ended");
        n += 1;
        put(n).await?;
        let published = Instant::now();
        good.ack(&last, &[]).await?;
        last = good.expect_type(CLUSTER).await?;
        assert_eq!(timeout_of(&last, "a")?, n);
        latencies.push(published.elapsed());
    }
    flood.abort();
    latencies.sort();
    let median = *latencies.get(latencies.len() / 2).context("no update during the flood")?;
    let n_requests = n_requests.load(Ordering::Relaxed);
    println!(
        "{n_requests} requests in {:?}; {} updates, median {median:?}",
        started.elapsed(),
        latencies.len()
    );
    ensure!(median < Duration::from_millis(200), "{latencies:?}");
    Ok(())
}

#[tokio::test]
async fn a_half_open_connection_is_reaped() -> Result<()> {
    let setup = Setup::new()?.arg("--keepalive-interval").arg("1s").arg("--keepalive-timeout").arg("1s");
    let server = Server::start_with(setup).await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 1)])).await?;
    let proxy = Proxy::start(server.xds()).await?;
    let mut stream = SotwStream::open(raw::connect(proxy.addr).await?, path::ADS, raw::node("gone", "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    stream.expect_type(CLUSTER).await?;
    let mut other = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("here", "c"));
    other.subscribe(CLUSTER, &[]).await?;
    other.expect_type(CLUSTER).await?;
    // These never say a word.
    let _silent = [TcpStream::connect(server.xds()).await?, TcpStream::connect(server.admin()).await?];
    server.wait_json("/v1/nodes", |nodes| nodes.to_string().contains("\"gone\"")).await?;

    proxy.freeze.send_replace(true);
    let nodes = server.wait_json("/v1/nodes", |nodes| !nodes.to_string().contains("\"gone\"")).await?;
    assert!(nodes.to_string().contains("\"here\""), "one that lives was reaped too: {nodes}");
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 2)])).await?;
    assert_eq!(timeout_of(&other.expect_type(CLUSTER).await?, "a")?, 2);
    Ok(())
}

/// Passes one connection on until it is frozen: from then on, neither side hears of the other, and nothing is closed.
struct Proxy {
    addr: SocketAddr,
    freeze: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl Proxy {
    async fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (freeze, frozen) = watch::channel(false);
        let task = tokio::spawn(async move {
            let (client, _) = listener.accept().await?;
            let (client_read, client_write) = client.into_split();
            let (read, write) = TcpStream::connect(upstream).await?.into_split();
            let up = forward(client_read, write, frozen.clone());
            let down = forward(read, client_write, frozen);
            tokio::try_join!(up, down)?;
            Ok(())
        });
        Ok(Self { addr, freeze, task })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
) -> Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let freezes = async { drop(frozen.wait_for(|frozen| *frozen).await) };
        let n = tokio::select! {
            n = from.read(&mut bytes) => Some(n?),
            () = freezes => None,
        };
        let Some(n) = n else { return std::future::pending().await };
        to.write_all(bytes.get(..n).unwrap_or_default()).await?;
        ensure!(n > 0, "closed");
    }
}
