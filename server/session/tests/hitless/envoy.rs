//! An Envoy as its documentation and its observed behaviour describe it: what warms, what is in use, what it asks for.

use std::collections::{BTreeMap, BTreeSet};

use crate::hitless::config::{CLUSTER, ENDPOINTS, HOST, LISTENER, ROUTE, SCOPE, SECRET, alias, references};
use crate::hitless::vhds::{Vhds, is_on_demand, route_of};
use crate::hitless::wire::{Ask, Reply, Verdict};

/// One Envoy. It takes clusters and listeners by wildcard and asks for the rest by what these name: on one stream, or with a
/// stream for each route, each secret, and the endpoints of each cluster that it makes.
#[derive(Clone, Debug)]
pub(crate) struct Envoy {
    is_delta: bool,
    is_per_type: bool,
    clusters: BTreeMap<String, Slot>,
    listeners: BTreeMap<String, Slot>,
    /// In use as soon as they come; `None` if no listener has any.
    scopes: Option<BTreeMap<String, String>>,
    /// A scope that led elsewhere before its routes were there: Envoy forgets the requests that waited for these.
    forgotten: Option<String>,
    pub(crate) vhds: Vhds,
    /// What it was sent of what it asks for.
    received: BTreeMap<Wanted, String>,
    asked: BTreeSet<Wanted>,
    n_instances: u64,
}

/// Something that is asked for by name. Without ADS each cluster asks for its endpoints by itself: `owner` tells which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    kind: usize,
    name: String,
    owner: u64,
}

/// A cluster or listener: the one in use, and the one that will be when it has what it needs.
#[derive(Clone, Debug, Default)]
struct Slot {
    active: Option<Instance>,
    warming: Option<Instance>,
}

#[derive(Clone, Debug)]
struct Instance {
    id: u64,
    content: String,
    /// What it still waits for.
    waits: BTreeSet<Wanted>,
}

impl Slot {
    fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.active.iter().chain(&self.warming)
    }

    fn newest(&self) -> Option<&Instance> {
        self.warming.as_ref().or(self.active.as_ref())
    }
}

impl Envoy {
    pub(crate) fn new(is_delta: bool, is_per_type: bool, is_scoped: bool) -> Self {
        Self {
            is_delta,
            is_per_type,
            clusters: BTreeMap::new(),
            listeners: BTreeMap::new(),
            scopes: is_scoped.then(BTreeMap::new),
            forgotten: None,
            vhds: Vhds::new(is_per_type),
            received: BTreeMap::new(),
            asked: BTreeSet::new(),
            n_instances: 0,
        }
    }

    /// The first requests of a new connection; what it has stays in use.
    pub(crate) fn connect(&mut self) -> Vec<Ask> {
        let slots = [(CLUSTER, &self.clusters), (LISTENER, &self.listeners)];
        let mut asks: Vec<Ask> = slots
            .into_iter()
            .map(|(kind, slots)| {
                let newest =
                    |(name, slot): (&String, &Slot)| Some((name.clone(), slot.newest()?.content.clone()));
                Ask { has: slots.iter().filter_map(newest).collect(), ..Ask::wildcard(kind) }
            })
            .collect();
        let scopes = self.scopes.iter().map(|scopes| Ask { has: scopes.clone(), ..Ask::wildcard(SCOPE) });
        asks.extend(scopes);
        self.asked.clear();
        // With ADS it shows the endpoints that came for what a warming cluster replaces, though that waits for them anew.
        let known = self.received.clone();
        for mut ask in self.ask(&BTreeSet::new()) {
            let has = known.iter().filter(|(wanted, _)| {
                let is_of_stream = !self.is_per_type || wanted.owner == ask.stream.0;
                wanted.kind == ask.kind && is_of_stream && ask.add.contains(&wanted.name)
            });
            ask.has = has.map(|(wanted, content)| (wanted.name.clone(), content.clone())).collect();
            asks.push(ask);
        }
        asks.extend(self.vhds.connect());
        asks
    }

