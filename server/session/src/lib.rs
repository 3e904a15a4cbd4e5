//! The xDS transport protocol for one client, SotW and delta, without I/O.
//!
//! A [`Client`] is given requests, views and the time, and is asked for responses. It reads no clock, starts no task and opens
//! no socket, so every interleaving can be tested as a sequence of calls. The server's `grpc` module drives it.
//!
//! The two variants differ in `sotw` and `delta`. Common to both are what a client wants (`wants`), what it was sent and answered
//! (`ledger`), and the order of sending (`stream`, and `order` for updates and removals that wait). Which type refers to which is a table
//! (`references`), and so is each behaviour that only some types or clients have (`quirks`).
//!
//! Comments cite the rules R1 to R14 of ARCHITECTURE.md, the rules of the protocol (A46) of `docs/design/protocol-rules.md` and the
//! decisions (D13) of `docs/design/decisions.md`.
//!
//! Not implemented: dynamic parameters (A19, A162 to A169), list collections and redirects (A152, A158), errors other than "does
//! not exist" (A174). Endpoints are never invented for a cluster that has none (A77).

mod client;
#[cfg(test)]
mod cost_tests;
mod culprits;
mod delta;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod ledger;
mod limits;
mod order;
mod owed;
mod pairs;
mod phases;
mod quirks;
mod references;
mod request;
mod response;
mod sotw;
mod steps;
mod stream;
mod target;
mod trials;
mod type_state;
mod wants;

pub use client::{Client, Holding};
pub use culprits::{Culprit, Culprits, Program};
pub use error::SessionError;
pub use limits::Limits;
pub use phases::{MAX_PHASES, phases};
pub use request::{DeltaRequest, Nonce, Request, SotwRequest};
pub use response::{Contents, Entries, Entry, Form, Response};
