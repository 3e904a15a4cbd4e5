//! What the files said when they were recorded last. At the start, what they say otherwise is a change like any other, which may
//! go by waves.

use std::sync::Arc;

use xds_cache::{Layer, Resource};
use xds_store::{State, StoreError};

use crate::accepted::{Accepted, Base};
use crate::contents::{has_contents, version_of_content};
use crate::documents::{Said, Terms};
use crate::env::Env;
use crate::key::{CONTENTS, FILES_HASH, StoreKey, keys_below};
use crate::model::WriteError;
use crate::model::document::{DocumentState, GroupedDocument, GroupedDocuments, content_hash};
use crate::plan::Patch;
use crate::{documents, record, stored};

/// What was accepted before the first load, with the files as they were recorded last; `keys` are all that is stored.
/// `copies` is what the files gave when their last good copies were saved: the store has no secrets of files, so what these were is
/// taken from there, as far as it is what the store recorded.
///
/// `None` if no change of theirs can go by waves, or if nothing was ever recorded, or
/// [not all of it](xds_store::CommitError::TooLarge): then the load reaches everyone at once. So does an object with secrets of
/// which there is no copy.
pub(crate) fn recorded(
    env: &Env,
    accepted: &Accepted,
    (after, copies): (&Base, Option<&Base>),
    keys: &State,
    terms: Terms<'_>,
) -> Result<Option<Accepted>, WriteError> {
    let has_policy = |layer: &Layer| {
        let mut definitions = layer.groups.values().filter_map(|group| group.definition.as_ref());
        definitions.any(|definition| definition.waves.is_some())
    };
    let is_possible = env.options.waves.is_some()
        || accepted.wave.is_some()
        || [&*after.layer, &*accepted.overrides].into_iter().any(has_policy);
    if !is_possible {
        return Ok(None);
    }
    let read = read_recorded(env, keys, copies, after);
    let before = read.unwrap_or_else(|error| {
        tracing::warn!(%error, "what the files said last cannot be read; what changed reaches everyone");
        None
    });
    let Some(before) = before else { return Ok(None) };
    let DocumentState { owned, weights, .. } = accepted.documents.clone();
    let said = Said { files: before.documents, owned, weights };
    let documents = documents::next(&accepted.documents, said, terms)?;
    let groups = accepted.rebased(&env.parts.codec, &before.layer, &Patch::new(), &documents);
    Ok(Some(Accepted { base: before.layer, documents, groups, ..accepted.clone() }))
}

/// Reads what the files said; of what cannot be told, what `after` says now.
fn read_recorded(
    env: &Env,
    keys: &State,
    recalled: Option<&Base>,
    after: &Base,
) -> Result<Option<Base>, StoreError> {
    let store = &*env.parts.store;
    if !keys.contains_key(FILES_HASH) || !has_contents(store, keys) {
        return Ok(None);
    }
    let (mut layer, mut found_documents) = (Layer::default(), GroupedDocuments::new());
    for (text, key) in CONTENTS.into_iter().flat_map(|prefix| keys_below(keys, prefix)) {
        let Some(hash) = keys.get(text) else { continue };
        let value = store.blob(*hash)?.unwrap_or_default();
        let version = version_of_content(&value);
        if let StoreKey::FileDocument(name) = &key {
            let is_it = |found: &&GroupedDocument| {
                version.as_deref() == Some(&*content_hash(&found.document, &found.group))
            };
            let recalled = || recalled?.documents.get(name).filter(is_it).cloned();
            let whole = documents::read_record(name, &value).ok().or_else(recalled);
            let document = whole.or_else(|| after.documents.get(name).cloned());
            found_documents.extend(document.map(|document| (name.clone(), document)));
        } else if let StoreKey::File(group, resource_key) = &key {
            let of = |base: &Base| base.layer.resources(group)?.get(resource_key).cloned();
            let is_it = |found: &Arc<Resource>| version == Some(found.version().to_string());
            let whole = record::read(&value).ok().map(Arc::new);
            let whole = whole.or_else(|| recalled.and_then(of).filter(is_it));
            if let Some(resource) = whole.or_else(|| of(after)) {
                let group = layer.groups.entry(group.clone()).or_default();
                group.resources.insert(resource);
            }
        } else if let StoreKey::FileGroup(name) = &key {
            let group = layer.groups.entry(name.clone()).or_default();
            let read = stored::take_in(&env.parts.codec, group, &StoreKey::Group(name.clone()), &value);
            if read.is_err() {
                group.definition = after.layer.groups.get(name).and_then(|group| group.definition.clone());
            }
        }
    }
    Ok(Some(Base { layer: Arc::new(layer), documents: Arc::new(found_documents) }))
}
