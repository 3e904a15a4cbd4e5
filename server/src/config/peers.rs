//! The port for other servers, and the servers that this one follows.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use xds_settings::units::{parse_address, parse_duration};

use crate::config::error::ConfigError;
use crate::listen::{Own, TlsFiles, TlsVersion, TrustFiles};
use crate::peers::PeerFiles;

/// How servers ask each other about their clients, and which ones this one follows.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Other servers")]
pub struct PeerArgs {
    /// Address for other servers: those with the same store ask each other about their clients, and others may follow this one
    #[arg(long, env = "XDS_SERVER_PEER_LISTEN", value_name = "ADDR", value_parser = parse_address)]
    pub peer_listen: Option<SocketAddr>,
    /// Follow another server, which has its --peer-listen here: HOST:PORT. Several, with commas, if they have the same store
    #[arg(long, env = "XDS_SERVER_UPSTREAM", value_name = "HOST:PORT", value_delimiter = ',')]
    pub upstream: Vec<String>,
    /// Serve what another xDS server, of any kind, sends to the nodes that this file names
    #[arg(long, env = "XDS_SERVER_RELAY", value_name = "FILE")]
    pub relay: Option<PathBuf>,
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

/// The servers that this one follows.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Their peer ports, `HOST:PORT`; at least one.
    pub addresses: Vec<String>,
    /// The proof of who this server is, and the authorities of theirs; `None` for plaintext.
    pub files: Option<PeerFiles>,
}

impl PeerArgs {
    /// The file of a relay. `own` are the flags of what a server does that relays none.
    ///
    /// # Errors
    ///
    /// If another flag says where resources come from.
    pub(super) fn relay(&self, own: [(bool, &'static str); 2]) -> Result<Option<PathBuf>, ConfigError> {
        let others = own.into_iter().chain([(!self.upstream.is_empty(), "upstream")]);
        match others.into_iter().find(|(is_given, _)| *is_given && self.relay.is_some()) {
            Some((_, other)) => Err(ConfigError::Contradiction { flag: "relay", other }),
            None => Ok(self.relay.clone()),
        }
    }
}

impl PeerConfig {
    /// The port, and the servers to follow, that the flags describe. `own` are the flags of what a server does that follows none.
    ///
    /// # Errors
    ///
    /// If a flag is wrong, or one is missing.
    pub(super) fn new(
        args: PeerArgs,
        own: [(bool, &'static str); 2],
    ) -> Result<(Option<Self>, Option<UpstreamConfig>), ConfigError> {
        let needs = |flag, other| ConfigError::Needs { flag, other };
        let files = match (args.peer_cert, args.peer_key, args.peer_ca) {
            (Some(certificate), Some(key), Some(ca)) => Some(PeerFiles { certificate, key, ca }),
            (None, None, None) => None,
            (None, _, _) => return Err(needs("peer-key and --peer-ca", "peer-cert")),
            (_, None, _) => return Err(needs("peer-cert", "peer-key")),
            (_, _, None) => return Err(needs("peer-cert", "peer-ca")),
        };
        let accepts_plaintext = files.is_some() || args.allow_plaintext_peers;
        if !args.upstream.is_empty() {
            let given = own.into_iter().chain([(args.peer_listen.is_some(), "peer-listen")]);
            if let Some((_, other)) = given.into_iter().find(|(is_given, _)| *is_given) {
                return Err(ConfigError::Contradiction { flag: "upstream", other });
            }
            for address in &args.upstream {
                let wrong = || ConfigError::Address { flag: "upstream", text: address.clone() };
                let host = host_of(address).ok_or_else(wrong)?;
                if !accepts_plaintext && !is_loopback(host) {
                    return Err(ConfigError::PlaintextUpstream(address.clone()));
                }
            }
            return Ok((None, Some(UpstreamConfig { addresses: args.upstream, files })));
        }
        let Some(listen) = args.peer_listen else {
            let given = [(args.peer_advertise.is_some(), "peer-advertise"), (files.is_some(), "peer-cert")];
            return match given.into_iter().find(|(is_given, _)| *is_given) {
                Some((_, flag)) => Err(needs(flag, "peer-listen")),
                None => Ok((None, None)),
            };
        };
        if let Some(advertise) = &args.peer_advertise {
            if host_of(advertise).is_none() {
                return Err(ConfigError::Address { flag: "peer-advertise", text: advertise.clone() });
            }
        } else if listen.ip().is_unspecified() {
            return Err(needs("peer-listen on every interface", "peer-advertise"));
        }
        if !accepts_plaintext && !listen.ip().is_loopback() {
            return Err(ConfigError::PlaintextPeers(listen));
        }
        Ok((Some(Self { listen, advertise: args.peer_advertise, files }), None))
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

/// The host of `HOST:PORT`.
pub(crate) fn host_of(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then_some(host)
}

/// Returns `true` for a host that is this machine by its name or address.
pub(crate) fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}
