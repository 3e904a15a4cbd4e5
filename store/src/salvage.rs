//! Makes a damaged store usable again. It first reports what that would cost, then does it.
//!
//! A journal is kept up to its first damage, because a state is only right if every commit before it is there. If nothing is left that way
//! (a damaged checkpoint has nothing before it), the state is assembled from what can be read, as far as no commit is missing. Then only
//! damaged values are lost. No byte is deleted: every file that changes is kept next to it as `*.damaged-<n>`.

mod carry_out;
mod frames;
mod loss;
mod rescue;
mod search;

use std::path::{Path, PathBuf};

pub use loss::{KeyLoss, KeyOutcome, LostRecord};
pub use rescue::Unreadable;
pub use search::Piece;

use crate::journal;
use crate::lock::Lock;
use crate::{OpenError, Revision, acknowledged};
use loss::Losses;
use rescue::Rescue;
use search::Search;

/// The loss that a data directory must take so that its store opens again.
///
/// It was found without changing a file of the journal. The directory is locked as long as this exists.
#[derive(Debug)]
pub struct Salvage {
    dir: PathBuf,
    _lock: Lock,
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
    /// The records of acknowledged revisions that are beyond the end of the salvaged journal.
    marks_beyond: Vec<PathBuf>,
}

impl Salvage {
    /// Finds the damage in `dir`, and what would be lost.
    ///
    /// # Errors
    ///
    /// [`OpenError::Locked`] while a server uses the directory, [`OpenError::Newer`] if a newer program wrote the
    /// journal, [`OpenError::File`] if a file cannot be read.
    pub fn find(dir: &Path) -> Result<Self, OpenError> {
        let lock = Lock::take(dir)?;
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

    /// Returns `true` if the store cannot be opened without a salvage.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        !self.pieces.is_empty() || !self.marks_beyond.is_empty()
    }

    /// Returns `true` if the state is kept without its history, because a new checkpoint is made of the readable rest.
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
