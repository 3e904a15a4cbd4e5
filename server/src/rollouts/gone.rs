//! The nodes that a change of a rollout concerned, so that those that have gone since count against it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use xds_cache::StatusBoard;
use xds_cache::wave::{Members, Present};
use xds_control::connected::{NodesAsked, NodesHeard, NodesTold};
use xds_rollout::AckStatus;

/// The nodes of all servers.
#[derive(Debug, Default)]
pub(super) struct Concerned {
    members: Members,
    /// The nodes that other servers have, by server.
    elsewhere: BTreeMap<String, Elsewhere>,
}

#[derive(Debug, Default)]
struct Elsewhere {
    nodes: NodesHeard,
    /// Those of the absent members that are connected there, and do not use the rule.
    released: BTreeSet<String>,
}

impl Concerned {
    /// The question about them to each of these servers.
    pub(super) fn questions(&self, servers: impl Iterator<Item = String>) -> BTreeMap<String, NodesAsked> {
        let asked = NodesAsked::about(self.members.absent());
        let question = |server: String| {
            let known = self.elsewhere.get(&server).and_then(|heard| heard.nodes.hash());
            (server, NodesAsked { known, ..asked.clone() })
        };
        servers.map(question).collect()
    }

    /// Takes in what the servers whose clients count have said; nothing of one that has not answered, which may still have the same nodes.
    pub(super) fn hear(&mut self, told: BTreeMap<String, Option<NodesTold>>) {
        self.elsewhere.retain(|server, _| told.contains_key(server));
        for (server, told) in told {
            let Some(mut told) = told else { continue };
            let heard = self.elsewhere.entry(server).or_default();
            heard.nodes.hear(&mut told);
            heard.released = told.released.into_iter().collect();
        }
    }

    /// Counts those that have gone. `present` are the nodes of this server that use the rule. Returns when they are to be counted again,
    /// if one is away.
    pub(super) fn count(
        &mut self,
        status: &mut AckStatus,
        mut present: BTreeMap<Arc<str>, Present>,
        board: &StatusBoard,
    ) -> Option<Instant> {
        if self.elsewhere.values().any(|heard| heard.nodes.hash().is_none()) {
            // A server of an earlier release does not say which nodes it has.
            return None;
        }
        let now = Instant::now();
        for (server, heard) in &self.elsewhere {
            heard.nodes.add_to(&mut present, server);
        }
        // A node that is connected and no longer uses the rule has not gone.
        let is_away = self.members.nodes().any(|node| !present.contains_key(node));
        let connected: BTreeSet<String> = match is_away {
            true => {
                board.streams().iter().map(|entry| entry.with(|stream| stream.info.node.id.clone())).collect()
            }
            false => BTreeSet::new(),
        };
        let is_elsewhere = |node: &str| self.elsewhere.values().any(|heard| heard.released.contains(node));
        let is_connected = |node: &str| connected.contains(node) || is_elsewhere(node);
        self.members.look(present, is_connected, now.into_std());
        let losses = self.members.losses(now.into_std());
        status.n_gone = u64::try_from(losses.n_gone).unwrap_or(u64::MAX);
        self.members.poll_timeout(now.into_std()).map(Instant::from_std)
    }
}
