//! An accepted connection: its bytes on the way to HTTP and back.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;
use xds_cache::Reason;

use crate::listen::flood::Allowance;
use crate::listen::frames::{self, CONNECT_AGAIN, Frames, calm_down};
use crate::listen::stream::Stream;
use crate::listen::{Peer, Port};

/// An accepted connection.
pub(crate) struct Connection {
    stream: Stream,
    peer: Peer,
    port: Arc<Port>,
    spoken: Spoken,
}

/// The protocol that the client is known to speak.
enum Spoken {
    /// So many bytes have come, and they are those of HTTP/2 so far.
    Preface(usize),
    /// Something that has no frames.
    Other,
    Http2(Box<Http2>),
    /// HTTP/2, but no one listens any more.
    Ended(Box<Ended>),
}

/// A connection of frames.
struct Http2 {
    received: Frames,
    sent: Frames,
    allowance: Allowance,
    /// The last stream that the client opened.
    last_stream: u32,
    /// How many bytes the client has been sent of the frame that asks it to connect again.
    n_told: u8,
}

/// The time for the client to read why its connection ends.
struct Ended {
    patience: Pin<Box<Sleep>>,
    n_left: usize,
}

impl Connection {
    /// A connection that was accepted on `port` and has a place there.
    pub(super) fn new(stream: Stream, peer: Peer, port: Arc<Port>) -> Self {
        Self { stream, peer, port, spoken: Spoken::Preface(0) }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    fn check(&self) -> io::Result<()> {
        if self.peer.is_cut_off() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.resolve_doubt();
        Ok(())
    }

    /// Verifies the client's certificate again, if somebody doubts it and the handshake is over.
    fn resolve_doubt(&self) {
        if !self.peer.is_doubted() {
            return;
        }
        let Stream::Tls(secured) = &self.stream else { return };
        let Some(chain) = secured.chain() else { return };
        // Before, so that a change meanwhile has it verified once more.
        self.peer.settle();
        self.port.verify_again(&self.peer, chain);
    }

    /// Goes on with the handshake, if the connection has one.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Stream::Tls(secured) = &mut self.stream else { return Poll::Ready(Ok(())) };
        match ready!(secured.poll_handshake(cx)) {
            Ok(None) => Poll::Ready(Ok(())),
            Ok(Some(agreed)) => {
                self.port.agreed(&self.peer, agreed);
                self.resolve_doubt();
                Poll::Ready(Ok(()))
            }
            Err(failure) => {
                self.port.failed(&self.peer, &failure);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, failure)))
            }
        }
    }

    /// Looks at what was received.
    ///
    /// # Errors
    ///
    /// The client sends more control frames than it may.
    fn watch(&mut self, mut data: &[u8]) -> Result<(), Flood> {
        if let Spoken::Preface(n_before) = self.spoken {
            let expected = &PREFACE[n_before..];
            let n = data.len().min(expected.len());
            let n_read = n_before + n;
            self.spoken = if data[..n] != expected[..n] {
                Spoken::Other
            } else if n_read < PREFACE.len() {
                Spoken::Preface(n_read)
            } else {
                Spoken::Http2(Box::new(Http2::new(Instant::now())))
            };
            data = &data[n..];
            if matches!(self.spoken, Spoken::Http2(_)) {
                self.peer.set_spoken();
            }
        }
        match &mut self.spoken {
            Spoken::Http2(http2) => http2.watch(data),
            Spoken::Preface(_) | Spoken::Other | Spoken::Ended(_) => Ok(()),
        }
    }

    /// Sends the client a GOAWAY, if it can be written at once, and takes in no more of its bytes.
    fn end(&mut self, flood: Flood, cx: &mut Context<'_>) {
        self.port.refuse(Reason::Flood, &self.peer, "too many control frames");
        if flood.is_between {
            // If the socket does not take the whole frame at once, the client does not read, and the frame would not help.
            let _ = Pin::new(&mut self.stream).poll_write(cx, &calm_down(flood.last_stream));
        }
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        let patience = Box::pin(tokio::time::sleep(FAREWELL));
        self.spoken = Spoken::Ended(Box::new(Ended { patience, n_left: FAREWELL_BYTES }));
    }

    /// Reads and drops bytes, so that the client can read to the end: unread bytes would reset the connection.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 16 * 1024];
        let Spoken::Ended(ended) = &mut self.spoken else { return Poll::Ready(Ok(())) };
        while ended.n_left > 0 {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    ended.n_left = ended.n_left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(ended.patience.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }

    /// Tells a client that is to leave so, between two frames. It may take several calls; nothing else is written meanwhile.
    fn poll_tell(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Spoken::Http2(http2) = &mut self.spoken else { return Poll::Ready(Ok(())) };
        if !self.peer.is_leaving() || (http2.n_told == 0 && !http2.sent.is_between()) {
            return Poll::Ready(Ok(()));
        }
        let mut is_news = false;
        while let Some(rest @ [_, ..]) = CONNECT_AGAIN.get(usize::from(http2.n_told)..) {
            let n_written = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if n_written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            // The frame has 17 bytes.
            http2.n_told += n_written as u8;
            is_news = true;
        }
        if is_news {
            // TLS may keep it otherwise. If it has to wait, the next write goes on.
            let _ = Pin::new(&mut self.stream).poll_flush(cx)?;
        }
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, written: &Poll<io::Result<usize>>, data: impl FnOnce(&mut Frames, usize)) {
        match written {
            Poll::Pending => self.peer.set_blocked(),
            Poll::Ready(Err(_)) => {}
            Poll::Ready(Ok(n)) => {
                self.peer.set_flowing();
                if let Spoken::Http2(http2) = &mut self.spoken {
                    http2.allowance.sent(*n);
                    data(&mut http2.sent, *n);
                }
            }
        }
    }
}

