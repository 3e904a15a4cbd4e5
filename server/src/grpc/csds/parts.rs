//! An answer about clients, made part by part.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::envoy::admin::v3::UpdateFailureState;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::status::v3 as proto;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use xds_access::Scope;
use xds_cache::status::{ConfigStatus, StreamId, TypeStatus};
use xds_cache::{Resource, ResourceType};
use xds_codec::{Codec, UnknownFields};
use xds_session::Holding;

use crate::grpc::Grpc;
use crate::grpc::client::SharedClient;
use crate::grpc::matcher::{MatcherError, NodeMatchers};

/// The clients that a request selects and the answer does not have yet, in the order of their streams.
///
/// It keeps only one client alive, whose entry is being written. Clients that come meanwhile are included; clients that go are not.
#[derive(Debug)]
pub(crate) struct StatusParts {
    grpc: Arc<Grpc>,
    /// The nodes that are shown.
    scope: Scope,
    matchers: NodeMatchers,
    contents: Contents,
    /// The stream that was looked at last.
    after: Option<StreamId>,
    /// The rest of a client that did not go into the last part.
    rest: Option<Rest>,
    is_done: bool,
}

/// The choice to show resources, or not (row A202).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Included,
    Excluded,
}

/// The client whose entry is being written.
#[derive(Debug)]
struct Rest {
    node: Node,
    /// The types on each of its streams, and the streams' statuses.
    streams: VecDeque<(BTreeMap<ResourceType, TypeStatus>, VecDeque<Holding>)>,
}

impl StatusParts {
    /// An answer about the nodes in `scope`, with nothing written yet.
    ///
    /// # Errors
    ///
    /// The request's matchers cannot be used.
    pub(crate) fn new(
        grpc: Arc<Grpc>,
        scope: Scope,
        request: proto::ClientStatusRequest,
    ) -> Result<Self, MatcherError> {
        let matchers = NodeMatchers::try_from(request.node_matchers)?;
        let contents =
            if request.exclude_resource_contents { Contents::Excluded } else { Contents::Included };
        Ok(Self { grpc, scope, matchers, contents, after: None, rest: None, is_done: false })
    }

    /// Returns `true` if everything is written.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The next clients, up to about `max_bytes`: a resource goes into a part as long as that is below it. The entry of a
    /// client that has more goes on in the next part, with a node that has nothing but its id.
    pub(crate) fn next(&mut self, max_bytes: usize) -> proto::ClientStatusResponse {
        let mut response = proto::ClientStatusResponse::default();
        let mut n_bytes = 0;
        while n_bytes < max_bytes {
            let Some(rest) = self.rest.take().or_else(|| self.next_client()) else {
                self.is_done = true;
                return response;
            };
            let (config, rest) = self.tell(rest, max_bytes - n_bytes);
            n_bytes += config.encoded_len();
            response.config.push(config);
            self.rest = rest;
        }
        response
    }

    /// The next client in scope that the matchers take. If a part of its groups is out of scope, it is shown without resources.
    fn next_client(&mut self) -> Option<Rest> {
        loop {
            let stream = self.grpc.board.stream_after(self.after)?;
            let (id, view) = stream.with(|status| (status.info.id, status.view.clone()));
            self.after = Some(id);
            let groups = view.map(|view| view.groups).unwrap_or_default();
            if !self.scope.has_node(&groups) {
                continue;
            }
            let Some(client) = self.grpc.streams.client(id) else { continue };
            // Per-type streams share a client, which is written at its first stream.
            if client.first_stream() != Some(id) {
                continue;
            }
            let node = client.identity().node();
            if self.matchers.matches(&node) {
                let is_whole = self.scope.has_all_of_node(&groups);
                let streams = if is_whole { holdings(&client) } else { VecDeque::new() };
                return Some(Rest { node, streams });
            }
        }
    }

    /// The entry of a client, and the rest that has no room.
    fn tell(&self, mut rest: Rest, max_bytes: usize) -> (proto::ClientConfig, Option<Rest>) {
        let id = rest.node.id.clone();
        let mut n_bytes = rest.node.encoded_len();
        let mut configs = Vec::new();
        while let Some((types, holdings)) = rest.streams.front_mut() {
            let Some(holding) = holdings.pop_front() else {
                rest.streams.pop_front();
                continue;
            };
            let status = types.get(&holding.resource_type).cloned().unwrap_or_default();
            let config = config(&self.grpc.codec, holding, &status, self.contents);
            n_bytes += config.encoded_len();
            configs.push(config);
            if n_bytes >= max_bytes {
                break;
            }
        }
        while rest.streams.front().is_some_and(|(_, holdings)| holdings.is_empty()) {
            rest.streams.pop_front();
        }
        let has_more = !rest.streams.is_empty();
        let Rest { node, streams } = rest;
        let told =
            proto::ClientConfig { node: Some(node), generic_xds_configs: configs, ..Default::default() };
        let node = Node { id, ..Node::default() };
        (told, has_more.then_some(Rest { node, streams }))
    }
}

fn holdings(client: &SharedClient) -> VecDeque<(BTreeMap<ResourceType, TypeStatus>, VecDeque<Holding>)> {
    let holdings = client.holdings().into_iter();
    holdings.map(|(entry, holdings)| (entry.with(|status| status.types.clone()), holdings.into())).collect()
}

/// The entry of a resource of a client. `client_status` is for clients, and stays unset (row A200).
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

/// The clock as the protocol writes it.
fn timestamp(time: SystemTime) -> envoy_types::pb::google::protobuf::Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(since.subsec_nanos()).unwrap_or_default();
    envoy_types::pb::google::protobuf::Timestamp { seconds, nanos }
}
