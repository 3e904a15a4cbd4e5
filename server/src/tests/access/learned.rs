//! What a caller learns of groups and documents out of scope, and what its tests stop there.

use serde_json::{Value, json};

use super::super::acked::AckingClient;
use super::*;

const PRINCIPALS: &[(&str, &str)] = &[
    ("admin", "role: admin"),
    ("edge", "role: admin, groups: ['edge*']"),
    ("viewer", "role: viewer"),
    ("operator", "role: operator"),
    ("reader", "role: viewer, groups: ['edge*']"),
];

/// A server with the groups `edge` and `prod`.
async fn world() -> (Rest, watch::Sender<Arc<Policy>>) {
    let (rest, policy) = server(PRINCIPALS);
    for group in ["edge", "prod"] {
        let ids = json!([format!("{group}-*"), "both-*"]);
        let body = json!({"selector": {"nodeIds": ids}}).to_string();
        assert_eq!(ask(&rest, "admin", "PUT", &format!("/v1/groups/{group}"), &body).await.status, 200);
    }
    (rest, policy)
}

#[tokio::test]
async fn only_who_may_change_all_files_asks_about_other_files() {
    let (rest, _policy) = world().await;
    for (who, status) in [("admin", 200), ("operator", 200), ("viewer", 403), ("edge", 403), ("reader", 403)]
    {
        let group = if who == "edge" || who == "reader" { "edge" } else { "default" };
        let body = |to: Value| json!({"from": "current", "to": to, "group": group}).to_string();
        let files = body(json!({"files": {"a.yaml": "resources: []"}}));
        let reply = ask(&rest, who, "POST", "/v1/diff", &files).await;
        assert_eq!(reply.status, status, "{who}: {reply:?}");
        let reply = ask(&rest, who, "POST", "/v1/diff", &body(json!("current"))).await;
        assert_eq!(reply.status, 200, "{who}: {reply:?}");
    }
}

#[tokio::test]
async fn a_test_is_about_clients_in_its_writers_scope() {
    let (rest, _policy) = world().await;
    let test = |mut spec: Value| {
        spec["policy"] = json!("refuse");
        spec["tests"] = json!([{"request": {"host": "a.example"}, "expect": {"unmatched": true}}]);
        json!({"apiVersion": "xds-server.io/v1", "kind": "RouteTest", "metadata": {"name": "t"}, "spec": spec})
            .to_string()
    };
    for (spec, status) in [
        (json!({"group": "prod"}), 403),
        (json!({"group": "default"}), 403),
        (json!({"node": "prod-1"}), 403),
        (json!({"node": "both-1"}), 403),
        (json!({"node": "other-1"}), 403),
        (json!({"group": "edge"}), 200),
        (json!({"node": "edge-1"}), 200),
        (json!({}), 200),
    ] {
        let reply = ask(&rest, "edge", "POST", "/v1/apply?group=edge", &test(spec.clone())).await;
        assert_eq!(reply.status, status, "{spec}: {reply:?}");
        assert!(status == 200 || !reply.text.contains("expected"), "{spec}: {reply:?}");
        let reply =
            ask(&rest, "admin", "POST", "/v1/apply?group=edge&dryRun=true", &test(spec.clone())).await;
        assert_eq!(reply.status, 200, "{spec}: {reply:?}");
    }
}

#[tokio::test]
async fn the_words_of_a_node_that_others_serve_too_are_withheld() {
    let (rest, _policy) = world().await;
    let clients = ["edge-1", "both-1", "prod-1"];
    let connect = |(id, node): (usize, &&str)| AckingClient::connect(&rest.server, id as u64, node);
    let clients: Vec<AckingClient> = clients.iter().enumerate().map(connect).collect();
    let cluster = json!({"name": "c", "connect_timeout": "1s"}).to_string();
    let path = "/v1/groups/default/resources/clusters/c";
    let put = ask(&rest, "admin", "PUT", path, &cluster).await.json();
    let revision = put["revision"].as_u64().unwrap();
    clients.iter().for_each(|client| client.nack(revision));
    let words = |reply: &Reply| reply.text.matches("no such filter").count();
    for (who, node, is_shown) in [
        ("reader", "edge-1", true),
        ("reader", "both-1", false),
        ("admin", "both-1", true),
        ("admin", "prod-1", true),
    ] {
        let reply = ask(&rest, who, "GET", &format!("/v1/nodes/{node}"), "").await;
        assert_eq!((reply.status, words(&reply) > 0), (200, is_shown), "{who} {node}: {reply:?}");
        assert_eq!(reply.text.contains("withheld"), !is_shown, "{who} {node}: {reply:?}");
    }
    let acks = format!("/v1/acks?revision={revision}");
    let (seen, all) =
        (ask(&rest, "reader", "GET", &acks, "").await, ask(&rest, "admin", "GET", &acks, "").await);
    assert_eq!((words(&seen), words(&all)), (1, 3), "{seen:?} {all:?}");
    assert_eq!(seen.json()["total"], 2, "{seen:?}");
    let fleet = async |who: &str| ask(&rest, who, "GET", "/v1/fleet", "").await;
    assert_eq!((words(&fleet("reader").await), words(&fleet("admin").await)), (1, 3));
}

#[tokio::test]
async fn readiness_names_nothing_to_who_may_not_see_everything() {
    let (_sender, policy) = watch::channel(Arc::new(policy(PRINCIPALS)));
    let access = Access { policy, ..Access::default() };
    let rest = Rest::with_access(Server::with_files(&MemoryStore::new()), access);
    let unready = async |who: &str| ask(&rest, who, "GET", "/readyz", "").await;
    assert!(unready("admin").await.text.contains("the files have not been read"));
    for who in ["", "wrong", "reader"] {
        let reply = unready(who).await;
        assert_eq!(reply.status, 503);
        assert!(reply.text.contains("nothing is served yet") && !reply.text.contains("files"), "{reply:?}");
    }
    rest.server.control.load_files(load(&[("edge", &[("a", "1")])])).await.unwrap();
    let why = "principals[0] of /etc/access.yaml ends soon";
    rest.server.control.note_access(Some(why.to_owned()), None);
    let is_told = async |who: &str| {
        let reply = ask(&rest, who, "GET", "/readyz", "").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.text.contains("access"), "the subject is told: {reply:?}");
        reply.text.contains(why)
    };
    for who in ["", "wrong", "reader"] {
        assert!(!is_told(who).await, "{who}");
    }
    assert!(is_told("admin").await && is_told("viewer").await);
    let probe = rest::call(xds_api::probe_router(rest.state.clone()), "GET", "/readyz", &[], "");
    assert!(!probe.await.text.contains(why));
}
