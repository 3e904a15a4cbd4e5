//! Explanations of the admin API: by what is served, within the caller's scope, without credentials.

use serde_json::Value;
use tokio::sync::watch;
use xds_api::Access;

use super::access::{ask, policy};
use super::rest::{JSON, Reply, Rest, rest};
use super::*;

const SHOP: &str = "version: xds-server/v1
listeners:
  edge: { port: 10000, address: 127.0.0.1 }
routes:
  shop:
    hosts: [shop.test]
    rules:
    - match: { prefix: /, headers: { authorization: 'Bearer right' } }
      to: staff
    - match: { prefix: / }
      to: { one: 90, two: 10 }
backends:
  staff: { endpoints: ['10.0.0.1:80'] }
  one: { endpoints: ['10.0.0.2:80'] }
  two: { endpoints: ['10.0.0.3:80'] }
";

async fn served() -> Rest {
    let rest = rest();
    let reply = rest.call("POST", "/v1/apply", &[("content-type", "application/yaml")], SHOP).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    rest
}

async fn explain(rest: &Rest, question: &Value) -> Reply {
    rest.call("POST", "/v1/explain?text=true", &[JSON], &question.to_string()).await
}

/// The clusters of an answer with their shares.
fn clusters(reply: &Reply) -> Vec<(String, Value)> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    let outcomes = answer["explanations"][0]["outcomes"].as_array().unwrap();
    let cluster = |one: &Value| one["cluster"]["name"].as_str().unwrap_or_default().to_owned();
    outcomes.iter().map(|one| (cluster(one), one["share"].clone())).collect()
}

#[tokio::test]
async fn an_answer_is_about_what_is_served_with_weights_that_the_api_changed() {
    let rest = served().await;
    let question = json!({"request": {"host": "shop.test", "path": "/a"}});
    let expected = [("default/one", json!([9, 10])), ("default/two", json!([1, 10]))];
    let expected = expected.map(|(name, share)| (name.to_owned(), share));
    assert_eq!(clusters(&explain(&rest, &question).await), expected);
    let weights = json!({"backends": {"one": 1, "two": 3}}).to_string();
    let if_match = ("if-match", "*");
    let reply = rest.call("PATCH", "/v1/weights/Route/default/shop/1", &[JSON, if_match], &weights).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let reply = explain(&rest, &question).await;
    let expected = [("default/one", json!([1, 4])), ("default/two", json!([3, 4]))];
    assert_eq!(clusters(&reply), expected.map(|(name, share)| (name.to_owned(), share)));
    let answer = reply.json();
    assert_eq!((&answer["revision"], &answer["groups"]), (&json!(2), &json!(["default"])));
    let text = answer["text"].as_str().unwrap();
    assert!(text.starts_with("client         envoy@1.40\nlistener       default/edge/10000"), "{text}");
    assert_eq!(answer["explanations"][0]["routes"][0]["place"]["document"], "Route default/shop");
}

