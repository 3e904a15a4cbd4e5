//! Whose certificates are accepted from clients.
//!
//! Every certificate has exactly one set of authorities that can vouch for it: one with a SPIFFE ID those of its own trust domain, any
//! other one the authorities of the port. The sets are never merged, or else the authority of a partner could issue certificates with
//! our names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore,
    SignatureScheme,
};
use xds_api::rfc3339;
use xds_cache::identity::TrustDomain;

use super::names::{self, BadName};
use super::pem::{Leaf, Piece, TlsError};
use super::revocation::RevocationLists;
use crate::spiffe::Svid;

/// The files that say whose certificates are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustFiles {
    /// The authorities of clients. With trust domains, only of clients without a SPIFFE ID.
    pub authorities: Option<PathBuf>,
    /// The authorities of each trust domain.
    pub domains: Domains,
    /// The certificates that all these authorities have revoked; `None` if nobody asks for that.
    pub crl: Option<PathBuf>,
    /// True if a CRL counts no more when it should have been replaced.
    pub is_crl_strict: bool,
}

/// Where the authorities of trust domains come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domains {
    /// A file for each, which may be none.
    Files(BTreeMap<TrustDomain, PathBuf>),
    /// The SPIFFE agent says which there are.
    Agent,
}

/// What the files hold, and what the agent sent.
pub(super) struct TrustContents {
    authorities: Option<Piece>,
    domains: BTreeMap<TrustDomain, Piece>,
    crl: Option<Piece>,
}

/// Verifies the certificates of clients.
#[derive(Debug)]
pub(super) struct Trust {
    authorities: Option<Verifiers>,
    domains: BTreeMap<TrustDomain, Verifiers>,
    /// When the CRLs count no more, each; empty if they always count.
    due: Vec<SystemTime>,
    is_required: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The same authorities with each layer of CRLs, or one verifier without.
#[derive(Debug)]
struct Verifiers(Vec<Arc<dyn ClientCertVerifier>>);

/// When something ends that clients are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) of: EndOf,
    pub(crate) at: SystemTime,
    /// How long before its end that is a problem, at most.
    pub(super) margin: Duration,
}

/// Something that ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndOf {
    /// The first of the authorities.
    Authorities,
    /// The last authority of a trust domain: those before it are replaced as a matter of course.
    Domain(TrustDomain),
    /// The first of the CRLs, which should have been replaced by then.
    Crl {
        /// True if it does not count any more then.
        is_strict: bool,
    },
}

/// Why nobody can vouch for a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Untrusted {
    /// The trust domain has no authorities here.
    #[error(
        "the client certificate is of the trust domain {0}, for which there is no --xds-trust-domain and no bundle of the \
         SPIFFE agent"
    )]
    Domain(Box<str>),
    /// There are only authorities of trust domains.
    #[error("the client certificate has no SPIFFE ID, and for others there is no --xds-client-ca")]
    NoSpiffeId,
    /// It cannot be said whose it is.
    #[error(transparent)]
    BadName(#[from] BadName),
}

impl TrustFiles {
    /// Returns `true` if clients are asked for certificates.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.authorities.is_some() || self.domains != Domains::default()
    }
}

impl Default for Domains {
    /// No trust domain.
    fn default() -> Self {
        Self::Files(BTreeMap::new())
    }
}

impl End {
    /// What to say when the end is near, or was before now.
    pub(super) fn problem(&self, port: &str) -> String {
        let at = rfc3339(self.at);
        match &self.of {
            EndOf::Authorities => format!("an authority of the clients of the {port} port ends at {at}"),
            EndOf::Domain(name) => {
                format!("the last authority of the trust domain {name} on the {port} port ends at {at}")
            }
            EndOf::Crl { is_strict: false } => {
                format!(
                    "a CRL of the clients of the {port} port is to be replaced by {at}; it is used after that too"
                )
            }
            EndOf::Crl { is_strict: true } => {
                format!(
                    "a CRL of the clients of the {port} port is to be replaced by {at}; after that, clients of its \
                     issuer are refused (--xds-client-crl-strict)"
                )
            }
        }
    }
}

impl EndOf {
    /// As it is called in metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Authorities => "client_ca",
            Self::Domain(_) => "trust_domain",
            Self::Crl { .. } => "crl",
        }
    }
}

impl TrustContents {
    /// # Errors
    ///
    /// [`TlsError::Unreadable`] names the first file that cannot be read.
    pub(super) fn read(files: &TrustFiles, svid: Option<&Svid>) -> Result<Self, TlsError> {
        let domains = match &files.domains {
            Domains::Files(files) => {
                let read = files.iter().map(|(name, path)| Ok((name.clone(), Piece::read(path)?)));
                read.collect::<Result<_, TlsError>>()?
            }
            Domains::Agent => {
                let bundles = svid.into_iter().flat_map(|svid| &svid.bundles);
                let piece = |(name, bundle): (&TrustDomain, &Vec<u8>)| {
                    (name.clone(), Piece::of_agent(format!("the bundle for {name}"), bundle))
                };
                bundles.map(piece).collect()
            }
        };
        Ok(Self {
            authorities: files.authorities.as_deref().map(Piece::read).transpose()?,
            domains,
            crl: files.crl.as_deref().map(Piece::read).transpose()?,
        })
    }

