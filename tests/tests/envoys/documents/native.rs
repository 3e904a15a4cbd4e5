//! The native form: two addresses, with weights of 90 and 10.

use anyhow::{Result, ensure};
use xds_tests::documents::World;
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::Variant;
use xds_tests::worker::{Calls, Library};

const DOCUMENTS: &str = "
version: xds-server/v1
listeners:
  edge: {port: {web}}
routes:
  greeter:
    hosts: [greeter.example.com]
    rules:
    - match: {grpc: helloworld.Greeter/SayHello}
      to: {greeter-v1: 90, greeter-v2: 10}
    - match: {grpc: helloworld.Greeter, headers: {x-env: canary}}
      to: greeter-v2
    - match: {path: /healthz}
      to: greeter-v1
    - match: {prefix: /static}
      to: greeter-v2
backends:
  greeter-v1: {protocol: grpc, endpoints: ['127.0.0.1:{v1}']}
  greeter-v2: {protocol: grpc, endpoints: [{addr: '127.0.0.1:{v2}', zone: b, weight: 2}]}
";

#[tokio::test]
async fn two_addresses_share_by_weight() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("native.yaml", DOCUMENTS)?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let call = Ask::call("greeter.example.com", "/helloworld.Greeter/SayHello");
    world.expect("web", &call, Told::ensure_ok).await?;
    let mut n_v2 = 0;
    for _ in 0..500 {
        n_v2 += usize::from(world.ask("web", &call).await?.backend == "v2");
    }
    ensure!((20..=85).contains(&n_v2), "{n_v2} of 500");
    let other = Ask::call("greeter.example.com", "/helloworld.Greeter/Other");
    world.expect_code("web", &other, xds_tests::rpc::UNIMPLEMENTED).await?;
    world.expect_from("web", &other.clone().with("x-env", "canary"), "v2").await?;
    world.expect_from("web", &Ask::get("greeter.example.com", "/healthz"), "v1").await?;
    world.expect_from("web", &Ask::get("greeter.example.com", "/static/x"), "v2").await?;

    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///greeter.example.com").await?;
        let mut calls = Calls::new(300);
        calls.method = "/helloworld.Greeter/SayHello".to_owned();
        let counts = channel.call(&calls).await?;
        counts.ensure_no_errors()?;
        ensure!((8..=65).contains(&counts.n_of("v2")), "{library}: {counts:?}");
    }
    Ok(())
}
