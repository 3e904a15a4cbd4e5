//! Tests of what this crate offers to others, in one executable.

mod diff;
mod doubts;
mod lint;
mod random;
mod rows;
mod touched;
mod trees;
