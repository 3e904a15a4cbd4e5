//! The authorities that are trusted when webhooks and Prometheus are called over https.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore};

/// The certificates of authorities: those of the system, and those of a file.
///
/// The system's are read when the first call needs them; `SSL_CERT_FILE` and `SSL_CERT_DIR` say where they are if they
/// are elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    own: Vec<CertificateDer<'static>>,
    config: Arc<OnceCell<Arc<ClientConfig>>>,
}

impl Trust {
    /// Reads a PEM file with certificates that are believed besides those of the system.
    ///
    /// # Errors
    ///
    /// Says why there are none in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
        let own: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        if own.is_empty() {
            return Err("it contains no certificate: write it as PEM, -----BEGIN CERTIFICATE-----".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for (index, certificate) in own.iter().enumerate() {
            let number = index + 1;
            roots.add(certificate.clone()).map_err(|error| format!("certificate {number}: {error}"))?;
        }
        Ok(Self { own, config: Arc::default() })
    }

    /// Shakes hands on a connection to a host, whose certificate must be for it and from an authority that is believed.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the certificate, or why there is none.
    pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> Result<TlsStream<S>, String> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("{host:?} is not a name that a certificate can have"))?;
        let config = self.config.get_or_try_init(|| self.load()).await?;
        let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        connecting.await.map_err(|error| say(host, &error))
    }

    async fn load(&self) -> Result<Arc<ClientConfig>, String> {
        let own = self.own.clone();
        let config = spawn_blocking(move || client_config(own)).await;
        config.map_err(|error| error.to_string())?.map(Arc::new)
    }
}

fn client_config(own: Vec<CertificateDer<'static>>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in system.errors {
        tracing::warn!(%error, "some certificates of the system cannot be read");
    }
    // Systems have certificates that are none by today's rules; one such must not spoil the others.
    roots.add_parsable_certificates(system.certs);
    roots.add_parsable_certificates(own);
    if roots.is_empty() {
        return Err(
            "no authority is trusted: the system has no certificates; give some with --rollout-ca".to_owned()
        );
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Why a handshake failed.
fn say(host: &str, error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match inner {
        Some(TlsError::InvalidCertificate(reason)) => format!(
            "the certificate of {host} is not trusted: {reason}; give the certificate of its authority with --rollout-ca"
        ),
        Some(other) => format!("TLS with {host} failed: {other}"),
        None => format!("TLS with {host} failed: {error}"),
    }
}
