//! Unsupported policies and their targets.

use std::collections::BTreeMap;

use super::context::Context;
use crate::input::Placed;
use crate::memo::fact::{Affected, Fact, Value};
use crate::memo::made::Made;
use crate::model::{Document, DocumentKey, Kind};
use crate::plan::{Targets, affected, is_route};

impl<'m> Context<'_, 'm, '_> {
    /// All unsupported policies. A target gets one condition for all of them.
    pub(super) fn policies(self) -> Option<Made> {
        self.reader.of_kind(Kind::Policy).next()?;
        let mut diagnostics = Vec::new();
        let mut all: BTreeMap<&DocumentKey, Vec<Affected>> = BTreeMap::new();
        for ((key, listener), condition) in affected(&self, &mut diagnostics) {
            let listener = listener.map(str::to_owned);
            all.entry(key).or_default().push(Affected { listener, condition });
        }
        let of_object = |(key, all): (&DocumentKey, Vec<Affected>)| {
            (Fact::Affected(key.clone()), Value::Affected(all.into()))
        };
        let mut facts: Made = all.into_iter().map(of_object).collect();
        facts.say(diagnostics);
        Some(facts)
    }
}

impl<'m> Targets<'m> for Context<'_, 'm, '_> {
    fn document(&self, key: &DocumentKey) -> Option<&'m Document> {
        self.reader.outline(key).map(|placed| &*placed.document)
    }

    fn of_kind(&self, kind: Kind) -> Box<dyn Iterator<Item = &'m Placed> + 'm> {
        Box::new(self.reader.of_kind(kind))
    }

    fn is_known(&self, key: &DocumentKey) -> bool {
        let is_attached = || {
            is_route(key.kind)
                && (self.reader.has(Fact::Requests(Some(key.clone())))
                    || self.reader.has(Fact::Parents(key.clone())))
        };
        matches!(key.kind, Kind::BackendTlsPolicy | Kind::Backend | Kind::TrafficSplit)
            || is_attached()
            || self.reader.has(Fact::Standing(key.clone()))
    }
}
