//! The loop that accepts connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio::net::TcpListener;
use tracing::warn;

use crate::listen::{Connection, Port};

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
                    let Some((stream, peer)) = port.admit(stream, address) else { continue };
                    let connection = Connection::new(stream, peer, Arc::clone(&port));
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
