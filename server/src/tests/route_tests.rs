//! RouteTests at changes: told after them, or refused before.

use std::time::Duration;

use xds_cache::WavePolicy;
use xds_control::model::WaveChoice;
use xds_control::route_tests::TestPolicy;

use super::documents::files;
use super::*;

const ROUTES: &str = "version: xds-server/v1
listeners: { edge: { port: 10000, address: 127.0.0.1 } }
routes: { web: { hosts: [a.test], rules: [ { match: { prefix: / }, to: one } ] } }
backends: { one: { endpoints: ['10.0.0.1:80'] }, two: { endpoints: ['10.0.0.2:80'] } }
";

/// A file with a RouteTest that wants everything at `backend`.
fn wants(backend: &str, policy: &str) -> String {
    format!(
        "apiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: {{ name: t }}\nspec:\n  policy: {policy}\n  tests:\n  \
         - {{ name: all, request: {{ host: a.test, path: / }}, expect: {{ backends: {{ {backend}: 100% }} }} }}\n"
    )
}

fn moved() -> String {
    ROUTES.replace("to: one", "to: two")
}

fn options(test_policy: TestPolicy) -> Options {
    Options { watches_files: true, test_policy, ..Options::default() }
}

fn open(test_policy: TestPolicy) -> Server {
    Server::open(MemoryStore::new(), options(test_policy))
}

async fn load(server: &Server, contents: &[(&str, &str)]) -> ReloadOutcome {
    server.control.take_files(files(contents), Asked::ByNobody).await.unwrap()
}

/// The version of the routes that clients are served.
fn routes(server: &Server) -> xds_cache::Version {
    let view = server.publisher.view_at(&view_key_of_group(&group("default"), Profile::Envoy)).unwrap();
    view.resolve(&ResourceType::RouteConfiguration, "default/edge/10000").unwrap().version()
}

/// The body of a write of these documents, as the API reads it.
pub(super) fn apply(text: &str) -> Write {
    let trees = xds_codec::parse("", text.as_bytes(), xds_codec::Syntax::Yaml, &xds_codec::Limits::default())
        .unwrap();
    let objects = trees.iter().flat_map(|tree| {
        match xds_control::route_tests::read_document(&"".into(), tree, xds_routes::UnknownFields::Refuse) {
            xds_routes::ReadOutcome::Objects(objects) => objects,
            other @ (xds_routes::ReadOutcome::NotOurs | xds_routes::ReadOutcome::Unreadable(_)) => {
                panic!("{other:?}")
            }
        }
    });
    let documents = objects.map(|object| object.outcome.unwrap().0).collect();
    Write::ApplyDocuments { group: None, documents, warnings: vec![] }
}

/// Waits until the outcome of RouteTests is that of this revision or a later one; returns how many failed.
async fn failed(server: &Server, is_it: impl Fn(&xds_control::Tested) -> bool) -> usize {
    let wait = async {
        loop {
            if let Some(tested) = server.control.tested().filter(|tested| is_it(tested)) {
                return tested.report.totals().failed;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap()
}

#[tokio::test]
async fn a_load_that_breaks_a_required_test_is_accepted_and_not_published() {
    let server = open(TestPolicy::Tell);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "refuse"))]).await;
    let before = routes(&server);
    let outcome = load(&server, &[("a.yaml", &moved()), ("t.yaml", &wants("one", "refuse"))]).await;
    assert_eq!((outcome.n_errors, routes(&server) == before), (1, true));
    let problems = server.control.problems().join("\n");
    assert!(
        problems.contains("a change is held back, it breaks RouteTest default/t: all (envoy@1.40)"),
        "{problems}"
    );
    assert!(problems.contains("run `xds-server tests release`"), "{problems}");
    assert_eq!(server.control.served_load(), xds_control::model::ServedLoad::Earlier);
    assert_eq!(server.control.not_ready(), [""; 0]);
    let files = server.control.files();
    let found: Vec<String> =
        files.values().flat_map(|file| &file.diagnostics).map(ToString::to_string).collect();
    let found: Vec<&String> = found.iter().filter(|one| one.contains("route-test-failed")).collect();
    let first = found[0].lines().next().unwrap();
    assert_eq!(
        first,
        "t.yaml:7:5: error[route-test-failed] spec.tests[0]: RouteTest default/t: all (envoy@1.40): backends.one: expected 100 %, got 0 %; \
         backends: the request goes 100 % to default/two"
    );
    assert!(found[0].contains("route 1 yes"), "{}", found[0]);
    // New tests and new routes are judged together.
    load(&server, &[("a.yaml", &moved()), ("t.yaml", &wants("two", "refuse"))]).await;
    assert_ne!(routes(&server), before);
    assert_eq!(server.control.problems(), [""; 0]);
}

