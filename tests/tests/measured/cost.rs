//! The cost of a weight follows the change: it is about the same with few routes and with many.
//! `cargo bench -p xds-tests --bench world` has the figures.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;
use xds_tests::world::{self, World};

/// A world, and a server that serves it.
struct Served {
    server: Server,
    _dir: TempDir,
}

impl Served {
    async fn start(n_routes: usize) -> Result<Self> {
        let dir = TempDir::with_prefix("xds-world-")?;
        World::new(n_routes).write(dir.path())?;
        let server = Server::start_with(Setup::metered()?.watch(dir.path())).await?;
        wait_for("readiness", LONG, async || server.get("/readyz").await?.success()).await?;
        Ok(Self { server, _dir: dir })
    }

    /// Changes a weight, and says how long that took.
    async fn change(&self, i: usize) -> Result<Duration> {
        let [service, _] = world::services(i);
        let body = json!({"backends": {format!("{service}:80"): 11 + i}}).to_string();
        let headers = [("content-type", "application/merge-patch+json"), ("if-match", "*")];
        let begun = Instant::now();
        self.server.request("PATCH", &world::weights(i), &headers, body).await?.success()?;
        Ok(begun.elapsed())
    }
}

/// Both worlds are changed in turn, so that what else the machine does falls on both.
#[tokio::test]
async fn a_weight_costs_about_the_same_with_thirty_times_the_routes() -> Result<()> {
    let worlds = [Served::start(FEW).await?, Served::start(MANY).await?];
    let mut took = [Vec::new(), Vec::new()];
    for i in 0..N_CHANGES {
        for (world, took) in worlds.iter().zip(&mut took) {
            took.push(world.change(i).await?);
        }
    }
    let [few, many] = took.map(|mut took| {
        took.sort_unstable();
        took[took.len() / 2]
    });
    let ratio = many.as_secs_f64() / few.as_secs_f64();
    println!("{FEW} routes: {few:?}, {MANY} routes: {many:?}, {ratio:.2} times");
    ensure!(ratio < 1.5, "{few:?} with {FEW} routes, {many:?} with {MANY}: {ratio:.2} times");
    Ok(())
}

const FEW: usize = 100;
const MANY: usize = 3_000;
const N_CHANGES: usize = 61;
/// Builds without optimisation take a while to load the larger world.
const LONG: Duration = Duration::from_secs(180);
