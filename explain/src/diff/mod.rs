//! The requests that a change of resources moves.
//!
//! [`diff`] compares two models of one client. It finds the requests whose destination differs, as [`Class`]es with an example each, and
//! says what it did not decide. Everything that is equal on both sides costs a comparison; what differs is followed through the space of
//! requests (`space`).

mod clusters;
mod compare;
mod hosts;
mod listeners;
mod report;
mod routes;
mod write;

pub use compare::{Effort, diff, diff_within};
pub use report::{Changes, Class, ClassKind, MAX_CLASSES, Undecided};
