//! gRFC A60 and GEP-1619: requests of a session stay with their backend. The eight cases of section 6.3.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use xds_tests::backend::Backend;
use xds_tests::documents::{World, service_with};
use xds_tests::envoy::Envoy;
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::{Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

/// A user agent that keeps cookies.
#[derive(Clone, Default)]
pub(super) struct Browser(BTreeMap<String, String>);

impl Browser {
    /// The request that it would make.
    pub(super) fn ask(&self, path: &str) -> Ask {
        self.with_cookies(Ask::get("shop.example.com", path))
    }

    fn with_cookies(&self, ask: Ask) -> Ask {
        if self.0.is_empty() {
            return ask;
        }
        let cookies: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        ask.with("cookie", &cookies.join("; "))
    }

    pub(super) async fn get(&mut self, world: &World, path: &str) -> Result<Told> {
        self.send(world, &self.ask(path)).await
    }

    async fn call(&mut self, world: &World, path: &str) -> Result<Told> {
        self.send(world, &self.with_cookies(Ask::call("shop.example.com", path))).await
    }

    async fn send(&mut self, world: &World, ask: &Ask) -> Result<Told> {
        let told = world.ask("web", ask).await?;
        for cookie in told.headers.get_all("set-cookie") {
            let pair = cookie.to_str()?.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').context("a cookie")?;
            self.0.insert(name.to_owned(), value.trim_matches('"').to_owned());
        }
        Ok(told)
    }
}

pub(super) fn gateway_and_route(rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: web}}\nspec:\n  \
         gatewayClassName: xds-server\n  listeners: [{{name: http, protocol: HTTP, port: {{web}}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: shop}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  rules:\n{rules}\n"
    )
}

/// Three endpoints of one service `shop`: `e0`, `e1`, `e2`.
async fn three_endpoints(rules: &str) -> Result<(World, Envoy)> {
    three_endpoints_with(Setup::new()?, rules, Variant::Delta).await
}

/// Starts it with another setup of the server, and another variant.
pub(super) async fn three_endpoints_with(
    setup: Setup,
    rules: &str,
    variant: Variant,
) -> Result<(World, Envoy)> {
    let mut world = World::start_with(setup, &[]).await?;
    world.ports(&["web"])?;
    let mut addrs = Vec::new();
    for name in ["e0", "e1", "e2"] {
        let backend = Backend::start(name).await?;
        addrs.push(backend.addr());
        world.backends.insert(name.to_owned(), backend);
    }
    world.write("service.yaml", &service_with("default", "shop", 8080, &addrs, ""))?;
    world.write("routes.yaml", &gateway_and_route(rules))?;
    let envoy = world.envoy(variant).await?;
    world.expect("web", &Ask::get("a", "/"), Told::ensure_ok).await?;
    Ok((world, envoy))
}

pub(super) const ONE_BACKEND: &str = "
  - sessionPersistence: {type: Cookie, cookie: {name: sid}}
    backendRefs: [{name: shop, port: 8080}]";

#[tokio::test]
async fn case_1_a_cookie_keeps_the_endpoint() -> Result<()> {
    let (world, _envoy) = three_endpoints(ONE_BACKEND).await?;
    let mut browser = Browser::default();
    let first = browser.get(&world, "/").await?.backend;
    for _ in 0..100 {
        assert_eq!(browser.get(&world, "/").await?.backend, first);
    }
    let mut spread = BTreeSet::new();
    for _ in 0..30 {
        spread.insert(Browser::default().get(&world, "/").await?.backend);
    }
    assert_eq!(spread.len(), 3, "{spread:?}");
    Ok(())
}

fn split(v1: u32, v2: u32) -> String {
    gateway_and_route(&format!(
        "  - sessionPersistence: {{type: Cookie, cookie: {{name: sid}}}}\n    backendRefs: \
         [{{name: v1, port: 8080, weight: {v1}}}, {{name: v2, port: 8080, weight: {v2}}}]"
    ))
}

async fn split_world() -> Result<(World, Envoy)> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &split(70, 30))?;
    let envoy = world.envoy(Variant::Sotw).await?;
    world.expect("web", &Ask::get("a", "/"), Told::ensure_ok).await?;
    Ok((world, envoy))
}

