//! The state that the writer publishes for all readers.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use tokio::sync::watch;

use crate::index::Index;
use crate::pending::Pending;
use crate::{BlobHash, HistoryError, Record, Revision, State, StoreError, journal};

/// The parts of a store that outlive a call.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) index: Index,
    published: RwLock<Published>,
    pub(crate) head: watch::Sender<Revision>,
    pending: Mutex<[Pending; 2]>,
}

/// The head and its state, changed together.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) head: Revision,
    /// The oldest revision whose state can be told.
    pub(crate) base: Revision,
    pub(crate) state: State,
}

impl Shared {
    pub(crate) fn new(dir: PathBuf, index: Index, published: Published) -> Self {
        let head = watch::Sender::new(published.head);
        let pending = [MAX_PENDING_BYTES, MAX_STORED_PENDING_BYTES].map(Pending::new);
        Self { dir, index, published: RwLock::new(published), head, pending: Mutex::new(pending) }
    }

    /// Makes commits visible; `previous` of each is not looked at.
    pub(crate) fn publish(&self, records: &[Record]) {
        let Some(head) = records.last().map(|record| record.revision) else { return };
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            journal::apply(&mut published.state, record);
        }
        published.head = head;
        drop(published);
        let mut pending = self.pending();
        for hash in records.iter().flat_map(|record| &record.commit.changes).filter_map(|change| change.value)
        {
            pending.iter_mut().for_each(|pending| pending.remove(&hash));
        }
        drop(pending);
        self.head.send_replace(head);
    }

    /// Makes `state` the only one that is known, as that of `revision`.
    pub(crate) fn begin(&self, revision: Revision, state: State) {
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        *published = Published { head: revision, base: revision, state };
        drop(published);
        self.head.send_replace(revision);
    }

    /// Says that the history before `base` is no longer known.
    pub(crate) fn publish_base(&self, base: Revision) {
        self.published.write().unwrap_or_else(PoisonError::into_inner).base = base;
    }

    pub(crate) fn published(&self) -> RwLockReadGuard<'_, Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds blobs until a commit names them.
    ///
    /// One that the journal has is held too, but not at the others' expense: it is only needed if the journal is
    /// compacted meanwhile.
    pub(crate) fn put(&self, blobs: impl IntoIterator<Item = (BlobHash, Bytes)>) {
        let [fresh, stored] = &mut *self.pending();
        for (hash, content) in blobs {
            let waiting = if self.index.blob(&hash).is_some() { &mut *stored } else { &mut *fresh };
            waiting.insert(hash, content);
        }
    }

    pub(crate) fn pending_blob(&self, hash: &BlobHash) -> Option<Bytes> {
        self.pending().iter().find_map(|pending| pending.blob(hash))
    }

    pub(crate) fn blob(&self, hash: BlobHash) -> Result<Option<Bytes>, StoreError> {
        if let Some(content) = self.pending_blob(&hash) {
            return Ok(Some(content));
        }
        let Some(location) = self.index.blob(&hash) else { return Ok(None) };
        journal::read_blob(&location.segment, location.position, hash).map(Some)
    }

    pub(crate) fn record(&self, revision: Revision) -> Result<Option<Record>, StoreError> {
        if revision > self.published().head {
            return Ok(None);
        }
        let Some(location) = self.index.record(revision) else { return Ok(None) };
        journal::read_record(&location.segment, location.position).map(Some)
    }

    pub(crate) fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Record>, StoreError> {
        let head = self.published().head;
        let newest = before.map_or(head, |before| before.previous().min(head));
        let mut records = Vec::new();
        for revision in (1..=newest.0).rev().take(limit) {
            let Some(record) = self.record(Revision(revision))? else { break };
            records.push(record);
        }
        Ok(records)
    }

    pub(crate) fn state_at(&self, revision: Revision) -> Result<State, HistoryError> {
        let (head, mut state) = {
            let published = self.published();
            if revision > published.head {
                return Err(HistoryError::Future { head: published.head });
            }
            if revision < published.base {
                return Err(HistoryError::Compacted { oldest: published.base });
            }
            (published.head, published.state.clone())
        };
        for undone in (revision.next().0..=head.0).rev() {
            let Some(record) = self.record(Revision(undone))? else {
                return Err(HistoryError::Compacted { oldest: self.published().base });
            };
            journal::undo(&mut state, record);
        }
        Ok(state)
    }

    fn pending(&self) -> MutexGuard<'_, [Pending; 2]> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of blobs that may wait for their commit; four of the largest.
const MAX_PENDING_BYTES: usize = 4 * crate::MAX_BLOB_BYTES;

/// Bytes of blobs that are in the journal and may be named again.
const MAX_STORED_PENDING_BYTES: usize = 32 * 1024 * 1024;
