//! What the admin API asks of the server: writes, reloads and the state of the files, as one handle (D1).

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;
use xds_cache::layer::Resources;
use xds_cache::wave::Share;
use xds_cache::{
    GroupName, Layer, NodeGroup, Publication, Resource, ResourceKey, Revision, Version, WavePolicy,
};
use xds_codec::Diagnostic;
use xds_routes::{Document, DocumentKey};

use crate::document::DocumentState;
use crate::phases::GroupPhases;
use crate::rollouts::RolloutPatch;
use crate::wave::{WavePhase, WaveReport, WaveVerb};
use crate::weights::RuleKey;
use crate::weights::change::{ChangeFault, WeightChange};

/// A boxed future, so that the handle can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One change of what the API owns.
#[derive(Clone, Debug)]
pub enum Write {
    /// Creates or replaces the definition of a group.
    PutGroup(NodeGroup),
    /// Deletes a group and what the API owns in it.
    DeleteGroup(GroupName),
    /// Replaces everything that the API owns in a group; creates the group if it is new.
    ReplaceResources {
        /// The group.
        group: GroupName,
        /// The label to show as version (D4).
        label: Option<Arc<str>>,
        /// The resources.
        resources: Resources,
    },
    /// Creates or replaces one resource that the API owns.
    PutResource {
        /// The group; created if it is new.
        group: GroupName,
        /// The resource.
        resource: Arc<Resource>,
    },
    /// Deletes one resource that the API owns; a file's resource of that name shows again.
    DeleteResource {
        /// The group.
        group: GroupName,
        /// The resource.
        key: ResourceKey,
    },
    /// Creates or replaces route documents that the API owns, all of them or none.
    ApplyDocuments {
        /// Their group; `None` leaves each in its group, or puts it into the default group if it is new.
        group: Option<GroupName>,
        /// The documents; no key is there twice.
        documents: Vec<Arc<Document>>,
        /// What is doubtful about each by itself.
        warnings: Vec<Diagnostic>,
    },
    /// Deletes one route document that the API owns; a file's of that name shows again.
    DeleteDocument {
        /// The document.
        key: DocumentKey,
    },
    /// Changes what is laid over the weights of a rule.
    ChangeWeights {
        /// The rule.
        key: RuleKey,
        /// The change.
        change: WeightChange,
    },
    /// Keeps new states of rollouts, in one commit with the weights that go with them.
    StepRollouts {
        /// The states.
        rollouts: RolloutPatch,
        /// A change of the weights of the rule that one of them owns, or owned.
        change: Option<(RuleKey, WeightChange)>,
        /// Whether someone changes the weights by hand, rather than a rollout.
        is_by_hand: bool,
        /// One line for people.
        summary: String,
    },
    /// Drops the overrides of weights whose time is up; a revision only if there are any.
    EndOverrides,
    /// Makes what the API owns what it was at a revision; a new revision itself.
    Rollback {
        /// The revision.
        to: Revision,
    },
    /// Undoes what one revision changed, except what was changed again since; a new revision itself.
    Revert {
        /// The revision.
        of: Revision,
    },
}

/// How a write is to be done.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Who asks, for the history.
    pub actor: String,
    /// `If-Match`: the caller changes only what it saw. `None` if it did not say.
    pub if_match: Option<EntityTags>,
    /// `If-None-Match`: the caller changes only what it did not see. `None` if it did not say.
    pub if_none_match: Option<EntityTags>,
    /// Does everything but commit and publish.
    pub dry_run: bool,
    /// Whom the change reaches first.
    pub waves: WaveChoice,
    /// Puts a wave deployment back first if it is in the way, instead of refusing the write.
    pub force: bool,
    /// When a dry run stops, done or not; `None` for never.
    pub until: Option<Instant>,
}

/// Whom a change reaches first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WaveChoice {
    /// What the groups that it changes, or the server's flags, say.
    #[default]
    ByPolicy,
    /// Everyone.
    AtOnce,
    /// One wave after the other.
    By(WavePolicy),
}

/// The value of `If-Match` or `If-None-Match`; see [`tag`](crate::tag) for what the tags are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityTags {
    /// `*`: anything that exists.
    Any,
    /// These strong entity tags, unquoted.
    OneOf(Vec<String>),
}

impl EntityTags {
    /// Whether one of the tags is `current`; nothing matches what does not exist.
    #[must_use]
    pub fn matches(&self, current: Option<&str>) -> bool {
        self.matches_by(current, |tag| tag)
    }

    /// Whether the [content](crate::tag::content_part) that one of the tags is of is `current`.
    #[must_use]
    pub fn match_content(&self, current: Option<&str>) -> bool {
        self.matches_by(current, crate::tag::content_part)
    }

