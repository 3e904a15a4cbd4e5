//! The REST admin API.
