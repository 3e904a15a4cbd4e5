//! The files as a source: which are watched, when they are read again, and which objects are served (D5).
//!
//! [`xds_files`] finds and reads them, and computes what they lead to. [`watch`] drives that. [`again`] reads a file once more, for the
//! lines in it.

pub mod again;
mod events;
pub mod watch;
