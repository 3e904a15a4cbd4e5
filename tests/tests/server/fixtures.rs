//! The examples of `fixtures/`, each with a real Envoy: what their pages promise, with the ports replaced by free ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::rpc::{Ask, UNIMPLEMENTED};
use xds_tests::server::Variant;

/// The ports of backends in the fixtures, as names of backends.
const BACKENDS: [&str; 4] = ["b8081", "b8082", "b8083", "b8084"];

/// The ports on which the fixtures let an Envoy listen, as names of ports.
const LISTENERS: [&str; 5] = ["p10000", "p10010", "p10020", "p8080", "p9090"];

/// Starts backends, a server on a copy of the fixture, and an Envoy.
async fn serve(fixture: &str) -> Result<(World, Envoy)> {
    let world = written(fixture).await?;
    let envoy = world.envoy(Variant::Delta).await?;
    Ok((world, envoy))
}

/// Starts backends and a server, and writes a copy of the fixture, which the server reads soon.
async fn written(fixture: &str) -> Result<World> {
    let mut world = World::start(&BACKENDS).await?;
    world.ports(&LISTENERS)?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(fixture);
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let mut text = fs::read_to_string(&path)?;
        for name in BACKENDS.iter().chain(&LISTENERS) {
            let port = name.trim_start_matches(char::is_alphabetic);
            text = text.replace(port, &format!("{{{name}}}"));
        }
        let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
        world.write(name, &text)?;
    }
    Ok(world)
}

/// Asks until one of these backends answers, then often enough to see that all of them answer and no other does.
async fn answered_by(world: &World, port: &str, ask: &Ask, from: &[&str]) -> Result<()> {
    world
        .expect(port, ask, |told| {
            ensure!(from.contains(&&*told.backend), "{told:?}");
            Ok(())
        })
        .await?;
    let mut found = BTreeSet::new();
    for _ in 0..if from.len() == 1 { 5 } else { 150 } {
        found.insert(world.ask(port, ask).await?.backend);
    }
    ensure!(found.iter().eq(from), "{ask:?} is answered by {found:?}, not {from:?}");
    Ok(())
}

