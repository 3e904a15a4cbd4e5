//! A first load that takes long to record is served first.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use xds_store::{Change, Commit};

use super::*;

/// Clusters of one group, more than are recorded before they are served.
fn large(n: usize, text: &str) -> FileLoad {
    let names: Vec<String> = (0..n).map(|n| format!("c{n}")).collect();
    let content: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text)).collect();
    load(&[("g", &content)])
}

/// Takes in files as long as the store may take.
fn loading(server: &Server, load: FileLoad) -> JoinHandle<Result<ReloadOutcome, WriteError>> {
    let control = server.control.clone();
    tokio::spawn(async move { control.load_files(load).await })
}

async fn wait_for(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not come to that");
        sleep(Duration::from_millis(1)).await;
    }
}

async fn wait_ready(server: &Server) {
    wait_for(|| server.control.not_ready().is_empty() && server.publisher.is_loaded()).await;
}

fn sources(server: &Server) -> Vec<String> {
    server.control.history(None, 9).unwrap().into_iter().map(|entry| entry.source).collect()
}

#[tokio::test]
async fn a_large_first_load_is_served_while_it_is_recorded_and_writes_wait() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    let held = store.gate.write().await;
    let mut load = loading(&server, large(LARGE, "1"));
    wait_ready(&server).await;
    assert_eq!((server.served("g").len(), server.revision()), (LARGE, 0));
    assert_eq!(server.control.files().len(), 1);
    let control = server.control.clone();
    let mut write =
        tokio::spawn(async move { control.write(put("g", "o", "1"), WriteOptions::default()).await });
    assert!(timeout(Duration::from_millis(50), &mut write).await.is_err(), "a write waits for the record");
    assert!(timeout(Duration::from_millis(1), &mut load).await.is_err(), "whoever loads does too");
    assert_eq!(server.control.problems(), Vec::<String>::new());
    drop(held);
    assert_eq!(load.await.unwrap().unwrap().revision, Revision(1));
    assert_eq!(write.await.unwrap().unwrap().revision, Revision(2));
    assert_eq!(
        (server.served("g").len(), sources(&server)),
        (LARGE + 1, vec!["api".to_owned(), "file".to_owned()])
    );
    // It is recorded once, also for the next start.
    let again = Server::with_files(&store);
    again.control.load_files(large(LARGE, "1")).await.unwrap();
    assert_eq!((again.revision(), again.served("g").len()), (2, LARGE + 1));
}

#[tokio::test]
async fn a_small_first_load_is_recorded_before_it_is_served() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    let held = store.gate.write().await;
    let load = loading(&server, large(9, "1"));
    wait_for(|| store.n_at_gate.load(Ordering::SeqCst) == 1).await;
    assert!(!server.control.not_ready().is_empty());
    drop(held);
    assert_eq!(load.await.unwrap().unwrap().revision, Revision(1));
}

#[tokio::test]
async fn a_first_load_that_takes_an_override_back_is_recorded_before_it_is_served() {
    let store = MemoryStore::new();
    let writer = Server::without_files(&store);
    writer.write(put("g", "c1", "1")).await.unwrap();
    let server = Server::with_files(&store);
    let held = store.gate.write().await;
    let load = loading(&server, large(LARGE, "1"));
    wait_for(|| store.n_at_gate.load(Ordering::SeqCst) == 2).await;
    assert!(!server.control.not_ready().is_empty());
    drop(held);
    load.await.unwrap().unwrap();
    assert_eq!(server.control.overrides().1.resources(&group("g")).map_or(0, |all| all.len()), 0);
}

#[tokio::test]
async fn a_first_load_that_goes_by_waves_is_recorded_before_it_is_served() {
    let store = MemoryStore::new();
    let waves = Some("10%,50%".parse().unwrap());
    let options = Options { watches_files: true, waves, ..Options::default() };
    let open = || Server::open(Arc::clone(&store) as Arc<dyn Store>, options.clone());
    open().control.load_files(large(LARGE, "1")).await.unwrap();
    let server = open();
    let held = store.gate.write().await;
    let load = loading(&server, large(LARGE, "2"));
    wait_for(|| store.n_at_gate.load(Ordering::SeqCst) == 2).await;
    assert!(!server.control.not_ready().is_empty());
    drop(held);
    assert_eq!(load.await.unwrap().unwrap().revision, Revision(2));
    assert_eq!(server.control.waves().len(), 1);
}

#[tokio::test]
async fn a_kill_before_the_first_load_is_recorded_leaves_the_same_to_do() {
    let store = MemoryStore::new();
    Server::with_files(&store).control.load_files(large(LARGE, "1")).await.unwrap();
    let held = store.gate.write().await;
    let killed = Server::with_files(&store);
    let load = loading(&killed, large(LARGE, "2"));
    wait_ready(&killed).await;
    assert_eq!(killed.served("g")["c7"], "2");
    load.abort();
    drop(killed);
    assert_eq!(store.head().0, 1);
    let server = Server::with_files(&store);
    let load = loading(&server, large(LARGE, "2"));
    wait_ready(&server).await;
    drop(held);
    // The one that was killed may have been at the door of the store: that is what a replica does.
    let revision = load.await.unwrap().unwrap().revision;
    assert_eq!((revision, server.served("g")["c7"].as_str()), (Revision(2), "2"));
    assert_eq!(server.control.revision(Revision(2), |_| true).unwrap().0.changes.len(), LARGE);
}

#[tokio::test]
async fn a_load_that_another_server_was_faster_than_is_recorded_on_top() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    let held = store.gate.write().await;
    let load = loading(&server, large(LARGE, "1"));
    wait_ready(&server).await;
    let value = store.put_blob("garbage".into()).await.unwrap();
    let commit = Commit { changes: vec![Change::set("label/other", value)], ..Commit::default() };
    store.commit_at_once(commit);
    drop(held);
    assert_eq!(load.await.unwrap().unwrap().revision, Revision(2));
    assert_eq!((server.revision(), server.served("g").len()), (2, LARGE));
}

#[tokio::test]
async fn a_store_that_fails_after_a_load_is_served_is_a_problem_until_it_is_recorded() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    store.is_failing.store(true, Ordering::Relaxed);
    server.control.load_files(large(LARGE, "1")).await.unwrap();
    assert_eq!((server.served("g").len(), server.revision(), server.control.problems().len()), (LARGE, 0, 1));
    store.is_failing.store(false, Ordering::Relaxed);
    assert_eq!(server.write(put("g", "o", "1")).await.unwrap().revision, Revision(2));
    assert_eq!((server.control.problems().len(), sources(&server).len()), (0, 2));
}

const LARGE: usize = 1_001;

const PATIENCE: Duration = Duration::from_secs(20);
