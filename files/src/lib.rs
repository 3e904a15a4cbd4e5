//! Files as a source of configuration: which are found, what is read of them, and which objects a load of them leads to.
//!
//! [`walk`] finds the files, and [`read`] reads them. [`load`] computes the next state from the previous one, without I/O and without
//! a clock. [`timing`] decides when to look. The server watches them (`server/src/source`), and commands without a server look once.

pub mod deadline;
mod hidden;
pub mod load;
pub mod names;
pub mod read;
pub mod timing;
pub mod walk;
