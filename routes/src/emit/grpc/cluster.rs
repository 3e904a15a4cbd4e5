//! Clusters: EDS, one DNS name, or several of both in order.
//!
//! gRPC refuses every other type (row B170). What Envoy does with several names or with names and addresses together becomes
//! an aggregate: clients then use them one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value as Json, json};
use xds_cache::Origin;

use super::{Emitted, endpoints};
use crate::emit::shared::{UNAVAILABLE, ads, load_assignment, no_endpoints, type_of, with};
use crate::plan::{Address, Cluster, Discovery, Plan, UpstreamTls};

/// The clusters that routes reach.
pub(super) struct Clusters<'p> {
    plan: &'p Plan,
    /// Who was the first to need the cluster without endpoints.
    unavailable_for: Option<Origin>,
    /// The clusters that routes name, with what gRPC clients cannot have of each.
    roots: BTreeMap<&'p str, Root<'p>>,
}

struct Root<'p> {
    cluster: &'p Cluster,
    leaves: Vec<Leaf<'p>>,
    losses: BTreeSet<String>,
}

/// A cluster with endpoints of its own.
#[derive(Clone, Debug)]
struct Leaf<'p> {
    name: String,
    source: Source<'p>,
    cluster: &'p Cluster,
}

/// Where the endpoints of a [`Leaf`] come from.
#[derive(Clone, Debug)]
enum Source<'p> {
    /// An assignment of the plan.
    Assignment(&'p str),
    /// An assignment under the leaf's backend's name, of these addresses.
    Addresses(&'p str, BTreeSet<(IpAddr, u16)>),
    /// A host name and port.
    Name(&'p str, u16),
    /// Every request fails.
    Nowhere,
}

impl<'p> Clusters<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, unavailable_for: None, roots: BTreeMap::new() }
    }

    /// The name of the cluster for a backend; none if the plan has no such cluster.
    pub(super) fn backend(&mut self, name: &str) -> Option<String> {
        let (name, cluster) = self.plan.clusters.get_key_value(name)?;
        if !self.roots.contains_key(name.as_str()) {
            let (leaves, losses) = leaves(self.plan, name);
            self.roots.insert(name, Root { cluster, leaves, losses });
        }
        Some(name.clone())
    }

    /// What gRPC clients cannot have of a backend whose name was taken.
    pub(super) fn losses(&self, name: &str) -> BTreeSet<String> {
        self.roots.get(name).map(|root| root.losses.clone()).unwrap_or_default()
    }

    /// The name of a cluster whose requests fail as UNAVAILABLE (C48).
    pub(super) fn unavailable(&mut self, origin: &Origin) -> &'static str {
        self.unavailable_for.get_or_insert_with(|| origin.clone());
        UNAVAILABLE
    }

    /// The clusters whose names were taken and their endpoints, each sorted by name.
    pub(super) fn finish(mut self) -> Vec<Emitted> {
        let mut clusters = BTreeMap::new();
        let mut leaves: BTreeMap<String, (Leaf<'_>, bool)> = BTreeMap::new();
        for (name, root) in std::mem::take(&mut self.roots) {
            let has_sessions = root.cluster.has_sessions;
            if root.leaves.iter().any(|leaf| leaf.name != name) {
                let message = aggregate(name, &root.leaves);
                let emitted = Emitted::plain(with_sessions(message, has_sessions), &root.cluster.origin);
                clusters.insert(name.to_owned(), emitted);
            }
            for leaf in root.leaves {
                let has_sessions = has_sessions || leaf.cluster.has_sessions;
                let known = leaves.entry(leaf.name.clone()).or_insert((leaf, false));
                known.1 |= has_sessions;
            }
        }
        let mut assignments = BTreeMap::new();
        for (name, (leaf, has_sessions)) in leaves {
            let message = self.leaf(&leaf, &mut assignments);
            let emitted = Emitted::plain(with_sessions(message, has_sessions), &leaf.cluster.origin);
            clusters.insert(name, emitted);
        }
        if let Some(origin) = &self.unavailable_for {
            let cluster = Emitted::plain(eds(UNAVAILABLE, UNAVAILABLE), origin);
            clusters.insert(UNAVAILABLE.to_owned(), cluster);
            assignments.insert(UNAVAILABLE.to_owned(), Emitted::plain(no_endpoints(), origin));
        }
        clusters.into_values().chain(assignments.into_values()).collect()
    }

    fn leaf(&self, leaf: &Leaf<'_>, assignments: &mut BTreeMap<String, Emitted>) -> Json {
        let origin = &leaf.cluster.origin;
        match &leaf.source {
            Source::Assignment(name) => {
                // Without an assignment, clients would wait for 15 seconds before the first call fails.
                let none = endpoints::none(origin);
                let found = self.plan.assignments.get(*name).unwrap_or(&none);
                let emitted = Emitted::plain(load_assignment(name, found), &found.origin);
                assignments.insert((*name).to_owned(), emitted);
                eds(&leaf.name, name)
            }
            Source::Addresses(name, addresses) => {
                let message = load_assignment(name, &endpoints::of_addresses(addresses, origin));
                assignments.insert((*name).to_owned(), Emitted::plain(message, origin));
                eds(&leaf.name, name)
            }
            Source::Name(host, port) => logical_dns(&leaf.name, host, *port),
            Source::Nowhere => {
                assignments.insert(UNAVAILABLE.to_owned(), Emitted::plain(no_endpoints(), origin));
                eds(&leaf.name, UNAVAILABLE)
            }
        }
    }
}

