//! A listener refers to a resource that does not exist. The Envoy starts nevertheless, and the other listeners answer.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};

const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";

/// The type of what is missing.
#[derive(Clone, Copy)]
enum Kind {
    Route,
    Extension,
    Endpoints,
}

impl Kind {
    /// A listener, and what it needs, except the resource `name` that may be missing.
    fn needs(self, listener: &str, name: &str, backend: SocketAddr) -> Vec<Value> {
        self.needs_within("2s", listener, name, backend)
    }

    /// The same for an Envoy that waits so long for a resource before it goes on without.
    fn needs_within(self, limit: &str, listener: &str, name: &str, backend: SocketAddr) -> Vec<Value> {
        let ads = json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": limit});
        let (route, cluster) = match self {
            Self::Route => (name.to_owned(), format!("{listener}-cluster")),
            Self::Endpoints => (format!("{listener}-route"), name.to_owned()),
            Self::Extension => (format!("{listener}-route"), format!("{listener}-cluster")),
        };
        let mut needing = config::listener(listener, 0, &route);
        let manager = &mut needing["filter_chains"][0]["filters"][0]["typed_config"];
        manager["rds"]["config_source"] = ads.clone();
        if matches!(self, Self::Extension) {
            let router = manager["http_filters"][0].clone();
            let discovery = json!({"config_source": ads, "type_urls": [LUA]});
            manager["http_filters"] = json!([{"name": name, "config_discovery": discovery}, router]);
        }
        let mut endpoints_from = config::cluster(&cluster);
        endpoints_from["eds_cluster_config"]["eds_config"] = ads;
        let mut needed = vec![needing, endpoints_from];
        if !matches!(self, Self::Endpoints) {
            needed.push(config::endpoints(&cluster, &[backend]));
        }
        if !matches!(self, Self::Route) {
            needed.push(config::route_config(&route, &[("/", config::to(&cluster))]));
        }
        needed
    }

    /// The resource that may be missing.
    fn resource(self, listener: &str, name: &str, backend: SocketAddr) -> Value {
        match self {
            Self::Route => config::route_config(name, &[("/", config::to(&format!("{listener}-cluster")))]),
            Self::Extension => json!({"@type": EXTENSION, "name": name, "typed_config": {"@type": LUA}}),
            Self::Endpoints => config::endpoints(name, &[backend]),
        }
    }

