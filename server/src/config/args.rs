//! The settings of `serve` as they are given: flags, with their environment twins.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use xds_control::route_tests::TestPolicy;
use xds_settings::units::{MassRemoval, parse_address, parse_duration, parse_mass_removal, parse_size};
use xds_settings::{DescriptorArgs, RouteArgs, Secrets, SharedStoreArgs};

use crate::config::drain::DrainArgs;
use crate::config::peers::PeerArgs;
use crate::config::polling::PollingArgs;
use crate::config::tls::TlsArgs;
use crate::config::traces::TraceArgs;
use crate::config::waves::WaveArgs;
use crate::telemetry::LogFormat;

/// The flags of `serve`. A flag wins over `XDS_SERVER_<FLAG>`, that over the `--config` file, that over the default.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// YAML or JSON file with settings. The keys are the names of the flags: `xds-listen: 0.0.0.0:18000`
    #[arg(long, env = "XDS_SERVER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File or directory to serve; may be repeated. Separate several with colons in the environment variable
    #[arg(long, env = "XDS_SERVER_WATCH", value_name = "PATH")]
    pub watch: Vec<PathBuf>,
    /// Address for xDS clients; port 0 uses any free port
    #[arg(long, env = "XDS_SERVER_XDS_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:18000",
        value_parser = parse_address)]
    pub xds_listen: SocketAddr,
    /// Address of the admin API
    #[arg(long, env = "XDS_SERVER_ADMIN_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:18001",
        value_parser = parse_address)]
    pub admin_listen: SocketAddr,
    /// Address that serves only /healthz, /readyz and /metrics
    #[arg(long, env = "XDS_SERVER_PROBE_LISTEN", value_name = "ADDR", value_parser = parse_address)]
    pub probe_listen: Option<SocketAddr>,
    /// Serve no page on the admin port, only the API
    #[arg(long, env = "XDS_SERVER_NO_UI")]
    pub no_ui: bool,
    /// Directory for changes and last good copies [default: $XDG_STATE_HOME/xds-server, else ~/.local/state/xds-server]
    #[arg(long, env = "XDS_SERVER_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Format of the log, which goes to standard error
    #[arg(long, env = "XDS_SERVER_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Log level: error, warn, info, debug, trace, or a filter such as info,xds_session=debug
    #[arg(long, env = "XDS_SERVER_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Name by which this server identifies itself to clients [default: the host name]
    #[arg(long, env = "XDS_SERVER_INSTANCE_ID", value_name = "ID")]
    pub instance_id: Option<String>,
    /// A store that several servers share.
    #[command(flatten)]
    pub shared: SharedStoreArgs,
    /// Traces of changes.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The other servers with the same store.
    #[command(flatten)]
    pub peers: PeerArgs,
    /// Files and writes.
    #[command(flatten)]
    pub sources: SourceArgs,
    /// Route documents.
    #[command(flatten)]
    pub routes: RouteArgs,
    /// Wave deployments.
    #[command(flatten)]
    pub waves: WaveArgs,
    /// Draining.
    #[command(flatten)]
    pub drain: DrainArgs,
    /// Rollouts by steps.
    #[command(flatten)]
    pub rollouts: RolloutArgs,
    /// Load reports.
    #[command(flatten)]
    pub loads: LoadArgs,
    /// REST-JSON polling.
    #[command(flatten)]
    pub polling: PollingArgs,
    /// Who may connect.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Encryption.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Bounds.
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// How often a translation is compared with one from nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// Never.
    Off,
    /// Once in 1,000 revisions, in the background; this uses one core for as long as a start takes, and memory for a second
    /// translation.
    Sampled,
    /// Before each change, and refuse the change if there is a difference: for tests.
    Always,
}

impl From<Verify> for xds_control::Verify {
    fn from(verify: Verify) -> Self {
        match verify {
            Verify::Off => Self::Off,
            Verify::Sampled => Self::Sampled,
            Verify::Always => Self::Always,
        }
    }
}

/// What happens to a change that the oracle refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OraclePolicy {
    /// It is published with a warning
    Tell,
    /// A write is refused; an object of a file keeps its last good version
    Refuse,
}

impl From<OraclePolicy> for xds_control::OraclePolicy {
    fn from(policy: OraclePolicy) -> Self {
        match policy {
            OraclePolicy::Tell => Self::Tell,
            OraclePolicy::Refuse => Self::Refuse,
        }
    }
}

