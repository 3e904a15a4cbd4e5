//! The history of a remote in memory is shortened by command.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tempfile::TempDir;
use xds_replica::{CompactError, Put, Remote as _, Replica, Transaction, compact};
use xds_store::{Health, Revision, Store as _};

use crate::support::{Link, Shelf, eventually, keys, open, quick, set, value};

fn is_current(store: &Replica) -> bool {
    *store.health().borrow() == Health::Current
}

/// Contents that do not become smaller, more than a commit has inline.
fn noise(n: u32) -> Vec<u8> {
    let mut state = u64::from(n) + 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    });
    words.take(150_000).flatten().collect()
}

async fn put(link: &Link, key: &str) {
    let puts = vec![Put { key: key.to_owned(), value: Bytes::from("12345") }];
    link.write(Transaction { puts, ..Transaction::default() }).await.unwrap();
}

fn pack(revision: u64, digit: &str) -> String {
    format!("pack/{revision:020}/{}", digit.repeat(64))
}

fn state(revision: u64, digit: &str) -> String {
    format!("state/{revision:020}/{}", digit.repeat(64))
}

#[tokio::test]
async fn only_the_newest_commits_are_kept_and_servers_go_on() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 4] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    assert!(matches!(compact(&*links[3], &keys(), 5).await, Err(CompactError::Empty)));
    let one = open(dirs[0].path(), &links[0], quick()).await;
    let late = open(dirs[1].path(), &links[1], quick()).await;
    links[1].cut(true);
    for n in 0..20 {
        let large = if n % 9 == 8 { noise(n) } else { vec![] };
        set(&one, &format!("key {}", n % 3), [n.to_string().into_bytes(), large].concat()).await.unwrap();
    }
    let before = shelf.copy();
    let compacted = compact(&*links[3], &keys(), 5).await.unwrap();
    let after = shelf.copy();
    assert_eq!((compacted.head, compacted.base, compacted.full), (Revision(20), Revision(15), None));
    let gone: Vec<_> = before.iter().filter(|(key, _)| !after.contains_key(*key)).collect();
    let n_bytes = gone.iter().map(|(_, value)| value.len() as u64).sum::<u64>();
    assert_eq!((compacted.n_keys, compacted.n_bytes), (gone.len(), n_bytes));
    assert_eq!((shelf.keys("commit/").len(), compacted.n_keys), (5, 15 + 2));
    let again = compact(&*links[3], &keys(), 5).await.unwrap();
    assert_eq!((again.base, again.n_keys), (Revision(15), 0));

    let fresh = open(dirs[2].path(), &links[2], quick()).await;
    links[1].cut(false);
    assert_eq!(set(&one, "key", "1").await.unwrap(), Revision(21));
    for store in [&late, &fresh] {
        eventually("the newest commit", || store.head() == Revision(21)).await;
        assert_eq!(store.state(), one.state());
        assert_eq!(value(store, "key 2"), value(&one, "key 2"));
    }
    // Nothing but the state is kept.
    let all = compact(&*links[3], &keys(), 0).await.unwrap();
    assert_eq!((all.base, shelf.keys("commit/").len()), (Revision(21), 0));
    assert_eq!(set(&late, "key", "2").await.unwrap(), Revision(22));
    eventually("the newest commit", || one.head() == Revision(22) && fresh.head() == Revision(22)).await;
    assert!(is_current(&one) && is_current(&fresh));
}

#[tokio::test]
async fn a_full_remote_loses_what_nobody_needs_and_nothing_else() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 3] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let one = open(dirs[0].path(), &links[0], quick()).await;
    for n in 0..10 {
        set(&one, "a", if n == 8 { noise(n) } else { n.to_string().into_bytes() }).await.unwrap();
    }
    assert_eq!(compact(&*links[2], &keys(), 4).await.unwrap().base, Revision(6));
    let unused =
        [pack(3, "a"), pack(6, "a"), pack(7, "b"), pack(9, "c"), pack(10, "d"), state(5, "a"), state(6, "b")];
    // Somebody may be about to name these.
    let soon = [pack(11, "e"), state(7, "a"), state(11, "b")];
    for key in soon.iter().chain(&unused) {
        put(&links[2], key).await;
    }
    shelf.is_full.store(true, Ordering::SeqCst);
    let mut left = shelf.copy();
    unused.iter().for_each(|key| drop(left.remove(key)));
    let compacted = compact(&*links[2], &keys(), 2).await.unwrap();
    assert_eq!((compacted.n_keys, compacted.n_bytes), (unused.len(), 5 * unused.len() as u64));
    assert_eq!((compacted.base, compacted.full.as_deref()), (Revision(6), Some("no space")));
    assert_eq!(shelf.copy(), left);
    let fresh = open(dirs[1].path(), &links[1], quick()).await;
    assert_eq!((fresh.state(), fresh.head()), (one.state(), Revision(10)));

    shelf.is_full.store(false, Ordering::SeqCst);
    let compacted = compact(&*links[2], &keys(), 2).await.unwrap();
    assert_eq!((compacted.base, compacted.full), (Revision(8), None));
    assert_eq!(set(&fresh, "a", "b").await.unwrap(), Revision(11));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_meanwhile_is_kept() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 4] = std::array::from_fn(|n| Link::new(&shelf, 77 + n as u64));
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..2 {
        let store = open(dirs[n].path(), &links[n], quick()).await;
        writers.spawn(async move {
            for i in 0..40_u32 {
                let large = if i % 8 == 7 { noise(i) } else { vec![] };
                let content = [i.to_string().into_bytes(), large].concat();
                set(&store, &format!("{n} {}", i % 5), content).await.unwrap();
            }
            store
        });
    }
    let (mut stores, mut n_compacted) = (Vec::new(), 0);
    while !writers.is_empty() {
        match compact(&*links[3], &keys(), 3).await {
            Ok(_) => n_compacted += 1,
            // The history had not begun, or another compaction was faster.
            Err(CompactError::Empty | CompactError::Changed) => {}
            Err(error) => panic!("{error}"),
        }
        while let Some(store) = writers.try_join_next() {
            stores.push(store.unwrap());
        }
    }
    assert!(n_compacted > 0);
    stores.push(open(dirs[2].path(), &links[2], quick()).await);
    for store in &stores {
        eventually("the newest commit", || store.head() == Revision(80) && is_current(store)).await;
        assert_eq!(store.state(), stores[0].state());
        assert!(store.state().1.values().all(|hash| store.blob(*hash).unwrap().is_some()));
    }
}
