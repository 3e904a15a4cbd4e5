//! Metrics that are counted at each scrape, from the publisher and the roster of streams.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use xds_cache::status::ConfigStatus;
use xds_cache::{GroupName, Publisher, Refusals, ResourceKey, Revision};
use xds_control::{Roster, RosterStream};

use super::labels::{OTHER, type_name};

/// Counts nodes, resources and refusals.
#[derive(Debug)]
pub(super) struct Scrape {
    publisher: Arc<Publisher>,
    roster: Arc<Roster>,
    refusals: Arc<Refusals>,
    /// The resources of a revision; counted once for each.
    resources: Mutex<(Revision, ResourceCounts)>,
}

/// By group and type.
type ResourceCounts = Arc<BTreeMap<(String, &'static str), u64>>;

impl Scrape {
    pub(super) fn new(publisher: Arc<Publisher>, roster: Arc<Roster>, refusals: Arc<Refusals>) -> Self {
        Self { publisher, roster, refusals, resources: Mutex::default() }
    }

    /// The connected nodes, by all that they are counted by. A node with many streams counts once, as the worst of them.
    fn nodes(&self) -> NodeCounts {
        let streams = self.roster.streams();
        let nodes = streams.chunk_by(|one, other| one.node.id == other.node.id);
        let mut counts = NodeCounts::default();
        for node in nodes {
            counts.add(node);
        }
        counts
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
        self.nodes().encode(&mut encoder)?;
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

/// Numbers of nodes by label.
struct NodeCounts {
    clients: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<&'static str, u64>,
    states: BTreeMap<&'static str, u64>,
}

impl Default for NodeCounts {
    fn default() -> Self {
        let zeroes = |labels: &[&'static str]| labels.iter().map(|label| (*label, 0)).collect();
        let clients: Vec<&'static str> = CLIENTS.iter().map(|(_, client)| *client).chain([OTHER]).collect();
        Self {
            clients: zeroes(&clients),
            statuses: zeroes(&STATUSES.map(ConfigStatus::as_str)),
            states: zeroes(&["acknowledged", "pending", "unknown", "behind-wave", "held-back", "unmatched"]),
        }
    }
}

impl NodeCounts {
    /// Counts a node, which has these streams.
    fn add(&mut self, streams: &[RosterStream]) {
        let Some(worst) = streams.iter().max_by_key(|stream| stream.status) else { return };
        *self.clients.entry(client(&worst.node.user_agent_name)).or_default() += 1;
        *self.statuses.entry(worst.status.as_str()).or_default() += 1;
        let any = |is_it: fn(&RosterStream) -> bool| streams.iter().any(is_it);
        let is_current = !any(|stream| !stream.is_current);
        for (state, is_it) in [
            ("acknowledged", is_current),
            ("pending", !is_current),
            ("unknown", any(|stream| stream.is_unknown)),
            ("behind-wave", any(|stream| stream.is_behind_wave)),
            ("held-back", any(|stream| stream.is_held_back)),
            ("unmatched", any(|stream| stream.is_unmatched)),
        ] {
            *self.states.entry(state).or_default() += u64::from(is_it);
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let families = [
            ("xds_connected_nodes", "client", "Connected nodes", &self.clients),
            ("xds_nodes", "status", "Connected nodes by their status in GET /v1/nodes", &self.statuses),
            (
                "xds_nodes_in_state",
                "state",
                "Connected nodes that have acknowledged the newest resources or not (pending), of which it is not known yet what they use of a rejected response (unknown), that a wave deployment has not reached (behind-wave), for which changes wait (held-back), or of which the server knows nothing (unmatched)",
                &self.states,
            ),
        ];
        for (name, label, help, counts) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (value, n_nodes) in counts {
                family.encode_family(&[(label, *value)])?.encode_gauge(n_nodes)?;
            }
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
const STATUSES: [ConfigStatus; 4] =
    [ConfigStatus::Synced, ConfigStatus::NotSent, ConfigStatus::Stale, ConfigStatus::Error];
/// How many groups have a label of their own; the first by name.
const MAX_GROUPS: usize = 100;

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::time::{Instant, SystemTime};

    use xds_cache::layer;
    use xds_cache::status::{
        EventKind, Sent, StreamEntry, StreamEvent, StreamId, StreamInfo, Subscriber, Variant,
    };
    use xds_cache::{
        Generated, HeldBack, Layer, Node, Proofs, ResourceType, StatusBoard, ViewChange, WaitsFor,
    };

    use super::*;

    struct Nobody;

    impl Subscriber for Nobody {
        fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
            Some(vec![])
        }
    }

    /// A board with streams of so many nodes, two of each, which follow a view.
    fn board(n_nodes: u64) -> (Scrape, Vec<Arc<StreamEntry>>) {
        let (publisher, board) = (Arc::new(Publisher::new()), StatusBoard::new());
        publisher.publish(Revision(1), layer::merge(&Layer::default(), &Layer::default(), &Generated::new()));
        let entries = (0..n_nodes * 2).map(|n| {
            let node = Arc::new(Node::with_id(&format!("node-{}", n / 2)));
            let view = publisher.view_of(&node).unwrap();
            let info = StreamInfo {
                id: StreamId(n),
                node,
                address: "127.0.0.1:1".into(),
                variant: Variant::Delta,
                service: None,
                since: SystemTime::now(),
                proofs: Proofs::default(),
            };
            let entry = board.register(info, Weak::<Nobody>::new());
            entry.record_view(view.key().clone(), false);
            entry
        });
        let entries = entries.collect();
        let roster = Arc::new(Roster::new(Arc::clone(&publisher), board));
        (Scrape::new(publisher, roster, Arc::default()), entries)
    }

    fn record(entry: &StreamEntry, kind: EventKind) {
        entry.record(&StreamEvent { resource_type: ResourceType::Cluster, kind }, SystemTime::now());
    }

    #[test]
    fn a_node_counts_once_as_the_worst_of_its_streams() {
        let (scrape, entries) = board(2);
        let sent = Sent { nonce: 1, version_info: "1".into(), revision: Revision(1), is_final: true };
        record(&entries[0], EventKind::Sent(sent));
        entries.iter().for_each(|entry| record(entry, EventKind::Current(Revision(1))));
        let name = |resource_type| ResourceKey { resource_type, name: "a".into() };
        let held_back = |resource_type| HeldBack {
            resource: name(resource_type),
            is_removal: false,
            waits_for: WaitsFor::Ack(name(ResourceType::Cluster)),
            since: Instant::now(),
        };
        // A type of which the stream has nothing does not count.
        entries[2].record_held_back(&[held_back(ResourceType::Listener)]);
        entries[3].record_held_back(&[ResourceType::Cluster, ResourceType::Listener].map(held_back));
        let counts = scrape.nodes();
        assert_eq!((counts.statuses["STALE"], counts.statuses["NOT_SENT"]), (2, 0));
        assert_eq!(
            (counts.states["acknowledged"], counts.states["pending"], counts.states["held-back"]),
            (1, 1, 1)
        );
        assert_eq!(counts.clients.values().sum::<u64>(), 2);
    }

    #[test]
    #[ignore = "measures, and claims nothing"]
    fn measure_100_000_nodes() {
        for n_nodes in [10_000, 100_000] {
            let (scrape, _entries) = board(n_nodes);
            let began = Instant::now();
            let counts = scrape.nodes();
            println!("{n_nodes} nodes: {:?}, {:?}", began.elapsed(), counts.statuses);
        }
    }

    #[test]
    fn clients_are_told_by_their_user_agent() {
        for (name, expected) in
            [("envoy", "envoy"), ("gRPC Go", "grpc-go"), ("gRPC Node Pure JS", "grpc-node"), ("", OTHER)]
        {
            assert_eq!(client(name), expected, "{name}");
        }
    }
}
