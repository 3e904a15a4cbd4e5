//! `bootstrap`: writes the configuration with which a client finds the server.

mod tls;

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::absolute;
use std::str::FromStr;

use serde_json::{Value, json};
use tls::{EnvoyTls, Tls, TlsArgs};

use crate::failure::Failure;
use crate::output;

/// The flags of `bootstrap`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BootstrapArgs {
    /// Kind of client
    #[arg(value_enum)]
    client: BootstrapKind,
    /// ID of the client's node; node groups can select by it
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    node_id: String,
    /// Cluster of the client's node
    #[arg(long, value_name = "NAME", default_value = "default")]
    cluster: String,
    /// Metadata of the node; node groups can select by it. Dots in KEY lead into objects; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<Metadata>,
    /// Namespace of the client (the metadata NAMESPACE), for consumer routes of the mesh
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Where the client runs: REGION, REGION/ZONE or REGION/ZONE/SUB_ZONE
    #[arg(long, value_name = "PLACE")]
    locality: Option<Locality>,
    /// Zone of the client, if --locality has none
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Address of the server, as the client reaches it. Several with commas, or a name with several addresses, for servers with the same
    /// --store: an Envoy goes to another one when its server is gone. gRPC clients do so with a name
    #[arg(
        long,
        env = "XDS_SERVER_XDS_ADDRESS",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:18000",
        value_delimiter = ','
    )]
    xds_address: Vec<HostPort>,
    /// Use incremental xDS, as with several addresses (Envoy only)
    #[arg(long)]
    delta: bool,
    /// Fetch clusters and listeners on a stream for each type. Resources that generated ones refer to still come over ADS (Envoy
    /// only)
    #[arg(long)]
    per_type: bool,
    /// The port of Envoy's own admin interface on 127.0.0.1; with 0, Envoy chooses and logs it (Envoy only)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    admin_port: u16,
    /// Do not make Envoy report load; for gRPC clients, the clusters decide
    #[arg(long)]
    no_load_reports: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BootstrapKind {
    /// An Envoy: `envoy -c FILE`
    Envoy,
    /// A proxyless gRPC client: GRPC_XDS_BOOTSTRAP=FILE
    Grpc,
}

/// A value in the metadata of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metadata {
    /// The names on the way to it; at least one, none empty.
    path: Vec<String>,
    value: Value,
}

impl FromStr for Metadata {
    type Err = String;

    /// Numbers, `true` and `false` are what they look like, as in the selector of a node group; everything else is a text.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(format!("`{key}` is not a key: write names, with dots between them"));
        }
        let parsed: Option<Value> = serde_json::from_str(value).ok();
        let scalar = parsed.filter(|parsed| parsed.is_number() || parsed.is_boolean());
        Ok(Self { path, value: scalar.unwrap_or_else(|| value.into()) })
    }
}

/// Where a client runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locality {
    region: String,
    zone: Option<String>,
    sub_zone: Option<String>,
}

impl FromStr for Locality {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (region, rest) = parts.split_first().ok_or("write REGION/ZONE")?;
        if parts.len() > 3 || parts.iter().any(|part| part.is_empty()) {
            return Err("write REGION, REGION/ZONE or REGION/ZONE/SUB_ZONE".to_owned());
        }
        let part = |index: usize| rest.get(index).map(|part| (*part).to_owned());
        Ok(Self { region: (*region).to_owned(), zone: part(0), sub_zone: part(1) })
    }
}

