//! Real proxyless gRPC clients, set up by `xds-server bootstrap grpc`.
//!
//! C-core and grpc-go open a stream for each target; only grpc-js has one for all. What is to happen on one stream
//! must therefore happen to one target.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::server::Server;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Channel, Library, Worker};

/// Makes a test of each function for each library: `grpcio::claim`, `grpc_js::claim`, `grpc_go::claim`.
macro_rules! with_each_library {
    ($($claim:ident),+ $(,)?) => {
        with_each_library!(grpcio: Grpcio, $($claim),+);
        with_each_library!(grpc_js: GrpcJs, $($claim),+);
        with_each_library!(grpc_go: GrpcGo, $($claim),+);
    };
    ($module:ident: $library:ident, $($claim:ident),+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $claim() -> anyhow::Result<()> {
                    super::$claim(xds_tests::worker::Library::$library).await
                }
            )+
        }
    };
}

with_each_library!(
    calls_follow_the_shipped_example,
    an_update_moves_traffic_without_an_error,
    several_clusters_are_watched_and_unwatched,
    several_targets_are_watched_and_unwatched,
    giving_up_the_last_name_is_no_wildcard,
    a_change_while_the_server_was_away_arrives,
    a_new_client_uses_the_routes_that_lead_somewhere,
    routes_wait_for_a_cluster_that_is_not_there,
);

