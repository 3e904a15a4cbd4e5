//! Changes that an oracle judges: a program that says it is an Envoy, and answers by what a question has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xds_control::OraclePolicy;

use super::documents::files;
use super::route_tests::apply;
use super::*;
use crate::metrics::Metrics;
use crate::oracle::Serving;

/// Writes down each run beside its directory.
const SCRIPT: &str = "#!/bin/sh
if [ \"$1\" = --version ]; then echo 'envoy  version: abc/9.8.7/Clean/RELEASE/BoringSSL'; exit; fi
echo run >> ../runs
has() { /bin/grep -qa \"$1\" bootstrap.pb; }
if has hang-me; then exec /bin/sleep 1000; fi
if has crash-me; then kill -SEGV $$; fi
if has refuse-me; then echo \"error initializing configuration 'bootstrap.pb': it says no\" >&2; exit 1; fi
";

static PROGRAM: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("envoy");
    fs::write(&path, SCRIPT).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    (dir, path)
});

/// A server with an oracle.
struct Asking {
    server: Server,
    metrics: Arc<Metrics>,
    dir: TempDir,
}

impl Asking {
    fn open(policy: OraclePolicy) -> Self {
        Self::open_with(policy, &PROGRAM.1)
    }

    fn open_with(oracle_policy: OraclePolicy, program: &Path) -> Self {
        let dir = TempDir::new().unwrap();
        let metrics = Arc::new(Metrics::of_nobody());
        let oracle = Serving::open(program, &dir.path().join("oracle"), Arc::clone(&metrics)).unwrap();
        let options =
            Options { watches_files: true, oracle_policy, verify: Verify::Always, ..Options::default() };
        let server = Server::open_with(MemoryStore::new(), options, Some(Arc::new(oracle)));
        Self { server, metrics, dir }
    }

    /// With a first load, which is not judged.
    async fn loaded(policy: OraclePolicy) -> Self {
        let asking = Self::open(policy);
        asking.load(&[("a.yaml", &raw("one", "1"))]).await;
        assert_eq!(asking.n_runs(), 0);
        asking
    }

    async fn load(&self, contents: &[(&str, &str)]) -> ReloadOutcome {
        self.server.control.take_files(files(contents), Asked::ByNobody).await.unwrap()
    }

    async fn try_out(&self, write: Write) -> Result<WriteOutcome, WriteError> {
        self.server.control.write(write, WriteOptions { dry_run: true, ..WriteOptions::default() }).await
    }

    fn n_runs(&self) -> usize {
        fs::read_to_string(self.dir.path().join("oracle/runs")).unwrap_or_default().lines().count()
    }

    /// The diagnostics of all files.
    fn found(&self) -> Vec<String> {
        let files = self.server.control.files();
        files.values().flat_map(|file| &file.diagnostics).map(ToString::to_string).collect()
    }

    fn problems(&self) -> String {
        self.server.control.problems().join("\n")
    }

    fn metric(&self, name: &str) -> Option<String> {
        let text = self.metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(str::to_owned)
    }

    /// The versions of what Envoys are served.
    fn versions(&self) -> BTreeMap<String, xds_cache::Version> {
        let key = view_key_of_group(&group("default"), Profile::Envoy);
        let view = self.server.publisher.view_at(&key).unwrap();
        let name = |one: &Arc<Resource>| format!("{}/{}", one.resource_type().slug(), one.name());
        view.resources().map(|one| (name(one), one.version())).collect()
    }

    /// The clusters and their texts.
    fn served(&self) -> BTreeMap<String, String> {
        self.server.served("default")
    }
}

/// A file with a cluster, which begins in line 2.
fn raw(name: &str, text: &str) -> String {
    format!(
        "resources:\n- {{ '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: {name}, alt_stat_name: '{text}', \
         connect_timeout: 1s }}\n"
    )
}

