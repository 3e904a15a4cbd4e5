//! Services of the mesh: the routes that want their ports, the one that gets each, and the names by which clients call them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::GroupName;
use xds_codec::Diagnostic;

use super::context::{Context, Facts};
use super::surroundings::Surroundings;
use crate::emit::envoy;
use crate::input::Placed;
use crate::memo::fact::{Fact, MeshPort, Names, Sole, TablePlace, Value};
use crate::memo::key::{HostKey, InGroup, Name, ServiceName};
use crate::memo::made::Made;
use crate::model::{Document, DocumentKey, Kind, Route, Service, Spec};
use crate::plan::mesh::{self, Class, Wish};
use crate::plan::split::{Wanted, backends_of, plan_split, root_of};
use crate::plan::{PlannedRoute, Seniority, Served};
use crate::thin::Thin;

/// The first label of a name. Names that could be equal have the same one.
pub(super) fn label(name: &str) -> Name {
    name.split(['.', ':']).next().unwrap_or_default().into()
}

/// The facts of a Service in the mesh: its names, and its ports if Envoys listen for them without a route.
pub(super) fn of_service(placed: &Placed, service: &Service) -> Facts {
    let (key, group) = (&placed.document.key, &placed.group);
    if service.ports.is_empty() {
        return Facts::new();
    }
    let is_asked_for = mesh::is_asked_for(placed);
    let mut facts = vec![namesake(group, key, key, is_asked_for)];
    if is_asked_for {
        let ports: BTreeSet<u16> = service.ports.iter().map(|port| port.port).collect();
        facts.extend(ports.into_iter().map(|port| wished_port(group, port, key)));
    }
    facts
}

/// The fact of a split, by its root.
pub(super) fn of_split(placed: &Placed) -> Option<(Fact, Value)> {
    let root = root_of(&placed.document)?;
    let rival = Fact::Rival(placed.group.clone(), root, Some(placed.document.key.clone()));
    Some((rival, Value::Seniority(Seniority::of(&placed.document).into())))
}

fn namesake(group: &GroupName, service: &DocumentKey, by: &DocumentKey, is_asked_for: bool) -> (Fact, Value) {
    let of = Some((service.clone(), by.clone()));
    (Fact::Namesake(InGroup::of(group.clone(), label(&service.name)), of), Value::Flag(is_asked_for))
}

fn wished_port(group: &GroupName, port: u16, by: &DocumentKey) -> (Fact, Value) {
    (Fact::WishedPort(group.clone(), port, Some(by.clone())), Value::Present)
}

/// The facts about requests for these ports.
fn wishes(key: &DocumentKey, wanted: &Wanted, class: Class, seniority: Seniority) -> Facts {
    let Wanted { group, service, ports } = wanted;
    if ports.is_empty() {
        return Facts::new();
    }
    let claim = Wish { class, seniority, ports: ports.clone() };
    let wish = Fact::Wish(group.clone(), service.clone(), Some(key.clone()));
    let facts = [(wish, Value::Wish(claim.into())), namesake(group, service, key, true)];
    facts.into_iter().chain(ports.iter().map(|port| wished_port(group, *port, key))).collect()
}

/// The RouteConfiguration for Envoys of a port of the mesh.
fn table(group: &GroupName, port: u16) -> InGroup {
    InGroup::named(group, &envoy::mesh_table(port))
}

