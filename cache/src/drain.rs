//! Draining: what clients are served for a time after it left, so that what uses it can end by itself.
//!
//! Endpoints that left an assignment stay in it as `DRAINING`: they get no new requests, but sessions go on with them (C86).
//! Clusters that left stay as they were, with their endpoints and whatever else only they refer to: a request that was routed
//! before the change may look for its cluster after it. That a client is not told of a removal while it still refers to what is
//! removed is not decided here, but by its session; this is the time after that.
//!
//! A [`Drain`] belongs to one view and is a value: it follows from the views before, from what the groups now say, and from the
//! time, which is passed in. What drains is part of the view like everything else, so sessions, status and versions need to know
//! nothing of it. The end of a drain is a view of the same revision: no change was made then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::drain_policy;
use crate::layer::Resources;
use crate::node::Profile;
use crate::resource::{Name, Resource, ResourceDraft, ResourceKey};
use crate::resource_type::ResourceType;
use crate::view::View;

mod assignment;
#[cfg(test)]
mod tests;

use assignment::{Address, Endpoint};

/// How long things drain; what it does not say, the next policy does: that of the cluster itself, of the node's groups, of the
/// publisher. Zero is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrainPolicy {
    /// How long endpoints are sent as `DRAINING` that left an assignment.
    pub endpoints: Option<Duration>,
    /// How long clusters stay that left.
    pub clusters: Option<Duration>,
}

/// One thing that drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The resource that is served though it left, or the assignment that the endpoint left.
    pub resource: ResourceKey,
    /// The address of the endpoint, such as `10.0.0.1:80`; `None` if the resource itself drains.
    pub endpoint: Option<String>,
    /// When it ends.
    pub until: Instant,
}

/// What drains in one view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// Clusters that left, and what else left that they refer to.
    resources: BTreeMap<ResourceKey, Kept>,
    /// Assignments with endpoints that left.
    assignments: BTreeMap<Name, Assignment>,
    /// When the first of all these ends: asked at each publication of anything.
    next_end: Option<Instant>,
}

/// A resource that left.
#[derive(Clone, Debug)]
struct Kept {
    resource: Arc<Resource>,
    until: Instant,
}

/// An assignment with endpoints that left.
#[derive(Clone, Debug)]
struct Assignment {
    /// As it is without them.
    own: Arc<Resource>,
    /// Those that left, by their first address. Never empty.
    endpoints: BTreeMap<Address, (Endpoint, Instant)>,
}

/// When and how long things drain in one view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) policy: DrainPolicy,
    pub(crate) profile: Profile,
    pub(crate) now: Instant,
}

