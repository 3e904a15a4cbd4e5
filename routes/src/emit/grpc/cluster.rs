//! Clusters: EDS, one DNS name, or several of both in order.
//!
//! gRPC refuses every other type (row B170). What Envoy does with several names or with names and addresses together becomes
//! an aggregate: clients then use them one after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value as Json, json};
use xds_cache::{DrainPolicy, Origin};

use super::{Emitted, Sink, endpoints};
use crate::conditions::GrpcFeature;
use crate::emit::shared::{
    NO_LIMIT, UNAVAILABLE, aggregate_type, assignment, eds_config, socket_address, type_of, with, with_drain,
};
use crate::model::LbPolicy;
use crate::plan::{Address, Assignment, Cluster, Discovery, Plan, UpstreamTls};
use crate::translate::Options;

/// The clusters that routes reach.
pub(super) struct Clusters<'p> {
    plan: &'p Plan,
    reports_loads: bool,
    /// Who was the first to need the cluster without endpoints.
    unavailable_for: Option<&'p Origin>,
    /// The clusters that routes name, with what gRPC clients cannot have of each.
    roots: BTreeMap<&'p str, Root<'p>>,
}

/// What gRPC clients cannot have, and why.
type Losses = BTreeSet<(GrpcFeature, String)>;

struct Root<'p> {
    cluster: &'p Cluster,
    leaves: Vec<Leaf<'p>>,
    losses: Losses,
}

/// A cluster with endpoints of its own.
#[derive(Clone, Debug)]
struct Leaf<'p> {
    name: Cow<'p, str>,
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

/// A cluster with all that its message says.
#[derive(Hash)]
struct Written<'p> {
    name: Cow<'p, str>,
    discovery: WrittenDiscovery<'p>,
    has_sessions: bool,
    balancing: LbPolicy,
    /// Requests under way at once; of an aggregate, its members' count.
    max_requests: Option<u32>,
    reports_load: bool,
    drain: DrainPolicy,
}

