//! The REST admin API.
//!
//! [`endpoints`] is the table of all endpoints, with a row for each verb and path; [`router`](mod@router) and `openapi` are made from
//! it. A handler ([`endpoint`]) reads its input strictly ([`input`]), asks the control ([`xds_control::Control`]) and answers with a
//! value. [`answer`] writes all values, and [`problem`] all errors. Every change goes through [`write`](mod@write), which also waits
//! for the clients ([`xds_control::acks`]), those of other servers too ([`everyone`]). [`guard`] decides which requests are let in, by [`access`], and
//! [`measure`] counts them all.

pub mod access;
mod answer;
mod caller;
pub mod counts;
pub mod endpoint;
mod endpoints;
mod events;
mod everyone;
mod fleet;
pub mod fresh;
mod guard;
pub mod input;
mod line_diff;
mod measure;
mod models;
mod openapi;
mod page;
mod peer_answers;
mod phases;
pub mod problem;
mod reach;
mod record;
mod requests;
pub mod rollouts;
pub mod router;
mod seen;
mod served;
mod state;
mod tag;
#[cfg(test)]
mod tests;
mod trials;
mod write;

pub use access::{Access, SignIn, Token, VerifiedClient};
pub use caller::Connection;
pub use events::EventHub;
pub use models::Models;
pub use peer_answers::answer as answer_peer;
pub use router::{probe_router, router, router_with};
pub use state::{ApiState, CertificateEnd, Certificates, FileTexts, RefusedResource, Relay, RelayedNode};
pub use trials::Trials;
pub use xds_units::rfc3339;
