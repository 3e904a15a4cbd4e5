//! What units planned, put together again, for tests that look at plans.

use std::sync::LazyLock;

use xds_codec::Codec;

use super::Memo;
use super::fact::{Fact, Value};
use super::unit::Unit;
use crate::plan::{Planned, Texts, Verdicts, plan_while};
use crate::translate::{Documents, Options};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("built in"));

/// What documents come to before it is written as resources.
pub(crate) fn plan(documents: &Documents, options: &Options) -> Planned {
    let memo = Memo::default().next_of(&CODEC, documents, options, &|| true, &is_planning);
    let (memo, _) = memo.expect("nobody stops it");
    let mut verdicts = Verdicts::new();
    for (fact, value) in &memo.values {
        if let (Fact::Verdict(key), Value::Verdict(verdict)) = (&**fact, value) {
            verdicts.insert(key.clone(), (**verdict).clone());
        }
    }
    let mut planned = plan_while(documents, &verdicts, options, Texts::Exact, &|| true);
    for (fact, value) in &memo.values {
        if let (Fact::Doubts(unit), Value::Doubts(doubts)) = (&**fact, value)
            && *unit != Unit::Plan
        {
            planned.diagnostics.extend(doubts.iter().cloned());
        }
        let (Fact::Cluster(of) | Fact::Assignment(of) | Fact::Trusted(of, _)) = &**fact else { continue };
        let plan = &mut planned.groups.entry(of.group.clone()).or_default().plan;
        let name = of.name.to_string();
        if let Value::Cluster(cluster) = value {
            plan.clusters.insert(name, (**cluster).clone());
        } else if let Value::Assignment(assignment) = value {
            plan.assignments.insert(name, (**assignment).clone());
        } else if let Value::Secret(secret) = value {
            plan.secrets.insert(name, (**secret).clone());
        }
    }
    planned
}

/// Whether a unit writes no resources.
fn is_planning(unit: &Unit) -> bool {
    matches!(
        unit,
        Unit::Outline(_) | Unit::Fallbacks | Unit::Plan | Unit::Rules(_) | Unit::Routes(_) | Unit::Backend(_)
    )
}
