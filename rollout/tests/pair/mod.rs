//! Two drivers of one rollout with clocks of their own, and a store that takes a state only in place of the one that it was computed
//! from. What is checked are the states that were stored, in true time.

use std::collections::BTreeMap;

use serde_json::Value;
use xds_rollout::{
    AckStatus, Counts, Effect, HeaderMatch, Input, Outcome, Phase, Rollout, RolloutSpec, RolloutStatus, Verb,
};

use crate::world::reading;

/// One thing that happens, or that a driver does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    Time(i64),
    Tick(usize),
    Acks { driver: usize, all: bool },
    Measured { driver: usize, which: usize, bad: bool },
    Called { driver: usize, which: usize, goes: bool },
    Verb { driver: usize, verb: Verb },
    TakeIn(usize),
    Crash(usize),
}

pub(crate) struct Pair {
    document: Value,
    /// Every state that was stored.
    line: Vec<Rollout>,
    drivers: [Driver; 2],
    now_ms: i64,
    /// The change of weights that was stored last.
    change: u64,
    served: (BTreeMap<String, u32>, BTreeMap<String, Vec<HeaderMatch>>),
    /// True if all clients were said to have ACKed it.
    is_acked: bool,
    /// When the step began, and whether someone let it be left early.
    step_began_ms: i64,
    is_excused: bool,
}

struct Driver {
    /// How far its clock is ahead.
    skew_ms: i64,
    known: Rollout,
    /// The state in the line from which it goes on.
    from: usize,
    change: u64,
    measurements: Vec<u64>,
    calls: Vec<u64>,
}

