//! The resources of one type that a stream's client wants.

mod names;
mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Changes, HostPatterns, Name, Resource, ResourceType, TypeTable};

pub(crate) use names::{Names, WILDCARD};

use crate::references::route_of;
use crate::steps::{counted, step};
use served::{Memo, OfTable};

/// The resources of one type that a stream's client wants: the names that it asked for, and whether it asked for everything.
///
/// A name may be a resource's own, an alias, a host that a virtual host's domains cover, a host that a Listener's pattern matches,
/// or (incremental only) a glob. `xdstp:` names are kept in canonical form (rows A144, A145). A resource that is made of a pattern has
/// the name that was asked for, so to the client it is a resource of its own, for as long as the client asks for the name.
///
/// See [How the client specifies what resources to return][spec].
///
/// [spec]: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#how-the-client-specifies-what-resources-to-return
#[derive(Clone, Debug)]
pub(crate) struct Wants {
    names: Names,
    is_wildcard: bool,
    /// Remembers which names tables serve by resources of other names.
    served: Memo,
}

impl Wants {
    /// Nothing is wanted.
    pub(crate) fn new(resource_type: &ResourceType) -> Self {
        Self { names: Names::new(resource_type), is_wildcard: false, served: Memo::default() }
    }

    /// The names asked for one by one.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Returns `true` if every resource is asked for.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// Returns `true` if nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_wildcard && self.names.is_empty()
    }

    /// Asks for everything, or no longer. Tells whether that was so before.
    pub(crate) fn set_wildcard(&mut self, is_wildcard: bool) -> bool {
        std::mem::replace(&mut self.is_wildcard, is_wildcard)
    }

    /// Adds a name.
    pub(crate) fn insert(&mut self, name: &Name) {
        if self.names.insert(Arc::clone(name)) {
            self.served.note_change(name, self.names.len());
        }
    }

    /// Takes out a name.
    pub(crate) fn take(&mut self, name: &str) -> Option<Name> {
        let name = self.names.take(name)?;
        self.served.note_change(&name, self.names.len());
        Some(name)
    }

    /// Makes `names` all that is asked for one by one.
    pub(crate) fn replace(&mut self, names: BTreeSet<Name>) {
        self.names.replace(names);
        self.served = Memo::default();
    }

    /// Returns `true` if a client that waits to hear anything of a route configuration's virtual hosts, as `ROUTE/*`, hears nothing: it
    /// asked for none, or has to wait for one.
    pub(crate) fn is_left_waiting(&self, table: &TypeTable, all: &str) -> bool {
        let Some(route) = route_of(all) else { return false };
        !self.names.has_route(route) || self.names.of_route(route).any(|name| table.is_withheld(name))
    }

    /// Returns `true` if the client asks for everything, for this very name, or for a glob that covers it.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name) || self.names.has_glob_of(name)
    }

    /// Returns `true` if the client wants `resource` of `table`. Does not know hosts.
    pub(crate) fn covers(&self, table: &TypeTable, resource: &Resource) -> bool {
        let stands_for_it = |alias: &Name| {
            self.names.contains(alias)
                && table.find_alias(alias).is_some_and(|found| found.name() == resource.name())
        };
        (self.is_wildcard && resource.in_wildcard())
            || self.names.contains(resource.name())
            || resource.aliases().iter().any(stands_for_it)
            || self.names.has_glob_of(resource.name())
    }

    /// Returns `true` if `table` has `resource` for a host that the client asked for by another name.
    pub(crate) fn covers_host_of(&self, table: &TypeTable, resource: &Resource) -> bool {
        table.has_virtual_hosts()
            && self.serves(table, |served| served.as_it_is.has(resource.name())).unwrap_or_default()
    }

    /// Returns `true` if the client wants the resource that a table has, or had, under that name.
    pub(crate) fn wants(&self, table: &TypeTable, name: &str) -> bool {
        self.covers_name(name)
            || table
                .find(name)
                .is_some_and(|resource| self.covers(table, resource) || self.covers_host_of(table, resource))
    }

    /// Returns `true` if something that the client asked for is made of `resource` of `table`.
    pub(crate) fn derives_from(&self, table: &TypeTable, resource: &Resource) -> bool {
        table.has_host_patterns()
            && self.serves(table, |served| served.made.has(resource.name())).unwrap_or_default()
    }

    /// Returns `true` if the client asks for something that changed on the way from `older` to `table`, or is given something else for a
    /// host by that.
    pub(crate) fn is_concerned(&self, older: &TypeTable, table: &TypeTable, changes: &Changes) -> bool {
        let derives = table.has_host_patterns() || older.has_host_patterns();
        let covers = |resource: &Arc<Resource>| {
            step();
            self.covers(table, resource) || self.covers_host_of(table, resource)
        };
        if changes.changed.iter().any(covers)
            || counted(changes.removed.iter()).any(|name| self.covers_name(name))
        {
            return true;
        }
        let changed = changes.changed.iter().filter(|resource| derives || resource.is_host_pattern());
        let removed = changes.removed.iter().filter(|_| derives);
        let patterns: HostPatterns<'_> = changed.map(|resource| resource.name()).chain(removed).collect();
        !patterns.is_empty() && self.names.iter().any(|asked| table.may_derive(&patterns, asked))
    }

    /// Every resource of `table` that the client wants, sorted by name.
    pub(crate) fn of(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if self.is_wildcard && self.names.is_empty() {
            let all = counted(table.resources());
            return all.filter(|resource| resource.in_wildcard()).cloned().collect();
        }
        let all = self.is_wildcard.then(|| counted(table.resources())).into_iter().flatten();
        let all = all.filter(|resource| resource.in_wildcard());
        let named = self.names.iter().flat_map(|name| self.resources_of(table, name));
        let by_name: BTreeMap<Name, Arc<Resource>> =
            all.cloned().chain(named).map(|resource| (Arc::clone(resource.name()), resource)).collect();
        by_name.into_values().collect()
    }

    /// Returns `true` if every resource of `table` is wanted, and nothing that is made of them.
    pub(crate) fn is_all_of(&self, table: &TypeTable) -> bool {
        let derives = || {
            let has_made = self.serves(table, |served| !served.made.is_empty());
            table.has_host_patterns() && has_made.unwrap_or_default()
        };
        self.is_wildcard && table.is_all_in_wildcard() && !derives()
    }

    /// The hosts that are asked for and that a virtual host of `table` serves by a domain with a wildcard. Empty for other types.
    pub(crate) fn hosts(&self, table: &TypeTable, resource: &Resource) -> Vec<Name> {
        self.some_hosts(table, resource, usize::MAX)
    }

    /// The first `n` of them.
    pub(crate) fn some_hosts(&self, table: &TypeTable, resource: &Resource, n: usize) -> Vec<Name> {
        if !table.has_virtual_hosts() {
            return Vec::new();
        }
        let served =
            self.serves(table, |served| served.as_it_is.of(resource.name()).take(n).cloned().collect());
        let mut hosts: Vec<Name> = served.unwrap_or_default();
        let aliases: BTreeSet<&Name> = resource.aliases().iter().collect();
        hosts.retain(|host| !aliases.contains(host));
        hosts
    }

    /// The resource for a name: the one that it stands for if it is asked for, else the resource of that name if something covers it.
    pub(crate) fn look_up(&self, table: &TypeTable, name: &str) -> Option<Arc<Resource>> {
        if self.names.contains(name) {
            return table.resolve(name);
        }
        table
            .find(name)
            .filter(|resource| self.covers(table, resource) || self.covers_host_of(table, resource))
            .cloned()
    }

    /// The resources that a name stands for which is asked for.
    pub(crate) fn resources_of<'a>(
        &self,
        table: &'a TypeTable,
        name: &'a str,
    ) -> impl Iterator<Item = Arc<Resource>> + use<'a> {
        let members = self.names.has_glob(name).then(|| counted(table.members(name)).cloned());
        table.resolve(name).into_iter().chain(members.into_iter().flatten())
    }

    /// Looks at which names `table` serves by resources of other names; `None` if there cannot be any.
    fn serves<T>(&self, table: &TypeTable, look: impl FnOnce(&OfTable) -> T) -> Option<T> {
        if self.names.is_empty() || !table.has_other_names() {
            return None;
        }
        self.served.look(table, &self.names, look)
    }
}
