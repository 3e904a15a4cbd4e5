//! What the plan as a whole leaves open: the rules of routes, and the clusters that they reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::plan::backends;
use super::{Context, Facts};
use crate::emit::grpc;
use crate::memo::fact::{Fact, HostKey, InGroup, Value};
use crate::memo::reader::Reader;
use crate::model::{BackendSource, Document, DocumentKey, Filter, FilterKind, Kind, ObjectRef, Spec};
use crate::plan::{Lookup, PlannedRoute, Reached, Verdict, certificate, is_route};
use crate::translate::{Documents, Options};

impl Context<'_, '_, '_> {
    /// Every match of every rule of a route.
    pub(super) fn rules(self, key: &DocumentKey) -> Option<Facts> {
        let placed = self.reader.document(key)?;
        let Spec::Route(route) = &placed.document.spec else { return Some(Vec::new()) };
        let mut surroundings = Surroundings::new(self.reader);
        surroundings.documents.insert(key.clone(), placed.clone());
        for rule in &route.rules {
            rule.filters.iter().for_each(|filter| surroundings.add_filter(filter));
            for backend in &rule.backends {
                surroundings.add_reference(&backend.object);
                backend.filters.iter().for_each(|filter| surroundings.add_filter(filter));
            }
        }
        let Surroundings { documents, verdicts, .. } = &surroundings;
        let routes = lookup(documents, verdicts, self.options).route_plan(placed, route).routes;
        Some(vec![(Fact::Rules(key.clone()), Value::Routes(routes.into()))])
    }

    /// The routes of a host: those of the plan, with what their rules come to.
    pub(super) fn host_routes(self, key: &HostKey) -> Option<Facts> {
        let Some(Value::Routes(stubs)) = self.reader.value(Fact::Stubs(key.clone())) else { return None };
        let routes: Arc<[PlannedRoute]> = stubs.iter().map(|stub| self.planned_route(stub)).collect();
        Some(vec![(Fact::Routes(key.clone()), Value::Routes(routes))])
    }

    fn planned_route(&self, stub: &PlannedRoute) -> PlannedRoute {
        // What a Service or split comes to is all in the plan.
        let document = Some(&stub.id.document).filter(|document| is_route(document.kind));
        let rules = document.and_then(|document| self.reader.value(Fact::Rules(document.clone())));
        let Some(Value::Routes(rules)) = rules else { return stub.clone() };
        let place = |route: &PlannedRoute| (route.id.rule, route.id.match_index);
        let found = rules.binary_search_by_key(&place(stub), place).ok();
        found.and_then(|index| rules.get(index)).unwrap_or(stub).clone()
    }

    /// A cluster with its endpoints and the certificates that it trusts.
    pub(super) fn backend(self, name: &InGroup) -> Option<Facts> {
        let Some(Value::Usage(usage)) = self.reader.value(Fact::Usage(name.clone())) else { return None };
        let mut surroundings = Surroundings::new(self.reader);
        surroundings.add_cluster(&name.name);
        let Surroundings { documents, verdicts, .. } = &surroundings;
        let lookup = lookup(documents, verdicts, self.options);
        let Some(reached) = lookup.reached(&name.name, usage) else { return Some(Vec::new()) };
        let Reached { cluster, assignment, secret, diagnostics } = reached;
        let mut facts = vec![(Fact::Cluster(name.clone()), Value::Cluster(cluster.into()))];
        if let Some(assignment) = assignment {
            if grpc::has_uneven_weights(&assignment) {
                facts.push((Fact::Uneven(name.clone()), Value::Present));
            }
            facts.push((Fact::Assignment(name.clone()), Value::Assignment(assignment.into())));
        }
        if let Some((secret, trusted)) = secret {
            let by = Some(Arc::clone(&name.name));
            let trusts = Fact::Trusted(InGroup::new(&name.group, &secret), by);
            facts.push((trusts, Value::Secret(trusted.into())));
        }
        if !diagnostics.is_empty() {
            facts.push((Fact::Doubts(self.unit.clone()), Value::Doubts(diagnostics.into())));
        }
        Some(facts)
    }

    /// A secret: certificates that clusters trust, or one that listeners have.
    pub(super) fn secret(mut self, name: &InGroup) -> Option<Facts> {
        if self.reader.has(Fact::Certificate(name.clone())) {
            let (namespace, secret) = name.name.split_once('/')?;
            let placed = self.reader.document(&DocumentKey::new(Kind::Secret, namespace, secret));
            let Some(found) = placed.and_then(|placed| certificate(&placed.document)) else {
                return Some(Vec::new());
            };
            return Some(self.write_secret(name, &found));
        }
        let (_, value) = self.reader.all(Fact::Trusted(name.clone(), None)).next()?;
        let Value::Secret(trusted) = value else { return None };
        Some(self.write_secret(name, trusted))
    }
}

