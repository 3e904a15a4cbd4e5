//! Tests of what this crate offers to others, in one executable.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics has failed, and says where"
)]

mod absence;
#[path = "../../server/session/tests/check/mod.rs"]
mod check;
mod pair;
mod properties;
mod scenarios;
mod simulation;
mod story;
mod world;
