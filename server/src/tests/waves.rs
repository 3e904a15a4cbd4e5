//! Wave deployments, with two hundred clients of which some reject what they are sent.

mod files;
mod fleet;
mod health;
mod losses;
mod replicas;
mod restarts;
mod weights;
mod writes;
mod zones;

use std::time::Duration;

use serde_json::Value;
use xds_cache::WavePolicy;
use xds_cache::status::Variant;
use xds_control::model::WaveChoice;
use xds_control::model::wave::{WavePhase, WaveVerb};

use self::fleet::{Fleet, newest};
use super::rest::Rest;
use super::*;

const N_CLIENTS: usize = 200;

fn policy(shares: &str, hold_s: u64) -> WavePolicy {
    let mut policy: WavePolicy = shares.parse().unwrap();
    policy.hold = Duration::from_secs(hold_s);
    policy
}

fn in_waves(policy: &WavePolicy) -> WriteOptions {
    WriteOptions {
        actor: "test".to_owned(),
        waves: WaveChoice::By(policy.clone()),
        ..WriteOptions::default()
    }
}

/// A server with the cluster `a` with the text 1, all clients of which have it.
async fn fleet(store: &Arc<MemoryStore>) -> (Server, Fleet) {
    let server = started(store);
    server.write(put("default", "a", "1")).await.unwrap();
    let fleet = Fleet::connect(&server, N_CLIENTS);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS);
    (server, fleet)
}

fn started(store: &Arc<MemoryStore>) -> Server {
    Server::without_files(store).following_waves()
}

async fn begin(server: &Server, text: &str, policy: &WavePolicy) -> u64 {
    let outcome = server.control.write(put("default", "a", text), in_waves(policy)).await.unwrap();
    outcome.wave.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_nodes_that_get_a_change_are_exactly_those_of_the_wave() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let before = fleet.n_responses();
    let id = begin(&server, "2", &policy("5%,40%", 10)).await;
    for share in ["5%", "40%", "100%"] {
        let report = fleet.until_held_at(&server, share).await;
        let expected = fleet.expected(id, share);
        assert_eq!(fleet.with("a", "2"), expected, "{share}");
        assert_eq!(fleet.with("a", "1").len(), N_CLIENTS - expected.len());
        assert_eq!((report.members.n_ahead, report.members.n_acked), (expected.len(), expected.len()));
        assert_eq!(report.members.n_behind, N_CLIENTS - expected.len());
        let now = fleet.n_responses();
        for (node, n_responses) in &before {
            let n_new = now[node] - n_responses;
            assert_eq!(
                n_new,
                usize::from(expected.contains(node)),
                "{node}: one response, when its wave comes"
            );
        }
    }
    fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "2").len(), N_CLIENTS);
    assert!(
        fleet.n_responses().iter().all(|(node, n)| *n == before[node] + 1),
        "the end sends nothing again"
    );
    assert_eq!(server.publisher.n_views() - 1, 1, "the view of the wave is still there until it is retired");
    let waves: Vec<String> =
        server.control.history(None, 10).unwrap().into_iter().map(|entry| entry.summary).collect();
    assert_eq!(waves.len(), 5, "the two writes, two more waves, the end: {waves:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nack_stops_the_deployment_and_puts_the_wave_back() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let overrides = server.control.overrides().1;
    let before = fleet.n_responses();
    let next = server.revision() + 1;
    let members = fleet.expected(next, "10%");
    fleet.reject(&members[..1], Some("bad"));
    let id = begin(&server, "bad", &policy("10%,50%", 10)).await;
    assert_eq!(id, next);
    let report = fleet.until_phase(&server, WavePhase::Reverted).await;
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS, "everyone has the previous version");
    assert_eq!(*server.control.overrides().1, *overrides);
    let now = fleet.n_responses();
    for (node, n_responses) in &before {
        assert_eq!(now[node] > *n_responses, members.contains(node), "{node}: nobody else was bothered");
    }
    assert_eq!(report.members.nacked.len(), 1);
    assert_eq!(report.members.nacked[0].node, members[0]);
    assert!(report.reason.unwrap().contains("cannot take it"));
    let last = server.control.history(None, 1).unwrap().remove(0);
    assert_eq!((last.actor.as_str(), last.source.as_str()), ("waves", "waves"));

    // Healed, the same change is begun again, as another wave deployment.
    fleet.reject(&members, None);
    let again = server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    assert!(again.deployment > id && again.phase == WavePhase::Progressing, "{again:?}");
    fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "bad").len(), N_CLIENTS);
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_tolerate_single_bad_clients() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let members = fleet.expected(server.revision() + 1, "20%");
    let mut policy = policy("20%", 5);
    policy.max_nacks = "2".parse().unwrap();
    fleet.reject(&members[..2], Some("2"));
    begin(&server, "2", &policy).await;
    fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "2").len(), N_CLIENTS - 2);
    fleet.reject(&members, None);
    server.write(put("default", "a", "healed")).await.unwrap();
    fleet.pump(&server);
    let members = fleet.expected(server.revision() + 1, "20%");
    fleet.reject(&members[..3], Some("3"));
    begin(&server, "3", &policy).await;
    let report = fleet.until_phase(&server, WavePhase::Reverted).await;
    assert_eq!(report.members.n_nacked, 3);
}

