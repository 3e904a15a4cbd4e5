//! One file of the journal: reads frames at known places, and finds where they end.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::files;
use crate::journal::format::{self, FRAME_MAGIC, FileHeader, FrameHeader, HeaderError, Kind};
use crate::{FileError, OpenError, StoreError};

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

/// The end of a segment, as a scan found it.
#[derive(Debug)]
pub(crate) struct ScanEnd {
    /// Where the last complete commit (or checkpoint) ends.
    pub(crate) end: u64,
    /// Bytes behind it that are no complete commit; only in the last segment.
    pub(crate) torn: Option<Torn>,
}

/// The end of a journal that was being written when the machine stopped, or that was damaged since.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Torn {
    /// Bytes behind the last complete commit.
    pub(crate) bytes: u64,
    /// Where the first frame is that cannot be read; the end of the file if all can.
    pub(crate) offset: u64,
    pub(crate) reason: &'static str,
}

/// Why a segment cannot be used.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// Something that was complete once is not any more.
    Damaged(Damage),
    /// A newer program wrote this; the text says what cannot be read.
    Newer { path: PathBuf, what: String },
    /// The file cannot be read.
    File(FileError),
}

/// Where a segment is damaged.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) path: PathBuf,
    /// The segment's number.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    /// Where the last complete commit before the damage ends; `None` if the file is of no use.
    pub(crate) usable_end: Option<u64>,
    pub(crate) reason: String,
}

