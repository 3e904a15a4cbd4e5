//! Trees: the contents of a tape as values with positions.

use std::fmt;
use std::sync::Arc;

use super::tape::{Cursor, Scalar, Token, Writer};
use super::{Number, Position};

/// A document or a part of one. It owns its data, but is cheap to clone, because all parts of a text share it.
#[derive(Clone)]
pub struct Tree {
    tape: Arc<Vec<u8>>,
    at: usize,
}

/// A value of a [`Tree`] with its position.
#[derive(Clone, Copy)]
pub struct Node<'t> {
    tree: &'t Tree,
    at: usize,
}

/// A JSON value. YAML values that JSON does not have are refused.
#[derive(Clone, Copy)]
pub enum TreeValue<'t> {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number in JSON's notation.
    Number(Number),
    /// Any other scalar.
    String(&'t str),
    /// A list.
    List(Items<'t>),
    /// An object in the order of the text; no key appears twice.
    Object(Entries<'t>),
}

/// The items of a list in the order of the text.
#[derive(Clone, Copy)]
pub struct Items<'t> {
    tree: &'t Tree,
    at: usize,
    end: usize,
    n_left: usize,
}

/// The entries of an object in the order of the text.
#[derive(Clone, Copy)]
pub struct Entries<'t> {
    tree: &'t Tree,
    at: usize,
    end: usize,
    n_left: usize,
}

/// A key of an object with its value.
#[derive(Clone, Copy)]
pub struct Entry<'t> {
    /// The key.
    pub key: &'t str,
    /// The position of the key.
    pub position: Position,
    /// The value.
    pub value: Node<'t>,
    /// The offset of the entry on the tape.
    at: usize,
}

impl Tree {
    /// The values of a tape that are not null.
    pub(super) fn all(tape: Writer) -> Vec<Self> {
        let tape = Arc::new(tape.finish());
        let mut trees = Vec::new();
        let mut at = 0;
        while at < tape.len() {
            let tree = Self { tape: Arc::clone(&tape), at };
            let mut cursor = Cursor { tape: &tape, at };
            cursor.skip();
            at = cursor.at;
            if !tree.root().is_null() {
                trees.push(tree);
            }
        }
        trees
    }

    /// The first value of a tape.
    #[cfg(test)]
    pub(super) fn first(tape: Writer) -> Self {
        Self { tape: Arc::new(tape.finish()), at: 0 }
    }

    /// The tree of a JSON value; it has no positions.
    #[must_use]
    pub fn from_json(json: &serde_json::Value) -> Self {
        let mut tape = Writer::default();
        write_json(json, &mut tape);
        Self { tape: Arc::new(tape.finish()), at: 0 }
    }

    /// A tree of one string without a position.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let mut tape = Writer::default();
        tape.scalar(Position::default(), Scalar::String(text));
        Self { tape: Arc::new(tape.finish()), at: 0 }
    }

    /// A tree of `null` at this position.
    #[must_use]
    pub fn null(position: Position) -> Self {
        let mut tape = Writer::default();
        tape.scalar(position, Scalar::Null);
        Self { tape: Arc::new(tape.finish()), at: 0 }
    }

    /// The same object with a text as its first field.
    #[must_use]
    pub fn with_first(&self, key: &str, text: &str) -> Self {
        let root = self.root();
        let TreeValue::Object(entries) = root.value() else { return self.clone() };
        let mut tape = Writer::default();
        let open = tape.open_object(root.position());
        tape.key(key, root.position());
        tape.scalar(root.position(), Scalar::String(text));
        tape.append(self.tape.get(entries.at..entries.end).unwrap_or_default());
        tape.close(open, entries.len() + 1);
        Self { tape: Arc::new(tape.finish()), at: 0 }
    }

    /// The value of the whole tree.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node { tree: self, at: self.at }
    }

    /// The value without positions. Numbers that JSON cannot hold become `null`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        self.root().to_json()
    }

    fn cursor(&self, at: usize) -> Cursor<'_> {
        Cursor { tape: &self.tape, at }
    }
}

