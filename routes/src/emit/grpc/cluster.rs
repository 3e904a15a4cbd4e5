//! Clusters: EDS, one DNS name, or several of both in order.
//!
//! gRPC rejects every other type (row B170). Several names, or a mix of names and addresses, become an aggregate, whose members clients
//! use one after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value as Json, json};
use xds_cache::{DrainPolicy, Origin};

use super::endpoints;
use crate::conditions::GrpcFeature;
use crate::emit::Emitted;
use crate::emit::shared::{
    NO_LIMIT, UNAVAILABLE, aggregate_type, assignment, eds_config, socket_address, type_of, with, with_drain,
};
use crate::input::Options;
use crate::model::LbPolicy;
#[cfg(test)]
use crate::plan::Assignment;
use crate::plan::{Address, Cluster as Planned, Discovery, Plan, UpstreamTls};

/// The clusters that routes reach.
pub(super) struct Clusters<'p> {
    plan: &'p Plan,
    needs_unavailable: bool,
    /// The clusters that routes name, each with the features that gRPC clients do not support.
    roots: BTreeMap<&'p str, Losses>,
}

/// The features that gRPC clients do not support, and why.
type Losses = BTreeSet<(GrpcFeature, String)>;

/// A cluster with its own endpoints.
#[derive(Clone, Debug)]
struct Leaf<'p> {
    name: Cow<'p, str>,
    /// The cluster of the plan that it belongs to.
    of: &'p str,
    source: EndpointSource<'p>,
    cluster: &'p Planned,
}

/// The source of the endpoints of a [`Leaf`].
#[derive(Clone, Debug)]
enum EndpointSource<'p> {
    /// An assignment of the plan.
    Assignment(&'p str),
    /// An assignment with this name and these addresses.
    Addresses(&'p str, BTreeSet<(IpAddr, u16)>),
    /// A host name and port.
    Name(&'p str, u16),
    /// Every request fails.
    Nowhere,
}

/// The inputs of a cluster's message.
#[derive(Hash)]
struct Written<'p> {
    name: Cow<'p, str>,
    discovery: WrittenDiscovery<'p>,
    has_sessions: bool,
    balancing: LbPolicy,
    /// The limit of concurrent requests; `None` for an aggregate, whose members have their own.
    max_requests: Option<u32>,
    reports_load: bool,
    drain: DrainPolicy,
}

/// How clients find the endpoints of a [`Written`] cluster.
#[derive(Hash)]
enum WrittenDiscovery<'p> {
    /// By the assignment of this name.
    Eds(&'p str),
    /// By resolving a host name.
    LogicalDns(&'p str, u16),
    /// By the clusters of these names.
    Aggregate(Vec<Cow<'p, str>>),
}

impl<'p> Clusters<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, needs_unavailable: false, roots: BTreeMap::new() }
    }

    /// The name of the cluster for a backend; `None` if the plan has no such cluster.
    pub(super) fn backend(&mut self, name: &'p str) -> Option<&'p str> {
        if !self.roots.contains_key(name) {
            self.plan.clusters.get(name)?;
            let (_, losses) = leaves(self.plan, name);
            self.roots.insert(name, losses);
        }
        Some(name)
    }

    /// The features of a backend that gRPC clients do not support, if its name was taken.
    pub(super) fn losses(&self, name: &str) -> BTreeSet<(GrpcFeature, String)> {
        self.roots.get(name).cloned().unwrap_or_default()
    }

    /// The name of a cluster whose requests fail as UNAVAILABLE (C48).
    pub(super) fn unavailable(&mut self) -> &'static str {
        self.needs_unavailable = true;
        UNAVAILABLE
    }

    /// The names that were taken, and whether the cluster without endpoints was taken.
    pub(super) fn finish(self) -> (BTreeSet<&'p str>, bool) {
        (self.roots.into_keys().collect(), self.needs_unavailable)
    }
}

/// A cluster that routes name.
pub(crate) struct Root<'p> {
    /// Its message, if it is an aggregate.
    pub(crate) aggregate: Option<Emitted<'p>>,
    /// The clusters of the plan that it leads to; itself if it is no aggregate.
    pub(crate) reached: BTreeSet<&'p str>,
    pub(crate) has_sessions: bool,
}

/// Finds a cluster that routes name; `None` if the plan does not have it.
pub(crate) fn root<'p>(plan: &'p Plan, name: &'p str) -> Option<Root<'p>> {
    let cluster = plan.clusters.get(name)?;
    let (leaves, _) = leaves(plan, name);
    let has_sessions = cluster.has_sessions;
    let aggregate = leaves.iter().any(|leaf| leaf.name != name).then(|| {
        let members = leaves.iter().map(|leaf| leaf.name.clone()).collect();
        let written = Written {
            name: Cow::Borrowed(name),
            discovery: WrittenDiscovery::Aggregate(members),
            has_sessions,
            balancing: cluster.lb_policy,
            max_requests: None,
            // Clients report each member separately (row D47).
            reports_load: false,
            drain: cluster.drain,
        };
        Emitted::new("gRPC cluster", written, Written::message, &cluster.origin)
    });
    Some(Root { aggregate, reached: leaves.into_iter().map(|leaf| leaf.of).collect(), has_sessions })
}

