//! Rollouts with the real server: judged by the load reports of a real Envoy, steered over REST, and killed on the way.

mod absence;
mod answers;
mod busy_routes;
mod calls;
mod cli;
mod clients;
mod grpc;
mod reports;
mod scene;
mod support;
mod testers;
mod verdicts;
mod watch;
mod zones;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use xds_tests::config::ConfigDir;
use xds_tests::documents::service;
use xds_tests::http::Connection;
use xds_tests::random::Random;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::server::{Server, Setup, Variant, cli};
use xds_tests::wait::PATIENCE;

use crate::rollouts::support::{
    Load, ROUTES, RULE, documents, fails_within_two_intervals, start, wait_phase, world,
};

#[tokio::test]
async fn a_failing_canary_is_taken_back_by_load_reports_within_two_intervals() -> Result<()> {
    let world = world().await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let addr = SocketAddr::from(([127, 0, 0, 1], world.port("web")?));
    let load = Load::start(addr).await?;
    world.backends["v2"].fail(0.5);
    let fields = json!({"steps": [
        {"setWeight": 20},
        {"analysis": {"interval": "4s", "count": 100, "minRequests": 20, "maxErrorRate": 5}},
    ]});
    let failed = fails_within_two_intervals(&world.server, &fields).await?;
    let events = failed["events"].to_string();
    ensure!(events.contains("requests of the canary failed; at most 5 % may"), "{failed:#}");
    assert_eq!(failed["weights"], json!({"stable": 100, "canary": 0}));

    // Everything is back on v1: no request fails any more, and v2 gets none.
    let (n, n_failed) = load.stop().await?;
    ensure!(n_failed > 0 && n_failed < n / 5, "{n_failed} of {n}");
    let before = world.backends["v2"].n_requests();
    let mut connection = Connection::open(addr).await?;
    for _ in 0..200 {
        let answer = connection.get("/").await?;
        ensure!(answer.header("x-backend") == "v1", "{}", answer.text());
    }
    assert_eq!(world.backends["v2"].n_requests(), before);
    // The file's weights count again: nothing is left that lies over it.
    assert_eq!(world.server.get_json(RULE).await?["overridden"], false);
    let mut history = world.server.get_json("/v1/history").await?;
    let newest = history["revisions"][0].take();
    assert_eq!(newest["source"], "rollout", "{newest:#}");
    Ok(())
}

#[tokio::test]
async fn a_healthy_canary_gets_everything_and_says_what_to_commit() -> Result<()> {
    let world = world().await?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    let addr = SocketAddr::from(([127, 0, 0, 1], world.port("web")?));
    let load = Load::start(addr).await?;
    let fields = json!({
        "steps": [
            {"setWeight": 20},
            {"analysis": {"interval": "3s", "minRequests": 10, "maxErrorRate": 1, "maxErrorRateOverStable": 1}},
            {"setWeight": 50},
            {"pause": {"duration": "1s"}},
        ],
        "autoPromote": true,
    });
    let id = start(&world.server, &fields).await?;
    // People watch it from a shell.
    let admin = world.server.url("");
    let args = ["rollout", "status", &id, "--watch", "--admin", &admin, "--output", "table"];
    let watched = timeout(Duration::from_secs(60), cli(&args)).await??;
    ensure!(watched.contains("PHASE                Progressing"), "{watched}");
    ensure!(watched.contains("[######........................] 20 %"), "{watched}");
    ensure!(watched.contains("ACKED                [##############################] 1 of 1"), "{watched}");
    ensure!(watched.contains("0.00 %"), "no error rates: {watched}");
    let (_, last) = watched.rsplit_once("commit this to the file:\n").context(watched.clone())?;
    assert_eq!(
        last,
        "# HTTPRoute default/web: the weights of rule 0\nbackendRefs:\n- name: v1\n  port: 8080\n  weight: 0\n\
         - name: v2\n  port: 8080\n  weight: 100\n"
    );
    let (n, n_failed) = load.stop().await?;
    ensure!(n > 100 && n_failed == 0, "{n_failed} of {n} failed");
    let mut connection = Connection::open(addr).await?;
    for _ in 0..100 {
        assert_eq!(connection.get("/").await?.header("x-backend"), "v2");
    }
    let rule = world.server.get_json(RULE).await?;
    assert_eq!(rule["backends"], json!({"v1:8080": 0, "v2:8080": 100}));
    Ok(())
}

