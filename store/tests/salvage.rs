//! Damaged stores are refused with a reason, and made usable again by saying first what that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;
use xds_store::{JournalStore, KeyLoss, KeyOutcome, OpenError, Options, Retention, Revision, Salvage, Store};

use crate::common::{
    Contents, Step, commit, contents, copy_dir, journal_files, model, open, open_keeping, runtime,
};

fn simple_steps(n: u8) -> Vec<Step> {
    (0..n).map(|n| vec![("a".to_owned(), Some(vec![n; 30])), (format!("k{n}"), Some(vec![n; 20]))]).collect()
}

/// A closed store of these commits. If `kept` is given, the history before the last so many is compacted before the
/// last commit.
fn filled(steps: &[Step], kept: Option<u64>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    runtime().block_on(async {
        for (n, step) in steps.iter().enumerate() {
            if let Some(revisions) = kept.filter(|_| n + 1 == steps.len()) {
                store.compact(Retention { revisions, ..Retention::default() }).await.unwrap();
            }
            commit(&store, step).await;
        }
    });
    drop(store);
    dir
}

fn copy(dir: &TempDir) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), copy.path());
    copy
}

fn flip(path: &Path, offset: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset as usize] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

/// The name and content of every file of the journal, and of what was kept of damaged ones.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named
        .filter(|(name, _)| name.starts_with("journal-"))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}

/// Salvages `dir`, checks what was said of it against the state of each revision, and returns what is there then.
fn salvage(dir: &Path, states: &[Contents]) -> (Revision, Contents) {
    let damaged = files(dir);
    let salvage = Salvage::find(dir).unwrap();
    assert!(salvage.is_needed());
    assert_eq!(files(dir), damaged, "saying what would be lost changes nothing");
    let (kept, keys, records) = (salvage.kept, salvage.keys.clone(), salvage.records.clone());
    let pieces = salvage.pieces.clone();
    salvage.carry_out().unwrap();

    let after = files(dir);
    for (name, bytes) in &damaged {
        let is_kept = after.get(name) == Some(bytes) || after.values().any(|kept| kept == bytes);
        assert!(is_kept || pieces.is_empty(), "{name} is thrown away");
    }
    let (store, notes) = open(dir);
    assert_eq!(store.head(), kept, "{notes:?}");
    let now = contents(&store, &store.state().1);
    let read: BTreeSet<Revision> = records.iter().map(|record| record.revision).collect();
    // A commit that cannot be read may have changed any key once more.
    let is_all_read = (kept.0 + 1..states.len() as u64).all(|revision| read.contains(&Revision(revision)));
    let newest = states.last().filter(|_| is_all_read);
    for KeyLoss { key, outcome } in &keys {
        let newest = newest.map(|newest| newest.get(key));
        assert!(newest.is_none_or(|newest| now.get(key) != newest), "{key}");
        match outcome {
            KeyOutcome::Lost => assert!(!now.contains_key(key), "{key}"),
            KeyOutcome::RolledBack => assert!(now.contains_key(key), "{key}"),
            KeyOutcome::Returns => {
                assert!(now.contains_key(key) && newest.is_none_or(|newest| newest.is_none()), "{key}");
            }
        }
    }
    runtime().block_on(commit(&store, &vec![("new".into(), Some(b"new".to_vec()))]));
    drop(store);
    let (store, notes) = open(dir);
    assert_eq!((notes, store.head()), (vec![], kept.next()));
    assert!(!Salvage::find(dir).is_ok_and(|salvage| salvage.is_needed()));
    (kept, now)
}

#[test]
fn a_store_that_is_well_needs_no_salvage() {
    for kept in [None, Some(2)] {
        let dir = filled(&simple_steps(5), kept);
        let before = files(dir.path());
        let salvage = Salvage::find(dir.path()).unwrap();
        assert!(!salvage.is_needed(), "{salvage:?}");
        assert_eq!((salvage.kept, salvage.known), (Revision(5), Some(Revision(5))));
        assert_eq!(salvage.carry_out().unwrap(), []);
        assert_eq!(files(dir.path()), before);
    }
}

#[test]
fn a_store_in_use_is_not_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _) = open(dir.path());
    let result = Salvage::find(dir.path());
    assert!(matches!(result, Err(OpenError::Locked { .. })), "{result:?}");
}

