//! Recovery after files were cut, damaged or replaced.

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tempfile::TempDir;
use xds_store::{JournalStore, OpenError, OpenNote, Options, Retention, Revision, Store};

use crate::common::{Step, assert_says, commit, copy_dir, journal_files, open, open_keeping, runtime};

/// A store that was filled and closed.
struct Filled {
    dir: TempDir,
    steps: Vec<Step>,
    /// How long the journal was after 0, 1, 2, … commits.
    lengths: Vec<u64>,
}

impl Filled {
    fn new(steps: Vec<Step>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut lengths = Vec::new();
        runtime().block_on(async {
            let (store, _) = open(dir.path());
            lengths.push(journal_files(dir.path())[0].metadata().unwrap().len());
            for step in &steps {
                commit(&store, step).await;
                lengths.push(journal_files(dir.path())[0].metadata().unwrap().len());
            }
        });
        Self { dir, steps, lengths }
    }

    /// Commits of which the first `length` bytes of the journal have everything.
    fn n_complete(&self, length: u64) -> u64 {
        self.lengths.iter().skip(1).filter(|end| **end <= length).count() as u64
    }

    fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(self.dir.path(), copy.path());
        copy
    }

    fn total(&self) -> u64 {
        self.lengths[self.lengths.len() - 1]
    }
}

fn simple_steps(n: u8) -> Vec<Step> {
    (0..n).map(|n| vec![("a".to_owned(), Some(vec![n; 3])), (format!("k{n}"), Some(vec![n; 2]))]).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
    let step = prop::collection::btree_map("[a-d]", content, 0..3);
    prop::collection::vec(step.prop_map(|step| step.into_iter().collect()), 1..6)
}

fn truncate(path: &Path, length: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn flip(path: &Path, offset: u64, bits: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset as usize] ^= bits;
    std::fs::write(path, bytes).unwrap();
}

/// Opens what was cut to `length` bytes, checks it, and commits once more.
fn assert_prefix(filled: &Filled, dir: &Path, length: u64) {
    truncate(&journal_files(dir)[0], length);
    let (store, notes) = open(dir);
    let n = filled.n_complete(length);
    assert_says(&store, &filled.steps, n, 0);
    let torn = notes.iter().any(|note| matches!(note, OpenNote::TornEnd { .. }));
    assert_eq!(torn, !filled.lengths.contains(&length), "{notes:?}");
    let mut steps = filled.steps[..n as usize].to_vec();
    steps.push(vec![("new".into(), Some(b"new".to_vec()))]);
    runtime().block_on(commit(&store, &steps[n as usize]));
    drop(store);
    let (store, notes) = open(dir);
    assert_eq!(notes, []);
    assert_says(&store, &steps, n + 1, 0);
}

/// Where up to which revision the journal was acknowledged is marked.
const MARK: &str = "acknowledged";

/// Removes the mark, so that nothing but the journal says what was acknowledged.
fn forget(dir: &Path) {
    std::fs::remove_dir_all(dir.join(MARK)).unwrap();
}

#[test]
fn a_journal_without_mark_cut_anywhere_has_the_commits_that_fit() {
    let filled = Filled::new(simple_steps(3));
    for length in 0..=filled.total() {
        let copy = filled.copy();
        forget(copy.path());
        assert_prefix(&filled, copy.path(), length);
    }
}

