//! The admin API over a real control: statuses, entity tags, forms.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::Service as _;
use xds_api::{Access, ApiState, EventHub, Token};
use xds_cache::Refusals;
use xds_control::Roster;
use xds_control::peers::Peers;

use super::*;
use crate::rollouts;

/// The router over a server.
pub(super) struct Rest {
    pub(super) server: Server,
    pub(super) router: Router,
    pub(super) loads: Arc<LoadBoard>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) state: ApiState,
}

/// The answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn tag(&self) -> String {
        self.headers["etag"].to_str().unwrap().to_owned()
    }
}

impl Rest {
    pub(super) fn new(server: Server) -> Self {
        Self::with_access(server, Access::default())
    }

    pub(super) fn with_access(server: Server, access: Access) -> Self {
        Self::new_with(server, access, rollouts::wall_clock())
    }

    /// One whose rollouts go by another clock.
    pub(super) fn with_clock(server: Server, clock: rollouts::Clock) -> Self {
        Self::new_with(server, Access::default(), clock)
    }

    /// One that shares its store with others.
    pub(super) fn with_peers(server: Server, peers: Arc<dyn Peers>, sharing: Sharing) -> Self {
        let asked = Some(Arc::clone(&peers)).filter(|_| sharing == Sharing::Linked);
        let begin = tokio::time::Instant::now();
        let wall = (rollouts::wall_clock())();
        // Time that tests stop.
        let clock: rollouts::Clock =
            Arc::new(move || wall + u64::try_from(begin.elapsed().as_millis()).unwrap());
        let state = state_with(&server, Access::default(), clock, asked);
        Self::of(server, ApiState { peers: Some(peers), ..state })
    }

    fn new_with(server: Server, access: Access, clock: rollouts::Clock) -> Self {
        let state = state(&server, access, clock);
        Self::of(server, state)
    }

    fn of(server: Server, state: ApiState) -> Self {
        let (loads, refusals) = (Arc::clone(&state.loads), Arc::clone(&state.refusals));
        Self { server, loads, refusals, router: xds_api::router(state.clone()), state }
    }

    pub(super) async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        call(self.router.clone(), method, path, headers, body).await
    }

    /// The body of an answer that goes on.
    pub(super) async fn stream(&self, token: &str, path: &str) -> Body {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        let response = self.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.into_body()
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &[], "").await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Reply {
        self.call("PUT", path, &[("content-type", "application/json")], &body.to_string()).await
    }
}

fn state(server: &Server, access: Access, clock: rollouts::Clock) -> ApiState {
    state_with(server, access, clock, None)
}

fn state_with(
    server: &Server,
    access: Access,
    clock: rollouts::Clock,
    peers: Option<Arc<dyn Peers>>,
) -> ApiState {
    let loads = Arc::new(LoadBoard::new(LoadLimits::default()));
    let (rollouts, driver) = rollouts::new(rollouts::DriverParts {
        control: server.control.clone(),
        publisher: Arc::clone(&server.publisher),
        board: Arc::clone(&server.board),
        loads: Arc::clone(&loads),
        clock,
        caller: rollouts::Caller::default(),
        peers,
        observer: None,
    });
    tokio::spawn(driver.run());
    let control = server.control.clone();
    ApiState {
        loads,
        rollouts: Arc::new(rollouts),
        events: EventHub::start(&control, &server.board, &server.publisher),
        control,
        publisher: Arc::clone(&server.publisher),
        board: Arc::clone(&server.board),
        roster: Arc::new(Roster::new(Arc::clone(&server.publisher), Arc::clone(&server.board))),
        acks: Arc::clone(&server.acks),
        refusals: Arc::default(),
        codec: codec(),
        trials: xds_api::Trials::default(),
        max_document_values: xds_codec::Limits::DEFAULT_DOCUMENT_VALUES,
        texts: Arc::new(crate::source::again::Again::new(
            codec(),
            xds_codec::Limits::default(),
            xds_routes::UnknownFields::default(),
        )),
        access: Arc::new(access),
        counts: Arc::default(),
        peers: None,
        relay: None,
        certificates: None,
        models: xds_api::Models::default(),
    }
}

