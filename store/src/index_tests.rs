//! The index in memory is what a scan of the journal's files gives, whatever happened to the store before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;

use crate::faults::{Fault, Faults, Step};
use crate::journal::blobs::{Half, half};
use crate::journal::segment::{Position, file_number};
use crate::{BlobHash, Change, Commit, JournalStore, Options, Retention, Revision, Salvage, Store as _};

/// Something that happens to a store.
#[derive(Clone, Debug)]
enum Event {
    /// A commit of keys and contents; few of each, so that contents are named again.
    Commit(Vec<(u8, Option<u8>)>),
    /// A compaction that keeps so many revisions, and a commit that is made meanwhile.
    Compact(u64, u8),
    /// A compaction that ends there; then the store is opened again.
    CrashWhileCompacting(Step),
    /// A commit whose write fails.
    FullDisk(u8),
    Reopen,
    /// A bit of a file is flipped while the store is closed, and the store is salvaged if it does not open.
    Damage(prop::sample::Index, prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let change = (0..6_u8, prop::option::weighted(0.8, 0..9_u8));
    let step = prop::sample::select(vec![
        Step::BeforeRename,
        Step::AfterRename,
        Step::AfterIndex,
        Step::AfterFirstRemoval,
    ]);
    prop_oneof![
        6 => prop::collection::vec(change, 0..5).prop_map(Event::Commit),
        2 => (1..5_u64, 0..9_u8).prop_map(|(revisions, content)| Event::Compact(revisions, content)),
        1 => step.prop_map(Event::CrashWhileCompacting),
        1 => (0..9_u8).prop_map(Event::FullDisk),
        1 => Just(Event::Reopen),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(file, at)| Event::Damage(file, at)),
    ]
}

/// The positions of records and blobs, from nothing but the bytes of the files.
fn scan(dir: &Path) -> (BTreeMap<Revision, Position>, BTreeMap<Half, Position>) {
    let (mut records, mut blobs) = (BTreeMap::new(), BTreeMap::new());
    for (segment, path) in journal_files(dir) {
        let bytes = std::fs::read(path).unwrap();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if number(16) > 36 {
            // Records before a checkpoint do not count.
            records.clear();
            blobs.clear();
        }
        let mut at = 36;
        while at < bytes.len() {
            let (kind, length) = (bytes[at + 4], (number(at + 8) & 0xffff_ffff) as usize);
            let position = Position { segment, offset: at as u64 };
            match kind {
                1 => {
                    let hash = bytes[at + 28..at + 60].try_into().unwrap();
                    blobs.insert(half(&BlobHash::from_bytes(hash)), position);
                }
                2 => {
                    records.insert(Revision(number(at + 28)), position);
                }
                _ => {}
            }
            at += 28 + length;
        }
    }
    (records, blobs)
}

fn journal_files(dir: &Path) -> BTreeMap<u64, PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    files.filter_map(|file| Some((file_number(file.file_name().to_str()?)?, file.path()))).collect()
}

struct Tested {
    dir: tempfile::TempDir,
    store: Option<JournalStore>,
    faults: Faults,
}

impl Tested {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut tested = Self { dir, store: None, faults: Faults::default() };
        tested.reopen();
        tested
    }

    fn store(&self) -> &JournalStore {
        self.store.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.store = None;
        let options = Options::default();
        self.faults = options.faults.clone();
        self.store = Some(JournalStore::open(self.dir.path(), options).unwrap().0);
    }

    async fn commit(&self, changes: &[(u8, Option<u8>)]) -> bool {
        let store = self.store();
        let changes: BTreeMap<u8, Option<u8>> = changes.iter().copied().collect();
        let contents =
            changes.values().flatten().map(|content| Bytes::from(vec![*content; usize::from(*content)]));
        let mut hashes = store.put_blobs(contents.collect()).await.unwrap().into_iter();
        let change = |(key, content): (u8, Option<u8>)| Change {
            key: format!("key-{key}"),
            value: content.and_then(|_| hashes.next()),
        };
        let changes = changes.into_iter().map(change).collect();
        store.commit(store.head(), Commit { changes, ..Commit::default() }).await.is_ok()
    }

    fn damage(&mut self, file: prop::sample::Index, at: prop::sample::Index) {
        self.store = None;
        let files: Vec<PathBuf> = journal_files(self.dir.path()).into_values().collect();
        let path = &files[file.index(files.len())];
        let mut bytes = std::fs::read(path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
        if JournalStore::open(self.dir.path(), Options::default()).is_err() {
            Salvage::find(self.dir.path()).unwrap().carry_out().unwrap();
        }
        self.reopen();
    }

    async fn happens(&mut self, event: Event) {
        match event {
            Event::Commit(changes) => assert!(self.commit(&changes).await),
            Event::Compact(revisions, content) => {
                let compaction = self.store().compact(Retention { revisions, ..Retention::default() });
                let changes = [(0, Some(content))];
                let (compacted, committed) = tokio::join!(compaction, self.commit(&changes));
                assert!(compacted.is_ok() && committed);
            }
            Event::CrashWhileCompacting(step) => {
                self.faults.inject(Fault::Compaction(step));
                // If there is nothing to compact, the fault waits in vain.
                let _ = self.store().compact(Retention { revisions: 1, ..Retention::default() }).await;
                self.reopen();
            }
            Event::FullDisk(content) => {
                self.faults.inject(Fault::Write(std::io::ErrorKind::StorageFull));
                assert!(!self.commit(&[(1, Some(content))]).await);
            }
            Event::Reopen => self.reopen(),
            Event::Damage(file, at) => self.damage(file, at),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_index_is_what_a_scan_of_the_journal_gives(events in prop::collection::vec(event(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut tested = Tested::new();
        for event in events {
            runtime.block_on(tested.happens(event.clone()));
            prop_assert_eq!(tested.store().everything(), scan(tested.dir.path()), "after {:?}", event);
        }
    }
}
