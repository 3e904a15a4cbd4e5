//! The page of the admin port in a real browser, with a real Envoy and a gRPC client attached.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use xds_tests::browser::Browser;
use xds_tests::config::{self, CLUSTER};
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::raw::{self, DeltaStream};
use xds_tests::rpc::Ask;
use xds_tests::server::{Server, Setup, Variant, principal};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

const ROUTES: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: {web}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: web}]
  hostnames: [shop.example.com]
  rules:
  - backendRefs: [{name: v1, port: 8080, weight: 90}, {name: v2, port: 8080, weight: 10}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: greeter}
spec:
  parentRefs: [{name: web}]
  hostnames: [greeter.example.com]
  rules:
  - backendRefs: [{name: v1, port: 8080}]
";

const RULE: &str = "/v1/weights/HTTPRoute/default/shop/0";

/// A server with two backends, an Envoy that is there, and a browser.
struct Cockpit {
    world: World,
    _envoy: Envoy,
    browser: Browser,
}

impl Cockpit {
    /// `None` without a browser.
    async fn start() -> Result<Option<Self>> {
        let Some(browser) = Browser::start().await? else { return Ok(None) };
        let setup = Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()?;
        let mut world = World::start_with(setup, &["v1", "v2"]).await?;
        world.ports(&["web"])?;
        world.write("routes.yaml", ROUTES)?;
        wait_for("the rule", PATIENCE, async || world.server.get(RULE).await?.success()).await?;
        let envoy = Envoy::start(&world.server.bootstrap_envoy("edge-1", Variant::Delta).await?).await?;
        let cockpit = Self { world, _envoy: envoy, browser };
        wait_for("a request", PATIENCE, async || cockpit.backend().await).await?;
        Ok(Some(cockpit))
    }

    async fn open(&self, path: &str) -> Result<()> {
        self.browser.open(&self.server().url(path)).await
    }

    fn server(&self) -> &Server {
        &self.world.server
    }

    /// The backend that a request comes to.
    async fn backend(&self) -> Result<String> {
        let told = self.world.ask("web", &Ask::get("shop.example.com", "/")).await?;
        ensure!(!told.backend.is_empty(), "{told:?}");
        Ok(told.backend)
    }
}

/// Clients of several places and releases: one rejects what it is sent, and one does not answer.
async fn crowd(server: &Server) -> Result<Vec<DeltaStream>> {
    let channel = raw::connect(server.xds()).await?;
    let mut streams = Vec::new();
    for n in 0..24 {
        let (zone, version) = (["a", "b", "c"][n % 3], ["1.40.0", "1.39.1"][usize::from(n % 4 == 0)]);
        let node = Node {
            locality: Some(Locality {
                region: "eu-west".to_owned(),
                zone: zone.to_owned(),
                ..Locality::default()
            }),
            user_agent_name: "envoy".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(version.to_owned())),
            ..raw::node(&format!("edge-{zone}-{n:02}"), "edge")
        };
        let mut stream = DeltaStream::open(channel.clone(), raw::path::ADS_DELTA, node);
        stream.subscribe(CLUSTER, &["*"]).await?;
        let response = stream.expect_response().await?;
        if n == 7 {
            stream
                .nack(&response, "Error adding/updating cluster(s) v2: unknown extension 'acme.lb'")
                .await?;
        } else if n != 13 {
            stream.ack(&response).await?;
        }
        streams.push(stream);
    }
    Ok(streams)
}

const EXTRA: &str = "/v1/groups/default/resources/clusters/extra";

/// Where pictures go, if they are wanted.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("XDS_PICTURES").map(PathBuf::from)
}

/// The screens: what each is called, where it is, and a text that must be seen there.
const SCREENS: [(&str, &str, &str); 13] = [
    ("fleet", "/", "edge-1"),
    ("node", "/nodes/edge-1?config=1", "Its configuration at revision"),
    ("changes", "/changes", "1 of 1 clients"),
    ("change", "/changes/{began}", "weights/HTTPRoute/default/shop/0"),
    ("steps", "/changes/{put}/steps", "Cluster extra"),
    ("rollback", "/changes/{before}/rollback", "Steps in which clients get it"),
    ("canary", "/canary", "Paused"),
    ("rollout", "/canary/rollouts/{rollout}", "Share of the canary"),
    ("routes", "/routes", "shop.example.com"),
    ("object", "/routes/HTTPRoute/default/shop", "Accepted"),
    ("try", "/try?node=edge-1&host=shop.example.com&path=/&beside={before}", "Revision {before}"),
    ("problems", "/problems", "greeter-typo"),
    ("wave", "/canary/waves/{wave}", "Began"),
];

