//! The files as a source: which are watched, when they are read again, and which objects are served (D5).
//!
//! [`walk`] finds the files, and [`read`] reads them. [`load`] computes the next state from the previous one, without I/O and without
//! a clock. [`timing`] decides when to look, and [`watch`] drives them all. [`again`] reads a file once more, for the lines in it.

pub mod again;
pub mod deadline;
mod events;
mod hidden;
pub mod load;
pub mod names;
pub mod read;
pub mod timing;
pub mod walk;
pub mod watch;
