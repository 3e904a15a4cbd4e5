//! One file of the journal: reading frames where they are known to be, and finding out where they end.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::files;
use crate::journal::format::{FRAME_MAGIC, FileHeader, FrameHeader, Kind};
use crate::{FileError, StoreError};

/// A file of the journal, open for reading.
///
/// It can be read as long as it is held, also when the file has been removed.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Rises from file to file, with gaps; part of the file's name.
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) header: FileHeader,
    pub(crate) file: File,
}

/// Where a frame begins.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Position {
    /// The segment's number.
    pub(crate) segment: u64,
    /// Bytes from the start of the file.
    pub(crate) offset: u64,
}

/// What a scan found at the end of a segment.
#[derive(Debug)]
pub(crate) struct ScanEnd {
    /// Where the last complete commit (or checkpoint) ends.
    pub(crate) end: u64,
    /// Bytes behind it that no complete commit is in; only in the last segment.
    pub(crate) torn_bytes: u64,
}

/// Why a segment cannot be used as it is.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// Something that was complete once is not any more.
    Damaged(Damage),
    /// The file cannot be read.
    File(FileError),
}

/// Where a segment is damaged.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    /// Where the last complete commit before the damage ends; `None` if the file is of no use.
    pub(crate) usable_end: Option<u64>,
    pub(crate) reason: String,
}

impl From<FileError> for ScanError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl Segment {
    /// Creates an empty segment that follows `base`; the file is durable and complete when it has its name.
    pub(crate) fn create(dir: &Path, number: u64, base: crate::Revision) -> Result<Self, FileError> {
        let header = FileHeader { base, checkpoint_end: FileHeader::LENGTH, salt: new_salt() };
        let path = dir.join(file_name(number));
        let temporary = path.with_extension("tmp");
        let file = files::create_file(&temporary)?;
        let written = file.write_all_at(&header.encode(), 0).and_then(|()| file.sync_all());
        written.map_err(|error| FileError::new("write", &temporary, error))?;
        files::rename(&temporary, &path)?;
        Ok(Self { number, path, header, file })
    }

