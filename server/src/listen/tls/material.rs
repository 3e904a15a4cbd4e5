//! Certificates, keys and authorities in files, and the configuration that is made of them.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    self, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use x509_parser::time::ASN1Time;
use xds_api::rfc3339;

/// The files of a port that speaks TLS, and what it demands of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain of certificates, the server's own first.
    pub certificate: PathBuf,
    /// The key of the server's own certificate.
    pub key: PathBuf,
    /// The authorities of clients; `None` if clients are not asked for certificates.
    pub client_ca: Option<PathBuf>,
    /// True if the handshake fails without a client certificate.
    pub needs_client_certificate: bool,
    /// The oldest version that clients may speak.
    pub min_version: TlsVersion,
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

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {fault}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// The fault in it.
        fault: String,
    },
    /// The certificate is for another key.
    #[error(
        "the key in {} does not belong to the first certificate in {}: they belong to different pairs, or only one of the two files has been replaced",
        key.display(),
        certificate.display()
    )]
    KeyMismatch {
        /// The certificates.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// The library refuses the configuration.
    #[error("these files do not make a TLS configuration: {0}")]
    Unfit(String),
}

/// The contents of the files of one port.
pub(super) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// What new connections take.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    pub(super) config: Arc<ServerConfig>,
    /// When the server's certificate begins and ends.
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// When the first authority of clients ends.
    pub(crate) client_ca_not_after: Option<SystemTime>,
    /// The names that the certificate is for.
    pub(crate) names: Vec<String>,
}

impl Contents {
    /// # Errors
    ///
    /// [`TlsError::Unreadable`] names the first file that cannot be read.
    pub(super) fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    /// Equal for equal contents.
    pub(super) fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for file in [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten()
        {
            hasher.update(blake3::hash(file).as_bytes());
        }
        hasher.finalize()
    }
}

impl Material {
    /// Makes a configuration of the contents of `files`.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says which file cannot be used at `now`, and why.
    pub(super) fn new(files: &TlsFiles, contents: &Contents, now: SystemTime) -> Result<Self, TlsError> {
        let chain = certificates(&files.certificate, &contents.certificate)?;
        let leaf = chain.first().map(|leaf| Leaf::read(&files.certificate, leaf)).transpose()?;
        let Some(leaf) = leaf else { return Err(no_certificate(&files.certificate)) };
        leaf.check(&files.certificate, now)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| TlsError::Contents {
            path: files.key.clone(),
            // The text of other errors could show a part of the key.
            fault: if matches!(error, pem::Error::NoItemsFound) {
                "it contains no key: write it as PEM, -----BEGIN PRIVATE KEY-----".to_owned()
            } else {
                "the key is not valid PEM".to_owned()
            },
        })?;
        let authorities = match (&files.client_ca, &contents.client_ca) {
            (Some(path), Some(contents)) => Some(authorities(path, contents)?),
            (_, _) => None,
        };
        let client_ca_not_after = authorities.as_ref().map(|(_, not_after)| *not_after);
        let verifier = match authorities {
            Some((roots, _)) => verifier(roots, files.needs_client_certificate)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let config = config(files, verifier, chain, key)?;
        let Leaf { not_before, not_after, names, .. } = leaf;
        Ok(Self { config: Arc::new(config), not_before, not_after, client_ca_not_after, names })
    }
}

fn config(
    files: &TlsFiles,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, TlsError> {
    let unfit = |error: rustls::Error| TlsError::Unfit(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&files.min_version.and_newer()).map_err(unfit)?;
    let config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key);
    let mut config = config.map_err(|error| {
        if matches!(error, rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) {
            return TlsError::KeyMismatch { certificate: files.certificate.clone(), key: files.key.clone() };
        }
        TlsError::Contents { path: files.key.clone(), fault: format!("the key cannot be used: {error}") }
    })?;
    // grpc-go since 1.67 and C-core refuse a server that chooses no protocol.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would let a client in whose certificate has expired since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn verifier(roots: RootCertStore, is_required: bool) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()));
    // With hints, clients withhold a certificate of another authority, and the log could not say what is wrong with it.
    let builder = builder.clear_root_hint_subjects();
    let builder = if is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| TlsError::Unfit(error.to_string()))
}

