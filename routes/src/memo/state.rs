//! The stored state of a translation, and the units that must run again.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;

use xds_cache::OrdMap;

use super::fact::{Fact, Value};
use super::made::Given;
use super::outputs::Outputs;
use super::readers::Readers;
use super::unit::Unit;
use crate::input::Documents;

/// Documents, the results of their translation, and the reads and writes of each unit.
#[derive(Clone, Default)]
pub(crate) struct Memo {
    pub(super) documents: Documents,
    /// The facts that units wrote, and the sums over them.
    pub(super) values: Values,
    /// The work of each unit.
    pub(super) units: OrdMap<Arc<Unit>, Done>,
    /// The readers of each fact.
    pub(super) readers: Readers,
    /// The outputs of all units together.
    pub(super) outputs: Outputs,
    /// The work since the previous memo.
    pub(super) work: Work,
    /// For tests: a kind of fact whose changes are ignored, to prove that tests notice.
    #[cfg(test)]
    pub(super) blind_to: Option<&'static str>,
    /// For tests: a kind of unit that panics.
    #[cfg(test)]
    pub(super) panics_at: Option<&'static str>,
}

/// Facts with their values.
pub(super) type Values = OrdMap<Arc<Fact>, Value>;

/// The work of a unit. All units that read or write a fact share it.
#[derive(Clone, Default)]
pub(super) struct Done {
    /// The facts that it read, sorted, followed by those that it wrote, sorted.
    pub(super) facts: Arc<[Arc<Fact>]>,
    pub(super) n_reads: u32,
    /// The other results; `None` if there are none.
    pub(super) given: Option<Arc<Given>>,
}

impl Done {
    pub(super) fn new(reads: Vec<Arc<Fact>>, written: Vec<Arc<Fact>>, given: Option<Arc<Given>>) -> Self {
        let n_reads = u32::try_from(reads.len()).unwrap_or(u32::MAX);
        Self { facts: reads.into_iter().chain(written).collect(), n_reads, given }
    }

    pub(super) fn reads(&self) -> &[Arc<Fact>] {
        self.parts().0
    }

    pub(super) fn written(&self) -> &[Arc<Fact>] {
        self.parts().1
    }

    pub(super) fn parts(&self) -> (&[Arc<Fact>], &[Arc<Fact>]) {
        self.facts.split_at_checked(self.n_reads as usize).unwrap_or_default()
    }
}

/// The work of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The number of units that ran.
    pub n_units: usize,
}

impl Memo {
    /// The outputs of all units together.
    pub(crate) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// The work since the previous memo.
    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// The shared copy of a fact that a unit writes: the one that it wrote last, or that of a unit that reads it.
    pub(super) fn own(&self, written: &[Arc<Fact>], fact: Fact) -> Arc<Fact> {
        let known = among(written, &fact).or_else(|| self.readers.known(&fact));
        known.map(Arc::clone).unwrap_or_else(|| Arc::new(fact))
    }

    /// The shared copy of a fact: one of `known`, or that of a unit that wrote or read it.
    pub(super) fn shared(&self, known: &[Arc<Fact>], fact: Fact) -> Arc<Fact> {
        let written = || self.values.get_key_value(&fact).map(|(known, _)| known);
        let known = among(known, &fact).or_else(written).or_else(|| self.readers.known(&fact));
        known.map(Arc::clone).unwrap_or_else(|| Arc::new(fact))
    }

    /// Marks the readers of a changed fact: units that have read it, or a fact that represents it, must run.
    pub(super) fn touch(&self, fact: &Fact, dirty: &mut Dirty) {
        let (covering, wider) = (fact.covering(), fact.wider());
        for fact in [Some(fact), covering.as_ref(), wider.as_ref()].into_iter().flatten() {
            #[cfg(test)]
            if self.blind_to.is_some_and(|kind| format!("{fact:?}").split('(').next() == Some(kind)) {
                continue;
            }
            dirty.units.extend(fact.units());
            #[cfg(debug_assertions)]
            dirty.changed.insert(fact.clone());
            dirty.units.extend(self.readers.of(fact).map(|unit| (**unit).clone()));
        }
    }
}

/// The units that must run.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) units: BTreeSet<Unit>,
    /// True for the first translation.
    pub(super) is_first: bool,
    /// Facts that a unit writes now although another unit wrote them before. That unit must still run, and no longer write them.
    pub(super) handed_over: BTreeSet<Arc<Fact>>,
    /// The facts that changed since the first unit of this kind ran.
    #[cfg(debug_assertions)]
    pub(super) changed: BTreeSet<Fact>,
}

impl Dirty {
    /// Takes out the units of the first kind.
    pub(super) fn pop_kind(&mut self) -> Option<Vec<Unit>> {
        let mut units = vec![self.units.pop_first()?];
        while let Some(next) = self.units.first()
            && units.first().is_some_and(|first| discriminant(first) == discriminant(next))
        {
            units.extend(self.units.pop_first());
        }
        #[cfg(debug_assertions)]
        self.changed.clear();
        Some(units)
    }

    /// In debug builds, checks that a unit read no fact that a unit of its kind wrote.
    #[cfg_attr(
        not(debug_assertions),
        expect(unused_variables, clippy::unused_self, reason = "checked in debug builds")
    )]
    pub(super) fn check(&self, unit: &Unit, reads: &[Fact]) {
        #[cfg(debug_assertions)]
        for read in reads {
            assert!(!self.changed.contains(read), "{unit:?} reads {read:?}, which one of its kind writes");
        }
    }
}

/// Finds a fact in a sorted list.
fn among<'f>(sorted: &'f [Arc<Fact>], fact: &Fact) -> Option<&'f Arc<Fact>> {
    let at = sorted.binary_search_by(|known| (**known).cmp(fact));
    at.ok().and_then(|at| sorted.get(at))
}
