//! Whom a change would concern: for dry runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use xds_cache::layer::EffectiveGroup;
use xds_cache::{Changes, Groups, Resource, ResourceKey, ResourceType, StatusBoard, ViewChange, ViewKey};

use crate::acks::MAX_LISTED;

/// The ids of the connected nodes that subscribe to a resource which differs between two states of the groups: in order, each
/// once, at most [`MAX_LISTED`]. Nodes are taken to stay in their groups.
#[must_use]
pub(crate) fn affected_nodes(board: &StatusBoard, before: &Groups, after: &Groups) -> Vec<String> {
    let mut changes: HashMap<ViewKey, ViewChange> = HashMap::new();
    let mut nodes = BTreeSet::new();
    for entry in board.streams() {
        let (node, key) = entry.with(|status| (Arc::clone(&status.info.node), status.view.clone()));
        let Some(key) = key else { continue };
        let change = changes.entry(key.clone()).or_insert_with(|| difference(&key, before, after));
        if !change.changes.is_empty() && !entry.concerned(change).is_empty() {
            nodes.insert(node.id.clone());
        }
    }
    nodes.into_iter().take(MAX_LISTED).collect()
}

/// What differs for the clients of a view.
fn difference(key: &ViewKey, before: &Groups, after: &Groups) -> ViewChange {
    let mut changes: BTreeMap<ResourceType, Changes> = BTreeMap::new();
    for name in key.groups.iter() {
        let (old, new) = (before.get(name), after.get(name));
        if old.map(Arc::as_ptr) == new.map(Arc::as_ptr) {
            continue;
        }
        let (old, new) = (resources(old, key), resources(new, key));
        let keys: BTreeSet<&ResourceKey> = old.keys().chain(new.keys()).copied().collect();
        for key in keys {
            let of_type = changes.entry(key.resource_type.clone()).or_default();
            match (old.get(key), new.get(key)) {
                (Some(old), Some(new)) if old.version() == new.version() => {}
                (_, Some(new)) => of_type.changed.push(Arc::clone(new)),
                (_, None) => of_type.removed.push(key.name.clone()),
            }
        }
    }
    let changes = changes.into_iter().filter(|(_, one)| !(one.changed.is_empty() && one.removed.is_empty()));
    let sorted = |mut one: Changes| {
        one.changed.sort_by(|a, b| a.name().cmp(b.name()));
        one.changed.dedup_by(|a, b| a.name() == b.name());
        one.removed.sort();
        one.removed.dedup();
        one.removed.retain(|name| one.changed.iter().all(|resource| resource.name() != name));
        Arc::new(one)
    };
    ViewChange { key: key.clone(), changes: changes.map(|(of_type, one)| (of_type, sorted(one))).collect() }
}

/// The resources of a group for the clients of a view.
fn resources<'g>(
    group: Option<&'g Arc<EffectiveGroup>>,
    key: &ViewKey,
) -> BTreeMap<&'g ResourceKey, &'g Arc<Resource>> {
    let Some(group) = group else { return BTreeMap::new() };
    let generated = group.generated.get(&key.profile).into_iter().flatten();
    generated.chain(&group.resources).collect()
}
