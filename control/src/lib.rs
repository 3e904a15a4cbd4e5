//! Where changes become revisions and publications (D2).
//!
//! The state that was [`accepted`] last is one value. Whatever wants to change it is a cause; [`mod@propose`] says, without doing
//! anything, what it comes to: another such value, with all that has to be stored, published and told for it ([`transition`]).
//! [`change`] does that, and nobody else. Whoever only reads asks [`control`], which clones one pointer. [`follow`] is what goes
//! on by itself.
//!
//! The contents of the files are the *base*, those of the API the *overrides* (D6); the store keeps the overrides, and of the
//! files the last contents, without secrets: for differences, and for the next start.
//!
//! The causes: [`mod@write`] builds a [`candidate`], which says what a write would make of the overrides ([`undo`], [`rules`]), and
//! [`check`]s it; [`load`] takes in what the files give ([`stored_files`], [`mass_removal`]), [`others`] what the store holds
//! ([`stored_overrides`], [`stored_statuses`]), [`wave::step`] lets a change reach a share of the nodes after the other. [`plan`] is
//! what has to be stored, by [`key`]. Route documents are one more input: [`documents`] has them translated into resources. Over the
//! weights of rules, [`weights`] lays what the API says of them; those that [`rollouts`] own are theirs.
//!
//! Modules use each other in one direction only; a test of this crate holds that.

mod accepted;
pub mod acks;
mod candidate;
mod causes;
mod change;
pub mod check;
mod control;
mod differing;
pub mod documents;
mod dry_run;
mod env;
mod follow;
mod history;
mod key;
mod load;
mod mass_removal;
pub mod model;
mod others;
mod plan;
mod propose;
mod resource_record;
mod rollouts;
mod rules;
mod stored_files;
mod stored_overrides;
mod stored_statuses;
mod transition;
mod undo;
mod verify;
mod wave;
mod weights;
mod write;

pub use acks::Acks;
pub use causes::chain;
pub use control::{Control, RuleState};
pub use env::{BoxFuture, ControlParts, Observer, Options, Reload, Verify};
