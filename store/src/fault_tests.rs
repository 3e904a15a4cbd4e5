//! Tests of stores on a file system that fails.

use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::faults::{Fault, Faults, Step};
use crate::{
    BlobHash, Change, Commit, CommitError, FileError, JournalStore, OpenNote, Options, Retention, Revision,
    State, Store, StoreError,
};

fn open(dir: &Path) -> (JournalStore, Faults, Vec<OpenNote>) {
    let options = Options::default();
    let faults = options.faults.clone();
    let (store, notes) = JournalStore::open(dir, options).unwrap();
    (store, faults, notes)
}

async fn commit(store: &JournalStore, content: &str) -> Result<Revision, CommitError> {
    let value = store.put_blob(Bytes::from(content.to_owned())).await.unwrap();
    store.commit(store.head(), Commit { changes: vec![Change::set("a", value)], ..Commit::default() }).await
}

fn state(content: &str) -> State {
    State::unit("a".into(), BlobHash::of(content.as_bytes()))
}

fn kind(error: &CommitError) -> io::ErrorKind {
    let CommitError::Store(StoreError::File(error) | StoreError::ReadOnly(error)) = error else {
        panic!("{error:?}");
    };
    error.kind()
}

#[tokio::test]
async fn a_full_disk_refuses_commits_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    commit(&store, "1").await.unwrap();
    let mut watch = store.watch();
    for _ in 0..3 {
        faults.inject(Fault::Write(io::ErrorKind::StorageFull));
        let error = commit(&store, "2").await.unwrap_err();
        assert!(error.to_string().ends_with(".log: the disk is full; free some space"), "{error}");
        assert_eq!(kind(&error), io::ErrorKind::StorageFull);
        assert_eq!(store.state(), (Revision(1), state("1")));
        assert!(!watch.has_changed().unwrap());
    }
    assert_eq!(commit(&store, "3").await.unwrap(), Revision(2));
    assert_eq!(*watch.borrow_and_update(), Revision(2));
    drop(store);
    let (store, _, notes) = open(dir.path());
    assert_eq!((notes, store.state()), (vec![], (Revision(2), state("3"))));
}

/// What a server whose files are somebody else's answers: with the name of the file, and for good.
async fn assert_refuses(store: &JournalStore, file: &str) {
    for _ in 0..2 {
        let error = commit(store, "refused").await.unwrap_err();
        let CommitError::Store(StoreError::ReadOnly(error)) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains(file), "{error}");
        assert!(error.source.to_string().contains("removed or replaced"), "{error:?}");
    }
    assert!(matches!(store.probe().await, Err(StoreError::ReadOnly(_))));
    assert_eq!(store.state(), (Revision(1), state("1")), "reads go on");
}

#[tokio::test]
async fn a_store_whose_lock_another_one_has_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (first, ..) = open(dir.path());
    commit(&first, "1").await.unwrap();
    first.check_in_place().unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    let (second, ..) = open(dir.path());
    assert!(first.check_in_place().is_err(), "before there is a write");
    assert_eq!(commit(&second, "2").await.unwrap(), Revision(2));
    assert_refuses(&first, "lock").await;
    assert_eq!(commit(&second, "3").await.unwrap(), Revision(3));
    drop((first, second));
    let (store, _, notes) = open(dir.path());
    assert_eq!((notes, store.state()), (vec![], (Revision(3), state("3"))));
}

#[tokio::test]
async fn a_commit_whose_lock_goes_during_the_sync_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    commit(&store, "1").await.unwrap();
    let value = store.put_blob(Bytes::from_static(b"2")).await.unwrap();
    let (has_begun, go_on) = faults.hold_sync();
    let changes = vec![Change::set("a", value)];
    let mut commit = store.commit(store.head(), Commit { changes, ..Commit::default() });
    assert!(poll_once(&mut commit).await.is_none());
    has_begun.recv().unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    go_on.send(()).unwrap();
    assert!(matches!(commit.await, Err(CommitError::Store(StoreError::ReadOnly(_)))));
    assert_refuses(&store, "lock").await;
}

#[tokio::test]
async fn a_store_whose_directory_or_journal_is_gone_writes_nothing() {
    let all = tempfile::tempdir().unwrap();
    let dir = all.path().join("data");
    let (store, ..) = open(&dir);
    commit(&store, "1").await.unwrap();
    std::fs::rename(&dir, all.path().join("moved")).unwrap();
    assert!(store.check_in_place().is_err());
    assert_refuses(&store, "lock").await;
    assert!(store.compact(Retention { revisions: 0, bytes: 0 }).await.is_ok_and(|done| done.n_dropped == 0));
    drop(store);

    let (store, ..) = open(&dir);
    commit(&store, "1").await.unwrap();
    let journal = dir.join(crate::journal::segment::file_name(1));
    std::fs::copy(&journal, dir.join("copy")).unwrap();
    std::fs::rename(dir.join("copy"), &journal).unwrap();
    assert_refuses(&store, "journal-").await;
}

