//! Draining with real clients: requests that use a removed endpoint or cluster can finish, and without draining they cannot.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config;
use xds_tests::documents::{World, service_with};
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::{Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

use super::session::{Browser, ONE_BACKEND, three_endpoints_with};

/// How long a request takes that was begun before its endpoint or cluster left.
const LONG_MS: u64 = 3_000;

/// Long enough for a busy machine to see what drains, short enough to wait for its end.
const DRAIN: &str = "10s";

/// The place that says how long endpoints drain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Says {
    Nobody,
    Server,
    Service,
}

/// The endpoints of `shop` without one.
fn without(world: &World, left: &str, says: Says) -> String {
    let rest: Vec<_> =
        world.backends.values().filter(|backend| backend.name() != left).map(Backend::addr).collect();
    let text = service_with("default", "shop", 8080, &rest, "");
    let metadata = "{name: shop, namespace: default";
    match says {
        Says::Nobody | Says::Server => text,
        Says::Service => {
            let said = format!("{metadata}, annotations: {{xds-server.io/drain-endpoints: {DRAIN}}}");
            text.replacen(metadata, &said, 1)
        }
    }
}

/// An endpoint leaves while it answers a request of a session; what `then` happens, until it has answered. Gives who has the session,
/// and the endpoint.
async fn leaves_during_a_request(
    world: &World,
    says: Says,
    then: impl AsyncFnOnce(&Browser, &str) -> Result<()>,
) -> Result<(Browser, String)> {
    let mut browser = Browser::default();
    let first = browser.get(world, "/").await?.backend;
    let n_before = world.backends[&first].n_requests();
    let long = browser.ask(&format!("/?delay_ms={LONG_MS}"));
    let long = long.send(([127, 0, 0, 1], world.port("web")?).into());
    let change = async {
        wait_for("the long request", PATIENCE, async || {
            ensure!(world.backends[&first].n_requests() > n_before);
            Ok(())
        })
        .await?;
        world.write("service.yaml", &without(world, &first, says))?;
        then(&browser, &first).await
    };
    let (long, changed) = tokio::join!(long, change);
    changed?;
    long?.ensure_from(&first)?;
    Ok((browser, first))
}

async fn goes_elsewhere(world: &World, browser: &Browser, first: &str) -> Result<()> {
    wait_for("another endpoint", PATIENCE, async || {
        let told = browser.clone().get(world, "/").await?;
        ensure!(told.code == 200 && told.backend != first, "{told:?}");
        Ok(())
    })
    .await
}

async fn endpoints_drain(variant: Variant, says: Says) -> Result<()> {
    let setup = Setup::new()?;
    let setup = if says == Says::Server { setup.arg("--drain-endpoints").arg(DRAIN) } else { setup };
    let (world, _envoy) = three_endpoints_with(setup, ONE_BACKEND, variant).await?;
    let (browser, first) = leaves_during_a_request(&world, says, async |browser, first| {
        let node = world.server.wait_json("/v1/nodes/envoy", |node| node["drainingCount"] == 1).await?;
        assert_eq!(node["draining"][0]["endpoint"], world.backends[first].addr().to_string(), "{node:#}");
        ensure!(node["draining"][0]["until"].is_string(), "{node:#}");
        wait_for("no new sessions", PATIENCE, async || {
            for _ in 0..12 {
                let told = Browser::default().get(&world, "/").await?;
                ensure!(told.code == 200 && told.backend != first, "{told:?}");
            }
            Ok(())
        })
        .await?;
        for _ in 0..20 {
            assert_eq!(browser.clone().get(&world, "/").await?.backend, first, "its session goes on");
        }
        Ok(())
    })
    .await?;
    world.server.wait_json("/v1/nodes/envoy", |node| node["drainingCount"] == 0).await?;
    goes_elsewhere(&world, &browser, &first).await
}

#[tokio::test]
async fn an_endpoint_that_left_keeps_its_sessions_and_gets_no_new_ones_until_its_time_sotw() -> Result<()> {
    endpoints_drain(Variant::Sotw, Says::Server).await
}

