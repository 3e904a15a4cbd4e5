//! The REST admin API.

pub mod acks;
pub mod group;
pub mod handle;
pub mod tag;
