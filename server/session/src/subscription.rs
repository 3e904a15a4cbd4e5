//! What one client wants of one resource type, and what it may hold.

mod exceptions;
mod lingering;
mod names;
mod owed;
mod pairs;
mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Changes, HostPatterns, Name, Resource, ResourceType, TypeTable, Version, xdstp};

pub(crate) use names::{Names, WILDCARD, route_of};
pub(crate) use owed::Owed;

use crate::steps::{counted, step};
use exceptions::{Exceptions, Held};
use lingering::Lingering;
use served::{Memo, OfTable};

/// What one stream wants of one resource type, and what its client may hold.
///
/// A stream owns one per type URL, from the first request for that type until the stream ends; nothing survives a
/// reconnect. SotW requests replace the names, incremental ones add and remove them; everything else is common.
///
/// What the client holds is kept as a shared table that it was brought up to, and the names for which that is not true. A
/// name whose subscription changes becomes [`Held::Unknown`], because responses may still be on their way: what is unknown and
/// wanted is owed to the client, whether or not it changed (R13).
///
/// A name may be a resource's own, an alias, a host that a virtual host's domains cover, a host that a Listener's pattern matches,
/// or (incremental only) a glob. `xdstp:` names are kept in canonical form (rows A144, A145). What is made of a pattern has the name
/// that was asked for, so the client holds it as a resource of its own; there is one as long as the name is subscribed to.
///
/// See [How the client specifies what resources to return][spec].
///
/// [spec]: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#how-the-client-specifies-what-resources-to-return
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    names: Names,
    /// Whether every resource of the type is wanted.
    is_wildcard: bool,
    /// The client holds what this table has of the names that it wants, and was told of those that it has not …
    settled: Arc<TypeTable>,
    /// … except for these. Names that are subscribed to, and names of resources.
    exceptions: Exceptions,
    /// What the client does not want any more, but will take up again if it asks anew before it has seen what is on its way. Few
    /// streams have any for long.
    lingering: Option<Box<Lingering>>,
    /// What tables serve for names that are not those of resources, as far as it was asked for.
    served: Memo,
}

impl Subscription {
    /// Nothing is wanted and nothing held.
    pub(crate) fn new(resource_type: &ResourceType) -> Self {
        Self {
            names: Names::new(resource_type),
            is_wildcard: false,
            settled: Arc::default(),
            exceptions: Exceptions::default(),
            lingering: None,
            served: Memo::default(),
        }
    }

    /// How many names are kept that the client chose: those that it asks for, and those that it dropped and may take up again, or is
    /// to be told of. What the table that it has explains is left out, because its size is not the client's doing. Together they are
    /// never more than twice this and that table.
    pub(crate) fn n_kept(&self) -> (usize, usize) {
        let n_explained = self.names.len() + self.settled.len();
        let n_lingering = self.lingering.as_ref().map_or(0, |lingering| lingering.len());
        let n_dropped = n_lingering.saturating_sub(self.settled.len());
        (self.names.len(), n_dropped + self.exceptions.len().saturating_sub(n_explained))
    }

    /// About how many names and resources are looked at to change what is asked for: all of them if that is wide, as with a wildcard, a
    /// glob or a complete list, else only what may be recalled.
    pub(crate) fn change_size(&self, is_wide: bool) -> usize {
        let n_lingering = self.lingering.as_ref().map_or(0, |lingering| lingering.len());
        let n_wide = if is_wide { self.names.len() + self.exceptions.len() + self.settled.len() } else { 0 };
        n_lingering + n_wide
    }

    /// About how many names and resources are looked at to find what the client lacks of `table`.
    pub(crate) fn owed_size(&self, table: &TypeTable) -> usize {
        let n_changes = if table.version() == self.settled.version() {
            0
        } else {
            let by_name = table.has_other_names() || self.settled.has_other_names();
            let remembered = table.remembered_changes_since(&self.settled);
            let n_changed = remembered.map_or(table.len().max(self.settled.len()), |changes| changes.len());
            if by_name { n_changed + self.names.len() } else { n_changed }
        };
        n_changes + self.exceptions.len()
    }

    /// How many names are kept in all.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_entries(&self) -> usize {
        let n_lingering = self.lingering.as_ref().map_or(0, |lingering| lingering.len());
        self.names.len() + self.exceptions.len() + n_lingering
    }
}

