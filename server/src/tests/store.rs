//! A store in memory, which fails on demand. It shares no code with the real one.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use tokio::sync::watch;
use xds_store::{
    BlobHash, BoxFuture, Commit, CommitError, Compaction, FileError, HistoryError, Record, Retention,
    Revision, State, Store, StoreError,
};

/// The store. Its history has every state whole.
#[derive(Debug)]
pub(super) struct MemoryStore {
    /// Refuses commits while set.
    pub(super) is_failing: AtomicBool,
    /// Refuses commits as a disk with this error does.
    pub(super) disk: Mutex<Option<io::ErrorKind>>,
    /// Commits wait while this is taken for writing.
    pub(super) gate: tokio::sync::RwLock<()>,
    /// The next look at the past waits until this says something, or is gone.
    pub(super) past: Mutex<Option<mpsc::Receiver<()>>>,
    /// Panics when it is asked for all that it holds, now or in the past.
    pub(super) is_broken: AtomicBool,
    /// How many commits came to the gate.
    pub(super) n_at_gate: AtomicUsize,
    /// How many commits it refused.
    pub(super) n_refused: AtomicUsize,
    /// How many blobs were read.
    pub(super) n_read: AtomicUsize,
    blobs: Mutex<HashMap<BlobHash, Bytes>>,
    states: Mutex<Vec<Committed>>,
    head: watch::Sender<Revision>,
}

/// The commit that made a state, and the state.
type Committed = (Option<Record>, State);

impl MemoryStore {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            is_failing: AtomicBool::new(false),
            disk: Mutex::default(),
            gate: tokio::sync::RwLock::default(),
            past: Mutex::default(),
            is_broken: AtomicBool::new(false),
            n_at_gate: AtomicUsize::new(0),
            n_refused: AtomicUsize::new(0),
            n_read: AtomicUsize::new(0),
            blobs: Mutex::default(),
            states: Mutex::new(vec![(None, State::new())]),
            head: watch::channel(Revision::ZERO).0,
        })
    }

    /// Everything that was ever stored, as one text.
    pub(super) fn dump(&self) -> String {
        let blobs = self.blobs.lock().unwrap();
        let texts: Vec<_> = blobs.values().map(|blob| String::from_utf8_lossy(blob).into_owned()).collect();
        texts.join("\n")
    }

    /// Commits on top of the head, as another server does, whoever else waits.
    pub(super) fn commit_at_once(&self, commit: Commit) {
        self.try_commit(self.head(), commit).unwrap();
    }

    fn write(&self) -> Result<(), StoreError> {
        let Some(kind) = *self.disk.lock().unwrap() else { return Ok(()) };
        let (path, source) = (PathBuf::from("/data/journal.log"), Arc::new(kind.into()));
        Err(FileError { action: "append to", path, source }.into())
    }

    fn try_commit(&self, expected: Revision, commit: Commit) -> Result<Revision, CommitError> {
        if self.is_failing.load(Ordering::Relaxed) {
            self.n_refused.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Closed.into());
        }
        self.write()?;
        let mut states = self.states.lock().unwrap();
        let head = Revision(states.len() as u64 - 1);
        if head != expected {
            return Err(CommitError::Conflict { head });
        }
        let mut state = states.last().unwrap().1.clone();
        let mut previous = vec![];
        for change in &commit.changes {
            previous.push((change.key.clone(), state.get(&*change.key).copied()));
            match change.value {
                Some(hash) => {
                    assert!(self.blobs.lock().unwrap().contains_key(&hash), "put before the commit");
                    state.insert(change.key.as_str().into(), hash);
                }
                None => _ = state.remove(&*change.key),
            }
        }
        let revision = head.next();
        states.push((Some(Record { revision, commit, previous }), state));
        self.head.send_replace(revision);
        Ok(revision)
    }
}

/// The same store, whose history is not kept.
#[derive(Debug)]
pub(super) struct Forgetful(pub(super) Arc<MemoryStore>);

impl Store for Forgetful {
    fn head(&self) -> Revision {
        self.0.head()
    }

    fn oldest(&self) -> Revision {
        self.0.head()
    }

    fn put_blobs(&self, contents: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        self.0.put_blobs(contents)
    }

    fn commit(&self, expected: Revision, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>> {
        self.0.commit(expected, commit)
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.probe()
    }

    fn blob(&self, hash: BlobHash) -> Result<Option<Bytes>, StoreError> {
        self.0.blob(hash)
    }

    fn state(&self) -> (Revision, State) {
        self.0.state()
    }

    fn state_at(&self, revision: Revision) -> Result<State, HistoryError> {
        let oldest = self.head();
        if revision < oldest { Err(HistoryError::Compacted { oldest }) } else { self.0.state_at(revision) }
    }

    fn history(&self, _: Option<Revision>, _: usize) -> Result<Vec<Record>, StoreError> {
        Ok(vec![])
    }

    fn record(&self, _: Revision) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.0.watch()
    }

    fn compact(&self, keep: Retention) -> BoxFuture<'_, Result<Compaction, StoreError>> {
        self.0.compact(keep)
    }
}

impl Store for MemoryStore {
    fn head(&self) -> Revision {
        *self.head.borrow()
    }

    fn oldest(&self) -> Revision {
        Revision::ZERO
    }

    fn put_blobs(&self, contents: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        let hashes: Vec<BlobHash> = contents.iter().map(|content| BlobHash::of(content)).collect();
        self.blobs.lock().unwrap().extend(hashes.iter().copied().zip(contents));
        Box::pin(async move { Ok(hashes) })
    }

    fn commit(&self, expected: Revision, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move {
            // Lets others in, as a disk does.
            tokio::task::yield_now().await;
            self.n_at_gate.fetch_add(1, Ordering::SeqCst);
            let _may_commit = self.gate.read().await;
            self.try_commit(expected, commit)
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { self.write() })
    }

    fn blob(&self, hash: BlobHash) -> Result<Option<Bytes>, StoreError> {
        self.n_read.fetch_add(1, Ordering::SeqCst);
        Ok(self.blobs.lock().unwrap().get(&hash).cloned())
    }

    fn state(&self) -> (Revision, State) {
        assert!(!self.is_broken.load(Ordering::Relaxed), "injected");
        let states = self.states.lock().unwrap();
        (Revision(states.len() as u64 - 1), states.last().unwrap().1.clone())
    }

    fn state_at(&self, revision: Revision) -> Result<State, HistoryError> {
        let past = self.past.lock().unwrap().take();
        past.map(|past| past.recv());
        assert!(!self.is_broken.load(Ordering::Relaxed), "injected");
        let states = self.states.lock().unwrap();
        let head = Revision(states.len() as u64 - 1);
        let state = states.get(usize::try_from(revision.0).unwrap()).map(|(_, state)| state.clone());
        state.ok_or(HistoryError::Future { head })
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Record>, StoreError> {
        let states = self.states.lock().unwrap();
        let records = states.iter().rev().filter_map(|(record, _)| record.clone());
        Ok(records
            .filter(|record| before.is_none_or(|before| record.revision < before))
            .take(limit)
            .collect())
    }

    fn record(&self, revision: Revision) -> Result<Option<Record>, StoreError> {
        let states = self.states.lock().unwrap();
        Ok(states.get(usize::try_from(revision.0).unwrap()).and_then(|(record, _)| record.clone()))
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    fn compact(&self, _: Retention) -> BoxFuture<'_, Result<Compaction, StoreError>> {
        Box::pin(async { Err(StoreError::Closed) })
    }
}
