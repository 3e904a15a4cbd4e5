//! Errors of the configuration.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use xds_cache::identity::TrustDomain;
use xds_settings::SettingError;

use crate::rollouts::ReachError;
use crate::spiffe::InvalidEndpoint;
use crate::telemetry::LogFilterError;

/// Why there is no valid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The xDS address can be reached from other hosts.
    #[error(
        "--xds-listen {0} can be reached from other hosts and nothing is encrypted: give --xds-tls-cert, --xds-tls-key and \
         --xds-client-ca, or --spiffe-endpoint, listen on 127.0.0.1, or accept it with --allow-plaintext-xds"
    )]
    PlaintextXds(SocketAddr),
    /// Everyone who reaches the xDS address is served.
    #[error(
        "--xds-listen {0} can be reached from other hosts and clients need no certificate: give --xds-client-ca, or an \
         --access-policy with issuers of tokens, listen on 127.0.0.1, or accept it with --allow-anonymous-xds"
    )]
    AnonymousXds(SocketAddr),
    /// Some of the files of TLS are missing.
    #[error("TLS on the {0} port needs both --{0}-tls-cert and --{0}-tls-key")]
    HalfTls(&'static str),
    /// The certificate of the xDS port, or its trust domains, would come from two places.
    #[error(
        "--{0} and --spiffe-endpoint cannot be used together: the agent gives the xDS port its certificate and its trust domains; \
         omit one"
    )]
    TwoSources(&'static str),
    /// The endpoint of the agent is none.
    #[error("--spiffe-endpoint {text}: {source}")]
    SpiffeEndpoint {
        /// As it was given.
        text: String,
        /// The fault in it.
        source: InvalidEndpoint,
    },
    /// The endpoint of the agent is to be that of the environment, which has none.
    #[error(
        "--spiffe-endpoint has no value and SPIFFE_ENDPOINT_SOCKET is not set: write --spiffe-endpoint unix:PATH"
    )]
    NoSpiffeSocket,
    /// The program cannot talk to an agent.
    #[error("--spiffe-endpoint: this program was built without the feature `spiffe`")]
    NoSpiffe,
    /// Two files for one trust domain.
    #[error("--xds-trust-domain gives two files for {0}: put the authorities of both into one")]
    TrustDomainTwice(TrustDomain),
    /// A flag needs another one.
    #[error("--{flag} needs --{other}")]
    Needs {
        /// The flag.
        flag: &'static str,
        /// The one that is missing.
        other: &'static str,
    },
    /// Two flags contradict each other.
    #[error("--{flag} and --{other} cannot be used together: omit one")]
    Contradiction {
        /// One flag.
        flag: &'static str,
        /// The other.
        other: &'static str,
    },
    /// A setting that other commands have too cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Servers on other hosts would ask each other without encryption.
    #[error(
        "--peer-listen {0} can be reached from other hosts and nothing is encrypted: give --peer-cert, --peer-key and --peer-ca, or \
         accept it with --allow-plaintext-peers"
    )]
    PlaintextPeers(SocketAddr),
    /// The history, secrets and all, would cross the network unencrypted.
    #[error(
        "--upstream {0} is on another host and the connection would not be encrypted: give --peer-cert, --peer-key and --peer-ca, or \
         accept it with --allow-plaintext-peers"
    )]
    PlaintextUpstream(String),
    /// The collector of traces is no URL of one.
    #[error("--otlp-endpoint {0:?} is not http://HOST:PORT or https://HOST:PORT")]
    Otlp(String),
    /// Traces would be sent to another host without encryption.
    #[error(
        "--otlp-endpoint {0} is on another host and the connection would not be encrypted: use https://, or accept it with \
         --allow-plaintext-otlp"
    )]
    PlaintextOtlp(String),
    /// The address of a server is none.
    #[error("--{flag} {text:?} is not HOST:PORT")]
    Address {
        /// The flag.
        flag: &'static str,
        /// As it was given.
        text: String,
    },
    /// The admin address can be reached from other hosts.
    #[error(
        "--admin-listen {0} can be reached from other hosts and nobody has to authenticate: listen on 127.0.0.1, \
         give --admin-token-file or --admin-client-ca, or accept it with --allow-unauthenticated-admin"
    )]
    UnauthenticatedAdmin(SocketAddr),
    /// Two listeners would have the same address.
    #[error("--{first} and --{second} are both {address}: use two ports")]
    SameAddress {
        /// One flag.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// A number or a duration is out of bounds.
    #[error("--{flag} must be at least {least}")]
    TooSmall {
        /// The flag.
        flag: &'static str,
        /// The smallest value that is allowed.
        least: &'static str,
    },
    /// The token file cannot be read.
    #[error("cannot read --admin-token-file {}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The token is too easily guessed, or cannot be sent in a header.
    #[error("--admin-token-file {} must contain at least {MIN_TOKEN_BYTES} visible ASCII characters", path.display())]
    Token {
        /// The file.
        path: PathBuf,
    },
    /// The file with certificates of authorities cannot be used.
    #[error("--rollout-ca {}: {message}", path.display())]
    RolloutCa {
        /// The file.
        path: PathBuf,
        /// The fault in it.
        message: String,
    },
    /// A host that rollouts may call is none.
    #[error("--webhook-allow {0}")]
    WebhookAllow(#[from] ReachError),
    /// The level is none.
    #[error("--log-level: {0}")]
    LogFilter(#[from] LogFilterError),
    /// A setting of waves without waves.
    #[error("--{0} needs --waves, such as --waves 1%,10%,100%")]
    NoWaves(&'static str),
    /// Settings of waves that do not go together.
    #[error("--waves: {0} (--wave-by)")]
    Waves(String),
    /// The `--config` file is wrong.
    #[error("config file {}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault in it, and its place.
        message: String,
    },
}

/// The shortest token: as many characters as 64 bits have in hexadecimal.
pub(super) const MIN_TOKEN_BYTES: usize = 16;
