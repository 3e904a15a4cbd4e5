//! Assembles a state from the readable parts of a journal when nothing can be kept as it is.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::frames::{Frames, Part};
use super::search::Dropped;
use crate::compaction::{Checkpoint, CheckpointWriter};
use crate::journal::format::{self, Kind};
use crate::journal::segment::{FrameError, Segment, split_blob};
use crate::{BlobHash, FileError, OpenError, Revision, State, journal};

/// A state that can be written as a checkpoint of its own.
#[derive(Debug)]
pub(super) struct Rescue {
    /// The revision of the state.
    pub(super) head: Revision,
    pub(super) unreadable: Vec<Unreadable>,
    /// Keys whose values can be read.
    state: State,
    /// Where these values are.
    blobs: HashMap<BlobHash, (u64, u64)>,
    segments: BTreeMap<u64, Segment>,
}

/// A part of a file that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// The journal file.
    pub path: PathBuf,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
}

impl Rescue {
    /// Reads what is dropped; `None` if nothing in it can be used.
    ///
    /// `known` is the newest revision of all. A state without any commit is taken to be that, if the header that
    /// tells its revision is damaged.
    pub(super) fn plan(
        dir: &Path,
        dropped: &[Dropped],
        known: Option<Revision>,
    ) -> Result<Option<Self>, FileError> {
        let mut reading = Reading::default();
        for dropped in dropped {
            if !reading.segment(dir, dropped.number)? {
                break;
            }
        }
        let Reading { state, blobs, unreadable, segments, head, has_checkpoint, .. } = reading;
        let state: State = state.into_iter().filter(|(_, hash)| blobs.contains_key(hash)).collect();
        let head = head.or(known).unwrap_or(Revision(1));
        let is_worth_it = has_checkpoint || !state.is_empty();
        Ok(is_worth_it.then_some(Self { head, unreadable, state, blobs, segments }))
    }

    pub(super) fn kept_state(&self) -> &State {
        &self.state
    }

    /// Writes the state as a checkpoint behind all segments in `dir`; it is complete, but not installed.
    pub(super) fn write(&self, dir: &Path) -> Result<Checkpoint, OpenError> {
        let number = journal::list(dir)?.last().map_or(journal::FIRST_NUMBER, |last| last + 1);
        let mut writer = CheckpointWriter::create(dir, number)?;
        for hash in self.state.values() {
            let place =
                self.blobs.get(hash).and_then(|(number, offset)| Some((self.segments.get(number)?, *offset)));
            let Some((segment, offset)) = place.filter(|_| !writer.has_blob(hash)) else { continue };
            writer.blob(*hash, &read_blob(dir, segment, offset)?)?;
        }
        writer.state(&self.state)?;
        Ok(writer.finish(self.head, self.head)?)
    }
}

/// The content of the blob at `offset`, which could be read a moment ago.
fn read_blob(dir: &Path, segment: &Segment, offset: u64) -> Result<Bytes, OpenError> {
    let reason = match segment.read_frame(offset, u64::MAX) {
        Ok((_, payload)) => match split_blob(&payload) {
            Some((_, content)) => return Ok(content),
            None => "the blob has no hash",
        },
        Err(FrameError::File(error)) => return Err(error.into()),
        Err(FrameError::Bad(reason)) => reason,
        Err(FrameError::Newer(_)) => "the record changed",
    };
    let (dir, path) = (dir.to_owned(), segment.path.clone());
    Err(OpenError::Damaged { dir, path, offset, reason: reason.to_owned() })
}

/// The state of a reading so far.
#[derive(Debug, Default)]
struct Reading {
    state: State,
    blobs: HashMap<BlobHash, (u64, u64)>,
    unreadable: Vec<Unreadable>,
    segments: BTreeMap<u64, Segment>,
    /// The revision of `state`; unknown until a commit or an intact header of a checkpoint tells.
    head: Option<Revision>,
    has_checkpoint: bool,
    /// True if something behind the last part of a checkpoint cannot be read.
    has_gap: bool,
}

impl Reading {
    /// Reads the next segment; false when a commit is missing, so that nothing behind it can be used.
    fn segment(&mut self, dir: &Path, number: u64) -> Result<bool, FileError> {
        let Some(mut frames) = Frames::open(dir, number, 0)? else { return Ok(true) };
        if frames.segment.header.is_checkpoint() {
            *self = Self { head: Some(frames.segment.header.base), has_checkpoint: true, ..Self::default() };
        }
        let mut goes_on = true;
        while let Some(part) = frames.next()? {
            match part {
                Part::Gap { offset, bytes } => {
                    self.has_gap = true;
                    self.unreadable.push(Unreadable { path: frames.segment.path.clone(), offset, bytes });
                }
                Part::Frame { offset, kind: Kind::Blob, payload } => {
                    if let Some((hash, _)) = split_blob(&payload) {
                        self.blobs.insert(hash, (number, offset));
                    }
                }
                Part::Frame { kind: Kind::Checkpoint, payload, .. } => {
                    self.has_checkpoint = true;
                    self.has_gap = false;
                    self.state.extend(format::decode_state(&payload).unwrap_or_default());
                }
                Part::Frame { kind: Kind::Commit, payload, .. } => {
                    let Ok(record) = format::decode_record(&payload) else { continue };
                    if !self.is_next(record.revision) {
                        goes_on = false;
                        break;
                    }
                    self.head = Some(record.revision);
                    journal::apply(&mut self.state, &record);
                }
            }
        }
        self.segments.insert(number, frames.segment);
        Ok(goes_on)
    }

    /// Returns `true` if no commit is missing before `revision`.
    fn is_next(&self, revision: Revision) -> bool {
        match self.head {
            Some(head) => revision == head.next(),
            None if self.has_checkpoint => !self.has_gap,
            None => revision == Revision(1),
        }
    }
}
