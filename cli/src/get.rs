//! `get`: an xDS client that shows what a node would receive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use xds_cache::{Profile, Resource, ResourceType};
use xds_codec::Codec;
use xds_control::chain;
use xds_settings::DescriptorArgs;
use xds_settings::units::parse_duration;

use crate::bootstrap::HostPort;
use crate::failure::Failure;
use crate::output;
use crate::tls::ClientTlsArgs;

/// The flags of `get`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Node ID to ask with
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    node_id: String,
    /// Cluster of the node
    #[arg(long, value_name = "NAME", default_value = "")]
    cluster: String,
    /// Kind of client to ask as
    #[arg(long, value_enum, value_name = "CLIENT", default_value = "envoy")]
    client: ClientKind,
    /// Type to ask for: listeners, routes, clusters, endpoints, secrets, … or a type URL
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    resource_type: ResourceType,
    /// Ask for this resource; may be repeated [default: all]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Use incremental xDS
    #[arg(long)]
    delta: bool,
    /// Address of the server
    #[arg(long, env = "XDS_SERVER_XDS_ADDRESS", value_name = "HOST:PORT", default_value = "127.0.0.1:18000")]
    xds_address: HostPort,
    #[command(flatten)]
    tls: ClientTlsArgs,
    /// File with a bearer token to ask with
    #[arg(long, env = "XDS_SERVER_XDS_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
    /// Also show private keys and passwords
    #[arg(long)]
    show_secrets: bool,
    /// The form of the result [default: yaml on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    #[command(flatten)]
    descriptors: DescriptorArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ClientKind {
    /// An Envoy
    Envoy,
    /// A proxyless gRPC client
    Grpc,
}

impl From<ClientKind> for Profile {
    fn from(client: ClientKind) -> Self {
        match client {
            ClientKind::Envoy => Self::Envoy,
            ClientKind::Grpc => Self::Grpc,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// A file that the server could watch
    Yaml,
    /// The same as JSON
    Json,
}

/// The resources that the node has in the end.
#[derive(Debug, Default)]
struct Received {
    version: String,
    /// By name where the protocol tells it, else by position.
    resources: BTreeMap<String, Any>,
    /// Names that were asked for and do not exist.
    removed: BTreeSet<String>,
}

/// Reads the name of a resource type.
pub(crate) fn parse_type(text: &str) -> Result<ResourceType, String> {
    ResourceType::from_slug(text).ok_or_else(|| {
        let slugs: Vec<_> = ResourceType::KNOWN.iter().map(ResourceType::slug).collect();
        format!("use {}, or a type URL that begins with type.googleapis.com/", slugs.join(", "))
    })
}

pub(crate) fn run(args: &GetArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let received = runtime.block_on(receive(args))?;
    let codec = args.descriptors.codec().map_err(|error| Failure::Failed(chain(&error)))?;
    let shown = show(args, &codec, &received);
    let default = if io::stdout().is_terminal() { Form::Yaml } else { Form::Json };
    match args.output.unwrap_or(default) {
        Form::Json => output::print_json(&shown)?,
        Form::Yaml => {
            let yaml = serde_saphyr::to_string(&shown).map_err(|error| Failure::Failed(error.to_string()))?;
            output::print(&yaml)?;
        }
    }
    let missing: Vec<&String> = args.names.iter().filter(|name| received.removed.contains(*name)).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!("these do not exist for this node: {missing:?}")))
    }
}

async fn receive(args: &GetArgs) -> Result<Received, Failure> {
    let tls = args.tls.grpc()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", args.xds_address);
    let unreachable =
        |why: String| Failure::Unreachable(format!("cannot reach the server at {}: {why}", args.xds_address));
    let mut endpoint = Endpoint::from_shared(url).map_err(|error| unreachable(chain(&error)))?;
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).map_err(|error| Failure::Usage(chain(&error)))?;
    }
    let connected = timeout(args.timeout, endpoint.connect()).await;
    let connected = connected.map_err(|_| unreachable("no connection within the time limit".to_owned()))?;
    let channel = connected.map_err(|error| unreachable(chain(&error)))?;
    let client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    let asked = async {
        if args.delta { receive_delta(args, client).await } else { receive_sotw(args, client).await }
    };
    let in_time = timeout(args.timeout, asked).await;
    in_time.map_err(|_| Failure::Failed(no_answer(args)))?
}

fn no_answer(args: &GetArgs) -> String {
    let (what, node, wait) = (args.resource_type.slug(), &args.node_id, args.timeout);
    format!(
        "no answer about {what} for the node {node:?} within {wait:?}: the server answers nothing before its first complete load (see `xds-server status`), and nothing about names that do not exist"
    )
}

