//! TLS of the commands that ask a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use ureq::tls::{self, ClientCert, PemItem, PrivateKey, RootCerts};

use crate::failure::Failure;

/// Whom to trust, and how to prove who asks.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct ClientTlsArgs {
    /// PEM file with the authorities to trust [default for https: those of the system]
    #[arg(long, env = "XDS_SERVER_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file with a client certificate, followed by intermediate ones
    #[arg(long, env = "XDS_SERVER_CERT", value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate
    #[arg(long, env = "XDS_SERVER_KEY", value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

impl ClientTlsArgs {
    /// For HTTP.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] names the file that cannot be used.
    pub(crate) fn http(&self) -> Result<tls::TlsConfig, Failure> {
        let roots = match &self.ca {
            Some(path) => certificates("--ca", path)?,
            None => {
                let system = rustls_native_certs::load_native_certs().certs;
                system.iter().map(|der| tls::Certificate::from_der(der).to_owned()).collect()
            }
        };
        let client = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates("--cert", certificate)?;
                let read = PrivateKey::from_pem(&read("--key", key)?);
                let key = read.map_err(|_| no_pem("--key", key, "private key"))?;
                Some(ClientCert::new_with_certs(&chain, key))
            }
            (_, _) => None,
        };
        Ok(tls::TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(client)
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .build())
    }

    /// For gRPC; `None` for plaintext, if no authority is given.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] names the file that cannot be read.
    pub(crate) fn grpc(&self) -> Result<Option<ClientTlsConfig>, Failure> {
        let Some(ca) = &self.ca else {
            return match &self.cert {
                Some(_) => {
                    Err(Failure::Usage("--cert needs --ca: without it nothing is encrypted".to_owned()))
                }
                None => Ok(None),
            };
        };
        certificates("--ca", ca)?;
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("--ca", ca)?));
        Ok(Some(match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => {
                config.identity(Identity::from_pem(read("--cert", certificate)?, read("--key", key)?))
            }
            (_, _) => config,
        }))
    }
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<tls::Certificate<'static>>, Failure> {
    let contents = read(flag, path)?;
    let items = tls::parse_pem(&contents).map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Ok(Some(certificate)),
        Ok(_) => Ok(None),
        Err(_) => Err(no_pem(flag, path, "certificate")),
    });
    let found: Vec<_> = items.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    if found.is_empty() { Err(no_pem(flag, path, "certificate")) } else { Ok(found) }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Usage(format!("cannot read {flag} {}: {error}", path.display())))
}

fn no_pem(flag: &str, path: &Path, kind: &str) -> Failure {
    Failure::Usage(format!("{flag} {} contains no {kind} in PEM", path.display()))
}
