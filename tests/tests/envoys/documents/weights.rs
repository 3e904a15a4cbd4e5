//! gRFC A28: a change of weights moves traffic and nothing else.

use anyhow::{Result, ensure};
use serde_json::Value;
use xds_tests::documents::World;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

fn documents(v1: u32, v2: u32) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: web}}\nspec:\n  \
         gatewayClassName: xds-server\n  listeners: [{{name: http, protocol: HTTP, port: {{web}}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {{name: greeter}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: [greeter.example.com]\n  rules:\n  - backendRefs: \
         [{{name: v1, port: 8080, weight: {v1}}}, {{name: v2, port: 8080, weight: {v2}}}]\n"
    )
}

async fn check(library: Library) -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &documents(90, 10))?;
    let Some(worker) = world.worker(library).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter.example.com").await?;
    let count = async |n: u32| {
        let counts = channel.call(&Calls::new(n)).await?;
        counts.ensure_no_errors()?;
        anyhow::Ok(counts)
    };
    let first = count(400).await?;
    ensure!((10..=80).contains(&first.n_of("v2")), "{first:?}");
    let n_accepted = || [&world.backends["v1"], &world.backends["v2"]].map(|backend| backend.n_accepted());
    let connections = n_accepted();

    for (v1, v2) in [(50, 50), (10, 90), (90, 10)] {
        world.write("routes.yaml", &documents(v1, v2))?;
        let share = u64::from(v2) * 4;
        wait_for("the new shares", PATIENCE, async || {
            let counts = count(400).await?;
            ensure!(counts.n_of("v2").abs_diff(share) <= 45, "not {v1}/{v2}: {counts:?}");
            Ok(())
        })
        .await?;
    }
    // No subchannel was made anew: the first connections are still open.
    assert_eq!(n_accepted(), connections);
    Ok(())
}

#[tokio::test]
async fn grpcio_keeps_its_connections_when_weights_change_c15() -> Result<()> {
    check(Library::Grpcio).await
}

#[tokio::test]
async fn grpc_go_keeps_its_connections_when_weights_change_c15() -> Result<()> {
    check(Library::GrpcGo).await
}

#[tokio::test]
async fn only_the_route_configuration_changes_when_weights_do_pitfall_44() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &documents(90, 10))?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    let versions = async || {
        let node = world.server.get_json("/v1/nodes/envoy").await?;
        let types = node["types"].as_object().cloned().unwrap_or_default();
        let of = |name: &str| {
            let found = types.iter().find(|(url, _)| url.ends_with(name));
            found.map(|(_, status)| status["versionAcked"].clone()).unwrap_or(Value::Null)
        };
        let (routes, others) =
            (of("RouteConfiguration"), ["Listener", "Cluster", "ClusterLoadAssignment"].map(of));
        ensure!(!routes.is_null() && others.iter().all(|version| !version.is_null()), "{node:#}");
        Ok((routes, others))
    };
    let (routes, others) = wait_for("all types", PATIENCE, &versions).await?;
    world.write("routes.yaml", &documents(20, 80))?;
    let after = wait_for("new routes", PATIENCE, async || {
        let (now, others) = versions().await?;
        ensure!(now != routes, "still {now}");
        Ok(others)
    })
    .await?;
    assert_eq!(after, others);
    Ok(())
}
