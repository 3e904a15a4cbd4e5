//! A rollout that is told step by step: what happens to it, and what it wants and is then.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use xds_rollout::{
    AckStatus, Counts, Effect, Input, Outcome, Phase, Reading, Rollout, RolloutSpec, RolloutStatus, Traffic,
    Verb, Window,
};

/// A rollout with a clock and what it said last.
pub(crate) struct Story {
    pub(crate) rollout: Rollout,
    pub(crate) now_ms: u64,
    pub(crate) effects: Vec<Effect>,
}

impl Story {
    pub(crate) fn new(fields: Value) -> Self {
        Self::on(&[("v1:80", 100), ("v2:80", 0)], fields)
    }

    pub(crate) fn on(weights: &[(&str, u32)], fields: Value) -> Self {
        let weights = weights_of(weights);
        let (rollout, outcome) =
            Rollout::start("r".to_owned(), spec(fields), &weights, START_MS).expect("it starts");
        assert!(outcome.is_changed);
        Self { rollout, now_ms: START_MS, effects: outcome.effects }
    }

    pub(crate) fn give(&mut self, input: Input) -> &mut Self {
        self.outcome(input);
        self
    }

    pub(crate) fn outcome(&mut self, input: Input) -> Outcome {
        let outcome = self.rollout.handle(input, self.now_ms).expect("legal");
        self.effects.clone_from(&outcome.effects);
        outcome
    }

    pub(crate) fn verb(&mut self, verb: Verb) -> &mut Self {
        self.give(Input::Verb(verb))
    }

    /// Lets time go by in ticks, as a driver does.
    pub(crate) fn wait(&mut self, seconds: u64) -> &mut Self {
        let end = self.now_ms + seconds * 1_000;
        let mut effects = vec![];
        while self.now_ms < end {
            self.now_ms = end.min(self.now_ms + 30_000);
            effects.extend(self.outcome(Input::Tick).effects);
        }
        self.effects = effects;
        self
    }

    pub(crate) fn acks(&mut self, acked: u64, of: u64, n_nacked: u64) -> &mut Self {
        let change = self.change();
        let nacked = vec![("node-1".to_owned(), "no".to_owned()); usize::try_from(n_nacked).expect("few")];
        self.give(Input::Acks(AckStatus { change, of, acked, nacked, n_nacked, ..AckStatus::default() }))
    }

    pub(crate) fn acked(&mut self) -> &mut Self {
        self.acks(3, 3, 0)
    }

    /// The number of the last change, from all that is wanted.
    pub(crate) fn change(&self) -> u64 {
        let restarted = self.rollout.clone().handle(Input::Restarted, self.now_ms).expect("never refused");
        let change = restarted.effects.iter().find_map(|effect| match effect {
            Effect::AwaitAck { change } => Some(*change),
            _ => None,
        });
        change.unwrap_or_default()
    }

    /// Answers the measurement that goes on.
    pub(crate) fn measured(&mut self, canary: (u64, u64), stable: (u64, u64)) -> &mut Self {
        let measurement = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Measure { measurement, .. } => Some(*measurement),
            _ => None,
        });
        let counts = |(requests, failures)| Counts { requests, failures };
        let reading = reading(counts(canary), counts(stable));
        let measurement = measurement.expect("a measurement is wanted");
        self.give(Input::Measured { measurement, reading })
    }

    pub(crate) fn calls(&self) -> Vec<(u64, String)> {
        let calls = self.effects.iter().filter_map(|effect| match effect {
            Effect::CallWebhook { call, url, .. } => Some((*call, url.clone())),
            _ => None,
        });
        calls.collect()
    }

    /// The weights set by the last input, in the order of the backends.
    pub(crate) fn set(&self) -> Vec<Vec<u32>> {
        let set = self.effects.iter().filter_map(|effect| match effect {
            Effect::SetWeights { weights, .. } => Some(weights.values().copied().collect()),
            _ => None,
        });
        set.collect()
    }

    pub(crate) fn is(&self, phase: Phase, step: usize) -> &Self {
        let status = RolloutStatus::from(&self.rollout);
        assert_eq!((status.phase, status.step), (phase, step), "{}", status.message);
        self
    }
}

/// A measurement of which the last part is like the whole.
pub(crate) fn reading(canary: Counts, stable: Counts) -> Reading {
    let [canary, stable] = [canary, stable].map(|counts| Traffic { counts, ..Traffic::default() });
    Reading { windows: vec![Window { canary, stable, ..Window::default() }; 2], ..Reading::default() }
}

pub(crate) fn spec(fields: Value) -> RolloutSpec {
    let mut value = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "greeter"},
        "stable": "v1:80", "canary": "v2:80",
        "steps": [{"setWeight": 5}, {"pause": {}}, {"setWeight": 50}],
    });
    for (name, field) in fields.as_object().expect("an object") {
        value[name] = field.clone();
    }
    RolloutSpec::try_from(value).expect("valid")
}

pub(crate) fn weights_of(weights: &[(&str, u32)]) -> BTreeMap<String, u32> {
    weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
}

pub(crate) const START_MS: u64 = 1_795_177_244_123;
