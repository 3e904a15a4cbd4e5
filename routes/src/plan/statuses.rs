//! Collects what becomes of objects, until all of it is known.

use std::collections::BTreeMap;

use crate::conditions::{Condition, Conditions, ListenerStatus, ObjectStatus, ParentStatus};
use crate::model::DocumentKey;
use crate::translate::Documents;

/// The conditions found so far.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    objects: BTreeMap<DocumentKey, Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    conditions: Vec<Condition>,
    /// By the position of the parent in the document.
    parents: BTreeMap<usize, ParentStatus>,
    listeners: Vec<ListenerStatus>,
}

impl Statuses {
    /// Adds a condition of the object itself.
    pub(crate) fn object(&mut self, key: &DocumentKey, condition: Condition) {
        self.parts(key).conditions.push(condition);
    }

    /// Says what a route or policy is to the parent at `index`, from 0.
    pub(crate) fn parent(&mut self, key: &DocumentKey, index: usize, status: ParentStatus) {
        self.parts(key).parents.insert(index, status);
    }

    /// Adds a condition to every parent that was told of, and to the object itself if it has none.
    pub(crate) fn every_parent(&mut self, key: &DocumentKey, condition: &Condition) {
        let parts = self.parts(key);
        if parts.parents.is_empty() {
            parts.conditions.push(condition.clone());
        }
        parts.parents.values_mut().for_each(|parent| parent.conditions.push(condition.clone()));
    }

    /// Adds the status of a Gateway's next listener.
    pub(crate) fn listener(&mut self, key: &DocumentKey, status: ListenerStatus) {
        self.parts(key).listeners.push(status);
    }

    /// All of it, with the generations that were judged.
    pub(crate) fn finish(self, documents: &Documents) -> Conditions {
        let objects = self.objects.into_iter().map(|(key, parts)| {
            let observed_generation = documents.get(&key).map_or(0, |placed| placed.generation);
            let Parts { conditions, parents, listeners } = parts;
            let parents = parents.into_values().collect();
            (key, ObjectStatus { observed_generation, conditions, parents, listeners })
        });
        Conditions { objects: objects.collect() }
    }

    fn parts(&mut self, key: &DocumentKey) -> &mut Parts {
        self.objects.entry(key.clone()).or_default()
    }
}