/// The documents that some others refer to, and what became of the fallbacks among them.
struct Surroundings<'r, 'm> {
    reader: &'r Reader<'m>,
    documents: Documents,
    verdicts: BTreeMap<DocumentKey, Verdict>,
}

impl<'r, 'm> Surroundings<'r, 'm> {
    fn new(reader: &'r Reader<'m>) -> Self {
        Self { reader, documents: Documents::new(), verdicts: BTreeMap::new() }
    }

    /// A document, if it is there.
    fn add(&mut self, key: DocumentKey) -> Option<&'m Document> {
        let placed = self.reader.document(&key)?;
        self.documents.insert(key, placed.clone());
        Some(&placed.document)
    }

    fn add_filter(&mut self, filter: &Filter) {
        match &filter.kind {
            FilterKind::Mirror { backend, .. } => self.add_reference(backend),
            FilterKind::RequestHeaders(_)
            | FilterKind::ResponseHeaders(_)
            | FilterKind::Redirect(_)
            | FilterKind::Rewrite { .. }
            | FilterKind::Cors(_)
            | FilterKind::Extension { .. } => {}
        }
    }

    /// What a reference can mean, and who allows it.
    fn add_reference(&mut self, to: &ObjectRef) {
        for (fact, _) in self.reader.all(Fact::Grant(Arc::clone(&to.namespace), None)) {
            if let Fact::Grant(_, Some(grant)) = fact {
                self.add(grant.clone());
            }
        }
        backends(to).into_iter().for_each(|key| self.add_backend(key));
    }

    /// A Service or Backend with its policies.
    fn add_backend(&mut self, key: DocumentKey) {
        let Some(document) = self.add(key.clone()) else { return };
        if let Spec::Backend(backend) = &document.spec
            && let BackendSource::Fallback(_) = &backend.source
            && let Some(Value::Verdict(verdict)) = self.reader.value(Fact::Verdict(key.clone()))
        {
            self.verdicts.insert(key.clone(), (**verdict).clone());
        }
        for (fact, _) in self.reader.all(Fact::Policy(key, None)) {
            if let Fact::Policy(_, Some(policy)) = fact {
                self.add(policy.clone());
            }
        }
    }

    /// The Service or Backend of a cluster, with endpoints and certificates.
    fn add_cluster(&mut self, name: &str) {
        let mut parts = name.split('/');
        let (Some(namespace), Some(name)) = (parts.next(), parts.next()) else { return };
        let kind = if parts.next().is_some() { Kind::Service } else { Kind::Backend };
        if kind == Kind::Service {
            for (fact, _) in self.reader.all(Fact::Slice(namespace.into(), name.into(), None)) {
                if let Fact::Slice(_, _, Some(slice)) = fact {
                    self.add(slice.clone());
                }
            }
            self.add(DocumentKey::new(Kind::Endpoints, namespace, name));
        }
        self.add_backend(DocumentKey::new(kind, namespace, name));
        for placed in self.documents.clone().values() {
            let Spec::BackendTlsPolicy(policy) = &placed.document.spec else { continue };
            for reference in &policy.ca_certificates {
                for kind in [Kind::Secret, Kind::ConfigMap] {
                    self.add(DocumentKey::new(kind, &reference.namespace, &reference.name));
                }
            }
        }
    }
}

fn lookup<'d>(
    documents: &'d Documents,
    verdicts: &BTreeMap<DocumentKey, Verdict>,
    options: &Options,
) -> Lookup<'d> {
    let verdict = |key: &'d DocumentKey| Some((key, verdicts.get(key)?.clone()));
    Lookup::of(documents, documents.keys().filter_map(verdict).collect(), options)
}
