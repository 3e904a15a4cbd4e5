//! The memo of a translation: the results of units, and the facts that each has read. The cost of a change is that of the parts it touches.
//!
//! [`Unit`]s make everything that documents generate. A unit reads [`Fact`]s through a [`Reader`](reader::Reader), which records them, and
//! writes facts of its own. When documents change, the units that have read a changed fact run. If one of them writes the same facts as before,
//! nothing that depends on it runs. The first translation runs all units: there is no second translator.
//!
//! Units have an order. Each reads only facts that earlier kinds of units write, so none runs twice, and units of one kind can run in
//! parallel. A unit that reads a missing fact runs again when the fact appears. All maps are persistent, so a copy costs nothing, and
//! dropping a changed copy undoes the change.

mod fact;
mod hosts;
mod key;
mod made;
mod names;
mod outputs;
#[cfg(test)]
mod planned;
mod reader;
mod readers;
mod side_by_side;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod unit;
mod units;

use std::sync::Arc;

use xds_cache::{DiffItem, filling};
use xds_codec::Codec;

use self::fact::{Fact, Value};
use self::key::{HostKey, InGroup};
use self::made::{Given, Made};
use self::side_by_side::{N_THREADS, Ran, Runner};
use self::state::{Dirty, Done};
use self::unit::Unit;
use crate::input::{Bounds, Budget, Documents, GoesOn, Options, Stopped};

pub(crate) use self::outputs::Outputs;
pub use self::outputs::{Delta, Diagnostics};
#[cfg(test)]
pub(crate) use self::planned::{Planned, plan};
pub(crate) use self::state::Memo;
pub use self::state::Work;

impl Memo {
    /// The memo for changed documents, and the differences. Many units run in parallel on all processors.
    ///
    /// # Errors
    ///
    /// The bound at which it was stopped.
    pub(crate) fn next(
        &self,
        codec: &Codec,
        documents: &Documents,
        options: &Options,
        bounds: Bounds<'_>,
    ) -> Result<(Self, Delta), Stopped> {
        let budget = Budget::new(bounds.purpose, documents, &options.limits);
        let next = self.next_of(*N_THREADS, codec, documents, options, (bounds.goes_on, &budget), &|_| true);
        next.ok_or_else(|| budget.stopped())
    }

