//! How a mirror catches up with the remote.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;
use xds_store::{
    Beginning, BlobHash, Commit, Health, Record, RemoteFailure, Revision, Store as _, StoreError,
};

use crate::body::Body;
use crate::chain::{ChainHash, Head};
use crate::draft::{PARTS_AT_ONCE, random_id};
use crate::end;
use crate::judge::{Divergence, Own, Shown, Verdict, judge};
use crate::layout::{self, BASE, Base, CommitLine, FORMAT, HEAD, META, Meta, Parts};
use crate::position::{self, Position, PositionError};
use crate::remote::{Compare, Entry, Put, Read, Remote, RemoteError, Transaction};
use crate::replica::{Shared, Tail};
use crate::seal::Sealer;

/// Why a mirror did not catch up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("it cannot be read: {0}")]
    Remote(#[from] RemoteError),
    #[error("{0}")]
    Diverged(Divergence),
    /// Something there is not what this release, or this key, can read.
    #[error("{0}")]
    Unreadable(String),
    #[error("the copy of it cannot be written: {}", chain(.0))]
    Mirror(#[from] StoreError),
    #[error("the copy of it cannot be written: {}", chain(.0))]
    Position(#[from] PositionError),
    /// Something was removed while it was read.
    #[error("commits that it names are missing")]
    Moved,
    /// There is no store, and servers that have one have said so.
    #[error("it is empty, and no other store is founded in its place: {0}")]
    Claimed(String),
}

impl Trouble {
    /// The error of a caller that waits for the remote.
    pub(crate) fn into_failure(self) -> StoreError {
        let failure = match self {
            Self::Mirror(error) => return error,
            Self::Remote(RemoteError::Refused(reason)) => RemoteFailure::Refused(reason),
            Self::Remote(error) => RemoteFailure::Unreachable(error.to_string()),
            Self::Diverged(divergence) => RemoteFailure::Diverged(divergence.to_string()),
            Self::Position(_) | Self::Unreadable(_) | Self::Moved | Self::Claimed(_) => {
                RemoteFailure::Diverged(self.to_string())
            }
        };
        failure.into()
    }
}

/// Catches up at each hint, and now and then without one.
pub(crate) async fn follow(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.remote.hint() => {}
            () = tokio::time::sleep(jittered(shared.options.poll)) => {}
        }
        let mut tail = shared.tail.lock().await;
        let caught_up = shared.catch_up(&mut tail).await;
        shared.tell(&mut tail, &caught_up).await;
    }
}

/// Saves the position whenever it has moved.
pub(crate) async fn save(shared: Arc<Shared>) {
    let mut moved = shared.moved.subscribe();
    while moved.changed().await.is_ok() {
        let _saving = shared.saving.lock().await;
        let Some(position) = moved.borrow_and_update().clone() else { continue };
        let dir = shared.dir.clone();
        let saved = tokio::task::spawn_blocking(move || position::write(&dir, &[&position])).await;
        if let Ok(Err(error)) = saved {
            tracing::warn!(error = chain(&error), "the place of the copy in the history could not be saved");
        }
    }
}

/// What the remote has, read at one moment.
pub(crate) struct Look {
    pub(crate) meta: Option<Meta>,
    pub(crate) head: Option<Head>,
    pub(crate) base: Option<Base>,
    /// The values of the three, in this order.
    pub(crate) values: [Option<Bytes>; 3],
    /// Where the servers are that do not follow, by their ids.
    ends: BTreeMap<String, Position>,
}

impl Shared {
    /// Takes in everything that the remote has and the mirror lacks.
    pub(crate) async fn catch_up(&self, tail: &mut Tail) -> Result<(), Trouble> {
        for _ in 0..MAX_TRIES {
            match self.catch_up_once(tail).await {
                Err(Trouble::Moved) => {}
                done => return done,
            }
        }
        Err(Trouble::Moved)
    }

