//! A port that leads to another one, and can be cut, frozen or slowed while it is used.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// The state of a [`Proxy`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    /// Bytes pass.
    Open,
    /// Connections have ended, and new ones end at once.
    Cut,
    /// Connections stay, new ones are accepted, and no byte passes. The bytes pass once the link is open again.
    Frozen,
    /// As `Frozen`, for what comes from whoever has connected. What the other side sends passes.
    FrozenThere,
    /// As `Frozen`, for what goes back to whoever has connected.
    FrozenBack,
    /// Each piece is late by so much.
    Slow(Duration),
}

/// A port that leads to another one. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    link: watch::Sender<Link>,
    accepting: AbortHandle,
}

impl Proxy {
    /// Opens a loopback port that leads to `to`. `to` need not listen yet.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub async fn start(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((to.ip(), 0)).await.context("a port for the proxy")?;
        let addr = listener.local_addr()?;
        let (link, changes) = watch::channel(Link::Open);
        let accepting = tokio::spawn(accept(listener, to, changes)).abort_handle();
        Ok(Self { addr, link, accepting })
    }

    /// Where to connect instead.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the state, also of connections that exist.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, link: watch::Receiver<Link>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    let mut changes = link.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                if *link.borrow() != Link::Cut {
                    connections.spawn(connect(client, to, link.clone()));
                }
                while connections.try_join_next().is_some() {}
            }
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                if *changes.borrow_and_update() == Link::Cut {
                    connections.shutdown().await;
                }
            }
        }
    }
}

async fn connect(client: TcpStream, to: SocketAddr, mut link: watch::Receiver<Link>) {
    if link.wait_for(|link| *link != Link::Frozen).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(to).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        carry(from_client, to_server, Link::FrozenThere, link.clone()),
        carry(from_server, to_client, Link::FrozenBack, link)
    );
}

/// Carries bytes one way until that side closes or the other one is gone. `frozen` is the state in which this way alone is frozen.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    frozen: Link,
    mut link: watch::Receiver<Link>,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 || pass(frozen, &mut link).await.is_none() || to.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
    // The other side is gone already, or learns it now.
    let _ = to.shutdown().await;
}

/// Waits until bytes may pass; `None` if the proxy is gone.
async fn pass(frozen: Link, link: &mut watch::Receiver<Link>) -> Option<()> {
    let state = *link.wait_for(|link| ![Link::Frozen, frozen].contains(link)).await.ok()?;
    if let Link::Slow(delay) = state {
        sleep(delay).await;
    }
    Some(())
}

/// How much is read at a time.
const CHUNK_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use anyhow::ensure;
    use tokio::time::timeout;

    use super::*;
    use crate::backend::Backend;
    use crate::http::Connection;
    use crate::wait::{PATIENCE, wait_for};

    #[tokio::test]
    async fn a_frozen_link_holds_bytes_back_and_a_cut_one_ends_connections() -> Result<()> {
        let backend = Backend::start("b1").await?;
        let proxy = Proxy::start(backend.addr()).await?;
        let mut connection = Connection::open(proxy.addr()).await?;
        assert_eq!(connection.get("/").await?.text(), "b1");

        proxy.set(Link::Frozen);
        {
            let mut asked = std::pin::pin!(connection.get("/"));
            assert!(timeout(Duration::from_millis(100), asked.as_mut()).await.is_err(), "it is frozen");
            proxy.set(Link::Open);
            assert_eq!(asked.await?.text(), "b1");
        }

        for one_way in [Link::FrozenThere, Link::FrozenBack] {
            let before = backend.n_requests();
            proxy.set(one_way);
            let mut asked = std::pin::pin!(connection.get("/"));
            assert!(timeout(Duration::from_millis(100), asked.as_mut()).await.is_err(), "{one_way:?}");
            assert_eq!(backend.n_requests() - before, u64::from(one_way == Link::FrozenBack), "{one_way:?}");
            proxy.set(Link::Open);
            assert_eq!(asked.await?.text(), "b1");
        }

        proxy.set(Link::Cut);
        wait_for("the end of the connection", PATIENCE, async || {
            ensure!(connection.get("/").await.is_err(), "it is still open");
            Ok(())
        })
        .await?;
        let mut refused = Connection::open(proxy.addr()).await?;
        assert!(refused.get("/").await.is_err(), "nothing passes");
        proxy.set(Link::Slow(Duration::from_millis(20)));
        assert_eq!(Connection::open(proxy.addr()).await?.get("/").await?.text(), "b1");
        Ok(())
    }
}