impl<'m> Context<'_, 'm, '_> {
    /// A TrafficSplit.
    pub(super) fn split(self, key: &DocumentKey) -> Option<Made> {
        let placed = self.reader.document(key)?;
        let document = &*placed.document;
        let Spec::TrafficSplit(split) = &document.spec else { return Some(Made::new()) };
        let root = root_of(document);
        let mut holding = BTreeMap::new();
        let mut surroundings = Surroundings::new(self.reader);
        for service in root.iter().cloned().chain(backends_of(document)) {
            let rivals = self.reader.all(Fact::Rival(placed.group.clone(), service.clone(), None));
            let oldest = rivals.min_by(|(_, one), (_, other)| match (one, other) {
                (Value::Seniority(one), Value::Seniority(other)) => one.cmp(other),
                _ => std::cmp::Ordering::Equal,
            });
            if let Some((Fact::Rival(_, _, Some(split)), _)) = oldest {
                holding.insert(service.clone(), split.clone());
            }
            surroundings.add(service);
        }
        for (_, name) in &split.matches {
            surroundings.add(DocumentKey::new(Kind::HttpRouteGroup, &key.namespace, name));
        }
        let lookup = surroundings.lookup(self.options);
        let mut diagnostics = Vec::new();
        let planned = plan_split(&lookup, placed, split, &holding, &mut diagnostics);
        let mut facts = Made::new();
        if let Some(wanted) = &planned.wanted {
            facts.extend(wishes(key, wanted, Class::Split, Seniority::of(document)));
            if planned.fault.is_none() {
                let divided = Fact::Divided(wanted.service.clone(), Some(key.clone()));
                facts.push((divided, Value::Present));
            }
        }
        facts.push((Fact::Split(key.clone()), Value::Split(planned.into())));
        facts.say(diagnostics);
        Some(facts)
    }

    /// The requests of a route to the Services that are its parents.
    pub(super) fn wanted(&self, placed: &Placed, route: &Route) -> Option<(Fact, Value)> {
        let mut surroundings = Surroundings::new(self.reader);
        for parent in route.parents.iter().filter(|parent| parent.is_service()) {
            surroundings.add(DocumentKey::new(Kind::Service, &parent.namespace, &parent.name));
        }
        let requests = mesh::requests(&surroundings.lookup(self.options), placed, route);
        let key = placed.document.key.clone();
        (!requests.is_empty()).then(|| (Fact::Parents(key), Value::Parents(requests.into())))
    }

    /// The split of a Service, if it has one. Routes of Gateways ignore it.
    pub(super) fn split_of(&self, service: &DocumentKey) -> Option<DocumentKey> {
        match self.reader.all(Fact::Divided(service.clone(), None)).last()? {
            (Fact::Divided(_, split), _) => split.clone(),
            _ => None,
        }
    }

    /// The ports of Services that a route asks for, unless it is refused.
    pub(super) fn wishes(self, key: &DocumentKey) -> Option<Made> {
        let Some(Value::Parents(requests)) = self.reader.value(Fact::Parents(key.clone())) else {
            return None;
        };
        if self.reader.has(Fact::MeshRefused(key.clone())) {
            return Some(Made::new());
        }
        let placed = self.reader.document(key)?;
        let Spec::Route(route) = &placed.document.spec else { return None };
        let mut all: BTreeMap<(&GroupName, &DocumentKey), BTreeSet<u16>> = BTreeMap::new();
        for Wanted { group, service, ports } in requests.iter().filter_map(|one| one.wanted.as_ref().ok()) {
            all.entry((group, service)).or_default().extend(ports);
        }
        let mut facts = BTreeMap::new();
        for ((group, service), ports) in all {
            if *service.namespace != *key.namespace {
                let consumer = Fact::Consumer(group.clone(), Some(key.clone()));
                facts.insert(consumer, Value::Home(placed.group.clone()));
            }
            let (group, service) = (group.clone(), service.clone());
            let wanted = Wanted { group, service, ports: ports.into_iter().collect() };
            let seniority = Seniority::of(&placed.document);
            facts.extend(wishes(key, &wanted, Class::of(route.kind), seniority));
        }
        Some(facts.into_iter().collect())
    }

