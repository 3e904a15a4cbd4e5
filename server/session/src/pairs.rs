//! Names by what they have in common with others.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use xds_cache::Name;

use crate::steps::{counted, step};

/// Pairs of a name and one that it is found by. Finding all that go with a name costs as much as there are of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(BTreeSet<(Name, Name)>);

static LEAST: LazyLock<Name> = LazyLock::new(|| "".into());

impl Pairs {
    /// Adds a pair; tells whether it is new.
    pub(crate) fn insert(&mut self, by: Name, name: Name) -> bool {
        step();
        self.0.insert((by, name))
    }

    /// Takes a pair out; tells whether it was there.
    pub(crate) fn remove(&mut self, by: &Name, name: &Name) -> bool {
        step();
        self.0.remove(&(Arc::clone(by), Arc::clone(name)))
    }

    /// The names that are found by a name, sorted.
    pub(crate) fn of<'a>(&'a self, by: &'a str) -> impl Iterator<Item = &'a Name> + use<'a> {
        let first = (Name::from(by), Arc::clone(&LEAST));
        counted(self.0.range(first..)).take_while(move |(other, _)| **other == *by).map(|(_, name)| name)
    }

    /// Returns `true` if anything is found by a name.
    pub(crate) fn has(&self, by: &str) -> bool {
        self.of(by).next().is_some()
    }

    /// All pairs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Name, Name)> {
        counted(self.0.iter())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