#[tokio::test(start_paused = true)]
async fn the_rejection_of_another_resource_neither_stops_a_wave_nor_keeps_a_client_from_counting() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let members = fleet.expected(server.revision() + 2, "10%");
    // A complete list is rejected whole.
    let deltas: Vec<String> =
        members.iter().filter(|node| fleet.variant(node) == Variant::Delta).cloned().collect();
    fleet.reject(&deltas, Some("broken"));
    server.write(put("default", "b", "broken")).await.unwrap();
    fleet.pump(&server);
    begin(&server, "2", &policy("10%", 5)).await;
    let report = fleet.until_held_at(&server, "10%").await;
    let counts = (report.members.n_acked, report.members.n_nacked, report.members.already_failing.len());
    assert!(!deltas.is_empty() && counts == (members.len(), 0, 0), "{report:?}");
    fleet.until_phase(&server, WavePhase::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_rejects_the_change_stops_it_whatever_else_it_rejected_before() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let mut members = fleet.expected(server.revision() + 2, "10%");
    members.retain(|node| fleet.variant(node) == Variant::Delta);
    fleet.reject(&members[..1], Some("bad"));
    server.write(put("default", "b", "bad")).await.unwrap();
    fleet.pump(&server);
    begin(&server, "bad", &policy("10%", 5)).await;
    let report = fleet.until_phase(&server, WavePhase::Reverted).await;
    let nacked = &report.members.nacked;
    assert_eq!((nacked.len(), nacked[0].resource.as_deref()), (1, Some("a")), "{report:?}");
    assert!(report.reason.is_some_and(|reason| reason.contains(&format!("{}: Cluster a: ", members[0]))));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_rejected_the_same_resource_before_does_not_stop_a_deployment() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let members = fleet.expected(server.revision() + 2, "10%");
    fleet.reject(&members[..1], Some("broken"));
    server.write(put("default", "a", "broken")).await.unwrap();
    fleet.pump(&server);
    fleet.reject(&members[..1], Some("2"));
    begin(&server, "2", &policy("10%", 5)).await;
    let report = fleet.until_held_at(&server, "10%").await;
    assert_eq!((report.members.already_failing.len(), report.members.n_nacked), (1, 0), "{report:?}");
    fleet.until_phase(&server, WavePhase::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reconnects_gets_what_its_wave_says() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let id = begin(&server, "2", &policy("10%,50%", 60)).await;
    fleet.until_held_at(&server, "10%").await;
    let ahead = fleet.expected(id, "10%");
    for n in 0..40 {
        fleet.reconnect(&server, &format!("node-{n}"));
    }
    fleet.join(&server, "another");
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "2"), fleet.expected(id, "10%"));
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS + 1 - fleet.with("a", "2").len());
    assert!(ahead.iter().all(|node| fleet.with("a", "2").contains(node)));
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_goes_on_at_the_same_wave_with_the_same_members() {
    let store = MemoryStore::new();
    let (server, mut fleet) = fleet(&store).await;
    let id = begin(&server, "2", &policy("10%,50%", 60)).await;
    fleet.until_held_at(&server, "50%").await;
    drop((server, fleet));

    let server = started(&store);
    let mut fleet = Fleet::come_back(&server, N_CLIENTS);
    assert_eq!(fleet.with("a", "2"), fleet.expected(id, "50%"), "nobody saw anything else");
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS - fleet.expected(id, "50%").len());
    let report = newest(&server).unwrap();
    assert_eq!((report.deployment, report.reached.len()), (id, 2));
    fleet.until_held_at(&server, "50%").await;
    let bad = fleet.expected(id, "50%");
    assert!(newest(&server).unwrap().next_at.is_some(), "the hold time starts anew");
    // It is still known how to put it back.
    let report = server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    assert_eq!(report.phase, WavePhase::Reverted);
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS, "{} were ahead", bad.len());
    let left = store
        .state()
        .1
        .into_iter()
        .map(|(key, _)| key.to_string())
        .filter(|key| key.starts_with("wave") || key.starts_with("held"));
    assert_eq!(
        left.collect::<Vec<_>>(),
        [format!("wave/ended/{id}")],
        "only how it ended is left in the store"
    );
}