pub(super) async fn call(
    mut router: Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Reply {
        status: parts.status.as_u16(),
        headers: parts.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

pub(super) fn rest() -> Rest {
    Rest::new(Server::without_files(&MemoryStore::new()))
}

fn body(name: &str, text: &str) -> Value {
    json!({"@type": ResourceType::Cluster.type_url(), "name": name, "alt_stat_name": text, "connect_timeout": "1s"})
}

pub(super) fn publication(content: &[(&str, &str)]) -> Value {
    json!({"resources": content.iter().map(|(name, text)| body(name, text)).collect::<Vec<_>>()})
}

pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_publication_is_read_back_as_it_was_put() {
    let rest = rest();
    let mut sent = publication(&[("a", "1"), ("b/c d", "2")]);
    sent["version"] = json!("v1");
    let reply = rest.put("/v1/groups/node-1/resources", &sent).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["committed"], &answer["revision"]), (200, &json!(true), &json!(1)));
    assert_eq!(answer["total"], json!(0));
    assert_eq!(answer["versions"], json!({ResourceType::Cluster.type_url(): "v1"}));
    let reply = rest.get("/v1/groups/node-1/resources").await;
    let read = reply.json();
    assert_eq!(
        (&read["revision"], &read["version"], &read["resources"]),
        (&json!(1), &json!("v1"), &sent["resources"])
    );
    let again = rest.put("/v1/groups/node-1/resources", &read).await.json();
    assert_eq!(
        (&again["revision"], &again["changed"]),
        (&json!(1), &json!(false)),
        "and can be put again as it is"
    );
    let one = rest.get("/v1/groups/node-1/resources/clusters/b%2Fc%20d").await;
    assert_eq!(one.json(), sent["resources"][1]);
    let group = rest.get("/v1/groups/node-1").await.json();
    assert_eq!(group, json!({"name": "node-1", "selector": {"nodeIds": ["node-1"]}, "priority": 0}));
    let groups = rest.get("/v1/groups").await.json();
    assert_eq!(groups["groups"][0], json!({"name": "default", "selector": {"all": true}, "priority": 0}));
}

/// Method, path, headers, body and the status that is expected.
type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, u16);

#[tokio::test]
async fn every_status_has_its_problem() {
    let rest = rest();
    rest.put("/v1/groups/g/resources", &publication(&[("a", "1")])).await;
    let a = body("a", "1").to_string();
    let no_type = json!({"resources": [{"name": "a"}]}).to_string();
    let twice = publication(&[("a", "1"), ("a", "2")]).to_string();
    let redacted = publication(&[("a", "[redacted]")]).to_string();
    let one = "/v1/groups/g/resources/clusters/a";
    let table: &[Asked<'_>] = &[
        ("GET", "/nowhere", &[], "", 404),
        ("GET", "/v1/groups/none", &[], "", 404),
        ("GET", "/v1/groups/none/resources", &[], "", 404),
        ("GET", "/v1/groups/none/snapshot", &[], "", 404),
        ("GET", "/v1/groups/g/resources/clusters/none", &[], "", 404),
        ("GET", "/v1/groups/g/resources/clusterz/a", &[], "", 404),
        ("GET", "/v1/nodes/none", &[], "", 404),
        ("GET", "/v1/acks?revision=9", &[], "", 404),
        ("GET", "/v1/history/9", &[], "", 404),
        ("GET", "/v1/history/x", &[], "", 400),
        ("GET", "/v1/history/1...x", &[], "", 400),
        ("GET", "/v1/history?limit=0", &[], "", 400),
        ("GET", "/v1/groups/%FF", &[], "", 400),
        ("GET", "/v1/groups/%0A", &[], "", 400),
        ("GET", "/v1/nodes?limit=x", &[], "", 400),
        ("GET", "/v1/nodes?status=FINE", &[], "", 400),
        ("GET", "/v1/groups/g/snapshot?profile=x", &[], "", 400),
        ("PUT", "/v1/groups/g/resources/clusters/a?dryrun=true", &[JSON], &a, 400),
        ("PUT", "/v1/groups/g/resources/clusters/a?wait=x", &[JSON], &a, 400),
        ("PUT", "/v1/groups/g/resources/clusters/a?wait=acked&timeout=301s", &[JSON], &a, 400),
        ("PUT", "/v1/groups/g/resources/clusters/a?onNack=revert", &[JSON], &a, 400),
        ("PUT", one, &[JSON], "{", 400),
        ("PUT", one, &[JSON], "{\"name\": \"a\", \"name\": \"a\"}", 400),
        ("PUT", one, &[], &a, 415),
        ("PUT", one, &[("content-type", "text/plain")], &a, 415),
        ("PUT", "/v1/groups/g/resources/clusters/b", &[JSON], &a, 422),
        ("PUT", "/v1/groups/g/resources", &[JSON], &no_type, 422),
        ("PUT", "/v1/groups/g/resources", &[JSON], &twice, 422),
        ("PUT", "/v1/groups/g/resources", &[JSON], &redacted, 422),
        ("PUT", "/v1/groups/g/resources", &[JSON], "{\"resource\": []}", 422),
        ("PUT", "/v1/groups/g", &[JSON], "{\"selector\": {}}", 422),
        ("PUT", "/v1/groups/g", &[JSON], "{\"name\": \"h\", \"selector\": {\"all\": true}}", 422),
        ("POST", "/v1/rollback", &[JSON], "{}", 422),
        ("POST", "/v1/rollback", &[JSON], "{\"revision\": 9}", 404),
        ("DELETE", "/v1/groups/default", &[], "", 409),
        ("DELETE", "/v1/groups/none", &[], "", 404),
        ("DELETE", "/v1/groups/g/resources/clusters/none", &[], "", 404),
        ("PATCH", one, &[JSON], &a, 405),
        ("POST", "/v1/groups", &[], "", 405),
        ("PUT", one, &[JSON, ("if-match", "\"x\"")], &a, 412),
        ("PUT", one, &[JSON, ("if-none-match", "*")], &a, 412),
        ("GET", "/v1/groups", &[("host", "evil.example")], "", 421),
        ("GET", "/v1/groups", &[("host", "localhost"), ("origin", "http://evil.example")], "", 403),
    ];
    for (method, path, headers, body, status) in table {
        let reply = rest.call(method, path, headers, body).await;
        assert_eq!(reply.status, *status, "{method} {path} {body}: {}", reply.text);
        assert_eq!(reply.headers["content-type"], "application/problem+json", "{method} {path}");
        let problem = reply.json();
        assert_eq!(problem["status"], json!(status));
        assert_eq!(problem["instance"], json!(path.split('?').next()));
        for field in ["type", "title", "detail"] {
            assert!(
                problem[field].as_str().is_some_and(|text| !text.is_empty()),
                "{method} {path}: {problem}"
            );
        }
    }
    assert_eq!(rest.server.revision(), 1, "none of it changed anything");
    assert_eq!(rest.call("PATCH", one, &[JSON], "").await.headers["allow"], "GET,HEAD,PUT,DELETE");
}

