//! Errors, one type for each question.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{BlobHash, Revision};

/// The operating system refused something.
///
/// Names the file and what to do about it; the system's own words are its source.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {action} {path}{advice}", path = path.display(), advice = advice(source))]
pub struct FileError {
    /// The operation, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: Arc<io::Error>,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Another file, or none, has the name of an open one.
    pub(crate) fn not_in_place(path: &Path) -> Self {
        Self::new("go on with", path, io::Error::other(NOT_IN_PLACE))
    }

    /// The kind of the system's error, such as [`io::ErrorKind::StorageFull`].
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// The store could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another store of this one) has the directory open.
    #[error("{} is in use{}", path.display(), holder.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Process id of the holder, if it is in the lock file.
        holder: Option<u32>,
    },
    /// The journal is damaged where acknowledged commits are; nothing was changed.
    ///
    /// Restore the file from a copy, or use a [`Salvage`](crate::Salvage), which keeps what can be used and moves the
    /// rest aside.
    #[error("{} is damaged at byte {offset}: {reason}; {}", path.display(), restore_or_salvage(dir))]
    Damaged {
        /// The data directory.
        dir: PathBuf,
        /// The journal file.
        path: PathBuf,
        /// Where the damage begins, in bytes from the start of the file.
        offset: u64,
        /// The fault that was found there.
        reason: String,
    },
    /// Commits that the journal lacks are marked as acknowledged, so they were acknowledged and are lost; nothing was changed.
    #[error(
        "the journal in {} ends at revision {head}, but revision {known} was acknowledged{}; {}",
        dir.display(),
        torn.as_ref().map(|torn| format!(": {torn}")).unwrap_or_default(),
        restore_or_salvage(dir)
    )]
    Lost {
        /// The data directory.
        dir: PathBuf,
        /// The newest revision that is marked as acknowledged.
        known: Revision,
        /// The newest revision that the journal has.
        head: Revision,
        /// Where the journal's end cannot be read, and why; `None` if it has one.
        torn: Option<String>,
    },
    /// A newer version of this program wrote the journal; nothing was changed.
    #[error(
        "{} was written by a newer version of xds-server ({what}); start that version, or use another data directory",
        path.display()
    )]
    Newer {
        /// The journal file.
        path: PathBuf,
        /// The form that this program cannot read.
        what: String,
    },
    /// A file could not be read, written or created.
    #[error(transparent)]
    File(#[from] FileError),
}

fn restore_or_salvage(dir: &Path) -> String {
    format!(
        "restore the journal from a copy, or see what `xds-server store salvage --data-dir {}` would keep",
        dir.display()
    )
}

/// The store failed; nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The blob is larger than [`MAX_BLOB_BYTES`](crate::MAX_BLOB_BYTES).
    #[error("a blob of {bytes} bytes is larger than the limit of {limit}")]
    BlobTooLarge {
        /// Size of the blob.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A file could not be read or written; the next attempt may succeed.
    #[error(transparent)]
    File(#[from] FileError),
    /// An earlier failure left the end of the journal uncertain, or the lock or the journal is not in its place any more, so nothing is
    /// written until it is opened again.
    ///
    /// Reads go on. Nothing was acknowledged since the failure.
    #[error("the store failed and is read-only now; fix the cause and restart the server")]
    ReadOnly(#[source] FileError),
    /// The contents differ from those that were written.
    #[error("{} is damaged at byte {offset}: {reason}", path.display())]
    Damaged {
        /// The journal file.
        path: PathBuf,
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// The fault that was found there.
        reason: String,
    },
    /// A state to begin with is older than what the store has.
    #[error("the store is at revision {head} already, so it cannot begin at revision {revision}")]
    BeginsBefore {
        /// The revision of the state.
        revision: Revision,
        /// The head.
        head: Revision,
    },
    /// A state to begin with lacks the content of a value.
    #[error("the value {hash} of {key:?} is missing in the state to begin with")]
    NoBlob {
        /// The key.
        key: String,
        /// The hash of its value.
        hash: BlobHash,
    },
    /// What several servers share could not be read or written, or is not what this server follows.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// A failure of what several servers share.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RemoteFailure {
    /// Nothing was stored: the shared store did not answer before anything was sent to it.
    #[error("the shared store cannot be reached, so nothing can be written now; what is served stays: {0}")]
    Unreachable(String),
    /// The commit may be stored, or may be stored later.
    #[error(
        "the shared store did not say whether commit {id} is stored; the history will show it as a revision if it is: {reason}"
    )]
    OutcomeUnknown {
        /// The id of the commit, 32 hexadecimal digits.
        id: String,
        /// What happened last.
        reason: String,
    },
    /// Nothing was stored: the shared store has no space left.
    #[error(
        "the shared store is full: raise its quota, or compact and defragment it, and then disarm its alarm (etcdctl alarm disarm): {0}"
    )]
    Full(String),
    /// Nothing was stored: the shared store does not accept who this server is.
    #[error("the shared store refuses this server: {0}")]
    Refused(String),
    /// Nothing was stored: this server does not follow what the shared store has.
    #[error("this server does not follow the shared store: {0}")]
    Diverged(String),
}

