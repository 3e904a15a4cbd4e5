//! The xDS transport protocol for one client, SotW and delta, without I/O.

mod error;
mod request;
mod response;

pub use error::SessionError;
pub use request::{DeltaRequest, Nonce, Request, SotwRequest};
pub use response::{Contents, Entries, Entry, Form, Response};
