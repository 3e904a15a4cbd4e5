//! A store as text: one JSON object per line, for backups, for reading, and for import into another store.
//!
//! ```text
//! {"format":"xds-store","version":1,"base":250,"head":252}
//! {"blob":"<hash>","base64":"…"}                             before whatever names it, each once
//! {"state":{"key":"<hash>",…}}                               at the base
//! {"record":{"revision":251,"actor":"…",…}}                  in order, up to the head
//! ```
//!
//! The text contains everything that was ever put in the kept history.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::compaction::CheckpointWriter;
use crate::index::Index;
use crate::journal::{Found, Replay, format};
use crate::lock::Lock;
use crate::shared::{Published, Shared};
use crate::{
    BlobHash, FileError, HistoryError, JournalStore, MAX_BLOB_BYTES, OpenError, Record, Revision, State,
    StoreError, files, journal, journal_store,
};

/// An export or an import failed.
///
/// After a failed export the file is of no use. An import has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store to import into has commits already.
    #[error("the store is not empty, it is at revision {head}; import into a new data directory")]
    NotEmpty {
        /// Its head.
        head: Revision,
    },
    /// The text is not what an export writes.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Number of the line, from 1.
        line: u64,
        /// The fault in it.
        reason: String,
    },
    /// The text could not be read or written.
    #[error("the text could not be read or written")]
    Text(#[from] io::Error),
    /// The store to import into could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A past state could not be read; if it was compacted meanwhile, try again.
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl From<StoreError> for TransferError {
    fn from(error: StoreError) -> Self {
        Self::History(error.into())
    }
}

impl From<FileError> for TransferError {
    fn from(error: FileError) -> Self {
        Self::Open(error.into())
    }
}

/// One line of the text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Header { format: String, version: u32, base: Revision, head: Revision },
    Blob { blob: BlobHash, base64: String },
    State { state: BTreeMap<String, BlobHash> },
    Record { record: Record },
}

/// Writes the kept history of `store`, up to its head now, and returns that head.
///
/// # Errors
///
/// If the store cannot be read or the text not be written.
pub fn export(store: &JournalStore, out: &mut dyn Write) -> Result<Revision, TransferError> {
    write(store.shared(), out)
}

/// Writes the kept history of the store in `dir`, which another process has open, up to the last commit that is in its files, and returns
/// the revision of that.
///
/// Nothing is changed and nobody waits. What was acknowledged before is in it; the last commit may be one that is about to be acknowledged.
///
/// # Errors
///
/// If the files cannot be read or the text not be written.
pub fn export_in_use(dir: &Path, out: &mut dyn Write) -> Result<Revision, TransferError> {
    let mut journal = read_in_use(dir)?.into_journal();
    let index = Index::new(&mut journal);
    let Replay { head, base, state, .. } = journal.replay;
    write(&Shared::new(dir.to_owned(), index, Published { head, base, state }), out)
}

/// Reads the journal in `dir` while it grows, and while files that were superseded vanish. Files that are open stay readable.
fn read_in_use(dir: &Path) -> Result<Found, OpenError> {
    let mut attempts = 1..MAX_ATTEMPTS;
    loop {
        let error = match journal::read(dir, &journal::list(dir)?, u64::MAX) {
            Ok(found) => return Ok(found),
            Err(error) => error.in_dir(dir),
        };
        match (&error, attempts.next()) {
            (OpenError::File(_) | OpenError::Damaged { .. }, Some(_)) => {}
            _ => return Err(error),
        }
    }
}

