//! Random bytes and random damage as a journal, for as long as `XDS_FUZZ_SECONDS` says.
//!
//! A failure prints the seed; `XDS_FUZZ_SEED` runs it again.

#[path = "../../tests/src/splitmix.rs"]
mod splitmix;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use self::splitmix::Random;
use crate::journal::Journal;
use crate::{
    BlobHash, Change, Commit, JournalStore, OpenError, Options, Record, Retention, Revision, Salvage, State,
    Store, journal, journal_store,
};

/// The contents from which a journal was made.
struct Real {
    files: Vec<(String, Vec<u8>)>,
    /// The state at each revision.
    states: Vec<State>,
    records: BTreeMap<Revision, Record>,
}

impl Random {
    /// Seeded from `XDS_FUZZ_SEED`, else from the clock.
    fn from_env() -> Self {
        let given = std::env::var("XDS_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos())
        });
        println!("XDS_FUZZ_SEED={seed}");
        Self(seed)
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max)).map(|_| self.number() as u8).collect()
    }
}

/// A directory in memory where there is one: syncs on a disk would take nearly all of the time.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// When to end: after a second, or what is asked for.
fn deadline() -> Instant {
    let seconds =
        std::env::var("XDS_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
    Instant::now() + Duration::from_secs(seconds)
}

/// A journal of six commits, as one segment or as a checkpoint with a segment behind it.
fn real(is_compacted: bool) -> Real {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = JournalStore::open(dir.path(), Options::default()).unwrap();
    let mut states = vec![State::new()];
    let fill = async {
        for n in 0..6_u8 {
            if is_compacted && n == 4 {
                store.compact(Retention { revisions: 2, ..Retention::default() }).await.unwrap();
            }
            let mut changes = Vec::new();
            for (key, content) in [("a".to_owned(), vec![n; 40]), (format!("k{}", n % 3), vec![n; 9])] {
                changes.push(Change::set(key, store.put_blob(Bytes::from(content)).await.unwrap()));
            }
            store.commit(store.head(), Commit { changes, ..Commit::default() }).await.unwrap();
            states.push(store.state().1);
        }
    };
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(fill);
    let history = store.history(None, usize::MAX).unwrap();
    let records = history.into_iter().map(|record| (record.revision, record)).collect();
    drop(store);
    let numbers = journal::list(dir.path()).unwrap();
    let names = numbers.into_iter().map(journal::segment::file_name);
    let files = names.map(|name| (name.clone(), std::fs::read(dir.path().join(name)).unwrap()));
    Real { files: files.collect(), states, records }
}

/// Reads the journal in `dir`, salvages it if it must be, and says whether it was opened. Nothing may panic. There is no
/// mark, which would take nearly all of the time.
fn is_opened(dir: &Path, real: Option<&Real>) -> bool {
    match journal_store::open_journal(dir, &mut Vec::new()) {
        Ok((journal, _)) => {
            if let Some(real) = real {
                assert_says(&journal, real);
            }
            true
        }
        Err(OpenError::Newer { .. }) => false,
        Err(OpenError::Damaged { .. }) => {
            match Salvage::find(dir) {
                Ok(salvage) => drop(salvage.carry_out().unwrap()),
                Err(OpenError::Newer { .. }) => return false,
                Err(other) => panic!("{other:?}"),
            }
            journal_store::open_journal(dir, &mut Vec::new()).unwrap();
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Checks that a journal says nothing but what was written.
fn assert_says(journal: &Journal, real: &Real) {
    let replay = &journal.replay;
    assert_eq!(replay.state, real.states[replay.head.0 as usize]);
    for hash in replay.state.values() {
        let position = replay.blobs.position(hash).unwrap();
        let content = journal::read_blob(&journal.segments[&position.segment], position, *hash).unwrap();
        assert_eq!(BlobHash::of(&content), *hash);
    }
    for (revision, place) in &replay.records {
        let record = journal::read_record(&journal.segments[&place.position.segment], place.position);
        assert_eq!(Some(&record.unwrap()), real.records.get(revision));
    }
}

#[test]
fn arbitrary_bytes_as_segments_are_refused_or_read_but_never_believed() {
    let (mut random, deadline) = (Random::from_env(), deadline());
    let Real { files, .. } = real(true);
    let (mut n, mut n_opened) = (0, 0);
    while Instant::now() < deadline {
        let dir = directory();
        for number in 1..=1 + random.below(3) {
            let mut bytes = random.bytes(300);
            // Half of them begin as a journal does, so that more than the first check is met.
            if random.below(2) == 0 {
                let (_, real) = &files[random.below(files.len())];
                let kept = random.below(real.len());
                bytes = [&real[..kept], &bytes].concat();
            }
            std::fs::write(dir.path().join(format!("journal-{number:010}.log")), bytes).unwrap();
        }
        n_opened += u64::from(is_opened(dir.path(), None));
        n += 1;
    }
    assert_bounded();
    println!("{n} journals, {n_opened} of them opened");
}

#[test]
fn mutated_journals_say_what_was_written_or_are_refused() {
    let (mut random, deadline) = (Random::from_env(), deadline());
    let journals = [real(false), real(true)];
    let (mut n, mut n_opened) = (0, 0);
    while Instant::now() < deadline {
        let real = &journals[random.below(2)];
        let dir = directory();
        for (name, bytes) in &real.files {
            std::fs::write(dir.path().join(name), mutated(bytes.clone(), &mut random)).unwrap();
        }
        n_opened += u64::from(is_opened(dir.path(), Some(real)));
        n += 1;
    }
    assert_bounded();
    println!("{n} journals, {n_opened} of them opened");
}

/// A few changes of every kind: bits, blocks from elsewhere, cuts, numbers that claim everything.
fn mutated(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.extend(random.bytes(100)),
            4 => {
                let block: Vec<u8> = bytes.iter().skip(random.below(at + 1)).take(60).copied().collect();
                bytes.splice(at..at, block);
            }
            _ => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
        }
    }
    bytes
}

/// Nothing of this takes memory by what it claims to be.
fn assert_bounded() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < MAX_PEAK_KB, "{peak_kb} KiB");
}

/// The journals are a few kilobytes; the other tests of this process have stores with sled's caches.
const MAX_PEAK_KB: u64 = 400 * 1024;
