//! Draining: what clients are served for a time after it left, so that what uses it can end by itself.
//!
//! Endpoints that left an assignment stay in it as `DRAINING`: they get no new requests, but sessions go on with them.
//! Clusters that left stay as they were, with their endpoints and whatever else only they refer to: a request that was routed
//! before the change may look for its cluster after it. That a client is not told of a removal while it still refers to what is
//! removed is not decided here, but by its session; this is the time after that.
//!
//! A [`Drain`] belongs to one view and is a value: it follows from the views before, from what the groups now say, and from the
//! time, which is passed in. What drains is part of the view like everything else, so sessions, status and versions need to know
//! nothing of it. The end of a drain is a view of the same revision: no change was made then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::resource::Resource;
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;

mod assignment;
pub(crate) mod next;
mod policy;
#[cfg(test)]
mod tests;

use assignment::{Address, Endpoint};
pub use policy::DrainPolicy;

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

/// Resources and endpoints that drain in one view.
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

impl Drain {
    /// Where something is served otherwise than the groups say.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ResourceKey> {
        self.resources.keys().cloned().chain(self.assignments.keys().map(assignment_key))
    }

    /// The resource that is served under a key.
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

    /// An assignment as it is without what drains in it.
    pub(crate) fn own_assignment(&self, name: &str) -> Option<&Arc<Resource>> {
        self.assignments.get(name).map(|assignment| &assignment.own)
    }
}

fn assignment_key(name: &Name) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::ClusterLoadAssignment, name: Arc::clone(name) }
}

/// How many endpoints drain in one view at a time; more leave at once. As many as the largest cluster that anybody rolls over at
/// once, and not so many that endless coming and going fills the memory.
pub const MAX_DRAINING_ENDPOINTS: usize = 10_000;

/// How many resources one view keeps that left: clusters, and what only they refer to.
pub const MAX_KEPT: usize = 10_000;