#[tokio::test]
async fn a_write_that_breaks_a_required_test_is_refused_also_as_a_dry_run() {
    let server = open(TestPolicy::Refuse);
    let test = wants("one", "refuse").replace("  policy: refuse\n", "");
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &test)]).await;
    let write = || apply(&moved());
    for dry_run in [true, false] {
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        let refused = server.control.write(write(), options).await;
        let Err(WriteError::Invalid(faults)) = refused else { panic!("{refused:?}") };
        assert_eq!(faults[0].code, "route-test-failed");
    }
    // A write that does not concern its requests passes, and so does one that takes the test along.
    server.write(apply(&moved().replace("a.test", "b.test").replace("web", "other"))).await.unwrap();
    server.write(apply(&format!("{}---\n{}", moved(), wants("two", "refuse")))).await.unwrap();
    assert!(
        server
            .write(Write::DeleteDocument {
                key: xds_routes::DocumentKey::new(xds_routes::Kind::Route, "default", "web"),
            })
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_test_is_never_in_the_way_of_the_first_load_nor_of_what_it_does_not_break() {
    let server = open(TestPolicy::Refuse);
    let broken = wants("two", "refuse");
    let outcome = load(&server, &[("a.yaml", ROUTES), ("t.yaml", &broken)]).await;
    assert_eq!(outcome.n_errors, 0);
    let before = routes(&server);
    tokio::spawn(server.control.clone().follow_tests());
    assert_eq!(failed(&server, |_| true).await, 1);
    assert!(server.control.problems().join("\n").contains("RouteTests fail on what is served"));
    // It fails before and after this change, in the same way.
    let other = ROUTES.replace("routes: {", "routes: { more: { hosts: [m.test], to: two },");
    load(&server, &[("a.yaml", &other), ("t.yaml", &broken)]).await;
    let more = routes(&server);
    assert_ne!(more, before);
    // So it does with a change of its own requests.
    let slower = other.replace("to: one }", "to: one, timeout: 5s }");
    let outcome = load(&server, &[("a.yaml", &slower), ("t.yaml", &broken)]).await;
    assert_eq!((outcome.n_errors, routes(&server) == more), (0, false));
    // What makes it pass does, too.
    load(&server, &[("a.yaml", &moved()), ("t.yaml", &broken)]).await;
    assert_eq!(failed(&server, |tested| tested.report.totals().failed == 0).await, 0);
    assert_eq!(server.control.problems(), [""; 0]);
}

#[tokio::test]
async fn a_test_that_is_told_is_published_and_reported() {
    let server = open(TestPolicy::Tell);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "tell"))]).await;
    tokio::spawn(server.control.clone().follow_tests());
    assert_eq!(failed(&server, |_| true).await, 0);
    let mut events = server.control.events();
    let before = routes(&server);
    server.write(apply(&moved())).await.unwrap();
    assert_ne!(routes(&server), before);
    let told = async {
        loop {
            if let Event::TestFailed { test, message } = events.recv().await.unwrap() {
                return (test, message);
            }
        }
    };
    let (test, message) = tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
    assert_eq!(test, "RouteTest default/t: all (envoy@1.40)");
    assert!(message.starts_with("backends.one: expected 100 %, got 0 %"), "{message}");
    let tested = server.control.tested().unwrap();
    let failing: Vec<String> = tested.failing.keys().map(ToString::to_string).collect();
    assert_eq!(failing, ["Route default/web"]);
}

/// The change that RouteTests hold.
fn held(server: &Server) -> Option<xds_control::model::wave::WaveReport> {
    server.control.held_by_tests().map(|(report, _)| report)
}

async fn release(server: &Server) -> Result<xds_control::model::wave::WaveReport, WriteError> {
    server.control.release_tests("me".to_owned()).await
}

