//! Certificates and keys, as far as they matter here: PEM in files, DER from a SPIFFE agent.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use x509_parser::time::ASN1Time;
use xds_api::rfc3339;

/// Where certificates or a key are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A PEM file.
    File(PathBuf),
    /// A part of what a SPIFFE agent sent, as it is called in errors.
    Agent(String),
}

/// The bytes of certificates or of a key, and where they are from: PEM of a file, DER of an agent.
pub(super) struct Piece {
    place: Place,
    bytes: Vec<u8>,
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
    /// A file, or what an agent sent, does not hold what it should.
    #[error("{place}: {fault}")]
    Contents {
        /// The place.
        place: Place,
        /// The fault in it.
        fault: String,
    },
    /// The certificate is for another key.
    #[error(
        "the key in {key} does not belong to the first certificate in {certificate}: they belong to different pairs, or only one of the two files has been replaced"
    )]
    KeyMismatch {
        /// The certificates.
        certificate: Place,
        /// The key.
        key: Place,
    },
    /// The library refuses the configuration.
    #[error("these files do not make a TLS configuration: {0}")]
    Unfit(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Agent(part) => write!(f, "{part} of the SPIFFE agent"),
        }
    }
}

impl Piece {
    /// The contents of a file.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unreadable`].
    pub(super) fn read(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = path.as_ref().to_owned();
        match fs::read(&path) {
            Ok(bytes) => Ok(Self { place: Place::File(path), bytes }),
            Err(source) => Err(TlsError::Unreadable { path, source }),
        }
    }

    /// DER that a SPIFFE agent sent as this part.
    pub(super) fn of_agent(part: String, bytes: &[u8]) -> Self {
        Self { place: Place::Agent(part), bytes: bytes.to_owned() }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The error that something is wrong with the contents.
    pub(super) fn unfit(&self, fault: impl Into<String>) -> TlsError {
        TlsError::Contents { place: self.place.clone(), fault: fault.into() }
    }

    /// All certificates, at least one.
    ///
    /// # Errors
    ///
    /// [`TlsError::Contents`] if there is none, or if it cannot be said where one ends.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates: Vec<_> = match &self.place {
            Place::File(_) => CertificateDer::pem_slice_iter(&self.bytes)
                .collect::<Result<_, _>>()
                .map_err(|error| self.unfit(format!("not valid PEM: {error}")))?,
            Place::Agent(_) => self.split()?,
        };
        match (certificates.is_empty(), &self.place) {
            (false, _) => Ok(certificates),
            (true, Place::Agent(_)) => Err(self.unfit("it contains no certificate")),
            (true, Place::File(_)) => {
                Err(self.unfit("it contains no certificate: write it as PEM, -----BEGIN CERTIFICATE-----"))
            }
        }
    }

    /// Certificates that follow each other without anything between them.
    fn split(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let (mut rest, mut certificates) = (self.bytes.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (after, _) = X509Certificate::from_der(rest).map_err(|error| {
                self.unfit(format!(
                    "certificate {}: not a valid certificate: {error}",
                    certificates.len() + 1
                ))
            })?;
            let length = rest.len() - after.len();
            certificates.push(CertificateDer::from(rest.get(..length).unwrap_or_default().to_owned()));
            rest = after;
        }
        Ok(certificates)
    }

    /// The private key. No error shows any of it.
    ///
    /// # Errors
    ///
    /// [`TlsError::Contents`] if there is none.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        match &self.place {
            // The Workload API has PKCS#8 alone.
            Place::Agent(_) if self.bytes.is_empty() => Err(self.unfit("it contains no key")),
            Place::Agent(_) => Ok(PrivatePkcs8KeyDer::from(self.bytes.clone()).into()),
            Place::File(_) => PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| {
                // The text of other errors could show a part of the key.
                self.unfit(if matches!(error, PemError::NoItemsFound) {
                    "it contains no key: write it as PEM, -----BEGIN PRIVATE KEY-----"
                } else {
                    "the key is not valid PEM"
                })
            }),
        }
    }
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
    /// Reads a certificate of `piece`.
    ///
    /// # Errors
    ///
    /// [`TlsError::Contents`] if it is malformed.
    pub(super) fn read(piece: &Piece, certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        let unfit = |fault: String| piece.unfit(fault);
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

    /// # Errors
    ///
    /// [`TlsError::Contents`] if a server cannot use it `now`.
    pub(super) fn check(&self, piece: &Piece, now: SystemTime) -> Result<(), TlsError> {
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
        Err(piece.unfit(fault))
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
