//! A remote in memory that was set back on purpose, and whose state all servers take.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tempfile::TempDir;
use xds_replica::{AdoptError, Adopted, Member, Options, Remote, Replica, adopt};
use xds_store::{Health, Retention, Revision, Store as _};

use crate::support::{self, Link, Shelf, eventually, keys, open, quick, set, value};

/// A server with a name.
async fn server(dir: &Path, link: &Arc<Link>, id: &str, revisions: u64) -> Replica {
    let retention = Retention { revisions, ..Retention::default() };
    let member = Some((id.to_owned(), Member::default()));
    open(dir, link, Options { member, retention, ..quick() }).await
}

fn is_apart(store: &Replica) -> bool {
    matches!(&*store.health().borrow(), Health::Apart(_))
}

async fn write(store: &Replica, values: std::ops::Range<u64>) {
    for n in values {
        set(store, "a", n.to_string()).await.unwrap();
    }
}

#[tokio::test]
async fn servers_that_run_take_what_is_adopted_and_none_goes_back() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 4] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 4] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let one = server(dirs[0].path(), &links[0], "one", 1_000).await;
    let two = server(dirs[1].path(), &links[1], "two", 1_000).await;
    let stopped = server(dirs[2].path(), &links[2], "stopped", 1_000).await;
    write(&one, 0..5).await;
    let backup = shelf.copy();
    assert!(matches!(adopt(&*links[3], &keys(), None).await, Err(AdoptError::Nothing)));
    assert_eq!(shelf.copy(), backup);
    write(&one, 5..7).await;
    eventually("all commits", || two.head() == Revision(7)).await;
    links[1].cut(true);
    write(&one, 7..9).await;
    eventually("all commits", || stopped.head() == Revision(9)).await;
    stopped.close().await;

    shelf.set(backup.clone());
    let new = server(dirs[3].path(), &links[3], "new", 1_000).await;
    set(&new, "a", "right").await.unwrap();
    links[1].cut(false);
    eventually("both ends", || shelf.keys("end/") == ["end/one", "end/two"]).await;
    let mut heads = one.watch();
    let adopted = adopt(&*links[3], &keys(), None).await.unwrap();
    let end = |id: &str, revision| (id.to_owned(), Revision(revision));
    let ends = BTreeMap::from([end("one", 9), end("two", 7)]);
    let others = vec!["new".to_owned(), "stopped".to_owned()];
    assert_eq!(adopted, Adopted { was: Revision(6), revision: Revision(10), ends, others });
    for store in [&one, &two, &new] {
        eventually("what was adopted", || store.head() == Revision(10) && !is_apart(store)).await;
        assert_eq!(value(store, "a"), Some(Bytes::from("right")));
    }
    assert_eq!(*heads.borrow_and_update(), Revision(10));
    // One that had looked before may have said its end once more.
    eventually("no ends", || shelf.keys("end/").is_empty()).await;

    // One that was away has an end that was not after 10.
    let stopped = server(dirs[2].path(), &links[2], "stopped", 1_000).await;
    write(&stopped, 10..12).await;
    for store in [&one, &two, &new] {
        eventually("a commit", || store.head() == Revision(12)).await;
        assert_eq!(store.state(), stopped.state());
    }
    // The same backup again: its epoch is an old one.
    shelf.set(backup);
    eventually("all ends", || shelf.keys("end/").len() == 4).await;
    let adopted = adopt(&*links[3], &keys(), Some(Revision(99))).await.unwrap();
    assert_eq!((adopted.was, adopted.revision), (Revision(5), Revision(100)));
    for store in [&one, &two, &new, &stopped] {
        eventually("what was adopted", || store.head() == Revision(100) && !is_apart(store)).await;
        assert_eq!(value(store, "a"), Some(Bytes::from("4")));
    }
}

