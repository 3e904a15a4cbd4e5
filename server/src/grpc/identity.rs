//! The node as the client sent it, kept small, for those who ask for the status of clients (row A203).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::BufMut;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use prost::Message;
use xds_cache::Node;
use xds_cache::wire::{Fields, Value};

use crate::grpc::budget::{Budget, Reserved};
use crate::grpc::convert::SentNode;
use crate::grpc::wire::{put_field, put_varint};

/// The node that a client sent. Envoys of one build share the parts that are equal.
///
/// All clients share one budget. When it is used up, new clients are served as always, but shown only with the fields by which the
/// server decides.
#[derive(Debug)]
pub(crate) struct Identity {
    node: Arc<Node>,
    /// The encoded node without its extensions; `None` if there is no room for it.
    rest: Option<Kept>,
    /// An encoded node that has only extensions: hundreds of them, 61 KB, in every Envoy's first request.
    extensions: Option<Arc<Kept>>,
}

/// Bytes that are counted.
#[derive(Debug)]
struct Kept {
    bytes: Box<[u8]>,
    _reserved: Reserved,
}

/// The identities of living clients.
#[derive(Debug)]
pub(crate) struct Identities {
    budget: Arc<Budget>,
    /// The lists of extensions, by their hash.
    extensions: Mutex<HashMap<[u8; 32], Weak<Kept>>>,
}

impl Identity {
    /// Keeps a node as long as there is room for it.
    pub(crate) fn new(sent: &SentNode, identities: &Identities) -> Self {
        let (rest, extensions) = split(&sent.encoded);
        Self {
            node: Arc::clone(&sent.node),
            rest: Some(rest)
                .filter(|rest| rest.len() <= MAX_REST_BYTES)
                .and_then(|rest| identities.keep(rest)),
            extensions: identities.intern(extensions),
        }
    }

    /// Returns `true` if the whole node is kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.rest.is_some() && self.extensions.is_some()
    }

    /// The node as it came, or the part that is kept.
    pub(crate) fn node(&self) -> core::Node {
        let rest = self.rest.as_ref().and_then(|rest| core::Node::decode(&*rest.bytes).ok());
        let mut node = rest.unwrap_or_else(|| essence(&self.node));
        if let Some(extensions) = &self.extensions {
            node.extensions = core::Node::decode(&*extensions.bytes).unwrap_or_default().extensions;
        }
        node
    }
}

impl Identities {
    /// Room for this many bytes.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { budget: Budget::new(max_bytes), extensions: Mutex::default() }
    }

    fn keep(&self, bytes: Vec<u8>) -> Option<Kept> {
        let reserved = self.budget.reserve(bytes.len())?;
        Some(Kept { bytes: bytes.into(), _reserved: reserved })
    }

    fn intern(&self, list: Vec<u8>) -> Option<Arc<Kept>> {
        let mut by_hash = self.extensions.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = *blake3::hash(&list).as_bytes();
        if let Some(list) = by_hash.get(&hash).and_then(Weak::upgrade) {
            return Some(list);
        }
        if by_hash.len() == by_hash.capacity() {
            // Before the map grows, so that the work stays in proportion.
            by_hash.retain(|_, list| list.strong_count() > 0);
        }
        let list = Arc::new(self.keep(list)?);
        by_hash.insert(hash, Arc::downgrade(&list));
        Some(list)
    }
}

/// An encoded node without its extensions, and one with the extensions only. Both decode for any order of fields.
fn split(encoded: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut rest, mut extensions) = (Vec::new(), Vec::new());
    for field in Fields::of(encoded).flatten() {
        match field.value {
            // Also if they are empty: a list has as many entries as were sent.
            Value::Bytes(bytes) if field.number == EXTENSIONS => put_entry(&mut extensions, bytes),
            Value::Bytes(bytes) => put_field(&mut rest, field.number, bytes),
            Value::Varint(number) => put_varint(&mut rest, field.number, number),
            Value::Fixed64(_) | Value::Fixed32(_) | Value::Group(_) => {}
        }
    }
    (rest, extensions)
}

fn put_entry(buffer: &mut Vec<u8>, entry: &[u8]) {
    crate::grpc::wire::put_header(buffer, EXTENSIONS, entry.len());
    buffer.put_slice(entry);
}

/// The fields of a node that every client has.
fn essence(node: &Node) -> core::Node {
    let xds_cache::Locality { region, zone, sub_zone } = node.locality.clone();
    core::Node {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        locality: Some(core::Locality { region, zone, sub_zone }),
        user_agent_name: node.user_agent_name.clone(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
            node.user_agent_version.clone(),
        )),
        client_features: node.client_features.iter().cloned().collect(),
        ..Default::default()
    }
}

/// `extensions` of a node.
const EXTENSIONS: u32 = 9;
/// The most bytes of one node besides its extensions, mostly its metadata. The same limit as for selectors.
const MAX_REST_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{Extension, Node};
    use envoy_types::pb::google::protobuf::value::Kind;
    use envoy_types::pb::google::protobuf::{Struct, Value as ProtoValue};

    use super::*;

    fn node(id: &str, extension: &str) -> Node {
        let named = |name: &str| Extension { name: name.into(), ..Default::default() };
        let value = ProtoValue { kind: Some(Kind::BoolValue(true)) };
        let metadata = Struct { fields: [("a".to_owned(), value)].into() };
        let extensions = vec![named(extension), Extension::default(), named("envoy.tls")];
        Node { id: id.into(), metadata: Some(metadata), extensions, ..Default::default() }
    }

    fn identity(node: &Node, identities: &Identities) -> Identity {
        Identity::new(&SentNode::read(node.encode_to_vec().into()).unwrap(), identities)
    }

    #[test]
    fn the_node_comes_back_whole_and_its_extensions_are_shared() {
        let identities = Identities::new(1000);
        let nodes = ["a", "b"].map(|id| node(id, "envoy.filters.http.router"));
        let [a, b] = nodes.each_ref().map(|node| identity(node, &identities));
        assert_eq!([a.node(), b.node()], nodes);
        assert!(a.is_whole() && Arc::ptr_eq(a.extensions.as_ref().unwrap(), b.extensions.as_ref().unwrap()));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let identities = Identities::new(200);
        for i in 0..1000 {
            assert!(identity(&node("a", &i.to_string()), &identities).is_whole(), "{i}");
        }
        assert!(identities.extensions.lock().unwrap().len() < 10);
    }

    #[test]
    fn without_room_only_the_essence_is_kept() {
        let identities = Identities::new(100);
        let large = node("a", &"x".repeat(200));
        let large = identity(&large, &identities);
        assert!(!large.is_whole());
        assert_eq!(large.node().metadata, node("a", "").metadata, "there is room for this");
        assert_eq!(large.node().extensions, []);
        let identities = Identities::new(0);
        let none = identity(&node("a", "x"), &identities);
        assert_eq!((none.node().id.as_str(), none.node().metadata), ("a", None));
    }
}
