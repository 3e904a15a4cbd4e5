//! Requests as they come over the wire, as the session takes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::service::discovery::v3 as proto;
use envoy_types::pb::google::protobuf::Struct;
use envoy_types::pb::google::protobuf::value::Kind;
use prost::Message;
use tonic::Status;
use xds_cache::status::Variant;
use xds_cache::{Locality, Node, Scalar};
use xds_session::{DeltaRequest, Nonce, Request, SotwRequest};

/// A request, and the node as it came; the session's request holds what of it the server decides by.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) request: Request,
    pub(crate) node: Option<Box<core::Node>>,
}

impl Incoming {
    /// Decodes a message of a stream of this variant.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if it is malformed.
    pub(crate) fn decode(variant: Variant, message: Bytes) -> Result<Self, Status> {
        match variant {
            Variant::Sotw => decode::<proto::DiscoveryRequest>(message, "DiscoveryRequest").map(Into::into),
            Variant::Delta => {
                decode::<proto::DeltaDiscoveryRequest>(message, "DeltaDiscoveryRequest").map(Into::into)
            }
        }
    }
}

impl From<proto::DiscoveryRequest> for Incoming {
    fn from(request: proto::DiscoveryRequest) -> Self {
        let node = request.node.map(Box::new);
        let request = SotwRequest {
            node: node.as_deref().map(|node| Arc::new(to_node(node))),
            type_url: request.type_url,
            version_info: request.version_info,
            resource_names: with_locators(request.resource_names, request.resource_locators),
            response_nonce: Nonce::parse(&request.response_nonce),
            error_detail: request.error_detail.map(|detail| detail.message),
        };
        Self { request: request.into(), node }
    }
}

impl From<proto::DeltaDiscoveryRequest> for Incoming {
    fn from(request: proto::DeltaDiscoveryRequest) -> Self {
        let node = request.node.map(Box::new);
        let request = DeltaRequest {
            node: node.as_deref().map(|node| Arc::new(to_node(node))),
            type_url: request.type_url,
            resource_names_subscribe: with_locators(
                request.resource_names_subscribe,
                request.resource_locators_subscribe,
            ),
            resource_names_unsubscribe: with_locators(
                request.resource_names_unsubscribe,
                request.resource_locators_unsubscribe,
            ),
            initial_resource_versions: request.initial_resource_versions.into_iter().collect(),
            response_nonce: Nonce::parse(&request.response_nonce),
            error_detail: request.error_detail.map(|detail| detail.message),
        };
        Self { request: request.into(), node }
    }
}

fn decode<M: Message + Default>(message: Bytes, name: &str) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::invalid_argument(format!("malformed {name}: {error}")))
}

/// A server without variants of resources takes a locator as its name (row A161).
fn with_locators(mut names: Vec<String>, locators: Vec<proto::ResourceLocator>) -> Vec<String> {
    names.extend(locators.into_iter().map(|locator| locator.name));
    names
}

/// What of a node the server decides by.
pub(crate) fn to_node(node: &core::Node) -> Node {
    let mut metadata = BTreeMap::new();
    if let Some(fields) = &node.metadata {
        flatten(fields, "", MAX_METADATA_DEPTH, &mut metadata);
    }
    let locality = node.locality.clone().unwrap_or_default();
    Node {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        metadata,
        locality: Locality { region: locality.region, zone: locality.zone, sub_zone: locality.sub_zone },
        user_agent_name: node.user_agent_name.clone(),
        user_agent_version: user_agent_version(node),
        client_features: node.client_features.iter().cloned().collect(),
    }
}

/// `{"a": {"b": 1}}` is `a.b` = 1. Goes by sorted keys, so that the same entries are kept whatever the map's order.
fn flatten(fields: &Struct, prefix: &str, depth: usize, metadata: &mut BTreeMap<String, Scalar>) {
    let sorted: BTreeMap<_, _> = fields.fields.iter().collect();
    for (key, value) in sorted {
        if metadata.len() >= MAX_METADATA_ENTRIES {
            return;
        }
        let path = format!("{prefix}{key}");
        let scalar = match &value.kind {
            Some(Kind::StringValue(text)) => Scalar::String(text.clone()),
            Some(Kind::NumberValue(number)) => Scalar::Number(*number),
            Some(Kind::BoolValue(truth)) => Scalar::Bool(*truth),
            Some(Kind::StructValue(inner)) => {
                if depth > 1 {
                    flatten(inner, &format!("{path}."), depth - 1, metadata);
                }
                continue;
            }
            Some(Kind::NullValue(_) | Kind::ListValue(_)) | None => continue,
        };
        metadata.insert(path, scalar);
    }
}

