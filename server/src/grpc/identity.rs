//! The node as the client sent it, kept small, for those who ask for the status of clients (row A203).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message;

/// A whole node. What is equal in all Envoys of one build is shared by them.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The encoded node without its extensions.
    node: Box<[u8]>,
    /// An encoded node that has nothing but extensions: hundreds of them, 61 KB, in every Envoy's first request.
    extensions: Arc<[u8]>,
}

/// The lists of extensions that living clients have.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    by_hash: Mutex<HashMap<[u8; 32], Weak<[u8]>>>,
}

impl Identity {
    /// Keeps `node`.
    pub(crate) fn new(mut node: Node, extensions: &Extensions) -> Self {
        let list = Node { extensions: std::mem::take(&mut node.extensions), ..Node::default() };
        Self { node: node.encode_to_vec().into(), extensions: extensions.intern(&list.encode_to_vec()) }
    }

    /// The node as it came.
    pub(crate) fn node(&self) -> Node {
        let mut node = Node::decode(&*self.node).unwrap_or_default();
        node.extensions = Node::decode(&*self.extensions).unwrap_or_default().extensions;
        node
    }
}

impl Extensions {
    fn intern(&self, encoded: &[u8]) -> Arc<[u8]> {
        let mut by_hash = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = *blake3::hash(encoded).as_bytes();
        if let Some(list) = by_hash.get(&hash).and_then(Weak::upgrade) {
            return list;
        }
        if by_hash.len() == by_hash.capacity() {
            // Before the map grows, so that the work stays in proportion.
            by_hash.retain(|_, list| list.strong_count() > 0);
        }
        let list: Arc<[u8]> = encoded.into();
        by_hash.insert(hash, Arc::downgrade(&list));
        list
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::Extension;

    use super::*;

    fn node(id: &str) -> Node {
        let extension = |name: &str| Extension { name: name.into(), ..Default::default() };
        Node {
            id: id.into(),
            extensions: vec![extension("envoy.filters.http.router"), extension("envoy.tls")],
            ..Default::default()
        }
    }

    #[test]
    fn the_node_comes_back_whole_and_its_extensions_are_shared() {
        let extensions = Extensions::default();
        let (a, b) = (Identity::new(node("a"), &extensions), Identity::new(node("b"), &extensions));
        assert_eq!((a.node(), b.node()), (node("a"), node("b")));
        assert!(Arc::ptr_eq(&a.extensions, &b.extensions));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let extensions = Extensions::default();
        for i in 0..1000 {
            let extension = Extension { name: i.to_string(), ..Default::default() };
            let node = Node { extensions: vec![extension], ..Default::default() };
            drop(Identity::new(node, &extensions));
        }
        assert!(extensions.by_hash.lock().unwrap().len() < 10);
    }
}