/// The clusters with endpoints that a cluster stands for, in order, each at its first place; and what gRPC clients cannot have
/// of them. At least one.
///
/// A client flattens aggregates just so (C59, C60). Flat ones never come near the limit of depth (row B178) and avoid what
/// grpc-go makes of an aggregate that is reached on two ways (row D46).
fn leaves<'p>(plan: &'p Plan, root: &'p str) -> (Vec<Leaf<'p>>, BTreeSet<String>) {
    let mut leaves = Vec::new();
    let mut losses = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![root];
    while let Some(name) = left.pop() {
        let Some(cluster) = plan.clusters.get(name).filter(|_| seen.insert(name)) else { continue };
        // Ours wins over a backend that has this name of all names: what must fail, fails.
        if name == UNAVAILABLE {
            leaves.push(Leaf { name: name.to_owned(), source: Source::Nowhere, cluster });
            continue;
        }
        match (&cluster.tls, &cluster.discovery) {
            (None, Discovery::Aggregate(members)) => left.extend(members.iter().rev().map(String::as_str)),
            (None, Discovery::Eds { assignment }) => {
                let uneven = plan.assignments.get(assignment).is_some_and(endpoints::has_uneven_weights);
                if uneven {
                    losses.insert(format!(
                        "gRPC clients spread calls evenly over the endpoints of a zone of backend {name}"
                    ));
                }
                leaves.push(Leaf { name: name.to_owned(), source: Source::Assignment(assignment), cluster });
            }
            (None, Discovery::Dns(names)) => {
                let names = names.iter().map(|(host, port)| (host.as_str(), *port)).collect();
                several(name, cluster, BTreeSet::new(), names, &mut leaves, &mut losses);
            }
            (None, Discovery::Static(addresses)) => {
                of_addresses(name, cluster, addresses, &mut leaves, &mut losses);
            }
            (Some(tls), _) => {
                match tls {
                    UpstreamTls::Verified { .. } => drop(losses.insert(format!(
                        "TLS to backend {name} needs certificate providers of the client's own bootstrap, so calls fail as \
                         UNAVAILABLE"
                    ))),
                    // Nobody can use it, which is no matter of gRPC.
                    UpstreamTls::Invalid => {}
                }
                leaves.push(Leaf { name: name.to_owned(), source: Source::Nowhere, cluster });
            }
        }
    }
    if let (true, Some(cluster)) = (leaves.is_empty(), plan.clusters.get(root)) {
        leaves.push(Leaf { name: root.to_owned(), source: Source::Nowhere, cluster });
    }
    (leaves, losses)
}

