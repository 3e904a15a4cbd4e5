//! Members of aggregate clusters and priorities that get nothing (L6), and those that only take the place of others.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use xds_cache::{ResourceKey, ResourceType};

use crate::endpoints::endpoints;
use crate::explanation::Part;
use crate::lint::report::{Depth, Doubt, DoubtCode};
use crate::model::{Model, aggregated, assignment_name};
use crate::ratio::Ratio;
use crate::semantics::Difference;

/// Looks at a cluster to which routes lead. `leaves` remembers by cluster if it takes everything as long as it is healthy.
pub(super) fn look(model: &Model, name: &str, depth: Depth, leaves: &mut Leaves, doubts: &mut Vec<Doubt>) {
    let Some((cluster, _)) = model.cluster(name) else { return };
    let direct = aggregated(&cluster);
    if direct.is_empty() {
        leaves.look(model, name, depth, doubts);
        return;
    }
    let all = model.members(&cluster);
    if all.len() > MAX_MEMBERS {
        return;
    }
    let mut whole: Option<&str> = None;
    let mut known: Vec<&str> = Vec::new();
    for (index, member) in direct.iter().enumerate() {
        let of_member = model.leaves_of(member);
        let new: Vec<&str> = all
            .iter()
            .map(String::as_str)
            .filter(|leaf| of_member.iter().any(|own| own == leaf) && !known.contains(leaf))
            .collect();
        let part = Part {
            resource: ResourceKey { resource_type: ResourceType::Cluster, name: name.into() },
            path: format!("cluster_type.typed_config.clusters[{index}]"),
            route: None,
        };
        if new.is_empty() && !of_member.is_empty() && !model.semantics.has(Difference::ActsAsProxy) {
            let message = format!(
                "gRPC clients never use the member {member:?}: they use each cluster of an aggregate once, at its first place"
            );
            doubts.push(Doubt::new(DoubtCode::WeightNeverApplies, part, message));
            continue;
        }
        if let Some(whole) = whole.filter(|_| depth == Depth::All && !new.is_empty()) {
            let message = format!(
                "the member {member:?} gets requests only while {whole:?} before it is not healthy, which is what a fallback is for"
            );
            doubts.push(Doubt::new(DoubtCode::OnlyWhenUnhealthy, part, message));
        }
        for leaf in new {
            leaves.look(model, leaf, depth, doubts);
            if whole.is_none() && leaves.is_whole(leaf) {
                whole = Some(leaf);
            }
            known.push(leaf);
        }
    }
}

/// The clusters with endpoints that were looked at, and if each takes everything as long as all of its endpoints are healthy.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    known: BTreeMap<String, bool>,
}

impl Leaves {
    fn is_whole(&self, name: &str) -> bool {
        self.known.get(name).copied().unwrap_or_default()
    }

    /// Looks at the priorities of a cluster, once.
    fn look(&mut self, model: &Model, name: &str, depth: Depth, doubts: &mut Vec<Doubt>) {
        if self.known.contains_key(name) {
            return;
        }
        let found = model.cluster(name);
        let with_endpoints = found.and_then(|(cluster, assignment)| Some((cluster, assignment?)));
        let is_whole = with_endpoints.is_some_and(|(cluster, assignment)| {
            // Endpoints of LEDS are not in the assignment.
            if assignment.endpoints.iter().any(|locality| locality.lb_config.is_some()) {
                return false;
            }
            priorities(model, name, &cluster, &assignment, depth, doubts)
        });
        self.known.insert(name.to_owned(), is_whole);
    }
}

/// Tells priorities without endpoints and those behind one that is whole, and returns `true` if the cluster takes everything as long as
/// all of its endpoints are healthy.
fn priorities(
    model: &Model,
    name: &str,
    cluster: &Cluster,
    assignment: &ClusterLoadAssignment,
    depth: Depth,
    doubts: &mut Vec<Doubt>,
) -> bool {
    let mut healthy = assignment.clone();
    for endpoint in healthy.endpoints.iter_mut().flat_map(|locality| &mut locality.lb_endpoints) {
        endpoint.set_health_status(HealthStatus::Healthy);
    }
    let shares = endpoints(cluster, &healthy, model.semantics);
    let share_of = |priority: u32| {
        let own = shares.iter().filter(|one| one.priority == priority);
        own.fold(Ratio::ZERO, |sum, one| sum.plus(one.share).unwrap_or(sum))
    };
    let mut by_priority: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (index, locality) in assignment.endpoints.iter().enumerate() {
        by_priority.entry(locality.priority).or_insert((index, 0)).1 += locality.lb_endpoints.len();
    }
    let factor = assignment.policy.as_ref().and_then(|policy| policy.overprovisioning_factor.as_ref());
    // With less, the health of all together is not that of a whole.
    let is_enough = !model.semantics.has(Difference::ActsAsProxy)
        || factor.is_none_or(|factor| factor.value >= FULL_HEALTH);
    let is_any = by_priority.values().any(|(_, n)| *n > 0);
    let mut whole: Option<u32> = None;
    for (priority, (first, n_endpoints)) in by_priority {
        let part = || match &cluster.load_assignment {
            Some(_) => part(ResourceType::Cluster, name, format!("load_assignment.endpoints[{first}]")),
            None => {
                let name = assignment_name(cluster);
                part(ResourceType::ClusterLoadAssignment, name, format!("endpoints[{first}]"))
            }
        };
        if n_endpoints == 0 {
            if is_any {
                let message = format!(
                    "the priority {priority} of the cluster {name:?} has no endpoint, and gets no request"
                );
                doubts.push(Doubt::new(DoubtCode::WeightNeverApplies, part(), message));
            }
            continue;
        }
        match whole {
            Some(whole) if depth == Depth::All && share_of(priority).is_zero() => {
                let message = format!(
                    "the priority {priority} of the cluster {name:?} gets requests only while the priority {whole} is not healthy, which is what a fallback is for"
                );
                doubts.push(Doubt::new(DoubtCode::OnlyWhenUnhealthy, part(), message));
            }
            Some(_) => {}
            None if is_enough && share_of(priority) == Ratio::ONE => whole = Some(priority),
            None => {}
        }
    }
    whole.is_some()
}

fn part(resource_type: ResourceType, name: &str, path: String) -> Part {
    Part { resource: ResourceKey { resource_type, name: name.into() }, path, route: None }
}

/// The overprovisioning factor with which healthy endpoints are just enough, in percent.
const FULL_HEALTH: u32 = 100;

/// Clusters of one aggregate that are looked at; with more, nothing is said of it.
const MAX_MEMBERS: usize = 63;
