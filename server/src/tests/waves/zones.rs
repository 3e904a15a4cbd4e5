//! Waves by zone: one zone is complete before the next begins, also over a restart.

use xds_cache::wave::{By, order};
use xds_control::model::wave::{ValueState, WaveReport};

use super::restarts::Killable;
use super::*;

/// One node of ten is in `b`, three are in `a`, the others in `c`.
fn zone_of(node: &str) -> &'static str {
    match node.trim_start_matches("node-").parse::<usize>().map(|n| n % 10) {
        Ok(0) => "b",
        Ok(1..=3) => "a",
        Ok(_) => "c",
        Err(_) => {
            if node.starts_with("elsewhere") {
                "d"
            } else {
                ""
            }
        }
    }
}

fn by_zone(shares: &str, hold_s: u64, first: &[&str]) -> WavePolicy {
    let mut policy = policy(shares, hold_s);
    (policy.by, policy.order) = (By::Zone, order(first.iter().copied()).unwrap());
    policy
}

fn in_zones(server: &Server) -> Fleet {
    Fleet::connect_in(server, N_CLIENTS, zone_of, false)
}

/// Each value, whether its nodes are ahead, and how many of the connected ones are and are not.
fn values(report: &WaveReport) -> Vec<(Option<&str>, ValueState, usize, usize)> {
    let values = report.members.values.iter();
    values.map(|one| (one.value.as_deref(), one.state, one.n_ahead, one.n_behind)).collect()
}

fn sorted(mut nodes: Vec<String>) -> Vec<String> {
    nodes.sort();
    nodes
}

