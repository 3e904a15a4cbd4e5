//! A relay of another xDS server (`--relay`), with real clients; the other server is one on go-control-plane, or ours.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, CLUSTER, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::foreign::ForeignServer;
use xds_tests::http::Connection;
use xds_tests::raw::{self, path};
use xds_tests::seen::{delta_names, plain_cluster, served};
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Channel, Library, Worker};

/// A go-control-plane, relayed as incremental xDS.
#[tokio::test]
async fn what_another_server_sends_is_served_and_outlives_it() -> Result<()> {
    relays("delta").await
}

/// The same in the state-of-the-world variant.
#[tokio::test]
async fn what_another_server_sends_in_the_other_variant_is_served_too() -> Result<()> {
    relays("sotw").await
}

async fn relays(variant: &str) -> Result<()> {
    let Some(mut foreign) = ForeignServer::new().await? else { return Ok(()) };
    let backends = [Backend::start("one").await?, Backend::start("two").await?];
    let dir = ConfigDir::new()?;
    dir.write("token", "hidden\n")?;
    let file = dir.write("relay.yaml", &relay_file(&[foreign.addr()], variant))?;
    let mut relay =
        Server::start_with(Setup::new()?.fixed_xds_port()?.arg("--relay").arg(file.display().to_string()))
            .await?;
    // Nobody is served anything before everything is there.
    let waits = relay.get("/readyz").await?;
    let reasons = waits.json()?["reasons"].to_string();
    assert_eq!(waits.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reasons.contains("the relayed server has not sent everything"), "{reasons}");
    foreign.start("1", &world(&backends[0], 1)).await?;
    relay.wait_ready().await?;
    assert!(!foreign.log()?.containing("TOKEN: [Bearer hidden]").is_empty(), "{}", foreign.log()?);
    assert!(relay.log().containing("hidden").is_empty(), "the token is in the log");

    let envoy = Envoy::start(&relay.bootstrap_envoy("edge-1", Variant::Delta).await?).await?;
    let edge = envoy.wait_listener("edge").await?;
    reaches(edge, "one").await?;
    let Some(worker) = Worker::start(Library::Grpcio, &config::grpc_bootstrap(relay.xds(), "app-1")).await?
    else {
        return Ok(());
    };
    let channel = worker.open("xds:///shop").await?;
    calls(&channel, "one").await?;
    let hold = channel.hold(&Calls::new(0), 50).await?;

    foreign.set("2", &world(&backends[1], 1)).await?;
    reaches(edge, "two").await?;
    calls(&channel, "two").await?;
    refuses_what_cannot_be_used(&mut foreign, &relay, &backends).await?;
    reaches(edge, "one").await?;

    outlives(&mut foreign, &mut relay, &backends, edge).await?;
    hold.stop().await?.ensure_no_errors()?;
    keeps_what_is_wiped(&mut foreign, &relay, edge).await
}

/// A resource that is not valid is rejected, and told; others of the same response are taken.
async fn refuses_what_cannot_be_used(
    foreign: &mut ForeignServer,
    relay: &Server,
    backends: &[Backend],
) -> Result<()> {
    let mut bad = world(&backends[0], 1);
    bad.push(json!({"@type": CLUSTER, "name": "bad", "connect_timeout": "-1s"}));
    foreign.set("3", &bad).await?;
    let told = relay.wait_json("/v1/relay", |told| told["nodes"][0]["nRefused"] == 1).await?;
    assert_eq!(told["nodes"][0]["refused"][0]["name"], "bad", "{told:#}");
    let nack = "NACK: Cluster \"bad\": connect_timeout";
    wait_for("the rejection", PATIENCE, async || {
        let log = foreign.log()?;
        ensure!(!log.containing(nack).is_empty(), "{log}");
        Ok(())
    })
    .await?;
    relay.wait_json("/readyz", |status| status["problems"].to_string().contains("cannot be used")).await?;
    assert_eq!(relay.metric("xds_relay_refused_resources").await?, 1);
    assert_eq!(relay.metric("xds_relay_nodes{connected=\"yes\"}").await?, 1);
    foreign.set("4", &world(&backends[0], 1)).await?;
    relay.wait_json("/v1/relay", |told| told["nodes"][0]["nRefused"] == 0).await?;
    relay.wait_json("/readyz", |status| status["problems"] == json!([])).await?;
    Ok(())
}

