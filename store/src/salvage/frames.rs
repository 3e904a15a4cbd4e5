//! Reads the intact parts of a damaged file.

use std::path::Path;

use bytes::Bytes;

use crate::FileError;
use crate::journal::format::{FileHeader, Kind};
use crate::journal::segment::{FrameError, Segment};

/// The intact frames of a segment from an offset on, and the gaps between them.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) segment: Segment,
    length: u64,
    offset: u64,
}

/// The next part of a damaged segment.
#[derive(Debug)]
pub(super) enum Part {
    Frame {
        offset: u64,
        kind: Kind,
        payload: Bytes,
    },
    /// Bytes in which no frame is intact.
    Gap {
        offset: u64,
        bytes: u64,
    },
}

impl Frames {
    /// Begins at `offset`; `None` if the file's header is damaged so that its frames cannot be told.
    pub(super) fn open(dir: &Path, number: u64, offset: u64) -> Result<Option<Self>, FileError> {
        let Some(segment) = Segment::open_damaged(dir, number)? else { return Ok(None) };
        let metadata = segment.file.metadata();
        let length = metadata.map_err(|error| FileError::new("read", &segment.path, error))?.len();
        Ok(Some(Self { segment, length, offset: offset.max(FileHeader::LENGTH) }))
    }

    pub(super) fn next(&mut self) -> Result<Option<Part>, FileError> {
        let start = self.offset;
        if start >= self.length {
            return Ok(None);
        }
        match self.segment.read_frame(start, self.length) {
            Ok((header, payload)) => {
                self.offset += header.frame_length();
                return Ok(Some(Part::Frame { offset: start, kind: header.kind, payload }));
            }
            Err(FrameError::File(error)) => return Err(error),
            Err(FrameError::Bad(_) | FrameError::Newer(_)) => {}
        }
        self.offset = loop {
            let next = self.segment.find_header(self.offset + 1, self.length, &|_| true)?;
            let Some(next) = next else { break self.length };
            self.offset = next;
            match self.segment.read_frame(next, self.length) {
                Ok(_) => break next,
                Err(FrameError::File(error)) => return Err(error),
                Err(FrameError::Bad(_) | FrameError::Newer(_)) => {}
            }
        };
        Ok(Some(Part::Gap { offset: start, bytes: self.offset - start }))
    }
}
