//! Files of route documents that come, change, break and go, with a real Envoy behind them: pitfalls 69 to 76.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::config::ConfigDir;
use xds_tests::documents::{World, service};
use xds_tests::envoy::Envoy;
use xds_tests::rpc::{Ask, UNAVAILABLE};
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

const HTTP: &str = "{name: http, protocol: HTTP, port: {web}}";

fn gateway(name: &str, listeners: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\n\
         spec: {{gatewayClassName: xds-server, listeners: [{listeners}]}}\n---\n"
    )
}

/// A route of the gateway `web` for the host `<name>.com`.
fn route(name: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: [{name}.com]\n  \
         rules: [{{backendRefs: [{{name: {backend}, port: 8080}}]}}]\n---\n"
    )
}

fn get(name: &str) -> Ask {
    Ask::get(&format!("{name}.com"), "/")
}

/// The services `v1`, `v2`, `v3`, the gateway `web`, and an Envoy.
async fn start(files: &[(&str, &str)]) -> Result<(World, Envoy)> {
    let mut world = World::start(&["v1", "v2", "v3"]).await?;
    world.ports(&["web"])?;
    world.write("gateway.yaml", &gateway("web", HTTP))?;
    for (file, text) in files {
        world.write(file, text)?;
    }
    let envoy = world.envoy(Variant::Delta).await?;
    Ok((world, envoy))
}

/// The entry of a file in `GET /v1/status/files`, as soon as its diagnostics have that code.
async fn status_with(world: &World, file: &str, code: &str) -> Result<Value> {
    let path = world.config.path().join(file);
    wait_for("the diagnostic", PATIENCE, async || {
        let status = world.server.get_json("/v1/status/files").await?;
        let files = status["files"].as_array().context("no files")?;
        let found = files.iter().find(|one| Path::new(one["path"].as_str().unwrap_or_default()) == path);
        let found = found.with_context(|| format!("no {file}: {status:#}"))?;
        let diagnostics = found["diagnostics"].as_array().context("no diagnostics")?;
        ensure!(diagnostics.iter().any(|one| one["code"] == code), "no {code}: {found:#}");
        Ok(found.clone())
    })
    .await
}

/// The one diagnostic of a code.
fn diagnostic<'s>(status: &'s Value, code: &str) -> Result<&'s Value> {
    let mut all = status["diagnostics"].as_array().into_iter().flatten();
    all.rfind(|one| one["code"] == code).with_context(|| format!("no {code}: {status:#}"))
}

/// Returns `true` if an object of a file is served as it was last good.
fn is_last_good(status: &Value, name: &str) -> Result<bool> {
    let mut objects = status["objects"].as_array().into_iter().flatten();
    let found = objects.find(|one| one["name"] == format!("default/{name}"));
    let found = found.with_context(|| format!("no {name}: {status:#}"))?;
    Ok(found["lastGood"] == true)
}

#[tokio::test]
async fn pitfall_69_a_bad_document_keeps_its_last_good_version_and_the_others_of_its_file_change()
-> Result<()> {
    let (world, _envoy) = start(&[("routes.yaml", &(route("a", "v1") + &route("b", "v1")))]).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    world.expect_from("web", &get("b"), "v1").await?;
    // Both go to another backend, but the port of `a` is invalid.
    let bad = route("a", "v2").replace("port: 8080", "port: 808080");
    world.write("routes.yaml", &(bad + &route("b", "v2")))?;
    world.expect_from("web", &get("b"), "v2").await?;
    world.ask("web", &get("a")).await?.ensure_from("v1")?;
    let status = status_with(&world, "routes.yaml", "out-of-range").await?;
    let found = diagnostic(&status, "out-of-range")?;
    assert_eq!((&found["severity"], &found["line"]), (&"error".into(), &7.into()), "{found:#}");
    assert_eq!((is_last_good(&status, "a")?, is_last_good(&status, "b")?), (true, false), "{status:#}");
    assert_eq!(status["lastGood"], false, "{status:#}");
    // Conditions are those of what is served.
    let conditions = world.conditions("HTTPRoute", "default", "a").await?;
    assert_eq!(conditions.0["observedGeneration"], 1, "{conditions:?}");

    world.write("routes.yaml", &(route("a", "v3") + &route("b", "v2")))?;
    world.expect_from("web", &get("a"), "v3").await?;
    let conditions = world.conditions("HTTPRoute", "default", "a").await?;
    assert_eq!(conditions.0["observedGeneration"], 2, "{conditions:?}");
    Ok(())
}

