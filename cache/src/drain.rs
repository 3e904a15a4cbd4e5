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
use crate::node::Profile;
use crate::resource::{Name, Resource, ResourceDraft, ResourceKey};
use crate::resource_type::ResourceType;
use crate::view::{Base, Members, View};

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
    /// With them.
    served: Arc<Resource>,
}

/// A view that clients come from, and what may have left it.
#[derive(Debug)]
pub(crate) struct Former<'a> {
    view: &'a View,
    /// Clusters of which the groups may give nothing now, and those that drain.
    clusters: BTreeSet<Name>,
    /// Assignments of which the groups may give something else now, and those with endpoints that drain.
    assignments: BTreeSet<Name>,
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
    /// What drains after `before`, the views that clients come from, now that the groups give `own`.
    ///
    /// What is back does not drain any more. What drains goes on doing so until its time, whatever the policy says by then; in
    /// two of the views, until the later one.
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

    /// Where something is served otherwise than the groups say.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ResourceKey> {
        self.resources.keys().cloned().chain(self.assignments.keys().map(assignment_key))
    }

    /// What is served there.
    pub(crate) fn served(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        let of_endpoints = key.resource_type == ResourceType::ClusterLoadAssignment;
        let assignment = self.assignments.get(&key.name).filter(|_| of_endpoints);
        let kept = || self.resources.get(key).map(|kept| &kept.resource);
        assignment.map(|assignment| &assignment.served).or_else(kept)
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
            // Without room for them in the assignment they leave at once.
            if let Some(value) = value.filter(|_| !endpoints.is_empty()) {
                let served = Arc::new(Resource::new(ResourceDraft { value: value.into(), ..new.to_draft() }));
                self.assignments.insert(Arc::clone(name), Assignment { own: new, endpoints, served });
            }
        }
    }

    /// What is there under a key but for endpoints that drain: what the groups give, or what is kept.
    fn present<'a>(&'a self, own: &'a Members, key: &ResourceKey) -> Option<&'a Arc<Resource>> {
        own.find(key).or_else(|| self.resources.get(key).map(|kept| &kept.resource))
    }

    /// The terms with what the clusters say that have an assignment; of several the longest counts.
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

    /// An assignment as it is without what drains in it.
    pub(crate) fn own_assignment(&self, name: &str) -> Option<&Arc<Resource>> {
        self.assignments.get(name).map(|assignment| &assignment.own)
    }
}

impl<'a> Former<'a> {
    /// `changed` are the keys under which the view's own groups give something else now, `base` is what the default group gives.
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

/// The endpoints that left an assignment and still drain, by their first address. What had no new requests before it left, having
/// drained by other means or being ill, does not.
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

fn assignment_key(name: &Name) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::ClusterLoadAssignment, name: Arc::clone(name) }
}

/// How many endpoints drain in one view at a time; more leave at once. As many as the largest cluster that anybody rolls over at
/// once, and not so many that endless coming and going fills the memory.
pub const MAX_DRAINING_ENDPOINTS: usize = 10_000;

/// How many resources one view keeps that left: clusters, and what only they refer to.
pub const MAX_KEPT: usize = 10_000;
