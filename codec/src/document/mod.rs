//! YAML and JSON texts as trees with the position of every key and every value.

mod json;
mod limits;
mod node;
mod number;
mod position;
mod problem;
mod scalar;
mod tape;
mod yaml;

pub use limits::Limits;
pub use node::{Entries, Entry, Items, Node, Tree, TreeValue};
pub use number::Number;
pub use position::Position;
use position::to_u32;
pub(crate) use problem::{Problems, SyntaxProblem};
pub(crate) use scalar::parse_number;
use tape::Writer;

/// The grammar of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// YAML 1.2, many documents.
    Yaml,
    /// JSON, one document.
    Json,
}

impl Syntax {
    /// JSON for `.json` in any case, YAML for every other name.
    #[must_use]
    pub fn of_file(path: &str) -> Self {
        let is_json = path.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case("json"));
        if is_json { Self::Json } else { Self::Yaml }
    }
}

/// Parses a text into its documents, at least one.
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

/// Checks size and encoding. Removes a byte order mark.
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

/// The longest text whose positions fit into a tape. Longer texts are refused even if the limits allow them.
const MAX_TEXT_BYTES: usize = 256 << 20;
