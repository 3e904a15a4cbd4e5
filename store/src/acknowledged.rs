//! The newest acknowledged revision, recorded apart from the journal.
//!
//! A journal that lost its end (an old copy, a file that was cut) looks like a journal that was never longer. This record shows the
//! difference: it is written to a sled database after each sync of the journal, and a journal that ends before it is not opened. A commit
//! never waits for the record to be synced; after a crash, it may only be older than the journal.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::journal::segment::Position;
use crate::journal::{Journal, Replay};
use crate::{FileError, OpenNote, Revision, files};

/// The point up to which a journal was acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Mark {
    pub(crate) head: Revision,
    /// Where the record of `head` ends.
    pub(crate) end: Position,
}

/// The mark of a journal that is open.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    /// `None` if it cannot be kept, which was reported.
    database: Option<sled::Db>,
}

/// The marks in a data directory, before its journal is known.
#[derive(Debug)]
pub(crate) struct Found(Vec<FoundMark>);

#[derive(Debug)]
struct FoundMark {
    path: PathBuf,
    /// `Ok(None)` if nothing was ever marked.
    mark: Result<Option<Mark>, Failure>,
    database: Option<sled::Db>,
}

/// Why a mark cannot be kept or read.
#[derive(Debug)]
struct Failure {
    /// A sentence for people.
    reason: String,
    /// True if the files are at fault, and not the disk that they are on.
    is_damage: bool,
}

impl Found {
    /// Reads the marks in `dir`: the current one, and that of older versions, which kept it with the places of all blobs.
    pub(crate) fn open(dir: &Path) -> Self {
        let paths = [DIRECTORY, EARLIER_DIRECTORY].map(|name| dir.join(name));
        Self(paths.into_iter().filter(|path| path.exists()).map(FoundMark::open).collect())
    }

    /// The newest revision that is known to have been acknowledged; `None` if there is no mark, or none that can be read.
    pub(crate) fn head(&self) -> Option<Revision> {
        self.0.iter().filter_map(FoundMark::head).max()
    }

    /// The directories of marks that are beyond `head`.
    pub(crate) fn beyond(&self, head: Revision) -> Vec<PathBuf> {
        let is_beyond = |found: &&FoundMark| found.head().is_some_and(|marked| marked > head);
        self.0.iter().filter(is_beyond).map(|found| found.path.clone()).collect()
    }
}

impl FoundMark {
    fn open(path: PathBuf) -> Self {
        match open_database(&path).and_then(|database| Ok((read(&database)?, database))) {
            Ok((mark, database)) => Self { path, mark: Ok(mark), database: Some(database) },
            Err(failure) => Self { path, mark: Err(failure), database: None },
        }
    }

    fn head(&self) -> Option<Revision> {
        self.mark.as_ref().ok()?.map(|mark| mark.head)
    }

    /// Checks that the journal had a commit at the mark; otherwise returns why the mark cannot be used.
    fn check(&self, replay: &Replay) -> Result<(), String> {
        match &self.mark {
            Ok(Some(mark)) if !mark.is_of(replay) => Err(format!(
                "it records that revision {} ends at byte {} of segment {}, which does not match the journal (at revision {})",
                mark.head, mark.end.offset, mark.end.segment, replay.head
            )),
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("it is empty".to_owned()),
            Err(failure) => Err(failure.reason.clone()),
        }
    }
}

impl Mark {
    /// The mark of a journal that was read.
    fn of(journal: &Journal) -> Self {
        let segment = journal.segments.keys().next_back().copied().unwrap_or_default();
        let last = journal.replay.records.get(&journal.replay.head);
        let end = match last {
            Some(place) => Position { segment: place.position.segment, offset: place.end },
            None => journal.replay.start.unwrap_or(Position { segment, offset: journal.end }),
        };
        Self { head: journal.replay.head, end }
    }

    /// Returns `true` if the journal once ended here, as far as it still shows.
    fn is_of(&self, replay: &Replay) -> bool {
        let is_compacted = replay.start.is_some_and(|start| self.end.segment < start.segment);
        match replay.records.get(&self.head) {
            _ if is_compacted => self.head <= replay.head,
            Some(place) => place.position.segment == self.end.segment && place.end == self.end.offset,
            None => self.head == replay.base && replay.start == Some(self.end),
        }
    }
}