#[tokio::test]
async fn each_screen_shows_what_is_there_to_everybody() -> Result<()> {
    let Some(cockpit) = Cockpit::start().await? else { return Ok(()) };
    let (server, browser) = (cockpit.server(), &cockpit.browser);
    if let Some(worker) = cockpit.world.worker(Library::Grpcio).await? {
        let channel = worker.open("xds:///greeter.example.com").await?;
        channel.call(&Calls::new(3)).await?.ensure_no_errors()?;
        cockpit.open("/?search=grpc").await?;
        browser.wait_text("#nodes", "gRPC").await?;
    }
    let put = server.put(EXTRA, &config::cluster("extra")).await?;
    let put = put["revision"].as_u64().context("a revision")?;
    let rollout = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "shop", "rule": "0"},
        "stable": "v1:8080", "canary": "v2:8080", "steps": [{"setWeight": 30}, {"pause": {}}],
    });
    let id = server.post("/v1/rollouts", &rollout).await?["id"].as_str().context("an id")?.to_owned();
    server.wait_json(&format!("/v1/rollouts/{id}"), |one| one["phase"] == "Paused").await?;
    cockpit
        .world
        .write("typo.yaml", "version: xds-server/v1\nroutes:\n  greeter-typo: {to: nowhere, hots: [a]}\n")?;
    let _crowd = crowd(server).await?;
    for _ in 0..200 {
        cockpit.backend().await?;
    }
    let waved = format!("{EXTRA}?waves=25%25,100%25&hold=1h");
    let mut wave = None;
    for (name, path, wanted) in SCREENS {
        if name == "wave" {
            let mut changed = config::cluster("extra");
            changed["connect_timeout"] = json!("2s");
            let begun = server.put(&waved, &changed).await?;
            wave = begun["waveDeployment"].as_u64();
        }
        let filled = |text: &str| {
            let numbers =
                [("{before}", put - 1), ("{put}", put), ("{began}", put + 1), ("{wave}", wave.unwrap_or(0))];
            let text = text.replace("{rollout}", &id);
            numbers.iter().fold(text, |text, (name, number)| text.replace(name, &number.to_string()))
        };
        let (path, wanted) = (filled(path), &filled(wanted));
        for (look, scheme, width) in
            [("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)]
        {
            browser.prefer(scheme).await?;
            browser.resize(width, 900).await?;
            cockpit.open(&path).await?;
            browser.wait_text("main", wanted).await.with_context(|| format!("{path}, {look}"))?;
            browser.check().await.with_context(|| look.to_owned())?;
            let overflow = browser.run("return document.documentElement.scrollWidth - innerWidth;").await?;
            ensure!(overflow.as_f64() <= Some(0.0), "{path}, {look}: it is {overflow} pixels too wide");
            if let Some(dir) = pictures().filter(|_| look != "phone") {
                fs::write(dir.join(format!("{name}-{look}.webp")), browser.picture().await?)?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn weights_that_are_changed_on_the_page_reach_the_envoy_and_the_bar_fills() -> Result<()> {
    let Some(cockpit) = Cockpit::start().await? else { return Ok(()) };
    let browser = &cockpit.browser;
    cockpit.open("/routes").await?;
    browser.wait_text("#routes", "90 % to").await?;
    browser.click("HTTPRoute default/shop").await?;
    browser.wait_text("h1", "HTTPRoute default/shop").await?;
    browser.click("Change…").await?;
    browser.type_into("[name='percent.v2:8080']", "100").await?;
    browser.click("Change them").await?;
    browser.wait_text(".said", "This is revision").await?;
    browser.wait_text("#progress", "1 of 1").await?;
    let label =
        browser.run("return document.querySelector('#progress svg').getAttribute('aria-label');").await?;
    ensure!(label == "1 acknowledged it", "{label}");
    for _ in 0..20 {
        let backend = cockpit.backend().await?;
        ensure!(backend == "v2", "{backend}");
    }
    browser.check().await?;

    // Somebody else has changed them since the form was shown.
    cockpit.open("/routes/HTTPRoute/default/shop").await?;
    browser.click("Reset…").await?;
    let stale =
        browser.run("document.querySelectorAll('[name=tag]').forEach(tag => tag.value = 'stale');").await;
    stale?;
    browser.click("Use the file's").await?;
    browser.wait_text(".said.failed", "").await?;
    ensure!(cockpit.server().get_json(RULE).await?["overridden"] == true);
    Ok(())
}

#[tokio::test]
async fn a_rejection_is_seen_within_two_seconds_with_its_words() -> Result<()> {
    let Some(cockpit) = Cockpit::start().await? else { return Ok(()) };
    let browser = &cockpit.browser;
    cockpit.open("/").await?;
    browser.wait_text("#counts", "acknowledged").await?;
    browser.wait_text("#link", "live").await?;
    let bad = json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "bad", "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "bad", "endpoints": [{"lb_endpoints": [{"endpoint":
            {"address": {"socket_address": {"address": "not.an.ip", "port_value": 80}}}}]}]},
    });
    cockpit.server().put("/v1/groups/default/resources/clusters/bad?wait=acked", &bad).await.unwrap_err();
    browser.wait_text_within(Duration::from_secs(2), "#nodes", "malformed IP address: not.an.ip").await?;
    let counts = browser.text("#counts").await?;
    ensure!(counts.contains("1 rejects"), "{counts}");
    browser.check().await?;
    cockpit.server().delete("/v1/groups/default/resources/clusters/bad").await?;
    browser.wait_text("#counts", "1 acknowledged").await?;
    Ok(())
}

