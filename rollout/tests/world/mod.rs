//! A driver, clients and a disk around a rollout, and what a rollout should do, told without its code.

use std::collections::BTreeMap;

use serde_json::Value;
use xds_rollout::{
    AckStatus, Counts, Effect, Input, Phase, Reading, Rollout, RolloutSpec, RolloutStatus, Traffic, Verb,
    Window,
};

use crate::properties::Happening;

/// A rollout with all that is around it.
pub(crate) struct World {
    document: Value,
    rollout: Rollout,
    /// As it was stored last; written and read when it is needed.
    disk: Rollout,
    now_ms: i64,
    /// The effects of the last input; a crash may lose them.
    fresh: Vec<Effect>,
    fresh_checked: usize,
    /// The weights that clients are served, and the change that set them.
    served: (u64, BTreeMap<String, u32>),
    /// Measurements and calls that are out.
    measurements: Vec<u64>,
    calls: Vec<u64>,
    model: Model,
}

/// A model of the right state, by what was seen from outside.
struct Model {
    phase: Phase,
    step: usize,
    /// Observed time in the step, in milliseconds.
    in_step_ms: i64,
    /// True if someone let the step be left early.
    is_excused: bool,
    /// True if all clients were seen to have ACKed the last change that was wanted.
    is_acked: bool,
    /// The same of the change before, if the last input wanted another.
    was_acked: Option<bool>,
    change: u64,
}

