//! YAML and JSON text as trees in which every key and every value knows its place.

use std::fmt;

mod json;
mod node;
mod scalar;
pub(crate) use scalar::parse_number;
mod tape;
mod yaml;

pub use node::{Entries, Entry, Items, Node, Tree, TreeValue};
use tape::{Cursor, Writer};

/// A place in a text; `0:0` if the value never had one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// A number as exact as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without fraction and exponent.
    Integer(i128),
    /// Any other, and integers beyond 128 bits.
    Float(f64),
}

/// Bounds on what one file can make this program do. A text beyond one of them is refused with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest file in bytes.
    pub max_bytes: usize,
    /// How deep lists and objects may nest. 100 is also the bound of protobuf's own readers.
    pub max_depth: usize,
    /// How much aliases may copy: one for each value and for each 32 bytes of text in it.
    ///
    /// Aliases of a short text may copy less, see [`MIN_ALIAS_COST`].
    pub max_alias_cost: usize,
    /// How many values one document may have, each list, object and scalar being one; keys count with their values.
    pub max_document_values: usize,
    /// How many diagnostics are given for one file before "and N more".
    pub max_diagnostics: usize,
}

impl Limits {
    /// A resource or document of 10 MiB has at most about a million values: the densest of use are endpoints and domains, with ten
    /// bytes for each. Twice that leaves room; what is denser is no configuration.
    pub const DEFAULT_DOCUMENT_VALUES: usize = 2_000_000;

    /// How many objects a file of that many bytes may hold.
    ///
    /// An object that is read takes some 700 bytes besides its content, so what a file holds may not be only objects: one for every
    /// 64 bytes, which is less than any of use has, and 5,000 more for files of short ones.
    #[must_use]
    pub const fn max_objects(n_bytes: usize) -> usize {
        5_000 + n_bytes / 64
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 10 << 20,
            max_depth: 100,
            max_alias_cost: 200_000,
            max_document_values: Self::DEFAULT_DOCUMENT_VALUES,
            max_diagnostics: 100,
        }
    }
}

/// The grammar of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// YAML 1.2, many documents.
    Yaml,
    /// JSON, one document.
    Json,
}

impl Syntax {
    /// JSON for `.json`, in capitals too, YAML for every other name.
    #[must_use]
    pub fn of_file(path: &str) -> Self {
        let is_json = path.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case("json"));
        if is_json { Self::Json } else { Self::Yaml }
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

/// The faults of a text: as many problems as are told, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems {
    pub(crate) list: Vec<SyntaxProblem>,
    pub(crate) n_more: usize,
    limit: usize,
}

impl Problems {
    fn new(limits: &Limits) -> Self {
        Self { list: Vec::new(), n_more: 0, limit: limits.max_diagnostics.max(1) }
    }

    pub(crate) fn of(problem: SyntaxProblem, limits: &Limits) -> Self {
        Self { list: vec![problem], ..Self::new(limits) }
    }

    fn push(&mut self, problem: SyntaxProblem) {
        if self.list.len() < self.limit {
            self.list.push(problem);
        } else {
            self.n_more += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Reads a text into its documents, at least one.
pub(crate) fn parse(content: &[u8], syntax: Syntax, limits: &Limits) -> Result<Vec<Tree>, Problems> {
    let text = check_text(content, limits).map_err(|problem| Problems::of(problem, limits))?;
    let mut tape = Writer::default();
    match syntax {
        Syntax::Yaml => yaml::parse(text, limits, &mut tape)?,
        Syntax::Json if text.trim().is_empty() => {}
        Syntax::Json => json::parse(text, limits, &mut tape)?,
    }
    let documents = Tree::all(tape);
    if documents.is_empty() {
        let message = "the file is empty; delete it to remove its resources";
        let problem = SyntaxProblem::new("empty-file", Position { line: 1, column: 1 }, message);
        return Err(Problems::of(problem, limits));
    }
    Ok(documents)
}

/// Checks size and encoding; a byte order mark is left out.
pub(crate) fn check_text<'a>(content: &'a [u8], limits: &Limits) -> Result<&'a str, SyntaxProblem> {
    let max_bytes = limits.max_bytes.min(MAX_TEXT_BYTES);
    if content.len() > max_bytes {
        let message = format!("the file has {} bytes, the limit is {max_bytes} bytes", content.len());
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

/// Reports every key that stands there twice: `keys` are the places of an object's keys on the tape.
fn check_duplicates(written: &[u8], keys: &mut [u32], problems: &mut Problems) {
    let key = |at: &u32| Cursor { tape: written, at: *at as usize }.key(written.len()).unwrap_or_default();
    keys.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    for pair in keys.windows(2) {
        if let [first, second] = pair {
            let ((first, first_position), (second, position)) = (key(first), key(second));
            if first == second {
                let message = format!("the key {} is there twice", crate::diagnostic::echo_name(second));
                let problem = SyntaxProblem::new("duplicate-key", position, message);
                problems.push(SyntaxProblem { related: Some(first_position), ..problem });
            }
        }
    }
}

fn too_deep(position: Position) -> SyntaxProblem {
    SyntaxProblem::new("too-deep", position, "lists and objects nest too deep")
}

fn too_many_values(position: Position, limits: &Limits) -> SyntaxProblem {
    let message = format!(
        "the document has more than {} values from here on (--max-document-values); split it into several",
        limits.max_document_values
    );
    SyntaxProblem::new("too-many-values", position, message)
}

/// The longest text in which a tape can record places; longer texts are refused whatever the limits say.
const MAX_TEXT_BYTES: usize = 256 << 20;

/// The cost of copies by aliases that any text may have, see [`Limits::max_alias_cost`]. Beyond that they may copy one for every
/// 16 bytes of text: a text that grows more by its aliases has been written to be large, and not to be read.
pub(crate) const MIN_ALIAS_COST: usize = 10_000;

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
