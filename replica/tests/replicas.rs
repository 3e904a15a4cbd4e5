//! Replicas of a remote in memory, with every fault that it can have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use xds_replica::{OpenError, Options, PushError, Remote, Replica, StoreKeys, detach, push};
use xds_store::{
    Change, Commit, CommitError, Health, JournalStore, RemoteFailure, Retention, Revision, State, Store,
    StoreError,
};

use crate::support::{Link, Shelf, eventually, heal, keys, open, quick, set, try_set, value};

fn failure(error: &CommitError) -> &RemoteFailure {
    let CommitError::Store(StoreError::Remote(failure)) = error else { panic!("{error:?}") };
    failure
}

fn is_apart(store: &Replica) -> bool {
    matches!(&*store.health().borrow(), Health::Apart(_))
}

fn why_apart(store: &Replica) -> String {
    match &*store.health().borrow() {
        Health::Apart(reason) => reason.clone(),
        Health::Current => String::new(),
    }
}

#[tokio::test]
async fn a_commit_of_one_reaches_the_others() {
    let shelf = Arc::<Shelf>::default();
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let options = || Options { poll: Duration::from_secs(3600), ..quick() };
    let mut replicas = Vec::new();
    for dir in &dirs {
        replicas.push(open(dir.path(), &Link::new(&shelf, 1), options()).await);
    }
    for n in 1..=12_u64 {
        let store = &replicas[n as usize % 3];
        eventually("the last commit", || store.head() == Revision(n - 1)).await;
        assert_eq!(try_set(store, "key", Bytes::from(n.to_string())).await.unwrap(), Revision(n));
    }
    for store in &replicas {
        eventually("the newest value", || value(store, "key") == Some(Bytes::from("12"))).await;
        assert_eq!(store.history(None, 100).unwrap().len(), 12);
    }
}

