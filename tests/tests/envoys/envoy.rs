//! A real Envoy, set up by `xds-server bootstrap envoy`, with both variants of the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};

/// Makes a test of each function for each variant: `sotw::claim`, `delta::claim`.
macro_rules! with_each_variant {
    ($($claim:ident),+ $(,)?) => {
        with_each_variant!(sotw: Sotw, $($claim),+);
        with_each_variant!(delta: Delta, $($claim),+);
    };
    ($module:ident: $variant:ident, $($claim:ident),+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $claim() -> anyhow::Result<()> {
                    super::$claim(xds_tests::server::Variant::$variant).await
                }
            )+
        }
    };
}

with_each_variant!(
    requests_follow_the_shipped_example,
    a_file_edit_moves_requests,
    a_rest_put_moves_requests,
    a_nack_shows_in_envoys_words_and_heals,
    a_restart_of_the_server_disturbs_nothing,
    what_was_held_over_a_restart_is_synced,
    a_change_while_the_server_was_away_arrives,
    a_changed_cluster_is_warm_within_a_second,
);

async fn requests_follow_the_shipped_example(variant: Variant) -> Result<()> {
    let world = World::start(variant).await?;
    let mut connection = world.connect().await?;
    assert_eq!(connection.get("/admin/x").await?.header("x-backend"), "admin");

    let mut counts = BTreeMap::new();
    for _ in 0..N_WEIGHED {
        let answer = connection.get("/").await?.success()?;
        *counts.entry(answer.header("x-backend").to_owned()).or_insert(0_u32) += 1;
    }
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["canary", "stable"]);
    let n_canary = counts["canary"];
    assert!(CANARY_RANGE.contains(&n_canary), "{n_canary} of {N_WEIGHED} went to the canary");

    let node = world.server.get_json(NODE_PATH).await?;
    assert_eq!(node["profile"], "envoy", "{node:#}");
    Ok(())
}

async fn a_file_edit_moves_requests(variant: Variant) -> Result<()> {
    let world = World::start(variant).await?;
    let mut connection = world.connect().await?;
    assert_eq!(connection.get("/admin").await?.header("x-backend"), "admin");
    world.config.edit("routes.yaml", "cluster: admin", "cluster: shop-canary")?;
    wait_backend(&mut connection, "/admin", "canary").await?;

    let moved = config::endpoints("shop-canary", &[world.admin.addr()]);
    world.config.write_resources("moved.yaml", &[moved])?;
    world.config.edit("endpoints.yaml", "cluster_name: shop-canary", "cluster_name: unused")?;
    wait_backend(&mut connection, "/admin", "admin").await
}

async fn a_rest_put_moves_requests(variant: Variant) -> Result<()> {
    let world = World::start(variant).await?;
    let mut connection = world.connect().await?;
    assert_eq!(connection.get("/admin").await?.header("x-backend"), "admin");
    let route = config::route_config("web", &[("/", config::to("shop-stable"))]);
    let path = "/v1/groups/default/resources/routes/web";
    let answer = world.server.put(&format!("{path}?wait=acked&timeout=10s"), &route).await?;
    assert_eq!(answer["committed"], true, "{answer:#}");
    assert_eq!(connection.get("/admin").await?.header("x-backend"), "stable");

    // The API's override is gone.
    world.server.delete(path).await?;
    wait_backend(&mut connection, "/admin", "admin").await
}

