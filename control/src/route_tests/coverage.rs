//! How much of what clients are served the requests of RouteTests touch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use xds_explain::{Explanation, Inventory, Item, Model, Part, Ratio, inventory};

/// The things that a request can touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Routes: each match of a rule.
    Routes,
    /// Conditions of routes. One is touched if it once decided: if no other condition of its route failed, or if the route was chosen.
    Conditions,
    /// Virtual hosts.
    Hosts,
    /// Backends.
    Backends,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Routes, Self::Conditions, Self::Hosts, Self::Backends];

    /// The kind as a word, in the plural.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Conditions => "conditions",
            Self::Hosts => "hosts",
            Self::Backends => "backends",
        }
    }
}

/// What is touched of the resources of one kind of clients.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    inventory: Inventory,
    touched: Inventory,
}

/// Something that no request touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untouched {
    /// Its kind.
    pub kind: Kind,
    /// In words.
    pub what: String,
    /// Where it is written.
    pub part: Part,
}

impl Coverage {
    /// Adds everything that clients of a model can touch.
    pub(super) fn add_model(&mut self, model: &Model) {
        let Inventory { hosts, routes, conditions, backends } = inventory(model);
        self.inventory.hosts.extend(hosts);
        self.inventory.routes.extend(routes);
        self.inventory.conditions.extend(conditions);
        self.inventory.backends.extend(backends);
    }

    /// Adds what a request touches.
    pub(super) fn add(&mut self, explanation: &Explanation) {
        let Self { inventory, touched } = self;
        if let Some(host) = &explanation.virtual_host {
            touch(&inventory.hosts, &mut touched.hosts, &host.element.name);
        }
        let real = || explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero());
        let chosen: BTreeSet<usize> = real().filter_map(|outcome| outcome.route).collect();
        for route in &explanation.routes {
            let id = Inventory::route(&route.element.part);
            if chosen.contains(&route.index) {
                touch(&inventory.routes, &mut touched.routes, &id);
                let own = inventory.conditions.range((id.clone(), String::new())..);
                let own = own.take_while(|((route, _), _)| *route == id);
                touched.conditions.extend(own.map(|(key, item)| (key.clone(), item.clone())));
            } else if let [only] = &*route.failed
                && only.on != "path"
            {
                let key = (id, Inventory::condition(only));
                touch(&inventory.conditions, &mut touched.conditions, &key);
            }
        }
        for outcome in real().filter(|outcome| outcome.status.is_none()) {
            if let Some(cluster) = &outcome.cluster {
                touch(&inventory.backends, &mut touched.backends, &cluster.name);
            }
        }
    }

    /// How many of a kind are touched, and how many there are.
    #[must_use]
    pub fn count(&self, kind: Kind) -> (usize, usize) {
        let of = |inventory: &Inventory| match kind {
            Kind::Routes => inventory.routes.len(),
            Kind::Conditions => inventory.conditions.len(),
            Kind::Hosts => inventory.hosts.len(),
            Kind::Backends => inventory.backends.len(),
        };
        (of(&self.touched), of(&self.inventory))
    }

    /// The share of routes that are touched; all if there are none.
    #[must_use]
    pub fn share(&self) -> Ratio {
        match self.count(Kind::Routes) {
            (_, 0) => Ratio::ONE,
            (n, of) => Ratio::new(n as u128, of as u128),
        }
    }

    /// Everything that no request touches: by kind, then by name.
    #[must_use]
    pub fn untouched(&self) -> Vec<Untouched> {
        let Self { inventory, touched } = self;
        let mut all = rest(Kind::Routes, &inventory.routes, &touched.routes);
        all.extend(rest(Kind::Conditions, &inventory.conditions, &touched.conditions));
        all.extend(rest(Kind::Hosts, &inventory.hosts, &touched.hosts));
        all.extend(rest(Kind::Backends, &inventory.backends, &touched.backends));
        all
    }
}

impl fmt::Display for Coverage {
    /// `routes 14/17, conditions 31/44, hosts 3/3, backends 6/7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Kind::ALL.map(|kind| {
            let (n, of) = self.count(kind);
            format!("{} {n}/{of}", kind.as_str())
        });
        f.write_str(&counts.join(", "))
    }
}

fn touch<K: Ord + Clone>(all: &BTreeMap<K, Item>, touched: &mut BTreeMap<K, Item>, key: &K) {
    if let Some(item) = all.get(key) {
        touched.entry(key.clone()).or_insert_with(|| item.clone());
    }
}

fn rest<K: Ord>(kind: Kind, all: &BTreeMap<K, Item>, touched: &BTreeMap<K, Item>) -> Vec<Untouched> {
    let left = all.iter().filter(|(key, _)| !touched.contains_key(*key));
    left.map(|(_, item)| Untouched { kind, what: item.what.clone(), part: item.part.clone() }).collect()
}
