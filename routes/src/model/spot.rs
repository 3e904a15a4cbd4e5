//! The place of a field: its path, and its line and column in the file.

use std::hash::{Hash, Hasher};

use super::FieldPath;

/// A field of a document, and its position in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// The field; empty for the document itself.
    pub path: FieldPath,
    /// The line, from 1; 0 if it has none, as in a JSON body.
    pub line: u32,
    /// The column in characters, from 1; 0 if it has none.
    pub column: u32,
}

impl Hash for Spot {
    /// Adds nothing, because spots do not affect generated resources: moved lines must not change a hash.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