#[tokio::test]
async fn a_probe_fails_as_a_commit_would_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    commit(&store, "1").await.unwrap();
    let journal = dir.path().join(crate::journal::segment::file_name(1));
    let before = std::fs::read(&journal).unwrap();
    for _ in 0..2 {
        faults.inject(Fault::Write(io::ErrorKind::StorageFull));
        let error = store.probe().await.unwrap_err();
        assert!(error.is_of_disk() && error.to_string().contains("the disk is full"), "{error}");
        assert_eq!(std::fs::read(&journal).unwrap(), before);
    }
    store.probe().await.unwrap();
    assert_eq!(std::fs::read(&journal).unwrap(), before);
    assert_eq!(commit(&store, "2").await.unwrap(), Revision(2));
    // Nothing clears what a failed sync leaves, so a probe says the same as a commit.
    faults.inject(Fault::Sync(io::ErrorKind::Other));
    commit(&store, "3").await.unwrap_err();
    assert!(matches!(store.probe().await, Err(StoreError::ReadOnly(_))));
    drop(store);
    let (store, _, notes) = open(dir.path());
    assert_eq!((notes, store.state()), (vec![], (Revision(2), state("2"))));
}

#[tokio::test]
async fn nothing_is_acknowledged_after_a_failed_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    commit(&store, "1").await.unwrap();
    faults.inject(Fault::Sync(io::ErrorKind::Other));
    for _ in 0..3 {
        let error = commit(&store, "2").await.unwrap_err();
        assert!(matches!(error, CommitError::Store(StoreError::ReadOnly(_))), "{error:?}");
        assert_eq!(store.state(), (Revision(1), state("1")));
        assert_eq!(store.history(None, 9).unwrap().len(), 1);
    }
    let compaction = store.compact(Retention { revisions: 1, bytes: 0 }).await;
    assert!(compaction.is_ok_and(|done| done.n_dropped == 0));
    drop(store);
    let (store, _, notes) = open(dir.path());
    assert_eq!((notes, store.state()), (vec![], (Revision(1), state("1"))));
    assert_eq!(commit(&store, "3").await.unwrap(), Revision(2));
}

#[tokio::test]
async fn a_file_that_cannot_be_cut_back_is_not_written_to_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    commit(&store, "1").await.unwrap();
    faults.inject(Fault::Write(io::ErrorKind::StorageFull));
    faults.inject(Fault::Restore);
    for _ in 0..2 {
        let error = commit(&store, "2").await.unwrap_err();
        assert!(matches!(error, CommitError::Store(StoreError::ReadOnly(_))), "{error:?}");
    }
    drop(store);
    let (store, _, notes) = open(dir.path());
    assert!(matches!(notes[..], [OpenNote::TornEnd { .. }]), "{notes:?}");
    assert_eq!(store.state(), (Revision(1), state("1")));
}

/// Commits on top of each of `expected` while the sync of a commit before is held, so that all wait together and
/// meet `fault`.
async fn commit_together(
    store: &JournalStore,
    faults: &Faults,
    expected: &[u64],
    fault: Option<Fault>,
) -> Vec<Result<Revision, CommitError>> {
    for content in ["0", "1", "2"] {
        store.put_blob(Bytes::from_static(content.as_bytes())).await.unwrap();
    }
    let (has_begun, go_on) = faults.hold_sync();
    let mut first = store.commit(store.head(), Commit::default());
    let mut polled = Vec::new();
    assert!(poll_once(&mut first).await.is_none());
    has_begun.recv().unwrap();
    fault.into_iter().for_each(|fault| faults.inject(fault));
    for expected in expected {
        // All change the same keys, each to another value.
        let value = BlobHash::of(format!("{}", expected % 3).as_bytes());
        let changes = vec![
            Change::set("a", value),
            Change { key: "b".into(), value: Some(value).filter(|_| expected % 2 == 0) },
        ];
        let mut commit = store.commit(Revision(*expected), Commit { changes, ..Commit::default() });
        assert!(poll_once(&mut commit).await.is_none());
        polled.push(commit);
    }
    go_on.send(()).unwrap();
    first.await.unwrap();
    let mut results = Vec::new();
    for commit in polled {
        results.push(commit.await);
    }
    results
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn commits_that_wait_together_share_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    let expected: Vec<u64> = (1..=50).collect();
    let results = commit_together(&store, &faults, &expected, None).await;
    let revisions: Vec<u64> = results.into_iter().map(|result| result.unwrap().0).collect();
    assert_eq!(revisions, (2..=51).collect::<Vec<_>>());
    assert_eq!(faults.n_syncs(), 2);
    let check = |store: &JournalStore| {
        let (head, newest) = store.state();
        assert_eq!(
            (head, newest["a"], newest.get("b")),
            (Revision(51), BlobHash::of(b"2"), Some(&BlobHash::of(b"2")))
        );
        let previous = store.record(Revision(51)).unwrap().unwrap().previous;
        assert_eq!(previous, [("a".to_owned(), Some(BlobHash::of(b"1"))), ("b".to_owned(), None)]);
        assert_eq!(store.state_at(Revision(1)).unwrap(), State::new());
        assert_eq!(store.state_at(Revision(4)).unwrap(), state("0"));
    };
    check(&store);
    drop(store);
    check(&open(dir.path()).0);
}