#[tokio::test]
async fn a_target_without_a_call_is_answered_by_what_clients_hold() {
    let rest = served().await;
    let reply = explain(&rest, &json!({"request": {"target": "xds:///shop.test"}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    assert_eq!(answer["explanations"], json!([]));
    let held = answer["targets"].as_array().unwrap();
    let clients: Vec<&str> =
        held.iter().filter_map(|one| one["client"].as_str()?.split('@').next()).collect();
    assert_eq!(clients, ["grpc-core", "grpc-go", "grpc-java", "grpc-js"]);
    for one in held {
        let method = &one["methodConfig"][1];
        assert_eq!(method["route"]["place"]["document"], "Route default/shop", "{one:#}");
        assert_eq!(method["clusters"][0], json!({"cluster": "default/one", "share": [9, 10]}), "{one:#}");
        let tree = &one["loadBalancingConfig"]["children"][1];
        assert_eq!(tree["child"], "cluster:default/one", "{one:#}");
    }
    assert!(answer["text"].as_str().unwrap().contains("target         xds:///shop.test"), "{answer:#}");
    let missing = explain(&rest, &json!({"request": {"target": "xds:///none"}})).await.json();
    assert!(missing["targets"][0]["fails"].as_str().unwrap().contains("no Listener"), "{missing:#}");
    let envoy = json!({"clients": ["envoy"], "request": {"target": "xds:///shop.test"}});
    assert_eq!(explain(&rest, &envoy).await.status, 400);
}

#[tokio::test]
async fn credentials_of_a_request_are_not_in_the_answer() {
    let rest = served().await;
    let request = json!({"host": "shop.test", "headers": {"Authorization": "Bearer hunter2"}});
    let reply = explain(&rest, &json!({"request": request})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(!reply.text.contains("hunter2"), "{}", reply.text);
    assert_eq!(reply.json()["explanations"][0]["routes"][0]["failed"][0]["got"], "…");
}

#[tokio::test]
async fn each_fault_of_a_question_is_told_with_its_place() {
    let rest = served().await;
    let text = "{\"nod\": \"a\", \"group\": \"-/\", \"clients\": [\"nginx\"],\n \"request\": {\"host\": 1, \"pth\": \"/\", \
                \"port\": 70000, \"headers\": {\"x-a\": [true]}, \"tls\": \"yes\", \"from\": \"a\"}}";
    let reply = rest.call("POST", "/v1/explain", &[JSON], text).await;
    assert_eq!(reply.status, 422, "{}", reply.text);
    let problem = reply.json();
    let told: Vec<(&str, u64)> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (fault["pointer"].as_str().unwrap(), fault["line"].as_u64().unwrap()))
        .collect();
    for place in [
        ("#/nod", 1),
        ("#/clients/0", 1),
        ("#/request/host", 2),
        ("#/request/pth", 2),
        ("#/request/port", 2),
        ("#/request/headers/x-a/0", 2),
        ("#/request/tls", 2),
        ("#/request/from", 2),
    ] {
        assert!(told.contains(&place), "{place:?} is not among {told:?}\n{problem:#}");
    }
    for (question, status, detail) in [
        (json!({}), 422, "needs a `request`"),
        (json!({"request": {}}), 422, "needs a `host`"),
        (json!({"node": "a", "group": "b", "request": {"host": "a"}}), 422, "not about both"),
        (json!({"request": {"curl": "curl http://a/", "path": "/"}}), 422, "`curl` says this already"),
        (json!({"request": {"host": "a", "call": "s"}}), 422, "package.Service/Method"),
        (json!({"request": {"host": "a", "path": "x"}}), 422, "does not begin with `/`"),
        (json!({"group": "none", "request": {"host": "a"}}), 404, "none"),
        (json!([]), 422, "must be an object"),
    ] {
        let reply = explain(&rest, &question).await;
        assert_eq!(reply.status, status, "{question}: {}", reply.text);
        assert!(reply.text.contains(detail), "{question}: {}", reply.text);
    }
    let long = json!({"request": {"host": "a", "headers": {"x": "a".repeat(200 << 10)}}});
    assert_eq!(explain(&rest, &long).await.status, 413);
}

#[tokio::test]
async fn what_is_out_of_scope_is_as_if_it_did_not_exist() {
    let principals = [("all", "role: viewer"), ("edge", "role: viewer, groups: [edge]")];
    let (_sender, current) = watch::channel(Arc::new(policy(&principals)));
    let access = Access { policy: current, ..Access::default() };
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let asked = async |who: &str, question: Value| {
        ask(&rest, who, "POST", "/v1/explain", &question.to_string()).await.status
    };
    let request = json!({"host": "a"});
    assert_eq!(asked("all", json!({"request": request})).await, 200);
    assert_eq!(asked("all", json!({"node": "n", "request": request})).await, 200);
    assert_eq!(asked("edge", json!({"request": request})).await, 404);
    assert_eq!(asked("edge", json!({"group": "default", "request": request})).await, 404);
    assert_eq!(asked("edge", json!({"node": "n", "request": request})).await, 404);
}
