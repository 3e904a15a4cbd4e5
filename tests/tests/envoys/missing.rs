//! A resource refers to another one that does not exist. The Envoy starts nevertheless, and the other listeners answer.
//!
//! One Envoy meets several kinds at once: each has a listener that lacks one resource.

mod kinds;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};

use kinds::{Kind, Needing, Outside, SERVED, source};

/// With a limit, an Envoy goes on without these.
fn waited_for(variant: Variant) -> &'static [Kind] {
    match variant {
        // Envoys ask for collections and for clusters on demand only incrementally.
        Variant::Sotw => WAITED_FOR.split_at(2).1,
        Variant::Delta => &WAITED_FOR,
    }
}

static WAITED_FOR: [Kind; 12] = [
    Kind::EndpointOfCollection,
    Kind::ClusterOnDemand,
    Kind::Routes,
    Kind::HttpFilter,
    Kind::NetworkFilter,
    Kind::ListenerFilter,
    Kind::ListenerSecret,
    Kind::RoutesOfScope,
    Kind::ClusterOfRoutes,
    Kind::Member,
    Kind::Endpoints,
    Kind::ClusterSecret,
];

/// Without a limit, an Envoy would wait for these before it opens any listener. So it gets the listener only with them.
const KEPT_BACK: &[Kind] =
    &[Kind::Routes, Kind::HttpFilter, Kind::NetworkFilter, Kind::ListenerFilter, Kind::ListenerSecret];

/// Without a limit, an Envoy would wait for these before it opens any listener. So it is told that there are none.
const fn told(variant: Variant) -> &'static [Kind] {
    match variant {
        Variant::Sotw => &[Kind::Endpoints, Kind::Scope],
        Variant::Delta => &[Kind::Endpoints, Kind::Scope, Kind::ClusterSecret, Kind::EndpointOfCollection],
    }
}

struct World {
    config: ConfigDir,
    outside: Outside,
    server: Server,
    kinds: &'static [Kind],
    limit: &'static str,
    variant: Variant,
    /// A listener that has everything.
    good: Needing,
}

impl World {
    /// A server with the listener `good`, and no other.
    async fn start(kinds: &'static [Kind], limit: &'static str, variant: Variant) -> Result<Self> {
        Self::start_with(kinds, limit, variant, &[]).await
    }

    /// A server with the listener `good`, and a listener of each kind that lacks something.
    async fn start_lacking(
        kinds: &'static [Kind],
        limit: &'static str,
        variant: Variant,
    ) -> Result<(Self, Vec<Needing>)> {
        let two = each(kinds, limit, "two")?;
        Ok((Self::start_with(kinds, limit, variant, &two).await?, two))
    }

    async fn start_with(
        kinds: &'static [Kind],
        limit: &'static str,
        variant: Variant,
        lacking: &[Needing],
    ) -> Result<Self> {
        let outside = Outside::start().await?;
        let config = ConfigDir::new()?;
        let good = Needing::new(Kind::Routes, limit, "good")?;
        let resources = [good.needs(&outside), vec![good.resource(&outside)]].concat();
        config.write_resources("good.yaml", &resources)?;
        let two: Vec<_> = lacking.iter().flat_map(|one| one.needs(&outside)).collect();
        config.write_resources("two.yaml", &two)?;
        let server = Server::start_with(Setup::new()?.watch(config.path()).fixed_xds_port()?).await?;
        Ok(Self { config, outside, server, kinds, limit, variant, good })
    }

    /// Starts an Envoy that has two runtime layers, which are missing.
    async fn envoy(&self) -> Result<Envoy> {
        let bootstrap = self.server.bootstrap_envoy("n", self.variant).await?;
        let mut bootstrap: Value = serde_json::from_str(&bootstrap)?;
        let source = source(self.limit);
        let layer = |name: &str| json!({"name": name, "rtds_layer": {"name": name, "rtds_config": source}});
        bootstrap["layered_runtime"] = json!({"layers": [layer("two"), layer("three")]});
        let envoy = Envoy::start(&bootstrap.to_string()).await?;
        envoy.wait_live().await.context("a fresh Envoy")?;
        Ok(envoy)
    }

