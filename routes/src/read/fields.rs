//! Reads the fields of a document. Reports every fault with its place and path, and suggests names for unknown fields.
//!
//! A [`Reader`] collects faults. A [`Value`] is a tree and its place. An [`Object`] returns the values of its keys and records which were
//! read, so that [`Object::finish`] can warn about the others.

use std::sync::Arc;
use std::time::Duration;

use xds_codec::document::{Node, Number, Position, TreeValue};
use xds_codec::{Diagnostic, Limits, Place, Severity, echo, echo_name, nearest};

use crate::model::{FieldPath, Spot};

/// The faults that were found in one document.
pub(crate) struct Reader {
    file: Arc<str>,
    refuses_unknown: bool,
    diagnostics: Vec<Diagnostic>,
}

impl Reader {
    pub(crate) fn new(file: &Arc<str>, refuses_unknown: bool) -> Self {
        Self { file: Arc::clone(file), refuses_unknown, diagnostics: Vec::new() }
    }

    /// Returns the place of a spot in the file.
    pub(crate) fn place(&self, spot: &Spot) -> Place {
        Place { file: Arc::clone(&self.file), line: spot.line, column: spot.column }
    }

    /// Reports that the document cannot be used.
    pub(crate) fn error(&mut self, code: &'static str, spot: &Spot, message: impl Into<String>) {
        self.push(Severity::Error, code, spot, message.into(), None);
    }

    /// Reports that the document is used, but may not do what was intended.
    pub(crate) fn warn(&mut self, code: &'static str, spot: &Spot, message: impl Into<String>) {
        self.push(Severity::Warning, code, spot, message.into(), None);
    }

    /// Reports an error with a suggestion.
    pub(crate) fn suggest(
        &mut self,
        code: &'static str,
        spot: &Spot,
        message: impl Into<String>,
        suggestion: Option<&str>,
    ) {
        self.push(Severity::Error, code, spot, message.into(), suggestion);
    }

    fn push(
        &mut self,
        severity: Severity,
        code: &'static str,
        spot: &Spot,
        message: String,
        suggestion: Option<&str>,
    ) {
        // Earlier findings stay, because values marked as secret must stay marked.
        let most = if severity == Severity::Error { MAX_DIAGNOSTICS + MAX_ERRORS } else { MAX_DIAGNOSTICS };
        if self.diagnostics.len() >= most {
            return;
        }
        self.diagnostics.push(Diagnostic {
            severity,
            code,
            place: self.place(spot),
            path: spot.path.to_string(),
            message,
            suggestion: suggestion.map(str::to_owned),
            related: Vec::new(),
            is_sensitive: false,
        });
    }

    /// Marks all findings after the first `since` as about a secret.
    pub(crate) fn make_sensitive(&mut self, since: usize) {
        self.diagnostics.iter_mut().skip(since).for_each(|diagnostic| diagnostic.is_sensitive = true);
    }

    /// The number of findings.
    pub(crate) fn n_findings(&self) -> usize {
        self.diagnostics.len()
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Returns all findings in the order of the text: at most [`MAX_DIAGNOSTICS`], with at least one error if there are errors.
    pub(crate) fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        if self.diagnostics.len() > MAX_DIAGNOSTICS {
            self.diagnostics.sort_by_key(|diagnostic| !diagnostic.is_error());
            self.diagnostics.truncate(MAX_DIAGNOSTICS);
        }
        self.diagnostics.sort_by_key(|diagnostic| (diagnostic.place.line, diagnostic.place.column));
        self.diagnostics
    }
}

/// A value and where it is.
#[derive(Clone)]
pub(crate) struct Value<'t> {
    pub(crate) tree: Node<'t>,
    pub(crate) spot: Spot,
}

impl<'t> Value<'t> {
    /// A whole document.
    pub(crate) fn root(tree: Node<'t>) -> Self {
        Self { tree, spot: spot(tree, FieldPath::default()) }
    }

