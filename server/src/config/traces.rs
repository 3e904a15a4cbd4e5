//! Traces of changes.

use std::path::PathBuf;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use http::Uri;

use crate::config::error::ConfigError;
use crate::config::peers::is_loopback;

/// Where traces of changes are sent.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceArgs {
    /// OpenTelemetry collector that gets a trace of each change, over OTLP with gRPC: http://HOST:PORT or https://HOST:PORT
    #[arg(long, env = "XDS_SERVER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// PEM file with the authorities of the collector's certificate [default: those of the system]
    #[arg(long, env = "XDS_SERVER_OTLP_CA", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,
    /// PEM file with the certificate to show to the collector
    #[arg(long, env = "XDS_SERVER_OTLP_CERT", value_name = "FILE")]
    pub otlp_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(long, env = "XDS_SERVER_OTLP_KEY", value_name = "FILE")]
    pub otlp_key: Option<PathBuf>,
    /// File with headers for the collector, such as a token: `name: value` in each line
    #[arg(long, env = "XDS_SERVER_OTLP_HEADERS_FILE", value_name = "FILE")]
    pub otlp_headers_file: Option<PathBuf>,
    /// Send traces to a collector on another host without TLS
    #[arg(long, env = "XDS_SERVER_ALLOW_PLAINTEXT_OTLP", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub allow_plaintext_otlp: bool,
    /// Share of the changes that are traced, from 0 to 1
    #[arg(long, env = "XDS_SERVER_TRACE_SAMPLE", value_name = "RATIO", default_value = "1", value_parser = parse_ratio)]
    pub trace_sample: f64,
}

/// The traces to make.
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// The collector: `http` or `https`, and a host.
    pub url: Uri,
    /// The authorities of its certificate; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate to show to it, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The file with the headers of each request.
    pub headers: Option<PathBuf>,
    /// The share of the changes that are traced, from 0 to 1.
    pub sample: f64,
}

impl TraceConfig {
    /// The traces that the flags describe; `None` if they describe none.
    ///
    /// # Errors
    ///
    /// If the endpoint is none, or a flag is without its use.
    pub(super) fn new(args: TraceArgs) -> Result<Option<Self>, ConfigError> {
        let needs = |flag, other| ConfigError::Needs { flag, other };
        let of_tls =
            [("otlp-ca", &args.otlp_ca), ("otlp-cert", &args.otlp_cert), ("otlp-key", &args.otlp_key)];
        let of_tls = of_tls.into_iter().find_map(|(flag, file)| file.as_ref().map(|_| flag));
        let Some(endpoint) = args.otlp_endpoint else {
            let idle = of_tls.or(args.otlp_headers_file.as_ref().map(|_| "otlp-headers-file"));
            return idle.map_or(Ok(None), |flag| Err(needs(flag, "otlp-endpoint")));
        };
        let Some((url, is_encrypted)) = parse_url(&endpoint) else {
            return Err(ConfigError::Otlp(endpoint));
        };
        if let Some(flag) = of_tls.filter(|_| !is_encrypted) {
            return Err(needs(flag, "otlp-endpoint with https://"));
        }
        let identity = match (args.otlp_cert, args.otlp_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(needs("otlp-cert", "otlp-key")),
            (None, Some(_)) => return Err(needs("otlp-key", "otlp-cert")),
        };
        let is_near = url.host().is_some_and(is_loopback);
        if !is_encrypted && !is_near && !args.allow_plaintext_otlp {
            return Err(ConfigError::PlaintextOtlp(endpoint));
        }
        let (ca, headers) = (args.otlp_ca, args.otlp_headers_file);
        Ok(Some(Self { url, ca, identity, headers, sample: args.trace_sample }))
    }
}

/// The URL, and whether it is encrypted.
fn parse_url(text: &str) -> Option<(Uri, bool)> {
    let url: Uri = text.parse().ok()?;
    let is_encrypted = match url.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    // The path is that of the protocol.
    let is_plain = url.path() == "/" && url.query().is_none() && !url.authority()?.as_str().contains('@');
    is_plain.then_some((url, is_encrypted))
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "it is not a number from 0 to 1".to_owned())
}