fn user_agent_version(node: &core::Node) -> String {
    match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => build
            .version
            .as_ref()
            .map(|v| format!("{}.{}.{}", v.major_number, v.minor_number, v.patch))
            .unwrap_or_default(),
        None => String::new(),
    }
}

/// How many metadata entries of a node can be selected by.
const MAX_METADATA_ENTRIES: usize = 1000;
/// How deep they can lie.
const MAX_METADATA_DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::{ListValue, Value};

    use super::*;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    fn fields(fields: impl IntoIterator<Item = (String, Value)>) -> Struct {
        Struct { fields: fields.into_iter().collect() }
    }

    #[test]
    fn metadata_is_flattened_to_scalars() {
        let inner = fields([
            ("n".to_owned(), value(Kind::NumberValue(1.0))),
            ("l".to_owned(), value(Kind::ListValue(ListValue::default()))),
            ("b".to_owned(), value(Kind::BoolValue(true))),
        ]);
        let metadata = fields([
            ("a".to_owned(), value(Kind::StructValue(inner))),
            ("s".to_owned(), value(Kind::StringValue("x".into()))),
            ("none".to_owned(), Value { kind: None }),
        ]);
        let node = to_node(&core::Node { metadata: Some(metadata), ..Default::default() });
        let expected =
            [("a.b", Scalar::Bool(true)), ("a.n", Scalar::Number(1.0)), ("s", Scalar::String("x".into()))];
        assert_eq!(node.metadata, expected.map(|(k, v)| (k.to_owned(), v)).into());
    }

    #[test]
    fn metadata_is_bounded_in_number_and_depth() {
        let many = fields((0..5000).map(|i| (format!("{i:04}"), value(Kind::BoolValue(true)))));
        let node = to_node(&core::Node { metadata: Some(many), ..Default::default() });
        assert_eq!(node.metadata.len(), MAX_METADATA_ENTRIES);
        let mut deep = fields([("x".to_owned(), value(Kind::BoolValue(true)))]);
        for _ in 1..MAX_METADATA_DEPTH {
            deep = fields([("d".to_owned(), value(Kind::StructValue(deep)))]);
        }
        let deeper = fields([("d".to_owned(), value(Kind::StructValue(deep.clone())))]);
        for (metadata, n_kept) in [(deep, 1), (deeper, 0)] {
            let node = to_node(&core::Node { metadata: Some(metadata), ..Default::default() });
            assert_eq!(node.metadata.len(), n_kept);
        }
    }

    #[test]
    fn a_locator_counts_as_its_name() {
        let locator = |name: &str| proto::ResourceLocator { name: name.into(), ..Default::default() };
        let Request::Sotw(request) = Incoming::from(proto::DiscoveryRequest {
            resource_names: vec!["a".into()],
            resource_locators: vec![locator("b")],
            ..Default::default()
        })
        .request
        else {
            panic!("not SotW")
        };
        assert_eq!(request.resource_names, ["a", "b"]);
        let Request::Delta(request) = Incoming::from(proto::DeltaDiscoveryRequest {
            resource_locators_subscribe: vec![locator("a")],
            resource_locators_unsubscribe: vec![locator("b")],
            ..Default::default()
        })
        .request
        else {
            panic!("not delta")
        };
        assert_eq!(request.resource_names_subscribe, ["a"]);
        assert_eq!(request.resource_names_unsubscribe, ["b"]);
    }

    #[test]
    fn both_ways_to_tell_the_version_are_read() {
        let text = UserAgentVersionType::UserAgentVersion("1.2".into());
        let build = UserAgentVersionType::UserAgentBuildVersion(core::BuildVersion {
            version: Some(envoy_types::pb::envoy::r#type::v3::SemanticVersion {
                major_number: 1,
                minor_number: 40,
                patch: 0,
            }),
            metadata: None,
        });
        for (version, expected) in [(Some(text), "1.2"), (Some(build), "1.40.0"), (None, "")] {
            let node = to_node(&core::Node { user_agent_version_type: version, ..Default::default() });
            assert_eq!(node.user_agent_version, expected);
        }
    }
}