/// Without the other server, clients are served, also after a restart. When it is back, they are sent only what has changed.
async fn outlives(
    foreign: &mut ForeignServer,
    relay: &mut Server,
    backends: &[Backend],
    edge: SocketAddr,
) -> Result<()> {
    foreign.kill().await?;
    relay.wait_json("/readyz", |status| status["problems"].to_string().contains("--relay")).await?;
    relay.restart().await?;
    relay.wait_ready().await?;
    reaches(edge, "one").await?;
    let late = Envoy::start(&relay.bootstrap_envoy("edge-2", Variant::Sotw).await?).await?;
    reaches(late.wait_listener("edge").await?, "one").await?;
    let channel = raw::connect(relay.xds()).await?;
    let mut client = raw::DeltaStream::open(channel, path::ADS_DELTA, raw::node("raw", ""));
    client.subscribe(CLUSTER, &[]).await?;
    let first = client.expect_response().await?;
    client.ack(&first).await?;
    assert_eq!(first.resources.len(), 2, "{:?}", delta_names(&first));
    foreign.start("5", &world(&backends[0], 2)).await?;
    let news = client.expect_response().await?;
    assert_eq!(delta_names(&news), ["more"], "nothing that has not changed");
    client.ack(&news).await?;
    relay.wait_json("/readyz", |status| status["problems"] == json!([])).await?;
    Ok(())
}

/// A server that suddenly has nothing takes nothing away, until somebody says that this is intended.
async fn keeps_what_is_wiped(foreign: &mut ForeignServer, relay: &Server, edge: SocketAddr) -> Result<()> {
    foreign.set("6", &[]).await?;
    relay.wait_json("/v1/status/files", |status| status["own"]["state"] == "differs").await?;
    let history = relay.get_json("/v1/history").await?["revisions"].clone();
    let answer = Connection::open(edge).await?.get("/").await?;
    assert_eq!(answer.header("x-backend"), "one");
    relay.post("/v1/reload?confirm=true", &Value::Null).await?;
    relay.wait_json("/v1/status/files", |status| status["own"]["state"] == "applied").await?;
    assert_ne!(relay.get_json("/v1/history").await?["revisions"], history);
    let snapshot = relay.get_json("/v1/nodes/edge-1/snapshot").await?;
    assert_eq!(snapshot["types"], json!({}), "{snapshot:#}");
    Ok(())
}

/// Two nodes of one of our servers, each with a group of its own; the second address is used while the first is away.
#[tokio::test]
async fn each_group_gets_what_its_node_is_sent() -> Result<()> {
    let dir = ConfigDir::new()?;
    for group in ["east", "west"] {
        let definition = format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: {group}}}\nspec: {{selector: {{clusters: [{group}]}}}}\n"
        );
        dir.write(&format!("{group}/group.yaml"), &definition)?;
        dir.write_resources(&format!("{group}/clusters.yaml"), &[plain_cluster(group, 1)])?;
    }
    let mut core = Server::start_with(Setup::new()?.fixed_xds_port()?.watch(dir.path())).await?;
    core.wait_ready().await?;
    let (nobody, relays) = (xds_tests::server::free_addr()?, ConfigDir::new()?);
    let identities: Vec<Value> = ["east", "west"]
        .into_iter()
        .map(|group| {
            json!({"group": {"name": format!("relayed-{group}"), "selector": {"clusters": [group]}},
                   "node": {"id": format!("relay-{group}"), "cluster": group}})
        })
        .collect();
    let text = json!({"servers": [nobody.to_string(), core.xds().to_string()], "identities": identities});
    let file = relays.write("relay.json", &text.to_string())?;
    let relay = Server::start_with(Setup::new()?.arg("--relay").arg(file.display().to_string())).await?;
    relay.wait_ready().await?;
    for group in ["east", "west"] {
        let channel = raw::connect(relay.xds()).await?;
        let mut client = raw::DeltaStream::open(channel, path::ADS_DELTA, raw::node("raw", group));
        client.subscribe(CLUSTER, &[]).await?;
        let first = client.expect_response().await?;
        assert_eq!(delta_names(&first), [group]);
        client.ack(&first).await?;
        dir.write_resources(
            &format!("{group}/clusters.yaml"),
            &[plain_cluster(group, 1), plain_cluster("more", 1)],
        )?;
        let news = client.expect_response().await?;
        assert_eq!(delta_names(&news), ["more"]);
    }
    let refused = relay.request("PUT", "/v1/files", &[JSON], json!({"files": {}}).to_string()).await?;
    assert_eq!(refused.json()?["type"], "https://xds-server.io/problems/own-files");
    // What the API says takes precedence, as over files.
    relay.put("/v1/groups/relayed-east/resources/clusters/east", &plain_cluster("east", 7)).await?;
    core.stop().await?;
    relay.wait_json("/v1/relay", |told| told["nodes"][0]["connected"] == false).await?;
    core.restart().await?;
    relay.wait_json("/v1/relay", |told| told["nodes"][0]["connected"] == true).await?;
    Ok(())
}

