//! The places of blobs.

use std::collections::{BTreeMap, HashMap};

use crate::BlobHash;
use crate::journal::segment::Position;

/// The last place where each blob is.
///
/// By segment, so that an entry does not repeat the segment's number, and a compaction drops what it replaces at once.
/// A journal has few segments: one more for each compaction that failed since the last one.
#[derive(Debug, Default)]
pub(crate) struct BlobPlaces {
    offsets: BTreeMap<u64, HashMap<Half, u64>>,
}

/// The first half of a hash, which tells blobs apart: nobody finds two with the same in fewer than some 2^64 tries, and who reads one
/// compares the whole hash.
pub(crate) type Half = [u8; BlobHash::LENGTH / 2];

impl BlobPlaces {
    /// Takes in places that come after those that are known.
    pub(crate) fn extend(&mut self, places: impl IntoIterator<Item = (BlobHash, Position)>) {
        for (hash, Position { segment, offset }) in places {
            self.offsets.entry(segment).or_default().insert(half(&hash), offset);
        }
    }

    /// Where the blob is, if it is anywhere.
    pub(crate) fn position(&self, hash: &BlobHash) -> Option<Position> {
        self.position_of(&half(hash))
    }

    fn position_of(&self, half: &Half) -> Option<Position> {
        let mut newest_first = self.offsets.iter().rev();
        newest_first.find_map(|(&segment, offsets)| {
            let offset = *offsets.get(half)?;
            Some(Position { segment, offset })
        })
    }

    /// Returns `true` if the blob is anywhere.
    pub(crate) fn contains(&self, hash: &BlobHash) -> bool {
        let half = half(hash);
        self.offsets.values().any(|offsets| offsets.contains_key(&half))
    }

    /// Replaces the places in segments before `number` with `kept`, which has none from segment `number + 1` on.
    pub(crate) fn replace_before(&mut self, number: u64, kept: Self) {
        let newer = self.offsets.split_off(&number);
        self.offsets = kept.offsets;
        self.offsets.extend(newer);
    }

    /// Every blob, for comparisons.
    #[cfg(test)]
    pub(crate) fn everything(&self) -> BTreeMap<Half, Position> {
        let halves = self.offsets.values().flat_map(HashMap::keys);
        halves.filter_map(|half| Some((*half, self.position_of(half)?))).collect()
    }
}

/// The first half of `hash`.
pub(crate) fn half(hash: &BlobHash) -> Half {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}
