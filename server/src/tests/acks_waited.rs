//! `/v1/acks?wait=acked`: clients are waited for without a write.

use serde_json::Value;
use xds_cache::status::{EventKind, Standing};

use super::acked::{AckingClient, standing};
use super::rest::{Rest, rest};
use super::*;

/// Puts a cluster into a group.
async fn put(rest: &Rest, group: &str, name: &str) {
    let body = json!({"name": name, "connect_timeout": "1s"});
    let path = format!("/v1/groups/{group}/resources/clusters/{name}");
    assert_eq!(rest.put(&path, &body).await.status, 200);
}

async fn wait(rest: &Rest, query: &str) -> (u16, Value) {
    let reply = rest.get(&format!("/v1/acks?{query}&wait=acked&timeout=100ms")).await;
    (reply.status, reply.json())
}

/// A client that has answered nothing, and knows that it has everything of a revision.
fn has(client: &AckingClient, revision: u64) {
    client.record(EventKind::Current(Revision(revision)));
}

#[tokio::test(start_paused = true)]
async fn clients_are_waited_for_by_their_nodes_and_their_number() {
    let rest = rest();
    put(&rest, "default", "a").await;
    let first = AckingClient::connect(&rest.server, 1, "edge-1");
    first.leave_open(1);
    let (status, answer) = wait(&rest, "uses=current&nodes=edge-*&minClients=2").await;
    assert_eq!((status, &answer["revision"], &answer["total"]), (202, &json!(1), &json!(1)), "{answer}");
    assert_eq!((&answer["pending"], &answer["short"]), (&json!(["edge-1"]), &json!(2)));
    first.ack(1);
    let second = AckingClient::connect(&rest.server, 2, "edge-2");
    second.ack(1);
    let others = AckingClient::connect(&rest.server, 3, "mesh-1");
    others.leave_open(1);
    let (status, answer) = wait(&rest, "uses=1&nodes=edge-*&minClients=2").await;
    assert_eq!((status, &answer["acked"], &answer["short"]), (200, &json!(2), &Value::Null), "{answer}");
    assert_eq!(wait(&rest, "object=default/clusters/a&nodes=edge-*&minClients=2").await.0, 200);
    assert_eq!(wait(&rest, "uses=1").await.0, 202, "mesh-1 has not answered");
    assert_eq!(wait(&rest, "uses=1&nodes=none-*").await.0, 200);
    assert_eq!(wait(&rest, "uses=1&nodes=none-*&minClients=1").await.1["short"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_a_revision_does_not_concern_uses_it_once_it_has_everything() {
    let rest = rest();
    put(&rest, "default", "a").await;
    let client = AckingClient::connect(&rest.server, 1, "n1");
    client.ack(1);
    put(&rest, "elsewhere", "b").await;
    let (status, answer) = wait(&rest, "uses=current&minClients=1").await;
    assert_eq!((status, &answer["revision"], &answer["pending"]), (202, &json!(2), &json!(["n1"])));
    has(&client, 2);
    assert_eq!(wait(&rest, "uses=current&minClients=1").await.0, 200);
    let concerned = rest.get("/v1/acks?revision=2").await.json();
    assert_eq!(concerned["total"], json!(0), "its publication concerns nobody");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_counts_of_everything_and_not_of_another_object() {
    let rest = rest();
    put(&rest, "default", "b").await;
    let client = AckingClient::connect(&rest.server, 1, "n1");
    client.nack(1);
    client.record(standing("b", 1));
    put(&rest, "default", "a").await;
    client.leave_open(2);
    client.ack(2);
    has(&client, 2);
    let (status, answer) = wait(&rest, "uses=current&minClients=1").await;
    let rejected =
        json!({"node": "n1", "message": "no", "typeUrl": ResourceType::Cluster.type_url(), "resource": "b"});
    assert_eq!((status, &answer["alreadyFailing"]), (424, &json!([rejected])), "{answer}");
    let (status, answer) = wait(&rest, "object=default/clusters/a&minClients=1").await;
    assert_eq!((status, &answer["acked"]), (200, &json!(1)), "{answer}");
    assert_eq!(wait(&rest, "object=default/clusters/b").await.0, 424);
}

#[tokio::test(start_paused = true)]
async fn a_client_is_unknown_while_it_is_not_known_what_it_rejects() {
    let rest = rest();
    put(&rest, "default", "a").await;
    let client = AckingClient::connect(&rest.server, 1, "n1");
    client.nack(1);
    let since = Some(Revision(1));
    client.record(EventKind::Standing(Arc::new(Standing { n_unknown: 2, since, ..Standing::default() })));
    for question in ["uses=current", "revision=1", "object=default/clusters/a"] {
        let (status, answer) = wait(&rest, question).await;
        assert_eq!((status, &answer["nPending"]), (202, &json!(1)), "{answer}");
        assert_eq!((&answer["nUnknown"], &answer["unknown"]), (&json!(1), &json!(["n1"])));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_all_clients_have_to_use_everything_that_an_object_is_part_of() {
    let store = MemoryStore::new();
    let before = Rest::new(Server::without_files(&store));
    put(&before, "default", "a").await;
    put(&before, "default", "b").await;
    drop(before);
    let rest = Rest::new(Server::without_files(&store));
    let client = AckingClient::connect(&rest.server, 1, "n1");
    client.leave_open(2);
    assert_eq!(rest.get("/v1/acks?revision=1").await.status, 410);
    assert_eq!(wait(&rest, "object=default/clusters/a").await.0, 202);
    client.ack(2);
    assert_eq!(wait(&rest, "object=default/clusters/a&minClients=1").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_waited_for_is_refused() {
    let rest = rest();
    put(&rest, "default", "a").await;
    for (query, status, words) in [
        ("object=default/clusters/b&wait=acked", 404, "there is no default/clusters/b"),
        ("object=HTTPRoute/default/b", 404, "there is no HTTPRoute/default/b"),
        ("object=default/clusterz/b", 400, "is not a resource type"),
        ("object=a", 400, "neither KIND/NAMESPACE/NAME"),
        ("uses=soon", 400, "neither a revision nor current"),
        ("uses=current&revision=1", 400, "only one of"),
        ("uses=current&minClients=1", 400, "need wait=acked"),
        ("uses=9", 404, "there is no revision 9"),
        ("uses=9&wait=acked&timeout=10ms", 503, "revision 9 is not served"),
    ] {
        let reply = rest.get(&format!("/v1/acks?{query}")).await;
        assert!(reply.status == status && reply.text.contains(words), "{query}: {reply:?}");
    }
}