/// What was sent.
impl Subscription {
    /// The client was sent everything that it lacked of `table`.
    ///
    /// A name whose resource is withheld stays owed.
    pub(crate) fn settle(&mut self, table: &Arc<TypeTable>) {
        self.settled = Arc::clone(table);
        let Self { names, exceptions, .. } = self;
        // Of a glob nothing is withheld but its members, even if something has its name.
        exceptions.retain(|name| table.is_withheld(name) && !names.has_glob(name));
    }

    /// The client was sent everything that it lacked of `table` but for these.
    pub(crate) fn settle_part(&mut self, table: &Arc<TypeTable>, rest: &Owed) {
        let before = std::mem::take(&mut self.exceptions);
        self.settled = Arc::clone(table);
        // Of what is not sent the client has an older version, if any.
        let unsent: BTreeSet<&Name> = rest.changed.iter().map(|resource| resource.name()).collect();
        unsent.iter().for_each(|name| self.exceptions.insert(Arc::clone(name), Held::Stale));
        for (name, held) in before.iter() {
            // What was not answered yet stays so, whatever the resource is called.
            let waits = matches!(held, Held::Unknown | Held::Nothing);
            if table.is_withheld(name) && !self.names.has_glob(name) {
                self.exceptions.insert(Arc::clone(name), held);
            }
            if waits && self.lookup(table, name).is_some_and(|resource| unsent.contains(resource.name())) {
                self.exceptions.insert(Arc::clone(name), held);
            }
        }
        rest.removed.iter().for_each(|name| self.exceptions.insert(Arc::clone(name), Held::Stale));
        for resource in rest.changed.iter().filter(|_| self.names.has_globs()) {
            // Its members are owed one by one from now on; it is still owed that there are none, if they go before they are sent.
            if let Some(glob) = self.names.glob_of(resource.name()).filter(|glob| before.contains(glob)) {
                self.exceptions.insert(Arc::clone(glob), Held::Stale);
            }
        }
        for name in &rest.missing {
            let held = before.get(name).unwrap_or(Held::Unknown);
            self.exceptions.insert(Arc::clone(name), held);
        }
    }

    /// The client needs the resource again, whatever it holds. Tells whether it wants it at all.
    pub(crate) fn mark_unknown(&mut self, name: &str) -> bool {
        let name = xdstp::canonical(name);
        if let Some(name) = self.names.get(&name).cloned() {
            self.doubt(name);
            return true;
        }
        let is_held = self.settled.find(&name).is_some_and(|resource| self.covers(&self.settled, resource))
            || (self.exceptions.contains(&name) && self.covers_name(&name));
        if is_held {
            self.exceptions.insert(Name::from(&*name), Held::Unknown);
        }
        is_held
    }

    /// Forgets what the client holds by a subscribed name, also if the resource has another name; it waits for an answer.
    fn doubt(&mut self, name: Name) {
        let found = self.settled.look_up(&name).map(|found| Arc::clone(found.name(&name)));
        let has_its_name = found.as_ref() == Some(&name);
        if let Some(other) = found.filter(|_| !has_its_name) {
            self.exceptions.insert_new(other, Held::Stale);
        }
        let may_hold = match self.exceptions.get(&name) {
            Some(Held::Version(_) | Held::Stale | Held::Unknown) => true,
            Some(Held::Nothing | Held::Gone) => false,
            None => has_its_name,
        };
        self.exceptions.insert(name, if may_hold { Held::Unknown } else { Held::Nothing });
    }

    /// The version that the client said it holds of a name.
    pub(crate) fn claimed(&self, name: &str) -> Option<Version> {
        match self.exceptions.get(name) {
            Some(Held::Version(version)) => Some(version),
            Some(Held::Stale | Held::Unknown | Held::Nothing | Held::Gone) | None => None,
        }
    }

    /// The names of which the client said that it holds something.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Name> {
        let is_claim = |(_, held): &(&Name, Held)| matches!(held, Held::Version(_));
        self.exceptions.iter().filter(is_claim).map(|(name, _)| name)
    }

    /// Whether the client said that it holds something.
    pub(crate) fn shows_versions(&self) -> bool {
        self.exceptions.iter().any(|(_, held)| matches!(held, Held::Version(_)))
    }

    /// Whether the client certainly holds nothing of this name, and waits for an answer.
    pub(crate) fn is_unheld(&self, name: &Name) -> bool {
        self.names.contains(name) && self.exceptions.get(name) == Some(Held::Nothing)
    }

    /// The client may hold these, and they are gone; it was not told so.
    pub(crate) fn mark_stale(&mut self, names: Vec<Name>) {
        names.into_iter().for_each(|name| self.exceptions.insert(name, Held::Stale));
    }

    /// The client says that it holds a version from an earlier stream (row A92); counts if it wants the resource (row A95). A
    /// version of another server is out of date.
    pub(crate) fn mark_held(&mut self, name: &str, version: &str) {
        let held = version.parse().map_or(Held::Stale, Held::Version);
        let canonical = xdstp::canonical(name);
        // One virtual host may serve several hosts of one route configuration (rows A116, A120).
        let is_near = || route_of(name).is_some_and(|route| self.names.has_route(route));
        if self.names.contains(&canonical) {
            self.exceptions.insert(Name::from(&*canonical), held);
        } else if self.covers_name(name) || is_near() {
            self.exceptions.insert(Name::from(name), held);
        }
    }
}

