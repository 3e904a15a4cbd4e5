//! Wave deployments and rollouts of several servers on one store, with clients at each: one server drives them, by the answers of the
//! clients of all.

use xds_cache::wave::By;

use super::super::peers::Three;
use super::super::rollouts::{ROUTES, post, start};
use super::super::shared::{check_line, line};
use super::super::shared_files::{cluster_text, read as pushed};
use super::super::weights::{HALVES, all, route, served_weights};
use super::*;
use xds_control::model::wave::WaveReport;

const N_EACH: usize = 60;

/// Three servers with the cluster `a` with the text 1, which all clients have.
struct World {
    three: Three,
    fleets: [Fleet; 3],
    /// The servers whose clients do not take in anything.
    still: Vec<usize>,
}

impl World {
    async fn new() -> Self {
        Self::with(|server, name| Fleet::connect_as(server, name, N_EACH)).await
    }

    async fn with(connect: impl Fn(&Server, &str) -> Fleet) -> Self {
        let three = Three::linked();
        three.rests[0].server.write(put("default", "a", "1")).await.unwrap();
        three.caught_up().await;
        let fleets = ["a", "b", "c"].map(|name| {
            let at = ["a", "b", "c"].iter().position(|known| *known == name).unwrap();
            connect(&three.rests[at].server, name)
        });
        Self { three, fleets, still: vec![] }
    }

    fn server(&self, at: usize) -> &Server {
        &self.three.rests[at].server
    }

    /// Waits until `holds`, while clients answer and time passes.
    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..5_000 {
            for at in (0..3).filter(|at| !self.still.contains(at)) {
                self.fleets[at].pump(&self.three.rests[at].server);
            }
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("waited too long for {what}: {:#?}", [0, 1, 2].map(|at| newest(self.server(at))));
    }

    /// Waits until the server `at` says of the newest wave deployment that it is in this phase.
    async fn until_phase(&mut self, at: usize, phase: WavePhase) -> WaveReport {
        let is_it = |report: WaveReport| report.phase == phase;
        self.until(phase.as_str(), |world| newest(world.server(at)).is_some_and(is_it)).await;
        newest(self.server(at)).unwrap()
    }

    async fn until_held_at(&mut self, at: usize, share: &str) -> WaveReport {
        let is_it = |report: WaveReport| {
            report.phase == WavePhase::Holding && report.share().is_some_and(|have| have.to_string() == share)
        };
        self.until(share, |world| newest(world.server(at)).is_some_and(is_it)).await;
        newest(self.server(at)).unwrap()
    }