#[tokio::test(start_paused = true)]
async fn one_zone_after_the_other_gets_a_change_and_unknown_ones_are_last() {
    use ValueState::{Ahead, Behind};
    let server = started(&MemoryStore::new());
    server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = in_zones(&server);
    let before = fleet.n_responses();
    begin(&server, "2", &by_zone("each", 10, &[])).await;
    let report = fleet.until_held_at(&server, "10%").await;
    let (b, a, c) = (fleet.of_zone("b"), fleet.of_zone("a"), fleet.of_zone("c"));
    assert_eq!((b.len(), a.len(), c.len()), (20, 60, 120));
    assert_eq!(fleet.with("a", "2"), b, "the smallest zone comes first");
    let expected = [(Some("b"), Ahead, 20, 0), (Some("a"), Behind, 0, 60), (Some("c"), Behind, 0, 120)];
    assert_eq!(values(&report), expected);
    // A node of a zone that was not there, and one of none.
    fleet.join(&server, "elsewhere-1");
    fleet.join(&server, "nowhere-1");
    // A node of a zone that is complete, and one of a zone that is still to come.
    fleet.join(&server, "node-1000");
    fleet.join(&server, "node-1001");
    fleet.pump(&server);
    let report = newest(&server).unwrap();
    assert_eq!(values(&report)[3], (None, Behind, 0, 2));
    assert_eq!(fleet.with("a", "2"), fleet.of_zone("b"));
    let report = fleet.until_held_at(&server, "40%").await;
    let ahead = sorted([fleet.of_zone("b"), fleet.of_zone("a")].concat());
    assert_eq!((ahead.len(), fleet.with("a", "2")), (82, ahead));
    assert_eq!(values(&report)[1], (Some("a"), Ahead, 61, 0));
    let now = fleet.n_responses();
    for node in c {
        assert_eq!(now[&node], before[&node], "{node} was not bothered");
    }
    let report = fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "2").len(), N_CLIENTS + 4);
    assert!(values(&report).iter().all(|(_, state, _, n_behind)| (*state, *n_behind) == (Ahead, 0)));
    assert_eq!(report.reached.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn zones_over_rest() {
    let rest = Rest::new(started(&MemoryStore::new()));
    let body = |text: &str| json!({"name": "a", "alt_stat_name": text, "connect_timeout": "1s"});
    let path = "/v1/groups/default/resources/clusters/a";
    rest.put(path, &body("1")).await;
    let mut fleet = in_zones(&rest.server);
    rest.put(&format!("{path}?waves=each&by=zone&order=a,x&hold=1h"), &body("2")).await;
    fleet.until_held_at(&rest.server, "29.85%").await;
    let told = rest.get("/v1/waves/2").await.json();
    let policy =
        json!({"shares": "each", "by": "zone", "order": ["a", "x"], "hold": "3600s", "maxNacks": "0"});
    assert_eq!(told["policy"], policy);
    let value = |value: &str, state: &str, share: &str, n_ahead: usize, n_behind: usize| json!({"value": value, "state": state, "share": share, "nAhead": n_ahead, "nBehind": n_behind});
    let values = json!([
        value("a", "ahead", "29.85%", 60, 0),
        value("x", "behind", "30.35%", 0, 0),
        value("b", "behind", "40.3%", 0, 20),
        value("c", "behind", "100%", 0, 120)
    ]);
    assert_eq!(told["values"], values);
    let nodes = ["node-1", "node-0"].map(|node| format!("/v1/nodes/{node}"));
    let [ahead, behind] = [rest.get(&nodes[0]).await.json(), rest.get(&nodes[1]).await.json()];
    assert_eq!((&ahead["wave"], &behind["wave"]), (&json!("ahead"), &json!("behind")));
    let group = json!({"selector": {"nodeIds": ["x"]}, "waves": {"shares": "each", "by": "metadata.a.b"}});
    assert_eq!(rest.put("/v1/groups/x", &group).await.status, 200);
    let read = rest.get("/v1/groups/x").await.json();
    assert_eq!((&read["waves"]["shares"], &read["waves"]["by"]), (&json!("each"), &json!("metadata.a.b")));
}

#[tokio::test(start_paused = true)]
async fn shares_go_through_the_zones_in_the_order_that_is_given() {
    let server = started(&MemoryStore::new());
    server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = in_zones(&server);
    let id = begin(&server, "2", &by_zone("5%,75%", 10, &["a", "c"])).await;
    let report = fleet.until_held_at(&server, "5%").await;
    let (a, c) = (fleet.of_zone("a"), fleet.of_zone("c"));
    let some = fleet.with("a", "2");
    assert!(some.len() > 2 && some.len() < 25 && some.iter().all(|node| a.contains(node)), "{some:?}");
    assert_eq!(values(&report)[0], (Some("a"), ValueState::Partly, some.len(), 60 - some.len()));
    let report = fleet.until_held_at(&server, "75%").await;
    let more = fleet.with("a", "2");
    assert!(a.iter().chain(&some).all(|node| more.contains(node)), "the first zone is complete");
    assert!(more.iter().all(|node| a.contains(node) || c.contains(node)), "the last one has not begun");
    assert_eq!(values(&report)[2].1, ValueState::Behind);
    server.control.wave(id, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "2").len(), N_CLIENTS);
    let report = newest(&server).unwrap();
    assert!(report.members.values.iter().all(|one| one.state == ValueState::Ahead), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nack_in_the_first_zone_spares_the_others_and_it_can_be_begun_again() {
    let server = started(&MemoryStore::new());
    server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = in_zones(&server);
    let (before, b) = (fleet.n_responses(), fleet.of_zone("b"));
    fleet.reject(&b[..1], Some("2"));
    let id = begin(&server, "2", &by_zone("each", 10, &[])).await;
    fleet.until_phase(&server, WavePhase::Reverted).await;
    fleet.pump(&server);
    let now = fleet.n_responses();
    for (node, n_responses) in &before {
        assert_eq!(now[node] > *n_responses, b.contains(node), "{node}");
    }
    fleet.reject(&b, None);
    // Another zone is the smallest by now.
    b.iter().skip(1).for_each(|node| _ = fleet.leave(node));
    (0..4).for_each(|n| fleet.join(&server, &format!("elsewhere-{n}")));
    fleet.pump(&server);
    server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    let is_second = |fleet: &Fleet| fleet.with("a", "2").len() == 5;
    fleet.until(&server, "two zones", is_second).await;
    let report = newest(&server).unwrap();
    let zones: Vec<Option<&str>> = values(&report).into_iter().map(|(value, ..)| value).collect();
    assert_eq!(zones, [Some("b"), Some("d"), Some("a"), Some("c")]);
}

#[tokio::test(start_paused = true)]
async fn the_same_nodes_are_ahead_after_a_restart() {
    for shares in ["each", "25%,60%"] {
        let (store, nothing) = (MemoryStore::new(), Options::default());
        let first = Killable::open(&store, &nothing);
        first.server.write(put("default", "a", "1")).await.unwrap();
        let mut fleet = in_zones(&first.server);
        let mut careful = by_zone(shares, 20, &[]);
        careful.max_lost = Some("100%".parse().unwrap());
        begin(&first.server, "2", &careful).await;
        fleet.until_phase(&first.server, WavePhase::Holding).await;
        let (ahead, told) = (fleet.with("a", "2"), newest(&first.server).unwrap());
        assert!(!ahead.is_empty() && ahead.len() < N_CLIENTS / 2, "{}", ahead.len());
        drop(fleet);
        first.kill().await;

        let second = Killable::open(&store, &nothing);
        // Others are there first, and make another zone the smallest.
        let mut fleet = Fleet::connect_in(&second.server, 0, zone_of, true);
        for n in 0..N_CLIENTS {
            fleet.come(&second.server, &format!("node-{}", N_CLIENTS - 1 - n));
        }
        fleet.join(&second.server, "elsewhere-1");
        fleet.pump(&second.server);
        assert_eq!(fleet.with("a", "2"), ahead, "{shares}");
        let again = newest(&second.server).unwrap();
        assert_eq!((&again.reached, &again.policy), (&told.reached, &told.policy));
        let states = |report: &WaveReport| -> Vec<_> {
            let known = report.members.values.iter().filter(|one| one.value.is_some());
            known.map(|one| (one.value.clone(), one.state, one.share.clone())).collect()
        };
        assert_eq!(states(&again), states(&told), "{shares}");
        fleet.until_phase(&second.server, WavePhase::Completed).await;
        second.kill().await;
        let third = Killable::open(&store, &nothing);
        let ended = newest(&third.server).unwrap();
        assert_eq!((ended.phase, ended.reached.len()), (WavePhase::Completed, ended.policy.shares().len()));
        assert_eq!(ended.policy.is_each(), shares == "each");
    }
}

#[tokio::test(start_paused = true)]
async fn files_that_changed_while_the_server_was_down_wait_until_zones_are_back() {
    let store = MemoryStore::new();
    let waves = Some(by_zone("each", 20, &[]));
    let options = Options { watches_files: true, waves, ..Options::default() };
    let first = Killable::open(&store, &options);
    first.load(&[("a", "1")]).await;
    first.kill().await;

    let second = Killable::open(&store, &options);
    second.load(&[("a", "2")]).await;
    let id = newest(&second.server).unwrap().deployment;
    let mut fleet = Fleet::connect_in(&second.server, 0, zone_of, true);
    // The largest zone is back first.
    (4..10).for_each(|n| fleet.come(&second.server, &format!("node-{n}")));
    fleet.pump(&second.server);
    tokio::time::sleep(Duration::from_secs(9)).await;
    fleet.pump(&second.server);
    assert_eq!(fleet.with("a", "2").len(), 0, "the others have time to come back");
    let report = newest(&second.server).unwrap();
    assert_eq!((report.share(), report.reached.len()), (None, 0));
    (0..4).for_each(|n| fleet.come(&second.server, &format!("node-{n}")));
    let report = fleet.until_held_at(&second.server, "10%").await;
    assert_eq!((report.deployment, fleet.with("a", "2")), (id, fleet.of_zone("b")));
    fleet.until_phase(&second.server, WavePhase::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_ahead_as_long_as_no_node_has_a_value() {
    for allow_empty in [false, true] {
        let (store, nothing) = (MemoryStore::new(), Options::default());
        let first = Killable::open(&store, &nothing);
        first.server.write(put("default", "a", "1")).await.unwrap();
        // They have no zone.
        let mut fleet = Fleet::connect(&first.server, N_CLIENTS);
        let mut policy = by_zone("each", 5, &[]);
        policy.allow_empty = allow_empty;
        let id = begin(&first.server, "2", &policy).await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        fleet.pump(&first.server);
        assert_eq!(fleet.with("a", "2").len(), 0);
        let report = newest(&first.server).unwrap();
        let reason = report.reason.clone().unwrap_or_default();
        assert!(reason.contains("are ordered by zone, and no connected node"), "{report:?}");
        assert_eq!((report.phase, report.share()), (WavePhase::Progressing, None));
        first.kill().await;

        let second = Killable::open(&store, &nothing);
        let mut fleet = Fleet::connect_in(&second.server, 0, zone_of, true);
        fleet.come(&second.server, "nowhere-1");
        fleet.pump(&second.server);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        second.server.control.wave(id, WaveVerb::Pause, "me".to_owned()).await.unwrap();
        fleet.come(&second.server, "node-0");
        fleet.pump(&second.server);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        fleet.pump(&second.server);
        assert_eq!(fleet.with("a", "2").len(), 0, "it is paused");
        second.server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
        let report = fleet.until_held_at(&second.server, "50%").await;
        assert_eq!((fleet.with("a", "2"), report.reached.len()), (vec!["node-0".to_owned()], 1));
        fleet.until_phase(&second.server, WavePhase::Completed).await;
        assert_eq!(fleet.with("a", "2").len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_nobody_waits_for_is_complete_if_waves_may_be_empty() {
    let server = started(&MemoryStore::new());
    server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = Fleet::connect(&server, 0);
    let mut policy = by_zone("each", 5, &[]);
    policy.allow_empty = true;
    begin(&server, "2", &policy).await;
    fleet.until_phase(&server, WavePhase::Completed).await;
    let id = begin(&server, "3", &by_zone("each", 5, &["b", "a"])).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Progressing);
    server.control.wave(id, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    let report = newest(&server).unwrap();
    assert_eq!(report.phase, WavePhase::Promoted);
    assert!(report.reason.unwrap().contains("at 0%"));
}
