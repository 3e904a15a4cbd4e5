//! Explanations agree with real clients: random routes, random requests, and the route that answers says who it is.
//!
//! An Envoy's routes answer by `direct_response`, with their name in a header, and so do its filter chains. Those of gRPC clients abort with a code of their own, by the
//! fault filter, so that no backend is needed. The model shares no code with the clients, nor with what writes resources.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::rustls;
use xds_cache::Resource;
use xds_codec::Codec;
use xds_explain::{ActionKind, Client, Connection, Explanation, Language, Model, Request, RouterCheck};
use xds_tests::backend::{Backend, SHOW};
use xds_tests::config::{ConfigDir, LISTENER, ROUTE, api_listener, cluster, endpoints, static_envoy};
use xds_tests::envoy::Envoy;
use xds_tests::random::Random;
use xds_tests::rpc;
use xds_tests::server::{Server, cli};
use xds_tests::worker::{Calls, Library, Worker};

/// Tables of routes, and requests for each. `XDS_EXPLAIN_TABLES` asks for more tables.
const N_TABLES: usize = 20;
const N_REQUESTS: usize = 100;

fn n_tables() -> Result<usize> {
    match std::env::var("XDS_EXPLAIN_TABLES") {
        Ok(n) => n.parse().context("XDS_EXPLAIN_TABLES"),
        Err(_) => Ok(N_TABLES),
    }
}

#[tokio::test]
async fn an_envoy_sends_requests_where_the_model_says() -> Result<()> {
    let mut random = Random::from_env()?;
    let codec = Codec::new()?;
    let mut n_left = n_tables()?;
    let mut routed = 0;
    while n_left > 0 {
        // As many listeners as one Envoy starts with quickly.
        let n = n_left.min(N_TABLES);
        n_left -= n;
        routed += compare_envoy(&mut random, &codec, n).await?;
    }
    ensure!(routed > n_tables()? * N_REQUESTS / 20, "only {routed} requests reached a route");
    Ok(())
}

/// Compares some tables in one Envoy, and returns how many requests reached a route.
async fn compare_envoy(random: &mut Random, codec: &Codec, n: usize) -> Result<usize> {
    let listeners: Vec<Value> = (0..n).map(|at| envoy_listener(random, &format!("t{at}"))).collect();
    let bootstrap = json!({
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {"listeners": listeners},
    });
    let envoy = Envoy::start(&bootstrap.to_string()).await?;
    let mut routed = 0;
    for (at, listener) in listeners.iter().enumerate() {
        let addr = envoy.wait_listener(&format!("t{at}")).await?;
        let mut typed = listener.clone();
        typed["@type"] = LISTENER.into();
        let model = Model::compile([resource(codec, &typed)?], Client::newest(Language::Envoy));
        for _ in 0..N_REQUESTS {
            let request = envoy_request(random);
            let expected = expected(&model.explain(&request))?;
            let told = send(&request, addr).await?;
            ensure!(
                told == expected,
                "the Envoy says {told:?}, the model {expected:?}\n{request:?}\n{listener}\n{}",
                model.explain(&request).iter().map(|one| one.to_text(true)).collect::<String>(),
            );
            routed += usize::from(!told.is_empty());
        }
    }
    Ok(routed)
}

/// What a route makes of a request, as `router_check_tool` sees it, is what a backend gets.
#[tokio::test]
async fn an_envoy_changes_requests_as_the_model_says() -> Result<()> {
    let codec = Codec::new()?;
    let backend = Backend::start("b").await?;
    let table = changing_routes();
    let mut bootstrap: Value = serde_json::from_str(&static_envoy(backend.addr()))?;
    let manager = &mut bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0];
    manager["typed_config"]["route_config"] = table.clone();
    let envoy = Envoy::start(&bootstrap.to_string()).await?;
    let addr = envoy.wait_listener("http").await?;
    let mut typed = table.clone();
    typed["@type"] = ROUTE.into();
    let model = Model::compile([resource(&codec, &typed)?], Client::newest(Language::Envoy));
    for path in CHANGED.into_iter().chain(ANSWERED) {
        let headers = [("x-a", "1"), ("x-b", "2"), ("x-gone", "3")];
        let request = Request {
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            route_config: Some("t".to_owned()),
            random: Some(0),
            router_check: Some(RouterCheck::default()),
            ..Request::get("a.test", path)
        };
        let explained = model.explain(&request);
        let outcome = explained.first().and_then(|one| one.outcomes.first()).context("no outcome")?;
        let checked = outcome.checked.as_ref().with_context(|| format!("{path}: {outcome:?}"))?;
        let asked =
            headers.iter().fold(rpc::Ask::get("a.test", path), |ask, (name, value)| ask.with(name, value));
        let told = asked.with(SHOW, "1").send(addr).await?;
        let known =
            |value: &Result<String, String>| value.clone().map_err(|why| anyhow::anyhow!("{path}: {why}"));
        if checked.code != 0 {
            assert_eq!(u32::from(told.code), checked.code, "{path}");
            let location = told.headers.get("location").and_then(|value| value.to_str().ok());
            if (300..400).contains(&checked.code) {
                assert_eq!(location, Some(&*known(&checked.redirect)?), "{path}");
            }
            for name in ["content-type", "content-length", "x-answer"] {
                let got = told.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
                // An answer without a body says so in its own way.
                if got != "0" {
                    assert_eq!(got, known(&checked.response.first(name))?, "{path} {name}");
                }
            }
            continue;
        }
        let got = told.request().with_context(|| format!("{path} as {:?}", checked.path))?;
        assert_eq!(got["path"], *known(&checked.path)?, "{path}");
        assert_eq!(got["authority"], *known(&checked.host)?, "{path}");
        for name in COMPARED {
            let got = told.request_header(name)?.unwrap_or_default();
            assert_eq!(
                got,
                checked.request.joined(name).map_err(anyhow::Error::msg)?,
                "{path} {name}\n{told:?}"
            );
        }
        assert_eq!(told.headers["x-answer"].to_str()?, known(&checked.response.first("x-answer"))?);
    }
    Ok(())
}

