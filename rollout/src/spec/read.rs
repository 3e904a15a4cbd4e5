//! Reads a rollout from JSON, with all of its faults.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fields::{At, Faults, Object};
use crate::spec::analysis::{Analysis, MIN_INTERVAL};
use crate::spec::hook::Hook;
use crate::spec::short::{self, Expansion};
use crate::spec::step::Step;
use crate::spec::{AckTimeout, MAX_HOOKS, MAX_STEPS, Policy, RolloutSpec, RuleKey, SpecError};
use xds_units::{Percent, Span};

impl TryFrom<Value> for RolloutSpec {
    type Error = SpecError;

    fn try_from(value: Value) -> Result<Self, SpecError> {
        Self::try_from(&value)
    }
}

impl TryFrom<&Value> for RolloutSpec {
    type Error = SpecError;

    /// Reads a rollout in its long or its short form.
    fn try_from(value: &Value) -> Result<Self, SpecError> {
        let mut faults = Faults::default();
        let spec = read(&At { value, pointer: String::new() }, &mut faults);
        match spec {
            Some(spec) if faults.0.is_empty() => Ok(spec),
            Some(_) | None => Err(SpecError { faults: faults.0 }),
        }
    }
}

fn read(at: &At<'_>, faults: &mut Faults) -> Option<RolloutSpec> {
    let mut fields = at.object(faults)?;
    let route = fields.need("route", faults).and_then(|at| read_route(&at, faults));
    let stable = fields.need("stable", faults).and_then(|at| at.text(MAX_BACKEND_BYTES, faults));
    let canary = fields.need("canary", faults).and_then(|at| at.text(MAX_BACKEND_BYTES, faults));
    if stable.is_some() && stable == canary {
        faults.add("/canary", "the canary must be a backend other than the stable one");
    }
    let analysis = fields.take("analysis").and_then(|at| Analysis::read(&at, &Analysis::default(), faults));
    let Expansion { steps, promotion_steps } = read_steps(&mut fields, analysis.as_ref(), faults);
    let is_short = short::MARKS.iter().any(|mark| fields.has(mark));
    check_header_routes(route.as_ref(), &steps, faults);
    let max_weight = fields.take("maxWeight").and_then(|at| at.percent(&mut Faults::default()));
    // In the short form the last step may go beyond it, as Flagger's does.
    let largest = steps.iter().filter_map(weight_of).max().unwrap_or_default();
    let max_weight = if is_short { largest } else { max_weight.unwrap_or(Percent::ALL) };
    let auto_promote = fields.take("autoPromote").and_then(|at| at.truth(faults));
    let on_nack = fields.take("onNack").and_then(|at| at.choice(&POLICIES, faults));
    let on_inconclusive = fields.take("onInconclusive").and_then(|at| at.choice(&POLICIES, faults));
    let nack_tolerance = fields.take("nackTolerance").and_then(|at| at.percent(faults));
    let wait_ack = fields.take("waitAck").and_then(|at| at.span(Span::from_millis(1), faults));
    let on_ack_timeout = fields.take("onAckTimeout").and_then(|at| at.choice(&TIMEOUTS, faults));
    let deadline = fields.take("deadline").map(|at| at.span(MIN_INTERVAL, faults));
    let interval = fields.take("interval").and_then(|at| at.span(MIN_INTERVAL, faults));
    let webhooks = fields.take("webhooks").map(|at| read_hooks(&at, faults)).unwrap_or_default();
    fields.finish(faults);
    Some(RolloutSpec {
        route: route?,
        stable: stable?.to_owned(),
        canary: canary?.to_owned(),
        steps,
        promotion_steps,
        auto_promote: auto_promote.unwrap_or(true),
        max_weight,
        on_nack: on_nack.unwrap_or(Policy::Pause),
        nack_tolerance: nack_tolerance.unwrap_or(Percent::NONE),
        wait_ack: wait_ack.unwrap_or(DEFAULT_WAIT_ACK),
        on_ack_timeout: on_ack_timeout.unwrap_or(AckTimeout::Pause),
        deadline: deadline.flatten(),
        interval: interval.unwrap_or(DEFAULT_INTERVAL),
        analysis,
        on_inconclusive: on_inconclusive.unwrap_or(Policy::Pause),
        webhooks,
    })
}

fn read_route(at: &At<'_>, faults: &mut Faults) -> Option<RuleKey> {
    let mut fields = at.object(faults)?;
    let mut text = |name| {
        let text = fields.need(name, faults).and_then(|at| at.text(MAX_BACKEND_BYTES, faults));
        text.map(str::to_owned)
    };
    let (kind, namespace, name) = (text("kind"), text("namespace"), text("name"));
    let rule = match fields.take("rule") {
        // The first rule is the only one of most routes.
        None => Some("0".to_owned()),
        Some(at) if at.value.is_u64() => Some(at.value.to_string()),
        Some(at) => at.text(MAX_BACKEND_BYTES, faults).map(str::to_owned),
    };
    fields.finish(faults);
    Some(RuleKey { kind: kind?, namespace: namespace?, name: name?, rule: rule? })
}