    /// Starts the server anew, and waits until the Envoy is back.
    async fn restart(&mut self) -> Result<()> {
        self.server.restart().await?;
        let is_back = |node: &Value| node["connected"] == true || node["streams"].is_array();
        self.server.wait_json("/v1/nodes/n", is_back).await.map(drop)
    }

    /// A listener of each kind.
    fn each(&self, number: &str) -> Result<Vec<Needing>> {
        each(self.kinds, self.limit, number)
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

    /// Writes listeners whose routes stand in them, and what they need, except what may be missing.
    fn write_with_own_routes(&self, file: &str, all: &[Needing]) -> Result<()> {
        let needs: Vec<_> = all.iter().flat_map(|one| one.needs_with_own_routes(&self.outside)).collect();
        self.config.write_resources(file, &needs).map(drop)
    }

    /// Writes a new version of the clusters of listeners, and waits until the Envoy uses that.
    async fn change_clusters(&self, envoy: &Envoy, file: &str, all: &[Needing], timeout: &str) -> Result<()> {
        let mut needs = Vec::new();
        let mut names = Vec::new();
        for one in all {
            let mut own = one.needs(&self.outside);
            // A State of the World Envoy is told only once that there are none, and without a limit would wait for that once more.
            let waits = self.limit == "0s" && one.kind == Kind::Endpoints && self.variant == Variant::Sotw;
            for cluster in own.iter_mut().filter(|one| one["@type"] == config::CLUSTER && !waits) {
                cluster["connect_timeout"] = json!(timeout);
                names.push(cluster["name"].as_str().unwrap_or_default().to_owned());
            }
            needs.extend(own);
        }
        self.config.write_resources(file, &needs)?;
        wait_for("the new version of each cluster", PATIENCE, async || {
            let dump = envoy.config_dump().await?;
            for name in &names {
                let now = &dump.active_cluster(name)["connect_timeout"];
                ensure!(now == timeout, "{name}: {now}, and warming: {:?}", dump.warming_clusters());
            }
            Ok(())
        })
        .await
    }

    fn write_layer(&self, name: &str) -> Result<()> {
        let layer = json!({"@type": RUNTIME, "name": name, "layer": {name: "has come"}});
        self.config.write_resources(&format!("layer-{name}.yaml"), &[layer]).map(drop)
    }

    async fn expect_good(&self, envoy: &Envoy) -> Result<()> {
        self.expect(envoy, &self.good, SERVED).await
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
        envoy.wait_listener(&needing.listener).await?;
        let answers = wait_for("an answer", PATIENCE, async || {
            let now = needing.ask(&self.outside).await?;
            ensure!(now == told, "{now:?} instead of {told:?}");
            Ok(())
        });
        answers.await.with_context(|| needing.listener.clone())
    }

    /// Waits until the server says that it keeps listeners back, and why.
    async fn expect_kept_back(&self, all: &[Needing]) -> Result<()> {
        let is_held = |node: &Value| {
            let node = node.to_string();
            let is_held =
                |one: &Needing| node.contains(&format!("\"{}\"", one.listener)) && node.contains(&one.name);
            all.iter().all(is_held)
        };
        self.server.wait_json("/v1/nodes/n", is_held).await?;
        let is_problem = |ready: &Value| {
            let problems = || ready["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let is_of = |problem: &str, one: &Needing| {
                problem.contains(&format!("\"{}\"", one.name))
                    && problem.contains("is not sent this listener")
            };
            all.iter().all(|one| problems().any(|problem| is_of(problem, one)))
        };
        self.server.wait_json("/readyz", is_problem).await.map(drop)
    }

    async fn expect_no_problems(&self) -> Result<()> {
        self.server.wait_json("/readyz", |ready| ready["problems"] == json!([])).await.map(drop)
    }
}

fn each(kinds: &[Kind], limit: &'static str, number: &str) -> Result<Vec<Needing>> {
    kinds.iter().map(|kind| Needing::new(*kind, limit, number)).collect()
}

/// Waits until the Envoy has a version of each listener, or of its cluster, that waits for what it needs.
async fn expect_warming(envoy: &Envoy, all: &[Needing]) -> Result<()> {
    wait_for("what waits", PATIENCE, async || {
        let dump = envoy.config_dump().await?;
        let listeners = dump.listeners().into_iter().filter(|one| one["warming_state"].is_object());
        let listeners = listeners.filter_map(|one| one["name"].as_str().map(str::to_owned));
        let warming: Vec<_> = listeners.chain(dump.warming_clusters().into_keys()).collect();
        let is_of = |name: &str, one: &Needing| {
            name.strip_prefix(&one.listener).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let is_warming = |one: &Needing| warming.iter().any(|name| is_of(name, one));
        ensure!(all.iter().all(is_warming), "{warming:?}");
        Ok(())
    })
    .await
}

/// Waits until no listener and no cluster of the Envoy waits for anything.
async fn expect_nothing_warming(envoy: &Envoy) -> Result<()> {
    wait_for("nothing that waits", PATIENCE, async || {
        let dump = envoy.config_dump().await?;
        let listeners = dump.listeners().into_iter().filter(|one| one["warming_state"].is_object());
        let listeners: Vec<_> = listeners.map(|one| &one["name"]).collect();
        let clusters = dump.warming_clusters();
        ensure!(listeners.is_empty() && clusters.is_empty(), "{listeners:?}, {clusters:?}");
        Ok(())
    })
    .await
}

/// Waits until the Envoy has rejected the newest version of each listener.
async fn expect_rejected(envoy: &Envoy, all: &[Needing]) -> Result<()> {
    wait_for("rejections", PATIENCE, async || {
        let dump = envoy.config_dump().await?;
        let rejected = dump.listeners().into_iter().filter(|one| one["error_state"].is_object());
        let rejected: Vec<_> = rejected.filter_map(|one| one["name"].as_str()).collect();
        ensure!(all.iter().all(|one| rejected.contains(&&*one.listener)), "{rejected:?}");
        Ok(())
    })
    .await
}

/// Waits until a runtime layer is as it should be; `null` if it is missing.
async fn expect_layer(envoy: &Envoy, name: &str, value: Value) -> Result<()> {
    wait_for("the runtime layer", PATIENCE, async || {
        let runtime: Value = serde_json::from_str(&envoy.admin("runtime").await?)?;
        let now = &runtime["entries"][name]["final_value"];
        ensure!(*now == value, "{name}: {now} instead of {value}");
        Ok(())
    })
    .await
}

/// An Envoy starts without anything that is missing, and uses each when it comes.
async fn an_envoy_goes_on_without(
    kinds: &'static [Kind],
    limit: &'static str,
    variant: Variant,
) -> Result<()> {
    let (mut world, two) = World::start_lacking(kinds, limit, variant).await?;
    let envoy = world.envoy().await?;
    let three = world.each("three")?;
    world.expect_good(&envoy).await?;
    world.expect_without(&envoy, &two).await.context("a fresh Envoy")?;
    expect_layer(&envoy, "two", Value::Null).await?;

    // A running Envoy gets listeners that lack something, new versions of their clusters, and then what the first ones lacked.
    world.write_needs("three.yaml", &three)?;
    world.expect_without(&envoy, &three).await.context("a running Envoy")?;
    world.change_clusters(&envoy, "two.yaml", &two, "0.700s").await?;
    world.write_missing("for-two.yaml", &two)?;
    world.write_layer("two")?;
    world.expect_served(&envoy, &two).await?;
    expect_layer(&envoy, "two", json!("has come")).await?;
    world.expect_without(&envoy, &three).await?;

    // It comes back to a server, and goes on with what it has.
    world.restart().await?;
    world.expect_served(&envoy, &two).await?;
    world.expect_without(&envoy, &three).await.context("after a reconnect")?;
    expect_layer(&envoy, "three", Value::Null).await?;
    world.write_missing("for-three.yaml", &three)?;
    world.write_layer("three")?;
    world.expect_served(&envoy, &three).await?;
    expect_layer(&envoy, "three", json!("has come")).await?;
    expect_layer(&envoy, "two", json!("has come")).await?;
    world.expect_served(&envoy, &two).await?;
    // New versions of clusters find what they need, though that has not changed.
    world.change_clusters(&envoy, "two.yaml", &two, "0.800s").await?;
    world.expect_served(&envoy, &two).await?;
    world.expect_good(&envoy).await
}

/// An Envoy gets listeners that would wait without a limit only when they need not.
async fn an_envoy_is_not_sent_what_would_wait(variant: Variant) -> Result<()> {
    let (mut world, two) = World::start_lacking(KEPT_BACK, "0s", variant).await?;
    let envoy = world.envoy().await?;
    let (three, four) = (world.each("three")?, world.each("four")?);
    world.expect_good(&envoy).await?;
    world.expect_kept_back(&two).await?;

    // What goes on meanwhile is not in its way.
    world.write_needs("three.yaml", &three)?;
    world.write_missing("for-three.yaml", &three)?;
    world.expect_served(&envoy, &three).await?;
    world.write_missing("for-two.yaml", &two)?;
    world.expect_served(&envoy, &two).await?;
    world.expect_no_problems().await?;

    // A version that names something else that is missing leaves the Envoy with the former one.
    let two: Vec<_> = two.into_iter().map(Needing::with_other).collect();
    world.write_needs("two.yaml", &two)?;
    world.expect_kept_back(&two).await?;
    world.expect_served(&envoy, &two).await?;
    expect_nothing_warming(&envoy).await?;
    world.write_missing("for-other-two.yaml", &two)?;
    world.expect_no_problems().await?;
    world.expect_served(&envoy, &two).await?;

    // One that comes back keeps what it has.
    let three: Vec<_> = three.into_iter().map(Needing::with_other).collect();
    world.write_needs("three.yaml", &three)?;
    world.write_needs("four.yaml", &four)?;
    let both = [three.clone(), four].concat();
    world.expect_kept_back(&both).await?;
    world.restart().await?;
    match variant {
        // It has started: it may wait for a listener, and uses the others and older versions meanwhile.
        Variant::Sotw => expect_warming(&envoy, &both).await?,
        // It would be told that a secret is removed, and use the listener without.
        Variant::Delta => world.expect_kept_back(&both).await?,
    }
    envoy.wait_live().await?;
    world.expect_good(&envoy).await?;
    world.expect_served(&envoy, &[two, three].concat()).await?;
    world.write_missing("for-both.yaml", &both)?;
    world.expect_served(&envoy, &both).await?;
    expect_nothing_warming(&envoy).await?;
    world.expect_served(&envoy, &both).await
}

/// An Envoy gets what would wait without a limit for what something else names only when it need not.
async fn an_envoy_starts_without(kinds: &'static [Kind], variant: Variant) -> Result<()> {
    let (mut world, two) = World::start_lacking(kinds, "0s", variant).await?;
    let envoy = world.envoy().await?;
    let three = world.each("three")?;
    world.expect_good(&envoy).await?;
    let is_told = |ready: &Value| ready["problems"].as_array().is_some_and(|problems| !problems.is_empty());
    world.server.wait_json("/readyz", is_told).await?;
    world.write_missing("for-two.yaml", &two)?;
    world.expect_served(&envoy, &two).await?;
    world.write_needs("three.yaml", &three)?;
    world.server.wait_json("/readyz", is_told).await?;
    world.restart().await?;
    world.expect_served(&envoy, &two).await?;
    world.expect_good(&envoy).await?;
    world.write_missing("for-three.yaml", &three)?;
    world.expect_served(&envoy, &three).await?;
    expect_nothing_warming(&envoy).await
}

/// An Envoy that has endpoints is not told that there are none, whatever becomes of the assignment.
async fn an_envoy_keeps_endpoints(variant: Variant) -> Result<()> {
    let (mut world, two) = World::start_lacking(&[Kind::Endpoints], "0s", variant).await?;
    let envoy = world.envoy().await?;
    world.expect_without(&envoy, &two).await?;
    world.write_missing("for-two.yaml", &two)?;
    world.expect_served(&envoy, &two).await?;
    std::fs::remove_file(world.config.path().join("for-two.yaml"))?;
    world.restart().await?;
    let mut needs: Vec<_> = two.iter().flat_map(|one| one.needs(&world.outside)).collect();
    for cluster in needs.iter_mut().filter(|one| one["@type"] == config::CLUSTER) {
        cluster["connect_timeout"] = json!("0.700s");
    }
    world.config.write_resources("two.yaml", &needs)?;
    wait_for("the new version of the cluster", PATIENCE, async || {
        let warming = envoy.config_dump().await?.warming_clusters();
        ensure!(two.iter().all(|one| warming.contains_key(&one.name)), "{warming:?}");
        Ok(())
    })
    .await?;
    world.expect_served(&envoy, &two).await?;
    world.write_missing("for-two.yaml", &two)?;
    expect_nothing_warming(&envoy).await?;
    world.expect_served(&envoy, &two).await
}

/// An Envoy rejects a listener with routes of its own that lead to a missing cluster, and is offered it again when that comes.
async fn an_envoy_rejects_routes_within_a_listener(variant: Variant) -> Result<()> {
    let mut world = World::start(&[Kind::ClusterOfRoutes], "2s", variant).await?;
    let (two, three) = (world.each("two")?, world.each("three")?);
    world.write_with_own_routes("two.yaml", &two)?;
    let envoy = world.envoy().await?;
    expect_rejected(&envoy, &two).await.context("a fresh Envoy")?;
    world.expect_good(&envoy).await?;
    world.write_with_own_routes("three.yaml", &three)?;
    expect_rejected(&envoy, &three).await.context("a running Envoy")?;
    world.expect_good(&envoy).await?;
    world.write_missing("for-two.yaml", &two)?;
    world.expect_served(&envoy, &two).await?;

    let before = envoy.stat(REJECTED).await?;
    world.restart().await?;
    wait_for("one more rejection", PATIENCE, async || {
        let now = envoy.stat(REJECTED).await?;
        ensure!(now > before, "{now} after {before}");
        Ok(())
    })
    .await?;
    // A version that leads to another cluster is used if that is there.
    let three: Vec<_> = three.into_iter().map(Needing::with_other).collect();
    world.write_missing("for-other-three.yaml", &three)?;
    world.write_with_own_routes("three.yaml", &three)?;
    world.expect_served(&envoy, &[two, three].concat()).await?;
    world.expect_good(&envoy).await
}

/// Makes the tests for each variant.
macro_rules! with_each_variant {
    ($($module:ident: $variant:ident),+) => {
        $(mod $module {
            use xds_tests::server::Variant::$variant as VARIANT;

            #[tokio::test]
            async fn an_envoy_starts_without_what_is_missing() -> anyhow::Result<()> {
                super::an_envoy_goes_on_without(super::waited_for(VARIANT), "2s", VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_that_would_wait_without_a_limit_is_told_that_there_is_nothing() -> anyhow::Result<()> {
                super::an_envoy_goes_on_without(super::told(VARIANT), "0s", VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_is_not_sent_a_listener_that_would_wait_without_a_limit() -> anyhow::Result<()> {
                super::an_envoy_is_not_sent_what_would_wait(VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_is_not_sent_a_listener_whose_scopes_would_wait_without_a_limit() -> anyhow::Result<()> {
                super::an_envoy_starts_without(&[super::Kind::RoutesOfScope], VARIANT).await
            }

            #[tokio::test]
            async fn an_envoy_rejects_a_listener_whose_own_routes_lead_to_a_missing_cluster() -> anyhow::Result<()> {
                super::an_envoy_rejects_routes_within_a_listener(VARIANT).await
            }
        })+
    };
}

with_each_variant!(sotw: Sotw, delta: Delta);

#[tokio::test]
async fn a_state_of_the_world_envoy_keeps_endpoints_that_are_gone() -> Result<()> {
    an_envoy_keeps_endpoints(Variant::Sotw).await
}

#[tokio::test]
async fn an_envoy_is_not_sent_a_cluster_that_would_wait_for_a_secret_without_a_limit() -> Result<()> {
    an_envoy_starts_without(&[Kind::ClusterSecret], Variant::Sotw).await
}

const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
/// The counter of an Envoy of rejected responses with listeners.
const REJECTED: &str = "listener_manager.lds.update_rejected";
