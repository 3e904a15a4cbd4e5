//! Tests of what this crate offers to others, in one executable.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that panics has failed, and says where"
)]

mod diff;
mod doubts;
mod lint;
mod random;
mod rows;
mod touched;
mod trees;
