//! Servers that follow another one (`--upstream`), with real clients.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use xds_tests::backend::Backend;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, CLUSTER, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::etcd::Etcd;
use xds_tests::http::Connection;
use xds_tests::process::Signal;
use xds_tests::raw::{self, path};
use xds_tests::seen::{delta_names, plain_cluster, resources, served};
use xds_tests::server::{Server, Setup, Variant, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Channel, Library, Worker};

/// A server with files, and one that follows it. An Envoy and a gRPC client of the follower count at the server, get what it is given, and
/// go on when it is gone.
#[tokio::test]
async fn clients_of_a_follower_count_at_its_server_and_are_served_without_it() -> Result<()> {
    let backends = [Backend::start("one").await?, Backend::start("two").await?];
    let dir = ConfigDir::new()?;
    dir.write_resources("web.yaml", &to_backend(&backends[0]))?;
    let certificates = CertificateFiles::new().await?;
    let peer = free_addr()?;
    let core =
        linked(Setup::new()?, &certificates).arg(format!("--peer-listen={peer}")).arg("--instance-id=core");
    let mut core = Server::start_with(core.watch(dir.path()).arg("--replica-grace=1s")).await?;
    core.wait_ready().await?;
    let setup = linked(Setup::new()?.fixed_xds_port()?, &certificates)
        .arg(format!("--upstream={peer}"))
        .arg("--instance-id=edge");
    let mut edge = Server::start_with(setup).await?;
    edge.wait_ready().await?;
    assert_eq!(served(&edge).await?, served(&core).await?, "the same versions");
    assert_eq!(
        edge.get_json("/v1/history").await?["revisions"],
        core.get_json("/v1/history").await?["revisions"]
    );

    // What the follower is asked to change, it leaves to its server.
    let refused =
        edge.request("PUT", "/v1/groups/default/resources", &[JSON], resources(&[]).to_string()).await?;
    let problem = refused.json()?;
    assert_eq!(
        (refused.status, &problem["type"]),
        (StatusCode::CONFLICT, &json!("https://xds-server.io/problems/follower"))
    );

    let envoy = Envoy::start(&edge.bootstrap_envoy("edge-1", Variant::Delta).await?).await?;
    let address = envoy.wait_listener("edge").await?;
    reaches(address, "one").await?;
    core.wait_json("/v1/nodes", |nodes| nodes["nodes"][0]["streams"][0]["replica"] == "edge").await?;
    let listed = core.get_json("/v1/replicas").await?;
    assert_eq!(
        (&listed["replicas"][1]["id"], &listed["replicas"][1]["follows"]),
        (&json!("edge"), &json!(true)),
        "{listed:#}"
    );

    // A change by a file, and one by the API that waits for the clients of both.
    dir.write_resources("web.yaml", &to_backend(&backends[1]))?;
    reaches(address, "two").await?;
    let written = core
        .put("/v1/groups/default/resources/clusters/more?wait=acked&timeout=60s", &plain_cluster("more", 1))
        .await?;
    assert_eq!((&written["acked"], &written["replicas"]["answered"]), (&json!(1), &json!(2)), "{written:#}");

    // Its clients are unknown while it does not answer.
    edge.signal(Signal::STOP)?;
    core.wait_json("/v1/replicas", |list| list["replicas"][1]["reached"] != "yes").await?;
    let path = "/v1/groups/default/resources/clusters/more?wait=acked&timeout=1s";
    let told = core.put(path, &plain_cluster("more", 2)).await?;
    assert_eq!(told["replicas"]["missing"][0]["id"], "edge", "{told:#}");
    edge.signal(Signal::CONT)?;
    core.wait_json("/v1/replicas", |list| list["replicas"][1]["reached"] == "yes").await?;

    goes_on_without_its_server(&mut core, &mut edge, address).await?;

    // It ends in order, and its clients do not count any more.
    edge.stop().await?;
    core.wait_json("/v1/replicas", |list| list["replicas"].as_array().is_some_and(|all| all.len() == 1))
        .await?;
    Ok(())
}