    /// A request comes to a host by this name, if a listener in use leads there.
    pub(crate) fn request(&mut self, name: &str) -> Option<Ask> {
        if !self.is_in_use(route_of(name)) {
            return None;
        }
        let is_it = |host: &String| host == name || alias(HOST, host).as_deref() == Some(name);
        let is_there = self.vhds.of_route(route_of(name)).any(|(host, _)| is_it(host));
        self.vhds.request(name, is_there)
    }

    /// Whether a listener in use leads to a route.
    pub(crate) fn is_in_use(&self, route: &str) -> bool {
        let active = self.listeners.values().filter_map(|slot| slot.active.as_ref());
        let mut needs = active.flat_map(|listener| references(&listener.content));
        needs.any(|(kind, name)| kind == ROUTE && name == route)
    }

    /// Takes in a response. What it asks for because of it goes out before the answer.
    pub(crate) fn receive(&mut self, reply: &Reply, verdict: &Verdict) -> Vec<Ask> {
        let mut renewed = BTreeSet::new();
        self.forgotten = None;
        if reply.kind == CLUSTER || reply.kind == LISTENER {
            self.replace(reply, verdict, &mut renewed);
        } else if reply.kind == SCOPE {
            self.take_scopes(reply, verdict);
        } else if reply.kind == HOST {
            self.vhds.receive(reply, verdict);
        } else {
            let taken = |name: &String| verdict.takes(name);
            for (name, content) in reply.resources.iter().filter(|(name, _)| taken(name)) {
                let wanted = Wanted { kind: reply.kind, name: name.clone(), owner: reply.owner };
                if !self.asked.contains(&wanted) {
                    continue;
                }
                if is_on_demand(content) && !self.vhds.has_heard_of(name) {
                    self.wait_for_hosts(&wanted);
                }
                self.stop_waiting(&wanted);
                self.received.insert(wanted, content.clone());
            }
            // Whoever waits for something and hears that it is gone goes on without it.
            for name in &reply.removed {
                self.stop_waiting(&Wanted { kind: reply.kind, name: name.clone(), owner: reply.owner });
            }
            // Envoy ignores that a secret is gone; on one stream the order is right nevertheless.
            for name in reply.removed.iter().filter(|_| !(self.is_per_type && reply.kind == SECRET)) {
                self.received.remove(&Wanted { kind: reply.kind, name: name.clone(), owner: reply.owner });
            }
        }
        let vhds = &self.vhds;
        let slots = self.listeners.values_mut();
        for instance in slots.filter_map(|slot| slot.warming.as_mut()) {
            instance.waits.retain(|wanted| wanted.kind != HOST || !vhds.has_heard_of(route_of(&wanted.name)));
        }
        for slot in self.clusters.values_mut().chain(self.listeners.values_mut()) {
            if slot.warming.as_ref().is_some_and(|instance| instance.waits.is_empty()) {
                slot.active = slot.warming.take();
            }
        }
        self.ask(&renewed)
    }

    /// What waits for a route whose virtual hosts come on demand waits until anything is heard of these.
    fn wait_for_hosts(&mut self, route: &Wanted) {
        for instance in self.listeners.values_mut().filter_map(|slot| slot.warming.as_mut()) {
            if instance.waits.contains(route) {
                instance.waits.insert(hosts_of(route));
            }
        }
    }

    fn stop_waiting(&mut self, wanted: &Wanted) {
        let slots = self.clusters.values_mut().chain(self.listeners.values_mut());
        for instance in slots.filter_map(|slot| slot.warming.as_mut()) {
            instance.waits.remove(wanted);
        }
    }