/// What the client was sent, for the order of sending.
impl Subscription {
    /// What the client was brought up to.
    pub(crate) fn settled(&self) -> &Arc<TypeTable> {
        &self.settled
    }

    /// Whether the client has exactly what `table` has of what it wants.
    pub(crate) fn is_at(&self, table: &TypeTable) -> bool {
        self.exceptions.is_empty() && table.version() == self.settled.version()
    }

    /// The resource as the client certainly has it, or has it on its way.
    pub(crate) fn sent(&self, name: &str) -> Option<&Arc<Resource>> {
        let resource = self.settled.find(name).filter(|_| !self.exceptions.contains(name))?;
        self.covers(&self.settled, resource).then_some(resource)
    }

    /// Whether the client was sent the resource in some version, or said that it has one.
    pub(crate) fn has(&self, name: &str) -> bool {
        let said = matches!(self.exceptions.get(name), Some(Held::Version(_)));
        self.sent(name).is_some() || (said && self.covers_name(name))
    }

    /// Whether the client wants what a table has, or had, of that name.
    pub(crate) fn wants(&self, table: &TypeTable, name: &str) -> bool {
        self.covers_name(name)
            || table
                .find(name)
                .is_some_and(|resource| self.covers(table, resource) || self.covers_host_of(table, resource))
    }

    /// What was there when the client was sent something and `table` has no more.
    pub(crate) fn gone_from(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if table.version() == self.settled.version() {
            return vec![];
        }
        let changes = table.changes_since(&self.settled);
        changes.removed.iter().filter_map(|name| self.settled.find(name)).cloned().collect()
    }

    /// What was there in another version when the client was sent something.
    pub(crate) fn changed_from(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if table.version() == self.settled.version() {
            return vec![];
        }
        let changes = table.changes_since(&self.settled);
        changes.changed.iter().filter_map(|new| self.settled.find(new.name())).cloned().collect()
    }
}

/// What is wanted.
impl Subscription {
    /// Subscribes to one name; what the client holds of it is unknown from now on, also if it was subscribed to before (R7).
    pub(crate) fn add_name(&mut self, name: &str) {
        let name = Name::from(name);
        self.insert_name(&name);
        if xdstp::is_glob(&name) {
            // Every member is owed, whatever the client said that it holds; what may be gone must still be told.
            let members: Vec<Name> = self.exceptions.members(&name).cloned().collect();
            for member in members {
                if matches!(self.exceptions.get(&member), Some(Held::Version(_))) {
                    let held = if self.names.contains(&member) { Held::Unknown } else { Held::Stale };
                    self.exceptions.insert(member, held);
                }
            }
        }
        self.recall_lingering(&name);
        self.doubt(name);
    }

    /// Unsubscribes from one name. If something else covers the resource, the client is owed an answer, because it has dropped
    /// the resource (R8, row A106). For a name that is not subscribed to, see [`remove_found`](Self::remove_found).
    pub(crate) fn remove_name(&mut self, name: &str) -> bool {
        let taken = self.take_name(name);
        let is_asked_for = taken.is_some();
        taken.into_iter().for_each(|name| self.drop_name(name));
        is_asked_for
    }

    /// The resource that a name stands for which is not subscribed to: it may be subscribed to under another name.
    pub(crate) fn find_settled(&self, name: &str) -> Option<Arc<Resource>> {
        step();
        self.settled.find(name).or_else(|| self.settled.find_alias(name)).cloned()
    }

    /// Unsubscribes from a resource by all of its names (row A109).
    pub(crate) fn remove_found(&mut self, resource: &Resource) {
        for other in counted(resource.aliases().iter().chain([resource.name()])) {
            if let Some(name) = self.take_name(other) {
                self.drop_name(name);
            }
        }
    }