#[tokio::test]
async fn an_endpoint_that_left_keeps_its_sessions_and_gets_no_new_ones_until_its_time_delta() -> Result<()> {
    endpoints_drain(Variant::Delta, Says::Server).await
}

#[tokio::test]
async fn a_service_says_for_itself_how_long_its_endpoints_drain() -> Result<()> {
    endpoints_drain(Variant::Delta, Says::Service).await
}

#[tokio::test]
async fn without_draining_a_request_under_way_ends_by_itself_and_its_session_does_not_go_on() -> Result<()> {
    let (world, _envoy) = three_endpoints_with(Setup::new()?, ONE_BACKEND, Variant::Delta).await?;
    let then = async |browser: &Browser, first: &str| goes_elsewhere(&world, browser, first).await;
    leaves_during_a_request(&world, Says::Nobody, then).await?;
    Ok(())
}

#[tokio::test]
async fn a_scale_down_sends_nothing_to_what_drains() -> Result<()> {
    let setup = Setup::new()?.arg("--drain-endpoints").arg(DRAIN);
    let mut world = World::start_with(setup, &[]).await?;
    world.ports(&["web"])?;
    for name in ["e0", "e1", "e2"] {
        world.backends.insert(name.to_owned(), Backend::start(name).await?);
    }
    let resources = |names: &[&str]| {
        let addrs: Vec<_> = names.iter().map(|name| world.backends[*name].addr()).collect();
        [
            config::listener("web", world.port("web").unwrap_or_default(), "routes"),
            config::route_config("routes", &[("/", config::to("shop"))]),
            config::cluster("shop"),
            config::endpoints("shop", &addrs),
        ]
    };
    world.config.write_resources("all.yaml", &resources(&["e0", "e1", "e2"]))?;
    let _envoy = world.envoy(Variant::Delta).await?;
    world.expect("web", &Ask::get("a", "/"), Told::ensure_ok).await?;
    // One of three is less than half. Below that share of healthy endpoints, an Envoy sends requests to all of them.
    world.config.write_resources("all.yaml", &resources(&["e2"]))?;
    world.server.wait_json("/v1/nodes/envoy", |node| node["drainingCount"] == 2).await?;
    wait_for("no requests where it drains", PATIENCE, async || {
        for _ in 0..30 {
            world.ask("web", &Ask::get("a", "/")).await?.ensure_from("e2")?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_grpc_client_keeps_its_sessions_and_calls_on_an_endpoint_that_left() -> Result<()> {
    let mut world = World::start(&[]).await?;
    world.ports(&["web"])?;
    for name in ["e0", "e1"] {
        world.backends.insert(name.to_owned(), Backend::start(name).await?);
    }
    world.write("service.yaml", &without(&world, "none", Says::Service))?;
    let documents = super::session::gateway_and_route(ONE_BACKEND)
        .replace("kind: HTTPRoute", "kind: GRPCRoute")
        .replace("  rules:", "  hostnames: [shop.example.com]\n  rules:");
    world.write("routes.yaml", &documents)?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///shop.example.com").await?;
    let cookie = STANDARD.encode(format!("{};default/shop/8080", world.backends["e0"].addr()));
    let mut pinned = Calls::new(20);
    pinned.metadata.insert("cookie".to_owned(), format!("sid={cookie}"));
    let all_at = async |calls: &Calls, name: &str| {
        wait_for(&format!("all at {name}"), PATIENCE, async || {
            let counts = channel.call(calls).await?;
            counts.ensure_no_errors()?;
            ensure!(counts.n_of(name) == 20, "{counts:?}");
            Ok(())
        })
        .await
    };
    all_at(&pinned, "e0").await?;
    let n_before = world.backends["e0"].n_requests();
    let mut long = Calls { n: 1, method: format!("/echo.Echo/Who?delay_ms={LONG_MS}"), ..Calls::new(1) };
    long.metadata = pinned.metadata.clone();
    let change = async {
        wait_for("the long call", PATIENCE, async || {
            ensure!(world.backends["e0"].n_requests() > n_before);
            Ok(())
        })
        .await?;
        world.write("service.yaml", &without(&world, "e0", Says::Service))?;
        all_at(&Calls::new(20), "e1").await?;
        let counts = channel.call(&pinned).await?;
        counts.ensure_no_errors()?;
        assert_eq!(counts.n_of("e0"), 20, "its session goes on: {counts:?}");
        anyhow::Ok(())
    };
    let (long, changed) = tokio::join!(channel.call(&long), change);
    changed?;
    let long = long?;
    assert_eq!(long.n_of("e0"), 1, "{long:?}");
    world.server.wait_json("/v1/nodes/grpc", |node| node["drainingCount"] == 0).await?;
    all_at(&pinned, "e1").await
}

/// A listener whose requests may ask to be kept for a while after they were routed.
fn listener_with_delays(port: u16) -> Value {
    let mut listener = config::listener("web", port, "routes");
    let fault = json!({
        "name": "envoy.filters.http.fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "delay": {"header_delay": {}, "percentage": {"numerator": 100}},
        },
    });
    let filters = listener.pointer_mut("/filter_chains/0/filters/0/typed_config/http_filters");
    if let Some(filters) = filters.and_then(Value::as_array_mut) {
        filters.insert(0, fault);
    }
    listener
}

/// The outcome of a request that was routed to the cluster `old`, and looks for it after its removal.
async fn request_of_a_cluster_that_left(drain: &str) -> Result<Told> {
    let mut world = World::start_with(Setup::new()?.arg("--drain-clusters").arg(drain), &[]).await?;
    world.ports(&["web"])?;
    for name in ["old", "new"] {
        world.backends.insert(name.to_owned(), Backend::start(name).await?);
    }
    let resources = |names: &[&str], routed: &str| {
        let mut all = vec![
            listener_with_delays(world.port("web").unwrap_or_default()),
            config::route_config("routes", &[("/", config::to(routed))]),
        ];
        for name in names {
            all.push(config::cluster(name));
            all.push(config::endpoints(name, &[world.backends[*name].addr()]));
        }
        all
    };
    world.config.write_resources("all.yaml", &resources(&["old"], "old"))?;
    let envoy = world.envoy(Variant::Delta).await?;
    world.expect_from("web", &Ask::get("a", "/"), "old").await?;
    let delayed = Ask::get("a", "/").with("x-envoy-fault-delay-request", &LONG_MS.to_string());
    let delayed = delayed.send(([127, 0, 0, 1], world.port("web")?).into());
    let change = async {
        wait_for("the delayed request", PATIENCE, async || {
            let n_delayed = envoy.stat("http.web.fault.active_faults").await?;
            ensure!(n_delayed == 1, "{n_delayed} are delayed");
            Ok(())
        })
        .await?;
        world.config.write_resources("all.yaml", &resources(&["new"], "new"))?;
        world.expect_from("web", &Ask::get("a", "/"), "new").await?;
        if drain == "0s" {
            wait_for("the cluster to be gone", PATIENCE, async || {
                let clusters = envoy.config_dump().await?.active_clusters();
                ensure!(!clusters.contains_key("old"), "{clusters:?}");
                Ok(())
            })
            .await?;
        }
        ensure!(
            envoy.stat("http.web.fault.active_faults").await? == 1,
            "the request was not delayed so long"
        );
        anyhow::Ok(())
    };
    let (told, changed) = tokio::join!(delayed, change);
    changed?;
    if drain != "0s" {
        wait_for("the end of the drain", PATIENCE + Duration::from_secs(10), async || {
            let clusters = envoy.config_dump().await?.active_clusters();
            ensure!(!clusters.contains_key("old"), "{clusters:?}");
            Ok(())
        })
        .await?;
    }
    told.context("the delayed request")
}

#[tokio::test]
async fn a_request_that_was_routed_before_its_cluster_left_is_answered() -> Result<()> {
    request_of_a_cluster_that_left("8s").await?.ensure_from("old")
}

#[tokio::test]
async fn without_draining_a_request_that_was_routed_before_its_cluster_left_fails() -> Result<()> {
    let told = request_of_a_cluster_that_left("0s").await?;
    assert_eq!(told.code, 503, "{told:?}");
    Ok(())
}
