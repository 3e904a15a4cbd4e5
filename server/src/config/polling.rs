//! REST-JSON polling, and the names of the xDS port over HTTP, as flags.

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use xds_settings::units::parse_size;

/// The flags of REST-JSON polling.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "REST polling")]
pub struct PollingArgs {
    /// Answer clients that poll (POST /v3/discovery:clusters and similar paths), on the xDS port and the admin port
    #[arg(long, env = "XDS_SERVER_REST_POLLING", default_value = "true", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    pub rest_polling: bool,
    /// Size limit of the body of a poll
    #[arg(long, env = "XDS_SERVER_MAX_POLL_BYTES", value_name = "SIZE", default_value = "1MiB",
        value_parser = parse_size)]
    pub max_poll_bytes: usize,
    /// Limit of polls answered at once; others wait up to 5s
    #[arg(long, env = "XDS_SERVER_MAX_POLLS", value_name = "N", default_value = "16")]
    pub max_polls: usize,
    /// Host name with a dot for polls on the xDS port, in addition to IP addresses and names without a dot; may be repeated.
    /// Separate several with commas in the environment variable
    #[arg(long, env = "XDS_SERVER_XDS_HOST", value_name = "HOST", value_delimiter = ',')]
    pub xds_host: Vec<String>,
}

/// REST-JSON polling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollingConfig {
    /// True if polls are answered.
    pub is_on: bool,
    /// The largest body in bytes.
    pub max_bytes: usize,
    /// How many polls are worked on at once.
    pub max_polls: usize,
    /// Names with a dot by which the xDS port may be asked over HTTP.
    pub hosts: Vec<String>,
}

impl From<PollingArgs> for PollingConfig {
    fn from(args: PollingArgs) -> Self {
        Self {
            is_on: args.rest_polling,
            max_bytes: args.max_poll_bytes,
            max_polls: args.max_polls,
            hosts: args.xds_host,
        }
    }
}
