//! The durable journal of changes.
//!
//! A [`Store`] maps keys to blobs. It changes by [commits](Commit) and remembers them. A commit is made on top of a known [`Revision`], or
//! not at all. [`JournalStore`] keeps the store in a directory: a commit is acknowledged when it is in an append-only journal and the
//! journal is synced. Everything is in the journal, and an index in memory says where. sled keeps one more thing: the newest acknowledged
//! revision, so that a journal that lost its end is noticed.
//!
//! [`LastGood`] is separate: it keeps local copies of files, to continue with when the files are broken.

mod acknowledged;
mod beginning;
mod commit;
mod compaction;
mod draft;
mod error;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod faults;
mod files;
#[cfg(test)]
mod fuzz_tests;
mod index;
#[cfg(test)]
mod index_tests;
mod journal;
mod journal_store;
mod last_good;
mod lock;
mod notes;
mod pending;
mod revision;
mod salvage;
mod shared;
mod store;
mod transfer;
mod writer;

pub use beginning::Beginning;
pub use commit::{Change, Commit, Compaction, MAX_BLOB_BYTES, MAX_KEY_BYTES, Record, Retention};
pub use error::{CommitError, FileError, HistoryError, OpenError, RemoteFailure, StoreError};
pub use journal_store::{JournalStore, Options};
pub use last_good::{LastGood, LastGoodCopies, LastGoodError, LastGoodNote};
pub use notes::OpenNote;
pub use revision::{BlobHash, ParseBlobHashError, Revision};
pub use salvage::{KeyLoss, KeyOutcome, LostRecord, Piece, Salvage, Unreadable};
pub use store::{BoxFuture, Health, State, Store};
pub use transfer::{TransferError, export, export_in_use, import};