    /// Settles what becomes of the resources of a name that was taken out.
    fn drop_name(&mut self, name: Name) {
        self.exceptions.remove(&name);
        let resources: Vec<Name> = if xdstp::is_glob(&name) {
            let members = counted(self.settled.members(&name)).map(|member| member.name());
            members.chain(self.exceptions.members(&name)).cloned().collect()
        } else {
            let found = self.settled.look_up(&name);
            vec![found.map_or(Arc::clone(&name), |found| Arc::clone(found.name(&name)))]
        };
        for resource in resources {
            let is_wanted = self.covers_name(&resource) || self.lookup(&self.settled, &resource).is_some();
            if is_wanted {
                self.exceptions.insert(resource, Held::Unknown);
            } else {
                self.exceptions.remove(&resource);
                self.linger(resource, &name);
            }
        }
    }

    /// Subscribes to everything; what the client holds is unknown from now on.
    pub(crate) fn add_wildcard(&mut self) {
        if self.is_wildcard {
            let covered = counted(self.settled.resources()).filter(|resource| resource.in_wildcard());
            let unknown: Vec<Name> = covered.map(|resource| Arc::clone(resource.name())).collect();
            unknown.into_iter().for_each(|name| self.exceptions.insert(name, Held::Unknown));
        } else {
            let settled = Arc::clone(&self.settled);
            let names: Vec<Name> = self.names.iter().cloned().collect();
            for name in names {
                let is_known = self.exceptions.contains(&name);
                if !is_known && !self.names.has_glob(&name) && settled.look_up(&name).is_none() {
                    self.exceptions.insert(name, Held::Gone);
                    continue;
                }
                for member in self.resources_of(&settled, &name).filter(|resource| *resource.name() != name) {
                    self.exceptions.insert_new(Arc::clone(member.name()), Held::Stale);
                }
                self.doubt(name);
            }
            self.settled = Arc::default();
            self.is_wildcard = true;
        }
        self.recall_lingering(WILDCARD);
    }

    /// Ends the wildcard; names stay. The client drops the rest by itself (row A107), but for virtual hosts, of which it is told.
    pub(crate) fn remove_wildcard(&mut self) {
        if !std::mem::take(&mut self.is_wildcard) {
            return;
        }
        let settled = Arc::clone(&self.settled);
        let held = counted(settled.resources()).filter(|resource| resource.in_wildcard());
        if self.names.has_hosts() {
            // Which of them the client keeps for a host depends on the aliases that it was told, so it is told anew.
            held.for_each(|resource| self.exceptions.insert_new(Arc::clone(resource.name()), Held::Stale));
            self.exceptions.update(|held| matches!(held, Held::Version(_)).then_some(Held::Stale));
            return;
        }
        let dropped =
            held.filter(|resource| !self.covers(&settled, resource)).map(|resource| resource.name());
        let excepted = self.exceptions.iter().map(|(name, _)| name).filter(|name| !self.covers_name(name));
        let lingering: Vec<Name> = dropped.chain(excepted).cloned().collect();
        let wildcard = Name::from(WILDCARD);
        for name in lingering {
            self.exceptions.remove(&name);
            self.linger(name, &wildcard);
        }
    }

    /// Makes `wanted` the whole of what is asked for one by one (SotW). Names that are new become unknown (rows A46, A47). What is
    /// dropped the client may take up again from a response that it has not seen yet.
    pub(crate) fn replace_names(&mut self, wanted: BTreeSet<Name>) {
        let dropped: Vec<Name> = self.names.difference(&wanted).cloned().collect();
        for name in &dropped {
            if self.sent(name).is_some() {
                self.linger(Arc::clone(name), name);
            }
        }
        for name in counted(wanted.iter()) {
            if !self.names.contains(name) {
                self.exceptions.insert(Arc::clone(name), Held::Unknown);
            }
        }
        if self.is_wildcard {
            dropped.into_iter().for_each(|name| self.exceptions.insert(name, Held::Unknown));
        }
        self.names.replace(wanted);
        self.served = Memo::default();
        if !self.is_wildcard {
            let Self { names, exceptions, .. } = self;
            exceptions.retain(|name| names.contains(name));
        }
    }

    fn insert_name(&mut self, name: &Name) {
        if self.names.insert(Arc::clone(name)) {
            self.note_change(name);
        }
    }