async fn calls_follow_the_shipped_example(library: Library) -> Result<()> {
    let (stable, canary) = (Backend::start("stable").await?, Backend::start("canary").await?);
    let config = ConfigDir::from_fixture("basic", &[(8081, stable.port()), (8082, canary.port())])?;
    let server = Server::start(config.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///greeter").await?;
    let counts = channel.call(&Calls::new(N_WEIGHED)).await?;
    counts.ensure_no_errors()?;
    assert_eq!(counts.n_of("stable") + counts.n_of("canary"), u64::from(N_WEIGHED), "{counts:?}");
    assert!(CANARY_RANGE.contains(&counts.n_of("canary")), "{counts:?}");

    let node = wait_synced(&server).await?;
    assert_eq!(node["profile"], "grpc", "{node:#}");
    Ok(())
}

async fn an_update_moves_traffic_without_an_error(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?, Backend::start("b2").await?];
    let config = ConfigDir::new()?;
    write_service(&config, "a", &backends[0])?;
    let server = Server::start(config.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///a").await?;
    assert_eq!(channel.who().await?, "b0");
    let hold = channel.hold(&Calls::new(0), 100).await?;

    // EDS: the cluster's endpoints move.
    write_service(&config, "a", &backends[1])?;
    wait_who(&channel, "b1").await?;
    // RDS, CDS and EDS: the route turns to a new cluster.
    let cluster = [config::cluster("a-new"), config::endpoints("a-new", &[backends[2].addr()])];
    config.write_resources("new.yaml", &cluster)?;
    let path = "/v1/groups/default/resources/routes/a";
    let route = config::route_config("a", &[("/", config::to("a-new"))]);
    wait_resource(&server, "clusters/a-new").await?;
    server.put(path, &route).await?;
    wait_who(&channel, "b2").await?;
    // LDS: the listener turns to another route configuration.
    let other = config::route_config("a-other", &[("/", config::to("a"))]);
    server.put("/v1/groups/default/resources/routes/a-other", &other).await?;
    let listener = config::api_listener("a", "a-other");
    server.put("/v1/groups/default/resources/listeners/a", &listener).await?;
    wait_who(&channel, "b1").await?;

    let counts = hold.stop().await?;
    // grpc-go uses new routes a moment before its load balancer knows their clusters, so a few calls of that moment fail.
    let is_known = |error: &String| error.starts_with("unknown cluster selected for RPC");
    let is_excused = library == Library::GrpcGo && counts.first_error.as_ref().is_some_and(is_known);
    let n_excused = if is_excused { 5 * N_ROUTE_CHANGES } else { 0 };
    assert!(counts.errors.values().sum::<u64>() <= n_excused, "{counts:?}");
    assert!(["b0", "b1", "b2"].iter().all(|name| counts.n_of(name) > 0), "{counts:?}");
    Ok(())
}

/// How often the test above turns to a cluster that is not in use yet.
const N_ROUTE_CHANGES: u64 = 2;

async fn several_clusters_are_watched_and_unwatched(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?, Backend::start("b2").await?];
    let config = ConfigDir::new()?;
    let write_cluster = |name: &str, backend: &Backend| {
        let resources = [config::cluster(name), config::endpoints(name, &[backend.addr()])];
        config.write_resources(&format!("cluster-{name}.yaml"), &resources)
    };
    let write_routes = |names: &[&str]| {
        let prefixes: Vec<_> = names.iter().map(|name| format!("/{name}/")).collect();
        let routes: Vec<_> =
            prefixes.iter().map(String::as_str).zip(names.iter().map(|name| config::to(name))).collect();
        config.write_resources(
            "routes.yaml",
            &[config::api_listener("x", "x"), config::route_config("x", &routes)],
        )
    };
    for (name, backend) in ["a", "b", "c"].iter().zip(&backends) {
        write_cluster(name, backend)?;
    }
    write_routes(&["a", "b", "c"])?;
    let server = Server::start(config.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///x").await?;
    wait_answers(&channel, [("/a/Who", "b0"), ("/b/Who", "b1"), ("/c/Who", "b2")]).await?;
    wait_watched(&worker, CLUSTER, &["a", "b", "c"]).await?;
    write_routes(&["a", "c"])?;
    wait_watched(&worker, CLUSTER, &["a", "c"]).await?;

    // A cluster that is not watched changes along with one that is.
    write_cluster("b", &backends[2])?;
    write_cluster("c", &backends[0])?;
    wait_answers(&channel, [("/a/Who", "b0"), ("/c/Who", "b0")]).await?;

    // A cluster that is watched again is current. A client may keep the connections of a cluster that it has left, and use them
    // until the new ones stand.
    write_routes(&["a", "b", "c"])?;
    wait_answers(&channel, [("/b/Who", "b2")]).await?;
    write_cluster("b", &backends[1])?;
    wait_answers(&channel, [("/a/Who", "b0"), ("/b/Who", "b1"), ("/c/Who", "b0")]).await?;
    wait_synced(&server).await?;
    Ok(())
}

async fn several_targets_are_watched_and_unwatched(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?, Backend::start("b2").await?];
    let config = ConfigDir::new()?;
    for (name, backend) in ["a", "b", "c"].iter().zip(&backends) {
        write_service(&config, name, backend)?;
    }
    let server = Server::start(config.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channels =
        [worker.open("xds:///a").await?, worker.open("xds:///b").await?, worker.open("xds:///c").await?];
    for (channel, backend) in channels.iter().zip(&backends) {
        assert_eq!(channel.who().await?, backend.name());
    }
    let [a, b, c] = channels;
    b.close().await?;
    wait_watched(&worker, LISTENER, &["a", "c"]).await?;

    write_service(&config, "b", &backends[2])?;
    write_service(&config, "c", &backends[0])?;
    wait_who(&c, "b0").await?;
    assert_eq!(a.who().await?, "b0");

    let b = worker.open("xds:///b").await?;
    assert_eq!(b.who().await?, "b2", "what is watched again is current");
    wait_watched(&worker, LISTENER, &["a", "b", "c"]).await?;
    wait_synced(&server).await?;
    Ok(())
}

async fn giving_up_the_last_name_is_no_wildcard(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?];
    let config = ConfigDir::new()?;
    write_service(&config, "a", &backends[0])?;
    write_service(&config, "b", &backends[0])?;
    let server = Server::start(config.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///a").await?;
    assert_eq!(channel.who().await?, "b0");
    // A listener with routes of its own, none in fact: the client gives up its last route configuration, cluster
    // and endpoints, on a stream that goes on.
    let mut listener = config::api_listener("a", "a");
    let manager = &mut listener["api_listener"]["api_listener"];
    manager.as_object_mut().and_then(|manager| manager.remove("rds"));
    manager["route_config"] = json!({"name": "none", "virtual_hosts": [{"name": "none", "domains": ["*"]}]});
    let path = "/v1/groups/default/resources/listeners/a";
    server.put(path, &listener).await?;
    for type_url in [ROUTE, CLUSTER, ENDPOINTS] {
        wait_watched(&worker, type_url, &[]).await?;
    }
    let before = n_responses(&server).await?;

    // Everything changes. If an empty list meant all names, this would be sent.
    write_service(&config, "a", &backends[1])?;
    write_service(&config, "b", &backends[1])?;
    config.write_resources("extra.yaml", &[config::cluster("extra")])?;
    let is_published = |snapshot: &Value| {
        let (snapshot, port) = (snapshot.to_string(), backends[1].port().to_string());
        snapshot.contains("\"extra\"") && snapshot.matches(&port).count() == 2
    };
    server.wait_json(&format!("/v1/nodes/{NODE}/snapshot"), is_published).await?;
    // The marker: what is asked for next is answered next, with nothing in between.
    server.delete(path).await?;
    wait_who(&channel, "b1").await?;
    assert_eq!(before.map(|n| n + 1), n_responses(&server).await?, "one response for each type");
    Ok(())
}

async fn a_change_while_the_server_was_away_arrives(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?];
    let config = ConfigDir::new()?;
    write_service(&config, "a", &backends[0])?;
    let setup = xds_tests::server::Setup::new()?.fixed_xds_port()?.watch(config.path());
    let mut server = Server::start_with(setup).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///a").await?;
    assert_eq!(channel.who().await?, "b0");
    let hold = channel.hold(&Calls::new(0), 100).await?;
    server.kill().await?;
    write_service(&config, "a", &backends[1])?;
    server.restart().await?;
    wait_who(&channel, "b1").await?;
    hold.stop().await?.ensure_no_errors()
}

