//! Wave deployments with the real server: the nodes that get a change, also over `kill -9`, and a real Envoy that rejects one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use xds_tests::backend::Backend;
use xds_tests::config::{self, CLUSTER, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::process::Signal;
use xds_tests::raw::{self, DeltaStream, SotwStream, path};
use xds_tests::server::{Server, Setup, Variant, cli, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};

const N_NODES: usize = 20;
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// The nodes `node-0`, `node-1` and so on, every other one with incremental xDS. All have a wildcard for clusters and accept
/// at once what is not newer than they may.
struct Fleet {
    nodes: Vec<Arc<Mutex<Held>>>,
    streams: JoinSet<Result<()>>,
    /// The connect timeout up to which the cluster `c` is accepted; more is accepted once it grows.
    accepts: watch::Sender<i64>,
}

/// The resources that a node was sent.
#[derive(Debug, Default)]
struct Held {
    /// The connect timeout of the cluster `c` in seconds.
    seconds: i64,
    n_responses: usize,
}

impl Fleet {
    /// Connects every node, and waits until each has something.
    async fn connect(server: &Server, accepts: i64) -> Result<Self> {
        Self::begin(server, accepts, false).await
    }

    /// The same nodes after they lost their connections, with the resources that they had.
    async fn come_back(server: &Server, accepts: i64) -> Result<Self> {
        Self::begin(server, accepts, true).await
    }

    async fn begin(server: &Server, accepts: i64, comes_back: bool) -> Result<Self> {
        let (accepts, _) = watch::channel(accepts);
        let mut fleet = Self { nodes: Vec::new(), streams: JoinSet::new(), accepts };
        for n in 0..N_NODES {
            let held = Arc::new(Mutex::new(Held::default()));
            fleet.nodes.push(Arc::clone(&held));
            let channel = raw::connect(server.xds()).await?;
            let (node, accepts) = (raw::node(&format!("node-{n}"), "edge"), fleet.accepts.subscribe());
            if n % 2 == 0 {
                let mut stream = SotwStream::open(channel, path::ADS, node);
                match comes_back {
                    true => stream.come_back(CLUSTER).await?,
                    false => stream.subscribe(CLUSTER, &[]).await?,
                }
                fleet.streams.spawn(follow_sotw(stream, held, accepts));
            } else {
                let mut stream = DeltaStream::open(channel, path::ADS_DELTA, node);
                match comes_back {
                    true => stream.come_back(CLUSTER).await?,
                    false => stream.subscribe(CLUSTER, &[]).await?,
                }
                fleet.streams.spawn(follow_delta(stream, held, accepts));
            }
        }
        fleet.wait("something", |held| held.n_responses > 0).await?;
        Ok(fleet)
    }

    async fn wait(&self, what: &str, holds: impl Fn(&Held) -> bool) -> Result<()> {
        wait_for(what, PATIENCE, async || {
            let n = self.nodes.iter().filter(|node| holds(&lock(node))).count();
            ensure!(n == N_NODES, "{n} of {N_NODES} nodes have it");
            Ok(())
        })
        .await
    }

    /// The nodes that were sent the cluster `c` with this timeout.
    fn with(&self, seconds: i64) -> BTreeSet<String> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| lock(node).seconds == seconds).map(|(n, _)| format!("node-{n}")).collect()
    }

    fn accept(&self, seconds: i64) {
        self.accepts.send_replace(seconds);
    }
}

fn lock(held: &Mutex<Held>) -> std::sync::MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow_sotw(
    mut stream: SotwStream,
    held: Arc<Mutex<Held>>,
    mut accepts: watch::Receiver<i64>,
) -> Result<()> {
    loop {
        // Ends with the server.
        let Ok(response) = stream.expect_type(CLUSTER).await else { return Ok(()) };
        let seconds = take(&held, response.resources.iter().map(|any| any.value.as_slice()))?;
        accepts.wait_for(|most| seconds <= *most).await?;
        stream.ack(&response, &[]).await?;
    }
}

