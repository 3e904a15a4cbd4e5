//! The names that a client asks for one by one.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::{Name, ResourceType, xdstp};

use crate::pairs::Pairs;
use crate::quirks::Quirk;
use crate::references::route_of;
use crate::steps::{counted, step};

/// The name that stands for everything.
pub(crate) const WILDCARD: &str = "*";

/// Names that are asked for, in canonical form; never contains `*`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    all: BTreeSet<Name>,
    /// Their lengths together.
    n_bytes: usize,
    /// How many of them are globs.
    n_globs: usize,
    /// The names by route configuration, if names of the type are hosts.
    by_route: Option<Box<Pairs>>,
}

impl Names {
    /// None yet.
    pub(crate) fn new(resource_type: &ResourceType) -> Self {
        let by_route = Quirk::NamesAreHosts.is_of(resource_type).then(Box::default);
        Self { all: BTreeSet::new(), n_bytes: 0, n_globs: 0, by_route }
    }

    /// Adds a name; tells whether it is new.
    pub(crate) fn insert(&mut self, name: Name) -> bool {
        step();
        let is_new = self.all.insert(Arc::clone(&name));
        if is_new {
            self.n_bytes += name.len();
            self.n_globs += usize::from(xdstp::is_glob(&name));
            if let (Some(by_route), Some(route)) = (&mut self.by_route, route_of(&name)) {
                by_route.insert(route.into(), name);
            }
        }
        is_new
    }

    /// Takes a name out.
    pub(crate) fn take(&mut self, name: &str) -> Option<Name> {
        step();
        let name = self.all.take(name)?;
        self.n_bytes -= name.len();
        self.n_globs -= usize::from(xdstp::is_glob(&name));
        if let (Some(by_route), Some(route)) = (&mut self.by_route, route_of(&name)) {
            by_route.remove(&route.into(), &name);
        }
        Some(name)
    }

    /// Makes `wanted` all of them.
    pub(crate) fn replace(&mut self, wanted: BTreeSet<Name>) {
        if let Some(by_route) = &mut self.by_route {
            **by_route = Pairs::default();
            for name in counted(wanted.iter()) {
                if let Some(route) = route_of(name) {
                    by_route.insert(route.into(), Arc::clone(name));
                }
            }
        }
        (self.n_bytes, self.n_globs) = (0, 0);
        for name in counted(wanted.iter()) {
            self.n_bytes += name.len();
            self.n_globs += usize::from(xdstp::is_glob(name));
        }
        self.all = wanted;
    }

    /// Returns `true` if names can be hosts.
    pub(crate) fn has_hosts(&self) -> bool {
        self.by_route.is_some()
    }

    /// Returns `true` if the name is a glob that is asked for.
    pub(crate) fn has_glob(&self, name: &str) -> bool {
        self.n_globs > 0 && xdstp::is_glob(name) && self.contains(name)
    }

    /// Returns `true` if a glob is asked for that covers the name.
    pub(crate) fn has_glob_of(&self, name: &str) -> bool {
        self.n_globs > 0 && xdstp::glob_of(name).is_some_and(|glob| self.contains(&glob))
    }

    /// Returns `true` if any glob is asked for.
    pub(crate) fn has_globs(&self) -> bool {
        self.n_globs > 0
    }

    /// The glob that is asked for and covers the name.
    pub(crate) fn glob_of(&self, name: &str) -> Option<&Name> {
        let glob = xdstp::glob_of(name).filter(|_| self.n_globs > 0)?;
        self.get(&glob)
    }

    /// The name as it is kept.
    pub(crate) fn get(&self, name: &str) -> Option<&Name> {
        step();
        self.all.get(name)
    }

    /// Returns `true` if the name is asked for.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All of them, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Name> {
        counted(self.all.iter())
    }

    /// Those that are not in `wanted`.
    pub(crate) fn difference<'a>(&'a self, wanted: &'a BTreeSet<Name>) -> impl Iterator<Item = &'a Name> {
        counted(self.all.iter()).filter(|name| !wanted.contains(*name))
    }

    /// The hosts of a route configuration.
    pub(crate) fn of_route<'a>(&'a self, route: &'a str) -> impl Iterator<Item = &'a Name> {
        self.by_route.iter().flat_map(move |by_route| by_route.of(route))
    }

    /// Returns `true` if a host of that route configuration is asked for.
    pub(crate) fn has_route(&self, route: &str) -> bool {
        self.of_route(route).next().is_some()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Their lengths together, in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Returns `true` if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
