//! A port by which the other members of an etcd reach one of them, with a link for each of them.
//!
//! A member tells every other one the same address, so the port finds out who connects: a member says its id in a header of its requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::proxy::{Link, Proxy};

/// The port of one member. Dropping it closes it and all connections.
#[derive(Debug)]
pub(crate) struct PeerPort {
    addr: SocketAddr,
    links: Arc<Links>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Links {
    to: SocketAddr,
    by_sender: Mutex<BTreeMap<String, Sender>>,
}

/// A member that connects.
#[derive(Debug)]
struct Sender {
    link: Link,
    /// `None` until it connects.
    proxy: Option<Proxy>,
}

impl PeerPort {
    /// Opens a loopback port that leads to the member that listens at `to`, or will.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub(crate) async fn start(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((to.ip(), 0)).await.context("a port for a member")?;
        let addr = listener.local_addr()?;
        let links = Arc::new(Links { to, by_sender: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&links))).abort_handle();
        Ok(Self { addr, links, accepting })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the link of the member with an id. [`UNKNOWN`] is whoever does not say its id in the first request of a connection: a
    /// probe of any member, on whose connection other requests of it may follow.
    pub(crate) fn set(&self, sender: &str, link: Link) {
        let mut senders = self.links.lock();
        let known = senders.entry(sender.to_owned()).or_insert(Sender { link, proxy: None });
        known.link = link;
        if let Some(proxy) = &known.proxy {
            proxy.set(link);
        }
    }
}

impl Drop for PeerPort {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Links {
    /// Where to connect for a member.
    async fn of(&self, sender: &str) -> Result<SocketAddr> {
        let known = |senders: &BTreeMap<String, Sender>| Some(senders.get(sender)?.proxy.as_ref()?.addr());
        if let Some(addr) = known(&self.lock()) {
            return Ok(addr);
        }
        let made = Proxy::start(self.to).await?;
        let mut senders = self.lock();
        let known = senders.entry(sender.to_owned()).or_insert(Sender { link: Link::Open, proxy: None });
        // Another connection of the member may have made it meanwhile.
        let proxy = known.proxy.get_or_insert(made);
        proxy.set(known.link);
        Ok(proxy.addr())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sender>> {
        self.by_sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, links: Arc<Links>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // A connection that fails is closed; members connect again.
        connections.spawn(carry(stream, Arc::clone(&links)));
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(mut stream: TcpStream, links: Arc<Links>) -> Result<()> {
    let begin = head(&mut stream).await?;
    let mut onward = TcpStream::connect(links.of(sender(&begin)).await?).await?;
    stream.set_nodelay(true)?;
    onward.set_nodelay(true)?;
    onward.write_all(&begin).await?;
    copy_bidirectional(&mut stream, &mut onward).await?;
    Ok(())
}

/// Reads the head of the first request, and what has come with it.
async fn head(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read_buf(&mut read).await?;
        ensure!(n > 0 && read.len() < MAX_HEAD_BYTES, "no head within {} bytes", read.len());
    }
    Ok(read)
}

/// The id of the member that made a request.
fn sender(head: &[u8]) -> &str {
    let lines = head.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let mut lines = lines.map(str::trim_end).take_while(|line| !line.is_empty());
    lines.find_map(|line| line.strip_prefix(SENDER)).unwrap_or(UNKNOWN)
}

/// The header with the id of a member, as etcd writes it.
const SENDER: &str = "X-Server-From: ";
/// Whoever does not say its id.
pub(crate) const UNKNOWN: &str = "";
/// Much more than a head has.
const MAX_HEAD_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_found_in_the_head_alone() {
        let with = "GET /raft/stream/message/1 HTTP/1.1\r\nHost: x\r\nX-Server-From: a1b2\r\n\r\n";
        let without = "GET /raft/probing HTTP/1.1\r\nHost: x\r\n\r\nX-Server-From: a1b2\r\n\r\n";
        assert_eq!(sender(with.as_bytes()), "a1b2");
        assert_eq!(sender(without.as_bytes()), UNKNOWN);
    }
}