#[tokio::test]
async fn faults_are_told_with_their_places_and_all_at_once() {
    let rest = rest();
    let sent = json!({"resources": [body("a", "1"), {"@type": ResourceType::Cluster.type_url(), "name": "b", "typo": 1}, 5]});
    let problem = rest.put("/v1/groups/g/resources", &sent).await.json();
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["#/resources/1/typo", "#/resources/2"], "{problem}");
    let yaml = ("content-type", "application/yaml");
    let problem = rest.call("PUT", "/v1/groups/g", &[yaml], "selector: {nodeIdz: [a]}").await.json();
    assert!(
        problem["errors"][0]["suggestion"].as_str().is_some_and(|text| text.contains("nodeIds")),
        "{problem}"
    );
    let problem = rest.call("PUT", "/v1/groups/g", &[JSON], "{\n  \"a\": }").await.json();
    assert_eq!(
        (&problem["errors"][0]["line"], &problem["errors"][0]["column"]),
        (&json!(2), &json!(8)),
        "{problem}"
    );
}

#[tokio::test]
async fn entity_tags_are_strong_and_hold() {
    let rest = rest();
    rest.put("/v1/groups/g/resources", &publication(&[("a", "1")])).await;
    for path in [
        "/v1/groups",
        "/v1/groups/g",
        "/v1/groups/g/resources",
        "/v1/groups/g/resources/clusters/a",
        "/v1/groups/g/snapshot",
        "/v1/nodes/g/snapshot",
        "/v1/status/files",
        "/v1/history",
        "/v1/history/1",
        "/openapi.json",
    ] {
        let first = rest.get(path).await;
        let tag = first.tag();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{path}: {tag}");
        let same = rest.call("GET", path, &[("if-none-match", &format!("\"x\", W/{tag}"))], "").await;
        assert_eq!((same.status, same.text.as_str(), same.tag()), (304, "", tag.clone()), "{path}");
        let other = rest.call("GET", path, &[("if-none-match", "\"x\"")], "").await;
        assert_eq!((other.status, other.text), (200, first.text), "{path}");
    }
    let one = "/v1/groups/g/resources/clusters/a";
    let tag = rest.get(one).await.tag();
    let put = |tag: String, text: &'static str| {
        let router = rest.router.clone();
        async move { call(router, "PUT", one, &[JSON, ("if-match", &tag)], &body("a", text).to_string()).await }
    };
    assert_eq!(put(format!("W/{tag}"), "2").await.status, 412, "weak tags never match");
    assert_eq!(put(format!("\"x\", {tag}"), "2").await.status, 200);
    let late = put(tag.clone(), "3").await;
    assert_eq!((late.status, late.tag()), (412, rest.get(one).await.tag()), "with the tag that would match");
    assert_eq!(late.json()["etag"], json!(late.tag()));
    assert_eq!(put("*".to_owned(), "3").await.status, 200);
    let gone = rest.call("DELETE", one, &[("if-match", &rest.get(one).await.tag())], "").await;
    assert_eq!(gone.status, 200);
    assert_eq!(put("*".to_owned(), "3").await.status, 412);
    assert_eq!(
        rest.call("PUT", one, &[JSON, ("if-none-match", "*")], &body("a", "4").to_string()).await.status,
        200
    );
    let tag = rest.get("/v1/history").await.tag();
    rest.put("/v1/groups/h/resources", &publication(&[])).await;
    let back = rest.call("POST", "/v1/rollback", &[JSON, ("if-match", &tag)], "{\"revision\": 1}").await;
    assert_eq!(back.status, 412);
}

