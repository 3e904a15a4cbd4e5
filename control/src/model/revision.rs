//! What revisions changed, for people.

use std::time::SystemTime;

use serde_json::Value;
use xds_cache::Revision;

/// One resource or group that a write changes. Contents are redacted.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedObject {
    /// `group/{name}`, `{group}/{type slug}/{name}`, `document/{kind}/{namespace}/{name}`,
    /// `weights/{kind}/{namespace}/{name}/{rule}`, `rollout/{id}` or, of what is generated from documents,
    /// `generated/{profile}/{group}/{type slug}/{name}`.
    pub what: String,
    /// What it was, as JSON; `None` if it is new.
    pub before: Option<Value>,
    /// What it becomes; `None` if it goes.
    pub after: Option<Value>,
}

impl ChangedObject {
    /// An object that differs; `show` makes JSON of what it was and of what it becomes, without secrets.
    pub(crate) fn new<T>(
        what: String,
        (before, after): (Option<T>, Option<T>),
        show: impl Fn(T) -> Value,
    ) -> Self {
        Self { what, before: before.map(&show), after: after.map(&show) }
    }
}

/// One revision of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    /// The revision.
    pub revision: Revision,
    /// Who asked for it.
    pub actor: String,
    /// When.
    pub at: SystemTime,
    /// `api`, `file`, `rollback`, `revert`, `expiry`, `rollout` or another word.
    pub source: String,
    /// One line for people.
    pub summary: String,
    /// What it changed, named as in [`ChangedObject::what`].
    pub changes: Vec<(String, ChangeKind)>,
}

/// What became of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It was there before.
    Changed,
    /// It is gone.
    Removed,
}