impl DrainPolicy {
    /// This policy, and where it says nothing, `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { endpoints: self.endpoints.or(other.endpoints), clusters: self.clusters.or(other.clusters) }
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl Drain {
    /// What drains after `before`, the views that clients come from, now that the groups give `own`; adds it to `own`.
    ///
    /// What is back does not drain any more. What drains goes on doing so until its time, whatever the policy says by then; in
    /// two of the views, until the later one.
    pub(crate) fn next(before: &[&View], own: &mut Resources, terms: Terms) -> Self {
        let mut drain = Self::default();
        for view in before {
            drain.keep_clusters(view, own, terms);
        }
        for (key, kept) in &drain.resources {
            own.insert(key.clone(), Arc::clone(&kept.resource));
        }
        drain.keep_endpoints(before, own, terms);
        drain.assignments.retain(|name, assignment| {
            let served = assignment.served(terms.profile);
            served.map(|served| own.insert(assignment_key(name), Arc::new(served))).is_some()
        });
        let endpoints = drain.assignments.values().flat_map(|assignment| assignment.endpoints.values());
        let ends = endpoints.map(|(_, until)| *until);
        drain.next_end = ends.chain(drain.resources.values().map(|kept| kept.until)).min();
        drain
    }

    /// When the first thing ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }

    /// How many resources and how many endpoints.
    pub(crate) fn count(&self) -> (usize, usize) {
        let endpoints = self.assignments.values().map(|assignment| assignment.endpoints.len());
        (self.resources.len(), endpoints.sum())
    }

    /// The types that have other contents by it.
    pub(crate) fn types(&self) -> BTreeSet<&ResourceType> {
        let assignments = (!self.assignments.is_empty()).then_some(&ResourceType::ClusterLoadAssignment);
        self.resources.keys().map(|key| &key.resource_type).chain(assignments).collect()
    }

    /// Everything that drains: resources in order, then endpoints by assignment and address.
    pub(crate) fn draining(&self) -> impl Iterator<Item = Draining> {
        let resources = self.resources.iter();
        let resources = resources.map(|(key, kept)| Draining {
            resource: key.clone(),
            endpoint: None,
            until: kept.until,
        });
        let endpoints = self.assignments.iter().flat_map(|(name, assignment)| {
            assignment.endpoints.iter().map(|(address, (_, until))| Draining {
                resource: assignment_key(name),
                endpoint: Some(assignment::address_text(address)),
                until: *until,
            })
        });
        resources.chain(endpoints)
    }

    /// Keeps the clusters of a view that are gone, with what else is gone of what they refer to.
    fn keep_clusters(&mut self, view: &View, own: &Resources, terms: Terms) {
        for cluster in view.table(&ResourceType::Cluster).resources() {
            if own.contains_key(cluster.key()) {
                continue;
            }
            let known = view.drain().resources.get(cluster.key()).map(|kept| kept.until);
            let policy = || drain_policy(cluster.value()).or(terms.policy);
            let fresh = || terms.now.checked_add(policy().clusters.unwrap_or_default());
            if let Some(until) = known.or_else(fresh).filter(|until| *until > terms.now) {
                self.keep(view, cluster, own, until);
            }
        }
    }

    fn keep(&mut self, view: &View, resource: &Arc<Resource>, own: &Resources, until: Instant) {
        let mut pending = vec![Arc::clone(resource)];
        while let Some(resource) = pending.pop() {
            let known = self.resources.get(resource.key()).map(|kept| kept.until);
            let is_full = known.is_none() && self.resources.len() >= MAX_KEPT;
            if is_full || own.contains_key(resource.key()) || known.is_some_and(|known| known >= until) {
                continue;
            }
            pending.extend(resource.references().targets().filter_map(|to| view.undrained(to)).cloned());
            let kept = Kept { resource: Arc::clone(&resource), until };
            self.resources.insert(resource.key().clone(), kept);
        }
    }

    fn keep_endpoints(&mut self, before: &[&View], own: &Resources, terms: Terms) {
        let of_type = ResourceType::ClusterLoadAssignment;
        let mut names: BTreeSet<&Name> = BTreeSet::new();
        for view in before {
            let tables = view.table(&of_type).resources().iter();
            let differs =
                |old: &&Arc<Resource>| own.get(old.key()).is_some_and(|new| new.version() != old.version());
            names.extend(tables.filter(differs).map(|old| old.name()));
        }
        let mut n_kept = 0;
        for name in names {
            let Some(new) = own.get(&assignment_key(name)) else { continue };
            let mut endpoints = left(before, name, new, terms.of_assignment(before, name, own));
            while n_kept + endpoints.len() > MAX_DRAINING_ENDPOINTS {
                endpoints.pop_last();
            }
            n_kept += endpoints.len();
            if !endpoints.is_empty() {
                let assignment = Assignment { own: Arc::clone(new), endpoints };
                self.assignments.insert(Arc::clone(name), assignment);
            }
        }
    }

    /// An assignment as it is without what drains in it.
    pub(crate) fn own_assignment(&self, name: &str) -> Option<&Arc<Resource>> {
        self.assignments.get(name).map(|assignment| &assignment.own)
    }
}

impl Terms {
    /// The same, with what the clusters say that have an assignment; of several the longest counts.
    fn of_assignment(self, before: &[&View], name: &Name, own: &Resources) -> Self {
        let key = assignment_key(name);
        let clusters = before.iter().flat_map(|view| view.table(&ResourceType::Cluster).referrers(&key));
        let said = clusters.filter_map(|old| {
            let cluster = own.get(old.key()).unwrap_or(old);
            drain_policy(cluster.value()).endpoints
        });
        let said = DrainPolicy { endpoints: said.max(), clusters: None };
        Self { policy: said.or(self.policy), ..self }
    }
}

impl Assignment {
    /// The assignment with what drains; `None` if it has no room for that.
    fn served(&self, profile: Profile) -> Option<Resource> {
        let draining = self.endpoints.values().map(|(endpoint, _)| endpoint);
        let value = assignment::with_draining(self.own.value(), draining, profile)?;
        Some(Resource::new(ResourceDraft { value, ..self.own.to_draft() }))
    }
}

/// The endpoints that left an assignment and still drain, by their first address. What had no new requests before it left, having
/// drained by other means or being ill, does not.
fn left(
    before: &[&View],
    name: &Name,
    new: &Resource,
    terms: Terms,
) -> BTreeMap<Address, (Endpoint, Instant)> {
    let present = assignment::endpoints(new.value());
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
    for view in before {
        for (endpoint, until) in
            view.drain().assignments.get(name).into_iter().flat_map(|a| a.endpoints.values())
        {
            add(endpoint.clone(), *until);
        }
    }
    let Some(until) = terms.now.checked_add(terms.policy.endpoints.unwrap_or_default()) else { return found };
    for view in before {
        let Some(old) = view.undrained(&assignment_key(name)) else { continue };
        if old.version() != new.version() {
            let used = assignment::endpoints(old.value()).into_iter().filter(|endpoint| endpoint.is_used);
            used.for_each(|endpoint| add(endpoint, until));
        }
    }
    found
}

fn assignment_key(name: &Name) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::ClusterLoadAssignment, name: Arc::clone(name) }
}

/// How many endpoints drain in one view at a time; more leave at once. As many as the largest cluster that anybody rolls over at
/// once, and not so many that endless coming and going fills the memory.
pub const MAX_DRAINING_ENDPOINTS: usize = 10_000;

/// How many resources one view keeps that left: clusters, and what only they refer to.
pub const MAX_KEPT: usize = 10_000;
