//! The durable journal of what was changed.
//!
//! A [`Store`] maps keys to blobs. It changes by [commits](Commit), each of which is made on top of a known
//! [`Revision`] or not at all, and remembers them. [`JournalStore`] keeps it in a directory: a commit is
//! acknowledged when it is in an append-only journal and the journal is synced. The journal is all there is; where in it
//! things are is kept in memory. sled keeps one thing beside it, up to where it was acknowledged, so that a journal that
//! lost its end is noticed.
//!
//! [`LastGood`] is apart from that: local copies of files, to go on with when the files are broken.

mod acknowledged;
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
mod notes;
mod pending;
mod revision;
mod salvage;
mod shared;
mod store;
mod transfer;
mod writer;

pub use commit::{Change, Commit, Compaction, MAX_BLOB_BYTES, MAX_KEY_BYTES, Record, Retention};
pub use error::{CommitError, FileError, HistoryError, OpenError, StoreError};
pub use journal_store::{JournalStore, Options};
pub use last_good::{LastGood, LastGoodCopies, LastGoodError, LastGoodNote};
pub use notes::OpenNote;
pub use revision::{BlobHash, ParseBlobHashError, Revision};
pub use salvage::{KeyLoss, KeyOutcome, LostRecord, Piece, Salvage, Unreadable};
pub use store::{BoxFuture, State, Store};
pub use transfer::{TransferError, export, import};
