//! A target's resources name one that does not exist. Calls to that target fail, those to others go on, and it is used when it comes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, ConfigDir};
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Channel, Library, Worker};

/// What is missing.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The listener of the target.
    Listener,
    /// The routes of the listener.
    Routes,
    /// The endpoints of the cluster.
    Endpoints,
    /// The cluster of the routes, which are within the listener.
    Cluster,
    /// The first member of an aggregate cluster. The second one is there.
    Member,
}

const ALL: [Kind; 5] = [Kind::Listener, Kind::Routes, Kind::Endpoints, Kind::Cluster, Kind::Member];

/// A target of which something may be missing.
struct Target {
    kind: Kind,
    name: String,
}

impl Target {
    fn each(number: &str) -> Vec<Self> {
        ALL.map(|kind| Self { kind, name: format!("{number}-{kind:?}").to_lowercase() }).into()
    }

    /// What it needs, and apart from that, what may be missing.
    fn resources(&self, backends: &[Backend; 2]) -> (Vec<Value>, Vec<Value>) {
        let name = self.name.as_str();
        let [backend, other] = backends.each_ref().map(Backend::addr);
        let listener = config::api_listener(name, name);
        let routes = config::route_config(name, &[("/", config::to(name))]);
        let (cluster, endpoints) = (config::cluster(name), config::endpoints(name, &[backend]));
        match self.kind {
            Kind::Listener => (vec![routes, cluster, endpoints], vec![listener]),
            Kind::Routes => (vec![listener, cluster, endpoints], vec![routes]),
            Kind::Endpoints => (vec![listener, routes, cluster], vec![endpoints]),
            Kind::Cluster => {
                let mut listener = listener;
                let manager = &mut listener["api_listener"]["api_listener"];
                manager.as_object_mut().and_then(|manager| manager.remove("rds"));
                manager["route_config"] = routes;
                if let Some(routes) = manager["route_config"].as_object_mut() {
                    routes.remove("@type");
                }
                (vec![listener], vec![cluster, endpoints])
            }
            Kind::Member => {
                let [first, second] = ["first", "second"].map(|member| format!("{name}-{member}"));
                let members = json!({"@type": AGGREGATE, "clusters": [first, second]});
                let aggregate = json!({
                    "@type": config::CLUSTER, "name": name, "connect_timeout": "1s",
                    "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": members},
                });
                let there = [config::cluster(&second), config::endpoints(&second, &[other])];
                let missing = [config::cluster(&first), config::endpoints(&first, &[backend])];
                ([vec![listener, routes, aggregate], there.into()].concat(), missing.into())
            }
        }
    }

    /// Who answers calls while it is missing, if anybody does.
    fn without(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Member => Some("other"),
            Kind::Listener | Kind::Routes | Kind::Endpoints | Kind::Cluster => None,
        }
    }
}

/// Waits until a call is answered by this backend, or by none.
async fn expect(channel: &Channel<'_>, target: &str, backend: Option<&str>) -> Result<()> {
    let calls = Calls { limit: Duration::from_secs(5), ..Calls::new(1) };
    wait_for("a call", PATIENCE, async || {
        let counts = channel.call(&calls).await?;
        ensure!(counts.names.keys().map(String::as_str).eq(backend), "{counts:?} instead of {backend:?}");
        Ok(())
    })
    .await
    .with_context(|| target.to_owned())
}

async fn a_client_goes_on_without(library: Library) -> Result<()> {
    let backends = [Backend::start("first").await?, Backend::start("other").await?];
    let config = ConfigDir::new()?;
    let good = Target { kind: Kind::Routes, name: "good".to_owned() };
    let (needs, rest) = good.resources(&backends);
    config.write_resources("good.yaml", &[needs, rest].concat())?;
    let (two, three) = (Target::each("two"), Target::each("three"));
    let write = |file: &str, targets: &[Target], is_missing: bool| {
        let parts = targets.iter().map(|target| target.resources(&backends));
        let all: Vec<Value> =
            parts.flat_map(|(needs, missing)| if is_missing { missing } else { needs }).collect();
        config.write_resources(file, &all).map(drop)
    };
    write("two.yaml", &two, false)?;
    let mut server = Server::start_with(Setup::new()?.watch(config.path()).fixed_xds_port()?).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc("n").await?).await? else {
        return Ok(());
    };
    let expect_all = async |targets: &[Target], is_there: bool| {
        for target in targets {
            let channel = worker.open(&format!("xds:///{}", target.name)).await?;
            let backend = if is_there { Some("first") } else { target.without() };
            expect(&channel, &target.name, backend).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let of_good = worker.open("xds:///good").await?;
    expect(&of_good, "good", Some("first")).await?;
    expect_all(&two, false).await.context("a fresh client")?;
    expect(&of_good, "good", Some("first")).await?;

    // A running client gets targets of which something is missing, and then what the first ones lacked.
    write("three.yaml", &three, false)?;
    expect_all(&three, false).await.context("a running client")?;
    write("for-two.yaml", &two, true)?;
    expect_all(&two, true).await?;

    // It comes back to a server.
    server.restart().await?;
    expect_all(&two, true).await.context("after a reconnect")?;
    expect_all(&three, false).await.context("after a reconnect")?;
    write("for-three.yaml", &three, true)?;
    expect_all(&three, true).await?;
    expect(&of_good, "good", Some("first")).await
}

#[tokio::test]
async fn grpcio_goes_on_without_what_is_missing() -> Result<()> {
    a_client_goes_on_without(Library::Grpcio).await
}

#[tokio::test]
async fn grpc_js_goes_on_without_what_is_missing() -> Result<()> {
    a_client_goes_on_without(Library::GrpcJs).await
}

#[tokio::test]
async fn grpc_go_goes_on_without_what_is_missing() -> Result<()> {
    a_client_goes_on_without(Library::GrpcGo).await
}

const AGGREGATE: &str = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