/// How clients come to the endpoints of a [`Written`] cluster.
#[derive(Hash)]
enum WrittenDiscovery<'p> {
    /// By an assignment of that name.
    Eds(&'p str),
    /// By resolving a host name.
    LogicalDns(&'p str, u16),
    /// By clusters of these names.
    Aggregate(Vec<Cow<'p, str>>),
}

/// Endpoints and where they are from, by name.
type Assignments<'p> = BTreeMap<&'p str, (Cow<'p, Assignment>, &'p Origin)>;

impl<'p> Clusters<'p> {
    pub(super) fn new(plan: &'p Plan, options: &Options) -> Self {
        Self { plan, reports_loads: options.reports_loads, unavailable_for: None, roots: BTreeMap::new() }
    }

    /// The name of the cluster for a backend; none if the plan has no such cluster.
    pub(super) fn backend(&mut self, name: &'p str) -> Option<&'p str> {
        if !self.roots.contains_key(name) {
            let cluster = self.plan.clusters.get(name)?;
            let (leaves, losses) = leaves(self.plan, name);
            self.roots.insert(name, Root { cluster, leaves, losses });
        }
        Some(name)
    }

    /// What gRPC clients cannot have of a backend whose name was taken.
    pub(super) fn losses(&self, name: &str) -> BTreeSet<(GrpcFeature, String)> {
        self.roots.get(name).map(|root| root.losses.clone()).unwrap_or_default()
    }

    /// The name of a cluster whose requests fail as UNAVAILABLE (C48).
    pub(super) fn unavailable(&mut self, origin: &'p Origin) -> &'static str {
        self.unavailable_for.get_or_insert(origin);
        UNAVAILABLE
    }

    /// Emits the clusters whose names were taken and their endpoints, each sorted by name.
    pub(super) fn finish(mut self, emit: &mut Sink<'_, 'p>) {
        let mut clusters: BTreeMap<Cow<'_, str>, (Written<'_>, &Origin)> = BTreeMap::new();
        let mut leaves: BTreeMap<Cow<'_, str>, (Leaf<'_>, bool)> = BTreeMap::new();
        for (name, root) in std::mem::take(&mut self.roots) {
            let has_sessions = root.cluster.has_sessions;
            if root.leaves.iter().any(|leaf| leaf.name != name) {
                let members = root.leaves.iter().map(|leaf| leaf.name.clone()).collect();
                let discovery = WrittenDiscovery::Aggregate(members);
                let name = Cow::Borrowed(name);
                // Clients report of the members, each by itself (row D47).
                let drain = root.cluster.drain;
                let written = Written {
                    name: name.clone(),
                    discovery,
                    has_sessions,
                    balancing: root.cluster.lb_policy,
                    max_requests: None,
                    reports_load: false,
                    drain,
                };
                clusters.insert(name, (written, &root.cluster.origin));
            }
            for leaf in root.leaves {
                let has_sessions = has_sessions || leaf.cluster.has_sessions;
                let known = leaves.entry(leaf.name.clone()).or_insert((leaf, false));
                known.1 |= has_sessions;
            }
        }
        let mut assignments = Assignments::new();
        for (name, (leaf, has_sessions)) in leaves {
            let discovery = self.discovery(leaf.source, leaf.cluster, &mut assignments);
            let reports_load = self.reports_loads;
            let drain = leaf.cluster.drain;
            let max_requests = Some(leaf.cluster.limits.requests.unwrap_or(NO_LIMIT));
            let balancing = leaf.cluster.lb_policy;
            let written = Written {
                discovery,
                has_sessions,
                balancing,
                max_requests,
                reports_load,
                drain,
                name: name.clone(),
            };
            clusters.insert(name, (written, &leaf.cluster.origin));
        }
        if let Some(origin) = self.unavailable_for {
            let (name, discovery) = (Cow::Borrowed(UNAVAILABLE), WrittenDiscovery::Eds(UNAVAILABLE));
            let written = Written {
                name: name.clone(),
                discovery,
                has_sessions: false,
                balancing: LbPolicy::RoundRobin,
                max_requests: None,
                reports_load: false,
                drain: DrainPolicy::default(),
            };
            clusters.insert(name, (written, origin));
            assignments.insert(UNAVAILABLE, (Cow::Owned(endpoints::none(origin)), origin));
        }
        for (written, origin) in clusters.into_values() {
            emit(Emitted::new("gRPC cluster", written, Written::message, origin));
        }
        for (name, (endpoints, origin)) in assignments {
            emit(assignment(name, endpoints, origin));
        }
    }

    /// How clients come to the endpoints of a leaf; adds the assignment that it needs.
    fn discovery(
        &self,
        source: Source<'p>,
        cluster: &'p Cluster,
        assignments: &mut Assignments<'p>,
    ) -> WrittenDiscovery<'p> {
        let origin = &cluster.origin;
        let (name, assigned) = match source {
            Source::Assignment(name) => match self.plan.assignments.get(name) {
                Some(found) => (name, (Cow::Borrowed(found), &found.origin)),
                // Without an assignment, clients would wait for 15 seconds before the first call fails.
                None => (name, (Cow::Owned(endpoints::none(origin)), origin)),
            },
            Source::Addresses(name, addresses) => {
                (name, (Cow::Owned(endpoints::of_addresses(&addresses, origin)), origin))
            }
            Source::Name(host, port) => return WrittenDiscovery::LogicalDns(host, port),
            Source::Nowhere => (UNAVAILABLE, (Cow::Owned(endpoints::none(origin)), origin)),
        };
        assignments.insert(name, assigned);
        WrittenDiscovery::Eds(name)
    }
}

impl Written<'_> {
    fn message(&self) -> Json {
        let name = &*self.name;
        let (field, discovery) = match &self.discovery {
            WrittenDiscovery::Eds(assignment) => ("eds_cluster_config", eds_config(assignment)),
            WrittenDiscovery::LogicalDns(host, port) => ("load_assignment", one_endpoint(name, host, *port)),
            WrittenDiscovery::Aggregate(members) => {
                let members: Vec<&str> = members.iter().map(|member| &**member).collect();
                ("cluster_type", aggregate_type(&members))
            }
        };
        // C-core refuses LEAST_REQUEST, Go and Java refuse CLUSTER_PROVIDED, which Envoy demands of aggregates (rows B182, B189).
        let message =
            json!({"@type": type_of("config.cluster.v3.Cluster"), "name": name, "lb_policy": "ROUND_ROBIN"});
        let message = with(message, field, discovery);
        let message = match self.balancing {
            LbPolicy::RoundRobin => message,
            LbPolicy::LeastRequest => with(message, "load_balancing_policy", least_request()),
        };
        let message = match &self.discovery {
            WrittenDiscovery::Eds(_) => with(message, "type", "EDS"),
            WrittenDiscovery::LogicalDns(..) => with(message, "type", "LOGICAL_DNS"),
            WrittenDiscovery::Aggregate(_) => message,
        };
        // Nothing but `self` is taken (row B190).
        let message =
            if self.reports_load { with(message, "lrs_server", json!({"self": {}})) } else { message };
        // Without it clients drop calls beyond 1,024 (row B191).
        let message = match self.max_requests {
            Some(limit) => {
                with(message, "circuit_breakers", json!({"thresholds": [{"max_requests": limit}]}))
            }
            None => message,
        };
        let message = with_drain(message, self.drain);
        if !self.has_sessions {
            return message;
        }
        // By default endpoints that are drained lose their sessions (C86).
        let statuses = json!({"override_host_status": {"statuses": ["UNKNOWN", "HEALTHY", "DRAINING"]}});
        with(message, "common_lb_config", statuses)
    }
}