/// The node that the client will send. `default` is its locality if none is given and it must have one.
fn node(args: &BootstrapArgs, default: Option<&str>) -> Result<Value, Failure> {
    let mut node = json!({"id": args.node_id, "cluster": args.cluster});
    let region = args.locality.as_ref().map(|locality| locality.region.as_str()).or(default);
    let of_locality = args.locality.as_ref().and_then(|locality| locality.zone.as_deref());
    let zone = of_locality.or(args.zone.as_deref()).or(default);
    let sub_zone = args.locality.as_ref().and_then(|locality| locality.sub_zone.as_deref());
    for (field, value) in [("region", region), ("zone", zone), ("sub_zone", sub_zone)] {
        if let Some(value) = value {
            node["locality"][field] = value.into();
        }
    }
    if let Some(namespace) = &args.namespace {
        node["metadata"]["NAMESPACE"] = namespace.as_str().into();
    }
    for Metadata { path, value } in &args.metadata {
        let mut at = &mut node["metadata"];
        for name in path {
            if !at.is_null() && !at.is_object() {
                let key = path.join(".");
                return Err(Failure::Usage(format!(
                    "the metadata {key} is given twice, as a value and as an object"
                )));
            }
            at = &mut at[name.as_str()];
        }
        *at = value.clone();
    }
    Ok(node)
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
                Err(format!("{ip} is not an address to connect to: write the server's name or address"))
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

impl BootstrapArgs {
    fn first_address(&self) -> Result<&HostPort, Failure> {
        self.xds_address.first().ok_or_else(|| Failure::Usage("--xds-address is empty".to_owned()))
    }
}

pub(crate) fn run(args: &BootstrapArgs) -> Result<(), Failure> {
    let first = args.first_address()?;
    let tls = args.tls.with_hosts(args.xds_address.iter().map(|address| address.host.as_str()))?;
    let bootstrap = match args.client {
        BootstrapKind::Envoy => {
            let node = node(args, None)?;
            match (&tls, args.tls.out_dir()) {
                (Some(tls), Some(directory)) => {
                    let directory = absolute(directory)
                        .map_err(|error| Failure::Usage(format!("{}: {error}", directory.display())))?;
                    let (tls, files) = tls.followed(&directory);
                    note_per_type(args);
                    return files.write(&directory, &envoy(args, &node, Some(tls)));
                }
                (Some(tls), None) => {
                    note(ONCE_NOTE);
                    envoy(args, &node, Some(tls.once()))
                }
                (None, _) => envoy(args, &node, None),
            }
        }
        BootstrapKind::Grpc if args.tls.has_envoy_flags() => {
            return Err(Failure::Usage(
                "gRPC clients expect the host of --xds-address in the certificate, and follow changed files: omit \
                 --tls-server-name, --tls-server-uri and --out-dir"
                    .to_owned(),
            ));
        }
        BootstrapKind::Grpc if args.xds_address.len() > 1 => {
            return Err(Failure::Usage(ONE_ADDRESS.to_owned()));
        }
        BootstrapKind::Grpc if args.per_type => {
            return Err(Failure::Usage("gRPC clients support only ADS: omit --per-type".to_owned()));
        }
        BootstrapKind::Grpc if args.delta => {
            return Err(Failure::Usage("no gRPC client supports incremental xDS: omit --delta".to_owned()));
        }
        // grpc-js fails every call of a node without a locality.
        BootstrapKind::Grpc => {
            if let Some(tls) = &tls {
                note(LIBRARIES_NOTE);
                if tls.call_credentials().is_some() {
                    note(TOKENS_NOTE);
                }
            }
            grpc(first, &node(args, Some("default"))?, tls.as_ref())
        }
    };
    note_per_type(args);
    output::print(&format!("{bootstrap:#}\n"))
}

fn note_per_type(args: &BootstrapArgs) {
    if args.per_type {
        note(PER_TYPE_NOTE);
    }
}

fn note(text: &str) {
    // A note that cannot be written is lost; the bootstrap counts.
    let _ = writeln!(io::stderr().lock(), "note: {text}");
}

/// Why a gRPC client has one address: with a list of servers (gRFC A71) it stays with one that is gone as long as it needs nothing new.
const ONE_ADDRESS: &str = "a gRPC client goes to another server only if all have one name: give a DNS name that has the addresses of all \
    servers";
/// A note for Envoys with the names of files in their bootstrap.
const ONCE_NOTE: &str =
    "Envoy reads these files once: use --out-dir to make it follow changed certificates and tokens";
/// A note on what gRPC libraries lack.
const LIBRARIES_NOTE: &str = "grpcio, C++ and Go use these files and follow their changes; Java trusts the certificates of its JVM \
    instead and has no client certificate; Node.js does not support TLS to the xDS server";
/// A note on what gRPC libraries need to send a token.
const TOKENS_NOTE: &str = "clients send the token only with GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS=true in their environment: C++, Python \
    and Go know it; Java and Node.js do not send one";
/// A note for Envoys whose clusters and listeners come on streams of their own.
const PER_TYPE_NOTE: &str = "endpoints and routes of generated resources still come over ADS, so keep `ads_config`; the order of changes is not kept between ADS and the other streams: omit --per-type if requests must not fail while documents change (docs/documents.md, Config sources)";

fn envoy(args: &BootstrapArgs, node: &Value, tls: Option<EnvoyTls>) -> Value {
    let has_several = args.xds_address.len() > 1;
    let mut grpc_service = json!({"envoy_grpc": {"cluster_name": XDS_CLUSTER}});
    if has_several {
        // By default an Envoy waits up to 30 s before it asks another server.
        let back_off = json!({"base_interval": "0.5s", "max_interval": "5s"});
        grpc_service["envoy_grpc"]["retry_policy"] = json!({"retry_back_off": back_off});
    }
    let stream = json!({
        // A server that a client comes to learns from it what it has, and sends nothing again.
        "api_type": if args.delta || has_several { "DELTA_GRPC" } else { "GRPC" },
        "transport_api_version": "V3",
        "grpc_services": [grpc_service],
        // Else Envoy repeats its node, 61 kB, in every request.
        "set_node_on_first_message_only": true,
    });
    let source = match args.per_type {
        true => json!({"api_config_source": stream, "resource_api_version": "V3"}),
        false => json!({"ads": {}, "resource_api_version": "V3"}),
    };
    let address = |host: &str, port: u16| json!({"socket_address": {"address": host, "port_value": port}});
    let endpoints = args.xds_address.iter();
    let endpoints: Vec<Value> =
        endpoints.map(|to| json!({"endpoint": {"address": address(&to.host, to.port)}})).collect();
    let has_name = args.xds_address.iter().any(|to| to.ip().is_none());
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        // Without keepalive an Envoy does not see that the server's host is gone.
        "explicit_http_config": {"http2_protocol_options": {
            "connection_keepalive": {"interval": "30s", "timeout": "5s"},
        }},
    });
    let mut bootstrap = json!({
        "node": node,
        "admin": {"address": address("127.0.0.1", args.admin_port)},
        "dynamic_resources": {
            "ads_config": stream,
            "cds_config": source,
            "lds_config": source,
        },
        "static_resources": {"clusters": [{
            "name": XDS_CLUSTER,
            "type": if has_name { "STRICT_DNS" } else { "STATIC" },
            // By default Envoy takes an IPv6 address if there is one, which `localhost` always has, and never tries the others.
            "dns_lookup_family": "V4_PREFERRED",
            "connect_timeout": "5s",
            "typed_extension_protocol_options": {HTTP_OPTIONS: http2},
            "load_assignment": {
                "cluster_name": XDS_CLUSTER,
                "endpoints": [{"lb_endpoints": endpoints}],
            },
        }]},
    });
    if let Some(EnvoyTls { socket, filters, secrets }) = tls {
        let cluster = &mut bootstrap["static_resources"]["clusters"][0];
        cluster["transport_socket"] = socket;
        if !filters.is_empty() {
            cluster["typed_extension_protocol_options"][HTTP_OPTIONS]["http_filters"] = filters.into();
        }
        if !secrets.is_empty() {
            bootstrap["static_resources"]["secrets"] = secrets.into();
        }
    }
    // The clusters' own `lrs_server` means nothing to an Envoy.
    if let (false, Some(bootstrap)) = (args.no_load_reports, bootstrap.as_object_mut()) {
        let load_stats =
            json!({"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [grpc_service]});
        bootstrap.insert("cluster_manager".to_owned(), json!({"load_stats_config": load_stats}));
    }
    bootstrap
}

fn grpc(address: &HostPort, node: &Value, tls: Option<&Tls>) -> Value {
    let credentials = tls.map_or_else(|| json!([{"type": "insecure"}]), Tls::channel_credentials);
    let mut server = json!({
        "server_uri": address.to_string(),
        "channel_creds": credentials,
        "server_features": ["xds_v3"],
    });
    if let Some(credentials) = tls.and_then(Tls::call_credentials) {
        server["call_creds"] = credentials;
    }
    json!({
        "xds_servers": [server],
        "node": node,
        // Servers find their Listener by it (gRFC A36); clients do not look at it.
        "server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%s",
    })
}

/// The key of the options of HTTP in a cluster.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
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
