//! Rollouts over REST, with a control, its driver, and a store that fails on demand.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Duration, Instant, sleep};
use xds_cache::status::{EventKind, Sent, StreamEvent, StreamId, StreamInfo, Subscriber, Variant};
use xds_cache::{Node, ViewChange};

use super::documents::files;
use super::rest::{Reply, Rest};
use super::weights::{HALVES, RULE, all, load, route, served_weights, world};
use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");
pub(super) const ROUTES: &str = "prod/edge/8080";

pub(super) fn rollout(fields: &Value) -> Value {
    let mut body = json!({
        "route": {"kind": "GRPCRoute", "namespace": "prod", "name": "greeter", "rule": "0"},
        "stable": "v1:80", "canary": "v2:80", "steps": [{"setWeight": 20}, {"pause": {}}, {"setWeight": 60}], "autoPromote": false,
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

pub(super) async fn post(rest: &Rest, path: &str, body: &Value) -> Reply {
    rest.call("POST", path, &[JSON], &body.to_string()).await
}

/// A client that wants all routes.
struct AllRoutes;

impl Subscriber for AllRoutes {
    fn concerned(&self, change: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(change.changes.keys().filter(|of| **of == ResourceType::RouteConfiguration).cloned().collect())
    }
}

/// Connects a client that accepts all routes, for as long as the server is there.
pub(super) fn connect_client(rest: &Rest) {
    static STREAMS: AtomicU64 = AtomicU64::new(1_000_000);
    let id = StreamId(STREAMS.fetch_add(1, Ordering::Relaxed));
    let node = Arc::new(Node::with_id(&format!("client-{}", id.0)));
    let wishes = Arc::new(AllRoutes);
    let weak: Weak<AllRoutes> = Arc::downgrade(&wishes);
    let info = StreamInfo {
        id,
        node: Arc::clone(&node),
        address: "127.0.0.1:5".into(),
        variant: Variant::Sotw,
        service: None,
        since: SystemTime::UNIX_EPOCH,
        proofs: Arc::default(),
    };
    let entry = rest.server.board.register(info, weak);
    let mut views = rest.server.publisher.follow(&node).into_inner();
    tokio::spawn(async move {
        let _wishes = wishes;
        loop {
            let view = views.borrow_and_update().clone();
            if let Some(view) = view {
                entry.record_view(view.key().clone(), false);
                let revision = view.revision();
                let version_info = format!("v{}", revision.0).into();
                let sent = Sent { nonce: revision.0, version_info, revision, is_final: true };
                for kind in [EventKind::Sent(sent.clone()), EventKind::Acked(sent)] {
                    let event = StreamEvent { resource_type: ResourceType::RouteConfiguration, kind };
                    entry.record(&event, SystemTime::UNIX_EPOCH);
                }
            }
            if views.changed().await.is_err() {
                return;
            }
        }
    });
}

/// Begins a rollout, as soon as the driver is there, with a client that accepts its steps. Gives its path.
pub(super) async fn start(rest: &Rest, fields: &Value) -> String {
    connect_client(rest);
    let reply = post(rest, "/v1/rollouts", &rollout(fields)).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let location = reply.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(location, format!("/v1/rollouts/{}", reply.json()["id"].as_str().unwrap()));
    assert!(reply.headers.contains_key("etag"));
    location
}

/// Waits until a rollout is as it should be.
pub(super) async fn wait(rest: &Rest, path: &str, is_good: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let rollout = rest.get(path).await.json();
        if is_good(&rollout) {
            return rollout;
        }
        assert!(Instant::now() < deadline, "{rollout:#}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn at<'v>(phase: &'v str, step: u64) -> impl Fn(&Value) -> bool + 'v {
    move |rollout| rollout["phase"] == phase && rollout["step"] == step
}

#[tokio::test]
async fn traffic_moves_by_steps_and_verbs_until_the_canary_has_it() {
    let rest = world().await;
    let path = start(&rest, &json!({})).await;
    let rollout = wait(&rest, &path, at("Paused", 2)).await;
    assert_eq!(rollout["weights"], json!({"stable": 80, "canary": 20}));
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
    let ask = async |verb: &str| post(&rest, &format!("{path}:{verb}"), &json!({})).await;
    assert_eq!(ask("resume").await.status, 200);
    let rollout = wait(&rest, &path, at("Paused", 4)).await;
    assert!(rollout["message"].as_str().unwrap().contains("all steps are done"), "{rollout:#}");
    assert_eq!(served_weights(&rest, ROUTES), json!([40, 60]));
    assert!(rollout.get("filePatch").is_none());
    assert_eq!(ask("promote").await.status, 200);
    let rollout = wait(&rest, &path, at("Succeeded", 4)).await;
    assert_eq!(served_weights(&rest, ROUTES), json!([0, 100]));
    assert!(rollout["filePatch"].as_str().unwrap().contains("- name: v2\n  port: 80\n  weight: 100"));
    // Asked twice it is the same; what does not fit is refused.
    assert_eq!(ask("promote").await.status, 200);
    for verb in ["pause", "resume", "abort", "retry"] {
        let reply = ask(verb).await;
        assert_eq!(
            (reply.status, &reply.json()["type"]),
            (409, &json!("https://xds-server.io/problems/illegal-transition"))
        );
    }
    assert_eq!(ask("undo").await.status, 400);
    let list = rest.get("/v1/rollouts").await.json();
    assert_eq!(list["rollouts"].as_array().unwrap().len(), 1);
    assert_eq!(rest.call("DELETE", &path, &[], "").await.status, 200);
    assert_eq!(rest.get(&path).await.status, 404);
    assert_eq!(served_weights(&rest, ROUTES), json!([0, 100]), "what it did stays");
}

#[tokio::test]
async fn an_abort_puts_everything_back_in_one_publication() {
    let rest = world().await;
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let before = rest.server.revision();
    assert_eq!(post(&rest, &format!("{path}:abort"), &json!({})).await.status, 200);
    assert_eq!(served_weights(&rest, ROUTES), json!([100, 0]));
    let difference = rest.get(&format!("/v1/history/{}", before + 1)).await;
    assert!(difference.text.contains("weights/GRPCRoute/prod/greeter/0"), "{}", difference.text);
    wait(&rest, &path, |one| one["phase"] == "Aborted").await;
    assert_eq!(post(&rest, &format!("{path}:abort"), &json!({})).await.status, 200, "it is so already");
    assert_eq!(post(&rest, &format!("{path}:retry"), &json!({})).await.status, 200);
    wait(&rest, &path, at("Paused", 2)).await;
    let refused = rest.call("DELETE", &path, &[], "").await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert_eq!(rest.call("DELETE", &format!("{path}?abort=true"), &[], "").await.status, 200);
    assert_eq!(served_weights(&rest, ROUTES), json!([100, 0]));
}

#[tokio::test]
async fn what_is_wrong_with_a_rollout_is_told_and_nothing_changes() {
    let rest = world().await;
    let before = (rest.server.revision(), served_weights(&rest, ROUTES));
    let route = |kind: &str, name: &str, rule: &str| json!({"route": {"kind": kind, "namespace": "prod", "name": name, "rule": rule}});
    for (fields, status, problem, pointer) in [
        (json!({"canary": "v1:80"}), 422, "invalid", "#/canary"),
        (json!({"canary": "v9:80"}), 422, "invalid", "#/canary"),
        (json!({"stable": "v9:80"}), 422, "invalid", "#/stable"),
        (json!({"steps": [{"setWeight": 101}]}), 422, "invalid", "#/steps/0/setWeight"),
        (json!({"steps": []}), 422, "invalid", "#/steps"),
        (json!({"stps": []}), 422, "invalid", "#/stps"),
        (
            json!({"webhooks": [{"name": "a", "type": "event", "url": "https://me@a/"}]}),
            422,
            "invalid",
            "#/webhooks/0/url",
        ),
        (route("GRPCRoute", "nobody", "0"), 404, "not-found", ""),
        (route("GRPCRoute", "greeter", "9"), 404, "not-found", ""),
        (route("Service", "v1", "0"), 404, "not-found", ""),
    ] {
        for query in ["", "?dryRun=true"] {
            let reply = post(&rest, &format!("/v1/rollouts{query}"), &rollout(&fields)).await;
            let told = reply.json();
            assert_eq!(reply.status, status, "{fields}: {told:#}");
            assert!(told["type"].as_str().unwrap().ends_with(problem), "{fields}: {told:#}");
            if !pointer.is_empty() {
                assert_eq!(told["errors"][0]["pointer"], json!(pointer), "{fields}: {told:#}");
                assert!(told["errors"][0]["line"].is_u64(), "{told:#}");
            }
        }
    }
    assert_eq!(rest.call("POST", "/v1/rollouts", &[JSON], "{").await.status, 400);
    assert_eq!(rest.call("POST", "/v1/rollouts", &[("content-type", "text/plain")], "{}").await.status, 415);
    let long = format!("{{\"x\": \"{}\"}}", "x".repeat(70_000));
    assert_eq!(rest.call("POST", "/v1/rollouts", &[JSON], &long).await.status, 413);
    let plan = post(&rest, "/v1/rollouts?dryRun=true", &rollout(&json!({}))).await.json();
    assert_eq!((&plan["committed"], &plan["plan"]), (&json!(false), &json!([0, 20, 60, 100])), "{plan:#}");
    assert_eq!(rest.get("/v1/rollouts/none").await.status, 404);
    assert_eq!(post(&rest, "/v1/rollouts/none:pause", &json!({})).await.status, 404);
    assert_eq!((rest.server.revision(), served_weights(&rest, ROUTES)), before);
}

#[tokio::test]
async fn a_rule_has_one_owner() {
    let rest = world().await;
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let second = post(&rest, "/v1/rollouts", &rollout(&json!({}))).await;
    assert_eq!(
        (second.status, &second.json()["type"]),
        (409, &json!("https://xds-server.io/problems/rollout-active"))
    );
    let body = r#"{"backends": {"v1:80": 1, "v2:80": 1}}"#;
    let headers = [JSON, ("if-match", "*")];
    let refused = rest.call("PATCH", RULE, &headers, body).await;
    let told = refused.json();
    assert_eq!(refused.status, 409, "{told:#}");
    assert!(path.ends_with(told["rollout"].as_str().unwrap()), "{told:#}");
    assert_eq!(rest.call("DELETE", RULE, &headers, "").await.status, 409);
    // A forced change that is not valid leaves the rollout alone, and so does one that is only tried.
    let bad = rest.call("PATCH", &format!("{RULE}?force=true"), &headers, r#"{"backends": {"v9": 1}}"#).await;
    assert_eq!(bad.status, 422);
    let stale = [JSON, ("if-match", "\"old\"")];
    assert_eq!(rest.call("PATCH", &format!("{RULE}?force=true"), &stale, body).await.status, 412);
    assert_eq!(
        rest.call("PATCH", &format!("{RULE}?force=true&dryRun=true"), &headers, body).await.status,
        200
    );
    assert_eq!(rest.get(&path).await.json()["phase"], "Paused");
    let before = rest.server.revision();
    let forced = rest.call("PATCH", &format!("{RULE}?force=true"), &headers, body).await;
    assert_eq!((forced.status, &forced.json()["revision"]), (200, &json!(before + 1)), "{}", forced.text);
    assert_eq!(served_weights(&rest, ROUTES), json!([1, 1]));
    let rollout = rest.get(&path).await.json();
    assert_eq!(
        (&rollout["phase"], &rollout["message"]),
        (&json!("Aborted"), &json!("aborted: the weights were changed by hand"))
    );
    assert_eq!(rest.call("PATCH", RULE, &headers, body).await.status, 200);
    assert_eq!(rest.server.revision(), before + 1);
}

#[tokio::test]
async fn a_rollback_leaves_the_weights_of_a_rollout_alone() {
    let rest = world().await;
    let before = rest.server.revision();
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let back = post(&rest, "/v1/rollback", &json!({"revision": before})).await;
    assert_eq!(back.status, 200, "{}", back.text);
    assert!(back.text.contains("controls the weights"), "{}", back.text);
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
}

#[tokio::test]
async fn files_that_change_under_a_rollout_do_not_show_through() {
    let rest = world().await;
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    // The file's weights, a third backend, and at last not even stable.
    load(&rest, &route("", "{name: v1, port: 80, weight: 7}, {name: v2, port: 80, weight: 3}")).await;
    let loaded = rest.server.revision();
    wait(&rest, &path, |_| rest.server.revision() > loaded).await;
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
    let annotated = route(
        "xds-server.io/weight-source: file",
        "{name: v1, port: 80, weight: 9}, {name: v2, port: 80, weight: 1}",
    );
    load(&rest, &annotated).await;
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
    load(&rest, &route("", "{name: v1, port: 80, weight: 9}, {name: v2, port: 80, weight: 1}, {name: v3, port: 80, weight: 10}")).await;
    wait(&rest, &path, |_| served_weights(&rest, ROUTES) == json!([80, 20, 100])).await;
    load(&rest, &route("", "{name: v3, port: 80}")).await;
    let rollout = wait(&rest, &path, |one| one["phase"] == "Failed").await;
    assert!(rollout["message"].as_str().unwrap().contains("v1:80"), "{rollout:#}");
    load(&rest, &route("", HALVES)).await;
    assert_eq!(rest.get(RULE).await.json()["backends"], json!({"v1:80": 90, "v2:80": 10}));
}

#[tokio::test]
async fn a_key_begins_one_rollout_however_often_it_is_sent() {
    let rest = world().await;
    let headers = [JSON, ("idempotency-key", "k-1")];
    let body = rollout(&json!({})).to_string();
    let first = rest.call("POST", "/v1/rollouts", &headers, &body).await;
    let again = rest.call("POST", "/v1/rollouts", &headers, &body).await;
    assert_eq!((first.status, again.status), (202, 200), "{}", again.text);
    assert_eq!(first.json()["id"], again.json()["id"]);
    let other = rollout(&json!({"autoPromote": true})).to_string();
    assert_eq!(rest.call("POST", "/v1/rollouts", &headers, &other).await.status, 422);
}

#[tokio::test]
async fn who_asks_names_what_it_saw_if_it_wants() {
    let rest = world().await;
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let seen = rest.get(&path).await.headers["etag"].to_str().unwrap().to_owned();
    let resume = format!("{path}:resume");
    assert_eq!(rest.call("POST", &resume, &[("if-match", &seen)], "").await.status, 200);
    wait(&rest, &path, at("Paused", 4)).await;
    let stale = rest.call("POST", &resume, &[("if-match", &seen)], "").await;
    assert_eq!(
        (stale.status, &stale.json()["type"]),
        (412, &json!("https://xds-server.io/problems/etag-mismatch"))
    );
    assert_eq!(
        rest.call("DELETE", &format!("{path}?abort=true"), &[("if-match", &seen)], "").await.status,
        412
    );
}

#[tokio::test]
async fn a_step_that_cannot_be_stored_is_not_done_and_is_tried_again() {
    let store = MemoryStore::new();
    let rest = Rest::new(Server::with_files(&store));
    load(&rest, &route("", HALVES)).await;
    let path = start(
        &rest,
        &json!({"steps": [{"setWeight": 20}, {"pause": {"duration": "300ms"}}, {"setWeight": 60}]}),
    )
    .await;
    wait(&rest, &path, at("Paused", 2)).await;
    store.is_failing.store(true, Ordering::SeqCst);
    let refused = post(&rest, &format!("{path}:abort"), &json!({})).await;
    assert_eq!(refused.status, 507, "{}", refused.text);
    // Its time comes, and what it does then is refused as the abort was.
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.n_refused.load(Ordering::SeqCst) < 3 {
        assert!(Instant::now() < deadline, "the step is not tried");
        sleep(Duration::from_millis(5)).await;
    }
    assert!(at("Paused", 2)(&rest.get(&path).await.json()));
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
    store.is_failing.store(false, Ordering::SeqCst);
    wait(&rest, &path, at("Paused", 4)).await;
    assert_eq!(served_weights(&rest, ROUTES), json!([40, 60]));
}

#[tokio::test]
async fn a_rollout_goes_on_after_a_restart_with_the_weights_it_had() {
    let store = MemoryStore::new();
    let path = {
        let rest = Rest::new(Server::with_files(&store));
        load(&rest, &route("", HALVES)).await;
        let path = start(&rest, &json!({})).await;
        wait(&rest, &path, at("Paused", 2)).await;
        path
    };
    let rest = Rest::new(Server::with_files(&store));
    let early = post(&rest, &format!("{path}:resume"), &json!({})).await;
    assert_eq!(early.status, 503, "{}", early.text);
    load(&rest, &route("", HALVES)).await;
    connect_client(&rest);
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]), "from the first publication on");
    let rollout = wait(&rest, &path, at("Paused", 2)).await;
    assert_eq!(rollout["weights"]["canary"], 20);
    wait(&rest, &path, |_| true).await;
    let reply = post(&rest, &format!("{path}:promote"), &json!({"full": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(served_weights(&rest, ROUTES), json!([0, 100]));
}

/// A webhook that answers each call with the next of these statuses, and the last one from then on.
async fn webhook(statuses: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut n = 0;
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let status = statuses[n.min(statuses.len() - 1)];
            let _ =
                socket.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
            n += 1;
        }
    });
    url
}

#[tokio::test]
async fn a_gate_is_asked_until_it_says_go_and_a_check_that_fails_aborts() {
    let rest = world().await;
    let gate = webhook(&["403 Forbidden", "200 OK"]).await;
    let check = webhook(&["500 Internal Server Error"]).await;
    let hooks = json!({
        "steps": [{"setWeight": 20}], "interval": "1s",
        "webhooks": [
            {"name": "gate", "type": "confirm-rollout", "url": gate},
            {"name": "check", "type": "pre-rollout", "url": check},
        ],
    });
    let path = start(&rest, &hooks).await;
    let waiting = wait(&rest, &path, |one| one["message"].to_string().contains("gate")).await;
    assert_eq!((&waiting["phase"], served_weights(&rest, ROUTES)), (&json!("Pending"), json!([100, 0])));
    let failed = wait(&rest, &path, |one| one["phase"] == "Failed").await;
    let events = failed["events"].to_string();
    assert!(events.contains("the webhook \\\"check\\\" did not approve: 500"), "{failed:#}");
    assert_eq!(served_weights(&rest, ROUTES), json!([100, 0]));
}

/// A webhook that reads what it is sent, and answers with these bytes or never.
async fn answering(bytes: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?token=hunter2", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = vec![];
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            match bytes {
                Some(bytes) => _ = socket.write_all(bytes).await,
                None => kept.push(socket),
            }
        }
    });
    url
}

