//! The store that keeps its journal in a local directory.

#[cfg(test)]
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::acknowledged::{self, Acknowledged};
use crate::draft::check_blob;
use crate::index::Index;
use crate::journal::Journal;
use crate::journal::append::Tail;
#[cfg(test)]
use crate::journal::blobs::Half;
#[cfg(test)]
use crate::journal::segment::Position;

use crate::lock::Lock;
use crate::shared::{Published, Shared};
use crate::writer::{Command, CommitRequest, Writer};
use crate::{
    Beginning, BlobHash, BoxFuture, Commit, CommitError, Compaction, FileError, HistoryError, OpenError,
    OpenNote, Record, Retention, Revision, State, Store, StoreError, files, journal,
};

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How much of the history is kept automatically.
    pub retention: Retention,
    #[cfg(test)]
    pub(crate) faults: crate::faults::Faults,
}

impl Options {
    /// Keeps `retention` of the history.
    #[must_use]
    pub fn keeping(retention: Retention) -> Self {
        Self {
            retention,
            #[cfg(test)]
            faults: crate::faults::Faults::default(),
        }
    }
}

/// A [`Store`] whose journal is in a directory of this machine.
///
/// The directory belongs to one open store at a time. It contains `journal-*.log`, which is the store, `acknowledged`,
/// by which a journal that lost its end is told from a whole one, and `lock`. A commit is acknowledged when it is in the journal
/// and the journal is synced. When a write fails (a full disk, for one), the commit is refused and the journal is
/// as before; when a sync fails, the store is read-only from then on ([`StoreError::ReadOnly`]).
///
/// On a full disk the store opens if the directory has a journal: what is acknowledged may not be marked then, of which
/// there is a note, and commits are refused until there is space.
///
/// Dropping the store finishes the commits that were begun, and blocks until then.
#[derive(Debug)]
pub struct JournalStore {
    shared: Arc<Shared>,
    /// `None` only while the store is being dropped.
    commands: Option<mpsc::Sender<Command>>,
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    /// Held as long as the store is open.
    lock: Arc<Lock>,
}

impl JournalStore {
    /// Opens the store in `dir`, or begins one there; reads and verifies the whole journal, and blocks meanwhile.
    ///
    /// The notes say what was repaired, and should be logged as warnings. Nobody else may use `dir`; if it is created, its mode
    /// is 0700.
    ///
    /// # Errors
    ///
    /// [`OpenError::Locked`] if the store is open already; [`OpenError::Damaged`] or [`OpenError::Lost`] if
    /// acknowledged commits would be lost, [`OpenError::Newer`] if a newer program wrote the journal: then no file
    /// of it was changed. [`OpenError::File`] if a file cannot be read or written.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Vec<OpenNote>), OpenError> {
        files::create_dir(dir)?;
        let lock = Arc::new(Lock::take(dir)?);
        let mut notes = Vec::new();
        let (mut journal, found) = open_journal(dir, &mut notes)?;
        let acknowledged = Acknowledged::open(dir, found, &journal, &mut notes);
        let index = Index::new(&mut journal);
        let sealed_bytes = journal::total_bytes(&journal.segments, 0);
        let Some(segment) = journal.segments.into_values().next_back() else {
            let error = std::io::ErrorKind::NotFound.into();
            return Err(FileError::new("find a journal in", dir, error).into());
        };
        let replay = journal.replay;
        let published = Published { head: replay.head, base: replay.base, state: replay.state };
        let shared = Arc::new(Shared::new(dir.to_owned(), index, published));
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        let stop = Arc::new(AtomicBool::new(false));
        let tail = Tail {
            lock: Arc::clone(&lock),
            segment,
            end: journal.end,
            #[cfg(test)]
            faults: options.faults,
        };
        let writer = Writer {
            shared: Arc::clone(&shared),
            commands: receiver,
            sender: sender.downgrade(),
            stop: Arc::clone(&stop),
            tail,
            acknowledged,
            retention: options.retention,
            sealed_bytes,
            failure: None,
            compaction: None,
            queued: Vec::new(),
            beginnings: Vec::new(),
            not_before: (Revision::ZERO, 0),
        };
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || writer.run());
        let thread = thread.map_err(|error| FileError::new("start a thread for", dir, error))?;
        Ok((Self { shared, commands: Some(sender), stop, writer: Some(thread), lock }, notes))
    }

    /// Replaces everything, history included, by a state that another store reached.
    ///
    /// It is durable when this returns. A failure leaves the store as it was.
    ///
    /// # Errors
    ///
    /// [`StoreError::BeginsBefore`] if the head is newer, [`StoreError::NoBlob`] if a content is missing, or if the files
    /// cannot be written.
    pub async fn begin_at(&self, beginning: Beginning) -> Result<(), StoreError> {
        let (sender, answer) = oneshot::channel();
        self.ask(Command::Begin(beginning, sender), answer).await?
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Everything that the index says, for comparisons.
    #[cfg(test)]
    pub(crate) fn everything(&self) -> (BTreeMap<Revision, Position>, BTreeMap<Half, Position>) {
        self.shared.index.everything()
    }

    /// Sends a command to the writer and waits for its answer.
    async fn ask<T>(&self, command: Command, answer: oneshot::Receiver<T>) -> Result<T, StoreError> {
        let commands = self.commands.as_ref().ok_or(StoreError::Closed)?;
        commands.send(command).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)
    }
}

