//! The files of a store that several servers share: every server serves them from it, whoever pushed them.

use std::sync::atomic::Ordering;

use tokio::time::{Duration, Instant, sleep};
use xds_api::FileTexts as _;
use xds_control::model::EntityTags;

use super::rest::Rest;
use super::shared::Random;
use super::store::Forgetful;
use super::*;
use crate::source::again::Again;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A server that shares the store, and follows it.
fn open(store: &Arc<MemoryStore>) -> Server {
    following(Server::open(Arc::clone(store) as Arc<dyn Store>, shared()))
}

fn shared() -> Options {
    Options { sharing: Sharing::Apart, hold_mass_removal: Some(0.5), ..Options::default() }
}

fn following(mut server: Server) -> Server {
    server.tasks.push(Task(tokio::spawn(server.control.clone().follow_store()).abort_handle()));
    server
}

async fn caught_up(server: &Server, store: &MemoryStore) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.revision() < store.head().0 {
        assert!(Instant::now() < deadline, "it does not catch up");
        sleep(Duration::from_millis(1)).await;
    }
}

pub(super) fn read(files: &[(&str, String)]) -> FileLoad {
    let limits = xds_codec::Limits::default();
    let again = Again::new(codec(), limits, xds_routes::UnknownFields::default());
    let texts = files.iter().map(|(path, text)| ((*path).into(), text.as_bytes().into()));
    again.load(texts.collect())
}

fn files(files: &[(&str, String)], is_confirmed: bool) -> Write {
    Write::ReplaceFiles { load: Box::new(read(files)), is_confirmed }
}

async fn push(server: &Server, set: &[(&str, String)]) -> WriteOutcome {
    server.write(files(set, true)).await.unwrap()
}

pub(super) fn cluster_text(name: &str, text: &str) -> String {
    format!("clusters: [{{name: {name}, alt_stat_name: \"{text}\", connect_timeout: 1s}}]\n")
}

const SHOP: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: prod}
spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: v1, namespace: prod}
spec: {ports: [{port: 80}]}
";

const GROUP: &str = "apiVersion: xds-server.io/v1
kind: NodeGroup
metadata: {name: g}
spec: {selector: {nodeIds: [\"g-*\"]}}
";

fn route_text(n: usize, host: usize) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}, namespace: prod}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  hostnames: [h{host}.test]\n  rules: [{{backendRefs: [{{name: v1, port: 80}}]}}]\n"
    )
}

/// Everything about files and what is served that must be the same on every server.
fn shown(server: &Server) -> Vec<(&'static str, String)> {
    let control = &server.control;
    let documents = control.documents();
    let of_files: Vec<String> = documents
        .files
        .iter()
        .map(|(key, one)| {
            format!("{key} {} {} {:?}", one.group, one.document.source.text(), one.document.place)
        })
        .collect();
    let placed: Vec<String> = documents
        .translated
        .documents
        .iter()
        .map(|(key, placed)| format!("{key} {} {:?}", placed.generation, placed.document.place))
        .collect();
    let files: Vec<String> = control
        .files()
        .values()
        .map(|file| {
            // Only the server that read a document knows the lines of its fields.
            let doubts: Vec<_> =
                file.diagnostics.iter().map(|one| (one.code, &one.path, &one.place.file)).collect();
            format!("{} {:?} {:?} {doubts:?}", file.path, file.hash, file.objects)
        })
        .collect();
    let groups = control.groups();
    let versions: Vec<String> = groups
        .iter()
        .flat_map(|(name, group)| {
            let resources =
                group.resources.values().chain(group.generated.values().flat_map(|all| all.values()));
            resources.map(move |one| format!("{name} {} {} {}", one.key(), one.version(), one.origin()))
        })
        .collect();
    vec![
        ("revision", control.overrides().0.to_string()),
        ("set", format!("{:?}", control.shared_set())),
        ("base", format!("{:#?}", control.base())),
        ("documents", format!("{of_files:#?}")),
        ("placed", format!("{placed:#?}")),
        ("files", format!("{files:#?}")),
        ("versions", format!("{versions:#?}")),
        ("problems", format!("{:#?}", control.problems())),
    ]
}

