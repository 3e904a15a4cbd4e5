//! Commits: the request, the record that is kept, and the rules for keeping it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{BlobHash, CommitError, Revision};

/// New value of one key.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The key; any text, at most [`MAX_KEY_BYTES`] bytes.
    pub key: String,
    /// Hash of the new value; `None` deletes the key.
    pub value: Option<BlobHash>,
}

impl Change {
    /// Sets `key` to the blob `value`.
    pub fn set(key: impl Into<String>, value: BlobHash) -> Self {
        Self { key: key.into(), value: Some(value) }
    }

    /// Deletes `key`; a key that does not exist stays absent.
    pub fn delete(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None }
    }
}

/// Changes that become visible together, and who made them.
///
/// It names blobs by their hash and holds none, so printing it reveals no content.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    /// The user or program that asked for it.
    pub actor: String,
    /// When, in milliseconds since the Unix epoch; taken as given.
    pub at_ms: u64,
    /// The kind of change: `file`, `api`, `rollback` or any other word.
    pub source: String,
    /// One line for people.
    pub summary: String,
    /// Each key at most once; the order has no meaning. May be empty.
    pub changes: Vec<Change>,
}

impl Commit {
    /// Finds out whether a store would refuse the commit whatever it contains.
    ///
    /// # Errors
    ///
    /// [`CommitError::TooLarge`] if a text is too long, [`CommitError::DuplicateKey`] if a key is changed twice.
    pub fn check(&self) -> Result<(), CommitError> {
        for (what, text) in [("actor", &self.actor), ("source", &self.source), ("summary", &self.summary)] {
            CommitError::if_too_large(what, text.len(), MAX_KEY_BYTES)?;
        }
        let mut keys = HashSet::new();
        for change in &self.changes {
            CommitError::if_too_large("key", change.key.len(), MAX_KEY_BYTES)?;
            if !keys.insert(change.key.as_str()) {
                return Err(CommitError::DuplicateKey { key: change.key.clone() });
            }
        }
        Ok(())
    }
}

/// A recorded commit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The revision that the commit made.
    pub revision: Revision,
    /// The commit as requested.
    #[serde(flatten)]
    pub commit: Commit,
    /// The value that each changed key had before, in the order of `commit.changes`.
    pub previous: Vec<(String, Option<BlobHash>)>,
}

/// How much of the history is kept; the limit that is reached first counts.
///
/// The newest revision is always kept, whatever its size. The journal may grow a quarter beyond these limits
/// before it is compacted, because a compaction writes everything that is kept once more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Retention {
    /// Revisions to keep, at least 1.
    pub revisions: u64,
    /// Bytes of the records, and of the blobs only they need, to keep.
    pub bytes: u64,
}

impl Default for Retention {
    /// 1,000 revisions or 256 MiB.
    fn default() -> Self {
        Self { revisions: 1_000, bytes: 256 * 1024 * 1024 }
    }
}

/// The result of a compaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Compaction {
    /// The oldest revision whose state is kept.
    pub oldest: Revision,
    /// Revisions that were dropped from the history; zero if there was nothing to do.
    pub n_dropped: u64,
    /// Bytes of the journal before.
    pub bytes_before: u64,
    /// Bytes of the journal after.
    pub bytes_after: u64,
}

/// Longest key and longest text of a commit, in bytes; a bound on the lengths that a reader accepts.
pub const MAX_KEY_BYTES: usize = 64 * 1024;

/// Largest blob, in bytes: the largest message that clients and the admin API may send.
pub const MAX_BLOB_BYTES: usize = 64 * 1024 * 1024;