impl Acknowledged {
    /// Continues with the mark that was found in `dir`, the directory of this journal, or starts one.
    ///
    /// A mark that does not belong to the journal is moved aside.
    pub(crate) fn open(dir: &Path, found: Found, journal: &Journal, notes: &mut Vec<OpenNote>) -> Self {
        let database = open_for(dir, found, journal, notes);
        let database = database.inspect_err(|failure| {
            notes.push(OpenNote::NotMarked { reason: failure.reason.clone() });
        });
        Self { database: database.ok() }
    }

    /// Remembers up to where the journal is synced.
    pub(crate) fn set(&mut self, mark: Mark) {
        self.do_or_end(|database| write(database, mark));
    }

    /// Syncs it.
    pub(crate) fn flush(&mut self) {
        self.do_or_end(|database| guarded(|| database.flush()).map(drop));
    }

    fn do_or_end(&mut self, act: impl FnOnce(&sled::Db) -> Result<(), Failure>) {
        let Some(database) = &self.database else { return };
        if let Err(failure) = act(database) {
            tracing::error!(
                reason = failure.reason,
                "what is acknowledged cannot be marked until the next start; a journal that lost its end is not noticed"
            );
            self.database = None;
        }
    }
}

fn open_for(
    dir: &Path,
    found: Found,
    journal: &Journal,
    notes: &mut Vec<OpenNote>,
) -> Result<sled::Db, Failure> {
    let path = dir.join(DIRECTORY);
    let mut database = None;
    let mut earlier = None;
    for found in found.0 {
        let checked = found.check(&journal.replay);
        let FoundMark { path: found_path, mark, database: found_database } = found;
        match (checked, mark) {
            // The earlier process was killed, and lost everything that was not synced.
            (Ok(()), _) | (Err(_), Ok(None)) if found_path != path => earlier = Some(found_path),
            (Ok(()), _) => database = found_database,
            (Err(_), Err(failure)) if !failure.is_damage => return Err(failure),
            (Err(reason), _) => {
                // Nobody else moves a directory that sled has open.
                drop(found_database);
                let aside = files::move_aside(&found_path)?;
                notes.push(OpenNote::MarkReplaced { aside, reason });
            }
        }
    }
    let is_new = database.is_none();
    let database = match database {
        Some(database) => database,
        None => {
            files::create_dir(&path)?;
            open_database(&path)?
        }
    };
    write(&database, Mark::of(journal))?;
    if is_new {
        // From here on, an empty one is a damaged one.
        guarded(|| database.flush())?;
    }
    if let Some(earlier) = earlier {
        std::fs::remove_dir_all(&earlier).map_err(|error| FileError::new("remove", &earlier, error))?;
    }
    Ok(database)
}

/// Opens a database in a directory that exists.
fn open_database(path: &Path) -> Result<sled::Db, Failure> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        let config =
            sled::Config::new().path(path).cache_capacity(CACHE_BYTES).flush_every_ms(Some(FLUSH_MS));
        match guarded(|| config.open()) {
            Ok(database) => return Ok(database),
            // A store of this process that was just closed: sled's threads let go of its lock a little later.
            Err(failure) if failure.reason.contains(LOCKED) && Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY);
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn read(database: &sled::Db) -> Result<Option<Mark>, Failure> {
    let Some(value) = guarded(|| database.get(KEY))? else { return Ok(None) };
    let numbers: Vec<u64> =
        value.chunks_exact(8).filter_map(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))).collect();
    let [head, segment, offset] = *numbers else { return Err(MALFORMED.into()) };
    Ok(Some(Mark { head: Revision(head), end: Position { segment, offset } }))
}

fn write(database: &sled::Db, Mark { head, end }: Mark) -> Result<(), Failure> {
    let value = [head.0, end.segment, end.offset].map(u64::to_be_bytes).concat();
    guarded(|| database.insert(KEY, value)).map(drop)
}

/// Runs a call of sled, which fails on some kinds of damage and panics on others.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err("sled panicked".into()),
    }
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

/// Returns `true` if an error is about access to the disk, not about the contents of files.
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

/// Name of sled's directory in the data directory.
const DIRECTORY: &str = "acknowledged";

/// Where earlier versions kept the mark, under the same key.
const EARLIER_DIRECTORY: &str = "index";

const KEY: &[u8] = b"applied";

const MALFORMED: &str = "the mark is malformed";

/// The text of sled's error when another handle has the directory open.
const LOCKED: &str = "could not acquire lock";

/// How long to wait for sled's lock. This process holds the store's own lock, so no other will keep sled's.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// For one key, and for those of an earlier version while it is read.
const CACHE_BYTES: u64 = 1024 * 1024;

/// How old the mark may be after a crash, in milliseconds.
const FLUSH_MS: u64 = 500;
