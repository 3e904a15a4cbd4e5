//! ClusterLoadAssignments.

use std::collections::BTreeSet;

use xds_cache::Origin;

use super::{Emitted, resource};
use crate::emit::shared::{load_assignment, no_endpoints};
use crate::plan::{Discovery, Plan, UpstreamTls};

/// The assignments of the clusters, each once, however many clusters name it. `unavailable` is where the cluster without
/// endpoints is from, if there is one.
pub(super) fn assignments(plan: &Plan, unavailable: Option<&Origin>) -> Vec<Emitted> {
    let (mut used, mut unavailable) = (BTreeSet::new(), unavailable);
    for cluster in plan.clusters.values().filter(|cluster| !cluster.protocols.is_empty()) {
        if cluster.tls == Some(UpstreamTls::Invalid) {
            unavailable = unavailable.or(Some(&cluster.origin));
            continue;
        }
        if let Discovery::Eds { assignment } = &cluster.discovery {
            used.insert(assignment.as_str());
        }
    }
    let used = used.into_iter().filter_map(|name| Some((name, plan.assignments.get(name)?)));
    let mut emitted: Vec<Emitted> = used
        .map(|(name, assignment)| resource(load_assignment(name, assignment), &assignment.origin))
        .collect();
    emitted.extend(unavailable.map(|origin| resource(no_endpoints(), origin)));
    emitted
}