    /// The same for some units, on this number of threads, which does not affect the result; `None` if it was stopped.
    fn next_of(
        &self,
        n_threads: usize,
        codec: &Codec,
        documents: &Documents,
        options: &Options,
        (is_awaited, budget): (GoesOn<'_>, &Budget),
        is_wanted: &dyn Fn(&Unit) -> bool,
    ) -> Option<(Self, Delta)> {
        let mut next = self.clone();
        let mut dirty = Dirty { is_first: self.units.is_empty(), ..Dirty::default() };
        for item in self.documents.diff(documents) {
            let key = match item {
                DiffItem::Add(key, _) | DiffItem::Remove(key, _) => key,
                DiffItem::Update { new: (key, _), .. } => key,
            };
            next.touch(&Fact::Document(Some(key.clone())), &mut dirty);
        }
        next.documents = documents.clone();
        next.work = Work::default();
        let goes_on = &|| is_awaited() && budget.lasts();
        let mut runner = Runner::new(codec, options, budget);
        while let Some(units) = dirty.pop_kind() {
            let units: Vec<Unit> = filling(units.iter().filter(|unit| is_wanted(unit))).cloned().collect();
            if units.len() >= MIN_SIDE_BY_SIDE && n_threads > 1 {
                // It shares everything with the memo that is not written in the meantime.
                let seen = Self {
                    documents: next.documents.clone(),
                    values: next.values.clone(),
                    units: next.units.clone(),
                    #[cfg(test)]
                    panics_at: next.panics_at,
                    ..Self::default()
                };
                let take = |unit: &Unit, ran| next.commit(unit, ran, &mut dirty);
                if !runner.run_all(&seen, &units, n_threads, goes_on, take) {
                    return None;
                }
                continue;
            }
            for unit in units {
                if !goes_on() {
                    return None;
                }
                let ran = runner.run(&next, &unit, goes_on);
                next.commit(&unit, ran, &mut dirty);
            }
        }
        debug_assert!(dirty.handed_over.is_empty(), "two units write {:?}", dirty.handed_over);
        let delta = next.outputs.finish();
        goes_on().then_some((next, delta))
    }

    /// Takes the result of a unit; `None` if the unit no longer exists.
    fn commit(&mut self, unit: &Unit, Ran { made, reads }: Ran, dirty: &mut Dirty) {
        self.work.n_units += 1;
        dirty.check(unit, &reads);
        let is_there = made.is_some();
        let before = self.units.get(unit).cloned().unwrap_or_default();
        let Made { facts: mut made, given } = made.unwrap_or_default();
        let given = self.given(before.given.as_ref(), given);
        made.sort_by(|(one, _), (other, _)| one.cmp(other));
        let made: Vec<(Arc<Fact>, Value)> =
            made.into_iter().map(|(fact, value)| (self.own(before.written(), fact), value)).collect();
        let written: Vec<Arc<Fact>> = made.iter().map(|(fact, _)| Arc::clone(fact)).collect();
        for fact in before.written().iter().filter(|fact| written.binary_search(fact).is_err()) {
            if dirty.handed_over.remove(fact) {
                continue;
            }
            let old = self.values.get(fact).cloned();
            self.change(fact, old, None, dirty);
        }
        for (fact, value) in made {
            let is_known = before.written().binary_search(&fact).is_ok();
            let old = if is_known || !dirty.is_first { self.values.get(&fact).cloned() } else { None };
            debug_assert!(
                !dirty.is_first || !self.values.contains_key(&*fact),
                "{unit:?} writes {fact:?} too"
            );
            if old.is_some() && !is_known {
                dirty.handed_over.insert(Arc::clone(&fact));
            }
            self.change(&fact, old, Some(value), dirty);
        }
        debug_assert!(
            dirty.units.first().is_none_or(|next| next > unit),
            "{unit:?} makes {dirty:?} run again"
        );
        let reads = if is_there { reads } else { Vec::new() };
        let reads: Vec<Arc<Fact>> = reads.into_iter().map(|fact| self.shared(before.reads(), fact)).collect();
        if is_there == self.units.contains_key(unit)
            && before.parts() == (&*reads, &*written)
            && is_same(before.given.as_ref(), given.as_ref())
        {
            return;
        }
        let unit = self
            .units
            .get_key_value(unit)
            .map_or_else(|| Arc::new(unit.clone()), |(unit, _)| Arc::clone(unit));
        for fact in before.reads().iter().filter(|fact| reads.binary_search(fact).is_err()) {
            self.readers.remove(fact, &unit);
        }
        for fact in reads.iter().filter(|fact| before.reads().binary_search(fact).is_err()) {
            self.readers.insert(fact, &unit);
        }
        match is_there {
            true => self.units.insert(unit, Done::new(reads, written, given)),
            false => self.units.remove(&*unit),
        };
    }

    /// The result of a unit; the previous value if it is the same.
    fn given(&mut self, before: Option<&Arc<Given>>, given: Given) -> Option<Arc<Given>> {
        let nothing = Given::default();
        let old = before.map_or(&nothing, |before| before);
        if *old == given {
            return before.cloned();
        }
        self.outputs.give(old, &given);
        (given != nothing).then(|| Arc::new(given))
    }

    /// Sets the value of a fact, or removes it, and updates all sums that count it.
    fn change(&mut self, fact: &Arc<Fact>, old: Option<Value>, new: Option<Value>, dirty: &mut Dirty) {
        if old == new {
            return;
        }
        if tally::looks_around(fact) {
            self.values.remove(fact);
        }
        if let Fact::Part(table, host) = &**fact {
            self.collect(table, host, (old.as_ref(), new.as_ref()), dirty);
        }
        let changes = tally::changes(&self.values, fact, old.as_ref(), new.as_ref());
        self.outputs.change(fact, old.as_ref(), new.as_ref());
        match new {
            Some(new) => self.values.insert(Arc::clone(fact), new),
            None => self.values.remove(fact),
        };
        self.touch(fact, dirty);
        for (sum, change) in changes {
            self.touch(&sum, dirty);
            self.add(sum, change);
        }
    }

    /// Records that a virtual host was changed, added or removed.
    fn collect(
        &mut self,
        table: &InGroup,
        key: &HostKey,
        (old, new): (Option<&Value>, Option<&Value>),
        dirty: &mut Dirty,
    ) {
        let fact = Fact::Hosts(table.clone());
        let mut hosts = match self.values.remove(&fact) {
            Some(Value::Hosts(hosts)) => hosts,
            _ => Arc::default(),
        };
        let collected = Arc::make_mut(&mut hosts);
        if let Some(Value::Part(old)) = old {
            collected.remove(key, old);
        }
        if let Some(Value::Part(new)) = new {
            collected.add(key, new);
        }
        self.touch(&fact, dirty);
        if !hosts.is_empty() {
            self.values.insert(self.shared(&[], fact), Value::Hosts(hosts));
        }
    }
}

/// Fewer units are finished before threads have started.
const MIN_SIDE_BY_SIDE: usize = 256;

/// Returns `true` if both are the same shared value, or both are absent.
fn is_same(one: Option<&Arc<Given>>, other: Option<&Arc<Given>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}