    /// Equal for equal contents and trust domains.
    pub(super) fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for name in self.domains.keys() {
            hasher.update(blake3::hash(name.as_str().as_bytes()).as_bytes());
        }
        for piece in self.authorities.iter().chain(self.domains.values()).chain(&self.crl) {
            hasher.update(blake3::hash(piece.bytes()).as_bytes());
        }
        hasher.finalize()
    }
}

impl Trust {
    /// The verifier that `contents` of `files` make, and the ends to come.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what cannot be used, and why.
    pub(super) fn new(
        files: &TrustFiles,
        contents: &TrustContents,
        is_required: bool,
    ) -> Result<(Self, Vec<End>), TlsError> {
        let mut ends = Vec::new();
        let is_strict = files.is_crl_strict;
        let revoked = contents.crl.as_ref().map(|crl| RevocationLists::read(crl, is_strict)).transpose()?;
        ends.extend(revoked.as_ref().map(|revoked| End {
            of: EndOf::Crl { is_strict },
            at: revoked.first_end,
            margin: revoked.margin,
        }));
        let authorities = match &contents.authorities {
            Some(piece) => {
                let bundle = Bundle::read(piece)?;
                ends.push(End { of: EndOf::Authorities, at: bundle.first_end, margin: Duration::MAX });
                Some(bundle.verifiers(revoked.as_ref())?)
            }
            None => None,
        };
        let mut domains = BTreeMap::new();
        for (name, piece) in &contents.domains {
            let bundle = Bundle::read(piece)?;
            let of = EndOf::Domain(name.clone());
            ends.push(End { of, at: bundle.last_end, margin: bundle.last_lifetime / 4 });
            domains.insert(name.clone(), bundle.verifiers(revoked.as_ref())?);
        }
        let due = revoked.filter(|_| is_strict).map(|revoked| revoked.ends).unwrap_or_default();
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Ok((Self { authorities, domains, due, is_required, algorithms }, ends))
    }

    /// How many CRLs count no more at `now`.
    pub(super) fn n_due(&self, now: SystemTime) -> usize {
        self.due.iter().filter(|due| **due <= now).count()
    }

    /// Verifies the certificates that a client showed, its own first; a client without one is not refused here.
    ///
    /// # Errors
    ///
    /// As a handshake at `now` would fail.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<(), rustls::Error> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(()) };
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(now)).map(drop)
    }

    /// Who can vouch for a certificate that nobody has verified yet.
    fn verifiers_of(&self, leaf: &CertificateDer<'_>) -> Result<&Verifiers, Untrusted> {
        let verifiers = match self.domains.is_empty() {
            true => self.authorities.as_ref(),
            false => match names::spiffe_id(leaf)? {
                Some(id) => {
                    let domain = self.domains.get(id.trust_domain());
                    return domain.ok_or_else(|| Untrusted::Domain(id.trust_domain().into()));
                }
                None => self.authorities.as_ref(),
            },
        };
        verifiers.ok_or(Untrusted::NoSpiffeId)
    }
}

impl Verifiers {
    /// # Errors
    ///
    /// If the certificate is revoked by any layer, and if none accepts it.
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let mut is_verified = false;
        let mut last = None;
        for verifier in &self.0 {
            match verifier.verify_client_cert(leaf, intermediates, now) {
                Ok(_) => is_verified = true,
                Err(revoked @ rustls::Error::InvalidCertificate(CertificateError::Revoked)) => {
                    return Err(revoked);
                }
                // A list that another authority of the same name signed says nothing about this certificate.
                Err(rustls::Error::InvalidCertRevocationList(_)) if last.is_some() => {}
                Err(error) => last = Some(error),
            }
        }
        match last {
            _ if is_verified => Ok(ClientCertVerified::assertion()),
            Some(error) => Err(error),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }
}

impl ClientCertVerifier for Trust {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    /// None: with hints, clients withhold a certificate of another authority, and the log could not say what is wrong with it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verifiers = self
            .verifiers_of(end_entity)
            .map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
        verifiers.verify(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The authorities of one place.
struct Bundle {
    roots: RootCertStore,
    first_end: SystemTime,
    last_end: SystemTime,
    /// How long the one is valid in all that ends last.
    last_lifetime: Duration,
}

impl Bundle {
    fn read(piece: &Piece) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let mut lives = Vec::new();
        for (index, certificate) in piece.certificates()?.into_iter().enumerate() {
            let Leaf { not_before, not_after, .. } = Leaf::read(piece, &certificate)?;
            lives.push((not_after, not_after.duration_since(not_before).unwrap_or_default()));
            roots
                .add(certificate)
                .map_err(|error| piece.unfit(format!("certificate {}: {error}", index + 1)))?;
        }
        let (Some((first_end, _)), Some((last_end, last_lifetime))) =
            (lives.iter().min().copied(), lives.iter().max().copied())
        else {
            return Err(piece.unfit("it contains no certificate"));
        };
        Ok(Self { roots, first_end, last_end, last_lifetime })
    }

    fn verifiers(self, revoked: Option<&RevocationLists>) -> Result<Verifiers, TlsError> {
        let (roots, provider) = (Arc::new(self.roots), Arc::new(ring::default_provider()));
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let layers = revoked.map(|revoked| revoked.apply(&builder)).unwrap_or_else(|| vec![builder]);
        let built = layers.into_iter().map(|layer| layer.build().map(|verifier| verifier as _));
        let verifiers = built.collect::<Result<_, _>>();
        verifiers.map(Verifiers).map_err(|error| TlsError::Unfit(error.to_string()))
    }
}