#[tokio::test(start_paused = true)]
async fn other_changes_reach_everyone_while_a_deployment_is_under_way() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let id = begin(&server, "2", &policy("10%,50%", 60)).await;
    fleet.until_held_at(&server, "10%").await;
    server.write(put("default", "b", "x")).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("b", "x").len(), N_CLIENTS);
    assert_eq!(fleet.with("a", "2"), fleet.expected(id, "10%"));
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Holding);

    let refused = server.write(put("default", "a", "3")).await.unwrap_err();
    assert!(
        matches!(&refused, WriteError::WaveActive { deployment, message } if *deployment == id && message.contains("clusters/a")),
        "{refused:?}"
    );
    let second =
        server.control.write(put("default", "c", "1"), in_waves(&policy("10%", 1))).await.unwrap_err();
    assert!(matches!(second, WriteError::WaveActive { .. }), "{second:?}");

    let forced = WriteOptions { force: true, ..WriteOptions::default() };
    server.control.write(put("default", "a", "3"), forced).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "3").len(), N_CLIENTS);
    assert_eq!(fleet.with("b", "x").len(), N_CLIENTS);
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Reverted);
}

#[tokio::test(start_paused = true)]
async fn additions_and_removals_go_by_waves_and_are_put_back_too() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let write = replace("default", &[("b", "new")]);
    let outcome = server.control.write(write, in_waves(&policy("10%", 60))).await.unwrap();
    let id = outcome.wave.unwrap();
    fleet.until_held_at(&server, "10%").await;
    let ahead = fleet.expected(id, "10%");
    assert_eq!(
        (fleet.with("b", "new"), fleet.with("a", "1").len()),
        (ahead.clone(), N_CLIENTS - ahead.len())
    );
    server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    fleet.pump(&server);
    assert_eq!((fleet.with("a", "1").len(), fleet.with("b", "new").len()), (N_CLIENTS, 0));

    // A group that goes is held with its definition, and selects its nodes as before.
    server.write(replace("node-7", &[("own", "1")])).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("own", "1"), ["node-7"]);
    let delete = Write::DeleteGroup(group("node-7"));
    let stays = (0..50).map(|n| format!("0.0{}%", n % 9 + 1)).next().unwrap();
    let outcome = server.control.write(delete, in_waves(&policy(&stays, 60))).await.unwrap();
    let id = outcome.wave.unwrap();
    assert!(!fleet.expected(id, &stays).contains(&"node-7".to_owned()), "the test wants it to be behind");
    fleet.pump(&server);
    assert_eq!(fleet.with("own", "1"), ["node-7"], "still");
    server.control.wave(id, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    fleet.pump(&server);
    assert!(fleet.with("own", "1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_files_that_is_rejected_is_held_back_until_the_files_change() {
    let store = MemoryStore::new();
    let options = Options { watches_files: true, waves: Some(policy("10%", 5)), ..Options::default() };
    let open = || Server::open(Arc::clone(&store) as Arc<dyn Store>, options.clone()).following_waves();
    let server = open();
    server.control.load_files(load(&[("default", &[("a", "1"), ("b", "1")])])).await.unwrap();
    assert!(newest(&server).is_none(), "the first load is nothing to be careful with");
    let mut fleet = Fleet::connect(&server, N_CLIENTS);
    let members = fleet.expected(server.revision() + 1, "10%");
    fleet.reject(&members[..1], Some("bad"));
    server.control.load_files(load(&[("default", &[("a", "bad"), ("b", "1")])])).await.unwrap();
    let report = fleet.until_phase(&server, WavePhase::Held).await;
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS);
    assert_eq!(report.objects, ["default/clusters/a"]);
    let problems = server.control.problems().join("\n");
    assert!(problems.contains("default/clusters/a") && problems.contains("cannot take it"), "{problems}");

    // A restart finds the files as they are, and serves what was before.
    drop((server, fleet));
    let server = open();
    server.control.load_files(load(&[("default", &[("a", "bad"), ("b", "1")])])).await.unwrap();
    let mut fleet = Fleet::connect(&server, N_CLIENTS);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS);
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Held);
    assert!(!server.control.problems().is_empty(), "it is still said");

    // The next change of the file begins afresh, from what is served.
    server.control.load_files(load(&[("default", &[("a", "good"), ("b", "1")])])).await.unwrap();
    let report = fleet.until_held_at(&server, "10%").await;
    assert_eq!(fleet.with("a", "good"), fleet.expected(report.deployment, "10%"));
    fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "good").len(), N_CLIENTS);
    assert!(server.control.problems().is_empty());

    // A file that says again what it said ends the wave deployment.
    server.control.load_files(load(&[("default", &[("a", "2"), ("b", "1")])])).await.unwrap();
    fleet.until_held_at(&server, "10%").await;
    server.control.load_files(load(&[("default", &[("a", "good"), ("b", "1")])])).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "good").len(), N_CLIENTS);
    let report = newest(&server).unwrap();
    assert_eq!(report.phase, WavePhase::Reverted, "{report:?}");
    assert!(report.reason.unwrap().contains("are back to their previous contents"));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_put_back_in_the_store_is_not_served_any_more() {
    let store = MemoryStore::new();
    let (server, mut fleet) = fleet(&store).await;
    let members = fleet.expected(server.revision() + 1, "10%");
    fleet.reject(&members[..1], Some("bad"));
    let id = begin(&server, "bad", &policy("10%", 5)).await;
    store.is_failing.store(true, std::sync::atomic::Ordering::Relaxed);
    fleet.until(&server, "the old contents", |fleet| fleet.with("a", "1").len() == N_CLIENTS).await;
    fleet
        .until(&server, "the problem", |_| server.control.problems().join("").contains("cannot go on"))
        .await;
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Held);
    store.is_failing.store(false, std::sync::atomic::Ordering::Relaxed);
    let report = fleet.until_phase(&server, WavePhase::Reverted).await;
    assert_eq!(report.deployment, id);
    assert_eq!(server.served("default"), pairs(&[("a", "1")]));
}

