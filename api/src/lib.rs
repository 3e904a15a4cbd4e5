//! The REST admin API.
//!
//! [`endpoints`] is the table of all that is served, one row per verb and path; [`router`](mod@router) and `openapi` are made
//! of it. A handler ([`endpoint`]) reads its input strictly ([`input`]), asks the server through one handle ([`handle`]) and
//! answers with a value; [`answer`] and [`problem`] write values and errors out, in one place each. Every change goes through
//! [`write`](mod@write), which also waits for the clients ([`acks`]). [`guard`] decides who may ask at all.

pub mod acks;
pub mod affected;
mod answer;
pub mod document;
pub mod endpoint;
mod endpoints;
pub mod group;
pub mod guard;
pub mod handle;
pub mod input;
mod line_diff;
mod openapi;
mod page;
pub mod phases;
pub mod problem;
pub mod rollouts;
pub mod router;
mod state;
pub mod tag;
#[cfg(test)]
mod tests;
mod time;
mod trials;
pub mod wave;
pub mod weights;
mod write;

pub use acks::Acks;
pub use endpoint::events::EventHub;
pub use guard::{Access, Token};
pub use router::{probe_router, router, router_with};
pub use state::ApiState;
pub use time::rfc3339;
pub use trials::Trials;