fn read_steps(fields: &mut Object<'_>, analysis: Option<&Analysis>, faults: &mut Faults) -> Expansion {
    let defaults = analysis.cloned().unwrap_or_default();
    if let Some(mark) = short::MARKS.iter().find(|mark| fields.has(mark)) {
        if let Some(at) = fields.take("steps") {
            faults.add(&at.pointer, format!("{mark} replaces the steps; write one or the other"));
        }
        return short::read(fields, &defaults, faults);
    }
    let Some(at) = fields.take("steps") else {
        faults.add(fields.pointer(), "the field \"steps\" is missing; stepWeight can replace it");
        return Expansion::default();
    };
    let items = at.list(MAX_STEPS, faults);
    if items.is_empty() && at.value.is_array() {
        faults.add(&at.pointer, "a rollout needs at least one step");
    }
    let steps: Vec<Step> = items.iter().filter_map(|at| Step::read(at, &defaults, faults)).collect();
    let promotion = fields.take("promotionSteps");
    let items = promotion.as_ref().map(|at| at.list(MAX_STEPS, faults)).unwrap_or_default();
    let promotion_steps: Vec<Step> =
        items.iter().filter_map(|at| Step::read(at, &defaults, faults)).collect();
    if steps.len() + promotion_steps.len() > MAX_STEPS {
        faults.add("/promotionSteps", format!("steps and promotionSteps are more than {MAX_STEPS} together"));
    }
    let max = fields.take("maxWeight").and_then(|at| at.percent(faults)).unwrap_or(Percent::ALL);
    check_steps(&at, &steps, max, faults);
    Expansion { steps, promotion_steps }
}

/// Checks the steps against each other. Steps that could not be read are already reported; indices are valid only without them.
fn check_steps(at: &At<'_>, steps: &[Step], max: Percent, faults: &mut Faults) {
    if at.value.as_array().map(Vec::len) != Some(steps.len()) {
        return;
    }
    let mut routes = BTreeSet::new();
    for (index, step) in steps.iter().enumerate() {
        if let Some(weight) = weight_of(step).filter(|weight| *weight > max) {
            faults.add(
                &format!("{}/{index}/setWeight", at.pointer),
                format!("{weight} is more than maxWeight, {max}"),
            );
        }
        let Step::SetHeaderRoute { name, matches } = step else { continue };
        if matches.is_empty() && !routes.contains(name) {
            let detail = format!("removes the header route {name:?}, which no earlier step has set");
            faults.add(&format!("{}/{index}/setHeaderRoute", at.pointer), detail);
        }
        routes.insert(name);
    }
}

/// A split of SMI has no rules that could distinguish requests.
fn check_header_routes(route: Option<&RuleKey>, steps: &[Step], faults: &mut Faults) {
    let has_some = steps.iter().any(|step| matches!(step, Step::SetHeaderRoute { .. }));
    if has_some && route.is_some_and(|route| route.kind == "TrafficSplit") {
        faults
            .add("/steps", "a TrafficSplit cannot tell requests apart by headers; leave out setHeaderRoute");
    }
}

fn weight_of(step: &Step) -> Option<Percent> {
    match step {
        Step::SetWeight { weight, .. } => Some(*weight),
        Step::Pause { .. } | Step::Analysis(_) | Step::WaitAck { .. } | Step::SetHeaderRoute { .. } => None,
    }
}

fn read_hooks(at: &At<'_>, faults: &mut Faults) -> Vec<Hook> {
    let mut names = BTreeSet::new();
    let mut hooks = Vec::new();
    for at in at.list(MAX_HOOKS, faults) {
        let Some(hook) = Hook::read(&at, faults) else { continue };
        if !names.insert(hook.name.clone()) {
            faults
                .add(&format!("{}/name", at.pointer), format!("two webhooks have the name {:?}", hook.name));
        }
        hooks.push(hook);
    }
    hooks
}

const POLICIES: [(&str, Policy); 2] = [("abort", Policy::Abort), ("pause", Policy::Pause)];
const TIMEOUTS: [(&str, AckTimeout); 3] =
    [("abort", AckTimeout::Abort), ("pause", AckTimeout::Pause), ("continue", AckTimeout::Continue)];
/// The longest name of a backend or part of a route's key.
const MAX_BACKEND_BYTES: usize = 1_024;
/// Long enough for a fleet to reconnect; after it, someone should look.
const DEFAULT_WAIT_ACK: Span = Span::from_millis(300_000);
/// As in Flagger.
const DEFAULT_INTERVAL: Span = Span::from_millis(60_000);