fn write_json(json: &serde_json::Value, tape: &mut Writer) {
    let nowhere = Position::default();
    match json {
        serde_json::Value::Null => tape.scalar(nowhere, Scalar::Null),
        serde_json::Value::Bool(truth) => tape.scalar(nowhere, Scalar::Bool(*truth)),
        serde_json::Value::Number(number) => tape.scalar(nowhere, Scalar::Number(Number::from_json(number))),
        serde_json::Value::String(text) => tape.scalar(nowhere, Scalar::String(text)),
        serde_json::Value::Array(items) => {
            let open = tape.open_list(nowhere);
            items.iter().for_each(|item| write_json(item, tape));
            tape.close(open, items.len());
        }
        serde_json::Value::Object(entries) => {
            let open = tape.open_object(nowhere);
            for (key, value) in entries {
                tape.key(key, nowhere);
                write_json(value, tape);
            }
            tape.close(open, entries.len());
        }
    }
}

impl<'t> Node<'t> {
    /// The position of the value; of an alias, that of the anchored value.
    #[must_use]
    pub fn position(self) -> Position {
        self.tree.cursor(self.at).begin().1
    }

    /// The value.
    #[must_use]
    pub fn value(self) -> TreeValue<'t> {
        let mut cursor = self.tree.cursor(self.at);
        match cursor.token().1 {
            Token::Null => TreeValue::Null,
            Token::Bool(truth) => TreeValue::Bool(truth),
            Token::Number(number) => TreeValue::Number(number),
            Token::String(text) => TreeValue::String(text),
            Token::List(n_left, end) => {
                TreeValue::List(Items { tree: self.tree, at: cursor.at, end, n_left })
            }
            Token::Object(n_left, end) => {
                TreeValue::Object(Entries { tree: self.tree, at: cursor.at, end, n_left })
            }
        }
    }

    /// The value as a tree of its own.
    #[must_use]
    pub fn to_tree(self) -> Tree {
        Tree { tape: Arc::clone(&self.tree.tape), at: self.at }
    }

    /// Returns `true` if it is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        matches!(self.value(), TreeValue::Null)
    }

    /// Returns `true` if it is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        matches!(self.value(), TreeValue::Object(_))
    }

    /// The entries of an object; empty for anything else.
    #[must_use]
    pub fn entries(self) -> Entries<'t> {
        match self.value() {
            TreeValue::Object(entries) => entries,
            TreeValue::Null
            | TreeValue::Bool(_)
            | TreeValue::Number(_)
            | TreeValue::String(_)
            | TreeValue::List(_) => Entries { tree: self.tree, at: 0, end: 0, n_left: 0 },
        }
    }

    /// The entry with this key.
    #[must_use]
    pub fn entry(self, key: &str) -> Option<Entry<'t>> {
        self.entries().find(|entry| entry.key == key)
    }

    /// The value with this key, unless it is null.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Self> {
        self.entry(key).map(|entry| entry.value).filter(|value| !value.is_null())
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(self) -> Option<&'t str> {
        if let TreeValue::String(text) = self.value() { Some(text) } else { None }
    }

    /// The items of a list.
    #[must_use]
    pub fn as_list(self) -> Option<Items<'t>> {
        if let TreeValue::List(items) = self.value() { Some(items) } else { None }
    }

    /// The kind of value with its article, for messages.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self.value() {
            TreeValue::Null => "null",
            TreeValue::Bool(_) => "a bool",
            TreeValue::Number(_) => "a number",
            TreeValue::String(_) => "a string",
            TreeValue::List(_) => "a list",
            TreeValue::Object(_) => "an object",
        }
    }

    /// Writes the value as JSON text. Numbers that JSON cannot hold become `null`.
    pub fn write_json(self, text: &mut String) {
        match self.value() {
            TreeValue::List(items) => {
                text.push('[');
                for (index, item) in items.enumerate() {
                    text.push_str(if index == 0 { "" } else { "," });
                    item.write_json(text);
                }
                text.push(']');
            }
            TreeValue::Object(entries) => {
                text.push('{');
                for (index, entry) in entries.enumerate() {
                    text.push_str(if index == 0 { "" } else { "," });
                    text.push_str(&serde_json::Value::from(entry.key).to_string());
                    text.push(':');
                    entry.value.write_json(text);
                }
                text.push('}');
            }
            TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {
                text.push_str(&self.to_json().to_string());
            }
        }
    }

    /// The value without positions. Numbers that JSON cannot hold become `null`.
    #[must_use]
    pub fn to_json(self) -> serde_json::Value {
        match self.value() {
            TreeValue::Null => serde_json::Value::Null,
            TreeValue::Bool(truth) => serde_json::Value::Bool(truth),
            TreeValue::Number(number) => number.to_json(),
            TreeValue::String(text) => serde_json::Value::String(text.to_owned()),
            TreeValue::List(items) => items.map(Self::to_json).collect(),
            TreeValue::Object(entries) => {
                let pairs = entries.map(|entry| (entry.key.to_owned(), entry.value.to_json()));
                serde_json::Value::Object(pairs.collect())
            }
        }
    }
}

