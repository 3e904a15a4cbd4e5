//! The balancing policies of a gRPC client (gRFC A37, gRFC A75).

use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, LoadBalancingPolicy};
use envoy_types::pb::envoy::config::core::v3::RoutingPriority;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::extensions::load_balancing_policies::random_subsetting::v3::RandomSubsetting;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use prost::Message as _;
use serde::Serialize;
use xds_cache::{ResourceKey, ResourceType};

use crate::draw::Fraction;
use crate::endpoints::endpoints;
use crate::explain::element;
use crate::explanation::{Element, Endpoint, LeftOut, Located, Part, Place};
use crate::model::{Model, assignment_name};
use crate::ratio::Ratio;

/// A balancing policy, and those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Balancer {
    /// Its name, such as `round_robin`.
    pub policy: String,
    /// What it is for, such as `cluster:default/web` or `priority-0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub child: String,
    /// What is worth knowing of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The cluster, of `cds_experimental`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Element>,
    /// The version of the cluster, and of its endpoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// The endpoints that it picks from, at most [`MAX_SHOWN`]. Shares are those of the cluster's calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// How many are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_more_endpoints: usize,
    /// The policies below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Self>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Located for Balancer {
    fn locate(&mut self, find: &mut dyn FnMut(&Part) -> Option<Place>) {
        if let Some(cluster) = &mut self.cluster {
            cluster.place = find(&cluster.part);
        }
        for child in &mut self.children {
            child.locate(find);
        }
    }
}

impl Balancer {
    fn of(policy: &str, child: String) -> Self {
        Self { policy: policy.to_owned(), child, ..Self::default() }
    }
}

impl Model {
    /// The tree for clusters, of which the first [`MAX_CLUSTERS`] are followed.
    pub(crate) fn balancer(&self, clusters: &[&str], left_out: &mut Vec<LeftOut>) -> Balancer {
        let children = clusters.iter().take(MAX_CLUSTERS);
        let children = children.map(|name| self.of_cluster(name, format!("cluster:{name}"), left_out));
        Balancer {
            children: children.collect(),
            ..Balancer::of("xds_cluster_manager_experimental", String::new())
        }
    }

    fn of_cluster(&self, name: &str, child: String, left_out: &mut Vec<LeftOut>) -> Balancer {
        let resource = ResourceKey { resource_type: ResourceType::Cluster, name: name.into() };
        let mut own = Balancer::of("cds_experimental", child);
        own.cluster = Some(element(name, &resource, String::new()));
        let version =
            |of_type: &ResourceType, name: &str| Some(self.resource(of_type, name)?.version().to_string());
        own.versions.extend(version(&ResourceType::Cluster, name));
        let Some((cluster, assignment)) = self.cluster(name) else {
            own.about = "not served: its calls fail with UNAVAILABLE".to_owned();
            return own;
        };
        let members = self.members(&cluster);
        if !members.is_empty() {
            own.about = "aggregate: the first that is reachable".to_owned();
            let mut priority = Balancer::of("priority_experimental", String::new());
            for (at, member) in members.iter().enumerate() {
                priority.children.push(self.of_cluster(member, format!("{at}: cluster:{member}"), left_out));
            }
            own.children.push(priority);
            return own;
        }
        own.about = kind(&cluster);
        if cluster.load_assignment.is_none() {
            own.versions.extend(version(&ResourceType::ClusterLoadAssignment, assignment_name(&cluster)));
        }
        let Some(assignment) = assignment else {
            own.about.push_str(", without endpoints: its calls wait, then fail");
            return own;
        };
        for locality in &assignment.endpoints {
            let weight = locality.load_balancing_weight.as_ref().map_or(0, |weight| weight.value);
            let zone = locality.locality.as_ref().map(|one| one.zone.clone()).unwrap_or_default();
            if weight == 0 && cluster.load_assignment.is_none() {
                left_out.push(LeftOut {
                    what: format!("endpoints of {name} in the zone {zone:?}"),
                    reason: "a locality without a weight gets nothing".to_owned(),
                    row: "XA11",
                    element: element(name, &resource, String::new()),
                });
            }
        }
        own.children.push(self.priorities(&cluster, &assignment));
        own
    }

