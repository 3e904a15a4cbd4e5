//! Frames that cost the client nothing and the server some work.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::PATIENCE;

use crate::budgets::{Wire, metrics};

on_both_wires!(row_14_floods_of_pings_and_settings_end_with_goaway);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: &[u8] = &[0, 0, 0, 11];
/// The bytes that a client sends if nothing stops it.
const N_FRAMES: usize = 3_000_000;

/// Sends frames without end; returns how many were taken, and whether the server said `ENHANCE_YOUR_CALM` at the end.
async fn flood(server: &Server, frame: &[u8]) -> Result<(usize, bool)> {
    let mut stream = TcpStream::connect(server.xds()).await?;
    stream.write_all(PREFACE).await?;
    let (mut reader, mut writer) = stream.into_split();
    let frames = frame.repeat(1000);
    let writing = tokio::spawn(async move {
        let mut n_sent = 0;
        while n_sent < N_FRAMES && writer.write_all(&frames).await.is_ok() {
            n_sent += 1000;
        }
        n_sent
    });
    let mut last = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let reading = async {
        while let Ok(n @ 1..) = reader.read(&mut buffer).await {
            last.extend_from_slice(&buffer[..n]);
            let n_old = last.len().saturating_sub(64);
            last.drain(..n_old);
        }
    };
    // A server that takes everything keeps the connection.
    let is_ended = tokio::time::timeout(PATIENCE, reading).await.is_ok();
    let n_sent =
        tokio::time::timeout(Duration::from_secs(5), writing).await.context("the flood goes on")??;
    let calm = last.windows(4).rposition(|window| window == ENHANCE_YOUR_CALM);
    let is_goaway = calm.is_some_and(|at| at >= 13 && last[at - 10] == GOAWAY);
    Ok((n_sent, is_ended && is_goaway))
}

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn row_14_floods_of_pings_and_settings_end_with_goaway(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?)?).await?;
    let healthy = Healthy::start(&server).await?;
    healthy.check().await?;
    for (name, frame) in [("PING", PING), ("SETTINGS", SETTINGS)] {
        let measurement = Meter::of(&server)?.begin()?;
        let (n_sent, is_calmed) = flood(&server, frame).await?;
        let cost = measurement.cost()?;
        let seen = healthy.check().await?;
        println!(
            "{name}: {n_sent} frames sent, {cost}; the Envoy's slowest of {} changes took {:?}",
            seen.n_acked, seen.worst
        );
        ensure!(is_calmed, "{name}: no GOAWAY after {n_sent} frames");
        ensure!(n_sent < N_FRAMES / 2, "{name}: {n_sent} frames were taken");
    }
    let metrics = metrics(&server).await?;
    ensure!(metrics.contains("xds_refused_total{reason=\"flood\"} 2"), "{metrics}");
    Ok(())
}
