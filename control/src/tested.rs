//! The outcome of RouteTests on what is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::layer::differing;
use xds_cache::{Groups, Publisher, Revision};
use xds_codec::Codec;
use xds_routes::{DocumentKey, Kind, Placed};

use crate::accepted::Accepted;
use crate::model::document::DocumentState;
use crate::model::{Event, Texts};
use crate::places::Places;
use crate::route_tests::{Report, route_tests, run_on};
use crate::transition::{Note, ProblemSubject};
use crate::wave::former;

/// The outcome of RouteTests on one accepted state.
#[derive(Debug)]
pub struct Tested {
    /// The revision of the state.
    pub revision: Revision,
    /// When it was tested.
    pub at: SystemTime,
    /// What was found.
    pub report: Report,
    /// The objects whose rules failing requests reach, with what failed.
    pub failing: BTreeMap<DocumentKey, String>,
}

/// What most clients are served: what was accepted, but for a change that nobody is served.
fn served<'a>(codec: &Codec, accepted: &'a Accepted) -> (&'a DocumentState, Groups) {
    let mut groups = accepted.groups.clone();
    let is_stopped = accepted.wave.as_ref().is_some_and(|wave| wave.stopped.is_some());
    match former::behind(codec, accepted, &mut groups).filter(|_| is_stopped) {
        Some(behind) => (accepted.former_documents(), behind.groups),
        None => (&accepted.documents, groups),
    }
}

/// Runs all RouteTests on a state.
pub(crate) fn test(codec: &Codec, accepted: &Accepted, at: SystemTime) -> Tested {
    let (documents, groups) = served(codec, accepted);
    let documents = &documents.translated.documents;
    let mut tests = route_tests(documents).peekable();
    if tests.peek().is_none() {
        return Tested {
            revision: accepted.revision,
            at,
            report: Report::default(),
            failing: BTreeMap::new(),
        };
    }
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups);
    let mut report = run_on(&publisher, tests);
    let texts = Texts::default();
    report.locate(|view, explanations| Places { view, documents, texts: &texts }.locate(explanations));
    report.forget_views();
    let mut failing: BTreeMap<DocumentKey, BTreeSet<String>> = BTreeMap::new();
    for failure in report.failures() {
        let routes = failure.cases.iter().flat_map(|case| &case.outcome.routes);
        for object in routes.filter_map(|route| object_of(route)) {
            let titles = failing.entry(object).or_default();
            if titles.len() < MAX_TITLES {
                titles.insert(failure.title());
            }
        }
    }
    let line = |titles: BTreeSet<String>| titles.into_iter().collect::<Vec<_>>().join("; ");
    let failing = failing.into_iter().map(|(object, titles)| (object, line(titles))).collect();
    Tested { revision: accepted.revision, at, report, failing }
}

/// The object of a generated route, by its name: `KIND/NAMESPACE/NAME/…`.
fn object_of(route: &str) -> Option<DocumentKey> {
    let mut parts = route.splitn(4, '/');
    let kind = Kind::of_name(parts.next()?)?;
    Some(DocumentKey::new(kind, parts.next()?, parts.next()?))
}

/// Returns `true` if RouteTests may have another outcome.
pub(crate) fn is_other(before: &Accepted, after: &Accepted) -> bool {
    let (old, new) = (&before.documents.translated, &after.documents.translated);
    let tests = |accepted: &Accepted| -> Vec<Placed> {
        route_tests(&accepted.documents.translated.documents).cloned().collect()
    };
    let is_same =
        |(old, new): (&Placed, &Placed)| old.group == new.group && old.document.source == new.document.source;
    let have_changed = || {
        let (old, new) = (tests(before), tests(after));
        old.len() != new.len() || !old.iter().zip(&new).all(is_same)
    };
    let stopped = |accepted: &Accepted| {
        let wave = accepted.wave.as_ref().filter(|wave| wave.stopped.is_some());
        wave.map(|wave| Arc::as_ptr(&wave.previous))
    };
    stopped(before) != stopped(after)
        || !differing(&before.groups, &after.groups).is_empty()
        || !Arc::ptr_eq(old, new) && have_changed()
}

impl Tested {
    /// Events for what fails now and did not fail before.
    pub(crate) fn news(&self, before: Option<&Self>) -> Vec<Event> {
        let known = before.map(|before| before.report.failures()).unwrap_or_default();
        let known: BTreeSet<(String, String)> =
            known.iter().map(|failure| (failure.title(), failure.why())).collect();
        let failures = self.report.failures().into_iter().map(|failure| (failure.title(), failure.why()));
        let new = failures.filter(|failure| !known.contains(failure)).take(MAX_EVENTS);
        new.map(|(test, message)| Event::TestFailed { test, message }).collect()
    }

    /// The problem that tests fail, or that none does.
    pub(crate) fn note(&self) -> Note {
        let failures = self.report.failures();
        let Some(first) = failures.first() else { return Note::solved(ProblemSubject::Tests) };
        let more = match failures.len() - 1 {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        let problem = format!(
            "RouteTests fail on what is served: {}: {}{more}; `xds-server tests` explains them",
            first.title(),
            first.why()
        );
        Note::problem(ProblemSubject::Tests, problem)
    }
}

/// Failures of which one change sends events.
const MAX_EVENTS: usize = 20;

/// Tests that the condition of an object names.
const MAX_TITLES: usize = 5;
