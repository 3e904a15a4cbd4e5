//! Tests of what this crate offers to others, in one executable.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod draining;
mod identities;
mod publishing;
mod recent_tables;
mod status;
mod waves;