#[tokio::test(start_paused = true)]
async fn a_group_says_by_which_waves_its_changes_go() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let careful = NodeGroup { waves: Some(policy("10%", 60)), ..NodeGroup::default_group() };
    server.write(Write::PutGroup(careful)).await.unwrap();
    assert!(newest(&server).is_none(), "a definition reaches everyone at once");
    let outcome = server.write(put("default", "a", "2")).await.unwrap();
    let id = outcome.wave.unwrap();
    fleet.until_held_at(&server, "10%").await;
    assert_eq!(fleet.with("a", "2"), fleet.expected(id, "10%"));
    server.control.wave(id, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    let at_once = WriteOptions { waves: WaveChoice::AtOnce, ..WriteOptions::default() };
    server.control.write(put("default", "a", "3"), at_once).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "3").len(), N_CLIENTS);
    let other = server.write(put("elsewhere", "a", "1")).await.unwrap();
    assert_eq!(other.wave, None, "another group says nothing");
    let definition = NodeGroup::for_node_id(group("third"));
    let refused = server.control.write(Write::PutGroup(definition), in_waves(&policy("10%", 1))).await;
    assert!(matches!(refused, Err(WriteError::Invalid(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn members_that_do_not_answer_pause_the_deployment() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let mut policy = policy("10%", 5);
    policy.ack_timeout = Some(Duration::from_secs(30));
    let id = begin(&server, "2", &policy).await;
    // Nobody is pumped: nobody answers.
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if newest(&server).unwrap().phase == WavePhase::Paused {
            break;
        }
    }
    let report = newest(&server).unwrap();
    assert_eq!(
        (report.phase, report.members.n_pending),
        (WavePhase::Paused, fleet.expected(id, "10%").len())
    );
    fleet.pump(&server);
    let resumed = server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    assert_ne!(resumed.phase, WavePhase::Paused);
    let refused = server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap_err();
    assert!(matches!(refused, WriteError::WaveState(_)), "{refused:?}");
    fleet.until_phase(&server, WavePhase::Completed).await;
    let refused = server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap_err();
    assert!(matches!(&refused, WriteError::WaveState(text) if text.contains("completed")), "{refused:?}");
    let unknown = server.control.wave(999, WaveVerb::Abort, "me".to_owned()).await.unwrap_err();
    assert!(matches!(unknown, WriteError::NotFound { .. }));
}

#[tokio::test(start_paused = true)]
async fn waves_over_rest() {
    let rest = Rest::new(started(&MemoryStore::new()));
    let body = json!({"name": "a", "alt_stat_name": "1", "connect_timeout": "1s"});
    let path = "/v1/groups/default/resources/clusters/a";
    for (query, wrong) in [
        ("waves=", "is not a share"),
        ("waves=10%25,5%25", "comes before"),
        ("waves=0%25", "is not a share"),
        ("waves=10%25&hold=5", "is not a duration"),
        ("waves=10%25&maxNacks=x", "is not a number of nodes"),
        ("waves=10%25&maxLost=x", "is not a number of nodes"),
        ("waves=10%25&by=zones", "write hash, region, zone, subZone, or metadata.KEY"),
        ("waves=10%25&by=metadata.", "write hash, region, zone, subZone, or metadata.KEY"),
        ("waves=each", "set it to region, zone, subZone or metadata.KEY"),
        ("waves=each&by=hash", "set it to region, zone, subZone or metadata.KEY"),
        ("waves=10%25&order=a", "set it to region, zone, subZone or metadata.KEY"),
        ("waves=10%25&by=zone&order=a,b,a", "twice"),
        ("waves=10%25&by=zone&order=a,", "not a value for an order"),
        ("by=zone", "need waves"),
        ("waves=none&by=zone", "allows neither"),
        ("group=edge", "only a write to /v1/apply"),
        ("allowEmpty=true", "need waves"),
        ("waves=none&maxLost=1", "allows neither"),
        ("hold=5s", "need waves"),
        ("waves=none&hold=5s", "allows neither"),
        ("waves=10%25&wait=acked&onNack=revert", "puts itself back"),
    ] {
        let reply = rest.put(&format!("{path}?{query}"), &body).await;
        let detail = reply.json()["detail"].to_string();
        assert!(reply.status == 400 && detail.contains(wrong), "{query}: {detail}");
    }
    let mut fleet = Fleet::connect(&rest.server, 50);
    let query = "waves=20%25&hold=1h&maxNacks=5%25&ackTimeout=5m&maxLost=3&allowEmpty=true";
    let reply = rest.put(&format!("{path}?{query}"), &body).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["waveDeployment"]), (200, &json!(1)), "{answer}");
    let report = fleet.until_held_at(&rest.server, "20%").await;
    let listed = rest.get("/v1/waves").await.json();
    let one = &listed["waveDeployments"][0];
    assert_eq!(one, &rest.get("/v1/waves/1").await.json());
    let expected = json!({"shares": ["20%", "100%"], "hold": "3600s", "maxNacks": "5%", "ackTimeout": "300s",
            "maxLost": "3", "allowEmpty": true});
    assert_eq!((&one["phase"], &one["share"], &one["policy"]), (&json!("holding"), &json!("20%"), &expected));
    assert_eq!(one["waves"], json!([{"share": "20%", "revision": 1}]));
    assert_eq!(one["objects"], json!(["default/clusters/a"]));
    assert_eq!(one["ahead"].as_array().map(Vec::len), Some(report.members.n_ahead));
    let ahead = one["ahead"][0].as_str().unwrap();
    assert_eq!(rest.get(&format!("/v1/nodes/{ahead}")).await.json()["wave"], json!("ahead"));
    let behind = one["behind"][0].as_str().unwrap();
    assert_eq!(rest.get(&format!("/v1/nodes/{behind}")).await.json()["wave"], json!("behind"));
    let reply = rest.put(path, &json!({"name": "a", "alt_stat_name": "2", "connect_timeout": "1s"})).await;
    let problem = reply.json();
    assert_eq!((reply.status, &problem["waveDeployment"]), (409, &json!(1)), "{problem}");
    assert!(problem["type"].as_str().unwrap().ends_with("/wave-active"));
    let post = async |path: &str| rest.call("POST", path, &[("x-actor", "me")], "").await;
    assert_eq!(post("/v1/waves/1").await.status, 400);
    assert_eq!(post("/v1/waves/x:abort").await.status, 400);
    assert_eq!(post("/v1/waves/1:explode").await.status, 400);
    assert_eq!(post("/v1/waves/7:abort").await.status, 404);
    let reply = post("/v1/waves/1:resume").await;
    assert_eq!((reply.status, reply.json()["type"].as_str().unwrap().ends_with("/wave-state")), (409, true));
    assert!(post("/v1/waves/1:promote").await.status == 200);
    fleet.pump(&rest.server);
    assert_eq!(fleet.with("a", "1").len(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_promoted_wave_deployment_ends_with_everyone_ahead() {
    let rest = Rest::new(started(&MemoryStore::new()));
    let mut fleet = Fleet::connect(&rest.server, 50);
    let body = json!({"name": "a", "alt_stat_name": "1", "connect_timeout": "1s"});
    let reply = rest.put("/v1/groups/default/resources/clusters/a?waves=20%25&hold=1h", &body).await;
    assert_eq!(reply.json()["waveDeployment"], json!(1), "{}", reply.text);
    fleet.until_held_at(&rest.server, "20%").await;
    let one = rest.get("/v1/waves/1").await.json();
    let behind = one["behind"][0].as_str().unwrap();
    let node = rest.get(&format!("/v1/nodes/{behind}")).await.json();
    let expected = (&json!("behind"), &json!(0));
    assert_eq!((&node["wave"], &node["revision"]), expected, "not that of the first wave");
    let reply = rest.call("POST", "/v1/waves/1:promote", &[("x-actor", "me")], "").await;
    let ended = reply.json();
    assert_eq!((reply.status, &ended["phase"], &ended["share"]), (200, &json!("promoted"), &json!("100%")));
    assert_eq!((&ended["nAhead"], &ended["nBehind"]), (&json!(50), &json!(0)), "{ended:#}");
    assert_eq!(
        (ended["ahead"].as_array().map(Vec::len), &ended["behind"]),
        (Some(50), &json!([])),
        "{ended:#}"
    );
    let reason = ended["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("promoted by me at 20%, when ") && reason.ends_with(" nodes were behind"),
        "{reason}"
    );
    fleet.pump(&rest.server);
    assert_eq!(fleet.with("a", "1").len(), 50);
    let node: Value = rest.get(&format!("/v1/nodes/{behind}")).await.json();
    assert_eq!((&node["wave"], &node["revision"]), (&Value::Null, &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn route_documents_go_by_waves_and_are_put_back_as_what_they_give() {
    use super::documents::{ROUTE, SERVICE, apply};
    let store = MemoryStore::new();
    let server = started(&store);
    server.write(apply(SERVICE)).await.unwrap();
    let mut fleet = Fleet::connect(&server, N_CLIENTS);
    let before: Vec<String> = fleet.clients[0].holds.keys().cloned().collect();
    let outcome = server.control.write(apply(ROUTE), in_waves(&policy("10%", 60))).await.unwrap();
    let id = outcome.wave.unwrap();
    let report = fleet.until_held_at(&server, "10%").await;
    assert_eq!(report.objects, ["document/Gateway/prod/edge", "document/HTTPRoute/prod/shop"]);
    let has_route = |server: &Server, node: &str| {
        let view = server.publisher.view_of(&xds_cache::Node::with_id(node)).unwrap();
        view.types().any(|one| *one == ResourceType::Listener)
    };
    let ahead = fleet.expected(id, "10%");
    for client in &fleet.clients {
        assert_eq!(
            has_route(&server, &client.node.id),
            ahead.contains(&client.node.id),
            "{}",
            client.node.id
        );
    }
    drop((server, fleet));
    let server = started(&store);
    let fleet = Fleet::come_back(&server, N_CLIENTS);
    for client in &fleet.clients {
        assert_eq!(has_route(&server, &client.node.id), ahead.contains(&client.node.id), "after a restart");
    }
    server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    assert!(fleet.clients.iter().all(|client| !has_route(&server, &client.node.id)), "{before:?}");
    assert_eq!(server.control.documents().owned.len(), 2, "the service and its endpoints are left");
}