#[tokio::test]
async fn pitfall_69_a_bad_file_keeps_all_of_its_documents_and_other_files_go_on() -> Result<()> {
    let (world, _envoy) =
        start(&[("a.yaml", &(route("a", "v1") + &route("b", "v1"))), ("c.yaml", &route("c", "v1"))]).await?;
    for name in ["a", "b", "c"] {
        world.expect_from("web", &get(name), "v1").await?;
    }
    world.write("a.yaml", &(route("a", "v2") + "kind: [unclosed\n"))?;
    world.write("c.yaml", &route("c", "v2"))?;
    world.expect_from("web", &get("c"), "v2").await?;
    for name in ["a", "b"] {
        world.ask("web", &get(name)).await?.ensure_from("v1")?;
    }
    let status = status_with(&world, "a.yaml", "syntax").await?;
    assert_eq!(status["lastGood"], true, "{status:#}");
    assert_eq!((is_last_good(&status, "a")?, is_last_good(&status, "b")?), (true, true), "{status:#}");
    world.write("a.yaml", &route("a", "v2"))?;
    world.expect_from("web", &get("a"), "v2").await?;
    world.expect_code("web", &get("b"), 404).await.map(drop)
}

#[tokio::test]
async fn pitfall_70_no_way_to_save_a_document_costs_a_request() -> Result<()> {
    // An Envoy knows all backends, regardless of `a`: this test is not about clusters that come and go with a route.
    let others = route("b", "v1") + &route("c", "v2") + &route("d", "v3");
    let (world, _envoy) = start(&[("a.yaml", &route("a", "v1")), ("others.yaml", &others)]).await?;
    for (name, backend) in [("a", "v1"), ("b", "v1"), ("c", "v2"), ("d", "v3")] {
        world.expect_from("web", &get(name), backend).await?;
    }
    let path = world.config.path().join("a.yaml");
    for round in 0..12 {
        let backend = ["v2", "v3", "v1"][round % 3];
        let text = route("a", backend);
        match round % 4 {
            0 => drop(world.config.write("a.yaml", &text)?),
            1 => fs::write(&path, &text)?,
            2 => {
                fs::remove_file(&path)?;
                fs::write(&path, &text)?;
            }
            _ => {
                fs::write(&path, "")?;
                fs::write(&path, &text)?;
            }
        }
        wait_for("the backend", PATIENCE, async || {
            let told = world.ask("web", &get("a")).await?;
            assert_eq!(told.code, 200, "way {}: {told:?}", round % 4);
            ensure!(told.backend == backend, "{told:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_71_an_emptied_file_takes_no_route_away() -> Result<()> {
    let (world, _envoy) = start(&[("a.yaml", &route("a", "v1")), ("b.yaml", &route("b", "v1"))]).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    fs::write(world.config.path().join("a.yaml"), "")?;
    let status = status_with(&world, "a.yaml", "empty-file").await?;
    assert_eq!(status["lastGood"], true, "{status:#}");
    // Another change goes through, and has not taken it away.
    world.write("b.yaml", &route("b", "v2"))?;
    world.expect_from("web", &get("b"), "v2").await?;
    world.ask("web", &get("a")).await?.ensure_from("v1")
}

#[tokio::test]
async fn pitfall_72_neither_the_order_of_documents_nor_what_editors_leave_counts() -> Result<()> {
    let mut world = World::start(&[]).await?;
    world.ports(&["web"])?;
    let v1 = xds_tests::backend::Backend::start("v1").await?;
    // From what refers to what is referred to: the route, the gateway, the service, and its endpoints before it.
    world.write("a/routes.yaml", &route("a", "v1"))?;
    world.write("m.yml", &gateway("web", HTTP))?;
    let service = service("default", "v1", 8080, v1.addr());
    let (service, slice) = service.split_once("---\n").context("two documents")?;
    world.write("z/z.json.yaml", &format!("{slice}{service}"))?;
    for name in [".routes.yaml", "routes.yaml~", ".routes.yaml.swp", "4913", "#routes.yaml#", "routes.txt"] {
        world.write(name, &route("a", "nobody"))?;
    }
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    let status = world.server.get_json("/v1/status/files").await?;
    let files = status["files"].as_array().context("no files")?;
    ensure!(files.len() == 3, "{status:#}");
    let clean = files.iter().all(|file| file["diagnostics"].as_array().is_some_and(Vec::is_empty));
    ensure!(clean, "{status:#}");
    Ok(())
}

#[tokio::test]
async fn pitfall_73_three_hundred_files_of_routes_at_once_are_few_publications() -> Result<()> {
    let (world, _envoy) = start(&[]).await?;
    let write = |backend: &str| -> Result<()> {
        for index in 0..300 {
            world.write(&format!("routes/{index}.yaml"), &route(&format!("h{index}"), backend))?;
        }
        Ok(())
    };
    write("v1")?;
    world.expect_from("web", &get("h0"), "v1").await?;
    world.expect_from("web", &get("h299"), "v1").await?;
    let revision = async || {
        let history = world.server.get_json("/v1/history").await?;
        history["revisions"][0]["revision"].as_u64().context("no revision")
    };
    let before = revision().await?;
    write("v2")?;
    for index in [0, 150, 299] {
        world.expect_from("web", &get(&format!("h{index}")), "v2").await?;
    }
    let n = revision().await? - before;
    ensure!((1..=3).contains(&n), "{n} publications");
    Ok(())
}

#[tokio::test]
async fn a_document_in_two_files_is_told_with_both_places_and_stays_its_first_owners() -> Result<()> {
    let (world, _envoy) = start(&[("b.yaml", &route("a", "v1"))]).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    // The name that comes first in order is no claim.
    world.write("a.yaml", &(route("a", "v2") + &route("b", "v2")))?;
    world.expect_from("web", &get("b"), "v2").await?;
    world.ask("web", &get("a")).await?.ensure_from("v1")?;
    for file in ["a.yaml", "b.yaml"] {
        let status = status_with(&world, file, "duplicate-document").await?;
        let found = diagnostic(&status, "duplicate-document")?;
        let other = if file == "a.yaml" { "b.yaml" } else { "a.yaml" };
        let place = serde_json::json!([{"file": world.config.path().join(other), "line": 1, "column": 1}]);
        assert_eq!(found["related"], place, "{found}");
        assert_eq!((&found["line"], &found["column"]), (&1.into(), &1.into()), "{found}");
    }
    // When the owner goes, the other one is all there is.
    world.config.remove("b.yaml")?;
    world.expect_from("web", &get("a"), "v2").await.map(drop)
}

#[tokio::test]
async fn a_grant_that_is_deleted_revokes_what_is_in_use() -> Result<()> {
    let mut world = World::start(&["other/app"]).await?;
    world.ports(&["web"])?;
    let route = route("a", "app")
        .replace("kind: HTTPRoute", "kind: GRPCRoute")
        .replace("{name: app, port: 8080}", "{name: app, namespace: other, port: 8080}");
    let grant = "apiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: other}\n\
                 spec:\n  from: [{group: gateway.networking.k8s.io, kind: GRPCRoute, namespace: default}]\n  \
                 to: [{group: '', kind: Service}]\n";
    world.write("routes.yaml", &(gateway("web", HTTP) + &route))?;
    world.write("grant.yaml", grant)?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    let call = Ask::call("a.com", "/shop.Shop/Buy");
    world.expect_from("web", &call, "app").await?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///a.com").await?;
    assert_eq!(channel.who().await?, "app");
    let of_route = ("GRPCRoute", "default", "a");
    world.expect_condition(of_route, Some(0), ("ResolvedRefs", "True", "ResolvedRefs")).await?;

    world.config.remove("grant.yaml")?;
    world.expect_code("web", &call, UNAVAILABLE).await?;
    world.expect_condition(of_route, Some(0), ("ResolvedRefs", "False", "RefNotPermitted")).await?;
    wait_for("no call", PATIENCE, async || {
        let counts = channel.call(&Calls::new(3)).await?;
        ensure!(counts.errors.get("UNAVAILABLE") == Some(&3), "{counts:?}");
        Ok(())
    })
    .await?;
    // Nothing is left of the way there.
    let n = world.backends["app"].n_requests();
    world.ask("web", &call).await?.ensure_code(UNAVAILABLE)?;
    assert_eq!(world.backends["app"].n_requests(), n);

    world.write("grant.yaml", grant)?;
    world.expect_from("web", &call, "app").await?;
    wait_for("calls", PATIENCE, async || channel.who().await).await.map(drop)
}

#[tokio::test]
async fn a_split_waits_for_its_root() -> Result<()> {
    let mut world = World::start(&[]).await?;
    world.ports(&["web"])?;
    let port = world.port("web")?;
    let mut documents = "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {name: shop}\nspec: \
                         {service: shop, backends: [{service: shop-v1, weight: 0}, {service: shop-v2, weight: 1}]}\n---\n"
        .to_owned();
    for name in ["shop-v1", "shop-v2", "shop"] {
        let backend = xds_tests::backend::Backend::start(name).await?;
        if name != "shop" {
            documents += &service("default", name, port, backend.addr());
        }
        world.backends.insert(name.to_owned(), backend);
    }
    world.write("split.yaml", &documents)?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let of_split = ("TrafficSplit", "default", "shop");
    world.expect_condition(of_split, None, ("Accepted", "False", "RootServiceNotFound")).await?;
    let status = status_with(&world, "split.yaml", "root-service-not-found").await?;
    assert_eq!(diagnostic(&status, "root-service-not-found")?["severity"], "warning", "{status:#}");

    let root = service("default", "shop", port, world.backends["shop"].addr());
    world.write("root.yaml", &root)?;
    let call = Ask::get("shop", "/");
    world.expect_from("web", &call, "shop-v2").await?;
    world.expect_condition(of_split, None, ("Accepted", "True", "Accepted")).await?;
    assert_eq!(world.backends["shop"].n_requests(), 0);
    Ok(())
}

#[tokio::test]
async fn of_two_gateways_with_one_port_the_older_has_it_until_it_goes() -> Result<()> {
    let dated = |name: &str, year: u32| {
        gateway(name, HTTP)
            .replace("metadata: {", &format!("metadata: {{creationTimestamp: {year}-01-01T00:00:00Z, "))
    };
    let of = |name: &str, backend: &str| {
        route("a", backend)
            .replace("{name: a}", &format!("{{name: {name}}}"))
            .replace("[{name: web}]", &format!("[{{name: {name}}}]"))
    };
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    // Neither the name nor the file decides: `zebra` is older.
    world.write("ant.yaml", &(dated("ant", 2021) + &of("ant", "v1")))?;
    world.write("zebra.yaml", &(dated("zebra", 2020) + &of("zebra", "v2")))?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &get("a"), "v2").await?;
    world.expect_listener(("zebra", "http"), ("Programmed", "True", "Programmed")).await?;
    world.expect_listener(("ant", "http"), ("Accepted", "False", "PortUnavailable")).await?;
    world.expect_listener(("ant", "http"), ("Programmed", "False", "Invalid")).await?;
    let status = status_with(&world, "ant.yaml", "port-unavailable").await?;
    let detail = diagnostic(&status, "port-unavailable")?["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("Gateway default/zebra"), "{detail}");

    world.config.remove("zebra.yaml")?;
    world.expect_from("web", &get("a"), "v1").await?;
    world.expect_listener(("ant", "http"), ("Programmed", "True", "Programmed")).await
}

#[tokio::test]
async fn pitfall_74_a_reference_to_nothing_is_a_warning_at_its_place_until_it_is_there() -> Result<()> {
    let (world, _envoy) = start(&[("a.yaml", &route("a", "late"))]).await?;
    world.expect_code("web", &get("a"), 500).await?;
    let status = status_with(&world, "a.yaml", "backend-not-found").await?;
    let found = diagnostic(&status, "backend-not-found")?;
    assert_eq!((&found["severity"], &found["line"]), (&"warning".into(), &7.into()), "{found:#}");
    let metrics = world.server.get("/metrics").await?.text();
    ensure!(metrics.contains("\nxds_file_errors 0\n"), "{metrics}");

    world.write("late.yaml", &service("default", "late", 8080, world.backends["v1"].addr()))?;
    world.expect_from("web", &get("a"), "v1").await?;
    let path = world.config.path().join("a.yaml");
    world
        .server
        .wait_json("/v1/status/files", |status| {
            let files = status["files"].as_array().into_iter().flatten();
            let mut of_file = files.filter(|file| file["path"] == *path.to_string_lossy());
            of_file.next().is_some_and(|file| file["diagnostics"].as_array().is_some_and(Vec::is_empty))
        })
        .await
        .map(drop)
}

#[tokio::test]
async fn pitfall_76_weights_of_documents_that_clients_would_reject_are_refused_or_fail_as_they_should()
-> Result<()> {
    let weighted = |v1: &str, v2: &str| {
        route("a", "v1").replace(
            "[{name: v1, port: 8080}]",
            &format!("[{{name: v1, port: 8080, weight: {v1}}}, {{name: v2, port: 8080, weight: {v2}}}]"),
        )
    };
    let (world, envoy) = start(&[("a.yaml", &weighted("1", "0")), ("b.yaml", &route("b", "v1"))]).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    for (n, (v1, v2, code)) in [
        ("1000001", "1", "out-of-range"),
        ("-1", "1", "out-of-range"),
        ("0.5", "1", "out-of-range"),
        ("'1'", "1", "wrong-type"),
    ]
    .into_iter()
    .enumerate()
    {
        world.write("a.yaml", &weighted(v1, v2))?;
        status_with(&world, "a.yaml", code).await?;
        let backend = ["v2", "v3"][n % 2];
        world.write("b.yaml", &route("b", backend))?;
        world.expect_from("web", &get("b"), backend).await?;
        world.ask("web", &get("a")).await?.ensure_from("v1")?;
    }
    // Large ones are shares like others, and nothing but zeros is a route without a backend.
    world.write("a.yaml", &weighted("0", "1000000"))?;
    world.expect_from("web", &get("a"), "v2").await?;
    world.write("a.yaml", &weighted("0", "0"))?;
    world.expect_code("web", &get("a"), 500).await?;
    world.write("a.yaml", &weighted("1000000", "0"))?;
    world.expect_from("web", &get("a"), "v1").await?;
    let rejected = envoy.stats().await?.into_iter();
    let rejected: Vec<_> = rejected.filter(|(name, n)| name.ends_with("update_rejected") && *n > 0).collect();
    ensure!(rejected.is_empty(), "{rejected:?}");
    Ok(())
}

/// A set of descriptors with one message, `my.Thing`.
fn own_types() -> Vec<u8> {
    use prost::Message as _;
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
    let size = FieldDescriptorProto {
        name: Some("size".to_owned()),
        number: Some(1),
        label: Some(Label::Optional.into()),
        r#type: Some(Type::Uint32.into()),
        ..FieldDescriptorProto::default()
    };
    let message =
        DescriptorProto { name: Some("Thing".to_owned()), field: vec![size], ..DescriptorProto::default() };
    let file = FileDescriptorProto {
        name: Some("my/thing.proto".to_owned()),
        package: Some("my".to_owned()),
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

#[tokio::test]
async fn filters_of_ones_own_are_configured_by_message_types_of_ones_own() -> Result<()> {
    let types = tempfile::tempdir()?;
    let set = types.path().join("own.binpb");
    fs::write(&set, own_types())?;
    let set = set.to_str().context("no UTF-8")?;
    let dir = ConfigDir::new()?;
    let with_size = |size: &str| {
        format!(
            "resources:\n- '@type': type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\n  name: own\n  \
             typed_config: {{'@type': type.googleapis.com/my.Thing, size: {size}}}\n"
        )
    };
    dir.write("own.yaml", &with_size("5"))?;
    let server =
        Server::start_with(Setup::new()?.watch(dir.path()).arg(format!("--descriptors={set}"))).await?;
    server.wait_ready().await?;
    let snapshot = server.get_json("/v1/groups/default/snapshot").await?.to_string();
    ensure!(snapshot.contains(r#""@type":"type.googleapis.com/my.Thing","size":5"#), "{snapshot}");

    let path = dir.path().to_str().context("no UTF-8")?;
    xds_tests::server::cli(&["validate", path, "--descriptors", set]).await?;
    dir.write("own.yaml", &with_size("-1"))?;
    for (args, told) in [
        (vec!["validate", path, "--descriptors", set], "typed_config.size: the number must be from 0"),
        (vec!["validate", path], "my.Thing"),
        (vec!["validate", path, "--descriptors", path], "--descriptors"),
    ] {
        let output = xds_tests::server::xds_server().await?.args(&args).output().await?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(!output.status.success() && text.contains(told), "{args:?}: {text}");
    }
    Ok(())
}