fn assert_same(one: &Server, other: &Server) {
    for ((what, one), (_, other)) in shown(one).into_iter().zip(shown(other)) {
        assert_eq!(one, other, "{what} differs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_serves_what_one_was_pushed_with_its_secrets_and_places() {
    let store = MemoryStore::new();
    let (one, other) = (open(&store), open(&store));
    let with_secret = "secrets: [{name: s, tls_certificate: {certificate_chain: {inline_string: public}, private_key: \
                  {inline_string: deeply-hidden}}}]\n";
    let set = [
        ("g/group.yaml", GROUP.to_owned()),
        ("g/a.yaml", format!("# a comment\n{}", cluster_text("a", "1"))),
        ("shop.yaml", format!("{SHOP}---\n{}", route_text(0, 0))),
        ("secret.yaml", with_secret.to_owned()),
    ];
    let outcome = push(&one, &set).await;
    assert!(
        outcome.changed && outcome.difference.iter().any(|one| one.what == "g/clusters/a"),
        "{outcome:?}"
    );
    assert!(!format!("{outcome:?}").contains("deeply-hidden"));
    caught_up(&other, &store).await;
    let late = open(&store);
    for server in [&other, &late] {
        assert_same(&one, server);
        assert_eq!(server.served("g")["a"], "1");
        let base = server.control.base();
        let key = ResourceKey { resource_type: ResourceType::Secret, name: "s".into() };
        let found = base.resources(&group("default")).unwrap().get(&key).unwrap();
        assert_eq!(**found.value(), **secret("deeply-hidden").value());
        let place = base.resources(&group("g")).unwrap()[&self::key("a")].origin().to_string();
        assert_eq!(place, "g/a.yaml:2:12");
        // A file defines the group, so the API cannot.
        let refused = server.write(Write::PutGroup(NodeGroup::for_node_id(group("g")))).await.unwrap_err();
        assert_eq!(refused.to_string(), "the group g is defined by g/group.yaml:1");
        assert!(server.publisher.is_loaded());
    }
    let history = late.control.revision(Revision(1), |_| true).unwrap();
    assert!(!format!("{history:?}").contains("deeply-hidden"), "{history:?}");
    assert_eq!(history.0.source, "file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_says_the_same_makes_no_revision_and_lines_come_along_with_the_next_change() {
    let store = MemoryStore::new();
    let (one, other) = (open(&store), open(&store));
    let set = |comment: &str, text: &str| {
        [("a.yaml", format!("{comment}{}", cluster_text("a", "1"))), ("b.yaml", cluster_text("b", text))]
    };
    assert_eq!(push(&one, &set("", "1")).await.revision, Revision(1));
    caught_up(&other, &store).await;
    for server in [&one, &other] {
        let same = push(server, &set("# moved\n", "1")).await;
        assert!(!same.changed && same.revision == Revision(1), "{same:?}");
    }
    assert_same(&one, &other);
    assert_eq!(push(&other, &set("# moved\n", "2")).await.revision, Revision(2));
    caught_up(&one, &store).await;
    assert_same(&one, &other);
    let line = |server: &Server, path: &str| server.control.files()[path].objects[0].line;
    assert_eq!((line(&one, "a.yaml"), line(&one, "b.yaml")), (2, 1));
    let place = one.control.base().resources(&group("default")).unwrap()[&key("a")].origin().to_string();
    assert_eq!(place, "a.yaml:2:12");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_refused_with_its_places_and_changes_nothing() {
    let store = MemoryStore::new();
    let server = Rest::new(open(&store));
    let put = async |query: &str, headers: &[(&str, &str)], set: &[(&str, String)]| {
        let files: BTreeMap<_, _> = set.iter().cloned().collect();
        let headers = [&[JSON], headers].concat();
        server.call("PUT", &format!("/v1/files{query}"), &headers, &json!({"files": files}).to_string()).await
    };
    let many = |n: usize| -> Vec<(&'static str, String)> {
        let all: Vec<String> = (0..n).map(|n| cluster_text(&format!("c{n}"), "1")).collect();
        vec![("all.yaml", all.join("---\n"))]
    };
    let good = put("", &[], &many(8)).await;
    assert_eq!((good.status, good.json()["revision"].as_u64()), (200, Some(1)), "{good:?}");
    assert_eq!(good.json()["difference"].as_array().unwrap().len(), 8);
    let listed = server.get("/v1/status/files").await.json();
    let tag = listed["set"].as_str().unwrap().to_owned();
    assert_eq!(listed["files"][0]["objects"].as_array().unwrap().len(), 8, "{listed:#}");

    let broken = [("x/a.yaml", "clusters:\n- name: a\n  conect_timeout: 1s\n".to_owned())];
    let reply = put("?confirm=true", &[], &broken).await;
    let error = &reply.json()["errors"][0];
    assert_eq!(reply.status, 422, "{reply:?}");
    assert_eq!((error["file"].as_str(), error["line"].as_u64()), (Some("x/a.yaml"), Some(3)), "{error}");
    assert_eq!(error["suggestion"], "connect_timeout");

    let reply = put("", &[], &many(2)).await;
    assert_eq!(reply.status, 409, "{reply:?}");
    assert!(
        reply.text.contains("problems/unconfirmed") && reply.text.contains("6 of 8 objects"),
        "{reply:?}"
    );
    let reply = put("?dryRun=true&confirm=true", &[], &many(2)).await;
    assert_eq!((reply.status, reply.json()["committed"].as_bool()), (200, Some(false)), "{reply:?}");
    assert_eq!(reply.json()["difference"].as_array().unwrap().len(), 6);
    let reply = put("", &[("if-match", "\"0123456789abcdef\"")], &many(9)).await;
    assert_eq!((reply.status, reply.headers["etag"].to_str().unwrap()), (412, &*format!("\"{tag}\"")));
    for path in ["/etc/x.yaml", "../x.yaml"] {
        assert_eq!(put("", &[], &[(path, cluster_text("a", "1"))]).await.status, 422, "{path}");
    }
    assert_eq!(put("?group=g", &[], &many(8)).await.status, 400);
    let waves = put("?waves=50%25,100%25", &[], &many(9)).await;
    assert!(waves.status == 409 && waves.text.contains("problems/shared-store"), "{waves:?}");
    assert_eq!(store.head().0, 1);
    assert_eq!(server.get("/v1/status/files").await.json()["set"], tag);

    let reply = put("", &[("if-match", &format!("\"{tag}\""))], &many(9)).await;
    assert_eq!((reply.status, store.head().0), (200, 2), "{reply:?}");
    store.is_failing.store(true, Ordering::SeqCst);
    let reply = put("", &[], &many(10)).await;
    assert!(reply.status >= 500, "{reply:?}");
    assert_eq!(server.server.served("default").len(), 9, "it is served only if it is stored");

    for alone in [Options::default(), Options { watches_files: true, ..Options::default() }] {
        let rest = Rest::new(Server::open(MemoryStore::new(), alone));
        let reply = rest.call("PUT", "/v1/files", &[JSON], r#"{"files":{}}"#).await;
        assert!(reply.status == 409 && reply.text.contains("problems/own-files"), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_judged_by_route_tests_and_drops_overrides_that_say_the_same() {
    let store = MemoryStore::new();
    let (one, other) = (open(&store), open(&store));
    let test = |policy: &str, to: &str| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: {{name: t}}\nspec:\n  policy: {policy}\n  tests:\n  - {{name: a, \
             request: {{host: h0.test, path: /}}, expect: {{rule: {to}}}}}\n"
        )
    };
    let set = |policy: &str, host: usize| {
        let route = route_text(0, host);
        [("shop.yaml", format!("{SHOP}---\n{route}")), ("test.yaml", test(policy, "HTTPRoute/prod/r0/0"))]
    };
    let first = server_error(&one, &set("refuse", 1)).await;
    assert!(first.contains("test.yaml"), "{first}");
    push(&one, &set("refuse", 0)).await;
    let refused = server_error(&one, &set("refuse", 1)).await;
    assert!(refused.contains("test.yaml"), "{refused}");
    let held = one.write(files(&set("hold", 1), true)).await.unwrap_err();
    assert!(matches!(held, WriteError::SharedStore { .. }), "{held}");

    one.write(put("default", "a", "2")).await.unwrap();
    let with = |text: &str| [&set("refuse", 0)[..], &[("a.yaml", cluster_text("a", text))]].concat();
    push(&one, &with("1")).await;
    assert_eq!(one.served("default")["a"], "2");
    push(&one, &with("2")).await;
    caught_up(&other, &store).await;
    for server in [&one, &other] {
        assert_eq!(server.served("default")["a"], "2");
        assert!(server.control.overrides().1.groups.is_empty(), "the file says the same");
    }
    assert_same(&one, &other);
}

async fn server_error(server: &Server, set: &[(&str, String)]) -> String {
    let refused = server.write(files(set, true)).await.unwrap_err();
    let WriteError::Invalid(faults) = refused else { panic!("{refused:?}") };
    faults.iter().map(ToString::to_string).collect()
}

/// Random sets and writes to random servers: all serve the same, also whoever reads everything anew, and whoever comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_at_the_same_revision_serve_the_same_whoever_pushed() {
    let mut random = Random::new();
    for _ in 0..6 {
        let store = MemoryStore::new();
        let whole = following(Server::open(Arc::new(Forgetful(Arc::clone(&store))), shared()));
        let servers = [open(&store), open(&store), whole];
        for _ in 0..10 {
            let server = &servers[random.below(2)];
            match random.below(5) {
                0 => {
                    let group = ["default", "g"][random.below(2)];
                    let _ = server.write(put(group, "a", &random.below(3).to_string())).await;
                }
                1 => {
                    let seen = EntityTags::OneOf(vec![server.control.shared_set().unwrap()]);
                    let options = WriteOptions { if_match: Some(seen), ..WriteOptions::default() };
                    let pushed = server.control.write(files(&any_set(&mut random), true), options).await;
                    assert!(!matches!(pushed, Err(WriteError::Invalid(_))), "{pushed:?}");
                }
                _ => _ = push(server, &any_set(&mut random)).await,
            }
            for server in &servers {
                caught_up(server, &store).await;
            }
            for server in &servers[1..] {
                assert_same(&servers[0], server);
            }
        }
        push(&servers[0], &any_set(&mut random)).await;
        let late = open(&store);
        caught_up(&servers[1], &store).await;
        assert_same(&servers[1], &late);
    }
}

fn any_set(random: &mut Random) -> Vec<(&'static str, String)> {
    let comments = "# moved\n".repeat(random.below(3));
    let mut set = vec![("shop.yaml", SHOP.to_owned())];
    if random.below(2) == 0 {
        set.push(("g/group.yaml", GROUP.to_owned()));
    }
    // An object moves from file to file, and from group to group.
    let path = ["a.yaml", "b.yaml", "g/c.yaml"][random.below(3)];
    set.push((path, format!("{comments}{}", cluster_text("a", &random.below(3).to_string()))));
    for n in 0..random.below(3) {
        let path = ["r0.yaml", "g/r1.yaml", "r2.yaml"][n];
        set.push((path, format!("{comments}{}", route_text(n, random.below(3)))));
    }
    set
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_is_told_and_the_last_good_object_stays() {
    let store = MemoryStore::new();
    let (one, other) = (open(&store), open(&store));
    push(&one, &[("a.yaml", cluster_text("a", "1"))]).await;
    caught_up(&other, &store).await;
    let garbage = store.put_blob(bytes::Bytes::from_static(b"garbage")).await.unwrap();
    let change = xds_store::Change { key: "file/default/clusters/a".to_owned(), value: Some(garbage) };
    store.commit_at_once(xds_store::Commit { changes: vec![change], ..xds_store::Commit::default() });
    caught_up(&other, &store).await;
    assert_eq!(other.served("default")["a"], "1");
    let problems = other.control.problems().join("\n");
    assert!(problems.contains("the stored default/clusters/a of a file cannot be read"), "{problems}");
    push(&other, &[("a.yaml", cluster_text("a", "2"))]).await;
    caught_up(&one, &store).await;
    for server in [&one, &other] {
        assert_eq!(server.served("default")["a"], "2");
        assert!(server.control.problems().is_empty(), "{:?}", server.control.problems());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_costs_other_servers_what_it_changed() {
    let store = MemoryStore::new();
    let open = |store: Arc<dyn Store>| following(Server::open_as_is(store, shared()));
    let (writer, reader) = (open(store.clone()), open(store.clone()));
    let tests = |changed: &str| -> Vec<(&'static str, String)> {
        let text = |n: usize| {
            let to = if n == 1_700 { changed } else { "one" };
            format!(
                "apiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: {{name: t{n}}}\nspec:\n  tests:\n  - {{name: a, \
                 request: {{host: a.test, path: /}}, expect: {{backends: {{{to}: 100%}}}}}}\n"
            )
        };
        let part = |from: usize| (from..from + 1_000).map(text).collect::<Vec<_>>().join("---\n");
        vec![("a.yaml", part(0)), ("b.yaml", part(1_000))]
    };
    push(&writer, &tests("one")).await;
    caught_up(&reader, &store).await;
    let before = store.n_read.load(Ordering::SeqCst);
    let outcome = push(&writer, &tests("two")).await;
    caught_up(&reader, &store).await;
    assert_eq!(outcome.objects, ["document/RouteTest/default/t1700"]);
    let n_read = store.n_read.load(Ordering::SeqCst) - before;
    // The document, its status, and the file.
    assert!(n_read <= 4, "{n_read}");
    let n_stored = store.history(None, 1).unwrap()[0].commit.changes.len();
    // The same, the hash of the set, and the hashes of the last sets.
    assert!(n_stored <= 5, "{n_stored}");
}

/// Servers that watch directories of their own.
struct Watching {
    store: Arc<MemoryStore>,
    servers: Vec<Server>,
}

impl Watching {
    fn new(n: usize) -> Self {
        let store = MemoryStore::new();
        let watching = |_| {
            let mut server = open(&store);
            server.tasks.push(Task(tokio::spawn(server.control.clone().follow_files()).abort_handle()));
            server
        };
        Self { servers: (0..n).map(watching).collect(), store }
    }

    /// The files of a server become these.
    async fn pull(&self, server: usize, text: &str) -> ReloadOutcome {
        self.take(server, read(&[("a.yaml", cluster_text("a", text))]), Asked::ByNobody).await
    }

    async fn take(&self, server: usize, load: FileLoad, asked: Asked) -> ReloadOutcome {
        for server in &self.servers {
            caught_up(server, &self.store).await;
        }
        self.servers[server].control.take_watched(load, asked).await.unwrap()
    }

    fn state(&self, server: usize) -> &'static str {
        self.servers[server].control.own_files().unwrap().state.as_str()
    }

    async fn wait(&self, server: usize, state: &str) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.state(server) != state {
            assert!(Instant::now() < deadline, "{state}: {:?}", self.servers[server].control.own_files());
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn served(&self) -> BTreeSet<String> {
        let mut served = BTreeSet::new();
        for server in &self.servers {
            caught_up(server, &self.store).await;
            served.insert(server.served("default").remove("a").unwrap_or_default());
        }
        served
    }

    async fn serve(&self, text: &str, revision: u64) {
        assert_eq!(self.served().await, BTreeSet::from([text.to_owned()]));
        assert_eq!(self.store.head().0, revision);
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_pull_at_different_times_make_one_revision_for_each_set() {
    let world = Watching::new(3);
    world.pull(0, "1").await;
    world.serve("1", 1).await;
    world.pull(1, "1").await;
    // The second is newer, and nobody knows whether what the third has is.
    world.pull(0, "2").await;
    world.serve("2", 2).await;
    world.pull(2, "1").await;
    world.wait(1, "behind").await;
    assert_eq!((world.state(0), world.state(2)), ("applied", "behind"));
    world.pull(1, "2").await;
    world.pull(2, "2").await;
    world.serve("2", 2).await;
    // A revert, and the last one to follow it.
    world.pull(1, "1").await;
    world.serve("1", 3).await;
    world.wait(0, "behind").await;
    sleep(Duration::from_secs(60)).await;
    world.serve("1", 3).await;
    world.pull(0, "1").await;
    world.pull(2, "1").await;
    // One that left a set out waits for the others.
    world.pull(0, "3").await;
    world.pull(2, "4").await;
    assert_eq!(world.state(2), "ahead");
    world.serve("3", 4).await;
    world.wait(2, "applied").await;
    world.serve("4", 5).await;
    for server in 0..3 {
        world.pull(server, "4").await;
        assert_eq!(world.state(server), "applied");
    }
    world.serve("4", 5).await;
}

#[tokio::test(start_paused = true)]
async fn broken_and_refused_files_are_told_and_confirmed_ones_are_proposed() {
    let world = Watching::new(2);
    let many = |n: usize| -> FileLoad {
        let all: Vec<String> = (0..n).map(|n| cluster_text(&format!("c{n}"), "1")).collect();
        read(&[("all.yaml", all.join("---\n"))])
    };
    world.take(0, many(8), Asked::ByNobody).await;
    assert_eq!(world.store.head().0, 1);
    let outcome =
        world.take(0, read(&[("all.yaml", "clusters: [{nme: x}]".to_owned())]), Asked::Plainly).await;
    assert!(outcome.n_errors > 0 && world.state(0) == "broken", "{outcome:?}");
    let own = world.servers[0].control.own_files().unwrap();
    assert_eq!(own.errors[0].place.file.as_ref(), "all.yaml");
    let outcome = world.take(0, many(2), Asked::Plainly).await;
    assert!(outcome.unconfirmed.unwrap().contains("6 of 8 objects"), "{}", world.state(0));
    assert_eq!(world.state(0), "differs");
    let outcome = world.take(0, many(2), Asked::Confirmed).await;
    assert_eq!((outcome.revision, outcome.difference.len(), world.state(0)), (Revision(2), 6, "applied"));
    // What is over comes back if somebody says so.
    let outcome = world.take(1, many(8), Asked::Plainly).await;
    assert!(outcome.unconfirmed.is_some() && world.state(1) == "behind", "{outcome:?}");
    let outcome = world.take(1, many(8), Asked::Confirmed).await;
    assert_eq!((outcome.revision, world.state(1)), (Revision(3), "applied"));
    world.wait(0, "behind").await;
    // A store that fails is tried again.
    world.store.is_failing.store(true, Ordering::SeqCst);
    world.take(1, many(9), Asked::ByNobody).await;
    assert_eq!(world.state(1), "ahead");
    world.store.is_failing.store(false, Ordering::SeqCst);
    world.wait(1, "applied").await;
    assert_eq!(world.store.head().0, 4);
}

/// A server that shared nothing has recorded its files without what is secret in them. Then it is followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_served_files_that_were_recorded_without_their_secrets() {
    let store = MemoryStore::new();
    let secret = "secrets: [{name: s, generic_secret: {secret: {inline_string: hidden}}}]\n".to_owned();
    let set = [("a.yaml", cluster_text("a", "1")), ("s.yaml", secret)];
    let alone = Server::with_files(&store);
    alone.control.take_files(read(&set), Asked::ByNobody).await.unwrap();
    assert_eq!(alone.served("default").len(), 2);
    drop(alone);

    let as_store = || Arc::clone(&store) as Arc<dyn Store>;
    let follower =
        following(Server::open(as_store(), Options { sharing: Sharing::Follower, ..Options::default() }));
    let linked = Options { sharing: Sharing::Linked, watches_files: true, ..Options::default() };
    let core = following(Server::open(as_store(), linked));
    for server in [&core, &follower] {
        assert!(!server.publisher.is_loaded() && !server.control.not_ready().is_empty());
    }
    let refused = follower.write(files(&set, true)).await.unwrap_err();
    assert!(matches!(refused, WriteError::Follower), "{refused:?}");
    // Its own files are taken at once, and all is served again.
    core.control.take_watched(read(&set), Asked::ByNobody).await.unwrap();
    for server in [&core, &follower] {
        caught_up(server, &store).await;
        assert_eq!(server.served("default").keys().collect::<Vec<_>>(), ["a", "s"]);
        assert_eq!(server.control.not_ready(), Vec::<String>::new());
    }
    assert_eq!(core.control.fingerprint(), follower.control.fingerprint());
}