    /// Reads the value as an object; anything else is an error.
    pub(crate) fn object(&self, reader: &mut Reader) -> Option<Object<'t>> {
        if !self.is_object() {
            self.wrong("an object", reader);
            return None;
        }
        Some(Object { value: self.clone(), known: Vec::new() })
    }

    /// Reads the items of a list. More than `max` items are an error, and the first `max` are returned. Anything but a list is an
    /// error, and nothing is returned.
    pub(crate) fn list(&self, max: usize, reader: &mut Reader) -> Vec<Self> {
        let Some(items) = self.tree.as_list() else {
            self.wrong("a list", reader);
            return Vec::new();
        };
        if items.len() > max {
            let message = format!("there are {} items, at most {max} are allowed", items.len());
            reader.error("too-many-items", &self.spot, message);
        }
        let item = |(index, tree)| Self { tree, spot: spot(tree, self.spot.path.item(index)) };
        items.take(max).enumerate().map(item).collect()
    }

    /// Reads a list as [`list`](Self::list) does; an empty list is an error too.
    pub(crate) fn list_of_some(&self, max: usize, reader: &mut Reader) -> Vec<Self> {
        if self.tree.as_list().is_some_and(|items| items.len() == 0) {
            reader.error("too-few-items", &self.spot, "at least one item is required");
        }
        self.list(max, reader)
    }

    /// Reads a string; anything else is an error.
    pub(crate) fn text(&self, reader: &mut Reader) -> Option<&'t str> {
        let text = self.tree.as_str();
        if text.is_none() {
            self.wrong("a string", reader);
        }
        text
    }

    /// Reads a string of `least` to `most` characters.
    pub(crate) fn bounded_text(&self, least: usize, most: usize, reader: &mut Reader) -> Option<&'t str> {
        let text = self.text(reader)?;
        let length = text.chars().count();
        if length < least || length > most {
            let message = format!("{} has {length} characters, {least} to {most} are allowed", echo(text));
            reader.error("bad-length", &self.spot, message);
            return None;
        }
        Some(text)
    }

    /// Reads one of `choices`, in the same case. Anything else is an error that suggests the nearest choice.
    pub(crate) fn choice(&self, choices: &[&'static str], reader: &mut Reader) -> Option<&'static str> {
        let text = self.text(reader)?;
        if let Some(choice) = choices.iter().find(|choice| **choice == text) {
            return Some(choice);
        }
        let message = format!("{} is not one of {}", echo(text), choices.join(", "));
        reader.suggest("unknown-value", &self.spot, message, nearest(text, choices.iter().copied()));
        None
    }

    /// Reads a whole number from `least` to `most`, which may be written as `10.0`. A string is an error.
    pub(crate) fn integer(&self, least: i64, most: i64, reader: &mut Reader) -> Option<i64> {
        let number = match self.tree.value() {
            TreeValue::Number(Number::Integer(number)) => i64::try_from(number).ok(),
            #[expect(clippy::cast_possible_truncation, reason = "whole and far inside the bounds of i64")]
            TreeValue::Number(Number::Float(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
                Some(number as i64)
            }
            TreeValue::Number(Number::Float(_)) => None,
            TreeValue::Null
            | TreeValue::Bool(_)
            | TreeValue::String(_)
            | TreeValue::List(_)
            | TreeValue::Object(_) => {
                self.wrong("a whole number", reader);
                return None;
            }
        };
        let fits = number.filter(|number| (least..=most).contains(number));
        if fits.is_none() {
            let message = format!("expected a whole number from {least} to {most}, found {}", self.shown());
            reader.error("out-of-range", &self.spot, message);
        }
        fits
    }

    /// Reads a port, 1 to 65535.
    pub(crate) fn port(&self, reader: &mut Reader) -> Option<u16> {
        self.integer(1, 65_535, reader).and_then(|port| u16::try_from(port).ok())
    }

    /// Reads `true` or `false`.
    pub(crate) fn truth(&self, reader: &mut Reader) -> Option<bool> {
        if let TreeValue::Bool(truth) = self.tree.value() {
            return Some(truth);
        }
        self.wrong("true or false", reader);
        None
    }

    /// Reads a duration of the Gateway API (GEP-2257), such as `1h30m`, `10s` or `500ms`: one to four parts of at most five digits.
    pub(crate) fn duration(&self, reader: &mut Reader) -> Option<Duration> {
        if let TreeValue::Number(number) = self.tree.value() {
            return without_unit(&number.to_string(), &self.spot, reader);
        }
        let text = self.text(reader)?;
        let duration = parse_duration(text);
        if duration.is_none() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            return without_unit(text, &self.spot, reader);
        }
        if duration.is_none() {
            let message =
                format!("{} is not a duration; write it as in `1h30m`, `10s` or `500ms`", echo(text));
            reader.error("bad-duration", &self.spot, message);
        }
        duration
    }

    /// Returns `true` for an object.
    pub(crate) fn is_object(&self) -> bool {
        self.tree.is_object()
    }

    /// Returns `true` for a list.
    pub(crate) fn is_list(&self) -> bool {
        self.tree.as_list().is_some()
    }

    /// Reports that the value is not what was `expected`.
    pub(crate) fn wrong(&self, expected: &str, reader: &mut Reader) {
        let message = format!("expected {expected}, found {}", self.shown());
        reader.error("wrong-type", &self.spot, message);
    }

    /// Shows the value in a message: a short value itself, otherwise its kind.
    fn shown(&self) -> String {
        match self.tree.value() {
            TreeValue::Number(number) => number.to_string(),
            TreeValue::String(text) => echo(text),
            TreeValue::Bool(truth) => truth.to_string(),
            TreeValue::Null | TreeValue::List(_) | TreeValue::Object(_) => self.tree.kind().to_owned(),
        }
    }
}

/// An object whose fields are read one by one.
pub(crate) struct Object<'t> {
    value: Value<'t>,
    known: Vec<&'static str>,
}

