//! Client status: what the server knows of its clients, as `envoy.service.status.v3` tells it (A.15).

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use envoy_types::pb::envoy::admin::v3::UpdateFailureState;
use envoy_types::pb::envoy::service::status::v3 as proto;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryService;
use envoy_types::pb::google::protobuf::{Any, Timestamp};
use futures_util::{Stream, StreamExt};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};
use xds_cache::Resource;
use xds_cache::status::{ConfigStatus, TypeStatus};
use xds_codec::{Codec, UnknownFields};
use xds_session::Holding;

use crate::grpc::Grpc;
use crate::grpc::client::SharedClient;
use crate::grpc::matcher::{MatcherError, NodeMatchers};

/// The gRPC service.
#[derive(Debug)]
pub(crate) struct ClientStatus(pub(crate) Arc<Grpc>);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientStatusError {
    /// A matcher cannot be used.
    #[error("node_matchers: {0}")]
    Matcher(#[from] MatcherError),
    /// The answer would be too large.
    #[error(
        "the answer has more than {limit} bytes; narrow `node_matchers` or set `exclude_resource_contents`"
    )]
    TooLarge {
        /// How large it may be.
        limit: usize,
    },
}

impl From<ClientStatusError> for Status {
    fn from(error: ClientStatusError) -> Self {
        match error {
            ClientStatusError::Matcher(_) => Self::invalid_argument(error.to_string()),
            ClientStatusError::TooLarge { .. } => Self::resource_exhausted(error.to_string()),
        }
    }
}

/// The clients that the request means, one entry for each.
///
/// # Errors
///
/// The request cannot be answered.
pub(crate) fn client_status(
    grpc: &Grpc,
    request: proto::ClientStatusRequest,
) -> Result<proto::ClientStatusResponse, ClientStatusError> {
    let matchers = NodeMatchers::try_from(request.node_matchers)?;
    let contents = if request.exclude_resource_contents { Contents::Excluded } else { Contents::Included };
    let mut response = proto::ClientStatusResponse::default();
    let mut n_bytes = 0;
    let mut seen = HashSet::new();
    for stream in grpc.board.streams() {
        let id = stream.with(|status| status.info.id);
        let Some(client) = grpc.streams.client(id) else { continue };
        // Per-type streams share a client: it is told once.
        if !seen.insert(Arc::as_ptr(&client)) {
            continue;
        }
        let node = client.identity().node();
        if !matchers.matches(&node) {
            continue;
        }
        let config = proto::ClientConfig {
            node: Some(node),
            generic_xds_configs: configs(grpc, &client, contents),
            ..Default::default()
        };
        n_bytes += config.encoded_len();
        if n_bytes > MAX_RESPONSE_BYTES {
            return Err(ClientStatusError::TooLarge { limit: MAX_RESPONSE_BYTES });
        }
        response.config.push(config);
    }
    Ok(response)
}

/// Whether resources are shown (row A202).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Included,
    Excluded,
}

fn configs(grpc: &Grpc, client: &SharedClient, contents: Contents) -> Vec<GenericXdsConfig> {
    let mut configs = Vec::new();
    for (entry, holdings) in client.holdings() {
        let types = entry.with(|status| status.types.clone());
        for holding in holdings {
            let status = types.get(&holding.resource_type).cloned().unwrap_or_default();
            configs.push(config(&grpc.codec, holding, &status, contents));
        }
    }
    configs
}

/// One resource of a client. `client_status` is for clients, and stays unset (row A200).
fn config(codec: &Codec, holding: Holding, status: &TypeStatus, contents: Contents) -> GenericXdsConfig {
    let mut config = GenericXdsConfig {
        type_url: holding.resource_type.type_url().to_owned(),
        name: holding.name.to_string(),
        ..Default::default()
    };
    if holding.version.is_none() {
        config.config_status = proto::ConfigStatus::NotSent.into();
        return config;
    }
    let resource = holding.resource.filter(|_| contents == Contents::Included);
    config.xds_config = resource.map(|resource| redacted(codec, &resource));
    config.version_info = status.sent.as_ref().map(|sent| sent.version_info.to_string()).unwrap_or_default();
    config.last_updated = status.updated_at.map(timestamp);
    config.config_status = match status.status() {
        ConfigStatus::Synced => proto::ConfigStatus::Synced,
        ConfigStatus::NotSent => proto::ConfigStatus::NotSent,
        ConfigStatus::Stale => proto::ConfigStatus::Stale,
        ConfigStatus::Error => proto::ConfigStatus::Error,
    }
    .into();
    config.error_state =
        status.last_nack.as_ref().filter(|_| status.is_error).map(|nack| UpdateFailureState {
            failed_configuration: config.xds_config.clone(),
            last_update_attempt: Some(timestamp(nack.at)),
            details: nack.message.to_string(),
            version_info: nack.version_info.to_string(),
        });
    config
}

/// The resource without its secrets (row A204); without any content if it cannot be written so.
fn redacted(codec: &Codec, resource: &Resource) -> Any {
    let type_url = resource.resource_type().type_url();
    let shown = codec.to_json(resource);
    let any = |value: Vec<u8>| Any { type_url: type_url.to_owned(), value };
    if shown == codec.to_json_with_secrets(resource) {
        return any(resource.value().to_vec());
    }
    let mut fields = shown;
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("@type");
    }
    let value = codec.message_from_json(type_url, &fields, UnknownFields::Ignore);
    any(value.map(|value| value.to_vec()).unwrap_or_default())
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(since.subsec_nanos()).unwrap_or_default();
    Timestamp { seconds, nanos }
}

impl ClientStatus {
    /// Answers a request, away from the threads that serve streams: it can take a while with many clients.
    async fn answer(
        grpc: Arc<Grpc>,
        request: proto::ClientStatusRequest,
    ) -> Result<proto::ClientStatusResponse, Status> {
        let answer = tokio::task::spawn_blocking(move || client_status(&grpc, request)).await;
        Ok(answer.map_err(|_| Status::internal("the status could not be put together"))??)
    }
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for ClientStatus {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<proto::ClientStatusResponse, Status>> + Send>>;

    /// One response for each request; it is no watch (row A197).
    async fn stream_client_status(
        &self,
        requests: Request<Streaming<proto::ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let grpc = Arc::clone(&self.0);
        let responses = requests.into_inner().then(move |request| {
            let grpc = Arc::clone(&grpc);
            async move { Self::answer(grpc, request?).await }
        });
        Ok(Response::new(Box::pin(responses)))
    }

    async fn fetch_client_status(
        &self,
        request: Request<proto::ClientStatusRequest>,
    ) -> Result<Response<proto::ClientStatusResponse>, Status> {
        Self::answer(Arc::clone(&self.0), request.into_inner()).await.map(Response::new)
    }
}

/// How large an answer may be; more than that is asked for by mistake.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
