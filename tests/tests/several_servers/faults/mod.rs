//! Servers that share a store, and one that follows them, while processes are killed and stopped, links are cut and frozen, and the etcd is
//! compacted and full. Writers, model clients, an Envoy and a gRPC client go on meanwhile, and everything that they were told is judged at
//! the end.
//!
//! `XDS_TESTS_SEED` makes the same faults in the same order. `XDS_FAULTS_MINUTES` has a run of that length, with all faults and more
//! clients; `XDS_FAULTS_OTHER_RELEASE` names the program of another release, which the servers change to and back meanwhile.

mod calls;
mod chaos;
mod checker;
mod clients;
mod restored;
mod rollouts;
mod watch;
mod world;
mod writers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use xds_tests::backend::Backend;
use xds_tests::config;
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::random::Random;
use xds_tests::seen::served;
use xds_tests::server::cli;
use xds_tests::wait::wait_for;

use crate::faults::chaos::Fault;
use crate::faults::clients::Sequences;
use crate::faults::watch::Watch;
use crate::faults::world::{N_SERVERS, World};
use crate::faults::writers::Board;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_vanishes_whatever_fails() -> Result<()> {
    let mut random = Random::from_env()?;
    let minutes: u64 = std::env::var("XDS_FAULTS_MINUTES").map_or(Ok(0), |minutes| minutes.parse())?;
    let Some(mut world) = World::start().await? else { return Ok(()) };
    let board = Arc::new(Board::new(world.addresses()));
    writers::write_all(&board, &mut random).await?;
    let backend = Backend::start("backend").await?;
    let envoy = envoy(&world, &backend).await?;
    rollouts::prepare(&world.servers[0]).await?;
    let edge = envoy.wait_listener("edge").await?;
    let asking = tokio::spawn(ask(edge, Arc::clone(&board)));
    let client = calls::client(&world).await?;
    let calling = calls::begin(&client).await?;
    let watching = tokio::spawn(Watch::run(Arc::clone(&board)));
    let compacting = tokio::spawn(compact(world.etcd.url(), Arc::clone(&board)));
    let rolling = tokio::spawn(rollouts::begin(Arc::clone(&board), Random::new(random.number())));
    let (mut writing, mut served_to) = (JoinSet::new(), JoinSet::new());
    for _ in 0..N_WRITERS {
        writing.spawn(writers::write(Arc::clone(&board), Random::new(random.number())));
    }
    let n_clients = if minutes == 0 { 20 } else { 200 };
    for n in 0..n_clients {
        let (board, random) = (Arc::clone(&board), Random::new(random.number()));
        if n % 2 == 0 {
            served_to.spawn(clients::delta(board, format!("delta-{n}"), random));
        } else {
            served_to.spawn(clients::sotw(board, format!("sotw-{n}"), random));
        }
    }
    let faults = Chaos { minutes, edge_is_shifted: false }.run(&mut world, &mut random).await?;
    let faults_ended = Instant::now();
    converge(&world, &board).await.with_context(|| logs(&world))?;
    let took = faults_ended.elapsed();
    board.is_over.store(true, Ordering::SeqCst);
    let logs = logs(&world);
    rolling.await??;
    let n_rollouts = rollouts::end(&board).await.with_context(|| logs.clone())?;
    let judged = judge(&world, &board, writing, served_to, watching).await.with_context(|| logs);
    compacting.await??;
    let (n_asked, failed) = asking.await??;
    let called = calling.stop().await?;
    for (fault, n) in &faults {
        println!("{n:>7}  {fault}");
    }
    for (what, n) in board.counts() {
        println!("{n:>7}  {what}");
    }
    println!("{n_asked:>7}  requests through the Envoy, {} failed", failed.len());
    println!("{:>7}  calls of the gRPC client, failed: {:?}", called.n_answered(), called.errors);
    println!("{took:>7.1?}  until all servers were at the newest revision after the last fault");
    println!("{n_rollouts:>7}  rollouts, each step once");
    ensure!(n_rollouts > 0, "no rollout ended");
    let newest = judged?;
    println!("{newest:>7}  revisions");
    ensure!(failed.is_empty(), "{failed:?}");
    called.ensure_no_errors()
}

/// The faults of a run.
struct Chaos {
    /// 0 for a short run.
    minutes: u64,
    edge_is_shifted: bool,
}

impl Chaos {
    /// Has one fault after the other. Returns how often each was.
    async fn run(mut self, world: &mut World, random: &mut Random) -> Result<BTreeMap<Fault, usize>> {
        let (mut counts, end) = (BTreeMap::new(), Instant::now() + Duration::from_secs(60 * self.minutes));
        let mut left = Fault::SHORT.to_vec();
        loop {
            if Instant::now() >= end && (self.minutes > 0 || left.is_empty()) {
                return Ok(counts);
            }
            if left.is_empty() {
                left = Fault::ALL.to_vec();
                left.retain(|fault| *fault != Fault::ClockJumped || Path::new(chaos::FAKETIME).exists());
            }
            let fault = left.swap_remove(usize::try_from(random.within(0..left.len() as u64))?);
            let at_most = if self.minutes == 0 { SHORT } else { LONG };
            let ran = fault.run(world, random, at_most).await;
            ran.with_context(|| format!("{fault} after {counts:?}\n{}", logs(world)))?;
            *counts.entry(fault).or_default() += 1;
            self.shift(world).await;
            sleep(Duration::from_millis(random.within(100..700))).await;
        }
    }