/// A listener, and in a file of its own a backend and a route to it.
fn routes(host: &str, path: &str) -> [(&'static str, String); 2] {
    let edge = "version: xds-server/v1\nlisteners: { edge: { port: 10000, address: 127.0.0.1 } }\n";
    let web = format!(
        "version: xds-server/v1\nbackends: {{ one: {{ endpoints: ['{host}.test:80'] }} }}\n\
         routes: {{ web: {{ hosts: [a.test], rules: [ {{ match: {{ prefix: /{path} }}, to: one }} ] }} }}\n"
    );
    [("edge.yaml", edge.to_owned()), ("web.yaml", web)]
}

fn refused(result: Result<WriteOutcome, WriteError>) -> Vec<String> {
    let Err(WriteError::Invalid(faults)) = result else { panic!("{result:?}") };
    faults.iter().map(ToString::to_string).collect()
}

fn warnings(outcome: &WriteOutcome) -> Vec<String> {
    outcome.warnings.iter().map(ToString::to_string).collect()
}

const REFUSAL: &str = "Envoy 9.8.7 refuses Cluster \"two\": it says no";

#[tokio::test]
async fn a_write_that_is_refused_changes_nothing_and_a_dry_run_says_so_before() {
    let asking = Asking::loaded(OraclePolicy::Refuse).await;
    let write = || put("default", "two", "refuse-me");
    for result in [asking.try_out(write()).await, asking.server.write(write()).await] {
        let faults = refused(result);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("error[refused-by-oracle]") && faults[0].ends_with(REFUSAL), "{faults:?}");
    }
    assert_eq!(asking.served(), pairs(&[("one", "1")]));
    let outcome = asking.server.write(put("default", "two", "2")).await.unwrap();
    assert_eq!(warnings(&outcome), [""; 0]);
    assert_eq!(asking.served(), pairs(&[("one", "1"), ("two", "2")]));
    assert_eq!(asking.problems(), "");
}

#[tokio::test]
async fn what_is_told_goes_through_with_warnings_until_it_is_gone() {
    let asking = Asking::loaded(OraclePolicy::Tell).await;
    let outcome = asking.server.write(put("default", "two", "refuse-me")).await.unwrap();
    let found = warnings(&outcome);
    assert!(found.len() == 1 && found[0].contains("warning[refused-by-oracle]"), "{found:?}");
    assert_eq!(asking.served(), pairs(&[("one", "1"), ("two", "refuse-me")]));
    assert!(asking.problems().contains(REFUSAL), "{}", asking.problems());
    let outcome = asking.load(&[("a.yaml", &raw("three", "refuse-me"))]).await;
    assert_eq!(outcome.n_errors, 0);
    let told = "a.yaml:2:3: warning[refused-by-oracle] Envoy 9.8.7 refuses Cluster \"three\": it says no";
    assert_eq!(asking.found(), [told]);
    // It stays while it is served, whatever else changes.
    asking.load(&[("a.yaml", &raw("three", "refuse-me")), ("b.yaml", &raw("four", "4"))]).await;
    assert_eq!(asking.found(), [told]);
    asking.server.write(delete("default", "two")).await.unwrap();
    asking.load(&[("a.yaml", &raw("three", "3"))]).await;
    assert_eq!((asking.found(), asking.problems()), (vec![], String::new()));
}

#[tokio::test]
async fn a_resource_of_a_file_that_is_refused_keeps_its_last_good_version() {
    let asking = Asking::loaded(OraclePolicy::Refuse).await;
    let mut events = asking.server.control.events();
    let both = [("a.yaml", raw("one", "refuse-me")), ("b.yaml", raw("two", "2"))];
    let both: Vec<(&str, &str)> = both.iter().map(|(path, text)| (*path, &**text)).collect();
    for _ in 0..2 {
        let outcome = asking.load(&both).await;
        assert_eq!(outcome.n_errors, 1);
        assert_eq!(asking.served(), pairs(&[("one", "1"), ("two", "2")]));
        assert_eq!(
            asking.found(),
            ["a.yaml:2:3: error[refused-by-oracle] Envoy 9.8.7 refuses Cluster \"one\": it says no"]
        );
        let files = asking.server.control.files();
        assert!(files["a.yaml"].objects[0].is_last_good && !files["b.yaml"].objects[0].is_last_good);
    }
    let told = std::iter::from_fn(|| events.try_recv().ok());
    assert_eq!(told.filter(|event| matches!(event, Event::FileError(_))).count(), 1, "it is told once");
    // A new one is not served at all.
    asking.load(&[("a.yaml", &raw("one", "1")), ("b.yaml", &raw("new", "refuse-me"))]).await;
    assert_eq!(asking.served(), pairs(&[("one", "1")]));
    asking.load(&[("a.yaml", &raw("one", "3")), ("b.yaml", &raw("new", "4"))]).await;
    assert_eq!(asking.served(), pairs(&[("new", "4"), ("one", "3")]));
    assert_eq!(asking.found(), [""; 0]);
}