    /// The Services whose names begin with a label.
    pub(super) fn namesakes(self, label: &InGroup) -> Option<Made> {
        let mut namesakes = self.reader.all(Fact::Namesake(label.clone(), None)).peekable();
        namesakes.peek()?;
        let mut names = Names::default();
        for (fact, value) in namesakes {
            let Fact::Namesake(_, Some((service, _))) = fact else { continue };
            names.add(service, *value == Value::Flag(true));
        }
        for (fact, _) in self.reader.all(Fact::GatewayName(label.clone(), None)) {
            let Fact::GatewayName(_, Some(host)) = fact else { continue };
            let (name, port) = (&host.name, host.table.name.split('/').nth(2).unwrap_or_default());
            names.of_gateways.extend([name.to_string(), format!("{name}:{port}")]);
        }
        names.services.shrink_to_fit();
        Some(Made::one(Fact::Names(label.clone()), Value::Names(names.into())))
    }

    /// Decides whether Envoys of a group listen on a port. If so, they listen for all Services there.
    pub(super) fn port(self, group: &GroupName, port: u16) -> Option<Made> {
        self.reader.all(Fact::WishedPort(group.clone(), port, None)).next()?;
        Some(Made::one(Fact::Shown(group.clone(), port), Value::Present))
    }

    /// The Listener and the RouteConfiguration of a port, without its hosts.
    pub(super) fn mesh_table(self, group: &GroupName, port: u16) -> Option<Made> {
        if !self.reader.has(Fact::Shown(group.clone(), port)) {
            return None;
        }
        let table = table(group, port);
        let first = self.reader.all(Fact::Framed(table.clone(), None)).next();
        let (Some(address), Some((_, Value::Service(service)))) = (self.options.mesh_address, first) else {
            return Some(Made::new());
        };
        let origin = service.origin.clone();
        let listener = envoy::mesh_listener(port, address);
        let facts = [
            (Fact::Listener(table.clone()), Value::Listener((listener, origin.clone()).into())),
            (Fact::Table(table), Value::Table((TablePlace::Mesh(port), origin).into())),
        ];
        Some(facts.into_iter().collect())
    }

    /// The ports of a Service, for the clients of a group.
    pub(super) fn mesh(self, group: &GroupName, key: &DocumentKey) -> Option<Made> {
        let placed = self.reader.document(key)?;
        let Spec::Service(service) = &placed.document.spec else { return None };
        let wishes = self.reader.all(Fact::Wish(group.clone(), key.clone(), None));
        let mut claims: Vec<(&DocumentKey, Arc<Wish>)> = Vec::new();
        for (fact, value) in wishes {
            let (Fact::Wish(_, _, Some(by)), Value::Wish(claim)) = (fact, value) else { continue };
            claims.push((by, Arc::clone(claim)));
        }
        if placed.group == *group {
            let ports = service.ports.iter().map(|port| port.port).collect();
            let claim = Wish { class: Class::Own, seniority: Seniority::of(&placed.document), ports };
            claims.push((key, claim.into()));
        }
        let mut ports: BTreeSet<u16> = claims.iter().flat_map(|(_, claim)| &claim.ports).copied().collect();
        ports.retain(|port| service.ports.iter().any(|own| own.port == *port));
        if ports.is_empty() {
            return None;
        }
        claims.sort_by_key(|(by, _)| *by);
        let of_mesh = OfMesh { placed, service, has_short_name: self.has_short_name(group, key) };
        let mut facts = Made::new();
        let mut diagnostics = Vec::new();
        for port in ports {
            let claims: Vec<_> = claims.iter().filter(|(_, claim)| claim.ports.contains(&port)).collect();
            let rivals: Vec<_> = claims.iter().map(|(by, claim)| (*by, &**claim)).collect();
            self.mesh_port(group, &of_mesh, port, &rivals, &mut facts, &mut diagnostics);
        }
        facts.say(diagnostics);
        Some(facts)
    }

