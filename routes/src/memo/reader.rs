//! Records the reads of a unit.

use std::cell::RefCell;
use std::sync::Arc;

use xds_cache::Resource;

use super::fact::{Fact, Value};
use super::made::Given;
use super::state::Memo;
use super::tally;
use super::unit::Unit;
use crate::input::{Documents, Placed};
use crate::model::{DocumentKey, Kind, ObjectRef};
use crate::plan::{Cost, Host, ListenerKey};
use crate::thin::Thin;

/// The only access of a unit to documents and to the facts of other units.
pub(crate) struct Reader<'m> {
    memo: &'m Memo,
    unit: &'m Unit,
    reads: RefCell<Vec<Fact>>,
}

impl<'m> Reader<'m> {
    pub(crate) fn new(memo: &'m Memo, unit: &'m Unit) -> Self {
        Self { memo, unit, reads: RefCell::default() }
    }

    /// The facts that were read, sorted, without duplicates.
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

    /// Returns the shared key of the document, if it exists; otherwise `key`.
    pub(crate) fn known(&self, key: DocumentKey) -> DocumentKey {
        self.memo.documents.get_key_value(&key).map_or(key, |(known, _)| known.clone())
    }

    /// The documents that a reference to a backend can name.
    pub(crate) fn backends(&self, to: &ObjectRef) -> [DocumentKey; 2] {
        let service = self.known(DocumentKey::new(Kind::Service, &to.namespace, &to.name));
        let backend = self.known(service.namesake(Kind::Backend));
        [service, backend]
    }

    /// The outline of a document.
    pub(crate) fn outline(&self, key: &DocumentKey) -> Option<&'m Placed> {
        let Some(Value::Outline(outline)) = self.value(Fact::Outline(key.clone())) else { return None };
        Some(&outline.0)
    }

    /// All documents.
    pub(crate) fn documents(&self) -> &'m Documents {
        self.note(Fact::Document(None));
        &self.memo.documents
    }

    /// The value of a fact, if it is present.
    pub(crate) fn value(&self, fact: Fact) -> Option<&'m Value> {
        let value = self.memo.values.get(&fact);
        self.note(fact);
        value
    }

    /// Returns `true` if a fact is present.
    pub(crate) fn has(&self, fact: Fact) -> bool {
        self.value(fact).is_some()
    }

    /// All facts that this one represents, in order.
    pub(crate) fn all(&self, of: Fact) -> impl Iterator<Item = (&'m Fact, &'m Value)> + use<'m> {
        self.note(of.clone());
        let all = self.memo.values.range::<_, Fact>(of.clone()..);
        let all = all.map(|(fact, value)| (&**fact, value));
        all.take_while(move |(fact, _)| fact.is_covered_by(&of))
    }

    /// A sum; 0 if nothing was counted.
    pub(crate) fn sum(&self, fact: Fact) -> Cost {
        tally::sum(self.value(fact)).cost()
    }

    /// The outlines of a kind, in order.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &'m Placed> + use<'m> {
        self.note(Fact::Outlines(kind));
        let first = DocumentKey::before(kind);
        let all = self.memo.values.range::<_, Fact>(Fact::Outline(first)..);
        let outlines = all.map_while(|(_, value)| {
            let Value::Outline(outline) = value else { return None };
            Some(&outline.0)
        });
        outlines.take_while(move |placed| placed.document.key.kind == kind)
    }

    /// All objects that bring hosts to a listener, by host.
    pub(crate) fn bids(
        &self,
        listener: &Arc<ListenerKey>,
    ) -> impl Iterator<Item = (&'m Host, &'m DocumentKey, &'m Value)> + use<'m> {
        let of = Fact::Bids(Arc::clone(listener));
        self.note(of.clone());
        let first = Fact::On(Arc::clone(listener), Thin::new(Host::Any), None);
        let all = self.memo.values.range::<_, Fact>(first..);
        let all = all.take_while(move |(fact, _)| fact.wider().as_ref() == Some(&of));
        all.filter_map(|(fact, value)| {
            let Fact::On(_, host, Some(by)) = &**fact else { return None };
            Some((&**host, by, value))
        })
    }

    /// The value of a fact that is represented by another one, which was read.
    pub(crate) fn covered(&self, fact: &Fact) -> Option<&'m Value> {
        let is_read =
            |one: &Fact| self.reads.borrow().contains(one) || one.units().any(|unit| unit == *self.unit);
        debug_assert!(fact.covering().is_some_and(|one| is_read(&one)), "{fact:?}");
        self.memo.values.get(fact)
    }

    /// The resources that the unit made last. If the codec refuses a new one, the old one stays.
    pub(crate) fn last(&self) -> &'m [Arc<Resource>] {
        self.memo.units.get(self.unit).and_then(|done| done.given.as_deref()).map_or(&[], Given::resources)
    }

    /// The value that the unit wrote last.
    pub(crate) fn own(&self, fact: &Fact) -> Option<&'m Value> {
        self.memo.values.get(fact)
    }

    /// Records that a fact was read, unless it makes the unit run anyway.
    fn note(&self, fact: Fact) {
        if fact.units().any(|unit| unit == *self.unit) {
            return;
        }
        self.reads.borrow_mut().push(fact);
    }
}
