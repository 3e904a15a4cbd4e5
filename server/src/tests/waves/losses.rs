//! Two hundred clients of which a change kills some, so that the wave stops.

use xds_cache::status::Variant;

use super::*;

/// A wave deployment over 10% and 50% that holds for a minute after its first wave, and its members.
async fn held_at_10(server: &Server, fleet: &mut Fleet, policy: &WavePolicy) -> (u64, Vec<String>) {
    let id = begin(server, "2", policy).await;
    fleet.until_held_at(server, "10%").await;
    let members = fleet.expected(id, "10%");
    assert!(members.len() > 5, "{members:?}");
    (id, members)
}

#[tokio::test(start_paused = true)]
async fn members_that_acked_and_are_gone_pause_the_deployment() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let (id, members) = held_at_10(&server, &mut fleet, &policy("10%,50%", 60)).await;
    let dead = &members[..2];
    let rejects = dead.iter().map(|node| fleet.leave(node)).collect::<Vec<_>>();
    let report = fleet.until_phase(&server, WavePhase::Paused).await;
    let reason = report.reason.unwrap();
    assert!(reason.starts_with("2 nodes that had it are lost: ") && reason.contains(&dead[1]), "{reason}");
    assert_eq!((report.members.n_lost, report.members.n_away, report.reached.len()), (2, 0, 1));
    assert_eq!(
        report.members.lost.iter().map(|lost| &lost.node).collect::<Vec<_>>(),
        dead.iter().collect::<Vec<_>>()
    );
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "2"), members[2..], "it goes no further");

    // One comes back with nothing: its process had died.
    assert_eq!(rejects, [None, None]);
    fleet.join(&server, &dead[0]);
    let report = fleet.until_phase(&server, WavePhase::Reverted).await;
    fleet.pump(&server);
    assert_eq!((report.deployment, fleet.with("a", "1").len()), (id, N_CLIENTS - 1));
}

#[tokio::test(start_paused = true)]
async fn a_person_decides_that_who_is_gone_does_not_matter() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let (id, members) = held_at_10(&server, &mut fleet, &policy("10%,50%", 5)).await;
    fleet.leave(&members[0]);
    fleet.until_phase(&server, WavePhase::Paused).await;
    let report = server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    assert_eq!((report.phase, report.members.n_lost), (WavePhase::Progressing, 0), "{report:?}");
    fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "2").len(), N_CLIENTS - 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_with_nothing_puts_the_change_back() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let (server, mut fleet) = fleet(&MemoryStore::new()).await;
        let (id, members) = held_at_10(&server, &mut fleet, &policy("10%,50%", 60)).await;
        let dead = members.iter().find(|node| fleet.variant(node) == variant).unwrap();
        fleet.restart(&server, dead);
        let report = fleet.until_phase(&server, WavePhase::Reverted).await;
        fleet.pump(&server);
        assert_eq!((report.deployment, fleet.with("a", "1").len()), (id, N_CLIENTS));
        let reason = report.reason.unwrap();
        assert!(reason.contains(dead) && reason.contains("came back with no configuration"), "{reason}");
        assert_eq!(report.members.n_lost, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_lose_their_connection_are_waited_for() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let (_, members) = held_at_10(&server, &mut fleet, &policy("10%,50%", 5)).await;
    for node in &members {
        fleet.reconnect(&server, node);
    }
    fleet.leave(&members[0]);
    // The hold time is over before it is lost.
    for _ in 0..80 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fleet.pump(&server);
    }
    let report = newest(&server).unwrap();
    assert_eq!((report.reached.len(), report.members.n_away, report.members.n_lost), (1, 1, 0), "{report:?}");
    assert!(report.reason.unwrap().contains("waits for them to come back"));
    fleet.come(&server, &members[0]);
    let report = fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!((report.members.n_lost, fleet.with("a", "2").len()), (0, N_CLIENTS));
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_tolerate_losses() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let mut tolerant = policy("10%,50%", 5);
    tolerant.max_lost = Some("2".parse().unwrap());
    let (_, members) = held_at_10(&server, &mut fleet, &tolerant).await;
    fleet.leave(&members[0]);
    fleet.restart(&server, &members[1]);
    let report = fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!((report.members.n_lost, fleet.with("a", "2").len()), (2, N_CLIENTS - 1));
}

#[tokio::test(start_paused = true)]
async fn a_wave_that_kills_everyone_stops_also_when_the_server_is_killed() {
    let store = MemoryStore::new();
    let (server, fleet) = fleet(&store).await;
    let id = begin(&server, "2", &policy("10%,50%", 5)).await;
    let members = fleet.expected(id, "10%");
    drop((server, fleet));
    // Everyone but the members of the first wave comes back.
    let server = started(&store);
    let mut fleet = Fleet::come_back(&server, N_CLIENTS);
    members.iter().for_each(|node| _ = fleet.leave(node));
    let report = fleet.until_phase(&server, WavePhase::Paused).await;
    assert_eq!((report.reached.len(), report.members.n_lost), (1, members.len()), "{report:?}");
    assert!(fleet.with("a", "2").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wave_without_any_node_waits_for_one() {
    let server = started(&MemoryStore::new());
    server.write(put("default", "a", "1")).await.unwrap();
    let id = begin(&server, "2", &policy("10%", 5)).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let report = newest(&server).unwrap();
    assert_eq!((report.phase, report.reached.len()), (WavePhase::Progressing, 1));
    assert!(report.reason.unwrap().contains("no connected node is in this wave"));
    let mut fleet = Fleet::connect(&server, N_CLIENTS);
    let report = fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!((report.deployment, report.members.n_acked), (id, N_CLIENTS));

    let alone = started(&MemoryStore::new());
    alone.write(put("default", "a", "1")).await.unwrap();
    let mut policy = policy("10%", 5);
    policy.allow_empty = true;
    begin(&alone, "2", &policy).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(newest(&alone).unwrap().phase, WavePhase::Completed);
}

#[tokio::test(start_paused = true)]
async fn who_is_no_longer_concerned_is_not_lost() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let selects = |nodes: &[&str]| {
        let body = json!({"name": "careful", "selector": {"nodeIds": nodes}});
        Write::PutGroup(codec().node_group_from_json(&body).unwrap())
    };
    server.write(selects(&["node-1*"])).await.unwrap();
    server.write(put("careful", "b", "1")).await.unwrap();
    fleet.pump(&server);
    let write = put("careful", "b", "2");
    let outcome = server.control.write(write, in_waves(&policy("50%", 30))).await.unwrap();
    fleet.until_held_at(&server, "50%").await;
    server.write(selects(&["node-10*"])).await.unwrap();
    let report = fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!((Some(report.deployment), report.members.n_lost), (outcome.wave, 0));
}