/// Paths of requests that reach the backend changed.
const CHANGED: [&str; 10] = [
    "/prefix",
    "/prefix/x?q=/prefix",
    "/exact?q",
    "/regex/a1/b22",
    "/empty/12a",
    "/regex/?1",
    "/v7/x/y",
    "/whole/a?b",
    "/order?o",
    "/named/h.test/p?1",
];

/// Paths of requests that the Envoy answers itself.
const ANSWERED: [&str; 5] = ["/to-prefix/x?q", "/to-regex/a1b2?3", "/to-host?q", "/to-path?q", "/answer"];

/// Headers that the backend gets.
const COMPARED: [&str; 9] = [
    "x-order",
    "x-path",
    "x-a",
    "x-b",
    "x-c",
    "x-gone",
    "x-percent",
    "x-forwarded-host",
    "x-envoy-original-path",
];

/// Routes that change requests in each way that is modelled.
fn changing_routes() -> Value {
    let add = |key: &str, value: &str, action: &str| json!({"header": {"key": key, "value": value}, "append_action": action});
    let (append, overwrite) = ("APPEND_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS_OR_ADD");
    let regex = |pattern: &str, substitution: &str| json!({"pattern": {"regex": pattern}, "substitution": substitution});
    json!({"name": "t",
    "request_headers_to_add": [add("x-order", "table", append)],
    "virtual_hosts": [{"name": "h", "domains": ["*"],
        "request_headers_to_add": [add("x-order", "host", append), add("x-a", "never", "ADD_IF_ABSENT"), add("x-b", "%REQ(x-a)%%%", overwrite)],
        "request_headers_to_remove": ["x-gone"],
        "response_headers_to_add": [add("x-answer", "host", overwrite)],
        "routes": [
            {"match": {"prefix": "/prefix"}, "request_headers_to_add": [add("x-order", "route", append), add("x-path", "%REQ(:path)%", append)],
             "route": {"cluster": "backend", "prefix_rewrite": "/p", "host_rewrite_literal": "new.test", "append_x_forwarded_host": true}},
            {"match": {"path": "/exact"}, "route": {"cluster": "backend", "prefix_rewrite": "/", "host_rewrite_header": "x-a"}},
            {"match": {"safe_regex": {"regex": "/v[0-9].*"}}, "route": {"cluster": "backend", "prefix_rewrite": "/all"}},
            {"match": {"prefix": "/regex"}, "route": {"cluster": "backend", "regex_rewrite": regex("([a-z]+)([0-9]?)", "\\2-\\1.")}},
            {"match": {"prefix": "/whole"}, "route": {"cluster": "backend", "regex_rewrite": regex("^/whole/(.*)$", "/\\1\\0")}},
            {"match": {"prefix": "/named"}, "route": {"cluster": "backend", "host_rewrite_path_regex": regex("^/named/([^/]*)/.*$", "\\1")}},
            {"match": {"prefix": "/empty"}, "route": {"cluster": "backend", "regex_rewrite": regex("[0-9]*", "/")}},
                {"match": {"prefix": "/to-prefix"}, "redirect": {"prefix_rewrite": "/new", "https_redirect": true}},
            {"match": {"prefix": "/to-regex"}, "redirect": {"regex_rewrite": regex("[0-9]", "n"), "response_code": "TEMPORARY_REDIRECT"}},
            {"match": {"prefix": "/to-host"}, "redirect": {"host_redirect": "b.test", "port_redirect": 8443, "strip_query": true}},
            {"match": {"prefix": "/to-path"}, "redirect": {"path_redirect": "/fixed", "response_code": "SEE_OTHER"}},
            {"match": {"path": "/answer"}, "direct_response": {"status": 418, "body": {"inline_string": "short"}}},
            {"match": {"prefix": "/"},
             "request_headers_to_add": [add("x-order", "route", append), add("x-c", "%REQ(none?x-b)%", append), add("x-percent", "%REQ(none)%", append)],
             "route": {"weighted_clusters": {"clusters": [
                {"name": "backend", "weight": 1, "request_headers_to_add": [add("x-order", "member", append)], "host_rewrite_literal": "member.test"}]}}},
        ]}]})
}

