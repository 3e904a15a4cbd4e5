//! Metrics that are counted at each scrape, from the publisher and the status board.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use xds_cache::{GroupName, Publisher, Refusals, ResourceKey, Revision, StatusBoard};

use super::labels::{OTHER, type_name};

/// Counts nodes, resources and refusals.
#[derive(Debug)]
pub(super) struct Scrape {
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    refusals: Arc<Refusals>,
    /// The resources of a revision; counted once for each.
    resources: Mutex<(Revision, ResourceCounts)>,
}

/// By group and type.
type ResourceCounts = Arc<BTreeMap<(String, &'static str), u64>>;

impl Scrape {
    pub(super) fn new(publisher: Arc<Publisher>, board: Arc<StatusBoard>, refusals: Arc<Refusals>) -> Self {
        Self { publisher, board, refusals, resources: Mutex::default() }
    }

    /// How many nodes are connected, by client; a node with many streams counts once.
    fn nodes(&self) -> BTreeMap<&'static str, usize> {
        let mut nodes: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        for entry in self.board.streams() {
            entry.with(|status| {
                let node = &status.info.node;
                nodes.entry(client(&node.user_agent_name)).or_default().insert(node.id.clone());
            });
        }
        CLIENTS
            .iter()
            .map(|(_, client)| *client)
            .chain([OTHER])
            .map(|client| (client, nodes.get(client).map_or(0, BTreeSet::len)))
            .collect()
    }

    fn resources(&self) -> ResourceCounts {
        let (revision, groups) = self.publisher.groups();
        let mut counted = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0 == revision {
            return Arc::clone(&counted.1);
        }
        let named: BTreeSet<&GroupName> = groups.keys().take(MAX_GROUPS).collect();
        let mut counts: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
        for (name, group) in &groups {
            let label = if named.contains(name) { name.as_str() } else { OTHER };
            // A name that each kind of client gets something else for counts once.
            let generated = group.generated.values().flat_map(|resources| resources.keys());
            let keys: BTreeSet<&Arc<ResourceKey>> = group.resources.keys().chain(generated).collect();
            for key in keys {
                *counts.entry((label.to_owned(), type_name(&key.resource_type))).or_default() += 1;
            }
        }
        *counted = (revision, Arc::new(counts));
        Arc::clone(&counted.1)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Connected nodes";
        let mut nodes = encoder.encode_descriptor("xds_connected_nodes", help, None, MetricType::Gauge)?;
        for (client, n_nodes) in self.nodes() {
            nodes.encode_family(&[("client", client)])?.encode_gauge(&(n_nodes as u64))?;
        }
        let help = "Resources and endpoints that left and are still served, each counted once in every view";
        let mut draining = encoder.encode_descriptor("xds_draining", help, None, MetricType::Gauge)?;
        let (n_resources, n_endpoints) = self.publisher.n_draining();
        for (kind, n_draining) in [("resource", n_resources), ("endpoint", n_endpoints)] {
            draining.encode_family(&[("kind", kind)])?.encode_gauge(&(n_draining as u64))?;
        }
        let help = "Requests and inputs that passed a limit and were refused";
        let mut refused = encoder.encode_descriptor("xds_refused", help, None, MetricType::Counter)?;
        for (reason, n) in self.refusals.counts() {
            refused
                .encode_family(&[("reason", reason.as_str())])?
                .encode_counter::<NoLabelSet, u64, u64>(&n, None)?;
        }
        let help = "Resources by group and type";
        let mut resources =
            encoder.encode_descriptor("xds_snapshot_resources", help, None, MetricType::Gauge)?;
        for ((group, resource_type), n_resources) in self.resources().iter() {
            let labels = [("group", group.as_str()), ("type", *resource_type)];
            resources.encode_family(&labels)?.encode_gauge(n_resources)?;
        }
        Ok(())
    }
}

/// The label of a client.
fn client(user_agent_name: &str) -> &'static str {
    CLIENTS.iter().find(|(prefix, _)| user_agent_name.starts_with(prefix)).map_or(OTHER, |(_, client)| client)
}

/// The beginning of a client's user agent, and its label.
const CLIENTS: [(&str, &str); 6] = [
    ("envoy", "envoy"),
    ("gRPC Go", "grpc-go"),
    ("gRPC Java", "grpc-java"),
    ("gRPC C-core", "grpc-c-core"),
    ("gRPC Node", "grpc-node"),
    ("tonic", "tonic"),
];
/// How many groups have a label of their own; the first by name.
const MAX_GROUPS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_by_their_user_agent() {
        for (name, expected) in
            [("envoy", "envoy"), ("gRPC Go", "grpc-go"), ("gRPC Node Pure JS", "grpc-node"), ("", OTHER)]
        {
            assert_eq!(client(name), expected, "{name}");
        }
    }
}