#[test]
fn a_salvage_says_exactly_which_commits_and_keys_are_lost() {
    let mut steps = simple_steps(5);
    steps.push(vec![("k1".into(), None)]);
    let dir = filled(&steps, None);
    let journal = journal_files(dir.path()).remove(0);
    let total = length(&journal);
    let ends: Vec<u64> =
        (0..=6).map(|n| length(&journal_files(filled(&steps[..n], None).path())[0])).collect();
    flip(&journal, ends[3] + 5);
    let salvage = Salvage::find(dir.path()).unwrap();
    assert_eq!((salvage.kept, salvage.known), (Revision(3), Some(Revision(6))));
    let [piece] = &salvage.pieces[..] else { panic!("{salvage:?}") };
    assert_eq!((&piece.path, piece.offset, piece.bytes), (&journal, ends[3], total - ends[3]));
    assert!(piece.reason.starts_with(&format!("damaged at byte {}: ", ends[3])), "{}", piece.reason);
    // The blob of revision 4 is damaged; its record, and everything behind it, can be read.
    let records: Vec<_> = salvage.records.iter().map(|record| (record.revision.0, record.n_keys)).collect();
    assert_eq!(records, [(4, 2), (5, 2), (6, 1)]);
    let keys: Vec<_> = salvage.keys.iter().map(|loss| (loss.key.as_str(), loss.outcome)).collect();
    let expected = [
        ("a", KeyOutcome::RolledBack),
        ("k1", KeyOutcome::Returns),
        ("k3", KeyOutcome::Lost),
        ("k4", KeyOutcome::Lost),
    ];
    assert_eq!(keys, expected);
    drop(salvage);
    let states = model(&steps);
    let (kept, now) = self::salvage(dir.path(), &states);
    assert_eq!((kept, now), (Revision(3), states[3].clone()));
}

#[test]
fn a_damaged_checkpoint_costs_the_damaged_values_only() {
    let steps = simple_steps(6);
    let dir = filled(&steps, Some(2));
    let states = model(&steps);
    let file = &journal_files(dir.path())[0];
    let bytes = std::fs::read(file).unwrap();
    let value = bytes.windows(20).position(|window| window == [1; 20]).unwrap();
    let value_of_a = bytes.windows(30).position(|window| window == [3; 30]).unwrap();
    // The value of `k1`; an old value of `a`; the header of the file; the first record of the history.
    for (offset, lost) in [(value, Some("k1")), (value_of_a, None), (9, None), (3, None)] {
        let copy = copy(&dir);
        flip(&copy.path().join(file.file_name().unwrap()), offset as u64);
        let result = JournalStore::open(copy.path(), Options::default());
        assert!(matches!(result, Err(OpenError::Damaged { .. })), "{result:?}");
        let mut expected = states[6].clone();
        lost.map(|key| expected.remove(key).unwrap());
        let (kept, now) = salvage(copy.path(), &states);
        assert_eq!((kept, now), (Revision(6), expected), "at {offset}");
    }
}

#[test]
fn a_mark_beyond_the_journal_is_moved_aside() {
    let dir = filled(&simple_steps(3), None);
    std::fs::remove_file(&journal_files(dir.path())[0]).unwrap();
    let salvage = Salvage::find(dir.path()).unwrap();
    assert!(salvage.is_needed() && salvage.pieces.is_empty(), "{salvage:?}");
    assert_eq!((salvage.kept, salvage.known), (Revision(0), Some(Revision(3))));
    let moved = salvage.carry_out().unwrap();
    assert_eq!(moved, [(dir.path().join("acknowledged"), dir.path().join("acknowledged.damaged-1"))]);
    assert_eq!(open(dir.path()).0.head(), Revision(0));
}

#[test]
fn a_journal_of_a_newer_version_is_not_called_damaged_and_not_touched() {
    let dir = filled(&simple_steps(3), None);
    let journal = journal_files(dir.path()).remove(0);
    let good = std::fs::read(&journal).unwrap();
    let mut newer = good.clone();
    newer[7] = b'3';
    let crc = crc32c::crc32c(&newer[..32]).to_le_bytes();
    newer[32..36].copy_from_slice(&crc);
    std::fs::write(&journal, &newer).unwrap();
    let mark = dir.path().join("acknowledged");
    std::fs::remove_dir_all(&mark).unwrap();
    for error in [
        JournalStore::open(dir.path(), Options::default()).map(drop).unwrap_err(),
        Salvage::find(dir.path()).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Newer { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("written by a newer version of xds-server (format 3; this program reads format 1)"),
            "{text}"
        );
    }
    assert!(std::fs::read(&journal).unwrap() == newer && !mark.exists());

    // With a wrong checksum the digit is a damage, alone and with others.
    for others in [&[][..], &[12], &[12, 30, 34]] {
        let mut damaged = good.clone();
        damaged[7] = b'3';
        others.iter().for_each(|&at: &usize| damaged[at] ^= 4);
        std::fs::write(&journal, damaged).unwrap();
        let result = JournalStore::open(dir.path(), Options::default());
        assert!(matches!(result, Err(OpenError::Damaged { .. })), "{others:?}: {result:?}");
    }
}

