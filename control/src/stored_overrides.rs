//! The API's part in the store: read at the start, after a conflict, and for a rollback.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Layer};
use xds_codec::{Codec, Diagnostic};
use xds_routes::DocumentKey;
use xds_store::{BlobHash, State, Store, StoreError};

use crate::key::{self, StoreKey, Subject};
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

/// What is known of the API's part already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'k> {
    pub(crate) overrides: &'k Layer,
    pub(crate) documents: &'k GroupedDocuments,
    pub(crate) weights: &'k Overrides,
    pub(crate) rollouts: &'k RolloutRecords,
    /// Why records could not be read, by key.
    pub(crate) unreadable: &'k BTreeMap<String, String>,
}

/// Reads the API's part of a state.
///
/// If a part of a group cannot be read, the group is the known one, or else the rest of it. A document that cannot be read is
/// the known one, or else its [stand-in](xds_routes::stand_in).
///
/// # Errors
///
/// If the store itself fails.
pub(crate) fn read(
    codec: &Codec,
    store: &dyn Store,
    keys: &State,
    known: Option<Known<'_>>,
) -> Result<StoredOverrides, StoreError> {
    let mut stored = StoredOverrides::default();
    let mut damaged: BTreeSet<GroupName> = BTreeSet::new();
    for (text, hash) in keys {
        damaged.extend(stored.take_in(codec, store, (text, *hash), known)?);
    }
    for group in damaged {
        stored.keep_group(&group, known);
    }
    let groups = std::mem::take(&mut stored.overrides.groups);
    stored.overrides.groups = groups.into_iter().filter(|(_, group)| !is_empty(group)).collect();
    Ok(stored)
}

/// Reads what differs from the known part: the values of the keys that changed. The result is that of [`read`].
///
/// # Errors
///
/// If the store itself fails.
pub(crate) fn read_changed(
    codec: &Codec,
    store: &dyn Store,
    keys: &State,
    known: Known<'_>,
    changed: &BTreeSet<String>,
) -> Result<StoredOverrides, StoreError> {
    let mut stored = StoredOverrides {
        overrides: known.overrides.clone(),
        documents: known.documents.clone(),
        weights: known.weights.clone(),
        rollouts: known.rollouts.clone(),
        unreadable: known.unreadable.clone(),
    };
    let mut groups: BTreeSet<GroupName> = BTreeSet::new();
    for text in changed {
        stored.unreadable.remove(text);
        let key = StoreKey::parse(text);
        match &key {
            Some(StoreKey::Document(key)) => _ = stored.documents.remove(key),
            Some(StoreKey::Weights(key)) => _ = stored.weights.remove(key),
            Some(StoreKey::Rollout(id)) => _ = stored.rollouts.remove(id),
            Some(key) => {
                if let Some(name) = key.owned_group() {
                    groups.insert(name.clone());
                    stored.take_out(name, key);
                }
            }
            None => {}
        }
        if let Some(hash) = keys.get(&**text) {
            stored.take_in(codec, store, (text, *hash), Some(known))?;
        }
    }
    let group_of = |text: &String| StoreKey::parse(text)?.owned_group().cloned();
    let unreadable = known.unreadable.keys().chain(stored.unreadable.keys()).filter_map(group_of);
    let in_doubt: BTreeSet<GroupName> = unreadable.filter(|name| groups.contains(name)).collect();
    for name in in_doubt {
        // Either it was kept as it was for a record that can be read now, or it is to be kept for one that cannot be read any more.
        stored.overrides.groups.remove(&name);
        stored.unreadable.retain(|text, _| group_of(text).as_ref() != Some(&name));
        let mut is_damaged = false;
        for (text, hash) in key::of_group(keys, &name) {
            is_damaged |= stored.take_in(codec, store, (text, *hash), Some(known))?.is_some();
        }
        if is_damaged {
            stored.keep_group(&name, Some(known));
        }
    }
    for name in groups {
        if stored.overrides.groups.get(&name).is_some_and(is_empty) {
            stored.overrides.groups.remove(&name);
        }
    }
    Ok(stored)
}

