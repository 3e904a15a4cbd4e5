//! Diagnostics: faults of a file or a body. Each says where it is, what is wrong, and what would be right.

use std::fmt;
use std::sync::Arc;

/// The severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The object cannot be used.
    Error,
    /// The object is used; clients may reject it, or it may not do what was intended.
    Warning,
    /// Nothing is wrong, but a part was left out or filled in on purpose.
    Info,
}

impl Severity {
    /// The severity as a word: `error`, `warning` or `info`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file's path as the caller gave it; empty for a body that came with a request.
    pub file: Arc<str>,
    /// The line, from 1; 0 if it is unknown, as in a parsed JSON body.
    pub line: u32,
    /// The column in characters, from 1; 0 if it is unknown.
    pub column: u32,
}

impl fmt::Display for Place {
    /// Writes `file:line:column`, without the unknown parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line == 0 {
            return Ok(());
        }
        if !self.file.is_empty() {
            f.write_str(":")?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A fault or a note. Its texts never contain the value of a secret field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// The kind of fault in kebab-case. It is stable, for filters and tests.
    pub code: &'static str,
    /// Where it is.
    pub place: Place,
    /// The path of the field in the resource: `virtual_hosts[0].routes[1].route.cluster`. Empty for the whole document.
    pub path: String,
    /// The fault.
    pub message: String,
    /// A right text, ready to be pasted.
    pub suggestion: Option<String>,
    /// Other places that belong to the fault, such as the first of two definitions.
    pub related: Vec<Place>,
    /// True if the place is in a secret field, so its lines must not be shown.
    pub is_sensitive: bool,
}

impl Diagnostic {
    /// Returns `true` for an error, so that the object cannot be used.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    /// Writes one line: `file:line:column: error[code] path: message; did you mean …? (see …)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}[{}] ", self.severity, self.code)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, "; did you mean `{suggestion}`?")?;
        }
        for (index, place) in self.related.iter().enumerate() {
            f.write_str(if index == 0 { " (see " } else { ", " })?;
            write!(f, "{place}")?;
        }
        f.write_str(if self.related.is_empty() { "" } else { ")" })
    }
}

/// Quotes a value for a message: at most [`MAX_ECHO`] characters, control characters escaped.
#[must_use]
pub fn echo(value: &str) -> String {
    shorten(value, MAX_ECHO)
}

/// Quotes a name (a field, a type, a resource) for a message. Names are never secret, and may be longer than values.
#[must_use]
pub fn echo_name(name: &str) -> String {
    shorten(name, MAX_NAME_ECHO)
}

fn shorten(text: &str, limit: usize) -> String {
    let mut characters = text.chars();
    let shown: String = characters.by_ref().take(limit).flat_map(char::escape_debug).collect();
    if characters.next().is_some() { format!("\"{shown}…\"") } else { format!("\"{shown}\"") }
}

/// Enough to find the value again in the file.
const MAX_ECHO: usize = 40;

/// The longest message names of Envoy have 120 characters.
const MAX_NAME_ECHO: usize = 160;

/// The candidate that `wrong` is most likely a misspelling of, if one is near enough.
#[must_use]
pub fn nearest<'a>(wrong: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong: String = wrong.chars().take(MAX_NAME_ECHO).collect::<String>().to_lowercase();
    let limit = |candidate: &str| candidate.len().min(wrong.len()) / 3 + 1;
    // A difference in length is part of the distance, and takes no time.
    let differs = |candidate: &str| candidate.chars().count().abs_diff(wrong.chars().count());
    candidates
        .filter(|candidate| differs(candidate) <= limit(candidate))
        .map(|candidate| (strsim::damerau_levenshtein(&wrong, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= limit(candidate) && *distance < wrong.len())
        .min_by_key(|(distance, candidate)| (*distance, candidate.len(), *candidate))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_is_one_line_with_all_its_parts() {
        let place = |line, column| Place { file: "a.yaml".into(), line, column };
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            code: "duplicate-key",
            place: place(3, 1),
            path: "name".to_owned(),
            message: "the key appears twice".to_owned(),
            suggestion: Some("names".to_owned()),
            related: vec![place(1, 1), place(2, 1)],
            is_sensitive: false,
        };
        assert_eq!(
            diagnostic.to_string(),
            "a.yaml:3:1: error[duplicate-key] name: the key appears twice; did you mean `names`? (see a.yaml:1:1, a.yaml:2:1)"
        );
    }

    #[test]
    fn echoes_are_short_and_on_one_line() {
        assert_eq!(echo("a\nb"), "\"a\\nb\"");
        assert_eq!(echo(&"x".repeat(50)), format!("\"{}…\"", "x".repeat(40)));
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["stat_prefix", "codec_type", "rds"];
        assert_eq!(nearest("stat_prefx", names.into_iter()), Some("stat_prefix"));
        assert_eq!(nearest("codecType", names.into_iter()), Some("codec_type"));
        assert_eq!(nearest("zzz", names.into_iter()), None);
        assert_eq!(nearest("", names.into_iter()), None);
    }
}
