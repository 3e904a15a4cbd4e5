//! TLS as flags.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use xds_cache::identity::TrustDomain;
use xds_settings::units::parse_duration;

use crate::config::error::ConfigError;
use crate::config::listen::ListenConfig;
use crate::listen::{Domains, Own, TlsFiles, TlsTiming, TlsVersion, TrustFiles};
use crate::spiffe::SpiffeEndpoint;

/// The flags of TLS. Files are PEM, and are read again when they change.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// PEM file with the certificate of the xDS port, followed by intermediate ones; it is read again when it changes
    #[arg(long, env = "XDS_SERVER_XDS_TLS_CERT", value_name = "FILE")]
    pub xds_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the xDS port
    #[arg(long, env = "XDS_SERVER_XDS_TLS_KEY", value_name = "FILE")]
    pub xds_tls_key: Option<PathBuf>,
    /// Oldest version of TLS on the xDS port. An Envoy offers 1.2 unless its bootstrap says otherwise, as that of `bootstrap` does
    #[arg(long, env = "XDS_SERVER_XDS_TLS_MIN_VERSION", value_name = "VERSION", default_value = "1.2")]
    pub xds_tls_min_version: TlsVersion,
    /// PEM file with the authorities of xDS clients: only clients with a certificate of one of them, or with a token of an issuer of
    /// --access-policy, are served
    #[arg(long, env = "XDS_SERVER_XDS_CLIENT_CA", value_name = "FILE")]
    pub xds_client_ca: Option<PathBuf>,
    /// PEM file with the authorities of a SPIFFE trust domain, as example.org=FILE. Certificates with a SPIFFE ID are then accepted
    /// from the authorities of their own trust domain alone, and --xds-client-ca is for the others
    #[arg(long, env = "XDS_SERVER_XDS_TRUST_DOMAIN", value_name = "NAME=FILE", value_delimiter = ',', value_parser = parse_bundle)]
    pub xds_trust_domain: Vec<TrustBundle>,
    /// PEM file with the CRLs of the authorities of xDS clients. A client is refused if its certificate is revoked, or if the file has
    /// no CRL of the issuer
    #[arg(long, env = "XDS_SERVER_XDS_CLIENT_CRL", value_name = "FILE")]
    pub xds_client_crl: Option<PathBuf>,
    /// Refuse the clients of an issuer whose CRL is out of date. Without this flag, it is used with a warning
    #[arg(long, env = "XDS_SERVER_XDS_CLIENT_CRL_STRICT", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub xds_client_crl_strict: bool,
    /// Fail the handshake of xDS clients without a certificate. Without this flag they are told what is missing, and health checks
    /// work
    #[arg(long, env = "XDS_SERVER_XDS_REQUIRE_CLIENT_CERT", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub xds_require_client_cert: bool,
    /// Serve xDS clients that show neither a certificate nor a token, although the address is not loopback or --xds-client-ca is given
    #[arg(long, env = "XDS_SERVER_ALLOW_ANONYMOUS_XDS", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub allow_anonymous_xds: bool,
    /// PEM file with the certificate of the admin port, followed by intermediate ones
    #[arg(long, env = "XDS_SERVER_ADMIN_TLS_CERT", value_name = "FILE")]
    pub admin_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the admin port
    #[arg(long, env = "XDS_SERVER_ADMIN_TLS_KEY", value_name = "FILE")]
    pub admin_tls_key: Option<PathBuf>,
    /// PEM file with the authorities of admin clients: a certificate of one of them counts as the admin token does
    #[arg(long, env = "XDS_SERVER_ADMIN_CLIENT_CA", value_name = "FILE")]
    pub admin_client_ca: Option<PathBuf>,
    /// Unix socket of the SPIFFE Workload API, as unix:PATH; without a value, the one in SPIFFE_ENDPOINT_SOCKET. The agent gives both
    /// ports their certificate, and the authorities of trust domains
    #[arg(long, env = "XDS_SERVER_SPIFFE_ENDPOINT", value_name = "unix:PATH", num_args = 0..=1, default_missing_value = "",
        hide_default_value = true)]
    pub spiffe_endpoint: Option<String>,
    /// How often to look for changed certificates
    #[arg(long, env = "XDS_SERVER_TLS_POLL_INTERVAL", value_name = "DURATION", default_value = "2s",
        value_parser = parse_duration)]
    pub tls_poll_interval: Duration,
    /// How long before its end a certificate is reported as a problem, but at most a quarter of its lifetime
    #[arg(long, env = "XDS_SERVER_TLS_EXPIRY_WARNING", value_name = "DURATION", default_value = "168h",
        value_parser = parse_duration)]
    pub tls_expiry_warning: Duration,
    /// Time limit for a TLS handshake
    #[arg(long, env = "XDS_SERVER_HANDSHAKE_TIMEOUT", value_name = "DURATION", default_value = "10s",
        value_parser = parse_duration)]
    pub handshake_timeout: Duration,
    /// Limit of TLS handshakes at once on a port; beyond it, the oldest end
    #[arg(long, env = "XDS_SERVER_MAX_PENDING_HANDSHAKES", value_name = "N", default_value = "4096")]
    pub max_pending_handshakes: usize,
}

