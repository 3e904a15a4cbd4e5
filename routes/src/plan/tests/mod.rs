//! Plans of documents that are made by hand.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests")]

pub(crate) mod support;

mod attachment;
mod conditions;
mod conformance;
mod hosts;
mod precedence;
