//! The names of a subscription that tables serve by resources of other names.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use xds_cache::{Found, Name, Resource, TypeTable, Version};

use super::names::Names;
use crate::pairs::Pairs;

/// The findings so far. They follow from names and tables, so to look at them changes nothing.
#[derive(Default)]
pub(crate) struct Memo(Cell<Option<Box<Served>>>);

impl Memo {
    /// A name came or went, of `n_names` that are asked for.
    pub(crate) fn note_change(&mut self, name: &Name, n_names: usize) {
        if let Some(served) = self.0.get_mut() {
            served.note_change(name, n_names);
        }
    }

    /// Looks at what `table` serves.
    pub(crate) fn look<T>(
        &self,
        table: &TypeTable,
        names: &Names,
        look: impl FnOnce(&OfTable) -> T,
    ) -> Option<T> {
        let mut served = self.0.take().unwrap_or_default();
        let seen = served.of(table, names).map(look);
        self.0.set(Some(served));
        seen
    }
}

impl Clone for Memo {
    /// The findings are found again.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

/// The names asked for that tables serve by a resource of another name: by an alias, a domain, or a pattern of hosts.
///
/// To ask that of a resource without this is to look up every name. It is found once for each table that is asked about, and then
/// follows the changes of the names.
#[derive(Debug, Default)]
struct Served {
    /// The tables that were asked about lately, the last one first.
    tables: VecDeque<OfTable>,
    /// Names that came or went, the oldest first, as long as a table has not been looked up for them.
    changed: VecDeque<Name>,
    /// How many names changed before the first of `changed`.
    n_forgotten: u64,
}

/// The names that one table serves so.
#[derive(Debug)]
pub(crate) struct OfTable {
    version: Version,
    /// How many changes of names are in this.
    n_changes: u64,
    /// Names by the resource that is given for them as it is.
    pub(crate) as_it_is: Pairs,
    /// Names by the pattern that what is given for them is made of.
    pub(crate) made: Pairs,
}

impl Served {
    fn note_change(&mut self, name: &Name, n_names: usize) {
        if self.changed.len() > n_names.max(MIN_CHANGES) {
            // To look up every name again costs no more than to follow so many changes.
            *self = Self::default();
        }
        if !self.tables.is_empty() {
            self.changed.push_back(Arc::clone(name));
        }
    }

    /// The names that `table` serves so.
    fn of(&mut self, table: &TypeTable, names: &Names) -> Option<&OfTable> {
        let known = self.tables.iter().position(|known| known.version == table.version());
        let known = known.and_then(|position| self.tables.remove(position));
        let mut of_table = known.unwrap_or_else(|| {
            let mut of_table = OfTable::new(table.version(), self.n_changes());
            names.iter().for_each(|name| of_table.add(table, name));
            of_table
        });
        let n_known = usize::try_from(of_table.n_changes - self.n_forgotten).unwrap_or(usize::MAX);
        for name in self.changed.iter().skip(n_known) {
            of_table.look_up_again(table, name, names.contains(name));
        }
        of_table.n_changes = self.n_changes();
        self.tables.push_front(of_table);
        self.tables.truncate((MAX_KEPT / names.len().max(1)).clamp(MIN_TABLES, MAX_TABLES));
        self.forget_changes();
        self.tables.front()
    }

    fn n_changes(&self) -> u64 {
        self.n_forgotten + self.changed.len() as u64
    }

    /// Drops the changes that every table was looked up for.
    fn forget_changes(&mut self) {
        let oldest = self.tables.iter().map(|known| known.n_changes).min().unwrap_or_default();
        while self.n_forgotten < oldest && self.changed.pop_front().is_some() {
            self.n_forgotten += 1;
        }
    }
}

impl OfTable {
    fn new(version: Version, n_changes: u64) -> Self {
        Self { version, n_changes, as_it_is: Pairs::default(), made: Pairs::default() }
    }

    fn look_up_again(&mut self, table: &TypeTable, name: &Name, is_asked_for: bool) {
        if is_asked_for {
            self.add(table, name);
            return;
        }
        match found_by_other_name(table, name) {
            Some(Found::AsItIs(resource)) => drop(self.as_it_is.remove(resource.name(), name)),
            Some(Found::Template(template)) => drop(self.made.remove(template.name(), name)),
            None => {}
        }
    }

    fn add(&mut self, table: &TypeTable, name: &Name) {
        match found_by_other_name(table, name) {
            Some(Found::AsItIs(resource)) => {
                self.as_it_is.insert(Arc::clone(resource.name()), Arc::clone(name));
            }
            Some(Found::Template(template)) => {
                self.made.insert(Arc::clone(template.name()), Arc::clone(name));
            }
            None => {}
        }
    }
}

fn found_by_other_name<'a>(table: &'a TypeTable, name: &Name) -> Option<Found<'a>> {
    let is_other = |resource: &Resource| resource.name() != name;
    table.look_up(name).filter(|found| match found {
        Found::AsItIs(resource) => is_other(resource),
        Found::Template(_) => true,
    })
}

/// Changes are kept at least up to this number.
const MIN_CHANGES: usize = 64;

/// How many tables are remembered at least: what the client has, what it is brought up to, and one that it has not accepted.
const MIN_TABLES: usize = 3;

/// How many at most: all that a client may have taken up without a word, and the next one.
const MAX_TABLES: usize = 18;

/// How many names there may be in all tables together, if there may be more tables than the least.
const MAX_KEPT: usize = 250_000;
