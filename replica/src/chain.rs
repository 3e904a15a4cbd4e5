//! The chain of commits: each names everything before it by one hash.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_store::{BlobHash, Record, Revision};

/// The hash of a commit and of everything before it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ChainHash(BlobHash);

impl ChainHash {
    /// The chain of a store that begins at `revision`.
    pub(crate) fn of_beginning(store: &str, revision: Revision) -> Self {
        Self(BlobHash::of(format!("{store} begins at {revision}").as_bytes()))
    }

    /// The chain after `record`.
    ///
    /// It depends on everything that the record says and on the contents that it names, but not on `previous`, which follows from the
    /// records before.
    pub(crate) fn next(self, record: &Record) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        let commit = &record.commit;
        text(&self.0.to_string());
        [&commit.actor, &commit.source, &commit.summary].into_iter().for_each(|one| text(one));
        for change in &commit.changes {
            text(&change.key);
            text(&change.value.map(|hash| hash.to_string()).unwrap_or_default());
        }
        for number in [record.revision.0, commit.at_ms, commit.changes.len() as u64] {
            hasher.update(&number.to_le_bytes());
        }
        Self(BlobHash::from_bytes(*hasher.finalize().as_bytes()))
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The newest commit of the shared store.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    /// Grows whenever someone decides that a history replaces another one.
    pub(crate) epoch: u64,
    pub(crate) revision: Revision,
    pub(crate) chain: ChainHash,
}

impl Head {
    /// The head after `record`.
    pub(crate) fn next(self, record: &Record) -> Self {
        Self { revision: record.revision, chain: self.chain.next(record), ..self }
    }

    /// The value under the key `head`. Equal heads have equal bytes, and no two heads of a store have the same.
    pub(crate) fn encode(&self) -> Bytes {
        format!("{} {} {}", self.epoch, self.revision, self.chain).into()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let (epoch, revision, chain) = (words.next()?, words.next()?, words.next()?);
        let head = Self {
            epoch: epoch.parse().ok()?,
            revision: Revision(revision.parse().ok()?),
            chain: ChainHash(BlobHash::from_str(chain).ok()?),
        };
        words.next().is_none().then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use xds_store::{Change, Commit};

    use super::*;

    fn record() -> Record {
        let commit = Commit {
            actor: "a".to_owned(),
            at_ms: 1,
            source: "s".to_owned(),
            summary: "t".to_owned(),
            changes: vec![Change::set("k", BlobHash::of(b"1")), Change::delete("l")],
        };
        Record { revision: Revision(1), commit, previous: vec![] }
    }

    #[test]
    fn every_part_of_a_record_changes_the_chain_but_the_values_before_do_not() {
        let empty = ChainHash::of_beginning("x", Revision(0));
        let same = Record { previous: vec![("k".to_owned(), None)], ..record() };
        assert_eq!(empty.next(&record()), empty.next(&same));
        let edits: [fn(&mut Record); 8] = [
            |record| record.revision = Revision(2),
            |record| record.commit.at_ms = 2,
            |record| record.commit.actor = String::new(),
            |record| record.commit.source = "st".to_owned(),
            |record| record.commit.summary = String::new(),
            |record| record.commit.changes[0].key = "kk".to_owned(),
            |record| record.commit.changes[0].value = None,
            |record| drop(record.commit.changes.pop()),
        ];
        let mut seen = vec![empty.next(&record()), ChainHash::of_beginning("y", Revision(0)).next(&record())];
        for edit in edits {
            let mut edited = record();
            edit(&mut edited);
            seen.push(empty.next(&edited));
        }
        let n_distinct =
            seen.iter().map(ChainHash::to_string).collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(n_distinct, seen.len());
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head =
            Head { epoch: 3, revision: Revision(70), chain: ChainHash::of_beginning("x", Revision(0)) };
        assert_eq!(Head::parse(&head.encode()), Some(head));
        for bad in ["", "1 2", "1 2 zz", "1 2 3 4", &format!("{} ", String::from_utf8_lossy(&head.encode()))]
        {
            assert_eq!(Head::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