    /// One of the ports.
    fn mesh_port(
        &self,
        group: &GroupName,
        of_mesh: &OfMesh<'_>,
        port: u16,
        rivals: &[(&DocumentKey, &Wish)],
        facts: &mut Made,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let OfMesh { placed, service, has_short_name } = *of_mesh;
        let document = &placed.document;
        let key = &document.key;
        let (holders, first) = mesh::settle(rivals, self.options);
        for (by, _) in rivals.iter().filter(|one| !holders.contains(one)) {
            let (place, first) =
                (Thin::new((group.clone(), key.clone(), port)), first.unwrap_or(key).clone());
            facts.push((Fact::LostPort((*by).clone(), Some(place)), Value::Key(first)));
        }
        let is_alone = holders.iter().all(|(_, claim)| claim.class == Class::Own);
        if is_alone {
            diagnostics.extend(mesh::once_split(placed));
        }
        let is_implicit = is_alone && !mesh::is_asked_for(placed);
        let is_shown = self.reader.has(Fact::Shown(group.clone(), port));
        let mut mesh_service = MeshPort {
            has_short_name,
            is_lowest_port: service.lowest_port() == Some(port),
            is_implicit,
            origin: document.origin(),
            lost: Vec::new(),
        };
        mesh_service.lost = self.lost_names(group, key, port, &mesh_service);
        let routes = self.mesh_routes(placed, port, &holders);
        let table = table(group, port);
        let name = ServiceName::new((Arc::clone(&key.namespace), Arc::clone(&key.name)));
        let found = Value::Service(mesh_service.into());
        if is_shown && self.is_framed(group, port, document, is_implicit, diagnostics) {
            facts.push((Fact::Framed(table.clone(), Some(name.clone())), found.clone()));
        }
        let host = HostKey::of_service(&table, &name);
        facts.push((Fact::MeshService(table, Some(name)), found));
        let served = Served { is_for_envoys: is_shown, is_asked_for: !is_implicit };
        facts.extend(self.routes_of(&host, self.shared(routes), served));
    }

    /// Returns `true` if Envoys get a Service on a requested port. They do not if a Gateway has the port.
    fn is_framed(
        &self,
        group: &GroupName,
        port: u16,
        document: &Document,
        is_implicit: bool,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> bool {
        if self.options.mesh_address.is_none() {
            return false;
        }
        let mut taken = self.reader.all(Fact::GatewayPort(group.clone(), port, None));
        let Some((Fact::GatewayPort(_, _, Some(gateway_port)), _)) = taken.next() else { return true };
        if !is_implicit {
            diagnostics.push(mesh::taken_port(document, port, gateway_port));
        }
        false
    }

    /// The routes of a port. Routes of one kind are mixed, but not different kinds.
    fn mesh_routes(
        &self,
        placed: &Placed,
        port: u16,
        holders: &[(&DocumentKey, &Wish)],
    ) -> Vec<PlannedRoute> {
        let mut holders = holders.to_vec();
        holders.sort_by_key(|(_, claim)| claim.class);
        let mut routes = Vec::new();
        for holders in holders.chunk_by(|(_, one), (_, other)| one.class == other.class) {
            let mut ranked: Vec<(&Seniority, &[PlannedRoute])> = Vec::new();
            for (by, claim) in holders {
                match claim.class {
                    Class::Grpc | Class::Http => ranked.push((&claim.seniority, self.rules_of(by))),
                    Class::Split => {
                        let split = self.reader.value(Fact::Split((*by).clone()));
                        let Some(Value::Split(split)) = split else { continue };
                        let of_port = split.ports.iter().filter(|(number, _)| *number == port);
                        routes.extend(of_port.flat_map(|(_, routes)| routes).cloned());
                    }
                    Class::Own => {
                        let mut surroundings = Surroundings::new(self.reader);
                        surroundings.add_placed(placed);
                        let lookup = surroundings.lookup(self.options);
                        routes.extend(mesh::route_to_itself(&lookup, by, port));
                    }
                }
            }
            routes.extend(mesh::ranked(ranked.into_iter()));
        }
        routes
    }

    fn rules_of(&self, route: &DocumentKey) -> &'m [PlannedRoute] {
        match self.reader.value(Fact::Rules(route.clone())) {
            Some(Value::Routes(routes)) => routes,
            _ => &[],
        }
    }

    /// The other groups that serve the clients of a group, in order of priority.
    fn others(&self, group: &GroupName) -> Vec<GroupName> {
        mesh::others(group, self.homes(group))
    }