#[tokio::test]
async fn a_webhook_that_hangs_or_answers_garbage_is_no_go_and_weights_stay() {
    let rest = world().await;
    let garbage: &[u8] = b"\x00\xff garbage\r\n\r\n";
    for (bytes, said) in
        [(None, "no answer within"), (Some(garbage), "not an HTTP answer"), (Some(b""), "not an HTTP answer")]
    {
        let hook =
            |kind: &str, url: &str| json!({"name": kind, "type": kind, "url": url, "timeout": "200ms"});
        let url = answering(bytes).await;
        // A check that hangs aborts; a gate is asked again and again, and an event is told to nobody.
        let path = start(&rest, &json!({"webhooks": [hook("event", &url), hook("pre-rollout", &url)]})).await;
        let failed = wait(&rest, &path, |one| one["phase"] == "Failed").await;
        let events = failed["events"].to_string();
        assert!(events.contains(said) && !events.contains("hunter2"), "{failed:#}");
        let path = start(&rest, &json!({"webhooks": [hook("confirm-traffic-increase", &url)]})).await;
        let waiting = wait(&rest, &path, |one| one["message"].to_string().contains(said)).await;
        assert_eq!((&waiting["phase"], &waiting["step"]), (&json!("Progressing"), &json!(1)), "{waiting:#}");
        assert_eq!(served_weights(&rest, ROUTES), json!([100, 0]));
        let aborted = post(&rest, &format!("{path}:abort"), &json!({})).await;
        assert_eq!(aborted.status, 200, "{}", aborted.text);
        wait(&rest, &path, |one| one["phase"] == "Aborted").await;
    }
}

