//! Lists of revoked certificates. The unit tests of the server include this file too.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams};

/// A list in PEM, in which `issuer` revokes these serial numbers and no others. It is ten days old, and due at `end`.
///
/// # Errors
///
/// If the issuer may not sign lists.
pub(crate) fn crl(
    issuer: &Issuer<'_, KeyPair>,
    revoked: &[u64],
    end: SystemTime,
) -> Result<String, rcgen::Error> {
    let began = SystemTime::now() - AGE;
    let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: (*serial).into(),
        revocation_time: began.into(),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: began.into(),
        next_update: end.into(),
        crl_number: 1_u64.into(),
        issuing_distribution_point: None,
        revoked_certs: revoked_certs.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer)?.pem()
}

const AGE: Duration = Duration::from_secs(10 * 24 * 60 * 60);