/// How files are read and what is refused.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Files")]
pub struct SourceArgs {
    /// Serve the correct part of a first load that has errors
    #[arg(long, env = "XDS_SERVER_PARTIAL_START", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub partial_start: bool,
    /// Treat references to resources that do not exist as errors
    #[arg(long, env = "XDS_SERVER_STRICT", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub strict: bool,
    /// Hold back a load that removes all objects of a kind, or more than this share of five or more objects of a group, until
    /// `xds-server reload --confirm`; `off` disables this
    #[arg(long, env = "XDS_SERVER_HOLD_MASS_REMOVAL", value_name = "SHARE", default_value = "50%", value_parser = parse_mass_removal)]
    pub hold_mass_removal: MassRemoval,
    /// What to do with a change after which a RouteTest fails that does not say it with `policy`: `tell` publishes it and reports the
    /// failure, `hold` accepts it and does not publish it until it passes, `refuse` refuses a write and holds a load of files
    #[arg(long, env = "XDS_SERVER_TEST_POLICY", value_name = "POLICY", default_value = "tell")]
    pub test_policy: TestPolicy,
    /// Ask this Envoy on the server's machine about each change before it is published (`envoy --mode validate`). It runs with the server's
    /// rights, and reads the files that resources name; if it does not answer, changes go on without it
    #[arg(long, env = "XDS_SERVER_ORACLE", value_name = "PATH")]
    pub oracle: Option<PathBuf>,
    /// What to do with a change that the Envoy of `--oracle` refuses: `tell` publishes it with a warning, `refuse` refuses a write and keeps
    /// the last good version of an object of a file
    #[arg(long, env = "XDS_SERVER_ORACLE_POLICY", value_name = "POLICY", value_enum, default_value = "tell")]
    pub oracle_policy: OraclePolicy,
    /// How often to compare the incremental translation with a full one, and correct any difference
    #[arg(long, env = "XDS_SERVER_VERIFY", value_name = "WHEN", value_enum, default_value = "sampled")]
    pub verify: Verify,
    /// How often to look for changed files, in addition to the kernel's notifications
    #[arg(long, env = "XDS_SERVER_POLL_INTERVAL", value_name = "DURATION", default_value = "5s",
        value_parser = parse_duration)]
    pub poll_interval: Duration,
    /// Size limit of a file
    #[arg(long, env = "XDS_SERVER_MAX_FILE_BYTES", value_name = "SIZE", default_value = "10MiB",
        value_parser = parse_size)]
    pub max_file_bytes: usize,
    /// Follow symbolic links that lead out of the watched directories; without this flag they are errors
    #[arg(long, env = "XDS_SERVER_FOLLOW_SYMLINKS", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub follow_symlinks: bool,
    /// Limit of values (lists, objects and scalars) in one document
    #[arg(long, env = "XDS_SERVER_MAX_DOCUMENT_VALUES", value_name = "N",
        default_value_t = xds_codec::Limits::DEFAULT_DOCUMENT_VALUES)]
    pub max_document_values: usize,
    /// Message types besides those that are built in.
    #[command(flatten)]
    pub descriptors: DescriptorArgs,
}