#[tokio::test]
async fn case_2_new_sessions_follow_the_weights_and_each_is_constant() -> Result<()> {
    let (world, _envoy) = split_world().await?;
    let mut n_v2 = 0;
    for _ in 0..200 {
        let mut browser = Browser::default();
        let first = browser.get(&world, "/").await?.backend;
        n_v2 += usize::from(first == "v2");
        for _ in 0..10 {
            assert_eq!(browser.get(&world, "/").await?.backend, first);
        }
    }
    ensure!((35..=85).contains(&n_v2), "{n_v2} of 200 sessions went to v2");
    Ok(())
}

#[tokio::test]
async fn case_3_sessions_stay_when_the_weight_becomes_zero() -> Result<()> {
    let (world, _envoy) = split_world().await?;
    let mut browsers = Vec::new();
    while browsers.len() < 10 {
        let mut browser = Browser::default();
        if browser.get(&world, "/").await?.backend == "v1" {
            browsers.push(browser);
        }
    }
    world.write("routes.yaml", &split(0, 100))?;
    wait_for("new sessions at v2", PATIENCE, async || {
        for _ in 0..20 {
            let told = Browser::default().get(&world, "/").await?;
            ensure!(told.backend == "v2", "{told:?}");
        }
        Ok(())
    })
    .await?;
    for browser in &mut browsers {
        for _ in 0..5 {
            assert_eq!(browser.get(&world, "/").await?.backend, "v1");
        }
    }
    Ok(())
}

