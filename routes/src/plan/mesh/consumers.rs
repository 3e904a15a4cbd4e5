//! Groups for the clients of a namespace, which consumer routes create.
//!
//! Envoys have one listener for each port of the mesh, with all of its Services, and a resource of a group hides those of the same name in the
//! groups below it. So a group must have the whole port: the Services of its own routes, and all other Services that its clients would
//! get without these routes, unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{DrainPolicy, GroupName, NodeGroup, Scalar, Selector};

use crate::conditions::ConditionReason;
use crate::input::Placed;
use crate::model::ParentRef;
use crate::plan::statuses::Fault;

/// The metadata field with the namespace of a node (Istio's convention).
const NAMESPACE_METADATA: &str = "NAMESPACE";

/// The prefix of the names of consumer groups.
const CONSUMERS: &str = "namespace/";

/// The group that a route serves: its own for a producer route, that of its namespace for a consumer route.
pub(super) fn group_of(route: &Placed, parent: &ParentRef) -> Result<GroupName, Fault> {
    let namespace = &*route.document.key.namespace;
    if *namespace == *parent.namespace {
        return Ok(route.group.clone());
    }
    let invalid = |error: xds_cache::group::InvalidGroupName| {
        Fault::new(ConditionReason::UnsupportedValue, error.to_string())
    };
    GroupName::new(&format!("{CONSUMERS}{namespace}")).map_err(invalid)
}

/// The namespace of a consumer group, by its name; `None` for any other name.
pub(crate) fn consumed_by(group: &GroupName) -> Option<&str> {
    group.as_str().strip_prefix(CONSUMERS)
}

/// The other groups that serve the clients of a group, in order of priority: the groups of the consumer routes, then the default group,
/// which every node has.
pub(crate) fn others(group: &GroupName, of_routes: BTreeSet<GroupName>) -> Vec<GroupName> {
    let named = of_routes.into_iter().filter(|other| !other.is_default());
    named.chain([GroupName::default_group()]).filter(|other| other != group).collect()
}

/// The definition of a consumer group.
pub(crate) fn definition(group: &GroupName, namespace: &str) -> NodeGroup {
    let value = vec![Scalar::String(namespace.to_owned())];
    let metadata = BTreeMap::from([(NAMESPACE_METADATA.to_owned(), value)]);
    let selector = Selector { metadata, ..Selector::nothing() };
    NodeGroup {
        name: group.clone(),
        selector,
        priority: 0,
        client: None,
        waves: None,
        drain: DrainPolicy::default(),
        identities: Arc::default(),
        tries_identities: false,
    }
}