#[tokio::test]
async fn a_rollout_is_watched_and_steered() -> Result<()> {
    let Some(cockpit) = Cockpit::start().await? else { return Ok(()) };
    let browser = &cockpit.browser;
    let rollout = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "shop", "rule": "0"},
        "stable": "v1:8080", "canary": "v2:8080", "steps": [{"setWeight": 40}, {"pause": {}}, {"setWeight": 60}, {"pause": {}}],
    });
    cockpit.server().post("/v1/rollouts", &rollout).await?;
    cockpit.open("/canary").await?;
    browser.wait_text("#rollouts", "Paused").await?;
    browser.click("shop: v2:8080").await?;
    browser.wait_text("#state", "40 % to v2:8080").await?;
    browser.wait_text("#state", "1 of 1").await?;
    wait_for("a point of the plot", PATIENCE, async || {
        for _ in 0..10 {
            cockpit.backend().await?;
        }
        let lines = browser.run("return document.querySelectorAll('#plots polyline').length;").await?;
        ensure!(lines.as_u64() >= Some(4), "{lines} lines");
        Ok(())
    })
    .await?;
    // What somebody has unfolded stays while the screen goes on.
    browser.click("Abort").await?;
    browser.wait_text("#verbs details[open]", "All traffic goes back to stable now.").await?;
    browser.click("Resume").await?;
    browser.run("document.querySelectorAll('#verbs details')[0].querySelector('button').click();").await?;
    browser.wait_text(".said.done", "resume").await?;
    browser.wait_text("#state", "60 % to v2:8080").await?;
    browser.check().await?;

    // What somebody is about to confirm is not taken for something else when that takes its place.
    browser.wait_text("#verbs", "Resume").await?;
    browser.click("Resume").await?;
    browser.wait_text("#verbs details[open]", "It goes on with the next step.").await?;
    let path = browser.path().await?.replace("/canary/rollouts/", "/v1/rollouts/");
    let path = path.split('?').next().unwrap_or_default();
    cockpit.server().post(&format!("{path}:abort"), &json!({})).await?;
    browser.wait_text("#verbs", "Retry").await?;
    let n_open = browser.run("return document.querySelectorAll('#verbs details[open]').length;").await?;
    ensure!(n_open == 0, "{n_open} are unfolded");
    browser.click("Retry").await?;
    browser.run("document.querySelector('#verbs details[open] button').click();").await?;
    browser.wait_text(".said.done", "retry").await?;
    browser.wait_text("#state", "40 % to v2:8080").await?;
    browser.click("Promote").await?;
    browser.run("document.querySelector('#verbs details[open] button').click();").await?;
    browser.wait_text("#state", "100 % to v2:8080").await?;
    browser.check().await
}

