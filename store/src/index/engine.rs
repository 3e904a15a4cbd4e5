//! The two places where an index can be kept: sled, and memory.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::journal::Replay;
use crate::journal::segment::Position;
use crate::{BlobHash, FileError, Revision};

/// Keeps an index, and fails with a sentence for people.
#[derive(Debug)]
pub(super) enum Engine {
    /// One tree; the keys are `r` and a revision, `b` and a hash, and `applied`.
    Sled(sled::Db),
    /// Lost when the program ends.
    Memory { records: BTreeMap<Revision, Position>, blobs: HashMap<BlobHash, Position> },
    /// Neither can be used, and this is why.
    Failed(String),
}

/// Up to where the journal is in the index.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Applied {
    pub(super) head: Revision,
    /// Where the record of `head` ends.
    pub(super) end: Position,
}

/// What becomes of an index at once.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) set_records: Vec<(Revision, Position)>,
    pub(super) removed_records: Vec<Revision>,
    pub(super) set_blobs: Vec<(BlobHash, Position)>,
    pub(super) removed_blobs: Vec<BlobHash>,
    pub(super) applied: Applied,
}

/// Why an index cannot be used.
#[derive(Debug)]
pub(super) struct Failure {
    /// A sentence for people.
    pub(super) reason: String,
    /// Whether the files are at fault, and not the disk that they are on.
    pub(super) is_damage: bool,
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), is_damage: true }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self { is_damage: !is_refusal(error.kind()), reason: error.to_string() }
    }
}

impl From<sled::Error> for Failure {
    fn from(error: sled::Error) -> Self {
        let is_damage = !matches!(&error, sled::Error::Io(error) if is_refusal(error.kind()));
        Self { reason: format!("sled failed: {error}"), is_damage }
    }
}

