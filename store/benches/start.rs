//! A first load of many blobs and a start with them: milliseconds and resident megabytes.
//!
//! `cargo bench -p xds-store`, or with `-- 100000` for another number of blobs. Each start is a process of its own, so
//! that its memory is told from that of the load.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for whoever runs it")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use bytes::Bytes;
use xds_store::{Change, Commit, JournalStore, Options, Store as _};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [command, dir] = arguments.as_slice()
        && command == "open"
    {
        return open(Path::new(dir));
    }
    let n_blobs = arguments.first().map_or(100_000, |number| number.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    for n_blobs in [0, n_blobs] {
        if n_blobs > 0 {
            load(dir.path(), n_blobs);
        }
        Command::new(std::env::current_exe().unwrap()).arg("open").arg(dir.path()).status().unwrap();
    }
}

/// Puts and commits the blobs as one commit, as the first load of files does.
fn load(dir: &Path, n_blobs: usize) {
    let (store, _) = JournalStore::open(dir, Options::default()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let content = |n: usize| Bytes::from(format!("{n:08}{}", "content ".repeat(40)));
    let contents: Vec<Bytes> = (0..n_blobs).map(content).collect();
    let begun = Instant::now();
    let hashes = runtime.block_on(store.put_blobs(contents)).unwrap();
    println!("{n_blobs} blobs put: {} ms", begun.elapsed().as_millis());
    let change = |(n, hash)| Change::set(format!("file-document/Service/default/backend-{n}"), hash);
    let changes = hashes.into_iter().enumerate().map(change).collect();
    let begun = Instant::now();
    let commit = Commit { changes, ..Commit::default() };
    runtime.block_on(store.commit(store.head(), commit)).unwrap();
    println!("{n_blobs} blobs committed: {} ms, {} MB", begun.elapsed().as_millis(), resident_mb());
}

fn open(dir: &Path) {
    let (before, begun) = (resident_mb(), Instant::now());
    let (store, notes) = JournalStore::open(dir, Options::default()).unwrap();
    let (elapsed, n_keys) = (begun.elapsed(), store.state().1.len());
    println!(
        "opened with {n_keys} keys: {} ms, {before} to {} MB, {notes:?}",
        elapsed.as_millis(),
        resident_mb()
    );
}

/// Megabytes of this process in memory.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
