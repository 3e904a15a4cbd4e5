//! The conditions of objects.

use std::collections::BTreeMap;

use crate::conditions::{
    Condition, ConditionReason, ConditionType, ListenerStatus, ObjectStatus, ParentStatus, Truth,
};

/// The reason why an object is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The reason of the condition.
    pub(crate) reason: ConditionReason,
    /// Its message.
    pub(crate) message: String,
}

impl Fault {
    /// A fault.
    pub(crate) fn new(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The conditions of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectConditions {
    pub(crate) conditions: Vec<Condition>,
    /// By the position of the parent in the document.
    pub(crate) parents: BTreeMap<usize, ParentStatus>,
    pub(crate) listeners: Vec<ListenerStatus>,
}

impl ObjectConditions {
    /// Adds a condition from policies: to a Gateway's listener, to a route at each of its parents, or to the object.
    pub(crate) fn affect(&mut self, listener: Option<&str>, condition: &Condition) {
        let mut parents = self.parents.values_mut().map(|parent| &mut parent.conditions).peekable();
        let listeners = self.listeners.iter_mut().filter(|one| listener == Some(&one.name));
        match listener {
            Some(_) => listeners.for_each(|one| one.conditions.push(condition.clone())),
            None if parents.peek().is_some() => parents.for_each(|all| all.push(condition.clone())),
            None => self.conditions.push(condition.clone()),
        }
    }

    /// Returns the status, with the generation that was judged.
    pub(crate) fn finish(self, observed_generation: u64) -> ObjectStatus {
        let Self { conditions, parents, listeners } = self;
        ObjectStatus { observed_generation, conditions, parents: parents.into_values().collect(), listeners }
    }
}

/// The condition `PartiallyInvalid`, from at least one text. Each begins with `Dropped Rule` or `Fall Back`.
pub(crate) fn partially_invalid(messages: &[String]) -> Condition {
    let message = messages.join("; ");
    Condition {
        kind: ConditionType::PartiallyInvalid,
        status: Truth::True,
        reason: ConditionReason::UnsupportedValue,
        message,
    }
}
