//! Accepting connections: one loop for every port, and the connections that are open.
//!
//! A [`Connection`] knows its [`Peer`] and can be cut off from outside. Whatever is done to the bytes of a connection
//! before HTTP sees them belongs here; what is said over HTTP does not.

mod connection;
mod peer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio::net::TcpListener;
use tracing::warn;

pub(crate) use connection::{Connection, Connections};
pub(crate) use peer::{Peer, Source};

/// The connections of `listener`. Never ends, and never fails: errors of accepting are logged, and it tries again.
///
/// A connection that has not said within `silence` which protocol it speaks fails.
pub(crate) fn incoming(
    listener: TcpListener,
    connections: Arc<Connections>,
    silence: Duration,
) -> impl Stream<Item = Result<Connection, io::Error>> {
    futures_util::stream::unfold((listener, connections), move |(listener, connections)| async move {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // Without it the algorithms of both ends wait for each other (40 ms for every response).
                    if let Err(error) = stream.set_nodelay(true) {
                        warn!(%address, %error, "a connection could not be set up");
                        continue;
                    }
                    let connection = connections.add(stream, address, silence);
                    return Some((Ok(connection), (listener, connections)));
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

/// Whether only the connection that was to be accepted failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// How long to wait when nothing can be accepted, as when the process has no file descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
