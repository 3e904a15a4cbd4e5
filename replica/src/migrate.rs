//! From a journal to a shared store, and back. The server that has the journal must not run.

use std::path::Path;

use bytes::Bytes;
use xds_store::{JournalStore, OpenError, Revision, Store as _, StoreError};

use crate::chain::{ChainHash, Head};
use crate::draft::{Draft, put_parts, random_id};
use crate::follow::chain;
use crate::layout::{self, BASE, Base, FORMAT, HEAD, MAX_PARTS, META, Meta, PART_BYTES, Parts};
use crate::position::{self, Position, PositionError};
use crate::remote::{Compare, Put, Read, Remote, RemoteError, Transaction, Written};
use crate::retain::state_at;
use crate::seal::{Sealer, StoreKeys};

/// What a push has put.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pushed {
    /// The id of the shared store.
    pub store: String,
    /// Its head.
    pub revision: Revision,
    /// The revision before the oldest commit that it has.
    pub base: Revision,
}

/// A journal could not be pushed. The shared store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The shared store has a history.
    #[error(
        "the shared store has a history up to revision {head}; an empty prefix takes this one, and --replace replaces that one for all servers"
    )]
    NotEmpty {
        /// Its head.
        head: Revision,
    },
    /// It changed meanwhile.
    #[error("the shared store was changed meanwhile; stop all servers, or try again")]
    Changed,
    /// Something there is not what this release can read.
    #[error("the shared store has {0} that this release cannot read")]
    Unreadable(&'static str),
    /// The journal could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal could not be read, or is too large.
    #[error("the history cannot be read: {0}")]
    Journal(String),
    /// The shared store could not be read or written.
    #[error("the shared store failed: {0}")]
    Remote(#[from] RemoteError),
    /// The directory could not be made a copy of the shared store.
    #[error("the directory cannot be made a copy of the shared store: {0}")]
    Position(String),
}

impl From<PositionError> for PushError {
    fn from(error: PositionError) -> Self {
        Self::Position(chain(&error))
    }
}

impl From<StoreError> for PushError {
    fn from(error: StoreError) -> Self {
        Self::Journal(chain(&error))
    }
}

/// Puts the history of the journal in `dir` into an empty remote; `dir` becomes a mirror of it.
///
/// With `replace`, the present state alone is put, as the next revision. It replaces what is there, and the history of all servers that have
/// no later revision, this one too.
///
/// # Errors
///
/// If there is a history and it is not to be replaced, or something fails.
pub async fn push(
    dir: &Path,
    remote: &dyn Remote,
    keys: &StoreKeys,
    replace: bool,
) -> Result<Pushed, PushError> {
    let (mirror, _) = JournalStore::open(dir, xds_store::Options::default())?;
    let own = position::read(dir, &mirror)?;
    let found = remote.read([META, HEAD, BASE].map(Read::key).into()).await?;
    let mut found = found.into_iter().map(|entries| entries.into_iter().next().map(|entry| entry.value));
    let mut next = || found.next().flatten();
    let there = [next(), next(), next()];
    let [meta, head, _] = &there;
    let head =
        head.as_ref().map(|value| Head::parse(value).ok_or(PushError::Unreadable("a head"))).transpose()?;
    if let Some(head) = head.filter(|_| !replace) {
        return Err(PushError::NotEmpty { head: head.revision });
    }
    let meta = meta.as_ref().map(|value| serde_json::from_slice::<Meta>(value));
    let meta = meta.transpose().ok().filter(|meta| meta.as_ref().is_none_or(|meta| meta.format == FORMAT));
    let meta = meta.ok_or(PushError::Unreadable("a description"))?;
    let store = own.as_ref().map(|own| own.store.clone()).or(meta.map(|meta| meta.store));
    let store = store.or_else(random_id).ok_or(StoreError::Closed)?;
    let (sealer, key) = keys.make(&store).ok_or(StoreError::Closed)?;
    let epoch = own.as_ref().map(|own| own.head.epoch).into_iter().chain(head.map(|head| head.epoch)).max();
    let epoch = epoch.map_or(1, |epoch| epoch + 1);

    let end = mirror.head();
    let pusher = Pusher { mirror: &mirror, remote, sealer, store };
    let (base, head, own) = match replace {
        true => {
            // No server has this revision, so none means anything else by it.
            let revision = head.map_or(end, |head| head.revision.max(end)).next();
            let base = pusher.base(end, revision).await?;
            let chain = ChainHash::of_beginning(&pusher.store, end);
            let own = own.map_or(Head { epoch: 0, revision: end, chain }, |own| own.head);
            let head = Head { epoch, revision, chain: base.chain };
            (base, head, own)
        }
        false => {
            let oldest = mirror.oldest();
            let base = pusher.base(oldest, oldest).await?;
            let mut head = Head { epoch, revision: oldest, chain: base.chain };
            for revision in oldest.next().0..=end.0 {
                head = pusher.commit(head, Revision(revision)).await?;
            }
            (base, head, head)
        }
    };
    let meta = Meta { store: pusher.store.clone(), format: FORMAT, key };
    pusher.finish(&there, &meta, head, &base).await?;
    position::write(dir, &[&Position { store: meta.store.clone(), head: own }])?;
    Ok(Pushed { store: meta.store, revision: head.revision, base: base.revision })
}

/// Makes the mirror in `dir` the journal of a server that shares nothing. Returns `false` if it is one already.
///
/// # Errors
///
/// If another process has the directory open, or it cannot be written.
pub fn detach(dir: &Path) -> Result<bool, PushError> {
    let (_mirror, _) = JournalStore::open(dir, xds_store::Options::default())?;
    Ok(position::remove(dir)?)
}

/// A push that is under way.
struct Pusher<'a> {
    mirror: &'a JournalStore,
    remote: &'a dyn Remote,
    sealer: Sealer,
    store: String,
}

