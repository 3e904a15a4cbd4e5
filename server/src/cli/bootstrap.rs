//! `bootstrap`: what a client needs to be told to find the server.

use std::net::IpAddr;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::cli::{Failure, output};

/// The flags of `bootstrap`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BootstrapArgs {
    /// What kind of client
    #[arg(value_enum)]
    client: Client,
    /// The id that the client gives itself; node groups select by it
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    node_id: String,
    /// The cluster that the client says it belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    cluster: String,
    /// Where the client finds the server
    #[arg(long, env = "XDS_SERVER_XDS_ADDRESS", value_name = "HOST:PORT", default_value = "127.0.0.1:18000")]
    xds_address: HostPort,
    /// Use the incremental variant of the protocol (Envoy only)
    #[arg(long)]
    delta: bool,
    /// The port of Envoy's own admin interface on 127.0.0.1; with 0, Envoy chooses and logs it (Envoy only)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    admin_port: u16,
    /// Let Envoy report no load; gRPC clients go by their clusters
    #[arg(long)]
    no_load_reports: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Client {
    /// An Envoy: `envoy -c FILE`
    Envoy,
    /// A proxyless gRPC client: GRPC_XDS_BOOTSTRAP=FILE
    Grpc,
}

/// An address to connect to: a name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("the port is missing: write HOST:PORT")?;
        let port = match port.parse() {
            Ok(0) | Err(_) => return Err(format!("`{port}` is not a port to connect to: use 1 to 65535")),
            Ok(port) => port,
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(format!("write IPv6 addresses in brackets: [{host}]:{port}"));
        }
        let host = bare.unwrap_or(host).to_owned();
        let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => {
                Err(format!("{ip} is no address to connect to: write the server's name or address"))
            }
            Ok(_) => Ok(Self { host, port }),
            Err(_) if is_name && !host.is_empty() => Ok(Self { host, port }),
            Err(_) => Err(format!("`{host}` is not a host name")),
        }
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

pub(crate) fn run(args: &BootstrapArgs) -> Result<(), Failure> {
    let bootstrap = match args.client {
        Client::Envoy => envoy(args),
        Client::Grpc if args.delta => {
            return Err(Failure::Usage(
                "no gRPC client speaks the incremental variant: leave out --delta".to_owned(),
            ));
        }
        Client::Grpc => grpc(args),
    };
    output::print(&format!("{bootstrap:#}\n"))
}

fn envoy(args: &BootstrapArgs) -> Value {
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let address = |host: &str, port: u16| json!({"socket_address": {"address": host, "port_value": port}});
    let endpoint = json!({"endpoint": {"address": address(&args.xds_address.host, args.xds_address.port)}});
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        // Without keepalive an Envoy does not see that the server's host is gone.
        "explicit_http_config": {"http2_protocol_options": {
            "connection_keepalive": {"interval": "30s", "timeout": "5s"},
        }},
    });
    let grpc_service = json!({"envoy_grpc": {"cluster_name": XDS_CLUSTER}});
    let mut bootstrap = json!({
        "node": {"id": args.node_id, "cluster": args.cluster},
        "admin": {"address": address("127.0.0.1", args.admin_port)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": if args.delta { "DELTA_GRPC" } else { "GRPC" },
                "transport_api_version": "V3",
                "grpc_services": [grpc_service],
                // Else Envoy repeats its node, 61 kB, in every request.
                "set_node_on_first_message_only": true,
            },
            "cds_config": ads,
            "lds_config": ads,
        },
        "static_resources": {"clusters": [{
            "name": XDS_CLUSTER,
            "type": if args.xds_address.ip().is_some() { "STATIC" } else { "STRICT_DNS" },
            "connect_timeout": "5s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
            },
            "load_assignment": {
                "cluster_name": XDS_CLUSTER,
                "endpoints": [{"lb_endpoints": [endpoint]}],
            },
        }]},
    });
    // The clusters' own `lrs_server` means nothing to an Envoy.
    if let (false, Some(bootstrap)) = (args.no_load_reports, bootstrap.as_object_mut()) {
        let load_stats =
            json!({"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [grpc_service]});
        bootstrap.insert("cluster_manager".to_owned(), json!({"load_stats_config": load_stats}));
    }
    bootstrap
}

fn grpc(args: &BootstrapArgs) -> Value {
    json!({
        "xds_servers": [{
            "server_uri": args.xds_address.to_string(),
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        // grpc-js fails every call of a node without a locality.
        "node": {"id": args.node_id, "cluster": args.cluster, "locality": {"region": "default", "zone": "default"}},
    })
}

/// The name of the server's own cluster in an Envoy.
const XDS_CLUSTER: &str = "xds_cluster";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_connect_to_is_a_host_and_a_port() {
        for good in ["127.0.0.1:18000", "[::1]:1", "xds-server:18000", "xds.example.com:1"] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        for bad in
            ["", "host", "host:0", "host:x", "0.0.0.0:1", "[::]:1", "::1:1", ":1", "a b:1", "http://a:1"]
        {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }
}
