//! BackendTLSPolicies: which one holds for a backend, and what becomes of each.

use std::collections::{BTreeMap, BTreeSet};

use super::backends::{Referent, backend_kind};
use super::listeners::resolved_refs;
use super::lookup::{Lookup, of_kinds};
use super::parts::UpstreamTls;
use super::precedence::Seniority;
use super::statuses::ObjectConditions;
use super::tls::invalid_tls;
use crate::conditions::{Condition, ParentStatus};
use crate::model::{Backend, BackendTlsPolicy, Document, DocumentKey, Kind, ObjectRef, Spec};
use crate::translate::Documents;

/// The policies by what they target.
#[derive(Default)]
pub(super) struct Policies<'d> {
    by_target: BTreeMap<PolicyTarget, (Seniority, &'d Document, &'d BackendTlsPolicy)>,
}

/// A backend, and the name of the port if only that is meant.
type PolicyTarget = (DocumentKey, Option<String>);

impl<'d> Policies<'d> {
    /// The oldest of several policies with the same target holds.
    pub(super) fn of(documents: &'d Documents) -> Self {
        let mut policies = Self::default();
        for (_, placed) in of_kinds(documents, Kind::BackendTlsPolicy..=Kind::BackendTlsPolicy) {
            let document = &*placed.document;
            let Spec::BackendTlsPolicy(policy) = &document.spec else { continue };
            let seniority = Seniority::of(document);
            for target in targets(policy) {
                let new = (seniority.clone(), document, &**policy);
                let holds = policies.by_target.entry(target).or_insert_with(|| new.clone());
                if new.0 < holds.0 {
                    *holds = new;
                }
            }
        }
        policies
    }
}

impl<'d> Lookup<'d> {
    /// The policy that holds for a backend: that of its port before that of the whole Service.
    pub(super) fn policy(&self, referent: &Referent<'_>) -> Option<(&'d Document, &'d BackendTlsPolicy)> {
        let key = &referent.document().key;
        let section = match referent {
            Referent::Port { port, .. } => Some(port.name.clone()).filter(|name| !name.is_empty()),
            Referent::Backend { .. } => None,
        };
        let find = |section| self.policies.by_target.get(&(key.clone(), section));
        let (_, document, policy) = section.and_then(|name| find(Some(name))).or_else(|| find(None))?;
        Some((document, policy))
    }

    /// The conditions of a BackendTLSPolicy, for each Gateway (or Service of the mesh) from which one of its targets is reached;
    /// or of a Backend. `None` of anything else.
    pub(crate) fn standing(
        &self,
        document: &Document,
        ancestors: &BTreeSet<String>,
    ) -> Option<ObjectConditions> {
        if let Spec::BackendTlsPolicy(policy) = &document.spec {
            return Some(self.policy_standing(document, policy, ancestors));
        }
        let Spec::Backend(backend) = &document.spec else { return None };
        let conditions = vec![self.backend_condition(document, backend)];
        Some(ObjectConditions { conditions, ..ObjectConditions::default() })
    }

    fn backend_condition(&self, document: &Document, backend: &Backend) -> Condition {
        if let Some(Err(fault)) = self.fallbacks.get(&document.key) {
            return Condition::fails("Accepted", "Invalid", fault.to_string());
        }
        let referent = Referent::Backend { document, backend };
        match self.upstream_tls(&referent) {
            Some((UpstreamTls::Invalid, _)) => {
                Condition::fails("Accepted", "Invalid", invalid_tls(&referent))
            }
            Some((UpstreamTls::Verified { .. }, _)) | None => Condition::holds("Accepted", "Accepted"),
        }
    }

    fn policy_standing(
        &self,
        document: &Document,
        policy: &BackendTlsPolicy,
        ancestors: &BTreeSet<String>,
    ) -> ObjectConditions {
        let (trusted, problems) = self.trusted(document, policy);
        let is_trusting = trusted.is_some() || policy.uses_system_certificates;
        let accepted = match self.targeting_fault(document, policy) {
            Some((reason, message)) => Condition::fails("Accepted", reason, message),
            None if is_trusting => Condition::holds("Accepted", "Accepted"),
            None => {
                let message = "no CA certificate can be used, so every request to the targets fails";
                Condition::fails("Accepted", "NoValidCACertificate", message)
            }
        };
        let conditions = vec![accepted, resolved_refs(&problems)];
        if ancestors.is_empty() {
            return ObjectConditions { conditions, ..ObjectConditions::default() };
        }
        let parent = |parent: &String| {
            let (parent, conditions) = (parent.clone(), conditions.clone());
            ParentStatus { parent, section: None, port: None, conditions }
        };
        ObjectConditions {
            parents: ancestors.iter().map(parent).enumerate().collect(),
            ..ObjectConditions::default()
        }
    }

    /// Why a policy holds for none of its targets.
    fn targeting_fault(
        &self,
        document: &Document,
        policy: &BackendTlsPolicy,
    ) -> Option<(&'static str, String)> {
        let mut fault = None;
        for (reference, section) in &policy.targets {
            let ObjectRef { group, kind, namespace, name, .. } = reference;
            let Some(target) = target(reference, section.as_ref()) else {
                fault = fault.or(Some(("TargetNotFound", format!("{group}/{kind} cannot be a target"))));
                continue;
            };
            if self.fallbacks.contains_key(&target.0) {
                let message = format!("the {} has no connections of its own: target its members", target.0);
                fault = fault.or(Some(("Invalid", message)));
                continue;
            }
            if let Some(message) = self.missing_target(&target) {
                fault = fault.or(Some(("TargetNotFound", message)));
                continue;
            }
            match self.policies.by_target.get(&target) {
                Some((_, winner, _)) if winner.key != document.key => {
                    let message = format!("{} holds for the {kind} {namespace}/{name}", winner.key);
                    fault = fault.or(Some(("Conflicted", message)));
                }
                Some(_) | None => return None,
            }
        }
        fault
    }

    fn missing_target(&self, (key, section): &PolicyTarget) -> Option<String> {
        let Some(placed) = self.documents.get(key) else { return Some(format!("there is no {key}")) };
        let section = section.as_ref()?;
        if let Spec::Service(service) = &placed.document.spec
            && service.ports.iter().any(|port| port.name == *section)
        {
            return None;
        }
        Some(format!("the {key} has no port named {section}"))
    }
}

/// The Services and Backends that a policy targets, each at most once for each target.
pub(crate) fn policy_targets(policy: &BackendTlsPolicy) -> impl Iterator<Item = DocumentKey> {
    targets(policy).map(|(key, _)| key)
}

/// The targets of a policy of which something can be made.
fn targets(policy: &BackendTlsPolicy) -> impl Iterator<Item = PolicyTarget> {
    policy.targets.iter().filter_map(|(reference, section)| target(reference, section.as_ref()))
}

fn target(reference: &ObjectRef, section: Option<&String>) -> Option<PolicyTarget> {
    let kind = backend_kind(reference)?;
    Some((DocumentKey::new(kind, &reference.namespace, &reference.name), section.cloned()))
}