impl Pusher<'_> {
    /// Puts the parts of the state that the mirror has at `own`, as the base `revision`.
    async fn base(&self, own: Revision, revision: Revision) -> Result<Base, PushError> {
        let chain = ChainHash::of_beginning(&self.store, revision);
        if revision == Revision::ZERO {
            return Ok(Base { revision, chain, packs: Vec::new() });
        }
        let body = state_at(self.mirror, own).map_err(PushError::Journal)?;
        let place = layout::place(Parts::Base, &self.store, revision);
        let sealed = body.encode().ok().and_then(|plain| self.sealer.seal(&place, plain));
        let parts = Parts::Base.cut(revision, &sealed.ok_or_else(|| too_large(revision))?);
        if parts.len() > MAX_PARTS {
            return Err(too_large(revision));
        }
        let (packs, puts): (Vec<_>, Vec<Put>) = parts.into_iter().unzip();
        put_parts(self.remote, &puts).await?;
        Ok(Base { revision, chain, packs })
    }

    /// Puts the commit after `head`, and returns the head after it.
    async fn commit(&self, head: Head, revision: Revision) -> Result<Head, PushError> {
        let record = self.mirror.record(revision)?;
        let record = record.ok_or_else(|| PushError::Journal(format!("revision {revision} is missing")))?;
        let draft = Draft::new(self.mirror, &self.sealer, &self.store, (head, &record))
            .map_err(|error| PushError::Journal(chain(&error)))?;
        let mut puts = draft.parts;
        puts.push(Put { key: layout::commit_key(revision), value: draft.value });
        put_parts(self.remote, &puts).await?;
        Ok(draft.next)
    }

    /// Makes what was put the history.
    async fn finish(
        &self,
        there: &[Option<Bytes>; 3],
        meta: &Meta,
        head: Head,
        base: &Base,
    ) -> Result<(), PushError> {
        let json = |value| Bytes::from(value);
        let meta =
            serde_json::to_vec(meta).map(json).map_err(|error| PushError::Journal(error.to_string()))?;
        let base_value =
            serde_json::to_vec(base).map(json).map_err(|error| PushError::Journal(error.to_string()))?;
        let values = [(META, meta), (HEAD, head.encode()), (BASE, base_value)];
        let is_new = there.iter().all(Option::is_none);
        let compares = there.iter().zip([META, HEAD, BASE]).map(|(value, key)| match value {
            Some(value) => Compare::Value(key.to_owned(), value.clone()),
            None => Compare::Absent(key.to_owned()),
        });
        let deletes = match is_new {
            true => vec![],
            false => vec![
                layout::commits_before(Revision(u64::MAX)),
                Parts::Commit.before(Revision(u64::MAX)),
                Parts::Base.before(base.revision),
            ],
        };
        let puts = values.into_iter().map(|(key, value)| Put { key: key.to_owned(), value }).collect();
        let transaction =
            Transaction { compares: compares.collect(), puts, deletes, ..Transaction::default() };
        match self.remote.write(transaction).await? {
            Written::Done => Ok(()),
            Written::Failed(_) => Err(PushError::Changed),
        }
    }
}

fn too_large(revision: Revision) -> PushError {
    let limit = MAX_PARTS * PART_BYTES / (1024 * 1024);
    PushError::Journal(format!("revision {revision} has more than {limit} MiB"))
}
