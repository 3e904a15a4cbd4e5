//! The rejections that were there before a wave began: they are not its fault.

use std::collections::BTreeSet;

use xds_cache::status::TypeStatus;
use xds_cache::{Node, ResourceType, StatusBoard};

/// The rejections of nodes, resource by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failing {
    /// The nodes of which it was not known which resources they reject: nothing that they reject counts.
    pub(crate) nodes: BTreeSet<String>,
    /// The rejected resources of the others.
    pub(crate) resources: BTreeSet<FailingResource>,
}

/// A resource that a node rejected: the node, the type URL and the name.
pub(crate) type FailingResource = (String, String, String);

impl Failing {
    /// The rejections that stand now, of nodes that count.
    pub(crate) fn of(board: &StatusBoard, counts: impl Fn(&Node) -> bool) -> Self {
        let mut failing = Self::default();
        for entry in board.streams() {
            entry.with(|status| {
                let node = &status.info.node;
                if !status.types.values().any(|status| status.is_error) || !counts(node) {
                    return;
                }
                for (of, status) in status.types.iter().filter(|(_, status)| status.is_error) {
                    failing.add(&node.id, of, status);
                }
            });
        }
        failing
    }

    fn add(&mut self, node: &str, of: &ResourceType, status: &TypeStatus) {
        match status.rejected_names() {
            Some(names) => {
                let named = names.map(|name| (node.to_owned(), of.type_url().to_owned(), name.to_string()));
                self.resources.extend(named);
            }
            None => _ = self.nodes.insert(node.to_owned()),
        }
    }

    /// Adds those of an earlier wave.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.nodes.extend(other.nodes.iter().cloned());
        self.resources.extend(other.resources.iter().cloned());
    }

    /// Returns `true` if a node rejected a resource before; `None` is one that is not known, of the type.
    pub(crate) fn has(&self, node: &str, of: &ResourceType, name: Option<&str>) -> bool {
        if self.nodes.contains(node) {
            return true;
        }
        let first = (node.to_owned(), of.type_url().to_owned(), name.unwrap_or_default().to_owned());
        let next = self.resources.range(&first..).next();
        next.is_some_and(|next| match name {
            Some(_) => *next == first,
            None => (&next.0, &next.1) == (&first.0, &first.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_rejected_before_is_excused() {
        let of = ResourceType::Cluster;
        let resource = |node: &str, name: &str| (node.to_owned(), of.type_url().to_owned(), name.to_owned());
        let resources = [resource("a", "x"), resource("b", "y")].into();
        let failing = Failing { nodes: ["c".to_owned()].into(), resources };
        assert!(failing.has("a", &of, Some("x")) && !failing.has("a", &of, Some("y")));
        assert!(failing.has("a", &of, None) && !failing.has("a", &ResourceType::Listener, None));
        assert!(failing.has("c", &of, Some("x")) && !failing.has("d", &of, None));
        assert!(!failing.has("b", &of, Some("x")));
    }
}
