//! The configuration of the server: a [`Config`] that exists is valid.
//!
//! A setting comes from its flag, else from `XDS_SERVER_<FLAG>`, else from the `--config` file, else it has its default.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xds_cache::{DrainPolicy, WavePolicy};
use xds_settings::units::MassRemoval;
use xds_settings::{DescriptorArgs, SharedStore, default_data_dir};

use crate::config::error::MIN_TOKEN_BYTES;
use crate::rollouts::{Reach, Trust};
use crate::telemetry::LogConfig;

pub mod access;
pub mod args;
mod bounds;
pub mod drain;
mod error;
pub mod file;
mod listen;
pub mod peers;
pub mod polling;
pub mod tls;
pub mod traces;
pub mod waves;

pub use access::{AccessConfig, AuditLog};
pub use args::ServeArgs;
pub use error::ConfigError;
pub use listen::ListenConfig;
pub use peers::{PeerArgs, PeerConfig, UpstreamConfig};
pub use polling::PollingConfig;
pub use tls::TlsConfig;
pub use traces::TraceConfig;

pub use crate::listen::{Domains, Own, TlsFiles, TlsTiming, TlsVersion, TrustFiles};
pub use crate::peers::PeerFiles;
pub use crate::spiffe::{InvalidEndpoint, SpiffeEndpoint};

/// The configuration of one server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The files to watch.
    pub files: FilesConfig,
    /// How route documents are translated.
    pub routes: xds_routes::Options,
    /// The waves of groups that set none; `None` for everyone at once.
    pub waves: Option<WavePolicy>,
    /// The drain times of groups that set none.
    pub drain: DrainPolicy,
    /// Where the server listens.
    pub listen: ListenConfig,
    /// Where changes and last good copies are kept.
    pub data_dir: PathBuf,
    /// The store that changes are shared by; `None` if this server is alone.
    pub shared: Option<SharedStore>,
    /// The port for the other servers with the same store; `None` if they do not ask each other.
    pub peers: Option<PeerConfig>,
    /// The servers that this one follows; `None` if it follows none.
    pub upstream: Option<UpstreamConfig>,
    /// The file that says which xDS server is relayed; `None` if none is.
    pub relay: Option<PathBuf>,
    /// How long the clients of a server that vanished count.
    pub replica_grace: Duration,
    /// The log.
    pub log: LogConfig,
    /// The traces of changes; `None` if none are made.
    pub traces: Option<TraceConfig>,
    /// The token that the admin API demands; `None` if it demands nothing.
    pub admin_token: Option<AdminToken>,
    /// The access policy and the audit log.
    pub access: AccessConfig,
    /// Host names of the admin API, besides `localhost` and IP addresses; requests for others are refused.
    pub admin_hosts: Vec<String>,
    /// True if the admin port has a page for browsers.
    pub has_ui: bool,
    /// True if client status is served on the xDS port too.
    pub xds_client_status: bool,
    /// The groups that may have resources with secrets.
    pub secrets: xds_control::Secrets,
    /// The name of this server, for `control_plane.identifier`.
    pub instance_id: String,
    /// The authorities that rollouts trust when they call over https.
    pub rollout_trust: Trust,
    /// The hosts that rollouts may call.
    pub rollout_reach: Reach,
    /// Load reports.
    pub loads: LoadsConfig,
    /// REST-JSON polling.
    pub polling: PollingConfig,
    /// TLS.
    pub tls: TlsConfig,
    /// Bounds.
    pub limits: Limits,
    /// How dead connections are found.
    pub keepalive: Keepalive,
    /// The age at which connections end; `None` if they never do.
    pub max_connection_age: Option<Duration>,
    /// How long streams may take to end.
    pub drain_timeout: Duration,
}

