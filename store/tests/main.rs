//! Tests of what this crate offers to others, in one executable.

mod beginning;
mod common;
mod concurrency;
mod history;
mod recovery;
mod salvage;
mod transfer;
