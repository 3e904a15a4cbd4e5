//! Tests of what this crate offers to others, in one executable.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod beginning;
mod common;
mod concurrency;
mod history;
mod recovery;
mod salvage;
mod transfer;
