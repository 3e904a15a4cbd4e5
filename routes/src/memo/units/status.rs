//! The conditions of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_codec::{Diagnostic, Severity};

use super::context::Context;
use super::surroundings::Surroundings;
use crate::conditions::{
    Condition, ConditionReason, ConditionType, GRPC_CLIENTS, GrpcFeature, ParentStatus, Truth,
};
use crate::emit::GrpcLoss;
use crate::memo::fact::{Fact, Value};
use crate::memo::made::Made;
use crate::model::{Document, DocumentKey, Kind, ParentRef, Spec, Spot};
use crate::plan::mesh::{self, Lost};
use crate::plan::{Attached, ObjectConditions, RefProblem, is_route, policy_targets};

impl Context<'_, '_, '_> {
    /// The complete status of an object; `None` if it has none.
    ///
    /// A part that gRPC clients do not support is reported under a separate parent, so that the route stays accepted for Envoys, and as a note
    /// in the document.
    pub(super) fn status(self, key: &DocumentKey) -> Option<Made> {
        let placed = self.reader.document(key);
        let mut doubts = Vec::new();
        let mut parts = self.parts(key, &mut doubts);
        let losses = self.losses(key);
        if let Some(Value::Affected(affected)) = self.reader.value(Fact::Affected(key.clone())) {
            let parts = parts.get_or_insert_default();
            affected.iter().for_each(|one| parts.affect(one.listener.as_deref(), &one.condition));
        }
        let mut facts = Made::new();
        if !losses.is_empty() {
            let message = message(&losses);
            let is_for_grpc = matches!(key.kind, Kind::GrpcRoute | Kind::Route | Kind::TrafficSplit);
            if let Some(placed) = placed.filter(|_| is_for_grpc) {
                let text = format!("not all of the route is served to gRPC clients: {message}");
                doubts.push(placed.document.diagnostic(
                    Severity::Info,
                    "not-for-grpc",
                    &Spot::default(),
                    text,
                ));
            }
            let condition = Condition {
                kind: ConditionType::PartiallyInvalid,
                status: Truth::True,
                reason: ConditionReason::UnsupportedValue,
                message,
            };
            let parent = GRPC_CLIENTS.to_owned();
            let status = ParentStatus { parent, section: None, port: None, conditions: vec![condition] };
            parts.get_or_insert_default().parents.insert(usize::MAX, status);
            facts.push((Fact::Unsupported(key.clone()), Value::Unsupported(counted(&losses).into())));
        }
        facts.say(doubts);
        let Some(parts) = parts else { return placed.map(|_| facts) };
        let status = parts.finish(placed.map_or(0, |placed| placed.generation));
        facts.push((Fact::Status(key.clone()), Value::Status(status.into())));
        Some(facts)
    }

    /// The conditions of an object, except for parts that gRPC clients do not support.
    fn parts(&self, key: &DocumentKey, doubts: &mut Vec<Diagnostic>) -> Option<ObjectConditions> {
        let mut parts = None;
        if let Some(Value::Standing(standing)) = self.reader.value(Fact::Standing(key.clone())) {
            parts = Some((**standing).clone());
        }
        if is_route(key.kind) {
            self.of_route(key, &mut parts, doubts);
        }
        if key.kind == Kind::TrafficSplit
            && let Some(placed) = self.reader.document(key)
            && let Some(Value::Split(split)) = self.reader.value(Fact::Split(key.clone()))
        {
            let (conditions, doubt) = mesh::report_split(&placed.document, split, &self.lost_ports(key));
            doubts.extend(doubt);
            parts.get_or_insert_default().conditions.extend(conditions);
        }
        if let (Kind::Gateway, Some(parts)) = (key.kind, &mut parts)
            && let Some(Value::Gateway(Some(gateway))) = self.reader.value(Fact::Gateway(key.clone()))
        {
            for (status, listener) in parts.listeners.iter_mut().zip(&gateway.listeners) {
                status.attached_routes = self.reader.sum(Fact::Attached(Arc::clone(&listener.key))).hosts;
            }
        }
        if let Kind::BackendTlsPolicy | Kind::Backend = key.kind
            && let Some(placed) = self.reader.document(key)
        {
            let mut surroundings = Surroundings::new(self.reader);
            surroundings.add_judged(placed);
            let ancestors = self.ancestors(&placed.document);
            parts = surroundings.lookup(self.options).standing(&placed.document, &ancestors);
        }
        parts
    }

    /// Adds the conditions of a route at Gateways and Services.
    fn of_route(
        &self,
        key: &DocumentKey,
        parts: &mut Option<ObjectConditions>,
        doubts: &mut Vec<Diagnostic>,
    ) {
        let Some(placed) = self.reader.outline(key) else { return };
        let document = &*placed.document;
        let faults = match self.reader.value(Fact::Faults(key.clone())) {
            Some(Value::Faults(faults)) => Some(&**faults),
            _ => None,
        };
        let problems = faults.map_or(&[][..], |faults| &faults.problems);
        let partly_invalid = faults.map_or(&[][..], |faults| &faults.partly_invalid);
        let is_of_mesh =
            matches!(&document.spec, Spec::Route(route) if route.parents.iter().any(ParentRef::is_service));
        if is_of_mesh {
            self.of_services(document, (problems, partly_invalid), parts.get_or_insert_default(), doubts);
        }
        let Some((requests, refused)) = self.requests(key) else { return };
        let mut requests = (*requests).clone();
        if let Some(refused) = refused {
            let is_named = matches!(&document.spec, Spec::Route(route) if !route.parents.is_empty());
            requests.refuse(&refused.fault, is_named);
        }
        let attached = Attached { document, requests: &requests, problems, partly_invalid };
        attached.report(|listener| self.winner(listener, key), parts.get_or_insert_default(), doubts);
    }

    /// Adds the conditions of a route at those of its parents that are Services.
    fn of_services(
        &self,
        document: &Document,
        faults: (&[RefProblem], &[String]),
        parts: &mut ObjectConditions,
        doubts: &mut Vec<Diagnostic>,
    ) {
        let key = &document.key;
        let Spec::Route(route) = &document.spec else { return };
        let Some(Value::Parents(requests)) = self.reader.value(Fact::Parents(key.clone())) else { return };
        let refused = match self.reader.value(Fact::MeshRefused(key.clone())) {
            Some(Value::Fault(fault)) => Some(&**fault),
            _ => None,
        };
        let lost = self.lost_ports(key);
        for request in &**requests {
            let Some(parent) = route.parents.get(request.index) else { continue };
            let (status, told) = mesh::report_route(document, parent, request, refused, &lost, faults);
            parts.parents.insert(request.index, status);
            doubts.extend(told);
        }
        doubts.extend(mesh::doubts(document, faults.0));
    }

    /// The ports of Services that a document does not get, each with the winner.
    fn lost_ports(&self, key: &DocumentKey) -> Lost {
        let mut all = Lost::new();
        for (fact, value) in self.reader.all(Fact::LostPort(key.clone(), None)) {
            let (Fact::LostPort(_, Some(place)), Value::Key(winner)) = (fact, value) else { continue };
            all.insert((**place).clone(), winner.clone());
        }
        all
    }

    /// The Gateways and the Services of the mesh that lead to the targets of a policy.
    fn ancestors(&self, document: &Document) -> BTreeSet<String> {
        let mut ancestors = BTreeSet::new();
        let Spec::BackendTlsPolicy(policy) = &document.spec else { return ancestors };
        for target in policy_targets(policy) {
            for (_, value) in self.reader.all(Fact::Ancestors(target.clone(), None)) {
                let Value::Ancestors(found) = value else { continue };
                ancestors.extend(found.iter().cloned());
            }
        }
        ancestors
    }

    fn losses(&self, key: &DocumentKey) -> BTreeSet<&GrpcLoss> {
        let all = self.reader.all(Fact::Loss(key.clone(), None));
        let losses = all.filter_map(|(_, value)| {
            let Value::Losses(found) = value else { return None };
            Some(found.iter())
        });
        losses.flatten().collect()
    }
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

/// The number of rules by unsupported feature.
fn counted(losses: &BTreeSet<&GrpcLoss>) -> Vec<(GrpcFeature, usize)> {
    let rules: BTreeSet<_> = losses.iter().map(|loss| (loss.feature, loss.rule)).collect();
    let mut counts: BTreeMap<GrpcFeature, usize> = BTreeMap::new();
    rules.into_iter().for_each(|(feature, _)| *counts.entry(feature).or_default() += 1);
    counts.into_iter().collect()
}
