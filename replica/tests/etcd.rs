//! Replicas of a real etcd with three members.
//!
//! Needs the program `etcd` (Debian: `etcd-server`) on the path.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use support::{eventually, keys, quick, set, value};
use xds_replica::etcd::{Etcd, EtcdOptions};
use xds_replica::{Options, Put, Remote, RemoteError, Replica, Transaction};
use xds_store::{Health, Revision, Store};

/// Members that end with the test.
struct Cluster {
    members: Vec<Member>,
    dir: tempfile::TempDir,
}

struct Member {
    arguments: Vec<String>,
    client: String,
    process: Option<Child>,
}

impl Cluster {
    async fn start(n_members: usize, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<u16> = {
            let listeners: Vec<_> =
                (0..2 * n_members).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
        };
        let (clients, peers) = ports.split_at(n_members);
        let all = peers.iter().enumerate().map(|(n, port)| format!("m{n}=http://127.0.0.1:{port}"));
        let all = all.collect::<Vec<_>>().join(",");
        let members = clients.iter().zip(peers).enumerate().map(|(n, (client, peer))| {
            let data = dir.path().join(format!("m{n}")).display().to_string();
            let (client_url, peer_url) =
                (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let name = format!("m{n}");
            let pairs = [
                ("--name", name.as_str()),
                ("--data-dir", &data),
                ("--listen-client-urls", &client_url),
                ("--advertise-client-urls", &client_url),
                ("--listen-peer-urls", &peer_url),
                ("--initial-advertise-peer-urls", &peer_url),
                ("--initial-cluster", &all),
                ("--initial-cluster-state", "new"),
                ("--heartbeat-interval", "50"),
                ("--election-timeout", "500"),
            ];
            let arguments = pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
            let arguments = arguments.chain(more.iter().map(|&word| word.to_owned())).collect();
            Member { arguments, client: format!("127.0.0.1:{client}"), process: None }
        });
        let mut cluster = Self { members: members.collect(), dir };
        (0..n_members).for_each(|n| cluster.run(n));
        let deadline = Instant::now() + Duration::from_secs(60);
        while cluster.remote().read(vec![]).await.is_err() {
            assert!(Instant::now() < deadline, "etcd did not start within a minute");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        cluster
    }

    fn run(&mut self, n: usize) {
        let log = self.dir.path().join(format!("m{n}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let member = &mut self.members[n];
        let process = Command::new("etcd").args(&member.arguments).stdout(Stdio::null()).stderr(log).spawn();
        member.process =
            Some(process.expect("`etcd` is not installed (Debian: apt-get install etcd-server)"));
    }

    fn kill(&mut self, n: usize) {
        if let Some(mut process) = self.members[n].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops or goes on with a member without ending it.
    fn signal(&self, n: usize, signal: &str) {
        let id = self.members[n].process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn url(&self) -> String {
        let members: Vec<_> = self.members.iter().map(|member| member.client.as_str()).collect();
        format!("etcd://{}/test", members.join(","))
    }

    fn remote(&self) -> Arc<Etcd> {
        Arc::new(Etcd::new(self.url().parse().unwrap(), EtcdOptions::default()))
    }

    async fn replica(&self, dir: &tempfile::TempDir) -> Replica {
        let remote = self.remote() as Arc<dyn Remote>;
        Replica::open(dir.path(), remote, keys(), patient()).await.unwrap().0
    }

    fn ctl(&self, words: &[&str]) -> String {
        let all: Vec<_> = self.members.iter().map(|member| member.client.as_str()).collect();
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &all.join(",")])
            .args(words)
            .output();
        let output = output.expect("`etcdctl` is not installed (Debian: apt-get install etcd-client)");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|n| self.kill(n));
    }
}

fn patient() -> Options {
    Options { timeout: Duration::from_secs(30), poll: Duration::from_secs(1), ..quick() }
}

fn dirs<const N: usize>() -> [tempfile::TempDir; N] {
    std::array::from_fn(|_| tempfile::tempdir().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_killed_or_stopped_lose_nothing() {
    let mut cluster = Cluster::start(3, &[]).await;
    let dirs = dirs::<2>();
    let one = cluster.replica(&dirs[0]).await;
    let two = cluster.replica(&dirs[1]).await;
    let n_written = std::sync::atomic::AtomicU64::new(0);
    let write = async |store: &Replica| {
        let n = n_written.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        let revision = set(store, "key", n.to_string()).await.unwrap();
        assert_eq!(revision, Revision(n), "each is stored once");
    };
    for store in [&one, &two, &one] {
        write(store).await;
    }
    for member in 0..3 {
        cluster.kill(member);
        write(&one).await;
        write(&two).await;
        cluster.run(member);
        write(&two).await;
        cluster.signal(member, "-STOP");
        write(&one).await;
        write(&two).await;
        cluster.signal(member, "-CONT");
        write(&one).await;
    }
    let last = Bytes::from(n_written.load(std::sync::atomic::Ordering::SeqCst).to_string());
    eventually("the last commit", || value(&one, "key").as_ref() == Some(&last)).await;
    eventually("the last commit", || value(&two, "key").as_ref() == Some(&last)).await;
    assert_eq!(one.history(None, 100).unwrap(), two.history(None, 100).unwrap());

    // All of them at once; what was there is served, and then everything goes on.
    (0..3).for_each(|member| cluster.kill(member));
    one.close().await;
    let one = cluster.replica(&dirs[0]).await;
    assert_eq!(value(&one, "key"), Some(last));
    assert!(matches!(&*one.health().borrow(), Health::Apart(_)));
    (0..3).for_each(|member| cluster.run(member));
    eventually("etcd", || *one.health().borrow() == Health::Current).await;
    write(&one).await;
    eventually("the last commit", || two.head() == one.head()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_arrive_by_the_watch_and_compaction_takes_nothing() {
    let cluster = Cluster::start(1, &[]).await;
    let dirs = dirs::<2>();
    let rarely = || Options { poll: Duration::from_secs(3600), ..patient() };
    let open = async |dir: &tempfile::TempDir| {
        Replica::open(dir.path(), cluster.remote() as Arc<dyn Remote>, keys(), rarely()).await.unwrap().0
    };
    let (one, two) = (open(&dirs[0]).await, open(&dirs[1]).await);
    for n in 1..=20_u64 {
        set(&one, "key", n.to_string()).await.unwrap();
        eventually("a commit without a poll", || two.head() == Revision(n)).await;
        if n % 5 == 0 {
            let status = cluster.ctl(&["endpoint", "status", "--write-out=json"]);
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            let revision = status[0]["Status"]["header"]["revision"].to_string();
            assert!(cluster.ctl(&["compact", &revision]).contains("compacted"), "{revision}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_ten_thousand_documents_is_one_commit() {
    let cluster = Cluster::start(1, &[]).await;
    let dirs = dirs::<2>();
    let one = cluster.replica(&dirs[0]).await;
    let two = cluster.replica(&dirs[1]).await;
    let mut random = 1_u64;
    let mut contents = Vec::new();
    for _ in 0..10_000 {
        let mut content = Vec::new();
        while content.len() < 1500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            content.extend_from_slice(&(random >> 20).to_le_bytes());
        }
        contents.push(Bytes::from(content));
    }
    let hashes = one.put_blobs(contents).await.unwrap();
    let changes =
        hashes.iter().enumerate().map(|(n, hash)| xds_store::Change::set(format!("d/{n}"), *hash)).collect();
    let commit = xds_store::Commit { changes, ..xds_store::Commit::default() };
    assert_eq!(one.commit(Revision::ZERO, commit).await.unwrap(), Revision(1));
    eventually("all documents", || two.head() == Revision(1)).await;
    assert_eq!(two.state().1.len(), 10_000);
    assert!(hashes.iter().all(|hash| two.blob(*hash).unwrap().is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_says_what_to_do_and_is_followed() {
    let cluster = Cluster::start(1, &["--quota-backend-bytes", "16777216"]).await;
    let dirs = dirs::<3>();
    let one = cluster.replica(&dirs[0]).await;
    let two = cluster.replica(&dirs[1]).await;
    set(&one, "key", "1").await.unwrap();
    // Somebody else fills it.
    let other = Etcd::new(cluster.url().replace("/test", "/other").parse().unwrap(), EtcdOptions::default());
    let fill = async |n: u32| {
        let put = Put { key: format!("{n:03}"), value: Bytes::from(vec![n as u8; 1_000_000]) };
        other.write(Transaction { puts: vec![put], ..Transaction::default() }).await
    };
    let mut n = 0;
    while fill(n).await.is_ok() {
        n += 1;
        assert!(n < 100, "the quota has an effect");
    }
    let error = set(&one, "key", "2").await.unwrap_err();
    assert!(error.to_string().contains("alarm disarm"), "{error}");
    assert_eq!((one.head(), *one.health().borrow() == Health::Current), (Revision(1), true));
    let three = cluster.replica(&dirs[2]).await;
    assert_eq!(value(&three, "key"), Some(Bytes::from("1")), "it can still be followed");

    cluster.ctl(&["del", "--prefix", "/other"]);
    let status: serde_json::Value =
        serde_json::from_str(&cluster.ctl(&["endpoint", "status", "--write-out=json"])).unwrap();
    cluster.ctl(&["compact", &status[0]["Status"]["header"]["revision"].to_string()]);
    cluster.ctl(&["defrag"]);
    assert!(set(&one, "key", "2").await.is_err(), "space alone is not enough");
    cluster.ctl(&["alarm", "disarm"]);
    assert_eq!(set(&one, "key", "2").await.unwrap(), Revision(2));
    eventually("the commit", || two.head() == Revision(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_to_be_the_right_one() {
    let cluster = Cluster::start(1, &[]).await;
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
        cluster.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    let dirs = dirs::<2>();
    let password = dirs[1].path().join("password");
    let remote = |url: String| {
        let user = Some(("xds".to_owned(), password.clone()));
        Arc::new(Etcd::new(url.parse().unwrap(), EtcdOptions { user, ..EtcdOptions::default() }))
    };
    std::fs::write(&password, "wrong\n").unwrap();
    let opened = Replica::open(dirs[0].path(), remote(cluster.url()), keys(), patient()).await;
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("user \"xds\"") && !error.contains("wrong"), "{error}");
    std::fs::write(&password, "right\n").unwrap();
    let (store, _) = Replica::open(dirs[0].path(), remote(cluster.url()), keys(), patient()).await.unwrap();
    set(&store, "key", "1").await.unwrap();
    // The role has the prefix, and nothing else.
    let elsewhere = remote(cluster.url().replace("/test", "/other"));
    let written = elsewhere.write(Transaction {
        puts: vec![Put { key: "a".to_owned(), value: Bytes::from("b") }],
        ..Transaction::default()
    });
    assert!(matches!(written.await, Err(RemoteError::Refused(_))));
}
