//! The rules of routes, and the clusters that they reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::{Context, Facts};
use super::surroundings::Surroundings;
use crate::emit::grpc;
use crate::memo::fact::{Fact, Faults, Value};
use crate::memo::key::{HostKey, InGroup};
use crate::memo::made::Made;
use crate::model::{BackendSource, DocumentKey, Kind, Spec};
use crate::plan::{
    PlannedRoute, Reached, RoutePlan, Served, Usage, certificate, fallback_of_cluster, is_route, mesh,
    usages, verdicts,
};

impl Context<'_, '_, '_> {
    /// The verdicts on all fallbacks. One may depend on all others.
    pub(super) fn fallbacks(self) -> Option<Made> {
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
            members.iter().for_each(|member| surroundings.add_member(&key.namespace, &member.object));
        }
        let verdicts = verdicts(&surroundings.lookup(self.options));
        let fact = |(key, verdict): (&DocumentKey, _)| {
            (Fact::Verdict(key.clone()), Value::Verdict(Arc::new(verdict)))
        };
        Some(verdicts.into_iter().map(fact).collect())
    }

    /// Every match of every rule of a route.
    pub(super) fn rules(self, key: &DocumentKey) -> Option<Made> {
        let placed = self.reader.document(key)?;
        let Spec::Route(route) = &placed.document.spec else { return Some(Made::new()) };
        let mut surroundings = Surroundings::new(self.reader);
        surroundings.add_placed(placed);
        for rule in &route.rules {
            rule.filters.iter().for_each(|filter| surroundings.add_filter(&key.namespace, filter));
            for backend in &rule.backends {
                surroundings.add_reference(&key.namespace, &backend.object);
                backend.filters.iter().for_each(|filter| surroundings.add_filter(&key.namespace, filter));
            }
        }
        let plan = surroundings.lookup(self.options).route_plan(placed, route);
        let RoutePlan { routes, problems, partly_invalid } = plan;
        let mut facts = Made::one(Fact::Rules(key.clone()), Value::Routes(routes.into()));
        let faults = Faults { problems, partly_invalid };
        if faults != Faults::default() {
            facts.push((Fact::Faults(key.clone()), Value::Faults(faults.into())));
        }
        facts.extend(self.wanted(placed, route));
        let uncounted = mesh::uncounted(&placed.document, |service| self.split_of(service));
        facts.say(uncounted);
        Some(facts)
    }

    /// The routes of a host, and the clusters that they reach.
    pub(super) fn routes_of(&self, key: &HostKey, routes: Arc<[PlannedRoute]>, served: Served) -> Facts {
        let uses = usages(&routes, served, |cluster| self.members(cluster));
        let of_cluster = |(cluster, usage): (String, Usage)| {
            let cluster = self.names.get(key.group(), &cluster);
            (Fact::Use(cluster, Some(key.clone())), Value::Usage(usage))
        };
        let mut facts: Facts = uses.into_iter().map(of_cluster).collect();
        facts.push((Fact::Routes(key.clone()), Value::Routes(routes)));
        facts
    }

    /// The members of a cluster, if it belongs to a fallback.
    fn members(&self, cluster: &str) -> Vec<String> {
        let Some(key) = fallback_of_cluster(cluster) else { return Vec::new() };
        let Some(Value::Verdict(verdict)) = self.reader.value(Fact::Verdict(key)) else { return Vec::new() };
        verdict.as_ref().as_ref().map(|fallback| fallback.members.clone()).unwrap_or_default()
    }

    /// Shares the routes of a host with those of a document, if they are the same. For most hosts, they are.
    pub(super) fn shared(&self, routes: Vec<PlannedRoute>) -> Arc<[PlannedRoute]> {
        let document =
            routes.first().map(|route| &route.id.document).filter(|document| is_route(document.kind));
        let rules = document.and_then(|document| self.reader.value(Fact::Rules(document.clone())));
        match rules {
            Some(Value::Routes(rules)) if **rules == *routes => Arc::clone(rules),
            Some(_) | None => routes.into(),
        }
    }

    /// A cluster with its endpoints and the certificates that it trusts.
    pub(super) fn backend(self, name: &InGroup) -> Option<Made> {
        let mut users = self.reader.all(Fact::Use(name.clone(), None)).peekable();
        users.peek()?;
        let mut usage = Usage::default();
        let mut ancestors = BTreeSet::new();
        for (fact, value) in users {
            let (Fact::Use(_, Some(host)), Value::Usage(own)) = (fact, value) else { continue };
            usage.join(own);
            ancestors.extend(own.is_asked_for.then(|| host.ancestor()));
        }
        let mut surroundings = Surroundings::new(self.reader);
        surroundings.add_cluster(&name.name);
        let lookup = surroundings.lookup(self.options);
        let Some(reached) = lookup.reached(&name.name, &usage) else { return Some(Made::new()) };
        let Reached { cluster, assignment, secret, diagnostics } = reached;
        let mut facts = Made::one(Fact::Cluster(name.clone()), Value::Cluster(cluster.into()));
        // Only policies read ancestors.
        if let Some(key) = surroundings.key_with_policies(&name.name).filter(|_| !ancestors.is_empty()) {
            let ancestors = Value::Ancestors(ancestors.into_iter().collect());
            facts.push((Fact::Ancestors(key, Some(name.clone())), ancestors));
        }
        if let Some(assignment) = assignment {
            if grpc::has_uneven_weights(&assignment) {
                facts.push((Fact::Uneven(name.clone()), Value::Present));
            }
            facts.push((Fact::Assignment(name.clone()), Value::Assignment(assignment.into())));
        }
        if let Some((secret, trusted)) = secret {
            let by = Some(Arc::clone(&name.name));
            let trusts = Fact::Trusted(InGroup::named(&name.group, &secret), by);
            facts.push((trusts, Value::Secret(trusted.into())));
        }
        facts.say(diagnostics);
        Some(facts)
    }

    /// A secret: certificates that clusters trust, or a certificate of listeners.
    pub(super) fn secret(mut self, name: &InGroup) -> Option<Made> {
        if self.reader.has(Fact::Certificate(name.clone())) {
            let (namespace, secret) = name.name.split_once('/')?;
            let placed = self.reader.document(&DocumentKey::new(Kind::Secret, namespace, secret));
            let Some(found) = placed.and_then(|placed| certificate(&placed.document)) else {
                return Some(Made::new());
            };
            return Some(self.write_secret(name, &found));
        }
        let (_, value) = self.reader.all(Fact::Trusted(name.clone(), None)).next()?;
        let Value::Secret(trusted) = value else { return None };
        Some(self.write_secret(name, trusted))
    }
}
