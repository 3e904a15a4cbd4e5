//! Tests of what this crate offers to others, in one executable.

mod draining;
mod identities;
mod publishing;
mod recent_tables;
mod status;
mod waves;
