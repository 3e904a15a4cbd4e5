//! What a server makes of commits of others to the same store: the same state however it reads them, at the cost of what they changed.

use std::sync::atomic::Ordering;

use tokio::time::{Duration, Instant, sleep};
use xds_cache::WavePolicy;
use xds_control::acks::{AcksReport, Applied};
use xds_control::model::StepKind;
use xds_control::model::WaveChoice;
use xds_control::model::rollouts::{RolloutRecord, RolloutStep, RolloutSteps};
use xds_control::model::wave::{WavePhase, WaveVerb};
use xds_control::model::weights::change::WeightChange;
use xds_control::model::weights::{RuleKey, WeightedObject};
use xds_rollout::{Rollout, RolloutSpec};
use xds_routes::{DocumentKey, Kind};
use xds_store::{Change, Commit};

use super::acked::AckingClient;
use super::documents::apply;
use super::shared::Random;
use super::store::Forgetful;
use super::*;

/// Takes in what others have committed.
async fn catch_up(server: &Server, store: &MemoryStore) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let caught_up = async {
        while server.revision() < store.head().0 {
            assert!(Instant::now() < deadline, "it does not catch up");
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = server.control.clone().follow_store() => {}
        () = caught_up => {}
    }
}

fn waves(policy: &str) -> WriteOptions {
    let policy: WavePolicy = policy.parse().unwrap();
    WriteOptions { actor: "test".to_owned(), waves: WaveChoice::By(policy), ..WriteOptions::default() }
}

fn phase(server: &Server) -> WavePhase {
    server.control.waves().first().unwrap().phase
}

#[tokio::test]
async fn a_wave_deployment_that_another_server_pauses_is_paused_here_and_goes_on_when_it_is_told_here() {
    let store = MemoryStore::new();
    let (one, other) = (Server::without_files(&store), Server::without_files(&store));
    one.write(put("default", "a", "1")).await.unwrap();
    let begun = one.control.write(put("default", "a", "2"), waves("10%,100%")).await.unwrap();
    let id = begun.wave.unwrap();
    catch_up(&other, &store).await;
    assert_eq!(phase(&other), WavePhase::Progressing);
    other.control.wave(id, WaveVerb::Pause, "me".to_owned()).await.unwrap();
    catch_up(&one, &store).await;
    assert_eq!(phase(&one), WavePhase::Paused);
    assert_eq!(one.control.waves()[0].reason.as_deref(), Some("paused by me"));
    // Its own changes do not undo that.
    one.write(put("default", "b", "1")).await.unwrap();
    catch_up(&other, &store).await;
    assert_eq!((phase(&one), phase(&other)), (WavePhase::Paused, WavePhase::Paused));
    one.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    catch_up(&other, &store).await;
    assert_eq!((phase(&one), phase(&other)), (WavePhase::Progressing, WavePhase::Progressing));
    other.control.wave(id, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    catch_up(&one, &store).await;
    assert_eq!((phase(&one), phase(&other)), (WavePhase::Promoted, WavePhase::Promoted));
    assert_eq!(
        (one.served("default"), one.served("default")),
        (other.served("default"), pairs(&[("a", "2"), ("b", "1")]))
    );
}

#[tokio::test]
async fn commits_that_concern_something_else_leave_a_wave_deployment_as_it_is_known() {
    for forgets in [false, true] {
        let store = MemoryStore::new();
        let other = Server::without_files(&store);
        let one = match forgets {
            false => Server::without_files(&store),
            true => Server::open(Arc::new(Forgetful(Arc::clone(&store))), Options::default()),
        };
        one.write(put("default", "a", "1")).await.unwrap();
        one.control.write(put("default", "a", "2"), waves("10%,100%")).await.unwrap();
        let since = one.control.waves()[0].since;
        other.write(put("default", "b", "1")).await.unwrap();
        catch_up(&one, &store).await;
        // Without history nobody knows whether it has changed, so it waits for its clients anew.
        assert_eq!(one.control.waves()[0].since == since, !forgets);
        assert_eq!(phase(&one), WavePhase::Progressing);
    }
}

const ROUTES: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: prod}
spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: v1, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: v2, namespace: prod}
spec: {ports: [{port: 80}]}
";

