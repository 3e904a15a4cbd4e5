//! Many committers at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use xds_store::{Change, CommitError, Retention, Revision, Store};

use crate::common::{contents, described, open, open_keeping};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_build_on_one_revision_exactly_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let store: Arc<dyn Store> = Arc::new(store);
    let mut winners = Vec::new();
    for expected in 0..20 {
        let mut tasks = Vec::new();
        for n in 0..16_u8 {
            let store = Arc::clone(&store);
            tasks.push(tokio::spawn(async move {
                let value = store.put_blob(Bytes::from(vec![n])).await.unwrap();
                (n, store.commit(Revision(expected), described(vec![Change::set("winner", value)])).await)
            }));
        }
        let mut won = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                (n, Ok(revision)) => {
                    assert_eq!(revision, Revision(expected + 1));
                    won.push(n);
                }
                (_, Err(CommitError::Conflict { head })) => assert_eq!(head, Revision(expected + 1)),
                (_, Err(other)) => panic!("{other:?}"),
            }
        }
        assert_eq!(won.len(), 1);
        winners.push(won[0]);
    }
    drop(store);
    let (store, _) = open(dir.path());
    for (revision, winner) in (1..).zip(winners) {
        let state = store.state_at(Revision(revision)).unwrap();
        assert_eq!(contents(&store, &state), BTreeMap::from([("winner".to_owned(), vec![winner])]));
    }
}

/// Each committer tries until it has made its commits, while others do, and while the history is compacted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_commit_that_was_acknowledged_is_in_one_order() {
    const COMMITTERS: u64 = 12;
    const COMMITS: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let keep = Retention { revisions: 100, ..Retention::default() };
    let (store, _) = open_keeping(dir.path(), keep);
    let store: Arc<dyn Store> = Arc::new(store);
    let mut tasks = Vec::new();
    for committer in 0..COMMITTERS {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0..COMMITS {
                let content = format!("{committer}/{n}");
                let value = store.put_blob(Bytes::from(content.clone())).await.unwrap();
                let mut expected = store.head();
                let revision = loop {
                    let change = Change::set(committer.to_string(), value);
                    match store.commit(expected, described(vec![change])).await {
                        Ok(revision) => break revision,
                        Err(CommitError::Conflict { head }) => {
                            assert!(head > expected, "a conflict names a newer head");
                            expected = head;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                };
                acknowledged.push((revision, committer, content));
            }
            acknowledged
        }));
    }
    let mut acknowledged = Vec::new();
    for task in tasks {
        acknowledged.extend(task.await.unwrap());
    }
    acknowledged.sort();
    let revisions: Vec<u64> = acknowledged.iter().map(|(revision, ..)| revision.0).collect();
    assert_eq!(revisions, (1..=COMMITTERS * COMMITS).collect::<Vec<_>>());

    drop(store);
    let (store, notes) = open(dir.path());
    assert_eq!(notes, []);
    assert_eq!(store.head(), Revision(COMMITTERS * COMMITS));
    let history = store.history(None, usize::MAX).unwrap();
    assert!(history.len() >= 100, "{}", history.len());
    for record in history {
        let (_, committer, content) = &acknowledged[record.revision.0 as usize - 1];
        let [change] = &record.commit.changes[..] else { panic!("{record:?}") };
        assert_eq!(change.key, committer.to_string());
        assert_eq!(store.blob(change.value.unwrap()).unwrap().unwrap(), content.as_bytes());
    }
}

/// Commits that build on each other need not wait for each other's sync.
#[tokio::test]
async fn commits_that_build_on_each_other_may_be_sent_together() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let commits = tokio::join!(
        store.commit(Revision(0), described(vec![])),
        store.commit(Revision(1), described(vec![])),
        store.commit(Revision(1), described(vec![])),
        store.commit(Revision(2), described(vec![])),
    );
    assert_eq!(commits.0.unwrap(), Revision(1));
    assert_eq!(commits.1.unwrap(), Revision(2));
    assert!(matches!(commits.2, Err(CommitError::Conflict { head: Revision(2) })));
    assert_eq!(commits.3.unwrap(), Revision(3));
}

#[tokio::test]
async fn a_commit_that_nobody_waits_for_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    {
        let mut commit = store.commit(Revision(0), described(vec![]));
        // One poll puts it into the queue.
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(commit.as_mut().poll(context))).await;
        drop(polled);
    }
    store.watch().wait_for(|head| *head == Revision(1)).await.unwrap();
}
