//! The BackendTLSPolicy that applies to a backend, and the conditions of each policy.

use std::collections::BTreeSet;

use super::backends::Referent;
use super::listeners::resolved_refs;
use super::lookup::Lookup;
use super::parts::UpstreamTls;
use super::policies::{TlsPolicyTarget, target};
use super::statuses::ObjectConditions;
use super::tls::invalid_tls;
use crate::conditions::{Condition, ConditionReason, ConditionType, ParentStatus};
use crate::model::{Backend, BackendTlsPolicy, Document, ObjectRef, Spec};

impl<'d> Lookup<'d> {
    /// The policy that applies to a backend. A policy for its port wins over one for the whole Service.
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

    /// The conditions of a Backend, or of a BackendTLSPolicy for each Gateway or Service of the mesh that leads to one of its targets. `None`
    /// for any other document.
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
            return Condition::fails(ConditionType::Accepted, ConditionReason::Invalid, fault.to_string());
        }
        let referent = Referent::Backend { document, backend };
        match self.upstream_tls(&referent) {
            Some((UpstreamTls::Invalid, _)) => {
                Condition::fails(ConditionType::Accepted, ConditionReason::Invalid, invalid_tls(&referent))
            }
            Some((UpstreamTls::Verified { .. }, _)) | None => Condition::accepted(),
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
            Some((reason, message)) => Condition::fails(ConditionType::Accepted, reason, message),
            None if is_trusting => Condition::accepted(),
            None => {
                let message = "there is no usable CA certificate, so every request to the targets fails";
                Condition::fails(ConditionType::Accepted, ConditionReason::NoValidCaCertificate, message)
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

    /// The reason why a policy applies to none of its targets, if so.
    fn targeting_fault(
        &self,
        document: &Document,
        policy: &BackendTlsPolicy,
    ) -> Option<(ConditionReason, String)> {
        let mut fault = None;
        for (reference, section) in &policy.targets {
            let ObjectRef { group, kind, namespace, name, .. } = reference;
            let Some(target) = target(reference, section.as_ref()) else {
                fault = fault.or(Some((
                    ConditionReason::TargetNotFound,
                    format!("{group}/{kind} cannot be a target"),
                )));
                continue;
            };
            if self.fallbacks.contains_key(&target.0) {
                let message = format!(
                    "the {} is a fallback and makes no connections itself; target its members",
                    target.0
                );
                fault = fault.or(Some((ConditionReason::Invalid, message)));
                continue;
            }
            if let Some(message) = self.missing_target(&target) {
                fault = fault.or(Some((ConditionReason::TargetNotFound, message)));
                continue;
            }
            match self.policies.by_target.get(&target) {
                Some((_, winner, _)) if winner.key != document.key => {
                    let message = format!("{} already applies to the {kind} {namespace}/{name}", winner.key);
                    fault = fault.or(Some((ConditionReason::Conflicted, message)));
                }
                Some(_) | None => return None,
            }
        }
        fault
    }

    fn missing_target(&self, (key, section): &TlsPolicyTarget) -> Option<String> {
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
