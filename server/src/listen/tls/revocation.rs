//! Lists of certificates that their issuers have revoked (CRLs).
//!
//! Several lists may have the same issuer by name: an authority that was replaced by one of the same name has its list beside that of
//! its successor, and an old list may lie beside a new one. The library looks only at the first list of a name, and refuses a certificate
//! if another key signed it. So lists are verified with in layers, each of which has one list of a name: a certificate is accepted if the
//! list of its issuer is in one of them, and refused if any list of its issuer names it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateRevocationListDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::ClientCertVerifierBuilder;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::pem::{Piece, TlsError, time};

/// Lists of which each counts for other certificates.
type Layer = Vec<CertificateRevocationListDer<'static>>;

/// The lists with the name of one issuer: whole ones have no scope, and those of a part have that as their issuer wrote it.
#[derive(Default)]
struct OfIssuer(BTreeMap<Option<Vec<u8>>, Layer>);

/// The lists of one file, which is PEM.
pub(super) struct RevocationLists {
    /// At least one, at most [`MAX_LAYERS`].
    layers: Vec<Layer>,
    /// True if a list counts no more when it should have been replaced.
    is_strict: bool,
    /// When each of them is to be replaced.
    pub(super) ends: Vec<SystemTime>,
    /// The first of these times, and a quarter of the time from the issue of that list until then.
    pub(super) first_end: SystemTime,
    pub(super) margin: Duration,
}

impl RevocationLists {
    /// Reads all lists.
    ///
    /// # Errors
    ///
    /// [`TlsError::Contents`] if one is malformed or has no end, if there is none, or if there are too many of one issuer.
    pub(super) fn read(piece: &Piece, is_strict: bool) -> Result<Self, TlsError> {
        let unfit = |fault: String| piece.unfit(fault);
        let lists =
            CertificateRevocationListDer::pem_slice_iter(piece.bytes()).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| unfit(format!("not valid PEM: {error}")))?;
        let mut first: Option<(SystemTime, Duration)> = None;
        let mut ends = Vec::new();
        let mut issuers = BTreeMap::<Vec<u8>, OfIssuer>::new();
        for (index, der) in lists.iter().enumerate() {
            let number = index + 1;
            let (_, list) = CertificateRevocationList::from_der(der)
                .map_err(|error| unfit(format!("CRL {number}: not a valid CRL: {error}")))?;
            let end = list.next_update().map(time);
            let end = end.ok_or_else(|| unfit(format!("CRL {number}: it has no nextUpdate")))?;
            let margin = end.duration_since(time(list.last_update())).unwrap_or_default() / 4;
            ends.push(end);
            let issuer = issuers.entry(list.issuer().as_raw().to_owned()).or_default();
            issuer.0.entry(scope(&list)).or_default().push(der.clone());
            first = Some(first.map_or((end, margin), |first| first.min((end, margin))));
        }
        let Some((first_end, margin)) = first else {
            return Err(unfit("it contains no CRL: write it as PEM, -----BEGIN X509 CRL-----".to_owned()));
        };
        let layers = layers(issuers);
        if layers.len() > MAX_LAYERS {
            let n = layers.len();
            return Err(unfit(format!(
                "it contains {n} CRLs of one issuer, and may contain {MAX_LAYERS}: leave out those that were replaced"
            )));
        }
        Ok(Self { layers, is_strict, ends, first_end, margin })
    }

    /// One verifier for each layer: it refuses clients whose own certificate is on a list, or whose issuer has no list in the layer.
    ///
    /// The certificates of authorities are not looked for: who takes an authority out of the file need not revoke it, and few have
    /// lists of them.
    pub(super) fn apply(&self, builder: &ClientCertVerifierBuilder) -> Vec<ClientCertVerifierBuilder> {
        let apply = |layer: &Layer| {
            let builder = builder.clone().with_crls(layer.iter().cloned()).only_check_end_entity_revocation();
            if self.is_strict { builder.enforce_revocation_expiration() } else { builder }
        };
        self.layers.iter().map(apply).collect()
    }
}

impl OfIssuer {
    /// Sets of lists with at most one list for a certificate: each whole list alone, and the lists of parts together.
    fn sets(mut self) -> Vec<Layer> {
        let whole = self.0.remove(&None).unwrap_or_default();
        let parts: Vec<Layer> = self.0.into_values().collect();
        let n_deepest = parts.iter().map(Vec::len).max().unwrap_or_default();
        let of_parts =
            (0..n_deepest).map(|n| parts.iter().filter_map(|lists| lists.get(n)).cloned().collect());
        whole.into_iter().map(|list| vec![list]).chain(of_parts).collect()
    }
}

/// As many layers as some issuer has sets; the last set of any other issuer is in all that are left.
fn layers(issuers: BTreeMap<Vec<u8>, OfIssuer>) -> Vec<Layer> {
    let sets: Vec<Vec<Layer>> = issuers.into_values().map(OfIssuer::sets).collect();
    let n_layers = sets.iter().map(Vec::len).max().unwrap_or_default();
    let layer = |n| {
        sets.iter().filter_map(|sets: &Vec<Layer>| sets.get(n).or(sets.last())).flatten().cloned().collect()
    };
    (0..n_layers).map(layer).collect()
}

/// Of which part of its issuer's certificates a list is; `None` if of all.
fn scope(list: &CertificateRevocationList<'_>) -> Option<Vec<u8>> {
    let extension =
        list.extensions().iter().find(|extension| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT);
    extension.map(|extension| extension.value.to_owned())
}

/// Lists of one issuer, which each client's certificate is compared with. An authority and its successor have two, or four for a while.
const MAX_LAYERS: usize = 16;
