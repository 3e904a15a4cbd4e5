//! Certificates in files, as far as they matter here.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use x509_parser::time::ASN1Time;
use xds_api::rfc3339;

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

pub(super) fn certificates(path: &Path, contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
    read.map_err(|error| TlsError::Contents {
        path: path.to_owned(),
        fault: format!("not valid PEM: {error}"),
    })
}

pub(super) fn no_certificate(path: &Path) -> TlsError {
    let fault = "it contains no certificate: write it as PEM, -----BEGIN CERTIFICATE-----".to_owned();
    TlsError::Contents { path: path.to_owned(), fault }
}

pub(super) fn read(path: impl AsRef<Path>) -> Result<Vec<u8>, TlsError> {
    let path = path.as_ref();
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

/// A certificate, as far as it matters here.
pub(super) struct Leaf {
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    pub(super) names: Vec<String>,
    /// False if it says what it is for, and TLS servers are not among that.
    is_for_servers: bool,
}

impl Leaf {
    pub(super) fn read(path: &Path, certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
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

    pub(super) fn check(&self, path: &Path, now: SystemTime) -> Result<(), TlsError> {
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

/// The names of a certificate that are shown.
const MAX_NAMES: usize = 16;
