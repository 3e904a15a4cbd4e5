//! What becomes of objects.

use std::collections::{BTreeMap, BTreeSet};

use xds_codec::Severity;

use super::Facts;
use crate::conditions::{Condition, GrpcFeature, ParentStatus, Truth};
use crate::emit::GrpcLoss;
use crate::memo::fact::{Fact, Value};
use crate::memo::reader::Reader;
use crate::memo::unit::Unit;
use crate::model::{DocumentKey, Kind, Spot};
use crate::plan::Parts;

/// All that became of an object; `None` if there is nothing to say of it.
///
/// What gRPC clients cannot have shows as a parent of its own (section 1.11 of the inputs paper), so that a route that is fine
/// for Envoys stays fine; and as a note at what is written for gRPC, or for every client of a Service.
pub(super) fn status(unit: &Unit, reader: &Reader<'_>, key: &DocumentKey) -> Option<Facts> {
    let placed = reader.document(key);
    let standing = match reader.value(Fact::Standing(key.clone())) {
        Some(Value::Standing(parts)) => Some(parts),
        _ => None,
    };
    let mut losses: BTreeSet<&GrpcLoss> = BTreeSet::new();
    for (_, value) in reader.all(Fact::Loss(key.clone(), None)) {
        if let Value::Losses(found) = value {
            losses.extend(found.iter());
        }
    }
    if standing.is_none() && losses.is_empty() {
        return placed.map(|_| Vec::new());
    }
    let mut parts = standing.map_or_else(Parts::default, |parts| (**parts).clone());
    let mut facts = Facts::new();
    if !losses.is_empty() {
        let message = message(&losses);
        let is_for_grpc = matches!(key.kind, Kind::GrpcRoute | Kind::Route | Kind::TrafficSplit);
        if let Some(placed) = placed.filter(|_| is_for_grpc) {
            let text = format!("not all of the route is served to gRPC clients: {message}");
            let doubt = placed.document.diagnostic(Severity::Info, "not-for-grpc", &Spot::default(), text);
            facts.push((Fact::Doubts(unit.clone()), Value::Doubts([doubt].into())));
        }
        let condition =
            Condition { kind: "PartiallyInvalid", status: Truth::True, reason: "UnsupportedValue", message };
        let parent = "gRPC clients".to_owned();
        let status = ParentStatus { parent, section: None, port: None, conditions: vec![condition] };
        parts.parents.insert(usize::MAX, status);
        facts.push((Fact::Unsupported(key.clone()), Value::Unsupported(counted(&losses).into())));
    }
    let status = parts.finish(placed.map_or(0, |placed| placed.generation));
    facts.push((Fact::Status(key.clone()), Value::Status(status.into())));
    Some(facts)
}

fn message(losses: &BTreeSet<&GrpcLoss>) -> String {
    let listed = |is_dropped| {
        let texts: BTreeSet<String> = losses
            .iter()
            .filter(|loss| loss.is_dropped == is_dropped)
            .map(|loss| format!("rules[{}]: {}", loss.rule, loss.reason))
            .collect();
        texts.into_iter().collect::<Vec<_>>().join("; ")
    };
    match (listed(true), listed(false)) {
        (dropped, ignored) if ignored.is_empty() => format!("Dropped Rule: {dropped}"),
        (dropped, ignored) if dropped.is_empty() => format!("Fall Back: {ignored}"),
        (dropped, ignored) => format!("Dropped Rule: {dropped}. Fall Back: {ignored}"),
    }
}

/// How many rules lack each feature.
fn counted(losses: &BTreeSet<&GrpcLoss>) -> Vec<(GrpcFeature, usize)> {
    let rules: BTreeSet<_> = losses.iter().map(|loss| (loss.feature, loss.rule)).collect();
    let mut counts: BTreeMap<GrpcFeature, usize> = BTreeMap::new();
    rules.into_iter().for_each(|(feature, _)| *counts.entry(feature).or_default() += 1);
    counts.into_iter().collect()
}
