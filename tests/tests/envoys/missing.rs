//! A resource refers to another one that does not exist. The Envoy starts nevertheless, and the other listeners answer.
//!
//! One Envoy meets all kinds at once: each has a listener that lacks one resource.

mod kinds;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};

use kinds::{Kind, Needing, Outside, SERVED, source};

struct World {
    config: ConfigDir,
    outside: Outside,
    server: Server,
    kinds: &'static [Kind],
    limit: &'static str,
}

impl World {
    /// A server with the listener `good`, which has everything, and a listener of each kind that lacks something.
    async fn start(kinds: &'static [Kind], limit: &'static str) -> Result<Self> {
        let outside = Outside::start().await?;
        let config = ConfigDir::new()?;
        let setup = Setup::new()?.watch(config.path()).fixed_xds_port()?;
        let good = Needing::new(Kind::Routes, limit, "good");
        let good = [good.needs(&outside), vec![good.resource(&outside)]].concat();
        config.write_resources("good.yaml", &good)?;
        let two: Vec<_> = kinds.iter().flat_map(|k| Needing::new(*k, limit, "two").needs(&outside)).collect();
        config.write_resources("two.yaml", &two)?;
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        Ok(Self { config, outside, server, kinds, limit })
    }

    /// Starts an Envoy that has two runtime layers.
    async fn envoy(&self, variant: Variant) -> Result<Envoy> {
        let bootstrap = self.server.bootstrap_envoy("n", variant).await?;
        let mut bootstrap: Value = serde_json::from_str(&bootstrap)?;
        let layer = |name: &str| json!({"name": name, "rtds_layer": {"name": name, "rtds_config": source(self.limit)}});
        bootstrap["layered_runtime"] = json!({"layers": [layer("two"), layer("three")]});
        Envoy::start(&bootstrap.to_string()).await
    }

    /// A listener of each kind.
    fn each(&self, number: &str) -> Vec<Needing> {
        self.kinds.iter().map(|kind| Needing::new(*kind, self.limit, number)).collect()
    }

    /// Writes listeners, and what they need, except what may be missing.
    fn write_needs(&self, file: &str, all: &[Needing]) -> Result<()> {
        let needs: Vec<_> = all.iter().flat_map(|one| one.needs(&self.outside)).collect();
        self.config.write_resources(file, &needs).map(drop)
    }

    /// Writes what may be missing.
    fn write_missing(&self, file: &str, all: &[Needing]) -> Result<()> {
        let missing: Vec<_> = all.iter().map(|one| one.resource(&self.outside)).collect();
        self.config.write_resources(file, &missing).map(drop)
    }

    fn write_layer(&self, name: &str) -> Result<()> {
        let layer = json!({"@type": RUNTIME, "name": name, "layer": {name: "has come"}});
        self.config.write_resources(&format!("layer-{name}.yaml"), &[layer]).map(drop)
    }

    async fn expect_good(&self, envoy: &Envoy) -> Result<()> {
        self.expect(envoy, &Needing::new(Kind::Routes, self.limit, "good"), SERVED).await
    }

    async fn expect_without(&self, envoy: &Envoy, all: &[Needing]) -> Result<()> {
        for one in all {
            self.expect(envoy, one, one.without()).await?;
        }
        Ok(())
    }

    async fn expect_served(&self, envoy: &Envoy, all: &[Needing]) -> Result<()> {
        for one in all {
            self.expect(envoy, one, SERVED).await?;
        }
        Ok(())
    }

    async fn expect(&self, envoy: &Envoy, needing: &Needing, told: &str) -> Result<()> {
        let addr = envoy.wait_listener(&needing.listener).await?;
        let answers = wait_for("an answer", PATIENCE, async || {
            let now = needing.ask(&self.outside, addr).await?;
            ensure!(now == told, "{now:?} instead of {told:?}");
            Ok(())
        });
        answers.await.with_context(|| needing.listener.clone())
    }
}

const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

async fn probe(kind: &'static [Kind], limit: &'static str, variant: Variant) -> Result<()> {
    let mut world = World::start(kind, limit).await?;
    let envoy = Envoy::start(&world.server.bootstrap_envoy("n", variant).await?).await?;
    let begun = std::time::Instant::now();
    let live = wait_for("live", std::time::Duration::from_secs(8), async || {
        let answer = envoy.admin("ready").await?;
        ensure!(answer.trim() == "LIVE", "it is {answer}");
        Ok(())
    });
    eprintln!("PROBE {kind:?} {limit} {variant}: live {:?} after {:?}", live.await.map_err(|e| e.to_string()), begun.elapsed());
    let at = async |world: &World, needing: &Needing, told: &str, when: &str| {
        let begun = std::time::Instant::now();
        let r = async {
        let addr = envoy.wait_listener_within(std::time::Duration::from_secs(6), &needing.listener).await.map_err(|_| anyhow::anyhow!("no listener"))?;
        wait_for("an answer", std::time::Duration::from_secs(4), async || {
            let now = needing.ask(&world.outside, addr).await?;
            ensure!(now == told, "{now:?} instead of {told:?}");
            Ok(())
        }).await
        };
        eprintln!("PROBE {kind:?} {limit} {variant} {when} {}: {:?} {:?}", needing.listener, r.await.map_err(|e| e.to_string()), begun.elapsed());
    };
    let good = Needing::new(Kind::Routes, limit, "good");
    let (two, three) = (world.each("two"), world.each("three"));
    at(&world, &good, SERVED, "fresh").await;
    for one in &two { at(&world, one, one.without(), "fresh").await; }
    world.write_needs("three.yaml", &three)?;
    for one in &three { at(&world, one, one.without(), "running").await; }
    world.write_missing("for-two.yaml", &two)?;
    for one in &two { at(&world, one, SERVED, "came").await; }
    for one in &three { at(&world, one, one.without(), "other came").await; }
    world.server.restart().await?;
    let is_back = |node: &Value| node["connected"] == true || node["streams"].is_array();
    world.server.wait_json("/v1/nodes/n", is_back).await?;
    for one in &two { at(&world, one, SERVED, "back").await; }
    for one in &three { at(&world, one, one.without(), "back").await; }
    world.write_missing("for-three.yaml", &three)?;
    for one in &three { at(&world, one, SERVED, "came after back").await; }
    at(&world, &good, SERVED, "end").await;
    eprintln!("PROBE {kind:?} problems {}", world.server.get_json("/readyz").await?["problems"]);
    Ok(())
}

macro_rules! probes {
    ($($name:ident: $kind:ident),+) => {
        $(mod $name {
            use super::{Kind, probe};
            use xds_tests::server::Variant;
            #[tokio::test]
            async fn sotw_2s() -> anyhow::Result<()> { probe(&[Kind::$kind], "2s", Variant::Sotw).await }
            #[tokio::test]
            async fn delta_2s() -> anyhow::Result<()> { probe(&[Kind::$kind], "2s", Variant::Delta).await }
            #[tokio::test]
            async fn sotw_0s() -> anyhow::Result<()> { probe(&[Kind::$kind], "0s", Variant::Sotw).await }
            #[tokio::test]
            async fn delta_0s() -> anyhow::Result<()> { probe(&[Kind::$kind], "0s", Variant::Delta).await }
        })+
    };
}
probes!(routes: Routes, network: NetworkFilter, lf: ListenerFilter, ls: ListenerSecret, scope: Scope, ros: RoutesOfScope, cor: ClusterOfRoutes, member: Member, ep: Endpoints, cs: ClusterSecret, hf: HttpFilter);
