//! Connections with other servers.

use std::path::PathBuf;
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use xds_control::chain;

/// The files with which servers prove to each other who they are. They are read for each connection, so they may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// The certificate of this server.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of all servers.
    pub ca: PathBuf,
}

/// Connects with the server at an address, with TLS if there are `files`.
pub(super) async fn connect(address: &str, files: Option<&PeerFiles>) -> Result<Channel, String> {
    let scheme = if files.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
    let mut endpoint = endpoint.map_err(|error| format!("{address}: {}", chain(&error)))?;
    if let Some(files) = files {
        let tls = files.tls().await?;
        endpoint = endpoint.tls_config(tls).map_err(|error| chain(&error))?;
    }
    let endpoint = endpoint.connect_timeout(PATIENCE).tcp_nodelay(true);
    endpoint.connect().await.map_err(|error| format!("no connection with {address}: {}", chain(&error)))
}

impl PeerFiles {
    async fn tls(&self) -> Result<ClientTlsConfig, String> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let identity = Identity::from_pem(read(&self.certificate).await?, read(&self.key).await?);
        let ca = Certificate::from_pem(read(&self.ca).await?);
        Ok(ClientTlsConfig::new().ca_certificate(ca).identity(identity))
    }
}

/// How long a connection may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// How long to wait before another one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(2);
