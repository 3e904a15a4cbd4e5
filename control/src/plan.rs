//! Plans: the records to store and the changes to report for a change of the overrides.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Layer, Resource};
use xds_codec::Codec;

use crate::differing::differing;
use crate::key::{StoreKey, resource_name};
use crate::model::ChangedObject;
use crate::model::group;
use crate::resource_record;

/// New contents of some groups of a layer; `None` removes the group.
pub(crate) type Patch = BTreeMap<GroupName, Option<LayerGroup>>;

/// New values by key; `None` deletes. Only what differs, each key once.
pub(crate) type Plan = Vec<(StoreKey, Option<Bytes>)>;

/// The plan for the store that lays `patch` over `overrides`.
pub(crate) fn plan(overrides: &Layer, patch: &Patch) -> Plan {
    let nothing = LayerGroup::default();
    let mut plan = Plan::new();
    for (name, after) in patch {
        let before = overrides.groups.get(name).unwrap_or(&nothing);
        let after = after.as_ref().unwrap_or(&nothing);
        if before.definition != after.definition {
            let value =
                after.definition.as_ref().map(|definition| group::to_json(definition).to_string().into());
            plan.push((StoreKey::Group(name.clone()), value));
        }
        if before.label != after.label {
            let value = after.label.as_ref().map(|label| Bytes::copy_from_slice(label.as_bytes()));
            plan.push((StoreKey::Label(name.clone()), value));
        }
        for (key, resource) in &after.resources {
            if before.resources.get(key) != Some(resource) {
                plan.push((
                    StoreKey::Resource(name.clone(), (**key).clone()),
                    Some(resource_record::write(resource)),
                ));
            }
        }
        for key in before.resources.keys().filter(|key| !after.resources.contains_key(*key)) {
            plan.push((StoreKey::Resource(name.clone(), (**key).clone()), None));
        }
    }
    plan
}

/// The differences between two contents of groups, as JSON without secrets: at most [`MAX_DIFFERENCE`] objects.
pub(crate) fn difference<'a>(
    codec: &Codec,
    groups: impl Iterator<Item = (&'a GroupName, Option<&'a LayerGroup>, Option<&'a LayerGroup>)>,
) -> Vec<ChangedObject> {
    let nothing = LayerGroup::default();
    let mut changed = Vec::new();
    for (name, before, after) in groups {
        let (before, after) = (before.unwrap_or(&nothing), after.unwrap_or(&nothing));
        if before.definition != after.definition {
            let definitions = (before.definition.as_ref(), after.definition.as_ref());
            changed.push(ChangedObject::new(format!("group/{name}"), definitions, group::to_json));
        }
        if before.label != after.label {
            let labels = (before.label.as_deref(), after.label.as_deref());
            changed.push(ChangedObject::new(format!("label/{name}"), labels, Value::from));
        }
        for (key, old, new) in differing(&before.resources, &after.resources) {
            if old.zip(new).is_some_and(|(old, new)| old.says_the_same(new)) {
                continue;
            }
            if changed.len() >= MAX_DIFFERENCE {
                return changed;
            }
            let json = |resource: &Arc<Resource>| codec.to_json(resource);
            changed.push(ChangedObject::new(resource_name(name, key), (old, new), json));
        }
    }
    changed
}

/// Nobody reads more, and a change of everything must not hold twice the memory of everything.
pub(crate) const MAX_DIFFERENCE: usize = 1_000;
