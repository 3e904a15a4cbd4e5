//! The history of a server for others that follow it: its journal, as a remote would show it.
//!
//! A follower reads the keys of the [layout] from here, so it catches up as with any other remote. Bodies are not sealed:
//! whoever carries them encrypts, and lets in only who may read everything.
//!
//! A journal has no chain. So the feed counts it along, from an *anchor*: a revision whose chain is known. Anchors are saved beside the
//! journal, so a server that starts again goes on with the same chain. A server whose journal is a mirror has the chain of what it mirrors.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use xds_store::{BlobHash, Revision, Store, StoreError};

use crate::chain::{ChainHash, Head};
use crate::draft::{self, random_id};
use crate::end::END;
use crate::follow::chain;
use crate::layout::{self, BASE, Base, CommitLine, FORMAT, HEAD, META, Meta, Parts};
use crate::position::Position;
use crate::remote::{Entry, Read};
use crate::retain::state_at;
use crate::seal::SealedKey;
use crate::small_file;

/// What followers of a server read.
#[derive(Debug)]
pub struct Feed {
    path: PathBuf,
    store: Arc<dyn Store>,
    /// Where the mirror is, if the journal is one.
    mirrors: Option<watch::Receiver<Option<Position>>>,
    trail: Mutex<Trail>,
    /// The body of the oldest state, and of which revision it is.
    base: Mutex<Option<(Revision, BlobHash, Bytes)>>,
}

/// The chain of the revisions that the journal has.
#[derive(Clone, Debug)]
struct Trail {
    store: String,
    epoch: u64,
    anchor: Revision,
    /// At the anchor and at each revision after it.
    chains: VecDeque<ChainHash>,
    /// The ends of what was saved.
    saved: Option<(Revision, Revision)>,
}

/// A history cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The journal failed.
    #[error("the history cannot be read: {0}")]
    Store(#[from] StoreError),
    /// Something in it is missing, or too large.
    #[error("the history cannot be shown: {0}")]
    Incomplete(String),
    /// A file of the data directory cannot be used.
    #[error("{} cannot be read or written", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server follows something that it has not reached yet.
    #[error("this server has nothing to show yet")]
    Empty,
}

impl Feed {
    /// The history of a journal that is in `dir`.
    ///
    /// # Errors
    ///
    /// If its anchors cannot be read or written.
    pub fn of_journal(dir: &Path, store: Arc<dyn Store>) -> Result<Self, FeedError> {
        Self::open(dir, store, None)
    }

