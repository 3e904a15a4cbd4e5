//! Tests of what this crate offers to others, in one executable.

#![expect(clippy::expect_used, reason = "a test that panics has failed, and says where")]

mod check;
mod garbage;
mod hitless;
mod model;
mod phases;
mod properties;
mod rejections;
mod scenario;
mod scenarios;
mod world;
