//! The changes of revisions, as they are shown.

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
    /// The former value, as JSON; `None` if it is new.
    pub before: Option<Value>,
    /// The new value; `None` if it goes.
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
    /// The user or program that asked for it.
    pub actor: String,
    /// When.
    pub at: SystemTime,
    /// The word of a [`ChangeSource`], or another one, of a newer version.
    pub source: String,
    /// One line for people.
    pub summary: String,
    /// The objects that it changed, named as in [`ChangedObject::what`].
    pub changes: Vec<(String, ChangeKind)>,
}

/// The source of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeSource {
    /// A write of the API.
    #[default]
    Api,
    /// The watched files.
    File,
    /// A rollback to a revision.
    Rollback,
    /// A revert of a revision.
    Revert,
    /// Overrides of weights whose time is up.
    Expiry,
    /// A wave deployment that goes on.
    Waves,
    /// A step of a rollout.
    Rollout,
    /// The store: at the start, or because another server committed.
    Store,
    /// A translation that was found to be wrong, made again.
    Verify,
}

impl ChangeSource {
    /// The word for it in the history, in events and in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::File => "file",
            Self::Rollback => "rollback",
            Self::Revert => "revert",
            Self::Expiry => "expiry",
            Self::Waves => "waves",
            Self::Rollout => "rollout",
            Self::Store => "store",
            Self::Verify => "verify",
        }
    }
}

/// The kind of change to one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It was there before.
    Changed,
    /// It is gone.
    Removed,
}