async fn follow_delta(
    mut stream: DeltaStream,
    held: Arc<Mutex<Held>>,
    mut accepts: watch::Receiver<i64>,
) -> Result<()> {
    loop {
        let Ok(response) = stream.expect_type(CLUSTER).await else { return Ok(()) };
        let contents =
            response.resources.iter().filter_map(|one| one.resource.as_ref()).map(|any| any.value.as_slice());
        let seconds = take(&held, contents)?;
        accepts.wait_for(|most| seconds <= *most).await?;
        stream.ack(&response).await?;
    }
}

/// Notes what a response says of the cluster `c`.
fn take<'r>(held: &Mutex<Held>, contents: impl Iterator<Item = &'r [u8]>) -> Result<i64> {
    let mut held = lock(held);
    for content in contents {
        let cluster = Cluster::decode(content)?;
        if cluster.name == "c" {
            held.seconds = cluster.connect_timeout.context("connect_timeout")?.seconds;
        }
    }
    held.n_responses += 1;
    Ok(held.seconds)
}

fn cluster(seconds: u32) -> Value {
    let mut cluster = config::cluster("c");
    cluster["connect_timeout"] = json!(format!("{seconds}s"));
    cluster
}

fn ids(report: &Value, field: &str) -> BTreeSet<String> {
    report[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The newest wave deployment, once it is as it should be.
async fn wait_wave(server: &Server, is_good: impl Fn(&Value) -> bool) -> Result<Value> {
    let waves = server.wait_json("/v1/waves", |waves| is_good(&waves["waveDeployments"][0])).await?;
    Ok(waves["waveDeployments"][0].clone())
}

/// Waits until the members of the first wave, and nobody else, were sent the cluster with these seconds; the others have 1. They
/// have not answered.
async fn wait_members(server: &Server, fleet: &Fleet, seconds: i64) -> Result<BTreeSet<String>> {
    let report = wait_wave(server, |wave| {
        wave["phase"] == "progressing" && ids(wave, "ahead").len() + ids(wave, "behind").len() == N_NODES
    })
    .await?;
    let members = ids(&report, "ahead");
    ensure!(!members.is_empty() && members.len() < N_NODES, "{report:#}");
    wait_for("the members", PATIENCE, async || {
        let with = fleet.with(seconds);
        ensure!(with == members, "{with:?} have it, the members are {members:?}");
        Ok(())
    })
    .await?;
    ensure!(fleet.with(1).len() == N_NODES - members.len(), "the others have the previous version");
    Ok(members)
}

/// Begins a change, kills the server while no member has answered yet, and lets the change go on.
async fn over_a_kill(mut server: Server, begin: impl AsyncFnOnce(&Server) -> Result<()>) -> Result<()> {
    let fleet = Fleet::connect(&server, 1).await?;
    begin(&server).await?;
    let members = wait_members(&server, &fleet, 2).await?;
    let behind = |fleet: &Fleet| {
        let held = fleet.nodes.iter().map(|node| lock(node));
        held.filter(|held| held.seconds == 1).map(|held| held.n_responses).max()
    };
    assert_eq!(behind(&fleet), Some(1), "who is behind was sent nothing more");
    server.kill().await?;
    drop(fleet);
    server.restart().await?;
    server.wait_ready().await?;
    let fleet = Fleet::come_back(&server, 1).await?;
    assert_eq!(wait_members(&server, &fleet, 2).await?, members, "the same nodes after the restart");
    assert_eq!(behind(&fleet), Some(1));
    fleet.accept(2);
    fleet.wait("the change", |held| held.seconds == 2).await?;
    let report = wait_wave(&server, |wave| wave["phase"] == "completed").await?;
    assert_eq!(report["waves"].as_array().map(Vec::len), Some(2), "{report:#}");
    Ok(())
}

#[tokio::test]
async fn a_change_of_files_reaches_exactly_the_members_also_after_kill_9() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("c.yaml", &[cluster(1)])?;
    let setup = Setup::new()?.watch(dir.path()).arg("--waves=30%,100%").arg("--wave-hold=0s");
    let server = Server::start_with(setup).await?;
    over_a_kill(server, async |_| dir.write_resources("c.yaml", &[cluster(2)]).map(|_| ())).await
}

#[tokio::test]
async fn files_that_change_while_the_server_is_down_reach_the_first_wave_only() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("c.yaml", &[cluster(1)])?;
    let setup = Setup::new()?.watch(dir.path()).arg("--waves=30%,100%").arg("--wave-hold=0s");
    let mut server = Server::start_with(setup).await?;
    let waves = server.get_json("/v1/waves").await?;
    assert_eq!(waves["waveDeployments"], json!([]), "there was nothing before: {waves:#}");
    let fleet = Fleet::connect(&server, 1).await?;
    // The server is killed without a wave deployment, and then in the middle of this one.
    let mut begun = Vec::new();
    drop(fleet);
    for seconds in [2, 3] {
        server.kill().await?;
        dir.write_resources("c.yaml", &[cluster(seconds)])?;
        server.restart().await?;
        server.wait_ready().await?;
        let fleet = Fleet::come_back(&server, 1).await?;
        wait_members(&server, &fleet, i64::from(seconds)).await?;
        let waves = server.get_json("/v1/waves").await?;
        begun.push(waves["waveDeployments"][0]["id"].clone());
        assert_eq!(waves["waveDeployments"][0]["source"], "file", "{waves:#}");
        let files = server.get_json("/v1/status/files").await?;
        let mut told = files["files"][0]["diagnostics"].as_array().into_iter().flatten();
        assert!(told.any(|one| one["code"] == "wave-under-way" && one["line"] == 2), "{files:#}");
        if seconds == 3 {
            let ended = &waves["waveDeployments"][1];
            assert_eq!((&ended["id"], &ended["phase"]), (&begun[0], &json!("superseded")), "{waves:#}");
            fleet.accept(3);
            fleet.wait("the change", |held| held.seconds == 3).await?;
            wait_wave(&server, |wave| wave["phase"] == "completed").await?;
        }
    }
    // The next run still reports how both ended.
    server.kill().await?;
    server.restart().await?;
    server.wait_ready().await?;
    let waves = server.get_json("/v1/waves").await?;
    let told: Vec<_> = waves["waveDeployments"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (&one["id"], &one["phase"]))
        .collect();
    assert_eq!(told, [(&begun[1], &json!("completed")), (&begun[0], &json!("superseded"))], "{waves:#}");
    Ok(())
}

