//! Finds a resource again in the documents of its file.

use crate::document::{Node, Position, Tree, TreeValue};

/// The object that begins at the place, which is how [`Origin`](xds_cache::Origin) remembers a resource.
pub(super) fn resource_at(documents: &[Tree], line: u32, column: u32) -> Option<Node<'_>> {
    let wanted = Position { line, column };
    if line == 0 {
        return None;
    }
    let mut left: Vec<Node<'_>> = documents.iter().rev().map(Tree::root).collect();
    while let Some(tree) = left.pop() {
        match tree.value() {
            TreeValue::Object(_) if tree.position() == wanted => return Some(tree),
            TreeValue::Object(entries) => extend_reversed(&mut left, entries.map(|entry| entry.value)),
            TreeValue::List(items) => extend_reversed(&mut left, items),
            TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {}
        }
    }
    None
}

/// Puts values on the stack so that the first one comes off first.
fn extend_reversed<'t>(left: &mut Vec<Node<'t>>, more: impl Iterator<Item = Node<'t>>) {
    let start = left.len();
    left.extend(more);
    if let Some(added) = left.get_mut(start..) {
        added.reverse();
    }
}