impl Pair {
    pub(crate) fn new(document: &Value, spec: RolloutSpec, skew_ms: i64) -> Self {
        let now_ms = 1_800_000_000_000_i64;
        let weights = BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 0)]);
        let (rollout, outcome) =
            Rollout::start("r".to_owned(), spec, &weights, now_ms.cast_unsigned()).expect("it fits");
        let (taken, taken_outcome) =
            Rollout::taken(&rollout, None, now_ms.saturating_add(skew_ms).cast_unsigned());
        let served = outcome.effects.iter().find_map(|effect| match effect {
            Effect::SetWeights { weights, header_routes, .. } => {
                Some((weights.clone(), header_routes.clone()))
            }
            _ => None,
        });
        let served = served.expect("it sets weights");
        let mut first = Driver::new(rollout.clone(), 0);
        first.perform(outcome.effects);
        let mut second = Driver::new(taken, skew_ms);
        second.perform(taken_outcome.effects);
        Self {
            document: document.clone(),
            line: vec![rollout],
            now_ms,
            change: first.change,
            served,
            drivers: [first, second],
            is_acked: false,
            step_began_ms: now_ms,
            is_excused: false,
        }
    }

    pub(crate) fn turn(&mut self, turn: Turn) -> Result<(), String> {
        match turn {
            Turn::Time(passed_ms) => self.now_ms += passed_ms,
            Turn::Tick(driver) => _ = self.give(driver, Input::Tick)?,
            Turn::Acks { driver, all } => {
                let change = self.drivers[driver].change;
                let acked = if all { 3 } else { 1 };
                self.is_acked |= all && change == self.change;
                let status = AckStatus { change, of: 3, acked, ..AckStatus::default() };
                self.give(driver, Input::Acks(status))?;
            }
            Turn::Measured { driver, which, bad } => {
                let out = &mut self.drivers[driver].measurements;
                if !out.is_empty() {
                    let measurement = out.remove(which % out.len());
                    let canary = Counts { requests: 20, failures: if bad { 20 } else { 0 } };
                    let reading = reading(canary, canary);
                    self.give(driver, Input::Measured { measurement, reading })?;
                }
            }
            Turn::Called { driver, which, goes } => {
                let out = &mut self.drivers[driver].calls;
                if !out.is_empty() {
                    let call = out.remove(which % out.len());
                    let answer = if goes { Ok(()) } else { Err("no".to_owned()) };
                    let input = Input::Called { call, answer };
                    if !self.give(driver, input.clone())? {
                        self.give(driver, input)?;
                    }
                }
            }
            Turn::Verb { driver, verb } => self.verb(driver, verb)?,
            Turn::TakeIn(driver) => self.take_in(driver),
            Turn::Crash(driver) => {
                let stored = self.line.last().expect("it began").clone();
                self.drivers[driver] =
                    Driver { from: self.line.len() - 1, ..Driver::new(stored, self.drivers[driver].skew_ms) };
                if !self.give(driver, Input::Restarted)? {
                    return Err("P8: what was just read was superseded".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Everything goes well from here on; so it ends, and both drivers know it.
    pub(crate) fn go_well(&mut self) -> Result<(), String> {
        for round in 0..6_000 {
            let driver = round % 2;
            if self.line.last().expect("it began").phase().is_terminal() {
                for driver in [0, 1] {
                    self.take_in(driver);
                    if self.drivers[driver].known.phase() != self.line.last().expect("it began").phase() {
                        return Err("P8: the drivers do not agree in the end".to_owned());
                    }
                }
                return Ok(());
            }
            self.turn(Turn::Acks { driver, all: true })?;
            for _ in 0..self.drivers[driver].measurements.len() {
                self.turn(Turn::Measured { driver, which: 0, bad: false })?;
            }
            for _ in 0..self.drivers[driver].calls.len() {
                self.turn(Turn::Called { driver, which: 0, goes: true })?;
            }
            if self.drivers[driver].known.phase() == Phase::Paused {
                self.verb(driver, Verb::Resume)?;
            }
            self.now_ms += 10_000;
            self.turn(Turn::Tick(driver))?;
        }
        Err(format!("P6: it does not end: {:?}", RolloutStatus::from(&self.drivers[0].known)))
    }

    /// A verb is given to the state that is stored in the end, or refused by that.
    fn verb(&mut self, driver: usize, verb: Verb) -> Result<(), String> {
        for _ in 0..2 {
            let mut rollout = self.drivers[driver].known.clone();
            if rollout.handle(Input::Verb(verb), self.clock(driver)).is_err() {
                return Ok(());
            }
            let is_at_head = self.drivers[driver].from + 1 == self.line.len();
            self.is_excused |= is_at_head && !matches!(verb, Verb::Pause);
            if self.give(driver, Input::Verb(verb))? {
                return Ok(());
            }
        }
        Err("P8: a verb was superseded by nothing".to_owned())
    }

    /// Gives a driver an input. Returns `false` if another driver was faster; then it knows that one's state.
    fn give(&mut self, driver: usize, input: Input) -> Result<bool, String> {
        let now_ms = self.clock(driver);
        let one = &mut self.drivers[driver];
        let mut rollout = one.known.clone();
        let Outcome { is_changed, effects } =
            rollout.handle(input, now_ms).map_err(|error| format!("P1: {error}"))?;
        if is_changed {
            if one.from + 1 != self.line.len() {
                self.take_in(driver);
                return Ok(false);
            }
            one.from = self.line.len();
            let text = serde_json::to_string(&rollout).map_err(|error| error.to_string())?;
            let stored = serde_json::from_str(&text).map_err(|error| format!("P7: {error}: {text}"))?;
            self.line.push(stored);
            self.check(&effects)?;
        } else if effects.iter().any(|effect| matches!(effect, Effect::SetWeights { .. })) {
            return Err("P8: weights were set without a new state".to_owned());
        }
        let one = &mut self.drivers[driver];
        one.known = rollout;
        one.perform(effects);
        Ok(true)
    }

    fn take_in(&mut self, driver: usize) {
        let now_ms = self.clock(driver);
        let one = &mut self.drivers[driver];
        if one.from + 1 == self.line.len() {
            return;
        }
        one.from = self.line.len() - 1;
        let (rollout, outcome) = Rollout::taken(&self.line[one.from], Some(&one.known), now_ms);
        one.known = rollout;
        one.perform(outcome.effects);
    }

    fn clock(&self, driver: usize) -> u64 {
        (self.now_ms + self.drivers[driver].skew_ms).cast_unsigned()
    }

    /// Checks the state that was just stored against the one before it.
    fn check(&mut self, effects: &[Effect]) -> Result<(), String> {
        let [.., before, after] = self.line.as_slice() else { return Ok(()) };
        let [before, after] = [before, after].map(RolloutStatus::from);
        let began_anew = before.phase.is_terminal() && !after.phase.is_terminal();
        let was_acked = self.is_acked;
        let mut sets_weights = false;
        for effect in effects {
            let Effect::SetWeights { change, weights, header_routes } = effect else { continue };
            let wanted = (weights.clone(), header_routes.clone());
            if *change == self.change && wanted == self.served {
                continue;
            }
            self.served = wanted;
            sets_weights = true;
            // One that begins anew goes back to nothing and takes its first step at once.
            if *change != self.change + 1 && !(began_anew && *change == self.change + 2) {
                return Err(format!("P8: change {change} follows {}", self.change));
            }
            self.is_acked = false;
            self.change = *change;
        }
        if after.weights.canary != before.weights.canary && !sets_weights && owns_rule(after.phase) {
            return Err("P8: other weights were not set".to_owned());
        }
        if !began_anew && after.step > before.step && !self.is_excused {
            self.check_left(&before, &after, was_acked)?;
        }
        if began_anew || after.step != before.step {
            self.step_began_ms = self.now_ms;
            self.is_excused = began_anew;
        }
        Ok(())
    }

    fn check_left(
        &self,
        before: &RolloutStatus,
        after: &RolloutStatus,
        was_acked: bool,
    ) -> Result<(), String> {
        let left = self.step(before.step);
        if let Some(pause) = left.get("pause") {
            let took_ms = self.now_ms - self.step_began_ms;
            let Some(seconds) = pause["duration"].as_i64() else {
                return Err("P4: a pause without end has ended".to_owned());
            };
            if took_ms < seconds * 1_000 {
                return Err(format!("P4: a pause of {seconds} s took {took_ms} ms"));
            }
        }
        if left.get("setWeight").is_some() && !was_acked {
            return Err(format!("P5: step {} was left without ACKs", before.step));
        }
        let passed = (before.step + 1..after.step).find(|step| self.step(*step).get("waitAck").is_none());
        passed.map_or(Ok(()), |step| Err(format!("P5: step {step} was passed over")))
    }

    fn step(&self, number: usize) -> &Value {
        let steps = self.document["steps"].as_array().into_iter().flatten();
        let mut all = steps.chain(self.document["promotionSteps"].as_array().into_iter().flatten());
        all.nth(number - 1).unwrap_or(&Value::Null)
    }
}

/// Returns `true` if a rollout in this phase still owns its rule.
fn owns_rule(phase: Phase) -> bool {
    !matches!(phase, Phase::Succeeded | Phase::Aborted | Phase::Failed)
}

impl Driver {
    fn new(known: Rollout, skew_ms: i64) -> Self {
        Self { skew_ms, known, from: 0, change: 0, measurements: vec![], calls: vec![] }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::AwaitAck { change } => self.change = change,
                Effect::Measure { measurement, .. } => self.measurements.push(measurement),
                Effect::CallWebhook { call, .. } => self.calls.push(call),
                Effect::SetWeights { .. } | Effect::WakeAt { .. } | Effect::Emit(_) | Effect::Finished => {}
            }
        }
    }
}
