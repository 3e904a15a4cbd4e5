//! Certificate authorities of servers that this one connects to.

use std::path::Path;

use tonic::transport::Certificate;

/// Those of a PEM file.
///
/// # Errors
///
/// Why it cannot be read.
pub(crate) async fn read(path: &Path) -> Result<Certificate, String> {
    let read = tokio::fs::read(path).await;
    read.map(Certificate::from_pem).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Those of the system, as far as they can be read.
pub(crate) async fn of_system() -> Vec<Certificate> {
    let read = tokio::task::spawn_blocking(|| {
        let found = rustls_native_certs::load_native_certs();
        found.certs.iter().map(|certificate| Certificate::from_pem(pem(certificate))).collect()
    });
    read.await.unwrap_or_default()
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
