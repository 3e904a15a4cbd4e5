//! Making a damaged store usable again: first what that would cost, then doing it.
//!
//! A journal is kept up to its first damage, because a state is only right if every commit before it is there. If that
//! leaves nothing (a damaged checkpoint has nothing before it), the state is put together from what can be read, as far
//! as no commit is missing, and only the values that are damaged themselves are lost. No byte is deleted: every file that
//! changes is kept next to it as `*.damaged-<n>`.

mod carry_out;
mod frames;
mod loss;
mod rescue;

use std::fs::File;
use std::path::{Path, PathBuf};

pub use loss::{KeyLoss, KeyOutcome, LostRecord};
pub use rescue::Unreadable;

use crate::journal::segment::{self, Damage, ScanError};
use crate::journal::{self};
use crate::{OpenError, Revision, acknowledged, journal_store};
use loss::Losses;
use rescue::Rescue;

/// What a data directory would lose so that its store opens again.
///
/// It was found without changing a file of the journal. The directory is locked as long as this exists.
#[derive(Debug)]
pub struct Salvage {
    dir: PathBuf,
    _lock: File,
    /// The newest revision that is kept.
    pub kept: Revision,
    /// The newest revision that was acknowledged, as far as is marked.
    pub known: Option<Revision>,
    /// The parts of the journal that are dropped, in their order.
    pub pieces: Vec<Piece>,
    /// The acknowledged commits in these pieces that can be read, in their order.
    pub records: Vec<LostRecord>,
    /// The keys whose values are not the newest ones afterwards, as far as the lost commits can be read.
    pub keys: Vec<KeyLoss>,
    /// How a new checkpoint is made of the readable rest, if nothing before the damage can be kept.
    rescue: Option<Rescue>,
    /// The marks of what was acknowledged that are beyond what the journal will have.
    marks_beyond: Vec<PathBuf>,
}

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

impl Salvage {
    /// Finds out what is damaged in `dir`, and what would be lost.
    ///
    /// # Errors
    ///
    /// [`OpenError::Locked`] while a server uses the directory, [`OpenError::Newer`] if a newer program wrote the
    /// journal, [`OpenError::File`] if a file cannot be read.
    pub fn find(dir: &Path) -> Result<Self, OpenError> {
        let lock = journal_store::lock(dir)?;
        let numbers = journal::list(dir)?;
        let mut search = Search { dir, numbers, limit: u64::MAX, dropped: Vec::new() };
        let mut found = search.read()?;
        let marks = acknowledged::Found::open(dir);
        let known = marks.head();
        let is_lost = |found: &journal::Found| known.is_some_and(|known| known > found.replay.head);
        if is_lost(&found) && search.drop_end(&found) {
            found = search.read()?;
        }
        let Search { mut dropped, .. } = search;
        dropped.sort_by_key(|dropped| dropped.number);
        let mut losses = Losses::read(dir, &dropped, &found.replay)?;
        let rescue =
            found.replay.is_blank().then(|| Rescue::plan(dir, &dropped, known)).transpose()?.flatten();
        let mut kept = found.replay.head;
        if let Some(rescue) = &rescue {
            kept = rescue.head;
            losses.keep(rescue.head, rescue.kept_state());
        }
        Ok(Self {
            dir: dir.to_owned(),
            _lock: lock,
            kept,
            known,
            pieces: dropped.into_iter().map(|dropped| dropped.piece).collect(),
            records: losses.records,
            keys: losses.keys,
            marks_beyond: marks.beyond(kept),
            rescue,
        })
    }

    /// Whether the store cannot be opened as it is.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        !self.pieces.is_empty() || !self.marks_beyond.is_empty()
    }

    /// Whether the state is kept without its history, because a new checkpoint is made of the readable rest.
    #[must_use]
    pub const fn is_rescued(&self) -> bool {
        self.rescue.is_some()
    }

    /// The parts of a damaged checkpoint that cannot be read; keys that were only named there are lost unnamed.
    #[must_use]
    pub fn unreadable(&self) -> &[Unreadable] {
        self.rescue.as_ref().map_or(&[], |rescue| &rescue.unreadable)
    }
}

/// A part of a segment that is dropped.
#[derive(Debug)]
struct Dropped {
    number: u64,
    piece: Piece,
}

/// The journal with ever more of it left out, until the rest is good.
struct Search<'a> {
    dir: &'a Path,
    numbers: Vec<u64>,
    /// How much of the last segment counts.
    limit: u64,
    dropped: Vec<Dropped>,
}

impl Search<'_> {
    fn read(&mut self) -> Result<journal::Found, OpenError> {
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
    fn drop_end(&mut self, found: &journal::Found) -> bool {
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