impl StoredOverrides {
    /// Reads one value; gives the group of which it is a part that cannot be read.
    fn take_in(
        &mut self,
        codec: &Codec,
        store: &dyn Store,
        (text, hash): (&str, BlobHash),
        known: Option<Known<'_>>,
    ) -> Result<Option<GroupName>, StoreError> {
        let Some(key) = StoreKey::parse(text) else {
            self.unreadable.insert(text.to_owned(), format!("the stored key {text:?} is not understood"));
            return Ok(None);
        };
        let (what, damaged, read) = match &key {
            StoreKey::Document(key) => {
                // What is known already is not read again; so a document keeps its lines.
                let known = known.and_then(|known| known.documents.get(key));
                let read = match known.filter(|known| BlobHash::of(&documents::record(known)) == hash) {
                    Some(known) => Ok(known.clone()),
                    None => read_document(store, key, hash)?,
                };
                let read = read.inspect_err(|_| {
                    let stand_in = || documents::stand_in_of_record(key, &store.blob(hash).ok()??);
                    let document = known.cloned().or_else(stand_in);
                    self.documents.extend(document.map(|document| (key.clone(), document)));
                });
                let read = read.map(|document| _ = self.documents.insert(key.clone(), document));
                (key.to_string(), None, read)
            }
            StoreKey::Weights(rule) => {
                let read = value(store, hash)?.and_then(|value| weights::read_record(&value));
                let read = read.map(|over| _ = self.weights.insert(rule.clone(), over));
                (format!("override of {rule}"), None, read)
            }
            StoreKey::Rollout(id) => {
                let known = known.and_then(|known| known.rollouts.get(id));
                let read = match known.filter(|known| BlobHash::of(&rollouts::write_record(known)) == hash) {
                    Some(known) => Ok(Arc::clone(known)),
                    None => value(store, hash)?.and_then(|value| rollouts::read_record(id, &value)),
                };
                let read = read.map(|rollout| _ = self.rollouts.insert(id.clone(), rollout));
                (format!("rollout {id}"), None, read)
            }
            StoreKey::Group(name) | StoreKey::Label(name) | StoreKey::Resource(name, _) => {
                let group = self.overrides.groups.entry(name.clone()).or_default();
                let read = value(store, hash)?.and_then(|value| take_in(codec, group, &key, &value));
                (key.what(), Some(name.clone()), read)
            }
            StoreKey::FileGroup(_)
            | StoreKey::File(..)
            | StoreKey::FileDocument(_)
            | StoreKey::FilePath(_)
            | StoreKey::DocumentStatus(_)
            | StoreKey::FilesHash
            | StoreKey::FileSets
            | StoreKey::Request(..)
            | StoreKey::Wave
            | StoreKey::EndedWave(_)
            | StoreKey::Previous(_) => return Ok(None),
        };
        let Err(reason) = read else { return Ok(None) };
        self.unreadable.insert(text.to_owned(), format!("the stored {what} cannot be read: {reason}"));
        Ok(damaged)
    }

    /// Takes a part out of a group.
    fn take_out(&mut self, name: &GroupName, key: &StoreKey) {
        let Some(group) = self.overrides.groups.get_mut(name) else { return };
        match key.subject() {
            Subject::Group(_) => group.definition = None,
            Subject::Label(_) => group.label = None,
            Subject::Resource(_, key) => _ = group.resources.remove(key),
            Subject::Document(_) | Subject::Weights(_) | Subject::Other => {}
        }
    }

    /// Keeps a group as it is known, because a part of it cannot be read.
    fn keep_group(&mut self, name: &GroupName, known: Option<Known<'_>>) {
        if let Some(good) = known.and_then(|known| known.overrides.groups.get(name)) {
            self.overrides.groups.insert(name.clone(), good.clone());
        }
    }
}

fn value(store: &dyn Store, hash: BlobHash) -> Result<Result<Bytes, String>, StoreError> {
    Ok(store.blob(hash)?.ok_or_else(|| "its content is missing".to_owned()))
}

fn read_document(
    store: &dyn Store,
    key: &DocumentKey,
    hash: BlobHash,
) -> Result<Result<GroupedDocument, String>, StoreError> {
    Ok(value(store, hash)?.and_then(|value| documents::read_record(key, &value)))
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
