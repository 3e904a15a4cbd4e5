//! Finds the parts of a journal that must be dropped so that the rest is good.

use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::journal;
use crate::journal::segment::{self, Damage, ScanError};

/// A part of the journal that is dropped, and kept as another file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The journal file.
    pub path: PathBuf,
    /// From which byte on it is dropped; 0 if all of it is.
    pub offset: u64,
    /// Bytes that are dropped.
    pub bytes: u64,
    /// Why they cannot be used.
    pub reason: String,
}

/// A part of a segment that is dropped.
#[derive(Debug)]
pub(super) struct Dropped {
    pub(super) number: u64,
    pub(super) piece: Piece,
}

/// The journal with ever more of it left out, until the rest is good.
pub(super) struct Search<'a> {
    pub(super) dir: &'a Path,
    pub(super) numbers: Vec<u64>,
    /// How much of the last segment counts.
    pub(super) limit: u64,
    pub(super) dropped: Vec<Dropped>,
}

impl Search<'_> {
    pub(super) fn read(&mut self) -> Result<journal::Found, OpenError> {
        loop {
            let damage = match journal::read(self.dir, &self.numbers, self.limit) {
                Ok(found) => return Ok(found),
                Err(ScanError::Damaged(damage)) => damage,
                Err(error) => return Err(error.in_dir(self.dir)),
            };
            let Damage { number, offset, usable_end, reason, .. } = damage;
            match usable_end.filter(|end| *end < self.limit) {
                Some(end) => {
                    let reason = format!("damaged at byte {offset}: {reason}");
                    self.drop_from(number, end, &reason);
                }
                None => self.drop_file(number, reason),
            }
        }
    }

    /// Leaves out the end of the journal that cannot be read; false if there is none.
    pub(super) fn drop_end(&mut self, found: &journal::Found) -> bool {
        if let Some(number) = found.headless() {
            self.drop_file(number, "the file is too short to have a header".to_owned());
            return true;
        }
        let Some((segment, end, torn)) = found.torn() else { return false };
        let reason = format!("damaged at byte {}: {}", torn.offset, torn.reason);
        self.drop_from(segment.number, end, &reason);
        true
    }

    fn drop_from(&mut self, number: u64, end: u64, reason: &str) {
        for later in self.numbers.iter().copied().filter(|later| *later > number).collect::<Vec<_>>() {
            self.drop_file(later, format!("it continues a file that is {reason}"));
        }
        self.limit = end;
        self.add(number, end, reason.to_owned());
    }

    fn drop_file(&mut self, number: u64, reason: String) {
        self.numbers.retain(|kept| *kept != number);
        self.add(number, 0, reason);
    }

    fn add(&mut self, number: u64, offset: u64, reason: String) {
        let path = self.dir.join(segment::file_name(number));
        // A file that vanished has no bytes to drop; moving it will say so.
        let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        self.dropped.retain(|dropped| dropped.number != number);
        let piece = Piece { path, offset, bytes: length.saturating_sub(offset), reason };
        self.dropped.push(Dropped { number, piece });
    }
}
