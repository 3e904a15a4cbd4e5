//! Connections with the server that is relayed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Identity};
use xds_control::chain;
use xds_relay::RelayConfig;

use crate::authorities;
use crate::config::peers::{host_of, is_loopback};

/// The servers, and how they are reached. Cheap to clone. Files are read for each connection, so they may change.
#[derive(Clone, Debug)]
pub(super) struct Servers(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    addresses: Vec<String>,
    tls: Option<TlsParts>,
    token: Option<PathBuf>,
}

#[derive(Debug)]
struct TlsParts {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

/// A connection, and what every stream on it shows.
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) token: Option<MetadataValue<Ascii>>,
}

impl Servers {
    /// Those of a file; its paths are relative to `directory`.
    pub(super) fn new(config: &RelayConfig, directory: &Path) -> anyhow::Result<Self> {
        let path = |path: &String| directory.join(path);
        let tls = config.tls.as_ref().map(|tls| TlsParts {
            ca: tls.ca.as_ref().map(path),
            identity: tls.identity.as_ref().map(|(cert, key)| (path(cert), path(key))),
            server_name: tls.server_name.clone(),
        });
        if tls.is_none() && !config.is_plaintext_allowed {
            let exposed = config.servers.iter().find(|address| !host_of(address).is_some_and(is_loopback));
            if let Some(address) = exposed {
                anyhow::bail!(
                    "--relay: {address} is on another host and nothing is encrypted: give `tls`, or accept it with `allowPlaintext: true`"
                );
            }
        }
        let token = config.token_file.as_ref().map(path);
        Ok(Self(Arc::new(Parts { addresses: config.servers.clone(), tls, token })))
    }

    /// How many servers there are.
    pub(super) fn len(&self) -> usize {
        self.0.addresses.len()
    }

    /// The address of a server; they begin anew after the last.
    pub(super) fn address(&self, index: usize) -> &str {
        let n = self.0.addresses.len().max(1);
        self.0.addresses.get(index % n).map_or("", String::as_str)
    }

    /// Connects with a server.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub(super) async fn connect(&self, index: usize) -> Result<Connection, String> {
        let address = self.address(index);
        let scheme = if self.0.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
        let mut endpoint = endpoint.map_err(|error| format!("{address}: {}", chain(&error)))?;
        if let Some(tls) = &self.0.tls {
            endpoint =
                endpoint.tls_config(tls.read().await?).map_err(|error| format!("TLS: {}", chain(&error)))?;
        }
        let endpoint = endpoint
            .connect_timeout(PATIENCE)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT);
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| format!("no connection with {address}: {}", chain(&error)))?;
        let token = match &self.0.token {
            Some(path) => Some(bearer(path).await?),
            None => None,
        };
        Ok(Connection { channel, token })
    }
}

impl TlsParts {
    async fn read(&self) -> Result<ClientTlsConfig, String> {
        let mut tls = ClientTlsConfig::new();
        match &self.ca {
            Some(ca) => tls = tls.ca_certificate(authorities::read(ca).await?),
            None => tls = tls.ca_certificates(authorities::of_system().await),
        }
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
        }
        Ok(match &self.server_name {
            Some(name) => tls.domain_name(name.clone()),
            None => tls,
        })
    }
}

/// The token of a file, as it is shown.
async fn bearer(path: &Path) -> Result<MetadataValue<Ascii>, String> {
    let text = read(path).await?;
    let text = String::from_utf8(text).map_err(|_| format!("{} is not text", path.display()))?;
    let value = MetadataValue::try_from(format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| format!("{} has characters that no token has", path.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(path).await.map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How a dead connection is found while nothing is sent.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(15);