    /// Keeps what catching up came to, and tells the news, to the remote too: whoever starts a moment later must not found another store.
    pub(crate) async fn tell(&self, tail: &mut Tail, caught_up: &Result<(), Trouble>) {
        tail.divergence = match caught_up {
            Err(Trouble::Diverged(divergence)) => Some(divergence.clone()),
            Ok(()) => None,
            // What diverged once still does as long as nothing else is seen.
            Err(_) => tail.divergence.take(),
        };
        let health = match caught_up {
            Ok(()) => match &tail.strangers {
                None => {
                    self.confirmed.send_replace(Some(Instant::now()));
                    Health::Current
                }
                Some(strangers) => {
                    let remote = self.options.role.remote();
                    Health::Apart(format!(
                        "{remote} may not be the one that clients were served from: {strangers}"
                    ))
                }
            },
            Err(trouble) => {
                Health::Apart(format!("{} is not followed: {trouble}", self.options.role.remote()))
            }
        };
        self.health.send_if_modified(|known| {
            let is_news = *known != health;
            if is_news {
                match &health {
                    Health::Current => tracing::info!("{} is followed", self.options.role.remote()),
                    Health::Apart(reason) => tracing::warn!(reason, "the last known state stays"),
                }
                *known = health;
            }
            is_news
        });
        self.say_end(tail).await;
    }

    /// Says in the remote where the history of this server ends, as long as the remote has another one or none: whoever decides that the
    /// remote is right needs a revision after all that were given out, and nobody founds another store meanwhile.
    async fn say_end(&self, tail: &mut Tail) {
        let is_apart = tail.divergence.is_some();
        let (Some((id, _)), Some(position)) = (&self.options.member, &tail.position) else { return };
        if !is_apart && !tail.may_have_said_end {
            return;
        }
        let said = end::say(&*self.remote, id, is_apart.then_some(position)).await;
        match said {
            Ok(()) => tail.may_have_said_end = is_apart,
            // The next poll tries again.
            Err(error) => tracing::debug!(%error, "the shared store could not be told where this server is"),
        }
    }

    async fn catch_up_once(&self, tail: &mut Tail) -> Result<(), Trouble> {
        let look = Look::at(&*self.remote).await?;
        let shown = match (&look.meta, look.head) {
            (Some(meta), Some(head)) => Some((meta, head)),
            _ => None,
        };
        let base = look.base.as_ref();
        let base_revision = base.map_or(Revision::ZERO, |base| base.revision);
        let own = tail.position.as_ref().map(|own| Own { store: &own.store, head: own.head });
        let shown_to_judge = shown.map(|(meta, head)| Shown {
            store: &meta.store,
            head,
            base: base_revision,
            chain_at_own: own.and_then(|own| look.chain_at(own.head, &meta.store)),
        });
        match (judge(own, shown_to_judge), shown) {
            (Verdict::Stay(divergence), _) => return Err(Trouble::Diverged(divergence)),
            (Verdict::BeginAtBase | Verdict::Follow, None) => {
                if let Some(others) = self.others(&look, None) {
                    return Err(Trouble::Claimed(others));
                }
                self.create().await?;
                return Err(Trouble::Moved);
            }
            (Verdict::BeginAtBase, Some((meta, head))) => {
                self.unseal(tail, meta, look.values[0].as_ref()).await?;
                self.begin(tail, meta, head, base).await?;
            }
            (Verdict::Follow, Some((meta, _))) => {
                self.unseal(tail, meta, look.values[0].as_ref()).await?;
            }
        }
        tail.base = base_revision;
        tail.strangers = shown.and_then(|(meta, _)| self.others(&look, Some(&meta.store)));
        let Some((_, head)) = shown else { return Ok(()) };
        while tail.position.as_ref().is_some_and(|own| own.head.revision < head.revision) {
            self.take_page(tail, head.revision).await?;
        }
        // Only now everything is known to link.
        if let Some(position) = &mut tail.position {
            position.head.epoch = head.epoch;
        }
        self.moved.send_if_modified(|moved| {
            let is_news = *moved != tail.position;
            if is_news {
                moved.clone_from(&tail.position);
            }
            is_news
        });
        Ok(())
    }

    /// The other servers that have said that they have the history of another store than `store`; `None` if there are none.
    fn others(&self, look: &Look, store: Option<&str>) -> Option<String> {
        let own = self.options.member.as_ref().map(|(id, _)| id);
        let others = look.ends.iter().filter(|(id, end)| own != Some(*id) && store != Some(&*end.store));
        let shown = others.take(MAX_SHOWN).map(|(id, end)| {
            format!("server {id} has the history of store {} up to revision {}", end.store, end.head.revision)
        });
        let shown: Vec<String> = shown.collect();
        let advice = "see docs/replicas.md, \"When a server does not follow\"";
        (!shown.is_empty()).then(|| format!("{}; {advice}", shown.join(", ")))
    }

