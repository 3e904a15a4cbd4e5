//! Whom a change would concern: for dry runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::layer::{changed_keys, differing};
use xds_cache::{Changes, Groups, ResourceKey, ResourceType, StatusBoard, ViewChange, ViewKey};

use crate::acks::MAX_LISTED;

/// The ids of the connected nodes that subscribe to a resource which differs between two states of the groups: in order, each
/// once, at most [`MAX_LISTED`]. Nodes are taken to stay in their groups. Looks at the nodes of groups that are not equal.
#[must_use]
pub(crate) fn affected_nodes(board: &StatusBoard, before: &Groups, after: &Groups) -> Vec<String> {
    let groups = differing(before, after);
    let views: BTreeSet<ViewKey> = groups.into_iter().flat_map(|name| board.views_of(name)).collect();
    let mut nodes = BTreeSet::new();
    for key in views {
        let change = difference(&key, before, after);
        if change.changes.is_empty() {
            continue;
        }
        let affected =
            board.streams_of(Some(&key)).into_iter().filter(|entry| !entry.concerned(&change).is_empty());
        nodes.extend(affected.map(|entry| entry.with(|status| status.info.node.id.clone())));
    }
    nodes.into_iter().take(MAX_LISTED).collect()
}

/// What differs for the clients of a view.
fn difference(key: &ViewKey, before: &Groups, after: &Groups) -> ViewChange {
    let mut changes: BTreeMap<ResourceType, Changes> = BTreeMap::new();
    let mut changed = BTreeSet::new();
    for name in key.groups.iter() {
        changed_keys(before.get(name), after.get(name), key.profile, &mut changed);
    }
    let find = |groups: &Groups, resource: &ResourceKey| {
        key.groups.iter().find_map(|name| groups.get(name)?.find(key.profile, resource).cloned())
    };
    for resource in changed {
        let ResourceKey { resource_type, name } = (*resource).clone();
        match (find(before, &resource), find(after, &resource)) {
            (Some(old), Some(new)) if old.version() == new.version() => {}
            (None, None) => {}
            (_, Some(new)) => changes.entry(resource_type).or_default().changed.push(new),
            (Some(_), None) => changes.entry(resource_type).or_default().removed.push(name),
        }
    }
    ViewChange {
        key: key.clone(),
        changes: changes.into_iter().map(|(of_type, changes)| (of_type, Arc::new(changes))).collect(),
    }
}