#[tokio::test]
async fn a_step_waits_for_every_client_and_a_nack_does_what_the_rollout_says() -> Result<()> {
    let dir = ConfigDir::new()?;
    let addr = SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, addr), service("default", "v2", 8080, addr)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", &documents("8080"))?;
    let server = Server::start_with(Setup::new()?.watch(dir.path())).await?;
    server.wait_ready().await?;
    let names = [ROUTES];
    let mut good = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("good", ""));
    let mut bad = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("bad", ""));
    for stream in [&mut good, &mut bad] {
        stream.subscribe(ROUTE_TYPE, &names).await?;
        let first = stream.expect_type(ROUTE_TYPE).await?;
        stream.ack(&first, &names).await?;
    }
    for (policy, phase) in [("pause", "Paused"), ("abort", "Failed")] {
        let fields = json!({"steps": [{"setWeight": 10}, {"pause": {}}], "onNack": policy});
        let id = start(&server, &fields).await?;
        let path = format!("/v1/rollouts/{id}");
        let response = good.expect_type(ROUTE_TYPE).await?;
        assert_eq!(share_of(&response)?, Some(10));
        good.ack(&response, &names).await?;
        let waiting = server.wait_json(&path, |one| one["acked"]["n"] == 1).await?;
        ensure!(waiting["phase"] == "Progressing" && waiting["verified"] == false, "{waiting:#}");
        assert_eq!(waiting["acked"], json!({"n": 1, "of": 2, "nacked": 0}));
        let response = bad.expect_type(ROUTE_TYPE).await?;
        bad.nack(&response, &names, "", "no such cluster").await?;
        if policy == "pause" {
            let paused = wait_phase(&server, &id, phase, PATIENCE).await?;
            ensure!(
                paused["message"]
                    .to_string()
                    .contains("bad: RouteConfiguration default/web/8080: no such cluster"),
                "{paused:#}"
            );
            assert_eq!(paused["acked"], json!({"n": 1, "of": 2, "nacked": 1}));
            server.post(&format!("{path}:abort"), &json!({})).await?;
        }
        for stream in [&mut good, &mut bad] {
            let back = stream.expect_type(ROUTE_TYPE).await?;
            assert_eq!(share_of(&back)?, Some(0));
            stream.ack(&back, &names).await?;
        }
        let end = if policy == "pause" { "Aborted" } else { phase };
        wait_phase(&server, &id, end, PATIENCE).await?;
    }
    Ok(())
}

const ROUTE_TYPE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// How often the server is killed.
const N_KILLS: u64 = 20;

