//! Connections that send nothing, send slowly, or do not read.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xds_tests::healthy::Healthy;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};

use crate::budgets::metrics;

/// Open files of the attacked server.
const N_FILES: u32 = 1024;
const N_IDLE: usize = 1500;

/// Waits until the server closes the connection; returns what it said.
async fn ended(stream: &mut TcpStream) -> Result<String> {
    let mut said = Vec::new();
    let mut buffer = vec![0; 4096];
    let reading = async {
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            said.extend_from_slice(&buffer[..n]);
        }
    };
    tokio::time::timeout(2 * PATIENCE, reading).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn row_9_idle_connections_cut_off_neither_clients_nor_operators() -> Result<()> {
    // The connections of the test itself.
    let own = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: own.maximum, ..own })?;
    let server = Server::start_with(Setup::new()?.max_files(N_FILES)).await?;
    let healthy = Healthy::start(&server).await?;
    healthy.check().await?;
    let mut idle = Vec::new();
    for _ in 0..N_IDLE {
        idle.push(TcpStream::connect(server.admin()).await?);
    }
    for path in ["/healthz", "/v1/nodes"] {
        let began = Instant::now();
        ensure!(server.get(path).await?.status == StatusCode::OK, "{path}");
        println!("{path} took {:?}", began.elapsed());
    }
    let seen = healthy.check().await?;
    println!("the Envoy's slowest of {} changes took {:?}", seen.n_acked, seen.worst);
    let metrics = metrics(&server).await?;
    ensure!(!metrics.contains("xds_refused_total{reason=\"admin-connections\"} 0"), "{metrics}");
    // New clients find a place too, although the other port is full.
    Healthy::start(&server).await?.check().await.map(drop)
}

/// More than may wait or run at once.
const N_SLOW: usize = 20;

#[tokio::test]
async fn row_8_validations_that_arrive_slowly_keep_nobody_out() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let mut slow = Vec::new();
    for _ in 0..N_SLOW {
        let mut stream = TcpStream::connect(server.admin()).await?;
        let head = "POST /v1/validate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/yaml\r\n\
             content-length: 2\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        // Said when the server begins to read the body.
        let mut said = vec![0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut said)).await??;
        ensure!(said == b"HTTP/1.1 100", "{}", String::from_utf8_lossy(&said));
        stream.write_all(b"{").await?;
        slow.push(stream);
    }
    let yaml = [("content-type", "application/yaml")];
    let answer = server.request("POST", "/v1/validate", &yaml, "{}").await?;
    ensure!(answer.status == StatusCode::OK, "{}", answer.text());
    // The slow ones get their turn when they are there.
    let mut one = slow.pop().context("one")?;
    one.write_all(b"}").await?;
    let said = ended(&mut one).await?;
    ensure!(said.contains("200 OK"), "{said}");
    Ok(())
}

#[tokio::test]
async fn row_9_slow_headers_and_slow_bodies_end() -> Result<()> {
    let server = Server::start_with(Setup::new()?.arg("--admin-idle-timeout").arg("1s")).await?;
    let connect = async || TcpStream::connect(server.admin()).await;
    let mut silent = connect().await?;
    let mut headers = connect().await?;
    headers.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await?;
    let mut body = connect().await?;
    let head = "POST /v1/apply HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    body.write_all(head.as_bytes()).await?;
    let mut idle = connect().await?;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    ensure!(ended(&mut idle).await?.contains("200 OK"), "it is answered, and then ends");
    ensure!(ended(&mut silent).await?.is_empty());
    ended(&mut headers).await?;
    let said = ended(&mut body).await?;
    ensure!(said.contains("408 ") && said.contains("did not arrive completely in time"), "{said}");
    let metrics = wait_for("the count", Duration::from_secs(5), async || {
        let metrics = metrics(&server).await?;
        ensure!(!metrics.contains("xds_refused_total{reason=\"slow-connection\"} 0"), "{metrics}");
        Ok(metrics)
    });
    metrics.await.map(drop)
}
