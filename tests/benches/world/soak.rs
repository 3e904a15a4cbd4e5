//! Many changes for a long time, with many clients.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use xds_tests::footprint::Meter;
use xds_tests::raw;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;
use xds_tests::world::{self, World};

use crate::clients::{Follower, LISTENERS, ROUTES, envoy, grpc};

const N_ROUTES: usize = 10_000;
const N_CLIENTS: usize = 1_000;
/// These take the whole RouteConfiguration, the others that of one host.
const N_ENVOYS: usize = 3;
const CHANGES_A_SECOND: u32 = 20;
/// Changes that are not acknowledged yet; more are not begun.
const MAX_PENDING: usize = 200;

/// Changes weights for so long, and says how long clients took and how memory went.
pub(crate) async fn run(duration: Duration) -> Result<String> {
    let dir = TempDir::with_prefix("xds-world-")?;
    World::new(N_ROUTES).write(dir.path())?;
    let server = Arc::new(Server::start_with(Setup::metered()?.watch(dir.path())).await?);
    wait_for("readiness", LONG, async || server.get("/readyz").await?.success()).await?;
    let _clients = connect(&server).await?;
    let meter = Meter::of(&server)?;
    let (took, pending) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(MAX_PENDING)));
    let (mut tasks, mut resident) = (JoinSet::new(), vec![meter.resident()? >> 20]);
    let mut ticks = interval(Duration::from_secs(1) / CHANGES_A_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begun, cpu) = (Instant::now(), meter.cpu()?);
    let mut n = 0;
    while begun.elapsed() < duration {
        ticks.tick().await;
        let permit = Arc::clone(&pending).acquire_owned().await?;
        let (server, took) = (Arc::clone(&server), Arc::clone(&took));
        tasks.spawn(async move {
            let one = change(&server, n).await;
            drop(permit);
            one.map(|one| took.lock().unwrap_or_else(PoisonError::into_inner).push(one))
        });
        n += 1;
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
        if begun.elapsed() > EACH * u32::try_from(resident.len())? {
            resident.push(meter.resident()? >> 20);
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    resident.push(meter.resident()? >> 20);
    let (elapsed, cpu) = (begun.elapsed(), meter.cpu()?.saturating_sub(cpu));
    let mut took = std::mem::take(&mut *took.lock().unwrap_or_else(PoisonError::into_inner));
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default();
    Ok(format!(
        "{n} changes in {:.0} s, {N_CLIENTS} clients at {N_ROUTES} routes: from PATCH to the last ACK {:.1} ms in the median, {:.1} ms \
         for 99 in 100, {:.1} ms at most; {:.2} cores; resident every {} s: {resident:?} MB",
        elapsed.as_secs_f64(),
        at(0.5).as_secs_f64() * 1e3,
        at(0.99).as_secs_f64() * 1e3,
        took.last().copied().unwrap_or_default().as_secs_f64() * 1e3,
        cpu.as_secs_f64() / elapsed.as_secs_f64(),
        EACH.as_secs(),
    ))
}

async fn connect(server: &Server) -> Result<Vec<Follower>> {
    let mut clients = Vec::with_capacity(N_CLIENTS);
    for i in 0..N_ENVOYS {
        let everything: [(&str, &[&str]); 2] = [(LISTENERS, &[]), (ROUTES, &["prod/edge/8000"])];
        let channel = raw::connect(server.xds()).await?;
        clients.push(Follower::start(channel, envoy(&format!("envoy-{i}")), &everything).await?);
    }
    for first in (N_ENVOYS..N_CLIENTS).step_by(NODES_A_CONNECTION) {
        let channel = raw::connect(server.xds()).await?;
        for i in first..N_CLIENTS.min(first + NODES_A_CONNECTION) {
            let name = format!("grpc/prod/edge/8000/{}", world::host(i * (N_ROUTES / N_CLIENTS)));
            let asks: [(&str, &[&str]); 1] = [(ROUTES, &[&name])];
            clients.push(Follower::start(channel.clone(), grpc(&format!("grpc-{i}")), &asks).await?);
        }
    }
    Ok(clients)
}

/// Changes a weight and waits for whoever has it.
async fn change(server: &Server, n: usize) -> Result<Duration> {
    let route = n * 10 % N_ROUTES;
    let [service, _] = world::services(route);
    let body = json!({"backends": {format!("{service}:80"): 1 + n % 97}}).to_string();
    let headers = [("content-type", "application/merge-patch+json"), ("if-match", "*")];
    let path = format!("{}?wait=acked&timeout=30s", world::weights(route));
    let begun = Instant::now();
    let answer = server.request("PATCH", &path, &headers, body).await?.success()?;
    let took = begun.elapsed();
    ensure!(answer.status == StatusCode::OK, "{}", answer.text());
    Ok(took)
}

const NODES_A_CONNECTION: usize = 50;
const EACH: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(300);