/// The shares of the canary that there may be, in the order of the steps.
const PLAN: [u64; 8] = [0, 5, 10, 20, 30, 40, 60, 100];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_goes_on_where_it_was_after_kill_9_at_any_moment() -> Result<()> {
    let mut random = Random::from_env()?;
    let dir = ConfigDir::new()?;
    let addr = SocketAddr::from(([127, 0, 0, 1], 9));
    let services = [service("default", "v1", 8080, addr), service("default", "v2", 8080, addr)].concat();
    dir.write("services.yaml", &services)?;
    dir.write("routes.yaml", &documents("8080"))?;
    let mut server = Server::start_with(Setup::new()?.watch(dir.path()).fixed_xds_port()?).await?;
    server.wait_ready().await?;
    let mut steps = Vec::new();
    for share in PLAN.iter().filter(|share| (1..100).contains(*share)) {
        steps.push(json!({"setWeight": share}));
        steps.push(json!({"pause": {"duration": "300ms"}}));
    }
    let id = start(&server, &json!({"steps": steps, "autoPromote": true})).await?;
    let started = Instant::now();
    let path = format!("/v1/rollouts/{id}");
    let mut least = (0, 0);
    for kill in 0..N_KILLS {
        let life = async {
            server.wait_ready().await?;
            let rollout = server.wait_json(&path, |one| one["id"] == id.as_str()).await?;
            check(&server, &rollout, &mut least).await?;
            let watching = tokio::spawn(watch(server.xds()));
            let end = Instant::now() + Duration::from_millis(random.within(0..900));
            while Instant::now() < end {
                sleep(Duration::from_millis(random.within(1..120))).await;
                // After a restart the server waits for clients to come back; an operator need not.
                if random.within(0..3) == 0 {
                    let answer = server.post(&format!("{path}:promote"), &json!({})).await?;
                    check(&server, &answer, &mut least).await?;
                }
            }
            server.kill().await?;
            watching.await??;
            anyhow::Ok(())
        };
        life.await.with_context(|| format!("after {kill} kills at {least:?}\n{}", server.log()))?;
        server.restart().await?;
    }
    let watching = tokio::spawn(watch(server.xds()));
    let done = wait_phase(&server, &id, "Succeeded", Duration::from_secs(60)).await;
    let done = done.with_context(|| server.log().to_string())?;
    server.kill().await?;
    let last = watching.await??;
    assert_eq!(last, Some(100), "{done:#}");
    ensure!(started.elapsed() < Duration::from_secs(170), "{:?}", started.elapsed());
    Ok(())
}

/// Steps are not taken back, and what the rule says is what the rollout says.
async fn check(server: &Server, rollout: &Value, least: &mut (u64, u64)) -> Result<()> {
    let step = rollout["step"].as_u64().context("step")?;
    let canary = rollout["weights"]["canary"].as_u64().context("weights")?;
    ensure!(PLAN.contains(&canary), "{rollout:#}");
    ensure!((step, canary) >= *least, "it was at {least:?}: {rollout:#}");
    *least = (step, canary);
    // The rule may be further by now, never behind.
    let rule = server.get_json(RULE).await?;
    let share = rule["effective"]["v2:8080"].as_f64().context("effective")?;
    ensure!(PLAN.iter().any(|planned| *planned as f64 == share), "{rule:#}");
    ensure!(share >= canary as f64, "{rule:#} and {rollout:#}");
    Ok(())
}

/// A client that accepts routes until the server is gone. Gives the last share of the canary.
async fn watch(xds: SocketAddr) -> Result<Option<u64>> {
    let mut last = None;
    let Ok(channel) = raw::connect(xds).await else { return Ok(last) };
    let mut stream = SotwStream::open(channel, path::ADS, raw::node("edge-1", ""));
    stream.subscribe(ROUTE_TYPE, &[ROUTES]).await?;
    while let Ok(response) = stream.expect_response_within(Duration::from_secs(60)).await {
        let Some(share) = share_of(&response)? else { continue };
        ensure!(PLAN.contains(&share), "{share} % is served");
        ensure!(last.is_none_or(|last| last <= share), "{share} % after {last:?}");
        last = Some(share);
        if stream.ack(&response, &[ROUTES]).await.is_err() {
            break;
        }
    }
    Ok(last)
}

/// The canary's share in percent, in a response with routes.
fn share_of(response: &DiscoveryResponse) -> Result<Option<u64>> {
    let Some(resource) = response.resources.first() else { return Ok(None) };
    let routes = RouteConfiguration::decode(resource.value.as_ref())?;
    let mut routes = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
    let Some(Action::Route(action)) = routes.next().and_then(|route| route.action.as_ref()) else {
        bail!("no route: {response:?}")
    };
    let Some(ClusterSpecifier::WeightedClusters(clusters)) = &action.cluster_specifier else {
        bail!("no weights: {action:?}")
    };
    let weight = |name: &str| {
        let found = clusters.clusters.iter().find(|cluster| cluster.name.contains(name));
        u64::from(found.and_then(|cluster| cluster.weight.as_ref()).map_or(0, |weight| weight.value))
    };
    let (v1, v2) = (weight("/v1/"), weight("/v2/"));
    ensure!(v1 + v2 > 0 && v2 * 100 % (v1 + v2) == 0, "{clusters:?}");
    Ok(Some(v2 * 100 / (v1 + v2)))
}
