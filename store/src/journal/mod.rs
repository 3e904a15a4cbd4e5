//! The journal: the files that the store consists of.
//!
//! A journal is a sequence of segments, `journal-<number>.log`. Commits are appended to the last one. A segment may
//! begin with a checkpoint, the full state at its base; such a segment is complete when it gets its name, and makes
//! all segments with lower numbers superfluous.

pub(crate) mod append;
pub(crate) mod blobs;
pub(crate) mod format;
mod replay;
pub(crate) mod segment;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use replay::{RecordPlace, Replay, apply, undo};
use segment::{Damage, Position, ScanEnd, ScanError, Segment, Torn};

use crate::{BlobHash, FileError, OpenNote, Record, Revision, StoreError, files};

/// The segments by number; the last one is appended to.
pub(crate) type Segments = BTreeMap<u64, Arc<Segment>>;

/// A journal that was read from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) segments: Segments,
    /// Where the last segment ends.
    pub(crate) end: u64,
    /// The contents of the segments.
    pub(crate) replay: Replay,
}

/// A journal as it lies in its directory; nothing was changed yet.
#[derive(Debug)]
pub(crate) struct Found {
    dir: PathBuf,
    segments: Segments,
    /// The last segment, if it is too short to have a header; it is not among the others.
    headless: Option<u64>,
    end: ScanEnd,
    /// The contents of the segments.
    pub(crate) replay: Replay,
}

/// Reads and verifies the segments `numbers` in `dir`, the last of them up to `limit`; changes nothing.
pub(crate) fn read(dir: &Path, numbers: &[u64], limit: u64) -> Result<Found, ScanError> {
    let (segments, headless) = open_segments(dir, numbers)?;
    let mut replay = Replay::default();
    let mut end = ScanEnd { end: 0, torn: None };
    let last = segments.keys().next_back().copied();
    for segment in segments.values() {
        let is_last = Some(segment.number) == last && headless.is_none();
        end = replay.segment(segment, is_last, if is_last { limit } else { u64::MAX })?;
    }
    // Without a header nobody knows what was there. Only of these two is it certain that it was no checkpoint: the
    // first segment of all, and one that follows what can be read.
    if let Some(number) = headless.filter(|number| *number != FIRST_NUMBER && replay.is_empty()) {
        return Err(headless_damage(dir, number));
    }
    Ok(Found { dir: dir.to_owned(), segments, headless, end, replay })
}

impl Found {
    /// The segment whose end is torn, and how.
    pub(crate) fn torn(&self) -> Option<(&Segment, u64, &Torn)> {
        let segment = self.segments.values().next_back()?;
        Some((segment, self.end.end, self.end.torn.as_ref()?))
    }

    /// The number of the last segment, if that is too short to have a header.
    pub(crate) const fn headless(&self) -> Option<u64> {
        self.headless
    }

    /// The journal up to its last complete commit, for reading only.
    pub(crate) fn into_journal(self) -> Journal {
        Journal { segments: self.segments, end: self.end.end, replay: self.replay }
    }

    /// Cuts off a torn end, starts a journal where there is none, and removes the remains of a crash.
    pub(crate) fn repair(mut self, notes: &mut Vec<OpenNote>) -> Result<Journal, FileError> {
        let dir = self.dir;
        remove_temporary(&dir)?;
        if let Some(number) = self.headless {
            let path = dir.join(segment::file_name(number));
            let bytes = std::fs::metadata(&path).map_err(|error| FileError::new("read", &path, error))?.len();
            let segment = Segment::create(&dir, number, self.replay.head)?;
            notes.push(OpenNote::TornEnd { path, offset: 0, bytes });
            self.segments.insert(number, Arc::new(segment));
        } else if self.segments.is_empty() {
            let segment = Segment::create(&dir, FIRST_NUMBER, Revision::ZERO)?;
            self.segments.insert(FIRST_NUMBER, Arc::new(segment));
        }
        let mut end = self.end.end;
        if let Some(segment) = self.segments.values().next_back() {
            if self.headless.is_some() || self.replay.is_empty() {
                end = segment.header.checkpoint_end;
                self.replay.begin_at(Position { segment: segment.number, offset: end });
            } else if let Some(torn) = &self.end.torn {
                cut(segment, end, torn.bytes, notes)?;
            }
        }
        remove_superseded(&dir, &self.segments)?;
        Ok(Journal { segments: self.segments, end, replay: self.replay })
    }
}

