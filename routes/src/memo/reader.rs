//! What a unit reads, taken down.

use std::cell::RefCell;
use std::sync::Arc;

use xds_cache::Resource;

use super::Memo;
use super::fact::{Fact, Value};
use super::unit::Unit;
use crate::model::DocumentKey;
use crate::translate::{Documents, Placed};

/// The only way of a unit to documents and to what others write.
pub(crate) struct Reader<'m> {
    memo: &'m Memo,
    unit: &'m Unit,
    reads: RefCell<Vec<Fact>>,
}

impl<'m> Reader<'m> {
    pub(crate) fn new(memo: &'m Memo, unit: &'m Unit) -> Self {
        Self { memo, unit, reads: RefCell::default() }
    }

    /// What was read, sorted, each once.
    pub(crate) fn finish(self) -> Vec<Fact> {
        let mut reads = self.reads.into_inner();
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// A document.
    pub(crate) fn document(&self, key: &DocumentKey) -> Option<&'m Placed> {
        self.note(Fact::Document(Some(key.clone())));
        self.memo.documents.get(key)
    }

    /// All documents.
    pub(crate) fn documents(&self) -> &'m Documents {
        self.note(Fact::Document(None));
        &self.memo.documents
    }

    /// A fact, if it is there.
    pub(crate) fn value(&self, fact: Fact) -> Option<&'m Value> {
        let value = self.memo.values.get(&fact);
        self.note(fact);
        value
    }

    /// Whether a fact is there.
    pub(crate) fn has(&self, fact: Fact) -> bool {
        self.value(fact).is_some()
    }

    /// All facts for which this one stands, in order.
    pub(crate) fn all(&self, of: Fact) -> impl Iterator<Item = (&'m Fact, &'m Value)> + use<'m> {
        self.note(of.clone());
        let all = self.memo.values.range::<_, Fact>(of.clone()..);
        let all = all.map(|(fact, value)| (&**fact, value));
        all.take_while(move |(fact, _)| fact.is_covered_by(&of))
    }

    /// The resources that the unit itself made last: what is refused stays.
    pub(crate) fn last(&self) -> &'m [Arc<Resource>] {
        let Some(Value::Written(written)) = self.memo.values.get(&Fact::Written(self.unit.clone())) else {
            return &[];
        };
        &written.resources
    }

    /// What the unit itself wrote last.
    pub(crate) fn own(&self, fact: &Fact) -> Option<&'m Value> {
        self.memo.values.get(fact)
    }

    fn note(&self, fact: Fact) {
        self.reads.borrow_mut().push(fact);
    }
}