#[tokio::test]
async fn a_write_that_breaks_a_test_that_holds_waits_until_the_test_passes() {
    let server = open(TestPolicy::Tell);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "hold"))]).await;
    let before = routes(&server);
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let foreseen = server.control.write(apply(&moved()), dry).await.unwrap();
    assert!(foreseen.held.unwrap().starts_with("it breaks RouteTest default/t: all"));
    assert!(held(&server).is_none());
    let outcome = server.write(apply(&moved())).await.unwrap();
    assert!(outcome.changed && outcome.held.is_some());
    let id = outcome.wave.unwrap();
    let report = held(&server).unwrap();
    assert_eq!((report.deployment, report.phase.as_str()), (id, "held"));
    assert_eq!(report.reason, outcome.held);
    assert_eq!(routes(&server), before);
    // One that touches nothing of it is published.
    let other = "version: xds-server/v1\nroutes: { more: { hosts: [m.test], to: other } }\nbackends: { other: { endpoints: ['10.0.0.3:80'] } }\n";
    let beside = server.write(apply(other)).await.unwrap();
    assert_eq!((beside.held, beside.wave), (None, None));
    let between = routes(&server);
    assert_ne!(between, before);
    // One that breaks something of its own is held with it.
    let hidden = "apiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: { name: u }\nspec:\n  policy: hold\n  tests:\n  - { request: { host: m.test, path: / }, expect: { backends: { nobody: 100% } } }\n";
    assert!(server.write(apply(hidden)).await.unwrap().held.is_some());
    assert!(held(&server).unwrap().objects.contains(&"document/RouteTest/default/u".to_owned()));
    server
        .write(Write::DeleteDocument {
            key: xds_routes::DocumentKey::new(xds_routes::Kind::RouteTest, "default", "u"),
        })
        .await
        .unwrap();
    assert!(held(&server).is_some());
    assert_eq!(routes(&server), between);
    // What makes it pass takes everything along.
    let mended = server.write(apply(&wants("two", "hold"))).await.unwrap();
    assert_eq!(mended.held, None);
    assert!(held(&server).is_none());
    assert_ne!(routes(&server), between);
    assert_eq!(server.control.problems(), [""; 0]);
}

#[tokio::test]
async fn a_held_change_goes_out_when_somebody_releases_it() {
    let server = open(TestPolicy::Hold);
    let refused = release(&server).await.unwrap_err();
    assert!(matches!(refused, WriteError::WaveState(_)), "{refused}");
    let test = wants("one", "hold").replace("  policy: hold\n", "");
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &test)]).await;
    let before = routes(&server);
    server.write(apply(&moved())).await.unwrap();
    assert_eq!(routes(&server), before);
    let report = release(&server).await.unwrap();
    assert_eq!(report.phase.as_str(), "promoted");
    assert_ne!(routes(&server), before);
    assert!(held(&server).is_none());
    // It fails already, so nothing else is held for it.
    let other = server.write(apply(&moved().replace("10.0.0.2", "10.0.0.9"))).await.unwrap();
    assert_eq!(other.held, None);
}

#[tokio::test]
async fn an_aborted_change_is_put_back() {
    let server = open(TestPolicy::Tell);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "hold"))]).await;
    let id = server.write(apply(&moved())).await.unwrap().wave.unwrap();
    server.control.wave(id, xds_control::model::wave::WaveVerb::Abort, "me".to_owned()).await.unwrap();
    assert!(held(&server).is_none());
    assert!(server.control.documents().owned.is_empty());
}

