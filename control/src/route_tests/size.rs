//! The size of one test.

use xds_codec::document::Node;

use crate::question::{Fields, Part};

/// Returns `false`, with a fault, if an item is too large.
pub(super) fn fits(fields: &mut Fields, at: &Part<'_>) -> bool {
    let n = size(at.node);
    if n > MAX_ITEM_BYTES {
        let message = format!("has {n} bytes; the limit is {MAX_ITEM_BYTES} bytes");
        fields.fault("too-long", at, message);
    }
    n <= MAX_ITEM_BYTES
}

/// The length of a value as JSON.
fn size(node: Node<'_>) -> usize {
    let mut text = String::new();
    node.write_json(&mut text);
    text.len()
}

/// Tests of one document or file.
pub const MAX_TESTS: usize = 1_000;

/// Bytes of one item, as JSON.
pub const MAX_ITEM_BYTES: usize = 64 << 10;