impl Store for JournalStore {
    fn head(&self) -> Revision {
        self.shared.published().head
    }

    fn oldest(&self) -> Revision {
        self.shared.published().base
    }

    fn put_blobs(&self, contents: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(async move {
            contents.iter().try_for_each(|content| check_blob(content))?;
            let shared = Arc::clone(&self.shared);
            let put = tokio::task::spawn_blocking(move || {
                let hashes: Vec<BlobHash> = contents.iter().map(|content| BlobHash::of(content)).collect();
                shared.put(hashes.iter().copied().zip(contents));
                hashes
            });
            put.await.map_err(|_| StoreError::Closed)
        })
    }

    fn commit(&self, expected: Revision, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move {
            let (sender, answer) = oneshot::channel();
            let request = CommitRequest { expected, commit, answer: sender };
            self.ask(Command::Commit(request), answer).await?
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (sender, answer) = oneshot::channel();
            self.ask(Command::Probe(sender), answer).await?
        })
    }

    fn check_in_place(&self) -> Result<(), StoreError> {
        match self.lock.is_in_place()? {
            true => Ok(()),
            false => Err(StoreError::ReadOnly(FileError::not_in_place(&self.lock.path))),
        }
    }

    fn blob(&self, hash: BlobHash) -> Result<Option<Bytes>, StoreError> {
        self.shared.blob(hash)
    }

    fn state(&self) -> (Revision, State) {
        let published = self.shared.published();
        (published.head, published.state.clone())
    }

    fn state_at(&self, revision: Revision) -> Result<State, HistoryError> {
        self.shared.state_at(revision)
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.shared.history(before, limit)
    }

    fn record(&self, revision: Revision) -> Result<Option<Record>, StoreError> {
        self.shared.record(revision)
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.shared.head.subscribe()
    }

    fn compact(&self, keep: Retention) -> BoxFuture<'_, Result<Compaction, StoreError>> {
        Box::pin(async move {
            let (sender, answer) = oneshot::channel();
            self.ask(Command::Compact(keep, sender), answer).await?
        })
    }
}

impl Drop for JournalStore {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.commands.take());
        if let Some(writer) = self.writer.take() {
            // If it panicked, the panic was printed, and what was acknowledged is durable.
            let _ = writer.join();
        }
    }
}

/// Reads the journal and its mark in `dir`, which is locked, and puts the journal's end right.
///
/// A torn end is cut off, unless the mark knows commits that the journal lacks.
pub(crate) fn open_journal(
    dir: &Path,
    notes: &mut Vec<OpenNote>,
) -> Result<(Journal, acknowledged::Found), OpenError> {
    let found = journal::read(dir, &journal::list(dir)?, u64::MAX).map_err(|error| error.in_dir(dir))?;
    let mark = acknowledged::Found::open(dir);
    let head = found.replay.head;
    if let Some(known) = mark.head().filter(|known| *known > head) {
        let torn = found.torn().map(|(segment, _, torn)| {
            format!(
                "{} cannot be read from byte {} on ({})",
                segment.path.display(),
                torn.offset,
                torn.reason
            )
        });
        return Err(OpenError::Lost { dir: dir.to_owned(), known, head, torn });
    }
    Ok((found.repair(notes)?, mark))
}

/// Commits that may wait for the writer; further ones wait to be queued.
const MAX_QUEUED: usize = 1024;
