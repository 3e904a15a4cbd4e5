//! The REST admin API.

pub mod handle;