impl Engine {
    /// Opens sled in a directory that exists.
    pub(super) fn open_sled(path: &Path) -> Result<Self, Failure> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            let config = sled::Config::new().path(path).flush_every_ms(None).cache_capacity(CACHE_BYTES);
            match guarded(|| config.open()) {
                Ok(db) => return Ok(Self::Sled(db)),
                // A store of this process that was just closed: sled's threads let go of its lock a little later.
                Err(failure) if failure.reason.contains(LOCKED) && Instant::now() < deadline => {
                    std::thread::sleep(LOCK_RETRY);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    pub(super) fn in_memory(replay: &Replay) -> Self {
        Self::Memory {
            records: replay.records.iter().map(|(revision, place)| (*revision, place.position)).collect(),
            blobs: replay.blobs.clone(),
        }
    }

    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        match self {
            Self::Sled(db) => guarded(|| db.clear()),
            Self::Memory { records, blobs } => {
                records.clear();
                blobs.clear();
                Ok(())
            }
            Self::Failed(reason) => Err(reason.as_str().into()),
        }
    }

    pub(super) fn change(&mut self, update: &Update) -> Result<(), Failure> {
        match self {
            Self::Sled(db) => guarded(|| db.apply_batch(batch(update))),
            Self::Memory { records, blobs } => {
                for revision in &update.removed_records {
                    records.remove(revision);
                }
                records.extend(update.set_records.iter().copied());
                for hash in &update.removed_blobs {
                    blobs.remove(hash);
                }
                blobs.extend(update.set_blobs.iter().copied());
                Ok(())
            }
            Self::Failed(reason) => Err(reason.as_str().into()),
        }
    }

    pub(super) fn flush(&self) -> Result<(), Failure> {
        match self {
            Self::Sled(db) => guarded(|| db.flush().map(|_| ())),
            Self::Memory { .. } | Self::Failed(_) => Ok(()),
        }
    }

    /// What was applied last; `None` if nothing ever was.
    pub(super) fn applied(&self) -> Result<Option<Applied>, Failure> {
        let Self::Sled(db) = self else { return Ok(None) };
        let Some(value) = guarded(|| db.get(APPLIED))? else { return Ok(None) };
        let (head, end) = value.split_first_chunk().ok_or(MALFORMED)?;
        Ok(Some(Applied { head: Revision(u64::from_be_bytes(*head)), end: decode_position(end)? }))
    }

    pub(super) fn record(&self, revision: Revision) -> Result<Option<Position>, Failure> {
        match self {
            Self::Sled(db) => lookup(db, &record_key(revision)),
            Self::Memory { records, .. } => Ok(records.get(&revision).copied()),
            Self::Failed(reason) => Err(reason.as_str().into()),
        }
    }

    pub(super) fn blob(&self, hash: BlobHash) -> Result<Option<Position>, Failure> {
        match self {
            Self::Sled(db) => lookup(db, &blob_key(hash)),
            Self::Memory { blobs, .. } => Ok(blobs.get(&hash).copied()),
            Self::Failed(reason) => Err(reason.as_str().into()),
        }
    }

    /// Every record, in no order.
    pub(super) fn records(&self) -> Result<Vec<(Revision, Position)>, Failure> {
        match self {
            Self::Sled(db) => {
                list(db, RECORD, |key| Some(Revision(u64::from_be_bytes(key.try_into().ok()?))))
            }
            Self::Memory { records, .. } => Ok(records.iter().map(|(key, value)| (*key, *value)).collect()),
            Self::Failed(reason) => Err(reason.as_str().into()),
        }
    }

    /// Every blob, in no order.
    pub(super) fn blobs(&self) -> Result<Vec<(BlobHash, Position)>, Failure> {
        match self {
            Self::Sled(db) => list(db, BLOB, |key| Some(BlobHash::from_bytes(key.try_into().ok()?))),
            Self::Memory { blobs, .. } => Ok(blobs.iter().map(|(key, value)| (*key, *value)).collect()),
            Self::Failed(reason) => Err(reason.as_str().into()),
        }
    }
}

fn batch(update: &Update) -> sled::Batch {
    let mut batch = sled::Batch::default();
    for revision in &update.removed_records {
        batch.remove(&record_key(*revision));
    }
    for (revision, position) in &update.set_records {
        batch.insert(&record_key(*revision), &encode_position(*position));
    }
    for hash in &update.removed_blobs {
        batch.remove(blob_key(*hash));
    }
    for (hash, position) in &update.set_blobs {
        batch.insert(blob_key(*hash), &encode_position(*position));
    }
    let mut applied = update.applied.head.0.to_be_bytes().to_vec();
    applied.extend_from_slice(&encode_position(update.applied.end));
    batch.insert(APPLIED, applied);
    batch
}

fn lookup(db: &sled::Db, key: &[u8]) -> Result<Option<Position>, Failure> {
    guarded(|| db.get(key))?.map(|value| decode_position(&value)).transpose()
}

fn list<K>(
    db: &sled::Db,
    prefix: &[u8],
    decode: impl Fn(&[u8]) -> Option<K>,
) -> Result<Vec<(K, Position)>, Failure> {
    let pairs = guarded(|| db.scan_prefix(prefix).collect::<Result<Vec<_>, _>>())?;
    let entries = pairs.iter().map(|(key, value)| {
        let key = key.strip_prefix(prefix).and_then(&decode).ok_or(MALFORMED)?;
        Ok((key, decode_position(value)?))
    });
    entries.collect()
}

/// Runs a call of sled, which panics on some damages where others make it fail.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err("sled panicked".into()),
    }
}

/// Whether an error is about what may be done on a disk, and not about what is there.
fn is_refusal(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
    )
}

fn record_key(revision: Revision) -> [u8; 9] {
    let mut key = [RECORD[0]; 9];
    key[1..].copy_from_slice(&revision.0.to_be_bytes());
    key
}

fn blob_key(hash: BlobHash) -> Vec<u8> {
    [BLOB.as_slice(), hash.as_bytes()].concat()
}

fn encode_position(position: Position) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&position.segment.to_be_bytes());
    bytes[8..].copy_from_slice(&position.offset.to_be_bytes());
    bytes
}

fn decode_position(bytes: &[u8]) -> Result<Position, Failure> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| MALFORMED)?;
    let both = u128::from_be_bytes(bytes);
    Ok(Position { segment: (both >> 64) as u64, offset: both as u64 })
}

const APPLIED: &[u8] = b"applied";
const RECORD: &[u8; 1] = b"r";
const BLOB: &[u8; 1] = b"b";

const MALFORMED: &str = "an entry of the index is malformed";

/// What sled says when another handle has the directory open.
const LOCKED: &str = "could not acquire lock";

/// How long to wait for sled's lock. The store's own lock is held, so nobody is going to keep it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// The index of a full history is smaller than this.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
