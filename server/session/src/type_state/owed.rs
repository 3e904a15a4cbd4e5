//! The resources that a client is owed: the difference between what it wants of a table and what it holds by the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Name, Resource, TypeTable, Version};

use super::TypeState;
use crate::ledger::Held;
use crate::owed::Owed;
use crate::steps::counted;
use crate::wants::WILDCARD;

/// How many hosts of one virtual host are looked at to find whether the client was given that; with more, it may have been.
const MAX_HOSTS: usize = 8;

/// About how much memory a name takes besides its text: itself, its places in the sets of names asked for and of exceptions.
const BYTES_PER_NAME: usize = 128;

impl TypeState {
    /// Returns what the client lacks of `table`. Calling it twice returns the same: only records in the ledger and changes of the
    /// subscription move on. A refused resource counts as sent, and what else came with it has become unknown (R6): nothing here knows
    /// of rejections.
    ///
    /// Costs as much as there is different between `table` and what the client has; at most the number of names for named
    /// subscriptions of a stream that fell behind, and where resources are found by other names than their own.
    pub(crate) fn lacks(&self, table: &TypeTable) -> Owed {
        let mut owed = Owed::default();
        let settled = self.ledger.settled();
        if table.version() != settled.version() {
            let remembered = table.remembered_changes_since(settled);
            let derives = table.has_other_names() || settled.has_other_names();
            let by_name = !self.wants.is_wildcard()
                && !self.wants.names().has_globs()
                && (derives || remembered.is_none());
            if !by_name {
                let changes = remembered.unwrap_or_else(|| table.changes_since(settled));
                counted(changes.changed.iter()).for_each(|new| self.add_changed(table, new, &mut owed));
                counted(changes.removed.iter()).for_each(|name| self.add_removed(name, &mut owed));
            }
            if by_name || derives {
                self.add_by_name(table, &mut owed);
            }
        }
        for (name, held) in self.ledger.exceptions.iter() {
            self.add_exception(table, name, held, &mut owed);
        }
        owed.tidy();
        owed
    }

    fn add_changed(&self, table: &TypeTable, resource: &Arc<Resource>, owed: &mut Owed) {
        if !self.wants.covers(table, resource) {
            // It may have left the wildcard, or lost the alias that it was wanted by.
            self.add_removed(resource.name(), owed);
        } else if !self.ledger.exceptions.contains(resource.name()) {
            owed.changed.push(Arc::clone(resource));
        }
    }

    fn add_removed(&self, name: &Name, owed: &mut Owed) {
        let settled = self.ledger.settled();
        let was_given = settled.find(name).is_some_and(|resource| self.is_given(resource));
        if was_given && !self.ledger.exceptions.contains(name) {
            owed.removed.push(Arc::clone(name));
        }
    }

