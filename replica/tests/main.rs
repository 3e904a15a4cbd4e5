//! Tests of what this crate offers to others, in one executable.

mod adopt;
mod compact;
mod feed;
mod presence;
mod replicas;
mod support;
