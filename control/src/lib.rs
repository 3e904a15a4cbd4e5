//! Where changes become revisions and publications (D2).
//!
//! The last [`accepted`] state is one value. Everything that wants to change it is a cause. [`mod@propose`] computes the result without
//! any effect: the next accepted value, and everything to store, publish and report for it ([`transition`]). Only [`change`] carries
//! that out. Readers ask [`control`], which clones one pointer. [`follow`] starts changes without a request. [`spread`] measures how
//! fast they reach clients, and [`stages`] how long each part of the work took.
//!
//! The contents of the files are the *base*, those of the API the *overrides* (D6). The store keeps the overrides. It also keeps the
//! last contents of the files, without secrets, for differences and for the next start. A store that several servers share has the base
//! itself, whole ([`shared_files`]).
//!
//! The causes: [`mod@write`] builds a [`candidate`] of the overrides ([`undo`], [`rules`]), or of the files of a shared store ([`push`]), and [`check`]s it. [`missing`] says which served resources name what is not served. [`own_files`] decides when the files that a server of such a store watches are pushed, and [`follow_files`] does it. [`load`] takes in the
//! files ([`stored_files`], [`mass_removal`]), and [`others`] takes in the store ([`stored_overrides`], [`stored_statuses`]).
//! [`wave::step`] gives a change to one share of the nodes after the other. [`plan`] says what has to be stored under which [`key`].
//! [`route_tests`] runs RouteTests, and [`route_gate`] finds those that a change breaks, [`hold`] refuses or holds the change, and [`tested`] is their outcome on what is served.
//! An [`oracle`] may judge what a change would publish, and [`judged`] says what its answer means. [`documents`] translates route documents into resources. [`weights`] applies overrides of weights to rules; [`rollouts`] own some
//! of these rules. [`mod@withhold`] keeps secrets from groups without identities, wherever a group is made, and [`secrets`] reports it.
//!
//! [`peers`] are the other servers with the same store, whose clients count too.
//!
//! Questions about requests are answered from accepted states: [`mod@whole_state`] rebuilds older ones, [`requests`] compares two of them, and
//! [`places`] says where their parts are written.
//!
//! Modules use each other in one direction only; `tests/tests/checks/architecture.rs` checks that.

mod accepted;
pub mod acks;
mod boxed;
mod candidate;
mod causes;
mod change;
pub mod check;
pub mod connected;
mod control;
mod differing;
pub mod documents;
mod dry_run;
mod elsewhere;
mod env;
mod fingerprint;
mod follow;
mod follow_files;
mod history;
mod hold;
mod judged;
mod key;
mod load;
mod mass_removal;
mod missing;
pub mod model;
mod oracle;
mod others;
mod own_files;
pub mod peers;
mod places;
mod plan;
pub mod programmed;
mod propose;
mod push;
pub mod question;
mod request;
pub mod requests;
mod resource_record;
mod rollouts;
mod roster;
mod route_gate;
pub mod route_tests;
mod rules;
mod scope;
mod secrets;
mod shared_files;
mod spread;
mod stages;
mod stored_files;
mod stored_overrides;
mod stored_statuses;
mod tested;
mod transition;
mod undo;
mod verify;
mod warning;
mod wave;
mod weights;
mod whole_state;
mod withhold;
mod write;

pub use acks::Acks;
pub use boxed::BoxFuture;
pub use causes::chain;
pub use control::{Control, RuleState, WeakControl};
pub use env::{Condition, ControlParts, Observer, Options, Reload, Sharing, Verify};
pub use fingerprint::Fingerprint;
pub use missing::{MISSING_REFERENCES, warnings_of_body};
pub use oracle::{Judgement, Oracle, OraclePolicy};
pub use own_files::{OwnFiles, OwnState, SaveSet};
pub use places::Places;
pub use roster::{Roster, RosterStream};
pub use secrets::withheld;
pub use spread::SHARES;
pub use stages::{Changed, Stage, Stages};
pub use tested::Tested;
pub use whole_state::WholeState;
pub use withhold::{Guarding, Secrets};
