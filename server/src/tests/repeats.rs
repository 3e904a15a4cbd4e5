//! Requests that are sent again with the same `Idempotency-Key`, to the same server or another one; and reads that wait for a revision.

use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::peers::Three;
use super::rest::{Reply, Rest};
use super::*;

const PATH: &str = "/v1/groups/default/resources/clusters/a";

async fn put_as(rest: &Rest, key: &str, query: &str, text: &str, more: &[(&str, &str)]) -> Reply {
    let body = json!({"name": "a", "alt_stat_name": text, "connect_timeout": "1s"});
    let headers = [&[("content-type", "application/json"), ("idempotency-key", key)], more].concat();
    rest.call("PUT", &format!("{PATH}{query}"), &headers, &body.to_string()).await
}

fn said(reply: &Reply) -> (u16, Value, Value) {
    let answer = reply.json();
    (reply.status, answer["revision"].clone(), answer["repeated"].clone())
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_done_once_by_whatever_server() {
    let three = Three::linked();
    let [a, b, _] = &three.rests;
    let first = put_as(a, "k-1", "", "1", &[]).await;
    assert_eq!(said(&first), (200, json!(1), Value::Null), "{first:?}");
    // It would be refused if it was done again.
    let only_new = [("if-none-match", "*")];
    let created = put_as(a, "k-0", "?wait=acked", "1", &only_new).await;
    assert_eq!(created.status, 412, "{created:?}");
    let again = put_as(a, "k-1", "", "1", &only_new).await;
    assert_eq!(said(&again), (200, json!(1), json!(true)), "{again:?}");
    // What came since stays.
    assert_eq!(said(&put_as(a, "k-2", "", "2", &[]).await), (200, json!(2), Value::Null));
    three.caught_up().await;
    assert_eq!(said(&put_as(b, "k-1", "?wait=acked", "1", &[]).await), (200, json!(1), json!(true)));
    assert_eq!(b.server.served("default")["a"], "2");
    assert_eq!(three.store.head().0, 2);
    // A dry run is none, and a key is for one request.
    let dry = put_as(b, "k-1", "?dryRun=true", "3", &[]).await;
    assert_eq!((dry.status, &dry.json()["changed"]), (200, &json!(true)), "{dry:?}");
    let other = put_as(b, "k-1", "", "3", &[]).await;
    assert!(other.status == 422 && other.text.contains("key-reused"), "{other:?}");
    let long = "k".repeat(257);
    for key in ["", long.as_str(), "k\u{e9}"] {
        assert_eq!(put_as(b, key, "", "3", &[]).await.status, 400, "{key:?}");
    }
}

#[tokio::test]
async fn a_request_that_failed_or_changed_nothing_is_not_remembered() {
    let store = MemoryStore::new();
    let rest = Rest::new(Server::without_files(&store));
    store.is_failing.store(true, Ordering::SeqCst);
    assert_eq!(put_as(&rest, "k", "", "1", &[]).await.status, 507);
    store.is_failing.store(false, Ordering::SeqCst);
    assert_eq!(said(&put_as(&rest, "k", "", "1", &[]).await), (200, json!(1), Value::Null));
    assert_eq!(said(&put_as(&rest, "same", "", "1", &[]).await), (200, json!(1), Value::Null));
    assert_eq!(said(&put_as(&rest, "same", "", "2", &[]).await), (200, json!(2), Value::Null));
    // It survives a restart.
    let rest = Rest::new(Server::without_files(&store));
    assert_eq!(said(&put_as(&rest, "k", "", "1", &[]).await), (200, json!(1), json!(true)));
    assert_eq!(rest.server.served("default")["a"], "2");
}

#[tokio::test]
async fn the_last_thousand_requests_are_remembered() {
    let store = MemoryStore::new();
    let rest = Rest::new(Server::without_files(&store));
    for n in 0..1_003 {
        let reply = put_as(&rest, &format!("k-{n}"), "", &n.to_string(), &[]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let n_kept = store.state().1.keys().filter(|key| key.starts_with("request/")).count();
    assert_eq!(n_kept, 1_000);
    assert_eq!(said(&put_as(&rest, "k-3", "", "3", &[]).await), (200, json!(4), json!(true)));
    assert_eq!(said(&put_as(&rest, "k-2", "", "2", &[]).await), (200, json!(1_004), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_the_revision_that_it_names() {
    let three = Three::linked();
    let [a, b, _] = &three.rests;
    let written = put_as(a, "k", "", "1", &[]).await.json();
    let path = format!("{PATH}?minRevision={}", written["revision"]);
    let read = b.get(&path).await;
    assert_eq!((read.status, &read.json()["alt_stat_name"]), (200, &json!("1")), "{read:?}");
    let began = Instant::now();
    let late = b.get(&format!("{PATH}?minRevision=99")).await;
    assert!(late.status == 503 && late.headers.contains_key("retry-after"), "{late:?}");
    assert!(late.text.contains("serves revision 1, and not 99 yet"), "{late:?}");
    assert!(began.elapsed() >= Duration::from_secs(10));
    assert_eq!(b.get(&format!("{PATH}?minRevision=x")).await.status, 400);
}