/// Who may connect.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Allow an xDS address that is not loopback without TLS
    #[arg(long, env = "XDS_SERVER_ALLOW_PLAINTEXT_XDS", default_value = "false", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_default_value = true, value_parser = BoolishValueParser::new())]
    pub allow_plaintext_xds: bool,
    /// Allow an admin address that is not loopback, although nobody has to authenticate
    #[arg(long, env = "XDS_SERVER_ALLOW_UNAUTHENTICATED_ADMIN", default_value = "false", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_default_value = true, value_parser = BoolishValueParser::new())]
    pub allow_unauthenticated_admin: bool,
    /// Node groups that may have resources with secrets: `identified` for those with `identities`, `any` for all [default:
    /// identified once clients can prove who they are, by --xds-client-ca, --xds-trust-domain, or tokens alone; else any]
    #[arg(long, env = "XDS_SERVER_SECRETS", value_name = "GROUPS")]
    pub secrets: Option<Secrets>,
    /// Also serve client status (CSDS) on the xDS port, to principals of the access policy that show a certificate or a JSON Web
    /// Token; if there are no principals and clients cannot prove who they are, to everyone. It is always on the admin port
    #[arg(long, env = "XDS_SERVER_XDS_CLIENT_STATUS", default_value = "false", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_default_value = true, value_parser = BoolishValueParser::new())]
    pub xds_client_status: bool,
    /// YAML file with the principals of the admin API, the issuers of tokens and denied identities; it is read again when it changes
    #[arg(long, env = "XDS_SERVER_ACCESS_POLICY", value_name = "FILE")]
    pub access_policy: Option<PathBuf>,
    /// Serve clients of the xDS port also where `identities` of node groups or the access policy would refuse them, and record what would be
    /// refused, except node groups that hold a secret. The admin port is not concerned
    #[arg(long, env = "XDS_SERVER_ACCESS_DRY_RUN", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub access_dry_run: bool,
    /// File to which a line is added for each write and each refusal; - is standard output
    #[arg(long, env = "XDS_SERVER_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Begin a new file when the audit log would get larger than this. The old ones are FILE.1, FILE.2 and so on
    #[arg(long, env = "XDS_SERVER_AUDIT_MAX_BYTES", value_name = "SIZE", value_parser = parse_size)]
    pub audit_max_bytes: Option<usize>,
    /// How many old files of the audit log are kept
    #[arg(long, env = "XDS_SERVER_AUDIT_KEEP", value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub audit_keep: u32,
    /// Wait until each line of the audit log is on disk (fsync): it survives a power failure, and writes take as long as the disk
    #[arg(long, env = "XDS_SERVER_AUDIT_FSYNC", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub audit_fsync: bool,
    /// Refuse writes while the audit log cannot be written
    #[arg(long, env = "XDS_SERVER_AUDIT_REQUIRED", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub audit_required: bool,
    /// File with the bearer token that the admin API requires; it is read again when it changes
    #[arg(long, env = "XDS_SERVER_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Host name of the admin API, in addition to localhost and IP addresses; may be repeated. Separate several with commas in
    /// the environment variable
    #[arg(long, env = "XDS_SERVER_ADMIN_HOST", value_name = "HOST", value_delimiter = ',')]
    pub admin_host: Vec<String>,
}

/// What rollouts may call.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Rollouts")]
pub struct RolloutArgs {
    /// PEM file with certificate authorities to trust for webhooks and Prometheus, in addition to the system's
    #[arg(long, env = "XDS_SERVER_ROLLOUT_CA", value_name = "FILE")]
    pub rollout_ca: Option<PathBuf>,
    /// Host that webhooks and Prometheus may be on: a name, *.example.com, an address or a network; may be repeated [default: all
    /// except link-local addresses and metadata services, which are never called]
    #[arg(long, env = "XDS_SERVER_WEBHOOK_ALLOW", value_name = "HOST", value_delimiter = ',')]
    pub webhook_allow: Vec<String>,
}

/// What clients report of the requests that they send.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Load reports")]
pub struct LoadArgs {
    /// How often clients report their load
    #[arg(long, env = "XDS_SERVER_LOAD_REPORT_INTERVAL", value_name = "DURATION", default_value = "10s",
        value_parser = parse_duration)]
    pub load_report_interval: Duration,
    /// How long load reports are kept
    #[arg(long, env = "XDS_SERVER_LOAD_WINDOW", value_name = "DURATION", default_value = "15m",
        value_parser = parse_duration)]
    pub load_window: Duration,
    /// Limit of clusters and localities of nodes in kept load reports, for all clients together
    #[arg(long, env = "XDS_SERVER_MAX_LOAD_SERIES", value_name = "N", default_value = "50000")]
    pub max_load_series: usize,
}

