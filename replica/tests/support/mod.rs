//! A remote in memory that loses, repeats and delays as it is told, and what tests do with replicas.

#![allow(dead_code, reason = "each test uses some of it")]
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use xds_replica::{
    Compare, Entry, Lease, Options, Put, Read, Remote, RemoteError, Replica, StoreKeys, Transaction, Written,
};
use xds_store::{BoxFuture, Change, Commit, CommitError, Retention, Revision, Store};

/// What several links share.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) entries: Mutex<BTreeMap<String, Bytes>>,
    /// Transactions that take effect later.
    late: Mutex<Vec<Transaction>>,
    news: Mutex<Vec<Arc<Notify>>>,
    pub(crate) is_full: AtomicBool,
    leases: Mutex<Leases>,
}

/// Which leases there are, until when, and their keys.
#[derive(Debug, Default)]
struct Leases {
    n_granted: i64,
    ends: BTreeMap<i64, (Duration, tokio::time::Instant)>,
    keys: BTreeMap<String, i64>,
}

impl Shelf {
    /// Deletes the keys of leases that have ended.
    fn expire(&self) {
        let now = tokio::time::Instant::now();
        let mut leases = self.leases.lock().unwrap();
        leases.ends.retain(|_, (_, end)| *end > now);
        let Leases { ends, keys, .. } = &mut *leases;
        let mut entries = self.entries.lock().unwrap();
        keys.retain(|key, lease| {
            let lasts = ends.contains_key(lease);
            if !lasts {
                entries.remove(key);
            }
            lasts
        });
    }

    pub(crate) fn copy(&self) -> BTreeMap<String, Bytes> {
        self.entries.lock().unwrap().clone()
    }

    pub(crate) fn set(&self, entries: BTreeMap<String, Bytes>) {
        *self.entries.lock().unwrap() = entries;
    }

    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        self.entries.lock().unwrap().keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    fn apply(&self, transaction: &Transaction) -> Written {
        self.expire();
        let mut leases = self.leases.lock().unwrap();
        let mut entries = self.entries.lock().unwrap();
        let holds = |compare: &Compare| match compare {
            Compare::Value(key, value) => entries.get(key) == Some(value),
            Compare::Absent(key) => !entries.contains_key(key),
        };
        if !transaction.compares.iter().all(holds) {
            return Written::Failed(
                transaction.otherwise.iter().map(|key| entries.get(key).cloned()).collect(),
            );
        }
        for (from, to) in &transaction.deletes {
            entries.retain(|key, _| key < from || key >= to);
            leases.keys.retain(|key, _| key < from || key >= to);
        }
        for (Lease(lease), Put { key, value }) in &transaction.leased {
            entries.insert(key.clone(), value.clone());
            leases.keys.insert(key.clone(), *lease);
        }
        for Put { key, value } in &transaction.puts {
            assert!(value.len() <= 1_500_000, "etcd would refuse {key} with {} bytes", value.len());
            entries.insert(key.clone(), value.clone());
        }
        drop(entries);
        self.news.lock().unwrap().iter().for_each(|news| news.notify_one());
        Written::Done
    }

    /// Lets transactions take effect that were kept back.
    fn apply_late(&self, all: bool) {
        let late = {
            let mut late = self.late.lock().unwrap();
            let n = if all { late.len() } else { late.len().min(1) };
            late.drain(..n).collect::<Vec<_>>()
        };
        late.iter().for_each(|transaction| drop(self.apply(transaction)));
    }
}

/// The way of one replica to the shelf.
#[derive(Debug)]
pub(crate) struct Link {
    shelf: Arc<Shelf>,
    news: Arc<Notify>,
    random: Mutex<u64>,
    /// Calls in a hundred that go wrong.
    pub(crate) faults: AtomicU32,
    pub(crate) is_cut: AtomicBool,
    /// Calls that change something take effect, and are not answered.
    pub(crate) is_deaf: AtomicBool,
}

impl Link {
    pub(crate) fn new(shelf: &Arc<Shelf>, seed: u64) -> Arc<Self> {
        let news = Arc::<Notify>::default();
        shelf.news.lock().unwrap().push(Arc::clone(&news));
        Arc::new(Self {
            shelf: Arc::clone(shelf),
            news,
            random: Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            faults: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
        })
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// The next number below `n`.
    pub(crate) fn random(&self, n: u32) -> u32 {
        let mut state = self.random.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 33) as u32 % n
    }

    fn is_faulty(&self) -> bool {
        self.random(100) < self.faults.load(Ordering::SeqCst)
    }

    async fn enter(&self) -> Result<(), RemoteError> {
        for _ in 0..self.random(4) {
            tokio::task::yield_now().await;
        }
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(RemoteError::Unreachable("the link is cut".to_owned())),
            false => Ok(()),
        }
    }
}

fn silent() -> RemoteError {
    RemoteError::Silent("no answer".to_owned())
}

