//! Questions about the clients of a revision: those that its publication concerns, or all that are connected.

use xds_cache::{Glob, Revision};

/// A question about clients and a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcksQuery {
    /// The revision.
    pub revision: Revision,
    /// The clients that have to answer it.
    pub of: Whose,
    /// Only clients whose node id matches; `None` for all.
    pub nodes: Option<Glob>,
}

/// The clients that have to answer a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those that subscribe to a resource that its publication changed. What they answered to other resources does not count.
    Concerned,
    /// Every connected client, with everything that it subscribes to, changed by that publication or by an earlier one.
    Everyone,
}

impl AcksQuery {
    /// A question about the clients that a publication concerns.
    #[must_use]
    pub fn concerned(revision: Revision) -> Self {
        Self { revision, of: Whose::Concerned, nodes: None }
    }

    /// Returns `true` if the clients of a node count.
    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.matches(node))
    }
}
