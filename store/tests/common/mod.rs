//! Shared parts of the tests of this crate: a store in a temporary directory, and a model of what it should say.

#![allow(dead_code, reason = "not every test uses everything")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use xds_store::{
    BlobHash, Change, Commit, JournalStore, OpenNote, Options, Retention, Revision, State, Store,
};

/// The effect of one commit: keys and their new contents.
pub(crate) type Step = Vec<(String, Option<Vec<u8>>)>;

/// The contents by key.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

pub(crate) fn open(dir: &Path) -> (JournalStore, Vec<OpenNote>) {
    open_keeping(dir, Retention::default())
}

pub(crate) fn open_keeping(dir: &Path, retention: Retention) -> (JournalStore, Vec<OpenNote>) {
    JournalStore::open(dir, Options { retention }).unwrap()
}

/// Commits `step` on top of the head.
pub(crate) async fn commit(store: &dyn Store, step: &Step) -> Revision {
    let mut changes = Vec::new();
    for (key, content) in step {
        let value = match content {
            Some(content) => Some(store.put_blob(Bytes::from(content.clone())).await.unwrap()),
            None => None,
        };
        changes.push(Change { key: key.clone(), value });
    }
    store.commit(store.head(), described(changes)).await.unwrap()
}

/// A commit with texts in it.
pub(crate) fn described(changes: Vec<Change>) -> Commit {
    Commit { actor: "someone".into(), at_ms: 17, source: "api".into(), summary: "a change".into(), changes }
}

/// The states after 0, 1, 2, … steps.
pub(crate) fn model(steps: &[Step]) -> Vec<Contents> {
    let mut states = vec![Contents::new()];
    for step in steps {
        let mut state = states[states.len() - 1].clone();
        for (key, content) in step {
            match content {
                Some(content) => state.insert(key.clone(), content.clone()),
                None => state.remove(key),
            };
        }
        states.push(state);
    }
    states
}

/// The contents of a state of `store`.
pub(crate) fn contents(store: &dyn Store, state: &State) -> Contents {
    let read = |hash: &BlobHash| store.blob(*hash).unwrap().expect("every value is there").to_vec();
    state.iter().map(|(key, hash)| (key.to_string(), read(hash))).collect()
}

/// Checks that `store` says what the first commits of `steps` made, and keeps the history from `oldest` on.
pub(crate) fn assert_says(store: &dyn Store, steps: &[Step], head: u64, oldest: u64) {
    let states = model(steps);
    let (revision, state) = store.state();
    assert_eq!(
        (revision, store.head(), *store.watch().borrow()),
        (Revision(head), Revision(head), Revision(head))
    );
    assert_eq!(contents(store, &state), states[head as usize]);
    for revision in oldest..=head {
        let state = store.state_at(Revision(revision)).unwrap();
        assert_eq!(contents(store, &state), states[revision as usize], "at {revision}");
    }
    let history = store.history(None, usize::MAX).unwrap();
    let revisions: Vec<u64> = history.iter().map(|record| record.revision.0).collect();
    assert_eq!(revisions, (oldest + 1..=head).rev().collect::<Vec<_>>());
    for record in &history {
        let (step, before) =
            (&steps[record.revision.0 as usize - 1], &states[record.revision.0 as usize - 1]);
        let hash = |content: &Vec<u8>| BlobHash::of(content);
        let changes: Vec<Change> = step
            .iter()
            .map(|(key, content)| Change { key: key.clone(), value: content.as_ref().map(hash) })
            .collect();
        assert_eq!(record.commit, described(changes));
        let previous: Vec<_> = step.iter().map(|(key, _)| (key.clone(), before.get(key).map(hash))).collect();
        assert_eq!(record.previous, previous);
        assert_eq!(store.record(record.revision).unwrap().as_ref(), Some(record));
    }
}

/// The journal's files, in order.
pub(crate) fn journal_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    files.sort();
    files
}

/// Copies a data directory.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A runtime for tests that are not async.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