/// A cluster with its own endpoints.
pub(crate) struct EmittedCluster<'p> {
    /// Its messages, and its endpoints if they differ from those of the plan.
    pub(crate) emitted: Vec<Emitted<'p>>,
    /// The assignment of the plan that it needs.
    pub(crate) assignment: Option<&'p str>,
    /// The last of its clusters in which every request fails.
    pub(crate) nowhere: Option<String>,
}

/// Emits a cluster of the plan that is no aggregate.
pub(crate) fn cluster<'p>(
    plan: &'p Plan,
    options: &Options,
    name: &'p str,
    has_sessions: bool,
) -> EmittedCluster<'p> {
    let mut made = EmittedCluster { emitted: Vec::new(), assignment: None, nowhere: None };
    let (leaves, _) = leaves(plan, name);
    for Leaf { name, source, cluster, .. } in leaves {
        let origin = &cluster.origin;
        let discovery = match source {
            EndpointSource::Assignment(name) => {
                made.assignment = Some(name);
                WrittenDiscovery::Eds(name)
            }
            EndpointSource::Addresses(name, addresses) => {
                let addresses = endpoints::of_addresses(&addresses, origin);
                made.emitted.push(assignment(name, Cow::Owned(addresses), origin));
                WrittenDiscovery::Eds(name)
            }
            EndpointSource::Name(host, port) => WrittenDiscovery::LogicalDns(host, port),
            EndpointSource::Nowhere => {
                made.nowhere = Some(name.to_string());
                WrittenDiscovery::Eds(UNAVAILABLE)
            }
        };
        let written = Written {
            discovery,
            has_sessions: has_sessions || cluster.has_sessions,
            balancing: cluster.lb_policy,
            max_requests: Some(cluster.limits.requests.unwrap_or(NO_LIMIT)),
            reports_load: options.reports_loads,
            drain: cluster.drain,
            name,
        };
        made.emitted.push(Emitted::new("gRPC cluster", written, Written::message, origin));
    }
    made
}

/// The cluster without endpoints.
pub(crate) fn unavailable(origin: &Origin) -> Emitted<'_> {
    let written = Written {
        name: Cow::Borrowed(UNAVAILABLE),
        discovery: WrittenDiscovery::Eds(UNAVAILABLE),
        has_sessions: false,
        balancing: LbPolicy::RoundRobin,
        max_requests: None,
        reports_load: false,
        drain: DrainPolicy::default(),
    };
    Emitted::new("gRPC cluster", written, Written::message, origin)
}

/// Emits the clusters that routes name, and their endpoints, each sorted by name.
#[cfg(test)]
pub(super) fn clusters<'p>(
    plan: &'p Plan,
    options: &Options,
    roots: &BTreeSet<&'p str>,
    mut needed: Option<&'p Origin>,
    emit: &mut super::super::Sink<'_, 'p>,
) {
    let mut emitted: Vec<Emitted<'_>> = Vec::new();
    let mut reached: BTreeMap<&str, bool> = BTreeMap::new();
    for root in roots.iter().filter_map(|name| root(plan, name)) {
        emitted.extend(root.aggregate);
        root.reached.iter().for_each(|name| *reached.entry(name).or_default() |= root.has_sessions);
    }
    let (is_needed, mut last) = (needed.is_some(), None);
    for (name, has_sessions) in reached {
        let made = cluster(plan, options, name, has_sessions);
        if !(is_needed && name == UNAVAILABLE) {
            emitted.extend(made.emitted);
        }
        let Some(cluster) = plan.clusters.get(name) else { continue };
        emitted.extend(made.assignment.map(|name| match plan.assignments.get(name) {
            Some(found) => assignment(name, Cow::Borrowed(found), &found.origin),
            None => {
                let none = Assignment { localities: Vec::new(), origin: cluster.origin.clone() };
                assignment(name, Cow::Owned(none), &cluster.origin)
            }
        }));
        last = made.nowhere.map(|_| &cluster.origin).or(last);
    }
    if let Some(origin) = needed {
        emitted.push(unavailable(origin));
    }
    needed = needed.or(last);
    emitted.extend(needed.map(crate::emit::shared::no_endpoints));
    emitted.sort_by_cached_key(|one| {
        let message = one.message();
        ["@type", "name", "cluster_name"].map(|field| message.get(field).map(ToString::to_string))
    });
    emitted.into_iter().for_each(emit);
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
        // C-core rejects LEAST_REQUEST. Go and Java reject CLUSTER_PROVIDED, which Envoy requires for aggregates (rows B182, B189).
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
        // Clients accept only `self` (row B190).
        let message =
            if self.reports_load { with(message, "lrs_server", json!({"self": {}})) } else { message };
        // By default, clients drop calls beyond 1,024 (row B191).
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
        // By default, draining endpoints lose their sessions.
        let statuses = json!({"override_host_status": {"statuses": ["UNKNOWN", "HEALTHY", "DRAINING"]}});
        with(message, "common_lb_config", statuses)
    }
}

