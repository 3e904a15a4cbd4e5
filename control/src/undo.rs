//! Undoing: candidates that make the overrides what they were at a revision, or take back what one revision changed.

use std::collections::BTreeSet;

use bytes::Bytes;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Revision};
use xds_codec::{Codec, Diagnostic};
use xds_routes::DocumentKey;
use xds_store::{BlobHash, Record, State, Store};

use crate::accepted::Accepted;
use crate::candidate::Candidate;
use crate::differing::differing;
use crate::documents::DocumentPatch;
use crate::key::{StoreKey, Subject};
use crate::model::document::GroupedDocument;
use crate::model::weights::RuleOverride;
use crate::model::{ChangeSource, WriteError};
use crate::plan::Patch;
use crate::rollouts::spare_owned;
use crate::warning::warning;
use crate::weights::WeightPatch;
use crate::{documents, history, stored_overrides, weights};

/// Builds the candidate that makes the overrides what they were at `to`.
pub(crate) fn rollback(
    codec: &Codec,
    store: &dyn Store,
    accepted: &Accepted,
    to: Revision,
) -> Result<Candidate, WriteError> {
    let keys = history::state_at(store, to)?;
    let past = stored_overrides::read(codec, store, &keys, None).map_err(history::failed)?;
    let mut warnings: Vec<Diagnostic> =
        past.unreadable.values().map(|reason| warning("unreadable-record", "", reason.clone())).collect();
    let names: BTreeSet<&GroupName> =
        accepted.overrides.groups.keys().chain(past.overrides.groups.keys()).collect();
    let mut patch = Patch::new();
    for name in names {
        let mut group = past.overrides.groups.get(name).cloned();
        if let Some(group) = &mut group {
            drop_definition_of_file(accepted, name, group, &mut warnings);
        }
        if accepted.overrides.groups.get(name) != group.as_ref() {
            patch.insert(name.clone(), group);
        }
    }
    let mut documents = DocumentPatch::new();
    let keys_of_documents: BTreeSet<&DocumentKey> =
        accepted.documents.owned.keys().chain(past.documents.keys()).collect();
    for key in keys_of_documents {
        let (present, past) = (accepted.documents.owned.get(key), past.documents.get(key));
        if !present.zip(past).is_some_and(|(present, past)| present.says_the_same(past)) {
            documents.insert(key.clone(), past.cloned());
        }
    }
    let (before, after) = (&*accepted.documents.weights, &past.weights);
    let mut weights = WeightPatch::new();
    for key in before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key)) {
        weights.insert(key.clone(), after.get(key).cloned());
    }
    spare_owned(&accepted.rollouts, &mut weights, &mut warnings);
    warnings.extend(changed_files(&keys, &store.state().1));
    let summary = format!("roll back to revision {to}");
    let candidate = Candidate { patch, documents, weights, warnings, summary, ..Candidate::default() };
    Ok(Candidate { source: ChangeSource::Rollback, is_whole: true, ..candidate })
}

/// Builds the candidate that undoes revision `of` wherever its value is still the present one.
pub(crate) fn revert(
    codec: &Codec,
    store: &dyn Store,
    accepted: &Accepted,
    of: Revision,
) -> Result<Candidate, WriteError> {
    let record = history::record(store, of)?;
    let (_, present) = store.state();
    let (mut patch, mut documents) = (Patch::new(), DocumentPatch::new());
    let (mut weights, mut warnings) = (WeightPatch::new(), Vec::new());
    let Record { commit, previous, .. } = &record;
    for (change, (_, previous)) in commit.changes.iter().zip(previous) {
        let Some(key) = StoreKey::parse(&change.key) else { continue };
        if key.owned_group().is_none() && !matches!(key, StoreKey::Document(_) | StoreKey::Weights(_)) {
            continue;
        }
        if present.get(&*change.key) != change.value.as_ref() {
            let message = format!("{} was changed again after revision {of} and stays as it is", key.what());
            warnings.push(warning("changed-since", "", message));
            continue;
        }
        let done = match (&key, key.owned_group()) {
            (StoreKey::Document(key), _) => {
                document_at(store, key, *previous).map(|document| _ = documents.insert(key.clone(), document))
            }
            (StoreKey::Weights(key), _) => {
                override_at(store, *previous).map(|over| _ = weights.insert(key.clone(), over))
            }
            (key, Some(name)) => {
                let group = patch.entry(name.clone()).or_insert_with(|| Some(accepted.owned(name)));
                put_back(codec, store, group.get_or_insert_default(), key, *previous)
            }
            (_, None) => Ok(()),
        };
        if let Err(reason) = done {
            warnings.push(warning("unreadable-record", "", format!("{} stays: {reason}", key.what())));
        }
    }
    for (name, group) in &mut patch {
        if let Some(group) = group {
            drop_definition_of_file(accepted, name, group, &mut warnings);
        }
    }
    spare_owned(&accepted.rollouts, &mut weights, &mut warnings);
    let summary = format!("revert revision {of}");
    let candidate = Candidate { patch, documents, weights, warnings, summary, ..Candidate::default() };
    Ok(Candidate { source: ChangeSource::Revert, ..candidate })
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
        match key.subject() {
            Subject::Group(_) => group.definition = None,
            Subject::Label(_) => group.label = None,
            Subject::Resource(_, key) => _ = group.resources.remove(key),
            Subject::Document(_) | Subject::Weights(_) | Subject::Other => {}
        }
        return Ok(());
    };
    stored_overrides::take_in(codec, group, key, &former(store, hash)?)
}

/// The previous value of a document; `None` if there was none.
fn document_at(
    store: &dyn Store,
    key: &DocumentKey,
    previous: Option<BlobHash>,
) -> Result<Option<GroupedDocument>, String> {
    let Some(hash) = previous else { return Ok(None) };
    documents::read_record(key, &former(store, hash)?).map(Some)
}

/// The previous override of a rule's weights; `None` if there was none.
fn override_at(store: &dyn Store, previous: Option<BlobHash>) -> Result<Option<RuleOverride>, String> {
    let Some(hash) = previous else { return Ok(None) };
    weights::read_record(&former(store, hash)?).map(Some)
}

fn former(store: &dyn Store, hash: BlobHash) -> Result<Bytes, String> {
    let value = store.blob(hash).map_err(|error| error.to_string())?;
    value.ok_or_else(|| "its earlier content is no longer kept".to_owned())
}

/// A file defines the group by now, and the API cannot (D6).
fn drop_definition_of_file(
    accepted: &Accepted,
    name: &GroupName,
    group: &mut LayerGroup,
    warnings: &mut Vec<Diagnostic>,
) {
    if let Some(origin) = accepted.definer(name)
        && group.definition.take().is_some()
    {
        let message = format!("the group {name} is defined by {origin} and stays as it is");
        warnings.push(warning("owned-by-file", "", message));
    }
}

/// The objects of the files that have changed since; a rollback cannot change those.
fn changed_files(past: &State, present: &State) -> Vec<Diagnostic> {
    differing(past, present)
        .filter_map(|(key, _, _)| StoreKey::parse(key).filter(StoreKey::is_of_file))
        .map(|key| key.what())
        .take(MAX_NAMED)
        .map(|what| {
            let message =
                format!("{what} belongs to a file, which had different contents then; it stays as it is");
            warning("owned-by-file", "", message)
        })
        .collect()
}

/// How many objects of files the warnings name.
const MAX_NAMED: usize = 100;