/// The files to watch, and the rules for judging them.
#[derive(Clone, Debug)]
pub struct FilesConfig {
    /// Files and directories; may be empty.
    pub roots: Vec<PathBuf>,
    /// True if the good part of a first load with errors is served.
    pub is_partial_start: bool,
    /// True if dangling references are errors.
    pub is_strict: bool,
    /// The share of a group beyond which a removal is held back.
    pub hold_mass_removal: MassRemoval,
    /// What happens to a change that breaks a RouteTest which does not say it itself.
    pub test_policy: xds_control::route_tests::TestPolicy,
    /// An Envoy that judges changes.
    pub oracle: Option<PathBuf>,
    /// What happens to a change that it refuses.
    pub oracle_policy: xds_control::OraclePolicy,
    /// How often translations are compared with whole new ones.
    pub verify: xds_control::Verify,
    /// How often files are looked at without an event.
    pub poll_interval: Duration,
    /// The largest file in bytes.
    pub max_file_bytes: usize,
    /// True if symbolic links may lead out of the roots.
    pub follows_links: bool,
    /// Values of one document, in files and bodies.
    pub max_document_values: usize,
    /// Message types besides Envoy's.
    pub descriptors: DescriptorArgs,
}

/// Load reports. [`xds_routes::Options::reports_loads`] decides whether clients send any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadsConfig {
    /// How often clients report.
    pub interval: Duration,
    /// How long reports count.
    pub window: Duration,
    /// Clusters and localities of nodes in all.
    pub max_series: usize,
}

/// Limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest message that is received, in bytes.
    pub max_message_bytes: usize,
    /// Bytes of incomplete messages, of all clients together.
    pub max_receive_bytes: usize,
    /// Bytes of large incomplete messages, of one address.
    pub max_receive_bytes_per_address: usize,
    /// xDS connections at once, if open files allow it.
    pub max_connections: usize,
    /// Admin connections at once.
    pub max_admin_connections: usize,
    /// How long to keep an admin connection open without a request.
    pub admin_idle_timeout: Duration,
    /// How long a stream may take to send its first request.
    pub first_request_timeout: Duration,
    /// Bytes of resources in one response where it can be split.
    pub max_response_bytes: usize,
    /// How long a resource that refers to a new one waits for a silent client.
    pub addition_grace: Duration,
    /// How long a removed resource is kept for a silent client.
    pub removal_grace: Duration,
    /// How long a client may take to make a new cluster ready without asking the server.
    pub settle_time: Duration,
    /// True if every change is sent at once.
    pub is_naive: bool,
    /// Names of one type on one stream.
    pub max_names_per_type: usize,
    /// The bytes that may be kept about the nodes of all clients.
    pub max_node_memory: usize,
    /// The bytes that may be kept of what all clients subscribe to.
    pub max_subscription_memory: usize,
    /// Streams in all.
    pub max_streams: usize,
    /// Streams of one connection.
    pub max_streams_per_connection: u32,
}

/// How dead connections are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The silence after which a connection is pinged.
    pub interval: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
}

/// The bearer token of the admin API. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

impl TryFrom<ServeArgs> for Config {
    type Error = ConfigError;

