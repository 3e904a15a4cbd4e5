//! From one server to three, as the guide of that name goes, while an Envoy is asked for requests all the time.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;
use xds_tests::backend::Backend;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::etcd::Etcd;
use xds_tests::http::Connection;
use xds_tests::seen::{plain_cluster, served};
use xds_tests::server::{Server, Setup, cli, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};

/// Three places for servers.
struct Places {
    xds: [SocketAddr; 3],
    peers: [SocketAddr; 3],
    certificates: CertificateFiles,
    etcd: Etcd,
    key: String,
}

impl Places {
    /// A server at a place, which proves to others who it is.
    fn setup(&self, n: usize, base: Setup) -> Setup {
        let file = |flag: &str, name: &str| format!("--peer-{flag}={}", self.certificates.path(name));
        let tls = [file("cert", "server.crt"), file("key", "server.key"), file("ca", "ca.crt")];
        let base = base.xds_at(self.xds[n]).arg(format!("--instance-id={}", ["a", "b", "c"][n]));
        tls.into_iter().fold(base, Setup::arg)
    }

    fn listening(&self, n: usize, base: Setup) -> Setup {
        self.setup(n, base).arg(format!("--peer-listen={}", self.peers[n]))
    }

    fn sharing(&self, n: usize, base: Setup) -> Setup {
        let setup = self.listening(n, base).arg(format!("--store={}", self.etcd.url()));
        setup.arg(format!("--store-key-file={}", self.key))
    }

    async fn envoy(&self, id: &str) -> Result<Envoy> {
        let addresses: Vec<String> = self.xds.iter().map(ToString::to_string).collect();
        let addresses = addresses.join(",");
        let bootstrap = cli(&["bootstrap", "envoy", "--node-id", id, "--xds-address", &addresses]).await?;
        Envoy::start(&bootstrap).await
    }
}

#[tokio::test]
async fn one_server_becomes_three_and_no_request_fails() -> Result<()> {
    let Some(etcd) = Etcd::start(3, &[]).await? else { return Ok(()) };
    let dir = TempDir::new()?;
    let key = dir.path().join("key");
    fs::write(&key, "5a".repeat(32))?;
    let places = Places {
        xds: [free_addr()?, free_addr()?, free_addr()?],
        peers: [free_addr()?, free_addr()?, free_addr()?],
        certificates: CertificateFiles::new().await?,
        etcd,
        key: key.display().to_string(),
    };
    let backends = [Backend::start("one").await?, Backend::start("two").await?];
    let files = ConfigDir::new()?;
    files.write_resources("web.yaml", &to_backend(&backends[0]))?;

    // One server, which watches files and was given something by the API.
    let alone = Setup::new()?.xds_at(places.xds[0]).watch(files.path());
    let data = alone.data_dir().display().to_string();
    let mut a = Server::start_with(alone.clone()).await?;
    a.wait_ready().await?;
    a.put("/v1/groups/default/resources/clusters/more", &plain_cluster("more", 1)).await?;
    let before = served(&a).await?;
    let envoy = places.envoy("edge-1").await?;
    let edge = envoy.wait_listener("edge").await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let requests = tokio::spawn(ask(edge, Arc::clone(&is_over)));

    // 1. It may be followed, and a second one follows it.
    a.stop().await?;
    let mut a = Server::start_with(places.listening(0, alone.clone())).await?;
    a.wait_ready().await?;
    let follows = places.setup(1, Setup::new()?).arg(format!("--upstream={}", places.peers[0]));
    let mut b = Server::start_with(follows).await?;
    b.wait_ready().await?;
    assert_eq!(served(&b).await?, before);

    // 2. The first one moves to the etcd, while the second one serves, also an Envoy that starts just then.
    a.stop().await?;
    let push = [
        "store",
        "push",
        "--data-dir",
        &data,
        "--store",
        &places.etcd.url(),
        "--store-key-file",
        &places.key,
    ];
    cli(&push).await?;
    let late = places.envoy("edge-2").await?;
    reaches(late.wait_listener("edge").await?, "one").await?;
    let a = Server::start_with(places.sharing(0, alone)).await?;
    a.wait_ready().await?;
    assert_eq!(served(&a).await?, before, "what files and the API defined");

    // 3. The others share the store too.
    let c = Server::start_with(places.sharing(2, Setup::new()?)).await?;
    c.wait_ready().await?;
    // It says no farewell, so the first one waits for it, until it is there as one that shares the store.
    b.kill().await?;
    let b = Server::start_with(places.sharing(1, Setup::new()?)).await?;
    b.wait_ready().await?;
    let servers = [a, b, c];
    for server in &servers {
        assert_eq!(served(server).await?, before);
    }

    grown(&servers, &files, &backends, edge).await?;
    is_over.store(true, Ordering::SeqCst);
    let (n_asked, failed) = requests.await??;
    println!("{n_asked} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}

/// Three servers as one: they know each other, a change of files reaches all clients, and writes count all of them.
async fn grown(
    servers: &[Server; 3],
    files: &ConfigDir,
    backends: &[Backend],
    edge: SocketAddr,
) -> Result<()> {
    let all = |list: &Value| {
        let reached = |one: &Value| one["reached"] == "yes";
        list["replicas"].as_array().is_some_and(|all| all.len() == 3 && all.iter().all(reached))
    };
    for server in servers {
        server.wait_json("/v1/replicas", all).await?;
    }
    files.write_resources("web.yaml", &to_backend(&backends[1]))?;
    reaches(edge, "two").await?;
    let path = "/v1/groups/default/resources/clusters/more?wait=acked&timeout=60s";
    let written = servers[2].put(path, &plain_cluster("more", 2)).await?;
    assert_eq!((&written["acked"], &written["replicas"]["answered"]), (&json!(2), &json!(3)), "{written:#}");
    Ok(())
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

/// Asks again and again. Returns how many requests there were, and what became of those that failed.
async fn ask(edge: SocketAddr, is_over: Arc<AtomicBool>) -> Result<(usize, Vec<String>)> {
    let (mut n_asked, mut failed) = (0, Vec::new());
    let mut connection = Connection::open(edge).await?;
    while !is_over.load(Ordering::SeqCst) {
        n_asked += 1;
        match connection.get("/").await {
            Ok(answer) if answer.status == StatusCode::OK => {}
            Ok(answer) => failed.push(format!("{}: {}", answer.status, answer.text())),
            Err(error) => {
                failed.push(format!("{error:#}"));
                connection = Connection::open(edge).await.context("the Envoy")?;
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok((n_asked, failed))
}
