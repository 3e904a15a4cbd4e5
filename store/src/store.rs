//! The store as the rest of the program sees it.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use tokio::sync::watch;

use crate::{
    BlobHash, Commit, CommitError, Compaction, HistoryError, Record, Retention, Revision, StoreError,
};

/// A future that can be held behind `dyn Store`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Every key and its value at a revision. A copy shares what it has with the original, so it costs nothing.
pub type State = OrdMap<Arc<str>, BlobHash>;

/// Whether a store has what is shared with others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Health {
    /// It has, or it shares nothing.
    Current,
    /// Others may have more, for this reason.
    Apart(String),
}

/// A map from keys to blobs that changes by commits and remembers them.
///
/// Keys have meaning only to the caller. Values are blobs, named by the hash of their content: first
/// [`put_blobs`](Self::put_blobs), then [`commit`](Self::commit) what names them.
///
/// The futures may be dropped at any time; a commit that was begun is then finished (or refused) unseen. Methods
/// that return no future and a `Result` read local files: a caller that asks for much of the history on an async
/// thread should do so in `spawn_blocking`.
pub trait Store: Send + Sync + Debug {
    /// The newest revision.
    fn head(&self) -> Revision;

    /// The oldest revision whose state is kept. Costs nothing.
    fn oldest(&self) -> Revision;

    /// Takes values that a later commit may name, and returns their hashes in the same order; putting one again changes
    /// nothing.
    ///
    /// They are durable no later than the commit that names them, and may be forgotten if none does.
    ///
    /// # Errors
    ///
    /// [`StoreError::BlobTooLarge`] if one is beyond [`MAX_BLOB_BYTES`](crate::MAX_BLOB_BYTES); then none is taken.
    fn put_blobs(&self, contents: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<BlobHash>, StoreError>>;

    /// Takes one value, as [`put_blobs`](Self::put_blobs) does.
    ///
    /// # Errors
    ///
    /// As there.
    fn put_blob(&self, content: Bytes) -> BoxFuture<'_, Result<BlobHash, StoreError>> {
        Box::pin(async move {
            let hashes = self.put_blobs(vec![content]).await?;
            hashes.first().copied().ok_or(StoreError::Closed)
        })
    }

    /// Makes `commit` the revision after `expected`, if that is the head, and returns it when it is durable.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if the head is another one, [`CommitError::UnknownBlob`] if a value was not put.
    fn commit(&self, expected: Revision, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// Finds out whether a commit could be stored now, without making one.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit) would fail.
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Finds out whether the files are still those that were opened. Costs next to nothing. A store without files has nothing to lose.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit) would fail.
    fn check_in_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the content of a blob, or `None` if it is unknown (never put, or no longer kept).
    ///
    /// # Errors
    ///
    /// If the files cannot be read.
    fn blob(&self, hash: BlobHash) -> Result<Option<Bytes>, StoreError>;

    /// Returns every key and its value at the head, and which revision that is.
    fn state(&self) -> (Revision, State);

    /// Returns every key and its value after the commit `revision`.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Compacted`] if it is no longer known, [`HistoryError::Future`] if it does not exist yet.
    fn state_at(&self, revision: Revision) -> Result<State, HistoryError>;

    /// Returns at most `limit` records, newest first, beginning below `before` (or at the head).
    ///
    /// It ends where the kept history ends.
    ///
    /// # Errors
    ///
    /// If the files cannot be read.
    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Returns one record, or `None` if it does not exist or is no longer kept.
    ///
    /// # Errors
    ///
    /// If the files cannot be read.
    fn record(&self, revision: Revision) -> Result<Option<Record>, StoreError>;

    /// Returns the head as it moves; a value that is seen there is durable and can be read.
    fn watch(&self) -> watch::Receiver<Revision>;

    /// Returns whether the store has what others have, as that changes. A store that shares nothing always has.
    fn health(&self) -> watch::Receiver<Health> {
        // A channel without a sender never changes.
        watch::Sender::new(Health::Current).subscribe()
    }

    /// Drops what is beyond `keep` from the history; commits go on meanwhile.
    ///
    /// # Errors
    ///
    /// If the files cannot be read or written; then the history is as it was.
    fn compact(&self, keep: Retention) -> BoxFuture<'_, Result<Compaction, StoreError>>;
}