async fn receive_sotw(
    args: &GetArgs,
    mut client: AggregatedDiscoveryServiceClient<Channel>,
) -> Result<Received, Failure> {
    let (requests, stream) = mpsc::channel(4);
    let first = DiscoveryRequest {
        node: Some(args.node()),
        type_url: args.resource_type.type_url().to_owned(),
        resource_names: args.subscription(),
        ..DiscoveryRequest::default()
    };
    // There is room: nothing was sent yet.
    let _ = requests.try_send(first);
    let answers = client.stream_aggregated_resources(args.request(stream)?).await;
    let mut answers = answers.map_err(|status| refused(&status))?.into_inner();
    let answer: Option<DiscoveryResponse> = answers.message().await.map_err(|status| refused(&status))?;
    let answer =
        answer.ok_or_else(|| Failure::Failed("the server ended the stream without an answer".to_owned()))?;
    let numbered = answer.resources.into_iter().enumerate();
    let resources = numbered.map(|(position, any)| (format!("{position:09}"), any)).collect();
    Ok(Received { version: answer.version_info, resources, removed: BTreeSet::new() })
}

/// Reads until nothing more comes: an incremental answer may be split.
async fn receive_delta(
    args: &GetArgs,
    mut client: AggregatedDiscoveryServiceClient<Channel>,
) -> Result<Received, Failure> {
    let (requests, stream) = mpsc::channel(4);
    let type_url = args.resource_type.type_url().to_owned();
    let first = DeltaDiscoveryRequest {
        node: Some(args.node()),
        type_url: type_url.clone(),
        resource_names_subscribe: args.subscription(),
        ..DeltaDiscoveryRequest::default()
    };
    let _ = requests.try_send(first);
    let answers = client.delta_aggregated_resources(args.request(stream)?).await;
    let mut answers = answers.map_err(|status| refused(&status))?.into_inner();
    let mut received = Received::default();
    let mut quiet: Option<Instant> = None;
    loop {
        let answer = match quiet {
            Some(quiet) => match timeout_at(quiet, answers.message()).await {
                Ok(answer) => answer,
                Err(_) => return Ok(received),
            },
            None => answers.message().await,
        };
        let answer: Option<DeltaDiscoveryResponse> = answer.map_err(|status| refused(&status))?;
        let Some(answer) = answer else { return Ok(received) };
        received.version = answer.system_version_info;
        received.removed.extend(answer.removed_resources);
        for resource in answer.resources {
            if let Some(any) = resource.resource {
                received.resources.insert(resource.name, any);
            }
        }
        // The server may wait for it before it sends the next part.
        let ack = DeltaDiscoveryRequest {
            type_url: type_url.clone(),
            response_nonce: answer.nonce,
            ..DeltaDiscoveryRequest::default()
        };
        if requests.send(ack).await.is_err() {
            return Ok(received);
        }
        quiet = Some(Instant::now() + QUIET);
    }
}

/// The parts of a split answer follow each other at once.
const QUIET: Duration = Duration::from_millis(300);

fn refused(status: &tonic::Status) -> Failure {
    Failure::Failed(format!("the server refused: {} ({:?})", status.message(), status.code()))
}

impl GetArgs {
    /// The call, with the token if there is one.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if the file of the token cannot be read or holds none.
    fn request<T>(&self, messages: mpsc::Receiver<T>) -> Result<tonic::Request<ReceiverStream<T>>, Failure> {
        let mut request = tonic::Request::new(ReceiverStream::new(messages));
        let Some(path) = &self.token_file else { return Ok(request) };
        let no_token = |why: &str| Failure::Usage(format!("--token-file {}: {why}", path.display()));
        let token = std::fs::read_to_string(path).map_err(|error| no_token(&error.to_string()))?;
        let value = format!("Bearer {}", token.trim()).parse();
        let value =
            value.map_err(|_| no_token("it holds no token: it must be one line of printable ASCII"))?;
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }

    fn node(&self) -> Node {
        let user_agent_name = match self.client {
            ClientKind::Envoy => "envoy (xds-server get)",
            ClientKind::Grpc => "gRPC (xds-server get)",
        };
        Node {
            id: self.node_id.clone(),
            cluster: self.cluster.clone(),
            user_agent_name: user_agent_name.to_owned(),
            ..Node::default()
        }
    }

    /// The names; without any, the wildcard in the form that every server understands for the type.
    fn subscription(&self) -> Vec<String> {
        let needs_star = self.names.is_empty() && (self.delta || !self.resource_type.has_legacy_wildcard());
        if needs_star { vec!["*".to_owned()] } else { self.names.clone() }
    }
}

/// In the form of a `DiscoveryResponse`, which the server reads as a file, too.
fn show(args: &GetArgs, codec: &Codec, received: &Received) -> Value {
    let resources = received.resources.iter().map(|(name, any)| {
        let value = Bytes::copy_from_slice(&any.value);
        let resource = Resource::plain(ResourceType::from_type_url(&any.type_url), name, value);
        if args.show_secrets { codec.to_json_with_secrets(&resource) } else { codec.to_json(&resource) }
    });
    json!({
        "version_info": received.version,
        "type_url": args.resource_type.type_url(),
        "resources": resources.collect::<Vec<_>>(),
    })
}
