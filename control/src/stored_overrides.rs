//! The API's part in the store: read at the start, after a conflict, and for a rollback.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Layer};
use xds_codec::{Codec, Diagnostic};
use xds_routes::DocumentKey;
use xds_store::{BlobHash, State, Store, StoreError};

use crate::key::{StoreKey, Subject};
use crate::model::document::{GroupedDocument, GroupedDocuments};
use crate::model::rollouts::RolloutRecords;
use crate::model::weights::Overrides;
use crate::{documents, resource_record, rollouts, weights};

/// The API's part of a state of the store.
#[derive(Debug, Default)]
pub(crate) struct StoredOverrides {
    /// The part that could be read.
    pub(crate) overrides: Layer,
    /// The documents among that.
    pub(crate) documents: GroupedDocuments,
    /// The overrides of weights among that.
    pub(crate) weights: Overrides,
    /// The rollouts.
    pub(crate) rollouts: RolloutRecords,
    /// The records that could not be read: why, by key.
    pub(crate) unreadable: BTreeMap<String, String>,
}

/// Reads the API's part of a state.
///
/// If a part of a group cannot be read, the group is that of `last_good`, or else the rest of it. A document that cannot be read is
/// that of `last_good`, or else its [stand-in](xds_routes::stand_in).
///
/// # Errors
///
/// If the store itself fails.
pub(crate) fn read(
    codec: &Codec,
    store: &dyn Store,
    keys: &State,
    last_good: Option<(&Layer, &GroupedDocuments)>,
) -> Result<StoredOverrides, StoreError> {
    let mut stored = StoredOverrides::default();
    let mut damaged: BTreeSet<GroupName> = BTreeSet::new();
    for (text, hash) in keys {
        let Some(key) = StoreKey::parse(text) else {
            stored.unreadable.insert(text.to_string(), format!("the stored key {text:?} is not understood"));
            continue;
        };
        if let StoreKey::Document(key) = &key {
            // A document that is known already keeps its lines, and is not read again.
            let known = last_good.and_then(|(_, documents)| documents.get(key));
            let read = match known.filter(|known| BlobHash::of(&documents::record(known)) == *hash) {
                Some(known) => Ok(known.clone()),
                None => read_document(store, key, *hash)?,
            };
            match (read, known) {
                (Ok(document), _) => _ = stored.documents.insert(key.clone(), document),
                (Err(reason), known) => {
                    let message = format!("the stored {key} cannot be read: {reason}");
                    stored.unreadable.insert(text.to_string(), message);
                    let stand_in = || documents::stand_in_of_record(key, &store.blob(*hash).ok()??);
                    let document = known.cloned().or_else(stand_in);
                    stored.documents.extend(document.map(|document| (key.clone(), document)));
                }
            }
            continue;
        }
        if let StoreKey::Weights(rule) = &key {
            let read = store.blob(*hash)?.ok_or_else(|| "its content is missing".to_owned());
            match read.and_then(|value| weights::read_record(&value)) {
                Ok(over) => _ = stored.weights.insert(rule.clone(), over),
                Err(reason) => {
                    let message = format!("the stored override of {rule} cannot be read: {reason}");
                    stored.unreadable.insert(text.to_string(), message);
                }
            }
            continue;
        }
        if let StoreKey::Rollout(id) = &key {
            let read = store.blob(*hash)?.ok_or_else(|| "its content is missing".to_owned());
            match read.and_then(|value| rollouts::read_record(id, &value)) {
                Ok(rollout) => _ = stored.rollouts.insert(id.clone(), rollout),
                Err(reason) => {
                    let message = format!("the stored rollout {id} cannot be read: {reason}");
                    stored.unreadable.insert(text.to_string(), message);
                }
            }
            continue;
        }
        let Some(group) = key.owned_group().cloned() else { continue };
        let value = store.blob(*hash)?;
        let read = match value {
            Some(value) => {
                take_in(codec, stored.overrides.groups.entry(group.clone()).or_default(), &key, &value)
            }
            None => Err("its content is missing".to_owned()),
        };
        if let Err(reason) = read {
            let message = format!("the stored {} cannot be read: {reason}", key.what());
            stored.unreadable.insert(text.to_string(), message);
            damaged.insert(group);
        }
    }
    for group in damaged {
        if let Some(good) = last_good.and_then(|(layer, _)| layer.groups.get(&group)) {
            stored.overrides.groups.insert(group, good.clone());
        }
    }
    let groups = std::mem::take(&mut stored.overrides.groups);
    stored.overrides.groups = groups.into_iter().filter(|(_, group)| !is_empty(group)).collect();
    Ok(stored)
}

fn read_document(
    store: &dyn Store,
    key: &DocumentKey,
    hash: BlobHash,
) -> Result<Result<GroupedDocument, String>, StoreError> {
    let value = store.blob(hash)?;
    Ok(match value {
        Some(value) => documents::read_record(key, &value),
        None => Err("its content is missing".to_owned()),
    })
}

/// Returns `true` if the API says nothing of a group.
pub(crate) fn is_empty(group: &LayerGroup) -> bool {
    group.definition.is_none() && group.label.is_none() && group.resources.is_empty()
}

/// Makes one stored value part of what the API says of a group.
///
/// # Errors
///
/// Says why the value cannot be read.
pub(crate) fn take_in(
    codec: &Codec,
    group: &mut LayerGroup,
    key: &StoreKey,
    value: &Bytes,
) -> Result<(), String> {
    match key.subject() {
        Subject::Group(name) => {
            let body = serde_json::from_slice(value).map_err(|error| error.to_string())?;
            let faults = |faults: Vec<Diagnostic>| {
                faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            };
            let definition = codec.node_group_from_json(&body).map_err(faults)?;
            if definition.name != *name {
                return Err(format!("it contains the group {}", definition.name));
            }
            group.definition = Some(definition);
        }
        Subject::Label(_) => {
            let label = std::str::from_utf8(value).map_err(|error| error.to_string())?;
            group.label = Some(label.into());
        }
        Subject::Resource(_, resource_key) => {
            let resource = resource_record::read(value).map_err(|error| error.to_string())?;
            if resource.key() != resource_key {
                return Err(format!("it holds {}", resource.key()));
            }
            group.resources.insert(Arc::new(resource));
        }
        Subject::Document(_) | Subject::Weights(_) | Subject::Other => {}
    }
    Ok(())
}