    /// Takes clusters or listeners; what is new warms.
    fn replace(&mut self, reply: &Reply, verdict: &Verdict, renewed: &mut BTreeSet<Wanted>) {
        let slots = if reply.kind == CLUSTER { &mut self.clusters } else { &mut self.listeners };
        for (name, content) in reply.resources.iter().filter(|(name, _)| verdict.takes(name)) {
            let slot = slots.entry(name.clone()).or_default();
            if slot.newest().is_some_and(|instance| instance.content == *content) {
                continue;
            }
            self.n_instances += 1;
            let id = self.n_instances;
            let needs = needs(content, id, self.is_per_type);
            // Endpoints are waited for even if they came before; the rest only if it did not.
            let needs: BTreeSet<Wanted> = needs.collect();
            let (received, vhds) = (&self.received, &self.vhds);
            let is_open = |wanted: &&Wanted| wanted.kind == ENDPOINTS || !received.contains_key(wanted);
            let mut waits: BTreeSet<Wanted> = needs.iter().filter(is_open).cloned().collect();
            let is_unheard = |route: &&Wanted| {
                let is_on_demand = received.get(*route).is_some_and(|content| is_on_demand(content));
                is_on_demand && !vhds.has_heard_of(&route.name)
            };
            waits.extend(needs.iter().filter(is_unheard).map(hosts_of));
            renewed.extend(waits.iter().filter(|wanted| wanted.kind == ENDPOINTS).cloned());
            slot.warming = Some(Instance { id, content: content.clone(), waits });
        }
        // What is told to be gone goes, whatever becomes of the rest.
        if self.is_delta || verdict.takes_removals() {
            let is_gone = |name: &String| {
                reply.removed.contains(name) || (!self.is_delta && !reply.resources.contains_key(name))
            };
            slots.retain(|name, _| !is_gone(name));
        }
        slots.retain(|_, slot| slot.newest().is_some());
    }

    /// Takes scopes, which need not warm.
    fn take_scopes(&mut self, reply: &Reply, verdict: &Verdict) {
        let awaited: BTreeSet<String> = self.awaited_routes().collect();
        let Some(scopes) = &mut self.scopes else { return };
        let taken = reply.resources.iter().filter(|(name, _)| verdict.takes(name));
        let leads_elsewhere = |(name, content): &(&String, &String)| {
            let had = scopes.get(*name).filter(|had| had != content);
            had.is_some_and(|had| needs(had, 0, false).any(|route| awaited.contains(&route.name)))
        };
        self.forgotten = taken.clone().find(leads_elsewhere).map(|(name, _)| name.clone());
        scopes.extend(taken.map(|(name, content)| (name.clone(), content.clone())));
        if self.is_delta || verdict.takes_removals() {
            let is_gone = |name: &String| {
                reply.removed.contains(name) || (!self.is_delta && !reply.resources.contains_key(name))
            };
            scopes.retain(|name, _| !is_gone(name));
        }
    }

    /// What the scopes refer to.
    fn routes_of_scopes(&self) -> impl Iterator<Item = Wanted> {
        self.scopes.iter().flatten().flat_map(|(_, content)| needs(content, 0, self.is_per_type))
    }

    /// The routes that scopes lead to and that are not there yet.
    pub(crate) fn awaited_routes(&self) -> impl Iterator<Item = String> {
        let awaited = self.routes_of_scopes().filter(|route| !self.received.contains_key(route));
        awaited.map(|route| route.name)
    }

    /// Asks for whatever something in use or warming refers to, and for `renewed` once more.
    fn ask(&mut self, renewed: &BTreeSet<Wanted>) -> Vec<Ask> {
        let slots = self.clusters.values().chain(self.listeners.values());
        let wanted: BTreeSet<Wanted> = slots
            .flat_map(Slot::instances)
            .flat_map(|instance| needs(&instance.content, instance.id, self.is_per_type))
            .chain(self.routes_of_scopes())
            .collect();
        let added: BTreeSet<Wanted> = wanted.difference(&self.asked).cloned().collect();
        let gone: BTreeSet<Wanted> = self.asked.difference(&wanted).cloned().collect();
        self.received.retain(|name, _| wanted.contains(name));
        self.asked.clone_from(&wanted);
        let on_demand = self.received.iter().filter(|(_, content)| is_on_demand(content));
        let on_demand: BTreeSet<String> = on_demand.map(|(route, _)| route.name.clone()).collect();
        let of_hosts = self.vhds.follow(&on_demand);
        if self.is_per_type {
            let ask = |wanted: &Wanted, is_close: bool| {
                let names = BTreeSet::from([wanted.name.clone()]);
                let stream = (wanted.owner, wanted.name.clone());
                Ask { kind: wanted.kind, add: names.clone(), names, stream, is_close, ..Ask::default() }
            };
            let closed = gone.iter().map(|gone| ask(gone, true));
            return added.iter().map(|added| ask(added, false)).chain(closed).chain(of_hosts).collect();
        }
        let mut asks = Vec::new();
        for kind in [SECRET, ENDPOINTS, ROUTE] {
            let names = |all: &BTreeSet<Wanted>| -> BTreeSet<String> {
                all.iter().filter(|wanted| wanted.kind == kind).map(|wanted| wanted.name.clone()).collect()
            };
            let (add, remove) = (&names(&added) | &names(renewed), names(&gone));
            if !add.is_empty() || !remove.is_empty() {
                asks.push(Ask { kind, names: names(&wanted), add, remove, ..Ask::default() });
            }
        }
        asks.extend(of_hosts);
        asks
    }

