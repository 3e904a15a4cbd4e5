//! What a client lacks: the difference between what it wants of a table and what it may hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Name, Resource, TypeTable};

use super::names::WILDCARD;
use super::{Held, Subscription};
use crate::steps::counted;

/// What the client lacks. Names are sorted, and none is in two of the lists.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Resources that it wants and does not hold in their present version.
    pub(crate) changed: Vec<Arc<Resource>>,
    /// Names that it may hold and that do not exist any more, or are not wanted by what brought them.
    pub(crate) removed: Vec<Name>,
    /// Names that it asked for and that do not exist; it was not told so.
    pub(crate) missing: Vec<Name>,
}

impl Owed {
    /// Whether nothing is owed.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty() && self.missing.is_empty()
    }

    fn tidy(&mut self) {
        self.changed.sort_by(|a, b| a.name().cmp(b.name()));
        self.changed.dedup_by(|a, b| a.name() == b.name());
        let Self { changed, removed, missing } = self;
        let is_sent = |name: &Name| changed.binary_search_by(|resource| resource.name().cmp(name)).is_ok();
        for names in [&mut *removed, &mut *missing] {
            names.sort();
            names.dedup();
            names.retain(|name| !is_sent(name));
        }
        removed.retain(|name| missing.binary_search(name).is_err());
    }
}

impl Subscription {
    /// Returns what the client lacks of `table`. Calling it twice returns the same: only [`settle`](Self::settle),
    /// [`settle_part`](Self::settle_part) and changes of the subscription move on. A rejected response counts as sent (R6):
    /// nothing here knows of rejections.
    ///
    /// Costs as much as there is different between `table` and what the client has; at most the number of names for named
    /// subscriptions of a stream that fell behind, and where resources are found by other names than their own.
    pub(crate) fn owed(&self, table: &TypeTable) -> Owed {
        let mut owed = Owed::default();
        if table.version() != self.settled.version() {
            let remembered = table.remembered_changes_since(&self.settled);
            let derives = table.has_other_names() || self.settled.has_other_names();
            let by_name = !self.is_wildcard && !self.names.has_globs() && (derives || remembered.is_none());
            if !by_name {
                let changes = remembered.unwrap_or_else(|| table.changes_since(&self.settled));
                counted(changes.changed.iter()).for_each(|new| self.add_changed(table, new, &mut owed));
                counted(changes.removed.iter()).for_each(|name| self.add_removed(name, &mut owed));
            }
            if by_name || derives {
                self.add_by_name(table, &mut owed);
            }
        }
        for (name, held) in self.exceptions.iter() {
            self.add_exception(table, name, held, &mut owed);
        }
        owed.tidy();
        owed
    }

    fn add_changed(&self, table: &TypeTable, resource: &Arc<Resource>, owed: &mut Owed) {
        if !self.covers(table, resource) {
            // It may have left the wildcard, or lost the alias that it was wanted by.
            self.add_removed(resource.name(), owed);
        } else if !self.exceptions.contains(resource.name()) {
            owed.changed.push(Arc::clone(resource));
        }
    }

    fn add_removed(&self, name: &Name, owed: &mut Owed) {
        let was_covered =
            self.settled.find(name).is_some_and(|resource| self.covers(&self.settled, resource));
        if was_covered && !self.exceptions.contains(name) {
            owed.removed.push(Arc::clone(name));
        }
    }

    /// Compares what each name stood for with what it stands for.
    fn add_by_name(&self, table: &TypeTable, owed: &mut Owed) {
        let mut lost = Vec::new();
        // What is out of date by its own name may still stand for something else.
        let is_open = |name: &&Name| matches!(self.exceptions.get(name), None | Some(Held::Stale));
        for name in self.names.iter().filter(is_open) {
            let (old, new) = (self.settled.look_up(name), table.look_up(name));
            // Equal templates make equal resources.
            if old == new {
                continue;
            }
            owed.changed.extend(new.map(|new| new.under(name)));
            let is_kept = |old: &&Name| new.is_some_and(|new| new.name(name) == *old);
            lost.extend(old.map(|old| old.name(name)).filter(|old| !is_kept(old)));
        }
        if lost.is_empty() {
            return;
        }
        let wanted: BTreeSet<&Name> =
            self.names.iter().filter_map(|name| Some(table.look_up(name)?.name(name))).collect();
        for name in lost {
            match table.find(name) {
                // It was sent with an alias that is another's now.
                Some(resource) if wanted.contains(name) || self.covers(table, resource) => {
                    owed.changed.push(Arc::clone(resource));
                }
                Some(_) | None => owed.removed.push(Arc::clone(name)),
            }
        }
    }

