//! Properties of every wave deployment, however ACKs, NACKs, time, restarts and verbs come, against a model of its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use xds_cache::WavePolicy;
use xds_cache::status::StreamId;
use xds_cache::wave::{
    ClientId, Decision, Deployment, Fault, Members, Present, Ranking, Seen, Split, Stage, Tolerance,
};

use check::check;

#[path = "../../server/session/tests/check/mod.rs"]
mod check;

/// The same histories at every run; `XDS_SEED` makes others.
const SEED: u64 = 20_261_123;

/// One thing that happens. Nodes are taken modulo how many there are.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Ack(usize),
    AllAck,
    Nack(usize),
    Leave(usize),
    /// The node connects, with what it had if it had something.
    Join(usize),
    /// Its process ends and starts anew, with nothing.
    Crash(usize),
    Seconds(u64),
    Pause,
    Resume,
    Promote,
    Abort,
    /// The server is killed, and started at once; its clients come back one by one, or not.
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        20 => any::<usize>().prop_map(Happening::Ack),
        12 => Just(Happening::AllAck),
        3 => any::<usize>().prop_map(Happening::Nack),
        4 => any::<usize>().prop_map(Happening::Leave),
        8 => any::<usize>().prop_map(Happening::Join),
        3 => any::<usize>().prop_map(Happening::Crash),
        16 => (0..20_u64).prop_map(Happening::Seconds),
        2 => Just(Happening::Pause),
        4 => Just(Happening::Resume),
        3 => Just(Happening::Restart),
        1 => prop_oneof![Just(Happening::Promote), Just(Happening::Abort)],
    ]
}

