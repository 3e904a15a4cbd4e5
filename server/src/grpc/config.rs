//! The settings of the gRPC services.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use xds_session::Limits;

use crate::grpc::ReceiveLimits;

/// The settings of the gRPC services, with limits on everything that a client can make grow.
#[derive(Clone, Debug)]
pub struct GrpcConfig {
    /// `control_plane.identifier` of every response (row A13); different for every instance, the same while it lives.
    pub identifier: String,
    /// The limits of one client.
    pub limits: Limits,
    /// The largest message that is taken in, in bytes. A reconnecting delta client with 100,000 names sends more than
    /// gRPC's common 4 MiB (pitfall 59).
    pub max_message_bytes: usize,
    /// True if client status, which shows everything about every client, is served on the xDS port too.
    pub client_status: bool,
    /// True if clients are served also where identities and the access policy would refuse them, and that is recorded.
    pub access_dry_run: bool,
    /// True if it is the access policy by which clients need a credential: they have nothing but tokens.
    pub needs_token: bool,
    /// True if clients can prove who they are, by certificates or by tokens alone.
    pub authenticates_clients: bool,
    /// True if REST-JSON polling is served.
    pub rest_polling: bool,
    /// The largest body of a poll, in bytes.
    pub max_poll_bytes: usize,
    /// How many polls are worked on at once.
    pub max_polls: usize,
    /// Host names with a dot for polling clients, besides IP addresses.
    pub hosts: Vec<String>,
    /// True if only clients with a verified certificate or token are served; health is for everyone.
    pub needs_credential: bool,
    /// The bytes that are kept of the nodes of all clients: one half for the fields by which the server decides, and the other for those
    /// that it only shows to operators.
    pub max_node_memory: usize,
    /// The bytes that may be kept of what all clients subscribe to.
    pub max_subscription_memory: usize,
    /// Bytes of incomplete messages.
    pub receive: ReceiveLimits,
    /// How long a stream may be silent before it names its node.
    pub first_request_timeout: Duration,
    /// The most discovery streams of the process.
    pub max_streams: usize,
    /// The most streams of one connection. Without ADS, an Envoy opens one for each cluster (pitfall 60).
    pub max_streams_per_connection: u32,
    /// Flow control window of a connection, in bytes. Below 1 MiB the HTTP/2 library ends connections that open
    /// thousands of streams at once, so less counts as that.
    pub connection_window: u32,
    /// How often a silent peer is pinged.
    pub keepalive_interval: Duration,
    /// How long a ping may stay unanswered. With the interval, this is when a dead peer is noticed.
    pub keepalive_timeout: Duration,
    /// How often clients report their load, at least [`MIN_LOAD_REPORT_INTERVAL`]; `None` if they are not to.
    pub load_report_interval: Option<Duration>,
    /// How many streams write a body over 64 KiB at once (D8).
    pub max_paced: usize,
    /// The time after which a stream that is still writing no longer counts, so that stuck readers do not hold up others.
    pub paced_for: Duration,
    /// The age at which connections end; `None` if they never do. They end a tenth earlier or later, and up to twice as late while
    /// something is held back for the client.
    pub max_connection_age: Option<Duration>,
    /// How long this server must have far more streams than its share before it sheds some, and how old their connections are at least. Only
    /// with a greatest age.
    pub shed_after: Duration,
    /// How long the streams may take to end at shutdown.
    pub drain_timeout: Duration,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self {
            identifier: default_identifier(),
            limits: Limits::default(),
            max_message_bytes: 64 * 1024 * 1024,
            client_status: false,
            access_dry_run: false,
            needs_token: false,
            authenticates_clients: false,
            rest_polling: true,
            max_poll_bytes: 1024 * 1024,
            max_polls: 16,
            hosts: vec![],
            needs_credential: false,
            max_node_memory: 512 * 1024 * 1024,
            max_subscription_memory: 1024 * 1024 * 1024,
            receive: ReceiveLimits {
                process: 1024 * 1024 * 1024,
                per_source: 256 * 1024 * 1024,
                per_connection: 64 * 1024 * 1024,
                patience: Duration::from_secs(10),
            },
            first_request_timeout: Duration::from_secs(10),
            max_streams: 200_000,
            max_streams_per_connection: 1_000_000,
            connection_window: 4 * 1024 * 1024,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            load_report_interval: Some(Duration::from_secs(10)),
            max_paced: 1000,
            paced_for: Duration::from_secs(5),
            max_connection_age: None,
            shed_after: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// At 0, grpc-java stops reporting and grpc-go ends the stream (row A209). C-core never reports more often than this.
pub const MIN_LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The host's name and a random suffix, so that two instances on one host differ.
fn default_identifier() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    // The seed of a `RandomState` is random for every process.
    let suffix = RandomState::new().hash_one(std::process::id()) as u32;
    format!("{}-{suffix:08x}", if host.is_empty() { "xds-server" } else { host })
}
