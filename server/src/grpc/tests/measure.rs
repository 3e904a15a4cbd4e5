//! Costs of streams. Not run by themselves, and one at a time: `cargo test -p xds-server --lib -- --ignored --exact --nocapture
//! grpc::tests::measure::many_streams`.
//!
//! The clients are another process, so that only the server is measured.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use xds_cache::{Resource, Revision};

use super::body::Handmade;
use super::support::*;
use crate::grpc::GrpcConfig;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, and claims nothing"]
async fn many_streams() {
    measure(20, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, and claims nothing"]
async fn many_connections() {
    measure(2000, 1).await;
}

#[tokio::test]
#[ignore = "measures, and claims nothing"]
async fn streams_without_connections() {
    let world = World::new(GrpcConfig::default());
    world.publish(clusters(1, 64));
    let before = resident();
    let mut streams = Vec::new();
    for i in 0..10_000 {
        let mut stream = Handmade::open(&world);
        stream.send(&all_clusters(&format!("n{i}")));
        let response = stream.response().unwrap();
        stream.ack(&response);
        assert!(stream.response().is_none());
        streams.push(stream);
        tokio::task::yield_now().await;
    }
    println!("{:.2} KiB a stream", (resident() - before) as f64 / 10_000.0);
}

async fn measure(n_connections: usize, n_streams: usize) {
    let server = Server::with(GrpcConfig::default()).await;
    server.world.publish(clusters(1, 64));
    drop(server.channel().await);
    let (before, n_all) = (resident(), n_connections * n_streams);
    let mut clients = Clients::start(&server, n_connections, n_streams);
    all_have(&server, Revision(1), n_all).await;
    let idle = (resident() - before) as f64 / n_all as f64;
    println!(
        "{n_connections} connections with {n_streams} streams: {} MiB, then {idle:.1} KiB a stream",
        before / 1024
    );
    for round in 2..=6 {
        let (began, cpu) = (Instant::now(), cpu_ticks());
        server.world.publish(clusters(round, 2000));
        all_have(&server, Revision(round), n_all).await;
        let cpu_us = (cpu_ticks() - cpu) as f64 * 10_000.0 / n_all as f64;
        let ms = began.elapsed().as_millis();
        println!("  200 KB to all: {ms} ms, {cpu_us:.0} us CPU a stream, {} MiB resident", resident() / 1024);
    }
    clients.0.kill().unwrap();
    clients.0.wait().unwrap();
}

/// The other process: streams that accept everything, until it is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by the measurement"]
async fn clients() {
    let setting = |name| std::env::var(name).unwrap();
    let address: String = setting("MEASURED_ADDRESS");
    let (n_connections, n_streams): (usize, usize) =
        (setting("N_CONNECTIONS").parse().unwrap(), setting("N_STREAMS").parse().unwrap());
    let mut tasks = Vec::new();
    for connection in 0..n_connections {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
        let endpoint = endpoint.initial_stream_window_size(1 << 20).initial_connection_window_size(16 << 20);
        let channel = endpoint.connect().await.unwrap();
        for stream in 0..n_streams {
            let channel = channel.clone();
            tasks.push(tokio::spawn(async move {
                let mut client = Sotw::open(&channel, ADS).await.unwrap();
                client.send(all_clusters(&format!("n{connection}-{stream}")));
                while let Ok(Some(response)) = client.responses.message().await {
                    client.ack(&response, &[]);
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

struct Clients(Child);

impl Clients {
    fn start(server: &Server, n_connections: usize, n_streams: usize) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "grpc::tests::measure::clients"])
            .env("MEASURED_ADDRESS", server.address.to_string())
            .env("N_CONNECTIONS", n_connections.to_string())
            .env("N_STREAMS", n_streams.to_string())
            .spawn();
        Self(child.unwrap())
    }
}

/// A hundred clusters of so many bytes each.
fn clusters(round: u64, n_bytes: usize) -> Vec<Resource> {
    (0..100)
        .map(|i| cluster(&format!("cluster-{i:03}"), &format!("{round}{}", "x".repeat(n_bytes - 20))))
        .collect()
}

async fn all_have(server: &Server, revision: Revision, n_streams: usize) {
    loop {
        let streams = server.world.board.streams();
        let has = |entry: &&std::sync::Arc<xds_cache::status::StreamEntry>| {
            entry.with(|status| status.types.values().any(|status| status.has_acked(revision)))
        };
        if streams.iter().filter(has).count() == n_streams {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Resident memory, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// CPU time of the process, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
