//! Who read what.

use std::sync::Arc;

use xds_cache::{OrdMap, OrdSet};

use super::fact::Fact;
use super::unit::Unit;

/// The units that read each fact. A copy shares what it has with the original.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Readers(OrdMap<Arc<Fact>, Of>);

/// Most facts are read by one unit, and some by all of a kind.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    One(Arc<Unit>),
    Many(OrdSet<Arc<Unit>>),
}

impl Readers {
    /// Who reads a fact.
    pub(super) fn of(&self, fact: &Fact) -> impl Iterator<Item = &Arc<Unit>> {
        let (one, many) = match self.0.get(fact) {
            Some(Of::One(one)) => (Some(one), None),
            Some(Of::Many(many)) => (None, Some(many)),
            None => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// A fact as it is kept here, if it is.
    pub(super) fn known(&self, fact: &Fact) -> Option<&Arc<Fact>> {
        self.0.get_key_value(fact).map(|(known, _)| known)
    }

    /// Takes down that a unit reads a fact.
    pub(super) fn insert(&mut self, fact: &Arc<Fact>, unit: &Arc<Unit>) {
        let one = || Of::One(Arc::clone(unit));
        let Some(of) = self.0.get_mut(&**fact) else {
            self.0.insert(Arc::clone(fact), one());
            return;
        };
        match of {
            Of::One(other) if other == unit => {}
            Of::One(other) => *of = Of::Many([Arc::clone(other), Arc::clone(unit)].into_iter().collect()),
            Of::Many(many) => _ = many.insert(Arc::clone(unit)),
        }
    }

    /// Takes down that it no longer does.
    pub(super) fn remove(&mut self, fact: &Fact, unit: &Unit) {
        let is_last = match self.0.get_mut(fact) {
            Some(Of::One(one)) => **one == *unit,
            Some(Of::Many(many)) => {
                many.remove(unit);
                many.is_empty()
            }
            None => false,
        };
        if is_last {
            self.0.remove(fact);
        }
    }
}
