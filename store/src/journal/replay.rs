//! The contents of the segments, read in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::journal::blobs::BlobPlaces;
use crate::journal::format::{self, FrameHeader, Kind};
use crate::journal::segment::{self, Position, ScanEnd, ScanError, Segment};
use crate::{BlobHash, Record, Revision, State};

/// The content of a journal, except for the blobs.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The oldest revision whose state is known.
    pub(crate) base: Revision,
    /// The newest revision.
    pub(crate) head: Revision,
    /// Every key and its value at the head.
    pub(crate) state: State,
    /// The records after the base.
    pub(crate) records: BTreeMap<Revision, RecordPlace>,
    /// The last place where each blob is.
    pub(crate) blobs: BlobPlaces,
    /// Where the first record is or will be; `None` if no segment was read.
    pub(crate) start: Option<Position>,
    /// Blobs behind the last commit or checkpoint. If nothing names them, they are part of a torn end.
    unnamed: Vec<(BlobHash, Position)>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RecordPlace {
    pub(crate) position: Position,
    /// Where it ends.
    pub(crate) end: u64,
    /// Bytes of the record and of the blobs that were written with it.
    pub(crate) bytes: u64,
}

impl Replay {
    /// Returns `true` if no segment was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.start.is_none()
    }

    /// Returns `true` if there is nothing: no commit and no key.
    pub(crate) fn is_blank(&self) -> bool {
        self.head == Revision::ZERO && self.state.is_empty()
    }

    /// Says where the first record will be, if there is none yet.
    pub(crate) fn begin_at(&mut self, start: Position) {
        self.start.get_or_insert(start);
    }

    /// Reads the next segment up to `limit`.
    pub(crate) fn segment(
        &mut self,
        segment: &Segment,
        is_last: bool,
        limit: u64,
    ) -> Result<ScanEnd, ScanError> {
        let header = segment.header;
        if self.is_empty() && header.is_checkpoint() {
            (self.base, self.head) = (header.base, header.base);
        } else if self.head != header.base {
            let reason = format!(
                "it continues revision {}, but the journal before it ends at revision {}",
                header.base, self.head
            );
            return Err(segment::file_damage(segment.path.clone(), segment.number, reason));
        }
        self.begin_at(Position { segment: segment.number, offset: header.checkpoint_end });
        self.unnamed.clear();
        let mut since = 0;
        segment.scan(is_last, limit, &mut |offset, header, payload| {
            since += header.frame_length();
            let position = Position { segment: segment.number, offset };
            match header.kind {
                Kind::Blob => self.blob(position, &payload)?,
                Kind::Checkpoint => {
                    self.blobs.extend(self.unnamed.drain(..));
                    self.checkpoint(segment, offset, &payload)?;
                    since = 0;
                }
                Kind::Commit => {
                    self.blobs.extend(self.unnamed.drain(..));
                    self.commit(position, header, &payload, since)?;
                    since = 0;
                }
            }
            Ok(())
        })
    }

    fn blob(&mut self, position: Position, payload: &Bytes) -> Result<(), String> {
        let (hash, _) = segment::split_blob(payload).ok_or("the blob has no hash")?;
        self.unnamed.push((hash, position));
        Ok(())
    }

    fn checkpoint(&mut self, segment: &Segment, offset: u64, payload: &[u8]) -> Result<(), String> {
        if !self.records.is_empty() || offset >= segment.header.checkpoint_end {
            return Err("a checkpoint is out of place".to_owned());
        }
        let entries = format::decode_state(payload)?;
        for (key, hash) in filling(&entries) {
            if !self.blobs.contains(hash) {
                return Err(format!("the value of {key:?} is missing"));
            }
            self.state.insert(Arc::clone(key), *hash);
        }
        Ok(())
    }

    fn commit(
        &mut self,
        position: Position,
        header: FrameHeader,
        payload: &[u8],
        bytes: u64,
    ) -> Result<(), String> {
        let record = format::decode_record(payload)?;
        if record.revision != self.head.next() {
            return Err(format!("revision {} follows revision {}", record.revision, self.head));
        }
        for (change, (_, previous)) in record.commit.changes.iter().zip(&record.previous) {
            if self.state.get(&*change.key) != previous.as_ref() {
                return Err(format!("{:?} had a different value before", change.key));
            }
            if change.value.is_some_and(|hash| !self.blobs.contains(&hash)) {
                return Err(format!("the value of {:?} is missing", change.key));
            }
        }
        let place = RecordPlace { position, end: position.offset + header.frame_length(), bytes };
        self.records.insert(record.revision, place);
        self.head = record.revision;
        apply(&mut self.state, &record);
        Ok(())
    }
}

/// Makes the state before `record` the state after it.
pub(crate) fn apply(state: &mut State, record: &Record) {
    for change in filling(&record.commit.changes) {
        match change.value {
            Some(hash) => state.insert(change.key.as_str().into(), hash),
            None => state.remove(&*change.key),
        };
    }
}

/// All of what differs in its keys, every other one first: nodes of a map split in halves, so what comes in order leaves them half
/// empty, and the rest fills them.
fn filling<T>(entries: &[T]) -> impl Iterator<Item = &T> {
    entries.iter().step_by(2).chain(entries.iter().skip(1).step_by(2))
}

/// Makes the state after `record` the state before it.
pub(crate) fn undo(state: &mut State, record: Record) {
    for (key, value) in record.previous {
        match value {
            Some(hash) => state.insert(key.into(), hash),
            None => state.remove(&*key),
        };
    }
}
