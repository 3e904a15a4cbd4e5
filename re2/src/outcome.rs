//! The reading of an expression: how, and what came of it.

/// How a client reads characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// gRPC.
    Utf8,
    /// Envoy: each byte is a character.
    Latin1,
}

/// The reason why RE2 refuses an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexError {
    /// The column in the expression, in characters from 1.
    pub column: usize,
    /// What is wrong.
    pub wrong: String,
    /// What would be right.
    pub right: String,
}

impl std::fmt::Display for RegexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "column {}: {}; {}", self.column, self.wrong, self.right)
    }
}

/// Parts of an expression on which libraries differ, each with the column where it is used first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `(?<name>…)`, which C-core's RE2 is too old for.
    pub angle_name: Option<usize>,
    /// `\C`, which Go does not have.
    pub any_byte: Option<usize>,
    /// A group with the name of another one, which Go refuses.
    pub repeated_name: Option<usize>,
    /// `\p{Greek}`, whose program is not computed.
    pub(crate) has_unicode_class: bool,
}
