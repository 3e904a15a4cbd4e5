//! Tests of what this crate offers to others, in one executable.

mod bad_inputs;
mod canonical;
mod descriptors;
mod forms;
mod hostile;
mod profile;
mod redaction;
mod references;