/// Reads `segments` again, up to `end` in the last one.
pub(crate) fn replay(segments: &Segments, end: u64) -> Result<Replay, StoreError> {
    let mut replay = Replay::default();
    let last = segments.keys().next_back().copied();
    for segment in segments.values() {
        let limit = if Some(segment.number) == last { end } else { u64::MAX };
        replay.segment(segment, false, limit).map_err(|error| match error {
            ScanError::File(error) => error.into(),
            ScanError::Damaged(Damage { path, offset, reason, .. }) => {
                StoreError::Damaged { path, offset, reason }
            }
            ScanError::Newer { path, what } => StoreError::Damaged { path, offset: 0, reason: what },
        })?;
    }
    Ok(replay)
}

/// Reads the record at `position`.
pub(crate) fn read_record(segment: &Segment, position: Position) -> Result<Record, StoreError> {
    let (kind, payload) = segment.read(position.offset)?;
    if kind != format::Kind::Commit {
        return Err(segment.damaged_record(position.offset, "this is not a commit"));
    }
    format::decode_record(&payload).map_err(|reason| segment.damaged_record(position.offset, reason))
}

/// Reads the blob `hash` at `position`.
pub(crate) fn read_blob(
    segment: &Segment,
    position: Position,
    hash: BlobHash,
) -> Result<bytes::Bytes, StoreError> {
    let (kind, payload) = segment.read(position.offset)?;
    match segment::split_blob(&payload) {
        Some((found, content)) if kind == format::Kind::Blob && found == hash => Ok(content),
        _ => Err(segment.damaged_record(position.offset, "this is a different blob")),
    }
}

/// Bytes of all segments.
pub(crate) fn total_bytes(segments: &Segments, end: u64) -> u64 {
    let sealed = segments.values().rev().skip(1);
    end + sealed.map(|segment| segment.file.metadata().map_or(0, |metadata| metadata.len())).sum::<u64>()
}

/// Lists the numbers of the segments in `dir`, in order.
pub(crate) fn list(dir: &Path) -> Result<Vec<u64>, FileError> {
    let mut numbers: Vec<_> = names(dir)?.iter().filter_map(|(name, _)| segment::file_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes what an interrupted creation left.
fn remove_temporary(dir: &Path) -> Result<(), FileError> {
    let is_temporary = |name: &str| name.starts_with("journal-") && name.ends_with(".tmp");
    let found = names(dir)?;
    let mut temporary = found.iter().filter(|(name, _)| is_temporary(name));
    temporary.try_for_each(|(_, path)| files::remove_file_if_exists(path))
}

/// Names and paths of the entries of `dir`.
fn names(dir: &Path) -> Result<Vec<(String, PathBuf)>, FileError> {
    let failed = |error| FileError::new("list", dir, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string() {
            names.push((name, entry.path()));
        }
    }
    Ok(names)
}

/// Opens the segments that count: the last one with a checkpoint and those behind it.
///
/// Returns the number of the last one apart if it is too short to have a header.
fn open_segments(dir: &Path, numbers: &[u64]) -> Result<(Segments, Option<u64>), ScanError> {
    let mut segments = Segments::new();
    let mut headless = None;
    for number in numbers.iter().rev() {
        match Segment::open(dir, *number)? {
            Some(segment) => {
                let is_checkpoint = segment.header.is_checkpoint();
                segments.insert(*number, Arc::new(segment));
                if is_checkpoint {
                    break;
                }
            }
            None if Some(number) == numbers.last() => headless = Some(*number),
            None => return Err(headless_damage(dir, *number)),
        }
    }
    Ok((segments, headless))
}

fn headless_damage(dir: &Path, number: u64) -> ScanError {
    let path = dir.join(segment::file_name(number));
    segment::file_damage(path, number, "the file is too short to have a header".to_owned())
}

fn cut(segment: &Segment, end: u64, bytes: u64, notes: &mut Vec<OpenNote>) -> Result<(), FileError> {
    let cut = segment.file.set_len(end).and_then(|()| segment.file.sync_all());
    cut.map_err(|error| FileError::new("cut the torn end off", &segment.path, error))?;
    notes.push(OpenNote::TornEnd { path: segment.path.clone(), offset: end, bytes });
    Ok(())
}

/// Removes the files that a checkpoint made superfluous, if a crash prevented it.
fn remove_superseded(dir: &Path, segments: &Segments) -> Result<(), FileError> {
    let Some(first) = segments.keys().next() else { return Ok(()) };
    for number in list(dir)?.into_iter().take_while(|number| number < first) {
        files::remove_file_if_exists(&dir.join(segment::file_name(number)))?;
    }
    Ok(())
}

/// Number of the segment that a new journal begins with.
pub(crate) const FIRST_NUMBER: u64 = 1;
