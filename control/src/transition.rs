//! What a proposal comes to: another accepted value, and everything that has to be done for it.

use std::sync::Arc;

use xds_cache::time::millis;
use xds_cache::{Publication, Revision};

use crate::accepted::Accepted;
use crate::dry_run::ClientPreview;
use crate::env::At;
use crate::model::{ChangeSource, Event, ReloadOutcome, WriteError, WriteOutcome};
use crate::plan::Plan;
use crate::wave::value::Wave;

/// A change that is proposed. Dropped, it leaves no trace.
#[derive(Debug)]
pub(crate) struct Transition {
    /// What is accepted then; its revision is that of the commit, if there is one.
    pub(crate) next: Accepted,
    /// What has to be stored for it. Nothing makes no revision.
    pub(crate) plan: Plan,
    /// What is stored instead if that is more than the store takes.
    pub(crate) smaller: Option<Plan>,
    /// The wave deployment as it is if nothing can be stored.
    pub(crate) unstored: Option<Wave>,
    /// Whether it is served before it is stored, because that takes long.
    pub(crate) is_served_first: bool,
    /// Whether it is published though no revision is made.
    pub(crate) is_published: bool,
    pub(crate) label: Label,
    /// What is told once it is published.
    pub(crate) told: Vec<Event>,
    /// What needs attention then, or no longer does.
    pub(crate) notes: Vec<Note>,
    pub(crate) outcome: Outcome,
}

/// Who makes a change and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Label {
    pub(crate) actor: String,
    pub(crate) source: ChangeSource,
    pub(crate) summary: String,
}

/// That something needs attention, by subject; or that the subject is fine again.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) subject: ProblemSubject,
    pub(crate) problem: Option<String>,
}

/// What needs attention; in the order in which problems are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProblemSubject {
    /// The disk does not take what is to be stored.
    Disk,
    /// The last load was refused.
    Files,
    /// A load has doubts that are about no file in particular.
    Groups,
    /// Last good copies of files cannot be saved.
    Copies,
    /// What files say could not be recorded.
    Record,
    /// There was no complete load yet.
    Start,
    /// The store cannot be read.
    Store,
    /// A translation was wrong.
    Translation,
    /// A stored wave deployment cannot be read.
    WaveRecord,
    /// A wave deployment cannot go on.
    Waves,
}

impl ProblemSubject {
    /// The word for it in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Files => "files",
            Self::Groups => "groups",
            Self::Copies => "last-good",
            Self::Record => "record",
            Self::Start => "start",
            Self::Store => "store",
            Self::Translation => "translation",
            Self::WaveRecord => "wave-record",
            Self::Waves => "waves",
        }
    }
}

impl Note {
    pub(crate) fn problem(subject: ProblemSubject, problem: String) -> Self {
        Self { subject, problem: Some(problem) }
    }

    pub(crate) fn solved(subject: ProblemSubject) -> Self {
        Self { subject, problem: None }
    }
}

/// What whoever asked for a change is answered.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// That it is done.
    Done,
    /// What a write led to; of a dry run, with what is left to play.
    Written(Box<WriteOutcome>, Vec<ClientPreview>),
    /// What a load led to.
    Loaded(ReloadOutcome),
    /// When to look at the clients of a wave deployment again.
    GoesOn(Next),
    /// Why it could not be done as it was asked for.
    Failed(WriteError),
}

/// When to look at the clients of a wave deployment again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// When another one begins, or somebody does something to it.
    Told,
    /// Also when a client answers, or then.
    Answered(Option<std::time::Instant>),
}

/// A change that is done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) revision: Revision,
    /// What it made of what was accepted.
    pub(crate) accepted: Arc<Accepted>,
    /// Whom it concerns.
    pub(crate) publication: Publication,
}

impl Transition {
    /// From `next`, with nothing to store or to tell.
    pub(crate) fn quiet(next: Accepted, outcome: Outcome) -> Self {
        Self {
            next,
            plan: Plan::new(),
            smaller: None,
            unstored: None,
            is_served_first: false,
            is_published: false,
            label: Label::default(),
            told: vec![],
            notes: vec![],
            outcome,
        }
    }
}

impl Label {
    pub(crate) fn new(actor: &str, source: ChangeSource, summary: String) -> Self {
        Self { actor: actor.to_owned(), source, summary }
    }

    /// The commit of these changes.
    pub(crate) fn commit(&self, changes: Vec<xds_store::Change>, at: At) -> xds_store::Commit {
        let Self { actor, source, summary } = self.clone();
        xds_store::Commit {
            actor,
            at_ms: millis(at.wall),
            source: source.as_str().to_owned(),
            summary,
            changes,
        }
    }
}