fn http_route(n: usize, v1: usize) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}, namespace: prod}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  hostnames: [h{n}.test]\n  rules:\n  - backendRefs: [{{name: v1, port: 80, weight: {v1}}}, \
         {{name: v2, port: 80, weight: 1}}]\n"
    )
}

fn route_key(n: usize) -> DocumentKey {
    DocumentKey::new(Kind::HttpRoute, "prod", &format!("r{n}"))
}

fn weight_change(v1: u32) -> WeightChange {
    let backends = [("v1:80", v1), ("v2:80", 1)];
    WeightChange {
        backends: backends.iter().map(|(name, weight)| ((*name).to_owned(), Some(*weight))).collect(),
        ..WeightChange::default()
    }
}

fn record(id: &str, n: usize) -> Arc<RolloutRecord> {
    let spec = json!({
        "route": {"kind": "HTTPRoute", "namespace": "prod", "name": format!("gone-{id}"), "rule": "0"},
        "stable": "a", "canary": "b", "steps": [{"setWeight": n + 1}],
    });
    let weights = [("a".to_owned(), 100), ("b".to_owned(), 0)].into();
    let spec = RolloutSpec::try_from(&spec).unwrap();
    let (rollout, _) = Rollout::start(id.to_owned(), spec, &weights, 1_800_000_000_000).unwrap();
    Arc::new(RolloutRecord { rollout, source: BTreeMap::new() })
}

/// Changes something. It may be refused.
async fn change(writer: &Server, store: &Arc<MemoryStore>, random: &mut Random) {
    let (n, m) = (random.below(3), random.below(3));
    let name = ["default", "g", "node-1"][random.below(3)];
    let resource = ["a", "b/c", "d"][n];
    let rule = || RuleKey { object: WeightedObject::Document(route_key(n)), rule: "0".into() };
    let write = match random.below(14) {
        0 | 1 => put(name, resource, &m.to_string()),
        2 => delete(name, resource),
        3 => Write::PutGroup(NodeGroup::for_node_id(group(["g", "node-1"][random.below(2)]))),
        4 => Write::DeleteGroup(group(name)),
        5 => apply(&http_route(n, m + 1)),
        6 => Write::DeleteDocument { key: route_key(n) },
        7 => Write::ChangeWeights { key: rule(), change: weight_change(u32::try_from(m).unwrap()) },
        8 => {
            let id = format!("r{n}");
            let before = writer.control.rollouts().1.get(&id).cloned();
            let after = (m > 0).then(|| record(&id, m));
            let steps = RolloutSteps::from([(id, RolloutStep { before, after })]);
            Write::StepRollouts { steps, change: None, kind: StepKind::ByHand, summary: "step".to_owned() }
        }
        9 => {
            let _ = writer.control.write(put("default", "a", &m.to_string()), waves("10%,100%")).await;
            return;
        }
        10 => {
            let verb =
                [WaveVerb::Pause, WaveVerb::Resume, WaveVerb::Promote, WaveVerb::Abort][random.below(4)];
            if let Some(wave) = writer.control.waves().first() {
                let _ = writer.control.wave(wave.deployment, verb, "me".to_owned()).await;
            }
            return;
        }
        11 => replace(name, &[(resource, "x"), ("e", &m.to_string())]),
        _ => {
            damage(store, random).await;
            return;
        }
    };
    let _ = writer.write(write).await;
}