#[tokio::test]
async fn a_document_whose_resources_are_refused_keeps_its_last_good_version() {
    // A cluster names its document; a route configuration names that of its listener, which has not changed.
    for (host, path) in [("refuse-me", "a"), ("good", "refuse-me")] {
        let asking = Asking::open(OraclePolicy::Refuse);
        let load = async |[edge, web]: [(&'static str, String); 2], text: &str| {
            asking.load(&[(edge.0, &edge.1), (web.0, &web.1), ("a.yaml", &raw("raw", text))]).await
        };
        load(routes("good", "a"), "1").await;
        let before = asking.versions();
        let outcome = load(routes(host, path), "2").await;
        assert!(outcome.n_errors > 0);
        let after = asking.versions();
        let changed: Vec<&String> = after.keys().filter(|name| after[*name] != before[*name]).collect();
        assert_eq!(changed, ["clusters/raw"], "what is good is served");
        let found = asking.found();
        let is_told = |line: u32, kind: &str| {
            let start = format!("web.yaml:{line}:");
            let says = format!("error[refused-by-oracle] Envoy 9.8.7 refuses {kind}");
            found.iter().any(|one| one.starts_with(&start) && one.contains(&says))
        };
        match host {
            "refuse-me" => assert!(is_told(2, "Cluster \"default/one\""), "{found:?}"),
            _ => assert!(is_told(3, "RouteConfiguration \"default/edge/10000\""), "{found:?}"),
        }
        load(routes("better", "better"), "2").await;
        assert_ne!(asking.versions(), after);
        assert_eq!(asking.found(), [""; 0]);
    }
}

#[tokio::test]
async fn a_document_of_the_api_that_is_refused_is_not_applied() {
    let asking = Asking::open(OraclePolicy::Refuse);
    let [edge, web] = routes("good", "a");
    asking.load(&[(edge.0, &edge.1), (web.0, &web.1)]).await;
    let before = asking.versions();
    for [_, (_, text)] in [routes("refuse-me", "a"), routes("good", "refuse-me")] {
        let faults = refused(asking.server.write(apply(&text)).await);
        assert!(faults[0].contains("Envoy 9.8.7 refuses"), "{faults:?}");
        assert_eq!(asking.versions(), before);
    }
}

#[tokio::test]
async fn an_oracle_that_does_not_answer_is_in_nobodys_way() {
    for (text, why) in [("hang-me", "it takes more than 2 s"), ("crash-me", "it ends by signal 11")] {
        let asking = Asking::loaded(OraclePolicy::Refuse).await;
        let begun = Instant::now();
        let outcome = asking.server.write(put("default", "two", text)).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30));
        let found = warnings(&outcome);
        let is_told = |text: &str| {
            text.contains("the oracle has not judged 1 of the changed resources") && text.contains(why)
        };
        assert!(
            found.len() == 1 && found[0].contains("warning[oracle-undecided]") && is_told(&found[0]),
            "{found:?}"
        );
        assert_eq!(asking.served(), pairs(&[("one", "1"), ("two", text)]));
        assert!(asking.problems().contains("the oracle does not judge changes"), "{}", asking.problems());
        assert_eq!(asking.metric("xds_oracle_resources_total{result=\"undecided\"}").as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn an_oracle_that_hangs_is_left_alone_for_a_while() {
    let asking = Asking::loaded(OraclePolicy::Refuse).await;
    asking.server.write(put("default", "two", "hang-me")).await.unwrap();
    assert_eq!(asking.n_runs(), 1);
    let outcome = asking.server.write(put("default", "three", "refuse-me")).await.unwrap();
    assert!(warnings(&outcome)[0].contains("it is asked again after 30 s"), "{:?}", outcome.warnings);
    assert_eq!(asking.n_runs(), 1);
}

#[tokio::test]
async fn a_server_without_its_oracle_serves() {
    let dir = TempDir::new().unwrap();
    let asking = Asking::open_with(OraclePolicy::Refuse, &dir.path().join("nothing"));
    asking.load(&[("a.yaml", &raw("one", "1"))]).await;
    asking.load(&[("a.yaml", &raw("one", "2"))]).await;
    assert_eq!(asking.served(), pairs(&[("one", "2")]));
    let outcome = asking.server.write(put("default", "two", "2")).await.unwrap();
    assert!(warnings(&outcome)[0].contains("it cannot be started"), "{:?}", outcome.warnings);
    assert!(asking.problems().contains("it cannot be started"), "{}", asking.problems());
}

#[tokio::test]
async fn what_was_judged_is_not_asked_again() {
    let asking = Asking::loaded(OraclePolicy::Tell).await;
    asking.try_out(put("default", "two", "2")).await.unwrap();
    assert_eq!(asking.n_runs(), 1);
    asking.server.write(put("default", "two", "2")).await.unwrap();
    assert_eq!(asking.n_runs(), 1, "the dry run has asked");
    asking.server.write(put("default", "two", "3")).await.unwrap();
    asking.server.write(put("default", "two", "2")).await.unwrap();
    // A revert, and the same resource in another group.
    asking.server.write(Write::Rollback { to: Revision(3) }).await.unwrap();
    asking.server.write(put("g", "two", "3")).await.unwrap();
    assert_eq!(asking.n_runs(), 2);
    assert_eq!(asking.metric("xds_oracle_questions_total").as_deref(), Some("2"));
    assert_eq!(asking.metric("xds_oracle_resources_total{result=\"taken\"}").as_deref(), Some("2"));
}

#[tokio::test]
async fn the_first_load_is_judged_after_it_is_served() {
    let asking = Asking::open(OraclePolicy::Refuse);
    asking.load(&[("a.yaml", &raw("one", "refuse-me"))]).await;
    assert_eq!((asking.served(), asking.n_runs()), (pairs(&[("one", "refuse-me")]), 0));
    tokio::spawn(asking.server.control.clone().follow_oracle());
    let told = async {
        while asking.found().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
    let told = "a.yaml:2:3: warning[refused-by-oracle] Envoy 9.8.7 refuses Cluster \"one\": it says no";
    assert_eq!(asking.found(), [told]);
    assert_eq!(asking.server.control.not_ready(), [""; 0]);
    // It is not in the way of other changes.
    asking.server.write(put("default", "two", "2")).await.unwrap();
    asking.load(&[("a.yaml", &raw("one", "1"))]).await;
    assert_eq!((asking.found(), asking.problems()), (vec![], String::new()));
}

#[tokio::test]
async fn the_words_about_a_secret_are_not_shown_and_questions_are_private() {
    let asking = Asking::loaded(OraclePolicy::Refuse).await;
    let resource = Arc::new(secret("refuse-me"));
    let faults = refused(asking.server.write(Write::PutResource { group: group("default"), resource }).await);
    assert!(faults[0].ends_with("its words are not shown, because the resource has a secret"), "{faults:?}");
    let questions = asking.dir.path().join("oracle");
    assert_eq!(fs::metadata(&questions).unwrap().permissions().mode() & 0o777, 0o700);
    let left = fs::read_dir(&questions).unwrap().filter_map(|entry| fs::read_dir(entry.unwrap().path()).ok());
    assert_eq!(left.flatten().count(), 0, "no question is left");
}

#[tokio::test]
async fn a_resource_that_only_grpc_clients_may_use_is_never_refused() {
    let asking = Asking::loaded(OraclePolicy::Refuse).await;
    let definition = NodeGroup { client: Some(Profile::Grpc), ..NodeGroup::for_node_id(group("g")) };
    asking.server.write(Write::PutGroup(definition)).await.unwrap();
    asking.server.write(put("g", "two", "refuse-me")).await.unwrap();
    assert_eq!(asking.n_runs(), 0);
}

#[tokio::test]
async fn a_resource_that_grpc_clients_use_too_is_told_and_never_refused() {
    let asking = Asking::loaded(OraclePolicy::Refuse).await;
    let target = "resources:\n- '@type': type.googleapis.com/envoy.config.listener.v3.Listener\n  name: a.test\n  api_listener:\n    api_listener:\n      \
         '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n      stat_prefix: a\n      \
         http_filters: [{ name: router, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }]\n      \
         route_config: { name: a, virtual_hosts: [{ name: a, domains: ['*'], routes: [{ match: { prefix: '' }, route: { cluster: two } }] }] }\n";
    asking.load(&[("a.yaml", &raw("one", "1")), ("b.yaml", target)]).await;
    let outcome = asking.server.write(put("default", "two", "refuse-me")).await.unwrap();
    let found = warnings(&outcome);
    let note = "it says no (ignore this if only gRPC clients use it)";
    assert!(found.len() == 1 && found[0].contains("warning[refused-by-oracle]"), "{found:?}");
    assert!(found[0].ends_with(note), "{found:?}");
    assert_eq!(asking.served()["two"], "refuse-me");
}
