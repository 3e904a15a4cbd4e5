//! A fleet of clients with a canary that fails in one way or another, and a driver that measures it by what they report. Time goes by in
//! tenths of a second.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use xds_rollout::{
    AckStatus, Counts, Effect, Input, PerClient, Phase, Reading, Rollout, RolloutSpec, Silence, Split,
    Traffic, Window, windows,
};

/// What is wrong with the canary. Times are seconds since its first traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    Nothing,
    /// The process is gone. The requests of gRPC clients fail before an endpoint is chosen, and nobody reports them.
    Dead {
        from: f64,
        until: f64,
    },
    /// Not ready, which the server sees in the assignment that it serves.
    NotReady {
        from: f64,
    },
    /// Connections are refused, as an Envoy reports it.
    Refuses {
        from: f64,
    },
    /// Requests are taken and never answered.
    Hangs {
        from: f64,
    },
    /// This share of requests fails.
    Fails(f64),
    /// Dead and alive in turns of so many seconds.
    Flaps(f64),
    /// Dead for every other client.
    OneZone,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pattern {
    /// So many a second.
    Steady(f64),
    /// None for a while, then up to so many at once.
    Bursts(u64),
}

/// How the clients answer to changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answers {
    Ack,
    /// They do; but other rules of the same routes change every three seconds, and one of the clients accepts that a second later.
    AckLate,
    /// One of them never does.
    OneNever,
    /// One of them rejects every change.
    OneNacks,
    /// All of them are gone after so many seconds.
    AllLeave(f64),
    /// There is no client.
    None,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) fault: Fault,
    pub(crate) pattern: Pattern,
    pub(crate) answers: Answers,
    /// How often clients report, in seconds.
    pub(crate) report: u64,
}

/// The end of a simulated rollout.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) phase: Phase,
    /// Seconds from the fault, or from the canary's first traffic, to the weight 0.
    pub(crate) back_after: Option<f64>,
    /// Requests that failed or were never answered.
    pub(crate) lost: u64,
    pub(crate) message: String,
}

/// A generator that repeats itself for a seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below_one(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn is(&mut self, probability: f64) -> bool {
        self.below_one() < probability
    }
}

struct Client {
    weight: f64,
    /// When it applies which weight.
    changes: VecDeque<(u64, u64, f64)>,
    applied: u64,
    reported_ms: u64,
    /// Of the canary and of stable, since the last report.
    since: [Traffic; 2],
    /// Requests under way: when they end, at which backend, and how.
    under_way: Vec<(u64, usize, bool)>,
}

struct Report {
    client: usize,
    from: u64,
    traffic: [Traffic; 2],
}

/// One rollout with all that is around it.
pub(crate) struct Fleet {
    scene: Scene,
    chance: Chance,
    rollout: Rollout,
    now_ms: u64,
    began_ms: Option<u64>,
    wake_ms: u64,
    change: u64,
    weight: f64,
    clients: Vec<Client>,
    reports: Vec<Report>,
    told: Option<AckStatus>,
    lost: u64,
    back_ms: Option<u64>,
    burst_ms: u64,
}

impl Fleet {
    pub(crate) fn new(scene: Scene, fields: &Value, seed: u64) -> Self {
        let mut document = json!({
            "route": {"kind": "HTTPRoute", "namespace": "default", "name": "greeter"},
            "stable": "v1:80", "canary": "v2:80",
        });
        for (name, field) in fields.as_object().into_iter().flatten() {
            document[name] = field.clone();
        }
        let spec = RolloutSpec::try_from(document).expect("valid");
        let weights = BTreeMap::from([("v1:80".to_owned(), 100), ("v2:80".to_owned(), 0)]);
        let (rollout, outcome) = Rollout::start("r".to_owned(), spec, &weights, START_MS).expect("it starts");
        let n_clients = if scene.answers == Answers::None { 0 } else { N_CLIENTS };
        let mut chance = Chance::new(seed);
        let clients = (0..n_clients).map(|_| Client {
            weight: 0.0,
            changes: VecDeque::new(),
            applied: 0,
            reported_ms: START_MS + (chance.below_one() * scene.report as f64 * 1_000.0) as u64,
            since: [Traffic::default(); 2],
            under_way: vec![],
        });
        let clients = clients.collect();
        let mut fleet = Self {
            scene,
            chance,
            rollout,
            now_ms: START_MS,
            began_ms: None,
            wake_ms: START_MS,
            change: 0,
            weight: 0.0,
            clients,
            reports: vec![],
            told: None,
            lost: 0,
            back_ms: None,
            burst_ms: START_MS,
        };
        fleet.carry_out(outcome.effects);
        fleet
    }

