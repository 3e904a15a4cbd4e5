//! The keys of the remote and what is under them.
//!
//! | key | value | changes |
//! |---|---|---|
//! | `meta` | [`Meta`] | when it is created, and when a store key is exchanged |
//! | `head` | [`Head`](crate::chain::Head) | with every commit |
//! | `base` | [`Base`]: the state before the first commit that is kept; absent if that is the empty one | by retention |
//! | `commit/{revision}` | [`CommitLine`], a line feed, and the sealed body, unless it is in packs | never |
//! | `pack/{revision}/{hash}` | a part of the sealed body of that commit | never |
//! | `state/{revision}/{hash}` | a part of the sealed body of the base of that revision | never |
//! | `end/{id}` | where the history of a server ends that does not continue what is there ([`end`](crate::end)) | by that server; deleted by `adopt` |
//! | `replica/{id}`, `alive/{id}`, `leader` | a server ([`presence`](crate::presence)) | by that server |
//!
//! Revisions in keys have 20 digits, so that keys are in the order of revisions. A part is named by the hash of its (sealed) bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_store::{BlobHash, Revision};

use crate::chain::ChainHash;
use crate::remote::{Put, Read};
use crate::seal::SealedKey;

pub(crate) const META: &str = "meta";
pub(crate) const HEAD: &str = "head";
pub(crate) const BASE: &str = "base";

/// Whoever loses to another server puts a random value here before it tries again. The others see by it that somebody waits for a turn.
pub(crate) const WAITING: &str = "waiting";

/// The format that this release reads and writes.
pub(crate) const FORMAT: u32 = 1;

/// What a store is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    /// Random: 32 hexadecimal digits.
    pub(crate) store: String,
    /// The format of everything.
    pub(crate) format: u32,
    pub(crate) key: SealedKey,
}

/// What is known of a commit before it is opened.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommitLine {
    /// Random: 32 hexadecimal digits. A commit that is tried again keeps it.
    pub(crate) id: String,
    /// The chain before and after the commit.
    pub(crate) previous: ChainHash,
    pub(crate) chain: ChainHash,
    /// Where the sealed body is, if it is not behind this line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) packs: Vec<BlobHash>,
}

/// The state before the first commit that is kept.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Base {
    pub(crate) revision: Revision,
    pub(crate) chain: ChainHash,
    pub(crate) packs: Vec<BlobHash>,
}

impl CommitLine {
    /// The value of a commit whose sealed body is `inline` or in packs.
    pub(crate) fn encode(&self, inline: &[u8]) -> Option<Bytes> {
        let mut value = serde_json::to_vec(self).ok()?;
        value.push(b'\n');
        value.extend_from_slice(inline);
        Some(value.into())
    }

    /// Reads what [`encode`](Self::encode) wrote: the line, and the bytes behind it.
    pub(crate) fn parse(value: &Bytes) -> Option<(Self, Bytes)> {
        let end = value.iter().position(|byte| *byte == b'\n')?;
        let line = serde_json::from_slice(value.get(..end)?).ok()?;
        Some((line, value.slice(end + 1..)))
    }
}

/// The key of a commit.
pub(crate) fn commit_key(revision: Revision) -> String {
    format!("commit/{:020}", revision.0)
}

/// The revision of a commit's key; `None` for other keys.
pub(crate) fn revision_of(key: &str) -> Option<Revision> {
    let digits = key.strip_prefix("commit/").filter(|digits| digits.len() == 20)?;
    digits.parse().ok().map(Revision)
}

/// The kinds of sealed bodies that are cut into parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Parts {
    Commit,
    Base,
}

impl Parts {
    const fn folder(self) -> &'static str {
        match self {
            Self::Commit => "pack",
            Self::Base => "state",
        }
    }

    /// Cuts the sealed body of `revision` into parts, each to be put before what names them.
    pub(crate) fn cut(self, revision: Revision, sealed: &[u8]) -> Vec<(BlobHash, Put)> {
        let parts = sealed.chunks(PART_BYTES).map(|part| {
            let hash = BlobHash::of(part);
            (hash, Put { key: self.key(revision, hash), value: Bytes::copy_from_slice(part) })
        });
        parts.collect()
    }

    pub(crate) fn key(self, revision: Revision, hash: BlobHash) -> String {
        format!("{}/{:020}/{hash}", self.folder(), revision.0)
    }

    /// All parts of the revisions before `revision`.
    pub(crate) fn before(self, revision: Revision) -> (String, String) {
        (format!("{}/", self.folder()), format!("{}/{:020}/", self.folder(), revision.0))
    }
}

/// The commits before `revision`.
pub(crate) fn commits_before(revision: Revision) -> (String, String) {
    ("commit/".to_owned(), commit_key(revision))
}

/// At most `limit` commits, the oldest of which is `revision`.
pub(crate) fn commits_from(revision: Revision, limit: usize) -> Read {
    Read { from: commit_key(revision), to: Some("commit0".to_owned()), limit }
}

/// Where a sealed body counts.
pub(crate) fn place(parts: Parts, store: &str, revision: Revision) -> String {
    format!("{store}/{}/{}", parts.folder(), revision.0)
}

/// A sealed body of up to this many bytes is in the value of its commit.
pub(crate) const MAX_INLINE_BYTES: usize = 256 * 1024;

/// Bytes of a part. etcd takes 1.5 MiB a request.
pub(crate) const PART_BYTES: usize = 1024 * 1024;

/// Parts of one body.
pub(crate) const MAX_PARTS: usize = 512;
