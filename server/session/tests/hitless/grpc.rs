//! A gRPC client: it asks for everything by name, and goes on with what it has until the new is complete.

use std::collections::{BTreeMap, BTreeSet};

use crate::hitless::config::{CLUSTER, ENDPOINTS, LISTENER, N_KINDS, ROUTE, references};
use crate::hitless::wire::{Ask, Reply, Verdict};

/// One channel to the listener `l0`.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    received: [BTreeMap<String, String>; N_KINDS],
    asked: [BTreeSet<String>; N_KINDS],
    /// The clusters that requests go to.
    in_use: BTreeSet<String>,
    /// The first fault.
    fault: Option<String>,
}

impl Grpc {
    pub(crate) fn new() -> Self {
        Self { received: Default::default(), asked: Default::default(), in_use: BTreeSet::new(), fault: None }
    }

    pub(crate) fn connect(&mut self) -> Vec<Ask> {
        self.asked = Default::default();
        self.fault = None;
        self.ask()
    }

    pub(crate) fn receive(&mut self, reply: &Reply, verdict: &Verdict) -> Vec<Ask> {
        for (name, content) in reply.resources.iter().filter(|(name, _)| verdict.takes(name)) {
            if self.asked[reply.kind].contains(name) {
                self.received[reply.kind].insert(name.clone(), content.clone());
            }
        }
        // What is not listed is gone, whatever becomes of the rest.
        if reply.kind == LISTENER || reply.kind == CLUSTER {
            let gone: Vec<String> = self.received[reply.kind]
                .keys()
                .filter(|name| !reply.resources.contains_key(*name))
                .cloned()
                .collect();
            for name in gone {
                self.received[reply.kind].remove(&name);
                if self.in_use.contains(&name) && self.fault.is_none() {
                    self.fault = Some(format!("{name} is in use and does not exist any more"));
                }
            }
        }
        let asks = self.ask();
        // What nobody asks for any more is forgotten.
        for kind in 0..N_KINDS {
            let Self { received, asked, in_use, .. } = self;
            received[kind]
                .retain(|name, _| asked[kind].contains(name) || (kind == CLUSTER && in_use.contains(name)));
        }
        asks
    }

    fn ask(&mut self) -> Vec<Ask> {
        let listener = BTreeSet::from(["l0".to_owned()]);
        let names = |kind: usize, of: &BTreeSet<String>, to: usize, received: &[BTreeMap<String, String>]| {
            let contents = of.iter().filter_map(|name| received[kind].get(name));
            let all = contents.flat_map(|content| references(content)).filter(|(kind, _)| *kind == to);
            all.map(|(_, name)| name).collect::<BTreeSet<String>>()
        };
        let routes = names(LISTENER, &listener, ROUTE, &self.received);
        // The listener may name its cluster itself.
        let mut wanted = names(ROUTE, &routes, CLUSTER, &self.received);
        wanted.extend(names(LISTENER, &listener, CLUSTER, &self.received));
        let is_complete = |cluster: &String| {
            let Some(content) = self.received[CLUSTER].get(cluster) else { return false };
            let mut to = references(content).into_iter().filter(|(kind, _)| *kind == ENDPOINTS);
            to.all(|(kind, name)| self.received[kind].contains_key(&name))
        };
        let is_known = routes.iter().all(|route| self.received[ROUTE].contains_key(route));
        if !self.received[LISTENER].contains_key("l0") {
            self.in_use.clear();
        }
        if is_known && !wanted.is_empty() && wanted.iter().all(is_complete) {
            self.in_use.clone_from(&wanted);
        }
        let clusters = &wanted | &self.in_use;
        let endpoints = names(CLUSTER, &clusters, ENDPOINTS, &self.received);
        let all = [(LISTENER, listener), (ROUTE, routes), (CLUSTER, clusters), (ENDPOINTS, endpoints)];
        let mut asks = Vec::new();
        for (kind, names) in all {
            if self.asked[kind] != names {
                self.asked[kind].clone_from(&names);
                asks.push(Ask { kind, names, ..Ask::default() });
            }
        }
        asks
    }

    /// What went before does not count.
    pub(crate) fn forgive(&mut self) {
        self.fault = None;
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    pub(crate) fn has(&self) -> BTreeMap<(usize, String), String> {
        let of = |kind: usize| {
            let wanted = self.received[kind].iter().filter(move |(name, _)| self.asked[kind].contains(*name));
            wanted.map(move |(name, content)| ((kind, name.clone()), content.clone()))
        };
        (0..N_KINDS).flat_map(of).collect()
    }
}
