//! Wave deployments after a restart: files that changed meanwhile, pauses, and wave deployments that ended.

use std::sync::atomic::Ordering;

use tokio::task::JoinHandle;
use xds_cache::status::Variant;

use super::*;

/// A server that can be killed: nothing of it goes on.
pub(super) struct Killable {
    pub(super) server: Server,
    task: JoinHandle<()>,
}

impl Killable {
    pub(super) fn open(store: &Arc<MemoryStore>, options: &Options) -> Self {
        let server = Server::open(Arc::clone(store) as Arc<dyn Store>, options.clone());
        let task = tokio::spawn(server.control.clone().follow_waves());
        Self { server, task }
    }

    pub(super) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub(super) async fn load(&self, content: &[(&str, &str)]) {
        self.server.control.load_files(load(&[("default", content)])).await.unwrap();
    }
}

fn files_in_waves(shares: &str, hold_s: u64) -> Options {
    Options { watches_files: true, waves: Some(policy(shares, hold_s)), ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn files_that_change_while_the_server_is_down_go_by_wave() {
    let (store, options) = (MemoryStore::new(), files_in_waves("10%,50%", 60));
    let first = Killable::open(&store, &options);
    first.load(&[("a", "1"), ("b", "1")]).await;
    assert!(newest(&first.server).is_none(), "there was nothing before");
    first.kill().await;

    // Nothing changed: nothing begins.
    let same = Killable::open(&store, &options);
    same.load(&[("a", "1"), ("b", "1")]).await;
    assert!(newest(&same.server).is_none());
    same.kill().await;

    let second = Killable::open(&store, &options);
    second.load(&[("a", "2"), ("b", "1")]).await;
    let report = newest(&second.server).unwrap();
    assert_eq!(
        (report.source.as_str(), report.objects.as_slice()),
        ("file", &["default/clusters/a".to_owned()][..])
    );
    tokio::time::sleep(Duration::from_secs(9)).await;
    let mut fleet = Fleet::connect(&second.server, N_CLIENTS);
    assert_eq!(
        fleet.with("a", "2"),
        fleet.expected(report.deployment, "10%"),
        "clients had time to come back"
    );
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS - fleet.with("a", "2").len());
    let held = fleet.until_held_at(&second.server, "50%").await;
    assert_eq!((held.deployment, held.reached.len()), (report.deployment, 2));
    drop(fleet);
    second.kill().await;

    // Killed in the middle, and changed once more: it begins afresh, from what everyone had.
    let third = Killable::open(&store, &options);
    third.load(&[("a", "3"), ("b", "3")]).await;
    let again = newest(&third.server).unwrap();
    assert!(again.deployment > report.deployment && again.reached.len() == 1, "{again:?}");
    let fleet = Fleet::connect(&third.server, N_CLIENTS);
    for name in ["a", "b"] {
        assert_eq!(fleet.with(name, "3"), fleet.expected(again.deployment, "10%"), "{name}");
        assert_eq!(fleet.with(name, "1").len(), N_CLIENTS - fleet.with(name, "3").len(), "{name}");
    }
    let told: Vec<_> = third.server.control.waves().iter().map(|one| (one.deployment, one.phase)).collect();
    let expected = [(again.deployment, WavePhase::Progressing), (report.deployment, WavePhase::Superseded)];
    assert_eq!(told, expected);
    drop(fleet);
    third.kill().await;

    // Contents that the files have again are no change for those behind, and are put back for the others.
    let last = Killable::open(&store, &options);
    last.load(&[("a", "1"), ("b", "1")]).await;
    let fleet = Fleet::connect(&last.server, N_CLIENTS);
    assert_eq!((fleet.with("a", "1").len(), fleet.with("b", "1").len()), (N_CLIENTS, N_CLIENTS));
    assert_eq!(newest(&last.server).unwrap().phase, WavePhase::Reverted);
}

#[tokio::test(start_paused = true)]
async fn what_files_made_of_a_deployment_while_the_store_failed_is_recorded_once_it_works() {
    let (options, at_once) = (files_in_waves("10%", 60), WaveChoice::AtOnce);
    let at_once = WriteOptions { waves: at_once, ..WriteOptions::default() };
    // A wave deployment ends, or begins; with the next write or the next load.
    for (before, after, phase) in [("2", "1", WavePhase::Reverted), ("1", "2", WavePhase::Held)] {
        for is_written in [true, false] {
            let store = MemoryStore::new();
            let first = Killable::open(&store, &options);
            first.load(&[("a", "1")]).await;
            first.load(&[("a", before)]).await;
            store.is_failing.store(true, Ordering::Relaxed);
            first.load(&[("a", after)]).await;
            assert_eq!(newest(&first.server).unwrap().phase, phase);
            store.is_failing.store(false, Ordering::Relaxed);
            match is_written {
                true => {
                    first.server.control.write(put("other", "o", "1"), at_once.clone()).await.unwrap();
                }
                false => first.load(&[("a", after)]).await,
            }
            let told = newest(&first.server).unwrap();
            first.kill().await;
            let second = Killable::open(&store, &options);
            second.load(&[("a", after)]).await;
            let found = newest(&second.server).map(|one| (one.deployment, one.phase, one.reason));
            assert_eq!(
                found,
                Some((told.deployment, phase, told.reason)),
                "{phase:?}, written: {is_written}"
            );
            assert_eq!(second.server.control.waves().len(), 1);
            assert_eq!(second.server.served("default"), pairs(&[("a", "1")]), "what everyone had");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_added_and_removed_while_the_server_is_down_goes_by_wave_too() {
    let (store, options) = (MemoryStore::new(), files_in_waves("20%", 60));
    let first = Killable::open(&store, &options);
    first.load(&[("a", "1"), ("gone", "1")]).await;
    first.kill().await;
    let second = Killable::open(&store, &options);
    second.load(&[("a", "1"), ("new", "1")]).await;
    let id = newest(&second.server).unwrap().deployment;
    let mut fleet = Fleet::connect(&second.server, N_CLIENTS);
    let ahead = fleet.expected(id, "20%");
    assert_eq!(
        (fleet.with("new", "1"), fleet.with("gone", "1").len()),
        (ahead.clone(), N_CLIENTS - ahead.len())
    );
    second.server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    fleet.pump(&second.server);
    assert_eq!((fleet.with("new", "1").len(), fleet.with("gone", "1").len()), (0, N_CLIENTS));
}

#[tokio::test(start_paused = true)]
async fn only_groups_with_a_policy_let_files_wait_for_their_wave_at_the_start() {
    let store = MemoryStore::new();
    let options = Options { watches_files: true, ..Options::default() };
    let of = |name: &'static str, careful: bool, text: &'static str| {
        let mut load = load(&[(name, &[("a", text)]), ("other", &[("a", text)])]);
        let group = load.layer.groups.get_mut(&group(name)).unwrap();
        group.definition.as_mut().unwrap().waves = careful.then(|| policy("10%", 60));
        load
    };
    let first = Killable::open(&store, &options);
    first.server.control.load_files(of("careful", true, "1")).await.unwrap();
    first.kill().await;
    let second = Killable::open(&store, &options);
    second.server.control.load_files(of("careful", true, "2")).await.unwrap();
    assert_eq!(newest(&second.server).unwrap().phase, WavePhase::Progressing);
    second.kill().await;
    let third = Killable::open(&store, &options);
    third.server.control.load_files(of("careful", false, "3")).await.unwrap();
    assert_eq!(third.server.served("careful"), pairs(&[("a", "3")]), "nobody asks for waves any more");
    let ended = newest(&third.server).unwrap();
    assert_eq!(ended.phase, WavePhase::Superseded);
    assert!(ended.reason.unwrap().contains("reached everyone at once"));
}

#[tokio::test(start_paused = true)]
async fn secrets_of_files_that_changed_meanwhile_wait_for_their_wave_if_there_are_copies() {
    let with = |text: &str, private: &str| {
        let mut load = load(&[("default", &[("a", text)])]);
        let secret = secret_of_file(private);
        let group = load.layer.groups.get_mut(&group("default")).unwrap();
        group.resources.insert(secret);
        load
    };
    // The copies that exist, and the objects that wait then.
    for (copies, objects) in [
        (Some(with("1", "old")), vec!["default/secrets/s", "default/clusters/a"]),
        (Some(with("1", "another")), vec!["default/clusters/a"]),
        (None, vec!["default/clusters/a"]),
    ] {
        let (store, options) = (MemoryStore::new(), files_in_waves("10%", 60));
        let first = Killable::open(&store, &options);
        first.server.control.load_files(with("1", "old")).await.unwrap();
        first.kill().await;
        let second = Killable::open(&store, &options);
        if let Some(FileLoad { layer, documents, .. }) = copies {
            second.server.control.recall(layer, Arc::unwrap_or_clone(documents));
        }
        second.server.control.load_files(with("2", "new")).await.unwrap();
        assert_eq!(newest(&second.server).unwrap().objects, objects);
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_is_still_paused_after_a_restart() {
    let store = MemoryStore::new();
    let nothing = Options::default();
    let first = Killable::open(&store, &nothing);
    first.server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = Fleet::connect(&first.server, N_CLIENTS);
    let mut careful = policy("10%", 5);
    careful.ack_timeout = Some(Duration::from_secs(30));
    let id = begin(&first.server, "2", &careful).await;
    let was_paused = || async {
        for _ in 0..1_000 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if store.state().0.0 == 3 {
                return newest(&first.server).unwrap();
            }
        }
        panic!("it is not paused: {:?}", newest(&first.server));
    };
    let report = was_paused().await;
    assert_eq!(report.phase, WavePhase::Paused);
    assert!(report.reason.unwrap().contains("have not answered in time"));
    fleet.pump(&first.server);
    first.kill().await;

    for n in 0..2 {
        let second = Killable::open(&store, &nothing);
        let mut fleet = Fleet::come_back(&second.server, N_CLIENTS);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        fleet.pump(&second.server);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let report = newest(&second.server).unwrap();
        assert_eq!(
            (report.phase, report.reached.len()),
            (WavePhase::Paused, 1),
            "all have ACKed, but nobody resumed it"
        );
        assert_eq!(fleet.with("a", "2"), fleet.expected(id, "10%"));
        if n == 0 {
            second.kill().await;
            continue;
        }
        second.server.control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
        fleet.until_phase(&second.server, WavePhase::Completed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_pauses_a_deployment_stops_it_until_somebody_resumes_it() {
    let store = MemoryStore::new();
    let nothing = Options::default();
    let first = Killable::open(&store, &nothing);
    first.server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = Fleet::connect(&first.server, N_CLIENTS);
    let id = begin(&first.server, "2", &policy("10%,50%", 5)).await;
    fleet.until_held_at(&first.server, "10%").await;
    let paused = first.server.control.wave(id, WaveVerb::Pause, "me".to_owned()).await.unwrap();
    assert_eq!((paused.phase, paused.reason.as_deref()), (WavePhase::Paused, Some("paused by me")));
    let refused = first.server.control.wave(id, WaveVerb::Pause, "me".to_owned()).await.unwrap_err();
    assert!(
        matches!(&refused, WriteError::WaveState(text) if text.contains("paused already")),
        "{refused:?}"
    );
    tokio::time::sleep(Duration::from_secs(600)).await;
    fleet.pump(&first.server);
    assert_eq!(fleet.with("a", "2"), fleet.expected(id, "10%"));
    first.kill().await;

    let second = Killable::open(&store, &nothing);
    let mut fleet = Fleet::come_back(&second.server, N_CLIENTS);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(newest(&second.server).unwrap().reason.as_deref(), Some("paused by me"));
    // Too many NACKs put it back nevertheless.
    let members = fleet.expected(id, "10%");
    fleet.reject(&members[..1], Some("2"));
    fleet.reconnect(&second.server, &members[0]);
    fleet.until_phase(&second.server, WavePhase::Reverted).await;
    fleet.pump(&second.server);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS);
}

#[tokio::test(start_paused = true)]
async fn how_a_deployment_ended_is_told_after_a_restart_and_it_can_be_begun_again() {
    let store = MemoryStore::new();
    let nothing = Options::default();
    let first = Killable::open(&store, &nothing);
    first.server.write(put("default", "a", "1")).await.unwrap();
    let mut fleet = Fleet::connect(&first.server, N_CLIENTS);
    let completed = begin(&first.server, "2", &policy("10%", 1)).await;
    fleet.until_phase(&first.server, WavePhase::Completed).await;
    let members = fleet.expected(first.server.revision() + 1, "10%");
    fleet.reject(&members[..1], Some("bad"));
    let reverted = begin(&first.server, "bad", &policy("10%", 1)).await;
    fleet.until_phase(&first.server, WavePhase::Reverted).await;
    let before = first.server.control.waves();
    first.kill().await;

    let second = Killable::open(&store, &nothing);
    let after = second.server.control.waves();
    let told = |all: &[xds_control::model::wave::WaveReport]| -> Vec<_> {
        all.iter()
            .map(|one| {
                (
                    one.deployment,
                    one.phase,
                    one.reason.clone(),
                    one.members.n_acked,
                    one.members.nacked.clone(),
                )
            })
            .collect()
    };
    assert_eq!(told(&after), told(&before));
    assert_eq!(after.iter().map(|one| one.deployment).collect::<Vec<_>>(), [reverted, completed]);
    assert!(after[0].reason.as_ref().unwrap().contains("cannot take it"), "{after:?}");
    let mut fleet = Fleet::connect(&second.server, N_CLIENTS);
    let again = second.server.control.wave(reverted, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    assert!(again.deployment > reverted, "{again:?}");
    fleet.until_phase(&second.server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "bad").len(), N_CLIENTS);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_failing_before_does_not_stop_a_deployment_after_a_restart_either() {
    let store = MemoryStore::new();
    let nothing = Options::default();
    let first = Killable::open(&store, &nothing);
    first.server.write(replace("default", &[("a", "1"), ("b", "1")])).await.unwrap();
    let mut fleet = Fleet::connect(&first.server, N_CLIENTS);
    let members = fleet.expected(first.server.revision() + 2, "10%");
    let bad = &members[..1];
    fleet.reject(bad, Some("broken"));
    first.server.write(put("default", "a", "broken")).await.unwrap();
    fleet.pump(&first.server);
    fleet.reject(bad, Some("2"));
    let id = begin(&first.server, "2", &policy("10%", 5)).await;
    fleet.pump(&first.server);
    first.kill().await;
    let second = Killable::open(&store, &nothing);
    let everyone: Vec<String> = fleet.clients.iter().map(|client| client.node.id.clone()).collect();
    everyone.iter().for_each(|node| fleet.reconnect(&second.server, node));
    let report = fleet.until_phase(&second.server, WavePhase::Completed).await;
    assert_eq!((report.deployment, report.members.already_failing.len()), (id, 1), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nack_of_either_variant_puts_back_what_clients_of_both_have() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let (server, mut fleet) = fleet(&MemoryStore::new()).await;
        let members = fleet.expected(server.revision() + 1, "10%");
        let of =
            |fleet: &Fleet, variant| members.iter().filter(|node| fleet.variant(node) == variant).count();
        assert!(of(&fleet, Variant::Sotw) > 1 && of(&fleet, Variant::Delta) > 1, "{members:?}");
        let bad = members.iter().find(|node| fleet.variant(node) == variant).unwrap().clone();
        fleet.reject(std::slice::from_ref(&bad), Some("bad"));
        let id = begin(&server, "bad", &policy("10%,50%", 10)).await;
        fleet.pump(&server);
        let others: Vec<String> = members.iter().filter(|node| **node != bad).cloned().collect();
        assert_eq!(fleet.with("a", "bad"), others, "exactly the wave, but for who rejects it");
        let report = fleet.until_phase(&server, WavePhase::Reverted).await;
        fleet.pump(&server);
        assert_eq!((report.deployment, fleet.with("a", "1").len()), (id, N_CLIENTS));
        for node in members.iter().take(4) {
            fleet.reconnect(&server, node);
        }
        fleet.pump(&server);
        assert_eq!(fleet.with("a", "1").len(), N_CLIENTS, "who comes back has what was before too");
    }
}
