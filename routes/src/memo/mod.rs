//! What was made of documents, and of what it was made: what changes costs what it touches.
//!
//! Everything that documents give is made by [`Unit`]s. A unit reads [`Fact`]s through a [`Reader`], which takes them down, and
//! writes facts of its own. When documents change, the units run that read what changed; and where one of these writes what it
//! wrote before, nothing behind it runs. From nothing, all units run: there is no other way to translate.
//!
//! Units have an order, and each reads only what those before it write, so that none runs twice. Whoever reads some fact that is not
//! there is told when it comes. All maps are persistent: a copy is a branch that costs nothing, and to drop it is to forget what it tried.

mod fact;
mod hosts;
mod outputs;
#[cfg(test)]
mod planned;
mod reader;
mod tally;
#[cfg(test)]
mod tests;
mod unit;
mod units;

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::{DiffItem, OrdMap};
use xds_codec::Codec;

use self::fact::{Fact, Value};
use self::reader::Reader;
use self::unit::Unit;
use crate::encode::Encoder;
use crate::translate::{Documents, Options};

pub(crate) use self::outputs::Outputs;
pub use self::outputs::{Delta, Diagnostics};
#[cfg(test)]
pub(crate) use self::planned::{Planned, plan};

/// Documents, what was made of them, and how.
#[derive(Clone, Default)]
pub(crate) struct Memo {
    documents: Documents,
    /// What units wrote, and what was counted of it.
    values: Values,
    /// What each unit did.
    units: OrdMap<Arc<Unit>, Done>,
    /// Who read each fact.
    readers: OrdMap<Reading, ()>,
    /// What all of it comes to.
    outputs: Outputs,
    /// What it took to make this of what was before.
    work: Work,
    /// The kind of fact that is not noticed to change, to see that somebody does.
    #[cfg(test)]
    blind_to: Option<&'static str>,
}

/// Facts with what they are.
type Values = OrdMap<Arc<Fact>, Value>;

/// That a unit read a fact; without a unit, what comes before all that read it.
type Reading = (Arc<Fact>, Option<Arc<Unit>>);

/// What a unit did. Facts are sorted, and every one is kept once for all who read or write it.
#[derive(Clone, Default)]
struct Done {
    reads: Arc<[Arc<Fact>]>,
    written: Arc<[Arc<Fact>]>,
}

/// What a translation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// How many units ran.
    pub n_units: usize,
}