/// The name of the route that answers; empty if there is none.
async fn send(request: &Request, addr: SocketAddr) -> Result<String> {
    let mut sent = rpc::Ask::get(&request.authority, &request.path).method(request.method.parse::<Method>()?);
    for (name, value) in &request.headers {
        sent = sent.with(name, value);
    }
    let told = sent.send(addr).await?;
    // A gRPC request without a route is answered by 200 and a status of its own.
    let is_right = told.code == 200 || told.code == 404 && told.backend.is_empty();
    ensure!(is_right, "{} to {request:?}", told.code);
    Ok(told.backend)
}

/// The name of the route that the model says; empty if there is none.
fn expected(explained: &[Explanation]) -> Result<String> {
    let [one] = explained else { bail!("{} explanations", explained.len()) };
    ensure!(one.unknown.is_empty() && !one.has_more, "{}", one.to_text(true));
    let [outcome] = &*one.outcomes else { bail!("{} outcomes: {}", one.outcomes.len(), one.to_text(true)) };
    let Some(index) = outcome.route else { return Ok(String::new()) };
    let route = one.routes.iter().find(|route| route.index == index).context("the route is not shown")?;
    Ok(route.element.name.clone())
}

fn resource(codec: &Codec, json: &Value) -> Result<Arc<Resource>> {
    let resource = codec.resource_from_json(json);
    Ok(Arc::new(resource.map_err(|faults| anyhow::anyhow!("{faults:?}\n{json:#}"))?))
}

macro_rules! with_each_library {
    ($($name:ident: $library:ident, $language:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() -> Result<()> {
                compare_grpc(Library::$library, Language::$language).await
            }
        )+
    };
}

with_each_library! {
    grpcio_sends_calls_where_the_model_says: Grpcio, CCore;
    grpc_go_sends_calls_where_the_model_says: GrpcGo, Go;
    grpc_js_sends_calls_where_the_model_says: GrpcJs, Js;
}

async fn compare_grpc(library: Library, language: Language) -> Result<()> {
    let mut random = Random::from_env()?;
    let codec = Codec::new()?;
    let mut resources = vec![cluster("c"), endpoints("c", &["127.0.0.1:1".parse()?])];
    for table in 0..n_tables()? {
        resources.push(grpc_table(&mut random, table));
        for host in GRPC_HOSTS {
            resources.push(grpc_listener(&format!("{host}.t{table}"), &format!("table{table}")));
        }
    }
    let dir = ConfigDir::new()?;
    dir.write_resources("all.yaml", &resources)?;
    let server = Server::start(dir.path()).await?;
    let Some(worker) = Worker::start(library, &server.bootstrap_grpc("explain").await?).await? else {
        return Ok(());
    };
    let served = resources.iter().map(|json| resource(&codec, json)).collect::<Result<Vec<_>>>()?;
    let model = Model::compile(served, Client::newest(language));
    let mut routed = 0;
    for table in 0..n_tables()? {
        let written = resources.iter().find(|json| json["name"] == format!("table{table}"));
        for host in GRPC_HOSTS {
            let target = format!("{host}.t{table}");
            let channel = worker.open(&format!("xds:///{target}")).await?;
            for _ in 0..N_REQUESTS / GRPC_HOSTS.len() {
                let mut request =
                    Request::call(&target, one_of(&mut random, &["s/m", "s/n", "t/m", "S/m", "s/mm"]));
                let headers = random_headers(&mut random);
                let metadata: BTreeMap<String, String> = headers.into_iter().collect();
                request.headers.extend(metadata.clone());
                let explained = model.explain(&request);
                let expected = expected_code(&explained)?;
                let mut calls = Calls { method: request.path.clone(), metadata, ..Calls::new(1) };
                if expected == WAITS {
                    calls.limit = Duration::from_millis(500);
                }
                let counts = channel.call(&calls).await?;
                let told = counts.errors.keys().next().cloned().unwrap_or_default();
                ensure!(
                    told == expected,
                    "{library} says {counts:?}, the model {expected:?}\n{request:?}\n{}\n{}",
                    written.unwrap_or(&Value::Null),
                    explained.iter().map(|one| one.to_text(true)).collect::<String>(),
                );
                routed += usize::from(told != UNAVAILABLE && told != WAITS);
                if told == WAITS {
                    // So do all other calls to this target.
                    break;
                }
            }
            channel.close().await?;
        }
    }
    ensure!(routed > n_tables()? * N_REQUESTS / 20, "only {routed} calls reached a route");
    Ok(())
}

/// The status of a call that no route takes.
const UNAVAILABLE: &str = "UNAVAILABLE";

/// The status of a call that waits for routes.
const WAITS: &str = "DEADLINE_EXCEEDED";