    /// Goes on until the rollout has ended or is held, or for so many seconds.
    pub(crate) fn run(mut self, seconds: u64) -> Verdict {
        let end = START_MS + seconds * 1_000;
        while self.now_ms < end && !self.rollout.is_finished() && !self.rollout.is_held() {
            self.now_ms += TICK_MS;
            self.tick();
        }
        let since = self.began_ms.map(|began| began + (self.scene.fault.begins() * 1_000.0) as u64);
        let back_after =
            self.back_ms.zip(since).map(|(back, since)| back.saturating_sub(since) as f64 / 1_000.0);
        let message = xds_rollout::RolloutStatus::from(&self.rollout).message;
        Verdict { phase: self.rollout.phase(), back_after, lost: self.lost, message }
    }

    fn tick(&mut self) {
        if let Answers::AllLeave(after) = self.scene.answers
            && self.seconds().is_some_and(|seconds| seconds >= after)
        {
            self.clients.clear();
        }
        self.apply();
        self.send();
        self.report();
        if let Fault::NotReady { from } = self.scene.fault
            && self.seconds().is_some_and(|seconds| seconds >= from)
        {
            self.give(Input::NoEndpoint(Some("the canary has no ready endpoint".to_owned())));
        }
        self.answer();
        if self.now_ms >= self.wake_ms {
            self.give(Input::Tick);
        }
    }

    fn seconds(&self) -> Option<f64> {
        self.began_ms.map(|began| (self.now_ms - began) as f64 / 1_000.0)
    }