    /// Compares what each name stood for with what it stands for.
    fn add_by_name(&self, table: &TypeTable, owed: &mut Owed) {
        let mut lost = Vec::new();
        // A name that is out of date as a resource's own may still stand for something else.
        let is_open = |name: &&Name| {
            matches!(self.ledger.exceptions.get(name), None | Some(Held::Stale)) && !table.is_withheld(name)
        };
        for name in self.wants.names().iter().filter(is_open) {
            let (old, new) = (self.ledger.settled().look_up(name), table.look_up(name));
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
            self.wants.names().iter().filter_map(|name| Some(table.look_up(name)?.name(name))).collect();
        for name in lost {
            match table.find(name) {
                // It was sent with an alias that is another's now.
                Some(resource) if wanted.contains(name) || self.wants.covers(table, resource) => {
                    owed.changed.push(Arc::clone(resource));
                }
                Some(_) | None => owed.removed.push(Arc::clone(name)),
            }
        }
    }

    fn add_exception(&self, table: &TypeTable, name: &Name, held: Held, owed: &mut Owed) {
        if self.wants.names().has_glob(name) {
            let mut members = counted(table.members(name)).peekable();
            if members.peek().is_none() && held != Held::Gone {
                owed.missing.push(Arc::clone(name));
            }
            if held != Held::Stale {
                let unknown = members.filter(|member| !self.ledger.exceptions.contains(member.name()));
                owed.changed.extend(unknown.cloned());
            }
            return;
        }
        if table.is_withheld(name) {
            return;
        }
        match (held, self.wants.look_up(table, name)) {
            (Held::Version(version), Some(resource)) if version == resource.version() => {}
            (Held::Stale, Some(resource)) if resource.name() != name => owed.removed.push(Arc::clone(name)),
            (held, Some(resource)) => {
                if resource.name() != name && matches!(held, Held::Version(_) | Held::Unknown) {
                    // The resource that had this name of its own is gone.
                    owed.removed.push(Arc::clone(name));
                }
                owed.changed.push(resource);
            }
            (Held::Gone, None) => {}
            (Held::Version(_) | Held::Stale, None) => owed.removed.push(Arc::clone(name)),
            (Held::Unknown | Held::Nothing, None) => owed.missing.push(Arc::clone(name)),
        }
    }

    /// Names that the client asked for, that do not exist, and that were not answered.
    pub(crate) fn unanswered(&self, table: &TypeTable) -> impl Iterator<Item = Name> {
        let is_open = |(name, held): &(&Name, Held)| {
            matches!(held, Held::Unknown | Held::Nothing)
                && self.wants.names().contains(name)
                && !self.wants.names().has_glob(name)
                && table.look_up(name).is_none()
        };
        self.ledger.exceptions.iter().filter(is_open).map(|(name, _)| Arc::clone(name))
    }

    /// The resources of a complete list: those that the client wants, and those that it dropped and takes up again if it asks anew before
    /// it has seen the lists that are on their way. To be absent from this one would be to be deleted. It ignores what it does not ask
    /// for, unless it asks for everything. The client has lost for good what this list does not show.
    pub(crate) fn list(&mut self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if self.wants.is_wildcard() {
            self.ledger.forget_all_dropped();
        }
        let is_lost = |(name, by): &&(Name, Name)| **by == *WILDCARD || table.find(name).is_none();
        let lost: Vec<(Name, Name)> = self.ledger.dropped_by().filter(is_lost).cloned().collect();
        self.ledger.forget_dropped_by(&lost);
        let mut listed = self.wants.of(table);
        listed.extend(self.ledger.dropped().filter_map(|name| table.find(name)).cloned());
        listed.sort_by(|a, b| a.name().cmp(b.name()));
        listed.dedup_by(|a, b| a.name() == b.name());
        listed
    }

    /// The resource as the client certainly has it, or has it on its way.
    pub(crate) fn sent(&self, name: &str) -> Option<&Arc<Resource>> {
        let settled = self.ledger.settled();
        let resource = settled.find(name).filter(|_| !self.ledger.exceptions.contains(name))?;
        self.is_given(resource).then_some(resource)
    }

    /// Returns `true` if the client was given a resource of the table that it was brought up to, in some version: it wants that, and does
    /// not only ask for it by other names that were not answered yet.
    pub(super) fn is_given(&self, resource: &Resource) -> bool {
        let settled = self.ledger.settled();
        let wants_by_name = self.wants.covers_name(resource.name());
        if wants_by_name || !settled.has_other_names() {
            return wants_by_name && self.wants.covers(settled, resource);
        }
        let stands_for_it = |asked: &&Name| {
            self.wants.names().contains(asked)
                && settled.look_up(asked).is_some_and(|found| found.name(asked) == resource.name())
        };
        let aliases = resource.aliases().iter().filter(stands_for_it).cloned();
        let hosts = self.wants.some_hosts(settled, resource, MAX_HOSTS);
        let is_unsure = hosts.len() == MAX_HOSTS;
        let mut asked = aliases.chain(hosts);
        is_unsure
            || asked
                .any(|asked| !matches!(self.ledger.exceptions.get(&asked), Some(Held::Nothing | Held::Gone)))
    }

    /// Returns `true` if the client was sent the resource in some version, or said that it has one.
    pub(crate) fn holds(&self, name: &str) -> bool {
        let is_claimed = self.ledger.claimed(name).is_some();
        self.sent(name).is_some() || (is_claimed && self.wants.covers_name(name))
    }

    /// Returns `true` if the client certainly holds nothing of this name, and waits for an answer.
    pub(crate) fn is_unheld(&self, name: &Name) -> bool {
        self.wants.names().contains(name) && self.ledger.exceptions.get(name) == Some(Held::Nothing)
    }

    /// The names and versions that the client holds; no version if it is not known. Names that it knows not to exist are left out.
    pub(crate) fn held(&self) -> BTreeMap<Name, Option<Version>> {
        let mut held = BTreeMap::new();
        for resource in self.wants.of(self.ledger.settled()) {
            held.insert(Arc::clone(resource.name()), Some(resource.version()));
        }
        for (name, exception) in self.ledger.exceptions.iter() {
            match exception {
                Held::Version(version) => held.insert(Arc::clone(name), Some(version)),
                Held::Stale | Held::Unknown => held.insert(Arc::clone(name), None),
                Held::Nothing | Held::Gone => held.remove(name),
            };
        }
        held
    }

    /// How many names are kept that the client chose: those that it asks for, and those that it dropped and may take up again, or still
    /// has to hear of. Names that the table it has explains are left out, because its size is not the client's doing. Together they are
    /// never more than twice this and that table.
    pub(crate) fn n_kept(&self) -> (usize, usize) {
        let (n_names, n_settled) = (self.wants.names().len(), self.ledger.settled().len());
        let (n_exceptions, n_dropped) = self.ledger.n_names();
        let n_unexplained = n_exceptions.saturating_sub(n_names + n_settled);
        (n_names, n_dropped.saturating_sub(n_settled) + n_unexplained)
    }

    /// About how many bytes are kept of what the client subscribes to. Names that the client dropped count as if each were the longest
    /// that it ever sent.
    pub(crate) fn kept_bytes(&self) -> usize {
        let (n_names, n_others) = self.n_kept();
        let of_names = n_names * BYTES_PER_NAME + self.wants.names().n_bytes();
        size_of::<Self>() + of_names + n_others * (BYTES_PER_NAME + usize::from(self.longest_name))
    }

    /// About how many names and resources are looked at to change what is asked for: all of them if that is wide, as with a wildcard, a
    /// glob or a complete list, else only those that may be recalled.
    pub(crate) fn change_size(&self, is_wide: bool) -> usize {
        let (n_exceptions, n_dropped) = self.ledger.n_names();
        let n_all = self.wants.names().len() + n_exceptions + self.ledger.settled().len();
        n_dropped + if is_wide { n_all } else { 0 }
    }

    /// About how many names and resources are looked at to find what the client lacks of `table`.
    pub(crate) fn owed_size(&self, table: &TypeTable) -> usize {
        let settled = self.ledger.settled();
        let n_changes = if table.version() == settled.version() {
            0
        } else {
            let by_name = table.has_other_names() || settled.has_other_names();
            let remembered = table.remembered_changes_since(settled);
            let n_changed = remembered.map_or(table.len().max(settled.len()), |changes| changes.len());
            if by_name { n_changed + self.wants.names().len() } else { n_changed }
        };
        n_changes + self.ledger.n_names().0
    }
}