#[test]
fn a_journal_cut_anywhere_is_not_opened_if_what_is_missing_is_marked() {
    let filled = Filled::new(simple_steps(3));
    for length in 0..filled.total() {
        let copy = filled.copy();
        let journal = journal_files(copy.path()).remove(0);
        truncate(&journal, length);
        let Err(error) = JournalStore::open(copy.path(), Options::default()) else {
            panic!("cut at {length}")
        };
        let OpenError::Lost { known, head, .. } = &error else { panic!("{error:?}") };
        assert_eq!((known.0, head.0), (3, filled.n_complete(length)));
        let advice = format!("xds-server store salvage --data-dir {}", copy.path().display());
        assert!(error.to_string().contains(&advice), "{error}");
        assert_eq!(journal.metadata().unwrap().len(), length, "an error changes nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_journal_cut_somewhere_has_the_commits_that_fit(steps in steps(), at: prop::sample::Index) {
        let filled = Filled::new(steps);
        let length = at.index(filled.total() as usize + 1) as u64;
        let copy = filled.copy();
        forget(copy.path());
        assert_prefix(&filled, copy.path(), length);
    }

    /// The last commit cannot be told from one that was never acknowledged, unless it is marked; every other one can.
    #[test]
    fn a_damaged_byte_is_reported_or_cut_off_but_never_believed(
        steps in steps(), at: prop::sample::Index, bits in 1_u8.., is_marked: bool,
    ) {
        let filled = Filled::new(steps);
        let offset = at.index(filled.total() as usize) as u64;
        let copy = filled.copy();
        if !is_marked {
            forget(copy.path());
        }
        let journal = journal_files(copy.path()).remove(0);
        flip(&journal, offset, bits);
        let damaged = std::fs::read(&journal).unwrap();
        let n = filled.n_complete(offset);
        let is_last = offset >= filled.lengths[0] && n + 1 == filled.steps.len() as u64;
        match JournalStore::open(copy.path(), Options::default()) {
            Ok((store, notes)) => {
                prop_assert!(is_last && !is_marked);
                let is_torn = notes.iter().any(|note| matches!(note, OpenNote::TornEnd { .. }));
                prop_assert!(is_torn);
                assert_says(&store, &filled.steps, n, 0);
                return Ok(());
            }
            Err(OpenError::Damaged { path, offset: found, .. }) => {
                prop_assert!(!is_last);
                prop_assert_eq!(&path, &journal);
                prop_assert!(found <= offset);
            }
            Err(OpenError::Lost { known, head, torn, .. }) => {
                prop_assert!(is_last && is_marked);
                prop_assert_eq!((known.0, head.0), (n + 1, n));
                prop_assert!(torn.is_some());
            }
            Err(other) => panic!("{other:?}"),
        }
        prop_assert!(std::fs::read(&journal).unwrap() == damaged, "an error changes nothing");
    }

    #[test]
    fn whatever_is_in_the_mark_the_store_says_what_the_journal_says(
        steps in steps(), file: prop::sample::Index, at: prop::sample::Index, garbage: Vec<u8>, mode in 0..4,
    ) {
        let filled = Filled::new(steps);
        let copy = filled.copy();
        let mark = copy.path().join(MARK);
        let mut files: Vec<_> = std::fs::read_dir(&mark).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        let file = &files[file.index(files.len())];
        let mut bytes = std::fs::read(file).unwrap();
        // Most of sled's file is empty; what matters is at its beginning.
        let at = at.index(bytes.len().clamp(1, 2000));
        match mode {
            0 => bytes = garbage,
            1 => bytes.truncate(at),
            2 => std::fs::remove_file(file).unwrap(),
            _ => bytes.iter_mut().skip(at).zip(garbage).for_each(|(byte, garbage)| *byte ^= garbage),
        }
        if mode != 2 {
            std::fs::write(file, bytes).unwrap();
        }
        let (store, _) = open(copy.path());
        assert_says(&store, &filled.steps, filled.steps.len() as u64, 0);
        drop(store);
        let (store, notes) = open(copy.path());
        prop_assert_eq!(notes, vec![]);
        assert_says(&store, &filled.steps, filled.steps.len() as u64, 0);
    }
}

#[test]
fn a_file_in_the_place_of_the_mark_is_moved_aside() {
    let filled = Filled::new(simple_steps(2));
    let mark = filled.dir.path().join(MARK);
    std::fs::remove_dir_all(&mark).unwrap();
    std::fs::write(&mark, "not sled").unwrap();
    let (store, notes) = open(filled.dir.path());
    assert_says(&store, &filled.steps, 2, 0);
    let aside = filled.dir.path().join("acknowledged.damaged-1");
    assert!(
        matches!(&notes[..], [OpenNote::MarkReplaced { aside: found, .. }] if *found == aside),
        "{notes:?}"
    );
    assert_eq!(std::fs::read(aside).unwrap(), b"not sled");
}

#[test]
fn a_mark_of_the_past_is_caught_up_without_a_word() {
    let filled = Filled::new(simple_steps(2));
    let old = filled.copy();
    let mut steps = filled.steps.clone();
    runtime().block_on(async {
        let (store, _) = open(filled.dir.path());
        for step in simple_steps(5).split_off(2) {
            commit(&store, &step).await;
            steps.push(step);
        }
    });
    std::fs::remove_dir_all(filled.dir.path().join(MARK)).unwrap();
    copy_dir(&old.path().join(MARK), &filled.dir.path().join(MARK));
    let (store, notes) = open(filled.dir.path());
    assert_eq!(notes, []);
    assert_says(&store, &steps, 5, 0);
}

#[test]
fn a_mark_of_another_store_is_moved_aside() {
    let (filled, other) = (Filled::new(simple_steps(3)), Filled::new(vec![vec![]; 3]));
    std::fs::remove_dir_all(filled.dir.path().join(MARK)).unwrap();
    copy_dir(&other.dir.path().join(MARK), &filled.dir.path().join(MARK));
    let (store, notes) = open(filled.dir.path());
    assert!(matches!(&notes[..], [OpenNote::MarkReplaced { .. }]), "{notes:?}");
    assert_says(&store, &filled.steps, 3, 0);
}

#[test]
fn a_journal_that_lost_its_files_is_noticed_by_the_mark() {
    let filled = Filled::new(simple_steps(3));
    std::fs::remove_file(&journal_files(filled.dir.path())[0]).unwrap();
    let result = JournalStore::open(filled.dir.path(), Options::default());
    let Err(OpenError::Lost { known, head, torn, .. }) = result else { panic!("{result:?}") };
    assert_eq!((known, head, torn), (Revision(3), Revision(0), None));
    assert!(journal_files(filled.dir.path()).is_empty(), "an error changes nothing");
}

#[test]
fn a_blob_may_contain_a_journal() {
    let inner = Filled::new(simple_steps(5));
    let inner = std::fs::read(&journal_files(inner.dir.path())[0]).unwrap();
    let filled = Filled::new(vec![vec![("a".into(), Some(b"1".to_vec()))], vec![("a".into(), Some(inner))]]);
    for length in (filled.lengths[1]..filled.lengths[2]).step_by(7) {
        let copy = filled.copy();
        forget(copy.path());
        assert_prefix(&filled, copy.path(), length);
    }
}

#[test]
fn pages_of_one_batch_that_reached_the_disk_out_of_order_are_a_torn_end() {
    let filled =
        Filled::new(vec![vec![("a".into(), Some(b"1".to_vec()))], vec![("a".into(), Some(vec![2; 9000]))]]);
    let journal = journal_files(filled.dir.path()).remove(0);
    let mut bytes = std::fs::read(&journal).unwrap();
    // The page in the middle of the blob never arrived; the commit behind it did.
    bytes[4096..8192].fill(0);
    std::fs::write(&journal, bytes).unwrap();
    forget(filled.dir.path());
    let (store, notes) = open(filled.dir.path());
    assert!(matches!(notes[0], OpenNote::TornEnd { .. }), "{notes:?}");
    assert_says(&store, &filled.steps, 1, 0);
}

/// A journal of a checkpoint and a segment behind it.
fn compacted() -> Filled {
    let mut filled = Filled::new(simple_steps(6));
    let (store, _) = open(filled.dir.path());
    runtime().block_on(async {
        store.compact(Retention { revisions: 3, ..Retention::default() }).await.unwrap();
        filled.steps.push(vec![("a".into(), Some(b"last".to_vec()))]);
        commit(&store, &filled.steps[6]).await;
    });
    assert_says(&store, &filled.steps, 7, 3);
    drop(store);
    filled
}

#[test]
fn a_checkpoint_is_never_taken_for_a_torn_end() {
    let filled = compacted();
    let length = journal_files(filled.dir.path())[0].metadata().unwrap().len();
    for (has_later, cut) in (0..length).map(|cut| (cut % 2 == 0, cut)) {
        let copy = tempfile::tempdir().unwrap();
        let files = journal_files(filled.dir.path());
        std::fs::copy(&files[0], copy.path().join(files[0].file_name().unwrap())).unwrap();
        truncate(&journal_files(copy.path())[0], cut);
        if has_later {
            std::fs::copy(&files[1], copy.path().join(files[1].file_name().unwrap())).unwrap();
        }
        let result = JournalStore::open(copy.path(), Options::default());
        assert!(matches!(result, Err(OpenError::Damaged { .. })), "at {cut}: {result:?}");
    }
}

#[test]
fn the_segment_behind_a_checkpoint_may_be_torn_but_not_missing() {
    let filled = compacted();
    let files = journal_files(filled.dir.path());
    assert_eq!(files.len(), 2);
    for cut in 0..files[1].metadata().unwrap().len() {
        let copy = filled.copy();
        truncate(&journal_files(copy.path())[1], cut);
        let result = JournalStore::open(copy.path(), Options::default());
        assert!(matches!(result, Err(OpenError::Lost { .. })), "revision 7 is marked: {result:?}");
        forget(copy.path());
        let (store, _) = open(copy.path());
        assert_says(&store, &filled.steps, 6, 3);
    }
    std::fs::remove_file(&files[0]).unwrap();
    let result = JournalStore::open(filled.dir.path(), Options::default());
    let Err(OpenError::Damaged { reason, .. }) = result else { panic!("{result:?}") };
    assert!(reason.contains("continues revision 6"), "{reason}");
}

#[test]
fn a_directory_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let second = JournalStore::open(dir.path(), Options::default());
    let Err(OpenError::Locked { path, holder }) = second else { panic!("{second:?}") };
    assert_eq!((path, holder), (dir.path().join("lock"), Some(std::process::id())));
    drop(store);
    open(dir.path());
}

