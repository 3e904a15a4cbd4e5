//! Needs of gRPC that an Envoy must meet: streams without end, the caller's deadline, any metadata; and the size of a route.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::documents::World;
use xds_tests::rpc::{Ask, UNIMPLEMENTED};
use xds_tests::server::Variant;
use xds_tests::worker::{Calls, Library};

const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: {web}}]}
---
";

fn route(name: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: [a.com]\n  rules:\n{rules}\n---\n"
    )
}

async fn world(rules: &str) -> Result<World> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &(GATEWAY.to_owned() + &route("r", rules)))?;
    Ok(world)
}

const ONE_BACKEND: &str = "  - backendRefs: [{name: v1, port: 8080}]";

/// Calls to this path take five seconds, unless they are ended before.
const SLOW: &str = "/shop.Shop/Watch?delay_ms=5000";

/// Much less than a slow call takes, for a machine that is busy.
const SHORT: Duration = Duration::from_secs(4);

/// gRPC's status for a deadline that has passed.
const DEADLINE_EXCEEDED: u16 = 4;

#[tokio::test]
async fn an_envoy_cuts_no_stream_after_15_seconds() -> Result<()> {
    let rules = "
  - matches: [{method: {service: split.Split}}]
    backendRefs: [{name: v1, port: 8080, weight: 1}, {name: v2, port: 8080, weight: 1}]
  - matches: [{method: {service: pinned.Pinned}}]
    sessionPersistence: {type: Cookie}
    backendRefs: [{name: v1, port: 8080, weight: 1}, {name: v2, port: 8080, weight: 1}]
  - backendRefs: [{name: v1, port: 8080}]";
    let world = world(rules).await?;
    let envoy = world.envoy(Variant::Delta).await?;
    world.expect_from("web", &Ask::call("a.com", "/shop.Shop/Buy"), "v1").await?;
    let dump = envoy.config_dump().await?;
    let routes = dump.routes();
    let configuration = routes.values().next().context("no routes")?;
    let routes = configuration.pointer("/virtual_hosts/0/routes").and_then(Value::as_array);
    let routes = routes.with_context(|| format!("no routes: {configuration:#}"))?;
    ensure!(routes.len() >= 3, "{configuration:#}");
    for route in routes {
        // Envoy's defaults are 15 seconds in all, and five minutes without a byte.
        for field in
            ["/route/timeout", "/route/idle_timeout", "/route/max_stream_duration/grpc_timeout_header_max"]
        {
            assert_eq!(route.pointer(field), Some(&Value::from("0s")), "{field} of {route:#}");
        }
        assert_eq!(route.pointer("/route/max_stream_duration/max_stream_duration"), None, "{route:#}");
    }
    Ok(())
}

#[tokio::test]
async fn the_deadline_of_the_caller_holds() -> Result<()> {
    let world = world(ONE_BACKEND).await?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &Ask::call("a.com", "/shop.Shop/Buy"), "v1").await?;
    let begin = Instant::now();
    let told = world.ask("web", &Ask::call("a.com", SLOW).with("grpc-timeout", "200m")).await?;
    told.ensure_code(DEADLINE_EXCEEDED)?;
    ensure!(begin.elapsed() < SHORT, "{:?}", begin.elapsed());
    // A sufficient deadline does no harm, even if it is longer than every default of Envoy.
    let slow = Ask::call("a.com", "/shop.Shop/Watch?delay_ms=300").with("grpc-timeout", "600S");
    world.ask("web", &slow).await?.ensure_from("v1")?;

    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///a.com").await?;
        assert_eq!(channel.who().await?, "v1", "{library}");
        let begin = Instant::now();
        let calls = Calls { method: SLOW.to_owned(), limit: Duration::from_millis(200), ..Calls::new(1) };
        let counts = channel.call(&calls).await?;
        assert_eq!(counts.errors.get("DEADLINE_EXCEEDED"), Some(&1), "{library}: {counts:?}");
        ensure!(begin.elapsed() < SHORT, "{library}: {:?}", begin.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn metadata_with_underscores_and_authorities_with_ports_come_through() -> Result<()> {
    let rules = "
  - matches: [{headers: [{name: user_id, value: '7'}]}]
    backendRefs: [{name: v2, port: 8080}]
  - backendRefs: [{name: v1, port: 8080}]";
    let world = world(rules).await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let call = Ask::call("a.com", "/shop.Shop/Buy");
    let told = world.expect_from("web", &call.with("trace_id", "x").with("user_id", "8"), "v1").await?;
    assert_eq!(told.request_header("trace_id")?.as_deref(), Some("x"));
    assert_eq!(told.request_header("user_id")?.as_deref(), Some("8"));
    for host in ["a.com", "a.com:443", &format!("a.com:{}", world.port("web")?)] {
        let call = Ask::call(host, "/shop.Shop/Buy").with("user_id", "7");
        let told = world.expect_from("web", &call, "v2").await?;
        assert_eq!(told.request()?["authority"], host);
    }
    let other = Ask::call("b.com:443", "/shop.Shop/Buy");
    world.expect_code("web", &other, UNIMPLEMENTED).await?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        for target in ["a.com".to_owned(), format!("a.com:{}", world.port("web")?)] {
            let channel = worker.open(&format!("xds:///{target}")).await?;
            let metadata = BTreeMap::from([("user_id".to_owned(), "7".to_owned())]);
            let counts = channel.call(&Calls { metadata, ..Calls::new(3) }).await?;
            assert_eq!(counts.n_of("v2"), 3, "{library} {target}: {counts:?}");
        }
    }
    Ok(())
}

/// Rules of 64 matches, the last of fewer: `/s.S<index>/M` for each.
fn rules(n_matches: usize) -> String {
    let indices: Vec<usize> = (0..n_matches).collect();
    let rule = |indices: &[usize]| {
        let matches: Vec<_> =
            indices.iter().map(|index| format!("{{method: {{service: s.S{index}, method: M}}}}")).collect();
        format!("  - matches: [{}]\n    backendRefs: [{{name: v1, port: 8080}}]\n", matches.join(", "))
    };
    indices.chunks(64).map(rule).collect()
}

#[tokio::test]
async fn a_route_has_128_matches_and_not_one_more() -> Result<()> {
    let world = world(&rules(128)).await?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    for index in [0, 63, 64, 127] {
        let call = Ask::call("a.com", &format!("/s.S{index}/M"));
        world.expect_from("web", &call, "v1").await?;
    }
    let path = world.config.write("more.yaml", &route("more", &rules(129)))?;
    let files = world
        .server
        .wait_json("/v1/status/files", |files| {
            let files = files["files"].as_array().into_iter().flatten();
            files.into_iter().any(|file| file["path"] == *path.to_string_lossy())
        })
        .await?;
    let files = files["files"].as_array().context("no files")?;
    let file = files.iter().find(|file| file["path"] == *path.to_string_lossy()).context("no file")?;
    let diagnostics = file["diagnostics"].as_array().context("no diagnostics")?;
    ensure!(diagnostics.len() == 1, "{file:#}");
    let detail = diagnostics[0]["detail"].as_str().unwrap_or_default();
    let text = "While 16 rules and 64 matches per rule are allowed, the total number of matches across all rules in a \
                route must be less than 128";
    ensure!(detail.contains(text), "{file:#}");
    world.expect_code("web", &Ask::call("a.com", "/s.S128/M"), UNIMPLEMENTED).await?;
    world.expect_from("web", &Ask::call("a.com", "/s.S127/M"), "v1").await.map(drop)
}
