//! Changes that come faster than they can be stored: a limited number wait, the others are refused for now, and accepted ones are done.
//! Files and sessions have tests of their own: `changes_that_come_while_a_load_is_taken_are_one_load`, `pitfall_61`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use xds_cache::Node;
use xds_cache::refusals::Reason;

use super::rest::{Reply, Rest};
use super::*;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of changes that control lets wait.
const MOST: usize = 256;

/// Puts a cluster of its own into the default group.
fn put_one(rest: &Rest, n: usize) -> tokio::task::JoinHandle<Reply> {
    let (path, name) = (format!("/v1/groups/default/resources/clusters/c{n}"), format!("c{n}"));
    let body =
        json!({"@type": ResourceType::Cluster.type_url(), "name": name, "connect_timeout": "1s"}).to_string();
    let router = rest.router.clone();
    tokio::spawn(async move {
        rest::call(router, "PUT", &path, &[("content-type", "application/json")], &body).await
    })
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn writes_that_come_faster_than_the_disk_takes_them_are_turned_away_and_those_taken_in_are_done() {
    const MORE: usize = 50;
    let store = MemoryStore::new();
    let rest = Rest::new(Server::without_files(&store));
    let server = &rest.server;
    let mut client = server.publisher.follow(&Node::with_id("n"));
    assert_eq!(client.take().unwrap().revision(), Revision(0));
    let held = store.gate.write().await;
    let writers: Vec<_> = (0..MOST + MORE).map(|n| put_one(&rest, n)).collect();
    until("the others are turned away", async || {
        writers.iter().filter(|writer| writer.is_finished()).count() == MORE
    })
    .await;
    // It may still be on its way there.
    until("one is at the disk", async || store.n_at_gate.load(Ordering::SeqCst) > 0).await;
    let refused = rest.refusals.counts();
    assert_eq!(refused.get(&Reason::Writes), Some(&(MORE as u64)));
    // A caller that hangs up frees no place, because a change that waits is made nevertheless.
    let (mut turned_away, mut taken_in) = (Vec::new(), Vec::new());
    for (n, writer) in writers.into_iter().enumerate() {
        match writer.is_finished() {
            true => turned_away.push(writer.await.unwrap()),
            false if n % 2 == 0 => writer.abort(),
            false => taken_in.push((n, writer)),
        }
    }
    let another = timeout(PATIENCE, put_one(&rest, MOST + MORE)).await.unwrap().unwrap();
    for reply in turned_away.iter().chain([&another]) {
        assert_eq!((reply.status, &reply.headers["retry-after"]), (503, &"1".parse().unwrap()), "{reply:?}");
        assert_eq!(reply.json()["type"], json!("https://xds-server.io/problems/busy"));
    }
    assert_eq!((server.revision(), store.n_at_gate.load(Ordering::SeqCst)), (0, 1), "one at a time");
    drop(held);
    until("all that were taken in are done", async || server.revision() == MOST as u64).await;
    for (n, writer) in taken_in {
        let reply = timeout(PATIENCE, writer).await.unwrap().unwrap();
        assert_eq!(reply.status, 200, "{n}: {reply:?}");
    }
    assert_eq!(server.served("default").len(), MOST);
    // Whoever follows skips what was between.
    assert_eq!(client.take().unwrap().revision(), Revision(MOST as u64));
    assert_eq!(put_one(&rest, MOST + MORE).await.unwrap().status, 200, "there is room again");
}

#[tokio::test]
async fn what_the_server_does_by_itself_waits_however_many_writes_wait() {
    let store = MemoryStore::new();
    let rest = Rest::new(Server::without_files(&store));
    let held = store.gate.write().await;
    let writers: Vec<_> = (0..=MOST).map(|n| put_one(&rest, n)).collect();
    until("the queue is full", async || writers.iter().any(|writer| writer.is_finished())).await;
    let own = [Write::EndOverrides, Write::Revert { of: Revision(1) }].map(|write| {
        let control = rest.server.control.clone();
        tokio::spawn(async move { control.write(write, WriteOptions::default()).await })
    });
    let mut own = futures_util::future::join_all(own);
    assert!(timeout(Duration::from_millis(20), &mut own).await.is_err(), "they wait");
    drop(held);
    for done in timeout(PATIENCE, own).await.unwrap() {
        done.unwrap().unwrap();
    }
    assert_eq!(rest.server.revision(), MOST as u64 + 1);
    assert_eq!(rest.server.served("default").len(), MOST - 1, "one was taken back");
}
