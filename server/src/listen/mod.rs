//! Accepting connections: one loop for every port, and the connections that are open.
//!
//! A [`Port`] has its rules: how many connections, and how long they may be silent, idle, or take nothing. A [`Connection`]
//! knows its [`Peer`], can be cut off from outside, and ends when its client floods it with control frames. Whatever is done to
//! the bytes of a connection before HTTP sees them belongs here.

mod body;
mod connection;
mod files;
mod flood;
mod frames;
mod http;
mod peer;
mod port;
#[cfg(test)]
mod tests;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio::net::TcpListener;
use tracing::warn;

pub(crate) use body::keep_pace;
pub(crate) use connection::Connection;
pub(crate) use files::{Shares, raise_limit};
pub(crate) use http::serve_http;
pub(crate) use peer::{Busy, Peer, Source};
pub(crate) use port::{Port, PortRules};
pub(crate) use tls::{Outcome, Tls, TlsHealth, TlsStatus};
pub use tls::{TlsFiles, TlsTiming, TlsVersion};

/// The connections of `listener`. Never ends, and never fails: errors of accepting are logged, and it tries again.
pub(crate) fn incoming(
    listener: TcpListener,
    port: Arc<Port>,
) -> impl Stream<Item = Result<Connection, io::Error>> {
    futures_util::stream::unfold((listener, port), move |(listener, port)| async move {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // Without it the algorithms of both ends wait for each other (40 ms for every response).
                    if let Err(error) = stream.set_nodelay(true) {
                        warn!(%address, %error, "a connection could not be set up");
                        continue;
                    }
                    let Some(connection) = port.add(stream, address) else { continue };
                    return Some((Ok(connection), (listener, port)));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    })
}

/// Returns `true` if only the connection that was to be accepted failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// How long to wait when nothing can be accepted, as when the process has no file descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