const NODE: &str = "pod-1";

/// Writes what a client of `xds:///NAME` needs, each under the same name, into one file.
fn write_service(config: &ConfigDir, name: &str, backend: &Backend) -> Result<()> {
    let route = config::route_config(name, &[("/", config::to(name))]);
    let resources = [
        config::api_listener(name, name),
        route,
        config::cluster(name),
        config::endpoints(name, &[backend.addr()]),
    ];
    config.write_resources(&format!("{name}.yaml"), &resources)?;
    Ok(())
}

async fn wait_who(channel: &Channel<'_>, backend: &str) -> Result<()> {
    wait_for("another backend", PATIENCE, async || {
        let who = channel.who().await?;
        ensure!(who == backend, "it is {who}");
        Ok(())
    })
    .await
}

/// Waits until calls to each method are answered by its backend.
async fn wait_answers<const N: usize>(channel: &Channel<'_>, answers: [(&str, &str); N]) -> Result<()> {
    wait_for("the backend of each method", PATIENCE, async || {
        for (method, backend) in answers {
            let counts = channel.call(&Calls { method: method.to_owned(), ..Calls::new(1) }).await?;
            ensure!(counts.n_of(backend) == 1, "{method} is answered by {counts:?}");
        }
        Ok(())
    })
    .await
}

/// Waits until the client watches exactly these resources of a type.
async fn wait_watched(worker: &Worker, type_url: &str, names: &[&str]) -> Result<()> {
    wait_for("the resources that are watched", PATIENCE, async || {
        let status = worker.client_status().await?;
        // grpc-js leaves out the beginning of type URLs.
        let watched = status.config.iter().flat_map(|config| &config.generic_xds_configs);
        let watched = watched.filter(|resource| type_url.ends_with(&resource.type_url));
        let mut watched: Vec<_> = watched.map(|resource| resource.name.as_str()).collect();
        watched.sort_unstable();
        ensure!(watched == names, "they are {watched:?}");
        Ok(())
    })
    .await
}

