//! Findings: faults before they have a file and a place.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::document::{Node, Position, TreeValue};
use crate::path::{Path, Step, format_steps};

/// What is wrong at a path of one resource.
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) steps: Vec<Step>,
    /// Where it is, if the text says it better than the path: a key rather than its value.
    pub(crate) position: Option<Position>,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
    pub(crate) related: Vec<Position>,
    pub(crate) is_sensitive: bool,
}

impl Finding {
    pub(crate) fn error(code: &'static str, path: &Path<'_>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            steps: path.to_steps(),
            position: None,
            message: message.into(),
            suggestion: None,
            related: Vec::new(),
            is_sensitive: false,
        }
    }

    pub(crate) fn warning(code: &'static str, path: &Path<'_>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, path, message) }
    }

    pub(crate) fn at(self, position: Position) -> Self {
        Self { position: Some(position), ..self }
    }

    pub(crate) fn suggest(self, suggestion: Option<impl Into<String>>) -> Self {
        Self { suggestion: suggestion.map(Into::into), ..self }
    }

    /// Gives the finding its place: its own, else that of the nearest value on its path that `tree` has.
    pub(crate) fn locate(self, file: &Arc<str>, tree: Node<'_>) -> Diagnostic {
        let position = self.position.unwrap_or_else(|| find(tree, &self.steps));
        let place = |position: Position| Place {
            file: Arc::clone(file),
            line: position.line,
            column: position.column,
        };
        Diagnostic {
            severity: self.severity,
            code: self.code,
            place: place(position),
            path: format_steps(&self.steps),
            message: self.message,
            suggestion: self.suggestion,
            related: self.related.into_iter().filter(|position| position.line > 0).map(place).collect(),
            is_sensitive: self.is_sensitive,
        }
    }
}

/// Follows the steps as far as the tree has them.
fn find(tree: Node<'_>, steps: &[Step]) -> Position {
    let mut found = tree;
    for step in steps {
        let next = match step {
            Step::Field(name) => {
                found.entry(name).or_else(|| found.entry(&json_name(name))).map(|entry| entry.value)
            }
            Step::Key(key) => {
                found.entries().find(|entry| crate::path::cut(entry.key) == &**key).map(|entry| entry.value)
            }
            Step::Index(index) => match found.value() {
                TreeValue::List(mut items) => items.nth(*index),
                TreeValue::Null
                | TreeValue::Bool(_)
                | TreeValue::Number(_)
                | TreeValue::String(_)
                | TreeValue::Object(_) => None,
            },
        };
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    found.position()
}

/// `snake_case` as `camelCase`.
pub(crate) fn json_name(name: &str) -> String {
    let mut json = String::with_capacity(name.len());
    let mut upper = false;
    for character in name.chars() {
        if character == '_' {
            upper = true;
        } else {
            json.push(if upper { character.to_ascii_uppercase() } else { character });
            upper = false;
        }
    }
    json
}

/// Findings of one resource, and the deprecated fields that it uses.
#[derive(Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    /// Errors beyond [`MAX_FINDINGS`].
    n_dropped: usize,
    /// Full names of deprecated fields that are set.
    pub(crate) deprecated: BTreeSet<String>,
}

impl Findings {
    pub(crate) fn push(&mut self, finding: Finding) {
        if self.list.len() < MAX_FINDINGS {
            self.list.push(finding);
        } else if finding.severity == Severity::Error {
            self.n_dropped += 1;
        }
    }

    /// Notes that a deprecated field is set.
    pub(crate) fn deprecate(&mut self, full_name: &str) {
        if !self.deprecated.contains(full_name) {
            self.deprecated.insert(full_name.to_owned());
        }
    }

    /// Whether a costly suggestion is still worth its time.
    pub(crate) fn wants_suggestions(&self) -> bool {
        self.list.len() < MAX_SUGGESTIONS
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.n_dropped > 0 || self.list.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// The findings with their places, in the order of the text, and one that says how many more there are.
    pub(crate) fn locate(self, file: &Arc<str>, tree: Node<'_>) -> Vec<Diagnostic> {
        let (mut diagnostics, n_more) = self.locate_some(file, tree);
        if n_more > 0 {
            let more = Finding::error("too-many-errors", &Path::Root, format!("and {n_more} more"));
            diagnostics.push(more.locate(file, tree));
        }
        diagnostics
    }

    /// The findings with their places, in the order of the text, and how many errors there are besides.
    pub(crate) fn locate_some(self, file: &Arc<str>, tree: Node<'_>) -> (Vec<Diagnostic>, usize) {
        let mut diagnostics: Vec<_> =
            self.list.into_iter().map(|finding| finding.locate(file, tree)).collect();
        diagnostics.sort_by_key(|diagnostic| (diagnostic.place.line, diagnostic.place.column));
        (diagnostics, self.n_dropped)
    }
}

/// Nobody reads more of one resource, and each one takes a walk to find its place.
const MAX_FINDINGS: usize = 100;

/// Comparing a type's name with all others takes milliseconds.
const MAX_SUGGESTIONS: usize = 50;
