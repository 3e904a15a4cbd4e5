//! Writes everything that is kept of a journal into one segment that needs no other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::journal::format::{self, FileHeader, Kind};
use crate::journal::segment::{self, Position, Segment};
use crate::journal::{self, RecordPlace, Replay, Segments};
use crate::{Beginning, BlobHash, FileError, Record, Retention, Revision, State, StoreError, files};

/// A segment that is complete and durable, but has a temporary name.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    temporary: PathBuf,
    segment: Segment,
    /// The contents of the segment; the state is left out.
    pub(crate) kept: Replay,
}

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    temporary: PathBuf,
    path: PathBuf,
    number: u64,
    salt: u64,
    file: BufWriter<File>,
    offset: u64,
    kept: Replay,
    frame: Vec<u8>,
}

/// Writes the parts of `segments` that `keep` selects into segment `number`. None of `segments` changes any more.
///
/// The result is not part of the journal before it is [installed](Checkpoint::install).
pub(crate) fn write_checkpoint(
    dir: &Path,
    segments: &Segments,
    number: u64,
    keep: Retention,
    stop: &AtomicBool,
) -> Result<Checkpoint, StoreError> {
    let replay = journal::replay(segments, u64::MAX)?;
    let base = oldest_kept(&replay, keep).previous();
    let mut state = replay.state.clone();
    for place in replay.records.range(base.next()..).rev().map(|(_, place)| place.position) {
        journal::undo(&mut state, read_record(segments, place)?);
    }
    let mut writer = CheckpointWriter::create(dir, number)?;
    let temporary = writer.temporary.clone();
    let copied = writer.copy(segments, &replay, base, &state, stop);
    let finished = copied.and_then(|()| Ok(writer.finish(base, replay.head)?));
    if finished.is_err() {
        // A file that cannot be removed now is removed when the store is opened.
        let _ = files::remove_file_if_exists(&temporary);
    }
    finished
}

/// Writes a state without history into segment `number`.
///
/// The result is not part of the journal before it is [installed](Checkpoint::install).
pub(crate) fn write_beginning(
    dir: &Path,
    number: u64,
    Beginning { revision, state, blobs }: &Beginning,
) -> Result<Checkpoint, StoreError> {
    let contents: BTreeMap<BlobHash, &Bytes> =
        blobs.iter().map(|content| (BlobHash::of(content), content)).collect();
    if let Some((key, hash)) = state.iter().find(|(_, hash)| !contents.contains_key(hash)) {
        return Err(StoreError::NoBlob { key: key.to_string(), hash: *hash });
    }
    let mut writer = CheckpointWriter::create(dir, number)?;
    let temporary = writer.temporary.clone();
    let mut written = contents.into_iter().try_for_each(|(hash, content)| writer.blob(hash, content));
    written = written.and_then(|()| writer.state(state));
    let finished = written.and_then(|()| writer.finish(*revision, *revision));
    if finished.is_err() {
        // A file that cannot be removed now is removed when the store is opened.
        let _ = files::remove_file_if_exists(&temporary);
    }
    Ok(finished?)
}

impl Checkpoint {
    /// Gives the segment its name, from which on it counts.
    pub(crate) fn install(self) -> Result<(Arc<Segment>, Replay), FileError> {
        files::rename(&self.temporary, &self.segment.path)?;
        Ok((Arc::new(self.segment), self.kept))
    }

    /// Removes the segment.
    pub(crate) fn discard(&self) {
        // A file that cannot be removed now is removed when the store is opened.
        let _ = files::remove_file_if_exists(&self.temporary);
    }
}

