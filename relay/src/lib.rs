//! A client of another xDS server: what a node of its own would be sent there, held and told apart by whether it is all there yet.
//!
//! A [`Subscriber`] is given what the server answers and the time, and returns what to request. It follows references: it subscribes to the
//! types of its roots, and to each resource that those it holds refer to. It opens no socket and reads no clock, so every interleaving can be
//! tested as a sequence of calls. [`RelayConfig`] is the file that says which server, and for which nodes.

mod config;
mod message;
mod subscriber;

pub use config::{Identity, RelayConfig, RelayTls, Roots};
pub use message::{Request, Response, Sent, Variant};
pub use subscriber::{Awaited, Subscriber};