/// The file of a trust domain, as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    domain: TrustDomain,
    file: PathBuf,
}

/// TLS of both ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Of the xDS port; `None` for plaintext.
    pub xds: Option<TlsFiles>,
    /// True if xDS clients are served that show neither a certificate nor a token.
    pub allows_anonymous: bool,
    /// Of the admin port; `None` for plaintext.
    pub admin: Option<TlsFiles>,
    /// The agent that certificates come from, if any do.
    pub spiffe: Option<SpiffeEndpoint>,
    /// When files are looked at, and the bounds of handshakes.
    pub timing: TlsTiming,
}

impl TlsConfig {
    /// With an access policy, the admin port accepts certificates of the agent's trust domains, for the policy to judge. Beside
    /// `--admin-client-ca` it does not: whom those authorities vouch for may do everything if the policy has no principals.
    pub(super) fn new(args: TlsArgs, policy: Option<&Path>) -> Result<Self, ConfigError> {
        let spiffe = args.spiffe_endpoint.as_deref().map(endpoint).transpose()?;
        let xds = xds(&args, spiffe.as_ref())?;
        if args.xds_require_client_cert && args.allow_anonymous_xds {
            return Err(ConfigError::Contradiction {
                flag: "xds-require-client-cert",
                other: "allow-anonymous-xds",
            });
        }
        let is_anonymous_by_default = xds.as_ref().is_none_or(|xds| !xds.trust.asks());
        let own = own("admin", args.admin_tls_cert, args.admin_tls_key, spiffe.as_ref())?;
        let mut admin_trust = TrustFiles { authorities: args.admin_client_ca, ..TrustFiles::default() };
        if spiffe.is_some() && policy.is_some() && !admin_trust.asks() {
            admin_trust.domains = Domains::Agent;
        }
        Ok(Self {
            xds,
            allows_anonymous: args.allow_anonymous_xds || is_anonymous_by_default,
            admin: files("admin", own, admin_trust)?,
            spiffe,
            timing: TlsTiming {
                poll_interval: args.tls_poll_interval,
                handshake: args.handshake_timeout,
                max_handshakes: args.max_pending_handshakes,
                expiry_warning: args.tls_expiry_warning,
            },
        })
    }

    /// Returns `true` if xDS clients can prove who they are.
    pub(crate) fn authenticates_clients(&self) -> bool {
        self.xds.as_ref().is_some_and(|xds| xds.trust.asks())
    }

    /// Returns `true` if a certificate lets clients into the admin port, whoever they are.
    pub(crate) fn has_admin_ca(&self) -> bool {
        self.admin.as_ref().is_some_and(|admin| admin.trust.authorities.is_some())
    }

    /// Returns `true` if others reach the xDS port, and nothing but a token can prove who they are.
    pub(super) fn relies_on_tokens(&self, listen: &ListenConfig, allows: Exceptions) -> bool {
        let asks_nobody = self.xds.as_ref().is_some_and(|xds| !xds.trust.asks());
        asks_nobody && !listen.xds.ip().is_loopback() && !allows.anonymous_xds
    }

    /// Checks that no port is open to other hosts by accident.
    pub(super) fn check(
        &self,
        listen: &ListenConfig,
        guards: &Guards,
        allows: Exceptions,
    ) -> Result<(), ConfigError> {
        if !listen.xds.ip().is_loopback() {
            match &self.xds {
                None if !allows.plaintext_xds => return Err(ConfigError::PlaintextXds(listen.xds)),
                Some(_) if self.relies_on_tokens(listen, allows) && !guards.policy => {
                    return Err(ConfigError::AnonymousXds(listen.xds));
                }
                None | Some(_) => {}
            }
        }
        let is_open =
            !guards.admin_token && !guards.policy && !self.has_admin_ca() && !allows.unauthenticated_admin;
        if !listen.admin.ip().is_loopback() && is_open {
            return Err(ConfigError::UnauthenticatedAdmin(listen.admin));
        }
        Ok(())
    }
}