async fn a_new_client_uses_the_routes_that_lead_somewhere(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?];
    let config = ConfigDir::new()?;
    write_service(&config, "a", &backends[0])?;
    let routes = [
        ("/gone/", config::to("gone")),
        ("/both/", config::split(&[("a", 1), ("gone", 99)])),
        ("/echo.", config::to("a")),
    ];
    let path = "/v1/groups/default/resources/routes/a";
    let server = Server::start(config.path()).await?;
    server.wait_ready().await?;
    server.put(path, &config::route_config("a", &routes)).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///a").await?;
    let calls = |method: &str| Calls { method: method.to_owned(), limit: SOON, ..Calls::new(8) };
    let counts = channel.call(&calls("/echo.Echo/Who")).await?;
    assert_eq!(counts.n_of("b0"), 8, "{counts:?}");
    let counts = channel.call(&calls("/both/Who")).await?;
    assert_eq!(counts.n_of("b0"), 8, "{counts:?}");
    let counts = channel.call(&calls("/gone/Who")).await?;
    assert_eq!(counts.errors.keys().collect::<Vec<_>>(), ["UNAVAILABLE"], "{counts:?}");
    let node = server.get_json(&format!("/v1/nodes/{NODE}")).await?;
    ensure!(node["streams"].to_string().contains("\"gone\""), "nothing waits for the cluster: {node:#}");
    let fleet = server.get_json("/v1/fleet").await?;
    assert_eq!(fleet["states"]["acknowledged"].as_u64().unwrap_or(0), 0, "{fleet:#}");

    let cluster = [config::cluster("gone"), config::endpoints("gone", &[backends[1].addr()])];
    config.write_resources("gone.yaml", &cluster)?;
    wait_answers(&channel, [("/gone/Who", "b1"), ("/echo.Echo/Who", "b0")]).await?;
    wait_synced(&server).await?;
    Ok(())
}

async fn routes_wait_for_a_cluster_that_is_not_there(library: Library) -> Result<()> {
    let backends = [Backend::start("b0").await?, Backend::start("b1").await?];
    let config = ConfigDir::new()?;
    write_service(&config, "a", &backends[0])?;
    let server = Server::start(config.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc(NODE).await?).await? else {
        return Ok(());
    };
    let channel = worker.open("xds:///a").await?;
    assert_eq!(channel.who().await?, "b0");
    let hold = channel.hold(&Calls { limit: SOON, ..Calls::new(0) }, 100).await?;
    let routes = config::route_config("a", &[("/", config::to("gone"))]);
    let path = "/v1/groups/default/resources/routes/a?wait=acked&timeout=2s";
    let answer = server.put(path, &routes).await?;
    assert_eq!(answer["nPending"], 1, "{answer:#}");
    let node = server.get_json(&format!("/v1/nodes/{NODE}")).await?;
    assert_eq!(node["types"][ROUTE]["status"], "STALE", "{node:#}");
    assert_eq!(channel.who().await?, "b0");

    let cluster = [config::cluster("gone"), config::endpoints("gone", &[backends[1].addr()])];
    config.write_resources("gone.yaml", &cluster)?;
    wait_who(&channel, "b1").await?;
    let counts = hold.stop().await?;
    let is_known = |error: &String| error.starts_with("unknown cluster selected for RPC");
    let is_excused = library == Library::GrpcGo && counts.first_error.as_ref().is_some_and(is_known);
    let n_excused = if is_excused { 5 } else { 0 };
    assert!(counts.errors.values().sum::<u64>() <= n_excused, "{counts:?}");
    wait_synced(&server).await?;
    Ok(())
}

/// Clients wait 15 s for a cluster that does not exist.
const SOON: Duration = Duration::from_secs(8);

async fn wait_synced(server: &Server) -> Result<Value> {
    let is_synced = |node: &Value| {
        [LISTENER, ROUTE, CLUSTER, ENDPOINTS].iter().all(|url| node["types"][url]["status"] == "SYNCED")
    };
    server.wait_json(&format!("/v1/nodes/{NODE}"), is_synced).await
}

/// Waits until the server has published a resource for the node.
async fn wait_resource(server: &Server, resource: &str) -> Result<Value> {
    let (_, name) = resource.split_once('/').context("type/name")?;
    let path = format!("/v1/nodes/{NODE}/snapshot");
    server.wait_json(&path, |snapshot| snapshot.to_string().contains(&format!("\"{name}\""))).await
}

/// Returns how many responses with routes, clusters and endpoints the server has sent.
async fn n_responses(server: &Server) -> Result<[u64; 3]> {
    let metrics = server.get("/metrics").await?.success()?.text();
    Ok(["routes", "clusters", "endpoints"].map(|label| {
        let prefix = format!("xds_responses_total{{type=\"{label}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    }))
}

/// Enough to tell 90/10 from 80/20 and 95/5.
const N_WEIGHED: u32 = 1000;
/// Five standard deviations of 10 % of that: a good server misses it once in two million runs.
const CANARY_RANGE: std::ops::RangeInclusive<u64> = 53..=147;
