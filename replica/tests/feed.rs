//! Servers that only follow another one, by its feed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use xds_replica::{Entry, Feed, Lease, Options, Read, Remote, RemoteError, Replica, Transaction, Written};
use xds_store::{BoxFuture, Health, JournalStore, Retention, Revision, Store};

use crate::support::{Link, Shelf, eventually, open, quick, set, value};

/// The way of a follower to the server that it follows.
#[derive(Debug, Default)]
struct Way {
    feed: Mutex<Option<Arc<Feed>>>,
    n_commits_read: AtomicU64,
    n_states_read: AtomicU64,
    is_faulty: AtomicBool,
    random: AtomicU64,
}

impl Way {
    fn to(feed: Option<Arc<Feed>>) -> Arc<Self> {
        Arc::new(Self { feed: Mutex::new(feed), ..Self::default() })
    }

    fn lead(&self, feed: Option<Arc<Feed>>) {
        *self.feed.lock().unwrap() = feed;
    }
}

fn refused<T>() -> BoxFuture<'static, Result<T, RemoteError>> {
    Box::pin(async { Err(RemoteError::Refused("a follower only reads".to_owned())) })
}

impl Remote for Way {
    fn read(&self, reads: Vec<Read>) -> BoxFuture<'_, Result<Vec<Vec<Entry>>, RemoteError>> {
        Box::pin(async move {
            let away = || RemoteError::Unreachable("the server is away".to_owned());
            if self.is_faulty.load(Ordering::SeqCst) {
                let random = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
                if (random >> 40).is_multiple_of(3) {
                    return Err(away());
                }
            }
            let feed = self.feed.lock().unwrap().clone().ok_or_else(away)?;
            let found = feed.read(&reads).map_err(|error| RemoteError::Silent(error.to_string()))?;
            let n_below = |prefix: &str| {
                found.iter().flatten().filter(|one| one.key.starts_with(prefix)).count() as u64
            };
            if reads.len() == 1 {
                self.n_commits_read.fetch_add(n_below("commit/"), Ordering::SeqCst);
                self.n_states_read.fetch_add(n_below("state/"), Ordering::SeqCst);
            }
            Ok(found)
        })
    }

    fn write(&self, _: Transaction) -> BoxFuture<'_, Result<Written, RemoteError>> {
        refused()
    }

    fn hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn grant(&self, _: Duration) -> BoxFuture<'_, Result<Lease, RemoteError>> {
        refused()
    }

    fn keep_alive(&self, _: Lease) -> BoxFuture<'_, Result<bool, RemoteError>> {
        refused()
    }

    fn revoke(&self, _: Lease) -> BoxFuture<'_, Result<(), RemoteError>> {
        refused()
    }
}

fn keeping(revisions: u64) -> Retention {
    Retention { revisions, ..Retention::default() }
}

fn journal(dir: &Path, retention: Retention) -> Arc<dyn Store> {
    Arc::new(JournalStore::open(dir, xds_store::Options::keeping(retention)).unwrap().0)
}

fn feed_of(dir: &Path, store: &Arc<dyn Store>) -> Arc<Feed> {
    Arc::new(Feed::of_journal(dir, Arc::clone(store)).unwrap())
}

async fn follow(dir: &Path, way: &Arc<Way>, options: Options) -> Replica {
    Replica::follow(dir, Arc::clone(way) as Arc<dyn Remote>, options).await.unwrap().0
}

fn why(store: &dyn Store) -> String {
    match &*store.health().borrow() {
        Health::Apart(why) => why.clone(),
        Health::Current => String::new(),
    }
}

/// Waits until both have the same at the same revision.
async fn is_same(follower: &dyn Store, followed: &dyn Store) {
    let same =
        eventually("the newest revision", || follower.head() == followed.head() && why(follower).is_empty());
    tokio::select! {
        () = same => {}
        () = tokio::time::sleep(Duration::from_secs(20)) => panic!("{} {} {}", why(follower), follower.head(), followed.head()),
    }
    assert_eq!(follower.state(), followed.state());
    for key in followed.state().1.keys() {
        assert_eq!(value(follower, key), value(followed, key), "{key}");
    }
}

