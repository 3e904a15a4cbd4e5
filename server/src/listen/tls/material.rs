//! Certificates, keys and authorities, and the configuration that is made of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig, SupportedProtocolVersion, version};

use super::pem::{Leaf, Piece, TlsError};
use super::trust::{Domains, End, Trust, TrustContents, TrustFiles};
use crate::spiffe::Svid;

/// The files of a port that speaks TLS, and what it demands of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's own certificate.
    pub own: Own,
    /// Whose certificates are accepted from clients; without any file, clients are not asked for certificates.
    pub trust: TrustFiles,
    /// True if the handshake fails without a client certificate.
    pub needs_client_certificate: bool,
    /// The oldest version that clients may speak.
    pub min_version: TlsVersion,
}

/// Where the server's own certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Two files.
    Files {
        /// The chain of certificates, the server's own first.
        certificate: PathBuf,
        /// The key of the server's own certificate.
        key: PathBuf,
    },
    /// The SPIFFE agent.
    Agent,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2: an Envoy offers no newer one unless its bootstrap says so.
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "1.3")]
    Tls13,
}

/// The contents of the files of one port, and what the agent sent for it.
pub(super) struct Contents {
    certificate: Piece,
    key: Piece,
    trust: TrustContents,
}

/// What new connections take.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    pub(super) config: Arc<ServerConfig>,
    pub(super) trust: Arc<Trust>,
    /// Equal for those that trust the same.
    pub(super) trust_hash: blake3::Hash,
    /// When the server's certificate begins and ends.
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// When that ends with which clients are verified.
    pub(crate) ends: Vec<End>,
    /// The names that the certificate is for.
    pub(crate) names: Vec<String>,
}

impl TlsFiles {
    /// Returns `true` if everything comes from the agent, which sends it as a whole.
    pub(super) fn has_no_file(&self) -> bool {
        let TrustFiles { authorities, domains, crl, .. } = &self.trust;
        let is_file = |domains: &Domains| matches!(domains, Domains::Files(files) if !files.is_empty());
        self.own == Own::Agent && authorities.is_none() && crl.is_none() && !is_file(domains)
    }
}

impl Contents {
    /// Reads all files; `None` if the certificate is one of the agent's, and it has sent none.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unreadable`] names the first file that cannot be read.
    pub(super) fn read(files: &TlsFiles, svid: Option<&Svid>) -> Result<Option<Self>, TlsError> {
        let (certificate, key) = match (&files.own, svid) {
            (Own::Files { certificate, key }, _) => (Piece::read(certificate)?, Piece::read(key)?),
            (Own::Agent, Some(svid)) => (
                Piece::of_agent(format!("the certificate for {}", svid.id.as_str()), &svid.chain),
                Piece::of_agent(format!("the key for {}", svid.id.as_str()), &svid.key),
            ),
            (Own::Agent, None) => return Ok(None),
        };
        Ok(Some(Self { certificate, key, trust: TrustContents::read(&files.trust, svid)? }))
    }

    /// Equal for equal contents.
    pub(super) fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        let (certificate, key) = (blake3::hash(self.certificate.bytes()), blake3::hash(self.key.bytes()));
        for hash in [certificate, key, self.trust.hash()] {
            hasher.update(hash.as_bytes());
        }
        hasher.finalize()
    }
}

impl Material {
    /// Makes a configuration of the contents of `files`.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what cannot be used at `now`, and why.
    pub(super) fn new(files: &TlsFiles, contents: &Contents, now: SystemTime) -> Result<Self, TlsError> {
        let chain = contents.certificate.certificates()?;
        let leaf = chain.first().map(|leaf| Leaf::read(&contents.certificate, leaf)).transpose()?;
        let Some(leaf) = leaf else { return Err(contents.certificate.unfit("it contains no certificate")) };
        leaf.check(&contents.certificate, now)?;
        let key = contents.key.key()?;
        let (trust, ends) = Trust::new(&files.trust, &contents.trust, files.needs_client_certificate)?;
        let trust = Arc::new(trust);
        let verifier: Arc<dyn ClientCertVerifier> = match files.trust.asks() {
            true => Arc::clone(&trust) as _,
            false => WebPkiClientVerifier::no_client_auth(),
        };
        let config = Arc::new(config(files.min_version, contents, verifier, chain, key)?);
        let Leaf { not_before, not_after, names, .. } = leaf;
        Ok(Self { config, trust, trust_hash: contents.trust.hash(), not_before, not_after, ends, names })
    }
}

fn config(
    min_version: TlsVersion,
    contents: &Contents,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, TlsError> {
    let unfit = |error: rustls::Error| TlsError::Unfit(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&min_version.and_newer()).map_err(unfit)?;
    let config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key);
    let mut config = config.map_err(|error| {
        if matches!(error, rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) {
            let (certificate, key) = (contents.certificate.place().clone(), contents.key.place().clone());
            return TlsError::KeyMismatch { certificate, key };
        }
        contents.key.unfit(format!("the key cannot be used: {error}"))
    })?;
    // grpc-go since 1.67 and C-core refuse a server that chooses no protocol.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would let a client in whose certificate has expired since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

impl TlsVersion {
    fn and_newer(self) -> Vec<&'static SupportedProtocolVersion> {
        match self {
            Self::Tls12 => vec![&version::TLS12, &version::TLS13],
            Self::Tls13 => vec![&version::TLS13],
        }
    }
}

impl std::fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        })
    }
}