    /// The groups of the consumer routes that create a group.
    fn homes(&self, group: &GroupName) -> BTreeSet<GroupName> {
        if mesh::consumed_by(group).is_none() {
            return BTreeSet::new();
        }
        let routes = self.reader.all(Fact::Consumer(group.clone(), None));
        let home = |(_, value): (_, &Value)| {
            let Value::Home(home) = value else { return None };
            Some(home.clone())
        };
        routes.filter_map(home).collect()
    }

    /// Returns `true` if a Service can be called without its namespace: it is the only one with its name, or the only one that documents ask
    /// for. Clients of a consumer group use the names that Services would have without the consumer routes.
    fn has_short_name(&self, group: &GroupName, service: &DocumentKey) -> bool {
        let homes = self.homes(group);
        let is_plain = homes.is_empty();
        let naming = if is_plain { vec![group.clone()] } else { mesh::others(group, homes) };
        let (mut all, mut asked_for) = (Sole::default(), Sole::default());
        for group in naming {
            let names = self.reader.value(Fact::Names(InGroup::of(group, label(&service.name))));
            let Some(Value::Names(names)) = names else { continue };
            let found = names.services.iter().filter(|(name, ..)| *name == service.name);
            for (_, of_all, of_asked_for) in found {
                all.join(of_all);
                asked_for.join(of_asked_for);
            }
        }
        if is_plain && !group.is_default() {
            self.add_borrowed(group, &service.name, &mut all, &mut asked_for);
        }
        let own = Sole::Only(Arc::clone(&service.namespace));
        all == own || asked_for == own
    }

    /// Adds the namespaces of Services with this name that a group borrows from the default group.
    fn add_borrowed(&self, group: &GroupName, name: &Name, all: &mut Sole, asked_for: &mut Sole) {
        let lender = GroupName::default_group();
        for (fact, value) in self.reader.all(Fact::Namesake(InGroup::of(lender.clone(), label(name)), None)) {
            let Fact::Namesake(_, Some((service, by))) = fact else { continue };
            if service.name != *name {
                continue;
            }
            let own = self.wanted_ports(group, service, None);
            let there = self.wanted_ports(&lender, service, Some(by));
            let is_borrowed =
                |port: &u16| !own.contains(port) && self.reader.has(Fact::Shown(group.clone(), *port));
            if there.iter().any(is_borrowed) {
                all.add(&service.namespace);
                if *value == Value::Flag(true) {
                    asked_for.add(&service.namespace);
                }
            }
        }
    }

    /// The ports of a Service that one document, or any document, wants for a group.
    fn wanted_ports(
        &self,
        group: &GroupName,
        service: &DocumentKey,
        by: Option<&DocumentKey>,
    ) -> BTreeSet<u16> {
        let mut ports = BTreeSet::new();
        if by.is_none_or(|by| by == service)
            && let Some(placed) = self.reader.document(service).filter(|placed| placed.group == *group)
            && let Spec::Service(service) = &placed.document.spec
        {
            ports.extend(service.ports.iter().map(|port| port.port));
        }
        for (fact, value) in self.reader.all(Fact::Wish(group.clone(), service.clone(), None)) {
            let (Fact::Wish(_, _, Some(one)), Value::Wish(claim)) = (fact, value) else { continue };
            if by.is_none_or(|by| by == one) {
                ports.extend(&claim.ports);
            }
        }
        ports
    }

