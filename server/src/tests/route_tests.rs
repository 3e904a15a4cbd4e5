//! RouteTests at changes: told after them, or refused before.

use std::time::Duration;

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
fn apply(text: &str) -> Write {
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
async fn a_load_that_breaks_a_required_test_is_not_published() {
    let server = open(TestPolicy::Tell);
    load(&server, &[("a.yaml", ROUTES), ("t.yaml", &wants("one", "refuse"))]).await;
    let before = routes(&server);
    let outcome = load(&server, &[("a.yaml", &moved()), ("t.yaml", &wants("one", "refuse"))]).await;
    assert_eq!((outcome.n_errors, routes(&server) == before), (1, true));
    let problems = server.control.problems().join("\n");
    assert!(problems.contains("refused (because of RouteTests)"), "{problems}");
    let files = server.control.files();
    let found: Vec<String> =
        files.values().flat_map(|file| &file.diagnostics).map(ToString::to_string).collect();
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
    assert_ne!(routes(&server), before);
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
