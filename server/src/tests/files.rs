//! Loads of files: revisions, overrides, and loads that are held back.

use std::sync::atomic::Ordering;

use xds_codec::{Diagnostic, Place, Severity};
use xds_control::model::{ChangeKind, EntityTags, ServedLoad};
use xds_store::JournalStore;

use super::*;

#[tokio::test]
async fn pitfall_48_nothing_is_served_before_the_first_complete_load() {
    let server = Server::with_files(&MemoryStore::new());
    assert!(!server.publisher.is_loaded() && !server.control.not_ready().is_empty());
    let incomplete = FileLoad { is_complete: false, ..load(&[("default", &[("a", "1")])]) };
    server.control.load_files(incomplete).await.unwrap();
    assert!(!server.publisher.is_loaded() && !server.control.not_ready().is_empty());
    assert_eq!(server.control.files().len(), 1, "its files are shown nevertheless");
    server.control.load_files(load(&[("default", &[("a", "1")])])).await.unwrap();
    assert!(server.publisher.is_loaded() && server.control.not_ready().is_empty());
    assert_eq!(server.served("default"), pairs(&[("a", "1")]));
    server.control.shut_down();
    assert_eq!(server.control.not_ready().len(), 1);
}

#[tokio::test]
async fn pitfall_47_equal_files_are_no_revision_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { watches_files: true, ..Options::default() };
    for _ in 0..3 {
        let (store, _) = JournalStore::open(dir.path(), Default::default()).unwrap();
        let server = Server::open(Arc::new(store), options());
        for first_line in [1, 7] {
            server
                .control
                .load_files(load_at(&[("g", &[("a", "1"), ("b", "1")])], first_line))
                .await
                .unwrap();
            assert_eq!(server.revision(), 1);
            let view = server.publisher.view_at(&view_key_of_group(&group("g"), Profile::Envoy)).unwrap();
            let origin = view.resolve(&ResourceType::Cluster, "a").unwrap().origin().to_string();
            assert_eq!(
                origin,
                format!("routes/a.yaml:{first_line}:1"),
                "where it is in the file is kept up to date"
            );
        }
    }
    let (store, _) = JournalStore::open(dir.path(), Default::default()).unwrap();
    let server = Server::open(Arc::new(store), options());
    let outcome = server.control.load_files(load(&[("g", &[("a", "1"), ("c", "1")])])).await.unwrap();
    assert_eq!(outcome.revision, Revision(2));
    let (entry, difference) = server.control.revision(Revision(2), |_| true).unwrap();
    assert_eq!((entry.actor.as_str(), entry.source.as_str()), ("files", "file"));
    let changes =
        [("g/clusters/b".to_owned(), ChangeKind::Removed), ("g/clusters/c".to_owned(), ChangeKind::Added)];
    assert_eq!(
        BTreeSet::from_iter(entry.changes.iter().map(|c| &c.0)),
        changes.iter().map(|c| &c.0).collect()
    );
    assert!(changes.iter().all(|change| entry.changes.contains(change)));
    assert_eq!(difference.len(), 2);
}

#[tokio::test]
async fn equal_replicas_record_a_load_once() {
    let store = MemoryStore::new();
    let (one, two) = (Server::with_files(&store), Server::with_files(&store));
    let files = || load(&[("g", &[("a", "1")])]);
    let (a, b) =
        futures_util::future::join(one.control.load_files(files()), two.control.load_files(files())).await;
    assert_eq!((a.unwrap().revision, b.unwrap().revision), (Revision(1), Revision(1)));
    assert_eq!((one.served("g"), two.served("g")), (pairs(&[("a", "1")]), pairs(&[("a", "1")])));
}

#[tokio::test]
async fn pitfall_77_an_override_hides_the_file_until_it_goes_or_is_equal() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    server.control.load_files(load(&[("g", &[("a", "1"), ("b", "1")])])).await.unwrap();
    server.write(put("g", "a", "2")).await.unwrap();
    server.write(put("g", "b", "2")).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "2"), ("b", "2")]));
    server.write(delete("g", "b")).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "2"), ("b", "1")]), "the file's shows again");
    server.control.load_files(load(&[("g", &[("a", "3"), ("b", "3")])])).await.unwrap();
    assert_eq!(
        server.served("g"),
        pairs(&[("a", "2"), ("b", "3")]),
        "the override stays over a changed file"
    );

    let server = Server::with_files(&store);
    let mut events = server.control.events();
    server.control.load_files(load(&[("g", &[("a", "2"), ("b", "3")])])).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "2"), ("b", "3")]));
    let dropped = Event::OverrideDropped {
        what: "g/clusters/a".to_owned(),
        reason: "the file says the same now".to_owned(),
    };
    assert!(told(&mut events).contains(&dropped), "what the file says by now is no override any more");
    assert!(server.control.overrides().1.groups.is_empty());
    server.control.load_files(load(&[("g", &[("a", "4"), ("b", "3")])])).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "4"), ("b", "3")]), "else it would hide its file for ever");
}