    /// Makes an empty store, unless someone else does.
    async fn create(&self) -> Result<(), Trouble> {
        let no_numbers = || Trouble::Unreadable("the system has no random numbers".to_owned());
        let store = random_id().ok_or_else(no_numbers)?;
        let (_, key) = self.keys.make(&store).ok_or_else(no_numbers)?;
        let head = Head {
            epoch: 1,
            revision: Revision::ZERO,
            chain: ChainHash::of_beginning(&store, Revision::ZERO),
        };
        let meta = Meta { store, format: FORMAT, key };
        let meta = serde_json::to_vec(&meta).map_err(|error| Trouble::Unreadable(error.to_string()))?;
        let transaction = Transaction {
            compares: vec![Compare::Absent(META.to_owned()), Compare::Absent(HEAD.to_owned())],
            puts: vec![
                Put { key: META.to_owned(), value: meta.into() },
                Put { key: HEAD.to_owned(), value: head.encode() },
            ],
            ..Transaction::default()
        };
        self.remote.write(transaction).await?;
        Ok(())
    }

    /// Opens the data key, and seals it by the first store key if another one did. `value` is where `meta` was read.
    async fn unseal(&self, tail: &mut Tail, meta: &Meta, value: Option<&Bytes>) -> Result<(), Trouble> {
        let value = value.ok_or(Trouble::Moved)?;
        if tail.sealer.as_ref().is_some_and(|(known, _)| known == value) {
            return Ok(());
        }
        let Some((sealer, renewed)) = self.keys.open(&meta.store, &meta.key) else {
            return Err(Trouble::Unreadable("no key of --store-key-file opens it".to_owned()));
        };
        tail.sealer = Some((value.clone(), sealer.clone()));
        if let Some(key) = renewed {
            let renewed = serde_json::to_vec(&Meta { key, ..meta.clone() });
            let renewed = Bytes::from(renewed.map_err(|error| Trouble::Unreadable(error.to_string()))?);
            let transaction = Transaction {
                compares: vec![Compare::Value(META.to_owned(), value.clone())],
                puts: vec![Put { key: META.to_owned(), value: renewed.clone() }],
                ..Transaction::default()
            };
            self.remote.write(transaction).await?;
            tail.sealer = Some((renewed, sealer));
        }
        Ok(())
    }

    /// Replaces the mirror by the base.
    async fn begin(
        &self,
        tail: &mut Tail,
        meta: &Meta,
        head: Head,
        base: Option<&Base>,
    ) -> Result<(), Trouble> {
        let chain =
            base.map_or_else(|| ChainHash::of_beginning(&meta.store, Revision::ZERO), |base| base.chain);
        let revision = base.map_or(Revision::ZERO, |base| base.revision);
        let position =
            Position { store: meta.store.clone(), head: Head { epoch: head.epoch, revision, chain } };
        // A place of the journal that is replaced must not be saved any more.
        let _saving = self.saving.lock().await;
        let (dir, new, old) = (self.dir.clone(), position.clone(), tail.position.clone());
        let positions = move || position::write(&dir, &std::iter::once(&new).chain(&old).collect::<Vec<_>>());
        let saved = tokio::task::spawn_blocking(positions).await;
        saved.map_err(|_| StoreError::Closed)??;
        if let (Some(base), Some((_, sealer))) = (base.filter(|base| !base.packs.is_empty()), &tail.sealer) {
            let (state, blobs) = read_base(&*self.remote, sealer, &meta.store, base).await?;
            let state = state.into_iter().map(|(key, hash)| (Arc::from(key), hash)).collect();
            self.mirror.begin_at(Beginning { revision, state, blobs }).await?;
            tracing::warn!(revision = revision.0, "the copy begins anew at the oldest state that is kept");
        }
        self.moved.send_replace(Some(position.clone()));
        tail.position = Some(position);
        Ok(())
    }