#[tokio::test]
async fn a_held_change_is_still_held_after_a_restart() {
    let store = MemoryStore::new();
    let contents = || [("a.yaml", ROUTES.to_owned()), ("t.yaml", wants("one", "hold"))];
    let load = async |server: &Server| {
        let contents = contents();
        let contents: Vec<(&str, &str)> =
            contents.iter().map(|(path, text)| (*path, text.as_str())).collect();
        load(server, &contents).await
    };
    let (before, id) = {
        let server = Server::open(Arc::clone(&store) as Arc<dyn Store>, options(TestPolicy::Tell));
        load(&server).await;
        let before = routes(&server);
        (before, server.write(apply(&moved())).await.unwrap().wave.unwrap())
    };
    let server = Server::open(Arc::clone(&store) as Arc<dyn Store>, options(TestPolicy::Tell));
    load(&server).await;
    assert_eq!(routes(&server), before);
    assert_eq!(held(&server).unwrap().deployment, id);
    // The failures are found out again.
    assert!(server.control.held_by_tests().unwrap().1.is_empty());
    tokio::spawn(server.control.clone().follow_tests());
    assert_eq!(failed(&server, |_| true).await, 0, "what is served is tested");
    let (_, failures) = server.control.held_by_tests().unwrap();
    assert!(failures[0].message.contains("backends.one: expected 100 %"), "{failures:?}");
    release(&server).await.unwrap();
    assert_ne!(routes(&server), before);
    assert_eq!(failed(&server, |tested| tested.report.totals().failed == 1).await, 1);
}

#[tokio::test]
async fn a_released_change_of_a_group_with_waves_goes_by_waves() {
    let server = open(TestPolicy::Hold);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "hold"))]).await;
    let policy =
        WavePolicy::of_texts(xds_cache::wave::PolicyTexts { shares: "50%,100%", ..Default::default() })
            .unwrap();
    let options = WriteOptions { waves: WaveChoice::By(policy), ..WriteOptions::default() };
    server.control.write(apply(&moved()), options).await.unwrap();
    let report = release(&server).await.unwrap();
    assert_eq!(report.phase.as_str(), "progressing");
    assert_eq!(report.share().unwrap().to_string(), "50%");
}

