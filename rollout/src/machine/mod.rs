//! How a rollout moves: inputs change the state, and the wanted effects follow from the state.
//!
//! [`Rollout::handle`] lets time pass, takes the input, handles what is due, and enters the next stages as long as a stage is done and
//! nothing holds it back. Its effects are the difference between what the old state wants and what the new one wants. After a restart,
//! they are everything that the state wants. So an effect that a crash lost comes again.

mod analysis;
mod hooks;
mod stages;
mod taken;
mod verbs;
mod wanted;

use std::collections::{BTreeMap, VecDeque};

use crate::distribution::{Distribution, DistributionError};
use crate::effect::{AckStatus, Effect, Event, EventKind, Input};
use crate::spec::{AckTimeout, Policy, RolloutSpec};
use crate::state::{Acks, Cause, Clock, Gate, Hold, MAX_EVENTS, Purpose, Rollout, Run, Stage};
use xds_units::Percent;

pub use verbs::IllegalTransition;

/// The outcome of an input.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// True if the state must be made durable before the effects are done. Otherwise only time has passed, or more clients have
    /// ACKed, which is counted again after a restart.
    pub is_changed: bool,
    /// The effects to carry out, in this order.
    pub effects: Vec<Effect>,
}

impl Rollout {
    /// Begins a rollout on a rule with these weights, by backend; the first change gives everything to stable.
    ///
    /// # Errors
    ///
    /// If the weights of the rule cannot be moved as the rollout wants.
    pub fn start(
        id: String,
        spec: RolloutSpec,
        weights: &BTreeMap<String, u32>,
        now_ms: u64,
    ) -> Result<(Self, Outcome), DistributionError> {
        let base = Distribution::try_new(weights, &spec)?;
        let mut rollout = Self {
            id,
            spec,
            base,
            step: 0,
            stage: Stage::Confirming(Gate::Rollout),
            hold: None,
            is_skipped: false,
            canary: Percent::NONE,
            header_routes: BTreeMap::new(),
            change: 0,
            acks: Acks::default(),
            clock: Clock { wall_ms: now_ms, total: 0 },
            stage_began: 0,
            since_ms: now_ms,
            run: None,
            began_ms: now_ms,
            no_endpoint: None,
            n_looks: 0,
            n_measured: 0,
            n_failed: 0,
            calls: vec![],
            rollback_due: 0,
            last_id: 0,
            cause: None,
            reason: None,
            figures: None,
            message: String::new(),
            events: VecDeque::new(),
            n_events: 0,
        };
        rollout.begin("started");
        rollout.go_on();
        let effects = rollout.effects_since(None, 0);
        Ok((rollout, Outcome { is_changed: true, effects }))
    }

    /// Handles an input at a time, in milliseconds since 1970.
    ///
    /// A late or unknown input (an ACK of an earlier change, an answer to a call that was given up) does nothing.
    ///
    /// # Errors
    ///
    /// If a verb does not fit the phase; nothing has changed then.
    pub fn handle(&mut self, input: Input, now_ms: u64) -> Result<Outcome, IllegalTransition> {
        if let Input::Verb(verb) = input {
            self.check(verb)?;
        }
        let before = self.clone();
        let is_restart = input == Input::Restarted;
        let jumped = if is_restart {
            self.clock.advance_after_restart(now_ms);
            false
        } else {
            self.clock.advance(now_ms)
        };
        if let Some(run) = &mut self.run {
            // A report cannot cover a time in the future.
            run.window_ms = run.window_ms.min(now_ms);
        }
        match input {
            Input::Verb(verb) => self.handle_verb(verb),
            Input::Acks(status) => self.handle_acks(&status),
            Input::Measured { measurement, reading } => self.handle_reading(measurement, &reading),
            Input::Called { call, answer } => self.handle_answer(call, answer),
            Input::NoEndpoint(why) => self.no_endpoint = why,
            Input::RuleChanged(weights) => self.handle_rule(weights.as_ref()),
            Input::RuleTaken if self.owns_rule() => self.end_taken(),
            Input::RuleTaken => {}
            Input::Refused(why)
                if self.owns_rule() && self.stage != Stage::Aborting && self.hold.is_none() =>
            {
                self.hold(Hold::Refused, &why);
            }
            Input::Refused(_) | Input::Tick => {}
            Input::Restarted => self.handle_restart(),
        }
        self.look_at_endpoints();
        self.look_at_timers();
        self.go_on();
        let effects = self.effects_since((!is_restart).then_some(&before), before.n_events);
        let is_changed = jumped || is_restart || self.differs(before);
        Ok(Outcome { is_changed, effects })
    }