    /// Takes in some commits after the mirror's end, up to `end`: what is behind that may be left from a push that failed.
    async fn take_page(&self, tail: &mut Tail, end: Revision) -> Result<(), Trouble> {
        let (Some(position), Some((_, sealer))) = (tail.position.clone(), tail.sealer.clone()) else {
            return Err(Trouble::Moved);
        };
        let mut head = position.head;
        let page = self.remote.read(vec![layout::commits_from(head.revision.next(), PAGE)]).await?;
        let page = page.into_iter().next().unwrap_or_default();
        if page.is_empty() {
            return Err(Trouble::Moved);
        }
        let mut batch = Batch::empty_at(head);
        for Entry { key, value } in page {
            if head.revision == end {
                break;
            }
            if key != layout::commit_key(head.revision.next()) {
                return Err(Trouble::Moved);
            }
            let at = (position.store.as_str(), head);
            let (commit, blobs, next) = read_commit(&*self.remote, &sealer, at, (&key, &value)).await?;
            head = next;
            batch.n_bytes += blobs.iter().map(Bytes::len).sum::<usize>();
            batch.blobs.extend(blobs);
            batch.commits.push(commit);
            batch.end = head;
            if batch.n_bytes > MAX_BATCH_BYTES {
                self.apply(tail, std::mem::replace(&mut batch, Batch::empty_at(head))).await?;
            }
        }
        self.apply(tail, batch).await
    }

    /// Appends commits to the mirror, with one sync.
    async fn apply(&self, tail: &mut Tail, batch: Batch) -> Result<(), Trouble> {
        self.mirror.put_blobs(batch.blobs).await?;
        let commits = batch.commits.into_iter().enumerate().map(|(index, commit)| {
            self.mirror.commit(Revision(batch.expected.revision.0 + index as u64), commit)
        });
        for committed in join_all(commits).await {
            match committed {
                Ok(_) => {}
                Err(xds_store::CommitError::Store(error)) => return Err(error.into()),
                Err(error) => {
                    return Err(Trouble::Unreadable(format!("a commit cannot be taken in: {error}")));
                }
            }
        }
        self.go_to(tail, batch.end);
        Ok(())
    }
}

impl Look {
    pub(crate) async fn at(remote: &dyn Remote) -> Result<Self, Trouble> {
        let keys = [META, HEAD, BASE].map(Read::key).into_iter();
        let mut found = remote.read(keys.chain([end::read()]).collect()).await?.into_iter();
        let mut next = || found.next()?.into_iter().next().map(|entry| entry.value);
        let values = [next(), next(), next()];
        let ends = end::parse(&found.next().unwrap_or_default());
        let [meta, head, base] = &values;
        Ok(Self {
            meta: parse("meta", meta.as_ref(), |value| {
                let meta: Option<Meta> = serde_json::from_slice(value).ok();
                meta.filter(|meta| meta.format == FORMAT)
            })?,
            head: parse("head", head.as_ref(), |value| Head::parse(value))?,
            base: parse("base", base.as_ref(), |value| serde_json::from_slice(value).ok())?,
            values,
            ends,
        })
    }

    /// The chain at `own`, the end of the mirror, if that is kept. Where a commit follows it, this says what links to the mirror: the
    /// commit names the chain before it, and is taken only if that is so.
    fn chain_at(&self, own: Head, store: &str) -> Option<ChainHash> {
        let base = match &self.base {
            Some(base) => (base.revision, base.chain),
            None => (Revision::ZERO, ChainHash::of_beginning(store, Revision::ZERO)),
        };
        let head = self.head.map(|head| (head.revision, head.chain))?;
        if (base.0.next().0..head.0.0).contains(&own.revision.0) {
            return Some(own.chain);
        }
        let known = [base, head].into_iter().find(|(at, _)| *at == own.revision);
        known.map(|(_, chain)| chain)
    }
}

/// Reads the commit after `head` of `store` from its entry. Returns it, the contents that it names, and the head after it.
pub(crate) async fn read_commit(
    remote: &dyn Remote,
    sealer: &Sealer,
    (store, head): (&str, Head),
    (key, value): (&str, &Bytes),
) -> Result<(Commit, Vec<Bytes>, Head), Trouble> {
    let Some((line, inline)) = CommitLine::parse(value) else {
        return Err(Trouble::Unreadable(format!("{key} is not a commit")));
    };
    let revision = head.revision.next();
    if line.previous != head.chain {
        return Err(Trouble::Diverged(Divergence::Forked { own: head.revision, shown: revision }));
    }
    let sealed = match line.packs.as_slice() {
        [] => inline.to_vec(),
        packs => parts(remote, Parts::Commit, revision, packs).await?,
    };
    let body = open(sealer, &layout::place(Parts::Commit, store, revision), &sealed)?;
    let commit: Commit = serde_json::from_slice(&body.text).map_err(|error| unreadable(key, &error))?;
    let record = Record { revision, commit, previous: Vec::new() };
    let next = head.next(&record);
    if next.chain != line.chain {
        return Err(Trouble::Unreadable(format!("{key} is not what its hash says")));
    }
    Ok((record.commit, body.blobs, next))
}

