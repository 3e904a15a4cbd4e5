//! Wave deployments: a change that is accepted reaches a share of the nodes first (D14).
//!
//! A wave deployment records the previous value of each object that its change touched. The accepted state is *ahead*; the same
//! state with the previous values put back is *behind* ([`former`]). All other changes are in both. [`value`] is the wave deployment
//! itself. [`begin`] decides which changes go in waves and which conflict with them, and [`rank`] which nodes come first. [`step`] looks
//! at the clients and continues, or puts the change back; [`failing`] has what was
//! rejected before. [`report`] describes its state, and [`diagnostics`] reports it at the files.
//! The store keeps what must survive a restart ([`record`], [`ended`]). There is one wave deployment at a time.

pub(crate) mod begin;
pub(crate) mod close;
pub(crate) mod diagnostics;
pub(crate) mod ended;
mod failing;
pub(crate) mod former;
mod rank;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod step;
pub(crate) mod value;