    /// Returns `true` if something has changed that a restart would not find out.
    ///
    /// Each such change is a revision, so waiting must not be one: a gate that is called every minute, an analysis in the
    /// background.
    fn differs(&self, before: Self) -> bool {
        before.without_what_begins_anew() != self.clone().without_what_begins_anew()
    }

    /// The state without the parts that only time changes, or that are requested and counted again after a restart.
    fn without_what_begins_anew(mut self) -> Self {
        self.clock = Clock { wall_ms: 0, total: 0 };
        self.acks = self.acks.anew();
        (self.last_id, self.rollback_due, self.figures) = (0, 0, None);
        (self.no_endpoint, self.n_looks, self.n_measured) = (None, 0, 0);
        self.calls.retain(|call| !matches!(call.purpose, Purpose::Round | Purpose::Rollback));
        for call in &mut self.calls {
            (call.id, call.at, call.is_out, call.n_failed) = (0, 0, false, 0);
        }
        if let Some(run) = &mut self.run {
            let n_good = if run.is_step { run.n_good } else { 0 };
            *run = Run { n_good, ..Run::new(run.is_step) };
        }
        self
    }

    fn handle_acks(&mut self, status: &AckStatus) {
        if status.change != self.change || !self.owns_rule() {
            return;
        }
        let wall_ms = self.clock.wall_ms;
        let acks = &mut self.acks;
        let (had, had_gone) = (acks.n_nacked, acks.n_gone);
        acks.is_known = true;
        (acks.of, acks.n_gone) = (status.of, status.n_gone);
        acks.n_nacked = status.n_nacked.min(status.of);
        acks.n = status.acked.min(status.of - acks.n_nacked);
        // A client that recovered and rejects again is news.
        acks.n_forgiven = acks.n_forgiven.min(acks.n_nacked);
        acks.n_gone_forgiven = acks.n_gone_forgiven.min(acks.n_gone);
        // Those that go, or hold on to older routes, may still report requests that they divide as before.
        let n_dividing = acks.n.saturating_add(status.n_behind);
        let is_by_all = acks.of > 0 && n_dividing == acks.of && acks.n_gone == 0 && status.n_failing == 0;
        acks.by_all_since_ms = is_by_all.then(|| acks.by_all_since_ms.unwrap_or(wall_ms));
        let (n_nacked, n_gone) = (acks.n_nacked, acks.n_gone);
        if n_nacked > self.n_tolerated() && (n_nacked > had || self.hold.is_none()) {
            let who = status.nacked.first();
            let who = who.map_or_else(String::new, |(node, message)| format!("; {node}: {message}"));
            let said = format!("{n_nacked} of {} clients rejected the change{who}", status.of);
            match (self.stage, self.spec.on_nack) {
                (Stage::Aborting | Stage::Ended(_), _) => {}
                (_, Policy::Abort) => self.abort(Cause::Itself, &said),
                (_, Policy::Pause) => self.hold(Hold::Nacked, &said),
            }
        }
        let is_on_its_way = self.owns_rule() && self.stage != Stage::Aborting;
        if is_on_its_way && n_gone > self.n_gone_tolerated() && (n_gone > had_gone || self.hold.is_none()) {
            let n_all = n_gone.saturating_add(status.of);
            self.hold(Hold::Gone, &format!("{n_gone} of {n_all} clients have gone since the change"));
        }
    }

    /// A canary that has traffic and, by what is served, no endpoint that takes it fails all of that: it is given up at once.
    fn look_at_endpoints(&mut self) {
        if self.canary > Percent::NONE && self.owns_rule() {
            self.abort_without_endpoint();
        }
    }

    /// Aborts if no request to the canary can succeed.
    pub(crate) fn abort_without_endpoint(&mut self) -> bool {
        let why = self.no_endpoint.clone();
        if let Some(why) = &why {
            self.abort(Cause::Itself, why);
        }
        why.is_some()
    }

