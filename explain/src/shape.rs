//! The texts that a condition takes, in the form that automata are made from.

use crate::regex::Pattern;

/// A set of texts. A condition takes the union of its shapes.
#[derive(Clone, Debug)]
pub(crate) enum Shape<'c> {
    Exact {
        text: String,
        folds: bool,
    },
    Prefix {
        text: String,
        folds: bool,
    },
    Suffix {
        text: String,
        folds: bool,
    },
    Contains {
        text: String,
        folds: bool,
    },
    Regex(&'c Pattern),
    /// A whole text by an expression of the `regex` crates that reads bytes.
    Expression(String),
}

/// A text of which every byte stands for itself in an expression.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!(r"\x{byte:02X}")).collect()
}