#[tokio::test]
async fn one_that_was_stopped_with_a_later_revision_needs_another_adoption_and_forks_are_heard() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 2] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let one = server(dirs[0].path(), &links[0], "one", 1_000).await;
    let two = server(dirs[1].path(), &links[1], "two", 1_000).await;
    write(&one, 0..2).await;
    let backup = shelf.copy();
    write(&one, 2..4).await;
    eventually("all commits", || two.head() == Revision(4)).await;
    two.close().await;
    shelf.set(backup);
    eventually("its end", || shelf.keys("end/").len() == 1).await;
    // It is said that the last revision was 3, which is too low, and nobody is there to tell.
    one.close().await;
    let mut wrong = shelf.copy();
    wrong.retain(|key, _| !key.starts_with("end/"));
    shelf.set(wrong);
    let adopted = adopt(&*links[0], &keys(), Some(Revision(2))).await.unwrap();
    assert_eq!(adopted.revision, Revision(3));
    let one = server(dirs[0].path(), &links[0], "one", 1_000).await;
    let two = server(dirs[1].path(), &links[1], "two", 1_000).await;
    eventually("both ends", || shelf.keys("end/").len() == 2).await;
    assert!(is_apart(&one) && is_apart(&two));
    assert_eq!((one.head(), value(&one, "a")), (Revision(4), Some(Bytes::from("3"))));
    let adopted = adopt(&*links[0], &keys(), None).await.unwrap();
    assert_eq!((adopted.was, adopted.revision), (Revision(3), Revision(5)));
    for store in [&one, &two] {
        eventually("what was adopted", || store.head() == Revision(5) && !is_apart(store)).await;
        assert_eq!(value(store, "a"), Some(Bytes::from("1")));
    }
}

#[tokio::test]
async fn what_cannot_be_adopted_stays_as_it_is() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    assert!(matches!(adopt(&*link, &keys(), None).await, Err(AdoptError::Empty)));
    let store = server(dir.path(), &link, "one", 1_000).await;
    write(&store, 0..3).await;
    store.close().await;
    let before = shelf.copy();
    let far = Some(Revision(u64::MAX));
    assert!(matches!(adopt(&*link, &keys(), far).await, Err(AdoptError::TooLate(_))));
    let wrong = xds_replica::StoreKeys::parse(&"6b".repeat(32)).unwrap();
    let above = Some(Revision(7));
    assert!(matches!(adopt(&*link, &wrong, above).await, Err(AdoptError::Unreadable(_))));
    shelf.is_full.store(true, Ordering::SeqCst);
    assert!(matches!(adopt(&*link, &keys(), above).await, Err(AdoptError::Remote(_))));
    shelf.is_full.store(false, Ordering::SeqCst);
    assert_eq!(shelf.copy(), before);
    let mut broken = before.clone();
    broken.remove(&shelf.keys("commit/").pop().unwrap());
    shelf.set(broken.clone());
    assert!(matches!(adopt(&*link, &keys(), above).await, Err(AdoptError::Changed)));
    assert_eq!(shelf.copy(), broken);
}

#[tokio::test]
async fn nobody_founds_a_store_where_servers_have_lost_theirs() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 3] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let one = server(dirs[0].path(), &links[0], "one", 1_000).await;
    write(&one, 0..5).await;
    let full = shelf.copy();
    shelf.set(BTreeMap::new());
    eventually("where it ends", || shelf.keys("end/") == ["end/one"]).await;
    let member = |id: &str| Some((id.to_owned(), Member::default()));
    let options = |id| Options { member: member(id), ..quick() };
    let remote = Arc::clone(&links[1]) as Arc<dyn Remote>;
    let refused = Replica::open(dirs[1].path(), remote, keys(), options("two")).await.unwrap_err();
    let why = refused.to_string();
    assert!(why.contains("no other store is founded in its place: server one has the history of"), "{why}");
    assert!(shelf.keys("meta").is_empty());

    // One that came before the first had said so.
    links[0].cut(true);
    shelf.set(BTreeMap::new());
    let three = server(dirs[2].path(), &links[2], "three", 1_000).await;
    assert!(!is_apart(&three));
    links[0].cut(false);
    eventually("the doubt of the new store", || is_apart(&three)).await;
    let health = three.health();
    let Health::Apart(why) = health.borrow().clone() else { panic!("it does not doubt") };
    assert!(why.contains("server one has the history of store"), "{why}");
    let confirmed = *three.confirmed().borrow();
    eventually("another look", || shelf.keys("end/") == ["end/one"]).await;
    assert_eq!(*three.confirmed().borrow(), confirmed);

    // The store is back.
    three.close().await;
    shelf.set(full);
    eventually("the store of the first", || !is_apart(&one)).await;
    eventually("no mark", || shelf.keys("end/").is_empty()).await;
}

