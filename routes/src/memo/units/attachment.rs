//! Attachment: the requests of routes to Gateways, the routes that exceed limits, and the hosts that routes bring to listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::GroupName;

use super::context::Context;
use super::gateways::implicit;
use crate::input::Placed;
use crate::memo::fact::{Calls, Fact, Load, RefusedRoute, Value};
use crate::memo::made::Made;
use crate::model::{DocumentKey, Kind, RouteKind, Spec};
use crate::plan::{
    AttachableRoute, Contender, Cost, Host, Known, Ledger, ListenerKey, Lookup, Parent, Parents, Requests,
    Seniority, Sums, is_route, losers, mesh, namespace_labels, tired,
};
use crate::thin::Thin;

impl Context<'_, '_, '_> {
    /// The requests of a route to Gateways and in the mesh.
    pub(super) fn attachment(self, key: &DocumentKey) -> Option<Made> {
        let placed = self.reader.outline(key)?;
        let mut facts = Made::new();
        if let Some(route) = AttachableRoute::of(placed) {
            let requests = self.ask(&route);
            if !requests.is_empty() {
                facts.push((Fact::Requests(Some(key.clone())), Value::Requests(requests.into())));
            }
        }
        facts.extend(self.calls(placed).map(|calls| (Fact::Calls(key.clone()), Value::Calls(calls.into()))));
        Some(facts)
    }

    fn ask(&self, route: &AttachableRoute<'_>) -> Requests {
        if route.takes_natives() && self.reader.has(Fact::Throng) {
            return Requests::deferred(route, self.reader.sum(Fact::Throng).hosts);
        }
        Requests::of(route, self)
    }

    /// An upper bound of the resources that a route generates in the mesh.
    fn calls(&self, placed: &Placed) -> Option<Calls> {
        let Spec::Route(route) = &placed.document.spec else { return None };
        let (mut n_ports, mut n_consumed) = (0, 0);
        for parent in route.parents.iter().filter(|parent| parent.is_service()) {
            let service = DocumentKey::new(Kind::Service, &parent.namespace, &parent.name);
            let Some(service) = self.reader.outline(&service) else { continue };
            let Spec::Service(service) = &service.document.spec else { continue };
            n_ports += service.ports.len();
            if parent.namespace != placed.document.key.namespace {
                n_consumed += service.ports.len();
            }
        }
        let cost = Cost { hosts: 1, ..Requests::cost_of(&placed.document, route) }.times(n_ports);
        (n_ports > 0).then(|| Calls { group: placed.group.clone(), cost, n_consumed })
    }

    /// The routes that exceed limits. They are checked one by one only if the sum of all exceeds a limit.
    pub(super) fn ledger(self, goes_on: &dyn Fn() -> bool) -> Option<Made> {
        let mut sums = Sums::default();
        for (fact, value) in self.reader.all(Fact::Load(None)) {
            let (Fact::Load(Some(load)), Value::Sum(sum)) = (fact, value) else { continue };
            let sum = sum.cost();
            match load {
                Load::Asked => sums.n_asked = sum.hosts,
                Load::Group(_) => sums.groups.push(sum),
                Load::Listener(_) => sums.listeners.push(sum),
                Load::Consumed => sums.n_consumed = sum.hosts,
                Load::Ports => sums.n_ports = sum.hosts,
            }
        }
        if !sums.may_exceed(&self.options.limits) {
            return Some(Made::new());
        }
        let mut facts = Made::new();
        let documents = self.reader.documents();
        let requests = self.reader.all(Fact::Requests(None)).filter_map(|(fact, value)| {
            let (Fact::Requests(Some(key)), Value::Requests(requests)) = (fact, value) else { return None };
            Some((documents.get(key)?, requests))
        });
        let mut by_age: Vec<(&Placed, &Arc<Requests>)> = requests.collect();
        by_age.sort_by_cached_key(|(placed, _)| Seniority::of(&placed.document));
        let mut ledger = Ledger::new(self.options.limits);
        for (placed, requests) in by_age.into_iter().take_while(|_| goes_on()) {
            facts.extend(self.admit(placed, requests, &mut ledger));
        }
        let lookup = Lookup::of(documents, BTreeMap::new(), self.options);
        for (key, fault) in mesh::refused(&lookup, documents, &mut ledger, goes_on) {
            facts.push((Fact::MeshRefused(key), Value::Fault(fault.into())));
        }
        Some(facts)
    }

    /// Admits a route, or returns the limit that it exceeds.
    fn admit<'p>(
        &self,
        placed: &'p Placed,
        requests: &Arc<Requests>,
        ledger: &mut Ledger<'p>,
    ) -> Option<(Fact, Value)> {
        let key = || placed.document.key.clone();
        let route = AttachableRoute::of(placed)?;
        if route.route.parents.is_empty() && ledger.is_tired() {
            let listeners = requests.listeners().into_iter().map(Arc::clone).collect();
            let refused = RefusedRoute { fault: tired(), is_tired: true, listeners };
            return Some((Fact::Refused(key()), Value::Refused(refused.into())));
        }
        let (is_deferred, requests) = match requests.is_deferred() {
            true => (true, Arc::new(Requests::of(&route, self))),
            false => (false, Arc::clone(requests)),
        };
        match ledger.admit(&placed.group, &placed.document, &requests) {
            Ok(()) => is_deferred.then(|| (Fact::Admitted(key()), Value::Requests(requests))),
            Err(fault) => {
                let listeners = if is_deferred { BTreeSet::new() } else { requests.listeners() };
                let listeners = listeners.into_iter().map(Arc::clone).collect();
                let refused = RefusedRoute { fault, is_tired: false, listeners };
                Some((Fact::Refused(key()), Value::Refused(refused.into())))
            }
        }
    }

    /// The requests of a route, and the refusal if it exceeds a limit.
    pub(super) fn requests(&self, key: &DocumentKey) -> Option<(Arc<Requests>, Option<Arc<RefusedRoute>>)> {
        let admitted = self.reader.value(Fact::Admitted(key.clone()));
        let requests = admitted.or_else(|| self.reader.value(Fact::Requests(Some(key.clone()))));
        let Some(Value::Requests(requests)) = requests else { return None };
        let mut refused = None;
        if let Some(Value::Refused(found)) = self.reader.value(Fact::Refused(key.clone())) {
            refused = Some(Arc::clone(found));
        }
        Some((Arc::clone(requests), refused))
    }

    /// The hosts that a route brings to listeners.
    pub(super) fn bids(self, key: &DocumentKey) -> Option<Made> {
        let (requests, refused) = self.requests(key)?;
        let mut facts = Made::new();
        if refused.as_ref().is_none_or(|refused| !refused.is_tired) {
            let mut implicit = requests.list.iter().filter(|request| request.is_implicit).peekable();
            if implicit.peek().is_some() {
                let is_attached = refused.is_none() && implicit.any(|request| request.attachments.is_ok());
                let asks = Fact::Asks(requests.group.clone(), Some(key.clone()));
                facts.push((asks, Value::Flag(is_attached)));
            }
        }
        if refused.is_some() {
            return Some(facts);
        }
        let mut brought: BTreeSet<(&Arc<ListenerKey>, &Host)> = BTreeSet::new();
        for attachment in requests.attachments() {
            brought.extend(attachment.hosts.iter().map(|host| (&attachment.listener.key, host)));
        }
        facts.extend(brought.into_iter().map(|(listener, host)| {
            let on = Fact::On(Arc::clone(listener), Thin::new(host.clone()), Some(key.clone()));
            (on, Value::Age(requests.created))
        }));
        Some(facts)
    }

    /// The routes that leave a listener to those of another kind. Skipped if no hosts of both kinds overlap.
    pub(super) fn kinds(self, listener: &Arc<ListenerKey>) -> Option<Made> {
        if self.reader.sum(Fact::Rivals(Arc::clone(listener))).hosts == 0 {
            return None;
        }
        if self.options.merges_route_kinds {
            return Some(Made::new());
        }
        let mut sides: BTreeMap<&DocumentKey, (Seniority, Vec<Host>)> = BTreeMap::new();
        for (host, by, value) in self.reader.bids(listener).filter(|(_, by, _)| is_route(by.kind)) {
            let Value::Age(created) = value else { continue };
            let side = sides.entry(by).or_insert_with(|| (Seniority::new(by, *created), Vec::new()));
            side.1.push(host.clone());
        }
        let sides: Vec<(&DocumentKey, (Seniority, Vec<Host>))> = sides.into_iter().collect();
        let contender = |(key, (seniority, hosts))| Contender { kind: kind_of(key), seniority, hosts };
        let contenders: Vec<Contender<'_>> =
            sides.iter().map(|(key, side)| contender((key, (&side.0, &side.1)))).collect();
        let mut facts = Made::new();
        for (loser, winner) in losers(&contenders) {
            let (Some((loser, (_, hosts))), Some((winner, _))) = (sides.get(loser), sides.get(winner)) else {
                continue;
            };
            let lost = Fact::Lost(Arc::clone(listener), (*loser).clone());
            facts.push((lost, Value::Key((*winner).clone())));
            facts.extend(hosts.iter().map(|host| {
                (
                    Fact::Off(Arc::clone(listener), Thin::new((*host).clone()), (*loser).clone()),
                    Value::Present,
                )
            }));
        }
        Some(facts)
    }

    /// The route that won a listener, if this one lost it.
    pub(super) fn winner(&self, listener: &Arc<ListenerKey>, route: &DocumentKey) -> Option<DocumentKey> {
        let lost = Fact::Lost(Arc::clone(listener), route.clone());
        let Some(Value::Key(winner)) = self.reader.value(lost) else { return None };
        Some(winner.clone())
    }
}