impl Items<'_> {
    /// An estimate of the remaining bytes of text, for limits that grow with the text.
    pub(crate) fn n_bytes(&self) -> usize {
        self.end.saturating_sub(self.at)
    }
}

impl<'t> Iterator for Items<'t> {
    type Item = Node<'t>;

    fn next(&mut self) -> Option<Node<'t>> {
        self.n_left = self.n_left.checked_sub(1)?;
        let mut cursor = self.tree.cursor(self.at);
        let node = Node { tree: self.tree, at: self.at };
        cursor.skip();
        self.at = cursor.at;
        Some(node)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.n_left, Some(self.n_left))
    }
}

impl ExactSizeIterator for Items<'_> {}

impl<'t> Entries<'t> {
    /// An estimate of the remaining bytes of text, for limits that grow with the text.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// The entry at an [`Entry::offset`].
    pub(crate) fn at(&self, offset: u32) -> Option<Entry<'t>> {
        Self { at: offset as usize, n_left: 1, ..*self }.next()
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = Entry<'t>;

    fn next(&mut self) -> Option<Entry<'t>> {
        self.n_left = self.n_left.checked_sub(1)?;
        let mut cursor = self.tree.cursor(self.at);
        let at = self.at;
        let (key, position) = cursor.key(self.end)?;
        let value = Node { tree: self.tree, at: cursor.at };
        cursor.skip();
        self.at = cursor.at;
        Some(Entry { key, position, value, at })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.n_left, Some(self.n_left))
    }
}

impl ExactSizeIterator for Entries<'_> {}

impl Entry<'_> {
    /// The offset of the entry within its object, for [`Entries::at`].
    pub(crate) fn offset(&self) -> u32 {
        super::position::to_u32(self.at)
    }
}

impl fmt::Debug for Tree {
    /// Shows kind and position, never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root().fmt(f)
    }
}

impl fmt::Debug for Node<'_> {
    /// Shows kind and position, never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position();
        write!(f, "{} at {line}:{column}", self.kind())
    }
}

impl fmt::Debug for TreeValue<'_> {
    /// Shows only the variant, never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "Null",
            Self::Bool(_) => "Bool",
            Self::Number(_) => "Number",
            Self::String(_) => "String",
            Self::List(_) => "List",
            Self::Object(_) => "Object",
        })
    }
}

impl fmt::Debug for Entry<'_> {
    /// Shows key, kind and position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.key, self.value)
    }
}

impl fmt::Debug for Items<'_> {
    /// Shows their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} items", self.n_left)
    }
}

impl fmt::Debug for Entries<'_> {
    /// Shows their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.n_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_comes_back_from_a_tape() {
        let json = serde_json::json!({
            "a": [0, 1, 239, 240, -1, i64::MIN, u64::MAX, 1.5, null, true, false, "", "ü\u{0}", [], {}],
            "": {"x": {"y": "z".repeat(300)}},
        });
        let tree = Tree::from_json(&json);
        assert_eq!(tree.to_json(), json);
        let wide = Number::Integer(i128::from(u64::MAX));
        let TreeValue::Number(found) =
            tree.root().get("a").unwrap().as_list().unwrap().nth(6).unwrap().value()
        else {
            panic!("no number")
        };
        assert_eq!(found, wide);
        assert_eq!(tree.root().get("").unwrap().get("x").unwrap().to_tree().to_json(), json[""]["x"]);
    }

    #[test]
    fn a_first_field_comes_before_the_others() {
        let tree = Tree::from_json(&serde_json::json!({"b": [1], "c": {}}));
        assert_eq!(tree.with_first("a", "x").to_json().to_string(), r#"{"a":"x","b":[1],"c":{}}"#);
    }
}