    fn matches_by(&self, current: Option<&str>, part: impl Fn(&str) -> &str) -> bool {
        match (self, current) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::OneOf(tags), Some(current)) => tags.iter().any(|tag| part(tag) == current),
        }
    }
}

/// One resource or group that a write changes. Contents are redacted.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedObject {
    /// `group/{name}`, `{group}/{type slug}/{name}`, `document/{kind}/{namespace}/{name}`,
    /// `weights/{kind}/{namespace}/{name}/{rule}`, `rollout/{id}` or, of what is generated from documents,
    /// `generated/{profile}/{group}/{type slug}/{name}`.
    pub what: String,
    /// What it was, as JSON; `None` if it is new.
    pub before: Option<serde_json::Value>,
    /// What it becomes; `None` if it goes.
    pub after: Option<serde_json::Value>,
}

/// A write that was committed and published, or would have been.
#[derive(Clone, Debug, Default)]
pub struct WriteOutcome {
    /// The revision that holds it: a new one, or the last one if nothing changed.
    pub revision: Revision,
    /// Whether anything changed.
    pub changed: bool,
    /// What it changed for whom; empty in a dry run.
    pub publication: Publication,
    /// The difference that it would make; only computed for a dry run.
    pub difference: Vec<ChangedObject>,
    /// The ids of the connected nodes that it would concern; only computed for a dry run.
    pub affected_nodes: Vec<String>,
    /// The phases in which clients would get it; only computed for a dry run.
    pub phases: Vec<GroupPhases>,
    /// What is doubtful about it.
    pub warnings: Vec<Diagnostic>,
    /// The wave deployment that it began.
    pub wave: Option<u64>,
}

/// Why a write was not done. Nothing changed then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The group, resource or revision does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// Which one.
        what: String,
    },
    /// A file defines it; the API cannot change that.
    #[error("{what} is defined by {origin}")]
    OwnedByFile {
        /// Which one.
        what: String,
        /// Where.
        origin: String,
    },
    /// The server needs it and defines it itself.
    #[error("{what} cannot be {action}")]
    BuiltIn {
        /// Which one.
        what: String,
        /// What was tried, such as `deleted`.
        action: &'static str,
    },
    /// `If-Match` or `If-None-Match` does not hold.
    #[error("{}", match current { Some(tag) => format!("the current entity tag is \"{tag}\""), None => "it does not exist".to_owned() })]
    PreconditionFailed {
        /// The current entity tag; `None` if there is nothing.
        current: Option<String>,
    },
    /// A wave deployment is in the way.
    #[error("{message}")]
    WaveActive {
        /// Its number.
        deployment: u64,
        /// Why it is in the way, and what can be done.
        message: String,
    },
    /// The wave deployment is not in a state in which this can be done.
    #[error("{0}")]
    WaveState(String),
    /// The object has no such rule.
    #[error("{object} has no rule {rule:?}; {}", match rules.as_slice() { [] => "it has none".to_owned(), rules => format!("its rules are {}", rules.join(", ")) })]
    NoRule {
        /// The object.
        object: String,
        /// What was asked for.
        rule: String,
        /// What there is.
        rules: Vec<String>,
    },
    /// `If-Match` or `If-None-Match` does not hold for the weights of a rule.
    #[error("the weights are others by now; the current entity tag is \"{current}\"")]
    StaleWeights {
        /// The current entity tag.
        current: String,
        /// The weights that count.
        weights: Vec<(String, u64)>,
    },
    /// The weights of a rule cannot be changed so.
    #[error(transparent)]
    Weights(#[from] ChangeFault),
    /// A rollout owns the rule.
    #[error(
        "the rollout {rollout} moves the weights of {rule}; abort it, or change them with ?force=true, which ends it"
    )]
    RolloutActive {
        /// The rule.
        rule: String,
        /// The rollout's id.
        rollout: String,
    },
    /// The result would not be valid.
    #[error("the change is not valid")]
    Invalid(Vec<Diagnostic>),
    /// The revision is no longer kept.
    #[error("revision {wanted} is no longer kept; the oldest one is {oldest}")]
    Compacted {
        /// The revision asked for.
        wanted: Revision,
        /// The oldest one kept.
        oldest: Revision,
    },
    /// The store did not take it.
    #[error("the change could not be stored")]
    Store(#[source] Arc<xds_store::CommitError>),
    /// The history could not be read.
    #[error("the history could not be read")]
    History(#[source] Arc<xds_store::StoreError>),
    /// The first complete load is not done yet.
    #[error("the first load is not complete yet")]
    NotReady,
    /// The dry run did not end in its time.
    #[error("the dry run took too long")]
    Stopped,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closed,
}

/// One watched file.
#[derive(Clone, Debug)]
pub struct FileStatus {
    /// The path as it was found.
    pub path: Arc<str>,
    /// Content hash; `None` if it could not be read.
    pub hash: Option<Version>,
    /// When this content was first read.
    pub loaded_at: SystemTime,
    /// The objects that it gives.
    pub objects: Vec<FileObject>,
    /// What is wrong or doubtful.
    pub diagnostics: Vec<Diagnostic>,
    /// Whether the whole file could not be used and its last good contents are served.
    pub is_last_good: bool,
}

/// One object of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileObject {
    /// The group that it is in.
    pub group: GroupName,
    /// The kind: a resource type's slug, `NodeGroup`, or the kind of a route document.
    pub kind: String,
    /// Its name; of a route document, its namespace, `/` and its name.
    pub name: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// Whether its last good contents are served, because the present ones are broken.
    pub is_last_good: bool,
}

