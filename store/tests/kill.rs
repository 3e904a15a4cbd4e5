//! A process that is killed at any moment has lost nothing that it said was committed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use common::{contents, described, open_keeping, runtime};
use xds_store::{Change, Retention, Revision, Store};

/// The values that the commit which makes `revision` sets: three keys, one of which many commits share.
fn values(revision: u64) -> [(String, Vec<u8>); 3] {
    let content = |length: u64| revision.to_le_bytes().repeat(1 + length as usize);
    [
        ("newest".into(), content(0)),
        (format!("slot{}", revision % 7), content(revision * 37 % 900)),
        (format!("large{}", revision % 3), content(revision * 101 % 9_000)),
    ]
}

/// The state that `values` make up to `head`.
fn expected(head: u64) -> common::Contents {
    (head.saturating_sub(30)..=head).filter(|revision| *revision > 0).flat_map(values).collect()
}

/// The process that is killed: commits for ever, and says each revision when it is acknowledged.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIRECTORY_VARIABLE) else { return };
    let (store, _) = open_keeping(Path::new(&dir), KEEP);
    println!("{ACKNOWLEDGED}{}", store.head());
    runtime().block_on(async {
        loop {
            let head = store.head();
            let mut changes = Vec::new();
            for (key, content) in values(head.next().0) {
                changes.push(Change::set(key, store.put_blob(Bytes::from(content)).await.unwrap()));
            }
            let revision = store.commit(head, described(changes)).await.unwrap();
            println!("{ACKNOWLEDGED}{revision}");
            std::io::stdout().flush().unwrap();
        }
    });
}

/// Starts the child, kills it after `delay_us` from its first words on, and returns the last it acknowledged.
fn run_and_kill(dir: &Path, delay_us: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIRECTORY_VARIABLE, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = lines(&mut child);
    let mut last = lines.recv_timeout(Duration::from_secs(20)).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_micros(delay_us);
    while let Ok(revision) = lines.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now()))
    {
        last = revision;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Lines that were in the pipe at the kill had been acknowledged too.
    lines.iter().fold(last, u64::max)
}

/// The revisions that the child acknowledges; ends with the child.
fn lines(child: &mut Child) -> mpsc::Receiver<u64> {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stdout.split(b'\n') {
            let line = String::from_utf8(line.unwrap()).unwrap();
            // The test harness writes the name of the test in front of the first line. A line that the kill cut off
            // has a smaller number, which claims less.
            let Some((_, revision)) = line.split_once(ACKNOWLEDGED) else { continue };
            if sender.send(revision.parse().unwrap_or(0)).is_err() {
                return;
            }
        }
    });
    lines
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let seed = std::env::var("XDS_STORE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 =
        seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into());
    println!("XDS_STORE_SEED={seed}");
    let mut random = seed | 1;
    let dir = tempfile::tempdir().unwrap();
    let (mut n_acknowledged, mut before) = (0, 0);
    for round in 0..ROUNDS {
        // Xorshift: any sequence that covers the range will do.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let acknowledged = run_and_kill(dir.path(), random % MAX_DELAY_US).max(before);
        let (store, notes) = open_keeping(dir.path(), KEEP);
        let (head, state) = store.state();
        assert!(
            head.0 >= acknowledged,
            "round {round}: {acknowledged} was lost, the head is {head}; {notes:?}"
        );
        assert!(
            head.0 <= acknowledged + 1,
            "round {round}: one commit at a time is made: {acknowledged}, {head}"
        );
        assert_eq!(contents(&store, &state), expected(head.0), "round {round}");
        let history = store.history(None, usize::MAX).unwrap();
        assert!(history.len() as u64 >= KEEP.revisions.min(head.0), "round {round}");
        let oldest = Revision(head.0 - history.len() as u64);
        assert_eq!(contents(&store, &store.state_at(oldest).unwrap()), expected(oldest.0), "round {round}");
        n_acknowledged += head.0 - before;
        before = head.0;
    }
    assert!(n_acknowledged >= ROUNDS, "{n_acknowledged} commits in {ROUNDS} rounds tell nothing");
    println!("{n_acknowledged} commits in {ROUNDS} rounds");
}

const DIRECTORY_VARIABLE: &str = "XDS_STORE_TEST_CHILD_DIRECTORY";
const ACKNOWLEDGED: &str = "acknowledged ";
const ROUNDS: u64 = 60;
const MAX_DELAY_US: u64 = 150_000;

/// Small, so that compactions are killed too.
const KEEP: Retention = Retention { revisions: 40, bytes: u64::MAX };
