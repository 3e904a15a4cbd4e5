//! Draining: resources that a client is still served for a time after they were removed, so that requests in progress can finish.
//!
//! A removed endpoint stays in its assignment as `DRAINING`: it gets no new requests, but its sessions continue. A removed cluster
//! stays as it was, with its endpoints and everything else that only it refers to: a request that was routed before the change may
//! look for its cluster afterwards. A removal also waits while the client still refers to the resource. Its session decides that;
//! draining is the time after it.
//!
//! A [`Drain`] belongs to one view and is a value. It follows from the previous views, the current groups, and the time, which is
//! passed in. Draining resources are part of the view like all others, so sessions, status and versions know nothing of them. When a
//! drain ends, there is a new view of the same revision, because nothing was changed.

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

pub use assignment::has_endpoint;
use assignment::{Address, Endpoint};
pub use policy::DrainPolicy;

/// A draining resource or endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The removed resource that is still served, or the assignment from which the endpoint was removed.
    pub resource: ResourceKey,
    /// The address of the endpoint, such as `10.0.0.1:80`; `None` if the resource itself drains.
    pub endpoint: Option<String>,
    /// When it ends.
    pub until: Instant,
}

/// Resources and endpoints that drain in one view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// Removed clusters, and removed resources that only they refer to.
    resources: BTreeMap<ResourceKey, Kept>,
    /// Assignments with removed endpoints.
    assignments: BTreeMap<Name, Assignment>,
    /// When the first of all these ends. Every publication asks for it.
    next_end: Option<Instant>,
}

/// A removed resource.
#[derive(Clone, Debug)]
struct Kept {
    resource: Arc<Resource>,
    until: Instant,
}

/// An assignment with removed endpoints.
#[derive(Clone, Debug)]
struct Assignment {
    /// The assignment without them.
    own: Arc<Resource>,
    /// The removed endpoints, by their first address. Never empty.
    endpoints: BTreeMap<Address, (Endpoint, Instant)>,
    /// The assignment with them.
    served: Arc<Resource>,
}

impl Drain {
    /// The resources that are served differently from what the groups say.
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

    /// When the first drain ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }

    /// How many resources and how many endpoints.
    pub(crate) fn count(&self) -> (usize, usize) {
        let endpoints = self.assignments.values().map(|assignment| assignment.endpoints.len());
        (self.resources.len(), endpoints.sum())
    }

    /// The types whose contents differ because of it.
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

    /// An assignment without the endpoints that drain in it.
    pub(crate) fn own_assignment(&self, name: &str) -> Option<&Arc<Resource>> {
        self.assignments.get(name).map(|assignment| &assignment.own)
    }
}

fn assignment_key(name: &Name) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::ClusterLoadAssignment, name: Arc::clone(name) }
}

/// The largest number of endpoints that drain in one view at a time; any more are removed at once. It is as large as the
/// largest cluster that is replaced at once, and small enough that endpoints which come and go endlessly do not fill the
/// memory.
pub const MAX_DRAINING_ENDPOINTS: usize = 10_000;

/// The largest number of removed resources that one view keeps: clusters, and resources that only they refer to.
pub const MAX_KEPT: usize = 10_000;