/// Least request where a client knows it, else in turn: of a list, clients take the first policy that they know (gRFC A52). Within
/// weighted localities, which is what a client makes of a policy by its enum.
fn least_request() -> Json {
    let policy =
        |name: &str, config: Json| json!({"typed_extension_config": {"name": name, "typed_config": config}});
    let plain = |name: &str, message: &str| {
        let package = format!("extensions.load_balancing_policies.{name}.v3.{message}");
        policy(name, json!({"@type": type_of(&package)}))
    };
    let picking =
        json!({"policies": [plain("least_request", "LeastRequest"), plain("round_robin", "RoundRobin")]});
    let locality = type_of("extensions.load_balancing_policies.wrr_locality.v3.WrrLocality");
    json!({"policies": [policy("wrr_locality", json!({"@type": locality, "endpoint_picking_policy": picking}))]})
}

/// The clusters with endpoints that a cluster stands for, in order, each at its first place; and what gRPC clients cannot have
/// of them. At least one.
///
/// A client flattens aggregates just so (C59, C60). Flat ones never come near the limit of depth (row B178) and avoid what
/// grpc-go makes of an aggregate that is reached on two ways (row D46).
fn leaves<'p>(plan: &'p Plan, root: &'p str) -> (Vec<Leaf<'p>>, Losses) {
    let mut leaves = Vec::new();
    let mut losses = Losses::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![root];
    while let Some(name) = left.pop() {
        let Some(cluster) = plan.clusters.get(name).filter(|_| seen.insert(name)) else { continue };
        // Ours wins over a backend that has this name of all names: what must fail, fails.
        if name == UNAVAILABLE {
            leaves.push(Leaf { name: name.into(), source: Source::Nowhere, cluster });
            continue;
        }
        losses.extend(lost_policy(name, cluster).map(|reason| (GrpcFeature::Balancing, reason)));
        if cluster.limits.connections.is_some() || cluster.limits.pending.is_some() {
            let reason = format!(
                "gRPC clients limit the calls to backend {name} by max_requests only, not by max_connections or max_pending"
            );
            losses.insert((GrpcFeature::Balancing, reason));
        }
        match (&cluster.tls, &cluster.discovery) {
            (None, Discovery::Aggregate(members)) => left.extend(members.iter().rev().map(String::as_str)),
            (None, Discovery::Eds { assignment }) => {
                let uneven = plan.assignments.get(assignment).is_some_and(endpoints::has_uneven_weights);
                if uneven {
                    let reason = format!(
                        "gRPC clients spread calls evenly over the endpoints of a zone of backend {name}"
                    );
                    losses.insert((GrpcFeature::Balancing, reason));
                }
                leaves.push(Leaf { name: name.into(), source: Source::Assignment(assignment), cluster });
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
                    UpstreamTls::Verified { .. } => {
                        let reason = format!(
                            "TLS to backend {name} needs certificate providers of the client's own bootstrap, so calls fail \
                             as UNAVAILABLE"
                        );
                        losses.insert((GrpcFeature::Tls, reason));
                    }
                    // Nobody can use it, which is no matter of gRPC.
                    UpstreamTls::Invalid => {}
                }
                leaves.push(Leaf { name: name.into(), source: Source::Nowhere, cluster });
            }
        }
    }
    if let (true, Some(cluster)) = (leaves.is_empty(), plan.clusters.get(root)) {
        leaves.push(Leaf { name: root.into(), source: Source::Nowhere, cluster });
    }
    (leaves, losses)
}