impl ScanError {
    /// The same as an error of opening the store in `dir`.
    pub(crate) fn in_dir(self, dir: &Path) -> OpenError {
        match self {
            Self::File(error) => error.into(),
            Self::Newer { path, what } => OpenError::Newer { path, what },
            Self::Damaged(Damage { path, offset, reason, .. }) => {
                OpenError::Damaged { dir: dir.to_owned(), path, offset, reason }
            }
        }
    }
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
        let mut bytes = Vec::new();
        let read = (&file).take(FileHeader::LENGTH).read_to_end(&mut bytes);
        read.map_err(|error| FileError::new("read", &path, error))?;
        match FileHeader::decode(&bytes) {
            Ok(header) => Ok(Some(Self { number, path, header, file })),
            Err(HeaderError::Newer(version)) => {
                let what = format!("format {version}; this program reads format {}", format::VERSION);
                Err(ScanError::Newer { path, what })
            }
            Err(_) if (bytes.len() as u64) < FileHeader::LENGTH => Ok(None),
            Err(HeaderError::Damaged(reason)) => Err(file_damage(path, number, reason.to_owned())),
        }
    }

    /// Opens a segment for reading although its header may be damaged: if the first frame confirms the salt, the frames
    /// can be told. `None` if not.
    pub(crate) fn open_damaged(dir: &Path, number: u64) -> Result<Option<Self>, FileError> {
        let path = dir.join(file_name(number));
        let file = File::open(&path).map_err(|error| FileError::new("open", &path, error))?;
        let mut bytes = Vec::new();
        let read = (&file).take(FileHeader::LENGTH + FrameHeader::LENGTH).read_to_end(&mut bytes);
        read.map_err(|error| FileError::new("read", &path, error))?;
        let header = FileHeader::decode(&bytes).ok().or_else(|| FileHeader::guess(&bytes));
        Ok(header.map(|header| Self { number, path, header, file }))
    }

    /// Reads the frame at `offset`, which must be where one was written.
    pub(crate) fn read(&self, offset: u64) -> Result<(Kind, Bytes), StoreError> {
        match self.read_frame(offset, u64::MAX) {
            Ok((header, payload)) => Ok((header.kind, payload)),
            Err(FrameError::File(error)) => Err(error.into()),
            Err(FrameError::Bad(reason)) => Err(self.damaged_record(offset, reason)),
            Err(FrameError::Newer(_)) => {
                Err(self.damaged_record(offset, "the record is of a kind that this version does not know"))
            }
        }
    }

    /// The error of an intact but unexpected record.
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
        let mut reason = "the commit ends too early";
        while offset < length {
            match self.read_frame(offset, length) {
                Ok((header, payload)) => {
                    visit(offset, header, payload).map_err(|reason| self.damage(offset, end, &reason))?;
                    offset += header.frame_length();
                    end = if header.kind == Kind::Blob { end } else { offset };
                }
                Err(FrameError::File(error)) => return Err(error.into()),
                Err(FrameError::Newer(kind)) => {
                    let what =
                        format!("a record of kind {kind} at byte {offset}, which this version does not know");
                    return Err(ScanError::Newer { path: self.path.clone(), what });
                }
                Err(FrameError::Bad(bad)) => {
                    let is_tail = is_last && offset >= self.header.checkpoint_end;
                    if !is_tail || self.has_later_batch(offset, length)? {
                        return Err(self.damage(offset, end, bad));
                    }
                    reason = bad;
                    break;
                }
            }
        }
        if end < self.header.checkpoint_end || (!is_last && end < length) {
            return Err(self.damage(end, end, "the file ends too early"));
        }
        let torn = (end < length).then_some(Torn { bytes: length - end, offset, reason });
        Ok(ScanEnd { end, torn })
    }

    fn damage(&self, offset: u64, end: u64, reason: &str) -> ScanError {
        ScanError::Damaged(Damage {
            path: self.path.clone(),
            number: self.number,
            offset,
            usable_end: (end >= self.header.checkpoint_end).then_some(end),
            reason: reason.to_owned(),
        })
    }

    /// Reads the frame at `offset` of a file that is `length` bytes long.
    pub(crate) fn read_frame(&self, offset: u64, length: u64) -> Result<(FrameHeader, Bytes), FrameError> {
        if length.saturating_sub(offset) < FrameHeader::LENGTH {
            return Err(FrameError::Bad("the record ends too early"));
        }
        let mut bytes = [0; FrameHeader::LENGTH as usize];
        self.read_exact(&mut bytes, offset)?;
        let header = FrameHeader::decode(&bytes, self.header.salt, offset)?;
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

    /// Returns `true` if something after `bad` was written when the record at `bad` had been synced.
    ///
    /// The pages of one batch reach the disk in any order, so an intact frame of the same batch proves nothing.
    fn has_later_batch(&self, bad: u64, length: u64) -> Result<bool, FileError> {
        Ok(self.find_header(bad + 1, length, &|header| header.batch > bad)?.is_some())
    }

    /// Where the first intact header of a frame is, from `start` on, that `is_wanted`.
    pub(crate) fn find_header(
        &self,
        mut start: u64,
        length: u64,
        is_wanted: &dyn Fn(FrameHeader) -> bool,
    ) -> Result<Option<u64>, FileError> {
        let mut chunk = vec![0; SEARCH_BYTES + FrameHeader::LENGTH as usize];
        while start < length {
            let wanted = usize::try_from(length - start).map_or(chunk.len(), |left| left.min(chunk.len()));
            let Some(bytes) = chunk.get_mut(..wanted) else { break };
            let read = self.file.read_exact_at(bytes, start);
            read.map_err(|error| FileError::new("read", &self.path, error))?;
            for (offset, window) in (start..).zip(bytes.windows(FrameHeader::LENGTH as usize)) {
                if !window.starts_with(FRAME_MAGIC) {
                    continue;
                }
                let header = FrameHeader::decode(window, self.header.salt, offset);
                if header.is_ok_and(is_wanted) {
                    return Ok(Some(offset));
                }
            }
            start += SEARCH_BYTES as u64;
        }
        Ok(None)
    }
}

/// Why there is no frame at an offset.
#[derive(Debug)]
pub(crate) enum FrameError {
    Bad(&'static str),
    Newer(u32),
    File(FileError),
}

impl From<HeaderError> for FrameError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Damaged(reason) => Self::Bad(reason),
            HeaderError::Newer(kind) => Self::Newer(kind),
        }
    }
}

/// The damage of a file of which nothing can be used.
pub(crate) fn file_damage(path: PathBuf, number: u64, reason: String) -> ScanError {
    ScanError::Damaged(Damage { path, number, offset: 0, usable_end: None, reason })
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
