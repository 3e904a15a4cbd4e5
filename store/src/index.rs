//! The place in the journal of each record and each blob.
//!
//! It is built when the store is opened, which reads the whole journal anyway, and kept in memory: 25 bytes a blob in a table that is
//! between seven sixteenths and seven eighths full, so at most 57.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::journal::blobs::BlobPlaces;
#[cfg(test)]
use crate::journal::blobs::Half;
use crate::journal::segment::{Position, Segment};
use crate::journal::{Journal, Replay, Segments};
use crate::{BlobHash, Revision};

/// The index of a journal that is open, and the segments that it refers to.
#[derive(Debug)]
pub(crate) struct Index {
    inner: RwLock<Inner>,
}

/// Changed together, so that a reader that finds a place also finds the segment.
#[derive(Debug)]
struct Inner {
    records: BTreeMap<Revision, Position>,
    blobs: BlobPlaces,
    segments: Segments,
}

/// Commits that were added to the journal as one batch.
#[derive(Debug, Default)]
pub(crate) struct Addition {
    pub(crate) records: Vec<(Revision, Position)>,
    pub(crate) blobs: Vec<(BlobHash, Position)>,
}

/// A frame of the journal.
#[derive(Debug)]
pub(crate) struct FrameLocation {
    pub(crate) segment: Arc<Segment>,
    pub(crate) position: Position,
}

impl Index {
    /// The index of a journal that was read.
    pub(crate) fn new(journal: &mut Journal) -> Self {
        let Replay { records, blobs, .. } = &mut journal.replay;
        let records = records.iter().map(|(revision, place)| (*revision, place.position)).collect();
        let inner = Inner { records, blobs: std::mem::take(blobs), segments: journal.segments.clone() };
        Self { inner: RwLock::new(inner) }
    }

    /// Adds the records that were appended to the last segment.
    pub(crate) fn add(&self, addition: Addition) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.records.extend(addition.records);
        inner.blobs.extend(addition.blobs);
    }

    /// Takes a new segment as the last one; nothing is in it yet.
    pub(crate) fn add_segment(&self, segment: Arc<Segment>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.segments.insert(segment.number, segment);
    }

    /// Forgets the segments before `checkpoint`, and returns them; what was kept of them is in `checkpoint` now, and
    /// `kept` says where.
    pub(crate) fn replace_segments(&self, checkpoint: Arc<Segment>, kept: Replay) -> Vec<Arc<Segment>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let number = checkpoint.number;
        let newer = inner.segments.split_off(&number);
        let replaced = std::mem::replace(&mut inner.segments, newer);
        inner.segments.insert(number, checkpoint);
        inner.records.retain(|_, position| position.segment >= number);
        inner.records.extend(kept.records.into_iter().map(|(revision, place)| (revision, place.position)));
        inner.blobs.replace_before(number, kept.blobs);
        replaced.into_values().collect()
    }

    /// Where the record of `revision` is, if it is kept.
    pub(crate) fn record(&self, revision: Revision) -> Option<FrameLocation> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.resolve(inner.records.get(&revision).copied())
    }

    /// Where the blob `hash` is, if it is kept.
    pub(crate) fn blob(&self, hash: &BlobHash) -> Option<FrameLocation> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.resolve(inner.blobs.position(hash))
    }

    /// The segments.
    pub(crate) fn segments(&self) -> Segments {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).segments.clone()
    }

    /// Everything that it says, for comparisons.
    #[cfg(test)]
    pub(crate) fn everything(&self) -> (BTreeMap<Revision, Position>, BTreeMap<Half, Position>) {
        let inner = self.inner.read().unwrap();
        (inner.records.clone(), inner.blobs.everything())
    }
}

impl Inner {
    fn resolve(&self, position: Option<Position>) -> Option<FrameLocation> {
        let position = position?;
        let segment = Arc::clone(self.segments.get(&position.segment)?);
        Some(FrameLocation { segment, position })
    }
}