/// What not all gRPC clients have of how requests are spread, see [`least_request`].
fn lost_policy(name: &str, cluster: &Cluster) -> Option<String> {
    let has_choice = match &cluster.discovery {
        Discovery::Eds { .. } | Discovery::Static(_) => true,
        // One name is one endpoint to every client.
        Discovery::Dns(names) => names.len() > 1,
        Discovery::Aggregate(_) => false,
    };
    let is_lost = cluster.lb_policy == LbPolicy::LeastRequest && cluster.tls.is_none() && has_choice;
    is_lost.then(|| {
        format!(
            "gRPC clients that do not know least_request (in C++, Python and Node) spread calls in turn over the endpoints of backend {name}"
        )
    })
}

/// The leaves of a cluster of addresses of several kinds.
fn of_addresses<'p>(
    name: &'p str,
    cluster: &'p Cluster,
    addresses: &'p [Address],
    leaves: &mut Vec<Leaf<'p>>,
    losses: &mut Losses,
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
        let reason = format!("gRPC clients cannot reach the Unix sockets of backend {name}");
        losses.insert((GrpcFeature::Endpoints, reason));
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
    losses: &mut Losses,
) {
    let mut seen = BTreeSet::new();
    names.retain(|host| seen.insert(*host));
    match (ips.is_empty(), names.as_slice()) {
        (true, []) => leaves.push(Leaf { name: name.into(), source: Source::Nowhere, cluster }),
        (true, [(host, port)]) => {
            leaves.push(Leaf { name: name.into(), source: Source::Name(host, *port), cluster });
        }
        (false, []) => {
            leaves.push(Leaf { name: name.into(), source: Source::Addresses(name, ips), cluster });
        }
        (has_no_ips, names) => {
            if !has_no_ips {
                leaves.push(Leaf {
                    name: format!("{name}/ip").into(),
                    source: Source::Addresses(name, ips),
                    cluster,
                });
            }
            for (host, port) in names {
                leaves.push(Leaf {
                    // Not by its place: a name that is added must not rename the others.
                    name: format!("{name}/dns/{host}:{port}").into(),
                    source: Source::Name(host, *port),
                    cluster,
                });
            }
            let reason = format!(
                "gRPC clients try the addresses and host names of backend {name} one after the other, not in turn"
            );
            losses.insert((GrpcFeature::Balancing, reason));
        }
    }
}

/// Exactly one endpoint, with host and port (row B173).
fn one_endpoint(cluster: &str, host: &str, port: u16) -> Json {
    let address = socket_address(host, port);
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]})
}
