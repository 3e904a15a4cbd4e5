//! The files as a source: what is watched, when it is read again, and what of it is served (D5).
//!
//! [`walk`] finds the files, [`read`] reads them, [`load`] makes the next state of that and of the previous one, without I/O
//! and without a clock, [`timing`] decides when to look, and [`watch`] drives them.

pub mod deadline;
mod events;
mod hidden;
pub mod load;
pub mod names;
pub mod read;
pub mod timing;
pub mod walk;
pub mod watch;