fn expected_code(explained: &[Explanation]) -> Result<String> {
    let [one] = explained else { bail!("{} explanations", explained.len()) };
    let [outcome] = &*one.outcomes else { bail!("{} outcomes: {}", one.outcomes.len(), one.to_text(true)) };
    if outcome.action != ActionKind::Aborted {
        let status = outcome.status.as_deref().and_then(|status| status.rsplit(' ').next());
        return Ok(status.unwrap_or(UNAVAILABLE).to_owned());
    }
    let status =
        outcome.status.as_deref().and_then(|status| status.strip_prefix("grpc ")).context("no status")?;
    let found = CODES.iter().find(|(code, _)| code.to_string() == status);
    Ok(found.context("another code")?.1.to_owned())
}

/// Codes that no client makes up itself while there are routes.
const CODES: [(u32, &str); 12] = [
    (2, "UNKNOWN"),
    (3, "INVALID_ARGUMENT"),
    (5, "NOT_FOUND"),
    (6, "ALREADY_EXISTS"),
    (7, "PERMISSION_DENIED"),
    (8, "RESOURCE_EXHAUSTED"),
    (9, "FAILED_PRECONDITION"),
    (10, "ABORTED"),
    (11, "OUT_OF_RANGE"),
    (12, "UNIMPLEMENTED"),
    (15, "DATA_LOSS"),
    (16, "UNAUTHENTICATED"),
];

fn one_of<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.within(0..all.len() as u64) as usize]
}

fn chance(random: &mut Random, percent: u64) -> bool {
    random.within(0..100) < percent
}

fn envoy_listener(random: &mut Random, name: &str) -> Value {
    let mut hosts = Vec::new();
    let mut used: Vec<String> = Vec::new();
    for host in 0..1 + random.within(0..5) {
        let mut domains: Vec<&str> = Vec::new();
        for _ in 0..1 + random.within(0..2) {
            let domain = one_of(random, &ENVOY_DOMAINS);
            if !used.contains(&domain.to_lowercase()) {
                used.push(domain.to_lowercase());
                domains.push(domain);
            }
        }
        if domains.is_empty() {
            continue;
        }
        let mut own = json!({"name": format!("h{host}"), "domains": domains});
        if chance(random, 40) {
            let mut n_routes = 0;
            let mut leaf = |random: &mut Random| route_action(random, host, &mut n_routes);
            own["matcher"] = matcher(random, &request_input, &mut leaf, 0);
        } else {
            let routes =
                (0..1 + random.within(0..6)).map(|route| envoy_route(random, &format!("{host}/{route}")));
            own["routes"] = routes.collect();
        }
        hosts.push(own);
    }
    let mut table = json!({"name": name, "virtual_hosts": hosts});
    if chance(random, 30) {
        table["ignore_port_in_host_matching"] = true.into();
    }
    if chance(random, 20) {
        table["ignore_path_parameters_in_path_matching"] = true.into();
    }
    let mut manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": table,
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        }}],
    });
    for field in [
        "normalize_path",
        "merge_slashes",
        "strip_any_host_port",
        "strip_trailing_host_dot",
        "use_remote_address",
    ] {
        if chance(random, 30) {
            manager[field] = true.into();
        }
    }
    json!({
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

/// A tree of matchers, nested at most twice. `leaf` makes its actions.
fn matcher(
    random: &mut Random,
    input: &dyn Fn(&mut Random) -> (Value, &'static [&'static str]),
    leaf: &mut dyn FnMut(&mut Random) -> Value,
    depth: usize,
) -> Value {
    let mut on_match = |random: &mut Random| match depth < 2 && chance(random, 35) {
        true => json!({"matcher": matcher(random, input, leaf, depth + 1)}),
        false => json!({"action": {"name": "a", "typed_config": leaf(random)}}),
    };
    let mut tree = match random.within(0..4) {
        kind @ (0 | 1) => {
            let (input, texts) = input(random);
            let mut keys = json!({});
            for _ in 0..1 + random.within(0..3) {
                keys[one_of(random, texts)] = on_match(random);
            }
            let kind = if kind == 0 { "exact_match_map" } else { "prefix_match_map" };
            json!({"matcher_tree": {"input": {"name": "i", "typed_config": input}, kind: {"map": keys}}})
        }
        _ => {
            let branches = (0..1 + random.within(0..3))
                .map(|_| json!({"predicate": predicate(random, input, 0), "on_match": on_match(random)}));
            json!({"matcher_list": {"matchers": branches.collect::<Vec<_>>()}})
        }
    };
    if chance(random, 50) {
        tree["on_no_match"] = on_match(random);
    }
    tree
}

fn predicate(
    random: &mut Random,
    input: &dyn Fn(&mut Random) -> (Value, &'static [&'static str]),
    depth: usize,
) -> Value {
    let several = |random: &mut Random| {
        let all = (0..2).map(|_| predicate(random, input, depth + 1));
        json!({"predicate": all.collect::<Vec<_>>()})
    };
    match random.within(0..7) {
        0 if depth < 2 => json!({"or_matcher": several(random)}),
        1 if depth < 2 => json!({"and_matcher": several(random)}),
        2 if depth < 2 => json!({"not_matcher": predicate(random, input, depth + 1)}),
        _ => {
            let (input, texts) = input(random);
            // The empty text is refused in most matchers.
            let texts: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
            let kind = one_of(random, &["exact", "exact", "prefix", "suffix", "contains", "safe_regex"]);
            let text = one_of(random, &texts);
            let text = match kind {
                "safe_regex" => json!({"google_re2": {}, "regex": format!("[{}].*", &text[..1])}),
                _ => json!(text),
            };
            let mut value = json!({kind: text});
            if kind != "safe_regex" && chance(random, 25) {
                value["ignore_case"] = true.into();
            }
            let input = json!({"name": "i", "typed_config": input});
            json!({"single_predicate": {"input": input, "value_match": value}})
        }
    }
}