#[tokio::test]
async fn a_conflict_with_a_commit_that_fails_is_no_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    let results =
        commit_together(&store, &faults, &[0, 1, 1, 2], Some(Fault::Write(io::ErrorKind::StorageFull))).await;
    let [certain, refused @ ..] = &results[..] else { panic!("{results:?}") };
    assert!(matches!(certain, Err(CommitError::Conflict { head: Revision(1) })), "{certain:?}");
    for result in refused {
        assert_eq!(kind(result.as_ref().unwrap_err()), io::ErrorKind::StorageFull);
    }
    assert_eq!(store.head(), Revision(1));
    assert_eq!(store.commit(Revision(1), Commit::default()).await.unwrap(), Revision(2));
}

/// Ends a compaction at `step`, and says what is there before and after the store is opened again.
async fn crash_at(step: Step) {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults, _) = open(dir.path());
    for n in 1..=5 {
        commit(&store, &n.to_string()).await.unwrap();
    }
    faults.inject(Fault::Compaction(step));
    store.compact(Retention { revisions: 2, ..Retention::default() }).await.unwrap_err();
    let check = |store: &JournalStore, head: u64| {
        assert_eq!(store.head(), Revision(head), "{step:?}");
        for revision in 3..=head {
            let state_then = store.state_at(Revision(revision)).unwrap();
            assert_eq!(state_then, state(&revision.to_string()), "{step:?}");
            let content = store.blob(state_then["a"]).unwrap().unwrap();
            assert_eq!(content, revision.to_string().into_bytes(), "{step:?}");
        }
        assert!(store.history(None, 99).unwrap().len() as u64 >= head - 3, "{step:?}");
    };
    check(&store, 5);
    commit(&store, "6").await.unwrap();
    check(&store, 6);
    // A crash leaves this: the files as they are, while the store is open.
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    drop(store);
    for dir in [copy.path(), dir.path()] {
        let (store, _, notes) = open(dir);
        assert!(!notes.iter().any(|note| matches!(note, OpenNote::TornEnd { .. })), "{step:?} {notes:?}");
        check(&store, 6);
        commit(&store, "7").await.unwrap();
        let done = store.compact(Retention { revisions: 2, ..Retention::default() }).await.unwrap();
        assert_eq!(done.oldest, Revision(5), "{step:?}");
        drop(store);
        let (store, _, notes) = open(dir);
        assert_eq!(notes, [], "{step:?}");
        assert_eq!(store.state_at(Revision(5)).unwrap(), state("5"), "{step:?}");
        assert_eq!(store.state(), (Revision(7), state("7")), "{step:?}");
    }
}

#[tokio::test]
async fn a_compaction_may_end_anywhere() {
    for step in [Step::BeforeRename, Step::AfterRename, Step::AfterIndex, Step::AfterFirstRemoval] {
        crash_at(step).await;
    }
}

#[tokio::test]
async fn a_blob_that_is_named_again_during_a_compaction_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _, _) = open(dir.path());
    for n in 1..=300 {
        commit(&store, &n.to_string()).await.unwrap();
    }
    // The value is only in records that the compaction drops; nobody puts it again.
    let old = BlobHash::of(b"1");
    let compaction = store.compact(Retention { revisions: 2, ..Retention::default() });
    let again =
        store.commit(Revision(300), Commit { changes: vec![Change::set("b", old)], ..Commit::default() });
    let (done, again) = tokio::join!(compaction, again);
    assert_eq!((done.unwrap().oldest, again.unwrap()), (Revision(298), Revision(301)));
    assert_eq!(store.blob(old).unwrap().unwrap(), b"1"[..]);
    drop(store);
    let (store, _, notes) = open(dir.path());
    assert_eq!((notes, store.blob(old).unwrap().unwrap()), (vec![], Bytes::from_static(b"1")));
}

#[test]
fn errors_say_what_to_do() {
    let error =
        |kind: io::ErrorKind| FileError::new("append to", Path::new("/data/j.log"), kind.into()).to_string();
    assert_eq!(error(io::ErrorKind::Other), "cannot append to /data/j.log");
    let broken = FileError::new("sync", Path::new("/data/j.log"), io::Error::from_raw_os_error(5));
    assert!(broken.to_string().contains("the disk reports an error"), "{broken}");
    assert!(error(io::ErrorKind::ReadOnlyFilesystem).contains("mount it writable"));
    assert!(error(io::ErrorKind::PermissionDenied).contains("give this user"));
}