/// The kind of a route by its document.
fn kind_of(key: &DocumentKey) -> RouteKind {
    if key.kind == Kind::GrpcRoute {
        return RouteKind::Grpc;
    }
    if key.kind == Kind::HttpRoute { RouteKind::Http } else { RouteKind::Native }
}

impl Parents for Context<'_, '_, '_> {
    fn gateway(&self, key: &DocumentKey) -> Known {
        match self.reader.value(Fact::Gateway(key.clone())) {
            Some(Value::Gateway(Some(gateway))) => Known::Ours(Arc::clone(gateway)),
            Some(_) => Known::Foreign,
            None => Known::Missing,
        }
    }

    fn natives(&self) -> Arc<[Arc<Parent>]> {
        let Some(Value::Gateways(natives)) = self.reader.value(Fact::Natives) else { return Arc::new([]) };
        Arc::clone(natives)
    }

    fn is_without_documents(&self) -> bool {
        !self.reader.has(Fact::HasGateways)
    }

    fn implicit(&self, group: &GroupName) -> Option<Arc<Parent>> {
        implicit(self.reader, group, self.options).map(|gateway| Arc::new(gateway.parent()))
    }

    fn namespace_labels(&self, namespace: &str) -> Vec<(String, String)> {
        let document = self.reader.outline(&DocumentKey::new(Kind::Namespace, "", namespace));
        namespace_labels(document.map(|placed| &*placed.document), namespace)
    }
}