/// An input of requests, and texts that it may be.
fn request_input(random: &mut Random) -> (Value, &'static [&'static str]) {
    let name = one_of(random, &["x", "x", "y", "X", "n", ":method", ":path", "host", "content-type"]);
    let texts: &[&str] = match name {
        ":method" => &["GET", "POST", "P", "G"],
        ":path" => &["/", "/a", "/a/", "/a/b", "/b", "/a?q=1", "/A"],
        "host" => &["a.test", "A.test", "a", "b.test", "x."],
        "content-type" => &["application/grpc", "application/", "application/json"],
        _ => &["", "1", "2", "1,2", "a", "A", "ab", "9", "+"],
    };
    (json!({"@type": REQUEST_HEADER, "header_name": name}), texts)
}

const REQUEST_HEADER: &str = "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput";

/// A route or a list of routes, with names of their own.
fn route_action(random: &mut Random, host: u64, n_routes: &mut usize) -> Value {
    let mut route = |random: &mut Random| {
        *n_routes += 1;
        envoy_route(random, &format!("{host}/{n_routes}"))
    };
    if chance(random, 30) {
        let routes: Vec<Value> = (0..1 + random.within(0..3)).map(|_| route(random)).collect();
        return json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteList", "routes": routes});
    }
    let mut action = route(random);
    if chance(random, 50) {
        action["match"] = json!({"prefix": "/"});
    }
    action["@type"] = "type.googleapis.com/envoy.config.route.v3.Route".into();
    action
}

/// Connections for each listener with a tree of filter chains.
const N_CONNECTIONS: usize = 40;

#[tokio::test]
async fn an_envoy_chooses_filter_chains_as_the_model_says() -> Result<()> {
    let mut random = Random::from_env()?;
    let codec = Codec::new()?;
    let listeners: Vec<Value> =
        (0..n_tables()?).map(|at| chained_listener(&mut random, &format!("l{at}"))).collect();
    let bootstrap = json!({
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {"listeners": listeners},
    });
    let envoy = Envoy::start(&bootstrap.to_string()).await?;
    let mut named = 0;
    for (at, listener) in listeners.iter().enumerate() {
        let name = format!("l{at}");
        let addr = envoy.wait_listener(&name).await?;
        let mut typed = listener.clone();
        typed["@type"] = LISTENER.into();
        let model = Model::compile([resource(&codec, &typed)?], Client::newest(Language::Envoy));
        for _ in 0..N_CONNECTIONS {
            let connection = random_connection(&mut random, &name);
            let request = Request { connection: connection.clone(), ..Request::get("127.0.0.1", "/") };
            let explained = model.explain(&request);
            let [one] = &*explained else { bail!("{} explanations", explained.len()) };
            let chain = one.listener.as_ref().and_then(|listener| listener.chain.clone());
            let expected = chain.unwrap_or_default();
            // An answer may be lost when an Envoy closes a connection from which it has not read everything.
            let mut told = connect(addr, &connection).await?;
            for _ in 0..3 {
                if told == expected || !told.is_empty() {
                    break;
                }
                told = connect(addr, &connection).await?;
            }
            ensure!(
                told == expected,
                "the Envoy says {told:?}, the model {expected:?}\n{connection:?}\n{listener}\n{}",
                one.to_text(true),
            );
            named += usize::from(!told.is_empty() && told != "default");
        }
    }
    ensure!(named > n_tables()? * N_CONNECTIONS / 10, "only {named} connections reached a chain by name");
    Ok(())
}

/// A listener whose chains answer with their names.
fn chained_listener(random: &mut Random, name: &str) -> Value {
    let chain = |name: &str| {
        json!({"name": name, "filters": [{"name": "envoy.filters.network.direct_response", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config",
            "response": {"inline_string": name},
        }}]})
    };
    let mut leaf = |random: &mut Random| {
        // Nobody has the last name.
        let name = one_of(random, &["a", "a", "b", "b", "c", "c", "nobody"]);
        json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": name})
    };
    let mut listener = json!({
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [chain("a"), chain("b"), chain("c")],
        "filter_chain_matcher": matcher(random, &connection_input, &mut leaf, 0),
    });
    if chance(random, 50) {
        listener["default_filter_chain"] = chain("default");
    }
    if chance(random, 75) {
        let inspector = "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
        listener["listener_filters"] = json!([{"name": "tls", "typed_config": {"@type": inspector}}]);
    }
    listener
}

