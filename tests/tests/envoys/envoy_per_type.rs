//! An Envoy without ADS: one stream per type, per cluster of endpoints and per route configuration (pitfalls 41 and 60), and
//! one that polls over REST.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, ConfigDir};
use xds_tests::documents;
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::rpc::Ask;
use xds_tests::server::Server;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};

#[tokio::test]
async fn sotw_streams_per_type() -> Result<()> {
    let source = |_: &Value| config::api_source("GRPC", &[]);
    let world = World::start(source).await?;
    world.follows_changes().await?;
    world.has_one_connection("sotw").await
}

#[tokio::test]
async fn delta_streams_per_type() -> Result<()> {
    let source = |_: &Value| config::api_source("DELTA_GRPC", &[]);
    let world = World::start(source).await?;
    world.follows_changes().await?;
    world.has_one_connection("delta").await
}

#[tokio::test]
async fn rest_polling() -> Result<()> {
    let source =
        |_: &Value| config::api_source("REST", &[("refresh_delay", "0.05s"), ("request_timeout", "1s")]);
    let world = World::start(source).await?;
    world.follows_changes().await
}

/// The config sources of generated resources say `ads`, the one that every Envoy with such a stream takes.
#[tokio::test]
async fn what_is_made_of_documents_comes_over_ads_beside_the_streams_per_type() -> Result<()> {
    let mut world = documents::World::start(&["v1"]).await?;
    world.ports(&["web"])?;
    world.write(
        "routes.yaml",
        "version: xds-server/v1\nlisteners: { web: { port: {web}, address: 127.0.0.1 } }\n\
         routes: { all: { to: v1:8080 } }\n",
    )?;
    let source = config::api_source("GRPC", &[]);
    let bootstrap: Value = serde_json::from_str(&world.server.bootstrap_envoy("both", Variant::Sotw).await?)?;
    // As `bootstrap envoy --per-type` prints it.
    let mut both = bootstrap.clone();
    for key in ["cds_config", "lds_config"] {
        both["dynamic_resources"][key] = source.clone();
    }
    let _both = Envoy::start(&both.to_string()).await?;
    world.expect_from("web", &Ask::get("example.com", "/"), "v1").await?;

    let mut none = bootstrap;
    config::without_ads(&mut none, &source);
    none["node"]["id"] = json!("none");
    let _none = Envoy::start(&none.to_string()).await?;
    wait_nack(&world.server, "none", "ADS").await
}

/// Why generated resources do not say `self`, which would serve both kinds of streams: no Envoy knows it.
#[tokio::test]
async fn an_envoy_does_not_take_the_config_source_self() -> Result<()> {
    let config = ConfigDir::new()?;
    let server = Server::start(config.path()).await?;
    let mut cluster = config::cluster("a");
    config::replace_ads(&mut cluster, &json!({"self": {}, "resource_api_version": "V3"}));
    config.write_resources("all.yaml", &[cluster, config::endpoints("a", &[])]).map(drop)?;
    let _envoy = Envoy::start(&server.bootstrap_envoy("self", Variant::Sotw).await?).await?;
    wait_nack(&server, "self", "config source specifier").await
}

/// Waits until the node has rejected something with these words.
async fn wait_nack(server: &Server, node: &str, words: &str) -> Result<()> {
    let has_nack = |node: &Value| {
        let types = node["streams"].as_array().into_iter().flatten();
        let mut types = types.flat_map(|stream| stream["types"].as_object().into_iter().flatten());
        types.any(|(_, of_type)| {
            of_type["lastNack"]["message"].as_str().is_some_and(|text| text.contains(words))
        })
    };
    server.wait_json(&format!("/v1/nodes/{node}"), has_nack).await.map(drop)
}

struct World {
    config: ConfigDir,
    server: Server,
    envoy: Envoy,
    stable: Backend,
    canary: Backend,
    source: Value,
}

impl World {
    async fn start(source: impl Fn(&Value) -> Value) -> Result<Self> {
        let stable = Backend::start("stable").await?;
        let canary = Backend::start("canary").await?;
        let config = ConfigDir::new()?;
        let server = Server::start(config.path()).await?;
        let mut bootstrap: Value = serde_json::from_str(&server.bootstrap_envoy(NODE, Variant::Sotw).await?)?;
        let source = source(&bootstrap);
        config::without_ads(&mut bootstrap, &source);
        if source["api_config_source"]["api_type"] == "REST" {
            // Polling is HTTP/1.1; gRPC is HTTP/2.
            let cluster = bootstrap["static_resources"]["clusters"][0].as_object_mut();
            cluster.map(|cluster| cluster.remove("typed_extension_protocol_options"));
        }
        let envoy = Envoy::start(&bootstrap.to_string()).await?;
        let world = Self { config, server, envoy, stable, canary, source };
        world.write("stable", "1s")?;
        world.envoy.wait_live().await?;
        Ok(world)
    }

    /// Everything goes to `cluster`; both clusters exist.
    fn write(&self, cluster: &str, connect_timeout: &str) -> Result<()> {
        let mut resources = vec![
            config::listener("http", 0, "web"),
            config::route_config("web", &[("/", config::to(cluster))]),
            config::endpoints("stable", &[self.stable.addr()]),
            config::endpoints("canary", &[self.canary.addr()]),
        ];
        for name in ["stable", "canary"] {
            let mut cluster = config::cluster(name);
            cluster["connect_timeout"] = json!(connect_timeout);
            resources.push(cluster);
        }
        resources.iter_mut().for_each(|resource| config::replace_ads(resource, &self.source));
        self.config.write_resources("all.yaml", &resources).map(drop)
    }

    /// A route moves; a changed cluster gets its unchanged endpoints again (pitfall 41) and is used within seconds, not 15.
    async fn follows_changes(&self) -> Result<()> {
        let mut connection = Connection::open(self.envoy.wait_listener("http").await?).await?;
        wait_backend(&mut connection, "stable").await?;
        self.write("canary", "1s")?;
        wait_backend(&mut connection, "canary").await?;
        self.write("canary", "2s")?;
        wait_for("the changed clusters", Duration::from_secs(8), async || {
            let dump = self.envoy.config_dump().await?;
            let timeout = &dump.active_cluster("canary")["connect_timeout"];
            let warming = dump.warming_clusters();
            ensure!(timeout == "2s" && warming.is_empty(), "timeout {timeout}, warming {warming:?}");
            Ok(())
        })
        .await?;
        self.write("stable", "2s")?;
        wait_backend(&mut connection, "stable").await
    }

    /// Envoy opens all its streams on one connection, which is what makes them one client (D13).
    async fn has_one_connection(&self, variant: &str) -> Result<()> {
        let node = self.server.get_json("/v1/nodes/per-type").await?;
        let streams = node["streams"].as_array().cloned().unwrap_or_default();
        let of = |key: &str| streams.iter().map(|stream| stream[key].to_string()).collect::<BTreeSet<_>>();
        ensure!(of("address").len() == 1, "{node:#}");
        ensure!(of("variant") == BTreeSet::from([format!("\"{variant}\"")]), "{node:#}");
        // Clusters, listeners, routes, and the endpoints of two clusters.
        ensure!(streams.len() == 5, "{node:#}");
        Ok(())
    }
}

async fn wait_backend(connection: &mut Connection, backend: &str) -> Result<()> {
    wait_for("the backend", PATIENCE, async || {
        let answer = connection.get("/").await?;
        ensure!(answer.header("x-backend") == backend, "it is {:?}", answer.header("x-backend"));
        Ok(())
    })
    .await
}

const NODE: &str = "per-type";