#[tokio::test]
async fn a_wave_deployment_is_watched_and_steered() -> Result<()> {
    let Some(cockpit) = Cockpit::start().await? else { return Ok(()) };
    let (server, browser) = (cockpit.server(), &cockpit.browser);
    let _crowd = crowd(server).await?;
    let begun = server.put(&format!("{EXTRA}?waves=25%25,100%25&hold=1h"), &config::cluster("extra")).await?;
    let id = begun["waveDeployment"].as_u64().context("a wave deployment")?;
    cockpit.open(&format!("/canary/waves/{id}")).await?;
    for (button, phase) in [("Pause", "paused"), ("Resume", "progressing"), ("Abort", "reverted")] {
        browser.click(button).await?;
        browser.run("document.querySelector('main details[open] button').click();").await?;
        browser.wait_text(".said.done", &button.to_lowercase()).await?;
        server.wait_json(&format!("/v1/waves/{id}"), |one| one["phase"] == phase).await?;
    }
    browser.check().await
}

#[tokio::test]
async fn a_revision_is_gone_back_to_as_the_preview_shows_it_or_not_at_all() -> Result<()> {
    let Some(cockpit) = Cockpit::start().await? else { return Ok(()) };
    let (server, browser) = (cockpit.server(), &cockpit.browser);
    let before = server.get_json("/v1/history?limit=1").await?["revisions"][0]["revision"].clone();
    server.put(EXTRA, &config::cluster("extra")).await?;
    cockpit.open(&format!("/changes/{before}/rollback")).await?;
    browser.wait_text("main", "default/clusters/extra").await?;
    // Somebody else is faster.
    let other = "/v1/groups/default/resources/clusters/other";
    server.put(other, &config::cluster("other")).await?;
    let confirm = "document.querySelector('details.confirm[open] button').click();";
    browser.click("Go back to this revision").await?;
    browser.run(confirm).await?;
    browser.wait_text(".said.failed", "").await?;
    server.get_json(other).await?;
    cockpit.open(&format!("/changes/{before}/rollback")).await?;
    browser.click("Go back to this revision").await?;
    browser.run(confirm).await?;
    browser.wait_text(".said.done", "This is revision").await?;
    for gone in [EXTRA, other] {
        let status = server.get(gone).await?.status;
        ensure!(status == StatusCode::NOT_FOUND, "{gone}: {status}");
    }
    browser.check().await
}

/// Who may only look is told so by the API, in its words.
#[tokio::test]
async fn a_viewer_sees_the_screens_and_changes_nothing() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let ((token, lines), (_, of_admin)) = (principal("viewer").await?, principal("admin").await?);
    let file = dir.path().join("access.yaml");
    fs::write(&file, format!("principals:\n{lines}{of_admin}"))?;
    let server = Server::start_with(Setup::new()?.arg(format!("--access-policy={}", file.display()))).await?;
    browser.open(&server.url("/")).await?;
    browser.type_into("#token", &token).await?;
    browser.click("Sign in").await?;
    browser.wait_text("#link", "live").await?;
    browser.open(&server.url("/changes")).await?;
    browser.wait_text("h1", "Changes").await?;
    browser.open(&server.url("/changes/1/rollback")).await?;
    browser.wait_text(".said.failed", "the principal viewer has viewer").await?;
    browser.check().await
}