#[tokio::test]
async fn an_override_that_was_put_equal_stays_until_its_file_changes() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(load(&[("g", &[("a", "1"), ("b", "1")])])).await.unwrap();
    server.write(put("g", "a", "1")).await.unwrap();
    server.control.load_files(load(&[("g", &[("a", "1"), ("b", "2")])])).await.unwrap();
    assert_eq!(server.control.overrides().1.n_resources(), 1, "the load did not touch what it pins");
}

#[tokio::test]
async fn a_mass_removal_is_held_until_it_is_confirmed_or_gone() {
    let options = || Options { watches_files: true, hold_mass_removal: Some(0.5), ..Options::default() };
    let server = Server::open(MemoryStore::new(), options());
    let all: &[_] = &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1")];
    let (half, two, one) = (&all[..3], &all[..2], &all[..1]);
    server.control.load_files(load(&[("g", all)])).await.unwrap();
    let mut events = server.control.events();
    let outcome = server.control.load_files(load(&[("g", two)])).await.unwrap();
    let held =
        "the files would remove 4 of 6 objects of the group g, more than 50 % (\"c\", \"d\", \"e\", …)";
    assert_eq!(
        (outcome.unconfirmed.as_deref(), server.control.unconfirmed().as_deref()),
        (Some(held), Some(held))
    );
    assert!(matches!(told(&mut events).as_slice(), [Event::Unconfirmed { .. }]));
    let problem =
        format!("a load of the files is held back: {held}; run `xds-server reload --confirm` to let it pass");
    assert_eq!(server.control.problems(), [problem]);
    assert_eq!(server.control.served_load(), ServedLoad::Earlier);
    server.control.load_files(load(&[("g", two)])).await.unwrap();
    assert!(told(&mut events).is_empty(), "it is told once");
    assert_eq!(server.served("g").len(), 6);
    server.control.load_files(load(&[("g", half)])).await.unwrap();
    assert_eq!(
        (server.control.unconfirmed(), server.served("g").len()),
        (None, 3),
        "half is not more than half"
    );
    assert_eq!((server.control.served_load(), server.control.problems().len()), (ServedLoad::Current, 0));
    server.control.load_files(load(&[])).await.unwrap();
    assert!(server.control.unconfirmed().is_some(), "a group that goes loses all");
    let outcome = server.control.confirm_files(load(&[])).await.unwrap();
    assert_eq!(
        (outcome.unconfirmed, server.control.unconfirmed(), server.served("g").len()),
        (None, None, 0)
    );
    let single = Server::open(MemoryStore::new(), options());
    single.control.load_files(load(&[("g", one)])).await.unwrap();
    single.control.load_files(load(&[])).await.unwrap();
    assert_eq!(single.control.unconfirmed(), None, "one resource is no mass");
}

