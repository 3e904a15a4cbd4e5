//! The nodes that are connected to the other servers with the same store, so that those that leave them all are noticed.
//!
//! A server sends its nodes only if they have changed since it was asked last. As long as it does not answer, those that it had count as
//! connected: silence ends no connection.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xds_cache::StatusBoard;
use xds_cache::wave::{ClientId, Present};
use xds_store::BlobHash;

use crate::acks::MAX_LISTED;

/// What a question to another server says of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesAsked {
    /// Nodes that whoever asks does not find.
    #[serde(default)]
    pub absent: Vec<String>,
    /// The hash of the last nodes that whoever asks has of that server.
    #[serde(default)]
    pub known: Option<String>,
}

/// What the answer says of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesTold {
    /// The nodes that have, or are to have, the change, and are connected: the first [`MAX_PRESENT`](Self::MAX_PRESENT). `None` if they are as
    /// known, or if an earlier release does not say.
    #[serde(default)]
    pub present: Option<Vec<PresentNode>>,
    /// The hash of these.
    #[serde(default)]
    pub hash: String,
    /// The absent nodes that are connected there, and that the change does not concern any more.
    #[serde(default)]
    pub released: Vec<String>,
}

/// A connected node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentNode {
    /// The node id.
    pub node: String,
    /// Its clients, as the server tells them apart, each with whether it showed that it has configuration.
    pub clients: Vec<(String, bool)>,
}

/// The nodes of another server, as it told them last.
#[derive(Clone, Debug, Default)]
pub struct NodesHeard {
    present: Arc<Vec<PresentNode>>,
    hash: Option<String>,
}

impl NodesAsked {
    /// A question about nodes that are members of a change, and are not found.
    pub fn about<'a>(absent: impl Iterator<Item = &'a Arc<str>>) -> Self {
        Self { absent: absent.take(MAX_LISTED).map(|node| node.to_string()).collect(), known: None }
    }
}

impl NodesTold {
    /// The most nodes of one server that are remembered, so that those that a change kills count against it.
    pub const MAX_PRESENT: usize = 10_000;

    /// The answer of a server with these connected nodes.
    #[must_use]
    pub fn new(present: BTreeMap<Arc<str>, Present>, released: Vec<String>, asked: &NodesAsked) -> Self {
        let nodes = present.into_iter().take(Self::MAX_PRESENT);
        let nodes: Vec<PresentNode> = nodes.map(|(node, clients)| present_node(&node, clients)).collect();
        // Texts always have a JSON form.
        let hash = BlobHash::of(&serde_json::to_vec(&nodes).unwrap_or_default()).to_string();
        let present = (asked.known.as_ref() != Some(&hash)).then_some(nodes);
        Self { present, hash, released }
    }
}

impl NodesHeard {
    /// Takes in an answer. The nodes in it are moved.
    pub fn hear(&mut self, told: &mut NodesTold) {
        // An earlier release says nothing.
        if let Some(nodes) = told.present.take().filter(|_| !told.hash.is_empty()) {
            (self.present, self.hash) = (Arc::new(nodes), Some(told.hash.clone()));
        }
    }

    /// Their hash, for the next question.
    #[must_use]
    pub fn hash(&self) -> Option<String> {
        self.hash.clone()
    }

    /// Adds them, as those of a server, to connected nodes.
    pub fn add_to(&self, all: &mut BTreeMap<Arc<str>, Present>, server: &str) {
        let server: Arc<str> = server.into();
        for PresentNode { node, clients } in &*self.present {
            let known = match all.get_mut(node.as_str()) {
                Some(known) => known,
                None => all.entry(node.as_str().into()).or_default(),
            };
            known.extend(clients.iter().map(|(client, has_configuration)| {
                (ClientId::Elsewhere(Arc::clone(&server), client.as_str().into()), *has_configuration)
            }));
        }
    }
}

/// Those of these nodes that are connected, as far as `is_released` says so of their streams.
pub fn released(
    board: &StatusBoard,
    nodes: &[String],
    is_released: impl Fn(&xds_cache::Node) -> bool,
) -> Vec<String> {
    if nodes.is_empty() {
        return vec![];
    }
    let wanted: HashSet<&String> = nodes.iter().collect();
    let mut released = BTreeSet::new();
    for entry in board.streams() {
        let node = entry.with(|status| Arc::clone(&status.info.node));
        if wanted.contains(&node.id) && is_released(&node) {
            released.insert(node.id.clone());
        }
    }
    released.into_iter().collect()
}

fn present_node(node: &str, clients: Present) -> PresentNode {
    let name = |client| match client {
        ClientId::Stream(id) => format!("stream {}", id.0),
        ClientId::Address(address) => format!("address {address}"),
        ClientId::Elsewhere(server, client) => format!("{server} {client}"),
    };
    let clients = clients.into_iter().map(|(client, has)| (name(client), has)).collect();
    PresentNode { node: node.to_owned(), clients }
}