/// The leaves of a cluster of addresses of several kinds.
fn of_addresses<'p>(
    name: &'p str,
    cluster: &'p Cluster,
    addresses: &'p [Address],
    leaves: &mut Vec<Leaf<'p>>,
    losses: &mut BTreeSet<String>,
) {
    let mut ips = BTreeSet::new();
    let mut names = Vec::new();
    let mut has_sockets = false;
    for address in addresses {
        match address {
            Address::Ip(address, port) => drop(ips.insert((*address, *port))),
            Address::Dns(host, port) => names.push((host.as_str(), *port)),
            Address::Unix(_) => has_sockets = true,
        }
    }
    if has_sockets {
        losses.insert(format!("gRPC clients cannot reach the Unix sockets of backend {name}"));
    }
    several(name, cluster, ips, names, leaves, losses);
}

/// The leaves of a cluster of addresses and host names: one of them under its own name, or several under names below it, the
/// addresses first.
fn several<'p>(
    name: &'p str,
    cluster: &'p Cluster,
    ips: BTreeSet<(IpAddr, u16)>,
    mut names: Vec<(&'p str, u16)>,
    leaves: &mut Vec<Leaf<'p>>,
    losses: &mut BTreeSet<String>,
) {
    let mut seen = BTreeSet::new();
    names.retain(|host| seen.insert(*host));
    match (ips.is_empty(), names.as_slice()) {
        (true, []) => leaves.push(Leaf { name: name.to_owned(), source: Source::Nowhere, cluster }),
        (true, [(host, port)]) => {
            leaves.push(Leaf { name: name.to_owned(), source: Source::Name(host, *port), cluster });
        }
        (false, []) => {
            leaves.push(Leaf { name: name.to_owned(), source: Source::Addresses(name, ips), cluster });
        }
        (has_no_ips, names) => {
            if !has_no_ips {
                leaves.push(Leaf {
                    name: format!("{name}/ip"),
                    source: Source::Addresses(name, ips),
                    cluster,
                });
            }
            for (index, (host, port)) in names.iter().enumerate() {
                leaves.push(Leaf {
                    name: format!("{name}/dns/{index}"),
                    source: Source::Name(host, *port),
                    cluster,
                });
            }
            losses.insert(format!(
                "gRPC clients try the addresses and host names of backend {name} one after the other, not in turn"
            ));
        }
    }
}

fn eds(name: &str, assignment: &str) -> Json {
    json!({
        "@type": type_of(CLUSTER),
        "name": name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": ads(), "service_name": assignment},
        "lb_policy": ROUND_ROBIN,
    })
}

/// Exactly one endpoint, with host and port (row B173).
fn logical_dns(name: &str, host: &str, port: u16) -> Json {
    let address = json!({"socket_address": {"address": host, "port_value": port}});
    json!({
        "@type": type_of(CLUSTER),
        "name": name,
        "type": "LOGICAL_DNS",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "lb_policy": ROUND_ROBIN,
    })
}

/// The type is known by its message, but Go and Java want the name as well (row B176); and they refuse the policy that Envoy
/// demands here (row B189).
fn aggregate(name: &str, leaves: &[Leaf<'_>]) -> Json {
    let names: Vec<&str> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
    json!({
        "@type": type_of(CLUSTER),
        "name": name,
        "cluster_type": {
            "name": "envoy.clusters.aggregate",
            "typed_config": {
                "@type": type_of("extensions.clusters.aggregate.v3.ClusterConfig"),
                "clusters": names,
            },
        },
        "lb_policy": ROUND_ROBIN,
    })
}

/// By default endpoints that are drained lose their sessions (C86).
fn with_sessions(cluster: Json, has_sessions: bool) -> Json {
    if !has_sessions {
        return cluster;
    }
    let statuses = json!({"override_host_status": {"statuses": ["UNKNOWN", "HEALTHY", "DRAINING"]}});
    with(cluster, "common_lb_config", statuses)
}

const CLUSTER: &str = "config.cluster.v3.Cluster";

/// C-core refuses LEAST_REQUEST, Go and Java refuse CLUSTER_PROVIDED (rows B182 and B189).
const ROUND_ROBIN: &str = "ROUND_ROBIN";
