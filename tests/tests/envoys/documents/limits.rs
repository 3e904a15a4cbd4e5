//! Circuit breakers: requests are never dropped because of a limit that no document sets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xds_tests::documents::World;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

const DOCUMENTS: &str = "
version: xds-server/v1
listeners:
  edge: {port: {web}, address: 127.0.0.1}
routes:
  open: {hosts: [open.example.com], to: open}
  limited: {hosts: [limited.example.com], to: limited}
  any: {match: {headers: {x-to: limited}}, to: limited}
  others: {to: open}
backends:
  open: {protocol: grpc, endpoints: '127.0.0.1:{v1}'}
  limited: {protocol: grpc, endpoints: '127.0.0.1:{v2}', max_requests: 5}
";

/// More than the 1,024 that clients allow by themselves, all at a time.
const MANY: u32 = 1_200;

/// Calls that are all under way at once: each takes longer than it takes to begin them.
fn at_once(n: u32) -> Calls {
    let mut calls = Calls::new(n);
    calls.n_in_flight = n;
    calls.method = "/echo.Echo/Who?delay_ms=4000".to_owned();
    calls.limit = Duration::from_secs(60);
    calls
}

#[tokio::test]
async fn only_a_limit_that_is_written_drops_calls() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("native.yaml", DOCUMENTS)?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let worker = world.worker(Library::Grpcio).await?.context("grpcio")?;
    let through_envoy = format!("127.0.0.1:{}", world.port("web")?);
    for (target, to) in [
        ("xds:///open.example.com", ""),
        (through_envoy.as_str(), ""),
        ("xds:///limited.example.com", "limited"),
        (through_envoy.as_str(), "limited"),
    ] {
        let channel = worker.open(target).await?;
        let with = |mut calls: Calls| {
            calls.metadata.extend((!to.is_empty()).then(|| ("x-to".to_owned(), to.to_owned())));
            calls
        };
        wait_for("an answer", PATIENCE, async || {
            channel.call(&with(Calls::new(1))).await?.ensure_no_errors()
        })
        .await?;
        if to.is_empty() {
            let counts = channel.call(&with(at_once(MANY))).await?;
            ensure!(counts.n_answered() == u64::from(MANY), "{target}: {counts:?}");
        } else {
            let counts = channel.call(&with(at_once(50))).await?;
            ensure!(
                counts.n_answered() < 50 && counts.errors.contains_key("UNAVAILABLE"),
                "{target}: {counts:?}"
            );
        }
    }
    Ok(())
}