/// Reads the state of a base, and its contents.
pub(crate) async fn read_base(
    remote: &dyn Remote,
    sealer: &Sealer,
    store: &str,
    base: &Base,
) -> Result<(BTreeMap<String, BlobHash>, Vec<Bytes>), Trouble> {
    let sealed = parts(remote, Parts::Base, base.revision, &base.packs).await?;
    let place = layout::place(Parts::Base, store, base.revision);
    let body = open(sealer, &place, &sealed)?;
    let state = serde_json::from_slice(&body.text).map_err(|error| unreadable(&place, &error))?;
    Ok((state, body.blobs))
}

/// Reads the parts of a body.
async fn parts(
    remote: &dyn Remote,
    kind: Parts,
    revision: Revision,
    hashes: &[BlobHash],
) -> Result<Vec<u8>, Trouble> {
    let mut sealed = Vec::new();
    for some in hashes.chunks(PARTS_AT_ONCE) {
        let reads = some.iter().map(|hash| Read::key(kind.key(revision, *hash))).collect();
        let found = remote.read(reads).await?;
        for (hash, entries) in some.iter().zip(found) {
            let Some(entry) = entries.into_iter().next() else { return Err(Trouble::Moved) };
            if BlobHash::of(&entry.value) != *hash {
                return Err(Trouble::Unreadable(format!("{} is not what its hash says", entry.key)));
            }
            sealed.extend_from_slice(&entry.value);
        }
    }
    Ok(sealed)
}

/// Commits that are appended together.
struct Batch {
    /// Where they are appended.
    expected: Head,
    /// Where they end.
    end: Head,
    commits: Vec<Commit>,
    blobs: Vec<Bytes>,
    n_bytes: usize,
}

impl Batch {
    const fn empty_at(head: Head) -> Self {
        Self { expected: head, end: head, commits: Vec::new(), blobs: Vec::new(), n_bytes: 0 }
    }
}

/// Decrypts and decompresses a body.
fn open(sealer: &Sealer, place: &str, sealed: &[u8]) -> Result<Body, Trouble> {
    let plain = sealer.open(place, sealed);
    let plain =
        plain.ok_or_else(|| Trouble::Unreadable(format!("{place} was changed, or sealed by another key")))?;
    Body::decode(&plain).map_err(|error| unreadable(place, &error))
}

fn parse<T>(
    what: &str,
    value: Option<&Bytes>,
    read: impl FnOnce(&Bytes) -> Option<T>,
) -> Result<Option<T>, Trouble> {
    let Some(value) = value else { return Ok(None) };
    let read = read(value);
    read.map(Some).ok_or_else(|| {
        Trouble::Unreadable(format!(
            "{what} was not written by a release of xds-server that this one understands"
        ))
    })
}

fn unreadable(place: &str, error: &dyn Error) -> Trouble {
    Trouble::Unreadable(format!("{place} cannot be read: {}", chain(error)))
}

/// An error and its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    // Some errors say the same again as their cause.
    texts.dedup();
    texts.join(": ")
}

/// `duration`, a fifth more or less.
pub(crate) fn jittered(duration: Duration) -> Duration {
    let mut byte = [128];
    // Without random numbers it is not jittered.
    let _ = SystemRandom::new().fill(&mut byte);
    duration.mul_f64(0.8 + 0.4 * f64::from(byte[0]) / 255.0)
}

/// Commits that are read at once, each with at most 256 KiB inline: 8 MiB.
pub(crate) const PAGE: usize = 32;

/// Bytes of contents that are put before they are committed.
const MAX_BATCH_BYTES: usize = 32 * 1024 * 1024;

/// Servers that a message names.
const MAX_SHOWN: usize = 10;

/// How often reading begins again because something was removed meanwhile.
const MAX_TRIES: usize = 5;
