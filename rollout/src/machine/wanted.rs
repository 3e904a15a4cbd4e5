//! The effects that a state wants.

use crate::effect::{Effect, HookPayload};
use crate::spec::HookKind;
use crate::state::{Call, MAX_WAKE_MS, Purpose, Rollout, Stage};

impl Rollout {
    /// Everything that the state wants, in the order in which it is to be done. Some of it may be in progress already.
    pub(crate) fn wanted(&self) -> Vec<Effect> {
        let mut wanted = Vec::new();
        // After the end, the rollout no longer owns the weights.
        if self.owns_rule() {
            wanted.push(Effect::SetWeights {
                change: self.change,
                weights: self.base.weights(&self.spec, self.canary),
                header_routes: self.header_routes.clone(),
            });
            wanted.push(Effect::AwaitAck { change: self.change });
        }
        if let Some(run) = &self.run {
            let prometheus = self.analysis().and_then(|analysis| analysis.prometheus.clone());
            let since_ms = run.window_ms;
            let due =
                run.measurement.map(|measurement| Effect::Measure { measurement, since_ms, prometheus });
            let early =
                run.look.map(|measurement| Effect::Measure { measurement, since_ms, prometheus: None });
            wanted.extend(early.into_iter().chain(due));
        }
        let calls = self.calls.iter().filter(|call| call.is_out);
        wanted.extend(calls.filter_map(|call| self.call_effect(call)));
        wanted
    }

    /// The effects wanted beyond those of `before`, and the events after number `told`.
    pub(crate) fn effects_since(&self, before: Option<&Self>, told: u64) -> Vec<Effect> {
        let known = before.map(Self::wanted).unwrap_or_default();
        let mut effects: Vec<Effect> =
            self.wanted().into_iter().filter(|effect| !known.contains(effect)).collect();
        effects.extend(self.events.iter().filter(|event| event.number > told).cloned().map(Effect::Emit));
        if self.is_finished() {
            if before.is_none_or(|before| !before.is_finished()) {
                effects.push(Effect::Finished);
            }
            return effects;
        }
        let in_ms = self.next_due().saturating_sub(self.clock.total).clamp(1, MAX_WAKE_MS);
        effects.push(Effect::WakeAt { at_ms: self.clock.wall_ms.saturating_add(in_ms) });
        effects
    }

    /// The total time at which something is due next.
    fn next_due(&self) -> u64 {
        let after_stage = |millis: u64| Some(self.stage_began.saturating_add(millis));
        let stage = match self.stage {
            Stage::Pausing(Some(duration)) => after_stage(duration.millis()),
            Stage::Applying(timeout) => after_stage(timeout.millis()),
            Stage::Aborting => after_stage(crate::machine::stages::ABORT_ACK_MS),
            Stage::Pausing(None) | Stage::Confirming(_) | Stage::Analysing(_) | Stage::Ended(_) => None,
        };
        // A time that is past, with its work not done, waits for something other than time.
        let later = |due: &u64| *due > self.clock.total;
        let run = self.run.as_ref().filter(|run| run.measurement.is_none());
        let run = run.map(|run| run.due.min(run.look_due));
        let deadline = self.spec.deadline.map(|deadline| deadline.millis());
        let calls = self.calls.iter().filter(|call| !call.is_out).map(|call| call.at);
        let rollback = self.spec.hooks(HookKind::Rollback).next().map(|_| self.rollback_due);
        let others = [stage, run, deadline, rollback, Some(self.acks.not_before)].into_iter().flatten();
        let due = calls.chain(others).filter(later).min();
        due.unwrap_or(u64::MAX)
    }

    fn call_effect(&self, call: &Call) -> Option<Effect> {
        let hook = self.spec.webhooks.get(call.hook)?;
        let mut metadata = hook.metadata.clone();
        if let Purpose::Event(event) = &call.purpose {
            metadata.insert("eventMessage".to_owned(), event.message.clone());
            metadata.insert("eventType".to_owned(), format!("{:?}", event.kind));
            metadata.insert("timestamp".to_owned(), event.at_ms.to_string());
        }
        let payload = HookPayload {
            name: self.spec.route.name.clone(),
            namespace: self.spec.route.namespace.clone(),
            phase: call.phase,
            checksum: self.spec.checksum(),
            metadata,
        };
        Some(Effect::CallWebhook { call: call.id, url: hook.url.clone(), timeout: hook.timeout, payload })
    }
}
