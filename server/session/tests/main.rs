//! Tests of what this crate offers to others, in one executable.

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