/// Least request, or round robin for clients without it: of a list, clients use the first policy that they know (gRFC A52). It is
/// inside weighted localities, as if the policy were set by its enum.
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

/// The clusters with endpoints that a cluster leads to, at least one, in order and without duplicates; and their features that gRPC
/// clients do not support.
///
/// Clients flatten aggregates in the same way. Flat ones stay far below the limit of depth (row B178), and avoid a fault of grpc-go
/// with aggregates that are reached on two paths (row D46).
fn leaves<'p>(plan: &'p Plan, root: &'p str) -> (Vec<Leaf<'p>>, Losses) {
    let mut leaves = Vec::new();
    let mut losses = Losses::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![root];
    while let Some(name) = left.pop() {
        let Some(cluster) = plan.clusters.get(name).filter(|_| seen.insert(name)) else { continue };
        // The cluster without endpoints wins over a backend with the same name, so requests fail as intended.
        if name == UNAVAILABLE {
            leaves.push(Leaf { name: name.into(), of: name, source: EndpointSource::Nowhere, cluster });
            continue;
        }
        losses.extend(lost_policy(name, cluster).map(|reason| (GrpcFeature::Balancing, reason)));
        if cluster.limits.connections.is_some() || cluster.limits.pending.is_some() {
            let reason = format!(
                "gRPC clients limit the calls to backend {name} only by max_requests, and ignore max_connections and max_pending"
            );
            losses.insert((GrpcFeature::Balancing, reason));
        }
        match (&cluster.tls, &cluster.discovery) {
            (None, Discovery::Aggregate(members)) => left.extend(members.iter().rev().map(String::as_str)),
            (None, Discovery::Eds { assignment }) => {
                let uneven = plan.assignments.get(assignment).is_some_and(endpoints::has_uneven_weights);
                if uneven {
                    let reason = format!(
                        "gRPC clients ignore the weights of endpoints within a zone of backend {name}"
                    );
                    losses.insert((GrpcFeature::Balancing, reason));
                }
                leaves.push(Leaf {
                    name: name.into(),
                    of: name,
                    source: EndpointSource::Assignment(assignment),
                    cluster,
                });
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
                    // No client can use it, so this is no limitation of gRPC.
                    UpstreamTls::Invalid => {}
                }
                leaves.push(Leaf { name: name.into(), of: name, source: EndpointSource::Nowhere, cluster });
            }
        }
    }
    if let (true, Some(cluster)) = (leaves.is_empty(), plan.clusters.get(root)) {
        leaves.push(Leaf { name: root.into(), of: root, source: EndpointSource::Nowhere, cluster });
    }
    (leaves, losses)
}

/// The load balancing policy that some gRPC clients do not support, see [`least_request`].
fn lost_policy(name: &str, cluster: &Planned) -> Option<String> {
    let has_choice = match &cluster.discovery {
        Discovery::Eds { .. } | Discovery::Static(_) => true,
        // To every client, one name is one endpoint.
        Discovery::Dns(names) => names.len() > 1,
        Discovery::Aggregate(_) => false,
    };
    let is_lost = cluster.lb_policy == LbPolicy::LeastRequest && cluster.tls.is_none() && has_choice;
    is_lost.then(|| {
        format!(
            "gRPC clients that do not know least_request (in C++, Python and Node) use round robin over the endpoints of backend {name}"
        )
    })
}

/// The leaves of a cluster with fixed addresses.
fn of_addresses<'p>(
    name: &'p str,
    cluster: &'p Planned,
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

/// The leaves of a cluster with addresses and host names: a single one has the name of the cluster, several have names below it. The
/// addresses come first.
fn several<'p>(
    name: &'p str,
    cluster: &'p Planned,
    ips: BTreeSet<(IpAddr, u16)>,
    mut names: Vec<(&'p str, u16)>,
    leaves: &mut Vec<Leaf<'p>>,
    losses: &mut Losses,
) {
    let mut seen = BTreeSet::new();
    names.retain(|host| seen.insert(*host));
    match (ips.is_empty(), names.as_slice()) {
        (true, []) => {
            leaves.push(Leaf { name: name.into(), of: name, source: EndpointSource::Nowhere, cluster });
        }
        (true, [(host, port)]) => {
            leaves.push(Leaf {
                name: name.into(),
                of: name,
                source: EndpointSource::Name(host, *port),
                cluster,
            });
        }
        (false, []) => {
            leaves.push(Leaf {
                name: name.into(),
                of: name,
                source: EndpointSource::Addresses(name, ips),
                cluster,
            });
        }
        (has_no_ips, names) => {
            if !has_no_ips {
                leaves.push(Leaf {
                    name: format!("{name}/ip").into(),
                    of: name,
                    source: EndpointSource::Addresses(name, ips),
                    cluster,
                });
            }
            for (host, port) in names {
                leaves.push(Leaf {
                    // Not by its index, because a new name must not rename the others.
                    name: format!("{name}/dns/{host}:{port}").into(),
                    of: name,
                    source: EndpointSource::Name(host, *port),
                    cluster,
                });
            }
            let reason = format!(
                "gRPC clients use the addresses and host names of backend {name} as fallbacks of each other, not at the same time"
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
