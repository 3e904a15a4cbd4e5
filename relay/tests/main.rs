//! Tests of what this crate offers to others, in one executable.

mod histories;
mod sequences;
