//! Route documents of the admin API, with a real Envoy behind them: applied, overriding files, taken back, kept for good.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use xds_tests::certificates::{Authority, Issued, ask_tls};
use xds_tests::documents::World;
use xds_tests::events::Events;
use xds_tests::http::Answer;
use xds_tests::rpc::Ask;
use xds_tests::server::{Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};

const YAML: (&str, &str) = ("content-type", "application/yaml");
const JSON: (&str, &str) = ("content-type", "application/json");

const GATEWAY: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web}\n\
                       spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: {web}}]}\n---\n";

/// A route of the gateway `web` for the host `<name>.com`.
fn route(name: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: [{name}.com]\n  \
         rules: [{{backendRefs: [{{name: {backend}, port: 8080}}]}}]\n---\n"
    )
}

/// The document as JSON.
fn route_json(name: &str, backend: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": [format!("{name}.com")],
            "rules": [{"backendRefs": [{"name": backend, "port": 8080}]}],
        },
    })
}

fn get(name: &str) -> Ask {
    Ask::get(&format!("{name}.com"), "/")
}

/// The services `v1`, `v2`, `v3` in a file, and a port `web`.
async fn world() -> Result<World> {
    let setup = Setup::new()?.fixed_xds_port()?;
    let mut world = World::start_with(setup, &["v1", "v2", "v3"]).await?;
    world.ports(&["web"])?;
    world.server.wait_ready().await?;
    Ok(world)
}

/// Applies a body, as YAML, with the names of ports replaced.
async fn apply(world: &World, query: &str, documents: &str) -> Result<Value> {
    let body = world.filled(documents);
    let answer = world.server.request("POST", &format!("/v1/apply{query}"), &[YAML], body).await?;
    answer.success()?.json()
}

async fn revision(world: &World) -> Result<u64> {
    let history = world.server.get_json("/v1/history").await?;
    history["revisions"][0]["revision"].as_u64().with_context(|| format!("no revision: {history}"))
}

async fn document(world: &World, name: &str) -> Result<Value> {
    world.server.get_json(&format!("/v1/documents/HTTPRoute/default/{name}")).await
}

/// The name of the first backend in a document.
fn backend_of(document: &Value) -> &Value {
    &document["spec"]["rules"][0]["backendRefs"][0]["name"]
}