impl<'t> Object<'t> {
    /// Where the object is.
    pub(crate) fn spot(&self) -> &Spot {
        &self.value.spot
    }

    /// Reads a field; `None` if it is absent or null.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Value<'t>> {
        self.known.push(name);
        let tree = self.value.tree.get(name)?;
        Some(Value { tree, spot: spot(tree, self.value.spot.path.field(name)) })
    }

    /// Reads a required field; an error if it is absent or null.
    pub(crate) fn need(&mut self, name: &'static str, reader: &mut Reader) -> Option<Value<'t>> {
        let value = self.take(name);
        if value.is_none() {
            reader.error("missing-field", self.spot(), format!("the field `{name}` is missing"));
        }
        value
    }

    /// Returns `true` if the field is there and not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value.tree.get(name).is_some()
    }

    /// Accepts fields without reading them.
    pub(crate) fn ignore(&mut self, names: &[&'static str]) {
        self.known.extend(names);
    }

    /// Reads all entries of a map whose keys the user chooses, sorted by key, so the order in the text has no effect. Too many
    /// entries are an error, and none is returned.
    pub(crate) fn entries(&self, reader: &mut Reader) -> Vec<(&'t str, Value<'t>)> {
        let entries = self.value.tree.entries();
        let most = Limits::max_objects(entries.n_bytes());
        if entries.len() > most {
            let message =
                format!("there are {} entries, at most {most} are allowed in its size", entries.len());
            reader.error("too-many-items", self.spot(), message);
            return Vec::new();
        }
        let mut entries: Vec<_> = entries
            .map(|entry| {
                let path = self.value.spot.path.entry(entry.key);
                let position = entry.position;
                let spot = Spot { path, line: position.line, column: position.column };
                (entry.key, Value { tree: entry.value, spot })
            })
            .collect();
        entries.sort_by_key(|(key, _)| *key);
        entries
    }

    /// Reports every field that was not read, as an error or a warning, and suggests the nearest known field.
    pub(crate) fn finish(self, reader: &mut Reader) {
        for entry in self.value.tree.entries() {
            if self.known.contains(&entry.key) {
                continue;
            }
            let path = self.value.spot.path.field(entry.key);
            let spot = Spot { path, line: entry.position.line, column: entry.position.column };
            let suggestion = nearest(entry.key, self.known.iter().copied());
            let (severity, so) = match reader.refuses_unknown {
                true => (Severity::Error, ""),
                false => (Severity::Warning, ", which is left out"),
            };
            let message = format!("unknown field {}{so}", echo_name(entry.key));
            reader.push(severity, "unknown-field", &spot, message, suggestion);
        }
    }
}

/// Refuses a duration without a unit, and suggests seconds.
fn without_unit(number: &str, spot: &Spot, reader: &mut Reader) -> Option<Duration> {
    let message =
        format!("{number} is not a duration: it has no unit; write it as in `1h30m`, `10s` or `500ms`");
    let meant = format!("{number}s");
    let meant = Some(&*meant).filter(|meant| parse_duration(meant).is_some());
    reader.suggest("bad-duration", spot, message, meant);
    None
}

/// Parses a duration such as `1h30m`; `None` for anything else.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    let mut n_parts = 0;
    while !rest.is_empty() {
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after) = rest.split_at_checked(n_digits)?;
        if n_digits == 0 || n_digits > 5 || n_parts == 4 {
            return None;
        }
        let number: u64 = digits.parse().ok()?;
        let (part, after) = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
            .into_iter()
            .find_map(|(unit, ms)| after.strip_prefix(unit).map(|after| (number * ms, after)))?;
        total += Duration::from_millis(part);
        rest = after;
        n_parts += 1;
    }
    (n_parts > 0).then_some(total)
}

fn spot(tree: Node<'_>, path: FieldPath) -> Spot {
    let Position { line, column } = tree.position();
    Spot { path, line, column }
}

/// The limit for one document. Nobody reads more.
const MAX_DIAGNOSTICS: usize = 100;

/// How many errors are kept in addition if there are already [`MAX_DIAGNOSTICS`] findings, so that warnings do not displace them.
const MAX_ERRORS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_gep_2257() {
        let same = [
            ("0h", "0s"),
            ("150m", "2h30m"),
            ("7230s", "2h30s"),
            ("10s30m1h", "1h30m10s"),
            ("100ms200ms300ms", "600ms"),
        ];
        for (one, other) in same {
            assert!(parse_duration(one).is_some(), "{one}");
            assert_eq!(parse_duration(one), parse_duration(other), "{one}");
        }
        for bad in ["", "1", "1m1", "1d", "1h30m10s20ms50h", "999999h", "1.5h", "-15m", "h", " 1s", "1µs"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
