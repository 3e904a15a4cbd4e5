//! One accepted connection, and all of a port that are open.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tonic::transport::server::Connected;
use tracing::info;

use crate::listen::Peer;

/// All open connections of a port.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Peer>>,
}

/// An accepted connection.
pub(crate) struct Connection {
    stream: TcpStream,
    peer: Peer,
    connections: Arc<Connections>,
    opening: Option<Opening>,
}

/// The time until a connection has said what protocol it speaks. Nobody pings it before that.
struct Opening {
    n_read: usize,
    patience: Pin<Box<Sleep>>,
}

impl Connections {
    /// Takes in a connection that was accepted.
    pub(crate) fn add(
        self: &Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        silence: Duration,
    ) -> Connection {
        let peer = Peer::new(address);
        self.lock().insert(peer.connection(), peer.clone());
        let opening = Some(Opening { n_read: 0, patience: Box::pin(tokio::time::sleep(silence)) });
        Connection { stream, peer, connections: Arc::clone(self), opening }
    }

    /// Cuts off whatever is open.
    pub(crate) fn cut_off(&self) {
        let open = self.lock();
        if !open.is_empty() {
            info!(n_connections = open.len(), "cutting off the connections that are left");
        }
        open.values().for_each(Peer::cut_off);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Peer>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.peer.is_cut_off() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.peer.address())
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.peer.connection());
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.peer.register(cx.waker());
        self.check()?;
        let n_before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(opening) = &mut self.opening else { return read };
        opening.n_read += buffer.filled().len() - n_before;
        if opening.n_read >= PREFACE {
            self.opening = None;
        } else if read.is_pending() {
            ready!(opening.patience.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How long HTTP/2's opening words are, in bytes.
const PREFACE: usize = 24;
