//! `/v1/relay`: the xDS server that this one relays.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::input::{NoParams, Params};
use crate::problem::ApiError;
use crate::state::{ApiState, RelayedNode};

/// The xDS server that this one relays.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RelayStatus {
    /// The nodes as which it is asked, in the order of the file; none if this server relays none (`--relay`).
    pub nodes: Vec<RelayedNodeEntry>,
}

/// A node as which the server is asked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RelayedNodeEntry {
    /// The group of those who are served what the node is sent.
    pub group: String,
    /// The id of the node.
    pub node_id: String,
    /// The server that answered last; null before any did.
    pub server: Option<String>,
    /// True if it is connected.
    pub connected: bool,
    /// Since when it is connected, or is not.
    pub since: String,
    /// Why it is not; null if it is.
    pub problem: Option<String>,
    /// How many resources are waited for before the others are served; at most for 5 s.
    pub awaited: usize,
    /// The first of them.
    pub awaits: Option<String>,
    /// How many resources of each type the node was sent.
    pub resources: BTreeMap<String, usize>,
    /// How many resources cannot be used. Of these an earlier version is served, if there is one.
    pub n_refused: usize,
    /// The first 100 of them.
    pub refused: Vec<RefusedEntry>,
}

/// A resource that cannot be used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedEntry {
    /// Its type.
    pub r#type: String,
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl From<RelayedNode> for RelayedNodeEntry {
    fn from(node: RelayedNode) -> Self {
        let mut resources = BTreeMap::new();
        for (key, _) in &node.resources {
            *resources.entry(key.resource_type.slug().to_owned()).or_default() += 1;
        }
        let refused = node.refused.into_iter().map(|one| RefusedEntry {
            r#type: one.resource_type.slug().to_owned(),
            name: one.name.to_string(),
            why: one.why,
        });
        let (awaited, awaits) = node.awaited.unzip();
        Self {
            group: node.group.to_string(),
            node_id: node.node_id,
            server: node.server,
            connected: node.problem.is_none(),
            since: rfc3339(node.since),
            problem: node.problem,
            awaited: awaited.unwrap_or_default(),
            awaits,
            resources,
            n_refused: node.n_refused,
            refused: refused.collect(),
        }
    }
}

pub(crate) async fn status(State(state): State<ApiState>, _: Params<NoParams>) -> Result<Answer, ApiError> {
    let nodes = state.relay.iter().flat_map(|relay| relay.nodes());
    Answer::ok(&RelayStatus { nodes: nodes.map(RelayedNodeEntry::from).collect() })
}
