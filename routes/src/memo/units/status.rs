//! What becomes of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_codec::{Diagnostic, Severity};

use super::surroundings::Surroundings;
use super::{Context, Facts};
use crate::conditions::{Condition, GrpcFeature, ParentStatus, Truth};
use crate::emit::GrpcLoss;
use crate::memo::fact::{Fact, InGroup, Value};
use crate::model::{Document, DocumentKey, Kind, Spec, Spot};
use crate::plan::{Attached, Parts, RefProblem, is_route, policy_targets};

impl Context<'_, '_, '_> {
    /// All that became of an object; `None` if there is nothing to say of it.
    ///
    /// What gRPC clients cannot have shows as a parent of its own (section 1.11 of the inputs paper), so that a route that is fine
    /// for Envoys stays fine; and as a note at what is written for gRPC, or for every client of a Service.
    pub(super) fn status(self, key: &DocumentKey) -> Option<Facts> {
        let placed = self.reader.document(key);
        let mut doubts = Vec::new();
        let mut parts = self.parts(key, &mut doubts);
        let losses = self.losses(key);
        if let Some(Value::Affected(affected)) = self.reader.value(Fact::Affected(key.clone())) {
            let parts = parts.get_or_insert_default();
            affected.iter().for_each(|one| parts.affect(one.listener.as_deref(), &one.condition));
        }
        let mut facts = Facts::new();
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
                kind: "PartiallyInvalid",
                status: Truth::True,
                reason: "UnsupportedValue",
                message,
            };
            let parent = "gRPC clients".to_owned();
            let status = ParentStatus { parent, section: None, port: None, conditions: vec![condition] };
            parts.get_or_insert_default().parents.insert(usize::MAX, status);
            facts.push((Fact::Unsupported(key.clone()), Value::Unsupported(counted(&losses).into())));
        }
        if !doubts.is_empty() {
            facts.push((Fact::Doubts(self.unit.clone()), Value::Doubts(doubts.into())));
        }
        let Some(parts) = parts else { return placed.map(|_| facts) };
        let status = parts.finish(placed.map_or(0, |placed| placed.generation));
        facts.push((Fact::Status(key.clone()), Value::Status(status.into())));
        Some(facts)
    }

    /// What became of an object but for what gRPC clients cannot have.
    fn parts(&self, key: &DocumentKey, doubts: &mut Vec<Diagnostic>) -> Option<Parts> {
        let mut parts = None;
        if let Some(Value::Standing(standing)) = self.reader.value(Fact::Standing(key.clone())) {
            parts = Some((**standing).clone());
        }
        if is_route(key.kind) {
            self.attached(key, &mut parts, doubts);
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

    /// Adds what a route is to Gateways.
    fn attached(&self, key: &DocumentKey, parts: &mut Option<Parts>, doubts: &mut Vec<Diagnostic>) {
        let Some((requests, refused)) = self.requests(key) else { return };
        let Some(placed) = self.reader.outline(key) else { return };
        let mut requests = (*requests).clone();
        if let Some(refused) = refused {
            let is_named = matches!(&placed.document.spec, Spec::Route(route) if !route.parents.is_empty());
            requests.refuse(&refused.fault, is_named);
        }
        let (mut problems, mut partly_invalid): (&[RefProblem], &[String]) = (&[], &[]);
        if let Some(Value::Faults(faults)) = self.reader.value(Fact::Faults(key.clone())) {
            (problems, partly_invalid) = (&faults.problems, &faults.partly_invalid);
        }
        let attached = Attached { document: &placed.document, requests: &requests, problems, partly_invalid };
        attached.report(|listener| self.winner(listener, key), parts.get_or_insert_default(), doubts);
    }

    /// The Gateways, and the Services of the mesh, from which the targets of a policy are reached.
    fn ancestors(&self, document: &Document) -> BTreeSet<String> {
        let mut ancestors = BTreeSet::new();
        let Spec::BackendTlsPolicy(policy) = &document.spec else { return ancestors };
        for target in policy_targets(policy) {
            let DocumentKey { namespace, name, .. } = &target;
            let Some(placed) = self.reader.document(&target) else { continue };
            let mut clusters = vec![format!("{namespace}/{name}")];
            if let Spec::Service(service) = &placed.document.spec {
                let ports = service.ports.iter();
                clusters = ports.map(|port| format!("{namespace}/{name}/{}", port.port)).collect();
            }
            for (group, _) in self.reader.all(Fact::Groups) {
                let Fact::Group(group) = group else { continue };
                for cluster in &clusters {
                    let users = self.reader.all(Fact::Use(InGroup::new(group, cluster), None));
                    ancestors.extend(users.filter_map(|(user, _)| self.ancestor(user)));
                }
            }
        }
        ancestors
    }

    fn ancestor(&self, user: &Fact) -> Option<String> {
        let Fact::Use(_, Some(host)) = user else { return None };
        if host.namespace.is_empty() {
            let gateway: Vec<&str> = host.table.splitn(3, '/').take(2).collect();
            return Some(format!("Gateway {}", gateway.join("/")));
        }
        let Some(Value::Stubs(stubs)) = self.reader.value(Fact::Stubs(host.clone())) else { return None };
        (!stubs.is_implicit).then(|| format!("Service {}/{}", host.namespace, host.name))
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

/// How many rules lack each feature.
fn counted(losses: &BTreeSet<&GrpcLoss>) -> Vec<(GrpcFeature, usize)> {
    let rules: BTreeSet<_> = losses.iter().map(|loss| (loss.feature, loss.rule)).collect();
    let mut counts: BTreeMap<GrpcFeature, usize> = BTreeMap::new();
    rules.into_iter().for_each(|(feature, _)| *counts.entry(feature).or_default() += 1);
    counts.into_iter().collect()
}
