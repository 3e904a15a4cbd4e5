//! Tests of what this crate offers to others, in one executable.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod bad_inputs;
mod canonical;
mod descriptors;
mod forms;
mod hostile;
mod profile;
mod redaction;
mod references;
