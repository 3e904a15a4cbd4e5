//! Progressive rollouts: traffic moves from one backend to another in steps, and back at once if something is wrong.
//!
//! A [`Rollout`] is a value. It is given what happens ([`Input`]: verbs, ACKs, measurements, answers of webhooks, time) and says what
//! it wants done ([`Effect`]). It reads no clock, starts no task and opens no socket, so every interleaving can be tested as a
//! sequence of calls. Its driver
//!
//! 1. calls [`Rollout::start`] or [`Rollout::handle`] with the time;
//! 2. stores the new state if [`Outcome::is_changed`], in one commit with the weights of [`Effect::SetWeights`] if there are any;
//! 3. carries out the effects;
//! 4. after a restart, sends [`Input::Restarted`] first, which repeats all effects that may have been lost.
//!
//! Several drivers may drive one rollout: a driver stores a state only in place of the one that it was computed from, and if another
//! driver was faster, it continues with that one's state ([`Rollout::taken`]).
//!
//! Rules that always hold: the canary's share is nothing, everything, or that of a step. An abort gives all traffic to the stable backend
//! in one change. A step counts when the concerned clients have ACKed it. A pause is never shorter than specified, whatever the clock
//! does. A rollout repeats its requests after a restart.

mod distribution;
mod effect;
mod evidence;
mod fields;
mod judge;
mod machine;
mod patch;
mod phase;
mod spec;
mod state;
mod status;
mod verdict;

pub use distribution::{Distribution, DistributionError};
pub use effect::{
    AckStatus, Counts, Effect, Event, EventKind, HookPayload, Input, PerClient, Reading, Silence, Split,
    Traffic, Verb, Window,
};
pub use evidence::windows;
pub use fields::SpecFault;
pub use judge::{Comparison, compare};
pub use machine::{IllegalTransition, Outcome, RESTART_GRACE_MS};
pub use patch::file_patch;
pub use phase::Phase;
pub use spec::{
    AckTimeout, Analysis, HeaderMatch, HeaderValue, Hook, HookKind, MAX_HOOKS, MAX_STEPS, Policy, Prometheus,
    RolloutSpec, RuleKey, SpecError, Step,
};
pub use state::{Figures, MAX_EVENTS, MAX_TICK_MS, MAX_WAKE_MS, Rollout};
pub use status::{AckCounts, RolloutStatus, Shares};
