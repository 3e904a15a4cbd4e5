//! Weights: overrides laid over what documents and RouteConfigurations say, and how they change.
//!
//! [`crate::model::weights`] computes the meaning of overrides, and this module applies them to the state: to documents before their
//! translation, and to RouteConfigurations when groups are merged. No later step knows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;
use xds_cache::layer::Resources;
use xds_cache::time::millis;
use xds_cache::{GroupName, Groups, Resource, ResourceKey, ResourceType};
use xds_codec::{Codec, Diagnostic};
use xds_routes::{Document, DocumentKey, Documents};

use crate::key::{StoreKey, resource_name};
use crate::model::weights::reconcile::{Dropped, next_end};
use crate::model::weights::{Overrides, RuleKey, RuleOverride, WeightedObject, overlays};
use crate::model::{ChangedObject, Event};
use crate::plan::{MAX_DIFFERENCE, Plan};
use crate::warning::warning;

/// New overrides; `None` takes one away.
pub(crate) type WeightPatch = BTreeMap<RuleKey, Option<RuleOverride>>;

/// Overrides with a patch laid over them.
pub(crate) fn patched(overrides: &Overrides, patch: &WeightPatch) -> Overrides {
    let mut overrides = overrides.clone();
    for (key, over) in patch {
        match over {
            Some(over) => _ = overrides.insert(key.clone(), over.clone()),
            None => _ = overrides.remove(key),
        }
    }
    overrides
}

/// Lays the overrides of some objects over documents, which are as they were `written`.
pub(crate) fn lay_documents<'d>(
    documents: &mut Documents,
    objects: BTreeSet<&WeightedObject>,
    overrides: &Overrides,
    written: impl Fn(&DocumentKey) -> Option<&'d Arc<Document>>,
) {
    for object in objects {
        let WeightedObject::Document(key) = object else { continue };
        if let (Some(placed), Some(written)) = (documents.get_mut(key), written(key)) {
            placed.document = xds_routes::weights::lay(written, &overlays(overrides, object));
        }
    }
}

/// The objects that have overrides.
pub(crate) fn objects(overrides: &Overrides) -> BTreeSet<&WeightedObject> {
    overrides.keys().map(|key| &key.object).collect()
}

/// The objects whose overrides differ.
pub(crate) fn changed_objects<'o>(
    before: &'o Overrides,
    after: &'o Overrides,
) -> BTreeSet<&'o WeightedObject> {
    changed(before, after).map(|key| &key.object).collect()
}

/// Lays overrides over the RouteConfigurations of a group.
pub(crate) fn lay_resources(
    codec: &Codec,
    name: &GroupName,
    resources: &mut Resources,
    overrides: &Overrides,
) {
    for object in routes_of(overrides).filter(|object| object.namespace() == name.as_str()) {
        let Some(resource) = resources.get(&routes_key(object.name())) else { continue };
        if let Some(laid) = xds_codec::weights::lay(codec, resource, &overlays(overrides, object)) {
            resources.insert(Arc::new(laid));
        }
    }
}

/// Applies them to all groups.
pub(crate) fn lay_groups(codec: &Codec, groups: &mut Groups, overrides: &Overrides) {
    for name in groups_of(overrides) {
        if let Some(group) = groups.get_mut(name) {
            lay_resources(codec, name, &mut Arc::make_mut(group).resources, overrides);
        }
    }
}

/// The groups whose RouteConfigurations have overrides.
pub(crate) fn groups_of(overrides: &Overrides) -> BTreeSet<&GroupName> {
    let mut groups = BTreeSet::new();
    for key in overrides.keys() {
        if let WeightedObject::Routes(group, _) = &key.object {
            groups.insert(group);
        }
    }
    groups
}

/// The RouteConfigurations that have overrides, each once.
fn routes_of(overrides: &Overrides) -> impl Iterator<Item = &WeightedObject> {
    objects(overrides).into_iter().filter(|object| matches!(object, WeightedObject::Routes(..)))
}

/// The key of a RouteConfiguration.
pub(crate) fn routes_key(name: &str) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.into() }
}

/// The objects whose overrides only time changes, because a wave deployment holds what they were.
pub(crate) type Resting = BTreeSet<WeightedObject>;

/// The plan that turns one set of overrides into another.
pub(crate) fn plan(before: &Overrides, after: &Overrides) -> Plan {
    let changed = changed(before, after);
    changed.map(|key| (StoreKey::Weights(key.clone()), after.get(key).map(record))).collect()
}

fn changed<'o>(before: &'o Overrides, after: &'o Overrides) -> impl Iterator<Item = &'o RuleKey> {
    let keys: BTreeSet<&RuleKey> = before.keys().chain(after.keys()).collect();
    keys.into_iter().filter(|key| before.get(*key) != after.get(*key))
}

/// Adds what differs: the overrides, and the RouteConfigurations under them.
pub(crate) fn difference(
    codec: &Codec,
    (before, after): (&Overrides, &Overrides),
    (old, new): (&Groups, &Groups),
    changed_objects: &mut Vec<ChangedObject>,
) {
    let mut routes = BTreeSet::new();
    for key in changed(before, after) {
        if changed_objects.len() >= MAX_DIFFERENCE {
            return;
        }
        let json = |over: &RuleOverride| serde_json::to_value(over).unwrap_or(Value::Null);
        changed_objects.push(ChangedObject::new(key.what(), (before.get(key), after.get(key)), json));
        if let WeightedObject::Routes(group, name) = &key.object {
            routes.insert((group, name));
        }
    }
    for (group, name) in routes {
        let key = routes_key(name);
        let what = resource_name(group, &key);
        let of = |groups: &Groups| groups.get(group).and_then(|group| group.resources.get(&key)).cloned();
        let (old, new) = (of(old), of(new));
        if old != new && changed_objects.iter().all(|one| one.what != what) {
            let json = |resource: Arc<Resource>| codec.to_json(&resource);
            changed_objects.push(ChangedObject::new(what, (old, new), json));
        }
    }
}

/// An override as it is stored.
pub(crate) fn record(over: &RuleOverride) -> Bytes {
    // Texts and numbers always have a JSON form.
    serde_json::to_vec(over).unwrap_or_default().into()
}

/// Reads what [`record`] wrote.
///
/// # Errors
///
/// Says why it cannot be read.
pub(crate) fn read_record(value: &[u8]) -> Result<RuleOverride, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// The overrides that were dropped, as warnings of the write that caused it.
pub(crate) fn warnings(dropped: &[Dropped]) -> Vec<Diagnostic> {
    let text = |one: &Dropped| match &one.backend {
        Some(backend) => format!("the override for {backend} in {} is dropped: {}", one.key, one.reason),
        None => format!("the override of {} is dropped: {}", one.key, one.reason),
    };
    dropped.iter().map(|one| warning("override-dropped", "", text(one))).collect()
}

/// The events of what was dropped.
pub(crate) fn events(dropped: &[Dropped]) -> impl Iterator<Item = Event> {
    dropped.iter().map(|one| Event::OverrideDropped {
        what: one.key.what(),
        reason: match &one.backend {
            Some(backend) => format!("{backend}: {}", one.reason),
            None => one.reason.to_owned(),
        },
    })
}

/// Returns `true` if something has ended by now.
pub(crate) fn is_due(overrides: &Overrides, now: SystemTime) -> bool {
    next_end(overrides).is_some_and(|end| end <= millis(now))
}