#[tokio::test]
async fn yaml_goes_in_and_comes_out() {
    let rest = rest();
    let yaml = ("content-type", "application/yaml; charset=utf-8");
    let text = "selector:\n  nodeIds: [edge-*]\npriority: 7\n";
    assert_eq!(rest.call("PUT", "/v1/groups/g", &[yaml], text).await.status, 200);
    let reply = rest.call("GET", "/v1/groups/g", &[("accept", "application/yaml")], "").await;
    assert_eq!(reply.headers["content-type"], "application/yaml");
    let read: Value = serde_saphyr::from_str(&reply.text).unwrap();
    assert_eq!(read, rest.get("/v1/groups/g").await.json());
    let resource = "name: a\ntype: STATIC\nconnect_timeout: 1s\n";
    assert_eq!(rest.call("PUT", "/v1/groups/g/resources/clusters/a", &[yaml], resource).await.status, 200);
    let problem = rest.call("GET", "/v1/nope", &[("accept", "text/yaml")], "").await;
    assert_eq!(problem.headers["content-type"], "application/problem+yaml");
}

#[tokio::test]
async fn a_dry_run_answers_with_the_difference() {
    let rest = rest();
    rest.put("/v1/groups/g/resources", &publication(&[("a", "1")])).await;
    let answer = rest.put("/v1/groups/g/resources?dryRun=true", &publication(&[("a", "2")])).await.json();
    assert_eq!(
        (&answer["committed"], &answer["revision"], &answer["changed"]),
        (&json!(false), &json!(1), &json!(true))
    );
    let changes = &answer["difference"][0]["changes"];
    assert_eq!(changes, &json!([{"pointer": "/alt_stat_name", "old": "1", "new": "2"}]));
    assert_eq!(rest.server.revision(), 1);
}

#[tokio::test]
async fn pitfall_68_answers_show_no_private_key_and_take_no_placeholder() {
    let rest = rest();
    let secret = json!({
        "@type": ResourceType::Secret.type_url(), "name": "s",
        "tls_certificate": {"certificate_chain": {"inline_string": "public"}, "private_key": {"inline_string": "TOPSECRET"}},
    });
    assert_eq!(rest.put("/v1/groups/g/resources/secrets/s", &secret).await.status, 200);
    for path in [
        "/v1/groups/g/resources",
        "/v1/groups/g/resources/secrets/s",
        "/v1/groups/g/snapshot",
        "/v1/nodes/g/snapshot",
        "/v1/history/1",
        "/v1/history/0...1",
    ] {
        let text = rest.get(path).await.text;
        assert!(
            text.contains("public") && text.contains("[redacted]") && !text.contains("TOPSECRET"),
            "{path}: {text}"
        );
    }
    let read = rest.get("/v1/groups/g/resources/secrets/s").await.json();
    let reply = rest.put("/v1/groups/g/resources/secrets/s", &read).await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.json()["errors"][0]["pointer"], json!("#/tls_certificate/private_key/inline_string"));
    let view = rest.server.publisher.view_at(&view_key_of_group(&group("g"), Profile::Envoy)).unwrap();
    let kept = view.resolve(&ResourceType::Secret, "s").unwrap();
    assert!(
        String::from_utf8_lossy(&kept.value()).contains("TOPSECRET"),
        "the secret is still the one that was put"
    );
}