    /// For a while, nothing changes.
    async fn stays(&mut self, at: usize, phase: WavePhase, seconds: usize) -> WaveReport {
        for _ in 0..seconds * 10 {
            for at in (0..3).filter(|at| !self.still.contains(at)) {
                self.fleets[at].pump(&self.three.rests[at].server);
            }
            let report = newest(self.server(at)).unwrap();
            assert_eq!(report.phase, phase, "{report:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        newest(self.server(at)).unwrap()
    }

    /// The nodes of all servers that have this text.
    fn with_text(&self, text: &str) -> Vec<String> {
        let mut all: Vec<String> = self.fleets.iter().flat_map(|fleet| fleet.with("a", text)).collect();
        all.sort();
        all
    }

    fn expected(&self, deployment: u64, share: &str) -> Vec<String> {
        let mut all: Vec<String> =
            self.fleets.iter().flat_map(|fleet| fleet.expected(deployment, share)).collect();
        all.sort();
        all
    }

    fn history(&self) -> Vec<String> {
        let entries = self.server(0).control.history(None, 50).unwrap();
        entries.into_iter().rev().map(|entry| entry.summary).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_clients_of_all_servers_decide_whoever_begins_it() {
    let mut world = World::new().await;
    let id = begin(world.server(1), "2", &policy("5%,40%", 10)).await;
    world.three.caught_up().await;
    for share in ["5%", "40%", "100%"] {
        let report = world.until_held_at(0, share).await;
        let expected = world.expected(id, share);
        assert_eq!(world.with_text("2"), expected, "{share}");
        assert_eq!((report.members.n_ahead, report.members.n_acked), (expected.len(), expected.len()));
        assert_eq!(report.members.n_behind, 3 * N_EACH - expected.len());
        // Any server tells it as the one does that drives it.
        for rest in &world.three.rests {
            let told = rest.get(&format!("/v1/waves/{id}")).await.json();
            let said = (&told["phase"], &told["share"], &told["nAhead"], &told["unknown"]);
            assert_eq!(
                said,
                (&json!("holding"), &json!(share), &json!(expected.len()), &json!(null)),
                "{told:#}"
            );
        }
    }
    world.until_phase(2, WavePhase::Completed).await;
    assert_eq!(world.with_text("2").len(), 3 * N_EACH);
    assert_eq!(world.history().len(), 5, "{:?}", world.history());
}

#[tokio::test(start_paused = true)]
async fn a_rejection_at_another_server_puts_it_back_everywhere() {
    let mut world = World::new().await;
    let next = world.server(0).revision() + 1;
    let bad = world.fleets[2].expected(next, "30%");
    world.fleets[2].reject(&bad[..1], Some("bad"));
    begin(world.server(1), "bad", &policy("30%", 10)).await;
    let report = world.until_phase(0, WavePhase::Reverted).await;
    assert!(report.members.nacked.iter().any(|nack| nack.node == bad[0]), "{report:#?}");
    world.until("the former text", |world| world.with_text("1").len() == 3 * N_EACH).await;
    world.until_phase(1, WavePhase::Reverted).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_of_another_server_that_failed_before_does_not_count() {
    let mut world = World::new().await;
    let all: Vec<String> = (0..N_EACH).map(|n| format!("c-{n}")).collect();
    world.fleets[2].reject(&all[..5], Some("broken"));
    world.server(0).write(put("default", "a", "broken")).await.unwrap();
    world.three.caught_up().await;
    world.until("the bad cluster", |world| world.fleets[1].with("a", "broken").len() == N_EACH).await;
    world.fleets[2].reject(&all[..5], Some("2"));
    begin(world.server(0), "2", &policy("100%", 5)).await;
    let report = world.until_phase(0, WavePhase::Completed).await;
    assert!(!report.members.already_failing.is_empty() && report.members.n_nacked == 0, "{report:#?}");
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_server_that_does_not_answer_until_nobody_counts_its_clients() {
    let mut world = World::new().await;
    world.three.set_silent(&["c"]);
    let mut policy = policy("50%", 5);
    policy.ack_timeout = None;
    begin(world.server(0), "2", &policy).await;
    let report = world.stays(0, WavePhase::Progressing, 60).await;
    assert_eq!(report.members.unknown[0].id, "c");
    assert!(
        report.reason.clone().unwrap().contains("the clients of 1 servers are not known: c: "),
        "{report:#?}"
    );
    world.three.set_silent(&[]);
    world.until_held_at(0, "50%").await;
    // It goes away for good, and its clients go to another server.
    world.three.vanish("c", Some(false));
    for n in 0..N_EACH {
        let node = format!("c-{n}");
        world.fleets[2].leave(&node);
        world.fleets[0].come(&world.three.rests[0].server, &node);
    }
    world.stays(0, WavePhase::Holding, 30).await;
    world.three.vanish("c", Some(true));
    let report = world.until_phase(0, WavePhase::Completed).await;
    assert_eq!((report.members.n_lost, report.members.n_acked), (0, 3 * N_EACH), "{report:#?}");
}

#[tokio::test(start_paused = true)]
async fn another_server_drives_it_on_when_the_first_stops_and_two_do_no_harm() {
    let mut world = World::new().await;
    let id = begin(world.server(0), "2", &policy("10%,30%,60%", 10)).await;
    world.until_held_at(0, "10%").await;
    world.three.lead(&[]);
    world.stays(0, WavePhase::Holding, 40).await;
    world.three.lead(&["b"]);
    let report = world.until_held_at(1, "30%").await;
    assert_eq!((report.members.n_lost, report.members.n_away), (0, 0), "{report:#?}");
    world.three.lead(&["a", "b", "c"]);
    world.until_phase(1, WavePhase::Completed).await;
    world.until("all", |world| world.with_text("2").len() == 3 * N_EACH).await;
    assert_eq!(world.with_text("2").len(), 3 * N_EACH);
    let steps = world.history();
    assert_eq!(steps.len(), 6, "the two writes, three more waves, the end: {steps:?}");
    assert_eq!(newest(world.server(2)).unwrap().deployment, id);
}

#[tokio::test(start_paused = true)]
async fn any_server_takes_the_requests_of_operators() {
    let mut world = World::new().await;
    let id = begin(world.server(0), "2", &policy("10%,30%", 10)).await;
    world.until_held_at(0, "10%").await;
    let report = world.server(2).control.wave(id, WaveVerb::Pause, "me".to_owned()).await.unwrap();
    assert_eq!((report.phase, report.members.unknown.len()), (WavePhase::Paused, 0), "{report:#?}");
    let report = world.until_phase(0, WavePhase::Paused).await;
    assert_eq!(report.reason.as_deref(), Some("paused by me"));
    world.stays(0, WavePhase::Paused, 60).await;
    world.server(1).control.wave(id, WaveVerb::Resume, "me".to_owned()).await.unwrap();
    world.until_held_at(0, "30%").await;
    let report = world.server(2).control.wave(id, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    let n_behind = 3 * N_EACH - world.expected(id, "30%").len();
    assert!(report.reason.unwrap().contains(&format!("when {n_behind} nodes were behind")), "{n_behind}");
    world.until("all", |world| world.with_text("2").len() == 3 * N_EACH).await;
    let again = begin(world.server(1), "3", &policy("10%", 10)).await;
    world.until_held_at(0, "10%").await;
    world.server(2).control.wave(again, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    world.until("the former text", |world| world.with_text("2").len() == 3 * N_EACH).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_moves_to_another_server_is_not_lost_and_one_that_ends_is() {
    let mut world = World::new().await;
    let id = begin(world.server(0), "2", &policy("50%", 30)).await;
    world.until_held_at(0, "50%").await;
    let ahead = world.fleets[1].expected(id, "50%");
    for node in &ahead[..5] {
        world.fleets[1].leave(node);
        world.fleets[0].come(&world.three.rests[0].server, node);
    }
    let report = world.stays(0, WavePhase::Holding, 15).await;
    assert_eq!((report.members.n_lost, report.members.n_away), (0, 0), "{report:#?}");
    for node in &ahead[5..8] {
        world.fleets[1].leave(node);
    }
    let report = world.until_phase(0, WavePhase::Paused).await;
    assert_eq!(report.members.n_lost, 3, "{report:#?}");
}

#[tokio::test(start_paused = true)]
async fn zones_are_counted_over_all_servers() {
    const ZONES: fn(&str) -> &'static str = |node| if node.starts_with('a') { "east" } else { "west" };
    let mut world = World::with(|server, name| {
        let mut fleet = Fleet::connect_in(server, 0, ZONES, false);
        (0..N_EACH).for_each(|n| fleet.join(server, &format!("{name}-{n}")));
        fleet.pump(server);
        fleet
    })
    .await;
    let mut policy = policy("each", 5);
    policy.by = By::Zone;
    begin(world.server(2), "2", &policy).await;
    // Fewer nodes come first: those of one server, and not of two.
    world.until("the first zone", |world| !world.with_text("2").is_empty()).await;
    world.until("its nodes", |world| world.with_text("2").len() == N_EACH).await;
    assert_eq!(world.fleets[0].with("a", "2").len(), N_EACH);
    world.until_phase(0, WavePhase::Completed).await;
}

/// Three servers with a route, which two clients at each follow.
struct Canary {
    three: Three,
    fleets: [Fleet; 3],
    still: Vec<usize>,
}

impl Canary {
    async fn new() -> Self {
        let three = Three::linked();
        let body = all(&route("", HALVES));
        let yaml = [("content-type", "application/yaml")];
        let applied = three.rests[0].call("POST", "/v1/apply", &yaml, &body).await;
        assert_eq!(applied.status, 200, "{}", applied.text);
        three.caught_up().await;
        let fleets = [0, 1, 2].map(|at| Fleet::connect_for_routes(&three.rests[at].server, 2, ROUTES));
        Self { three, fleets, still: vec![] }
    }

    /// Lets clients answer and time pass, for as long as the rollout is not as it should be at the server `at`, or for some seconds.
    async fn pass(
        &mut self,
        at: usize,
        path: &str,
        seconds: usize,
        is_good: impl Fn(&Value) -> bool,
    ) -> Value {
        for _ in 0..seconds * 20 {
            for at in (0..3).filter(|at| !self.still.contains(at)) {
                self.fleets[at].pump(&self.three.rests[at].server);
            }
            let rollout = self.three.rests[at].get(path).await.json();
            if is_good(&rollout) {
                return rollout;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.three.rests[at].get(path).await.json()
    }

    /// Waits until the rollout is as it should be at every server.
    async fn reach(&mut self, path: &str, phase: &str, step: u64) {
        let is_there = |rollout: &Value| rollout["phase"] == phase && rollout["step"] == step;
        for at in 0..3 {
            let rollout = self.pass(at, path, 60, is_there).await;
            assert!(is_there(&rollout), "{at}: {rollout:#}");
        }
    }

    /// The weights that the servers publish.
    async fn weights(&self) -> Vec<Value> {
        self.three.caught_up().await;
        let mut weights: Vec<Value> =
            self.three.rests.iter().map(|rest| served_weights(rest, ROUTES)).collect();
        weights.dedup();
        weights
    }

    async fn ask(&self, at: usize, path: &str, verb: &str) {
        let reply = post(&self.three.rests[at], &format!("{path}:{verb}"), &json!({})).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_goes_on_when_the_clients_of_all_servers_have_a_step_whoever_drives_it() {
    let mut world = Canary::new().await;
    world.still = vec![2];
    let path = start(&world.three.rests[1], &json!({})).await;
    // The clients of the last server have not answered.
    let rollout = world.pass(0, &path, 30, |rollout| rollout["step"] == 2).await;
    assert!(rollout["step"] != 2, "{rollout:#}");
    assert_eq!(world.weights().await, [json!([80, 20])]);
    world.still = vec![];
    world.reach(&path, "Paused", 2).await;
    // Another server goes on.
    world.three.lead(&["c"]);
    world.ask(0, &path, "resume").await;
    world.reach(&path, "Paused", 4).await;
    assert_eq!(world.weights().await, [json!([40, 60])]);
    // Two that drive do each step once.
    world.three.lead(&["a", "b"]);
    world.ask(2, &path, "promote").await;
    world.reach(&path, "Succeeded", 4).await;
    assert_eq!(world.weights().await, [json!([0, 100])]);
    check_line(&line(&world.three.store));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_at_another_server_pauses_a_rollout_and_a_silent_server_holds_it() {
    let mut world = Canary::new().await;
    world.three.set_silent(&["b"]);
    let path = start(&world.three.rests[0], &json!({})).await;
    let rollout = world.pass(0, &path, 30, |rollout| rollout["step"] == 2).await;
    assert!(rollout["step"] != 2, "{rollout:#}");
    world.three.set_silent(&[]);
    world.reach(&path, "Paused", 2).await;
    let nodes = ["node-0".to_owned()];
    world.fleets[2].reject(&nodes, Some("40/60"));
    world.ask(1, &path, "resume").await;
    let is_rejected = |rollout: &Value| rollout["message"].to_string().contains("node-0");
    let rollout = world.pass(1, &path, 60, is_rejected).await;
    assert!(is_rejected(&rollout), "{rollout:#}");
}

#[tokio::test(start_paused = true)]
async fn clients_of_other_servers_that_leave_count_against_a_step_and_those_that_move_do_not() {
    let mut world = Canary::new().await;
    for (at, name) in [(1, "b"), (2, "c")] {
        (0..3).for_each(|n| world.fleets[at].join(&world.three.rests[at].server, &format!("{name}-{n}")));
    }
    let path =
        start(&world.three.rests[0], &json!({"steps": [{"setWeight": 20}, {"pause": {"duration": "10m"}}]}))
            .await;
    world.reach(&path, "Paused", 2).await;
    let has_gone = |rollout: &Value| rollout["message"].to_string().contains("have gone");
    // They move between the others, to the one that leads, and away from that.
    for (from, to, node) in [(1, 2, "b-0"), (2, 0, "c-0"), (2, 0, "c-1"), (0, 1, "c-1")] {
        world.fleets[from].leave(node);
        world.fleets[to].come(&world.three.rests[to].server, node);
        let rollout = world.pass(0, &path, 8, has_gone).await;
        assert!(!has_gone(&rollout), "{node}: {rollout:#}");
    }
    let rollout = world.pass(0, &path, 30, has_gone).await;
    assert!(!has_gone(&rollout), "{rollout:#}");
    // Nobody knows whether the clients of a silent server have gone.
    world.three.set_silent(&["b"]);
    world.fleets[1].leave("b-1");
    let rollout = world.pass(0, &path, 30, has_gone).await;
    assert!(!has_gone(&rollout), "{rollout:#}");
    world.three.set_silent(&[]);
    let rollout = world.pass(0, &path, 30, has_gone).await;
    let said = rollout["message"].to_string();
    assert!(said.contains("1 of 13 clients have gone since the change"), "{rollout:#}");
}

const GROUP: &str = "apiVersion: xds-server.io/v1
kind: NodeGroup
metadata: {name: fleet}
spec: {selector: {all: true}, waves: {shares: [20%, 100%], hold: 5s}}
";

/// The files of a push.
fn with_waves(text: &str) -> FileLoad {
    pushed(&[("group.yaml", GROUP.to_owned()), ("a.yaml", cluster_text("a", text))])
}

#[tokio::test(start_paused = true)]
async fn pushed_files_go_in_the_waves_of_their_group_and_a_newer_push_takes_the_place_of_one_that_was_put_back()
 {
    let mut world = World::new().await;
    let push = async |world: &World, at: usize, text: &str| {
        let write = Write::ReplaceFiles { load: Box::new(with_waves(text)), is_confirmed: false };
        let outcome = world.server(at).write(write).await.unwrap();
        world.three.caught_up().await;
        outcome
    };
    world.server(0).write(delete("default", "a")).await.unwrap();
    push(&world, 0, "1").await;
    world.until("the text of the files", |world| world.with_text("1").len() == 3 * N_EACH).await;
    let outcome = push(&world, 1, "2").await;
    let id = outcome.wave.unwrap();
    world.until_held_at(0, "20%").await;
    assert_eq!(world.with_text("2"), world.expected(id, "20%"));
    world.until_phase(0, WavePhase::Completed).await;
    let next = world.server(0).revision() + 1;
    let bad = world.expected(next, "20%");
    let at = ["a", "b", "c"].iter().position(|name| bad[0].starts_with(name)).unwrap();
    world.fleets[at].reject(&bad[..1], Some("bad"));
    push(&world, 2, "bad").await;
    world.until_phase(0, WavePhase::Held).await;
    world.until("the former text", |world| world.with_text("2").len() == 3 * N_EACH).await;
    // The files still say it, and it is served nowhere.
    let outcome = push(&world, 0, "3").await;
    assert!(outcome.wave.is_some_and(|wave| wave > next), "{outcome:?}");
    world.until_phase(1, WavePhase::Completed).await;
    world.until("the new text", |world| world.with_text("3").len() == 3 * N_EACH).await;
}
