//! A port that takes plaintext and sends it on over TLS, so that any client of a test can reach a server that speaks only TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// The near end of a tunnel. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct TlsTunnel {
    /// Where it listens.
    pub addr: SocketAddr,
    accepting: AbortHandle,
}

impl TlsTunnel {
    /// Listens on a free loopback port; the server has the name `localhost`.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub async fn start(config: ClientConfig, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let connector = TlsConnector::from(Arc::new(config));
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(carry(connector.clone(), near, server));
            }
        });
        Ok(Self { addr, accepting: accepting.abort_handle() })
    }
}

impl Drop for TlsTunnel {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// How a connection ends is the business of its ends: what one of them closes or resets is closed at the other. What a server says
/// before it refuses to read on still arrives.
async fn carry(connector: TlsConnector, near: TcpStream, server: SocketAddr) {
    let Ok(name) = ServerName::try_from("localhost") else { return };
    let Ok(far) = TcpStream::connect(server).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let Ok(far) = connector.connect(name, far).await else { return };
    let (mut near_reads, mut near_writes) = near.into_split();
    let (mut far_reads, mut far_writes) = split(far);
    tokio::join!(carry_on(&mut near_reads, &mut far_writes), carry_on(&mut far_reads, &mut near_writes));
}

/// Copies until one side ends.
async fn carry_on(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let _ = copy(from, to).await;
    let _ = to.shutdown().await;
}
