//! The readers of facts.

use std::slice;
use std::sync::Arc;

use xds_cache::{OrdMap, OrdSet};

use super::fact::Fact;
use super::unit::Unit;

/// The units that read each fact. A copy shares its contents with the original.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Readers(OrdMap<Arc<Fact>, Of>);

/// The readers of one fact. Most facts have one or a few, some have all units of a kind.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    One(Arc<Unit>),
    /// At most [`MOST_OF_FEW`].
    Few(Arc<Vec<Arc<Unit>>>),
    Many(Box<OrdSet<Arc<Unit>>>),
}

/// Even a small set takes as much memory as a list of this length.
const MOST_OF_FEW: usize = 12;

impl Readers {
    /// The readers of a fact.
    pub(super) fn of(&self, fact: &Fact) -> impl Iterator<Item = &Arc<Unit>> {
        let (few, many) = match self.0.get(fact) {
            Some(Of::One(one)) => (slice::from_ref(one), None),
            Some(Of::Few(few)) => (few.as_slice(), None),
            Some(Of::Many(many)) => (&[][..], Some(many)),
            None => (&[][..], None),
        };
        few.iter().chain(many.into_iter().flat_map(|many| &**many))
    }

    /// The copy of a fact that is stored here, if any.
    pub(super) fn known(&self, fact: &Fact) -> Option<&Arc<Fact>> {
        self.0.get_key_value(fact).map(|(known, _)| known)
    }

    /// Records that a unit reads a fact.
    pub(super) fn insert(&mut self, fact: &Arc<Fact>, unit: &Arc<Unit>) {
        let one = || Of::One(Arc::clone(unit));
        let Some(of) = self.0.get_mut(&**fact) else {
            self.0.insert(Arc::clone(fact), one());
            return;
        };
        match of {
            Of::One(other) if other == unit => {}
            Of::One(other) => *of = Of::Few(Arc::new(vec![Arc::clone(other), Arc::clone(unit)])),
            Of::Few(few) if few.contains(unit) => {}
            Of::Few(few) if few.len() == MOST_OF_FEW => {
                let all = few.iter().chain([unit]).map(Arc::clone).collect();
                *of = Of::Many(Box::new(all));
            }
            Of::Few(few) => Arc::make_mut(few).push(Arc::clone(unit)),
            Of::Many(many) => _ = many.insert(Arc::clone(unit)),
        }
    }

    /// Records that a unit no longer reads a fact.
    pub(super) fn remove(&mut self, fact: &Fact, unit: &Unit) {
        let is_last = match self.0.get_mut(fact) {
            Some(Of::One(one)) => **one == *unit,
            Some(Of::Few(few)) => {
                Arc::make_mut(few).retain(|one| **one != *unit);
                few.is_empty()
            }
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