#[tokio::test]
async fn a_start_that_finds_nothing_where_something_was_waits_for_a_confirmation() {
    let options = || Options { watches_files: true, hold_mass_removal: Some(0.5), ..Options::default() };
    let store = MemoryStore::new();
    let server = || Server::open(Arc::clone(&store) as Arc<dyn Store>, options());
    server().control.load_files(load(&[("g", &[("a", "1"), ("b", "1")])])).await.unwrap();
    let again = server();
    let outcome = again.control.load_files(load(&[])).await.unwrap();
    let held = "the files contain no objects, but they contained 2 when the server last ran";
    assert_eq!((outcome.unconfirmed.as_deref(), again.publisher.is_loaded()), (Some(held), false));
    let reason =
        format!("nothing is served yet: {held}; if this is intended, run `xds-server reload --confirm`");
    assert_eq!((again.control.not_ready(), again.control.problems()), (vec![reason.clone()], vec![reason]));
    assert_eq!(again.control.served_load(), ServedLoad::None);
    again.control.load_files(load(&[("g", &[("a", "2")])])).await.unwrap();
    assert_eq!((again.served("g"), again.control.problems()), (pairs(&[("a", "2")]), vec![]));
    let third = server();
    third.control.load_files(load(&[])).await.unwrap();
    assert!(third.publisher.is_loaded(), "one object is no mass");
    let fresh = Server::open(MemoryStore::new(), options());
    fresh.control.load_files(load(&[])).await.unwrap();
    assert!(fresh.publisher.is_loaded(), "there was nothing before");
    let other = server();
    other.control.confirm_files(load(&[])).await.unwrap();
    assert!(other.publisher.is_loaded());
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_a_problem_until_something_can_be_stored() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    tokio::spawn(server.control.clone().watch_disk());
    let problem = || server.control.problems().join("");
    server.write(put("g", "a", "1")).await.unwrap();
    for by_commit in [true, false] {
        *store.disk.lock().unwrap() = Some(std::io::ErrorKind::StorageFull);
        server.write(put("g", "a", "2")).await.unwrap_err();
        let told = problem();
        assert!(told.contains("the disk is full; free some space") && told.contains("/data/"), "{told}");
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(problem(), told, "it is still full");
        *store.disk.lock().unwrap() = None;
        if by_commit {
            server.write(put("g", "b", "1")).await.unwrap();
        } else {
            tokio::time::sleep(std::time::Duration::from_secs(11)).await;
        }
        assert_eq!(problem(), "");
    }
    // A fault in a change is no problem of the disk.
    store.is_failing.store(true, Ordering::Relaxed);
    server.write(put("g", "a", "3")).await.unwrap_err();
    assert_eq!(problem(), "");
    server.control.note_copies(Some("the disk is full"));
    assert!(
        problem().contains("last good copies of files cannot be saved: the disk is full"),
        "{}",
        problem()
    );
    server.control.note_copies(None);
    assert_eq!(problem(), "");
}

#[tokio::test]
async fn files_are_served_though_the_store_fails_and_recorded_when_it_works() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    store.is_failing.store(true, Ordering::Relaxed);
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    assert_eq!((server.served("g"), server.revision()), (pairs(&[("a", "1")]), 0));
    assert_eq!(server.control.problems().len(), 1);
    store.is_failing.store(false, Ordering::Relaxed);
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    assert_eq!((server.revision(), server.control.problems().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_was_not_recorded_is_recorded_once_the_store_works_though_no_file_changes() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    tokio::spawn(server.control.clone().watch_disk());
    let pass = |seconds| tokio::time::sleep(std::time::Duration::from_secs(seconds));
    *store.disk.lock().unwrap() = Some(std::io::ErrorKind::StorageFull);
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    pass(60).await;
    assert_eq!((server.served("g"), server.revision()), (pairs(&[("a", "1")]), 0));
    assert_eq!(server.control.problems().len(), 2, "the disk, and the load");
    *store.disk.lock().unwrap() = None;
    pass(11).await;
    assert_eq!((server.revision(), server.control.problems()), (1, vec![]));
    // The store refuses once for another reason.
    store.is_failing.store(true, Ordering::Relaxed);
    server.control.load_files(load(&[("g", &[("a", "2")])])).await.unwrap();
    assert_eq!((server.revision(), server.control.problems().len()), (1, 1));
    store.is_failing.store(false, Ordering::Relaxed);
    pass(11).await;
    assert_eq!((server.revision(), server.control.problems()), (2, vec![]));
    pass(60).await;
    assert_eq!(server.revision(), 2, "once is enough");
}

#[tokio::test]
async fn a_load_that_was_not_recorded_is_recorded_before_the_next_write() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    store.is_failing.store(true, Ordering::Relaxed);
    server.control.load_files(load(&[("g", &[("a", "2")])])).await.unwrap();
    let mut events = server.control.events();
    server.write(put("g", "o", "1")).await.unwrap_err();
    assert_eq!((server.revision(), server.control.problems().len()), (1, 1));
    let published = |event: &Event| matches!(event, Event::Published { .. });
    assert!(!told(&mut events).iter().any(published), "nothing changed");
    store.is_failing.store(false, Ordering::Relaxed);
    let dry_run = WriteOptions { dry_run: true, ..WriteOptions::default() };
    server.control.write(put("g", "o", "1"), dry_run).await.unwrap();
    assert_eq!(server.revision(), 1, "a dry run changes nothing");
    let outcome = server.write(put("g", "o", "1")).await.unwrap();
    assert_eq!((outcome.revision, server.control.problems().len()), (Revision(3), 0));
    assert_eq!(server.served("g"), pairs(&[("a", "2"), ("o", "1")]));
    let sources: Vec<_> =
        server.control.history(None, 9).unwrap().into_iter().map(|entry| entry.source).collect();
    assert_eq!(sources, ["api", "file", "file"]);
    server.write(put("g", "o", "2")).await.unwrap();
    assert_eq!(server.revision(), 4, "it is recorded once");
}

