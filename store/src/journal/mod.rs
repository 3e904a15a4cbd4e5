//! The journal: the files that the store consists of.
//!
//! A journal is a sequence of segments, `journal-<number>.log`. Commits are appended to the last one. A segment may
//! begin with a checkpoint, the full state at its base; such a segment is complete when it gets its name, and makes
//! all segments with lower numbers superfluous.

pub(crate) mod append;
pub(crate) mod format;
mod replay;
pub(crate) mod salvage;
pub(crate) mod segment;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(crate) use replay::{RecordPlace, Replay, apply, undo};
use segment::{Damage, Position, ScanEnd, ScanError, Segment};

use crate::{BlobHash, FileError, OpenError, OpenNote, Record, Revision, StoreError, files};

/// The segments by number; the last one is appended to.
pub(crate) type Segments = BTreeMap<u64, Arc<Segment>>;

/// A journal that was read from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) segments: Segments,
    /// Where the last segment ends.
    pub(crate) end: u64,
    /// What the segments say.
    pub(crate) replay: Replay,
}

/// Opens the journal in `dir`, verifies all of it and makes its end clean; begins one if there is none.
///
/// A torn end is cut off. Other damage is an error that changes no file, unless `salvage` allows to move aside
/// what is behind it.
pub(crate) fn open(dir: &Path, salvage: bool, notes: &mut Vec<OpenNote>) -> Result<Journal, OpenError> {
    loop {
        match read(dir, notes) {
            Ok(journal) => return Ok(journal),
            Err(ScanError::File(error)) => return Err(error.into()),
            Err(ScanError::Damaged(damage)) if salvage => salvage::move_damage_aside(dir, damage, notes)?,
            Err(ScanError::Damaged(Damage { path, offset, reason, .. })) => {
                return Err(OpenError::Damaged { path, offset, reason });
            }
        }
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
        })?;
    }
    Ok(replay)
}

/// Reads the record at `position`.
pub(crate) fn read_record(segment: &Segment, position: Position) -> Result<Record, StoreError> {
    let (kind, payload) = segment.read(position.offset)?;
    if kind != format::Kind::Commit {
        return Err(segment.damaged_record(position.offset, "this is no commit"));
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
        _ => Err(segment.damaged_record(position.offset, "this is another blob")),
    }
}

/// Bytes of all segments.
pub(crate) fn total_bytes(segments: &Segments, end: u64) -> u64 {
    let sealed = segments.values().rev().skip(1);
    end + sealed.map(|segment| segment.file.metadata().map_or(0, |metadata| metadata.len())).sum::<u64>()
}

/// Lists the numbers of the segments in `dir`, in order, and removes what an interrupted creation left.
pub(crate) fn list(dir: &Path) -> Result<Vec<u64>, FileError> {
    let failed = |error| FileError::new("list", dir, error);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("journal-") && name.ends_with(".tmp") {
            files::remove_file_if_exists(&entry.path())?;
        }
        numbers.extend(segment::file_number(name));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn read(dir: &Path, notes: &mut Vec<OpenNote>) -> Result<Journal, ScanError> {
    let numbers = list(dir)?;
    let (mut segments, headless) = open_segments(dir, &numbers)?;
    let mut replay = Replay::default();
    let mut end = ScanEnd { end: 0, torn_bytes: 0 };
    let last = segments.keys().next_back().copied();
    for segment in segments.values() {
        let is_last = Some(segment.number) == last && headless.is_none();
        end = replay.segment(segment, is_last, u64::MAX)?;
    }
    if let Some(number) = headless {
        segments.insert(number, Arc::new(restore_header(dir, number, &replay, notes)?));
    } else if segments.is_empty() {
        segments.insert(FIRST_NUMBER, Arc::new(Segment::create(dir, FIRST_NUMBER, Revision::ZERO)?));
    }
    if let Some(segment) = segments.values().next_back() {
        if headless.is_some() || last.is_none() {
            end = ScanEnd { end: segment.header.checkpoint_end, torn_bytes: 0 };
            replay.begin_at(Position { segment: segment.number, offset: end.end });
        }
        if end.torn_bytes > 0 {
            cut(segment, &end, notes)?;
        }
    }
    remove_superseded(dir, &numbers, &segments)?;
    Ok(Journal { segments, end: end.end, replay })
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

/// Makes the last segment again, which has less than a header.
fn restore_header(
    dir: &Path,
    number: u64,
    replay: &Replay,
    notes: &mut Vec<OpenNote>,
) -> Result<Segment, ScanError> {
    // Without a header nobody knows what was there. Only of these two is it certain that it was no checkpoint: the
    // first segment of all, and one that follows what can be read.
    if number != FIRST_NUMBER && replay.is_empty() {
        return Err(headless_damage(dir, number));
    }
    let path = dir.join(segment::file_name(number));
    let bytes = std::fs::metadata(&path).map_err(|error| FileError::new("read", &path, error))?.len();
    let segment = Segment::create(dir, number, replay.head)?;
    notes.push(OpenNote::TornEnd { path, offset: 0, bytes });
    Ok(segment)
}

fn headless_damage(dir: &Path, number: u64) -> ScanError {
    ScanError::Damaged(Damage {
        path: dir.join(segment::file_name(number)),
        offset: 0,
        usable_end: None,
        reason: "the file is too short to have a header".to_owned(),
    })
}

fn cut(segment: &Segment, end: &ScanEnd, notes: &mut Vec<OpenNote>) -> Result<(), FileError> {
    let cut = segment.file.set_len(end.end).and_then(|()| segment.file.sync_all());
    cut.map_err(|error| FileError::new("cut the torn end off", &segment.path, error))?;
    let note = OpenNote::TornEnd { path: segment.path.clone(), offset: end.end, bytes: end.torn_bytes };
    notes.push(note);
    Ok(())
}

/// Removes the files that a checkpoint made superfluous, if a crash prevented it.
fn remove_superseded(dir: &Path, numbers: &[u64], segments: &Segments) -> Result<(), FileError> {
    let Some(first) = segments.keys().next() else { return Ok(()) };
    for number in numbers.iter().take_while(|number| *number < first) {
        files::remove_file_if_exists(&dir.join(segment::file_name(*number)))?;
    }
    Ok(())
}

/// Number of the segment that a new journal begins with.
pub(crate) const FIRST_NUMBER: u64 = 1;