#[test]
fn nobody_else_may_read_the_store() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (store, _) = open_keeping(&data, Retention { revisions: 1, ..Retention::default() });
    runtime().block_on(async {
        for step in simple_steps(4) {
            commit(&store, &step).await;
        }
    });
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&data.join(MARK)), mode(&data.join("lock"))), (0o700, 0o700, 0o600));
    // Files of old revisions go while this looks at them.
    let modes: Vec<_> = journal_files(&data).iter().filter_map(|file| file.metadata().ok()).collect();
    let modes: Vec<_> = modes.iter().map(|file| file.permissions().mode() & 0o777).collect();
    assert!(!modes.is_empty() && modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
}

/// Makes `index` what versions before the mark kept: the mark, among the places of all records and blobs.
fn make_earlier(dir: &Path) {
    let marked = sled::open(dir.join(MARK)).unwrap().get("applied").unwrap().unwrap();
    forget(dir);
    let index = sled::open(dir.join("index")).unwrap();
    index.insert("applied", marked).unwrap();
    for n in 0..1_000_u64 {
        index
            .insert([b"b", blake3::hash(&n.to_le_bytes()).as_bytes().as_slice()].concat(), &[0; 16])
            .unwrap();
    }
    index.flush().unwrap();
}

#[test]
fn the_mark_in_the_index_of_an_earlier_version_is_taken_over() {
    let filled = Filled::new(simple_steps(3));
    make_earlier(filled.dir.path());
    let cut = filled.copy();
    truncate(&journal_files(cut.path())[0], filled.lengths[2]);
    let result = JournalStore::open(cut.path(), Options::default());
    assert!(
        matches!(result, Err(OpenError::Lost { known: Revision(3), head: Revision(2), .. })),
        "{result:?}"
    );
    assert!(cut.path().join("index").exists(), "an error changes nothing");

    let (store, notes) = open(filled.dir.path());
    assert_eq!((notes, filled.dir.path().join("index").exists()), (vec![], false));
    assert_says(&store, &filled.steps, 3, 0);
    drop(store);
    truncate(&journal_files(filled.dir.path())[0], filled.lengths[2]);
    let result = JournalStore::open(filled.dir.path(), Options::default());
    assert!(matches!(result, Err(OpenError::Lost { known: Revision(3), .. })), "{result:?}");
}

#[test]
fn what_is_acknowledged_is_marked_on_disk_while_the_store_is_open() {
    let filled = Filled::new(simple_steps(2));
    let (store, _) = open(filled.dir.path());
    runtime().block_on(commit(&store, &simple_steps(3)[2]));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        // A kill leaves this: the files as they are. One that vanishes meanwhile is not needed.
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir(copy.path().join(MARK)).unwrap();
        let marked = std::fs::read_dir(filled.dir.path().join(MARK)).unwrap().map(Result::unwrap);
        for file in marked.filter(|file| file.path().is_file()) {
            let _ = std::fs::copy(file.path(), copy.path().join(MARK).join(file.file_name()));
        }
        let journal = &journal_files(filled.dir.path())[0];
        std::fs::copy(journal, copy.path().join(journal.file_name().unwrap())).unwrap();
        truncate(&journal_files(copy.path())[0], filled.lengths[2]);
        match JournalStore::open(copy.path(), Options::default()) {
            Err(OpenError::Lost { known: Revision(3), .. }) => break,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
    }
}