/// A load whose one file has this diagnostic.
fn load_with(text: &str, severity: Severity, groups: &[(&str, &[(&str, &str)])]) -> FileLoad {
    let mut load = load(groups);
    let diagnostic = Diagnostic {
        severity,
        code: "test",
        place: Place { file: "routes/a.yaml".into(), line: 1, column: 1 },
        path: String::new(),
        message: text.to_owned(),
        suggestion: None,
        related: vec![],
        is_sensitive: false,
    };
    load.files.values_mut().for_each(|file| file.diagnostics.push(diagnostic.clone()));
    load
}

fn shown(server: &Server) -> String {
    server.control.files()["routes/a.yaml"].diagnostics[0].message.clone()
}

#[tokio::test]
async fn the_status_of_a_load_is_seen_only_once_the_load_is_published() {
    let options = Options { watches_files: true, hold_mass_removal: Some(0.5), ..Options::default() };
    let server = Server::open(MemoryStore::new(), options);
    let mut events = server.control.events();
    server.control.load_files(load_with("1", Severity::Warning, &[("g", &[("a", "1")])])).await.unwrap();
    for text in ["2", "3", "4"] {
        let control = server.control.clone();
        let load = load_with(text, Severity::Error, &[("g", &[("a", text)])]);
        told(&mut events);
        // Both are on one thread, so the load is looked at wherever it waits.
        let loading = tokio::spawn(async move { control.load_files(load).await });
        let mut n_looks = 0;
        while !loading.is_finished() {
            let status = shown(&server);
            assert_eq!(server.served("g")["a"], status);
            n_looks += 1;
            tokio::task::yield_now().await;
        }
        assert!(n_looks > 1, "it waits at least once");
        loading.await.unwrap().unwrap();
        assert_eq!(shown(&server), text);
        let kinds: Vec<_> = told(&mut events)
            .into_iter()
            .map(|event| matches!(event, Event::FileError(found) if found.message == text))
            .collect();
        assert_eq!(kinds, [false, true], "the publication, and the error once the status shows it");
    }
}

#[tokio::test]
async fn the_status_of_a_load_that_fails_is_seen_and_the_last_one_goes_on() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    server.control.load_files(load_with("1", Severity::Warning, &[("g", &[("a", "1")])])).await.unwrap();
    store.is_broken.store(true, Ordering::Relaxed);
    let failing = load_with("2", Severity::Warning, &[("g", &[("a", "2")])]);
    let error = server.control.load_files(failing).await.unwrap_err();
    assert!(matches!(error, WriteError::Internal(_)), "{error:?}");
    assert_eq!((shown(&server).as_str(), server.served("g")["a"].as_str()), ("2", "1"));
    store.is_broken.store(false, Ordering::Relaxed);
    server.control.load_files(load_with("2", Severity::Warning, &[("g", &[("a", "2")])])).await.unwrap();
    assert_eq!(server.served("g")["a"], "2");
}

#[tokio::test]
async fn the_status_of_a_load_that_is_held_is_seen_with_the_reason() {
    let options = Options { watches_files: true, hold_mass_removal: Some(0.5), ..Options::default() };
    let server = Server::open(MemoryStore::new(), options);
    server.control.load_files(load(&[("g", &[("a", "1"), ("b", "1")])])).await.unwrap();
    server.control.load_files(load_with("held", Severity::Warning, &[])).await.unwrap();
    assert_eq!((shown(&server).as_str(), server.control.unconfirmed().is_some()), ("held", true));
    assert_eq!(server.served("g").len(), 2);
    server.control.confirm_files(load_with("confirmed", Severity::Warning, &[])).await.unwrap();
    assert_eq!((shown(&server).as_str(), server.control.unconfirmed()), ("confirmed", None));
    assert_eq!(server.served("g").len(), 0);
}

#[tokio::test]
async fn a_rollback_leaves_the_files_and_says_where_they_differ() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    server.write(put("g", "o", "1")).await.unwrap();
    server.control.load_files(load(&[("g", &[("a", "2")])])).await.unwrap();
    server.write(put("g", "o", "2")).await.unwrap();
    let outcome = server.write(rollback(2)).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "2"), ("o", "1")]));
    let warnings: Vec<_> =
        outcome.warnings.iter().map(|warning| (warning.code, warning.message.as_str())).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].0 == "owned-by-file" && warnings[0].1.contains("g/clusters/a"), "{warnings:?}");
}

