//! Rollouts while the wall clock is changed: no pause is cut short, and no timer is held up.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rest::Rest;
use super::rollouts::{ROUTES, at, start, wait};
use super::weights::{HALVES, load, route, served_weights};
use super::*;
use crate::rollouts::{Clock, wall_clock};

/// A clock that goes on as time does, from wherever it is set to.
#[derive(Clone)]
struct Settable {
    /// The time that is added, in milliseconds.
    ahead: Arc<AtomicU64>,
}

impl Settable {
    fn new() -> Self {
        Self { ahead: Arc::new(AtomicU64::new(10 * DAY)) }
    }

    fn clock(&self) -> Clock {
        let (wall, ahead) = (wall_clock(), Arc::clone(&self.ahead));
        Arc::new(move || wall() + ahead.load(Ordering::SeqCst))
    }

    fn set_forward(&self, by_ms: u64) {
        self.ahead.fetch_add(by_ms, Ordering::SeqCst);
    }

    fn set_back(&self, by_ms: u64) {
        self.ahead.fetch_sub(by_ms, Ordering::SeqCst);
    }
}

const DAY: u64 = 86_400_000;

/// A server whose rollouts go by a clock, with a rule to move.
async fn world(store: &Arc<MemoryStore>, clock: Clock) -> Rest {
    let rest = Rest::with_clock(Server::with_files(store), clock);
    load(&rest, &route("", HALVES)).await;
    rest
}

#[tokio::test]
async fn a_clock_that_is_set_back_holds_up_neither_a_pause_nor_an_analysis() {
    let clock = Settable::new();
    let rest = world(&MemoryStore::new(), clock.clock()).await;
    let analysis = json!({"interval": "1s", "inconclusiveLimit": 0});
    let steps = json!({"steps": [
        {"setWeight": 20}, {"pause": {"duration": "1s"}}, {"setWeight": 60}, {"analysis": analysis},
    ]});
    let path = start(&rest, &steps).await;
    wait(&rest, &path, at("Paused", 2)).await;
    clock.set_back(DAY);
    wait(&rest, &path, |one| one["step"] == 4).await;
    assert_eq!(served_weights(&rest, ROUTES), json!([40, 60]));
    clock.set_back(DAY);
    let paused = wait(&rest, &path, at("Paused", 4)).await;
    assert!(paused["message"].to_string().contains("0 requests"), "it was measured: {paused:#}");
}

#[tokio::test]
async fn a_clock_that_leaps_ahead_ends_neither_a_pause_nor_the_whole() {
    let clock = Settable::new();
    let rest = world(&MemoryStore::new(), clock.clock()).await;
    let steps = json!({"steps": [{"setWeight": 20}, {"pause": {"duration": "1h"}}], "deadline": "2h"});
    let path = start(&rest, &steps).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let before = rest.server.revision();
    clock.set_forward(DAY);
    // The leap is stored, so it has been seen.
    let seen = wait(&rest, &path, |_| rest.server.revision() > before).await;
    assert!(at("Paused", 2)(&seen), "{seen:#}");
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]));
    assert!(seen["elapsedMs"].as_u64().unwrap() < 120_000, "{seen:#}");
}

#[tokio::test]
async fn the_time_that_a_server_was_away_counts_unless_the_clock_went_back() {
    let store = MemoryStore::new();
    let began = 1_800_000_000_000;
    let frozen = |ms: u64| -> Clock { Arc::new(move || ms) };
    let rest = world(&store, frozen(began)).await;
    let steps = json!({"steps": [{"setWeight": 20}, {"pause": {"duration": "1h"}}, {"setWeight": 60}], "autoPromote": false});
    let path = start(&rest, &steps).await;
    wait(&rest, &path, at("Paused", 2)).await;
    for (ms, step) in [(began - DAY, 2), (began - DAY + 1_800_000, 2), (began - DAY + 3_600_001, 3)] {
        let before = rest.server.revision();
        let rest = world(&store, frozen(ms)).await;
        let seen = wait(&rest, &path, |_| rest.server.revision() > before).await;
        let seen = if step == 2 { seen } else { wait(&rest, &path, |one| one["step"] == step).await };
        let (phase, weights) = if step == 2 { ("Paused", [80, 20]) } else { ("Progressing", [40, 60]) };
        assert!(at(phase, step)(&seen), "{ms}: {seen:#}");
        assert_eq!(served_weights(&rest, ROUTES), json!(weights));
    }
}

#[tokio::test]
async fn loads_are_added_up_once_a_second_however_many_read_them() {
    let now = Arc::new(AtomicU64::new(1_800_000_000_000));
    let clock = Arc::clone(&now);
    let store = MemoryStore::new();
    let rest = world(&store, Arc::new(move || clock.load(Ordering::SeqCst))).await;
    let path = start(&rest, &json!({"steps": [{"setWeight": 20}, {"pause": {}}]})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let requests = async || rest.get(&path).await.json()["loads"]["canary"]["requests"].clone();
    assert_eq!(requests().await, 0);
    now.fetch_add(10_000, Ordering::SeqCst);
    let report = || {
        let counts = xds_cache::loads::Counts { issued: 7, successful: 7, errors: 0 };
        let locality = xds_cache::loads::LocalityReport { counts, ..Default::default() };
        let report = xds_cache::loads::ClusterReport {
            cluster: "prod/v2/80".to_owned(),
            localities: vec![locality],
            interval: std::time::Duration::from_secs(1),
            ..Default::default()
        };
        let reporter = xds_cache::loads::Reporter { node: "n".into(), groups: Arc::default() };
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(now.load(Ordering::SeqCst));
        rest.loads.record(&reporter, &[report], |_| true, at);
    };
    report();
    assert_eq!(requests().await, 7);
    report();
    for _ in 0..3 {
        assert_eq!(requests().await, 7, "they are those of this second");
    }
    let list = rest.get("/v1/rollouts").await.json();
    assert_eq!(list["rollouts"][0]["loads"]["canary"]["requests"], 7, "for whoever asks");
    now.fetch_add(1_000, Ordering::SeqCst);
    assert_eq!(requests().await, 14);
    // Other clusters may be served now.
    report();
    load(&rest, &route("", "{name: v1, port: 80}, {name: v2, port: 80}, {name: v3, port: 80}")).await;
    assert_eq!(requests().await, 21);
    // So it may be without a revision, while the store fails.
    report();
    store.is_failing.store(true, Ordering::SeqCst);
    load(&rest, &route("", HALVES)).await;
    assert_eq!(requests().await, 28);
}
