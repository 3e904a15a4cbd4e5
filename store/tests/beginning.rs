//! A store that takes over a state which another one reached.

use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use xds_store::{Beginning, BlobHash, Change, Commit, JournalStore, Options, Revision, Store, StoreError};

fn open(dir: &TempDir) -> JournalStore {
    JournalStore::open(dir.path(), Options::default()).unwrap().0
}

fn commit(changes: Vec<Change>) -> Commit {
    Commit { actor: "test".to_owned(), changes, ..Commit::default() }
}

async fn set(store: &JournalStore, key: &str, value: &'static str) -> Revision {
    let hash = store.put_blob(Bytes::from(value)).await.unwrap();
    store.commit(store.head(), commit(vec![Change::set(key, hash)])).await.unwrap()
}

fn value(store: &JournalStore, key: &str) -> Option<Bytes> {
    let hash = *store.state().1.get(key)?;
    store.blob(hash).unwrap()
}

fn beginning(revision: u64, entries: &[(&str, &'static str)]) -> Beginning {
    let state =
        entries.iter().map(|(key, value)| (Arc::from(*key), BlobHash::of(value.as_bytes()))).collect();
    let blobs = entries.iter().map(|(_, value)| Bytes::from_static(value.as_bytes())).collect();
    Beginning { revision: Revision(revision), state, blobs }
}

#[tokio::test]
async fn a_state_of_another_store_replaces_everything_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for value in ["1", "2", "3"] {
        set(&store, "old", value).await;
    }
    let mut watch = store.watch();
    watch.mark_unchanged();
    store.begin_at(beginning(40, &[("a", "one"), ("b", "two"), ("c", "one")])).await.unwrap();
    assert!(watch.has_changed().unwrap());
    let check = |store: &JournalStore, head: u64| {
        assert_eq!(store.head(), Revision(head));
        assert_eq!(value(store, "old"), None);
        assert_eq!(value(store, "c"), Some(Bytes::from("one")));
        assert!(store.record(Revision(3)).unwrap().is_none());
        assert!(store.state_at(Revision(39)).is_err());
        assert_eq!(store.state_at(Revision(40)).unwrap().len(), 3);
    };
    check(&store, 40);
    assert_eq!(set(&store, "b", "three").await, Revision(41));
    check(&store, 41);
    drop(store);
    let store = open(&dir);
    check(&store, 41);
    assert_eq!(value(&store, "b"), Some(Bytes::from("three")));
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let n_journals = names.iter().filter(|name| name.to_string_lossy().ends_with(".log")).count();
    assert_eq!(n_journals, 1, "{names:?}");
}

#[tokio::test]
async fn a_state_that_is_older_or_incomplete_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    set(&store, "a", "1").await;
    set(&store, "a", "2").await;
    let refused = store.begin_at(beginning(1, &[("a", "1")])).await;
    assert!(matches!(refused, Err(StoreError::BeginsBefore { head: Revision(2), .. })), "{refused:?}");
    let incomplete = Beginning { blobs: vec![], ..beginning(9, &[("a", "9")]) };
    let refused = store.begin_at(incomplete).await;
    assert!(matches!(refused, Err(StoreError::NoBlob { .. })), "{refused:?}");
    assert_eq!((store.head(), value(&store, "a")), (Revision(2), Some(Bytes::from("2"))));
    set(&store, "a", "3").await;
    drop(store);
    assert_eq!(value(&open(&dir), "a"), Some(Bytes::from("3")));
}