/// A server with mutual TLS is reached with the right certificates, and with these alone.
#[tokio::test]
async fn a_server_with_tls_is_relayed_with_the_right_certificates() -> Result<()> {
    let (certificates, strangers) = (CertificateFiles::new().await?, CertificateFiles::new().await?);
    let dir = ConfigDir::new()?;
    dir.write_resources("web.yaml", &[plain_cluster("api", 1)])?;
    let setup = Setup::new()?
        .watch(dir.path())
        .arg(format!("--xds-tls-cert={}", certificates.path("server.crt")))
        .arg(format!("--xds-tls-key={}", certificates.path("server.key")))
        .arg(format!("--xds-client-ca={}", certificates.path("ca.crt")));
    let core = Server::start_with(setup).await?;
    core.wait_ready().await?;
    let relays = ConfigDir::new()?;
    let start = async |name: &str, files: &CertificateFiles| -> Result<Server> {
        let file = |name: &str| files.path(name);
        let text = json!({
            "servers": [core.xds().to_string()],
            "tls": {"ca": file("ca.crt"), "cert": file("server.crt"), "key": file("server.key"), "serverName": "localhost"},
            "identities": [{"group": {"name": "default"}, "node": {"id": "relay-1"}}],
        });
        let file = relays.write(name, &text.to_string())?;
        Server::start_with(Setup::new()?.arg("--relay").arg(file.display().to_string())).await
    };
    let relay = start("right.json", &certificates).await?;
    relay.wait_ready().await?;
    assert_eq!(served(&relay).await?, served(&core).await?, "the same contents have the same versions");
    let stranger = start("wrong.json", &strangers).await?;
    stranger
        .wait_json("/v1/relay", |told| told["nodes"][0]["problem"].to_string().contains("certificate"))
        .await?;
    assert_eq!(stranger.get("/readyz").await?.status, StatusCode::SERVICE_UNAVAILABLE);
    Ok(())
}

fn relay_file(servers: &[SocketAddr], variant: &str) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    json!({
        "servers": servers,
        "variant": variant,
        "tokenFile": "token",
        "identities": [{"group": {"name": "default"}, "node": {"id": "relay-1", "cluster": "edge"}}],
    })
    .to_string()
}

/// A world with a listener for Envoys, one for gRPC clients, and one cluster with endpoints; and `more`, if `n` is more than 1.
fn world(backend: &Backend, n: u64) -> Vec<Value> {
    let mut all = vec![
        config::listener("edge", 0, "web"),
        config::route_config("web", &[("/", config::to("api"))]),
        config::api_listener("shop", "shop"),
        config::route_config("shop", &[("", config::to("api"))]),
        config::cluster("api"),
        plain_cluster("other", 1),
        config::endpoints("api", &[backend.addr()]),
    ];
    if n > 1 {
        all.push(plain_cluster("more", n));
    }
    all
}

async fn reaches(edge: SocketAddr, backend: &str) -> Result<()> {
    wait_for("the backend", PATIENCE, async || {
        let answer = Connection::open(edge).await?.get("/").await?;
        ensure!(answer.header("x-backend") == backend, "it is {}", answer.header("x-backend"));
        Ok(())
    })
    .await
}

async fn calls(channel: &Channel<'_>, backend: &str) -> Result<()> {
    wait_for("the backend", PATIENCE, async || {
        let who = channel.who().await?;
        ensure!(who == backend, "it is {who}");
        Ok(())
    })
    .await
}

const JSON: (&str, &str) = ("content-type", "application/json");