#[tokio::test]
async fn what_is_applied_as_yaml_or_json_moves_an_envoy_and_waits_for_it_if_asked() -> Result<()> {
    let world = world().await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let answer = apply(&world, "?wait=acked", &(GATEWAY.to_owned() + &route("a", "v1"))).await?;
    assert_eq!((&answer["committed"], &answer["changed"]), (&true.into(), &true.into()), "{answer:#}");
    assert_eq!((&answer["total"], &answer["acked"]), (&1.into(), &1.into()), "{answer:#}");
    world.expect_from("web", &get("a"), "v1").await?;

    // Now the Envoy has asked for the routes, so the answer waits for its ACK of them.
    let body = route_json("a", "v2").to_string();
    let answer = world.server.request("POST", "/v1/apply?wait=acked", &[JSON], body.clone()).await?;
    let answer = answer.success()?.json()?;
    assert_eq!((&answer["acked"], &answer["pending"]), (&1.into(), &json!([])), "{answer:#}");
    let node = world.server.get_json("/v1/nodes/envoy").await?;
    let types = node["types"].as_object().context("no types")?;
    let routes = types.iter().find(|(url, _)| url.ends_with("RouteConfiguration")).context("no routes")?;
    assert_eq!(routes.1["versionAcked"], routes.1["versionSent"], "{node:#}");
    world.expect_from("web", &get("a"), "v2").await?;

    // A document that is there already is no change.
    let again = world.server.request("POST", "/v1/apply?wait=acked", &[JSON], body).await?.json()?;
    assert_eq!((&again["changed"], &again["revision"]), (&false.into(), &answer["revision"]), "{again:#}");

    let path = "/v1/documents/HTTPRoute/default/a";
    world.server.delete(&format!("{path}?wait=acked")).await?;
    world.expect_code("web", &get("a"), 404).await?;
    assert_eq!(world.server.get(path).await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn a_dry_run_says_the_difference_and_changes_nothing() -> Result<()> {
    let world = world().await?;
    world.write("gateway.yaml", GATEWAY)?;
    apply(&world, "", &route("a", "v1")).await?;
    let envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    let (before, documents) = (revision(&world).await?, world.server.get_json("/v1/documents").await?);
    let updates = "http.web/default/web/rds.update_success";
    let n_updates = envoy.stat(updates).await?;

    let answer = apply(&world, "?dryRun=true", &(route("a", "v2") + &route("b", "v3"))).await?;
    assert_eq!((&answer["committed"], &answer["changed"]), (&false.into(), &true.into()), "{answer:#}");
    let difference = answer["difference"].as_array().context("no difference")?;
    let of = |what: &str| {
        let mut found = difference.iter().filter(|one| one["what"] == what);
        found.next().cloned().with_context(|| format!("no {what}: {difference:#?}"))
    };
    let changed = of("document/HTTPRoute/default/a")?;
    let change = json!([{"pointer": "/spec/rules/0/backendRefs/0/name", "old": "v1", "new": "v2"}]);
    assert_eq!(changed["changes"], change, "{changed:#}");
    let added = of("document/HTTPRoute/default/b")?;
    assert_eq!((&added["before"], backend_of(&added["after"])), (&Value::Null, &json!("v3")), "{added:#}");
    let port = world.port("web")?;
    let routes = of(&format!("generated/envoy/default/routes/default/web/{port}"))?.to_string();
    ensure!(routes.contains("default/v2/8080") && routes.contains("b.com"), "{routes}");

    assert_eq!(revision(&world).await?, before);
    assert_eq!(world.server.get_json("/v1/documents").await?, documents);
    assert_eq!(backend_of(&document(&world, "a").await?["document"]), "v1");
    world.ask("web", &get("a")).await?.ensure_from("v1")?;
    world.ask("web", &get("b")).await?.ensure_code(404)?;
    assert_eq!(envoy.stat(updates).await?, n_updates);
    // A bad body is as bad when it is only tried.
    let bad = world.filled(&route("a", "v2").replace("8080", "0"));
    let answer = world.server.request("POST", "/v1/apply?dryRun=true", &[YAML], bad).await?;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
    Ok(())
}

#[tokio::test]
async fn one_bad_document_of_a_body_keeps_all_of_it_out() -> Result<()> {
    let world = world().await?;
    world.write("routes.yaml", &(GATEWAY.to_owned() + &route("a", "v1")))?;
    let _envoy = world.envoy(Variant::Delta).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    let before = revision(&world).await?;
    let body = route("a", "v2") + &route("b", "v2").replace("parentRefs", "parentRef");
    let bad = body.replace("port: 8080}]}]\n---\n", "prot: 8080}]}]\n---\n");
    let answer = world.server.request("POST", "/v1/apply", &[YAML], bad).await?;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem = answer.json()?;
    let faults = problem["errors"].as_array().context("no errors")?;
    ensure!(faults.iter().any(|fault| fault["line"] == 7), "{problem:#}");
    assert_eq!(revision(&world).await?, before);
    world.ask("web", &get("a")).await?.ensure_from("v1")?;
    assert_eq!(document(&world, "a").await?["source"], "file");
    Ok(())
}

#[tokio::test]
async fn pitfall_77_a_document_of_the_api_hides_the_files_until_it_goes_or_is_equal() -> Result<()> {
    let world = world().await?;
    world.write("gateway.yaml", GATEWAY)?;
    world.write("a.yaml", &route("a", "v1"))?;
    let _envoy = world.envoy(Variant::Delta).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    apply(&world, "?wait=acked", &route("a", "v2")).await?;
    world.expect_from("web", &get("a"), "v2").await?;
    let one = document(&world, "a").await?;
    assert_eq!((&one["source"], &one["overridden"]), (&json!("api"), &json!(true)), "{one:#}");
    assert_eq!(
        (backend_of(&one["document"]), backend_of(&one["fileDocument"])),
        (&json!("v2"), &json!("v1"))
    );
    let file = world.config.path().join("a.yaml");
    assert_eq!((&one["file"]["path"], &one["file"]["line"]), (&json!(file), &json!(1)), "{one:#}");

    // The file may say what it wants.
    world.write("a.yaml", &route("a", "v3"))?;
    let path = "/v1/documents/HTTPRoute/default/a";
    world.server.wait_json(path, |one| backend_of(&one["fileDocument"]) == "v3").await?;
    world.ask("web", &get("a")).await?.ensure_from("v2")?;

    world.server.delete(&format!("{path}?wait=acked")).await?;
    world.expect_from("web", &get("a"), "v3").await?;
    let one = document(&world, "a").await?;
    assert_eq!((&one["source"], &one["overridden"]), (&json!("file"), &json!(false)), "{one:#}");
    let again = world.server.request("DELETE", path, &[], "").await?;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.text());

    // An override that equals the file is dropped; otherwise it would hide the file for ever.
    apply(&world, "", &route("a", "v1")).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    world.write("a.yaml", &route("a", "v1"))?;
    world.server.wait_json(path, |one| one["source"] == "file").await?;
    world.write("a.yaml", &route("a", "v2"))?;
    world.expect_from("web", &get("a"), "v2").await.map(drop)
}

#[tokio::test]
async fn documents_of_the_api_and_the_last_good_of_files_survive_a_stop_and_a_kill() -> Result<()> {
    let mut world = world().await?;
    world.write("gateway.yaml", GATEWAY)?;
    world.write("a.yaml", &(route("a", "v1") + &route("c", "v1")))?;
    let _envoy = world.envoy(Variant::Delta).await?;
    apply(&world, "", &(route("b", "v2") + &route("c", "v2"))).await?;
    let expected = [("a", "v1"), ("b", "v2"), ("c", "v2")];
    for (name, backend) in expected {
        world.expect_from("web", &get(name), backend).await?;
    }
    // From now on, the file cannot be read as a whole, nor the gateway's document.
    world.write("a.yaml", &(route("a", "v3") + "kind: [unclosed\n"))?;
    world.write("gateway.yaml", &GATEWAY.replace("port: {web}", "port: 0"))?;
    world
        .server
        .wait_json("/v1/status/files", |status| status.to_string().matches("\"lastGood\":true").count() > 2)
        .await?;
    let mut later = "v1";
    for ends_gently in [true, false] {
        if ends_gently {
            world.server.stop().await?;
        }
        world.server.restart().await?;
        world.server.wait_ready().await?;
        // The Envoy has come back once it has what is new.
        later = if later == "v1" { "v3" } else { "v1" };
        apply(&world, "", &route("late", later)).await?;
        world.expect_from("web", &get("late"), later).await?;
        for (name, backend) in expected {
            world.ask("web", &get(name)).await?.ensure_from(backend)?;
        }
        let sources = ["a", "b", "c"].map(|name| format!("/v1/documents/HTTPRoute/default/{name}"));
        for (path, source) in sources.iter().zip(["file", "api", "api"]) {
            assert_eq!(world.server.get_json(path).await?["source"], source, "{path}");
        }
        let wanted = ("Accepted", "True", "Accepted");
        world.expect_condition(("HTTPRoute", "default", "a"), Some(0), wanted).await?;
    }
    // And what is mended counts.
    world.write("gateway.yaml", GATEWAY)?;
    world.write("a.yaml", &(route("a", "v3") + &route("c", "v3")))?;
    world.expect_from("web", &get("a"), "v3").await?;
    world.ask("web", &get("c")).await?.ensure_from("v2")
}

#[tokio::test]
async fn a_rollback_brings_the_former_documents_back() -> Result<()> {
    let world = world().await?;
    world.write("gateway.yaml", &(GATEWAY.to_owned() + &route("file", "v3")))?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &get("file"), "v3").await?;
    let empty = revision(&world).await?;
    let first = apply(&world, "", &route("a", "v1")).await?["revision"].as_u64().context("no revision")?;
    world.expect_from("web", &get("a"), "v1").await?;
    apply(&world, "", &(route("a", "v2") + &route("b", "v2"))).await?;
    world.expect_from("web", &get("a"), "v2").await?;
    world.expect_from("web", &get("b"), "v2").await?;

    let rollback =
        async |to: u64| world.server.post("/v1/rollback?wait=acked", &json!({"revision": to})).await;
    let answer = rollback(first).await?;
    world.expect_from("web", &get("a"), "v1").await?;
    world.expect_code("web", &get("b"), 404).await?;
    assert_eq!(backend_of(&document(&world, "a").await?["document"]), "v1");
    let newest = world.server.get_json(&format!("/v1/history/{}", answer["revision"])).await?;
    assert_eq!(newest["source"], "rollback", "{newest:#}");
    let changes = newest["changes"].as_array().context("no changes")?;
    let changes: Vec<_> = changes.iter().map(|one| (&one["what"], &one["change"])).collect();
    let (a, b) = (json!("document/HTTPRoute/default/a"), json!("document/HTTPRoute/default/b"));
    assert_eq!(changes, [(&a, &json!("changed")), (&b, &json!("removed"))], "{newest:#}");

    rollback(empty).await?;
    world.expect_code("web", &get("a"), 404).await?;
    world.ask("web", &get("file")).await?.ensure_from("v3")
}

