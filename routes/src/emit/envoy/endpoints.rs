//! ClusterLoadAssignments of a whole plan.

use std::borrow::Cow;
use std::collections::BTreeSet;

use xds_cache::Origin;

use crate::emit::Sink;
use crate::emit::shared::{assignment, no_endpoints};
use crate::plan::{Discovery, Plan, UpstreamTls};

/// The assignments of the clusters, each once, even if several clusters use it. `unavailable` is the origin of the cluster without
/// endpoints, if there is one.
pub(super) fn assignments<'p>(plan: &'p Plan, unavailable: Option<&'p Origin>, emit: &mut Sink<'_, 'p>) {
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
    let used = used.map(|(name, found)| assignment(name, Cow::Borrowed(found), &found.origin));
    used.chain(unavailable.map(no_endpoints)).for_each(emit);
}
