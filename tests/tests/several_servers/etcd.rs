//! The shared store in a real etcd: [`xds_replica::Replica`] without a server around it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::time::sleep;
use xds_replica::etcd::{Etcd as Remote, EtcdOptions};
use xds_replica::{Member, Options, Put, Remote as _, RemoteError, Replica, StoreKeys, Transaction, compact};
use xds_store::{Change, Commit, CommitError, Health, Revision, Store};
use xds_tests::etcd::Etcd;
use xds_tests::process::Signal;
use xds_tests::proxy::Link;
use xds_tests::random::Random;
use xds_tests::wait::{PATIENCE, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_killed_or_stopped_lose_nothing() -> Result<()> {
    let Some(mut etcd) = Etcd::start(3, &[]).await? else { return Ok(()) };
    let (dirs, n_written) = (dirs()?, AtomicU64::new(0));
    let one = open(&etcd, dirs[0].path(), Duration::from_secs(1)).await?;
    let two = open(&etcd, dirs[1].path(), Duration::from_secs(1)).await?;
    let write = async |store: &Replica| {
        let n = n_written.fetch_add(1, Ordering::SeqCst) + 1;
        let revision = set(store, "key", n.to_string()).await?;
        ensure!(revision == Revision(n), "write {n} is revision {revision}: each is stored once");
        Ok(())
    };
    for store in [&one, &two, &one] {
        write(store).await?;
    }
    let remote = Remote::new(etcd.url().parse()?, EtcdOptions::default());
    let lease = remote.grant(Duration::from_secs(30)).await?;
    for member in 0..3 {
        etcd.kill(member).await?;
        // The same lease goes on at another member.
        let prolonged = wait_for("the lease", PATIENCE, async || Ok(remote.keep_alive(lease).await?));
        ensure!(prolonged.await?, "the lease ended with its member");
        write(&one).await?;
        write(&two).await?;
        etcd.run(member)?;
        write(&two).await?;
        etcd.signal(member, Signal::STOP)?;
        write(&one).await?;
        write(&two).await?;
        etcd.signal(member, Signal::CONT)?;
        write(&one).await?;
    }
    let ended = wait_for("the end of the lease", PATIENCE, async || {
        // The members may still choose a leader, so the answer may not come, or the lease has ended by an earlier look.
        drop(remote.revoke(lease).await);
        ensure!(!remote.keep_alive(lease).await?, "it goes on");
        Ok(())
    });
    ended.await?;
    let last = Bytes::from(n_written.load(Ordering::SeqCst).to_string());
    for store in [&one, &two] {
        eventually("the last commit", || value(store, "key").as_ref() == Some(&last)).await?;
    }
    assert_eq!(one.history(None, 100)?, two.history(None, 100)?);

    // All of them at once: what was there is served, and then everything goes on.
    for member in 0..3 {
        etcd.kill(member).await?;
    }
    one.close().await;
    let one = open(&etcd, dirs[0].path(), Duration::from_secs(1)).await?;
    assert_eq!(value(&one, "key"), Some(last));
    assert!(matches!(&*one.health().borrow(), Health::Apart(_)));
    (0..3).try_for_each(|member| etcd.run(member))?;
    eventually("etcd", || *one.health().borrow() == Health::Current).await?;
    write(&one).await?;
    eventually("the last commit", || two.head() == one.head()).await
}

/// What the run of faults relies on. The member that leads is one of the three.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_links_answers_no_write_and_the_others_do() -> Result<()> {
    let Some(etcd) = Etcd::start_linked(3, &[]).await? else { return Ok(()) };
    let at = |addrs: Vec<SocketAddr>| {
        let members = addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        anyhow::Ok(Remote::new(format!("etcd://{members}/test").parse()?, EtcdOptions::default()))
    };
    let puts = vec![Put { key: "key".to_owned(), value: Bytes::from("value") }];
    let write = async |remote: &Remote| {
        remote.write(Transaction { puts: puts.clone(), ..Transaction::default() }).await
    };
    for member in 0..3 {
        let (alone, others) =
            etcd.client_addrs()?.into_iter().enumerate().partition::<Vec<_>, _>(|(n, _)| *n == member);
        let [alone, others] = [alone, others].map(|addrs| addrs.into_iter().map(|(_, addr)| addr).collect());
        let (alone, others) = (at(alone)?, at(others)?);
        for broken in [Some(Link::Cut), Some(Link::Frozen), None] {
            write(&alone).await?;
            match broken {
                Some(link) => etcd.link_member(member, link),
                None => etcd.deafen_member(member),
            }
            wait_for("the others", PATIENCE, async || Ok(write(&others).await?)).await?;
            ensure!(write(&alone).await.is_err(), "member {member} needs no others: {broken:?}");
            etcd.link_member(member, Link::Open);
            wait_for("the member", PATIENCE, async || Ok(write(&alone).await?)).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_arrive_by_the_watch_and_compaction_takes_nothing() -> Result<()> {
    let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(()) };
    let dirs = dirs()?;
    let never = Duration::from_secs(3600);
    let one = open(&etcd, dirs[0].path(), never).await?;
    let two = open(&etcd, dirs[1].path(), never).await?;
    for n in 1..=20_u64 {
        set(&one, "key", n.to_string()).await?;
        eventually("a commit without a poll", || two.head() == Revision(n)).await?;
        if n.is_multiple_of(5) {
            etcd.compact().await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_documents_are_one_commit() -> Result<()> {
    let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(()) };
    let dirs = dirs()?;
    let one = open(&etcd, dirs[0].path(), Duration::from_secs(1)).await?;
    let two = open(&etcd, dirs[1].path(), Duration::from_secs(1)).await?;
    let mut random = Random::from_env()?;
    let contents = (0..10_000).map(|_| noise(&mut random, 1_500)).collect();
    let hashes = one.put_blobs(contents).await?;
    let changes = hashes.iter().enumerate().map(|(n, hash)| Change::set(format!("d/{n}"), *hash)).collect();
    let commit = Commit { changes, ..Commit::default() };
    assert_eq!(one.commit(Revision::ZERO, commit).await?, Revision(1));
    eventually("all documents", || two.head() == Revision(1)).await?;
    assert_eq!(two.state().1.len(), 10_000);
    for hash in hashes {
        assert!(two.blob(hash)?.is_some());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_says_what_to_do_and_is_followed() -> Result<()> {
    let Some(etcd) = Etcd::start(1, &["--quota-backend-bytes=16777216"]).await? else { return Ok(()) };
    let (dirs, mut random) = (dirs()?, Random::from_env()?);
    let one = open(&etcd, dirs[0].path(), Duration::from_secs(1)).await?;
    let two = open(&etcd, dirs[1].path(), Duration::from_secs(1)).await?;
    set(&one, "key", "1").await?;
    // Somebody else fills it.
    let other = Remote::new(etcd.url().replace("/test", "/other").parse()?, EtcdOptions::default());
    for n in 0.. {
        ensure!(n < 100, "the quota has no effect");
        let put = Put { key: format!("{n:03}"), value: noise(&mut random, 1_000_000) };
        if other.write(Transaction { puts: vec![put], ..Transaction::default() }).await.is_err() {
            break;
        }
    }
    let Err(error) = set(&one, "key", "2").await else { bail!("there is no space") };
    assert!(error.to_string().contains("alarm disarm"), "{error}");
    assert_eq!((one.head(), one.health().borrow().clone()), (Revision(1), Health::Current));
    let three = open(&etcd, dirs[2].path(), Duration::from_secs(1)).await?;
    assert_eq!(value(&three, "key"), Some(Bytes::from("1")), "it can still be followed");

    etcd.ctl(&["del", "--prefix", "/other"]).await?;
    etcd.compact().await?;
    etcd.ctl(&["defrag"]).await?;
    assert!(set(&one, "key", "2").await.is_err(), "space alone is not enough");
    etcd.ctl(&["alarm", "disarm"]).await?;
    assert_eq!(set(&one, "key", "2").await?, Revision(2));
    eventually("the commit", || two.head() == Revision(2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_loses_what_nobody_needs_and_then_what_is_old() -> Result<()> {
    let Some(etcd) = Etcd::start(1, &["--quota-backend-bytes=16777216"]).await? else { return Ok(()) };
    let (dirs, mut random) = (dirs()?, Random::from_env()?);
    let one = open(&etcd, dirs[0].path(), Duration::from_secs(1)).await?;
    for n in 0..5 {
        set(&one, "key", n.to_string()).await?;
    }
    let remote = Remote::new(etcd.url().parse()?, EtcdOptions::default());
    let puts = |key: String, value| Transaction { puts: vec![Put { key, value }], ..Transaction::default() };
    // Parts of commits that lost against others.
    for digit in ["a", "b"] {
        let key = format!("pack/{:020}/{}", 3, digit.repeat(64));
        remote.write(puts(key, noise(&mut random, 1_000_000))).await?;
    }
    for n in 0.. {
        ensure!(n < 100, "the quota has no effect");
        if remote.write(puts(format!("other/{n:03}"), noise(&mut random, 1_000_000))).await.is_err() {
            break;
        }
    }
    ensure!(set(&one, "key", "5").await.is_err(), "there is no space");
    let compacted = compact(&remote, &keys()?, 2).await?;
    assert_eq!((compacted.n_keys, compacted.n_bytes, compacted.base), (2, 2_000_000, Revision::ZERO));
    assert!(compacted.full.as_ref().is_some_and(|reason| reason.contains("space")), "{compacted:?}");
    assert_eq!(etcd.ctl(&["get", "--prefix", "--keys-only", "/test/pack/"]).await?.trim(), "");

    // The space is free as soon as etcd has dropped the old values.
    remote.drop_history().await?;
    remote.drop_history().await?;
    etcd.ctl(&["defrag"]).await?;
    etcd.ctl(&["alarm", "disarm"]).await?;
    let compacted = compact(&remote, &keys()?, 2).await?;
    assert_eq!((compacted.base, compacted.full), (Revision(3), None));
    assert_eq!(set(&one, "key", "5").await?, Revision(6));
    let two = open(&etcd, dirs[1].path(), Duration::from_secs(1)).await?;
    assert_eq!(two.state(), one.state());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_to_be_the_right_one() -> Result<()> {
    let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(()) };
    let dirs = dirs()?;
    for words in [
        "user add root:rootpw",
        "role add root",
        "user grant-role root root",
        "user add xds:right",
        "role add xds",
        "role grant-permission xds readwrite --prefix=true /test/",
        "user grant-role xds xds",
        "auth enable",
    ] {
        etcd.ctl(&words.split(' ').collect::<Vec<_>>()).await?;
    }
    let password = dirs[1].path().join("password");
    let user = Some(("xds".to_owned(), password.clone()));
    let options = EtcdOptions { user, ..EtcdOptions::default() };
    let remote = |url: &str| Ok::<_, anyhow::Error>(Arc::new(Remote::new(url.parse()?, options.clone())));
    std::fs::write(&password, "wrong\n")?;
    let opened = Replica::open(dirs[0].path(), remote(&etcd.url())?, keys()?, Options::default()).await;
    let error = opened.err().context("the password is wrong")?.to_string();
    assert!(error.contains("user \"xds\"") && !error.contains("wrong"), "{error}");
    std::fs::write(&password, "right\n")?;
    let member = Some(("a".to_owned(), Member::default()));
    let options = Options { member, ..Options::default() };
    let (store, _) = Replica::open(dirs[0].path(), remote(&etcd.url())?, keys()?, options).await?;
    set(&store, "key", "1").await?;
    let presence = store.presence().context("it is present")?;
    assert_eq!(presence.look().await?.seats.keys().collect::<Vec<_>>(), ["a"]);
    presence.end().await;
    assert!(presence.look().await?.seats.is_empty());
    // The role has the prefix, and nothing else.
    let puts = vec![Put { key: "a".to_owned(), value: Bytes::from("b") }];
    let elsewhere = remote(&etcd.url().replace("/test", "/other"))?;
    let written = elsewhere.write(Transaction { puts, ..Transaction::default() }).await;
    assert!(matches!(written, Err(RemoteError::Refused(_))), "{written:?}");
    Ok(())
}

async fn open(etcd: &Etcd, dir: &Path, poll: Duration) -> Result<Replica> {
    let remote = Arc::new(Remote::new(etcd.url().parse()?, EtcdOptions::default()));
    let options =
        Options { poll, timeout: Duration::from_secs(30), patience: Duration::ZERO, ..Options::default() };
    Ok(Replica::open(dir, remote, keys()?, options).await?.0)
}

fn keys() -> Result<StoreKeys> {
    Ok(StoreKeys::parse(&"5a".repeat(32))?)
}

fn dirs() -> Result<[TempDir; 3]> {
    Ok([TempDir::new()?, TempDir::new()?, TempDir::new()?])
}

/// Sets `key` after whatever is there now.
async fn set(store: &Replica, key: &str, value: impl Into<Bytes>) -> Result<Revision, CommitError> {
    let value = value.into();
    loop {
        let expected = store.head();
        let hash = store.put_blob(value.clone()).await?;
        let commit = Commit { changes: vec![Change::set(key, hash)], ..Commit::default() };
        match store.commit(expected, commit).await {
            Err(CommitError::Conflict { .. }) => sleep(Duration::from_millis(1)).await,
            done => return done,
        }
    }
}

fn value(store: &Replica, key: &str) -> Option<Bytes> {
    let hash = *store.state().1.get(key)?;
    store.blob(hash).ok().flatten()
}

fn noise(random: &mut Random, n_bytes: usize) -> Bytes {
    let words = (0..n_bytes / 8).flat_map(|_| random.number().to_le_bytes());
    words.collect::<Vec<u8>>().into()
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    wait_for(what, Duration::from_secs(60), async || {
        ensure!(is_so(), "not yet");
        Ok(())
    })
    .await
}