#[tokio::test]
async fn without_reports_and_with_garbage_for_an_answer_nothing_is_judged() {
    let rest = world().await;
    let prometheus = webhook(&["200 OK"]).await;
    let analysis = json!({
        "interval": "1s", "inconclusiveLimit": 1,
        "prometheus": {"address": prometheus, "query": "up", "min": 1},
    });
    let path = start(&rest, &json!({"steps": [{"setWeight": 20}, {"analysis": analysis}]})).await;
    let paused = wait(&rest, &path, |one| one["phase"] == "Paused").await;
    assert!(paused["message"].as_str().unwrap().contains("the answer is not JSON"), "{paused:#}");
    assert_eq!((&paused["failedMeasurements"], served_weights(&rest, ROUTES)), (&json!(0), json!([80, 20])));
}

#[tokio::test]
async fn events_and_a_watcher_tell_each_step() {
    let rest = world().await;
    let mut events = rest.server.control.events();
    let path = start(&rest, &json!({"steps": [{"setWeight": 20}], "autoPromote": true})).await;
    wait(&rest, &path, at("Succeeded", 2)).await;
    let said: Vec<String> = told(&mut events)
        .into_iter()
        .filter_map(|event| {
            let Event::Rollout { event, .. } = event else { return None };
            Some(event.message)
        })
        .collect();
    assert_eq!(
        said,
        [
            "started",
            "step 1: 20 % to the canary",
            "step 2: 100 % to the canary",
            "the canary has all traffic"
        ]
    );
    // It has ended, so the stream does, after what it is now.
    let stream = rest.get(&format!("{path}?watch=1")).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert_eq!(stream.text.matches("event: rollout").count(), 1, "{}", stream.text);
    let id = stream.text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let again = rest.call("GET", &format!("{path}?watch=1"), &[("last-event-id", id)], "").await;
    assert_eq!(again.text, "", "it is known already");
}