    fn add_exception(&self, table: &TypeTable, name: &Name, held: Held, owed: &mut Owed) {
        if self.names.has_glob(name) {
            let mut members = counted(table.members(name)).peekable();
            if members.peek().is_none() && held != Held::Gone {
                owed.missing.push(Arc::clone(name));
            }
            if held != Held::Stale {
                let unknown = members.filter(|member| !self.exceptions.contains(member.name()));
                owed.changed.extend(unknown.cloned());
            }
            return;
        }
        if table.is_withheld(name) {
            return;
        }
        match (held, self.lookup(table, name)) {
            (Held::Version(version), Some(resource)) if version == resource.version() => {}
            (Held::Stale, Some(resource)) if resource.name() != name => owed.removed.push(Arc::clone(name)),
            (held, Some(resource)) => {
                if resource.name() != name && matches!(held, Held::Version(_) | Held::Unknown) {
                    // What had this name of its own is gone.
                    owed.removed.push(Arc::clone(name));
                }
                owed.changed.push(resource);
            }
            (Held::Gone, None) => {}
            (Held::Version(_) | Held::Stale, None) => owed.removed.push(Arc::clone(name)),
            (Held::Unknown | Held::Nothing, None) => owed.missing.push(Arc::clone(name)),
        }
    }

    /// What the client asked for by name and was not answered, and does not exist.
    pub(crate) fn unanswered(&self, table: &TypeTable) -> impl Iterator<Item = Name> {
        let is_open = |(name, held): &(&Name, Held)| {
            matches!(held, Held::Unknown | Held::Nothing)
                && self.names.contains(name)
                && !self.names.has_glob(name)
                && table.look_up(name).is_none()
        };
        self.exceptions.iter().filter(is_open).map(|(name, _)| Arc::clone(name))
    }

    /// Every resource of `table` that the client wants, sorted by name.
    pub(crate) fn wanted(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
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

    /// What a complete list shows: what the client wants, and what it dropped and takes up again if it asks anew before it has seen the
    /// lists that are on their way. To be absent from this one would be to be deleted; what it does not ask for it ignores, unless it
    /// asks for everything. What this list does not show the client has lost for good.
    pub(crate) fn list(&mut self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if self.is_wildcard {
            self.forget_lingering();
        }
        let is_lost = |(name, by): &&(Name, Name)| **by == *WILDCARD || table.find(name).is_none();
        let lingering = self.lingering.iter().flat_map(|lingering| lingering.iter());
        let lost: Vec<(Name, Name)> = lingering.filter(is_lost).cloned().collect();
        if let Some(lingering) = &mut self.lingering {
            lost.iter().for_each(|(name, by)| lingering.remove_pair(name, by));
        }
        let mut listed = self.wanted(table);
        listed.extend(self.lingering().filter_map(|name| table.find(name)).cloned());
        listed.sort_by(|a, b| a.name().cmp(b.name()));
        listed.dedup_by(|a, b| a.name() == b.name());
        listed
    }

    /// Whether every resource of `table` is wanted, and nothing that is made of them.
    pub(crate) fn wants_all(&self, table: &TypeTable) -> bool {
        let derives = || {
            let has_made = self.serves(table, |served| !served.made.is_empty());
            table.has_host_patterns() && has_made.unwrap_or_default()
        };
        self.is_wildcard && table.is_all_in_wildcard() && !derives()
    }

    /// The hosts that are subscribed to and that a virtual host of `table` serves by a domain with a wildcard. Empty for other types.
    pub(crate) fn hosts(&self, table: &TypeTable, resource: &Resource) -> Vec<Name> {
        if !table.has_virtual_hosts() {
            return Vec::new();
        }
        let served = self.serves(table, |served| served.as_it_is.of(resource.name()).cloned().collect());
        let mut hosts: Vec<Name> = served.unwrap_or_default();
        let aliases: BTreeSet<&Name> = resource.aliases().iter().collect();
        hosts.retain(|host| !aliases.contains(host));
        hosts
    }
}