/// The server is killed, and the follower starts again without it. Then the server comes back.
async fn goes_on_without_its_server(core: &mut Server, edge: &mut Server, address: SocketAddr) -> Result<()> {
    core.kill().await?;
    let problem =
        |status: &Value| status["problems"].to_string().contains("the server of --upstream is not followed");
    edge.wait_json("/readyz", problem).await?;
    edge.restart().await?;
    edge.wait_ready().await?;
    reaches(address, "two").await?;
    let late = Envoy::start(&edge.bootstrap_envoy("edge-2", Variant::Sotw).await?).await?;
    reaches(late.wait_listener("edge").await?, "two").await?;

    assert_eq!(edge.metric("xds_store_followed").await?, 0);

    // It comes back with a change, of which clients get only that.
    let channel = raw::connect(edge.xds()).await?;
    let mut client = raw::DeltaStream::open(channel, path::ADS_DELTA, raw::node("raw", ""));
    client.subscribe(CLUSTER, &[]).await?;
    let first = client.expect_response().await?;
    client.ack(&first).await?;
    assert_eq!(first.resources.len(), 2, "{:?}", delta_names(&first));
    core.restart().await?;
    core.wait_ready().await?;
    core.put("/v1/groups/default/resources/clusters/more", &plain_cluster("more", 9)).await?;
    let news = client.expect_response().await?;
    assert_eq!(delta_names(&news), ["more"], "nothing that has not changed");
    client.ack(&news).await?;
    edge.wait_json("/readyz", |status| !problem(status)).await?;
    assert_eq!(edge.metric("xds_store_followed").await?, 1);
    core.wait_json("/v1/replicas", |list| list["replicas"][1]["reached"] == "yes").await?;
    assert_eq!(core.metric("xds_servers{reached=\"yes\"}").await?, 1);
    Ok(())
}

/// Two servers with one store, and one that follows both, whose gRPC clients get new weights from either.
#[tokio::test]
async fn a_follower_of_two_servers_goes_on_with_the_other_one() -> Result<()> {
    let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(()) };
    let key = TempDir::new()?;
    fs::write(key.path().join("key"), "5a".repeat(32))?;
    let peers = [free_addr()?, free_addr()?];
    let mut servers = Vec::new();
    for (peer, id) in peers.iter().zip(["a", "b"]) {
        let setup = Setup::new()?.arg("--store").arg(etcd.url()).arg("--store-key-file");
        let setup = setup.arg(key.path().join("key").display().to_string());
        let setup = setup.arg(format!("--peer-listen={peer}")).arg(format!("--instance-id={id}"));
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        servers.push(server);
    }
    let backends = [Backend::start("one").await?, Backend::start("two").await?];
    let all = [
        config::api_listener("shop", "shop"),
        config::route_config("shop", &[("", config::split(&[("one", 100), ("two", 0)]))]),
        config::cluster("one"),
        config::cluster("two"),
        config::endpoints("one", &[backends[0].addr()]),
        config::endpoints("two", &[backends[1].addr()]),
    ];
    servers[0].put("/v1/groups/default/resources", &resources(&all)).await?;
    let setup = Setup::new()?.arg(format!("--upstream={},{}", peers[0], peers[1])).arg("--instance-id=edge");
    let edge = Server::start_with(setup).await?;
    edge.wait_ready().await?;
    let Some(worker) = Worker::start(Library::Grpcio, &config::grpc_bootstrap(edge.xds(), "app-1")).await?
    else {
        return Ok(());
    };
    let channel = worker.open("xds:///shop").await?;
    calls(&channel, "one").await?;
    let hold = channel.hold(&Calls::new(0), 50).await?;

    for (round, (writer, gone)) in [(1, 0), (0, 1)].into_iter().enumerate() {
        servers[gone].kill().await?;
        let weights = if round == 0 { [("one", 0), ("two", 100)] } else { [("one", 100), ("two", 0)] };
        let routes = config::route_config("shop", &[("", config::split(&weights))]);
        servers[writer].put("/v1/groups/default/resources/routes/shop", &routes).await?;
        let wanted = if round == 0 { "two" } else { "one" };
        calls(&channel, wanted).await?;
        let is_there = |list: &Value| list["replicas"].to_string().contains("\"follows\":true");
        servers[writer].wait_json("/v1/replicas", is_there).await?;
        servers[gone].restart().await?;
        servers[gone].wait_ready().await?;
    }
    hold.stop().await?.ensure_no_errors()
}