    fn take_name(&mut self, name: &str) -> Option<Name> {
        let name = self.names.take(name)?;
        self.note_change(&name);
        Some(name)
    }

    fn note_change(&mut self, name: &Name) {
        self.served.note_change(name, self.names.len());
    }

    fn linger(&mut self, resource: Name, by: &Name) {
        let has_hosts = self.names.has_hosts();
        self.lingering.get_or_insert_default().insert(resource, by, has_hosts);
    }

    /// The client has seen every response that was sent: it holds nothing that it does not want.
    pub(crate) fn forget_lingering(&mut self) {
        self.lingering = None;
    }

    /// What the client dropped and may take up again from what is on its way.
    pub(crate) fn lingering(&self) -> impl Iterator<Item = &Name> {
        self.lingering.iter().flat_map(|lingering| lingering.iter()).map(|(resource, _)| resource)
    }

    /// The client does not take these up again.
    pub(crate) fn forget(&mut self, names: &BTreeSet<Name>) {
        let Some(lingering) = &mut self.lingering else { return };
        names.iter().for_each(|name| lingering.remove(name));
        if lingering.is_empty() {
            self.lingering = None;
        }
    }

    /// The client asks for `name`, maybe while responses are on their way: it may take from them what it has dropped.
    fn recall_lingering(&mut self, name: &str) {
        let Some(lingering) = &mut self.lingering else { return };
        let recalled = lingering.recall(name);
        if lingering.is_empty() {
            self.lingering = None;
        }
        recalled.into_iter().for_each(|resource| self.exceptions.insert_new(resource, Held::Stale));
    }

    /// Whether the client wants `resource` of `table`. Does not know hosts.
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

    /// Whether the client asks for everything, for this very name, or for a glob that covers it.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name) || self.names.has_glob_of(name)
    }

    /// Whether `table` has `resource` for a host that the client asked for by another name.
    pub(crate) fn covers_host_of(&self, table: &TypeTable, resource: &Resource) -> bool {
        table.has_virtual_hosts()
            && self.serves(table, |served| served.as_it_is.has(resource.name())).unwrap_or_default()
    }

    /// Whether `resource` of `table` is what something that the client asked for is made of.
    pub(crate) fn derives_from(&self, table: &TypeTable, resource: &Resource) -> bool {
        table.has_host_patterns()
            && self.serves(table, |served| served.made.has(resource.name())).unwrap_or_default()
    }

    /// Whether the client asks for something that changed on the way to `table`, or is given something else for a host by that.
    pub(crate) fn is_concerned(&self, table: &TypeTable, changes: &Changes) -> bool {
        let derives = table.has_host_patterns() || self.settled.has_host_patterns();
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

    /// Looks at which names `table` serves by resources of other names; `None` if there cannot be any.
    fn serves<T>(&self, table: &TypeTable, look: impl FnOnce(&OfTable) -> T) -> Option<T> {
        if self.names.is_empty() || !table.has_other_names() {
            return None;
        }
        self.served.look(table, &self.names, look)
    }

    /// Whether every resource is asked for.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// The names asked for one by one.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// What the client holds: name, and the version if it is known. Names that it was told do not exist are left out.
    pub(crate) fn held(&self) -> BTreeMap<Name, Option<Version>> {
        let mut held = BTreeMap::new();
        for resource in self.wanted(&self.settled) {
            held.insert(Arc::clone(resource.name()), Some(resource.version()));
        }
        for (name, exception) in self.exceptions.iter() {
            match exception {
                Held::Version(version) => held.insert(Arc::clone(name), Some(version)),
                Held::Stale | Held::Unknown => held.insert(Arc::clone(name), None),
                Held::Nothing | Held::Gone => held.remove(name),
            };
        }
        held
    }

    /// The resource for a name: whatever it stands for if it is subscribed to, else the resource of that name if something
    /// covers it.
    fn lookup(&self, table: &TypeTable, name: &str) -> Option<Arc<Resource>> {
        if self.names.contains(name) {
            return table.resolve(name);
        }
        table
            .find(name)
            .filter(|resource| self.covers(table, resource) || self.covers_host_of(table, resource))
            .cloned()
    }

    /// The resources that a subscribed name stands for.
    fn resources_of<'a>(
        &self,
        table: &'a TypeTable,
        name: &'a str,
    ) -> impl Iterator<Item = Arc<Resource>> + use<'a> {
        let members = self.names.has_glob(name).then(|| counted(table.members(name)).cloned());
        table.resolve(name).into_iter().chain(members.into_iter().flatten())
    }
}
