//! The result of a proposal: another accepted value, and everything that has to be done for it.

use std::sync::Arc;

use xds_cache::time::millis;
use xds_cache::{Publication, Revision};
use xds_codec::Diagnostic;

use crate::accepted::Accepted;
use crate::dry_run::ClientPreview;
use crate::env::At;
use crate::judged::Refused;
use crate::model::{ChangeSource, Event, ReloadOutcome, WriteError, WriteOutcome};
use crate::plan::Plan;
use crate::wave::value::Wave;

/// A proposed change. If it is dropped, it leaves no trace.
#[derive(Debug)]
pub(crate) struct Transition {
    /// The next accepted state. Its revision is that of the commit, if there is one.
    pub(crate) next: Accepted,
    /// The changes to the store. Without any, there is no revision.
    pub(crate) plan: Plan,
    /// The changes to store instead if these are too large for the store.
    pub(crate) smaller: Option<Plan>,
    /// The wave deployment if nothing can be stored.
    pub(crate) unstored: Option<Wave>,
    /// True if it is served before it is stored, because storing takes long.
    pub(crate) is_served_first: bool,
    /// True if it is published without a revision.
    pub(crate) is_published: bool,
    pub(crate) label: Label,
    /// The events that are sent once it is published.
    pub(crate) told: Vec<Event>,
    /// The problems that arise, or are solved.
    pub(crate) notes: Vec<Note>,
    /// What the oracle refuses of it, and is published all the same.
    pub(crate) refused: Vec<Refused>,
    /// True if the oracle has not judged all of it.
    pub(crate) is_unjudged: bool,
    pub(crate) outcome: Outcome,
}

/// The person who makes a change, and the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Label {
    pub(crate) actor: String,
    pub(crate) source: ChangeSource,
    pub(crate) summary: String,
}

/// A problem by its subject, or the end of one.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) subject: ProblemSubject,
    pub(crate) problem: Option<String>,
}

/// The subject of a problem; in the order in which problems are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProblemSubject {
    /// The access policy cannot be used, or a token of it ends soon.
    Access,
    /// The audit log cannot be written.
    Audit,
    /// The disk refuses writes.
    Disk,
    /// Access rules are only tried.
    DryRun,
    /// The last load was refused.
    Files,
    /// A load has warnings that concern no particular file.
    Groups,
    /// Last good copies of files cannot be saved.
    Copies,
    /// The oracle does not judge.
    Oracle,
    /// The contents of the files could not be recorded.
    Record,
    /// Other servers with the same history serve something else.
    Difference,
    /// A relayed server is away, or sends what cannot be used.
    Relay,
    /// Other servers with the same store do not know of this one.
    Replicas,
    /// What is served is refused by the oracle.
    Refused,
    /// There was no complete load yet.
    Start,
    /// The store that others share is not followed.
    SharedStore,
    /// The store cannot be read.
    Store,
    /// RouteTests fail on what is served.
    Tests,
    /// The certificates of a port cannot be used, or end soon, or their source is in trouble.
    Tls(&'static str),
    /// A translation was wrong.
    Translation,
    /// A stored wave deployment cannot be read.
    WaveRecord,
    /// A wave deployment cannot go on.
    Waves,
}

impl ProblemSubject {
    /// All of them; of the ports' certificates there is one for the metrics.
    pub(crate) const ALL: [Self; 21] = [
        Self::Access,
        Self::Audit,
        Self::Disk,
        Self::DryRun,
        Self::Files,
        Self::Groups,
        Self::Copies,
        Self::Oracle,
        Self::Record,
        Self::Difference,
        Self::Relay,
        Self::Replicas,
        Self::Refused,
        Self::Start,
        Self::SharedStore,
        Self::Store,
        Self::Tests,
        Self::Tls(""),
        Self::Translation,
        Self::WaveRecord,
        Self::Waves,
    ];

    /// The word for it in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Audit => "audit",
            Self::Disk => "disk",
            Self::DryRun => "dry-run",
            Self::Files => "files",
            Self::Groups => "groups",
            Self::Copies => "last-good",
            Self::Oracle => "oracle",
            Self::Record => "record",
            Self::Difference => "difference",
            Self::Relay => "relay",
            Self::Replicas => "replicas",
            Self::Refused => "refused-by-oracle",
            Self::Start => "start",
            Self::SharedStore => "shared-store",
            Self::Store => "store",
            Self::Tests => "tests",
            Self::Tls(_) => "tls",
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

/// The answer to the caller of a change.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The change is done.
    Done,
    /// The outcome of a write; of a dry run, with the views that it would change.
    Written(Box<WriteOutcome>, Vec<ClientPreview>),
    /// The outcome of a load.
    Loaded(ReloadOutcome),
    /// When to look at the clients of a wave deployment again.
    GoesOn(Next),
    /// Why the request could not be carried out.
    Failed(WriteError),
}

/// When to look at the clients of a wave deployment again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Until another one begins, or an operator acts on it.
    Told,
    /// When a client answers, or at this time.
    Answered(Option<std::time::Instant>),
}

/// A change that is done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) revision: Revision,
    /// The accepted state that it made.
    pub(crate) accepted: Arc<Accepted>,
    /// The clients that it concerns.
    pub(crate) publication: Publication,
}

impl Transition {
    /// A transition to `next` with nothing to store or report.
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
            refused: vec![],
            is_unjudged: false,
            outcome,
        }
    }

    /// Adds a warning to the answer of a write.
    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = Diagnostic>) {
        if let Outcome::Written(outcome, _) = &mut self.outcome {
            outcome.warnings.extend(warnings);
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
