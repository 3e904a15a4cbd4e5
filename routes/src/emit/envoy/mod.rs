//! A plan as resources for Envoys.

use super::Emitted;
use crate::plan::Plan;
use crate::translate::Options;

/// The resources of a plan for Envoys.
pub(crate) fn envoy(plan: &Plan, options: &Options) -> Vec<Emitted> {
    let _ = (plan, options);
    Vec::new()
}