/// Bounds on what clients can make the server do.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Time limit for streams to end after SIGTERM
    #[arg(long, env = "XDS_SERVER_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s",
        value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// The age at which to end connections of clients, so that they spread over all servers; 0s for never [default: 30m with --store,
    /// --peer-listen or --upstream, else 0s]
    #[arg(long, env = "XDS_SERVER_MAX_CONNECTION_AGE", value_name = "DURATION", value_parser = parse_duration)]
    pub max_connection_age: Option<Duration>,
    /// How often to ping a silent connection
    #[arg(long, env = "XDS_SERVER_KEEPALIVE_INTERVAL", value_name = "DURATION", default_value = "30s",
        value_parser = parse_duration)]
    pub keepalive_interval: Duration,
    /// How long to wait for the answer to a ping before closing the connection
    #[arg(long, env = "XDS_SERVER_KEEPALIVE_TIMEOUT", value_name = "DURATION", default_value = "20s",
        value_parser = parse_duration)]
    pub keepalive_timeout: Duration,
    /// Size limit of a received message
    #[arg(long, env = "XDS_SERVER_MAX_MESSAGE_BYTES", value_name = "SIZE", default_value = "64MiB",
        value_parser = parse_size)]
    pub max_message_bytes: usize,
    /// Limit of bytes being received at once, for all clients together
    #[arg(long, env = "XDS_SERVER_MAX_RECEIVE_BYTES", value_name = "SIZE", default_value = "1GiB",
        value_parser = parse_size)]
    pub max_receive_bytes: usize,
    /// Limit of bytes being received at once from one address, in messages over 64KiB
    #[arg(long, env = "XDS_SERVER_MAX_RECEIVE_BYTES_PER_ADDRESS", value_name = "SIZE", default_value = "256MiB",
        value_parser = parse_size)]
    pub max_receive_bytes_per_address: usize,
    /// Limit of xDS connections, if the limit of open files allows as many
    #[arg(long, env = "XDS_SERVER_MAX_CONNECTIONS", value_name = "N", default_value = "200000")]
    pub max_connections: usize,
    /// Limit of connections to the admin port
    #[arg(long, env = "XDS_SERVER_MAX_ADMIN_CONNECTIONS", value_name = "N", default_value = "256")]
    pub max_admin_connections: usize,
    /// How long to keep an admin connection open without a request
    #[arg(long, env = "XDS_SERVER_ADMIN_IDLE_TIMEOUT", value_name = "DURATION", default_value = "60s",
        value_parser = parse_duration)]
    pub admin_idle_timeout: Duration,
    /// Time limit for the first request of a new stream
    #[arg(long, env = "XDS_SERVER_FIRST_REQUEST_TIMEOUT", value_name = "DURATION", default_value = "10s",
        value_parser = parse_duration)]
    pub first_request_timeout: Duration,
    /// Size limit of a response, where the protocol allows splitting it
    #[arg(long, env = "XDS_SERVER_MAX_RESPONSE_BYTES", value_name = "SIZE", default_value = "3MiB",
        value_parser = parse_size)]
    pub max_response_bytes: usize,
    /// How long a change waits for a client that does not answer about a new resource that the change refers to
    #[arg(long, env = "XDS_SERVER_ADDITION_GRACE", value_name = "DURATION", default_value = "15s",
        value_parser = parse_duration)]
    pub addition_grace: Duration,
    /// How long to keep a removed resource for a client that does not confirm that it stopped using it
    #[arg(long, env = "XDS_SERVER_REMOVAL_GRACE", value_name = "DURATION", default_value = "60s",
        value_parser = parse_duration)]
    pub removal_grace: Duration,
    /// How long to let a client resolve names or check health of a new cluster before routing requests to it
    #[arg(long, env = "XDS_SERVER_SETTLE_TIME", value_name = "DURATION", default_value = "5s",
        value_parser = parse_duration)]
    pub settle_time: Duration,
    /// Send every change at once. For tests that show why the order matters
    #[arg(long, env = "XDS_SERVER_NAIVE_ORDER", hide = true)]
    pub naive_order: bool,
    /// Limit of names of one type on a stream
    #[arg(long, env = "XDS_SERVER_MAX_NAMES_PER_TYPE", value_name = "N", default_value = "250000")]
    pub max_names_per_type: usize,
    /// Memory limit for node information of clients (IDs, metadata, extensions), for all clients together
    #[arg(long, env = "XDS_SERVER_MAX_NODE_MEMORY", value_name = "SIZE", default_value = "512MiB",
        value_parser = parse_size)]
    pub max_node_memory: usize,
    /// Memory limit for the names that clients subscribe to, for all clients together; half of it for one address, a sixteenth for one client
    #[arg(long, env = "XDS_SERVER_MAX_SUBSCRIPTION_MEMORY", value_name = "SIZE", default_value = "1GiB",
        value_parser = parse_size)]
    pub max_subscription_memory: usize,
    /// Limit of streams
    #[arg(long, env = "XDS_SERVER_MAX_STREAMS", value_name = "N", default_value = "200000")]
    pub max_streams: usize,
    /// Limit of streams on one connection
    #[arg(long, env = "XDS_SERVER_MAX_STREAMS_PER_CONNECTION", value_name = "N", default_value = "10000")]
    pub max_streams_per_connection: u32,
}