    /// The names of a Service by which clients dial something else: a host of a Gateway, or another Service that takes precedence.
    fn lost_names(&self, group: &GroupName, key: &DocumentKey, port: u16, service: &MeshPort) -> Vec<String> {
        let label = InGroup::of(group.clone(), label(&key.name));
        let Some(Value::Names(names)) = self.reader.value(Fact::Names(label.clone())) else {
            return Vec::new();
        };
        if names.of_gateways.is_empty() && !names.may_clash {
            return Vec::new();
        }
        let mut taken: BTreeSet<String> = names.of_gateways.iter().cloned().collect();
        let mut rivals = BTreeSet::new();
        for (fact, _) in self.reader.all(Fact::Namesake(label, None)) {
            let Fact::Namesake(_, Some((rival, _))) = fact else { continue };
            if names.may_clash && (&rival.namespace, &rival.name) < (&key.namespace, &key.name) {
                rivals.insert(rival);
            }
        }
        for rival in rivals {
            taken.extend(self.names_of(group, rival));
        }
        let own = service.dialled(&key.namespace, &key.name, port);
        own.into_iter().filter(|name| taken.contains(name)).collect()
    }

    /// All names by which clients could dial a Service.
    fn names_of(&self, group: &GroupName, key: &DocumentKey) -> Vec<String> {
        let Some(placed) = self.reader.document(key) else { return Vec::new() };
        let Spec::Service(service) = &placed.document.spec else { return Vec::new() };
        let has_short_name = self.has_short_name(group, key);
        let names = |port| {
            let is_lowest_port = service.lowest_port() == Some(port);
            mesh::dialled(mesh::hosts(&key.namespace, &key.name, has_short_name), port, is_lowest_port)
        };
        self.wanted_ports(group, key, None).into_iter().flat_map(names).collect()
    }

    /// The Services of other groups that Envoys of a group get on a port. Envoys have one listener for each port of the mesh, with all of its
    /// Services, and a resource of a group hides those with the same name in the groups below it.
    pub(super) fn borrow(self, group: &GroupName, port: u16) -> Option<Made> {
        if group.is_default() || !self.reader.has(Fact::Shown(group.clone(), port)) {
            return None;
        }
        let services = |group: &GroupName| {
            self.reader.all(Fact::MeshService(table(group, port), None)).filter_map(|(fact, _)| {
                let Fact::MeshService(_, name) = fact else { return None };
                name.clone()
            })
        };
        let own: BTreeSet<ServiceName> = services(group).collect();
        let mut borrowed: BTreeMap<ServiceName, GroupName> = BTreeMap::new();
        for other in self.others(group) {
            for name in services(&other).filter(|name| !own.contains(name)) {
                borrowed.entry(name).or_insert_with(|| other.clone());
            }
        }
        let loan =
            |(name, other)| (Fact::Loan(HostKey::of_service(&table(group, port), &name)), Value::Home(other));
        Some(borrowed.into_iter().map(loan).collect())
    }

    /// One of these Services.
    pub(super) fn loan(self, host: &HostKey) -> Option<Made> {
        let Some(Value::Home(other)) = self.reader.value(Fact::Loan(host.clone())) else { return None };
        let port = host.mesh_port()?;
        let name = ServiceName::new((Arc::clone(&host.namespace), Arc::clone(&host.name)));
        let there = self.reader.value(Fact::MeshService(table(other, port), Some(name.clone())));
        let Some(Value::Service(there)) = there else { return None };
        let placed = self.reader.document(&DocumentKey::new(Kind::Service, &host.namespace, &host.name))?;
        let routes = Fact::Routes(HostKey::of_service(&table(other, port), &name));
        let Some(Value::Routes(routes)) = self.reader.value(routes) else { return None };
        let has_short_name = self.has_short_name(host.group(), &placed.document.key);
        let service = MeshPort { has_short_name, ..(**there).clone() };
        let mut diagnostics = Vec::new();
        let served = Served { is_for_envoys: true, is_asked_for: !there.is_implicit };
        let mut facts: Made = self.routes_of(host, Arc::clone(routes), served).into_iter().collect();
        if self.is_framed(host.group(), port, &placed.document, there.is_implicit, &mut diagnostics) {
            let framed = Fact::Framed(table(host.group(), port), Some(name));
            facts.push((framed, Value::Service(service.into())));
        }
        facts.say(diagnostics);
        Some(facts)
    }
}

/// A Service, and the facts that its ports share.
struct OfMesh<'m> {
    placed: &'m Placed,
    service: &'m Service,
    has_short_name: bool,
}