/// A RouteTest about the share of the canary.
fn wants(share: &str, policy: &str) -> Write {
    route_tests::apply(&format!(
        "apiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: {{ name: share, namespace: prod }}\nspec:\n  policy: {policy}\n  tests:\n  \
         - request: {{ host: a.test, path: /x.Y/Z, method: POST, headers: {{ content-type: application/grpc }} }}\n    \
         expect: {{ backends: {{ v2: \"{share}\" }} }}\n"
    ))
}

#[tokio::test]
async fn a_step_that_breaks_a_route_test_does_not_happen() {
    for policy in ["refuse", "hold"] {
        let rest = world().await;
        rest.server.write(wants("<=50%", policy)).await.unwrap();
        let mut events = rest.server.control.events();
        let path = start(&rest, &json!({"steps": [{"setWeight": 20}, {"setWeight": 60}]})).await;
        let paused = wait(&rest, &path, at("Paused", 1)).await;
        let said = "paused: the next step breaks RouteTest prod/share: POST a.test/x.Y/Z (envoy@1.40): backends.v2: expected at most 50 %, got 60 %";
        let message = paused["message"].as_str().unwrap();
        assert!(message.starts_with(said), "{message}");
        assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
        let is_told =
            |event: Event| matches!(event, Event::Rollout { event, .. } if event.message.starts_with(said));
        assert!(told(&mut events).into_iter().any(is_told));
        // Whoever resumes it is told why it stays.
        let resume = async || post(&rest, &format!("{path}:resume"), &json!({})).await;
        let refused = resume().await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains("expected at most 50 %"), "{}", refused.text);
        wait(&rest, &path, at("Paused", 1)).await;
        rest.server.write(wants("<=70%", policy)).await.unwrap();
        assert_eq!(resume().await.status, 200);
        wait(&rest, &path, at("Paused", 3)).await;
        assert_eq!(served_weights(&rest, ROUTES), json!([40, 60]));
        // Nothing is in the way of going back.
        rest.server.write(wants(">=10%", policy)).await.unwrap();
        assert_eq!(post(&rest, &format!("{path}:abort"), &json!({})).await.status, 200);
        assert_eq!(served_weights(&rest, ROUTES), json!([100, 0]));
    }
}