impl StoreError {
    /// Returns `true` if the files are at fault, not the request.
    #[must_use]
    pub const fn is_of_disk(&self) -> bool {
        match self {
            Self::File(_) | Self::ReadOnly(_) | Self::Damaged { .. } => true,
            Self::BlobTooLarge { .. }
            | Self::BeginsBefore { .. }
            | Self::NoBlob { .. }
            | Self::Remote(_)
            | Self::Closed => false,
        }
    }
}

/// The commit was not made, and the head has not moved because of it.
///
/// One exception cannot be ruled out: if a write fails and the file system then also refuses to cut it off
/// ([`StoreError::ReadOnly`] from then on), the commit may be there when the store is opened again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The head is not the one that the commit was built from.
    #[error("the store is at revision {head}")]
    Conflict {
        /// The head now.
        head: Revision,
    },
    /// A change names a blob that the store does not have.
    ///
    /// Blobs that no commit names are kept in memory, for a bounded time: put it again.
    #[error("the value {hash} of {key:?} was not put before the commit")]
    UnknownBlob {
        /// The key.
        key: String,
        /// The hash.
        hash: BlobHash,
    },
    /// Two changes have the same key.
    #[error("{key:?} is changed twice in one commit")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A key or text is longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), or the record as a whole exceeds
    /// [`MAX_BLOB_BYTES`](crate::MAX_BLOB_BYTES).
    #[error("the {what} of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// The value that is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CommitError {
    pub(crate) fn if_too_large(what: &'static str, bytes: usize, limit: usize) -> Result<(), Self> {
        if bytes > limit { Err(Self::TooLarge { what, bytes, limit }) } else { Ok(()) }
    }
}

/// A past state cannot be given.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HistoryError {
    /// The revision is older than the kept history.
    #[error("the history before revision {oldest} is no longer kept")]
    Compacted {
        /// The oldest revision whose state is kept.
        oldest: Revision,
    },
    /// The revision does not exist yet.
    #[error("the store is at revision {head}")]
    Future {
        /// The head now.
        head: Revision,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn advice(error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(EIO) {
        return ": the disk reports an error; check the kernel's log, and replace the disk if it is failing";
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the system's errors are many; only these have advice"
    )]
    match error.kind() {
        io::ErrorKind::StorageFull => ": the disk is full; free some space",
        io::ErrorKind::QuotaExceeded => ": the quota is exhausted; raise it or free some space",
        io::ErrorKind::FileTooLarge => ": the limit on file sizes is reached; raise it",
        io::ErrorKind::ReadOnlyFilesystem => {
            ": the file system is read-only; mount it writable or choose another data directory"
        }
        io::ErrorKind::PermissionDenied => {
            ": permission denied; give this user the data directory or choose another one"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            ": a file is where a directory should be; choose another data directory"
        }
        _ => "",
    }
}

/// The text of [`FileError::not_in_place`].
const NOT_IN_PLACE: &str = "it was removed or replaced since this server opened it, so that another server may write to the directory";

/// The number of "input/output error" on every Unix; it has no [`io::ErrorKind`].
const EIO: i32 = 5;
