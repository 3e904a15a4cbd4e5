//! The port for other servers with the same store.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use clap::builder::BoolishValueParser;

use crate::config::error::ConfigError;
use crate::config::units::{parse_address, parse_duration};
use crate::listen::{Own, TlsFiles, TlsVersion, TrustFiles};
use crate::peers::PeerFiles;

/// How servers with the same store ask each other about their clients.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Other servers")]
pub struct PeerArgs {
    /// Address for the other servers with the same store: they ask each other about their clients
    #[arg(long, env = "XDS_SERVER_PEER_LISTEN", value_name = "ADDR", value_parser = parse_address)]
    pub peer_listen: Option<SocketAddr>,
    /// Address at which the others reach this one, HOST:PORT [default: that of --peer-listen]
    #[arg(long, env = "XDS_SERVER_PEER_ADVERTISE", value_name = "HOST:PORT")]
    pub peer_advertise: Option<String>,
    /// PEM file with the certificate that this server shows to the others, for its host in --peer-advertise
    #[arg(long, env = "XDS_SERVER_PEER_CERT", value_name = "FILE")]
    pub peer_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(long, env = "XDS_SERVER_PEER_KEY", value_name = "FILE")]
    pub peer_key: Option<PathBuf>,
    /// PEM file with the authorities of the certificates of all servers. Only servers may have certificates of these
    #[arg(long, env = "XDS_SERVER_PEER_CA", value_name = "FILE")]
    pub peer_ca: Option<PathBuf>,
    /// Let servers on other hosts ask each other without TLS
    #[arg(long, env = "XDS_SERVER_ALLOW_PLAINTEXT_PEERS", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub allow_plaintext_peers: bool,
    /// How long the clients of a server that vanished are waited for
    #[arg(long, env = "XDS_SERVER_REPLICA_GRACE", value_name = "DURATION", default_value = "5m",
        value_parser = parse_duration)]
    pub replica_grace: Duration,
}

/// The port for other servers.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Where this server listens.
    pub listen: SocketAddr,
    /// Where the others reach it; `None` for where it listens.
    pub advertise: Option<String>,
    /// TLS of the port and of what it asks; `None` for plaintext.
    pub files: Option<PeerFiles>,
}

impl PeerConfig {
    /// The port that the flags describe; `None` without `--peer-listen`.
    ///
    /// # Errors
    ///
    /// If a flag is wrong, or one is missing.
    pub(super) fn new(args: PeerArgs, has_store: bool) -> Result<Option<Self>, ConfigError> {
        let needs = |flag, other| ConfigError::Needs { flag, other };
        let Some(listen) = args.peer_listen else {
            let given = [
                (args.peer_advertise.is_some(), "peer-advertise"),
                (args.peer_cert.is_some(), "peer-cert"),
                (args.peer_key.is_some(), "peer-key"),
                (args.peer_ca.is_some(), "peer-ca"),
            ];
            return match given.into_iter().find(|(is_given, _)| *is_given) {
                Some((_, flag)) => Err(needs(flag, "peer-listen")),
                None => Ok(None),
            };
        };
        if !has_store {
            return Err(needs("peer-listen", "store"));
        }
        let files = match (args.peer_cert, args.peer_key, args.peer_ca) {
            (Some(certificate), Some(key), Some(ca)) => Some(PeerFiles { certificate, key, ca }),
            (None, None, None) => None,
            (None, _, _) => return Err(needs("peer-key and --peer-ca", "peer-cert")),
            (_, None, _) => return Err(needs("peer-cert", "peer-key")),
            (_, _, None) => return Err(needs("peer-cert", "peer-ca")),
        };
        if let Some(advertise) = &args.peer_advertise {
            let parts = advertise.rsplit_once(':');
            if !parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
                return Err(ConfigError::PeerAdvertise(advertise.clone()));
            }
        } else if listen.ip().is_unspecified() {
            return Err(needs("peer-listen on every interface", "peer-advertise"));
        }
        if files.is_none() && !listen.ip().is_loopback() && !args.allow_plaintext_peers {
            return Err(ConfigError::PlaintextPeers(listen));
        }
        Ok(Some(Self { listen, advertise: args.peer_advertise, files }))
    }

    /// TLS of the port: other servers have to show a certificate.
    #[must_use]
    pub fn tls(&self) -> Option<TlsFiles> {
        let PeerFiles { certificate, key, ca } = self.files.clone()?;
        Some(TlsFiles {
            own: Own::Files { certificate, key },
            trust: TrustFiles { authorities: Some(ca), ..TrustFiles::default() },
            needs_client_certificate: true,
            min_version: TlsVersion::Tls13,
        })
    }

    /// Where the others reach this server, which listens at `bound`.
    #[must_use]
    pub fn address(&self, bound: SocketAddr) -> String {
        self.advertise.clone().unwrap_or_else(|| match bound.ip() {
            IpAddr::V4(ip) => format!("{ip}:{}", bound.port()),
            IpAddr::V6(ip) => format!("[{ip}]:{}", bound.port()),
        })
    }
}