/// An input of connections, and texts that it may be.
fn connection_input(random: &mut Random) -> (Value, &'static [&'static str]) {
    let (name, texts): (&str, &[&str]) = match random.within(0..8) {
        0..3 => ("ServerNameInput", &["a.test", "b.test", "a", "A.test", "x.a.test", ""]),
        3 => ("TransportProtocolInput", &["tls", "raw_buffer", "r"]),
        4 => ("ApplicationProtocolInput", &["'h2'", "'h2','http/1.1'", "'http/1.1'", "'h"]),
        5 => ("SourceIPInput", &["127.0.0.1", "127.0.0.2", "127.", "127.0.0.3"]),
        6 => ("SourceTypeInput", &["local", "l", ""]),
        _ => (one_of(random, &["DirectSourceIPInput", "DestinationIPInput"]), &["127.0.0.1", "127.0.0.2"]),
    };
    (
        json!({"@type": format!("type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.{name}")}),
        texts,
    )
}

fn random_connection(random: &mut Random, listener: &str) -> Connection {
    let is_tls = chance(random, 70);
    let sni = one_of(random, &["a.test", "b.test", "A.test", "x.a.test", "c.test", ""]);
    let alpn: &[&str] = match random.within(0..4) {
        0 => &["h2"],
        1 => &["h2", "http/1.1"],
        2 => &["http/1.1", "h2"],
        _ => &[],
    };
    let from = one_of(random, &["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    Connection {
        listener: Some(listener.to_owned()),
        to: Some([127, 0, 0, 1].into()),
        from: from.parse().ok(),
        sni: Some(sni.to_owned()).filter(|name| is_tls && !name.is_empty()),
        alpn: if is_tls { alpn.iter().map(|one| (*one).to_owned()).collect() } else { Vec::new() },
        tls: Some(is_tls),
        ..Connection::default()
    }
}

/// What a listener answers to a connection; empty if it closes it.
async fn connect(addr: SocketAddr, connection: &Connection) -> Result<String> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(connection.from.context("no source")?, 0))?;
    let mut stream = socket.connect(addr).await?;
    let hello = match connection.tls {
        Some(true) => hello(connection)?,
        // More than a TLS record's head, by which the inspector sees that it is none.
        Some(false) | None => b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
    };
    let mut answer = Vec::new();
    let read = async {
        // The other side may have closed already.
        stream.write_all(&hello).await.ok();
        stream.read_to_end(&mut answer).await.ok();
    };
    tokio::time::timeout(Duration::from_secs(10), read).await.context("the connection stays open")?;
    Ok(String::from_utf8(answer)?)
}

/// The first message of a TLS handshake.
fn hello(connection: &Connection) -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = connection.alpn.iter().map(|one| one.clone().into_bytes()).collect();
    config.enable_sni = connection.sni.is_some();
    let name = connection.sni.clone().unwrap_or_else(|| "none.test".to_owned());
    let mut client = rustls::ClientConnection::new(Arc::new(config), name.try_into()?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

const ENVOY_DOMAINS: [&str; 14] = [
    "*",
    "a.test",
    "A.B.test",
    "*.test",
    "*.a.test",
    "*b.test",
    "a*",
    "a.*",
    "a.test:81",
    "x.a.test",
    "*t",
    "b.test*",
    "b.*.test",
    "*.A.test",
];

fn envoy_route(random: &mut Random, name: &str) -> Value {
    let mut matches = match random.within(0..10) {
        0..4 => json!({"prefix": one_of(random, &["/", "/a", "/a/", "/A", "/a/b", "", "/b"])}),
        4..6 => json!({"path": one_of(random, &["/", "/a", "/a/b", "/A/b", "/b;v=1", "/a//b"])}),
        6..8 => json!({"path_separated_prefix": one_of(random, &["/a", "/a/b", "/A", "/b"])}),
        _ => {
            let regex = [
                "/a|/b",
                "/[a-b]+",
                "/(?i)a.*",
                r"/\w/\w",
                "/.",
                r"/a/.*[^/]",
                "/a{1,2}",
                r"\Q/a\E.*",
                "(/[[:alpha:]])+",
                "/[^a].*",
            ];
            json!({"safe_regex": {"regex": one_of(random, &regex)}})
        }
    };
    if chance(random, 25) && matches.get("safe_regex").is_none() {
        matches["case_sensitive"] = false.into();
    }
    let headers: Vec<Value> = (0..random.within(0..3)).map(|_| header_matcher(random, true)).collect();
    if !headers.is_empty() {
        matches["headers"] = headers.into();
    }
    if chance(random, 25) {
        let mut query = json!({"name": one_of(random, &["q", "Q", "r"])});
        match random.within(0..4) {
            0 => query["present_match"] = chance(random, 50).into(),
            _ => query["string_match"] = string_matcher(random, true),
        }
        matches["query_parameters"] = json!([query]);
    }
    if chance(random, 15) {
        let numerator = if chance(random, 50) { 100 } else { 0 };
        matches["runtime_fraction"] =
            json!({"default_value": {"numerator": numerator, "denominator": "HUNDRED"}});
    }
    if chance(random, 8) {
        matches["grpc"] = json!({});
    }
    json!({
        "name": name,
        "match": matches,
        "direct_response": {"status": 200},
        "response_headers_to_add": [{"header": {"key": "x-backend", "value": name}}],
    })
}

fn header_matcher(random: &mut Random, is_envoy: bool) -> Value {
    let names: &[&str] = match is_envoy {
        true => &[
            "x",
            "y",
            "X",
            "n",
            ":method",
            "host",
            ":path",
            "content-type",
            "x-envoy-retry-on",
            "x-forwarded-proto",
        ],
        false => &["x", "y", "X", "n", "content-type", "user-agent", ":authority"],
    };
    let mut header = json!({"name": one_of(random, names)});
    match random.within(0..10) {
        0..2 => header["present_match"] = chance(random, 60).into(),
        2..4 => {
            header["name"] = one_of(random, &["n", "x"]).into();
            let start = random.within(0..12) as i64 - 6;
            header["range_match"] = json!({"start": start, "end": start + 1 + random.within(0..12) as i64});
        }
        _ => header["string_match"] = string_matcher(random, is_envoy),
    }
    if chance(random, 30) {
        header["invert_match"] = true.into();
    }
    if chance(random, 25) {
        header["treat_missing_header_as_empty"] = true.into();
    }
    header
}

fn string_matcher(random: &mut Random, is_envoy: bool) -> Value {
    let kind = one_of(random, &["exact", "exact", "prefix", "suffix", "contains", "safe_regex"]);
    let texts: &[&str] = match kind {
        // The empty text is refused elsewhere.
        "exact" => &["1", "2", "1,2", "a", "A", "GET", "", "application/grpc", "http"],
        "safe_regex" => &["[0-9]", "a|b", "(?i)a.*", ".*", "1,.", "", r"\d+", "[^a]"],
        _ => &["1", "2", ",", "a", "A", "GE", "/a", "application"],
    };
    let text = one_of(random, texts);
    let mut matcher = match kind {
        "safe_regex" => json!({"safe_regex": {"regex": if text.is_empty() { ".*" } else { text }}}),
        kind => json!({kind: text}),
    };
    if chance(random, 25) && (kind != "safe_regex" || !is_envoy && chance(random, 5)) {
        matcher["ignore_case"] = true.into();
    }
    matcher
}

fn random_headers(random: &mut Random) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for _ in 0..random.within(0..4) {
        let name = one_of(random, &["x", "y", "n", "x"]);
        let value =
            one_of(random, &["1", "2", "a", "A", "b", "1,2", "-3", "+4", "5", "", "007", "1a", "9", "ab"]);
        headers.push((name.to_owned(), value.to_owned()));
    }
    headers
}

