//! Connections of gRPC clients that are made by hand: plaintext, or TLS with the certificates of a test.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use http::Uri;
use http_body_util::Empty;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

/// How to reach a server.
#[derive(Clone)]
pub struct Dial {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

/// The bytes of a connection, however they get there.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

impl Dial {
    /// In plaintext.
    #[must_use]
    pub fn plaintext(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// With TLS. The server has the name `localhost` and a certificate of `ca.crt` in `directory`; the client's own is in `NAME.crt` and
    /// `NAME.key`, if it has one. No session is resumed.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn tls(address: SocketAddr, directory: &Path, own: Option<&str>) -> Result<Self> {
        let read = |file: &str| fs::read(directory.join(file)).with_context(|| file.to_owned());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read("ca.crt")?)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(name) => {
                let certificate = CertificateDer::from_pem_slice(&read(&format!("{name}.crt"))?)?;
                let key = PrivateKeyDer::from_pem_slice(&read(&format!("{name}.key"))?)?;
                config.with_client_auth_cert(vec![certificate], key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { address, tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// A new connection.
    ///
    /// # Errors
    ///
    /// If the server does not take it.
    pub async fn connect(&self) -> Result<Channel> {
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint
            .connect_with_connector(self.clone())
            .await
            .with_context(|| format!("connect to {}", self.address))
    }

    /// One HTTP/2 connection, which is not opened again when it has ended.
    ///
    /// # Errors
    ///
    /// If the server does not take it.
    pub async fn open(&self) -> Result<SendRequest<Empty<bytes::Bytes>>> {
        let stream = self.clone().bytes().await?;
        let (requests, connection) = handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        Ok(requests)
    }

    async fn bytes(self) -> io::Result<TokioIo<Box<dyn Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = self.tls else { return Ok(TokioIo::new(Box::new(stream))) };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        Ok(TokioIo::new(Box::new(tls.connect(name, stream).await?)))
    }
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Bytes>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    /// The server is always the same, whatever the URI says.
    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().bytes())
    }
}