fn policy() -> impl Strategy<Value = WavePolicy> {
    let nacks =
        prop_oneof![(0..3_u32).prop_map(|n| n.to_string()), (1..60_u32).prop_map(|n| format!("{n}%"))];
    let lost = prop::option::of(prop_oneof![
        (0..3_u32).prop_map(|n| n.to_string()),
        (1..60_u32).prop_map(|n| format!("{n}%"))
    ]);
    let strategy = (1..5_usize, 0..15_u64, nacks, prop::option::of(1..30_u64), lost, any::<bool>());
    strategy.prop_map(|(n_waves, hold, nacks, timeout, lost, allow_empty)| {
        let shares = ["5%", "20%", "50%", "90%"].into_iter().take(n_waves - 1).chain(["100%"]);
        let mut policy: WavePolicy = shares.collect::<Vec<_>>().join(",").parse().unwrap();
        policy.hold = Duration::from_secs(hold);
        policy.max_nacks = nacks.parse().unwrap();
        policy.ack_timeout = timeout.map(Duration::from_secs);
        policy.max_lost = lost.map(|text| text.parse().unwrap());
        policy.allow_empty = allow_empty;
        policy
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Pending,
    Acked,
    Nacked,
}

#[derive(Debug)]
struct Node {
    id: String,
    is_connected: bool,
    /// The node's answer to the change since it was sent on this connection.
    answer: Answer,
    /// The number of this connection, and whether the node came with what it had.
    connection: u64,
    came_back: bool,
    /// True if a wave has reached it while it was connected.
    is_member: bool,
    /// Since when it is away, and whether it ever came back with nothing; of a member.
    away: Option<Instant>,
    has_restarted: bool,
}

/// How a wave deployment ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Completed,
    PutBack,
}

/// Nodes, and what the policy says of them, written down once more.
struct World {
    policy: WavePolicy,
    now: Instant,
    nodes: Vec<Node>,
    /// The nodes of each wave.
    members: Vec<BTreeSet<usize>>,
    deployment: Deployment,
    /// The members that the server remembers.
    known: Members,
    wave: usize,
    /// When the wave began or was resumed, and when all of it was first seen to have answered well.
    since: Instant,
    settled: Option<Instant>,
    /// Before that, after a restart, nothing goes on.
    earliest: Instant,
    is_paused: bool,
    end: Option<End>,
}

impl World {
    fn new(policy: WavePolicy, id: u64, n_nodes: usize) -> Self {
        let now = Instant::now();
        let node = |n| Node {
            id: format!("node-{n}"),
            is_connected: true,
            answer: Answer::Pending,
            connection: 0,
            came_back: false,
            is_member: false,
            away: None,
            has_restarted: false,
        };
        let deployment = Deployment::new(policy.clone(), 0, now);
        let nodes: Vec<Node> = (0..n_nodes).map(node).collect();
        let members = |share| {
            let split = Split { deployment: id, share: Some(share), ranking: Ranking::Hash };
            (0..n_nodes).filter(|n| split.is_ahead(&xds_cache::Node::with_id(&nodes[*n].id))).collect()
        };
        Self {
            members: policy.shares().iter().copied().map(members).collect(),
            policy,
            now,
            nodes,
            deployment,
            known: Members::default(),
            wave: 0,
            since: now,
            settled: None,
            earliest: now,
            is_paused: false,
            end: None,
        }
    }

    /// The nodes that have the change, connected or not.
    fn ahead(&self) -> BTreeSet<usize> {
        match self.end {
            None => self.members[self.wave].clone(),
            Some(End::Completed) => (0..self.nodes.len()).collect(),
            Some(End::PutBack) => BTreeSet::new(),
        }
    }

    fn seen(&self) -> Seen {
        let ahead = self.ahead();
        let members = || ahead.iter().map(|n| &self.nodes[*n]).filter(|node| node.is_connected);
        let count = |answer| members().filter(|node| node.answer == answer).count();
        Seen {
            n_members: members().count(),
            n_pending: count(Answer::Pending),
            n_nacked: count(Answer::Nacked),
            losses: self.known.losses(self.now),
            is_failing: false,
        }
    }

    /// The server looks at its clients, and the nodes that it sees ahead are members.
    fn look(&mut self) {
        let ahead = self.ahead();
        let mut present: BTreeMap<Arc<str>, Present> = BTreeMap::new();
        for n in ahead {
            let node = &mut self.nodes[n];
            if node.is_connected {
                node.is_member = true;
                let client = ClientId::Stream(StreamId(node.connection));
                present.insert(node.id.as_str().into(), Present::from([(client, node.came_back)]));
            }
        }
        self.known.look(present, |_| false, self.now);
    }

    /// How many members are away, gone and restarted, by the words of the documentation.
    fn lost(&self) -> (usize, usize, usize) {
        let members = || self.nodes.iter().filter(|node| node.is_member);
        let is_gone =
            |node: &&Node| node.away.is_some_and(|since| self.now - since >= Duration::from_secs(10));
        let restarted = members().filter(|node| node.has_restarted).count();
        let others = || members().filter(|node| !node.has_restarted);
        let gone = others().filter(is_gone).count();
        (others().filter(|node| node.away.is_some()).count() - gone, gone, restarted)
    }

    fn answer(&mut self, node: usize, answer: Answer) {
        let node = node % self.nodes.len();
        let is_ahead = self.ahead().contains(&node);
        let node = &mut self.nodes[node];
        // A node that has rejected a response is not sent it again, and has nothing to accept.
        if is_ahead && node.is_connected && node.answer == Answer::Pending {
            node.answer = answer;
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        let n_nodes = self.nodes.len();
        match happening {
            Happening::Ack(node) => self.answer(node, Answer::Acked),
            Happening::AllAck => (0..n_nodes).for_each(|node| self.answer(node, Answer::Acked)),
            Happening::Nack(node) => self.answer(node, Answer::Nacked),
            Happening::Leave(node) => self.nodes[node % n_nodes].leave(self.now),
            Happening::Join(node) => {
                let node = &mut self.nodes[node % n_nodes];
                if !node.is_connected {
                    node.connect(true);
                }
            }
            Happening::Crash(node) => {
                let node = &mut self.nodes[node % n_nodes];
                node.leave(self.now);
                node.connect(false);
            }
            Happening::Seconds(seconds) => self.now += Duration::from_secs(seconds),
            Happening::Pause => {
                same("pause", self.deployment.pause().is_ok(), !self.is_paused)?;
                self.is_paused = true;
            }
            Happening::Resume => {
                self.look();
                same("resume", self.deployment.resume(self.now).is_ok(), self.is_paused)?;
                if self.is_paused {
                    (self.is_paused, self.since, self.settled) = (false, self.now, None);
                    self.known.forgive(self.now);
                    self.forgive();
                }
            }
            Happening::Promote => self.end = Some(End::Completed),
            Happening::Abort => self.end = Some(End::PutBack),
            Happening::Restart => {
                let (wave, stage) = (self.deployment.wave(), self.deployment.stage());
                self.deployment = Deployment::restored(self.policy.clone(), wave, stage, self.now);
                (self.since, self.settled) = (self.now, None);
                self.earliest = self.now + Duration::from_secs(10);
                for node in &mut self.nodes {
                    node.leave(self.now);
                    node.answer = Answer::Pending;
                    // The server that is started remembers who was there, and nothing of what became of them before.
                    node.has_restarted = false;
                    node.away = node.is_member.then_some(self.now);
                }
                let members = self.nodes.iter().filter(|node| node.is_member);
                self.known = Members::remembered(members.map(|node| node.id.as_str().into()), self.now);
            }
        }
        Ok(())
    }

    /// A node that is lost and resumed nevertheless does not count any more.
    fn forgive(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.is_member) {
            let is_gone = node.away.is_some_and(|since| self.now - since >= Duration::from_secs(10));
            if is_gone {
                (node.is_member, node.away) = (node.is_connected, None);
            }
            node.has_restarted = false;
        }
    }

    /// The decision that is due, by the words of the policy.
    fn expect(&mut self) -> Option<Decision> {
        let seen = self.seen();
        let tolerated = match self.policy.max_nacks {
            Tolerance::Nodes(nodes) => nodes as usize,
            Tolerance::Share(share) => (seen.n_members as f64 * share.as_ratio() + 1e-9) as usize,
        };
        if seen.n_nacked > tolerated {
            return Some(Decision::PutBack(Fault::Nacked));
        }
        let (n_away, n_gone, n_restarted) = self.lost();
        let n_known = self.nodes.iter().filter(|node| node.is_member).count();
        let tolerated = match self.policy.max_lost {
            Some(Tolerance::Nodes(nodes)) => nodes as usize,
            Some(Tolerance::Share(share)) => (n_known as f64 * share.as_ratio() + 1e-9) as usize,
            None if self.wave == 0 => 0,
            None => n_known / 20,
        };
        if n_restarted > tolerated {
            return Some(Decision::PutBack(Fault::Restarted));
        }
        if self.is_paused {
            return None;
        }
        if n_gone + n_restarted > tolerated {
            self.is_paused = true;
            return None;
        }
        let is_empty = seen.n_members == 0 && !self.policy.allow_empty;
        if seen.n_pending > 0 || n_away > 0 || is_empty {
            let waits_since = self.settled.map_or(self.since, |at| at + self.policy.hold);
            let timeout = self.policy.ack_timeout;
            self.is_paused = timeout.is_some_and(|timeout| self.now >= waits_since + timeout);
            return None;
        }
        if self.now < self.earliest || self.now < *self.settled.get_or_insert(self.now) + self.policy.hold {
            return None;
        }
        let is_last = self.policy.shares()[self.wave].is_all();
        Some(if is_last { Decision::Complete } else { Decision::Advance })
    }

    /// Lets the wave deployment decide as often as there is something to do.
    fn settle(&mut self) -> Result<(), String> {
        while self.end.is_none() {
            self.look();
            let expected = self.expect();
            let seen = self.seen();
            let decision = self.deployment.decide(seen, self.now);
            same("decision", decision, expected)?;
            same("decision, asked twice", self.deployment.decide(seen, self.now), expected)?;
            same("wave", self.deployment.wave(), self.wave)?;
            same("paused", self.deployment.stage() == Stage::Paused, self.is_paused)?;
            match decision {
                None => return Ok(()),
                Some(Decision::Complete) => self.end = Some(End::Completed),
                Some(Decision::PutBack(_)) => self.end = Some(End::PutBack),
                Some(Decision::Advance) => {
                    self.deployment.advance(self.now);
                    self.wave += 1;
                    (self.since, self.settled) = (self.now, None);
                }
            }
        }
        Ok(())
    }
}

impl Node {
    fn leave(&mut self, now: Instant) {
        if self.is_connected && self.is_member {
            self.away = Some(now);
        }
        self.is_connected = false;
    }

    fn connect(&mut self, came_back: bool) {
        self.has_restarted |= self.is_member && !came_back;
        (self.is_connected, self.answer, self.away) = (true, Answer::Pending, None);
        (self.connection, self.came_back) = (self.connection + 1, came_back);
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}

/// Whatever happens: no wave is skipped; none begins before every connected member of the last one has answered, few enough of
/// them with a NACK and few enough of all lost, and its hold time has passed since; who has the change keeps it until it is put back as a whole; a pause
/// ends by a verb only, also over a restart; too many NACKs put back at once, and nothing else but an abort does.
#[test]
fn every_history_keeps_to_the_policy() {
    let strategy = (policy(), any::<u64>(), 1..16_usize, vec(happening(), 0..50));
    check(SEED, &strategy, |(policy, id, n_nodes, history)| {
        let mut world = World::new(policy, id, n_nodes);
        world.settle()?;
        for happening in history {
            let (ahead, wave) = (world.ahead(), world.wave);
            if world.end.is_some() {
                return Ok(());
            }
            let was_paused = world.is_paused;
            world.happen(happening)?;
            world.settle()?;
            match world.end {
                Some(End::PutBack) => same("nodes ahead", world.ahead().len(), 0)?,
                Some(End::Completed) => same("nodes ahead", world.ahead().len(), n_nodes)?,
                None if was_paused && !matches!(happening, Happening::Resume) => {
                    same("nodes ahead of a pause", world.ahead(), ahead)?;
                    same("waves of a pause", (world.wave, world.is_paused), (wave, true))?;
                }
                None => same("nodes that keep it", ahead.is_subset(&world.ahead()), true)?,
            }
        }
        Ok(())
    });
}

/// Once every node is there and accepts, resuming, promoting waves that nobody is in, and waiting for what `poll_timeout` says
/// ends every wave deployment, whatever was before.
#[test]
fn every_history_can_be_brought_to_its_end() {
    let strategy = (policy(), any::<u64>(), 1..16_usize, vec(happening(), 0..30));
    check(SEED, &strategy, |(policy, id, n_nodes, history)| {
        let mut world = World::new(policy, id, n_nodes);
        for happening in history {
            world.settle()?;
            if world.end.is_some() {
                return Ok(());
            }
            world.happen(happening)?;
        }
        // One step ends a pause, one passes the time after a restart, and each wave takes two.
        for _ in 0..2 * world.policy.shares().len() + 3 {
            for node in &mut world.nodes {
                if !node.is_connected {
                    node.connect(true);
                }
                node.answer = Answer::Acked;
            }
            if world.is_paused {
                world.happen(Happening::Resume)?;
            }
            // A wave that nobody is in waits for a person.
            if !world.policy.allow_empty && world.ahead().is_empty() {
                world.happen(Happening::Promote)?;
            }
            world.settle()?;
            if world.end.is_some() {
                return Ok(());
            }
            world.now = world.deployment.poll_timeout(world.now).unwrap_or(world.now);
        }
        Err(format!("it does not end: wave {} of {:?}", world.wave, world.deployment))
    });
}