/// One server commits without a pause. Another one needs a while to build its commit, so the first one is always faster.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_is_given_a_turn() {
    let shelf = Arc::<Shelf>::default();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let fast = open(dirs[0].path(), &Link::new(&shelf, 1), quick()).await;
    let slow = open(dirs[1].path(), &Link::new(&shelf, 2), quick()).await;
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let goes_on = Arc::clone(&is_over);
    let busy = tokio::spawn(async move {
        let mut n_commits = 0_u64;
        while !goes_on.load(Ordering::SeqCst) {
            n_commits += u64::from(try_set(&fast, "fast", Bytes::from(n_commits.to_string())).await.is_ok());
        }
        (fast, n_commits)
    });
    for turn in 0..5_u8 {
        let mut n_attempts = 1;
        loop {
            let (head, value) = (slow.head(), slow.put_blob(Bytes::from(vec![turn])).await.unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
            let changes = vec![Change::set("slow", value)];
            let commit = Commit { actor: "test".to_owned(), changes, ..Commit::default() };
            match slow.commit(head, commit).await {
                Ok(_) => break,
                Err(CommitError::Conflict { .. }) => n_attempts += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(n_attempts < 10, "it never gets a turn");
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let (fast, n_commits) = busy.await.unwrap();
    assert!(n_commits > 20, "the other one goes on meanwhile: {n_commits}");
    eventually("all at the head", || fast.head() == slow.head()).await;
    // A turn that was had is forgotten; otherwise every commit of the other server would wait for somebody who does not come.
    assert!(try_set(&fast, "fast", Bytes::from("last")).await.is_ok(), "nobody is in its way any more");
    assert_eq!(shelf.copy().get("waiting").map(|value| &value[..]), Some(&b"-"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_all_agree_whatever_fails() {
    let n_histories = std::env::var("XDS_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let first: u64 = std::env::var("XDS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + n_histories {
        history(seed).await;
    }
}

/// Three replicas that write at the same time, with faults and restarts, and a fourth that comes late.
async fn history(seed: u64) {
    println!("seed {seed}");
    let shelf = Arc::<Shelf>::default();
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let links: Vec<_> = (0..3).map(|n| Link::new(&shelf, seed * 31 + n)).collect();
    let retention =
        Retention { revisions: if seed.is_multiple_of(2) { 8 } else { 1000 }, ..Retention::default() };
    let options = || Options { retention, ..quick() };
    let mut tasks = tokio::task::JoinSet::new();
    for (n, (dir, link)) in dirs.iter().zip(&links).enumerate() {
        tasks.spawn(lives(n, dir.path().to_owned(), Arc::clone(link), options()));
    }
    let acknowledged: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    heal(&shelf, &links);
    let mut replicas = Vec::new();
    for (dir, link) in dirs.iter().zip(&links) {
        replicas.push(open(dir.path(), link, options()).await);
    }
    let fresh = tempfile::tempdir().unwrap();
    replicas.push(open(fresh.path(), &Link::new(&shelf, seed), options()).await);
    eventually("the same head", || replicas.iter().all(|store| store.head() == replicas[0].head())).await;
    let head = replicas[0].head();

    let mut history = BTreeMap::new();
    for store in &replicas {
        assert!(!is_apart(store), "seed {seed}: {}", why_apart(store));
        for record in store.history(None, usize::MAX).unwrap() {
            let key = record.commit.changes[0].key.clone();
            let known = history.entry(record.revision).or_insert_with(|| key.clone());
            assert_eq!(*known, key, "seed {seed}: replicas differ in revision {}", record.revision);
        }
        for revision in 0..=head.0 {
            let states = replicas.iter().filter_map(|store| store.state_at(Revision(revision)).ok());
            let mut states = states.collect::<Vec<_>>();
            states.dedup();
            assert!(states.len() <= 1, "seed {seed}: states differ at revision {revision}");
        }
        for hash in store.state().1.values() {
            assert!(store.blob(*hash).unwrap().is_some());
        }
    }
    let (_, state) = replicas[0].state();
    assert_kept(seed, &history, &state, acknowledged);
}

/// Three lives of the replica `n`, in which it writes while its link fails. Returns what was acknowledged.
async fn lives(n: usize, dir: PathBuf, link: Arc<Link>, options: Options) -> Vec<(Revision, String)> {
    let mut acknowledged = Vec::new();
    for life in 0..3 {
        let store = open(&dir, &link, options.clone()).await;
        link.faults.store([0, 20, 40][link.random(3) as usize], Ordering::SeqCst);
        for step in 0..6 {
            let key = format!("{n}.{life}.{step}");
            // Some are large enough for parts.
            let n_bytes = if link.random(6) == 0 { 1_500_000 } else { 100 };
            let noise: Vec<u8> = (0..n_bytes).map(|_| link.random(256) as u8).collect();
            if let Some(revision) = write(&store, &link, &key, &noise.into()).await {
                assert!(store.head() >= revision, "it is served where it was acknowledged");
                acknowledged.push((revision, key));
            }
            link.cut(link.random(12) == 0);
        }
        link.cut(false);
        store.close().await;
    }
    acknowledged
}

/// Tries to set a key. `None` if it is not known to be stored.
async fn write(store: &Replica, link: &Link, key: &str, value: &Bytes) -> Option<Revision> {
    for _ in 0..4 {
        match try_set(store, key, value.clone()).await {
            Ok(revision) => return Some(revision),
            Err(CommitError::Conflict { .. }) => {
                tokio::time::sleep(Duration::from_millis(link.random(20).into())).await;
            }
            Err(error) => match failure(&error) {
                // It may still be stored; another try would be another commit.
                RemoteFailure::OutcomeUnknown { .. } => return None,
                RemoteFailure::Unreachable(_) => {}
                RemoteFailure::Full(_) | RemoteFailure::Refused(_) | RemoteFailure::Diverged(_) => {
                    panic!("{error:?}")
                }
            },
        }
    }
    None
}

/// Each commit is in the history once, and acknowledged ones where they were acknowledged.
fn assert_kept(
    seed: u64,
    history: &BTreeMap<Revision, String>,
    state: &State,
    acknowledged: Vec<(Revision, String)>,
) {
    let mut found: Vec<_> = history.values().collect();
    found.sort();
    let n_found = found.len();
    found.dedup();
    assert_eq!(found.len(), n_found, "seed {seed}: a commit is in the history twice");
    for (revision, key) in acknowledged {
        assert!(state.contains_key(&*key), "seed {seed}: {key} was acknowledged and is lost");
        let at = history.get(&revision);
        assert!(at.is_none_or(|at| *at == key), "seed {seed}: {key} was acknowledged as revision {revision}");
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_is_found_again() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let store = open(dir.path(), &link, quick()).await;
    link.is_deaf.store(true, Ordering::SeqCst);
    let hearing = Arc::clone(&link);
    let heard = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(60)).await;
        hearing.is_deaf.store(false, Ordering::SeqCst);
    });
    assert_eq!(try_set(&store, "a", Bytes::from("1")).await.unwrap(), Revision(1));
    heard.await.unwrap();

    link.is_deaf.store(true, Ordering::SeqCst);
    let error = try_set(&store, "a", Bytes::from("2")).await.unwrap_err();
    let RemoteFailure::OutcomeUnknown { id, .. } = failure(&error) else { panic!("{error:?}") };
    assert_eq!(id.len(), 32);
    assert!(error.to_string().contains(id), "{error}");
    // It was stored, so it arrives.
    eventually("the commit without an answer", || value(&store, "a") == Some(Bytes::from("2"))).await;
}

#[tokio::test]
async fn a_replica_starts_and_serves_without_the_remote() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let store = open(dir.path(), &link, quick()).await;
    set(&store, "a", "1").await.unwrap();
    store.close().await;

    link.cut(true);
    let store = open(dir.path(), &link, quick()).await;
    assert_eq!(value(&store, "a"), Some(Bytes::from("1")));
    assert!(why_apart(&store).contains("the link is cut"), "{}", why_apart(&store));
    let error = set(&store, "a", "2").await.unwrap_err();
    assert!(matches!(failure(&error), RemoteFailure::Unreachable(_)), "{error:?}");
    assert_eq!(store.head(), Revision(1));

    link.cut(false);
    eventually("the remote", || !is_apart(&store)).await;
    assert_eq!(set(&store, "a", "2").await.unwrap(), Revision(2));
}

#[tokio::test]
async fn a_first_start_waits_for_the_remote() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    link.cut(true);
    let opening = open(dir.path(), &link, Options { patience: Duration::ZERO, ..quick() });
    tokio::pin!(opening);
    let waited = tokio::time::timeout(Duration::from_millis(100), &mut opening).await;
    assert!(waited.is_err(), "it has nothing to serve");
    link.cut(false);
    assert_eq!(opening.await.head(), Revision::ZERO);
}

#[tokio::test]
async fn what_does_not_continue_the_history_changes_nothing() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let store = open(dir.path(), &link, quick()).await;
    for n in 0..5 {
        set(&store, "a", n.to_string()).await.unwrap();
    }
    let backup = shelf.copy();
    for n in 5..9 {
        set(&store, "a", n.to_string()).await.unwrap();
    }
    let newest = shelf.copy();
    let check = async |text: &str| {
        eventually(text, || why_apart(&store).contains(text)).await;
        assert_eq!((store.head(), value(&store, "a")), (Revision(9), Some(Bytes::from("8"))));
        let error = set(&store, "a", "no").await.unwrap_err();
        assert!(matches!(failure(&error), RemoteFailure::Diverged(_)), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    };
    // A snapshot was restored.
    shelf.set(backup.clone());
    check("it ends at revision 5").await;
    // Somebody writes to it.
    let other = tempfile::tempdir().unwrap();
    let other = open(other.path(), &Link::new(&shelf, 2), quick()).await;
    for _ in 0..5 {
        set(&other, "a", "other").await.unwrap();
    }
    check("its history differs").await;
    other.close().await;
    // Everything was deleted.
    shelf.set(BTreeMap::new());
    check("it is empty").await;
    // Another store was made there.
    let third = tempfile::tempdir().unwrap();
    let third = open(third.path(), &Link::new(&shelf, 3), quick()).await;
    set(&third, "a", "third").await.unwrap();
    check("it is store").await;
    third.close().await;
    // The newest history is back.
    shelf.set(newest);
    eventually("the right history", || !is_apart(&store)).await;
    assert_eq!(set(&store, "a", "9").await.unwrap(), Revision(10));
}

#[tokio::test]
async fn a_commit_that_was_changed_is_not_taken() {
    let shelf = Arc::<Shelf>::default();
    let dirs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let links: Vec<_> = (0..2).map(|n| Link::new(&shelf, n)).collect();
    let writer = open(dirs[0].path(), &links[0], quick()).await;
    let reader = open(dirs[1].path(), &links[1], quick()).await;
    links[1].cut(true);
    set(&writer, "a", "1").await.unwrap();
    let good = shelf.copy();
    let key = shelf.keys("commit/").pop().unwrap();
    let mut bytes = good[&key].to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    shelf.set(good.clone().into_iter().chain([(key, Bytes::from(bytes))]).collect());
    links[1].cut(false);
    eventually("the fault", || why_apart(&reader).contains("was changed")).await;
    assert_eq!(reader.head(), Revision::ZERO);
    shelf.set(good);
    eventually("the commit", || reader.head() == Revision(1)).await;
}

/// A release of another format took the store over while an older one was running, stopped, or new.
#[tokio::test]
async fn a_store_of_another_format_is_neither_read_nor_written_until_it_is_back() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    // It does not look by itself, so the commit is the first to see the change.
    let options = || Options { poll: Duration::from_secs(3600), ..quick() };
    let store = open(dir.path(), &link, options()).await;
    set(&store, "a", "1").await.unwrap();
    let good = shelf.copy();
    let meta = String::from_utf8(good["meta"].to_vec()).unwrap();
    let newer = meta.replace("\"format\":1", "\"format\":2");
    assert_ne!(newer, meta);
    let changed: BTreeMap<_, _> =
        good.clone().into_iter().chain([("meta".to_owned(), newer.into())]).collect();
    shelf.set(changed.clone());

    let refuses = async |store: &Replica| {
        let error = set(store, "a", "2").await.unwrap_err();
        assert!(matches!(failure(&error), RemoteFailure::Diverged(_)), "{error:?}");
        assert!(error.to_string().contains("meta was not written by a release"), "{error}");
        assert!(is_apart(store), "it says so");
        assert_eq!((store.head(), value(store, "a")), (Revision(1), Some(Bytes::from("1"))));
    };
    refuses(&store).await;
    store.close().await;
    let store = open(dir.path(), &link, Options { poll: Duration::from_millis(20), ..options() }).await;
    refuses(&store).await;

    let fresh = tempfile::tempdir().unwrap();
    let opened = Replica::open(fresh.path(), Arc::clone(&link) as Arc<dyn Remote>, keys(), quick()).await;
    assert!(matches!(opened, Err(OpenError::Remote { .. })), "{opened:?}");
    let alone = tempfile::tempdir().unwrap();
    let pushed = push(alone.path(), &*link, &keys(), true).await;
    assert!(matches!(pushed, Err(PushError::Unreadable(_))), "{pushed:?}");
    assert_eq!(shelf.copy(), changed, "nothing was written");

    shelf.set(good);
    eventually("the format that it knows", || !is_apart(&store)).await;
    assert_eq!(set(&store, "a", "2").await.unwrap(), Revision(2));
}

#[tokio::test]
async fn the_remote_keeps_what_retention_says_and_others_begin_there() {
    let shelf = Arc::<Shelf>::default();
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let links: Vec<_> = (0..3).map(|n| Link::new(&shelf, n)).collect();
    let options = || Options { retention: Retention { revisions: 10, ..Retention::default() }, ..quick() };
    let store = open(dirs[0].path(), &links[0], options()).await;
    let late = open(dirs[1].path(), &links[1], options()).await;
    set(&store, "first", "1").await.unwrap();
    eventually("the first commit", || late.head() == Revision(1)).await;
    links[1].cut(true);
    let noise: Vec<u8> = (0..2_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for n in 0..60 {
        let large = if n % 20 == 5 { noise.clone() } else { vec![] };
        set(&store, &format!("key {}", n % 7), [n.to_string().into_bytes(), large].concat()).await.unwrap();
    }
    eventually("a short history", || shelf.keys("commit/").len() <= 13).await;
    eventually("no parts of old commits", || shelf.keys("pack/").len() <= 3).await;
    links[1].cut(false);
    let fresh = open(dirs[2].path(), &links[2], options()).await;
    for one in [&late, &fresh] {
        eventually("the newest commit", || one.head() == Revision(61)).await;
        assert_eq!(one.state(), store.state());
        assert_eq!(value(one, "key 4"), value(&store, "key 4"));
        assert!(one.record(Revision(40)).unwrap().is_none());
    }
    late.close().await;
    let late = open(dirs[1].path(), &links[1], options()).await;
    assert_eq!((late.head(), value(&late, "first")), (Revision(61), Some(Bytes::from("1"))));
    set(&late, "a", "b").await.unwrap();
    eventually("a commit of one that began anew", || value(&store, "a").is_some()).await;
}

#[tokio::test]
async fn nothing_can_be_read_without_the_key() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let options = || Options { retention: Retention { revisions: 2, ..Retention::default() }, ..quick() };
    let store = open(dir.path(), &link, options()).await;
    for _ in 0..6 {
        set(&store, "secret-key", "secret-content").await.unwrap();
    }
    eventually("a base", || shelf.keys("base").len() == 1).await;
    for (key, value) in shelf.copy() {
        for secret in [b"secret-key".as_slice(), b"secret-content"] {
            assert!(!value.windows(secret.len()).any(|window| window == secret), "{key}");
        }
    }
    let other = tempfile::tempdir().unwrap();
    let wrong = StoreKeys::parse(&"6b".repeat(32)).unwrap();
    let opened =
        Replica::open(other.path(), Link::new(&shelf, 2) as Arc<dyn Remote>, wrong.clone(), quick()).await;
    assert!(
        matches!(&opened, Err(OpenError::Remote { reason, .. }) if reason.contains("--store-key-file")),
        "{opened:?}"
    );

    // A new key first, the old one still there; then the new one alone.
    let both = StoreKeys::parse(&format!("{}\n{}", "6b".repeat(32), "5a".repeat(32))).unwrap();
    store.close().await;
    for keys in [both, wrong] {
        let (store, _) =
            Replica::open(dir.path(), Arc::clone(&link) as Arc<dyn Remote>, keys, options()).await.unwrap();
        eventually("the remote", || !is_apart(&store)).await;
        set(&store, "secret-key", "again").await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn a_full_remote_refuses_commits_and_is_followed() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let store = open(dir.path(), &link, quick()).await;
    shelf.is_full.store(true, Ordering::SeqCst);
    let error = set(&store, "a", "1").await.unwrap_err();
    assert!(matches!(failure(&error), RemoteFailure::Full(_)), "{error:?}");
    assert!(error.to_string().contains("alarm disarm"), "{error}");
    shelf.is_full.store(false, Ordering::SeqCst);
    assert_eq!(set(&store, "a", "1").await.unwrap(), Revision(1));
}

#[tokio::test]
async fn a_journal_moves_to_a_shared_store_and_back() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let (journal, _) = JournalStore::open(dir.path(), xds_store::Options::default()).unwrap();
    for n in 0..40 {
        set(&journal, &format!("key {}", n % 3), n.to_string()).await.unwrap();
    }
    let (state, history) = (journal.state(), journal.history(None, 100).unwrap());
    drop(journal);
    let opened = Replica::open(dir.path(), Arc::clone(&link) as Arc<dyn Remote>, keys(), quick()).await;
    assert!(matches!(opened, Err(OpenError::NotAMirror { .. })), "{opened:?}");
    assert!(shelf.copy().is_empty());

    let pushed = push(dir.path(), &*link, &keys(), false).await.unwrap();
    assert_eq!((pushed.base, pushed.revision), (Revision::ZERO, Revision(40)));
    let again = push(dir.path(), &*link, &keys(), false).await;
    assert!(matches!(again, Err(PushError::NotEmpty { head: Revision(40) })), "{again:?}");
    let other = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &link, quick()).await;
    let fresh = open(other.path(), &Link::new(&shelf, 2), quick()).await;
    for one in [&store, &fresh] {
        assert_eq!((one.state(), one.history(None, 100).unwrap()), (state.clone(), history.clone()));
    }
    assert_eq!(set(&fresh, "a", "b").await.unwrap(), Revision(41));
    eventually("the commit", || store.head() == Revision(41)).await;

    store.close().await;
    assert!(detach(dir.path()).unwrap());
    assert!(!detach(dir.path()).unwrap());
    let (journal, _) = JournalStore::open(dir.path(), xds_store::Options::default()).unwrap();
    assert_eq!(set(&journal, "alone", "1").await.unwrap(), Revision(42));
    assert_eq!(fresh.head(), Revision(41));
}

#[tokio::test]
async fn a_history_that_is_to_count_replaces_the_one_that_is_there() {
    let shelf = Arc::<Shelf>::default();
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let links: Vec<_> = (0..3).map(|n| Link::new(&shelf, n)).collect();
    let one = open(dirs[0].path(), &links[0], quick()).await;
    let two = open(dirs[1].path(), &links[1], quick()).await;
    let behind = open(dirs[2].path(), &links[2], quick()).await;
    for n in 0..5 {
        set(&one, "a", n.to_string()).await.unwrap();
    }
    eventually("all commits", || behind.head() == Revision(5)).await;
    links[2].cut(true);
    let backup = shelf.copy();
    for n in 5..9 {
        set(&one, "a", n.to_string()).await.unwrap();
    }
    eventually("all commits", || two.head() == Revision(9)).await;
    shelf.set(backup);
    eventually("the fault", || is_apart(&two)).await;
    // The server with the newest history is right.
    one.close().await;
    let pushed = push(dirs[0].path(), &*links[0], &keys(), true).await.unwrap();
    assert_eq!((pushed.base, pushed.revision), (Revision(10), Revision(10)));
    let one = open(dirs[0].path(), &links[0], quick()).await;
    links[2].cut(false);
    for store in [&one, &two, &behind] {
        eventually("the right history", || !is_apart(store) && store.head() == Revision(10)).await;
        assert_eq!(value(store, "a"), Some(Bytes::from("8")));
    }
    set(&behind, "a", "9").await.unwrap();
    for store in [&one, &two] {
        eventually("a new commit", || store.head() == Revision(11)).await;
        assert_eq!(store.state(), behind.state());
    }
}

#[tokio::test]
async fn the_remote_keeps_no_more_than_a_mirror_has() {
    let shelf = Arc::<Shelf>::default();
    let (dir, link) = (tempfile::tempdir().unwrap(), Link::new(&shelf, 1));
    let retention = Retention { revisions: 1000, bytes: 4_000_000 };
    let store = open(dir.path(), &link, Options { retention, ..quick() }).await;
    for n in 0..40_u32 {
        let noise: Vec<u8> =
            (0..500_000_u32).map(|i| ((i ^ n).wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        set(&store, "key", noise).await.unwrap();
    }
    eventually("a short history", || shelf.keys("commit/").len() < 20).await;
    let fresh = tempfile::tempdir().unwrap();
    let fresh = open(fresh.path(), &Link::new(&shelf, 2), quick()).await;
    eventually("the newest commit", || fresh.head() == store.head()).await;
    assert_eq!(fresh.state(), store.state());
}
