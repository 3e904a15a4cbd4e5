//! The commits and keys that are lost with the dropped parts of a journal.

use std::collections::BTreeMap;
use std::path::Path;

use super::frames::{Frames, Part};
use super::search::Dropped;
use crate::journal::Replay;
use crate::journal::format::{self, Kind};
use crate::{BlobHash, FileError, Revision, State};

/// An acknowledged commit that is dropped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LostRecord {
    /// The revision that it made.
    pub revision: Revision,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The user or program that made it.
    pub actor: String,
    /// Its subject.
    pub summary: String,
    /// The keys that it changed.
    pub n_keys: usize,
}

/// A key that will not have its newest value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyLoss {
    /// The key.
    pub key: String,
    /// The consequence for the key.
    pub outcome: KeyOutcome,
}

/// The consequence for a key whose newest value is dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyOutcome {
    /// It is gone.
    Lost,
    /// It has an older value.
    RolledBack,
    /// It was deleted, and is there again.
    Returns,
}

/// The contents of the dropped parts of a journal, as far as they can be read.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) records: Vec<LostRecord>,
    pub(super) keys: Vec<KeyLoss>,
    /// Every key that is named in a dropped part, and its newest value there.
    newest: BTreeMap<String, Option<BlobHash>>,
}

impl Losses {
    /// Reads the dropped parts of the journal in `dir`; the rest of it says `kept`.
    pub(super) fn read(dir: &Path, dropped: &[Dropped], kept: &Replay) -> Result<Self, FileError> {
        let mut losses = Self::default();
        for dropped in dropped {
            let Some(mut frames) = Frames::open(dir, dropped.number, dropped.piece.offset)? else { continue };
            while let Some(part) = frames.next()? {
                if let Part::Frame { kind, payload, .. } = part {
                    losses.frame(kind, &payload);
                }
            }
        }
        losses.keep(kept.head, &kept.state);
        Ok(losses)
    }

    /// Says anew what is lost if `state` at `head` is kept.
    pub(super) fn keep(&mut self, head: Revision, state: &State) {
        self.records.retain(|record| record.revision > head);
        let outcome = |(key, newest): (&String, &Option<BlobHash>)| {
            let outcome = match (state.get(&**key), newest) {
                (None, None) => return None,
                (Some(kept), Some(newest)) if kept == newest => return None,
                (None, Some(_)) => KeyOutcome::Lost,
                (Some(_), Some(_)) => KeyOutcome::RolledBack,
                (Some(_), None) => KeyOutcome::Returns,
            };
            Some(KeyLoss { key: key.clone(), outcome })
        };
        self.keys = self.newest.iter().filter_map(outcome).collect();
    }

    fn frame(&mut self, kind: Kind, payload: &[u8]) {
        match kind {
            Kind::Blob => {}
            Kind::Checkpoint => {
                // A payload with a right checksum that does not decode is no worse than a damaged one.
                let entries = format::decode_state(payload).unwrap_or_default();
                self.newest.extend(entries.into_iter().map(|(key, hash)| (key.to_string(), Some(hash))));
            }
            Kind::Commit => {
                let Ok(record) = format::decode_record(payload) else { return };
                let n_keys = record.commit.changes.len();
                self.newest
                    .extend(record.commit.changes.into_iter().map(|change| (change.key, change.value)));
                self.records.push(LostRecord {
                    revision: record.revision,
                    at_ms: record.commit.at_ms,
                    actor: record.commit.actor,
                    summary: record.commit.summary,
                    n_keys,
                });
            }
        }
    }
}
