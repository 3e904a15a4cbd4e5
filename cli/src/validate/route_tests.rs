//! RouteTests among the files: what passed and failed, and what the requests touch.

use std::sync::Arc;

use serde_json::{Value, json};
use xds_cache::{Publisher, Revision, View};
use xds_codec::{Diagnostic, Severity};
use xds_control::Places;
use xds_control::route_tests::{
    Case, Coverage, CoverageKind, Failure, Loose, Report, Totals, route_tests, run_loose,
};
use xds_explain::{Place, Ratio};
use xds_units::escape::clean_lines;

use crate::offline::{Offline, nowhere};
use crate::output::{clean, plain_path};

/// The outcome of all RouteTests.
pub(super) struct Tested {
    pub(super) report: Report,
    /// What each kind of clients has, and what no request touches.
    pub(super) coverage: Vec<Covered>,
    /// The failures, at the lines of their tests.
    pub(super) failures: Vec<Diagnostic>,
}

/// The coverage of a kind of clients.
pub(super) struct Covered {
    /// `group default, envoy`.
    pub(super) of: String,
    pub(super) coverage: Coverage,
    /// What is untouched: its kind, words, and where it is.
    untouched: Vec<(&'static str, String, Option<Place>)>,
}

impl Tested {
    /// Runs the RouteTests, and tests of other files with their texts; `None` if there are none.
    pub(super) fn run(offline: &Offline, loose: &[Loose], others: &[(Arc<str>, Arc<[u8]>)]) -> Option<Self> {
        let mut tests = route_tests(&offline.translated.documents).peekable();
        if tests.peek().is_none() && loose.is_empty() {
            return None;
        }
        let publisher = Publisher::new();
        publisher.publish(Revision(1), offline.groups());
        let mut report = run_loose(&publisher, tests, loose);
        let texts = offline.all_texts(others);
        let documents = &offline.translated.documents;
        report.locate(|view, explanations| Places { view, documents, texts: &texts }.locate(explanations));
        let mut failures: Vec<Diagnostic> =
            report.failures().iter().filter_map(Failure::diagnostic).collect();
        texts.move_to_fields(&mut failures);
        let coverage = report.coverage.iter().filter_map(|((served, profile), coverage)| {
            let view: &Arc<View> = report.view(served, *profile)?;
            let untouched = coverage.untouched();
            let parts: Vec<_> = untouched.iter().map(|one| one.part.clone()).collect();
            let found = Places { view, documents, texts: &texts }.of_parts(&parts);
            let untouched = untouched.into_iter().zip(found);
            let untouched = untouched.map(|(one, place)| (one.kind.as_str(), one.what, place)).collect();
            Some(Covered { of: format!("{served}, {profile}"), coverage: coverage.clone(), untouched })
        });
        let coverage = coverage.collect();
        Some(Self { report, coverage, failures })
    }

    /// The kinds of clients of which too few routes are touched, as errors.
    pub(super) fn too_few(&self, least: Ratio) -> Vec<Diagnostic> {
        let is_less = |share: Ratio| {
            let ((n, of), (least, whole)) = (share.parts(), least.parts());
            n.saturating_mul(whole) < least.saturating_mul(of)
        };
        let low = self.coverage.iter().filter(|one| is_less(one.coverage.share()));
        let message = |one: &Covered| {
            let (n, of) = one.coverage.count(CoverageKind::Routes);
            format!(
                "{}: RouteTests touch {n} of {of} routes, which is {}; --min-coverage asks for {least}",
                one.of,
                one.coverage.share()
            )
        };
        low.map(|one| low_coverage(message(one))).collect()
    }

    pub(super) fn totals(&self) -> Totals {
        self.report.totals()
    }

    /// The explanations of failures, and the coverage.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for failure in self.report.failures() {
            let explanations = failure.explanations();
            if !explanations.is_empty() {
                text.push_str(&format!("{}\n", clean(&failure.title())));
                text.push_str(&clean_lines(&xds_explain::to_text(&explanations, false)));
                text.push('\n');
            }
        }
        for one in &self.coverage {
            text.push_str(&format!("coverage of {}: {}\n", one.of, one.coverage));
            for (_, what, place) in one.untouched.iter().take(MAX_UNTOUCHED) {
                text.push_str(&format!("  untouched: {}{}\n", clean(what), at(place.as_ref())));
            }
            let n_more = one.untouched.len().saturating_sub(MAX_UNTOUCHED);
            if n_more > 0 {
                text.push_str(&format!("  and {n_more} more; --output json lists all\n"));
            }
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        let case = |case: &Case| {
            json!({
                "document": case.document.to_string(),
                "test": case.name,
                "path": case.path,
                "client": case.client.map(|client| client.to_string()),
                "of": case.served.to_string(),
                "passed": case.is_passed(),
                "failures": case.outcome.wrong,
                "explanations": case.outcome.explanations,
            })
        };
        let Totals { passed, failed } = self.totals();
        json!({
            "passed": passed,
            "failed": failed,
            "cases": self.report.cases.iter().map(case).collect::<Vec<_>>(),
            "coverage": self.coverage.iter().map(Covered::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Covered {
    fn to_json(&self) -> Value {
        let mut counts = serde_json::Map::new();
        for kind in CoverageKind::ALL {
            let (touched, all) = self.coverage.count(kind);
            counts.insert(kind.as_str().to_owned(), json!({"touched": touched, "all": all}));
        }
        let untouched = self.untouched.iter().map(|(kind, what, place)| {
            let (file, line) = place.as_ref().map_or(("", 0), |place| (&*place.file, place.line));
            json!({"kind": kind, "what": what, "file": file, "line": line})
        });
        json!({"of": self.of, "counts": counts, "untouched": untouched.collect::<Vec<_>>()})
    }
}

/// `  [shop.yaml:19]`.
fn at(place: Option<&Place>) -> String {
    place.map(|place| format!("  [{}:{}]", clean(plain_path(&place.file)), place.line)).unwrap_or_default()
}

/// That coverage was asked for, and there is nothing to cover with.
pub(super) fn no_tests() -> Diagnostic {
    low_coverage("there are no RouteTests, but --min-coverage asks for some".to_owned())
}

fn low_coverage(message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code: "low-coverage",
        place: nowhere(),
        path: String::new(),
        message,
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}

/// Untouched parts that are shown as text, for each kind of clients.
const MAX_UNTOUCHED: usize = 20;
