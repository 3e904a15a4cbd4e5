//! The resources for proxyless gRPC clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Origin, Profile};

use super::context::Context;
use crate::emit::UNAVAILABLE;
use crate::emit::{Dialled, GrpcLoss, grpc};
use crate::memo::fact::{Claim, Fact, Value};
use crate::memo::key::{HostKey, InGroup};
use crate::memo::made::{Clients, Made};
use crate::model::DocumentKey;
use crate::plan::{Action, Host as HostName, PlannedRoute, Target};

impl<'m> Context<'_, 'm, '_> {
    /// The Listeners and the RouteConfiguration of a host.
    pub(super) fn dialled(mut self, key: &HostKey) -> Option<Made> {
        let (dialled, origin) = self.names(key)?;
        if dialled.names.is_empty() {
            return Some(Made::new());
        }
        let routes = self.routes(key);
        let mut plan = self.clusters(key.group(), routes.iter().flat_map(named));
        for name in plan.clusters.keys() {
            let name = self.names.get(key.group(), name);
            // Endpoints change often, so only this fact about them is read.
            if !self.reader.has(Fact::Uneven(name.clone())) {
                continue;
            }
            if let Some(assignment) = self.assigned(&name) {
                plan.assignments.insert(name.name.to_string(), assignment.clone());
            }
        }
        let grpc::Table { emitted, roots, needs_unavailable, losses } =
            grpc::table(&plan, self.options, &dialled, routes, origin);
        let mut facts = self.write(key.group(), Clients::Grpc, &emitted);
        let uses = roots.iter().map(|root| {
            (Fact::GrpcUse(self.names.get(key.group(), root), Some(key.clone())), Value::Present)
        });
        facts.extend(uses);
        if let Some(first) = dialled.names.first().filter(|_| needs_unavailable) {
            let claim = Some(Claim::Dialled(first.clone(), key.clone()).into());
            let need = Fact::Need(key.group().clone(), Profile::Grpc, claim);
            facts.push((need, Value::Origin(origin.clone().into())));
        }
        facts.extend(by_document(losses).into_iter().map(|(document, losses)| {
            (Fact::Loss(document, Some(key.clone())), Value::Losses(losses.into()))
        }));
        Some(facts)
    }

    /// The names by which clients dial a host, if any, and its origin.
    ///
    /// If hosts of Gateways have the same name, it belongs to the one with the lowest port, then to the first Gateway. Hosts of Gateways win
    /// over Services of the mesh.
    fn names(&self, key: &HostKey) -> Option<(Dialled, &'m Origin)> {
        if let Some((table, name)) = key.service() {
            let found = self.reader.value(Fact::MeshService(table, Some(name)));
            let Some(Value::Service(service)) = found else { return None };
            let port = key.mesh_port()?;
            let names = service.dialled(&key.namespace, &key.name, port);
            return Some((Dialled::service(&key.namespace, &key.name, port, names), &service.origin));
        }
        self.reader.value(Fact::Routes(key.clone()))?;
        let front = self.front(key)?;
        let mut dialled = Dialled::gateway(&key.table.name, &HostName::of(&key.name));
        let name = InGroup::of(key.group().clone(), Arc::clone(&key.name));
        let all = self.reader.all(Fact::Named(name, None));
        let all = all.filter_map(|(fact, _)| {
            let Fact::Named(_, chain) = fact else { return None };
            chain.as_ref()
        });
        let mut all = all.peekable();
        let is_own = |chain: &&(u16, InGroup)| (chain.0, &chain.1) == (front.port, &key.table);
        let is_first = all.peek().is_some_and(is_own);
        let is_first_of_port = all.find(|chain| chain.0 == front.port).is_some_and(|chain| is_own(&chain));
        dialled.names = dialled.gateway_names(front.port, is_first, is_first_of_port);
        Some((dialled, &front.origin))
    }

    /// A cluster that routes name: its message if it is an aggregate, and the clusters that it leads to.
    pub(super) fn grpc_root(mut self, name: &InGroup) -> Option<Made> {
        self.reader.all(Fact::GrpcUse(name.clone(), None)).next()?;
        let plan = self.clusters(&name.group, [&*name.name]);
        let Some(root) = grpc::root(&plan, &name.name) else { return Some(Made::new()) };
        let emitted: Vec<_> = root.aggregate.into_iter().collect();
        let mut facts = self.write(&name.group, Clients::Grpc, &emitted);
        facts.extend(root.reached.into_iter().map(|reached| {
            let by = Some(Arc::clone(&name.name));
            (Fact::GrpcReach(self.names.get(&name.group, reached), by), Value::Flag(root.has_sessions))
        }));
        Some(facts)
    }

    /// A cluster with endpoints of its own.
    pub(super) fn grpc_cluster(mut self, name: &InGroup) -> Option<Made> {
        let mut by = self.reader.all(Fact::GrpcReach(name.clone(), None)).peekable();
        by.peek()?;
        let has_sessions = by.any(|(_, value)| *value == Value::Flag(true));
        let Some(cluster) = self.planned(name) else { return Some(Made::new()) };
        let mut plan = crate::plan::Plan::default();
        plan.clusters.insert(name.name.to_string(), cluster.clone());
        let mut made = grpc::cluster(&plan, self.options, &name.name, has_sessions);
        if *name.name == *UNAVAILABLE && self.unavailable_for(&name.group, Profile::Grpc).is_some() {
            made.emitted.clear();
        }
        let mut facts = self.write(&name.group, Clients::Grpc, &made.emitted);
        if made.assignment.is_some() {
            facts.push((Fact::GrpcAssigned(name.clone()), Value::Present));
        }
        if let Some(nowhere) = made.nowhere {
            let nowhere = Fact::Nowhere(name.group.clone(), Profile::Grpc, Some(nowhere.into()));
            facts.push((nowhere, Value::Origin(cluster.origin.clone().into())));
        }
        Some(facts)
    }
}

/// The backends that a route names.
fn named(route: &PlannedRoute) -> impl Iterator<Item = &str> {
    let targets = match &route.action {
        Action::Forward(targets) => targets.as_slice(),
        Action::Redirect(_) | Action::Fail => &[],
    };
    targets.iter().filter_map(|weighted| match &weighted.target {
        Target::Backend(backend) => Some(backend.name.as_str()),
        Target::Broken => None,
    })
}

fn by_document(losses: BTreeSet<GrpcLoss>) -> BTreeMap<DocumentKey, Vec<GrpcLoss>> {
    let mut by_document: BTreeMap<DocumentKey, Vec<GrpcLoss>> = BTreeMap::new();
    for loss in losses {
        by_document.entry(loss.document.clone()).or_default().push(loss);
    }
    by_document
}