    fn give(&mut self, input: Input) {
        let outcome = self.rollout.handle(input, self.now_ms).expect("legal");
        self.carry_out(outcome.effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::SetWeights { change, weights, .. } => self.set(change, &weights),
                Effect::Measure { measurement, since_ms, .. } => {
                    let reading = self.measure(since_ms);
                    self.give(Input::Measured { measurement, reading });
                }
                Effect::WakeAt { at_ms } => self.wake_ms = at_ms,
                _ => {}
            }
        }
    }

    fn set(&mut self, change: u64, weights: &BTreeMap<String, u32>) {
        let of = |name: &str| f64::from(weights.get(name).copied().unwrap_or_default());
        self.weight = of("v2:80") / (of("v1:80") + of("v2:80"));
        self.change = change;
        self.told = None;
        if self.weight > 0.0 {
            self.began_ms.get_or_insert(self.now_ms);
        } else if self.began_ms.is_some() {
            self.back_ms.get_or_insert(self.now_ms);
        }
        for client in &mut self.clients {
            let at = self.now_ms + 50 + (self.chance.below_one() * 400.0) as u64;
            client.changes.push_back((at, change, self.weight));
        }
    }

    /// Clients apply what they have received, but for the one that does not.
    fn apply(&mut self) {
        let stubborn = matches!(self.scene.answers, Answers::OneNever | Answers::OneNacks);
        for client in self.clients.iter_mut().skip(usize::from(stubborn)) {
            while client.changes.front().is_some_and(|(at, ..)| *at <= self.now_ms) {
                let Some((_, change, weight)) = client.changes.pop_front() else { break };
                (client.applied, client.weight) = (change, weight);
            }
        }
    }

    fn answer(&mut self) {
        let change = self.change;
        let of = self.clients.len() as u64;
        let acked = self.clients.iter().filter(|client| client.applied == change).count() as u64;
        let mut status = AckStatus { change, of, acked, ..AckStatus::default() };
        if self.scene.answers == Answers::AckLate && acked == of && (self.now_ms / 1_000).is_multiple_of(3) {
            (status.acked, status.n_behind) = (of - 1, 1);
        }
        if self.scene.answers == Answers::OneNacks && self.weight > 0.0 {
            status.n_nacked = 1;
        }
        if let Answers::AllLeave(after) = self.scene.answers {
            let gone = self.seconds().is_some_and(|seconds| seconds >= after + 10.0);
            status.n_gone = if gone { N_CLIENTS as u64 } else { 0 };
        }
        if self.told.as_ref() != Some(&status) {
            self.told = Some(status.clone());
            self.give(Input::Acks(status));
        }
    }

    fn send(&mut self) {
        let n = match self.scene.pattern {
            Pattern::Steady(rate) => {
                let expected = rate * TICK_MS as f64 / 1_000.0;
                expected as u64 + u64::from(self.chance.is(expected.fract()))
            }
            Pattern::Bursts(most) if self.now_ms >= self.burst_ms => {
                self.burst_ms = self.now_ms + (self.chance.below_one() * 20_000.0) as u64;
                (self.chance.below_one() * most as f64) as u64 + 1
            }
            Pattern::Bursts(_) => 0,
        };
        for _ in 0..n {
            if !self.clients.is_empty() {
                let client = (self.chance.below_one() * self.clients.len() as f64) as usize;
                self.request(client);
            }
        }
        let now_ms = self.now_ms;
        for client in &mut self.clients {
            let since = &mut client.since;
            client.under_way.retain(|(ends, backend, fails)| {
                if *ends <= now_ms {
                    since[*backend].counts.requests += 1;
                    since[*backend].counts.failures += u64::from(*fails);
                }
                *ends > now_ms
            });
        }
    }

    fn request(&mut self, index: usize) {
        let seconds = self.seconds().unwrap_or_default();
        let to_canary = self.chance.is(self.clients[index].weight);
        // Most are quick; some take seconds.
        let latency = if self.chance.is(0.02) { 3_000.0 } else { 60.0 } * self.chance.below_one();
        let mut ends = self.now_ms + latency as u64;
        let (mut fails, mut is_sent) = (false, true);
        if to_canary {
            match self.scene.fault {
                Fault::Dead { from, until } if (from..until).contains(&seconds) => is_sent = false,
                Fault::Flaps(turn) if (seconds / turn) as u64 % 2 == 1 => is_sent = false,
                Fault::OneZone if index.is_multiple_of(2) => is_sent = false,
                Fault::NotReady { from } if seconds >= from => is_sent = false,
                Fault::Refuses { from } if seconds >= from => fails = true,
                Fault::Hangs { from } if seconds >= from => ends = u64::MAX,
                Fault::Fails(share) => fails = self.chance.is(share),
                _ => {}
            }
        }
        self.lost += u64::from(!is_sent || fails || ends == u64::MAX);
        if is_sent {
            let backend = usize::from(!to_canary);
            let client = &mut self.clients[index];
            client.since[backend].issued += 1;
            client.under_way.push((ends, backend, fails));
        }
    }

    fn report(&mut self) {
        let (now_ms, interval) = (self.now_ms, self.scene.report * 1_000);
        for (index, client) in self.clients.iter_mut().enumerate() {
            if now_ms < client.reported_ms + interval {
                continue;
            }
            let mut traffic = std::mem::take(&mut client.since);
            for (_, backend, _) in &client.under_way {
                traffic[*backend].in_progress += 1;
            }
            self.reports.push(Report { client: index, from: client.reported_ms, traffic });
            client.reported_ms = now_ms;
        }
    }

    fn measure(&self, since_ms: u64) -> Reading {
        let report_ms = self.scene.report * 1_000;
        let starts = windows(since_ms, self.now_ms, report_ms);
        let windows = starts.iter().map(|since| self.window(*since)).collect();
        let last_part = starts.get(1).copied().unwrap_or_default();
        let mut silence = Silence::default();
        for client in 0..N_CLIENTS {
            let own = self.since(since_ms).filter(|report| report.client == client);
            let of = |report: &Report| report.traffic.iter().map(|one| one.counts.requests).sum::<u64>();
            let earlier: u64 = own.clone().filter(|report| report.from < last_part).map(of).sum();
            silence.requests += earlier;
            if !own.clone().any(|report| report.from >= last_part) {
                silence.silent += earlier;
            }
        }
        Reading { windows, report_ms, silence, split: Split::ByWeight, prometheus: None }
    }

    /// The reports that lie after a time. All take as long, so those that begin later come later.
    fn since(&self, since_ms: u64) -> impl Iterator<Item = &Report> + Clone {
        self.reports.iter().rev().take_while(move |report| report.from >= since_ms)
    }

    fn window(&self, since_ms: u64) -> Window {
        let mut sums = [Traffic::default(); 2];
        for report in self.since(since_ms) {
            for (sum, one) in sums.iter_mut().zip(&report.traffic) {
                let Counts { requests, failures } = &mut sum.counts;
                *requests += one.counts.requests;
                *failures += one.counts.failures;
                sum.issued += one.issued;
            }
        }
        for client in 0..self.clients.len() {
            let last = self.reports.iter().rev().find(|report| report.client == client);
            for (sum, one) in sums.iter_mut().zip(last.map(|report| report.traffic).unwrap_or_default()) {
                sum.in_progress += one.in_progress;
            }
        }
        let [canary, stable] = sums;
        Window { since_ms, canary, stable, clients: self.per_client(since_ms) }
    }
}

impl Fleet {
    fn per_client(&self, since_ms: u64) -> PerClient {
        let mut clients = PerClient::default();
        for client in 0..N_CLIENTS {
            let own = self.since(since_ms).filter(|report| report.client == client);
            let [canary, stable] =
                [0, 1].map(|of| own.clone().map(|report| report.traffic[of].issued).sum::<u64>());
            clients.n += u64::from(canary + stable > 0);
            clients.starved = clients.starved.max(if canary == 0 { stable } else { 0 });
        }
        clients
    }
}

impl Fault {
    /// When it begins, in seconds.
    fn begins(self) -> f64 {
        match self {
            Self::Dead { from, .. }
            | Self::NotReady { from }
            | Self::Refuses { from }
            | Self::Hangs { from } => from,
            Self::Flaps(turn) => turn,
            Self::Nothing | Self::Fails(_) | Self::OneZone => 0.0,
        }
    }
}

const START_MS: u64 = 1_795_177_244_123;
const TICK_MS: u64 = 100;
const N_CLIENTS: usize = 4;