    /// Has the Envoy and the gRPC client use the other one of two clusters, by the first server that takes the change.
    async fn shift(&mut self, world: &World) {
        let to = if self.edge_is_shifted { "even" } else { "odd" };
        self.edge_is_shifted = !self.edge_is_shifted;
        for name in ["web", calls::NAME] {
            let route = config::route_config(name, &[("/", config::to(to))]);
            let path = format!("/v1/groups/default/resources/routes/{name}");
            for server in &world.servers[..N_SERVERS] {
                let written = tokio::time::timeout(SHORT, server.put(&path, &route));
                if written.await.is_ok_and(|written| written.is_ok()) {
                    break;
                }
            }
        }
    }
}

/// An Envoy that knows all servers, with two clusters that lead to the backend; a gRPC client has these too.
async fn envoy(world: &World, backend: &Backend) -> Result<Envoy> {
    let resources = [
        ("clusters/even", config::cluster("even")),
        ("clusters/odd", config::cluster("odd")),
        ("endpoints/even", config::endpoints("even", &[backend.addr()])),
        ("endpoints/odd", config::endpoints("odd", &[backend.addr()])),
        ("routes/web", config::route_config("web", &[("/", config::to("even"))])),
        ("listeners/edge", config::listener("edge", 0, "web")),
        ("routes/greeter", config::route_config(calls::NAME, &[("/", config::to("even"))])),
        ("listeners/greeter", config::api_listener(calls::NAME, calls::NAME)),
    ];
    for (path, resource) in resources {
        world.servers[0].put(&format!("/v1/groups/default/resources/{path}"), &resource).await?;
    }
    let addresses = world.servers[..N_SERVERS].iter().map(|server| server.xds().to_string());
    let addresses = addresses.collect::<Vec<_>>().join(",");
    let bootstrap = cli(&["bootstrap", "envoy", "--node-id", "edge-1", "--xds-address", &addresses]).await?;
    Envoy::start(&bootstrap).await
}

/// Sends requests through the Envoy until the run is over. Returns how many, and what became of those that failed.
async fn ask(edge: SocketAddr, board: Arc<Board>) -> Result<(usize, Vec<String>)> {
    let (mut n_asked, mut failed) = (0, Vec::new());
    let mut connection = Connection::open(edge).await?;
    while !board.is_over() {
        n_asked += 1;
        match connection.get("/").await {
            Ok(answer) if answer.status == StatusCode::OK => {}
            Ok(answer) => failed.push(format!("{}: {}", answer.status, answer.text())),
            Err(error) => {
                failed.push(format!("{error:#}"));
                connection = Connection::open(edge).await?;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok((n_asked, failed))
}

/// Compacts the etcd every second. That a member does not answer is a fault like others.
async fn compact(url: String, board: Arc<Board>) -> Result<()> {
    let endpoints = url.trim_start_matches("etcd://").trim_end_matches("/test").to_owned();
    while !board.is_over() {
        let script = "revision=$(etcdctl --endpoints \"$0\" get x -w fields | sed -n 's/^\"Revision\" : //p') && etcdctl --endpoints \"$0\" compact \"$revision\"";
        let mut command = tokio::process::Command::new("sh");
        command.env("ETCDCTL_API", "3").args(["-c", script, &endpoints]).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(5), command.output());
        if output.await.is_ok_and(|output| output.is_ok_and(|output| output.status.success())) {
            board.count("compactions of the etcd");
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Waits until all servers have the newest acknowledged revision, while the writers go on.
async fn converge(world: &World, board: &Board) -> Result<()> {
    let goal = board.newest();
    wait_for("all servers at the newest revision", CONVERGE, async || {
        for server in &world.servers {
            let path = format!("/v1/history?limit=1&minRevision={goal}");
            let history = server.get_json(&path).await?;
            ensure!(history["revisions"][0]["revision"].as_u64() >= Some(goal), "{history}");
        }
        Ok(())
    })
    .await
}

/// Ends the writers and clients, and judges what they saw. Returns the newest revision.
async fn judge(
    world: &World,
    board: &Board,
    mut writing: JoinSet<Result<()>>,
    mut served_to: JoinSet<Result<Sequences>>,
    watching: JoinHandle<Result<Watch>>,
) -> Result<u64> {
    while let Some(done) = writing.join_next().await {
        done??;
    }
    let mut watch = watching.await??;
    converge(world, board).await?;
    for server in 0..world.servers.len() {
        watch.look(board, server, 1_000).await?;
    }
    let newest = watch.check_whole()?;
    let records = board.records();
    watch.check_acknowledged(&records)?;
    watch.check_rollouts()?;
    watch.check_objects(&records)?;
    while let Some(seen) = served_to.join_next().await {
        watch.check_streams(&seen??)?;
    }
    wait_for("the same on all servers", CONVERGE, async || {
        let first = served(&world.servers[0]).await?;
        for server in &world.servers {
            ensure!(served(server).await? == first, "{} serves something else", server.admin());
        }
        Ok(())
    })
    .await?;
    clients::moves_for_nothing(board).await?;
    Ok(newest)
}

fn logs(world: &World) -> String {
    let log = |(n, server): (usize, &xds_tests::server::Server)| format!("server {n}:\n{}", server.log());
    world.servers.iter().enumerate().map(log).collect()
}

const N_WRITERS: usize = 4;
/// How long a fault lasts at most: in a short run, and in a long one.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(6);
/// Within so long after the last fault all servers are at the newest revision.
const CONVERGE: Duration = Duration::from_secs(20);