/// Which load of the files is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServedLoad {
    /// None: the first one is not complete.
    None,
    /// An earlier one: the last one is held back or was refused.
    Earlier,
    /// The last one.
    Current,
}

/// What a reload found.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    /// The revision that is served now.
    pub revision: Revision,
    /// The difference that it made.
    pub difference: Vec<ChangedObject>,
    /// How many errors there are in all files.
    pub n_errors: usize,
    /// Why the load is held back and waits for confirmation (`--hold-mass-removal`), if it is.
    pub held: Option<String>,
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

/// What the server tells those who watch it, besides what happens on streams.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A revision was published.
    Published {
        /// The revision.
        revision: Revision,
        /// What changed it: `api`, `file`, `rollback`, `revert`, `expiry`, `waves`, `rollout` or `store`.
        source: &'static str,
        /// One line for people.
        summary: String,
    },
    /// A file has a new error.
    FileError(Diagnostic),
    /// A load is held back until it is confirmed.
    Held {
        /// Why.
        reason: String,
    },
    /// An override, or what it says of one backend, was dropped, because the file says the same by now or for another reason.
    OverrideDropped {
        /// As [`ChangedObject::what`].
        what: String,
        /// Why.
        reason: String,
    },
    /// A wave deployment began, went on or ended.
    Wave {
        /// Its number.
        deployment: u64,
        /// As in [`WaveReport::phase`].
        phase: WavePhase,
        /// The share of the nodes that have the change now.
        share: Option<Share>,
        /// One line for people.
        message: String,
    },
    /// Something happened in a rollout.
    Rollout {
        /// Its id.
        rollout: String,
        /// What happened.
        event: xds_rollout::Event,
    },
    /// Something needs attention; also listed by [`Control::problems`] while it lasts.
    Problem {
        /// What.
        message: String,
    },
}

/// What the server does for the admin API.
pub trait Control: Send + Sync + fmt::Debug {
    /// Validates, commits and publishes a change. Answered after all three.
    ///
    /// Dropping the future does not stop a write that has begun.
    fn write(&self, write: Write, options: WriteOptions) -> BoxFuture<'_, Result<WriteOutcome, WriteError>>;
    /// What the API owns now, and the revision of it.
    fn overrides(&self) -> (Revision, Arc<Layer>);
    /// What the files give now.
    fn base(&self) -> Arc<Layer>;
    /// The route documents now, and what became of them.
    fn documents(&self) -> DocumentState;
    /// Reads the files again now. `confirm` also publishes a load that is held back.
    fn reload(&self, confirm: bool) -> BoxFuture<'_, Result<ReloadOutcome, WriteError>>;
    /// The watched files, by path.
    fn files(&self) -> BTreeMap<Arc<str>, FileStatus>;
    /// Why a load of files is held back, if one is.
    fn held(&self) -> Option<String>;

    /// Which load of the files is served.
    fn served_load(&self) -> ServedLoad;
    /// Why the server is not ready; empty if it is.
    fn not_ready(&self) -> Vec<String>;
    /// What needs attention though the server serves, such as a stored record that could not be read.
    fn problems(&self) -> Vec<String>;
    /// The wave deployment that is under way, and the last ones that were, newest first.
    fn waves(&self) -> Vec<WaveReport>;
    /// Does something to a wave deployment. Answered with what it is then.
    fn wave(
        &self,
        deployment: u64,
        verb: WaveVerb,
        actor: String,
    ) -> BoxFuture<'_, Result<WaveReport, WriteError>>;
    /// What is published, held and reported from now on; a reader that lags loses the oldest and is told so.
    fn events(&self) -> broadcast::Receiver<Event>;
    /// The metrics in OpenMetrics text.
    fn metrics(&self) -> String;
    /// At most `limit` revisions below `before` (or from the newest on), newest first. Reads files.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<HistoryEntry>, WriteError>;
    /// One revision and what it changed. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision.
    fn revision(&self, revision: Revision) -> Result<(HistoryEntry, Vec<ChangedObject>), WriteError>;
    /// What differs between the states after two revisions. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision.
    fn difference(&self, from: Revision, to: Revision) -> Result<Vec<ChangedObject>, WriteError>;
}
