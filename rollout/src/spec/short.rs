//! Flagger's short form: a step weight and an interval instead of steps.

use crate::fields::{Faults, Object};
use crate::spec::MAX_STEPS;
use crate::spec::analysis::{Analysis, MIN_INTERVAL};
use crate::spec::step::Step;
use xds_units::Percent;

/// The steps that a short form stands for.
#[derive(Debug, Default)]
pub(crate) struct Expansion {
    pub(crate) steps: Vec<Step>,
    pub(crate) promotion_steps: Vec<Step>,
}

/// The fields of the short form, one of which makes it one.
pub(crate) const MARKS: [&str; 2] = ["stepWeight", "stepWeights"];

/// Reads the short form.
///
/// `stepWeight: 20, maxWeight: 50` gives 20, 40, 60: the last step is the first that reaches the largest weight (as Flagger does).
/// After each weight the canary is measured once; a bad measurement is repeated, and the `threshold`-th aborts.
pub(crate) fn read(fields: &mut Object<'_>, analysis: &Analysis, faults: &mut Faults) -> Expansion {
    let mut analysis = Analysis { count: 1, ..analysis.clone() };
    if let Some(interval) = fields.take("interval").and_then(|at| at.span(MIN_INTERVAL, faults)) {
        analysis.interval = interval;
    }
    if let Some(threshold) = fields.take("threshold").and_then(|at| at.integer(1, 10_000, faults)) {
        analysis.failure_limit = u32::try_from(threshold - 1).unwrap_or(u32::MAX);
    }
    let max = fields.take("maxWeight").and_then(|at| at.percent(faults)).unwrap_or(Percent::ALL);
    let weights = weights(fields, max, faults);
    let step = |weight| [Step::SetWeight { weight, wait_ack: None }, Step::Analysis(analysis.clone())];
    let steps: Vec<Step> = weights.iter().copied().flat_map(step).collect();
    let promotion = promotion(fields, weights.last().copied().unwrap_or_default(), faults);
    let pause = Step::Pause { duration: Some(analysis.interval) };
    let step = |weight| [Step::SetWeight { weight, wait_ack: None }, pause.clone()];
    let promotion_steps: Vec<Step> = promotion.into_iter().flat_map(step).collect();
    if steps.len() + promotion_steps.len() > MAX_STEPS {
        faults.add(fields.pointer(), format!("this makes more than {MAX_STEPS} steps; use larger ones"));
    }
    Expansion { steps, promotion_steps }
}

fn weights(fields: &mut Object<'_>, max: Percent, faults: &mut Faults) -> Vec<Percent> {
    let (step, steps) = (fields.take("stepWeight"), fields.take("stepWeights"));
    if let (Some(_), Some(at)) = (&step, &steps) {
        faults.add(&at.pointer, "stepWeight and stepWeights exclude each other");
    }
    if let Some(at) = steps {
        let items = at.list(MAX_STEPS / 2, faults);
        let weights: Vec<Percent> = items.iter().filter_map(|at| at.percent(faults)).collect();
        if weights.is_empty() || weights.len() == items.len() && !weights.is_sorted_by(|a, b| a < b) {
            faults.add(&at.pointer, "stepWeights must rise, from at least one weight");
        }
        return weights;
    }
    let Some(at) = step else { return vec![] };
    let Some(step) = at.percent(faults) else { return vec![] };
    rising(step, Percent::NONE, max).unwrap_or_else(|| {
        let n_steps = MAX_STEPS / 2;
        faults
            .add(&at.pointer, format!("a step weight of {step} makes more than {n_steps} steps up to {max}"));
        vec![]
    })
}

/// The steps after the promotion, if it goes by steps too.
fn promotion(fields: &mut Object<'_>, from: Percent, faults: &mut Faults) -> Vec<Percent> {
    let Some(at) = fields.take("stepWeightPromotion") else { return vec![] };
    let Some(step) = at.percent(faults) else { return vec![] };
    let mut weights = rising(step, from, Percent::ALL).unwrap_or_else(|| {
        faults.add(&at.pointer, format!("a step weight of {step} makes too many steps up to 100 %"));
        vec![]
    });
    // Everything goes to the canary at the end in any case.
    weights.retain(|weight| *weight < Percent::ALL);
    weights
}

/// The multiples of `step` above `from`, up to the first that reaches `max`; `None` if they are too many.
fn rising(step: Percent, from: Percent, max: Percent) -> Option<Vec<Percent>> {
    let mut weights = vec![];
    let mut last = from;
    while last < max {
        last = last.plus(step);
        weights.push(last);
        if weights.len() > MAX_STEPS / 2 {
            return None;
        }
    }
    Some(weights)
}
