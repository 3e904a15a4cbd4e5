//! What the plan as a whole leaves open: the rules of routes, and the clusters that they reach.

use std::sync::Arc;

use super::surroundings::Surroundings;
use super::{Context, Facts};
use crate::emit::grpc;
use crate::memo::fact::{Fact, Faults, HostKey, InGroup, Stubs, Value};
use crate::model::{BackendSource, DocumentKey, Kind, Spec};
use crate::plan::{
    PlannedRoute, Reached, RoutePlan, Usage, certificate, fallback_of_cluster, is_route, usages, verdicts,
};

impl Context<'_, '_, '_> {
    /// What becomes of every fallback: one may depend on all others.
    pub(super) fn fallbacks(self) -> Option<Facts> {
        let mut surroundings = Surroundings::new(self.reader);
        let mut fallbacks = self.reader.all(Fact::Fallback(None)).peekable();
        fallbacks.peek()?;
        for (fact, _) in fallbacks {
            let Fact::Fallback(Some(key)) = fact else { continue };
            let Some(Spec::Backend(backend)) = surroundings.add(key.clone()).map(|document| &document.spec)
            else {
                continue;
            };
            let BackendSource::Fallback(members) = &backend.source else { continue };
            members.iter().for_each(|member| surroundings.add_member(&member.object));
        }
        let verdicts = verdicts(&surroundings.lookup(self.options));
        let fact = |(key, verdict): (&DocumentKey, _)| {
            (Fact::Verdict(key.clone()), Value::Verdict(Arc::new(verdict)))
        };
        Some(verdicts.into_iter().map(fact).collect())
    }

    /// Every match of every rule of a route.
    pub(super) fn rules(self, key: &DocumentKey) -> Option<Facts> {
        let placed = self.reader.document(key)?;
        let Spec::Route(route) = &placed.document.spec else { return Some(Vec::new()) };
        let mut surroundings = Surroundings::new(self.reader);
        surroundings.add_placed(placed);
        for rule in &route.rules {
            rule.filters.iter().for_each(|filter| surroundings.add_filter(filter));
            for backend in &rule.backends {
                surroundings.add_reference(&backend.object);
                backend.filters.iter().for_each(|filter| surroundings.add_filter(filter));
            }
        }
        let RoutePlan { routes, problems, partly_invalid } =
            surroundings.lookup(self.options).route_plan(placed, route);
        let mut facts = vec![(Fact::Rules(key.clone()), Value::Routes(routes.into()))];
        if !problems.is_empty() || !partly_invalid.is_empty() {
            let faults = Faults { problems, partly_invalid };
            facts.push((Fact::Faults(key.clone()), Value::Faults(faults.into())));
        }
        Some(facts)
    }

    /// The routes of a host, those of the plan with what their rules come to; and the clusters that they reach.
    pub(super) fn host_routes(self, key: &HostKey) -> Option<Facts> {
        let Some(Value::Stubs(stubs)) = self.reader.value(Fact::Stubs(key.clone())) else { return None };
        let Stubs { routes, is_for_envoys, .. } = &**stubs;
        let routes = if routes.iter().any(|stub| is_route(stub.id.document.kind)) {
            self.shared(routes.iter().map(|stub| self.planned_route(stub)).collect())
        } else {
            // What a Service or split comes to is all in the plan.
            Arc::clone(routes)
        };
        let mut facts = self.uses(key, &routes, *is_for_envoys);
        facts.push((Fact::Routes(key.clone()), Value::Routes(routes)));
        Some(facts)
    }

    /// The clusters that the routes of a host reach.
    pub(super) fn uses(&self, key: &HostKey, routes: &[PlannedRoute], is_for_envoys: bool) -> Facts {
        let uses = usages(routes, is_for_envoys, |cluster| self.members(cluster));
        let of_cluster = |(cluster, usage): (String, Usage)| {
            let cluster = InGroup::new(&key.group, &cluster);
            (Fact::Use(cluster, Some(key.clone())), Value::Usage(usage))
        };
        uses.into_iter().map(of_cluster).collect()
    }

    /// The members of a cluster, if it is that of a fallback.
    fn members(&self, cluster: &str) -> Vec<String> {
        let Some(key) = fallback_of_cluster(cluster) else { return Vec::new() };
        let Some(Value::Verdict(verdict)) = self.reader.value(Fact::Verdict(key)) else { return Vec::new() };
        verdict.as_ref().as_ref().map(|fallback| fallback.members.clone()).unwrap_or_default()
    }

    /// The routes of a host. Most have all routes of one document: then the host keeps none of its own.
    pub(super) fn shared(&self, routes: Vec<PlannedRoute>) -> Arc<[PlannedRoute]> {
        let document =
            routes.first().map(|route| &route.id.document).filter(|document| is_route(document.kind));
        let rules = document.and_then(|document| self.reader.value(Fact::Rules(document.clone())));
        match rules {
            Some(Value::Routes(rules)) if **rules == *routes => Arc::clone(rules),
            Some(_) | None => routes.into(),
        }
    }

    fn planned_route(&self, stub: &PlannedRoute) -> PlannedRoute {
        let document = Some(&stub.id.document).filter(|document| is_route(document.kind));
        let rules = document.and_then(|document| self.reader.value(Fact::Rules(document.clone())));
        let Some(Value::Routes(rules)) = rules else { return stub.clone() };
        let place = |route: &PlannedRoute| (route.id.rule, route.id.match_index);
        let found = rules.binary_search_by_key(&place(stub), place).ok();
        found.and_then(|index| rules.get(index)).unwrap_or(stub).clone()
    }

    /// A cluster with its endpoints and the certificates that it trusts.
    pub(super) fn backend(self, name: &InGroup) -> Option<Facts> {
        let mut users = self.reader.all(Fact::Use(name.clone(), None)).peekable();
        users.peek()?;
        let mut usage = Usage::default();
        for (_, value) in users {
            if let Value::Usage(own) = value {
                usage.join(own);
            }
        }
        let mut surroundings = Surroundings::new(self.reader);
        surroundings.add_cluster(&name.name);
        let lookup = surroundings.lookup(self.options);
        let Some(reached) = lookup.reached(&name.name, &usage) else { return Some(Vec::new()) };
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
