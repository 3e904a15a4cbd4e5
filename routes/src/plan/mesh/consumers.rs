//! Groups for the clients of a namespace, which consumer routes make, and what groups have in common.
//!
//! Envoys have one listener for each port of the mesh, with all of its Services, and a group's resource hides those of the same
//! name in the groups behind it. So a group must have the whole port: beside the Services of its own routes those that its clients
//! would be served without them, as they are there.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::{DrainPolicy, GroupName, NodeGroup, Scalar, Selector};

use super::{Claims, MeshRoute, Place, Request, is_asked_for};
use crate::model::{DocumentKey, ParentRef};
use crate::plan::statuses::Fault;

/// The metadata in which a node says of which namespace it is (Istio's convention).
const NAMESPACE_METADATA: &str = "NAMESPACE";

/// For whom a route is: that of the producer for its own group, that of a consumer for its namespace.
pub(super) fn group_of(route: &MeshRoute<'_>, parent: &ParentRef) -> Result<GroupName, Fault> {
    let namespace = &*route.document.key.namespace;
    if *namespace == *parent.namespace {
        return Ok(route.group.clone());
    }
    let invalid =
        |error: xds_cache::group::InvalidGroupName| Fault::new("UnsupportedValue", error.to_string());
    GroupName::new(&format!("namespace/{namespace}")).map_err(invalid)
}

/// The groups that consumer routes make.
#[derive(Default)]
pub(super) struct Consumers<'p> {
    groups: BTreeMap<GroupName, Consumer<'p>>,
}

/// One of them.
struct Consumer<'p> {
    namespace: &'p str,
    /// The groups that its routes are in.
    others: BTreeSet<&'p GroupName>,
}

impl<'p> Consumers<'p> {
    /// Those of all requests that lead anywhere.
    pub(super) fn of(requests: &[Request<'p>]) -> Self {
        let mut consumers = Self::default();
        for Request { route, parent, places, .. } in requests {
            let namespace = &*route.document.key.namespace;
            if *namespace == *parent.namespace {
                continue;
            }
            for (group, _, _) in places.iter().flatten() {
                let new = || Consumer { namespace, others: BTreeSet::new() };
                consumers.groups.entry(group.clone()).or_insert_with(new).others.insert(route.group);
            }
        }
        consumers
    }

    /// Adds to each group, on the ports that Envoys serve for it, the Services that its clients would be served without it, and
    /// tells which these are.
    pub(super) fn borrow(&self, claims: &mut Claims<'p>) -> BTreeSet<Place<'p>> {
        let mut asked: BTreeSet<(&GroupName, u16)> = BTreeSet::new();
        let mut services: BTreeMap<(&GroupName, u16), Vec<&'p DocumentKey>> = BTreeMap::new();
        for ((group, service, port), claims) in &*claims {
            services.entry((group, *port)).or_default().push(service);
            if is_asked_for(claims) {
                asked.insert((group, *port));
            }
        }
        let mut borrowed = BTreeMap::new();
        for (group, port) in asked {
            for other in self.others(group) {
                for service in services.get(&(&other, port)).into_iter().flatten() {
                    let place = (group.clone(), *service, port);
                    let Some(there) = claims.get(&(other.clone(), *service, port)) else { continue };
                    if !claims.contains_key(&place) {
                        borrowed.entry(place).or_insert_with(|| there.clone());
                    }
                }
            }
        }
        let places = borrowed.keys().cloned().collect();
        claims.extend(borrowed);
        places
    }

    /// The groups that serve the clients of a group too, the one that counts most first: those of a consumer's routes, and the
    /// default group, which is every node's.
    pub(super) fn others(&self, group: &GroupName) -> Vec<GroupName> {
        let routes = self.groups.get(group).into_iter().flat_map(|consumer| consumer.others.iter().copied());
        let named = routes.filter(|other| !other.is_default()).cloned();
        named.chain([GroupName::default_group()]).filter(|other| other != group).collect()
    }

    /// The groups by whose names the clients of a group call Services: consumers by those that they would have without their
    /// routes, all others by the group's own.
    pub(super) fn naming(&self, group: &GroupName) -> Vec<GroupName> {
        if self.groups.contains_key(group) { self.others(group) } else { vec![group.clone()] }
    }

    /// The definition of a group; `None` if it is of no consumer.
    pub(super) fn definition(&self, group: &GroupName) -> Option<NodeGroup> {
        let value = vec![Scalar::String(self.groups.get(group)?.namespace.to_owned())];
        let metadata = BTreeMap::from([(NAMESPACE_METADATA.to_owned(), value)]);
        let selector = Selector { metadata, ..Selector::nothing() };
        Some(NodeGroup {
            name: group.clone(),
            selector,
            priority: 0,
            client: None,
            waves: None,
            drain: DrainPolicy::default(),
        })
    }
}
