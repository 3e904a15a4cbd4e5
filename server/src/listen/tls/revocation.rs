//! Lists of certificates that their issuers have revoked (CRLs).

use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateRevocationListDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::ClientCertVerifierBuilder;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::pem::{TlsError, time};

/// The lists of one file.
pub(super) struct RevocationLists {
    lists: Vec<CertificateRevocationListDer<'static>>,
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
    /// [`TlsError::Contents`] if one is malformed or has no end, or if there is none.
    pub(super) fn read(path: &Path, contents: &[u8], is_strict: bool) -> Result<Self, TlsError> {
        let unfit = |fault: String| TlsError::Contents { path: path.to_owned(), fault };
        let lists = CertificateRevocationListDer::pem_slice_iter(contents).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| unfit(format!("not valid PEM: {error}")))?;
        let mut first: Option<(SystemTime, Duration)> = None;
        let mut ends = Vec::new();
        for (index, list) in lists.iter().enumerate() {
            let number = index + 1;
            let (_, list) = CertificateRevocationList::from_der(list)
                .map_err(|error| unfit(format!("CRL {number}: not a valid CRL: {error}")))?;
            let end = list.next_update().map(time);
            let end = end.ok_or_else(|| unfit(format!("CRL {number}: it has no nextUpdate")))?;
            let margin = end.duration_since(time(list.last_update())).unwrap_or_default() / 4;
            ends.push(end);
            first = Some(first.map_or((end, margin), |first| first.min((end, margin))));
        }
        let Some((first_end, margin)) = first else {
            return Err(unfit("it contains no CRL: write it as PEM, -----BEGIN X509 CRL-----".to_owned()));
        };
        Ok(Self { lists, is_strict, ends, first_end, margin })
    }

    /// Has clients refused whose own certificate is on a list, or whose issuer has no list.
    ///
    /// The certificates of authorities are not looked for: who takes an authority out of the file need not revoke it, and few have
    /// lists of them.
    pub(super) fn apply(&self, builder: ClientCertVerifierBuilder) -> ClientCertVerifierBuilder {
        let builder = builder.with_crls(self.lists.iter().cloned()).only_check_end_entity_revocation();
        if self.is_strict { builder.enforce_revocation_expiration() } else { builder }
    }
}
