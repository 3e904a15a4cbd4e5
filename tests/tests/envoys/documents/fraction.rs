//! Shares of one request are drawn independently. An Envoy has one random number per request for all of them.

use anyhow::{Result, ensure};
use xds_tests::documents::World;
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};

const DOCUMENTS: &str = "
version: xds-server/v1
listeners:
  edge: {port: {web}, address: 127.0.0.1}
routes:
  shop:
    hosts: [shop.example.com]
    rules:
    - {match: {prefix: /, fraction: 10%}, to: {v1: 5000, v2: 5000}}
    - {match: {prefix: /, fraction: 20%}, to: {v3: 5000, v4: 5000}}
    - {to: {v5: 5000, v6: 5000}, mirror: {v7: 10%}}
  half:
    hosts: [half.example.com]
    rules:
    - {match: {prefix: /, fraction: 49.99%}, to: {v1: 5000, v2: 5000}}
    - {to: {v3: 5000, v4: 5000}}
backends:
  v1: '127.0.0.1:{v1}'
  v2: '127.0.0.1:{v2}'
  v3: '127.0.0.1:{v3}'
  v4: '127.0.0.1:{v4}'
  v5: '127.0.0.1:{v5}'
  v6: '127.0.0.1:{v6}'
  v7: '127.0.0.1:{v7}'
";

/// Requests to the first host, and to the second.
const N_REQUESTS: [(&str, u32); 2] = [("shop.example.com", 3_000), ("half.example.com", 1_000)];

/// Requests that each backend should get, and five standard deviations of that.
const EXPECTED: [(&str, u64, u64); 7] = [
    ("v1", 150 + 250, 90),
    ("v2", 150 + 250, 90),
    ("v3", 270 + 250, 105),
    ("v4", 270 + 250, 105),
    ("v5", 1_080, 135),
    ("v6", 1_080, 135),
    ("v7", 216, 75),
];

#[tokio::test]
async fn fractions_weights_and_mirrors_keep_their_shares() -> Result<()> {
    let mut world = World::start(&["v1", "v2", "v3", "v4", "v5", "v6", "v7"]).await?;
    world.ports(&["web"])?;
    world.write("native.yaml", DOCUMENTS)?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let ask = Ask::get("shop.example.com", "/");
    world.expect("web", &ask, Told::ensure_ok).await?;
    let before: Vec<u64> = EXPECTED.iter().map(|(name, ..)| world.backends[*name].n_requests()).collect();
    for (host, n) in N_REQUESTS {
        let ask = Ask::get(host, "/");
        for _ in 0..n {
            world.ask("web", &ask).await?.ensure_ok()?;
        }
    }
    // Copies are not waited for by the requests that they are made of.
    wait_for("the shares", PATIENCE, async || {
        let counts = EXPECTED.iter().zip(&before);
        let counts: Vec<u64> =
            counts.map(|((name, ..), before)| world.backends[*name].n_requests() - before).collect();
        for ((name, expected, tolerance), n) in EXPECTED.iter().zip(&counts) {
            ensure!(n.abs_diff(*expected) <= *tolerance, "{name} should have about {expected}: {counts:?}");
        }
        Ok(())
    })
    .await
}