impl World {
    pub(crate) fn new(document: &Value, spec: RolloutSpec) -> Self {
        let weights = BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 0)]);
        let now_ms = 1_800_000_000_000;
        let (rollout, outcome) = match Rollout::start("r".to_owned(), spec, &weights, now_ms) {
            Ok(started) => started,
            Err(error) => panic!("{error}"),
        };
        let status = RolloutStatus::from(&rollout);
        let mut world = Self {
            document: document.clone(),
            disk: rollout.clone(),
            rollout,
            now_ms: now_ms.cast_signed(),
            fresh: vec![],
            fresh_checked: 0,
            served: (0, weights),
            measurements: vec![],
            calls: vec![],
            model: Model {
                phase: status.phase,
                step: status.step,
                in_step_ms: 0,
                is_excused: false,
                is_acked: false,
                was_acked: None,
                change: 0,
            },
        };
        world.take(outcome.effects);
        world
    }

    pub(crate) fn happens(&mut self, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Time(delta_ms) => {
                self.pass(*delta_ms, 60_000);
                self.give(Input::Tick)
            }
            Happening::Acks { acked, nacked } => self.acks(*acked, *nacked),
            Happening::Measured { which, bad, requests } => {
                if self.measurements.is_empty() {
                    return Ok(());
                }
                let measurement = self.measurements.remove(which % self.measurements.len());
                let failures = if *bad { *requests } else { 0 };
                let canary = Counts { requests: *requests, failures };
                let reading = reading(canary, Counts::default());
                self.give(Input::Measured { measurement, reading })
            }
            Happening::Called { which, goes } => {
                if self.calls.is_empty() {
                    return Ok(());
                }
                let call = self.calls.remove(which % self.calls.len());
                let answer = if *goes { Ok(()) } else { Err("no".to_owned()) };
                self.give(Input::Called { call, answer })
            }
            Happening::Verb(verb) => self.verb(*verb),
            Happening::Crash { after_ms, loses } => self.crash(*after_ms, *loses),
            Happening::Twice => {
                let again = self.fresh.clone();
                self.execute();
                self.fresh = again;
                self.execute();
                self.check()
            }
        }
    }

    /// Everything goes well from here on; so it ends.
    pub(crate) fn go_well(&mut self) -> Result<(), String> {
        for _ in 0..3_000 {
            if self.model.phase.is_terminal() {
                return Ok(());
            }
            self.execute();
            self.acks(3, 0)?;
            for measurement in std::mem::take(&mut self.measurements) {
                let counts = Counts { requests: 1_000, failures: 0 };
                let reading = reading(counts, counts);
                self.give(Input::Measured { measurement, reading })?;
            }
            for call in std::mem::take(&mut self.calls) {
                self.give(Input::Called { call, answer: Ok(()) })?;
            }
            if self.model.phase == Phase::Paused {
                self.verb(Verb::Resume)?;
            }
            self.pass(20_000, 60_000);
            self.give(Input::Tick)?;
        }
        Err(format!("P6: it does not end: {:?}", RolloutStatus::from(&self.rollout)))
    }

    /// Aborts, unless it has succeeded; then stable has everything.
    pub(crate) fn abort(&mut self) -> Result<(), String> {
        if self.model.phase == Phase::Succeeded {
            return Ok(());
        }
        self.verb(Verb::Abort)?;
        self.crash(1_000, true)?;
        self.go_well()?;
        let ended = matches!(self.model.phase, Phase::Aborted | Phase::Failed);
        if !ended || self.served.1.get("b") != Some(&0) || self.served.1.get("a") != Some(&100) {
            return Err(format!("P3: it ended as {:?} and serves {:?}", self.model.phase, self.served));
        }
        Ok(())
    }

    fn verb(&mut self, verb: Verb) -> Result<(), String> {
        let expected = is_legal(self.model.phase, verb);
        let before = self.rollout.clone();
        // A verb's excuses for leaving a step early are known before it is given.
        let excuses = matches!(verb, Verb::Resume | Verb::Promote | Verb::PromoteFull);
        self.model.is_excused |= excuses && expected;
        if verb == Verb::Retry && expected {
            self.model.step = 1;
            self.model.phase = Phase::Pending;
            self.model.is_excused = true;
        }
        let result = self.rollout.handle(Input::Verb(verb), self.now_ms.cast_unsigned());
        match result {
            Ok(_) if !expected => Err(format!("P1: {verb:?} was taken in {:?}", self.model.phase)),
            Err(error) if expected => Err(format!("P1: {error}, though it is legal")),
            Err(_) if self.rollout != before => Err("P1: a refused verb changed something".to_owned()),
            Err(_) => Ok(()),
            Ok(outcome) => {
                self.store(outcome.is_changed);
                let aborted = verb == Verb::Abort
                    && !matches!(before.phase(), Phase::Aborting | Phase::Aborted | Phase::Failed);
                let n_set =
                    outcome.effects.iter().filter(|one| matches!(one, Effect::SetWeights { .. })).count();
                if aborted && n_set != 1 {
                    return Err(format!("P3: an abort set the weights {n_set} times"));
                }
                self.take(outcome.effects);
                self.check()
            }
        }
    }

    fn acks(&mut self, acked: u64, nacked: u64) -> Result<(), String> {
        self.execute();
        let (of, n_nacked) = (3, nacked.min(3));
        let acked = acked.min(of - n_nacked);
        let change = self.served.0;
        self.model.is_acked |= acked == of && change == self.model.change;
        self.give(Input::Acks(AckStatus { change, of, acked, n_nacked, ..AckStatus::default() }))
    }

    fn crash(&mut self, after_ms: i64, loses: bool) -> Result<(), String> {
        if !loses {
            self.execute();
        }
        self.forget();
        self.measurements.clear();
        self.calls.clear();
        let text = serde_json::to_string(&self.disk).map_err(|error| error.to_string())?;
        let restored: Rollout =
            serde_json::from_str(&text).map_err(|error| format!("P7: {error}: {text}"))?;
        if restored != self.disk {
            return Err(format!("P7: what was read is not what was written: {text}"));
        }
        self.rollout = restored;
        self.pass(after_ms, i64::MAX);
        self.give(Input::Restarted)?;
        self.execute();
        let owns = self.rollout.owns_rule();
        if owns && self.served.0 != self.model.change {
            return Err("P7: a change that was lost was not asked for again".to_owned());
        }
        Ok(())
    }

    fn pass(&mut self, delta_ms: i64, most_ms: i64) {
        self.now_ms += delta_ms;
        self.model.in_step_ms += delta_ms.clamp(0, most_ms);
    }

    fn give(&mut self, input: Input) -> Result<(), String> {
        match self.rollout.handle(input, self.now_ms.cast_unsigned()) {
            Ok(outcome) => {
                self.store(outcome.is_changed);
                self.take(outcome.effects);
                self.check()
            }
            Err(error) => Err(format!("P1: {error}")),
        }
    }

    fn store(&mut self, is_changed: bool) {
        if is_changed {
            self.disk.clone_from(&self.rollout);
        }
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::SetWeights { change, .. } if change != self.model.change => {
                    self.model.change = change;
                    self.model.was_acked = Some(self.model.is_acked);
                    self.model.is_acked = false;
                    self.fresh.push(effect);
                }
                other => self.fresh.push(other),
            }
        }
    }

    fn execute(&mut self) {
        for effect in &self.fresh {
            match effect {
                Effect::SetWeights { change, weights, .. } => self.served = (*change, weights.clone()),
                Effect::Measure { measurement, .. } if !self.measurements.contains(measurement) => {
                    self.measurements.push(*measurement);
                }
                Effect::CallWebhook { call, .. } if !self.calls.contains(call) => self.calls.push(*call),
                _ => {}
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.fresh.clear();
        self.fresh_checked = 0;
    }

    /// P1 to P5, after every input.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let status = RolloutStatus::from(&self.rollout);
        if !may_follow(self.model.phase, status.phase) {
            return Err(format!("P1: {:?} follows {:?}", status.phase, self.model.phase));
        }
        for effect in self.fresh.iter().skip(self.fresh_checked) {
            let Effect::SetWeights { weights, .. } = effect else { continue };
            let (stable, canary) = (weights.get("a").copied(), weights.get("b").copied());
            let planned = canary.is_some_and(|canary| self.plan().contains(&canary));
            if !planned || stable.zip(canary).map(|(a, b)| a + b) != Some(100) {
                return Err(format!("P2: {weights:?} is not of the plan"));
            }
        }
        if status.step > self.model.step {
            self.check_left(&status)?;
        }
        if status.step != self.model.step || self.model.phase.is_terminal() {
            self.model.in_step_ms = 0;
            self.model.is_excused = false;
        }
        if status.phase == Phase::Succeeded && self.served.1.get("b") != Some(&100) {
            return Err(format!("P2: it succeeded and serves {:?}", self.served));
        }
        (self.model.phase, self.model.step) = (status.phase, status.step);
        self.model.was_acked = None;
        self.fresh_checked = self.fresh.len();
        Ok(())
    }

    /// Returns `true` if the step could be left.
    fn check_left(&self, status: &RolloutStatus) -> Result<(), String> {
        if self.model.is_excused {
            return Ok(());
        }
        let Some(left) = self.step(self.model.step) else { return Ok(()) };
        if let Some(seconds) = left["pause"]["duration"].as_i64()
            && self.model.in_step_ms < seconds * 1_000
        {
            return Err(format!("P4: a pause of {seconds} s took {} ms", self.model.in_step_ms));
        }
        let is_forever = left["pause"].is_object() && left["pause"]["duration"].is_null();
        if is_forever {
            return Err("P4: a pause without end has ended".to_owned());
        }
        // The next step may want another change already; the ACKs that count are those of the one before.
        let was_acked = self.model.was_acked.unwrap_or(self.model.is_acked);
        if let Some(passed) = (self.model.step + 1..status.step).find(|step| !self.waits_for_acks_only(*step))
        {
            return Err(format!("P5: step {passed} was passed over"));
        }
        if left["setWeight"].is_number() && !was_acked {
            return Err(format!("P5: step {} was left without ACKs for {}", self.model.step, status.step));
        }
        Ok(())
    }

    fn waits_for_acks_only(&self, step: usize) -> bool {
        self.step(step).is_some_and(|step| step["setWeight"].is_null() && !step["waitAck"].is_null())
    }

    fn step(&self, number: usize) -> Option<&Value> {
        let index = number.checked_sub(1)?;
        let list = |name: &str| self.document[name].as_array().cloned().unwrap_or_default().len();
        let n_steps = list("steps");
        let (name, index) =
            if index < n_steps { ("steps", index) } else { ("promotionSteps", index - n_steps) };
        self.document[name].get(index)
    }

    fn plan(&self) -> Vec<u32> {
        let steps = ["steps", "promotionSteps"].map(|name| self.document[name].as_array().cloned());
        let steps = steps.into_iter().flatten().flatten();
        let weights = steps.filter_map(|step| u32::try_from(step["setWeight"].as_u64()?).ok());
        [0, 100].into_iter().chain(weights).collect()
    }
}

/// A measurement of which the last part is like the whole.
pub(crate) fn reading(canary: Counts, stable: Counts) -> Reading {
    let [canary, stable] = [canary, stable].map(|counts| Traffic { counts, ..Traffic::default() });
    Reading { windows: vec![Window { canary, stable, ..Window::default() }; 2], ..Reading::default() }
}

/// The table of verbs.
fn is_legal(phase: Phase, verb: Verb) -> bool {
    use Phase::{Aborted, Aborting, Failed, Succeeded};
    match verb {
        Verb::Pause | Verb::Resume => !matches!(phase, Succeeded | Aborting | Aborted | Failed),
        Verb::Promote | Verb::PromoteFull => !matches!(phase, Aborting | Aborted | Failed),
        Verb::Abort => phase != Succeeded,
        Verb::Retry => matches!(phase, Aborted | Failed),
    }
}

/// The table of phases: what may follow by one input that is not a retry.
fn may_follow(before: Phase, after: Phase) -> bool {
    use Phase::{Aborted, Aborting, Failed, Succeeded};
    match before {
        Succeeded | Aborted | Failed => before == after,
        Aborting => matches!(after, Aborting | Aborted | Failed),
        _ => true,
    }
}