/// Everything that was heard of the server.
#[derive(Default)]
struct Heard(Vec<String>);

impl Heard {
    fn hear(&mut self, answer: Answer) -> String {
        let text = answer.text();
        self.0.push(text.clone());
        text
    }

    /// Asks every path that can be read.
    async fn read_everything(&mut self, world: &World) -> Result<()> {
        let server = &world.server;
        let mut paths: Vec<String> = [
            "/v1/documents",
            "/v1/documents/Secret/default/by-file",
            "/v1/documents/Secret/default/by-api",
            "/v1/documents/Secret/default/both",
            "/v1/documents/Gateway/default/web",
            "/v1/conditions",
            "/v1/groups/default/snapshot",
            "/v1/groups/default/snapshot?profile=grpc",
            "/v1/nodes",
            "/v1/nodes/envoy",
            "/v1/nodes/envoy/snapshot",
            "/v1/status/files",
            "/v1/history?limit=1000",
            "/metrics",
        ]
        .map(str::to_owned)
        .into();
        let newest = revision(world).await?;
        paths.extend((1..=newest).map(|revision| format!("/v1/history/{revision}")));
        paths.extend((1..newest).map(|revision| format!("/v1/history/{revision}...{newest}")));
        for path in paths {
            self.hear(server.get(&path).await?.success().context(path)?);
        }
        Ok(())
    }

