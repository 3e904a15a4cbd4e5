//! Wave deployments: a change that is accepted reaches a share of the nodes first (D14).
//!
//! A wave deployment records the previous value of each object that its change touched. The accepted state is *ahead*; the same
//! state with the previous values put back is *behind* ([`former`]). All other changes are in both. [`value`] is one, [`begin`] says which changes are
//! deployed so and which are in the way of one, [`rank`] which nodes come first, [`step`] looks at the clients and goes on, or puts the change back,
//! [`report`] tells of it, [`diagnostics`] at the files that it is about. What has to survive a restart is in the store ([`record`],
//! [`ended`]). One wave deployment is under way at a time.

pub(crate) mod begin;
pub(crate) mod close;
pub(crate) mod diagnostics;
pub(crate) mod ended;
pub(crate) mod former;
mod rank;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod step;
pub(crate) mod value;
