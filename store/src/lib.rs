//! The durable journal of what was changed, with sled as its index.

mod commit;
mod error;
mod revision;
mod store;

pub use commit::{Change, Commit, Compaction, MAX_BLOB_BYTES, MAX_KEY_BYTES, Record, Retention};
pub use error::{CommitError, FileError, HistoryError, OpenError, StoreError};
pub use revision::{BlobHash, ParseBlobHashError, Revision};
pub use store::{BoxFuture, Store};