/// Otherwise a server that starts before the next poll founds another store.
#[tokio::test]
async fn whoever_is_the_first_to_find_another_history_says_so_at_once() {
    let shelf = Arc::<Shelf>::default();
    let dir = tempfile::tempdir().unwrap();
    let member = Some(("one".to_owned(), Member::default()));
    let never = std::time::Duration::from_secs(3600);
    let one = open(dir.path(), &Link::new(&shelf, 1), Options { member, poll: never, ..quick() }).await;
    write(&one, 0..5).await;
    shelf.set(BTreeMap::new());
    let refused = set(&one, "a", "5").await.unwrap_err();
    assert!(refused.to_string().contains("history"), "{refused}");
    assert_eq!(shelf.keys("end/"), ["end/one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_restored_and_adopted_no_revision_goes_back_and_all_agree() {
    let n_histories = std::env::var("XDS_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let first: u64 = std::env::var("XDS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + n_histories {
        history(seed).await;
    }
}

/// Three servers that write while the remote is set back and adopted, at random.
async fn history(seed: u64) {
    println!("seed {seed}");
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 3] = std::array::from_fn(|n| Link::new(&shelf, seed * 31 + n as u64));
    let chance = Link::new(&shelf, seed);
    let mut stores = Vec::new();
    for (n, (dir, link)) in dirs.iter().zip(&links).enumerate() {
        stores.push(server(dir.path(), link, &n.to_string(), 1_000).await);
    }
    let (mut backups, mut last) = (vec![shelf.copy()], [Revision::ZERO; 3]);
    for step in 0..40 {
        let n = chance.random(3) as usize;
        match chance.random(8) {
            0 => backups.push(shelf.copy()),
            1 => shelf.set(backups[chance.random(backups.len() as u32) as usize].clone()),
            2 => links[n].cut(!links[n].is_cut.load(Ordering::SeqCst)),
            3 => drop(adopt(&*chance, &keys(), None).await),
            // It is refused where another history is there.
            _ => drop(support::try_set(&stores[n], "a", Bytes::from(format!("{step}"))).await),
        }
        for (store, last) in stores.iter().zip(&mut last) {
            assert!(store.head() >= *last, "seed {seed}, step {step}: a revision went back");
            *last = store.head();
        }
    }
    links.iter().for_each(|link| link.cut(false));
    adopt_until_all_follow(&chance, &stores).await;
    let revision = set(&stores[0], "end", "1").await.unwrap();
    for (store, last) in stores.iter().zip(last) {
        eventually("the end", || store.head() == revision).await;
        assert!(revision >= last && store.state() == stores[0].state(), "seed {seed}");
    }
}

/// Adopts again as long as somebody says that it does not follow.
async fn adopt_until_all_follow(link: &Arc<Link>, stores: &[Replica]) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        for store in stores {
            // Whoever asks looks at the remote now.
            drop(store.probe().await);
        }
        if !stores.iter().any(is_apart) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "not within a minute");
        match adopt(&**link, &keys(), None).await {
            Ok(_) | Err(AdoptError::Nothing | AdoptError::Changed) => {}
            // Nothing is left of a store that was set back to its beginning.
            Err(error) => panic!("{error}"),
        }
        tokio::task::yield_now().await;
    }
}
