//! Findings: faults before they have a file and a place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::document::{Node, Position, Tree, TreeValue};
use crate::path::{Path, Step, format_steps};

/// A fault at a path of one resource.
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) steps: Vec<Step>,
    /// Its position, if it is more precise than that of the path: of a key instead of its value.
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

    /// Gives the finding its place: its own position, or that of the nearest value on its path in `tree`.
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

/// Converts `snake_case` to `camelCase`.
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

/// The deprecated fields that are set, by full name.
#[derive(Default)]
pub(crate) struct Deprecated(BTreeMap<String, FirstUse>);

/// Where a deprecated field is set for the first time.
struct FirstUse {
    position: Position,
    steps: Vec<Step>,
    is_sensitive: bool,
    /// How often it is set again.
    n_more: usize,
}

impl Deprecated {
    /// Records that a field is set. Calls come in the order of field numbers, not of the text.
    pub(crate) fn note(&mut self, full_name: &str, position: Position, path: &Path<'_>, is_sensitive: bool) {
        let Some(known) = self.0.get_mut(full_name) else {
            let first = FirstUse { position, steps: path.to_steps(), is_sensitive, n_more: 0 };
            self.0.insert(full_name.to_owned(), first);
            return;
        };
        known.n_more += 1;
        if position < known.position {
            *known = FirstUse { position, steps: path.to_steps(), is_sensitive, n_more: known.n_more };
        }
    }

    /// Adds the fields that a later resource in the text sets.
    pub(crate) fn append(&mut self, other: Self) {
        for (full_name, found) in other.0 {
            match self.0.entry(full_name) {
                Entry::Occupied(mut known) => known.get_mut().n_more += found.n_more + 1,
                Entry::Vacant(entry) => {
                    entry.insert(found);
                }
            }
        }
    }

    /// A warning for each of the first [`MAX_DEPRECATED`] fields, at its first use, and one for all others.
    pub(crate) fn warnings(self, file: &Arc<str>) -> Vec<Diagnostic> {
        let mut uses: Vec<(String, FirstUse)> = self.0.into_iter().collect();
        uses.sort_by_key(|(_, first)| first.position);
        let n_fields = uses.len();
        let warning = |(index, (full_name, first)): (usize, (String, FirstUse))| {
            let FirstUse { position, steps, is_sensitive, n_more } = first;
            let message = match n_fields - index {
                n_left if index == MAX_DEPRECATED && n_left > 1 => {
                    format!("{full_name} and {} more fields are deprecated", n_left - 1)
                }
                _ if n_more > 0 => {
                    format!("{full_name} is deprecated; the file sets it {} times", n_more + 1)
                }
                _ => format!("{full_name} is deprecated"),
            };
            let finding = Finding::warning("deprecated-field", &Path::Root, message).at(position);
            Finding { steps, is_sensitive, ..finding }.locate(file, Tree::null(position).root())
        };
        uses.into_iter().enumerate().take(MAX_DEPRECATED + 1).map(warning).collect()
    }
}

/// Findings of one resource, and the deprecated fields that it uses.
#[derive(Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    /// The number of errors beyond [`MAX_FINDINGS`].
    n_dropped: usize,
    /// The deprecated fields that are set.
    pub(crate) deprecated: Deprecated,
}

impl Findings {
    pub(crate) fn push(&mut self, finding: Finding) {
        if self.list.len() < MAX_FINDINGS {
            self.list.push(finding);
        } else if finding.severity == Severity::Error {
            self.n_dropped += 1;
        }
    }

    /// Returns `true` if there is still time for costly suggestions.
    pub(crate) fn wants_suggestions(&self) -> bool {
        self.list.len() < MAX_SUGGESTIONS
    }

    /// Returns `true` if there are no findings, not even warnings.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
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

    /// The findings with their places, in the order of the text, and the number of further errors.
    pub(crate) fn locate_some(self, file: &Arc<str>, tree: Node<'_>) -> (Vec<Diagnostic>, usize) {
        let mut diagnostics: Vec<_> =
            self.list.into_iter().map(|finding| finding.locate(file, tree)).collect();
        diagnostics.sort_by_key(|diagnostic| (diagnostic.place.line, diagnostic.place.column));
        (diagnostics, self.n_dropped)
    }
}

/// The limit for one resource. Nobody reads more, and finding the place of each takes a walk.
const MAX_FINDINGS: usize = 100;

/// The limit of deprecated fields with a warning of their own. More do not help.
const MAX_DEPRECATED: usize = 10;

/// The limit of costly suggestions. Comparing a type's name with all others takes milliseconds.
const MAX_SUGGESTIONS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deprecated_field_is_told_once_for_a_file_where_it_is_set_first() {
        let at = |line| Position { line, column: 1 };
        let note = |fields: &[(&str, u32)]| {
            let mut deprecated = Deprecated::default();
            fields.iter().for_each(|(name, line)| {
                deprecated.note(name, at(*line), &Path::Root.field(name), false);
            });
            deprecated
        };
        let mut of_file = note(&[("b", 3), ("b", 2)]);
        of_file.append(note(&[("b", 6), ("a", 5)]));
        let told = |deprecated: Deprecated| -> Vec<String> {
            deprecated.warnings(&"f.yaml".into()).iter().map(ToString::to_string).collect()
        };
        let b = "f.yaml:2:1: warning[deprecated-field] b: b is deprecated; the file sets it 3 times";
        assert_eq!(told(of_file), [b, "f.yaml:5:1: warning[deprecated-field] a: a is deprecated"]);

        let many: Vec<(String, u32)> = (1..=13).map(|n| (format!("f{n}"), n)).collect();
        let many: Vec<(&str, u32)> = many.iter().map(|(name, line)| (name.as_str(), *line)).collect();
        assert!(told(note(&many[..11]))[10].ends_with("f11: f11 is deprecated"));
        assert_eq!(
            told(note(&many)).get(10..),
            Some(
                &["f.yaml:11:1: warning[deprecated-field] f11: f11 and 2 more fields are deprecated"
                    .to_owned()][..]
            )
        );
    }
}
