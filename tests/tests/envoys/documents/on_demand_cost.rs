//! Costs of a change of one weight for an Envoy that gets all virtual hosts at once, and one that gets them on demand:
//! docs/performance.md.
//!
//! `cargo test --workspace --test envoys -- --ignored --nocapture on_demand_cost` prints the table.

use std::time::Duration;

use anyhow::{Context as _, Result};
use xds_tests::documents::World;
use xds_tests::footprint::Meter;
use xds_tests::server::{Setup, Variant};
use xds_tests::wait::wait_for;

use super::on_demand::{gateway, get, patch, route, table};

/// The cost of one change.
struct Cost {
    bytes: u64,
    cpu: Duration,
}

/// Changes one weight many times, in a world of `n_hosts`, of which `n_asked` were asked for.
async fn measure(way: &str, n_hosts: usize, n_asked: usize) -> Result<Cost> {
    let mut world = World::start_with(Setup::metered()?, &["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("gateway.yaml", &gateway(way))?;
    let host = |index: usize| format!("h{index}.example.com");
    let routes: Vec<String> =
        (0..n_hosts).map(|index| route(&format!("h{index}"), &host(index), (1, 1))).collect();
    world.write("routes.yaml", &routes.concat())?;
    wait_for("all routes", LONG, async || {
        let documents = world.server.get_json("/v1/documents").await?.to_string();
        anyhow::ensure!(documents.contains(&format!("\"h{}\"", n_hosts - 1)), "not yet");
        Ok(())
    })
    .await?;
    let mut envoy = world.envoy(Variant::Delta).await?;
    envoy.wait_listener(&table(&world)?).await?;
    for index in 0..n_asked {
        world.ask("web", &get(&host(index))).await?.ensure_ok()?;
    }
    // The first changes warm up.
    for weight in 2..5 {
        patch(&world, "h0", weight, 1).await?;
    }
    let meter = Meter::of_process(envoy.process_mut().id().context("the Envoy has ended")?);
    let (bytes, measurement) = (sent(&world).await?, meter.begin()?);
    for weight in 0..N_CHANGES {
        let answer = patch(&world, "h0", 10 + weight, 1).await?;
        anyhow::ensure!(answer["acked"] == 1, "{answer:#}");
    }
    let cost = measurement.cost()?;
    let n_changes = N_CHANGES.into();
    Ok(Cost { bytes: (sent(&world).await? - bytes) / u64::from(N_CHANGES), cpu: cost.cpu.div_f64(n_changes) })
}

/// How many bytes of routes and virtual hosts were sent so far.
async fn sent(world: &World) -> Result<u64> {
    let text = world.server.get("/metrics").await?.text();
    let counts = text.lines().filter(|line| {
        line.starts_with("xds_response_bytes_total")
            && (line.contains("\"routes\"") || line.contains("\"virtual-hosts\""))
    });
    counts.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?)).sum()
}

#[tokio::test]
#[ignore = "measures, and claims nothing"]
async fn what_a_weight_costs_an_envoy() -> Result<()> {
    println!(
        "| virtual hosts | asked for | bytes of a change | processor time of the Envoy |\n|---|---|---|---|"
    );
    for n_hosts in [100, 1_000, 2_000] {
        for (way, n_asked) in [("all", 10), ("on-demand", 10), ("on-demand", n_hosts)] {
            let Cost { bytes, cpu } = measure(way, n_hosts, n_asked).await?;
            let asked = if way == "all" { "all at once".to_owned() } else { format!("{n_asked} on demand") };
            println!("| {n_hosts} | {asked} | {bytes} | {:.1} ms |", cpu.as_secs_f64() * 1_000.0);
        }
    }
    Ok(())
}

/// Until thousands of documents are read by a server that is not optimised.
const LONG: Duration = Duration::from_secs(120);
/// As many as make ticks of 10 ms a figure.
const N_CHANGES: u32 = 100;