fn write(store: &Shared, out: &mut dyn Write) -> Result<Revision, TransferError> {
    let head = store.published().head;
    let (base, state) = match store.state_at(Revision::ZERO) {
        Err(HistoryError::Compacted { oldest }) => (oldest, store.state_at(oldest)?),
        state => (Revision::ZERO, state?),
    };
    let mut lines = Lines { store, out, written: BTreeSet::new() };
    lines.write(&Line::Header { format: FORMAT.to_owned(), version: VERSION, base, head })?;
    for hash in state.values() {
        lines.blob(*hash)?;
    }
    lines.write(&Line::State {
        state: state.into_iter().map(|(key, hash)| (key.to_string(), hash)).collect(),
    })?;
    for revision in base.next().0..=head.0 {
        let Some(record) = store.record(Revision(revision))? else {
            return Err(HistoryError::Compacted { oldest: Revision(revision) }.into());
        };
        for hash in record.commit.changes.iter().filter_map(|change| change.value) {
            lines.blob(hash)?;
        }
        lines.write(&Line::Record { record })?;
    }
    lines.out.flush()?;
    Ok(head)
}

/// Fills the store in `dir` with what an export wrote, and returns the head. Nobody may have the store open.
///
/// Revisions, times and actors are taken over.
///
/// # Errors
///
/// [`TransferError::NotEmpty`] if there are commits in it, [`TransferError::Malformed`] if the text is not an
/// export or is not complete. `dir` then contains no more commits than before.
pub fn import(dir: &Path, input: &mut dyn BufRead) -> Result<Revision, TransferError> {
    files::create_dir(dir)?;
    let _lock = Lock::take(dir)?;
    let (journal, _) = journal_store::open_journal(dir, &mut Vec::new())?;
    let head = journal.replay.head;
    if head != Revision::ZERO {
        return Err(TransferError::NotEmpty { head });
    }
    let number = journal.segments.keys().next_back().map_or(journal::FIRST_NUMBER, |last| last + 1);
    let mut import = Import {
        writer: CheckpointWriter::create(dir, number)?,
        header: None,
        state: None,
        head: Revision::ZERO,
    };
    let read = import.read(input);
    let checkpoint = read.and_then(|(base, head)| Ok((import.writer.finish(base, head)?, head)));
    // A failure leaves files with temporary names, which are removed when the store is opened.
    let (checkpoint, head) = checkpoint?;
    checkpoint.install()?;
    Ok(head)
}

/// An export that is being written.
struct Lines<'a> {
    store: &'a Shared,
    out: &'a mut dyn Write,
    written: BTreeSet<BlobHash>,
}

impl Lines<'_> {
    fn blob(&mut self, hash: BlobHash) -> Result<(), TransferError> {
        if !self.written.insert(hash) {
            return Ok(());
        }
        let Some(content) = self.store.blob(hash)? else {
            let oldest = self.store.published().head;
            return Err(HistoryError::Compacted { oldest }.into());
        };
        self.write(&Line::Blob { blob: hash, base64: BASE64.encode(content) })
    }

    fn write(&mut self, line: &Line) -> Result<(), TransferError> {
        serde_json::to_writer(&mut *self.out, line).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }
}

/// An import that is being read.
struct Import {
    writer: CheckpointWriter,
    header: Option<(Revision, Revision)>,
    /// The state after what was read so far, from the line with the state on.
    state: Option<State>,
    head: Revision,
}

impl Import {
    /// Reads everything and returns base and head.
    fn read(&mut self, input: &mut dyn BufRead) -> Result<(Revision, Revision), TransferError> {
        let mut line = 0;
        let mut text = Vec::new();
        loop {
            line += 1;
            text.clear();
            let malformed = |reason: String| TransferError::Malformed { line, reason };
            if (&mut *input).take(MAX_LINE_BYTES).read_until(b'\n', &mut text)? == 0 {
                return self.end().map_err(malformed);
            }
            if text.len() as u64 == MAX_LINE_BYTES {
                return Err(malformed("the line is too long".to_owned()));
            }
            let parsed = serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
            match self.line(parsed) {
                Ok(()) => {}
                Err(ImportError::Malformed(reason)) => return Err(malformed(reason)),
                Err(ImportError::File(error)) => return Err(error.into()),
            }
        }
    }