    /// Files or people have changed the weights of the rule, or the rule is gone.
    fn handle_rule(&mut self, weights: Option<&BTreeMap<String, u32>>) {
        if !self.owns_rule() {
            return;
        }
        let base = weights.map(|weights| Distribution::try_new(weights, &self.spec));
        match base {
            Some(Ok(base)) if base == self.base => {}
            Some(Ok(base)) => {
                self.base = base;
                self.renew_change();
            }
            // Without the stable backend there is no way back: the rest of the rule is served.
            None => self.end_without_rule("the rule no longer exists"),
            Some(Err(error)) if weights.is_some_and(|weights| !weights.contains_key(&self.spec.stable)) => {
                self.end_without_rule(&error.to_string());
            }
            Some(Err(error)) => {
                let others = weights.cloned().unwrap_or_default();
                self.base.replace_others(&others, &self.spec);
                self.renew_change();
                self.abort(Cause::Itself, &error.to_string());
            }
        }
    }

    /// Activities that exist only in memory start again: load reports, ACKs, calls.
    fn handle_restart(&mut self) {
        let not_before = self.clock.total.saturating_add(RESTART_GRACE_MS);
        self.acks = Acks { not_before, ..self.acks.anew() };
        self.no_endpoint = None;
        self.restart_run();
        for call in self.calls.iter_mut().filter(|call| call.is_out) {
            call.at = self.clock.total;
        }
    }

    fn look_at_timers(&mut self) {
        self.look_at_calls();
        if !self.owns_rule() || self.stage == Stage::Aborting {
            return;
        }
        if let Some(deadline) = self.spec.deadline.filter(|deadline| self.clock.total >= deadline.millis()) {
            self.abort(Cause::Itself, &format!("it has taken longer than its deadline of {deadline}"));
            return;
        }
        self.look_at_rollback_hooks();
        self.look_at_run();
        let Stage::Applying(timeout) = self.stage else { return };
        let is_late = self.stage_elapsed() >= timeout.millis() && !self.is_verified();
        if !is_late || self.is_skipped || self.hold.is_some() || self.clock.total < self.acks.not_before {
            return;
        }
        let said = match self.acks.of {
            0 => {
                format!("no client that uses the rule was connected within {timeout}, so nobody has the step")
            }
            of => format!("{} of {of} clients have ACKed within {timeout}", self.acks.n),
        };
        match self.spec.on_ack_timeout {
            AckTimeout::Abort => self.abort(Cause::Itself, &said),
            AckTimeout::Continue if self.acks.n == 0 => self.hold(Hold::AckTimeout, &said),
            AckTimeout::Pause => self.hold(Hold::AckTimeout, &said),
            AckTimeout::Continue => {
                self.is_skipped = true;
                self.emit(EventKind::Warning, &format!("continuing: {said}"));
            }
        }
    }

    pub(crate) fn hold(&mut self, hold: Hold, said: &str) {
        self.hold = Some(hold);
        self.since_ms = self.clock.wall_ms;
        let kind = match hold {
            Hold::Operator | Hold::Promotion => EventKind::Normal,
            Hold::Nacked | Hold::AckTimeout | Hold::Inconclusive | Hold::Refused | Hold::Gone => {
                EventKind::Warning
            }
        };
        self.emit(kind, &format!("paused: {said}"));
    }

    /// Keeps an event, and calls the hooks that want it.
    pub(crate) fn emit(&mut self, kind: EventKind, message: &str) {
        self.n_events += 1;
        let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
        self.message.clone_from(&message);
        let (number, at_ms, canary) = (self.n_events, self.clock.wall_ms, self.canary);
        let event = Event { number, at_ms, kind, phase: self.phase(), canary, message };
        self.call_event_hooks(&event);
        self.events.push_back(event);
        while self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }

    pub(crate) fn stage_elapsed(&self) -> u64 {
        self.clock.total.saturating_sub(self.stage_began)
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// How long after a restart no ACK counts as the last one: clients come back within seconds, and until then none is missing.
pub const RESTART_GRACE_MS: u64 = 10_000;
/// The longest message of an event, because clients can write anything into it.
const MAX_MESSAGE_CHARS: usize = 1_000;