#[tokio::test]
async fn nobody_sees_anything_without_signing_in() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("token");
    fs::write(&file, "correct-horse-battery")?;
    let server =
        Server::start_with(Setup::new()?.arg(format!("--admin-token-file={}", file.display()))).await?;
    let url = |path: &str| server.url(path);
    browser.open(&url("/changes?source=api")).await?;
    browser.wait_text("h1", "Sign in").await?;
    browser.check().await?;
    browser.type_into("#token", "wrong").await?;
    browser.click("Sign in").await?;
    browser.wait_text(".said.failed", "").await?;
    browser.type_into("#token", "correct-horse-battery").await?;
    browser.click("Sign in").await?;
    browser.wait_text("h1", "Changes").await?;
    ensure!(browser.path().await? == "/changes?source=api", "{}", browser.path().await?);
    browser.wait_text("#link", "live").await?;
    browser.check().await?;
    let cookie = browser.run("return document.cookie;").await?;
    ensure!(cookie == "", "a script sees {cookie}");

    // Another window of the same browser sees nothing more once this one has signed out.
    let form = ("content-type", "application/x-www-form-urlencoded");
    let body = "token=correct-horse-battery&to=/".to_owned();
    let signed_in = server.request("POST", "/ui/sign-in", &[form], body).await?;
    let cookie = signed_in.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let mut window = TcpStream::connect(server.admin()).await?;
    let request =
        format!("GET /ui/live?of=%2F HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\n\r\n", server.admin());
    window.write_all(request.as_bytes()).await?;
    let mut seen = [0; 4096];
    let n = timeout(PATIENCE, window.read(&mut seen)).await??;
    ensure!(String::from_utf8_lossy(&seen[..n]).contains("200 OK"));
    server.request("POST", "/ui/sign-out", &[("cookie", &cookie)], "").await?;
    let mut rest = Vec::new();
    let put = ("authorization", "Bearer correct-horse-battery");
    let body = json!({"name": "x", "connect_timeout": "1s"}).to_string();
    server
        .request(
            "PUT",
            "/v1/groups/default/resources/clusters/x",
            &[put, ("content-type", "application/json")],
            body,
        )
        .await?;
    timeout(PATIENCE, window.read_to_end(&mut rest)).await.context("the stream goes on")??;

    browser.click("Sign out").await?;
    browser.wait_text("h1", "Sign in").await?;
    ensure!(server.log().containing("correct-horse-battery").is_empty());
    Ok(())
}

#[tokio::test]
async fn forms_of_other_sites_change_nothing_and_sign_nobody_in() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let form = ("content-type", "application/x-www-form-urlencoded");
    for foreign in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let answer = server.request("POST", "/ui/do/reload", &[form, foreign], "to=/".to_owned()).await?;
        let said = answer.header("set-cookie").to_owned();
        ensure!(said.contains("failed="), "{}: {said}", answer.status);
        let answer =
            server.request("POST", "/ui/sign-in", &[form, foreign], "token=x&to=/".to_owned()).await?;
        ensure!(answer.status == 401 && answer.header("set-cookie").is_empty(), "{}", answer.status);
        // Nor may it look over the shoulder of somebody who follows a screen.
        for (method, path) in [("GET", "/ui/live?of=/"), ("POST", "/ui/sign-out")] {
            let answer = server.request(method, path, &[foreign], String::new()).await?;
            ensure!(
                answer.status == 403 && answer.header("set-cookie").is_empty(),
                "{path}: {}",
                answer.status
            );
        }
    }
    for nothing_changes in
        ["/ui/live?of=/try", "/ui/live?of=/changes/1/rollback", "/ui/0123456789abcdef/page.js"]
    {
        assert_eq!(server.get(nothing_changes).await?.status, 404, "{nothing_changes}");
    }
    let answer = server.request("POST", "/ui/do/reload", &[form], "to=//evil.example".to_owned()).await?;
    assert_eq!(answer.header("location"), "/");
    let page = server.get("/").await?.success()?;
    let policy = page.header("content-security-policy");
    ensure!(
        policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(server.get("/nodes/nobody").await?.status, 404);
    assert_eq!(server.get("/v1/nothing").await?.header("content-type"), "application/problem+json");
    Ok(())
}

#[tokio::test]
async fn there_may_be_no_page() -> Result<()> {
    let server = Server::start_with(Setup::new()?.arg("--no-ui")).await?;
    server.wait_ready().await?;
    assert_eq!(server.get("/").await?.status, 404);
    server.get_json("/v1/fleet").await?;
    Ok(())
}
