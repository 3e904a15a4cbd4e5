//! Fields of a configuration file: taken strictly, with a fault for each that has another form.

use std::fmt;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Place, Severity, nearest};
use crate::document::{Node, Number, Position, TreeValue};

/// The way to a value. Costs nothing until it is shown.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// The whole document.
    Root,
    /// A field of an object.
    Field(&'a Self, &'a str),
    /// An item of a list.
    Item(&'a Self, usize),
}

/// The faults so far.
#[derive(Debug)]
pub struct Faults {
    file: Arc<str>,
    list: Vec<Diagnostic>,
    /// Takes what is said of a fault that is not kept.
    dropped: Option<Diagnostic>,
}

/// A fault that was just added, to which more can be said.
#[derive(Debug)]
pub struct Added<'f>(&'f mut Diagnostic);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(At::Root, name) => f.write_str(name),
            Self::Field(parent, name) if name.starts_with('/') => write!(f, "{parent}[{name:?}]"),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Added<'_> {
    /// Says what would be right.
    pub fn suggest(self, suggestion: Option<impl Into<String>>) -> Self {
        self.0.suggestion = suggestion.map(Into::into);
        self
    }

    /// Names another place that belongs to the fault.
    pub fn see(self, position: Position) -> Self {
        let Place { file, .. } = &self.0.place;
        let place = Place { file: Arc::clone(file), line: position.line, column: position.column };
        self.0.related.push(place);
        self
    }
}

impl Faults {
    /// None yet, of this file.
    pub fn new(file: &str) -> Self {
        Self { file: file.into(), list: Vec::new(), dropped: None }
    }

    /// The file that they are about.
    #[must_use]
    pub fn file(&self) -> Arc<str> {
        Arc::clone(&self.file)
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The faults in the order of the text.
    #[must_use]
    pub fn sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|fault| (fault.place.line, fault.place.column));
        self.list
    }

    /// Adds a fault at a value.
    pub fn add(
        &mut self,
        code: &'static str,
        at: At<'_>,
        node: Node<'_>,
        message: impl Into<String>,
    ) -> Added<'_> {
        self.add_at(code, at, node.position(), message.into())
    }

    /// Adds a fault at a field of an object, or at the object if it does not have the field.
    pub fn add_below(
        &mut self,
        code: &'static str,
        at: At<'_>,
        node: Node<'_>,
        field: &str,
        message: impl Into<String>,
    ) -> Added<'_> {
        let position = node.get(field).unwrap_or(node).position();
        self.add_at(code, At::Field(&at, field), position, message.into())
    }

    fn add_at(&mut self, code: &'static str, at: At<'_>, position: Position, message: String) -> Added<'_> {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            code,
            place: Place { file: Arc::clone(&self.file), line: position.line, column: position.column },
            path: at.to_string(),
            message,
            suggestion: None,
            related: Vec::new(),
            is_sensitive: false,
        };
        if self.list.len() >= MAX_FAULTS {
            return Added(self.dropped.insert(diagnostic));
        }
        let index = self.list.len();
        self.list.push(diagnostic);
        Added(&mut self.list[index])
    }

    /// Adds that a value has another type.
    pub fn wrong(&mut self, expected: &str, node: Node<'_>, at: At<'_>) {
        self.add("wrong-type", at, node, format!("expected {expected}, found {}", node.kind()));
    }

    /// Returns `true` if it is an object. Fields that are not known are faults.
    pub fn is_object(
        &mut self,
        node: Node<'_>,
        at: At<'_>,
        known: &[&'static str],
        what: &'static str,
    ) -> bool {
        if !node.is_object() {
            self.wrong("an object", node, at);
            return false;
        }
        for entry in node.entries().filter(|entry| !known.contains(&entry.key)) {
            let key: String = entry.key.chars().take(80).collect();
            let message = format!("unknown field in {what}");
            let suggestion = nearest(&key, known.iter().copied());
            self.add_at("unknown-field", At::Field(&at, &key), entry.position, message).suggest(suggestion);
        }
        true
    }

    /// A text, if the field is there.
    pub fn text<'t>(&mut self, node: Node<'t>, at: At<'_>, field: &str) -> Option<&'t str> {
        let value = node.get(field)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong("a string", value, At::Field(&at, field));
        }
        text
    }

    /// A text that must be there and must not be empty.
    pub fn need_text<'t>(&mut self, node: Node<'t>, at: At<'_>, field: &str) -> Option<&'t str> {
        if node.get(field).is_none() {
            self.add("missing-field", at, node, format!("`{field}` is missing"));
            return None;
        }
        let text = self.text(node, at, field)?;
        if text.is_empty() {
            self.add_below("missing-field", at, node, field, format!("`{field}` is empty"));
        }
        (!text.is_empty()).then_some(text)
    }

    /// A bool, if the field is there.
    pub fn truth(&mut self, node: Node<'_>, at: At<'_>, field: &str) -> Option<bool> {
        let value = node.get(field)?;
        let TreeValue::Bool(truth) = value.value() else {
            self.wrong("true or false", value, At::Field(&at, field));
            return None;
        };
        Some(truth)
    }

    /// A whole number from 1 on.
    pub fn count(&mut self, node: Node<'_>, at: At<'_>, field: &str) -> Option<u32> {
        let value = node.get(field)?;
        let integer = if let TreeValue::Number(Number::Integer(integer)) = value.value() {
            u32::try_from(integer).ok()
        } else {
            None
        };
        let count = integer.filter(|count| *count > 0);
        if count.is_none() {
            self.wrong("a whole number from 1 on", value, At::Field(&at, field));
        }
        count
    }

    /// The items of a list, if the field is there.
    pub fn list<'t>(
        &mut self,
        node: Node<'t>,
        at: At<'_>,
        field: &str,
        most: usize,
    ) -> Option<Vec<Node<'t>>> {
        let value = node.get(field)?;
        let Some(items) = value.as_list() else {
            self.wrong("a list", value, at);
            return None;
        };
        if items.len() > most {
            let message = format!("{} items, at most {most} are allowed", items.len());
            self.add("too-many-items", at, value, message);
            return None;
        }
        Some(items.collect())
    }

    /// A list of texts, at least one.
    pub fn texts(&mut self, node: Node<'_>, at: At<'_>, field: &str) -> Option<Vec<String>> {
        let at = At::Field(&at, field);
        let items = self.list(node, at, field, MAX_TEXTS)?;
        if items.is_empty() {
            let message = "an empty list allows nothing; name something, or leave the field out";
            self.add("empty-list", at, node.get(field).unwrap_or(node), message);
        }
        let mut texts = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.wrong("a string", item, At::Item(&at, index)),
            }
        }
        Some(texts)
    }
}

/// Nobody reads more of one file.
const MAX_FAULTS: usize = 100;

/// Names in one list; patterns say more with less.
const MAX_TEXTS: usize = 1_000;
