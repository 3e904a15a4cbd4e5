//! Shortens the history of a remote by command: no server has to run, and no lease is needed.
//!
//! A remote that is full takes only deletions. So what nobody needs any more is deleted first, and only then an older state takes the place
//! of commits.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use xds_store::{BlobHash, Revision};

use crate::chain::Head;
use crate::draft::put_parts;
use crate::follow::{Look, Trouble};
use crate::layout::{self, BASE, Base, CommitLine, MAX_PARTS, META, Parts};
use crate::remote::{Compare, Entry, Put, Read, Remote, RemoteError, Transaction, Written};
use crate::seal::StoreKeys;
use crate::state::{beginning, read_state, seal_base};

/// What a compaction did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compacted {
    /// The newest revision.
    pub head: Revision,
    /// The revision before the oldest commit that is kept now.
    pub base: Revision,
    /// How many keys were deleted.
    pub n_keys: usize,
    /// How many bytes their values had.
    pub n_bytes: u64,
    /// Why older commits could not be replaced by a state, if the remote is full.
    pub full: Option<String>,
}

/// A compaction failed. What it deleted until then, nobody needs.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// There is no history.
    #[error("the shared store is empty")]
    Empty,
    /// The state needs more parts than a state may have.
    #[error("the state has more than {MAX_PARTS} MiB")]
    TooLarge,
    /// The remote was changed at the same time.
    #[error("the shared store was changed meanwhile; try again")]
    Changed,
    /// Something there cannot be read.
    #[error("the shared store cannot be read: {0}")]
    Unreadable(String),
    /// The remote could not be read or written.
    #[error("the shared store failed: {0}")]
    Remote(#[from] RemoteError),
}

impl From<Trouble> for CompactError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Remote(error) => Self::Remote(error),
            Trouble::Moved => Self::Changed,
            trouble @ (Trouble::Diverged(_)
            | Trouble::Unreadable(_)
            | Trouble::Mirror(_)
            | Trouble::Position(_)
            | Trouble::Claimed(_)) => Self::Unreadable(trouble.to_string()),
        }
    }
}

/// Deletes what nobody needs, and all but the newest `keep` commits. Servers may run meanwhile: one that is further behind begins anew at
/// the oldest state that is kept.
///
/// # Errors
///
/// [`CompactError`].
pub async fn compact(remote: &dyn Remote, keys: &StoreKeys, keep: u64) -> Result<Compacted, CompactError> {
    let look = Look::at(remote).await?;
    let (Some(meta), Some(head)) = (&look.meta, look.head) else { return Err(CompactError::Empty) };
    let no_key = || CompactError::Unreadable("no key of --store-key-file opens it".to_owned());
    let (sealer, _) = keys.open(&meta.store, &meta.key).ok_or_else(no_key)?;
    let (base, _) = beginning(&meta.store, look.base.as_ref());
    let found = Inventory::read(remote).await?;
    let unused = found.unused(&look, head);
    let mut compacted = Compacted { head: head.revision, base, n_keys: 0, n_bytes: 0, full: None };
    delete(remote, &look, &unused.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()).await?;
    compacted.count(&unused);
    let revision = Revision(head.revision.0.saturating_sub(keep));
    if revision <= base {
        return Ok(compacted);
    }
    let store = (meta.store.as_str(), look.base.as_ref());
    let (body, chain) = read_state(remote, &sealer, store, revision).await?;
    let (packs, puts) = seal_base(&sealer, &meta.store, revision, &body).ok_or(CompactError::TooLarge)?;
    let parts: Vec<_> = puts.iter().map(|put| put.key.clone()).collect();
    let replaced = match put_parts(remote, &puts).await {
        Ok(()) => replace_base(remote, &look, &Base { revision, chain, packs }).await,
        Err(error) => Err(error.into()),
    };
    match replaced {
        Ok(()) => {
            compacted.base = revision;
            let unused: BTreeSet<_> = unused.into_iter().map(|(key, _)| key).collect();
            let is_new = |(key, _): &(String, u64)| !unused.contains(key);
            compacted.count(&found.before(revision).into_iter().filter(is_new).collect::<Vec<_>>());
        }
        Err(CompactError::Remote(RemoteError::Full(reason))) => {
            // Nothing names them, and nothing ever will.
            delete(remote, &look, &parts).await?;
            compacted.full = Some(reason);
        }
        Err(error) => return Err(error),
    }
    Ok(compacted)
}

impl Compacted {
    fn count(&mut self, deleted: &[(String, u64)]) {
        self.n_keys += deleted.len();
        self.n_bytes += deleted.iter().map(|(_, n_bytes)| n_bytes).sum::<u64>();
    }
}

/// Deletes keys, some at a time, unless the base has changed.
async fn delete(remote: &dyn Remote, look: &Look, keys: &[String]) -> Result<(), CompactError> {
    for some in keys.chunks(DELETES_AT_ONCE) {
        let deletes = some.iter().map(|key| (key.clone(), format!("{key}\0"))).collect();
        write(remote, Transaction { compares: compares(look), deletes, ..Transaction::default() }).await?;
    }
    Ok(())
}

