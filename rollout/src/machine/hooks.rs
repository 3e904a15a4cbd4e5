//! Webhooks: when they are called, and the effect of their answers.

use crate::effect::{Event, EventKind};
use crate::spec::HookKind;
use crate::state::{Call, Cause, Gate, Purpose, Rollout, Stage};

impl Rollout {
    /// Calls all hooks of a kind.
    pub(crate) fn call_all(&mut self, kind: HookKind, purpose: &Purpose) {
        let hooks: Vec<usize> = self.spec.hooks(kind).collect();
        for hook in hooks {
            let id = self.next_id();
            let (at, phase) = (self.clock.total, self.phase());
            self.calls.push(Call {
                id,
                hook,
                purpose: purpose.clone(),
                n_failed: 0,
                at,
                is_out: true,
                phase,
            });
        }
    }

    pub(crate) fn call_gate(&mut self, gate: Gate) {
        let kind = match gate {
            Gate::Rollout => HookKind::ConfirmRollout,
            Gate::PreRollout => HookKind::PreRollout,
            Gate::TrafficIncrease => HookKind::ConfirmTrafficIncrease,
            Gate::Promotion => HookKind::ConfirmPromotion,
        };
        self.call_all(kind, &Purpose::Gate);
    }

    pub(crate) fn call_post_hooks(&mut self) {
        self.call_all(HookKind::PostRollout, &Purpose::Post);
    }

    pub(crate) fn call_event_hooks(&mut self, event: &Event) {
        self.call_all(HookKind::Event, &Purpose::Event(event.clone()));
        let is_event = |call: &Call| matches!(call.purpose, Purpose::Event(_));
        while self.calls.len() > MAX_CALLS {
            // A receiver that does not answer must not make the state grow.
            let Some(oldest) = self.calls.iter().position(is_event) else { break };
            self.calls.remove(oldest);
        }
    }

    pub(crate) fn has_gate_calls(&self) -> bool {
        self.calls.iter().any(|call| call.purpose == Purpose::Gate)
    }

    /// Gives up the calls whose answers no longer matter.
    pub(crate) fn drop_calls_of_stage(&mut self) {
        self.calls.retain(|call| matches!(call.purpose, Purpose::Post | Purpose::Event(_)));
        // The reason for the round is gone, so it reports nothing. Its measurement is repeated if there is still anything to
        // judge.
        self.restart_run();
    }

    /// Repeatedly calls the hooks that may ask for a rollback.
    pub(crate) fn look_at_rollback_hooks(&mut self) {
        let has_some = self.spec.hooks(HookKind::Rollback).next().is_some();
        let is_out = self.calls.iter().any(|call| call.purpose == Purpose::Rollback);
        if has_some && !is_out && self.clock.total >= self.rollback_due {
            self.rollback_due = self.clock.total.saturating_add(self.spec.interval.millis());
            self.call_all(HookKind::Rollback, &Purpose::Rollback);
        }
    }

    /// Repeats the calls that are due for a retry, and gives up those without an answer.
    pub(crate) fn look_at_calls(&mut self) {
        let total = self.clock.total;
        let mut silent = Vec::new();
        let mut last_id = self.last_id;
        for call in &mut self.calls {
            let timeout = self.spec.webhooks.get(call.hook).map_or(0, |hook| hook.timeout.millis());
            if !call.is_out && total >= call.at {
                last_id += 1;
                (call.id, call.is_out, call.at) = (last_id, true, total);
            } else if call.is_out && total >= call.at.saturating_add(timeout).saturating_add(CALL_GRACE_MS) {
                silent.push(call.id);
            }
        }
        self.last_id = last_id;
        for id in silent {
            self.handle_answer(id, Err("it did not answer in time".to_owned()));
        }
    }

    pub(crate) fn handle_answer(&mut self, id: u64, answer: Result<(), String>) {
        let Some(index) = self.calls.iter().position(|call| call.id == id && call.is_out) else { return };
        match answer {
            Ok(()) => {
                let call = self.calls.remove(index);
                self.handle_go(&call);
            }
            Err(reason) => self.handle_no(index, &reason),
        }
    }

    fn handle_go(&mut self, call: &Call) {
        match call.purpose {
            Purpose::Gate | Purpose::Post | Purpose::Event(_) => {}
            Purpose::Round => self.conclude_round(),
            Purpose::Rollback => {
                let name = self.hook_name(call.hook);
                self.abort(Cause::Itself, &format!("the webhook {name:?} asked for it"));
            }
        }
    }

    fn handle_no(&mut self, index: usize, reason: &str) {
        let (total, interval) = (self.clock.total, self.spec.interval.millis());
        let stage = self.stage;
        let Some(call) = self.calls.get_mut(index) else { return };
        call.n_failed = call.n_failed.saturating_add(1);
        let retries = self.spec.webhooks.get(call.hook).map_or(0, |hook| hook.retries);
        let is_given_up = call.n_failed > retries;
        call.is_out = false;
        call.at = total.saturating_add(RETRY_MS);
        if !is_given_up {
            return;
        }
        let (hook, purpose) = (call.hook, call.purpose.clone());
        let waits = purpose == Purpose::Gate && stage != Stage::Confirming(Gate::PreRollout);
        if waits {
            // "Not yet": asked again, for as long as it takes.
            call.n_failed = 0;
            call.at = total.saturating_add(interval);
        } else {
            self.calls.remove(index);
        }
        let said = format!("the webhook {:?} did not approve: {reason}", self.hook_name(hook));
        match purpose {
            Purpose::Gate if waits => {
                self.message = format!("waiting: {said}").chars().take(MAX_SAID_CHARS).collect();
            }
            Purpose::Gate => self.abort(Cause::Itself, &said),
            Purpose::Round => self.spoil_round(&said),
            Purpose::Post => self.emit(EventKind::Warning, &said),
            // For a rollback hook, "no" is good; and an event about an event would never end.
            Purpose::Rollback | Purpose::Event(_) => {}
        }
    }

    fn hook_name(&self, hook: usize) -> String {
        self.spec.webhooks.get(hook).map(|hook| hook.name.clone()).unwrap_or_default()
    }
}

/// How long after a call's own time limit its answer is given up.
const CALL_GRACE_MS: u64 = 5_000;
/// How long until a call that failed is repeated.
const RETRY_MS: u64 = 2_000;
/// The most calls at a time; beyond it, the oldest calls about events are given up.
const MAX_CALLS: usize = 100;
/// The longest message, because receivers can answer anything.
const MAX_SAID_CHARS: usize = 1_000;
