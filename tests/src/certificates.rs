//! Certificates that are made for one test, and TLS on both sides of an Envoy.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::rpc::{Ask, Told};

/// Whom the clients of a test trust.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Issued {
    /// The certificate, as it is shown.
    pub certificate: CertificateDer<'static>,
    chain_pem: String,
    key: KeyPair,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl fmt::Debug for Issued {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority, which nobody else trusts.
    ///
    /// # Errors
    ///
    /// If no key can be made.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new([])?;
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// A certificate for hosts, of which any may be a wildcard.
    ///
    /// # Errors
    ///
    /// If a host is no name.
    pub fn issue(&self, hosts: &[&str]) -> Result<Issued> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(hosts)?.signed_by(&key, &self.0)?;
        Ok(Issued { certificate: certificate.der().clone(), chain_pem: certificate.pem(), key })
    }

    /// The content of a ConfigMap with it.
    #[must_use]
    pub fn config_map(&self, name: &str) -> String {
        let pem = self.0.pem();
        let lines: String = pem.lines().map(|line| format!("    {line}\n")).collect();
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  ca.crt: |\n{lines}---\n"
        )
    }

    /// A client that trusts only this authority.
    ///
    /// # Errors
    ///
    /// If the certificate is no good, which is a fault of this module.
    pub fn client_config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        Ok(config.with_no_client_auth())
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }
}

impl Issued {
    /// The certificate, in PEM.
    #[must_use]
    pub fn chain_pem(&self) -> &str {
        &self.chain_pem
    }

    /// The private key, in PEM.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The certificate as a Secret, in the form of Kubernetes.
    #[must_use]
    pub fn secret(&self, namespace: &str, name: &str) -> String {
        let certificate = STANDARD.encode(&self.chain_pem);
        let key = STANDARD.encode(self.key_pem());
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\ntype: kubernetes.io/tls\n\
             data: {{tls.crt: {certificate}, tls.key: {key}}}\n---\n"
        )
    }
}

/// Asks over TLS for a server name, and says what certificate was shown.
///
/// # Errors
///
/// If the authority did not issue the certificate for that name, or there is no answer.
pub async fn ask_tls(
    trusted: &Authority,
    server: impl Into<SocketAddr>,
    server_name: &str,
    ask: &Ask,
) -> Result<(Told, CertificateDer<'static>)> {
    let mut config = trusted.client_config()?;
    let protocol: &[u8] = if ask.method.is_some() { b"http/1.1" } else { b"h2" };
    config.alpn_protocols = vec![protocol.to_vec()];
    let (stream, shown) = connect(config, server.into(), server_name).await?;
    Ok((ask.send_over(stream).await?, shown))
}

/// The certificate that a server shows to clients that ask for a name.
///
/// # Errors
///
/// If the authority did not issue the certificate for that name, or there is no answer.
pub async fn shown_certificate(
    trusted: &Authority,
    server: SocketAddr,
    server_name: &str,
) -> Result<CertificateDer<'static>> {
    Ok(connect(trusted.client_config()?, server, server_name).await?.1)
}

async fn connect(
    config: ClientConfig,
    server: SocketAddr,
    server_name: &str,
) -> Result<(TlsStream<TcpStream>, CertificateDer<'static>)> {
    let stream = TcpStream::connect(server).await?;
    let name = ServerName::try_from(server_name.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.context("TLS")?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = shown.context("no certificate")?.clone().into_owned();
    Ok((stream, shown))
}

/// A port in front of a backend that speaks TLS, and nothing else. Dropping it closes the port.
#[derive(Debug)]
pub struct TlsFront {
    /// Where it listens.
    pub addr: SocketAddr,
    seen: Arc<Seen>,
    accepting: AbortHandle,
}

#[derive(Debug, Default)]
struct Seen {
    server_names: Mutex<Vec<String>>,
    n_failed: AtomicU64,
}

impl TlsFront {
    /// Starts it on a free loopback port.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn start(issued: &Issued, backend: SocketAddr) -> Result<Self> {
        let key = PrivateKeyDer::try_from(issued.key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = config.with_single_cert(vec![issued.certificate.clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let seen = Arc::new(Seen::default());
        let accepting = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(forward(acceptor.clone(), stream, backend, Arc::clone(&seen)));
                }
            }
        });
        Ok(Self { addr, seen, accepting: accepting.abort_handle() })
    }

    /// The server names of the connections so far, in their order; empty for one without.
    #[must_use]
    pub fn server_names(&self) -> Vec<String> {
        self.seen.server_names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections came to nothing: the client did not like the certificate, or spoke no TLS.
    #[must_use]
    pub fn n_failed(&self) -> u64 {
        self.seen.n_failed.load(Ordering::Relaxed)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(acceptor: TlsAcceptor, stream: TcpStream, backend: SocketAddr, seen: Arc<Seen>) {
    let Ok(mut client) = acceptor.accept(stream).await else {
        seen.n_failed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let name = client.get_ref().1.server_name().unwrap_or_default().to_owned();
    seen.server_names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    let Ok(mut backend) = TcpStream::connect(backend).await else { return };
    // How a connection ends is the business of its ends.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
}