/// Puts `base` in place of the one that was seen, and deletes what is before it.
async fn replace_base(remote: &dyn Remote, look: &Look, base: &Base) -> Result<(), CompactError> {
    let json = serde_json::to_vec(base).map_err(|error| CompactError::Unreadable(error.to_string()))?;
    let next = base.revision.next();
    let transaction = Transaction {
        compares: compares(look),
        puts: vec![Put { key: BASE.to_owned(), value: json.into() }],
        deletes: vec![
            layout::commits_before(next),
            Parts::Commit.before(next),
            Parts::Base.before(base.revision),
        ],
        ..Transaction::default()
    };
    write(remote, transaction).await
}

/// The store is still the same, and has the same base: so no revision up to the head that was seen is written again.
fn compares(look: &Look) -> Vec<Compare> {
    let [meta, _, base] = &look.values;
    let compares = [(META, meta), (BASE, base)].map(|(key, value)| match value {
        Some(value) => Compare::Value(key.to_owned(), value.clone()),
        None => Compare::Absent(key.to_owned()),
    });
    compares.into()
}

async fn write(remote: &dyn Remote, transaction: Transaction) -> Result<(), CompactError> {
    match remote.write(transaction).await? {
        Written::Done => Ok(()),
        Written::Failed(_) => Err(CompactError::Changed),
    }
}

/// The keys of commits, packs and states, with the bytes of their values.
#[derive(Default)]
struct Inventory {
    /// With the packs that each names.
    commits: BTreeMap<Revision, (u64, Vec<BlobHash>)>,
    packs: BTreeMap<String, u64>,
    states: BTreeMap<String, u64>,
}

impl Inventory {
    async fn read(remote: &dyn Remote) -> Result<Self, RemoteError> {
        let mut found = Self::default();
        each(remote, "commit/", |key, value| {
            let Some(revision) = layout::revision_of(key) else { return };
            let packs = CommitLine::parse(&value).map(|(line, _)| line.packs).unwrap_or_default();
            found.commits.insert(revision, (value.len() as u64, packs));
        })
        .await?;
        each(remote, "pack/", |key, value| {
            found.packs.insert(key.to_owned(), value.len() as u64);
        })
        .await?;
        each(remote, "state/", |key, value| {
            found.states.insert(key.to_owned(), value.len() as u64);
        })
        .await?;
        Ok(found)
    }

    /// What nobody needs: what is before the base, and parts of bodies that lost against others. Parts that somebody may be about to name are
    /// not among it: those of later commits and of later bases.
    fn unused(&self, look: &Look, head: Head) -> Vec<(String, u64)> {
        let base = look.base.as_ref().map_or(Revision::ZERO, |base| base.revision);
        let mut unused = self.before(base);
        let named = self.commits.range(base.next()..=head.revision.max(base.next()));
        let named = named
            .flat_map(|(revision, (_, packs))| packs.iter().map(|hash| Parts::Commit.key(*revision, *hash)));
        let mut named: BTreeSet<String> = named.collect();
        if let Some(base) = &look.base {
            named.extend(base.packs.iter().map(|hash| Parts::Base.key(base.revision, *hash)));
        }
        let lost =
            |(from, to): (String, String), (_, end): (String, String), keys: &BTreeMap<String, u64>| {
                debug_assert!(from < to);
                let keys = keys.range(to..end).filter(|(key, _)| !named.contains(*key));
                keys.map(|(key, n_bytes)| (key.clone(), *n_bytes)).collect::<Vec<_>>()
            };
        unused.extend(lost(
            Parts::Commit.before(base.next()),
            Parts::Commit.before(head.revision.next().max(base.next())),
            &self.packs,
        ));
        unused.extend(lost(Parts::Base.before(base), Parts::Base.before(base.next()), &self.states));
        unused
    }

    /// What a base at `base` replaces.
    fn before(&self, base: Revision) -> Vec<(String, u64)> {
        let commits = self.commits.range(..=base);
        let commits = commits.map(|(revision, (n_bytes, _))| (layout::commit_key(*revision), *n_bytes));
        let parts =
            [(Parts::Commit.before(base.next()), &self.packs), (Parts::Base.before(base), &self.states)];
        let parts = parts.into_iter().flat_map(|((from, to), keys)| keys.range(from..to));
        commits.chain(parts.map(|(key, n_bytes)| (key.clone(), *n_bytes))).collect()
    }
}

/// Reads all keys that begin with `prefix`, a few at a time.
async fn each(
    remote: &dyn Remote,
    prefix: &str,
    mut take: impl FnMut(&str, Bytes),
) -> Result<(), RemoteError> {
    let mut from = prefix.to_owned();
    loop {
        let read = Read { from, to: Some(prefix.replace('/', "0")), limit: PAGE };
        let found: Vec<Entry> = remote.read(vec![read]).await?.into_iter().flatten().collect();
        let Some(last) = found.last() else { return Ok(()) };
        from = format!("{}\0", last.key);
        found.into_iter().for_each(|Entry { key, value }| take(&key, value));
    }
}

/// Keys that are read at once: their values have 1 MiB at most.
const PAGE: usize = 8;

/// Keys that are deleted at once. etcd takes 128 operations by default.
const DELETES_AT_ONCE: usize = 100;
