//! Commits that are not in the journal yet.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::index::Addition;
use crate::journal;
use crate::journal::append::Tail;
use crate::journal::format::{self, Kind, MAX_PAYLOAD_BYTES};
use crate::journal::segment::Position;
use crate::shared::Shared;
use crate::{BlobHash, Commit, CommitError, Record, Revision, StoreError};

/// Commits that are written and synced together, and are not visible before that.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    shared: &'a Shared,
    segment: u64,
    salt: u64,
    start: u64,
    /// Blobs in segments before this one may be dropped at any moment.
    durable_from: u64,
    /// The head if all of this is written.
    pub(crate) head: Revision,
    pub(crate) bytes: Vec<u8>,
    pub(crate) addition: Addition,
    pub(crate) records: Vec<Record>,
    changed: HashMap<String, Option<BlobHash>>,
    blobs: HashSet<BlobHash>,
}

impl<'a> Draft<'a> {
    /// Begins at the end of the journal. What is in segments before `durable_from` is not relied on.
    pub(crate) fn new(shared: &'a Shared, tail: &Tail, durable_from: u64) -> Self {
        Self {
            shared,
            segment: tail.segment.number,
            salt: tail.segment.header.salt,
            start: tail.end,
            durable_from,
            head: shared.published().head,
            bytes: Vec::new(),
            addition: Addition::default(),
            records: Vec::new(),
            changed: HashMap::new(),
            blobs: HashSet::new(),
        }
    }

    /// Adds a commit with the blobs that the journal lacks, or refuses it and stays as it is.
    pub(crate) fn add(&mut self, expected: Revision, commit: Commit) -> Result<Revision, CommitError> {
        if expected != self.head {
            return Err(CommitError::Conflict { head: self.head });
        }
        commit.check()?;
        let blobs = self.missing_blobs(&commit)?;
        let previous = self.previous(&commit);
        let record = Record { revision: self.head.next(), commit, previous };
        let payload = format::encode_record(&record);
        CommitError::if_too_large("record", payload.len(), MAX_PAYLOAD_BYTES)?;

        for (hash, content) in blobs {
            let position = self.write(Kind::Blob, &[hash.as_bytes(), &content]);
            self.addition.blobs.push((hash, position));
            self.blobs.insert(hash);
        }
        let position = self.write(Kind::Commit, &[&payload]);
        self.addition.records.push((record.revision, position));
        self.changed.extend(record.commit.changes.iter().map(|change| (change.key.clone(), change.value)));
        self.head = record.revision;
        self.records.push(record);
        Ok(self.head)
    }

    /// The blobs that have to be written so that the commit can be; each once.
    fn missing_blobs(&self, commit: &Commit) -> Result<Vec<(BlobHash, Bytes)>, CommitError> {
        let mut missing = Vec::new();
        let mut seen = HashSet::new();
        for change in &commit.changes {
            let Some(hash) = change.value else { continue };
            if self.blobs.contains(&hash) || !seen.insert(hash) {
                continue;
            }
            let location = self.shared.index.blob(&hash);
            if location.as_ref().is_some_and(|location| location.segment.number >= self.durable_from) {
                continue;
            }
            let content = match (self.shared.pending_blob(&hash), location) {
                (Some(content), _) => content,
                (None, Some(location)) => journal::read_blob(&location.segment, location.position, hash)?,
                (None, None) => return Err(CommitError::UnknownBlob { key: change.key.clone(), hash }),
            };
            missing.push((hash, content));
        }
        Ok(missing)
    }

    fn previous(&self, commit: &Commit) -> Vec<(String, Option<BlobHash>)> {
        let published = self.shared.published();
        let previous = commit.changes.iter().map(|change| {
            let value = self.changed.get(&change.key).copied();
            (change.key.clone(), value.unwrap_or_else(|| published.state.get(&*change.key).copied()))
        });
        previous.collect()
    }

    fn write(&mut self, kind: Kind, parts: &[&[u8]]) -> Position {
        let offset = self.start + self.bytes.len() as u64;
        format::write_frame(&mut self.bytes, kind, parts, self.salt, offset, self.start);
        Position { segment: self.segment, offset }
    }
}

/// Refuses a blob that is larger than one may be.
pub(crate) fn check_blob(content: &[u8]) -> Result<(), StoreError> {
    let (bytes, limit) = (content.len(), crate::MAX_BLOB_BYTES);
    if bytes > limit { Err(StoreError::BlobTooLarge { bytes, limit }) } else { Ok(()) }
}
