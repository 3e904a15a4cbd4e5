//! Tests of what this crate offers to others, in one executable.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that panics has failed, and says where"
)]

mod adopt;
mod compact;
mod feed;
mod presence;
mod replicas;
mod support;