/// Commits what no server would: values that cannot be read, at keys of all kinds, and their end.
async fn damage(store: &Arc<MemoryStore>, random: &mut Random) {
    const KEYS: [&str; 12] = [
        "group/g",
        "group/node-1",
        "label/g",
        "resource/g/clusters/a",
        "resource/g/clusters/b%2Fc",
        "resource/default/clusters/a",
        "resource/node-1/clusters/zz",
        "document/HTTPRoute/prod/r0",
        "weights/HTTPRoute/prod/r0/0",
        "rollout/r0",
        "unheard/of",
        "document-status/HTTPRoute/prod/r0",
    ];
    let key = KEYS[random.below(KEYS.len())];
    let value = match random.below(3) {
        0 => None,
        n => {
            let garbage = [&b"{}"[..], b"\xFF"][n - 1];
            Some(store.put_blob(bytes::Bytes::from_static(garbage)).await.unwrap())
        }
    };
    let changes = vec![Change { key: key.to_owned(), value }];
    store.commit_at_once(Commit { changes, ..Commit::default() });
}

/// Everything that a server has accepted, as far as it is shown.
fn shown(server: &Server) -> Vec<(&'static str, String)> {
    let control = &server.control;
    let (revision, layer) = control.overrides();
    let documents = control.documents();
    let owned: Vec<String> = documents
        .owned
        .iter()
        .map(|(key, one)| format!("{key} {} {}", one.group, one.document.source.text()))
        .collect();
    let placed: Vec<String> = documents
        .translated
        .documents
        .iter()
        .map(|(key, placed)| format!("{key} {} {}", placed.generation, placed.was_split))
        .collect();
    let waves: Vec<String> = control
        .waves()
        .into_iter()
        .map(|wave| {
            let (id, phase, reason, reached) = (wave.deployment, wave.phase, wave.reason, wave.reached);
            format!("{id} {phase:?} {reason:?} {reached:?} {:?} {:?}", wave.objects, wave.policy)
        })
        .collect();
    vec![
        ("revision", revision.0.to_string()),
        ("layer", format!("{layer:?}")),
        ("owned", format!("{owned:#?}")),
        ("placed", format!("{placed:#?}")),
        ("weights", format!("{:#?}", documents.weights)),
        ("rollouts", format!("{:#?}", control.rollouts().1)),
        ("groups", format!("{:?}", control.groups())),
        ("problems", format!("{:#?}", control.problems())),
        ("waves", format!("{waves:#?}")),
        ("behind", format!("{:?}", server.publisher.behind().map(|behind| behind.groups))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_changed_keys_a_server_accepts_what_it_would_by_reading_everything() {
    let mut random = Random::new();
    for _ in 0..8 {
        let store = MemoryStore::new();
        let writer = Server::without_files(&store);
        let by_keys = Server::without_files(&store);
        let whole = Server::open(Arc::new(Forgetful(Arc::clone(&store))), Options::default());
        writer.write(apply(ROUTES)).await.unwrap();
        for _ in 0..15 {
            for _ in 0..=random.below(4) {
                change(&writer, &store, &mut random).await;
            }
            for server in [&writer, &by_keys, &whole] {
                catch_up(server, &store).await;
            }
            for ((what, one), (_, other)) in shown(&by_keys).into_iter().zip(shown(&whole)) {
                assert_eq!(one, other, "{what} differs");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_another_server_costs_the_values_that_it_changed() {
    let store = MemoryStore::new();
    let open = |store: Arc<dyn Store>| Server::open_as_is(store, Options::default());
    let writer = open(Arc::clone(&store) as Arc<dyn Store>);
    let documents: String = (0..10_000)
        .map(|n| {
            format!(
                "---\napiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: {{name: t{n}}}\nspec:\n  tests:\n  - {{name: a, \
                 request: {{host: a.test, path: /}}, expect: {{backends: {{one: 100%}}}}}}\n"
            )
        })
        .collect();
    writer.write(route_tests::apply(&documents)).await.unwrap();
    let clusters: Vec<(String, &str)> = (0..100).map(|n| (format!("c{n}"), "1")).collect();
    let clusters: Vec<(&str, &str)> = clusters.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    writer.write(replace("g", &clusters)).await.unwrap();
    let by_keys = open(Arc::clone(&store) as Arc<dyn Store>);
    let whole = open(Arc::new(Forgetful(Arc::clone(&store))));
    let test = documents.split("---\n").nth(5_001).unwrap().replace("one: 100%", "two: 100%");
    for write in [route_tests::apply(&test), put("g", "c7", "2")] {
        writer.write(write).await.unwrap();
        let mut n_read = vec![];
        for server in [&by_keys, &whole] {
            let before = store.n_read.load(Ordering::SeqCst);
            catch_up(server, &store).await;
            n_read.push(store.n_read.load(Ordering::SeqCst) - before);
        }
        // The value, and for a document its status.
        assert!(n_read[0] <= 2 && n_read[1] > 100, "{n_read:?}");
    }
}

fn known(applied: Applied) -> AcksReport {
    applied.known().unwrap()
}

#[tokio::test]
async fn the_acks_of_a_revision_that_was_skipped_are_those_of_the_publication_that_covers_it() {
    let store = MemoryStore::new();
    let (writer, server) = (Server::without_files(&store), Server::without_files(&store));
    let client = AckingClient::connect(&server, 1, "n1");
    for text in ["1", "2", "3"] {
        writer.write(put("default", "a", text)).await.unwrap();
    }
    assert_eq!(server.acks.report(Revision(1)), Applied::Behind, "it is not served here yet");
    catch_up(&server, &store).await;
    for revision in 1..=3 {
        let report = known(server.acks.report(Revision(revision)));
        assert_eq!((report.revision, report.total, report.pending), (revision, 1, vec!["n1".to_owned()]));
    }
    assert_eq!(server.acks.report(Revision(4)), Applied::Behind);
    client.ack(3);
    for revision in 1..=3 {
        let report = known(server.acks.report(Revision(revision)));
        assert_eq!((report.total, report.acked), (1, 1), "revision {revision}");
    }
    // What was published before the server began is not covered by its first publication.
    let late = Server::without_files(&store);
    let client = AckingClient::connect(&late, 2, "n1");
    assert_eq!(late.acks.report(Revision(2)), Applied::Forgotten);
    writer.write(put("default", "a", "4")).await.unwrap();
    writer.write(put("elsewhere", "a", "1")).await.unwrap();
    catch_up(&late, &store).await;
    assert_eq!(known(late.acks.report(Revision(4))).pending, ["n1"]);
    assert_eq!(late.acks.report(Revision(2)), Applied::Forgotten);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_revision_that_is_not_served_yet_waits_for_the_publication_and_the_acks() {
    let store = MemoryStore::new();
    let (writer, server) = (Server::without_files(&store), Server::without_files(&store));
    let client = AckingClient::connect(&server, 1, "n1");
    let soon = server.acks.wait(Revision(2), Duration::from_secs(1)).await;
    assert_eq!(soon, Applied::Behind);
    writer.write(put("default", "a", "1")).await.unwrap();
    writer.write(put("default", "a", "2")).await.unwrap();
    let acked = async {
        catch_up(&server, &store).await;
        client.ack(2);
    };
    let (report, ()) =
        futures_util::future::join(server.acks.wait(Revision(1), Duration::from_secs(60)), acked).await;
    let report = known(report);
    assert_eq!((report.revision, report.total, report.acked), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_first_conflict_the_next_attempt_comes_at_once() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    for n in 0..10 {
        let began = Instant::now();
        let closed = store.gate.write().await;
        let before = store.n_at_gate.load(Ordering::SeqCst);
        let (control, write) = (server.control.clone(), put("default", "a", &n.to_string()));
        let writing = tokio::spawn(async move { control.write(write, WriteOptions::default()).await });
        while store.n_at_gate.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        store.commit_at_once(Commit::default());
        drop(closed);
        writing.await.unwrap().unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO, "the store gives it a turn");
    }
}
