//! Properties of every load: it is deterministic, and never loses what is good.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::load::content::{ObjectId, Served};

/// Files with everything that can be wrong in them.
fn any_files() -> impl Strategy<Value = BTreeMap<String, String>> {
    let path = select(vec!["a", "b", "d/a", "d/b", "d/e/a", "f/a", "f/b"]).prop_map(ToOwned::to_owned);
    let line = prop_oneof![
        6 => (select(vec!["x", "y", "z"]), 0..3).prop_map(|(name, value)| format!("{name}={value}")),
        1 => select(vec!["x!", "y!", "?", "group!", "<", "group default"]).prop_map(ToOwned::to_owned),
        1 => (select(vec!["g", "h"]), 0..2).prop_map(|(name, id)| format!("group {name} n{id}")),
    ];
    btree_map(path, vec(line, 0..4).prop_map(|lines| lines.join("\n")), 0..6)
}

fn scan_of(files: &BTreeMap<String, String>) -> Scan {
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    scan(&files)
}

fn is_clean(loaded: &Loaded) -> bool {
    loaded.load.files.values().all(|file| file.diagnostics.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever was before, files without a fault give what they say and nothing else.
    #[test]
    fn clean_files_end_every_history(
        history in vec((any_files(), any::<bool>()), 0..6),
        last in any_files(),
    ) {
        let mut fresh = Files::default();
        fresh.due(&scan_of(&last));
        prop_assume!(is_clean(fresh.last.as_ref().unwrap()));
        let mut files = Files::default();
        for (step, is_postponed) in &history {
            files.load(&scan_of(step), if *is_postponed { Removals::Postponed } else { Removals::Due });
        }
        files.due(&scan_of(&last));
        prop_assert_eq!(files.served(), fresh.served());
        prop_assert!(files.errors().is_empty() && files.is_complete());
        prop_assert_eq!(&files.state.definitions, &fresh.state.definitions);
    }

    /// While removals are postponed, nothing that was served goes, whatever happens to the files.
    #[test]
    fn nothing_goes_while_removals_are_postponed(history in vec(any_files(), 1..6)) {
        let mut files = Files::default();
        let mut keys: Vec<String> = Vec::new();
        for step in &history {
            files.postponed(&scan_of(step));
            let now: Vec<_> = files.served().iter().map(|one| one.split('=').next().unwrap().to_owned()).collect();
            prop_assert!(keys.iter().all(|key| now.contains(key)), "{keys:?} then {now:?}");
            keys = now;
        }
    }

    /// A load takes the same from the one before as it would find by looking at everything.
    #[test]
    fn a_load_by_difference_is_a_load_of_everything(history in vec((any_files(), any::<bool>()), 1..8)) {
        let mut files = Files { is_partial_start: true, ..Files::default() };
        for (step, is_postponed) in &history {
            let removals = if *is_postponed { Removals::Postponed } else { Removals::Due };
            let mut whole = Files { state: files.state.forgetful(), is_partial_start: true, last: None };
            let whole = whole.load(&scan_of(step), removals);
            let loaded = files.load(&scan_of(step), removals);
            let shown = |loaded: &Loaded| {
                let FileLoad { layer, documents, files, unusable, texts: _, is_complete } = &loaded.load;
                let files: Vec<_> = files.values().map(|file| format!("{file:?}")).collect();
                format!("{layer:?} {documents:?} {files:#?} {unusable:?} {is_complete} {}", loaded.postpones_removals)
            };
            prop_assert_eq!(shown(loaded), shown(whole));
            prop_assert_eq!(&loaded.state.objects.served, &whole.state.objects.served);
        }
    }

    /// A load that nothing follows is the same again, and says that there is nothing left to do.
    #[test]
    fn a_second_look_changes_nothing(history in vec((any_files(), any::<bool>()), 1..5)) {
        let mut files = Files::default();
        for (step, is_postponed) in &history {
            files.load(&scan_of(step), if *is_postponed { Removals::Postponed } else { Removals::Due });
        }
        let last = scan_of(&history.last().unwrap().0);
        prop_assert!(!files.due(&last).postpones_removals);
        let before = (files.served(), files.errors());
        files.due(&last);
        prop_assert_eq!(&before, &(files.served(), files.errors()));
        files.postponed(&last);
        prop_assert_eq!(before, (files.served(), files.errors()));
    }

    /// After a restart with the same files, the same is served.
    #[test]
    fn a_restart_changes_nothing(history in vec(any_files(), 1..5)) {
        let mut files = Files { is_partial_start: true, ..Files::default() };
        for step in &history {
            files.due(&scan_of(step));
        }
        prop_assume!(files.is_complete());
        // An object that only its past serves, because all new files have it wrong, has no file to be saved with.
        let is_claimed = |(id, served): (&ObjectId, &Served)| {
            let file = files.state.files.get(&served.place.file);
            file.is_some_and(|file| file.good().any(|(key, _)| *key == id.key))
        };
        let groups = files.state.directories.values().map(|group| &group.path);
        prop_assume!(groups.into_iter().all(|path| files.state.files.contains_key(path)));
        prop_assume!(files.state.objects.served.iter().all(is_claimed));
        // A file that had to give way to another one, and still would, may come first after it.
        let is_conflict =
            |error: &String| error.ends_with("duplicate-resource") || error.ends_with("duplicate-node-group");
        prop_assume!(!files.errors().iter().any(is_conflict));
        let mut after = files.restarted();
        after.due(&scan_of(history.last().unwrap()));
        prop_assert_eq!(files.served(), after.served());
    }

    /// The real codec this time.
    #[test]
    fn arbitrary_files_never_panic(
        before in vec(any::<u8>(), 0..64),
        after in "[-a-z0-9:{}\\[\\]\"'@&*#|>! \n]{0,80}",
        path in select(vec!["a.yaml", "a.json"]),
    ) {
        let mut state = FilesState::default();
        for bytes in [before.as_slice(), after.as_bytes(), before.as_slice()] {
            let content = [(path.into(), Ok(FileContent::new(bytes)))].into();
            let scan = Scan { files: content, faults: BTreeMap::new(), is_settled: true };
            let options = Options { removals: Removals::Due, is_partial_start: true, unknown_fields: UnknownFields::Refuse };
            let limits = Limits::default();
            let loaded = load(&state, &scan, options, UNIX_EPOCH, |path, content| {
                codec().decode_file(path, &content.bytes, &limits)
            });
            let is_told = loaded.load.files.values().any(|file| !file.diagnostics.is_empty());
            prop_assert!(is_told || loaded.load.layer.n_resources() > 0 || loaded.load.is_complete);
            state = loaded.state;
        }
    }

    #[test]
    fn arbitrary_copies_never_panic(bytes in vec(any::<u8>(), 0..64), path in ".{0,8}") {
        let copies = BTreeMap::from([(path, bytes.into())]);
        let (_, damaged) = persist::restore(&copies, UNIX_EPOCH);
        prop_assert_eq!(damaged.len(), 1);
    }
}
