//! The hosts of the chains of Gateways: their routes, and conflicts over their names.

use std::sync::Arc;

use super::context::Context;
use super::mesh::label;
use crate::memo::fact::{Fact, Value};
use crate::memo::key::{HostKey, InGroup};
use crate::memo::made::Made;
use crate::model::DocumentKey;
use crate::plan::{
    Front, Host, ListenerKey, PlannedRoute, Rank, Seniority, Served, cascade, is_route, levels,
};
use crate::thin::Thin;

impl<'m> Context<'_, 'm, '_> {
    /// A host of a chain: its routes, the clusters that they use, and its names.
    ///
    /// It belongs to the most specific listener of the port. The same host of other listeners is not served.
    pub(super) fn host(self, key: &HostKey) -> Option<Made> {
        let front = self.front(key)?;
        let host = Host::of(&key.name);
        let (listener, own) = front.owner(&host)?;
        let of_chain = front.listeners.iter().filter(|(other, _)| other.chain == key.table.name);
        if listener.chain != key.table.name || !self.brought(listener, &host).any(|(_, _, is_taken)| is_taken)
        {
            // The unit stays as long as any listener has the host, because that may own it later.
            let is_brought = |listener: &Arc<ListenerKey>| self.brought(listener, &host).next().is_some();
            return of_chain.map(|(listener, _)| listener).any(is_brought).then(Made::new);
        }
        let levels = levels(&host, own).map(|level| self.level(listener, &level));
        let routes = self.shared(cascade(levels, self.options));
        let served = Served { is_for_envoys: true, is_asked_for: true };
        let hides = front.is_on_demand && host.is_wildcard() && !routes.is_empty();
        let mut facts: Made = self.routes_of(key, routes, served).into_iter().collect();
        if hides {
            facts.push((Fact::Hides(key.table.clone(), Some(key.clone())), Value::Present));
        }
        let name = InGroup::of(key.group().clone(), Arc::clone(&key.name));
        let named = Fact::Named(name, Some((front.port, key.table.clone())));
        facts.push((named, Value::Present));
        if !host.is_wildcard() {
            let name =
                Fact::GatewayName(InGroup::of(key.group().clone(), label(&key.name)), Some(key.clone()));
            facts.push((name, Value::Present));
        }
        Some(facts)
    }

    /// The routes that name a host of a listener, with their ranks.
    fn level(&self, listener: &Arc<ListenerKey>, host: &Host) -> Vec<(Rank, &'m PlannedRoute)> {
        let mut level = Vec::new();
        for (by, created, is_taken) in self.brought(listener, host) {
            if !is_route(by.kind) || !is_taken {
                continue;
            }
            let Some(Value::Routes(routes)) = self.reader.value(Fact::Rules(by.clone())) else { continue };
            let seniority = Seniority::new(by, created);
            level.extend(routes.iter().map(|route| (Rank::of(route, &seniority), route)));
        }
        level
    }

    /// The routes that bring a host to a listener, each with its age and whether the listener accepts it.
    fn brought(
        &self,
        listener: &Arc<ListenerKey>,
        host: &Host,
    ) -> impl Iterator<Item = (&'m DocumentKey, Option<i64>, bool)> {
        let all = self.reader.all(Fact::On(Arc::clone(listener), Thin::new(host.clone()), None));
        all.filter_map(|(fact, value)| {
            let (Fact::On(listener, host, Some(by)), Value::Age(created)) = (fact, value) else {
                return None;
            };
            let off = Fact::Off(Arc::clone(listener), host.clone(), by.clone());
            Some((by, *created, self.reader.covered(&off).is_none()))
        })
    }

    /// The chain of a host.
    pub(super) fn front(&self, key: &HostKey) -> Option<&'m Front> {
        let front = Fact::Front(key.table.clone());
        let Some(Value::Front(front)) = self.reader.value(front) else { return None };
        Some(front)
    }
}
