//! A store says what a plain list of maps says, before and after it is opened again.

use bytes::Bytes;
use proptest::prelude::*;
use xds_store::{
    BlobHash, Change, CommitError, HistoryError, MAX_BLOB_BYTES, MAX_KEY_BYTES, Retention, Revision, Store,
    StoreError,
};

use crate::common::{self, Step, assert_says, commit, contents, described, open, open_keeping, runtime};

fn step() -> impl Strategy<Value = Step> {
    let content = prop::option::weighted(
        0.8,
        prop_oneof![prop::collection::vec(any::<u8>(), 0..8), prop::collection::vec(any::<u8>(), 1000..5000),],
    );
    prop::collection::btree_map("[a-e]", content, 0..4).prop_map(|step| step.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each element is a step, or opens the store again, or compacts it to some revisions.
    #[test]
    fn a_store_says_what_a_list_of_maps_says(
        actions in prop::collection::vec(prop_oneof![
            6 => step().prop_map(Ok),
            1 => Just(Err(0_u64)),
            1 => (1_u64..6).prop_map(Err),
        ], 1..14),
    ) {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let (mut store, _) = open(dir.path());
            let mut steps = Vec::new();
            let mut oldest = 0;
            for action in actions {
                match action {
                    Ok(step) => {
                        steps.push(step);
                        let revision = commit(&store, &steps[steps.len() - 1]).await;
                        prop_assert_eq!(revision, Revision(steps.len() as u64));
                    }
                    Err(0) => {
                        drop(store);
                        let (opened, notes) = open(dir.path());
                        prop_assert_eq!(notes, vec![]);
                        store = opened;
                    }
                    Err(revisions) => {
                        let keep = Retention { revisions, ..Retention::default() };
                        let before = oldest;
                        oldest = oldest.max((steps.len() as u64).saturating_sub(revisions));
                        let done = store.compact(keep).await.unwrap();
                        prop_assert_eq!(done.n_dropped, oldest - before);
                        prop_assert_eq!(done.oldest, Revision(oldest));
                    }
                }
                assert_says(&store, &steps, steps.len() as u64, oldest);
                if oldest > 0 {
                    let error = store.state_at(Revision(oldest - 1)).unwrap_err();
                    let is_compacted =
                        matches!(error, HistoryError::Compacted { oldest: kept } if kept == Revision(oldest));
                    prop_assert!(is_compacted, "{error:?}");
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn history_is_given_in_pages_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    for n in 0..5_u8 {
        commit(&store, &vec![("a".into(), Some(vec![n]))]).await;
    }
    let page = |before: Option<u64>, limit| -> Vec<u64> {
        let records = store.history(before.map(Revision), limit).unwrap();
        records.iter().map(|record| record.revision.0).collect()
    };
    assert_eq!(page(None, 2), [5, 4]);
    assert_eq!(page(Some(4), 2), [3, 2]);
    assert_eq!(page(Some(2), 2), [1]);
    assert_eq!(page(Some(99), 1), [5]);
    assert_eq!(page(Some(1), 9), [0_u64; 0]);
    assert_eq!(page(Some(0), 9), [0_u64; 0]);
    assert_eq!(store.record(Revision(6)).unwrap(), None);
    assert!(matches!(store.state_at(Revision(6)), Err(HistoryError::Future { head: Revision(5) })));
}

#[tokio::test]
async fn a_commit_is_made_on_top_of_the_head_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let value = store.put_blob(Bytes::from_static(b"1")).await.unwrap();
    commit(&store, &vec![]).await;
    for expected in [0, 2, u64::MAX] {
        let result = store.commit(Revision(expected), described(vec![Change::set("a", value)])).await;
        assert!(matches!(result, Err(CommitError::Conflict { head: Revision(1) })), "{result:?}");
    }
    assert_eq!(store.state().1.len(), 0);
}

#[tokio::test]
async fn a_commit_that_cannot_be_recorded_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let value = store.put_blob(Bytes::from_static(b"1")).await.unwrap();
    let unknown = BlobHash::of(b"never put");
    let long = "k".repeat(MAX_KEY_BYTES + 1);
    let commits = [
        vec![Change::set("a", value), Change::set("b", unknown)],
        vec![Change::set("a", value), Change::delete("a")],
        vec![Change::set("a", value), Change::delete(long)],
    ];
    let mut errors = Vec::new();
    for changes in commits {
        errors.push(store.commit(Revision(0), described(changes)).await.unwrap_err());
    }
    assert!(matches!(&errors[0], CommitError::UnknownBlob { key, hash } if key == "b" && *hash == unknown));
    assert!(matches!(&errors[1], CommitError::DuplicateKey { key } if key == "a"));
    assert!(matches!(&errors[2], CommitError::TooLarge { what: "key", .. }));
    assert_eq!((store.head(), store.state().1.len()), (Revision(0), 0));
    drop(store);
    assert_eq!(open(dir.path()).0.head(), Revision(0));
}

#[tokio::test]
async fn a_blob_may_be_as_large_as_the_limit_and_no_larger() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let refused = store.put_blob(vec![1; MAX_BLOB_BYTES + 1].into()).await;
    assert!(matches!(refused, Err(StoreError::BlobTooLarge { limit: MAX_BLOB_BYTES, .. })), "{refused:?}");
    let content = vec![1; MAX_BLOB_BYTES];
    commit(&store, &vec![("a".into(), Some(content.clone()))]).await;
    drop(store);
    let (store, _) = open(dir.path());
    assert!(contents(&store, &store.state().1)["a"] == content);
}

#[tokio::test]
async fn a_blob_is_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    for n in 0..10 {
        commit(
            &store,
            &vec![(format!("k{n}"), Some(vec![7; 100_000])), ("same".into(), Some(vec![7; 100_000]))],
        )
        .await;
    }
    let bytes = common::journal_files(dir.path())[0].metadata().unwrap().len();
    assert!((100_000..110_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_blob_that_no_commit_names_is_readable_and_not_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let hash = store.put_blob(Bytes::from_static(b"waiting")).await.unwrap();
    assert_eq!(store.put_blob(Bytes::from_static(b"waiting")).await.unwrap(), hash);
    assert_eq!(store.blob(hash).unwrap().unwrap(), b"waiting"[..]);
    drop(store);
    assert_eq!(open(dir.path()).0.blob(hash).unwrap(), None);
}

#[tokio::test]
async fn the_head_is_seen_by_watchers_when_it_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(store);
    let mut watch = store.watch();
    let watcher = tokio::spawn({
        let store = std::sync::Arc::clone(&store);
        async move {
            let seen = *watch.wait_for(|head| *head >= Revision(3)).await.unwrap();
            (seen, store.record(seen).unwrap().is_some(), store.state().0 >= seen)
        }
    });
    for _ in 0..3 {
        commit(&*store, &vec![]).await;
    }
    assert_eq!(watcher.await.unwrap(), (Revision(3), true, true));
}

#[tokio::test]
async fn the_history_is_compacted_by_itself_and_the_journal_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Retention { revisions: 20, ..Retention::default() };
    let (store, _) = open_keeping(dir.path(), keep);
    let mut steps = Vec::new();
    for n in 0..200_u8 {
        steps.push(vec![("a".to_owned(), Some(vec![n; 1000]))]);
        commit(&store, &steps[steps.len() - 1]).await;
    }
    // Answered after whatever ran by itself; with nothing to do if that has just ended.
    let done = store.compact(keep).await.unwrap();
    assert_says(&store, &steps, 200, done.oldest.0);
    assert!(done.oldest >= Revision(175), "{done:?}");
    drop(store);
    let (store, notes) = open(dir.path());
    assert_eq!(notes, []);
    assert_says(&store, &steps, 200, done.oldest.0);
    let bytes: u64 =
        common::journal_files(dir.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes < 60_000, "{bytes}");
}

#[tokio::test]
async fn the_history_is_compacted_by_itself_when_it_is_large() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Retention { bytes: 100_000, ..Retention::default() };
    let (store, _) = open_keeping(dir.path(), keep);
    let mut steps = Vec::new();
    for n in 0..60_u8 {
        steps.push(vec![("a".to_owned(), Some(vec![n; 10_000]))]);
        commit(&store, &steps[steps.len() - 1]).await;
    }
    let done = store.compact(keep).await.unwrap();
    assert!(done.oldest >= Revision(45), "{done:?}");
    assert_says(&store, &steps, 60, done.oldest.0);
}