    /// The same of a mirror, which is at the places that `mirrors` shows.
    pub(crate) fn open(
        dir: &Path,
        store: Arc<dyn Store>,
        mirrors: Option<watch::Receiver<Option<Position>>>,
    ) -> Result<Self, FeedError> {
        let path = dir.join("feed.json");
        let saved = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "the file is not what this release wrote, and is made anew");
                Vec::new()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(FeedError::File { path, source }),
        };
        let trail = Trail::begin(&*store, saved)?;
        let feed = Self { path, store, mirrors, trail: Mutex::new(trail), base: Mutex::default() };
        feed.look()?;
        Ok(feed)
    }

    /// Wakes when there may be more.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Revision> {
        self.store.watch()
    }

    /// Keeps the chain as the journal grows, also while nobody follows. Ends with the store.
    pub async fn tend(self: Arc<Self>) {
        let mut head = self.store.watch();
        while head.changed().await.is_ok() {
            let feed = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || feed.look().map(drop)).await;
            if let Ok(Err(error)) = looked {
                tracing::warn!(error = chain(&error), "what followers get is not up to date");
            }
        }
    }

    /// Reads ranges of keys, as [`Remote::read`](crate::Remote::read) does. An answer may have fewer entries than were asked for, but at
    /// least one of each range that has any.
    ///
    /// It reads files, so it belongs into `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// If the journal cannot be read.
    pub fn read(&self, reads: &[Read]) -> Result<Vec<Vec<Entry>>, FeedError> {
        let trail = self.look()?;
        reads.iter().map(|read| self.range(&trail, read)).collect()
    }

    fn range(&self, trail: &Trail, read: &Read) -> Result<Vec<Entry>, FeedError> {
        let entry = |value| vec![Entry { key: read.from.clone(), value }];
        let of_json = |value: Result<Vec<u8>, serde_json::Error>| {
            value.map(|json| entry(json.into())).map_err(|error| FeedError::Incomplete(error.to_string()))
        };
        if let Some(first) = layout::revision_of(&read.from) {
            let n = if read.to.is_none() { 1 } else { read.limit.clamp(1, MAX_COMMITS) };
            return self.commits(trail, first, n);
        }
        match &*read.from {
            META => {
                let (store, key) = (trail.store.clone(), SealedKey::none());
                of_json(serde_json::to_vec(&Meta { store, format: FORMAT, key }))
            }
            HEAD => Ok(entry(trail.head().encode())),
            BASE if trail.anchor == Revision::ZERO => Ok(vec![]),
            BASE => {
                let (hash, _) = self.base(trail.anchor)?;
                let base = Base { revision: trail.anchor, chain: trail.first(), packs: vec![hash] };
                of_json(serde_json::to_vec(&base))
            }
            END => Ok(vec![]),
            _ if trail.anchor == Revision::ZERO => Ok(vec![]),
            key => {
                let (hash, body) = self.base(trail.anchor)?;
                let is_it = key == Parts::Base.key(trail.anchor, hash);
                Ok(if is_it { entry(body) } else { vec![] })
            }
        }
    }

    /// At most `n` commits, of [`MAX_BYTES`] or one.
    fn commits(&self, trail: &Trail, first: Revision, n: usize) -> Result<Vec<Entry>, FeedError> {
        let (mut entries, mut n_bytes) = (Vec::new(), 0);
        for revision in (first.0..).take(n).map(Revision) {
            let before = revision.0.checked_sub(1).and_then(|before| trail.at(Revision(before)));
            let (Some(previous), Some(chain)) = (before, trail.at(revision)) else { break };
            // What was dropped in the meantime is not there.
            let Some(record) = self.store.record(revision)? else { break };
            let body = draft::body(&*self.store, &record)
                .map_err(|error| FeedError::Incomplete(crate::follow::chain(&error)))?;
            let body = body.encode().map_err(|error| FeedError::Incomplete(error.to_string()))?;
            n_bytes += body.len();
            if n_bytes > MAX_BYTES && !entries.is_empty() {
                break;
            }
            let line = CommitLine { id: String::new(), previous, chain, packs: vec![] };
            let value =
                line.encode(&body).ok_or_else(|| FeedError::Incomplete("it has no text".to_owned()))?;
            entries.push(Entry { key: layout::commit_key(revision), value });
        }
        Ok(entries)
    }

    /// The body of the state at `revision`.
    fn base(&self, revision: Revision) -> Result<(BlobHash, Bytes), FeedError> {
        let mut known = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, hash, body)) = &*known
            && *of == revision
        {
            return Ok((*hash, body.clone()));
        }
        let body = state_at(&*self.store, revision).map_err(FeedError::Incomplete)?;
        let body: Bytes = body.encode().map_err(|error| FeedError::Incomplete(error.to_string()))?.into();
        let hash = BlobHash::of(&body);
        *known = Some((revision, hash, body.clone()));
        Ok((hash, body))
    }

    /// The chain up to the journal's end.
    fn look(&self) -> Result<Trail, FeedError> {
        let mut trail = self.trail();
        if let Some(mirrors) = &self.mirrors {
            let position = mirrors.borrow().clone().ok_or(FeedError::Empty)?;
            trail.agree_with(position, self.store.oldest());
        }
        trail.grow(&*self.store)?;
        if trail.is_unsaved() {
            let positions = trail.positions();
            small_file::replace(&self.path, &positions)
                .map_err(|source| FeedError::File { path: self.path.clone(), source })?;
            trail.saved = Some(trail.ends());
        }
        Ok(trail.clone())
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trail {
    /// From the first saved position that the journal has, or as a store of its own.
    fn begin(store: &dyn Store, saved: Vec<Position>) -> Result<Self, FeedError> {
        let (oldest, end) = (store.oldest(), store.head());
        let last = saved.last().cloned();
        let is_kept = |position: &Position| (oldest..=end).contains(&position.head.revision);
        if let Some(position) = saved.into_iter().find(is_kept) {
            return Ok(Self::at_position(position));
        }
        if let Some(last) = last {
            return Ok(Self::anew(&last, oldest));
        }
        let store = random_id().ok_or(StoreError::Closed)?;
        let head = Head { epoch: 1, revision: oldest, chain: ChainHash::of_beginning(&store, oldest) };
        Ok(Self::at_position(Position { store, head }))
    }

    /// The chain from `oldest` on, if the last place of it that is known is `last`, which is not kept.
    fn anew(last: &Position, oldest: Revision) -> Self {
        let Position { store, head } = last;
        // All that a follower may have is older, so it begins there. If it is newer, the journal was set back, and a follower tells.
        let epoch = if head.revision < oldest { head.epoch + 1 } else { head.epoch };
        let chain = ChainHash::of_beginning(store, oldest);
        Self::at_position(Position { store: store.clone(), head: Head { epoch, revision: oldest, chain } })
    }

    fn at_position(Position { store, head }: Position) -> Self {
        let chains = VecDeque::from([head.chain]);
        Self { store, epoch: head.epoch, anchor: head.revision, chains, saved: None }
    }

    /// The place of the mirror counts, whatever was known.
    fn agree_with(&mut self, position: Position, oldest: Revision) {
        let Position { store, head } = &position;
        let is_known = self.at(head.revision).is_none_or(|chain| chain == head.chain);
        // A trail that ends before the mirror is as good, if it grows by the same commits.
        let grows =
            self.head().revision >= oldest && (self.epoch == head.epoch || self.at(head.revision).is_some());
        if *store != self.store || !is_known || !grows || head.revision < self.anchor {
            *self = Self::at_position(position);
        } else {
            self.epoch = head.epoch;
        }
    }

    fn grow(&mut self, store: &dyn Store) -> Result<(), FeedError> {
        let (oldest, end) = (store.oldest(), store.head());
        if self.head().revision < oldest {
            *self = Self::anew(&self.position(), oldest);
        }
        while self.head().revision < end {
            let next = self.head().revision.next();
            let Some(record) = store.record(next)? else {
                return Err(FeedError::Incomplete(format!("revision {next} is missing")));
            };
            let head = self.head().next(&record);
            self.chains.push_back(head.chain);
        }
        while self.anchor < oldest && self.chains.len() > 1 {
            self.chains.pop_front();
            self.anchor = self.anchor.next();
        }
        Ok(())
    }

    fn first(&self) -> ChainHash {
        self.at(self.anchor).unwrap_or_else(|| ChainHash::of_beginning(&self.store, self.anchor))
    }

    fn at(&self, revision: Revision) -> Option<ChainHash> {
        let index = revision.0.checked_sub(self.anchor.0)?;
        self.chains.get(usize::try_from(index).ok()?).copied()
    }

    fn head(&self) -> Head {
        let revision = Revision(self.anchor.0 + self.chains.len().saturating_sub(1) as u64);
        Head { epoch: self.epoch, revision, chain: self.at(revision).unwrap_or_else(|| self.first()) }
    }

    fn position(&self) -> Position {
        Position { store: self.store.clone(), head: self.head() }
    }

    fn ends(&self) -> (Revision, Revision) {
        (self.anchor, self.head().revision)
    }

    /// Returns `true` if less would be known after a restart. Nobody is shown what is not saved.
    fn is_unsaved(&self) -> bool {
        self.saved != Some(self.ends())
    }

    /// What is saved: the ends and some places between them, the oldest first.
    fn positions(&self) -> Vec<Position> {
        let end = self.head().revision.0;
        let places = (self.anchor.0..end).step_by(EACH as usize).chain([end]).map(Revision);
        let position = |revision| {
            let head = Head { epoch: self.epoch, revision, chain: self.at(revision)? };
            Some(Position { store: self.store.clone(), head })
        };
        places.filter_map(position).collect()
    }
}

/// Commits of one answer.
const MAX_COMMITS: usize = 64;

/// Bytes of the commits of one answer, if there are several.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Revisions between two saved anchors. A journal usually keeps 1,000.
const EACH: u64 = 64;