    /// Opens a segment and reads its header. `None` if the file is too short to have one.
    pub(crate) fn open(dir: &Path, number: u64) -> Result<Option<Self>, ScanError> {
        let path = dir.join(file_name(number));
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| FileError::new("open", &path, error))?;
        let mut bytes = [0; FileHeader::LENGTH as usize];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(FileError::new("read", &path, error).into()),
        }
        match FileHeader::decode(&bytes) {
            Ok(header) => Ok(Some(Self { number, path, header, file })),
            Err(reason) => Err(ScanError::Damaged(Damage {
                path,
                offset: 0,
                usable_end: None,
                reason: reason.to_owned(),
            })),
        }
    }

    /// Reads the frame at `offset`, which must be where one was written.
    pub(crate) fn read(&self, offset: u64) -> Result<(Kind, Bytes), StoreError> {
        match self.read_frame(offset, u64::MAX) {
            Ok((header, payload)) => Ok((header.kind, payload)),
            Err(FrameError::File(error)) => Err(error.into()),
            Err(FrameError::Bad(reason)) => Err(self.damaged_record(offset, reason)),
        }
    }

    /// The error of a record that is intact and yet not what was expected.
    pub(crate) fn damaged_record(&self, offset: u64, reason: &str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), offset, reason: reason.to_owned() }
    }

    /// Reads all frames up to `limit`, in order, and gives each to `visit` with its offset.
    ///
    /// `is_last` allows the end to be torn: bytes that were never part of a synced commit. `visit` may find a
    /// frame to be damaged, and says why.
    pub(crate) fn scan(
        &self,
        is_last: bool,
        limit: u64,
        visit: &mut dyn FnMut(u64, FrameHeader, Bytes) -> Result<(), String>,
    ) -> Result<ScanEnd, ScanError> {
        let metadata = self.file.metadata().map_err(|error| FileError::new("read", &self.path, error))?;
        let length = metadata.len().min(limit);
        let mut offset = FileHeader::LENGTH;
        let mut end = offset;
        while offset < length {
            match self.read_frame(offset, length) {
                Ok((header, payload)) => {
                    visit(offset, header, payload).map_err(|reason| self.damage(offset, end, &reason))?;
                    offset += header.frame_length();
                    end = if header.kind == Kind::Blob { end } else { offset };
                }
                Err(FrameError::File(error)) => return Err(error.into()),
                Err(FrameError::Bad(reason)) => {
                    let is_tail = is_last && offset >= self.header.checkpoint_end;
                    if !is_tail || self.has_later_batch(offset, length)? {
                        return Err(self.damage(offset, end, reason));
                    }
                    break;
                }
            }
        }
        if end < self.header.checkpoint_end || (!is_last && end < length) {
            return Err(self.damage(end, end, "the file ends too early"));
        }
        Ok(ScanEnd { end, torn_bytes: length - end })
    }

    fn damage(&self, offset: u64, end: u64, reason: &str) -> ScanError {
        ScanError::Damaged(Damage {
            path: self.path.clone(),
            offset,
            usable_end: (end >= self.header.checkpoint_end).then_some(end),
            reason: reason.to_owned(),
        })
    }

    fn read_frame(&self, offset: u64, length: u64) -> Result<(FrameHeader, Bytes), FrameError> {
        if length.saturating_sub(offset) < FrameHeader::LENGTH {
            return Err(FrameError::Bad("the record ends too early"));
        }
        let mut bytes = [0; FrameHeader::LENGTH as usize];
        self.read_exact(&mut bytes, offset)?;
        let header = FrameHeader::decode(&bytes, self.header.salt, offset).map_err(FrameError::Bad)?;
        if length.saturating_sub(offset) < header.frame_length() {
            return Err(FrameError::Bad("the record ends too early"));
        }
        let mut payload = vec![0; header.length as usize];
        self.read_exact(&mut payload, offset + FrameHeader::LENGTH)?;
        if crc32c::crc32c(&payload) != header.payload_crc {
            return Err(FrameError::Bad("the checksum of the record is wrong"));
        }
        Ok((header, payload.into()))
    }

    fn read_exact(&self, bytes: &mut [u8], offset: u64) -> Result<(), FrameError> {
        self.file.read_exact_at(bytes, offset).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                return FrameError::Bad("the record ends too early");
            }
            FrameError::File(FileError::new("read", &self.path, error))
        })
    }

    /// Whether something behind `bad` was written when what is at `bad` had been synced.
    ///
    /// The pages of one batch reach the disk in any order, so an intact frame of the same batch proves nothing.
    fn has_later_batch(&self, bad: u64, length: u64) -> Result<bool, FileError> {
        let mut chunk = vec![0; SEARCH_BYTES + FrameHeader::LENGTH as usize];
        let mut start = bad + 1;
        while start < length {
            let wanted = usize::try_from(length - start).map_or(chunk.len(), |left| left.min(chunk.len()));
            let Some(bytes) = chunk.get_mut(..wanted) else { break };
            let read = self.file.read_exact_at(bytes, start);
            read.map_err(|error| FileError::new("read", &self.path, error))?;
            for (index, window) in bytes.windows(FrameHeader::LENGTH as usize).enumerate() {
                if !window.starts_with(FRAME_MAGIC) {
                    continue;
                }
                let header = FrameHeader::decode(window, self.header.salt, start + index as u64);
                if header.is_ok_and(|header| header.batch > bad) {
                    return Ok(true);
                }
            }
            start += SEARCH_BYTES as u64;
        }
        Ok(false)
    }
}

/// Why there is no frame at an offset.
#[derive(Debug)]
enum FrameError {
    Bad(&'static str),
    File(FileError),
}

/// Name of the segment with this number.
pub(crate) fn file_name(number: u64) -> String {
    format!("journal-{number:010}.log")
}

/// Number of the segment with this name, if it is the name of one.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("journal-")?.strip_suffix(".log")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// A number that no other segment has.
pub(crate) fn new_salt() -> u64 {
    // The keys of `RandomState` come from the system's random numbers, and differ each time.
    RandomState::new().hash_one(std::process::id())
}

/// Decodes the payload of a blob's frame into its hash and its content.
pub(crate) fn split_blob(payload: &Bytes) -> Option<(crate::BlobHash, Bytes)> {
    let (hash, _) = payload.split_first_chunk::<{ crate::BlobHash::LENGTH }>()?;
    Some((crate::BlobHash::from_bytes(*hash), payload.slice(crate::BlobHash::LENGTH..)))
}

/// Bytes that are searched at once for a frame.
const SEARCH_BYTES: usize = 1024 * 1024;