    /// The scope in the last response whose change made Envoy forget requests.
    pub(crate) fn forgotten(&self) -> Option<&String> {
        self.forgotten.as_ref()
    }

    /// The first thing in use that refers to something which is not there. A cluster that nothing leads to does no harm.
    pub(crate) fn fault(&self) -> Option<String> {
        let mut used = BTreeSet::new();
        let listeners = self.listeners.iter().filter_map(|(name, slot)| Some((name, slot.active.as_ref()?)));
        for (name, listener) in listeners {
            let mut leads_to = |from: &str, content: &str| {
                used.extend(clusters(content).map(|cluster| (cluster, from.to_owned())));
            };
            leads_to(name, &listener.content);
            for to in needs(&listener.content, listener.id, self.is_per_type) {
                let Some(content) = self.received.get(&to) else {
                    return Some(format!("{name} is in use, and {} is not there", to.name));
                };
                leads_to(&to.name, content);
                self.vhds.of_route(&to.name).for_each(|(host, content)| leads_to(host, content));
            }
        }
        // A scope may be in use for a moment before its route is there.
        for route in self.routes_of_scopes() {
            let content = self.received.get(&route).map_or("", String::as_str);
            used.extend(clusters(content).map(|cluster| (cluster, route.name.clone())));
        }
        for (name, from) in used {
            let active = self.clusters.get(&name).and_then(|slot| slot.active.as_ref());
            let Some(cluster) = active else {
                return Some(format!("{from} is in use, and {name} is not there"));
            };
            let mut needs = needs(&cluster.content, cluster.id, self.is_per_type);
            if let Some(to) = needs.find(|to| !self.received.contains_key(to)) {
                return Some(format!("{name} is in use, and {} is not there", to.name));
            }
        }
        None
    }

    /// Everything that it has.
    pub(crate) fn has(&self) -> BTreeMap<(usize, String), String> {
        let mut has = BTreeMap::new();
        for (kind, slots) in [(CLUSTER, &self.clusters), (LISTENER, &self.listeners)] {
            for (name, slot) in slots {
                let warming = slot.warming.as_ref().map(|instance| format!("warming {}", instance.content));
                let active = slot.active.as_ref().map(|instance| instance.content.clone());
                has.insert((kind, name.clone()), warming.or(active).unwrap_or_default());
            }
        }
        let scopes = self.scopes.iter().flatten();
        has.extend(scopes.map(|(name, content)| ((SCOPE, name.clone()), content.clone())));
        has.extend(self.vhds.all().map(|(name, content)| ((HOST, name.clone()), content.clone())));
        let received = self.received.iter();
        has.extend(received.map(|(wanted, content)| ((wanted.kind, wanted.name.clone()), content.clone())));
        has
    }
}

/// Anything of the virtual hosts of a route.
fn hosts_of(route: &Wanted) -> Wanted {
    Wanted { kind: HOST, name: format!("{}/*", route.name), owner: 0 }
}

/// The clusters that something of this content leads to.
fn clusters(content: &str) -> impl Iterator<Item = String> + use<> {
    references(content).into_iter().filter(|(kind, _)| *kind == CLUSTER).map(|(_, name)| name)
}

/// What something of this content asks for by name.
fn needs(content: &str, id: u64, is_per_type: bool) -> impl Iterator<Item = Wanted> + use<> {
    let all = references(content).into_iter().filter(|(kind, _)| ![CLUSTER, SCOPE, HOST].contains(kind));
    all.map(move |(kind, name)| {
        let owner = if is_per_type && kind == ENDPOINTS { id } else { 0 };
        Wanted { kind, name, owner }
    })
}
