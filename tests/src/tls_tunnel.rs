//! A port that takes plaintext and sends it on over TLS, so that any client of a test can reach a server that speaks only TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
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

/// How a connection ends is the business of its ends: what one of them closes or resets is closed at the other.
async fn carry(connector: TlsConnector, mut near: TcpStream, server: SocketAddr) {
    let Ok(name) = ServerName::try_from("localhost") else { return };
    let Ok(far) = TcpStream::connect(server).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let Ok(mut far) = connector.connect(name, far).await else { return };
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}
