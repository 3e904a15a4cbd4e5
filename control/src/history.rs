//! The history as people read it: what each revision changed, as JSON without secrets.

use std::sync::Arc;

use serde_json::Value;
use xds_cache::Revision;
use xds_cache::time::from_millis;
use xds_codec::Codec;
use xds_rollout::RolloutStatus;
use xds_store::{BlobHash, HistoryError, Record, State, Store, StoreError};

use crate::differing::differing;
use crate::env::{revision_of, stored_revision};
use crate::key::StoreKey;
use crate::model::document;
use crate::model::{ChangeKind, ChangedObject, HistoryEntry, WriteError};
use crate::plan::MAX_DIFFERENCE;
use crate::{resource_record, rollouts, stored_files};

/// At most `limit` revisions below `before`, newest first.
pub(crate) fn entries(
    store: &dyn Store,
    before: Option<Revision>,
    limit: usize,
) -> Result<Vec<HistoryEntry>, WriteError> {
    let records = store.history(before.map(stored_revision), limit).map_err(failed)?;
    Ok(records.iter().map(to_entry).collect())
}

/// A revision with its changes of objects for whose texts `wants` is `true`.
pub(crate) fn entry(
    codec: &Codec,
    store: &dyn Store,
    revision: Revision,
    wants: impl Fn(&str) -> bool,
) -> Result<(HistoryEntry, Vec<ChangedObject>), WriteError> {
    let record = record(store, revision)?;
    let before = record.previous.iter().filter_map(|(key, hash)| Some((key.clone(), (*hash)?))).collect();
    let changes = record.commit.changes.iter();
    let after = changes.filter_map(|change| Some((change.key.clone(), change.value?))).collect();
    Ok((to_entry(&record), compare(codec, store, (&before, &after), wants)?))
}

/// The differences between the states after two revisions, of objects for whose texts `wants` is `true`.
pub(crate) fn difference(
    codec: &Codec,
    store: &dyn Store,
    (from, to): (Revision, Revision),
    wants: impl Fn(&str) -> bool,
) -> Result<Vec<ChangedObject>, WriteError> {
    compare(codec, store, (&state_at(store, from)?, &state_at(store, to)?), wants)
}

/// The state after a revision.
pub(crate) fn state_at(store: &dyn Store, revision: Revision) -> Result<State, WriteError> {
    store.state_at(stored_revision(revision)).map_err(|error| match error {
        HistoryError::Compacted { oldest } => {
            WriteError::Compacted { wanted: revision, oldest: revision_of(oldest) }
        }
        HistoryError::Store(error) => failed(error),
        HistoryError::Future { .. } => not_found(revision),
    })
}

/// The entry of a key.
pub(crate) fn record(store: &dyn Store, revision: Revision) -> Result<Record, WriteError> {
    if let Some(record) = store.record(stored_revision(revision)).map_err(failed)? {
        return Ok(record);
    }
    // Either it never was, or it is no longer kept; the state of what is no longer kept says so.
    match state_at(store, revision) {
        Err(error) => Err(error),
        Ok(_) => Err(not_found(revision)),
    }
}

pub(crate) fn failed(error: StoreError) -> WriteError {
    WriteError::History(Arc::new(error))
}

fn not_found(revision: Revision) -> WriteError {
    WriteError::NotFound { what: format!("revision {revision}") }
}

fn to_entry(record: &Record) -> HistoryEntry {
    let changes = record.commit.changes.iter().zip(&record.previous).filter_map(|(change, (_, before))| {
        let kind = match (before, change.value) {
            (_, None) => ChangeKind::Removed,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), Some(_)) => ChangeKind::Changed,
        };
        match StoreKey::parse(&change.key) {
            Some(key) if key.is_internal() => None,
            Some(key) => Some((key.what(), kind)),
            None => Some((change.key.clone(), kind)),
        }
    });
    HistoryEntry {
        revision: revision_of(record.revision),
        actor: record.commit.actor.clone(),
        at: from_millis(record.commit.at_ms),
        source: record.commit.source.clone(),
        summary: record.commit.summary.clone(),
        changes: changes.collect(),
    }
}

fn compare(
    codec: &Codec,
    store: &dyn Store,
    (before, after): (&State, &State),
    wants: impl Fn(&str) -> bool,
) -> Result<Vec<ChangedObject>, WriteError> {
    let mut changed = Vec::new();
    for (text, old, new) in differing(before, after) {
        let (old, new) = (old.copied(), new.copied());
        let Some(key) = StoreKey::parse(text).filter(|key| !key.is_internal()) else { continue };
        let what = key.what();
        if !wants(&what) {
            continue;
        }
        if changed.len() >= MAX_DIFFERENCE {
            break;
        }
        let show = |hash: Option<BlobHash>| hash.map(|hash| show(codec, store, &key, hash)).transpose();
        changed.push(ChangedObject::new(what, (show(old)?, show(new)?), |shown| shown));
    }
    Ok(changed)
}

/// A stored value as JSON; secrets are left out, and what cannot be read is a text that says so.
fn show(codec: &Codec, store: &dyn Store, key: &StoreKey, hash: BlobHash) -> Result<Value, WriteError> {
    let Some(value) = store.blob(hash).map_err(failed)? else {
        return Ok(Value::from("(its content is no longer kept)"));
    };
    let shown = match key {
        StoreKey::Resource(..) => resource_record::read(&value).ok().map(|resource| codec.to_json(&resource)),
        StoreKey::Document(key) => serde_json::from_slice::<Value>(&value)
            .ok()
            .and_then(|record| Some(document::redact(key.kind, record.get("source")?))),
        StoreKey::File(..) | StoreKey::FileDocument(_) => stored_files::shown_content(codec, key, &value),
        StoreKey::Group(_)
        | StoreKey::FileGroup(_)
        | StoreKey::FilePath(_)
        | StoreKey::FileSets
        | StoreKey::Request(..)
        | StoreKey::DocumentStatus(_)
        | StoreKey::Weights(_) => serde_json::from_slice(&value).ok(),
        StoreKey::Wave | StoreKey::EndedWave(_) | StoreKey::Previous(_) => None,
        StoreKey::Rollout(id) => rollouts::read_record(id, &value)
            .ok()
            .and_then(|record| serde_json::to_value(RolloutStatus::from(&record.rollout)).ok()),
        StoreKey::Label(_) | StoreKey::FilesHash => std::str::from_utf8(&value).ok().map(Value::from),
    };
    Ok(shown.unwrap_or_else(|| Value::from("(it cannot be read)")))
}