    /// The answer of an Envoy that lacks the resource.
    fn lacking(self) -> StatusCode {
        match self {
            Self::Route => StatusCode::NOT_FOUND,
            Self::Extension => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Endpoints => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

struct World {
    config: ConfigDir,
    backend: Backend,
    server: Server,
}

impl World {
    /// A server with the listener `good`, which has everything, and `two`, which lacks something.
    async fn start(kind: Kind) -> Result<Self> {
        Self::start_within("2s", kind).await
    }

    async fn start_within(limit: &str, kind: Kind) -> Result<Self> {
        let backend = Backend::start("b").await?;
        let config = ConfigDir::new()?;
        let mut good = kind.needs("good", "for-good", backend.addr());
        good.push(kind.resource("good", "for-good", backend.addr()));
        config.write_resources("good.yaml", &good)?;
        config.write_resources("two.yaml", &kind.needs_within(limit, "two", "for-two", backend.addr()))?;
        let setup = Setup::new()?.watch(config.path()).fixed_xds_port()?;
        let server = Server::start_with(setup).await?;
        Ok(Self { config, backend, server })
    }

    async fn expect(&self, envoy: &Envoy, listener: &str, status: StatusCode) -> Result<()> {
        let addr = envoy.wait_listener(listener).await?;
        let answers = wait_for("an answer", PATIENCE, async || {
            let answer = Connection::open(addr).await?.get("/").await?;
            ensure!(answer.status == status, "{} instead of {status}", answer.status);
            Ok(())
        });
        answers.await.with_context(|| listener.to_owned())
    }
}

async fn an_envoy_starts_without_it(kind: Kind, variant: Variant) -> Result<()> {
    let mut world = World::start(kind).await?;
    let bootstrap = world.server.bootstrap_envoy("n", variant).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    envoy.wait_live().await.context("a fresh Envoy")?;
    world.expect(&envoy, "good", StatusCode::OK).await?;
    world.expect(&envoy, "two", kind.lacking()).await?;

    // A running Envoy gets a listener that lacks something, and then what the first one lacked.
    world.config.write_resources("three.yaml", &kind.needs("three", "for-three", world.backend.addr()))?;
    world.expect(&envoy, "three", kind.lacking()).await?;
    let resource = kind.resource("two", "for-two", world.backend.addr());
    world.config.write_resources("for-two.yaml", &[resource])?;
    world.expect(&envoy, "two", StatusCode::OK).await?;
    world.expect(&envoy, "three", kind.lacking()).await?;

    // It comes back to a server, and goes on with what it has.
    world.server.restart().await?;
    let is_back = |node: &Value| node["connected"] == true || node["streams"].is_array();
    world.server.wait_json("/v1/nodes/n", is_back).await?;
    let resource = kind.resource("three", "for-three", world.backend.addr());
    world.config.write_resources("for-three.yaml", &[resource])?;
    world.expect(&envoy, "three", StatusCode::OK).await?;
    world.expect(&envoy, "two", StatusCode::OK).await?;
    world.expect(&envoy, "good", StatusCode::OK).await
}

/// Without a limit, an Envoy would wait for the resource before it opens any listener. So it gets the listener only with it.
async fn an_envoy_is_not_sent_what_it_would_wait_for(kind: Kind, variant: Variant) -> Result<()> {
    let world = World::start_within("0s", kind).await?;
    let bootstrap = world.server.bootstrap_envoy("n", variant).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    envoy.wait_live().await.context("a fresh Envoy")?;
    world.expect(&envoy, "good", StatusCode::OK).await?;
    let is_held = |node: &Value| node.to_string().contains("\"two\"") && node.to_string().contains("for-");
    world.server.wait_json("/v1/nodes/n", is_held).await?;
    let problems = world.server.get_json("/readyz").await?["problems"].to_string();
    ensure!(problems.contains("is not sent this listener"), "{problems}");

    // What goes on meanwhile is not in its way.
    let three = kind.needs("three", "for-three", world.backend.addr());
    let more = [three, vec![kind.resource("three", "for-three", world.backend.addr())]].concat();
    world.config.write_resources("three.yaml", &more)?;
    world.expect(&envoy, "three", StatusCode::OK).await?;
    let resource = kind.resource("two", "for-two", world.backend.addr());
    world.config.write_resources("for-two.yaml", &[resource])?;
    world.expect(&envoy, "two", StatusCode::OK).await?;

    // A version that names something else that is missing leaves the Envoy with the former one.
    let other = kind.needs_within("0s", "two", "for-other", world.backend.addr());
    world.config.write_resources("two.yaml", &other)?;
    let names_other = |ready: &Value| ready["problems"].to_string().contains("for-other");
    world.server.wait_json("/readyz", names_other).await?;
    world.server.wait_json("/v1/nodes/n", is_held).await?;
    world.expect(&envoy, "two", StatusCode::OK).await?;
    let resource = kind.resource("two", "for-other", world.backend.addr());
    world.config.write_resources("for-other.yaml", &[resource])?;
    let is_fine = |ready: &Value| ready["problems"] == json!([]);
    world.server.wait_json("/readyz", is_fine).await?;
    world.expect(&envoy, "two", StatusCode::OK).await
}

/// Without a limit, an Envoy would wait for the endpoints before it opens any listener. So it is told that there are none.
async fn an_envoy_is_told_that_there_are_no_endpoints(variant: Variant) -> Result<()> {
    let kind = Kind::Endpoints;
    let mut world = World::start_within("0s", kind).await?;
    let bootstrap = world.server.bootstrap_envoy("n", variant).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    envoy.wait_live().await.context("a fresh Envoy")?;
    world.expect(&envoy, "good", StatusCode::OK).await?;
    world.expect(&envoy, "two", kind.lacking()).await?;

    // A running Envoy that gets such a cluster goes on, and so does one that gets a new version of it.
    let three = || kind.needs_within("0s", "three", "for-three", world.backend.addr());
    world.config.write_resources("three.yaml", &three())?;
    world.expect(&envoy, "three", kind.lacking()).await?;
    let mut changed = kind.needs_within("0s", "two", "for-two", world.backend.addr());
    changed[1]["connect_timeout"] = json!("0.7s");
    world.config.write_resources("two.yaml", &changed)?;
    let is_active = wait_for("the new version of the cluster", PATIENCE, async || {
        let dump = envoy.config_dump().await?;
        let timeout = &dump.active_cluster("for-two")["connect_timeout"];
        ensure!(timeout == "0.700s", "{timeout}, and warming: {:?}", dump.warming_clusters());
        Ok(())
    });
    is_active.await?;
    let resource = kind.resource("two", "for-two", world.backend.addr());
    world.config.write_resources("for-two.yaml", &[resource])?;
    world.expect(&envoy, "two", StatusCode::OK).await?;

    // One that comes back keeps the endpoints that it has, and gets those that it lacked.
    world.server.restart().await?;
    let resource = kind.resource("three", "for-three", world.backend.addr());
    world.config.write_resources("for-three.yaml", &[resource])?;
    world.expect(&envoy, "three", StatusCode::OK).await?;
    world.expect(&envoy, "two", StatusCode::OK).await
}

/// Makes a test of each kind for each variant: `sotw::a_route`.
macro_rules! with_each_variant {
    ($($module:ident: $variant:ident),+) => {
        $(mod $module {
            use super::{Kind, an_envoy_is_not_sent_what_it_would_wait_for, an_envoy_starts_without_it};
            use super::an_envoy_is_told_that_there_are_no_endpoints;
            use xds_tests::server::Variant::$variant as VARIANT;

            #[tokio::test]
            async fn an_envoy_starts_without_a_route_configuration() -> anyhow::Result<()> {
                an_envoy_starts_without_it(Kind::Route, VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_starts_without_an_extension() -> anyhow::Result<()> {
                an_envoy_starts_without_it(Kind::Extension, VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_starts_without_endpoints() -> anyhow::Result<()> {
                an_envoy_starts_without_it(Kind::Endpoints, VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_is_not_sent_a_listener_that_would_wait_for_routes() -> anyhow::Result<()> {
                an_envoy_is_not_sent_what_it_would_wait_for(Kind::Route, VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_is_not_sent_a_listener_that_would_wait_for_an_extension() -> anyhow::Result<()> {
                an_envoy_is_not_sent_what_it_would_wait_for(Kind::Extension, VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_that_would_wait_for_endpoints_is_told_that_there_are_none() -> anyhow::Result<()> {
                an_envoy_is_told_that_there_are_no_endpoints(VARIANT).await
            }
        })+
    };
}

with_each_variant!(sotw: Sotw, delta: Delta);