#[tokio::test]
async fn secrets_of_files_that_change_while_the_server_is_down_wait_for_their_wave() -> Result<()> {
    let dir = ConfigDir::new()?;
    let secret = |value: &str| {
        let secret =
            json!({"@type": SECRET, "name": "s", "generic_secret": {"secret": {"inline_string": value}}});
        dir.write_resources("s.yaml", &[secret]).map(|_| ())
    };
    secret("old")?;
    let setup = Setup::new()?.watch(dir.path()).arg("--waves=30%,100%").arg("--wave-hold=1h");
    let copies = setup.data_dir().join("last-good");
    let mut server = Server::start_with(setup).await?;
    wait_for("the last good copy", PATIENCE, async || {
        ensure!(
            std::fs::read_dir(&copies)?
                .any(|entry| entry.is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "copy")))
        );
        Ok(())
    })
    .await?;
    server.kill().await?;
    secret("new")?;
    server.restart().await?;
    server.wait_ready().await?;
    let waves = server.get_json("/v1/waves").await?;
    assert_eq!(waves["waveDeployments"][0]["objects"], json!(["default/secrets/s"]), "{waves:#}");
    Ok(())
}

#[tokio::test]
async fn a_pause_outlives_kill_9() -> Result<()> {
    let mut server = Server::start_with(Setup::new()?).await?;
    let path = "/v1/groups/default/resources/clusters/c";
    server.put(path, &cluster(1)).await?;
    let answer = server.put(&format!("{path}?waves=30%25&hold=1h"), &cluster(2)).await?;
    server.post(&format!("/v1/waves/{}:pause", answer["waveDeployment"]), &json!({})).await?;
    server.kill().await?;
    server.restart().await?;
    server.wait_ready().await?;
    let fleet = Fleet::connect(&server, 2).await?;
    let report = wait_wave(&server, |wave| wave["nAcked"].as_u64().is_some_and(|n| n > 0)).await?;
    assert_eq!(
        (&report["phase"], report["waves"].as_array().map(Vec::len)),
        (&json!("paused"), Some(1)),
        "{report:#}"
    );
    server.post(&format!("/v1/waves/{}:resume", answer["waveDeployment"]), &json!({})).await?;
    wait_wave(&server, |wave| wave["phase"] == "holding").await?;
    server.post(&format!("/v1/waves/{}:promote", answer["waveDeployment"]), &json!({})).await?;
    fleet.wait("the change", |held| held.seconds == 2).await?;
    wait_wave(&server, |wave| wave["phase"] == "promoted" && wave["nBehind"] == 0).await?;
    Ok(())
}