    fn line(&mut self, line: Line) -> Result<(), ImportError> {
        match (line, &self.header) {
            (Line::Header { format, version, base, head }, None) => {
                if format != FORMAT || version != VERSION {
                    return Err(format!(
                        "format {format:?}, version {version} is not supported by this version"
                    )
                    .into());
                }
                self.header = Some((base, head));
                self.head = base;
                Ok(())
            }
            (Line::Header { .. }, Some(_)) => Err("a second header".to_owned().into()),
            (Line::Blob { .. } | Line::State { .. } | Line::Record { .. }, None) => {
                Err("the header is missing".to_owned().into())
            }
            (Line::Blob { blob, base64 }, Some(_)) => self.blob(blob, &base64),
            (Line::State { state }, Some(_)) => self.base_state(state),
            (Line::Record { record }, Some(_)) => self.record(&record),
        }
    }

    fn blob(&mut self, hash: BlobHash, base64: &str) -> Result<(), ImportError> {
        let content = BASE64.decode(base64).map_err(|error| error.to_string())?;
        if BlobHash::of(&content) != hash {
            return Err("the content of the blob does not match its hash".to_owned().into());
        }
        if content.len() > MAX_BLOB_BYTES {
            return Err("the blob is larger than the limit".to_owned().into());
        }
        if !self.writer.has_blob(&hash) {
            self.writer.blob(hash, &content)?;
        }
        Ok(())
    }

    fn base_state(&mut self, state: BTreeMap<String, BlobHash>) -> Result<(), ImportError> {
        if self.state.is_some() {
            return Err("a second state".to_owned().into());
        }
        for (key, hash) in &state {
            self.check_value(key, Some(hash))?;
        }
        let state: State = state.into_iter().map(|(key, hash)| (Arc::from(key), hash)).collect();
        self.writer.state(&state)?;
        self.state = Some(state);
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), ImportError> {
        let Some(mut state) = self.state.take() else {
            return Err("the state is missing".to_owned().into());
        };
        if record.revision != self.head.next() {
            return Err(format!("revision {} follows revision {}", record.revision, self.head).into());
        }
        let previous = record.commit.changes.iter();
        let previous: Vec<_> =
            previous.map(|change| (change.key.clone(), state.get(&*change.key).copied())).collect();
        if record.previous != previous {
            return Err("the previous values in the record do not match the history".to_owned().into());
        }
        record.commit.check().map_err(|error| error.to_string())?;
        for change in &record.commit.changes {
            self.check_value(&change.key, change.value.as_ref())?;
        }
        if format::encode_record(record).len() > format::MAX_PAYLOAD_BYTES {
            return Err("the record is larger than the limit".to_owned().into());
        }
        self.writer.record(record)?;
        journal::apply(&mut state, record);
        self.head = record.revision;
        self.state = Some(state);
        Ok(())
    }

    fn check_value(&self, key: &str, hash: Option<&BlobHash>) -> Result<(), String> {
        match hash {
            Some(hash) if !self.writer.has_blob(hash) => Err(format!("the value of {key:?} is missing")),
            _ => Ok(()),
        }
    }

    fn end(&self) -> Result<(Revision, Revision), String> {
        match self.header {
            Some((base, head)) if head == self.head && self.state.is_some() => Ok((base, head)),
            _ => Err(format!("the text ends too early, at revision {}", self.head)),
        }
    }
}

/// Why a line cannot be imported.
enum ImportError {
    Malformed(String),
    File(FileError),
}

impl From<String> for ImportError {
    fn from(reason: String) -> Self {
        Self::Malformed(reason)
    }
}

impl From<FileError> for ImportError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

const FORMAT: &str = "xds-store";
const VERSION: u32 = 1;

/// How often a journal in use is read before what is found counts as damage.
const MAX_ATTEMPTS: usize = 5;

/// The longest line: a blob in base64, or a state of some hundred thousand keys.
const MAX_LINE_BYTES: u64 = 2 * MAX_BLOB_BYTES as u64;