#[tokio::test]
async fn a_held_change_of_a_group_with_waves_goes_by_waves_when_its_tests_pass() {
    let server = open(TestPolicy::Hold);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "hold"))]).await;
    let policy =
        WavePolicy::of_texts(xds_cache::wave::PolicyTexts { shares: "50%,100%", ..Default::default() })
            .unwrap();
    let options = WriteOptions { waves: WaveChoice::By(policy), ..WriteOptions::default() };
    server.control.write(apply(&moved()), options).await.unwrap();
    assert!(held(&server).is_some());
    server.write(apply(&wants("two", "hold"))).await.unwrap();
    assert!(held(&server).is_none());
    let report = server.control.waves().remove(0);
    assert_eq!(
        (report.phase.as_str(), report.share().unwrap().to_string()),
        ("progressing", "50%".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_wave_that_breaks_a_test_does_not_start() {
    let store = MemoryStore::new();
    let test = wants("one", "refuse").replace("  policy: refuse\n", "");
    let shares = xds_cache::wave::PolicyTexts { shares: "50%,100%", allow_empty: true, ..Default::default() };
    let policy = WavePolicy::of_texts(shares).unwrap();
    let id = {
        let server = Server::open(Arc::clone(&store) as Arc<dyn Store>, options(TestPolicy::Tell));
        load(&server, &[("a.yaml", ROUTES), ("t.yaml", &test)]).await;
        let options = WriteOptions { waves: WaveChoice::By(policy), ..WriteOptions::default() };
        server.control.write(apply(&moved()), options).await.unwrap().wave.unwrap()
    };
    // The tests count more than when it began.
    let server = Server::open(Arc::clone(&store) as Arc<dyn Store>, options(TestPolicy::Refuse));
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &test)]).await;
    tokio::spawn(server.control.clone().follow_waves());
    let paused = async {
        loop {
            let report = server.control.waves().remove(0);
            if !matches!(report.phase.as_str(), "progressing" | "holding") {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let report = tokio::time::timeout(Duration::from_secs(60), paused).await.unwrap();
    assert_eq!((report.deployment, report.phase.as_str()), (id, "paused"));
    let reason = report.reason.unwrap();
    assert!(reason.starts_with("it breaks RouteTest default/t: all (envoy@1.40): backends.one"), "{reason}");
    assert_eq!(report.reached.len(), 1);
    server.control.wave(id, xds_control::model::wave::WaveVerb::Promote, "me".to_owned()).await.unwrap();
}

/// Puts these documents into a group, or leaves them where they are, in a scope.
fn apply_in(name: &str, text: &str, scope: Option<(&[&str], &[&str])>) -> (Write, WriteOptions) {
    let Write::ApplyDocuments { documents, warnings, .. } = apply(text) else { unreachable!("documents") };
    let patterns = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        xds_access::Patterns::of_texts((!texts.is_empty()).then_some(&*texts))
    };
    let scope = scope
        .map(|(groups, namespaces)| Arc::new(xds_access::Scope::new(patterns(groups), patterns(namespaces))));
    let group = (!name.is_empty()).then(|| group(name));
    (Write::ApplyDocuments { group, documents, warnings }, WriteOptions { scope, ..WriteOptions::default() })
}

/// The routes of a group of its own, and a RouteTest in a namespace.
fn edge_routes() -> String {
    let edge = ROUTES.replace("10000", "10001").replace("edge:", "inner:").replace("a.test", "b.test");
    edge.replace("web:", "own:").replace("one", "first").replace("two", "second")
}

fn test_of(namespace: &str, host: &str, backend: &str) -> String {
    let test = wants(backend, "refuse").replace("a.test", host);
    test.replace("name: t }", &format!("name: t, namespace: {namespace} }}"))
}

#[tokio::test]
async fn the_policy_of_a_test_counts_only_for_changes_in_the_scope_of_its_author() {
    let store = MemoryStore::new();
    let server = Server::open(store.clone(), options(TestPolicy::Tell));
    load(&server, &[("a.yaml", ROUTES)]).await;
    server.write(Write::PutGroup(NodeGroup::for_node_id(group("edge")))).await.unwrap();
    let author: Option<(&[&str], &[&str])> = Some((&["edge"], &[]));
    let write = async |(write, options)| server.control.write(write, options).await;
    write(apply_in("edge", &edge_routes(), None)).await.unwrap();
    for test in [test_of("one", "a.test", "default/one"), test_of("two", "b.test", "default/first")] {
        write(apply_in("edge", &test, author)).await.unwrap();
    }
    // What its author may not change, others may.
    let before = routes(&server);
    server.write(apply(&moved())).await.unwrap();
    assert_ne!(routes(&server), before);
    let broken = edge_routes().replace("to: first", "to: second");
    let refused = write(apply_in("edge", &broken, None)).await;
    let Err(WriteError::Invalid(faults)) = refused else { panic!("{refused:?}") };
    assert!(faults[0].message.starts_with("RouteTest two/t: all"), "{faults:?}");
    // A restart does not forget it.
    drop(server);
    let server = Server::open(store, options(TestPolicy::Tell));
    load(&server, &[("a.yaml", ROUTES)]).await;
    load(&server, &[("a.yaml", &moved())]).await;
    assert_eq!(server.control.served_load(), xds_control::model::ServedLoad::Current);
    let (again, options) = apply_in("edge", &broken, None);
    assert!(matches!(server.control.write(again, options).await, Err(WriteError::Invalid(_))));
}

#[tokio::test]
async fn a_refusal_shows_nothing_out_of_scope() {
    let server = open(TestPolicy::Tell);
    load(&server, &[]).await;
    server.write(Write::PutGroup(NodeGroup::for_node_id(group("edge")))).await.unwrap();
    let write = async |(write, options)| server.control.write(write, options).await;
    write(apply_in("edge", &edge_routes(), None)).await.unwrap();
    for namespace in ["hidden", "default"] {
        write(apply_in("edge", &test_of(namespace, "b.test", "default/first"), None)).await.unwrap();
    }
    let broken = edge_routes().replace("to: first", "to: second");
    for (scope, hidden) in [
        (None, ""),
        (Some((&["edge"][..], &["default"][..])), "a RouteTest out of scope fails"),
        (Some((&[][..], &["default"][..])), "a RouteTest out of scope fails"),
    ] {
        let refused = write(apply_in("", &broken, scope)).await;
        let text = format!("{refused:?}");
        let Err(WriteError::Invalid(faults)) = refused else { panic!("{scope:?}: {text}") };
        assert_eq!((faults.len(), text.contains("hidden/t")), (2, hidden.is_empty()), "{scope:?}: {text}");
        assert!(text.contains(hidden) && text.contains("RouteTest default/t"), "{scope:?}: {text}");
        let shows_routes = text.contains("default/second");
        assert_eq!(shows_routes, scope.is_none_or(|(groups, _)| !groups.is_empty()), "{scope:?}: {text}");
    }
}