impl Memo {
    /// The memo of other documents, and what differs; `None` if it was stopped.
    pub(crate) fn next(
        &self,
        codec: &Codec,
        documents: &Documents,
        options: &Options,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<(Self, Delta)> {
        self.next_of(codec, documents, options, goes_on, &|_| true)
    }

    /// The same of some units only.
    fn next_of(
        &self,
        codec: &Codec,
        documents: &Documents,
        options: &Options,
        goes_on: &dyn Fn() -> bool,
        is_wanted: &dyn Fn(&Unit) -> bool,
    ) -> Option<(Self, Delta)> {
        let mut next = self.clone();
        let mut dirty = BTreeSet::new();
        for item in self.documents.diff(documents) {
            let key = match item {
                DiffItem::Add(key, _) | DiffItem::Remove(key, _) => key,
                DiffItem::Update { new: (key, _), .. } => key,
            };
            next.touch(&Fact::Document(Some(key.clone())), &mut dirty);
        }
        next.documents = documents.clone();
        next.work = Work::default();
        let mut encoder = Encoder::new(codec);
        while let Some(unit) = dirty.pop_first() {
            if !goes_on() {
                return None;
            }
            if !is_wanted(&unit) {
                continue;
            }
            let reader = Reader::new(&next, &unit);
            let made = units::run(&unit, &reader, &mut encoder, options, goes_on);
            let reads = reader.finish();
            next.work.n_units += 1;
            next.commit(&unit, made, reads, &mut dirty);
        }
        let delta = next.outputs.finish();
        goes_on().then_some((next, delta))
    }

    /// What all of it comes to.
    pub(crate) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// What it took to make this of what was before.
    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// Takes in what a unit made; `None` if there is no such unit any more.
    fn commit(
        &mut self,
        unit: &Unit,
        made: Option<Vec<(Fact, Value)>>,
        reads: Vec<Fact>,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let is_there = made.is_some();
        let before = self.units.get(unit).cloned().unwrap_or_default();
        let mut made = made.unwrap_or_default();
        made.sort_by(|(one, _), (other, _)| one.cmp(other));
        let made: Vec<(Arc<Fact>, Value)> =
            made.into_iter().map(|(fact, value)| (self.shared(&before.written, fact), value)).collect();
        let facts: Arc<[Arc<Fact>]> = made.iter().map(|(fact, _)| Arc::clone(fact)).collect();
        for fact in before.written.iter().filter(|fact| facts.binary_search(fact).is_err()) {
            self.change(fact, None, dirty);
        }
        for (fact, value) in made {
            debug_assert!(
                !self.values.contains_key(&*fact) || before.written.binary_search(&fact).is_ok(),
                "{unit:?} writes {fact:?} too"
            );
            self.change(&fact, Some(value), dirty);
        }
        debug_assert!(dirty.first().is_none_or(|next| next > unit), "{unit:?} makes {dirty:?} run again");
        let reads = if is_there { reads } else { Vec::new() };
        let reads: Vec<Arc<Fact>> = reads.into_iter().map(|fact| self.shared(&before.reads, fact)).collect();
        if is_there == self.units.contains_key(unit)
            && (&*before.reads, &*before.written) == (&*reads, &*facts)
        {
            return;
        }
        let unit = self
            .units
            .get_key_value(unit)
            .map_or_else(|| Arc::new(unit.clone()), |(unit, _)| Arc::clone(unit));
        for fact in before.reads.iter().filter(|fact| reads.binary_search(fact).is_err()) {
            self.readers.remove(&(Arc::clone(fact), Some(Arc::clone(&unit))));
        }
        for fact in reads.iter().filter(|fact| before.reads.binary_search(fact).is_err()) {
            self.readers.insert((Arc::clone(fact), Some(Arc::clone(&unit))), ());
        }
        match is_there {
            true => self.units.insert(unit, Done { reads: reads.into(), written: facts }),
            false => self.units.remove(&*unit),
        };
    }

    /// Gives a fact another value, or none; with all sums that it is counted in.
    fn change(&mut self, fact: &Arc<Fact>, new: Option<Value>, dirty: &mut BTreeSet<Unit>) {
        if self.values.get(fact) == new.as_ref() {
            return;
        }
        let old = self.values.remove(fact);
        if let Fact::Part(table, host) = &**fact {
            self.collect(table, host, (old.as_ref(), new.as_ref()), dirty);
        }
        let changes = tally::changes(&self.values, fact, old.as_ref(), new.as_ref());
        self.outputs.change(fact, old.as_ref(), new.as_ref());
        self.values.extend(new.map(|new| (Arc::clone(fact), new)));
        self.touch(fact, dirty);
        for (sum, change) in changes {
            self.touch(&sum, dirty);
            self.add(sum, change);
        }
    }

    /// A fact as it is kept already: among those that are `known`, or by whoever wrote or read it.
    fn shared(&self, known: &[Arc<Fact>], fact: Fact) -> Arc<Fact> {
        let at = known.binary_search_by(|known| (**known).cmp(&fact));
        if let Some(known) = at.ok().and_then(|at| known.get(at)) {
            return Arc::clone(known);
        }
        if let Some((known, _)) = self.values.get_key_value(&fact) {
            return Arc::clone(known);
        }
        let fact = Arc::new(fact);
        let known = self.readers_of(&fact).next().map(|(known, _)| Arc::clone(known));
        known.unwrap_or(fact)
    }

    /// Who read a fact.
    fn readers_of<'m>(&'m self, fact: &'m Arc<Fact>) -> impl Iterator<Item = &'m Reading> {
        let from: Reading = (Arc::clone(fact), None);
        let readers = self.readers.range::<_, Reading>(from..).map(|(reading, ())| reading);
        readers.take_while(move |(read, _)| read == fact)
    }

    /// A fact changes: whoever read it, or what stands for it, must run.
    fn touch(&self, fact: &Fact, dirty: &mut BTreeSet<Unit>) {
        for fact in [Some(fact.clone()), fact.covering(), fact.wider()].into_iter().flatten() {
            #[cfg(test)]
            if self.blind_to.is_some_and(|kind| format!("{fact:?}").split('(').next() == Some(kind)) {
                continue;
            }
            dirty.extend(fact.units());
            let fact = Arc::new(fact);
            dirty.extend(self.readers_of(&fact).filter_map(|(_, unit)| unit.as_deref().cloned()));
        }
    }
}
