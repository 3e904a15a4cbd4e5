//! Reasons why a text cannot be read.

use super::limits::Limits;
use super::position::Position;
use super::tape::Cursor;

/// The reason why a text cannot be read. Nothing in it can be used then.
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

/// The faults of a text: the reported problems, and the number of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems {
    pub(crate) list: Vec<SyntaxProblem>,
    pub(crate) n_more: usize,
    limit: usize,
}

impl Problems {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { list: Vec::new(), n_more: 0, limit: limits.max_diagnostics.max(1) }
    }

    pub(crate) fn of(problem: SyntaxProblem, limits: &Limits) -> Self {
        Self { list: vec![problem], ..Self::new(limits) }
    }

    pub(super) fn push(&mut self, problem: SyntaxProblem) {
        if self.list.len() < self.limit {
            self.list.push(problem);
        } else {
            self.n_more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Reports every key that appears twice. `keys` has the offsets of an object's keys on the tape.
pub(super) fn check_duplicates(written: &[u8], keys: &mut [u32], problems: &mut Problems) {
    let key = |at: &u32| Cursor { tape: written, at: *at as usize }.key(written.len()).unwrap_or_default();
    keys.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    for pair in keys.windows(2) {
        if let [first, second] = pair {
            let ((first, first_position), (second, position)) = (key(first), key(second));
            if first == second {
                let message = format!("the key {} appears twice", crate::diagnostic::echo_name(second));
                let problem = SyntaxProblem::new("duplicate-key", position, message);
                problems.push(SyntaxProblem { related: Some(first_position), ..problem });
            }
        }
    }
}

pub(super) fn too_deep(position: Position) -> SyntaxProblem {
    SyntaxProblem::new("too-deep", position, "lists and objects are nested too deeply")
}

pub(super) fn too_many_values(position: Position, limits: &Limits) -> SyntaxProblem {
    let message = format!(
        "the document has more than {} values (--max-document-values), and this is the first one too many; split it",
        limits.max_document_values
    );
    SyntaxProblem::new("too-many-values", position, message)
}
