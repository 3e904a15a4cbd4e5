//! The names that a client's certificate proves.

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use xds_cache::Proof;
use xds_cache::identity::{DnsName, Fingerprint, InvalidSpiffeId, SpiffeId, Subject};

use super::pem::time;

/// A verified certificate whose names are ambiguous or malformed: its connection is refused, because whoever reads it otherwise
/// would see another client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadName {
    /// The library verified a certificate that cannot be read here.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// A SPIFFE certificate has exactly one URI.
    #[error("the client certificate has {0} URI names, and may have one")]
    Uris(usize),
    /// The URI is none that a SPIFFE certificate may have.
    #[error("the URI name of the client certificate is {0}")]
    Spiffe(#[from] InvalidSpiffeId),
}

/// The proofs of a verified certificate, one for each name, at most [`MAX_PROOFS`].
///
/// DNS names that are wildcards or malformed prove nothing, and neither does a common name beside other names.
///
/// # Errors
///
/// [`BadName`] if the URIs of the certificate are not one SPIFFE ID or none.
pub(super) fn proofs(certificate: &CertificateDer<'_>) -> Result<Vec<Proof>, BadName> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| BadName::Unreadable)?;
    let alternatives = parsed.subject_alternative_name().map_err(|_| BadName::Unreadable)?;
    let subjects = match &alternatives {
        Some(names) => alternative_names(&names.value.general_names)?,
        None => common_name(&parsed).into_iter().collect(),
    };
    let expires = Some(time(parsed.validity.not_after));
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let fingerprint = digest.as_ref().try_into().ok().map(Fingerprint);
    let proof = |subject| Proof { subject, expires, certificate: fingerprint };
    Ok(subjects.into_iter().map(proof).collect())
}

/// The SPIFFE ID of a certificate that nobody has verified yet, if it has one.
///
/// # Errors
///
/// [`BadName`] if the URIs of the certificate are not one SPIFFE ID or none.
pub(super) fn spiffe_id(certificate: &CertificateDer<'_>) -> Result<Option<SpiffeId>, BadName> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| BadName::Unreadable)?;
    let alternatives = parsed.subject_alternative_name().map_err(|_| BadName::Unreadable)?;
    alternatives.map_or(Ok(None), |names| spiffe_name(&names.value.general_names))
}

fn alternative_names(names: &[GeneralName<'_>]) -> Result<Vec<Subject>, BadName> {
    let mut subjects: Vec<_> = spiffe_name(names)?.into_iter().map(Subject::Spiffe).collect();
    let dns = names.iter().filter_map(|name| {
        let GeneralName::DNSName(name) = name else { return None };
        DnsName::new(name).ok().map(Subject::Dns)
    });
    subjects.extend(dns.take(MAX_PROOFS - subjects.len()));
    Ok(subjects)
}

fn spiffe_name(names: &[GeneralName<'_>]) -> Result<Option<SpiffeId>, BadName> {
    let is_uri =
        |name: &&GeneralName<'_>| matches!(name, GeneralName::URI(_) | GeneralName::Invalid(URI_TAG, _));
    let uris: Vec<_> = names.iter().filter(is_uri).collect();
    match *uris {
        [GeneralName::URI(uri)] if is_spiffe(uri) => Ok(Some(SpiffeId::new(uri)?)),
        // Another URI names nobody here.
        [] | [GeneralName::URI(_)] => Ok(None),
        [_] => Err(BadName::Unreadable),
        _ => Err(BadName::Uris(uris.len())),
    }
}

/// Returns `true` if a URI has the scheme of SPIFFE IDs, however it is written: what is almost one is refused.
fn is_spiffe(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.trim().eq_ignore_ascii_case("spiffe"))
}

/// The common name, if there is exactly one and it is plain text.
fn common_name(certificate: &X509Certificate<'_>) -> Option<Subject> {
    let mut names = certificate.subject().iter_common_name();
    let name = names.next().filter(|_| names.next().is_none())?.as_str().ok()?;
    let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
    is_plain.then(|| Subject::CommonName(name.into()))
}

/// The tag of a URI among general names.
const URI_TAG: x509_parser::asn1_rs::Tag = x509_parser::asn1_rs::Tag(6);

/// Names of one certificate that prove something. A client has a few; each is kept as long as its connection.
const MAX_PROOFS: usize = 100;
