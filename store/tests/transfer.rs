//! A store that was written as text and read again is the same store.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use xds_store::{JournalStore, Retention, Revision, Store, TransferError, export, export_in_use, import};

use crate::common::{Step, assert_says, commit, open, runtime};

fn steps(n: u8) -> Vec<Step> {
    (0..n).map(|n| vec![("a".to_owned(), Some(vec![n; 300])), (format!("k{}", n % 3), None)]).collect()
}

/// A store with 6 commits of which the last 2 are kept.
fn filled() -> (tempfile::TempDir, JournalStore) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    runtime().block_on(async {
        for step in &steps(6) {
            commit(&store, step).await;
        }
        store.compact(Retention { revisions: 2, ..Retention::default() }).await.unwrap();
    });
    (dir, store)
}

fn exported(store: &JournalStore) -> String {
    let mut text = Vec::new();
    assert_eq!(export(store, &mut text).unwrap(), store.head());
    String::from_utf8(text).unwrap()
}

#[test]
fn what_was_exported_can_be_imported_and_goes_on() {
    let (_dir, store) = filled();
    let text = exported(&store);
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(import(dir.path(), &mut text.as_bytes()).unwrap(), Revision(6));
    let (imported, notes) = open(dir.path());
    assert_eq!(notes, []);
    assert_says(&imported, &steps(6), 6, 4);
    assert_eq!(exported(&imported), text);
    let more = steps(8);
    runtime().block_on(async {
        for step in &more[6..] {
            commit(&imported, step).await;
        }
    });
    drop(imported);
    assert_says(&open(dir.path()).0, &more, 8, 4);
}

#[test]
fn a_backup_of_a_store_in_use_has_what_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let steps = steps(200);
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            runtime().block_on(async {
                for (step, n) in steps.iter().zip(1..) {
                    commit(&store, step).await;
                    acknowledged.store(n, Ordering::Release);
                    if n % 20 == 0 {
                        store.compact(Retention { revisions: 10, ..Retention::default() }).await.unwrap();
                    }
                }
            });
        });
        let mut n_backups = 0;
        while !writer.is_finished() {
            let (before, mut text) = (acknowledged.load(Ordering::Acquire), Vec::new());
            let head = export_in_use(dir.path(), &mut text).unwrap();
            assert!(head.0 >= before, "{head} after {before} were acknowledged");
            let restored = tempfile::tempdir().unwrap();
            assert_eq!(import(restored.path(), &mut text.as_slice()).unwrap(), head);
            let (restored, notes) = open(restored.path());
            assert_eq!(notes, []);
            assert_says(&restored, &steps, head.0, restored.oldest().0);
            n_backups += 1;
        }
        assert!(n_backups > 2, "{n_backups} backups");
    });
}

#[test]
fn an_empty_store_can_be_exported_and_imported() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = exported(&open(from.path()).0);
    drop(open(to.path()));
    assert_eq!(import(to.path(), &mut text.as_bytes()).unwrap(), Revision(0));
    assert_eq!(open(to.path()).0.head(), Revision(0));
}

#[test]
fn the_text_is_one_object_per_line_with_hashes_in_hexadecimal() {
    let (_dir, store) = filled();
    let text = exported(&store);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({"format": "xds-store", "version": 1, "base": 4, "head": 6}));
    assert_eq!(lines[1]["blob"], store.state_at(Revision(4)).unwrap()["a"].to_string());
    assert_eq!(lines[2]["state"]["a"], lines[1]["blob"]);
    assert_eq!(lines[4]["record"]["revision"], 5);
    assert_eq!(lines[4]["record"]["atMs"], 17);
    assert_eq!(lines[4]["record"]["changes"][0]["value"], lines[3]["blob"]);
    assert_eq!(lines.len(), 7);
}

#[test]
fn a_store_with_commits_is_not_imported_into() {
    let (dir, store) = filled();
    let text = exported(&store);
    let locked = import(dir.path(), &mut text.as_bytes());
    assert!(matches!(locked, Err(TransferError::Open(_))), "{locked:?}");
    drop(store);
    let refused = import(dir.path(), &mut text.as_bytes());
    assert!(matches!(refused, Err(TransferError::NotEmpty { head: Revision(6) })), "{refused:?}");
    assert_says(&open(dir.path()).0, &steps(6), 6, 4);
}

#[test]
fn every_line_is_needed_in_its_place() {
    let (_dir, store) = filled();
    let text = exported(&store);
    let lines: Vec<&str> = text.lines().collect();
    let dir = tempfile::tempdir().unwrap();
    for left_out in 0..lines.len() {
        let mut fewer = lines.clone();
        fewer.remove(left_out);
        let result = import(dir.path(), &mut fewer.join("\n").as_bytes());
        assert!(matches!(result, Err(TransferError::Malformed { .. })), "without {left_out}: {result:?}");
        let mut doubled = lines.clone();
        doubled.insert(left_out, lines[left_out]);
        let result = import(dir.path(), &mut doubled.join("\n").as_bytes());
        // A blob may come twice; nothing else may.
        if !lines[left_out].starts_with("{\"blob\"") {
            assert!(matches!(result, Err(TransferError::Malformed { .. })), "twice {left_out}: {result:?}");
        } else {
            assert!(result.is_ok(), "{result:?}");
            std::fs::remove_dir_all(dir.path()).unwrap();
        }
    }
    import(dir.path(), &mut text.as_bytes()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_that_was_changed_is_refused_or_harmless(at: prop::sample::Index, byte: u8, cut: bool) {
        let (_dir, store) = filled();
        let mut text = exported(&store).into_bytes();
        let at = at.index(text.len());
        if cut { text.truncate(at) } else { text[at] = byte }
        let dir = tempfile::tempdir().unwrap();
        match import(dir.path(), &mut &text[..]) {
            // A changed name or time is as good as any; the contents are protected by their hashes.
            Ok(head) => {
                let (imported, notes) = open(dir.path());
                prop_assert_eq!((head, notes), (imported.head(), vec![]));
            }
            Err(TransferError::Malformed { line, .. }) => {
                prop_assert!(line <= 8);
                prop_assert_eq!(open(dir.path()).0.head(), Revision(0));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