/// A client that sends too many control frames.
#[derive(Clone, Copy, Debug)]
struct Flood {
    last_stream: u32,
    /// True if the server is between two frames, so that it can write one.
    is_between: bool,
}

impl Http2 {
    fn new(now: Instant) -> Self {
        let (received, sent) = (Frames::default(), Frames::default());
        Self { received, sent, allowance: Allowance::new(now), last_stream: 0, n_told: 0 }
    }

    fn watch(&mut self, data: &[u8]) -> Result<(), Flood> {
        let mut n_control = 0;
        let last_stream = &mut self.last_stream;
        self.received.follow(data, |header| {
            n_control += u32::from(header.is_control());
            if header.kind == frames::HEADERS {
                *last_stream = header.stream.max(*last_stream);
            }
        });
        // The clock is only read where there is something to charge.
        if n_control == 0 || self.allowance.take(n_control, Instant::now()) {
            return Ok(());
        }
        Err(Flood { last_stream: self.last_stream, is_between: self.sent.is_between() })
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
        self.port.remove(&self.peer);
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
        ready!(self.poll_ready(cx))?;
        if matches!(self.spoken, Spoken::Ended(_)) {
            return self.poll_farewell(cx);
        }
        // If it has to wait, it goes on with the next read or write.
        let _ = self.poll_tell(cx)?;
        let n_before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let Err(flood) = self.watch(&buffer.filled()[n_before..]) else { return Poll::Ready(Ok(())) };
        buffer.set_filled(n_before);
        self.end(flood, cx);
        self.poll_farewell(cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        ready!(self.poll_ready(cx))?;
        if matches!(self.spoken, Spoken::Ended(_)) {
            return Poll::Ready(Ok(data.len()));
        }
        ready!(self.poll_tell(cx))?;
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.written(&written, |sent, n| sent.follow(data.get(..n).unwrap_or(data), |_| {}));
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        ready!(self.poll_ready(cx))?;
        if matches!(self.spoken, Spoken::Ended(_)) {
            return Poll::Ready(Ok(data.iter().map(|slice| slice.len()).sum()));
        }
        ready!(self.poll_tell(cx))?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.written(&written, |sent, mut n| {
            for slice in data {
                let part = slice.get(..n).unwrap_or(slice);
                sent.follow(part, |_| {});
                n -= part.len();
            }
        });
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_pending() {
            self.peer.set_blocked();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        if closed.is_pending() {
            self.peer.set_blocked();
        }
        closed
    }
}

/// The opening words of HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a client may take to read the GOAWAY, and how many bytes it may send meanwhile.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection>() <= 72, "{}", size_of::<Connection>());
        assert!(size_of::<Http2>() <= 72, "{}", size_of::<Http2>());
    }
}
