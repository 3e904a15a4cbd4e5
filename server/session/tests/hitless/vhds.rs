//! The virtual hosts of an Envoy that come on demand: it asks for each when the first request to it comes, and never gives one up.

use std::collections::{BTreeMap, BTreeSet};

use crate::hitless::config::{HOST, references};
use crate::hitless::wire::{Ask, Reply, Verdict};

/// The virtual hosts of one Envoy. With ADS all are asked for on one stream, without it each route configuration has its own.
#[derive(Clone, Debug)]
pub(crate) struct Vhds {
    is_per_type: bool,
    /// The streams that there are, or were before the connection was lost: one without a name, or those of routes.
    streams: BTreeSet<String>,
    /// The names that were asked for, also of routes that are not there any more, with what came last for each.
    asked: BTreeMap<String, Option<String>>,
    /// What is there, by route.
    tables: BTreeMap<String, BTreeMap<String, String>>,
    /// The routes of which anything was heard: only then are they ready.
    heard: BTreeSet<String>,
    /// The names that a request waits for.
    pending: BTreeSet<String>,
    /// The names that were told to be gone, or not to exist, since this was asked last.
    told_gone: BTreeSet<String>,
}

impl Vhds {
    pub(crate) fn new(is_per_type: bool) -> Self {
        Self {
            is_per_type,
            streams: BTreeSet::new(),
            asked: BTreeMap::new(),
            tables: BTreeMap::new(),
            heard: BTreeSet::new(),
            pending: BTreeSet::new(),
            told_gone: BTreeSet::new(),
        }
    }

    /// The first requests of a new connection.
    pub(crate) fn connect(&self) -> Vec<Ask> {
        let ask = |stream: &String| {
            let of_stream = self.asked.iter().filter(|(name, _)| self.stream_of(route_of(name)) == *stream);
            let has =
                of_stream.clone().filter_map(|(name, has)| Some((name.clone(), has.clone()?))).collect();
            let add = of_stream.map(|(name, _)| name.clone()).collect();
            Ask { kind: HOST, stream: (0, stream.clone()), add, has, ..Ask::default() }
        };
        self.streams.iter().map(ask).collect()
    }

    /// These routes are there now, with virtual hosts on demand.
    pub(crate) fn follow(&mut self, routes: &BTreeSet<String>) -> Vec<Ask> {
        let gone: Vec<String> =
            self.tables.keys().filter(|route| !routes.contains(*route)).cloned().collect();
        let mut asks = Vec::new();
        for route in routes {
            self.tables.entry(route.clone()).or_default();
            let stream = self.stream_of(route);
            if self.streams.insert(stream.clone()) {
                asks.push(Ask { kind: HOST, stream: (0, stream), ..Ask::default() });
            }
        }
        for route in gone {
            self.tables.remove(&route);
            self.heard.remove(&route);
            self.pending.retain(|name| route_of(name) != route);
            if self.is_per_type {
                self.asked.retain(|name, _| route_of(name) != route);
                self.streams.remove(&route);
                asks.push(Ask { kind: HOST, stream: (0, route), is_close: true, ..Ask::default() });
            }
        }
        asks
    }

    /// A request comes to a host of a route that is in use.
    pub(crate) fn request(&mut self, name: &str, is_there: bool) -> Option<Ask> {
        let route = route_of(name);
        if is_there || !self.tables.contains_key(route) || !self.pending.insert(name.to_owned()) {
            return None;
        }
        self.asked.insert(name.to_owned(), None);
        let stream = (0, self.stream_of(route));
        Some(Ask { kind: HOST, stream, add: BTreeSet::from([name.to_owned()]), ..Ask::default() })
    }

    /// Takes in a response.
    pub(crate) fn receive(&mut self, reply: &Reply, verdict: &Verdict) {
        let names = reply.resources.keys().chain(&reply.removed).chain(&reply.unpopulated);
        let routes: Vec<&str> = names.map(|name| route_of(name)).collect();
        let heard = routes.into_iter().filter(|route| self.tables.contains_key(*route));
        self.heard.extend(heard.map(str::to_owned));
        for (name, content) in reply.resources.iter().filter(|(name, _)| verdict.takes(name)) {
            if let Some(asked) = self.asked.get_mut(name) {
                *asked = Some(content.clone());
            }
            if let Some(table) = self.tables.get_mut(route_of(name)) {
                table.insert(name.clone(), content.clone());
                self.told_gone.remove(name);
            }
            self.pending.remove(name);
            for alias in reply.aliases.get(name).into_iter().flatten() {
                self.pending.remove(alias);
            }
        }
        // A request to something that is rejected is over.
        for name in reply.resources.keys().filter(|name| !verdict.takes(name)) {
            self.pending.remove(name);
        }
        for name in &reply.removed {
            if let Some(asked) = self.asked.get_mut(name) {
                *asked = None;
            }
            let table = self.tables.get_mut(route_of(name));
            if table.is_some_and(|table| table.remove(name).is_some()) {
                self.told_gone.insert(name.clone());
            }
        }
        for name in &reply.unpopulated {
            if self.pending.remove(name) {
                self.told_gone.insert(name.clone());
            }
        }
    }

    pub(crate) fn has_heard_of(&self, route: &str) -> bool {
        self.heard.contains(route)
    }

    /// The virtual hosts of a route that are there.
    pub(crate) fn of_route(&self, route: &str) -> impl Iterator<Item = (&String, &String)> {
        self.tables.get(route).into_iter().flatten()
    }

    /// All virtual hosts that are there.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &String)> {
        self.tables.values().flatten()
    }

    /// The names that were asked for, of routes that are there.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &String> {
        self.asked.keys().filter(|name| self.tables.contains_key(route_of(name)))
    }

    pub(crate) fn pending(&self) -> &BTreeSet<String> {
        &self.pending
    }

    pub(crate) fn told_gone(&self) -> &BTreeSet<String> {
        &self.told_gone
    }

    pub(crate) fn forget_told_gone(&mut self) {
        self.told_gone.clear();
    }

    fn stream_of(&self, route: &str) -> String {
        if self.is_per_type { route.to_owned() } else { String::new() }
    }
}

/// Whether the virtual hosts of a route of this content come on demand.
pub(crate) fn is_on_demand(content: &str) -> bool {
    references(content).iter().any(|(kind, _)| *kind == HOST)
}

/// The route that a virtual host is of.
pub(crate) fn route_of(name: &str) -> &str {
    name.split_once('/').map_or("", |(route, _)| route)
}