#[tokio::test]
async fn a_canary_whose_assignment_becomes_empty_is_taken_back_at_once_and_a_rollout_to_one_is_refused() {
    let rest = world().await;
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let empty = all(&route("", HALVES)).replace("endpoints: [{addresses: [10.0.0.2]}]", "endpoints: []");
    rest.server.control.load_files(files(&[("r/a.yaml", &empty)])).await.unwrap();
    let failed = wait(&rest, &path, |one| one["phase"] == "Failed").await;
    assert_eq!(failed["weights"], json!({"stable": 100, "canary": 0}));
    assert!(failed["reason"].as_str().unwrap().contains("the canary has no ready endpoint"), "{failed:#}");
    let refused = post(&rest, "/v1/rollouts", &rollout(&json!({}))).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["pointer"]), (422, &json!("#/canary")));
}

#[tokio::test]
async fn without_a_client_no_step_is_passed() {
    let rest = world().await;
    let fields = json!({"steps": [{"setWeight": 20, "waitAck": "1s"}], "autoPromote": true});
    let reply = post(&rest, "/v1/rollouts", &rollout(&fields)).await;
    let path = reply.headers["location"].to_str().unwrap().to_owned();
    let paused = wait(&rest, &path, at("Paused", 1)).await;
    assert!(paused["message"].as_str().unwrap().contains("nobody has the step"), "{paused:#}");
    assert_eq!(paused["acked"], json!({"n": 0, "of": 0, "nacked": 0}));
}

#[tokio::test]
async fn the_answer_to_a_start_says_what_becomes_of_inconclusive_measurements() {
    let rest = world().await;
    let fields = json!({"steps": [{"setWeight": 20}, {"analysis": {"inconclusiveLimit": 3}}]});
    let answer = post(&rest, "/v1/rollouts", &rollout(&fields)).await.json();
    let said = answer["inconclusive"].as_str().unwrap();
    assert!(said.contains("more than 3 in a row") && said.contains("onInconclusive: pause"), "{said}");
    assert_eq!(answer["spec"]["onInconclusive"], "pause");
}
