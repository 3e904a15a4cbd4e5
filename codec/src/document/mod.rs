//! YAML and JSON text as trees in which every key and every value knows its place.

use std::fmt;

mod json;
mod scalar;
pub(crate) use scalar::parse_number;
mod yaml;

/// A place in a text; `0:0` if the value never had one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// A value and where it begins.
#[derive(Clone, PartialEq)]
pub struct Tree {
    /// Where the value begins; of an alias, where the anchored value begins.
    pub position: Position,
    /// The value.
    pub value: TreeValue,
}

/// A JSON value; what YAML has beyond that is refused.
#[derive(Clone, PartialEq)]
pub enum TreeValue {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`, and no other word.
    Bool(bool),
    /// A number in JSON's notation.
    Number(Number),
    /// Any other scalar.
    String(String),
    /// A list.
    List(Vec<Tree>),
    /// An object in the order of the text; no key is there twice.
    Object(Vec<Entry>),
}

/// A number as exact as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without fraction and exponent.
    Integer(i128),
    /// Any other, and integers beyond 128 bits.
    Float(f64),
}

/// A key of an object with its value.
#[derive(Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub position: Position,
    /// The value.
    pub value: Tree,
}

/// Bounds on what one file can make this program do. A text beyond one of them is refused with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest file in bytes.
    pub max_bytes: usize,
    /// How deep lists and objects may nest. 100 is also the bound of protobuf's own readers.
    pub max_depth: usize,
    /// How much aliases may copy: one for each value and for each 32 bytes of text in it.
    pub max_alias_cost: usize,
    /// How many diagnostics are given for one file before "and N more".
    pub max_diagnostics: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 10 << 20, max_depth: 100, max_alias_cost: 200_000, max_diagnostics: 100 }
    }
}

/// Which grammar a text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// YAML 1.2, many documents.
    Yaml,
    /// JSON, one document.
    Json,
}

impl Syntax {
    /// JSON for `.json`, YAML for every other name.
    #[must_use]
    pub fn of_file(path: &str) -> Self {
        if path.ends_with(".json") { Self::Json } else { Self::Yaml }
    }
}

/// Why a text cannot be read; nothing of it can be used then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxProblem {
    pub(crate) code: &'static str,
    pub(crate) position: Position,
    pub(crate) message: String,
    pub(crate) related: Option<Position>,
}

impl SyntaxProblem {
    pub(crate) fn new(code: &'static str, position: Position, message: impl Into<String>) -> Self {
        Self { code, position, message: message.into(), related: None }
    }
}

/// Reads a text into its documents, at least one.
pub(crate) fn parse(
    content: &[u8],
    syntax: Syntax,
    limits: &Limits,
) -> Result<Vec<Tree>, Vec<SyntaxProblem>> {
    let text = check_text(content, limits).map_err(|problem| vec![problem])?;
    let documents = match syntax {
        Syntax::Yaml => yaml::parse(text, limits)?,
        Syntax::Json if text.trim().is_empty() => Vec::new(),
        Syntax::Json => vec![json::parse(text, limits)?],
    };
    let documents: Vec<Tree> = documents.into_iter().filter(|tree| tree.value != TreeValue::Null).collect();
    if documents.is_empty() {
        let message = "the file is empty; delete it to remove its resources";
        return Err(vec![SyntaxProblem::new("empty-file", Position { line: 1, column: 1 }, message)]);
    }
    Ok(documents)
}

/// Checks size and encoding; a byte order mark is left out.
pub(crate) fn check_text<'a>(content: &'a [u8], limits: &Limits) -> Result<&'a str, SyntaxProblem> {
    if content.len() > limits.max_bytes {
        let message =
            format!("the file has {} bytes, the limit is {} bytes", content.len(), limits.max_bytes);
        return Err(SyntaxProblem::new("file-too-large", Position { line: 1, column: 1 }, message));
    }
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    std::str::from_utf8(content).map_err(|error| {
        let valid = String::from_utf8_lossy(content.get(..error.valid_up_to()).unwrap_or_default());
        let (before, line) = valid.rsplit_once('\n').map_or(("", &*valid), |(before, line)| (before, line));
        let n_before = if valid.contains('\n') { before.matches('\n').count() + 1 } else { 0 };
        let position = Position { line: to_u32(n_before + 1), column: to_u32(line.chars().count() + 1) };
        SyntaxProblem::new("not-utf-8", position, "the file is not UTF-8 text")
    })
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Reports every key that `entries` holds twice.
fn check_duplicates(entries: &[Entry], problems: &mut Vec<SyntaxProblem>) {
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by(|a, b| (&a.key, a.position).cmp(&(&b.key, b.position)));
    for pair in order.windows(2) {
        if let [first, second] = pair
            && first.key == second.key
        {
            let message = format!("the key {} is there twice", crate::diagnostic::echo_name(&second.key));
            let problem = SyntaxProblem::new("duplicate-key", second.position, message);
            problems.push(SyntaxProblem { related: Some(first.position), ..problem });
        }
    }
}

impl Tree {
    /// The tree of a JSON value; it has no positions.
    #[must_use]
    pub fn from_json(json: &serde_json::Value) -> Self {
        let value = match json {
            serde_json::Value::Null => TreeValue::Null,
            serde_json::Value::Bool(truth) => TreeValue::Bool(*truth),
            serde_json::Value::Number(number) => TreeValue::Number(Number::from_json(number)),
            serde_json::Value::String(text) => TreeValue::String(text.clone()),
            serde_json::Value::Array(items) => TreeValue::List(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(entries) => TreeValue::Object(
                entries
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        position: Position::default(),
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self { position: Position::default(), value }
    }

    /// The value without positions. Numbers that JSON cannot hold become `null`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            TreeValue::Null => serde_json::Value::Null,
            TreeValue::Bool(truth) => serde_json::Value::Bool(*truth),
            TreeValue::Number(number) => number.to_json(),
            TreeValue::String(text) => serde_json::Value::String(text.clone()),
            TreeValue::List(items) => items.iter().map(Self::to_json).collect(),
            TreeValue::Object(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                serde_json::Value::Object(pairs.collect())
            }
        }
    }

    /// The entries of an object; none of anything else.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        if let TreeValue::Object(entries) = &self.value { entries } else { &[] }
    }

    /// The entry with that key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value with that key, unless it is null.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value).filter(|tree| tree.value != TreeValue::Null)
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let TreeValue::String(text) = &self.value { Some(text) } else { None }
    }

    /// The items of a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let TreeValue::List(items) = &self.value { Some(items) } else { None }
    }

    /// What kind of value it is, with its article, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.value {
            TreeValue::Null => "null",
            TreeValue::Bool(_) => "a bool",
            TreeValue::Number(_) => "a number",
            TreeValue::String(_) => "a string",
            TreeValue::List(_) => "a list",
            TreeValue::Object(_) => "an object",
        }
    }
}

impl fmt::Debug for Tree {
    /// Kind and place; never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}", self.kind(), self.position.line, self.position.column)
    }
}

impl fmt::Debug for TreeValue {
    /// Only the variant; never the content, which may be a secret.
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

impl fmt::Debug for Entry {
    /// Key, kind and place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.key, self.value)
    }
}

impl Number {
    fn from_json(number: &serde_json::Number) -> Self {
        number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Integer)
    }

    fn to_json(self) -> serde_json::Value {
        match self {
            Self::Integer(integer) => i64::try_from(integer)
                .map(serde_json::Value::from)
                .or_else(|_| u64::try_from(integer).map(serde_json::Value::from))
                .unwrap_or_else(|_| serde_json::Value::from(integer as f64)),
            Self::Float(float) => serde_json::Value::from(float),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => write!(f, "{integer}"),
            Self::Float(float) => write!(f, "{float}"),
        }
    }
}