    /// Checks the settings; reads the token file and the host's name.
    fn try_from(args: ServeArgs) -> Result<Self, ConfigError> {
        let listen =
            ListenConfig { xds: args.xds_listen, admin: args.admin_listen, probe: args.probe_listen };
        let admin_token = args.access.admin_token_file.as_deref().map(AdminToken::read).transpose()?;
        listen.check_distinct()?;
        bounds::check(&args)?;
        let exceptions = tls::Exceptions {
            plaintext_xds: args.access.allow_plaintext_xds,
            anonymous_xds: args.tls.allow_anonymous_xds,
            unauthenticated_admin: args.access.allow_unauthenticated_admin,
        };
        let mut access = AccessConfig::new(&args.access)?;
        let mut tls = TlsConfig::new(args.tls, access.policy.as_deref())?;
        let is_guarded = admin_token.is_some() || tls.has_admin_ca() || exceptions.unauthenticated_admin;
        access.needs_principals = !listen.admin.ip().is_loopback() && !is_guarded;
        access.needs_issuers = tls.relies_on_tokens(&listen, exceptions);
        access.shows_tokens = tls.xds.is_none() && !listen.xds.ip().is_loopback();
        tls.check(
            &listen,
            &tls::Guards { admin_token: admin_token.is_some(), policy: access.policy.is_some() },
            exceptions,
        )?;
        tls.allows_anonymous &= !access.needs_issuers;
        let secrets = args.access.secrets.map_or_else(|| default_secrets(&tls, &access), Into::into);
        let limits = args.limits;
        let shared = SharedStore::new(args.shared)?;
        let replica_grace = args.peers.replica_grace;
        let own = [(shared.is_some(), "store"), (!args.watch.is_empty(), "watch")];
        let relay = args.peers.relay(own)?;
        let (peers, upstream) = PeerConfig::new(args.peers, own)?;
        listen.check_distinct_from("peer-listen", peers.as_ref().map(|peers| peers.listen))?;
        let waves = args.waves.policy()?;
        let rollout_trust = args.rollouts.rollout_ca.map(read_ca).transpose()?.unwrap_or_default();
        let is_of_several = shared.is_some() || peers.is_some() || upstream.is_some();
        // One server has nobody to share its clients with.
        let max_connection_age = limits.max_connection_age.or(is_of_several.then_some(MAX_CONNECTION_AGE));
        Ok(Self {
            waves,
            drain: args.drain.into(),
            files: FilesConfig::new(args.watch, args.sources),
            routes: xds_routes::Options::from(&args.routes),
            listen,
            data_dir: args.data_dir.map_or_else(default_data_dir, Ok)?,
            shared,
            peers,
            upstream,
            relay,
            replica_grace,
            log: LogConfig::new(args.log_format, args.log_level.as_deref().unwrap_or("info"))?,
            traces: TraceConfig::new(args.traces)?,
            admin_token,
            access,
            secrets,
            admin_hosts: args.access.admin_host,
            has_ui: !args.no_ui,
            xds_client_status: args.access.xds_client_status,
            instance_id: args.instance_id.unwrap_or_else(host_name),
            rollout_trust,
            rollout_reach: Reach::new(&args.rollouts.webhook_allow)?,
            loads: LoadsConfig {
                interval: args.loads.load_report_interval,
                window: args.loads.load_window,
                max_series: args.loads.max_load_series,
            },
            polling: args.polling.into(),
            tls,
            limits: Limits::from(&limits),
            keepalive: Keepalive { interval: limits.keepalive_interval, timeout: limits.keepalive_timeout },
            max_connection_age: max_connection_age.filter(|age| !age.is_zero()),
            drain_timeout: limits.drain_timeout,
        })
    }
}

impl From<&args::LimitArgs> for Limits {
    fn from(limits: &args::LimitArgs) -> Self {
        Self {
            max_message_bytes: limits.max_message_bytes,
            max_receive_bytes: limits.max_receive_bytes,
            max_receive_bytes_per_address: limits.max_receive_bytes_per_address,
            max_connections: limits.max_connections,
            max_admin_connections: limits.max_admin_connections,
            admin_idle_timeout: limits.admin_idle_timeout,
            first_request_timeout: limits.first_request_timeout,
            max_response_bytes: limits.max_response_bytes,
            addition_grace: limits.addition_grace,
            removal_grace: limits.removal_grace,
            settle_time: limits.settle_time,
            is_naive: limits.naive_order,
            max_names_per_type: limits.max_names_per_type,
            max_node_memory: limits.max_node_memory,
            max_subscription_memory: limits.max_subscription_memory,
            max_streams: limits.max_streams,
            max_streams_per_connection: limits.max_streams_per_connection,
        }
    }
}

impl FilesConfig {
    fn new(roots: Vec<PathBuf>, args: args::SourceArgs) -> Self {
        Self {
            roots,
            is_partial_start: args.partial_start,
            is_strict: args.strict,
            hold_mass_removal: args.hold_mass_removal,
            test_policy: args.test_policy,
            oracle: args.oracle,
            oracle_policy: args.oracle_policy.into(),
            verify: args.verify.into(),
            poll_interval: args.poll_interval,
            max_file_bytes: args.max_file_bytes,
            follows_links: args.follow_symlinks,
            max_document_values: args.max_document_values,
            descriptors: args.descriptors,
        }
    }
}

