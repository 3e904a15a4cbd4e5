//! A distance between a client and a server, on loopback.
//!
//! On loopback alone an answer comes before the next request is looked at, and what a server sends in the wrong order is in the right
//! place a moment later. Bytes that take 20 ms each way show what users at a distance see.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// A port that leads to another one, where every byte arrives late, in both directions and in order.
///
/// Bytes are late by the delay, however many are under way: it is the distance that is imitated, not a narrow line. When either side
/// closes, what is under way still arrives. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Delay {
    addr: SocketAddr,
    accepting: AbortHandle,
    cuts: Arc<Notify>,
}

impl Delay {
    /// Opens a port that leads to `to`; bytes take `each_way` in each direction.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub async fn start(to: SocketAddr, each_way: Duration) -> Result<Self> {
        let listener = TcpListener::bind((to.ip(), 0)).await.context("a port for the delay")?;
        let addr = listener.local_addr()?;
        let cuts = Arc::new(Notify::new());
        let accepting = tokio::spawn(accept(listener, to, each_way, Arc::clone(&cuts))).abort_handle();
        Ok(Self { addr, accepting, cuts })
    }

    /// Ends all connections; what is under way is lost.
    pub fn cut(&self) {
        self.cuts.notify_one();
    }

    /// Where to connect instead.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, each_way: Duration, cuts: Arc<Notify>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                connections.spawn(connect(client, to, each_way));
                while connections.try_join_next().is_some() {}
            }
            () = cuts.notified() => connections.shutdown().await,
        }
    }
}

/// Carries bytes both ways until both sides have closed. Who cannot be reached or breaks off ends the connection, as without a delay.
async fn connect(client: TcpStream, to: SocketAddr, each_way: Duration) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(carry(from_client, to_server, each_way), carry(from_server, to_client, each_way));
}

/// Carries bytes one way.
async fn carry(from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin, delay: Duration) {
    let (sender, receiver) = channel(MAX_CHUNKS);
    tokio::join!(read(from, sender, delay), write(receiver, to));
}

async fn read(mut from: impl AsyncRead + Unpin, chunks: Sender<(Instant, Bytes)>, delay: Duration) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK_BYTES);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let due = Instant::now() + delay;
        if chunks.send((due, buffer.split().freeze())).await.is_err() {
            return;
        }
    }
}

async fn write(mut chunks: Receiver<(Instant, Bytes)>, mut to: impl AsyncWrite + Unpin) {
    while let Some((due, chunk)) = chunks.recv().await {
        sleep_until(due).await;
        if to.write_all(&chunk).await.is_err() {
            return;
        }
    }
    // The other side is gone already, or learns it now.
    let _ = to.shutdown().await;
}

/// How much is read at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// How much may be under way on each connection and in each direction, in chunks: 4 MiB, more than any configuration of these tests.
/// A sender that sends more is not read from until something has arrived.
const MAX_CHUNKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::http::Connection;
    use crate::wait::{PATIENCE, wait_for};

    #[tokio::test]
    async fn an_answer_takes_twice_the_delay() -> Result<()> {
        let backend = Backend::start("b1").await?;
        let delay = Delay::start(backend.addr(), Duration::from_millis(50)).await?;
        let mut connection = Connection::open(delay.addr()).await?;
        for _ in 0..2 {
            let asked = Instant::now();
            assert_eq!(connection.get("/").await?.text(), "b1");
            assert!(asked.elapsed() >= Duration::from_millis(100), "{:?}", asked.elapsed());
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_connection_that_is_cut_ends_and_another_one_works() -> Result<()> {
        let backend = Backend::start("b1").await?;
        let delay = Delay::start(backend.addr(), Duration::ZERO).await?;
        let mut connection = Connection::open(delay.addr()).await?;
        connection.get("/").await?;
        delay.cut();
        wait_for("the end of the connection", PATIENCE, async || {
            anyhow::ensure!(connection.get("/").await.is_err(), "it is still open");
            Ok(())
        })
        .await?;
        assert_eq!(Connection::open(delay.addr()).await?.get("/").await?.text(), "b1");
        Ok(())
    }

    #[tokio::test]
    async fn many_bytes_arrive_whole_and_in_order() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let delay = Delay::start(listener.local_addr()?, Duration::from_millis(5)).await?;
        let sent: Vec<u8> = (0..10_000_000_u32).map(|i| i.to_le_bytes()[i as usize % 3]).collect();
        let to_send = sent.clone();
        let sending = tokio::spawn(async move {
            let mut stream = TcpStream::connect(delay.addr()).await?;
            stream.write_all(&to_send).await?;
            stream.shutdown().await?;
            // The delay must outlive what is under way: the other side closes when it has all.
            stream.read_to_end(&mut Vec::new()).await?;
            drop(delay);
            anyhow::Ok(())
        });
        let (mut stream, _) = listener.accept().await?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await?;
        drop(stream);
        sending.await??;
        assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
        Ok(())
    }
}
