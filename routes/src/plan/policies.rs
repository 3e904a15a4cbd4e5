//! BackendTLSPolicies: which one holds for a backend, and what becomes of each.

use std::collections::{BTreeMap, BTreeSet};

use super::backends::{Referent, backend_kind};
use super::listeners::resolved_refs;
use super::lookup::{Lookup, of_kinds};
use super::parts::{Action, Plan, PlannedRoute, Target, UpstreamTls};
use super::precedence::Seniority;
use super::statuses::Statuses;
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
    /// Of policies with the same target the oldest holds.
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

    /// Says what became of every BackendTLSPolicy, for each Gateway (or Service of the mesh) from which `plans` reach one of
    /// its targets; and of every Backend.
    pub(crate) fn report<'p>(&self, plans: impl Iterator<Item = &'p Plan>, statuses: &mut Statuses) {
        let ancestors = self.ancestors(plans);
        for (_, placed) in of_kinds(self.documents, Kind::BackendTlsPolicy..=Kind::Backend) {
            let document = &*placed.document;
            if let Spec::BackendTlsPolicy(policy) = &document.spec {
                self.report_policy(document, policy, &ancestors, statuses);
            }
            if let Spec::Backend(backend) = &document.spec {
                statuses.object(&document.key, self.backend_condition(document, backend));
            }
        }
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

    fn report_policy(
        &self,
        document: &Document,
        policy: &BackendTlsPolicy,
        ancestors: &BTreeMap<&DocumentKey, BTreeSet<String>>,
        statuses: &mut Statuses,
    ) {
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
        let found: BTreeSet<&String> =
            targets(policy).filter_map(|(key, _)| ancestors.get(&key)).flatten().collect();
        for (index, parent) in found.iter().enumerate() {
            let (parent, conditions) = ((*parent).clone(), conditions.clone());
            let status = ParentStatus { parent, section: None, port: None, conditions };
            statuses.parent(&document.key, index, status);
        }
        if found.is_empty() {
            conditions.into_iter().for_each(|condition| statuses.object(&document.key, condition));
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

    /// The Gateways, and Services of the mesh, from which each backend is reached.
    fn ancestors<'p>(
        &self,
        plans: impl Iterator<Item = &'p Plan>,
    ) -> BTreeMap<&'d DocumentKey, BTreeSet<String>> {
        let mut ancestors: BTreeMap<&DocumentKey, BTreeSet<String>> = BTreeMap::new();
        // Only policies ask.
        let plans = plans.filter(|_| !self.policies.by_target.is_empty());
        for plan in plans {
            let gateways = plan.ports.iter().map(|port| {
                let gateway: Vec<&str> = port.name.splitn(3, '/').take(2).collect();
                let hosts = port.chains.iter().flat_map(|chain| &chain.hosts);
                let routes: Vec<&PlannedRoute> = hosts.flat_map(|host| &host.routes).collect();
                (format!("Gateway {}", gateway.join("/")), routes)
            });
            let services = plan.services.iter().filter(|service| !service.is_implicit);
            let services = services.map(|service| {
                (format!("Service {}/{}", service.namespace, service.name), service.routes.iter().collect())
            });
            for (ancestor, routes) in gateways.chain(services) {
                for cluster in self.reached_by(&routes) {
                    let Some(referent) = self.of_cluster_name(cluster) else { continue };
                    ancestors.entry(&referent.document().key).or_default().insert(ancestor.clone());
                }
            }
        }
        ancestors
    }

    /// Every cluster that routes reach, through others too.
    fn reached_by<'p>(&'p self, routes: &[&'p PlannedRoute]) -> BTreeSet<&'p str> {
        let mut names: Vec<&str> = Vec::new();
        for route in routes {
            names.extend(route.mirrors.iter().map(|mirror| mirror.backend.name.as_str()));
            let Action::Forward(targets) = &route.action else { continue };
            names.extend(targets.iter().filter_map(|weighted| match &weighted.target {
                Target::Backend(backend) => Some(backend.name.as_str()),
                Target::Broken => None,
            }));
        }
        let mut reached = BTreeSet::new();
        while let Some(name) = names.pop() {
            if reached.insert(name) {
                names.extend(self.members_of(name).iter().map(String::as_str));
            }
        }
        reached
    }
}

/// The targets of a policy of which something can be made.
fn targets(policy: &BackendTlsPolicy) -> impl Iterator<Item = PolicyTarget> {
    policy.targets.iter().filter_map(|(reference, section)| target(reference, section.as_ref()))
}

fn target(reference: &ObjectRef, section: Option<&String>) -> Option<PolicyTarget> {
    let kind = backend_kind(reference)?;
    Some((DocumentKey::new(kind, &reference.namespace, &reference.name), section.cloned()))
}
