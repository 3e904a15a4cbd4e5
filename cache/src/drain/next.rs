//! The next set of draining resources in a view, from those of the views before and the current groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::assignment::{self, Address, Endpoint};
use super::{Assignment, Drain, DrainPolicy, Kept, MAX_DRAINING_ENDPOINTS, MAX_KEPT, assignment_key};
use crate::cluster::drain_policy;
use crate::node::Profile;
use crate::resource::{Resource, ResourceDraft};
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;
use crate::view::{Base, Members, View};

/// A view that clients come from, and the resources that it may have lost.
#[derive(Debug)]
pub(crate) struct Former<'a> {
    view: &'a View,
    /// Clusters that the groups may no longer have, and those that drain.
    clusters: BTreeSet<Name>,
    /// Assignments that may have changed in the groups, and those with draining endpoints.
    assignments: BTreeSet<Name>,
}

/// When and how long things drain in one view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) policy: DrainPolicy,
    pub(crate) profile: Profile,
    pub(crate) now: Instant,
}

impl Drain {
    /// The resources that drain after `before`, the views that clients come from, now that the groups give `own`.
    ///
    /// A resource that has come back no longer drains. A drain continues until its time, even if the policy has changed since;
    /// if it is in two of the views, until the later time.
    pub(crate) fn next(before: &[Former<'_>], own: &Members, terms: Terms) -> Self {
        let mut drain = Self::default();
        for former in before {
            drain.keep_clusters(former, own, terms);
        }
        drain.keep_endpoints(before, own, terms);
        let endpoints = drain.assignments.values().flat_map(|assignment| assignment.endpoints.values());
        let ends = endpoints.map(|(_, until)| *until);
        drain.next_end = ends.chain(drain.resources.values().map(|kept| kept.until)).min();
        drain
    }

    /// Keeps the removed clusters of a view, with the removed resources that they refer to.
    fn keep_clusters(&mut self, former: &Former<'_>, own: &Members, terms: Terms) {
        let table = former.view.table(&ResourceType::Cluster);
        for cluster in former.clusters.iter().filter_map(|name| table.find(name)) {
            if own.find(cluster.key()).is_some() {
                continue;
            }
            let known = former.view.drain().resources.get(cluster.key()).map(|kept| kept.until);
            let policy = || drain_policy(&cluster.value()).or(terms.policy);
            let fresh = || terms.now.checked_add(policy().clusters.unwrap_or_default());
            if let Some(until) = known.or_else(fresh).filter(|until| *until > terms.now) {
                self.keep(former.view, cluster, own, until);
            }
        }
    }

    fn keep(&mut self, view: &View, resource: &Arc<Resource>, own: &Members, until: Instant) {
        let mut pending = vec![Arc::clone(resource)];
        while let Some(resource) = pending.pop() {
            let known = self.resources.get(resource.key()).map(|kept| kept.until);
            let is_full = known.is_none() && self.resources.len() >= MAX_KEPT;
            if is_full || own.find(resource.key()).is_some() || known.is_some_and(|known| known >= until) {
                continue;
            }
            pending.extend(resource.references().targets().filter_map(|to| view.undrained(to)).cloned());
            let kept = Kept { resource: Arc::clone(&resource), until };
            self.resources.insert(resource.key().clone(), kept);
        }
    }

    fn keep_endpoints(&mut self, before: &[Former<'_>], own: &Members, terms: Terms) {
        let names: BTreeSet<&Name> = before.iter().flat_map(|former| &former.assignments).collect();
        let mut n_kept = 0;
        for name in names {
            let Some(new) = self.present(own, &assignment_key(name)).cloned() else { continue };
            let terms = self.terms_of(before, name, own, terms);
            let mut endpoints = left(before, name, &new, terms);
            while n_kept + endpoints.len() > MAX_DRAINING_ENDPOINTS {
                endpoints.pop_last();
            }
            let draining = endpoints.values().map(|(endpoint, _)| endpoint);
            let value = assignment::with_draining(&new.value(), draining, terms.profile);
            n_kept += endpoints.len();
            // Endpoints for which the assignment has no room are removed at once.
            if let Some(value) = value.filter(|_| !endpoints.is_empty()) {
                let served = Arc::new(Resource::new(ResourceDraft { value: value.into(), ..new.to_draft() }));
                self.assignments.insert(Arc::clone(name), Assignment { own: new, endpoints, served });
            }
        }
    }

    /// The resource under a key, without draining endpoints: that of the groups, or the one that is kept.
    fn present<'a>(&'a self, own: &'a Members, key: &ResourceKey) -> Option<&'a Arc<Resource>> {
        own.find(key).or_else(|| self.resources.get(key).map(|kept| &kept.resource))
    }

    /// The policy, with the settings of the clusters that use an assignment; the longest of several counts.
    fn terms_of(&self, before: &[Former<'_>], name: &Name, own: &Members, terms: Terms) -> Terms {
        let key = assignment_key(name);
        let clusters =
            before.iter().flat_map(|former| former.view.table(&ResourceType::Cluster).referrers(&key));
        let said = clusters.filter_map(|old| {
            let cluster = self.present(own, old.key()).unwrap_or(old);
            drain_policy(&cluster.value()).endpoints
        });
        let said = DrainPolicy { endpoints: said.max(), clusters: None };
        Terms { policy: said.or(terms.policy), ..terms }
    }
}

impl<'a> Former<'a> {
    /// `changed` are the keys under which the view's own groups have changed, `base` are the resources of the default group.
    pub(crate) fn new(view: &'a View, changed: &BTreeSet<Arc<ResourceKey>>, base: &Base) -> Self {
        let changes = |of_type| base.table(&of_type).changes_since(view.base().table(&of_type));
        let names = |of_type: &ResourceType| -> BTreeSet<Name> {
            let of_type = changed.iter().filter(|key| key.resource_type == *of_type);
            of_type.map(|key| Arc::clone(&key.name)).collect()
        };
        let mut clusters = names(&ResourceType::Cluster);
        clusters.extend(changes(ResourceType::Cluster).removed.iter().cloned());
        let kept = view.drain().resources.keys().filter(|key| key.resource_type == ResourceType::Cluster);
        clusters.extend(kept.map(|key| Arc::clone(&key.name)));
        let mut assignments = names(&ResourceType::ClusterLoadAssignment);
        let changes = changes(ResourceType::ClusterLoadAssignment);
        assignments.extend(changes.changed.iter().map(|resource| Arc::clone(resource.name())));
        assignments.extend(view.drain().assignments.keys().cloned());
        Self { view, clusters, assignments }
    }
}

/// The endpoints that were removed from an assignment and still drain, by their first address. Endpoints that already had no
/// new requests before, because they were draining or unhealthy, do not drain.
fn left(
    before: &[Former<'_>],
    name: &Name,
    new: &Resource,
    terms: Terms,
) -> BTreeMap<Address, (Endpoint, Instant)> {
    let is_known = before.iter().any(|former| former.view.drain().assignments.contains_key(name));
    if !is_known && terms.policy.endpoints.unwrap_or_default().is_zero() {
        return BTreeMap::new();
    }
    let present = assignment::endpoints(&new.value());
    let mut taken: BTreeSet<Address> = assignment::addresses(&present).into_iter().cloned().collect();
    let mut found: BTreeMap<Address, (Endpoint, Instant)> = BTreeMap::new();
    let mut add = |endpoint: Endpoint, until: Instant| {
        let Some(address) = endpoint.addresses.first().cloned() else { return };
        if let Some((_, known)) = found.get_mut(&address) {
            *known = until.max(*known);
        } else if until > terms.now && !endpoint.addresses.iter().any(|address| taken.contains(address)) {
            taken.extend(endpoint.addresses.iter().cloned());
            found.insert(address, (endpoint, until));
        }
    };
    for view in before.iter().map(|former| former.view) {
        for (endpoint, until) in
            view.drain().assignments.get(name).into_iter().flat_map(|a| a.endpoints.values())
        {
            add(endpoint.clone(), *until);
        }
    }
    let Some(until) = terms.now.checked_add(terms.policy.endpoints.unwrap_or_default()) else { return found };
    for view in before.iter().map(|former| former.view) {
        let Some(old) = view.undrained(&assignment_key(name)) else { continue };
        if old.version() != new.version() {
            let used = assignment::endpoints(&old.value()).into_iter().filter(|endpoint| endpoint.is_used);
            used.for_each(|endpoint| add(endpoint, until));
        }
    }
    found
}