impl CheckpointWriter {
    /// Begins the segment `number` in `dir`, under a temporary name.
    pub(crate) fn create(dir: &Path, number: u64) -> Result<Self, FileError> {
        let path = dir.join(segment::file_name(number));
        let temporary = path.with_extension("tmp");
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, files::create_file(&temporary)?);
        let begun = file.write_all(&[0; FileHeader::LENGTH as usize]);
        begun.map_err(|error| FileError::new("write", &temporary, error))?;
        Ok(Self {
            temporary,
            path,
            number,
            salt: segment::new_salt(),
            file,
            offset: FileHeader::LENGTH,
            kept: Replay::default(),
            frame: Vec::new(),
        })
    }

    /// Returns `true` if the blob was written already.
    pub(crate) fn has_blob(&self, hash: &BlobHash) -> bool {
        self.kept.blobs.contains(hash)
    }

    /// Writes a blob; it comes before what names it.
    pub(crate) fn blob(&mut self, hash: BlobHash, content: &[u8]) -> Result<(), FileError> {
        let position = self.write(Kind::Blob, &[hash.as_bytes(), content])?;
        self.kept.blobs.extend([(hash, position)]);
        Ok(())
    }

    /// Writes the state before the first record.
    pub(crate) fn state(&mut self, state: &State) -> Result<(), FileError> {
        for payload in format::encode_state(state) {
            self.write(Kind::Checkpoint, &[&payload])?;
        }
        Ok(())
    }

    /// Writes a record; they come in order.
    pub(crate) fn record(&mut self, record: &Record) -> Result<(), FileError> {
        let position = self.write(Kind::Commit, &[&format::encode_record(record)])?;
        let place = RecordPlace { position, end: self.offset, bytes: 0 };
        self.kept.records.insert(record.revision, place);
        Ok(())
    }

    /// Makes what was written durable, as the history from `base` to `head`.
    pub(crate) fn finish(mut self, base: Revision, head: Revision) -> Result<Checkpoint, FileError> {
        let header = FileHeader { base, checkpoint_end: self.offset, salt: self.salt };
        let finished = self.file.flush().and_then(|()| {
            let file = self.file.get_ref();
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()
        });
        let file = finished.and_then(|()| self.file.into_inner().map_err(|error| error.into_error()));
        let file = file.map_err(|error| FileError::new("write", &self.temporary, error))?;
        self.kept.base = base;
        self.kept.head = head;
        self.kept.begin_at(Position { segment: self.number, offset: self.offset });
        let segment = Segment { number: self.number, path: self.path, header, file };
        Ok(Checkpoint { temporary: self.temporary, segment, kept: self.kept })
    }

    fn copy(
        &mut self,
        segments: &Segments,
        replay: &Replay,
        base: Revision,
        state: &State,
        stop: &AtomicBool,
    ) -> Result<(), StoreError> {
        for hash in state.values() {
            self.copy_blob(segments, replay, *hash, stop)?;
        }
        self.state(state)?;
        for place in replay.records.range(base.next()..).map(|(_, place)| place.position) {
            let record = read_record(segments, place)?;
            for hash in record.commit.changes.iter().filter_map(|change| change.value) {
                self.copy_blob(segments, replay, hash, stop)?;
            }
            self.record(&record)?;
        }
        Ok(())
    }

    fn copy_blob(
        &mut self,
        segments: &Segments,
        replay: &Replay,
        hash: BlobHash,
        stop: &AtomicBool,
    ) -> Result<(), StoreError> {
        if stop.load(Ordering::Relaxed) {
            return Err(StoreError::Closed);
        }
        if self.has_blob(&hash) {
            return Ok(());
        }
        let position = replay.blobs.position(&hash).unwrap_or_default();
        let segment = segments.get(&position.segment).ok_or_else(|| missing(position))?;
        Ok(self.blob(hash, &journal::read_blob(segment, position, hash)?)?)
    }

    fn write(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<Position, FileError> {
        self.frame.clear();
        format::write_frame(&mut self.frame, kind, parts, self.salt, self.offset, FileHeader::LENGTH);
        let written = self.file.write_all(&self.frame);
        written.map_err(|error| FileError::new("write", &self.temporary, error))?;
        let position = Position { segment: self.number, offset: self.offset };
        self.offset += self.frame.len() as u64;
        Ok(position)
    }
}

/// The oldest revision whose record is kept.
fn oldest_kept(replay: &Replay, keep: Retention) -> Revision {
    let mut oldest = replay.head.next();
    let mut bytes = 0_u64;
    for (n_kept, (revision, place)) in (0_u64..).zip(replay.records.iter().rev()) {
        bytes = bytes.saturating_add(place.bytes);
        if n_kept > 0 && (n_kept >= keep.revisions || bytes > keep.bytes) {
            break;
        }
        oldest = *revision;
    }
    oldest
}

fn read_record(segments: &Segments, position: Position) -> Result<Record, StoreError> {
    let segment = segments.get(&position.segment).ok_or_else(|| missing(position))?;
    journal::read_record(segment, position)
}

fn missing(position: Position) -> StoreError {
    let Position { segment, offset } = position;
    StoreError::Damaged {
        path: segment::file_name(segment).into(),
        offset,
        reason: "it is not there".to_owned(),
    }
}

/// Blobs are a few kilobytes; this many are written at once.
const BUFFER_BYTES: usize = 256 * 1024;
