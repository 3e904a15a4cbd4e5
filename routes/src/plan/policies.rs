//! BackendTLSPolicies by their targets.

use std::collections::BTreeMap;

use super::precedence::Seniority;
use crate::input::{Documents, of_kinds};
use crate::model::{BackendTlsPolicy, Document, DocumentKey, Kind, ObjectRef, Spec};

/// The policies by their targets.
#[derive(Default)]
pub(super) struct Policies<'d> {
    pub(super) by_target: BTreeMap<TlsPolicyTarget, (Seniority, &'d Document, &'d BackendTlsPolicy)>,
}

/// A backend, with the name of a port if the policy is only for that.
pub(super) type TlsPolicyTarget = (DocumentKey, Option<String>);

impl<'d> Policies<'d> {
    /// Indexes the policies. If several have the same target, the oldest applies.
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

/// The Services and Backends that a policy targets. May have duplicates.
pub(crate) fn policy_targets(policy: &BackendTlsPolicy) -> impl Iterator<Item = DocumentKey> {
    targets(policy).map(|(key, _)| key)
}

/// The usable targets of a policy.
fn targets(policy: &BackendTlsPolicy) -> impl Iterator<Item = TlsPolicyTarget> {
    policy.targets.iter().filter_map(|(reference, section)| target(reference, section.as_ref()))
}

pub(super) fn target(reference: &ObjectRef, section: Option<&String>) -> Option<TlsPolicyTarget> {
    let kind = reference.backend_kind()?;
    Some((DocumentKey::new(kind, &reference.namespace, &reference.name), section.cloned()))
}
