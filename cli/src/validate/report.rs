//! The findings of `validate`, and their text and JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use xds_codec::{Diagnostic, Place, Severity};
use xds_control::route_tests::Totals;
use xds_files::read::Scan;

use super::oracle::Judged;
use super::route_tests::Tested;
use crate::offline::{Unmet, is_terminal, render};
use crate::output::clean;

/// Everything that was found.
pub(super) struct Report {
    /// In order of their places.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The conditions that are not as they should be, and are no errors.
    pub(super) unmet: Vec<Unmet>,
    /// The conditions that no diagnostic explains.
    pub(super) unexplained: Vec<Unmet>,
    /// Every file that was read, or could not be.
    pub(super) files: BTreeSet<Arc<str>>,
    pub(super) n_resources: usize,
    pub(super) n_documents: usize,
    /// The outcome of RouteTests; `None` if there are none.
    pub(super) tested: Option<Tested>,
    /// What a local Envoy was asked; `None` without one.
    pub(super) judged: Option<Judged>,
}

impl Report {
    /// How many diagnostics there are of a severity.
    pub(super) fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|one| one.severity == severity).count()
    }

    /// The diagnostics, and as notes at their documents the conditions that no diagnostic explains.
    pub(super) fn findings(&self) -> Vec<Diagnostic> {
        let mut findings = self.diagnostics.clone();
        findings.extend(self.unexplained.iter().map(|unmet| Diagnostic {
            severity: Severity::Info,
            code: "condition",
            place: unmet.place.clone(),
            path: String::new(),
            message: unmet.to_string(),
            suggestion: None,
            related: Vec::new(),
            is_sensitive: false,
        }));
        findings.sort_by(|a, b| a.place.cmp(&b.place));
        findings
    }

    /// Lines for people, the sums last.
    pub(super) fn to_text(&self, scan: &Scan) -> String {
        let mut text = render(&self.diagnostics, scan, is_terminal());
        for unmet in &self.unmet {
            text.push_str(&format!("{}\n", clean(&unmet.to_string())));
        }
        if let Some(tested) = &self.tested {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&tested.to_text());
        }
        if let Some(judged) = &self.judged {
            text.push_str(&format!("{}\n", judged.to_text()));
        }
        text.push_str(&format!("{}\n", self.sums()));
        text
    }

    /// `2 files, 10 resources, 4 documents, 0 errors, 1 warning`.
    pub(super) fn sums(&self) -> String {
        let (n_errors, n_warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let mut counts = vec![counted(self.files.len(), "file"), counted(self.n_resources, "resource")];
        if self.n_documents > 0 {
            counts.push(counted(self.n_documents, "document"));
        }
        if let Some(tested) = &self.tested {
            let Totals { passed, failed } = tested.totals();
            counts.push(format!("{} ({failed} failed)", counted(passed + failed, "route test")));
        }
        counts.extend([counted(n_errors, "error"), counted(n_warnings, "warning")]);
        counts.join(", ")
    }

    /// The whole report as one object.
    pub(super) fn to_json(&self) -> Value {
        let place = |place: &Place| json!({"file": &*place.file, "line": place.line, "column": place.column});
        let one = |one: &Diagnostic| {
            json!({
                "severity": one.severity.as_str(),
                "code": one.code,
                "file": &*one.place.file,
                "line": one.place.line,
                "column": one.place.column,
                "path": one.path,
                "message": one.message,
                "suggestion": one.suggestion,
                "related": one.related.iter().map(place).collect::<Vec<_>>(),
            })
        };
        let unmet = |unmet: &Unmet| {
            json!({
                "object": unmet.key.to_string(),
                "file": &*unmet.place.file,
                "line": unmet.place.line,
                "column": unmet.place.column,
                "of": unmet.of,
                "type": unmet.kind.as_str(),
                "status": unmet.status,
                "reason": unmet.reason.as_str(),
                "message": unmet.message,
            })
        };
        json!({
            "files": self.files.len(),
            "resources": self.n_resources,
            "documents": self.n_documents,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "diagnostics": self.diagnostics.iter().map(one).collect::<Vec<_>>(),
            "conditions": self.unmet.iter().map(unmet).collect::<Vec<_>>(),
            "tests": self.tested.as_ref().map(Tested::to_json),
            "oracle": self.judged.as_ref().map(Judged::to_json),
        })
    }
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The text of a diagnostic without severity, code and place, for forms that have fields for these.
pub(super) fn sentence(one: &Diagnostic) -> String {
    let mut text = String::new();
    if !one.path.is_empty() {
        text = format!("{}: ", one.path);
    }
    text.push_str(&one.message);
    if let Some(suggestion) = &one.suggestion {
        text.push_str(&format!("; did you mean `{suggestion}`?"));
    }
    text
}