#[tokio::test]
async fn a_token_guards_all_but_the_probes() {
    let server = Server::without_files(&MemoryStore::new());
    let access = Access { token: Token::new("t0ken").unwrap().fixed(), ..Access::default() };
    let rest = Rest::with_access(server, access);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(rest.get(path).await.status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/groups", "/openapi.json", "/nowhere"] {
        let reply = rest.get(path).await;
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
    }
    assert_eq!(rest.call("GET", "/v1/groups", &[("authorization", "Bearer t0ken")], "").await.status, 200);
}

#[tokio::test]
async fn probes_are_served_alone_too() {
    let server = Server::without_files(&MemoryStore::new());
    let router = xds_api::probe_router(state(&server, Access::default(), rollouts::wall_clock()));
    for (path, status) in
        [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/groups", 404), ("/openapi.json", 404)]
    {
        let reply = call(router.clone(), "GET", path, &[("host", "any.example")], "").await;
        assert_eq!(reply.status, status, "{path}");
    }
}

#[tokio::test]
async fn pitfall_48_the_server_is_not_ready_before_its_files_are() {
    let rest = Rest::new(Server::with_files(&MemoryStore::new()));
    let reply = rest.get("/readyz").await;
    assert_eq!((reply.status, reply.json()["reasons"].as_array().map(Vec::len)), (503, Some(1)));
    assert_eq!(rest.get("/healthz").await.status, 200);
    assert_eq!(rest.get("/v1/groups").await.status, 503);
    assert_eq!(rest.put("/v1/groups/g/resources", &publication(&[])).await.status, 503);
    rest.server.control.load_files(load(&[("default", &[("f", "1")])])).await.unwrap();
    assert_eq!(rest.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_snapshot_tells_where_everything_comes_from() {
    let rest = Rest::new(Server::with_files(&MemoryStore::new()));
    rest.server
        .control
        .load_files(load(&[("default", &[("d", "1")]), ("g", &[("f", "1"), ("o", "1")])]))
        .await
        .unwrap();
    rest.put("/v1/groups/g/resources", &publication(&[("a", "1"), ("o", "2")])).await;
    for path in ["/v1/groups/g/snapshot", "/v1/nodes/g/snapshot"] {
        let snapshot = rest.get(path).await.json();
        assert_eq!((&snapshot["groups"], &snapshot["profile"]), (&json!(["g", "default"]), &json!("envoy")));
        let entries =
            snapshot["types"][ResourceType::Cluster.type_url()]["resources"].as_array().unwrap().clone();
        let told: Vec<_> = entries
            .iter()
            .map(|entry| {
                (
                    entry["name"].as_str().unwrap(),
                    entry["source"].as_str().unwrap(),
                    entry["file"]["line"].as_u64(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [("a", "api", None), ("d", "file", Some(1)), ("f", "file", Some(2)), ("o", "override", Some(3))]
        );
        assert_eq!(
            (&entries[3]["resource"]["alt_stat_name"], &entries[3]["fileResource"]["alt_stat_name"]),
            (&json!("2"), &json!("1"))
        );
    }
    let reply = rest.put("/v1/groups/g", &json!({"selector": {"all": true}})).await;
    assert_eq!(reply.status, 409);
    assert!(reply.json()["detail"].as_str().unwrap().contains("routes/a.yaml:3"));
    let files = rest.get("/v1/status/files").await.json();
    assert_eq!(files["files"][0]["path"], json!("routes/a.yaml"));
}

#[tokio::test]
async fn a_body_is_validated_as_a_file_would_be() {
    let rest = rest();
    let yaml = ("content-type", "application/yaml");
    let bad = "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n  connect_timeot: 1s\n";
    let answer = rest.call("POST", "/v1/validate", &[yaml], bad).await.json();
    assert_eq!(answer["valid"], json!(false));
    assert_eq!(
        (&answer["diagnostics"][0]["line"], &answer["diagnostics"][0]["file"]),
        (&json!(4), &Value::Null),
        "{answer}"
    );
    let good = bad.replace("timeot", "timeout");
    let answer = rest.call("POST", "/v1/validate", &[yaml], &good).await.json();
    assert_eq!((&answer["valid"], &answer["objects"]), (&json!(true), &json!(1)), "{answer}");
    assert_eq!(rest.server.revision(), 0);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let rest = rest();
    let long =
        format!("{{\"selector\": {{\"nodeIds\": [\"{}\"]}}}}", "x".repeat(xds_api::input::MAX_BODY_BYTES));
    let reply = rest.call("PUT", "/v1/groups/g", &[JSON], &long).await;
    assert_eq!(StatusCode::from_u16(reply.status).unwrap(), StatusCode::PAYLOAD_TOO_LARGE);
}