/// Closes a journal.
async fn closed(store: Arc<dyn Store>, dir: &Path) {
    drop(store);
    eventually("the end of the journal", || JournalStore::open(dir, xds_store::Options::default()).is_ok())
        .await;
}

#[tokio::test]
async fn a_follower_has_the_history_serves_without_its_server_and_reads_only_what_it_lacks() {
    let [core, edge] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let store = journal(core.path(), Retention::default());
    for n in 0..5 {
        set(&*store, &format!("key {n}"), n.to_string()).await.unwrap();
    }
    let way = Way::to(Some(feed_of(core.path(), &store)));
    let follower = follow(edge.path(), &way, quick()).await;
    is_same(&follower, &*store).await;
    assert_eq!(follower.history(None, 100).unwrap(), store.history(None, 100).unwrap());
    assert!(set(&follower, "key", "own").await.is_err(), "it only follows");
    assert_eq!(follower.head(), Revision(5));

    way.lead(None);
    eventually("the news", || why(&follower).contains("the server is away")).await;
    follower.close().await;
    let follower = follow(edge.path(), &way, quick()).await;
    assert_eq!(value(&follower, "key 4"), Some(Bytes::from("4")));

    // The server starts again too, and goes on.
    closed(store, core.path()).await;
    let store = journal(core.path(), Retention::default());
    for n in 5..8 {
        set(&*store, &format!("key {n}"), n.to_string()).await.unwrap();
    }
    let before = way.n_commits_read.load(Ordering::SeqCst);
    way.lead(Some(feed_of(core.path(), &store)));
    is_same(&follower, &*store).await;
    assert_eq!(way.n_commits_read.load(Ordering::SeqCst) - before, 3, "nothing that it has");
    assert_eq!(way.n_states_read.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_follower_that_was_away_for_too_long_begins_at_the_oldest_state_that_is_kept() {
    let [core, edge, fresh] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let store = journal(core.path(), keeping(10));
    set(&*store, "first", "1").await.unwrap();
    let feed = feed_of(core.path(), &store);
    let tending = tokio::spawn(Arc::clone(&feed).tend());
    let way = Way::to(Some(Arc::clone(&feed)));
    let follower = follow(edge.path(), &way, quick()).await;
    is_same(&follower, &*store).await;
    way.lead(None);
    for n in 0..200 {
        set(&*store, &format!("key {}", n % 7), n.to_string()).await.unwrap();
    }
    store.compact(keeping(10)).await.unwrap();
    assert!(store.oldest() > Revision(100));
    // The chain goes on over a start of the server.
    feed.read(&[]).unwrap();
    tending.abort();
    let _ = tending.await;
    drop(feed);
    closed(store, core.path()).await;
    let store = journal(core.path(), keeping(10));
    way.lead(Some(feed_of(core.path(), &store)));
    let new = follow(fresh.path(), &way, quick()).await;
    for one in [&follower, &new] {
        is_same(one, &*store).await;
        assert_eq!(value(one, "first"), Some(Bytes::from("1")));
    }
    assert_eq!(new.history(None, 100).unwrap(), store.history(None, 100).unwrap());
    set(&*store, "last", "1").await.unwrap();
    is_same(&follower, &*store).await;
}

#[tokio::test]
async fn a_follower_stays_as_it_is_if_its_server_has_another_history() {
    let [core, other, edge] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let store = journal(core.path(), Retention::default());
    set(&*store, "a", "1").await.unwrap();
    let way = Way::to(Some(feed_of(core.path(), &store)));
    let follower = follow(edge.path(), &way, quick()).await;
    is_same(&follower, &*store).await;
    let stranger = journal(other.path(), Retention::default());
    for _ in 0..3 {
        set(&*stranger, "a", "other").await.unwrap();
    }
    way.lead(Some(feed_of(other.path(), &stranger)));
    eventually("the difference", || why(&follower).contains("it is store")).await;
    assert_eq!((follower.head(), value(&follower, "a")), (Revision(1), Some(Bytes::from("1"))));
    set(&*store, "a", "2").await.unwrap();
    way.lead(Some(feed_of(core.path(), &store)));
    is_same(&follower, &*store).await;
}

#[tokio::test]
async fn a_server_with_a_shared_store_is_followed_and_another_one_of_them_is_as_good() {
    let shelf = Arc::<Shelf>::default();
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let options = || Options { retention: keeping(20), ..quick() };
    let mut servers = Vec::new();
    for (n, dir) in dirs.iter().take(2).enumerate() {
        servers.push(Arc::new(open(dir.path(), &Link::new(&shelf, n as u64), options()).await));
    }
    let feeds = [servers[0].feed().unwrap(), servers[1].feed().unwrap()].map(Arc::new);
    let way = Way::to(Some(Arc::clone(&feeds[0])));
    let follower = follow(dirs[2].path(), &way, quick()).await;
    for n in 0..120 {
        set(&*servers[n % 2], &format!("key {}", n % 5), n.to_string()).await.unwrap();
        if n % 10 == 0 {
            way.lead(Some(Arc::clone(&feeds[n / 10 % 2])));
            is_same(&follower, &*servers[n % 2]).await;
        }
    }
    is_same(&follower, &*servers[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_a_follower_ends_where_its_server_is() {
    let n_histories = std::env::var("XDS_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let first: u64 = std::env::var("XDS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + n_histories {
        println!("seed {seed}");
        history(seed).await;
    }
}

/// A server and a follower that both start again, with a link that fails and histories that are cut.
async fn history(seed: u64) {
    let [core, edge] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let dice = Link::new(&Arc::default(), seed);
    let retention = keeping(if seed.is_multiple_of(2) { 8 } else { 1000 });
    let mut store = journal(core.path(), retention);
    let way = Way::to(None);
    way.random.store(seed, Ordering::SeqCst);
    set(&*store, "first", "1").await.unwrap();
    let mut feed = feed_of(core.path(), &store);
    let mut tending = tokio::spawn(Arc::clone(&feed).tend());
    way.lead(Some(Arc::clone(&feed)));
    let mut follower = follow(edge.path(), &way, quick()).await;
    let (seen, _) = watch::channel(Revision::ZERO);
    for _ in 0..40 {
        way.is_faulty.store(dice.random(2) == 0, Ordering::SeqCst);
        match dice.random(8) {
            0 => way.lead(dice.random(2).eq(&0).then(|| Arc::clone(&feed))),
            1 => {
                follower.close().await;
                follower = follow(edge.path(), &way, Options { patience: Duration::ZERO, ..quick() }).await;
            }
            2 => {
                feed.read(&[]).unwrap();
                tending.abort();
                let _ = tending.await;
                way.lead(None);
                drop(feed);
                closed(store, core.path()).await;
                store = journal(core.path(), retention);
                feed = feed_of(core.path(), &store);
                tending = tokio::spawn(Arc::clone(&feed).tend());
                way.lead(Some(Arc::clone(&feed)));
            }
            3 => drop(store.compact(retention).await.unwrap()),
            n => {
                for i in 0..n * 4 {
                    set(&*store, &format!("key {}", dice.random(9)), format!("{seed} {i}")).await.unwrap();
                }
            }
        }
        // It never goes back.
        assert!(follower.head() >= seen.send_replace(follower.head()), "seed {seed}");
    }
    way.is_faulty.store(false, Ordering::SeqCst);
    way.lead(Some(feed));
    is_same(&follower, &*store).await;
    tending.abort();
}
