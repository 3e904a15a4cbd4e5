//! The least that a number or a duration may be.

use std::time::Duration;

use crate::config::args::ServeArgs;
use crate::config::error::ConfigError;
use crate::grpc::MIN_LOAD_REPORT_INTERVAL;

/// Checks the settings that stand for themselves or against each other.
///
/// # Errors
///
/// [`ConfigError::TooSmall`] names the first one that is too small.
pub(super) fn check(args: &ServeArgs) -> Result<(), ConfigError> {
    let limits = &args.limits;
    let millis = Duration::from_millis;
    let bounds = [
        // Faster polling would only heat the machine: the kernel tells most changes at once.
        (args.sources.poll_interval >= millis(100), "poll-interval", "100ms"),
        (args.sources.max_file_bytes >= 1, "max-file-bytes", "1"),
        // The route documents of the examples have up to a hundred; less would only look like a limit.
        (args.sources.max_document_values >= 1_000, "max-document-values", "1000"),
        (limits.keepalive_interval >= millis(100), "keepalive-interval", "100ms"),
        (limits.keepalive_timeout >= millis(100), "keepalive-timeout", "100ms"),
        (args.loads.load_report_interval >= MIN_LOAD_REPORT_INTERVAL, "load-report-interval", "1s"),
        // Else most of what is asked for would be older than what is kept.
        (
            args.loads.load_window >= args.loads.load_report_interval.saturating_mul(3),
            "load-window",
            "three times --load-report-interval",
        ),
        (args.loads.max_load_series >= 1, "max-load-series", "1"),
        // Envoy's node alone has 61 kB.
        (limits.max_message_bytes >= 128 << 10, "max-message-bytes", "128KiB"),
        // One half is for small messages.
        (
            limits.max_receive_bytes / 2 >= limits.max_message_bytes,
            "max-receive-bytes",
            "twice --max-message-bytes",
        ),
        (
            limits.max_receive_bytes_per_address >= limits.max_message_bytes,
            "max-receive-bytes-per-address",
            "--max-message-bytes",
        ),
        (limits.max_connections >= 1, "max-connections", "1"),
        (args.tls.tls_poll_interval >= millis(100), "tls-poll-interval", "100ms"),
        (args.tls.handshake_timeout >= millis(100), "handshake-timeout", "100ms"),
        (args.tls.max_pending_handshakes >= 64, "max-pending-handshakes", "64"),
        // A few are in use by whoever watches the server.
        (limits.max_admin_connections >= 16, "max-admin-connections", "16"),
        (limits.admin_idle_timeout >= millis(100), "admin-idle-timeout", "100ms"),
        (limits.first_request_timeout >= millis(100), "first-request-timeout", "100ms"),
        (
            limits.max_connection_age.is_none_or(|age| age.is_zero() || age >= Duration::from_secs(1)),
            "max-connection-age",
            "1s (or 0s for never)",
        ),
        (limits.max_response_bytes >= 1 << 10, "max-response-bytes", "1KiB"),
        (limits.max_names_per_type >= 1, "max-names-per-type", "1"),
        // An Envoy that polls sends its whole node with every poll.
        (args.polling.max_poll_bytes >= 256 << 10, "max-poll-bytes", "256KiB"),
        (args.polling.max_polls >= 1, "max-polls", "1"),
        // A few large nodes.
        (limits.max_node_memory >= 1 << 20, "max-node-memory", "1MiB"),
        // A sixteenth of it is for one client.
        (limits.max_subscription_memory >= 16 << 20, "max-subscription-memory", "16MiB"),
        (limits.max_streams >= 1, "max-streams", "1"),
        (limits.max_streams_per_connection >= 1, "max-streams-per-connection", "1"),
    ];
    match bounds.into_iter().find(|(is_kept, _, _)| !is_kept) {
        Some((_, flag, least)) => Err(ConfigError::TooSmall { flag, least }),
        None => Ok(()),
    }
}