    /// Writes a key in places where it does not belong, by files and by the API.
    async fn write_badly(&mut self, world: &World, broken: &Issued) -> Result<()> {
        let pem = broken.key_pem();
        let one_line = pem.replace('\n', "\\n");
        for bad in [
            secret_in_clear("bad", broken).replace("stringData", "strnigData"),
            secret_in_clear("bad", broken).replace("tls.key: |", "tls.key: ["),
            format!(
                "{{apiVersion: v1, kind: Secret, metadata: {{name: \"{one_line}\"}}, data: {{tls.key: \"{one_line}\"}}}}"
            ),
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: bad}}\ndata: \"{one_line}\"\n"),
            format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: bad}}\ndata: {{tls.key: {{\"{one_line}\": 1}}}}\n"
            ),
        ] {
            for path in ["/v1/apply", "/v1/validate"] {
                self.hear(world.server.request("POST", path, &[YAML], bad.clone()).await?);
            }
            world.write("bad.yaml", &bad)?;
            self.hear(world.server.request("POST", "/v1/reload", &[], "").await?);
            self.hear(world.server.get("/v1/status/files").await?);
        }
        world.config.remove("bad.yaml")?;
        Ok(())
    }

    /// Looks for the key as its text, and as the middle of any base64 of it.
    fn check(&self, world: &World, issued: &[Issued]) -> Result<()> {
        for one in issued {
            let pem = one.key_pem();
            let body: Vec<&str> = pem.lines().filter(|line| !line.starts_with('-')).collect();
            let mut marks: Vec<String> = body.iter().map(|line| line.chars().take(24).collect()).collect();
            let line = body.get(1).context("a key has several lines")?;
            for shift in 0..3 {
                let encoded = STANDARD.encode(format!("{}{line}", "-".repeat(shift)));
                marks.push(encoded.chars().skip(4).take(24).collect());
            }
            for mark in marks {
                for text in &self.0 {
                    let at = text.find(&mark).map(|at| text.floor_char_boundary(at.saturating_sub(200)));
                    ensure!(at.is_none(), "an answer has it: …{}", &text[at.unwrap_or_default()..]);
                }
                let lines = world.server.log().containing(&mark);
                ensure!(lines.is_empty(), "the log has it: {:?}", lines.first());
            }
        }
        Ok(())
    }
}

