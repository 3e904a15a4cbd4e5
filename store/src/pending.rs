//! Blobs that were put and wait for the commit that names them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::BlobHash;

/// A bounded number of bytes; the oldest blobs are dropped first.
#[derive(Debug)]
pub(crate) struct Pending {
    /// In a tree, which gives its memory back as it empties: a first load may put a hundred thousand blobs, later ones few.
    blobs: BTreeMap<BlobHash, (u64, Bytes)>,
    /// The blobs by when they were put last.
    order: BTreeMap<u64, BlobHash>,
    next: u64,
    bytes: usize,
    max_bytes: usize,
}

impl Pending {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { blobs: BTreeMap::new(), order: BTreeMap::new(), next: 0, bytes: 0, max_bytes }
    }

    /// Takes a blob. The newest is kept even if it alone exceeds the bound.
    pub(crate) fn insert(&mut self, hash: BlobHash, content: Bytes) {
        self.remove(&hash);
        self.bytes += content.len();
        self.blobs.insert(hash, (self.next, content));
        while self.bytes > self.max_bytes {
            let Some(hash) = self.order.first_key_value().map(|(_, hash)| *hash) else { break };
            self.remove(&hash);
        }
        self.order.insert(self.next, hash);
        self.next += 1;
    }

    pub(crate) fn remove(&mut self, hash: &BlobHash) {
        if let Some((at, content)) = self.blobs.remove(hash) {
            self.order.remove(&at);
            self.bytes -= content.len();
        }
    }

    pub(crate) fn blob(&self, hash: &BlobHash) -> Option<Bytes> {
        self.blobs.get(hash).map(|(_, content)| content.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_longest_ago_is_forgotten_first() {
        let mut pending = Pending::new(10);
        let blobs =
            [b"aaaa", b"bbbb", b"cccc"].map(|content| (BlobHash::of(content), Bytes::from_static(content)));
        for (hash, content) in [&blobs[0], &blobs[1], &blobs[0], &blobs[2]] {
            pending.insert(*hash, content.clone());
        }
        let kept = blobs.each_ref().map(|(hash, _)| pending.blob(hash).is_some());
        assert_eq!(kept, [true, false, true]);
    }

    #[test]
    fn a_blob_larger_than_the_bound_can_be_committed() {
        let mut pending = Pending::new(1);
        pending.insert(BlobHash::of(b"abc"), Bytes::from_static(b"abc"));
        assert!(pending.blob(&BlobHash::of(b"abc")).is_some());
        pending.remove(&BlobHash::of(b"abc"));
        assert_eq!((pending.bytes, pending.order.len()), (0, 0));
    }
}
