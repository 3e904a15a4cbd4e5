//! Weights over REST: the answers and results of changes, and the fate of overrides when objects change.

use serde_json::Value;
use tokio::time::{Duration, timeout};
use xds_codec::weights::{HeaderCondition, HeaderRoute, HeaderText};
use xds_control::model::weights::change::WeightChange;
use xds_control::model::weights::{RuleKey, WeightedObject};

use super::documents::files;
use super::rest::{Reply, Rest};
use super::*;

pub(super) const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
pub(super) const ANY: (&str, &str) = ("if-match", "*");
pub(super) const RULE: &str = "/v1/weights/GRPCRoute/prod/greeter/0";

pub(super) fn route(annotations: &str, backends: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\n\
         metadata: {{name: greeter, namespace: prod, annotations: {{{annotations}}}}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  rules:\n  - backendRefs: [{backends}]\n  - name: fixed\n    \
         matches: [{{method: {{service: fixed.Fixed}}}}]\n    backendRefs: [{{name: v1, port: 80}}]\n"
    )
}

pub(super) const HALVES: &str = "{name: v1, port: 80, weight: 90}, {name: v2, port: 80, weight: 10}";

pub(super) fn all(route: &str) -> String {
    let service = |name: &str, host: u8| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: prod}}\n\
             spec: {{ports: [{{port: 80, appProtocol: kubernetes.io/h2c}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}, namespace: prod, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nports: [{{port: 80}}]\nendpoints: [{{addresses: [10.0.0.{host}]}}]\n"
        )
    };
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: prod}\n\
                   spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}\n";
    let services: String = [("v1", 1), ("v2", 2), ("v3", 3)].map(|(name, host)| service(name, host)).concat();
    format!("{gateway}---\n{route}{services}")
}

pub(super) async fn load(rest: &Rest, route: &str) {
    rest.server.control.load_files(files(&[("r/a.yaml", &all(route))])).await.unwrap();
}

pub(super) async fn world() -> Rest {
    let rest = Rest::new(Server::with_files(&MemoryStore::new()));
    load(&rest, &route("", HALVES)).await;
    rest
}

async fn patch(rest: &Rest, query: &str, body: &Value) -> Reply {
    rest.call("PATCH", &format!("{RULE}{query}"), &[MERGE, ANY], &body.to_string()).await
}