    fn priorities(&self, cluster: &Cluster, assignment: &ClusterLoadAssignment) -> Balancer {
        let all = endpoints(cluster, assignment, self.semantics);
        let mut priority = Balancer::of("priority_experimental", String::new());
        let policies = policies(cluster);
        for own in all.chunk_by(|one, next| one.priority == next.priority) {
            let at = own.first().map_or(0, |one| one.priority);
            let is_used = own.iter().any(|one| !one.share.is_zero());
            let mut below = Balancer::of("xds_cluster_impl_experimental", String::new());
            below.about = limits(cluster, assignment);
            below.children.push(picking(&policies, own));
            if cluster.outlier_detection.is_some() {
                below = Balancer {
                    children: vec![below],
                    ..Balancer::of("outlier_detection_experimental", String::new())
                };
            }
            below.child = format!("priority-{at}{}", if is_used { ", in use" } else { "" });
            priority.children.push(below);
        }
        priority
    }
}

/// The policies that pick, the outermost first.
fn picking(policies: &[String], endpoints: &[Endpoint]) -> Balancer {
    let leaf = |rest: &[String], own: &[Endpoint]| {
        let mut shown = own.to_vec();
        shown.truncate(MAX_SHOWN);
        let mut leaf = Balancer {
            endpoints: shown,
            n_more_endpoints: own.len().saturating_sub(MAX_SHOWN),
            ..Balancer::default()
        };
        let mut names = rest.iter().rev();
        leaf.policy = names.next().cloned().unwrap_or_default();
        names
            .fold(leaf, |below, name| Balancer { children: vec![below], ..Balancer::of(name, String::new()) })
    };
    let Some((_, rest)) = policies.split_first().filter(|(outer, _)| *outer == WRR_LOCALITY) else {
        return leaf(policies, endpoints);
    };
    let mut by_locality = Balancer::of(WRR_LOCALITY, String::new());
    for own in endpoints.chunk_by(|one, next| one.zone == next.zone) {
        let share = own.iter().try_fold(Ratio::ZERO, |sum, one| sum.plus(one.share));
        let share = share.map(|share| format!(", {share}")).unwrap_or_default();
        let zone = own.first().map(|one| one.zone.as_str()).unwrap_or_default();
        let zone = if zone.is_empty() { "no zone".to_owned() } else { format!("zone {zone}") };
        by_locality.children.push(Balancer { child: format!("{zone}{share}"), ..leaf(rest, own) });
    }
    by_locality
}

/// The names of the policies of a cluster, the outermost first.
fn policies(cluster: &Cluster) -> Vec<String> {
    let by_field = |leaf: &str| vec![WRR_LOCALITY.to_owned(), leaf.to_owned()];
    if let Some(policy) = &cluster.load_balancing_policy {
        return named(policy, MAX_NESTING);
    }
    match cluster.lb_policy() {
        LbPolicy::RingHash => vec!["ring_hash_experimental".to_owned()],
        LbPolicy::LeastRequest => by_field("least_request_experimental"),
        LbPolicy::RoundRobin
        | LbPolicy::Random
        | LbPolicy::Maglev
        | LbPolicy::ClusterProvided
        | LbPolicy::LoadBalancingPolicyConfig => by_field("round_robin"),
    }
}

/// Returns `true` if a client may choose the endpoints of a cluster by the hash of a request.
pub(crate) fn hashes(cluster: &Cluster) -> bool {
    let configured = cluster.load_balancing_policy.iter().flat_map(|policy| &policy.policies);
    let mut types = configured.filter_map(|one| one.typed_extension_config.as_ref()?.typed_config.as_ref());
    matches!(cluster.lb_policy(), LbPolicy::RingHash | LbPolicy::Maglev)
        || types.any(|any| [".ring_hash.", ".maglev."].iter().any(|kind| any.type_url.contains(kind)))
}