fn envoy_request(random: &mut Random) -> Request {
    let hosts = [
        "a.test",
        "A.test",
        "b.test",
        "x.a.test",
        "a.b.test",
        "a.test:81",
        "a.test:82",
        "a",
        "b.test.",
        "x.y.A.test:80",
        "test",
        ".test",
    ];
    let paths = [
        "/",
        "/a",
        "/a/",
        "/a/b",
        "/A",
        "/A/b",
        "/aa",
        "/ab",
        "/b",
        "/b;v=1",
        "/a;v=1/b",
        "/a//b",
        "/a/../b",
        "/a/%2e%2e/b",
        "/%61",
        "/c",
        "/a/./b",
        "/b/c/../../a",
    ];
    let queries =
        ["", "", "?q=1", "?q=a&q=2", "?r=1&q=A", "?Q=1", "?q", "?q=%61", "?r=a;q=1", "?x?q=1", "?q=1,2"];
    let path = format!("{}{}", one_of(random, &paths), one_of(random, &queries));
    let mut request = Request::get(one_of(random, &hosts), &path);
    request.method = one_of(random, &["GET", "GET", "POST", "PUT"]).to_owned();
    request.headers = random_headers(random);
    if chance(random, 15) {
        let kind = one_of(
            random,
            &["application/grpc", "application/grpc+proto", "application/grpc-web", "application/json"],
        );
        request = request.with("content-type", kind);
    }
    if chance(random, 15) {
        request = request.with("x-envoy-retry-on", "1");
    }
    if chance(random, 10) {
        request = request.with("x-forwarded-proto", "https");
    }
    request
}

/// The targets of each table, without its number.
const GRPC_HOSTS: [&str; 4] = ["a.test", "b.a.test", "A.test", ".test"];

fn grpc_listener(name: &str, table: &str) -> Value {
    let mut listener = api_listener(name, table);
    let fault = json!({"name": FAULT, "typed_config": {"@type": FAULT_TYPE}});
    let filters = &mut listener["api_listener"]["api_listener"]["http_filters"];
    if let Some(filters) = filters.as_array_mut() {
        filters.insert(0, fault);
    }
    listener
}

const FAULT: &str = "envoy.filters.http.fault";
const FAULT_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault";

