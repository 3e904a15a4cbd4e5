//! Load reports of real clients: they count the requests that were sent, and `/v1/loads` shows the same sums.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, ConfigDir};
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::worker::{Calls, Library};

/// A server that wants reports as often as C-core gives them.
fn setup() -> Result<Setup> {
    Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()
}

/// The load of one cluster, as soon as it is as it should be.
async fn wait_load(server: &Server, cluster: &str, is_good: impl Fn(&Value) -> bool) -> Result<Value> {
    let loads = server
        .wait_json(&format!("/v1/loads?cluster={cluster}"), |loads| {
            loads["clusters"].as_array().is_some_and(|found| found.len() == 1 && is_good(&found[0]))
        })
        .await?;
    ensure!(loads["complete"] == true, "{loads:#}");
    Ok(loads["clusters"][0].clone())
}

/// Sends requests one after the other, and returns how many failed.
async fn send(connection: &mut Connection, n: u32) -> Result<u64> {
    let mut n_failed = 0;
    for _ in 0..n {
        n_failed += u64::from(connection.get("/").await?.status == 503);
    }
    Ok(n_failed)
}

#[tokio::test]
async fn two_envoys_add_up_and_a_reconnect_counts_nothing_twice() -> Result<()> {
    let backend = Backend::start("v1").await?;
    let dir = ConfigDir::new()?;
    let resources = [
        config::listener("http", 0, "routes"),
        config::route_config("routes", &[("/", config::to("c"))]),
        config::cluster("c"),
        config::endpoints("c", &[backend.addr()]),
    ];
    dir.write("resources.yaml", &config::yaml(&resources)?)?;
    let mut server = Server::start_with(setup()?.watch(dir.path())).await?;
    let mut envoys = Vec::new();
    for (id, variant) in [("edge-1", Variant::Sotw), ("edge-2", Variant::Delta)] {
        let envoy = Envoy::start(&server.bootstrap_envoy(id, variant).await?).await?;
        envoy.wait_live().await?;
        let listener = envoy.wait_listener("http").await?;
        envoys.push((envoy, Connection::open(listener).await?));
    }
    // An Envoy counts a cluster from the first report after it came.
    wait_load(&server, "c", |load| load["nodes"] == 2).await?;
    backend.fail(0.25);
    let mut n_failed = 0;
    for ((_, connection), n) in envoys.iter_mut().zip([60, 40]) {
        n_failed += send(connection, n).await?;
    }
    assert_eq!(n_failed, 25);
    let load = wait_load(&server, "c", |load| load["issued"] == 100 && load["inProgress"] == 0).await?;
    assert_eq!((&load["successful"], &load["errors"]), (&json!(75), &json!(25)), "{load:#}");
    assert_eq!((&load["errorRate"], &load["known"]), (&json!(0.25), &json!(true)));
    assert!(load["rate"].as_f64().context("no rate")? > 0.0, "{load:#}");
    assert_eq!(load["localities"].as_array().map(Vec::len), Some(1), "{load:#}");
    let locality = &load["localities"][0];
    assert_eq!((&locality["region"], &locality["zone"]), (&json!("here"), &json!("a")));
    for (index, (node, n)) in [("edge-1", 60), ("edge-2", 40)].into_iter().enumerate() {
        let reporter = &load["reporters"][index];
        assert_eq!((&reporter["node"], &reporter["issued"]), (&json!(node), &json!(n)));
    }
    let of_one = server.get_json("/v1/loads?cluster=c&node=edge-2").await?;
    assert_eq!(of_one["clusters"][0]["issued"], 40, "{of_one:#}");

    // Requests that were counted are in no report any more after the clients come back to another server.
    server.restart().await?;
    wait_load(&server, "c", |load| load["nodes"] == 2).await?;
    backend.fail(0.0);
    send(&mut envoys[0].1, 20).await?;
    let load = wait_load(&server, "c", |load| load["issued"] != 0).await?;
    assert!(load["issued"].as_u64().is_some_and(|n| n <= 20), "{load:#}");
    let load = wait_load(&server, "c", |load| load["issued"] == 20).await?;
    assert_eq!(load["errors"], 0);
    Ok(())
}

const DOCUMENTS: &str = "
version: xds-server/v1
routes:
  greeter:
    hosts: [greeter.example.com]
    to: greeter-v1
backends:
  greeter-v1: {protocol: grpc, endpoints: ['127.0.0.1:{v1}']}
";

async fn check(library: Library) -> Result<()> {
    let world = World::start_with(setup()?, &["v1"]).await?;
    world.write("native.yaml", DOCUMENTS)?;
    let Some(worker) = world.worker(library).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter.example.com").await?;
    world.backends["v1"].fail(0.25);
    let counts = channel.call(&Calls { n_in_flight: 1, ..Calls::new(80) }).await?;
    assert_eq!(counts.n_answered(), 60, "{counts:?}");
    let cluster = "default/greeter-v1";
    let load =
        wait_load(&world.server, cluster, |load| load["issued"] == 80 && load["inProgress"] == 0).await?;
    assert_eq!((&load["successful"], &load["errors"]), (&json!(60), &json!(20)), "{load:#}");
    assert_eq!((&load["known"], &load["nodes"]), (&json!(true), &json!(1)));
    assert_eq!(load["reporters"][0]["node"], "grpc");
    let admin = world.server.url("");
    let table = xds_tests::server::cli(&["loads", cluster, "--admin", &admin, "--output", "table"]).await?;
    ensure!(table.contains("25.00%") && table.contains("grpc"), "{table}");
    Ok(())
}

#[tokio::test]
async fn grpcio_reports_what_it_called_a218() -> Result<()> {
    check(Library::Grpcio).await
}

#[tokio::test]
async fn grpc_go_reports_what_it_called_a218() -> Result<()> {
    check(Library::GrpcGo).await
}

#[tokio::test]
async fn grpc_js_reports_what_it_called_a218() -> Result<()> {
    check(Library::GrpcJs).await
}

#[tokio::test]
async fn without_load_reports_clients_work_and_nothing_is_told_a219() -> Result<()> {
    let setup = Setup::new()?.arg("--load-reports=false");
    let world = World::start_with(setup, &["v1"]).await?;
    world.write("native.yaml", DOCUMENTS)?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter.example.com").await?;
    assert_eq!(channel.who().await?, "v1");
    let loads = world.server.get_json("/v1/loads").await?;
    assert_eq!(loads["clusters"], json!([]));
    Ok(())
}
