//! Names that a client dropped, and may take up again from responses that are on their way.

use std::sync::Arc;

use xds_cache::{Name, xdstp};

use crate::pairs::Pairs;
use crate::references::route_of;
use crate::wants::WILDCARD;

/// Resources that a client dropped while responses were on their way, each with what brought it, which may be `*`.
///
/// If it asks anew before it has seen those, it takes from them what it has dropped. A request costs what it recalls, and that only
/// once, because what is recalled is no longer dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    /// The names that brought it, by resource.
    by_resource: Pairs,
    /// Resources by another name that brought them; not by `*`, which recalls everything.
    by_name: Pairs,
    /// Resources by the glob that they are members of.
    by_glob: Pairs,
    /// Resources by route configuration; virtual hosts only.
    by_route: Pairs,
}

impl Dropped {
    /// A resource was brought by `by`, which is not asked for any more. `has_hosts`: it is a virtual host.
    pub(crate) fn insert(&mut self, resource: Name, by: &Name, has_hosts: bool) {
        if *resource != **by && **by != *WILDCARD {
            self.by_name.insert(Arc::clone(by), Arc::clone(&resource));
        }
        if let Some(glob) = xdstp::glob_of(&resource) {
            self.by_glob.insert(glob.into(), Arc::clone(&resource));
        }
        if let Some(route) = route_of(&resource).filter(|_| has_hosts) {
            self.by_route.insert(route.into(), Arc::clone(&resource));
        }
        self.by_resource.insert(resource, Arc::clone(by));
    }

    /// Returns `true` if a resource was dropped.
    pub(crate) fn has(&self, resource: &str) -> bool {
        self.by_resource.of(resource).next().is_some()
    }

    /// Takes out what a client may take up again when it asks for `name`: the resource of that name, what that name brought, the
    /// members of a glob, and virtual hosts of the same route configuration, which may serve another host of it too.
    pub(crate) fn recall(&mut self, name: &str) -> Vec<Name> {
        if name == WILDCARD {
            let all = std::mem::take(self);
            return all.by_resource.iter().map(|(resource, _)| Arc::clone(resource)).collect();
        }
        let itself = self.by_resource.of(name).next().map(|_| Name::from(name));
        let brought = self.by_name.of(name).cloned();
        let members = self.by_glob.of(name).cloned();
        let near = route_of(name).into_iter().flat_map(|route| self.by_route.of(route)).cloned();
        let mut recalled: Vec<Name> = itself.into_iter().chain(members).chain(near).collect();
        let brought: Vec<Name> = brought.collect();
        recalled.iter().for_each(|resource| self.remove(resource));
        let asked = Name::from(name);
        for resource in brought {
            // Other names that brought it are not asked for.
            self.remove_pair(&resource, &asked);
            recalled.push(resource);
        }
        recalled
    }

    /// Takes out a resource, whatever brought it.
    pub(crate) fn remove(&mut self, resource: &Name) {
        let brought_by: Vec<Name> = self.by_resource.of(resource).cloned().collect();
        brought_by.iter().for_each(|by| self.remove_pair(resource, by));
    }

    /// Takes out a resource as far as one name brought it.
    pub(crate) fn remove_pair(&mut self, resource: &Name, by: &Name) {
        if !self.by_resource.remove(resource, by) {
            return;
        }
        if resource != by {
            self.by_name.remove(by, resource);
        }
        if self.by_resource.has(resource) {
            return;
        }
        if let Some(glob) = xdstp::glob_of(resource) {
            self.by_glob.remove(&glob.into(), resource);
        }
        if let Some(route) = route_of(resource) {
            self.by_route.remove(&route.into(), resource);
        }
    }

    /// The resources, each with what brought it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Name, Name)> {
        self.by_resource.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_resource.len()
    }

    /// Returns `true` if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_resource.is_empty()
    }
}
