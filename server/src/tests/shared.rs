//! Two servers on one store: what each commits, the other serves; and a step is done only from the state that it was computed from.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::rest::Rest;
use super::rollouts::{at, connect_client, post, start, wait};
use super::weights::{HALVES, load, route, served_weights};
use super::*;

const ROUTES: &str = "prod/edge/8080";

/// Two servers with files that say the same, each with its driver of rollouts.
struct Pair {
    store: Arc<MemoryStore>,
    rests: [Rest; 2],
}

impl Pair {
    async fn new() -> Self {
        let store = MemoryStore::new();
        let rests = [Rest::new(Server::with_files(&store)), Rest::new(Server::with_files(&store))];
        for rest in &rests {
            load(rest, &route("", HALVES)).await;
            connect_client(rest);
            tokio::spawn(rest.server.control.clone().follow_store());
        }
        Self { store, rests }
    }

    /// Waits until both serve the newest revision.
    async fn settle(&self) {
        let head = self.store.head().0;
        for rest in &self.rests {
            until("both serve the newest revision", || rest.server.publisher.groups().0.0 >= head).await;
        }
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// The states of rollouts in the order in which they were stored.
pub(super) fn line(store: &MemoryStore) -> Vec<Value> {
    let mut records = store.history(None, usize::MAX).unwrap();
    records.reverse();
    let changes = records.iter().flat_map(|record| &record.commit.changes);
    let of_rollouts = changes.filter(|change| change.key.starts_with("rollout/"));
    let blobs = of_rollouts.filter_map(|change| store.blob(change.value?).unwrap());
    blobs.map(|blob| serde_json::from_slice::<Value>(&blob).unwrap()["rollout"].take()).collect()
}

/// Each state has all that happened before it, and changes of weights are counted one by one.
pub(super) fn check_line(line: &[Value]) {
    for states in line.windows(2) {
        let [before, after] = states else { continue };
        let (old, new) = (before["events"].as_array().unwrap(), after["events"].as_array().unwrap());
        for event in old {
            let number = event["number"].as_u64().unwrap();
            let is_kept = number + 50 > after["n_events"].as_u64().unwrap();
            assert!(!is_kept || new.contains(event), "lost: {event:#}\n{after:#}");
        }
        let change = |state: &Value| state["change"].as_u64().unwrap();
        assert!((change(before)..=change(before) + 2).contains(&change(after)), "{before:#}\n{after:#}");
        let weights = |state: &Value| (state["canary"].clone(), state["header_routes"].clone());
        assert!(
            change(before) != change(after)
                || weights(before) == weights(after)
                || after["stage"].is_object() && after["stage"]["Ended"].is_string(),
            "{before:#}\n{after:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_does_with_a_rollout_the_other_goes_on_from() {
    let pair = Pair::new().await;
    let [one, other] = &pair.rests;
    let path = start(one, &json!({})).await;
    wait(other, &path, at("Paused", 2)).await;
    assert_eq!(served_weights(other, ROUTES), json!([80, 20]));
    assert_eq!(post(other, &format!("{path}:resume"), &json!({})).await.status, 200);
    let seen = wait(one, &path, at("Paused", 4)).await;
    assert!(seen["message"].as_str().unwrap().contains("all steps are done"), "{seen:#}");
    assert_eq!(served_weights(one, ROUTES), json!([40, 60]));
    let second = post(other, "/v1/rollouts", &rollouts::rollout(&json!({}))).await;
    assert_eq!(
        (second.status, second.json()["rollout"].as_str()),
        (409, path.rsplit('/').next()),
        "{second:?}"
    );
    assert_eq!(post(one, &format!("{path}:abort"), &json!({})).await.status, 200);
    wait(other, &path, |seen| seen["phase"] == "Aborted").await;
    pair.settle().await;
    assert_eq!(other.call("DELETE", &path, &[], "").await.status, 200);
    pair.settle().await;
    for rest in &pair.rests {
        wait(rest, &path, |seen| seen["status"] == 404).await;
        assert_eq!(served_weights(rest, ROUTES), json!([100, 0]));
    }
    check_line(&line(&pair.store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_verbs_at_once_on_two_servers_are_both_done() {
    for _ in 0..5 {
        let pair = Pair::new().await;
        let [one, other] = &pair.rests;
        let path = start(one, &json!({"steps": [{"setWeight": 20}, {"pause": {"duration": "1h"}}, {"setWeight": 60}, {"pause": {}}]})).await;
        wait(other, &path, at("Paused", 2)).await;
        wait(one, &path, at("Paused", 2)).await;
        // Both are computed from the same state, and only then may one of them be stored.
        let closed = pair.store.gate.write().await;
        let before = pair.store.n_at_gate.load(std::sync::atomic::Ordering::SeqCst);
        let both = async {
            let (resume, pause) = (format!("{path}:resume"), format!("{path}:pause"));
            let nothing = json!({});
            futures_util::future::join(post(one, &resume, &nothing), post(other, &pause, &nothing)).await
        };
        let opened = async {
            let n_at_gate = || pair.store.n_at_gate.load(std::sync::atomic::Ordering::SeqCst);
            until("both are at the gate", || n_at_gate() >= before + 2).await;
            drop(closed);
        };
        let ((resumed, paused), ()) = futures_util::future::join(both, opened).await;
        assert_eq!((resumed.status, paused.status), (200, 200), "{resumed:?} {paused:?}");
        pair.settle().await;
        let states = line(&pair.store);
        check_line(&states);
        let events = states.last().unwrap()["events"].to_string();
        assert!(events.contains("resumed"), "{events}");
        // If resuming is first, the rollout may stand at its last pause already.
        let is_paused = ["paused: by hand", "step 4: pause until"].iter().any(|said| events.contains(said));
        assert!(is_paused, "{events}");
    }
}

/// Random verbs to both servers, with drivers that go on by themselves meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_states_of_a_rollout_form_one_line_whoever_makes_them() {
    let mut random = Random::new();
    for _ in 0..6 {
        let pair = Pair::new().await;
        let steps = json!([
            {"setWeight": 10}, {"pause": {"duration": "30ms"}}, {"setWeight": 20}, {"setWeight": 30},
            {"pause": {"duration": "50ms"}}, {"setWeight": 40}, {"pause": {}}, {"setWeight": 50},
        ]);
        let path = start(&pair.rests[0], &json!({"steps": steps})).await;
        for _ in 0..12 {
            let asked = |rest: usize, verb: usize| {
                let verb = ["pause", "resume", "promote", "abort", "retry", "resume"][verb];
                let (rest, path) = (&pair.rests[rest], format!("{path}:{verb}"));
                async move { post(rest, &path, &json!({})).await }
            };
            let (first, second) =
                (asked(random.below(2), random.below(6)), asked(random.below(2), random.below(6)));
            let (first, second) = futures_util::future::join(first, second).await;
            for reply in [first, second] {
                assert!([200, 404, 409].contains(&reply.status), "{reply:?}");
                assert!(!reply.text.contains("superseded"), "{reply:?}");
            }
            sleep(Duration::from_millis(random.below(40) as u64)).await;
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while post(&pair.rests[1], &format!("{path}:promote"), &json!({"full": true})).await.status != 200 {
            post(&pair.rests[0], &format!("{path}:retry"), &json!({})).await;
            assert!(Instant::now() < deadline);
        }
        wait(&pair.rests[0], &path, at("Succeeded", 9)).await;
        wait(&pair.rests[1], &path, at("Succeeded", 9)).await;
        pair.settle().await;
        for rest in &pair.rests {
            assert_eq!(served_weights(rest, ROUTES), json!([0, 100]));
        }
        check_line(&line(&pair.store));
    }
}

/// Numbers that look random.
pub(super) struct Random(u64);

impl Random {
    /// Other ones each time, unless `XDS_SEED` says which.
    pub(super) fn new() -> Self {
        let seed = std::env::var("XDS_SEED").ok();
        let any = || RandomState::new().hash_one(0);
        let seed = seed.map_or_else(any, |seed| seed.parse().unwrap());
        println!("XDS_SEED={seed}");
        Self(seed)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}
