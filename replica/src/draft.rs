//! What is put for a commit.

use std::collections::BTreeSet;

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use xds_store::{CommitError, MAX_BLOB_BYTES, Record, Store, StoreError};

use crate::body::{Body, MAX_BODY_BYTES};
use crate::chain::Head;
use crate::layout::{self, CommitLine, MAX_INLINE_BYTES, MAX_PARTS, PART_BYTES, Parts};
use crate::remote::{Put, Remote, RemoteError, Transaction};
use crate::seal::Sealer;

/// A commit that is being put.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Tells the commit from others; the same for every try.
    pub(crate) id: String,
    /// The head before and after.
    pub(crate) head: Head,
    pub(crate) next: Head,
    /// The value under the commit's key.
    pub(crate) value: Bytes,
    /// What is put before.
    pub(crate) parts: Vec<Put>,
    /// Bytes before compression.
    n_bytes: usize,
}

impl Draft {
    /// The commit `record` after `head`, with contents from the mirror.
    pub(crate) fn new(
        mirror: &dyn Store,
        sealer: &Sealer,
        store: &str,
        (head, record): (Head, &Record),
    ) -> Result<Self, CommitError> {
        let body = body(mirror, record)?;
        let n_bytes = body.text.len() + body.blobs.iter().map(Bytes::len).sum::<usize>();
        let limit = MAX_BODY_BYTES as usize;
        if n_bytes + 4 * (body.blobs.len() + 1) > limit {
            return Err(CommitError::TooLarge { what: "commit", bytes: n_bytes, limit });
        }
        let place = layout::place(Parts::Commit, store, record.revision);
        let sealed = body.encode().ok().and_then(|plain| sealer.seal(&place, plain));
        let sealed = sealed.ok_or(StoreError::Closed)?;
        let next = head.next(record);
        let parts = match sealed.len() {
            ..=MAX_INLINE_BYTES => Vec::new(),
            _ => Parts::Commit.cut(record.revision, &sealed),
        };
        let id = random_id().ok_or(StoreError::Closed)?;
        let (packs, parts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let inline = if packs.is_empty() { sealed.as_slice() } else { &[] };
        let line = CommitLine { id: id.clone(), previous: head.chain, chain: next.chain, packs };
        let value = line.encode(inline).ok_or(StoreError::Closed)?;
        let draft = Self { id, head, next, value, parts, n_bytes };
        if draft.parts.len() > MAX_PARTS { Err(draft.too_large()) } else { Ok(draft) }
    }

    /// The error of a commit that has too many parts.
    pub(crate) fn too_large(&self) -> CommitError {
        CommitError::TooLarge { what: "commit", bytes: self.n_bytes, limit: MAX_PARTS * PART_BYTES }
    }
}

/// A commit, and the contents that it names.
///
/// It has all of them, even those that were there before: what other mirrors still have is not known here.
pub(crate) fn body(mirror: &dyn Store, record: &Record) -> Result<Body, CommitError> {
    let text = serde_json::to_vec(&record.commit).map_err(|_| StoreError::Closed)?;
    if text.len() > MAX_BLOB_BYTES {
        return Err(CommitError::TooLarge { what: "record", bytes: text.len(), limit: MAX_BLOB_BYTES });
    }
    let mut seen = BTreeSet::new();
    let mut blobs = Vec::new();
    for change in &record.commit.changes {
        let Some(hash) = change.value.filter(|hash| seen.insert(*hash)) else { continue };
        let content = mirror.blob(hash)?;
        blobs.push(content.ok_or_else(|| CommitError::UnknownBlob { key: change.key.clone(), hash })?);
    }
    Ok(Body { text, blobs })
}

/// Puts parts of a body, a few at a time. What is there already is put again, which changes nothing.
pub(crate) async fn put_parts(remote: &dyn Remote, parts: &[Put]) -> Result<(), RemoteError> {
    for some in parts.chunks(PARTS_AT_ONCE) {
        let puts = some
            .iter()
            .map(|put| remote.write(Transaction { puts: vec![put.clone()], ..Transaction::default() }));
        futures_util::future::try_join_all(puts).await?;
    }
    Ok(())
}

/// 32 random hexadecimal digits. `None` if the system has no random numbers.
pub(crate) fn random_id() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Parts of a body that are put or read at once, so that an answer has a few MiB.
pub(crate) const PARTS_AT_ONCE: usize = 4;
