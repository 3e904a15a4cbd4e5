//! Accepting connections: one loop for every port, and the connections that are open.
//!
//! A [`Port`] has rules: how many connections there may be, and how long they may be silent or idle, or refuse to read. A
//! [`Connection`] knows its [`Peer`], can be cut off from outside, verifies its client's certificate again when asked, and ends if its client floods it with control frames. Everything
//! that happens to the bytes of a connection before HTTP sees them belongs here.

mod accept;
mod body;
mod connection;
mod crowd;
mod files;
mod flood;
mod frames;
mod http;
mod peer;
mod port;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod untaken;

pub(crate) use accept::incoming;
pub(crate) use body::keep_pace;
pub(crate) use connection::Connection;
pub(crate) use crowd::Crowds;
pub(crate) use files::{Shares, raise_limit};
pub(crate) use http::serve_http;
pub(crate) use peer::{Busy, Distrust, Peer, Source};
pub(crate) use port::{Port, PortRules};
pub use tls::{Domains, Own, TlsFiles, TlsTiming, TlsVersion, TrustFiles};
pub(crate) use tls::{Ends, Outcome, Tls, TlsHealth, TlsStatus};
pub(crate) use untaken::Untaken;