#[tokio::test]
async fn a_rollback_does_not_define_a_group_that_a_file_defines_by_now() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(load(&[])).await.unwrap();
    server.write(put("g", "o", "1")).await.unwrap();
    server.write(Write::DeleteGroup(group("g"))).await.unwrap();
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    let outcome = server.write(rollback(2)).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "1"), ("o", "1")]));
    assert_eq!(server.control.overrides().1.groups[&group("g")].definition, None);
    assert!(outcome.warnings.iter().any(|warning| warning.message.contains("routes/a.yaml")));
}

#[tokio::test]
async fn pitfall_68_a_private_key_of_a_file_is_not_stored() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    for (n, private) in ["TOPSECRET-1", "TOPSECRET-2"].into_iter().enumerate() {
        let secret = secret_of_file(private);
        let resources = Resources::from_iter([secret]);
        let groups = BTreeMap::from([(group("default"), LayerGroup { resources, ..LayerGroup::default() })]);
        let load = FileLoad { layer: Layer { groups: groups.into() }, ..load(&[]) };
        server.control.load_files(load).await.unwrap();
        assert_eq!(server.revision(), n as u64 + 1, "a changed key is a change");
    }
    let dump = store.dump();
    assert!(dump.contains("public") && !dump.contains("TOPSECRET"), "{dump}");
}

#[tokio::test]
async fn with_strict_a_load_with_dangling_references_is_refused() {
    let route = json!({
        "@type": ResourceType::RouteConfiguration.type_url(), "name": "r",
        "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "missing"}}]}],
    });
    let draft = codec().resource_from_json(&route).unwrap().to_draft();
    let origin = Origin::File { path: "routes/a.yaml".into(), line: 9, column: 1 };
    let route = Arc::new(Resource::new(ResourceDraft { origin, ..draft }));
    for strict in [false, true] {
        let server =
            Server::open(MemoryStore::new(), Options { watches_files: true, strict, ..Options::default() });
        server.control.load_files(load(&[("default", &[("a", "1")])])).await.unwrap();
        let mut next = load(&[("default", &[("a", "2")])]);
        let default = next.layer.groups.get_mut(&group("default")).unwrap();
        default.resources.insert(Arc::clone(&route));
        let outcome = server.control.load_files(next).await.unwrap();
        assert_eq!(outcome.n_errors, usize::from(strict));
        assert_eq!(
            server.served("default").get("a").map(String::as_str),
            Some(if strict { "1" } else { "2" })
        );
        let diagnostic = server.control.files()["routes/a.yaml"].diagnostics[0].clone();
        assert_eq!((diagnostic.place.line, diagnostic.is_error()), (9, strict));
        // It is a problem that the load is refused, or else that the reference stands.
        let problems = server.control.problems();
        let has = |words: &str| problems.iter().any(|problem| problem.contains(words));
        assert_eq!((has("is refused (--strict)"), has("(field virtual_hosts[0]")), (strict, !strict));
    }
}

#[tokio::test]
async fn a_write_against_an_old_state_of_the_files_is_not_refused_for_it() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(load(&[("g", &[("a", "1")])])).await.unwrap();
    let tag = xds_control::model::tag::of_resources(&Resources::new());
    server.control.load_files(load(&[("g", &[("a", "2")])])).await.unwrap();
    let options = WriteOptions { if_match: Some(EntityTags::OneOf(vec![tag])), ..WriteOptions::default() };
    server.control.write(put_all("g"), options).await.unwrap();
    assert!(server.acks.report(Revision(3)).known().is_some());
}

fn put_all(name: &str) -> Write {
    replace(name, &[("o", "1")])
}

/// The difference is made of both contents as JSON, many times as large; nobody waits for it when files just changed.
#[tokio::test]
async fn what_differs_is_compared_only_for_whoever_asked() {
    let server = Server::with_files(&MemoryStore::new());
    let clusters = |value: &'static str| [("a", value)];
    for (n, (asked, expected)) in
        [(Asked::ByNobody, 0), (Asked::Plainly, 1), (Asked::Confirmed, 1), (Asked::ByNobody, 0)]
            .into_iter()
            .enumerate()
    {
        let value = ["1", "2", "3", "4"][n];
        let outcome = server.control.take_files(load(&[("g", &clusters(value))]), asked).await.unwrap();
        assert_eq!(outcome.difference.len(), expected, "{asked:?}: {:?}", outcome.difference);
        assert_eq!(outcome.revision, Revision(n as u64 + 1));
    }
}