fn grpc_table(random: &mut Random, number: usize) -> Value {
    let mut codes = CODES.iter();
    let mut hosts = Vec::new();
    let mut used: Vec<String> = Vec::new();
    for host in 0..1 + random.within(0..4) {
        let domains = ["a.test", "*.test", "*.a.test", "A.test", "a.*", "*", "*test", "b.a*", ".test"];
        let domain = one_of(random, &domains);
        let domain = if domain.ends_with('*') { domain.to_owned() } else { format!("{domain}.t{number}") };
        // The server refuses a domain that is there twice.
        if used.contains(&domain.to_lowercase()) {
            continue;
        }
        used.push(domain.to_lowercase());
        let mut routes = Vec::new();
        for _ in 0..1 + random.within(0..3) {
            let Some((code, _)) = codes.next() else { break };
            routes.push(grpc_route(random, *code));
        }
        hosts.push(json!({"name": format!("h{host}"), "domains": [domain], "routes": routes}));
    }
    json!({"@type": ROUTE, "name": format!("table{number}"), "virtual_hosts": hosts})
}

fn grpc_route(random: &mut Random, code: u32) -> Value {
    let mut matches = match random.within(0..8) {
        0..4 => json!({"prefix": one_of(random, &["", "/", "/s/", "/S/", "/s/m", "/t", "/s/m/x"])}),
        4..6 => json!({"path": one_of(random, &["/s/m", "/s/n", "/S/M", "/s"])}),
        _ => {
            json!({"safe_regex": {"regex": one_of(random, &["/s/.*", "/s/m|/t", "/(s|t)/m", "(?i)/S/M", r"/s/\w"])}})
        }
    };
    if chance(random, 20) && matches.get("safe_regex").is_none() {
        matches["case_sensitive"] = false.into();
    }
    let headers: Vec<Value> = (0..random.within(0..3)).map(|_| header_matcher(random, false)).collect();
    if !headers.is_empty() {
        matches["headers"] = headers.into();
    }
    if chance(random, 10) {
        // A fraction of 0 is one in a million to grpc-go.
        matches["runtime_fraction"] = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    }
    json!({
        "match": matches,
        "route": {"cluster": "c"},
        "typed_per_filter_config": {FAULT: {
            "@type": FAULT_TYPE,
            "abort": {"grpc_status": code, "percentage": {"numerator": 100, "denominator": "HUNDRED"}},
        }},
    })
}

#[tokio::test]
async fn a_running_server_explains_as_its_files_do_and_by_what_it_serves_since() -> Result<()> {
    let config = ConfigDir::new()?;
    config.write("shop.yaml", SHOP)?;
    let server = Server::start(config.path()).await?;
    server.wait_ready().await?;
    let (admin, dir) = (server.url(""), config.path().to_string_lossy().into_owned());
    let request = [
        "--host",
        "shop.test",
        "--path",
        "/cart/a?x=1",
        "--header",
        "x-beta=1",
        "--header",
        "cookie=sid=hunter2",
    ];
    let asked = [&["explain", "--admin", &admin], &request[..]].concat();
    for more in [&[][..], &["--all"], &["--client", "grpc-go", "--client", "grpc-core"], &["--port", "10000"]]
    {
        let by_server = cli(&[&asked[..], more].concat()).await?;
        let by_files = cli(&[&["explain", &dir], &request[..], more].concat()).await?;
        ensure!(by_server == by_files, "{more:?}\n{by_server}\n{by_files}");
        ensure!(!by_server.contains("hunter2"), "{by_server}");
    }
    let target = ["--target", "xds:///shop.test"];
    let by_server = cli(&[&["explain", "--admin", &admin][..], &target].concat()).await?;
    let by_files = cli(&[&["explain", &dir][..], &target].concat()).await?;
    ensure!(by_server == by_files, "{by_server}\n{by_files}");
    ensure!(by_server.contains("90 % default/one, 10 % default/two"), "{by_server}");
    let told = cli(&asked).await?;
    ensure!(told.contains("90 %") && told.contains("shop.yaml:10]"), "{told}");
    let weights = json!({"backends": {"one": 3, "two": 1}}).to_string();
    let headers = [("content-type", "application/json"), ("if-match", "*")];
    server.request("PATCH", "/v1/weights/Route/default/shop/1", &headers, weights).await?.success()?;
    let told = cli(&[&asked[..], &["--node", "edge-1"]].concat()).await?;
    ensure!(told.contains("75 %") && !told.contains("90 %"), "{told}");
    // Once the file is another one, lines are those of documents.
    config.edit("shop.yaml", "version:", "# A comment.\nversion:")?;
    let told = cli(&[&asked[..], &["--output", "json"]].concat()).await?;
    let told: Value = serde_json::from_str(&told)?;
    ensure!(told["explanations"][0]["outcomes"][0]["share"] == json!([3, 4]), "{told:#}");
    let nobody = cli(&["explain", "--admin", &admin, "--host", "other.test"]).await;
    ensure!(nobody.is_err(), "{nobody:?}");
    Ok(())
}

const SHOP: &str = "version: xds-server/v1
listeners:
  edge: { port: 10000, address: 127.0.0.1 }
routes:
  shop:
    hosts: [shop.test]
    rules:
    - match: { path: /cart }
      to: one
    - match: { prefix: /cart }
      to: { one: 90, two: 10 }
backends:
  one: { endpoints: ['10.0.0.1:80'] }
  two: { endpoints: ['10.0.0.2:80'] }
";