impl AdminToken {
    /// Reads the token, without white space around it.
    ///
    /// # Errors
    ///
    /// [`ConfigError::TokenFile`] or [`ConfigError::Token`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::TokenFile { path: path.to_owned(), source })?;
        let token = text.trim();
        if token.len() < MIN_TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::Token { path: path.to_owned() });
        }
        Ok(Self(token.to_owned()))
    }

    /// The token itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

/// How old connections become where several servers share a store.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);

/// Once clients can prove who they are, only those that do get secrets.
fn default_secrets(tls: &TlsConfig, access: &AccessConfig) -> xds_control::Secrets {
    if tls.authenticates_clients() || access.needs_issuers {
        xds_control::Secrets::Identified
    } else {
        xds_control::Secrets::Any
    }
}

fn read_ca(path: PathBuf) -> Result<Trust, ConfigError> {
    Trust::read(&path).map_err(|message| ConfigError::RolloutCa { path, message })
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "xds-server".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::{CommandFactory as _, Parser};
    use proptest::prelude::*;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn config(line: &str) -> Result<Config, String> {
        let words = ["xds-server", "--data-dir=/data"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Config::try_from(line.serve).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_has_its_environment_twin() {
        let line = Line::command();
        for argument in line.get_arguments().filter(|argument| argument.get_id() != "help") {
            let long = argument.get_long().unwrap_or_default();
            let twin = format!("XDS_SERVER_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(argument.get_env(), Some(OsStr::new(&twin)), "--{long}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_decisions() {
        let config = config("").unwrap();
        assert_eq!(config.listen.xds.to_string(), "127.0.0.1:18000");
        assert_eq!(config.listen.admin.to_string(), "127.0.0.1:18001");
        assert_eq!(config.drain_timeout, Duration::from_secs(10));
        assert_eq!(config.limits.max_message_bytes, 64 << 20);
        assert_eq!(config.limits.max_names_per_type, 250_000);
        assert_eq!(config.files.max_file_bytes, 10 << 20);
        assert_eq!(config.files.max_document_values, 2_000_000);
        assert_eq!(config.files.poll_interval, Duration::from_secs(5));
        assert_eq!((config.files.is_partial_start, config.files.is_strict), (false, false));
        assert!(!config.instance_id.is_empty());
    }

    #[test]
    fn traces_are_sent_in_plaintext_only_to_this_host_or_by_consent() {
        for (flags, refusal) in [
            ("--otlp-endpoint http://127.0.0.1:4317", ""),
            ("--otlp-endpoint http://[::1]:4317 --trace-sample 0.5", ""),
            ("--otlp-endpoint http://collector:4317 --allow-plaintext-otlp", ""),
            ("--otlp-endpoint https://collector:4317 --otlp-ca ca.pem", ""),
            ("--otlp-endpoint http://collector:4317", "would not be encrypted"),
            ("--otlp-endpoint collector:4317", "is not http://HOST:PORT"),
            ("--otlp-endpoint http://127.0.0.1:4317/v1/traces", "is not http://HOST:PORT"),
            ("--otlp-endpoint https://user@collector:4317", "is not http://HOST:PORT"),
            ("--otlp-endpoint http://127.0.0.1:4317 --otlp-ca ca.pem", "needs"),
            ("--otlp-ca ca.pem", "needs --otlp-endpoint"),
            ("--otlp-endpoint https://collector:4317 --otlp-cert c --otlp-key k --otlp-headers-file h", ""),
            ("--otlp-endpoint http://127.0.0.1:4317 --otlp-headers-file h", ""),
            ("--otlp-endpoint https://collector:4317 --otlp-cert c", "--otlp-cert needs --otlp-key"),
            ("--otlp-endpoint https://collector:4317 --otlp-key k", "--otlp-key needs --otlp-cert"),
            (
                "--otlp-endpoint http://127.0.0.1:4317 --otlp-cert c --otlp-key k",
                "needs --otlp-endpoint with https",
            ),
            ("--otlp-key k", "needs --otlp-endpoint"),
            ("--otlp-headers-file h", "needs --otlp-endpoint"),
            ("--trace-sample 1.5", "not a number from 0 to 1"),
        ] {
            let error = config(flags).err().unwrap_or_default();
            assert!(
                if refusal.is_empty() { error.is_empty() } else { error.contains(refusal) },
                "{flags}: {error}"
            );
        }
        assert!(config("").unwrap().traces.is_none());
    }

    #[test]
    fn where_only_tokens_can_prove_who_clients_are_the_policy_must_have_issuers() {
        let tls = "--xds-tls-cert c --xds-tls-key k --access-policy p";
        for (args, needs_issuers, allows_anonymous, shows_tokens) in [
            (format!("--xds-listen 0.0.0.0:1 {tls}"), true, false, false),
            (format!("--xds-listen 0.0.0.0:1 {tls} --allow-anonymous-xds"), false, true, false),
            (format!("--xds-listen 0.0.0.0:1 {tls} --xds-client-ca a"), false, false, false),
            (tls.to_owned(), false, true, false),
            ("--xds-listen 0.0.0.0:1 --allow-plaintext-xds --access-policy p".to_owned(), false, true, true),
        ] {
            let config = config(&args).unwrap();
            let found =
                (config.access.needs_issuers, config.tls.allows_anonymous, config.access.shows_tokens);
            assert_eq!(found, (needs_issuers, allows_anonymous, shows_tokens), "{args}");
        }
    }

    #[test]
    fn an_open_address_must_be_allowed() {
        let table = [
            ("--xds-listen 0.0.0.0:1", Some("--allow-plaintext-xds")),
            ("--xds-listen 0.0.0.0:1 --allow-plaintext-xds", None),
            ("--xds-listen 0.0.0.0:1 --xds-tls-cert c --xds-tls-key k", Some("--xds-client-ca")),
            ("--xds-listen 0.0.0.0:1 --xds-tls-cert c --xds-tls-key k --allow-anonymous-xds", None),
            ("--xds-listen 0.0.0.0:1 --xds-tls-cert c --xds-tls-key k --xds-client-ca a", None),
            ("--xds-listen 0.0.0.0:1 --xds-tls-cert c --xds-tls-key k --access-policy p", None),
            ("--xds-tls-cert c --xds-tls-key k", None),
            ("--xds-tls-cert c", Some("TLS on the xds port needs both --xds-tls-cert and --xds-tls-key")),
            ("--admin-client-ca a", Some("TLS on the admin port needs both")),
            ("--xds-listen 0.0.0.0:1 --spiffe-endpoint unix:/s", None),
            (
                "--spiffe-endpoint unix:/s --xds-client-ca a --xds-client-crl c --xds-require-client-cert",
                None,
            ),
            ("--spiffe-endpoint unix:/s --admin-tls-cert c --admin-tls-key k", None),
            ("--admin-listen [::]:1 --spiffe-endpoint unix:/s", Some("nobody has to authenticate")),
            ("--admin-listen [::]:1 --spiffe-endpoint unix:/s --access-policy p", None),
            (
                "--spiffe-endpoint unix:/s --xds-tls-cert c --xds-tls-key k",
                Some("--xds-tls-cert and --spiffe-endpoint cannot be used together"),
            ),
            (
                "--spiffe-endpoint unix:/s --xds-trust-domain a.org=f",
                Some("--xds-trust-domain and --spiffe-endpoint cannot be used together"),
            ),
            (
                "--spiffe-endpoint tcp:127.0.0.1:1",
                Some("--spiffe-endpoint tcp:127.0.0.1:1: the agent is reached by a Unix socket"),
            ),
            ("--spiffe-endpoint unix:agent.sock", Some("the path of the socket must be absolute")),
            (
                "--xds-tls-cert c --xds-tls-key k --xds-require-client-cert",
                Some("--xds-require-client-cert needs --xds-client-ca"),
            ),
            (
                "--xds-tls-cert c --xds-tls-key k --xds-client-ca a --xds-require-client-cert --allow-anonymous-xds",
                Some("cannot be used together"),
            ),
            ("--admin-listen [::]:1 --admin-tls-cert c --admin-tls-key k", Some("--admin-client-ca")),
            ("--admin-listen [::]:1 --admin-tls-cert c --admin-tls-key k --admin-client-ca a", None),
            ("--admin-listen [::]:1", Some("--admin-token-file")),
            ("--admin-listen [::]:1 --allow-unauthenticated-admin", None),
            ("--xds-listen [::1]:1 --admin-listen 127.0.0.2:1", None),
            ("--admin-listen 127.0.0.1:18000", Some("use two ports")),
            ("--xds-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0", None),
            ("--poll-interval 1ms", Some("--poll-interval must be at least 100ms")),
            ("--load-report-interval 999ms", Some("--load-report-interval must be at least 1s")),
            ("--load-window 20s", Some("--load-window must be at least three times --load-report-interval")),
            ("--load-window 3s --load-report-interval 1s", None),
            (
                "--max-message-bytes 1GiB",
                Some("--max-receive-bytes must be at least twice --max-message-bytes"),
            ),
            (
                "--max-receive-bytes-per-address 63MiB",
                Some("--max-receive-bytes-per-address must be at least --max-message-bytes"),
            ),
            ("--max-streams 0", Some("--max-streams must be at least 1")),
            ("--webhook-allow *.example.com,10.0.0.0/8 --webhook-allow ::1", None),
            ("--webhook-allow http://a", Some("--webhook-allow `http://a` names no hosts")),
            ("--log-level inof", Some("`inof` is not a log level")),
            ("--partial-start --strict=false", None),
        ];
        judge(&table);
    }

    #[test]
    fn other_servers_are_asked_over_tls_or_on_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        fs::write(&key, "5a".repeat(32)).unwrap();
        let store = format!("--store etcd://127.0.0.1:1/x --store-key-file {}", key.display());
        let tls = "--peer-cert c --peer-key k --peer-ca a";
        let with_store = |rest: &str| format!("{store} {rest}");
        let table = [
            ("--peer-listen 127.0.0.1:1".to_owned(), None),
            ("--upstream 127.0.0.1:1,localhost:2".to_owned(), None),
            ("--upstream core:1".to_owned(), Some("--allow-plaintext-peers")),
            (format!("--upstream core-a:1,core-b:1 {tls}"), None),
            (format!("--upstream core {tls}"), Some("--upstream \"core\" is not HOST:PORT")),
            (
                "--upstream 127.0.0.1:1 --watch .".to_owned(),
                Some("--upstream and --watch cannot be used together"),
            ),
            (
                "--upstream 127.0.0.1:1 --peer-listen 127.0.0.1:2".to_owned(),
                Some("--upstream and --peer-listen"),
            ),
            ("--relay r.yaml --peer-listen 127.0.0.1:1".to_owned(), None),
            ("--relay r.yaml --watch .".to_owned(), Some("--relay and --watch cannot be used together")),
            ("--relay r.yaml --upstream 127.0.0.1:1".to_owned(), Some("--relay and --upstream")),
            (with_store("--relay r.yaml"), Some("--relay and --store cannot be used together")),
            (with_store("--upstream 127.0.0.1:1"), Some("--upstream and --store cannot be used together")),
            (with_store("--peer-listen 127.0.0.1:1"), None),
            (with_store("--peer-listen 10.0.0.1:1"), Some("--allow-plaintext-peers")),
            (with_store("--peer-listen 10.0.0.1:1 --allow-plaintext-peers"), None),
            (with_store(&format!("--peer-listen 10.0.0.1:1 {tls}")), None),
            (with_store(&format!("--peer-listen 0.0.0.0:1 {tls}")), Some("needs --peer-advertise")),
            (with_store(&format!("--peer-listen 0.0.0.0:1 {tls} --peer-advertise a:1")), None),
            (with_store("--peer-listen 127.0.0.1:1 --peer-advertise a"), Some("\"a\" is not HOST:PORT")),
            (
                with_store("--peer-listen 127.0.0.1:1 --peer-cert c --peer-key k"),
                Some("--peer-cert needs --peer-ca"),
            ),
            (with_store("--peer-listen 127.0.0.1:1 --peer-ca a"), Some("needs --peer-cert")),
            (with_store("--peer-advertise a:1"), Some("--peer-advertise needs --peer-listen")),
            (with_store("--peer-listen 127.0.0.1:18000"), Some("use two ports")),
        ];
        let table: Vec<_> = table.iter().map(|(line, wrong)| (line.as_str(), *wrong)).collect();
        judge(&table);
    }

    #[test]
    fn what_clients_are_verified_with_must_be_complete() {
        let table = [
            (
                "--xds-listen 0.0.0.0:1 --xds-tls-cert c --xds-tls-key k --xds-trust-domain example.org=b",
                None,
            ),
            ("--xds-trust-domain example.org=b", Some("TLS on the xds port needs both")),
            ("--xds-trust-domain example.org", Some("the file is missing: write such as example.org=")),
            ("--xds-trust-domain Example.org=b", Some("a trust domain has 1 to 255 lower-case letters")),
            ("--xds-trust-domain spiffe://a.org=b", Some("a trust domain has 1 to 255 lower-case letters")),
            (
                "--xds-tls-cert c --xds-tls-key k --xds-trust-domain a.org=a,b.org=b --xds-trust-domain a.org=c",
                Some("--xds-trust-domain gives two files for a.org"),
            ),
            ("--xds-tls-cert c --xds-tls-key k --xds-trust-domain a.org=b --xds-require-client-cert", None),
            (
                "--xds-tls-cert c --xds-tls-key k --xds-client-crl r",
                Some("--xds-client-crl needs --xds-client-ca"),
            ),
            (
                "--xds-tls-cert c --xds-tls-key k --xds-client-ca a --xds-client-crl-strict",
                Some("--xds-client-crl-strict needs --xds-client-crl"),
            ),
            (
                "--xds-tls-cert c --xds-tls-key k --xds-trust-domain a.org=b --xds-client-crl r --xds-client-crl-strict",
                None,
            ),
        ];
        judge(&table);
    }

    /// Each line is accepted, or refused with a message that contains the text.
    fn judge(table: &[(&str, Option<&str>)]) {
        for (line, wrong) in table {
            match (config(line), wrong) {
                (Ok(_), None) => {}
                (Err(error), Some(wrong)) => assert!(error.contains(wrong), "{line}: {error}"),
                (outcome, _) => panic!("{line}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn secrets_need_identities_once_clients_are_authenticated() {
        use xds_control::Secrets::{Any, Identified};
        let tls = "--xds-tls-cert c --xds-tls-key k";
        let table = [
            ("", Any),
            (tls, Any),
            (&format!("{tls} --xds-client-ca a"), Identified),
            (&format!("{tls} --xds-client-ca a --allow-anonymous-xds"), Identified),
            (&format!("{tls} --xds-client-ca a --secrets any"), Any),
            (&format!("{tls} --xds-trust-domain a.org=b"), Identified),
            (&format!("{tls} --access-policy p --xds-listen 0.0.0.0:1"), Identified),
            (&format!("{tls} --access-policy p"), Any),
            ("--secrets identified", Identified),
        ];
        for (line, expected) in table {
            assert_eq!(config(line).unwrap().secrets, expected, "{line}");
        }
    }

    #[test]
    fn a_token_opens_the_admin_address_and_is_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let line = format!("--admin-listen 0.0.0.0:1 --admin-token-file {}", path.display());
        assert!(config(&line).unwrap_err().contains("cannot read"));
        fs::write(&path, "short\n").unwrap();
        assert!(config(&line).unwrap_err().contains("at least 16"));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        let config = config(&line).unwrap();
        assert_eq!(config.admin_token.as_ref().map(AdminToken::as_str), Some("0123456789abcdef"));
        assert!(!format!("{config:?}").contains("0123456789abcdef"));
    }

    proptest! {
        #[test]
        fn no_setting_makes_it_panic(words in proptest::collection::vec("(--[a-z-]{0,20}|[0-9a-zA-Z.:%]{0,12})", 0..4)) {
            let _ = config(&words.join(" "));
        }
    }
}
