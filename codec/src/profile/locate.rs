//! Finds a resource again in the documents of its file.

use crate::document::{Position, Tree, TreeValue};

/// The object that begins at the place, which is how [`Origin`](xds_cache::Origin) remembers a resource.
pub(super) fn resource_at(documents: &[Tree], line: u32, column: u32) -> Option<&Tree> {
    let wanted = Position { line, column };
    if line == 0 {
        return None;
    }
    let mut left: Vec<&Tree> = documents.iter().rev().collect();
    while let Some(tree) = left.pop() {
        match &tree.value {
            TreeValue::Object(_) if tree.position == wanted => return Some(tree),
            TreeValue::Object(entries) => left.extend(entries.iter().rev().map(|entry| &entry.value)),
            TreeValue::List(items) => left.extend(items.iter().rev()),
            TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {}
        }
    }
    None
}