impl Remote for Link {
    fn read(&self, reads: Vec<Read>) -> BoxFuture<'_, Result<Vec<Vec<Entry>>, RemoteError>> {
        Box::pin(async move {
            self.enter().await?;
            if self.is_faulty() {
                return Err(silent());
            }
            self.shelf.expire();
            let entries = self.shelf.entries.lock().unwrap();
            let answers = reads.iter().map(|read| {
                let end = read.to.clone().unwrap_or_else(|| format!("{}\0", read.from));
                let limit = if read.limit == 0 { usize::MAX } else { read.limit };
                let found = entries.range(read.from.clone()..end).take(limit);
                found.map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect()
            });
            Ok(answers.collect())
        })
    }

    fn write(&self, transaction: Transaction) -> BoxFuture<'_, Result<Written, RemoteError>> {
        Box::pin(async move {
            self.enter().await?;
            if self.random(3) == 0 {
                self.shelf.apply_late(false);
            }
            let adds = !transaction.puts.is_empty() || !transaction.leased.is_empty();
            if adds && self.shelf.is_full.load(Ordering::SeqCst) {
                return Err(RemoteError::Full("no space".to_owned()));
            }
            if self.is_deaf.load(Ordering::SeqCst) {
                self.shelf.apply(&transaction);
                return Err(silent());
            }
            if !self.is_faulty() {
                return Ok(self.shelf.apply(&transaction));
            }
            match self.random(4) {
                0 => Err(RemoteError::Unreachable("lost on the way".to_owned())),
                1 => Err(silent()),
                2 => {
                    self.shelf.apply(&transaction);
                    Err(silent())
                }
                _ => {
                    self.shelf.late.lock().unwrap().push(transaction);
                    Err(silent())
                }
            }
        })
    }

    fn hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.news.notified().await;
            if self.is_cut.load(Ordering::SeqCst) || self.is_faulty() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, RemoteError>> {
        Box::pin(async move {
            self.enter().await?;
            let mut leases = self.shelf.leases.lock().unwrap();
            leases.n_granted += 1;
            let id = leases.n_granted;
            leases.ends.insert(id, (ttl, tokio::time::Instant::now() + ttl));
            Ok(Lease(id))
        })
    }

    fn keep_alive(&self, lease: Lease) -> BoxFuture<'_, Result<bool, RemoteError>> {
        Box::pin(async move {
            self.enter().await?;
            self.shelf.expire();
            let mut leases = self.shelf.leases.lock().unwrap();
            let prolonged = leases.ends.get_mut(&lease.0);
            Ok(prolonged.map(|(ttl, end)| *end = tokio::time::Instant::now() + *ttl).is_some())
        })
    }

    fn revoke(&self, lease: Lease) -> BoxFuture<'_, Result<(), RemoteError>> {
        Box::pin(async move {
            self.enter().await?;
            self.shelf.leases.lock().unwrap().ends.remove(&lease.0);
            self.shelf.expire();
            Ok(())
        })
    }
}

/// Everything late takes effect, and nothing goes wrong any more.
pub(crate) fn heal(shelf: &Shelf, links: &[Arc<Link>]) {
    shelf.apply_late(true);
    for link in links {
        link.faults.store(0, Ordering::SeqCst);
        link.is_deaf.store(false, Ordering::SeqCst);
        link.cut(false);
    }
}

pub(crate) fn keys() -> StoreKeys {
    StoreKeys::parse(&"5a".repeat(32)).unwrap()
}

pub(crate) fn quick() -> Options {
    Options {
        retention: Retention::default(),
        timeout: Duration::from_millis(300),
        poll: Duration::from_millis(20),
        patience: Duration::from_millis(600),
        ..Options::default()
    }
}

pub(crate) async fn open(dir: &Path, link: &Arc<Link>, options: Options) -> Replica {
    Replica::open(dir, Arc::clone(link) as Arc<dyn Remote>, keys(), options).await.unwrap().0
}

/// Sets `key` after whatever is there now; conflicts are tried again.
pub(crate) async fn set(
    store: &dyn Store,
    key: &str,
    value: impl Into<Bytes>,
) -> Result<Revision, CommitError> {
    let value = value.into();
    loop {
        match try_set(store, key, value.clone()).await {
            Err(CommitError::Conflict { .. }) => tokio::task::yield_now().await,
            done => return done,
        }
    }
}

pub(crate) async fn try_set(store: &dyn Store, key: &str, value: Bytes) -> Result<Revision, CommitError> {
    let expected = store.head();
    let hash = store.put_blob(value).await?;
    let changes = vec![Change::set(key, hash)];
    store.commit(expected, Commit { actor: "test".to_owned(), changes, ..Commit::default() }).await
}

pub(crate) fn value(store: &dyn Store, key: &str) -> Option<Bytes> {
    let hash = *store.state().1.get(key)?;
    store.blob(hash).unwrap()
}

/// Waits until `is_so`.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