#[tokio::test]
async fn grpc_route_and_native_split_calls_and_answer_no_others() -> Result<()> {
    for fixture in ["grpc-route", "native"] {
        let (world, _envoy) = serve(fixture).await?;
        let call = Ask::call("greeter.example.com", "/helloworld.Greeter/SayHello");
        answered_by(&world, "p10000", &call, &["b8081", "b8082"]).await?;
        let other = Ask::call("greeter.example.com", "/other.Greeter/SayHello");
        world.expect_code("p10000", &other, UNIMPLEMENTED).await?;
        if fixture == "grpc-route" {
            answered_by(&world, "p10000", &call.with("x-version", "v2"), &["b8082"]).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn http_route_tells_paths_apart() -> Result<()> {
    let (world, _envoy) = serve("http-route").await?;
    let get = |path| Ask::get("shop.example.com", path);
    answered_by(&world, "p10000", &get("/cart/1"), &["b8081"]).await?;
    answered_by(&world, "p10000", &get("/cartoon"), &["b8082"]).await?;
    let told = world.expect_code("p10000", &get("/old"), 301).await?;
    let location = told.headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or_default();
    ensure!(location == format!("http://shop.example.com:{}/new", world.port("p10000")?), "{location}");
    world.expect_code("p10000", &Ask::get("other.example.com", "/"), 404).await?;
    Ok(())
}

#[tokio::test]
async fn on_demand_answers_first_requests() -> Result<()> {
    let world = written("on-demand").await?;
    // The first requests count, so all files must have been read before the Envoy comes.
    for route in ["shop", "blog"] {
        for (condition, reason) in [("Accepted", "Accepted"), ("ResolvedRefs", "ResolvedRefs")] {
            let expected = (condition, "True", reason);
            world.expect_condition(("HTTPRoute", "default", route), Some(0), expected).await?;
        }
    }
    let envoy = world.envoy(Variant::Delta).await?;
    envoy.wait_listener(&format!("default/edge/{}", world.port("p10000")?)).await?;
    for (host, backend) in [("shop.example.com", "b8081"), ("blog.example.com", "b8082")] {
        world.ask("p10000", &Ask::get(host, "/")).await?.ensure_from(backend)?;
    }
    world.ask("p10000", &Ask::get("other.example.com", "/")).await?.ensure_code(404)?;
    Ok(())
}

#[tokio::test]
async fn traffic_split_is_for_testers() -> Result<()> {
    let (world, _envoy) = serve("traffic-split").await?;
    let get = |path| Ask::get("website", path);
    answered_by(&world, "p10010", &get("/"), &["b8081"]).await?;
    answered_by(&world, "p10010", &get("/").with("cookie", "type=insider"), &["b8082", "b8083"]).await?;
    answered_by(&world, "p10010", &get("/preview/1"), &["b8082", "b8083"]).await
}

#[tokio::test]
async fn fallback_moves_on_when_nothing_answers() -> Result<()> {
    let (world, _envoy) = serve("fallback").await?;
    let call = Ask::call("shop.example.com", "/shop.Cart/Add");
    answered_by(&world, "p10000", &call, &["b8081"]).await?;
    world.backends.get("b8081").context("a backend")?.stop();
    answered_by(&world, "p10000", &call, &["b8082"]).await
}

#[tokio::test]
async fn sessions_stay_where_they_are() -> Result<()> {
    let (world, _envoy) = serve("sessions").await?;
    let get = Ask::get("shop.example.com", "/");
    answered_by(&world, "p10000", &get, &["b8081", "b8082", "b8083"]).await?;
    for _ in 0..10 {
        let told = world.ask("p10000", &get).await?;
        let cookies = told.headers.get_all("set-cookie").iter();
        let cookies = cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
        let cookies: Vec<&str> = cookies.collect();
        ensure!(cookies.len() == 2, "{told:?}");
        answered_by(&world, "p10000", &get.clone().with("cookie", &cookies.join("; ")), &[&told.backend])
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn mesh_is_the_producers_for_who_is_no_consumer() -> Result<()> {
    let (world, _envoy) = serve("mesh").await?;
    let call = Ask::call("echo.shop", "/echo.Echo/Who");
    answered_by(&world, "p10010", &call, &["b8081", "b8082"]).await
}

#[tokio::test]
async fn reference_grant_lets_the_route_through() -> Result<()> {
    let (world, _envoy) = serve("reference-grant").await?;
    answered_by(&world, "p10000", &Ask::get("any", "/"), &["b8081"]).await
}

#[tokio::test]
async fn seeds_do_what_the_papers_say() -> Result<()> {
    let get = |host| Ask::get(host, "/");
    let firefox = |host| get(host).with("user-agent", "Mozilla/5.0 Firefox/1");
    let call = |host| Ask::call(host, "/helloworld.Greeter/SayHello");
    let table: &[(&str, &str, Ask, &[&str])] = &[
        ("gep-1016", "p10000", call("foo.com").with("magic", "foo"), &["b8081", "b8082"]),
        ("a37", "p10000", call("a37.example.com"), &["b8081"]),
        ("a60", "p10000", call("a60.example.com"), &["b8081", "b8082"]),
        ("smi-canary", "p10010", get("website"), &["b8082", "b8083"]),
        ("smi-ab-test", "p10010", get("website"), &["b8081"]),
        ("smi-ab-test", "p10010", firefox("website"), &["b8083"]),
        ("smi-birds", "p8080", call("birds"), &["b8081", "b8082"]),
        ("smi-birds", "p9090", get("birds"), &["b8083", "b8084"]),
        ("smi-birds-mismatch", "p8080", call("birds"), &["b8081"]),
        ("smi-rollout-begin", "p10010", get("foobar"), &["b8082"]),
        ("smi-rollout-third", "p10010", get("foobar"), &["b8082", "b8083"]),
        ("smi-rollout-end", "p10010", get("foobar"), &["b8083"]),
        ("smi-self-reference", "p10010", get("foobar"), &["b8081", "b8082"]),
        ("smi-implementation", "p10010", get("web"), &["b8082", "b8083"]),
    ];
    for (seed, port, ask, from) in table {
        let (world, _envoy) = serve(&format!("seeds/{seed}")).await?;
        answered_by(&world, port, ask, from).await.with_context(|| (*seed).to_owned())?;
    }
    Ok(())
}

/// SMI's "Workflow" as docs/rest.md goes through it: each request of it, and where the traffic then goes.
#[tokio::test]
async fn rollout_goes_through_the_workflow_of_smi_over_rest() -> Result<()> {
    let (world, _envoy) = serve("rollout").await?;
    let ask = Ask::get("foobar", "/");
    answered_by(&world, "p10020", &ask, &["b8081"]).await?;
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rest.md"))?;
    let (_, section) = page.split_once("\n## A rollout by curl").context("the section of the page")?;
    let body = section.split_once("-d '").and_then(|(_, rest)| rest.split_once('\'')).context("the body")?.0;
    let headers = [("content-type", "application/json")];
    let answer = world.server.request("POST", "/v1/rollouts", &headers, body.to_owned()).await?.success()?;
    let path = answer.header("location").to_owned();
    world.server.wait_json(&path, |one| one["phase"] == "Paused" && one["step"] == 2).await?;
    answered_by(&world, "p10020", &ask, &["b8081", "b8082"]).await?;
    world.server.request("POST", &format!("{path}:resume"), &[], "").await?.success()?;
    let done = world.server.wait_json(&path, |one| one["phase"] == "Succeeded").await?;
    answered_by(&world, "p10020", &ask, &["b8082"]).await?;
    let patch = done["filePatch"].as_str().context("no patch")?;
    ensure!(patch.contains("- service: foobar-v2\n  weight: 100\n"), "{patch}");
    Ok(())
}