#[tokio::test]
async fn a_write_reaches_exactly_the_members_also_after_kill_9() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let path = "/v1/groups/default/resources/clusters/c";
    server.put(path, &cluster(1)).await?;
    over_a_kill(server, async |server| {
        let answer = server.put(&format!("{path}?waves=30%25"), &cluster(2)).await?;
        ensure!(answer["waveDeployment"].is_u64(), "{answer:#}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_a_real_envoy_rejects_is_put_back() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let path = "/v1/groups/default/resources/clusters/c";
    let with_address = |address: &str| {
        let mut cluster = config::cluster("c");
        cluster["type"] = json!("STATIC");
        cluster.as_object_mut().and_then(|fields| fields.remove("eds_cluster_config"));
        cluster["load_assignment"] = json!({"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint":
            {"address": {"socket_address": {"address": address, "port_value": 80}}}}]}]});
        cluster
    };
    server.put(path, &with_address("127.0.0.1")).await?;
    let envoy = Envoy::start(&server.bootstrap_envoy("edge-1", Variant::Delta).await?).await?;
    envoy.wait_live().await?;
    let is_synced = |node: &Value| node["types"][CLUSTER]["status"] == "SYNCED";
    server.wait_json("/v1/nodes/edge-1", is_synced).await?;
    // Only Envoy knows that a cluster of type STATIC cannot have a name as address. Nearly every node is in the first wave.
    let answer = server.put(&format!("{path}?waves=99%25"), &with_address("not.an.ip")).await?;
    let report = wait_wave(&server, |wave| wave["phase"] == "reverted").await?;
    assert_eq!(report["id"], answer["waveDeployment"], "{report:#}");
    let reason = report["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("malformed IP address: not.an.ip"), "{report:#}");
    server.wait_json("/v1/nodes/edge-1", is_synced).await?;
    let owned = server.get_json(path).await?;
    let endpoint = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/address";
    assert_eq!(owned.pointer(endpoint), Some(&json!("127.0.0.1")), "{owned:#}");
    assert!(envoy.config_dump().await?.active_clusters().contains_key("c"));
    Ok(())
}

/// A server with one listener, and Envoys that have it, each of which dies once it has the listener `deadly`.
async fn mortals() -> Result<(Server, [(Envoy, String); 2])> {
    let server = Server::start_with(Setup::new()?).await?;
    let group = "/v1/groups/default/resources";
    server.put(&format!("{group}/clusters/c"), &cluster(1)).await?;
    server.put(&format!("{group}/routes/r"), &config::route_config("r", &[("/", config::to("c"))])).await?;
    server.put(&format!("{group}/listeners/fine"), &config::listener("fine", 0, "r")).await?;
    let mut envoys = Vec::new();
    for (n, variant) in [Variant::Sotw, Variant::Delta].into_iter().enumerate() {
        let node = format!("edge-{n}");
        let bootstrap = server.bootstrap_envoy(&node, variant).await?;
        let envoy = Envoy::start(&bootstrap).await?;
        envoy.wait_listener("fine").await?;
        let is_synced = |node: &Value| node["types"][config::LISTENER]["status"] == "SYNCED";
        server.wait_json(&format!("/v1/nodes/{node}"), is_synced).await?;
        envoys.push((envoy, bootstrap));
    }
    Ok((server, envoys.try_into().map_err(|_| anyhow!("two Envoys"))?))
}

/// Kills an Envoy as soon as it has the listener `deadly`, as a configuration does that it accepts and cannot run with. Starts it
/// again as a supervisor does, or leaves it dead.
async fn watchdog((mut envoy, bootstrap): (Envoy, String), restarts: bool) -> Result<()> {
    loop {
        envoy.wait_listener("deadly").await?;
        envoy.process_mut().signal(Signal::KILL)?;
        envoy.process_mut().wait_exit(PATIENCE).await?;
        if !restarts {
            return Ok(());
        }
        envoy = Envoy::start(&bootstrap).await?;
    }
}

/// Nearly every node is in the first wave.
const DEADLY: &str = "/v1/groups/default/resources/listeners/deadly?waves=99%25&hold=1s";

#[tokio::test]
async fn envoys_that_restart_with_a_change_that_they_accepted_put_it_back() -> Result<()> {
    let (server, [one, other]) = mortals().await?;
    server.put(DEADLY, &config::listener("deadly", 0, "r")).await?;
    let watchdogs = async { tokio::try_join!(watchdog(one, true), watchdog(other, true)) };
    let report = tokio::select! {
        report = wait_wave(&server, |wave| wave["phase"] == "reverted") => report?,
        ended = watchdogs => bail!("the watchdogs ended: {ended:?}"),
    };
    let reason = report["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("restarted: it came back with no configuration"), "{report:#}");
    assert_eq!(report["waves"].as_array().map(Vec::len), Some(1), "{report:#}");
    let listeners = server.get_json("/v1/groups/default/snapshot").await?;
    ensure!(!listeners.to_string().contains("deadly"), "{listeners:#}");
    Ok(())
}

#[tokio::test]
async fn envoys_that_die_of_a_change_that_they_accepted_stop_it() -> Result<()> {
    let (server, [one, other]) = mortals().await?;
    server.put(DEADLY, &config::listener("deadly", 0, "r")).await?;
    let watchdogs = async { tokio::join!(watchdog(one, false), watchdog(other, false)) };
    let is_paused = |wave: &Value| wave["phase"] == "paused";
    let (report, died) = tokio::join!(wait_wave(&server, is_paused), watchdogs);
    let report = report?;
    assert!(died.0.is_ok() || died.1.is_ok(), "{died:?}");
    let reason = report["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("gone for more than 10 s"), "{report:#}");
    assert_eq!(report["waves"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert!(report["nLost"].as_u64() >= Some(1) && report["nAhead"] == 0, "{report:#}");
    Ok(())
}

/// Begins a change that one of two Envoys gets: who that is depends on the number of the wave deployment.
async fn begin_at_one_of_two(server: &Server, path: &str, resource: &Value) -> Result<Value> {
    for _ in 0..30 {
        let id = server.put(path, resource).await?["waveDeployment"].clone();
        let report = wait_wave(server, |wave| wave["id"] == id).await?;
        if (&report["nAhead"], &report["nBehind"]) == (&json!(1), &json!(1)) {
            return Ok(report);
        }
        server.post(&format!("/v1/waves/{id}:abort"), &Value::Null).await?;
    }
    bail!("thirty times both or none");
}

/// Makes fifty requests a second through each, with any answers, until one gets none.
async fn keep_asking(envoys: &mut [(Envoy, Connection)]) -> Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        for (_, connection) in &mut *envoys {
            connection.get("/").await?;
        }
    }
}

#[tokio::test]
async fn a_change_that_an_envoy_accepts_and_whose_requests_fail_is_put_back() -> Result<()> {
    let backend = Backend::start("v1").await?;
    let setup = Setup::new()?.arg("--load-report-interval=1s");
    let server = Server::start_with(setup).await?;
    let group = "/v1/groups/default/resources";
    server.put(&format!("{group}/endpoints/c"), &config::endpoints("c", &[backend.addr()])).await?;
    server.put(&format!("{group}/clusters/c"), &config::cluster("c")).await?;
    server.put(&format!("{group}/routes/r"), &config::route_config("r", &[("/", config::to("c"))])).await?;
    server.put(&format!("{group}/listeners/http"), &config::listener("http", 0, "r")).await?;
    let mut envoys = Vec::new();
    for (n, variant) in [Variant::Sotw, Variant::Delta].into_iter().enumerate() {
        let envoy = Envoy::start(&server.bootstrap_envoy(&format!("edge-{n}"), variant).await?).await?;
        let listener = envoy.wait_listener("http").await?;
        envoys.push((envoy, Connection::open(listener).await?));
    }
    let path = format!("{group}/endpoints/c?waves=50%25&hold=2m&maxErrorRate=5%25");
    let nowhere = config::endpoints("c", &[free_addr()?]);
    let id = begin_at_one_of_two(&server, &path, &nowhere).await?["id"].clone();
    let report = tokio::select! {
        report = wait_wave(&server, |wave| wave["phase"] == "reverted") => report?,
        failed = keep_asking(&mut envoys) => return failed,
    };
    assert_eq!(report["id"], id, "{report:#}");
    let reason = report["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("requests of the nodes that have it failed, and 0 of "), "{report:#}");
    assert_eq!(
        report["requests"]["ahead"]["requests"], report["requests"]["ahead"]["failures"],
        "{report:#}"
    );
    for (envoy, connection) in &mut envoys {
        // The one before may have been left in the middle of a request.
        *connection = Connection::open(envoy.wait_listener("http").await?).await?;
        wait_for("the former endpoints", PATIENCE, async || {
            ensure!(connection.get("/").await?.status == 200);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Carries connections to the server, until it is cut.
struct Relay {
    addr: SocketAddr,
    is_up: watch::Sender<bool>,
}

impl Relay {
    async fn start(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (is_up, up) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut up = up.clone();
                tokio::spawn(async move {
                    if !*up.borrow_and_update() {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = up.changed() => {}
                    }
                });
            }
        });
        Ok(Self { addr, is_up })
    }

    /// Ends every connection, and takes new ones or not.
    fn cut(&self, is_up: bool) {
        self.is_up.send_replace(is_up);
    }
}

#[tokio::test]
async fn an_envoy_that_loses_its_connection_and_comes_back_is_not_lost() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let path = "/v1/groups/default/resources/clusters/c";
    server.put(path, &cluster(1)).await?;
    let relay = Relay::start(server.xds()).await?;
    let address = relay.addr.to_string();
    let bootstrap = cli(&["bootstrap", "envoy", "--node-id", "edge-1", "--xds-address", &address]).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    let is_synced = |node: &Value| node["types"][CLUSTER]["status"] == "SYNCED";
    server.wait_json("/v1/nodes/edge-1", is_synced).await?;
    let answer = server.put(&format!("{path}?waves=99%25&hold=1h"), &cluster(2)).await?;
    let id = &answer["waveDeployment"];
    wait_wave(&server, |wave| wave["phase"] == "holding" && wave["nAcked"] == 1).await?;
    let connected = envoy.stat("control_plane.connected_state").await?;
    assert_eq!(connected, 1);

    relay.cut(false);
    let report = wait_wave(&server, |wave| wave["nAway"] == 1).await?;
    assert_eq!((&report["phase"], &report["nLost"]), (&json!("holding"), &json!(0)), "{report:#}");
    assert!(report["reason"].as_str().unwrap_or_default().contains("to come back"), "{report:#}");
    relay.cut(true);
    let is_back = |wave: &Value| wave["nAway"] == 0 && wave["nAhead"] == 1;
    let report = wait_wave(&server, is_back).await?;
    assert_eq!(
        (&report["nLost"], &report["waves"].as_array().map(Vec::len)),
        (&json!(0), &Some(1)),
        "{report:#}"
    );

    server.post(&format!("/v1/waves/{id}:promote"), &json!({})).await?;
    wait_wave(&server, |wave| wave["phase"] == "promoted").await?;
    Ok(())
}

/// The connect timeout of the cluster `c` as an Envoy has it.
async fn timeout_of(envoy: &Envoy) -> Result<String> {
    let dump = envoy.config_dump().await?;
    dump.active_cluster("c")["connect_timeout"].as_str().map(str::to_owned).context("there is no cluster c")
}

/// The cluster `c`, which is warm at once.
fn static_cluster(seconds: u32) -> Value {
    json!({"name": "c", "type": "STATIC", "connect_timeout": format!("{seconds}s"),
        "load_assignment": {"cluster_name": "c"}})
}

async fn wait_timeout_of(envoy: &Envoy, timeout: &str) -> Result<()> {
    wait_for("the timeout", PATIENCE, async || {
        let have = timeout_of(envoy).await?;
        ensure!(have == timeout, "it is {have}");
        Ok(())
    })
    .await
}

async fn envoy_in(server: &Server, node: &str, locality: &str) -> Result<Envoy> {
    let address = server.xds().to_string();
    let args = ["bootstrap", "envoy", "--node-id", node, "--xds-address", &address, "--locality", locality];
    Envoy::start(&cli(&args).await?).await
}

#[tokio::test]
async fn one_region_of_envoys_gets_a_change_first_also_over_kill_9() -> Result<()> {
    let mut server = Server::start_with(Setup::new()?.fixed_xds_port()?).await?;
    let path = "/v1/groups/default/resources/clusters/c";
    server.put(path, &static_cluster(1)).await?;
    let west = envoy_in(&server, "edge-0", "west/west-1").await?;
    let east = [
        envoy_in(&server, "edge-1", "east/east-1").await?,
        envoy_in(&server, "edge-2", "east/east-2").await?,
    ];
    for envoy in east.iter().chain([&west]) {
        wait_timeout_of(envoy, "1s").await?;
    }
    let is_synced = |node: &Value| node["types"][CLUSTER]["status"] == "SYNCED";
    for node in ["edge-0", "edge-1", "edge-2"] {
        server.wait_json(&format!("/v1/nodes/{node}"), is_synced).await?;
    }
    let waves = "waves=each&by=region&order=east&hold=1h&maxLost=100%25";
    let id = server.put(&format!("{path}?{waves}"), &static_cluster(2)).await?["waveDeployment"].clone();
    let report = wait_wave(&server, |wave| wave["phase"] == "holding").await?;
    let states = |report: &Value| -> Vec<(Value, Value)> {
        let values = report["values"].as_array().into_iter().flatten();
        values.map(|value| (value["value"].clone(), value["state"].clone())).collect()
    };
    let expected = [(json!("east"), json!("ahead")), (json!("west"), json!("behind"))];
    assert_eq!((states(&report), &report["share"]), (expected.to_vec(), &json!("66.67%")), "{report:#}");
    for envoy in &east {
        wait_timeout_of(envoy, "2s").await?;
    }
    assert_eq!(timeout_of(&west).await?, "1s");

    server.kill().await?;
    server.restart().await?;
    server.wait_ready().await?;
    // A node of each known region, and one of another region, come for the first time.
    let more = [
        (envoy_in(&server, "edge-3", "east/east-1").await?, "2s"),
        (envoy_in(&server, "edge-4", "west/west-1").await?, "1s"),
        (envoy_in(&server, "edge-5", "north/north-1").await?, "1s"),
    ];
    for (envoy, timeout) in &more {
        wait_timeout_of(envoy, timeout).await?;
    }
    let is_there = |wave: &Value| wave["nAhead"] == 3 && wave["nBehind"] == 3 && wave["nAcked"] == 3;
    let report = wait_wave(&server, is_there).await?;
    assert_eq!(ids(&report, "ahead"), ["edge-1", "edge-2", "edge-3"].map(str::to_owned).into());
    assert_eq!((states(&report)[..2].to_vec(), &report["id"]), (expected.to_vec(), &id), "{report:#}");
    assert_eq!(states(&report)[2], (Value::Null, json!("behind")));
    let shown = cli(&["waves", &id.to_string(), "--output", "table", "--admin", &server.url("")]).await?;
    ensure!(shown.contains("region east: ahead, 3 of 3 nodes are ahead\n"), "{shown}");
    ensure!(shown.contains("region west: behind, 0 of 2 nodes are ahead\n"), "{shown}");
    for envoy in &east {
        assert_eq!(timeout_of(envoy).await?, "2s");
    }
    assert_eq!(timeout_of(&west).await?, "1s");

    server.post(&format!("/v1/waves/{id}:promote"), &Value::Null).await?;
    for (envoy, _) in &more {
        wait_timeout_of(envoy, "2s").await?;
    }
    wait_timeout_of(&west, "2s").await
}
