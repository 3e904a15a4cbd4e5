//! Tests of what this crate offers to others, in one executable.

#[path = "../../server/session/tests/check/mod.rs"]
mod check;
mod pair;
mod properties;
mod scenarios;
mod story;
mod world;