/// The authorities of a file, and the time when the first of them expires.
fn authorities(path: &Path, contents: &[u8]) -> Result<(RootCertStore, SystemTime), TlsError> {
    let mut roots = RootCertStore::empty();
    let mut first_end: Option<SystemTime> = None;
    for (index, certificate) in certificates(path, contents)?.into_iter().enumerate() {
        let not_after = Leaf::read(path, &certificate)?.not_after;
        first_end = Some(first_end.map_or(not_after, |first| first.min(not_after)));
        roots.add(certificate).map_err(|error| TlsError::Contents {
            path: path.to_owned(),
            fault: format!("certificate {}: {error}", index + 1),
        })?;
    }
    first_end.map(|end| (roots, end)).ok_or_else(|| no_certificate(path))
}

fn certificates(path: &Path, contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
    read.map_err(|error| TlsError::Contents {
        path: path.to_owned(),
        fault: format!("not valid PEM: {error}"),
    })
}

fn no_certificate(path: &Path) -> TlsError {
    let fault = "it contains no certificate: write it as PEM, -----BEGIN CERTIFICATE-----".to_owned();
    TlsError::Contents { path: path.to_owned(), fault }
}

fn read(path: impl AsRef<Path>) -> Result<Vec<u8>, TlsError> {
    let path = path.as_ref();
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

/// A certificate, as far as it matters here.
struct Leaf {
    not_before: SystemTime,
    not_after: SystemTime,
    names: Vec<String>,
    /// False if it says what it is for, and TLS servers are not among that.
    is_for_servers: bool,
}

impl Leaf {
    fn read(path: &Path, certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        let unfit = |fault: String| TlsError::Contents { path: path.to_owned(), fault };
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| unfit(format!("not a valid certificate: {error}")))?;
        let usage = parsed.extended_key_usage().map_err(|error| unfit(error.to_string()))?;
        let alternatives = parsed.subject_alternative_name().map_err(|error| unfit(error.to_string()))?;
        let names = alternatives.into_iter().flat_map(|names| &names.value.general_names);
        Ok(Self {
            not_before: time(parsed.validity.not_before),
            not_after: time(parsed.validity.not_after),
            names: names.filter_map(shown).take(MAX_NAMES).collect(),
            is_for_servers: usage.is_none_or(|usage| usage.value.server_auth || usage.value.any),
        })
    }

    fn check(&self, path: &Path, now: SystemTime) -> Result<(), TlsError> {
        let fault = if now < self.not_before {
            format!(
                "the certificate is not valid before {}, and it is {}",
                rfc3339(self.not_before),
                rfc3339(now)
            )
        } else if now > self.not_after {
            format!("the certificate expired at {}", rfc3339(self.not_after))
        } else if !self.is_for_servers {
            "the certificate is not for servers: its extended key usage lacks serverAuth".to_owned()
        } else {
            return Ok(());
        };
        Err(TlsError::Contents { path: path.to_owned(), fault })
    }
}

/// A name as people write it; `None` for one that no client asks for.
fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => match <[u8; 4]>::try_from(*octets) {
            Ok(v4) => Some(IpAddr::from(v4).to_string()),
            Err(_) => <[u8; 16]>::try_from(*octets).ok().map(|v6| IpAddr::from(v6).to_string()),
        },
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    }
}

pub(super) fn time(time: ASN1Time) -> SystemTime {
    let seconds = Duration::from_secs(time.timestamp().unsigned_abs());
    let time = if time.timestamp() < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
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

/// The names of a certificate that are shown.
const MAX_NAMES: usize = 16;