/// The protections that an operator does without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exceptions {
    pub(super) plaintext_xds: bool,
    pub(super) anonymous_xds: bool,
    pub(super) unauthenticated_admin: bool,
}

/// The files that say who may use a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards {
    pub(super) admin_token: bool,
    pub(super) policy: bool,
}

/// TLS of the xDS port.
fn xds(args: &TlsArgs, spiffe: Option<&SpiffeEndpoint>) -> Result<Option<TlsFiles>, ConfigError> {
    let given = [
        (args.xds_tls_cert.is_some(), "xds-tls-cert"),
        (args.xds_tls_key.is_some(), "xds-tls-key"),
        (!args.xds_trust_domain.is_empty(), "xds-trust-domain"),
    ];
    if let (Some(_), Some((_, flag))) = (spiffe, given.into_iter().find(|(is_given, _)| *is_given)) {
        return Err(ConfigError::TwoSources(flag));
    }
    let domains = match spiffe {
        Some(_) => Domains::Agent,
        None => domains(&args.xds_trust_domain)?,
    };
    let trust = TrustFiles {
        authorities: args.xds_client_ca.clone(),
        domains,
        crl: args.xds_client_crl.clone(),
        is_crl_strict: args.xds_client_crl_strict,
    };
    if trust.crl.is_some() && !trust.asks() {
        return Err(ConfigError::Needs {
            flag: "xds-client-crl",
            other: "xds-client-ca, --xds-trust-domain or --spiffe-endpoint",
        });
    }
    if trust.is_crl_strict && trust.crl.is_none() {
        return Err(ConfigError::Needs { flag: "xds-client-crl-strict", other: "xds-client-crl" });
    }
    let own = own("xds", args.xds_tls_cert.clone(), args.xds_tls_key.clone(), spiffe)?;
    let xds = files("xds", own, trust)?.map(|files| TlsFiles {
        min_version: args.xds_tls_min_version,
        needs_client_certificate: args.xds_require_client_cert,
        ..files
    });
    if args.xds_require_client_cert && xds.as_ref().is_none_or(|xds| !xds.trust.asks()) {
        return Err(ConfigError::Needs {
            flag: "xds-require-client-cert",
            other: "xds-client-ca, --xds-trust-domain or --spiffe-endpoint",
        });
    }
    Ok(xds)
}

fn domains(bundles: &[TrustBundle]) -> Result<Domains, ConfigError> {
    let mut domains = BTreeMap::new();
    for TrustBundle { domain, file } in bundles {
        if domains.insert(domain.clone(), file.clone()).is_some() {
            return Err(ConfigError::TrustDomainTwice(domain.clone()));
        }
    }
    Ok(Domains::Files(domains))
}

/// Where the certificate of a port comes from: from its files, else from the agent.
fn own(
    port: &'static str,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    spiffe: Option<&SpiffeEndpoint>,
) -> Result<Option<Own>, ConfigError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(Own::Files { certificate, key })),
        (None, None) => Ok(spiffe.map(|_| Own::Agent)),
        (_, _) => Err(ConfigError::HalfTls(port)),
    }
}

fn files(port: &'static str, own: Option<Own>, trust: TrustFiles) -> Result<Option<TlsFiles>, ConfigError> {
    match own {
        Some(own) => {
            Ok(Some(TlsFiles { own, trust, needs_client_certificate: false, min_version: TlsVersion::Tls12 }))
        }
        None if !trust.asks() => Ok(None),
        None => Err(ConfigError::HalfTls(port)),
    }
}

/// The socket of the agent; an empty text stands for that of the environment.
fn endpoint(text: &str) -> Result<SpiffeEndpoint, ConfigError> {
    if cfg!(not(feature = "spiffe")) {
        return Err(ConfigError::NoSpiffe);
    }
    let text = match text {
        "" => env::var(ENDPOINT_SOCKET).map_err(|_| ConfigError::NoSpiffeSocket)?,
        text => text.to_owned(),
    };
    text.parse().map_err(|source| ConfigError::SpiffeEndpoint { text, source })
}

/// Reads such as `example.org=/etc/xds/example.org.crt`.
fn parse_bundle(text: &str) -> Result<TrustBundle, String> {
    let example = "write such as example.org=/etc/xds/example.org.crt";
    match text.split_once('=') {
        None | Some((_, "")) => Err(format!("the file is missing: {example}")),
        Some((name, file)) => match TrustDomain::new(name) {
            Ok(domain) => Ok(TrustBundle { domain, file: file.into() }),
            Err(error) => Err(format!("{error}: {example}")),
        },
    }
}

/// The variable in which the standard has the socket of the agent.
const ENDPOINT_SOCKET: &str = "SPIFFE_ENDPOINT_SOCKET";
