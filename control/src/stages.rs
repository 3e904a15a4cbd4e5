//! The stages of a change, with their times, for traces.

use std::time::Instant;

use xds_cache::Revision;

use crate::model::{ChangeSource, TraceParent};

/// A part of the work on a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Earlier changes were made first.
    Wait,
    /// The new state was computed: files or a write became resources.
    Propose,
    /// The oracle judged it.
    Judge,
    /// It was stored.
    Commit,
    /// It became what clients are served.
    Publish,
}

impl Stage {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Propose => "propose",
            Self::Judge => "judge",
            Self::Commit => "commit",
            Self::Publish => "publish",
        }
    }
}

/// The stages that a change has been through, one after the other. A change that another server was faster than begins again.
#[derive(Clone, Debug)]
pub struct Stages {
    /// The span of the caller that the change is a part of.
    parent: Option<TraceParent>,
    began: Instant,
    ended: Vec<(Stage, Instant)>,
}

/// A publication, and how it came about.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    /// Its revision.
    pub revision: Revision,
    /// Where the change came from.
    pub source: ChangeSource,
    /// The change in a few words, as in the history.
    pub summary: &'a str,
    /// All that was done.
    pub stages: &'a Stages,
}

impl Stages {
    /// A change begins.
    #[must_use]
    pub fn begin() -> Self {
        Self { parent: None, began: Instant::now(), ended: vec![] }
    }

    /// The same as a part of a caller's span, if there is one.
    #[must_use]
    pub fn within(self, parent: Option<TraceParent>) -> Self {
        Self { parent, ..self }
    }

    /// A stage is over. It began when the one before ended.
    pub fn end(&mut self, stage: Stage) {
        self.ended.push((stage, Instant::now()));
    }

    /// The span of the caller that the change is a part of.
    #[must_use]
    pub fn parent(&self) -> Option<TraceParent> {
        self.parent
    }

    /// When the change began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Each stage with its beginning and its end.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Instant, Instant)> {
        let ends = self.ended.iter().map(|(_, end)| *end);
        let beginnings = std::iter::once(self.began).chain(ends);
        self.ended.iter().zip(beginnings).map(|((stage, end), began)| (*stage, began, *end))
    }
}