async fn a_nack_shows_in_envoys_words_and_heals(variant: Variant) -> Result<()> {
    let world = World::start(variant).await?;
    world.wait_status(CLUSTER, "SYNCED").await?;

    // An address that is a name is good for DNS; only Envoy knows that a cluster of type STATIC cannot have it.
    let mut bad = config::cluster("bad");
    bad["type"] = json!("STATIC");
    bad.as_object_mut().and_then(|fields| fields.remove("eds_cluster_config"));
    bad["load_assignment"] = json!({"cluster_name": "bad", "endpoints": [{"lb_endpoints": [{"endpoint":
        {"address": {"socket_address": {"address": "not.an.ip", "port_value": 80}}}}]}]});
    world.config.write_resources("bad.yaml", &[bad.clone()])?;
    let node = world.wait_status(CLUSTER, "ERROR").await?;
    let message = node["types"][CLUSTER]["lastNack"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("malformed IP address: not.an.ip"), "{node:#}");
    assert_ne!(node["types"][CLUSTER]["versionSent"], node["types"][CLUSTER]["versionAcked"]);
    assert_eq!(node["types"][LISTENER]["status"], "SYNCED", "the other types are not concerned: {node:#}");
    let nodes = world.server.get_json("/v1/nodes?status=ERROR").await?;
    assert_eq!(nodes["nodes"][0]["id"], NODE, "{nodes:#}");

    bad["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["address"] =
        json!("127.0.0.1");
    world.config.write_resources("bad.yaml", &[bad])?;
    world.wait_status(CLUSTER, "SYNCED").await?;
    assert!(world.envoy.config_dump().await?.active_clusters().contains_key("bad"));
    Ok(())
}

async fn a_restart_of_the_server_disturbs_nothing(variant: Variant) -> Result<()> {
    let mut world = World::start(variant).await?;
    let mut connection = world.connect().await?;
    // Both clusters have their connection now.
    while [&world.stable, &world.canary].iter().any(|backend| backend.n_requests() == 0) {
        connection.get("/").await?.success()?;
    }
    let before = Undisturbed::of(&world).await?;

    let n_attempts = world.envoy.stat("cluster_manager.cds.update_attempt").await?;
    world.server.restart().await?;
    world.wait_settled().await?;
    assert!(
        world.envoy.stat("cluster_manager.cds.update_attempt").await? > n_attempts,
        "Envoy has reconnected"
    );

    connection.get("/").await?.success()?;
    assert_eq!(Undisturbed::of(&world).await?, before);
    Ok(())
}

async fn what_was_held_over_a_restart_is_synced(variant: Variant) -> Result<()> {
    let mut world = World::start(variant).await?;
    world.server.restart().await?;
    // A client that shows current versions (delta) is sent nothing, and lacks nothing.
    for type_url in [LISTENER, ROUTE, CLUSTER, ENDPOINTS] {
        world.wait_status(type_url, "SYNCED").await?;
    }
    Ok(())
}

async fn a_change_while_the_server_was_away_arrives(variant: Variant) -> Result<()> {
    let mut world = World::start(variant).await?;
    let mut connection = world.connect().await?;
    connection.get("/").await?.success()?;
    let before = Undisturbed::of(&world).await?;

    world.server.kill().await?;
    world.config.edit("routes.yaml", "cluster: admin", "cluster: shop-canary")?;
    assert_eq!(
        connection.get("/admin").await?.header("x-backend"),
        "admin",
        "Envoy goes on without a server"
    );
    world.server.restart().await?;
    wait_backend(&mut connection, "/admin", "canary").await?;
    let after = Undisturbed::of(&world).await?;
    assert_eq!((after.clusters, after.listeners), (before.clusters, before.listeners));
    Ok(())
}

async fn a_changed_cluster_is_warm_within_a_second(variant: Variant) -> Result<()> {
    let mut world = World::start(variant).await?;
    let mut connection = world.connect().await?;
    warm_within_a_second(&world, ["1.1s", "1.2s", "1.3s"]).await?;
    warm_within_a_second(&world, ["2.1s", "2.2s", "2.3s"]).await?;
    world.server.restart().await?;
    world.server.wait_ready().await?;
    world.wait_settled().await?;
    warm_within_a_second(&world, ["3.1s", "3.2s", "3.3s"]).await?;
    connection.get("/").await?.success()?;
    Ok(())
}

/// Changes the cluster but not its endpoints. Envoy still waits for the endpoints before it uses the cluster, for 15 seconds if they
/// do not come. A busy machine may be late once, hence three tries.
async fn warm_within_a_second(world: &World, timeouts: [&str; 3]) -> Result<()> {
    let mut late = Ok(());
    for timeout in timeouts {
        let mut cluster = config::cluster("shop-stable");
        cluster["connect_timeout"] = json!(timeout);
        world.server.put("/v1/groups/default/resources/clusters/shop-stable", &cluster).await?;
        // Envoy writes durations with as many digits as it needs: 1.100s.
        let expected = timeout.trim_end_matches('s').parse::<f64>()?;
        late = wait_for("the changed cluster", Duration::from_secs(1), async || {
            let dump = world.envoy.config_dump().await?;
            let active = dump.active_cluster("shop-stable");
            let now = active["connect_timeout"].as_str().unwrap_or_default().trim_end_matches('s').to_owned();
            let is_new = now.parse::<f64>().is_ok_and(|now| (now - expected).abs() < 1e-6);
            let warming = dump.warming_clusters();
            ensure!(is_new && warming.is_empty(), "timeout is {now}, warming are {warming:?}");
            Ok(())
        })
        .await;
        if late.is_ok() {
            break;
        }
    }
    late
}

const NODE: &str = "edge-1";
const NODE_PATH: &str = "/v1/nodes/edge-1";

/// The shipped example, with a server, an Envoy and backends.
struct World {
    config: ConfigDir,
    server: Server,
    envoy: Envoy,
    stable: Backend,
    canary: Backend,
    admin: Backend,
}

impl World {
    async fn start(variant: Variant) -> Result<Self> {
        let stable = Backend::start("stable").await?;
        let canary = Backend::start("canary").await?;
        let admin = Backend::start("admin").await?;
        let ports = [(10000, 0), (8081, stable.port()), (8082, canary.port()), (8083, admin.port())];
        let config = ConfigDir::from_fixture("basic", &ports)?;
        let server = Server::start_with(Setup::new()?.fixed_xds_port()?.watch(config.path())).await?;
        let envoy = Envoy::start(&server.bootstrap_envoy(NODE, variant).await?).await?;
        envoy.wait_live().await?;
        Ok(Self { config, server, envoy, stable, canary, admin })
    }

    async fn connect(&self) -> Result<Connection> {
        Connection::open(self.envoy.wait_listener("http").await?).await
    }

    async fn wait_status(&self, type_url: &str, status: &str) -> Result<Value> {
        self.server.wait_json(NODE_PATH, |node| node["types"][type_url]["status"] == status).await
    }

    /// Waits until Envoy has asked for all types and has answered what was sent.
    async fn wait_settled(&self) -> Result<()> {
        let is_settled = |node: &Value| {
            let statuses = [LISTENER, ROUTE, CLUSTER, ENDPOINTS].map(|url| &node["types"][url]["status"]);
            statuses.iter().all(|status| status.is_string() && **status != "STALE")
        };
        self.server.wait_json(NODE_PATH, is_settled).await.map(drop)
    }
}

/// The values that must be the same before and after.
#[derive(Debug, PartialEq)]
struct Undisturbed {
    /// When each cluster was last taken into use.
    clusters: BTreeMap<String, Value>,
    /// Listeners with everything that Envoy says of them.
    listeners: Vec<Value>,
    /// Counters that go up when something is added, changed, removed, drained, closed or refused.
    counters: BTreeMap<&'static str, u64>,
    /// How many connections each backend has accepted.
    n_accepted: [u64; 3],
}

impl Undisturbed {
    async fn of(world: &World) -> Result<Self> {
        let dump = world.envoy.config_dump().await?;
        let stats = world.envoy.stats().await?;
        let counter = |name: &&'static str| (*name, stats.get(*name).copied().unwrap_or(0));
        assert!(stats.contains_key(COUNTERS[0]), "{stats:#?}");
        Ok(Self {
            clusters: dump.active_cluster_times(),
            listeners: dump.listeners().into_iter().cloned().collect(),
            counters: COUNTERS.iter().map(counter).collect(),
            n_accepted: [&world.stable, &world.canary, &world.admin].map(Backend::n_accepted),
        })
    }
}

const COUNTERS: [&str; 16] = [
    "cluster_manager.cluster_added",
    "cluster_manager.cluster_modified",
    "cluster_manager.cluster_removed",
    "cluster_manager.warming_clusters",
    "cluster_manager.cds.update_rejected",
    "cluster.shop-stable.membership_change",
    "cluster.shop-stable.upstream_cx_destroy",
    "cluster.shop-canary.upstream_cx_destroy",
    "listener_manager.listener_added",
    "listener_manager.listener_modified",
    "listener_manager.listener_removed",
    "listener_manager.total_listeners_draining",
    "listener_manager.lds.update_rejected",
    "http.ingress.downstream_cx_destroy",
    "http.ingress.downstream_rq_5xx",
    "http.ingress.rds.web.config_reload",
];

async fn wait_backend(connection: &mut Connection, path: &str, backend: &str) -> Result<()> {
    wait_for("another backend", PATIENCE, async || {
        let answer = connection.get(path).await?.success()?;
        ensure!(answer.header("x-backend") == backend, "it is {}", answer.header("x-backend"));
        Ok(())
    })
    .await
}

/// Enough to tell 90/10 from 80/20 and 95/5.
const N_WEIGHED: u32 = 1000;
/// Five standard deviations of 10 % of that: a good server misses it once in two million runs.
const CANARY_RANGE: std::ops::RangeInclusive<u32> = 53..=147;