#[test]
fn a_record_of_a_newer_version_is_not_called_damaged_and_not_cut_off() {
    let dir = filled(&simple_steps(3), None);
    std::fs::remove_dir_all(dir.path().join("acknowledged")).unwrap();
    let journal = journal_files(dir.path()).remove(0);
    let mut bytes = std::fs::read(&journal).unwrap();
    let (salt, offset) = (bytes[24..32].to_vec(), bytes.len());
    let header = [&b"XDSr"[..], &9_u32.to_le_bytes(), &[0; 16]].concat();
    let crc = crc32c::crc32c(&[&salt[..], &(offset as u64).to_le_bytes(), &header].concat());
    bytes.extend([&header[..], &crc.to_le_bytes()].concat());
    std::fs::write(&journal, &bytes).unwrap();
    let result = JournalStore::open(dir.path(), Options::default());
    let Err(OpenError::Newer { what, .. }) = result else { panic!("{result:?}") };
    assert_eq!(what, format!("a record of kind 9 at byte {offset}, which this version does not know"));
    assert_eq!(std::fs::read(&journal).unwrap(), bytes);
}

/// Damage to a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
    Zero(prop::sample::Index, usize),
    Remove,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        6 => (any::<prop::sample::Index>(), 1_u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        3 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        2 => prop::collection::vec(any::<u8>(), 1..200).prop_map(Damage::Append),
        2 => (any::<prop::sample::Index>(), 1_usize..400).prop_map(|(at, n)| Damage::Zero(at, n)),
        1 => Just(Damage::Remove),
    ]
}

fn apply(damage: &Damage, path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    match damage {
        Damage::Flip(at, bits) => {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Damage::Append(garbage) => bytes.extend(garbage),
        Damage::Zero(at, n) => {
            let at = at.index(bytes.len());
            bytes.iter_mut().skip(at).take(*n).for_each(|byte| *byte = 0);
        }
        Damage::Remove => return std::fs::remove_file(path).unwrap(),
    }
    std::fs::write(path, bytes).unwrap();
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = prop::option::of(prop::collection::vec(any::<u8>(), 0..60));
    let step = prop::collection::btree_map("[a-d]", content, 0..3);
    prop::collection::vec(step.prop_map(|step| step.into_iter().collect()), 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    /// A damaged store opens with everything that was acknowledged, or not at all; with its mark, always so. Without one,
    /// only what no later commit proves to have been complete is cut off.
    #[test]
    fn no_damage_loses_anything_in_silence(
        steps in steps(),
        kept in prop::option::of(1_u64..4),
        is_marked: bool,
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..4),
    ) {
        let dir = filled(&steps, kept);
        if !is_marked {
            std::fs::remove_dir_all(dir.path().join("acknowledged")).unwrap();
        }
        for (which, damage) in &damages {
            let files = journal_files(dir.path());
            if !files.is_empty() && length(&files[which.index(files.len())]) > 0 {
                apply(damage, &files[which.index(files.len())]);
            }
        }
        let states = model(&steps);
        let damaged = files(dir.path());
        match JournalStore::open(dir.path(), Options::default()) {
            Ok((store, _)) => {
                let head = store.head().0 as usize;
                prop_assert!(head == steps.len() || !is_marked, "{} is marked, not {head}", steps.len());
                prop_assert_eq!(&contents(&store, &store.state().1), &states[head]);
                return Ok(());
            }
            Err(error @ (OpenError::Damaged { .. } | OpenError::Lost { .. })) => {
                prop_assert!(error.to_string().contains("store salvage"), "{}", error);
            }
            Err(other) => panic!("{other:?}"),
        }
        prop_assert_eq!(files(dir.path()), damaged, "an error changes nothing");
        let (revision, now) = salvage(dir.path(), &states);
        // No key has a value that it never had.
        let had: BTreeSet<_> = states.iter().flatten().collect();
        prop_assert!(now.iter().all(|entry| had.contains(&entry)), "{revision}");
    }

    /// A length that is not true is not believed, whatever else is right with the frame.
    #[test]
    fn a_length_beyond_the_file_is_a_torn_end(length: u32, kind in 1_u32..4) {
        let dir = filled(&simple_steps(2), None);
        let journal = journal_files(dir.path()).remove(0);
        let bytes = std::fs::read(&journal).unwrap();
        let header =
            [&b"XDSr"[..], &kind.to_le_bytes(), &length.max(100).to_le_bytes(), &[0; 12]].concat();
        let offset = (bytes.len() as u64).to_le_bytes();
        let crc = crc32c::crc32c(&[&bytes[24..32], &offset, &header].concat());
        let file = std::fs::File::options().write(true).open(&journal).unwrap();
        file.write_all_at(&[&header[..], &crc.to_le_bytes()].concat(), bytes.len() as u64).unwrap();
        let (store, _) = open_keeping(dir.path(), Retention::default());
        prop_assert_eq!(store.head(), Revision(2));
    }
}