/// The first policy that gRPC clients know, and those below it.
fn named(policy: &LoadBalancingPolicy, n_left: usize) -> Vec<String> {
    let all =
        policy.policies.iter().filter_map(|one| one.typed_extension_config.as_ref()?.typed_config.as_ref());
    for any in all {
        let of = any.type_url.rsplit('/').next().unwrap_or_default();
        let below = |policy: Option<LoadBalancingPolicy>| match (policy, n_left.checked_sub(1)) {
            (Some(policy), Some(n_left)) => named(&policy, n_left),
            (_, _) => Vec::new(),
        };
        let own = match of.strip_prefix("envoy.extensions.load_balancing_policies.") {
            Some("wrr_locality.v3.WrrLocality") => {
                let found = WrrLocality::decode(&*any.value).ok();
                (WRR_LOCALITY, below(found.and_then(|own| own.endpoint_picking_policy)))
            }
            Some("random_subsetting.v3.RandomSubsetting") => {
                let found = RandomSubsetting::decode(&*any.value).ok();
                ("random_subsetting_experimental", below(found.and_then(|own| own.child_policy)))
            }
            Some("round_robin.v3.RoundRobin") => ("round_robin", Vec::new()),
            Some("pick_first.v3.PickFirst") => ("pick_first", Vec::new()),
            Some("ring_hash.v3.RingHash") => ("ring_hash_experimental", Vec::new()),
            Some("least_request.v3.LeastRequest") => ("least_request_experimental", Vec::new()),
            Some("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin") => {
                ("weighted_round_robin", Vec::new())
            }
            Some(_) => continue,
            // The application registers it.
            None => return vec![of.to_owned()],
        };
        return [vec![own.0.to_owned()], own.1].concat();
    }
    Vec::new()
}

/// What kind of cluster it is.
fn kind(cluster: &Cluster) -> String {
    match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(kind)) => match DiscoveryType::try_from(*kind) {
            Ok(DiscoveryType::Eds) => format!("EDS {}", assignment_name(cluster)),
            Ok(kind) => kind.as_str_name().to_owned(),
            Err(_) => "a kind that no client knows".to_owned(),
        },
        Some(ClusterDiscoveryType::ClusterType(custom)) => custom.name.clone(),
        None => DiscoveryType::Static.as_str_name().to_owned(),
    }
}

/// The limit of calls at a time, and what is dropped.
fn limits(cluster: &Cluster, assignment: &ClusterLoadAssignment) -> String {
    let thresholds = cluster.circuit_breakers.iter().flat_map(|breakers| &breakers.thresholds);
    let own = thresholds.filter(|one| one.priority() == RoutingPriority::Default);
    let most = own
        .filter_map(|one| one.max_requests.as_ref())
        .map(|n| n.value)
        .next()
        .unwrap_or(DEFAULT_MAX_REQUESTS);
    let drops = assignment.policy.iter().flat_map(|policy| &policy.drop_overloads);
    let drops = drops.filter_map(|drop| {
        let share = Fraction::of_percent(drop.drop_percentage.as_ref()?).ratio();
        Some(format!("; drops {share} ({})", drop.category))
    });
    let most = match most {
        u32::MAX => "no limit of calls at a time".to_owned(),
        most => format!("at most {most} calls at a time"),
    };
    most + &drops.collect::<String>()
}

const WRR_LOCALITY: &str = "xds_wrr_locality_experimental";

/// Without a circuit breaker.
const DEFAULT_MAX_REQUESTS: u32 = 1024;

/// gRFC A52.
const MAX_NESTING: usize = 16;

/// Clusters that are followed.
pub const MAX_CLUSTERS: usize = 64;

/// Endpoints of a locality that are shown.
const MAX_SHOWN: usize = 16;