/// A Secret whose key is a text, as people write it.
fn secret_in_clear(name: &str, issued: &Issued) -> String {
    let key: String = issued.key_pem().lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData:\n  tls.crt: not yet\n  tls.key: |\n{key}---\n"
    )
}

#[tokio::test]
async fn pitfall_68_a_key_of_a_document_is_shown_to_the_envoys_that_need_it_and_to_nobody_else() -> Result<()>
{
    let setup = Setup::new()?.fixed_xds_port()?.arg("--log-level").arg("trace");
    let mut world = World::start_with(setup, &["v1"]).await?;
    world.ports(&["web"])?;
    let (authority, host) = (Authority::new()?, "a.com");
    let issued: Vec<Issued> = (0..5).map(|_| authority.issue(&[host])).collect::<Result<_>>()?;
    let [by_file, by_api, hidden, hiding, broken] = issued.as_slice() else { anyhow::bail!("five") };
    let certificates = "{certificateRefs: [{name: by-file}, {name: by-api}]}";
    let https = format!("name: http, protocol: HTTPS, hostname: {host}, tls: {certificates}");
    let gateway = GATEWAY.replace("name: http, protocol: HTTP", &https);
    world.write("routes.yaml", &(gateway + &route("a", "v1")))?;
    world
        .write("secrets.yaml", &(by_file.secret("default", "by-file") + &hidden.secret("default", "both")))?;
    let events = Events::open(world.server.admin()).await?;
    let mut heard = Heard::default();
    let _envoy = world.envoy(Variant::Delta).await?;

    // Written in every way, good and bad.
    let bodies = [
        by_api.secret("default", "by-api"),
        secret_in_clear("both", hiding),
        secret_in_clear("both", broken),
        hiding.secret("default", "both"),
    ];
    for body in &bodies {
        for path in ["/v1/apply?dryRun=true", "/v1/apply"] {
            let answer = world.server.request("POST", path, &[YAML], body.clone()).await?;
            heard.hear(answer.success()?);
        }
    }
    heard.write_badly(&world, broken).await?;
    // The Envoy has got what it needs.
    let port = world.port("web")?;
    wait_for("TLS", PATIENCE, async || {
        let (told, shown) = ask_tls(&authority, ([127, 0, 0, 1], port), host, &get("a")).await?;
        told.ensure_from("v1")?;
        ensure!([by_file, by_api].iter().any(|one| one.certificate == shown), "another certificate");
        Ok(())
    })
    .await?;
    events
        .wait("\"ack\"")
        .await
        .or_else(|_| events.text().contains("ack").then_some(()).context("no event"))?;
    for life in ["first", "second"] {
        world.server.wait_json("/v1/nodes", |nodes| nodes.to_string().contains("\"envoy\"")).await?;
        heard.read_everything(&world).await.context(life)?;
        if life == "first" {
            heard.0.push(events.text());
            heard.check(&world, &issued)?;
            let answer = world.server.request("DELETE", "/v1/documents/Secret/default/both", &[], "").await?;
            heard.hear(answer.success()?);
            world.server.restart().await?;
            world.server.wait_ready().await?;
        }
    }
    heard.check(&world, &issued)?;
    // Other texts are shown, so something was looked at.
    let n_names = heard.0.iter().filter(|text| text.contains("by-api")).count();
    ensure!(n_names > 10 && heard.0.len() > 60, "{n_names} of {}", heard.0.len());
    Ok(())
}