async fn calls(channel: &Channel<'_>, backend: &str) -> Result<()> {
    wait_for("the backend", PATIENCE, async || {
        let who = channel.who().await?;
        ensure!(who == backend, "it is {who}");
        Ok(())
    })
    .await
}

/// A server that has run for itself, with a secret in its files, may be followed from then on, and takes nothing away meanwhile.
#[tokio::test]
async fn a_server_with_files_becomes_one_that_is_followed_and_keeps_its_secrets() -> Result<()> {
    let dir = ConfigDir::new()?;
    let secret =
        json!({"@type": SECRET, "name": "s", "generic_secret": {"secret": {"inline_string": "hidden"}}});
    dir.write_resources("web.yaml", &[plain_cluster("api", 1), secret])?;
    let setup = Setup::new()?.watch(dir.path());
    let mut alone = Server::start_with(setup.clone()).await?;
    alone.wait_ready().await?;
    let before = served(&alone).await?;
    alone.stop().await?;
    let peer = free_addr()?;
    let core = Server::start_with(setup.arg(format!("--peer-listen={peer}"))).await?;
    core.wait_ready().await?;
    assert_eq!(served(&core).await?, before, "secrets too");
    let edge =
        Server::start_with(Setup::new()?.arg(format!("--upstream={peer}")).arg("--instance-id=edge")).await?;
    edge.wait_ready().await?;
    assert_eq!(served(&edge).await?, before);
    let status = edge.get_json("/readyz").await?;
    assert_eq!(status["problems"], json!([]), "{status:#}");
    Ok(())
}

/// Whoever has no certificate of the servers' authority reads nothing.
#[tokio::test]
async fn a_follower_without_the_right_certificate_gets_nothing() -> Result<()> {
    let (certificates, strangers) = (CertificateFiles::new().await?, CertificateFiles::new().await?);
    let peer = free_addr()?;
    let core =
        Server::start_with(linked(Setup::new()?, &certificates).arg(format!("--peer-listen={peer}"))).await?;
    core.wait_ready().await?;
    let setup = Setup::new()?.arg(format!("--upstream={peer}"));
    let mut stranger = linked(setup, &strangers).spawn().await?;
    let mut plain = Setup::new()?.arg(format!("--upstream={peer}")).spawn().await?;
    for waiting in [&mut stranger, &mut plain] {
        let waits = |line: &str| line.contains("waiting for the server of --upstream").then_some(());
        waiting.wait_line("the wait for the server", PATIENCE, waits).await?;
    }
    assert_eq!(core.get_json("/v1/replicas").await?["replicas"].as_array().map_or(0, Vec::len), 1);
    Ok(())
}

fn linked(setup: Setup, certificates: &CertificateFiles) -> Setup {
    let file = |flag: &str, name: &str| format!("--peer-{flag}={}", certificates.path(name));
    setup.arg(file("cert", "server.crt")).arg(file("key", "server.key")).arg(file("ca", "ca.crt"))
}

fn to_backend(backend: &Backend) -> [Value; 4] {
    [
        config::listener("edge", 0, "web"),
        config::route_config("web", &[("/", config::to("api"))]),
        config::cluster("api"),
        config::endpoints("api", &[backend.addr()]),
    ]
}

async fn reaches(edge: SocketAddr, backend: &str) -> Result<()> {
    wait_for("the backend", PATIENCE, async || {
        let answer = Connection::open(edge).await?.get("/").await?;
        ensure!(answer.header("x-backend") == backend, "it is {}", answer.header("x-backend"));
        Ok(())
    })
    .await
}

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

const JSON: (&str, &str) = ("content-type", "application/json");