async fn set(rest: &Rest, v1: u32, v2: u32) -> Reply {
    let reply = patch(rest, "", &json!({"backends": {"v1:80": v1, "v2:80": v2}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply
}

async fn rule(rest: &Rest) -> Value {
    rest.get(RULE).await.json()
}

fn etag(reply: &Reply) -> String {
    reply.headers["etag"].to_str().unwrap().to_owned()
}

/// The versions of what an Envoy is served, by type.
fn versions(rest: &Rest) -> BTreeMap<String, Vec<(String, String)>> {
    let view = rest.server.publisher.view_at(&view_key_of_group(&group("default"), Profile::Envoy)).unwrap();
    let mut versions = BTreeMap::<_, Vec<_>>::new();
    for resource in view.resources() {
        let slug = resource.resource_type().slug().to_owned();
        versions.entry(slug).or_default().push((resource.name().to_string(), resource.version().to_string()));
    }
    versions
}

/// The weights of the clusters of the first route of the RouteConfiguration that an Envoy is served.
pub(super) fn served_weights(rest: &Rest, name: &str) -> Value {
    let view = rest.server.publisher.view_at(&view_key_of_group(&group("default"), Profile::Envoy)).unwrap();
    let key = ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.into() };
    let routes = view.resources().find(|resource| *resource.key() == key).unwrap();
    let routes = codec().to_json(routes);
    let all = routes["virtual_hosts"][0]["routes"].as_array().unwrap();
    let split = all.iter().find(|route| route["route"]["weighted_clusters"].is_object()).unwrap();
    let clusters = split["route"]["weighted_clusters"]["clusters"].as_array().unwrap();
    clusters.iter().map(|cluster| cluster["weight"].clone()).collect()
}

pub(super) const ROUTES: &str = "prod/edge/8080";

/// A change of weights is checked before, so only a fault of the server leads to a resource that cannot be generated.
#[tokio::test]
async fn a_change_whose_resources_cannot_be_generated_is_refused() {
    let rest = world().await;
    let before = versions(&rest);
    let value = HeaderText::Regex("(?x)a".to_owned());
    let headers = vec![HeaderCondition { name: "x-tester".to_owned(), value }];
    let testers = HeaderRoute { name: "testers".to_owned(), headers, backend: "v2:80".to_owned() };
    let change = WeightChange { header_routes: Some(vec![testers]), ..WeightChange::default() };
    let object = WeightedObject::parse("GRPCRoute", "prod", "greeter").unwrap();
    let key = RuleKey { object, rule: "0".into() };
    let write = Write::ChangeWeights { key, change };
    let refused = rest.server.control.write(write, WriteOptions::default()).await.unwrap_err();
    let WriteError::Invalid(faults) = refused else { panic!("{refused}") };
    let said = faults[0].to_string();
    assert!(said.contains("a fault of xds-server, and stays as it was: ") && said.contains("(?x"), "{said}");
    assert_eq!((versions(&rest), rule(&rest).await["overridden"].clone()), (before, json!(false)));
}

#[tokio::test]
async fn weights_are_shown_changed_and_given_back() {
    let rest = world().await;
    let object = rest.get("/v1/weights/GRPCRoute/prod/greeter").await;
    let shown = object.json();
    assert_eq!((object.status, &shown["rules"][1]["id"]), (200, &json!("fixed")), "{shown:#}");
    let first = &shown["rules"][0];
    assert_eq!(
        (&first["backends"], &first["effective"], &first["source"], &first["overridden"]),
        (
            &json!({"v1:80": 90, "v2:80": 10}),
            &json!({"v1:80": 90.0, "v2:80": 10.0}),
            &json!("file"),
            &json!(false)
        )
    );
    let seen = rest.get(RULE).await;
    assert_eq!(etag(&seen), format!("\"{}\"", first["etag"].as_str().unwrap()));

    let before = rest.server.revision();
    let reply = rest
        .call(
            "PATCH",
            RULE,
            &[MERGE, ("if-match", &etag(&seen))],
            r#"{"backends": {"v1:80": 50, "v2:80": 50}}"#,
        )
        .await;
    let answer = reply.json();
    assert_eq!(
        (reply.status, &answer["committed"], &answer["revision"]),
        (200, &json!(true), &json!(before + 1))
    );
    let now = rule(&rest).await;
    assert_eq!(
        (&now["backends"], &now["source"], &now["fileWeights"], &now["overridden"]),
        (
            &json!({"v1:80": 50, "v2:80": 50}),
            &json!("override"),
            &json!({"v1:80": 90, "v2:80": 10}),
            &json!(true)
        )
    );
    assert_eq!(served_weights(&rest, ROUTES), json!([50, 50]));
    let history = rest.get(&format!("/v1/history/{}", before + 1)).await.text;
    assert!(history.contains("weights/GRPCRoute/prod/greeter/0"), "{history}");
    // The document stays as it was written.
    let document = rest.get("/v1/documents/GRPCRoute/prod/greeter").await.json();
    assert_eq!((&document["generation"], &document["source"]), (&json!(1), &json!("file")));

    let put = r#"{"backends": {"v2:80": 30}}"#;
    let json_type = ("content-type", "application/json");
    assert_eq!(rest.call("PUT", RULE, &[json_type, ANY], put).await.status, 200);
    assert_eq!(rule(&rest).await["backends"], json!({"v1:80": 90, "v2:80": 30}));
    assert_eq!(rest.call("DELETE", RULE, &[ANY], "").await.status, 200);
    assert_eq!(
        (rule(&rest).await["source"].clone(), served_weights(&rest, ROUTES)),
        (json!("file"), json!([90, 10]))
    );
    let list = rest.get("/v1/weights?kind=GRPCRoute").await.json();
    assert_eq!(list["objects"].as_array().unwrap().len(), 1, "{list:#}");
}

#[tokio::test]
async fn a_change_of_weights_changes_route_configurations_alone_pitfall_44() {
    let rest = world().await;
    let before = versions(&rest);
    for (v1, v2) in [(50, 50), (0, 100), (100, 0), (1, 999_999)] {
        set(&rest, v1, v2).await;
        let mut after = versions(&rest);
        assert_ne!(after["routes"], before["routes"]);
        after.insert("routes".to_owned(), before["routes"].clone());
        assert_eq!(after, before, "{v1}/{v2}");
    }
}

#[tokio::test]
async fn an_equal_value_is_no_revision() {
    let rest = world().await;
    let before = rest.server.revision();
    assert_eq!(set(&rest, 90, 10).await.json()["changed"], json!(false), "as the file has it");
    set(&rest, 80, 20).await;
    let served = versions(&rest);
    let again = set(&rest, 80, 20).await.json();
    assert_eq!((&again["changed"], rest.server.revision()), (&json!(false), before + 1));
    assert_eq!(versions(&rest), served);
    // As the file has it again: then nothing is laid over it.
    set(&rest, 90, 10).await;
    assert_eq!(rule(&rest).await["overridden"], json!(false));
}

#[tokio::test]
async fn what_is_wrong_with_a_change_is_told_and_nothing_changes() {
    let rest = world().await;
    set(&rest, 70, 30).await;
    let (revision, served) = (rest.server.revision(), versions(&rest));
    let weights = |value: Value| json!({"backends": {"v2:80": value}}).to_string();
    for (body, status, problem, pointer) in [
        (json!({"backends": {"v3:80": 1}}).to_string(), 422, "unknown-backend", "#/backends/v3:80"),
        (json!({"backends": {"v1:80": 0, "v2:80": 0}}).to_string(), 422, "weights-sum-zero", "#/backends"),
        (weights(json!(-1)), 422, "weight-out-of-range", "#/backends/v2:80"),
        (weights(json!(0.5)), 422, "weight-out-of-range", "#/backends/v2:80"),
        (weights(json!(1_000_001)), 422, "weight-out-of-range", "#/backends/v2:80"),
        (weights(json!("many")), 422, "weight-out-of-range", "#/backends/v2:80"),
        (json!({"percent": {"v1:80": 60, "v2:80": 60}}).to_string(), 422, "weight-out-of-range", "#/percent"),
        (json!({"wieghts": {}}).to_string(), 422, "invalid", "#/wieghts"),
        ("{\"backends\": {".to_owned(), 400, "unreadable-body", "#"),
    ] {
        let reply = rest.call("PATCH", RULE, &[MERGE, ANY], &body).await;
        let told = reply.json();
        assert_eq!(reply.status, status, "{body}: {told:#}");
        assert!(told["type"].as_str().unwrap().ends_with(problem), "{body}: {told:#}");
        assert_eq!(told["errors"][0]["pointer"], json!(pointer), "{body}: {told:#}");
    }
    let good = json!({"backends": {"v2:80": 1}}).to_string();
    for (path, status, detail) in [
        ("/v1/weights/GRPCRoute/prod/greeter/7", 404, "its rules are 0, fixed"),
        ("/v1/weights/GRPCRoute/prod/nobody/0", 404, "GRPCRoute prod/nobody"),
        ("/v1/weights/Service/prod/v1/0", 404, "not a kind with weights"),
        ("/v1/weights/RouteConfiguration/default/prod%2Fedge%2F8080/0", 404, "does not exist"),
    ] {
        let reply = rest.call("PATCH", path, &[MERGE, ANY], &good).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text);
        assert!(reply.json()["detail"].as_str().unwrap().contains(detail), "{path}: {}", reply.text);
    }
    let generated = rest.get("/v1/weights/RouteConfiguration/default/prod%2Fedge%2F8080").await;
    assert!(generated.text.contains("change the weights of its documents"), "{}", generated.text);
    for kind in ["text/plain", "application/json-patch+json"] {
        assert_eq!(
            rest.call("PATCH", RULE, &[("content-type", kind), ANY], &good).await.status,
            415,
            "{kind}"
        );
    }
    let long = format!("{{\"backends\": {{\"v2:80\": 1}}, \"x\": \"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(rest.call("PATCH", RULE, &[MERGE, ANY], &long).await.status, 413);
    assert_eq!((rest.server.revision(), versions(&rest)), (revision, served));
}

#[tokio::test]
async fn a_change_names_what_it_saw_and_one_of_two_at_once_is_refused() {
    let rest = world().await;
    let body = r#"{"backends": {"v2:80": 20}}"#;
    for (method, body) in [("PATCH", body), ("PUT", body), ("DELETE", "")] {
        let reply = rest.call(method, RULE, &[("content-type", "application/json")], body).await;
        assert_eq!(reply.status, 428, "{method}: {}", reply.text);
        assert!(reply.json()["type"].as_str().unwrap().ends_with("precondition-required"));
    }
    let seen = etag(&rest.get(RULE).await);
    let headers = [MERGE, ("if-match", seen.as_str())];
    let (one, other) = tokio::join!(
        rest.call("PATCH", RULE, &headers, body),
        rest.call("PATCH", RULE, &headers, r#"{"backends": {"v2:80": 40}}"#),
    );
    let (done, refused) = if one.status == 200 { (one, other) } else { (other, one) };
    assert_eq!((done.status, refused.status), (200, 412), "{}", refused.text);
    let told = refused.json();
    let now = rest.get(RULE).await;
    assert!(told["type"].as_str().unwrap().ends_with("etag-mismatch"));
    assert_eq!((&told["etag"], &told["backends"]), (&json!(etag(&now)), &now.json()["backends"]), "{told:#}");
    assert_eq!(refused.headers["etag"], now.headers["etag"]);
    // A weight that changes in the file is seen as well.
    load(&rest, &route("", "{name: v1, port: 80, weight: 80}, {name: v2, port: 80, weight: 10}")).await;
    let stale = rest.call("PATCH", RULE, &[MERGE, ("if-match", &etag(&now))], body).await;
    assert_eq!(stale.status, 412, "{}", stale.text);
}

#[tokio::test]
async fn a_route_that_a_file_just_deleted_is_not_found() {
    let rest = world().await;
    let seen = etag(&rest.get(RULE).await);
    load(&rest, "apiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n").await;
    let reply =
        rest.call("PATCH", RULE, &[MERGE, ("if-match", &seen)], r#"{"backends": {"v2:80": 20}}"#).await;
    assert_eq!(reply.status, 404, "{}", reply.text);
}

#[tokio::test]
async fn a_dry_run_tells_the_difference_and_changes_nothing() {
    let rest = world().await;
    let before = (rest.server.revision(), versions(&rest));
    let answer = patch(&rest, "?dryRun=true", &json!({"percent": {"v2:80": 12.5}})).await.json();
    assert_eq!((rest.server.revision(), versions(&rest)), before);
    let difference = answer["difference"].as_array().unwrap();
    let what: Vec<&str> = difference.iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert!(what.starts_with(&["weights/GRPCRoute/prod/greeter/0"]), "{what:?}");
    assert!(what.contains(&"generated/envoy/default/routes/prod/edge/8080"), "{what:?}");
    assert!(what.iter().all(|what| !what.contains("/clusters/")), "{what:?}");
    assert_eq!(answer["affectedNodes"], json!([]));
    let of_envoys = answer["phases"].as_array().unwrap().iter().find(|of| of["client"] == "envoy").unwrap();
    let sent = &of_envoys["phases"][0]["send"][0];
    assert_eq!(
        (&of_envoys["group"], &sent["name"]),
        (&json!("default"), &json!("prod/edge/8080")),
        "{answer:#}"
    );
    assert_eq!(answer["committed"], json!(false));
    patch(&rest, "", &json!({"percent": {"v2:80": 12.5}})).await;
    assert_eq!(rule(&rest).await["backends"], json!({"v1:80": 8_750, "v2:80": 1_250}));
}

#[tokio::test]
async fn an_override_outlives_other_weights_of_its_file_and_a_restart() {
    let store = MemoryStore::new();
    let rest = Rest::new(Server::with_files(&store));
    load(&rest, &route("", HALVES)).await;
    set(&rest, 50, 50).await;
    load(&rest, &route("", "{name: v1, port: 80, weight: 80}, {name: v2, port: 80, weight: 20}")).await;
    let now = rule(&rest).await;
    assert_eq!(
        (&now["backends"], &now["fileWeights"]),
        (&json!({"v1:80": 50, "v2:80": 50}), &json!({"v1:80": 80, "v2:80": 20}))
    );
    let revision = rest.server.revision();
    let again = Rest::new(Server::with_files(&store));
    load(&again, &route("", "{name: v1, port: 80, weight: 80}, {name: v2, port: 80, weight: 20}")).await;
    assert_eq!((rule(&again).await, again.server.revision()), (now, revision));
    assert_eq!(served_weights(&again, ROUTES), json!([50, 50]));
}

#[tokio::test]
async fn a_file_whose_weights_are_to_win_ends_an_override_when_they_change() {
    let rest = world().await;
    let wins = "xds-server.io/weight-source: file";
    load(&rest, &route(wins, HALVES)).await;
    set(&rest, 50, 50).await;
    load(&rest, &route(wins, &format!("{HALVES}  "))).await;
    assert_eq!(rule(&rest).await["overridden"], json!(true), "nothing changed");
    load(&rest, &route(wins, "{name: v1, port: 80, weight: 80}, {name: v2, port: 80, weight: 20}")).await;
    assert_eq!(rule(&rest).await["backends"], json!({"v1:80": 80, "v2:80": 20}));
}

#[tokio::test]
async fn what_an_override_says_of_a_backend_that_is_gone_goes_with_an_event() {
    let rest = world().await;
    set(&rest, 50, 40).await;
    let mut events = rest.server.control.events();
    load(&rest, &route("", "{name: v2, port: 80, weight: 10}, {name: v3, port: 80, weight: 1}")).await;
    let now = rule(&rest).await;
    assert_eq!(now["backends"], json!({"v2:80": 40, "v3:80": 1}), "{now:#}");
    let dropped = Event::OverrideDropped {
        what: "weights/GRPCRoute/prod/greeter/0".to_owned(),
        reason: "v1:80: the rule no longer has this backend".to_owned(),
    };
    let told = told(&mut events);
    assert!(told.contains(&dropped), "{told:?}");
}

#[tokio::test]
async fn an_override_that_the_file_has_caught_up_with_goes_d6() {
    let rest = world().await;
    set(&rest, 0, 100).await;
    load(&rest, &route("", "{name: v1, port: 80, weight: 0}, {name: v2, port: 80, weight: 100}")).await;
    assert_eq!(rule(&rest).await["overridden"], json!(false));
    assert_eq!(served_weights(&rest, ROUTES), json!([0, 100]));
}

#[tokio::test]
async fn an_override_comes_back_with_its_object() {
    let rest = world().await;
    set(&rest, 50, 50).await;
    load(&rest, "apiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n").await;
    assert_eq!(rest.get(RULE).await.status, 404);
    let waiting = rest.server.control.documents().weights;
    assert!(waiting.values().all(|over| over.gone_since.is_some()) && waiting.len() == 1);
    load(&rest, &route("", HALVES)).await;
    assert_eq!(rule(&rest).await["backends"], json!({"v1:80": 50, "v2:80": 50}));
}

#[tokio::test]
async fn an_override_ends_by_itself() {
    let rest = world().await;
    tokio::spawn(rest.server.control.clone().end_overrides());
    let mut events = rest.server.control.events();
    let reply = patch(&rest, "", &json!({"backends": {"v2:80": 50}, "expires": "50ms"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let ended = async {
        loop {
            if let Event::OverrideDropped { reason, .. } = events.recv().await.unwrap() {
                return reason;
            }
        }
    };
    assert_eq!(timeout(Duration::from_secs(10), ended).await.unwrap(), "it has expired");
    assert_eq!(served_weights(&rest, ROUTES), json!([90, 10]));
    let history = rest.get("/v1/history?limit=1").await.json();
    assert_eq!(
        (&history["revisions"][0]["actor"], &history["revisions"][0]["source"]),
        (&json!("clock"), &json!("expiry")),
        "{history:#}"
    );
}

#[tokio::test]
async fn a_rollback_and_a_revert_bring_weights_back() {
    let rest = world().await;
    let before = rest.server.revision();
    set(&rest, 50, 50).await;
    set(&rest, 10, 90).await;
    rest.server.write(Write::Revert { of: Revision(before + 2) }).await.unwrap();
    assert_eq!(served_weights(&rest, ROUTES), json!([50, 50]));
    rest.server.write(rollback(before)).await.unwrap();
    assert_eq!(served_weights(&rest, ROUTES), json!([90, 10]));
    rest.server.write(rollback(before + 2)).await.unwrap();
    assert_eq!(served_weights(&rest, ROUTES), json!([10, 90]));
}

#[tokio::test]
async fn overrides_follow_documents_of_the_api() {
    let rest = world().await;
    set(&rest, 50, 50).await;
    let apply = async |backends: &str| {
        let reply = rest
            .call("POST", "/v1/apply", &[("content-type", "application/yaml")], &route("", backends))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    apply("{name: v1, port: 80, weight: 70}, {name: v2, port: 80, weight: 30}").await;
    let now = rule(&rest).await;
    assert_eq!((&now["backends"]["v1:80"], &now["fileWeights"]["v1:80"]), (&json!(50), &json!(70)));
    let answer = apply("{name: v2, port: 80, weight: 30}, {name: v3, port: 80}").await;
    let codes: Vec<&Value> = answer["warnings"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert!(codes.contains(&&json!("override-dropped")), "{answer:#}");
    let deleted = rest.call("DELETE", "/v1/documents/GRPCRoute/prod/greeter", &[], "").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text);
    assert_eq!(rule(&rest).await["backends"], json!({"v1:80": 90, "v2:80": 50}));
}

#[tokio::test]
async fn weights_of_a_written_route_configuration_change_wherever_it_is_written() {
    let rest = world().await;
    let body = json!({"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
        {"name": "main", "match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
            {"name": "a", "weight": 9}, {"name": "b", "weight": 1}]}}}]}]});
    let put = async |body: &Value| {
        let reply = rest.put("/v1/groups/default/resources/routes/r", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    };
    put(&json!({"name": "r", "virtual_hosts": body["virtual_hosts"]})).await;
    let path = "/v1/weights/RouteConfiguration/default/r/v%2Fmain";
    assert_eq!(rest.get(path).await.json()["backends"], json!({"a": 9, "b": 1}));
    let change = json!({"backends": {"a": 5, "b": 5}}).to_string();
    let dry_run = rest.call("PATCH", &format!("{path}?dryRun=true"), &[MERGE, ANY], &change).await.json();
    assert_eq!(dry_run["difference"][1]["what"], json!("default/routes/r"), "{dry_run:#}");
    let before = versions(&rest);
    assert_eq!(rest.call("PATCH", path, &[MERGE, ANY], &change).await.status, 200);
    assert_eq!(served_weights(&rest, "r"), json!([5, 5]));
    let changed: Vec<_> =
        versions(&rest)["routes"].iter().filter(|one| !before["routes"].contains(one)).cloned().collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    // The API owns the value that was put; other fields of it can change under the override.
    let owned = rest.get("/v1/groups/default/resources/routes/r").await.json();
    assert_eq!(owned["virtual_hosts"], body["virtual_hosts"]);
    let mut changed = json!({"name": "r", "virtual_hosts": body["virtual_hosts"]});
    changed["virtual_hosts"][0]["domains"] = json!(["a.com"]);
    put(&changed).await;
    assert_eq!(served_weights(&rest, "r"), json!([5, 5]));
    // Its backends change: what is said of one that is gone goes.
    changed["virtual_hosts"][0]["routes"][0]["route"]["weighted_clusters"]["clusters"] =
        json!([{"name": "a", "weight": 9}, {"name": "c", "weight": 1}]);
    put(&changed).await;
    assert_eq!(served_weights(&rest, "r"), json!([5, 1]));
    assert_eq!(rest.call("DELETE", path, &[ANY], "").await.status, 200);
    assert_eq!(served_weights(&rest, "r"), json!([9, 1]));
}

#[tokio::test]
async fn a_stored_override_that_cannot_be_read_is_named_and_left_out() {
    let store = MemoryStore::new();
    let rest = Rest::new(Server::with_files(&store));
    load(&rest, &route("", HALVES)).await;
    let key = "weights/GRPCRoute/prod/greeter/0";
    let value = store.put_blob("garbage".into()).await.unwrap();
    let commit =
        xds_store::Commit { changes: vec![xds_store::Change::set(key, value)], ..Default::default() };
    store.commit(store.head(), commit).await.unwrap();
    let again = Rest::new(Server::with_files(&store));
    load(&again, &route("", HALVES)).await;
    assert_eq!(served_weights(&again, ROUTES), json!([90, 10]));
    let problems = again.server.control.problems();
    assert!(problems.iter().any(|problem| problem.contains("GRPCRoute prod/greeter")), "{problems:?}");
    set(&again, 50, 50).await;
    assert_eq!(served_weights(&again, ROUTES), json!([50, 50]));
}