#[tokio::test]
async fn case_4_a_session_whose_endpoint_is_gone_gets_another() -> Result<()> {
    let (world, _envoy) = three_endpoints(ONE_BACKEND).await?;
    let mut browser = Browser::default();
    let first = browser.get(&world, "/").await?.backend;
    let cookie = browser.0.clone();
    let rest: Vec<_> =
        world.backends.values().filter(|backend| backend.name() != first).map(Backend::addr).collect();
    world.write("service.yaml", &service_with("default", "shop", 8080, &rest, ""))?;
    wait_for("another endpoint", PATIENCE, async || {
        let mut browser = Browser(cookie.clone());
        let told = browser.get(&world, "/").await?;
        ensure!(told.code == 200 && told.backend != first, "{told:?}");
        ensure!(browser.0 != cookie, "the cookie is the same");
        assert_eq!(browser.get(&world, "/").await?.backend, told.backend);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn case_5_a_draining_endpoint_keeps_its_sessions_and_gets_no_new_ones() -> Result<()> {
    let (world, _envoy) = three_endpoints(ONE_BACKEND).await?;
    let mut browser = Browser::default();
    let first = browser.get(&world, "/").await?.backend;
    let port = world.backends[&first].port();
    let text = std::fs::read_to_string(world.config.path().join("service.yaml"))?;
    let slice = format!("port: {port}}}]\nendpoints: [{{addresses: [127.0.0.1]");
    ensure!(text.contains(&slice), "{text}");
    let draining = format!("{slice}, conditions: {{ready: false, serving: true, terminating: true}}");
    world.config.write("service.yaml", &text.replace(&slice, &draining))?;
    wait_for("no new sessions", PATIENCE, async || {
        for _ in 0..12 {
            let told = Browser::default().get(&world, "/").await?;
            ensure!(told.backend != first, "{told:?}");
        }
        Ok(())
    })
    .await?;
    for _ in 0..20 {
        assert_eq!(browser.get(&world, "/").await?.backend, first);
    }
    Ok(())
}

#[tokio::test]
async fn case_6_and_7_rules_have_cookies_of_their_own_with_their_lifetimes() -> Result<()> {
    let rules = "
  - matches: [{path: {type: PathPrefix, value: /a}}]
    sessionPersistence: {type: Cookie}
    backendRefs: [{name: shop, port: 8080}]
  - matches: [{path: {type: PathPrefix, value: /b}}]
    sessionPersistence: {type: Cookie, absoluteTimeout: 1h, cookie: {lifetimeType: Permanent}}
    backendRefs: [{name: shop, port: 8080}]
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{name: shop, port: 8080}]";
    let (world, _envoy) = three_endpoints(rules).await?;
    let cookie = async |path: &str| {
        let told = Browser::default().get(&world, path).await?;
        let cookie = told.headers.get("set-cookie").context("no cookie")?.to_str()?.to_owned();
        let name = cookie.split('=').next().unwrap_or_default().to_owned();
        anyhow::Ok((name, cookie))
    };
    let ((a, cookie_a), (b, cookie_b)) = (cookie("/a").await?, cookie("/b").await?);
    assert_ne!(a, b);
    ensure!(!cookie_a.contains("Max-Age"), "{cookie_a}");
    ensure!(cookie_b.contains("Max-Age=3600"), "{cookie_b}");
    for one in [&cookie_a, &cookie_b] {
        ensure!(one.contains("Path=/") && one.contains("HttpOnly"), "{one}");
    }
    let told = Browser::default().get(&world, "/c").await?;
    ensure!(!told.headers.contains_key("set-cookie"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_header_keeps_the_endpoint() -> Result<()> {
    let rules = "
  - sessionPersistence: {type: Header, header: {name: x-session}}
    backendRefs: [{name: shop, port: 8080}]";
    let (world, _envoy) = three_endpoints(rules).await?;
    let told = world.ask("web", &Ask::get("a", "/")).await?;
    let session = told.headers.get("x-session").context("no session")?.to_str()?.to_owned();
    for _ in 0..30 {
        let again = world.ask("web", &Ask::get("a", "/").with("x-session", &session)).await?;
        assert_eq!(again.backend, told.backend);
    }
    Ok(())
}

/// A GRPCRoute with sessions over two backends of one endpoint each.
async fn grpc_world() -> Result<World> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    let documents = gateway_and_route(
        "  - sessionPersistence: {type: Cookie, cookie: {name: sid}}\n    backendRefs: \
         [{name: v1, port: 8080, weight: 50}, {name: v2, port: 8080, weight: 50}]",
    );
    let documents = documents
        .replace("kind: HTTPRoute", "kind: GRPCRoute")
        .replace("  rules:", "  hostnames: [greeter.example.com]\n  rules:");
    world.write("routes.yaml", &documents)?;
    Ok(world)
}

#[tokio::test]
async fn case_8_every_grpc_client_takes_the_same_resources() -> Result<()> {
    let world = grpc_world().await?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///greeter.example.com").await?;
        let counts = channel.call(&Calls::new(50)).await?;
        counts.ensure_no_errors()?;
        ensure!(counts.n_of("v1") > 5 && counts.n_of("v2") > 5, "{library}: {counts:?}");
        let node = world.server.wait_json("/v1/nodes/grpc", |node| node["types"].is_object()).await?;
        let types = node["types"].as_object().context("types")?;
        ensure!(types.values().all(|one| one["lastNack"].is_null()), "{library}: {node:#}");
    }
    Ok(())
}

#[tokio::test]
async fn grpcio_honours_the_cookie_of_grfc_a60() -> Result<()> {
    let world = grpc_world().await?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter.example.com").await?;
    for name in ["v1", "v2"] {
        let addr = world.backends[name].addr();
        let cookie = STANDARD.encode(format!("{addr};default/{name}/8080"));
        let mut calls = Calls::new(40);
        calls.metadata.insert("cookie".to_owned(), format!("sid={cookie}"));
        wait_for("all at the pinned backend", PATIENCE, async || {
            let counts = channel.call(&calls).await?;
            counts.ensure_no_errors()?;
            ensure!(counts.n_of(name) == 40, "{counts:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A form of a route with a session by the cookie `sid`.
#[derive(Clone, Copy, Debug)]
enum Form {
    Http,
    Grpc,
    Native,
}

/// The backends of a rule, with their weights.
type Backends = &'static [(&'static str, u32)];

impl Form {
    /// The documents of a step. Its responses have the step in `x-step`.
    fn documents(self, step: usize, backends: Backends) -> String {
        let gateway_api = |kind: &str| {
            let refs = backends
                .iter()
                .map(|(name, weight)| format!("{{name: {name}, port: 8080, weight: {weight}}}"));
            let rule = format!(
                "  - sessionPersistence: {{type: Cookie, cookie: {{name: sid}}}}\n    filters: [{{type: \
                 ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-step, value: '{step}'}}]}}}}]\n    \
                 backendRefs: [{}]",
                refs.collect::<Vec<_>>().join(", "),
            );
            let documents = gateway_and_route(&rule).replace("kind: HTTPRoute", &format!("kind: {kind}"));
            documents.replace("  rules:", "  hostnames: [shop.example.com]\n  rules:")
        };
        match self {
            Self::Http => gateway_api("HTTPRoute"),
            Self::Grpc => gateway_api("GRPCRoute"),
            Self::Native => {
                let to = match backends {
                    [(only, _)] => format!("'{only}:8080'"),
                    several => {
                        let to = several.iter().map(|(name, weight)| format!("'{name}:8080': {weight}"));
                        format!("{{{}}}", to.collect::<Vec<_>>().join(", "))
                    }
                };
                format!(
                    "version: xds-server/v1\nlisteners: {{edge: {{web}}}}\nroutes:\n  shop:\n    hosts: \
                     [shop.example.com]\n    to: {to}\n    session: {{cookie: sid, ttl: 1h}}\n    \
                     set_response_headers: {{x-step: '{step}'}}\n"
                )
            }
        }
    }

    /// The backend of a browser's next answer in this step.
    async fn home(self, world: &World, browser: &mut Browser, step: usize) -> Result<String> {
        wait_for("an answer of this step", PATIENCE, async || {
            let told = match self {
                Self::Http | Self::Native => browser.get(world, "/").await?,
                Self::Grpc => browser.call(world, "/echo.Echo/Who").await?,
            };
            told.ensure_ok()?;
            let seen = told.headers.get("x-step").context("no step")?.to_str()?;
            ensure!(seen == step.to_string(), "step {seen}");
            Ok(told.backend)
        })
        .await
    }
}

/// A canary from its start to its end, then a backend that comes back with a small weight, then one that is alone for a while.
const STEPS: [Backends; 9] = [
    &[("v1", 1)],
    &[("v1", 90), ("v2", 10)],
    &[("v1", 50), ("v2", 50)],
    &[("v1", 0), ("v2", 100)],
    &[("v2", 100), ("v3", 0)],
    &[("v1", 1), ("v2", 99)],
    &[("v2", 1)],
    &[("v1", 1), ("v2", 99)],
    &[("v1", 50), ("v2", 25), ("v3", 25)],
];

/// 60 sessions begin at the first step; each stays with its backend for as long as the rule names the backend.
async fn sixty_sessions_stay(form: Form, variant: Variant) -> Result<()> {
    let mut world = World::start(&["v1", "v2", "v3"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &form.documents(0, STEPS[0]))?;
    let _envoy = world.envoy(variant).await?;
    world
        .expect("web", &Ask::get("shop.example.com", "/"), |told| {
            ensure!(told.code != 404, "{told:?}");
            Ok(())
        })
        .await?;
    let mut sessions = vec![(Browser::default(), String::new()); 60];
    for (step, backends) in STEPS.into_iter().enumerate() {
        world.write("routes.yaml", &form.documents(step, backends))?;
        let mut moved = Vec::new();
        for (browser, home) in &mut sessions {
            let now = form.home(&world, browser, step).await?;
            let may_stay = backends.iter().any(|(name, _)| name == home);
            if may_stay && now != *home {
                moved.push(format!("{home} to {now}"));
            }
            *home = now;
        }
        ensure!(moved.is_empty(), "{backends:?}: {} of 60 sessions moved: {moved:?}", moved.len());
    }
    Ok(())
}

#[tokio::test]
async fn sessions_of_an_http_route_stay_while_backends_join_and_leave() -> Result<()> {
    sixty_sessions_stay(Form::Http, Variant::Delta).await
}

#[tokio::test]
async fn sessions_of_a_grpc_route_stay_while_backends_join_and_leave() -> Result<()> {
    sixty_sessions_stay(Form::Grpc, Variant::Sotw).await
}

#[tokio::test]
async fn sessions_of_a_native_route_stay_while_backends_join_and_leave() -> Result<()> {
    sixty_sessions_stay(Form::Native, Variant::Delta).await
}

#[tokio::test]
async fn grpcio_keeps_sessions_while_backends_join_and_leave() -> Result<()> {
    let mut world = World::start(&["v1", "v2", "v3"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", &Form::Native.documents(0, STEPS[0]))?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///shop.example.com").await?;
    for (step, backends) in STEPS.into_iter().enumerate() {
        world.write("routes.yaml", &Form::Native.documents(step, backends))?;
        for (name, _) in backends {
            let addr = world.backends[*name].addr();
            let mut calls = Calls::new(60);
            let cookie = STANDARD.encode(format!("{addr};default/{name}/8080"));
            calls.metadata.insert("cookie".to_owned(), format!("sid={cookie}"));
            wait_for("all at the backend of their session", PATIENCE, async || {
                let counts = channel.call(&calls).await?;
                counts.ensure_no_errors()?;
                ensure!(counts.n_of(name) == 60, "{backends:?}: {counts:?}");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}
