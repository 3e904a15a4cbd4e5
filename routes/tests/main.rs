//! Tests of what this crate offers to others, in one executable.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, and says where"
)]

mod bad_input;
mod fixtures;
mod golden;
mod hostile_documents;
mod policies;
mod properties;
mod read_gateway_api;
mod smi_examples;
mod support;
mod work;
