//! The past: what the API owned at a revision, and what one revision changed.

use std::collections::{BTreeMap, BTreeSet};

use xds_api::handle::WriteError;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Revision};
use xds_codec::{Codec, Diagnostic};
use xds_store::{BlobHash, Record, Store};

use super::candidate::{Candidate, warning};
use super::key::StoreKey;
use super::state::{Patch, World};
use super::{history, stored};

/// Builds the candidate that makes the overrides what they were at `to`.
pub(crate) fn rollback(
    codec: &Codec,
    store: &dyn Store,
    world: &World,
    to: Revision,
) -> Result<Candidate, WriteError> {
    let keys = history::state_at(store, to)?;
    let past = stored::read(codec, store, &keys, None).map_err(history::failed)?;
    let mut warnings: Vec<Diagnostic> =
        past.unreadable.values().map(|reason| warning("unreadable-record", "", reason.clone())).collect();
    let names: BTreeSet<&GroupName> =
        world.overrides.groups.keys().chain(past.overrides.groups.keys()).collect();
    let mut patch = Patch::new();
    for name in names {
        let mut group = past.overrides.groups.get(name).cloned();
        if let Some(group) = &mut group {
            drop_definition_of_file(world, name, group, &mut warnings);
        }
        if world.overrides.groups.get(name) != group.as_ref() {
            patch.insert(name.clone(), group);
        }
    }
    warnings.extend(changed_files(&keys, &store.state().1));
    let summary = format!("roll back to revision {to}");
    Ok(Candidate { patch, warnings, source: "rollback", summary, is_whole: true })
}

/// Builds the candidate that undoes revision `of` wherever its value is still the present one.
pub(crate) fn revert(
    codec: &Codec,
    store: &dyn Store,
    world: &World,
    of: Revision,
) -> Result<Candidate, WriteError> {
    let record = history::record(store, of)?;
    let (_, present) = store.state();
    let mut patch = Patch::new();
    let mut warnings = Vec::new();
    let Record { commit, previous, .. } = &record;
    for (change, (_, previous)) in commit.changes.iter().zip(previous) {
        let Some(key) = StoreKey::parse(&change.key) else { continue };
        let Some(name) = key.owned_group() else { continue };
        if present.get(&change.key) != change.value.as_ref() {
            let message = format!("{} was changed again since revision {of} and stays", key.what());
            warnings.push(warning("changed-since", "", message));
            continue;
        }
        let group = patch.entry(name.clone()).or_insert_with(|| Some(world.owned(name)));
        if let Err(reason) = put_back(codec, store, group.get_or_insert_default(), &key, *previous) {
            warnings.push(warning("unreadable-record", "", format!("{} stays: {reason}", key.what())));
        }
    }
    for (name, group) in &mut patch {
        if let Some(group) = group {
            drop_definition_of_file(world, name, group, &mut warnings);
        }
    }
    let summary = format!("revert revision {of}");
    Ok(Candidate { patch, warnings, source: "revert", summary, is_whole: false })
}

/// Gives one key of a group its previous value.
fn put_back(
    codec: &Codec,
    store: &dyn Store,
    group: &mut LayerGroup,
    key: &StoreKey,
    previous: Option<BlobHash>,
) -> Result<(), String> {
    let Some(hash) = previous else {
        match key {
            StoreKey::Group(_) => group.definition = None,
            StoreKey::Label(_) => group.label = None,
            StoreKey::Resource(_, key) => _ = group.resources.remove(key),
            StoreKey::FileGroup(_) | StoreKey::File(..) | StoreKey::FilesHash => {}
        }
        return Ok(());
    };
    let value = store.blob(hash).map_err(|error| error.to_string())?;
    let value = value.ok_or_else(|| "its former content is no longer kept".to_owned())?;
    stored::take_in(codec, group, key, &value)
}

/// A file defines the group by now, and the API cannot (D6).
fn drop_definition_of_file(
    world: &World,
    name: &GroupName,
    group: &mut LayerGroup,
    warnings: &mut Vec<Diagnostic>,
) {
    if let Some(origin) = world.definer(name)
        && group.definition.take().is_some()
    {
        let message = format!("the group {name} is defined by {origin} and stays as it is there");
        warnings.push(warning("owned-by-file", "", message));
    }
}

/// What the files own and say otherwise than they did; a rollback cannot change that.
fn changed_files(past: &BTreeMap<String, BlobHash>, present: &BTreeMap<String, BlobHash>) -> Vec<Diagnostic> {
    let keys: BTreeSet<&String> = past.keys().chain(present.keys()).collect();
    keys.into_iter()
        .filter(|key| past.get(*key) != present.get(*key))
        .filter_map(|key| match StoreKey::parse(key)? {
            key @ (StoreKey::File(..) | StoreKey::FileGroup(_)) => Some(key.what()),
            StoreKey::Group(_) | StoreKey::Label(_) | StoreKey::Resource(..) | StoreKey::FilesHash => None,
        })
        .take(MAX_NAMED)
        .map(|what| {
            let message = format!("{what} is owned by a file, which said otherwise then; it stays as it is");
            warning("owned-by-file", "", message)
        })
        .collect()
}

/// How many objects of files the warnings name.
const MAX_NAMED: usize = 100;
