//! The record of a server's own files in the store: their contents, for differences and for the next start, and a hash of everything.
//!
//! At the start, a difference between the files and the record is a change like any other, and may go in waves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use xds_cache::layer::{LayerGroup, Resources};
use xds_cache::{Layer, Resource};
use xds_codec::Codec;
use xds_store::{BlobHash, State, Store, StoreError};

use crate::accepted::{Accepted, Base};
use crate::differing::differing;
use crate::documents::{DocumentPatch, Said, Terms};
use crate::env::Env;
use crate::key::{CONTENTS, FILES_HASH, StoreKey, Subject, keys_below, resource_name};
use crate::model::WriteError;
use crate::model::document::{DocumentState, GroupedDocument, GroupedDocuments, content_hash, redact};
use crate::model::group;
use crate::plan::{Patch, Plan};
use crate::{documents, resource_record, stored_overrides};

/// How objects of files are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Without their secrets, because secrets must not outlive their file.
    WithoutSecrets,
    /// As they are, because other servers serve them.
    Whole,
}

/// The plan that records the contents of the files, without what is stored already. If the record is known, the cost follows the
/// difference.
pub(crate) fn plan(codec: &Codec, kept: Kept, recorded: Option<&Base>, base: &Base, stored: &State) -> Plan {
    let nothing = Base::default();
    let before = recorded.unwrap_or(&nothing);
    let (mut plan, mut gone) = (Plan::new(), BTreeMap::new());
    let mut put = |key: StoreKey, value: Option<Bytes>| {
        let text = key.to_string();
        match value {
            None => _ = gone.insert(text, key),
            Some(value) if stored.get(&*text) == Some(&BlobHash::of(&value)) => {}
            value => plan.push((key, value)),
        }
    };
    let no_resources = Resources::new();
    for (name, old, new) in differing(&before.layer.groups, &base.layer.groups) {
        let definition = |group: Option<&LayerGroup>| {
            group?.definition.as_ref().map(|definition| group::to_json(definition).to_string())
        };
        let (old_definition, new_definition) = (definition(old), definition(new));
        if old_definition != new_definition {
            put(StoreKey::FileGroup(name.clone()), new_definition.map(Bytes::from));
        }
        let [old, new] = [old, new].map(|group| group.map_or(&no_resources, |group| &group.resources));
        for (key, old, new) in differing(old, new) {
            if !old.zip(new).is_some_and(|(old, new)| old.says_the_same(new)) {
                let value = new.map(|resource| match kept {
                    Kept::WithoutSecrets => content(codec, resource),
                    Kept::Whole => resource_record::write(resource),
                });
                put(StoreKey::File(name.clone(), (**key).clone()), value);
            }
        }
    }
    for (key, old, new) in differing(&before.documents, &base.documents) {
        if !old.zip(new).is_some_and(|(old, new)| old.says_the_same(new)) {
            let value = new.map(|document| match kept {
                Kept::WithoutSecrets => content_of_document(document),
                Kept::Whole => documents::record(document),
            });
            put(StoreKey::FileDocument(key.clone()), value);
        }
    }
    if recorded.is_none() {
        for (text, key) in CONTENTS.into_iter().flat_map(|prefix| keys_below(stored, prefix)) {
            if !has(base, &key) {
                gone.insert(text.to_string(), key);
            }
        }
    }
    plan.extend(
        gone.into_iter().filter(|(text, _)| stored.contains_key(&**text)).map(|(_, key)| (key, None)),
    );
    plan
}

/// Returns `true` if the files define the subject of a key.
fn has(base: &Base, key: &StoreKey) -> bool {
    match key.subject() {
        Subject::Group(name) => base.layer.groups.get(name).is_some_and(|group| group.definition.is_some()),
        Subject::Resource(name, key) => {
            base.layer.resources(name).is_some_and(|resources| resources.contains_key(key))
        }
        Subject::Document(key) => base.documents.contains_key(key),
        Subject::Label(_) | Subject::Weights(_) | Subject::Other => false,
    }
}

/// Returns `true` if the last contents of the files are stored, and not only their hash. Also if the store cannot be read, which is
/// reported elsewhere.
pub(crate) fn has_contents(store: &dyn Store, stored: &State) -> bool {
    let hash = stored.get(FILES_HASH).and_then(|hash| store.blob(*hash).ok()?);
    hash.is_none_or(|hash| says_contents(&hash))
}

/// The record of a file's resource: the whole resource, so that the next start knows it; or, if it has secrets, JSON without them.
fn content(codec: &Codec, resource: &Resource) -> Bytes {
    if !codec.has_secrets(resource) {
        return resource_record::write(resource);
    }
    let shown = codec.to_json(resource);
    json!({"version": resource.version().to_string(), "resource": shown}).to_string().into()
}

/// The record of a file's document: whole, or JSON without its secrets.
fn content_of_document(document: &GroupedDocument) -> Bytes {
    let source = document.document.source.json();
    let shown = redact(document.document.key.kind, &source);
    if shown == source {
        return documents::record(document);
    }
    let version = content_hash(&document.document, &document.group);
    json!({"version": version, "group": document.group.as_str(), "document": shown}).to_string().into()
}

/// The version of an object that is recorded without its secrets; `None` if it is recorded whole.
pub(crate) fn version_of_content(value: &[u8]) -> Option<String> {
    let content: Value = serde_json::from_slice(value).ok()?;
    Some(content.get("version")?.as_str()?.to_owned())
}

/// The recorded contents of an object, as they are shown: without secrets.
pub(crate) fn shown_content(codec: &Codec, key: &StoreKey, value: &Bytes) -> Option<Value> {
    let field = |name: &str| serde_json::from_slice::<Value>(value).ok()?.get_mut(name).map(Value::take);
    if let StoreKey::FileDocument(key) = key {
        return field("document").or_else(|| Some(redact(key.kind, &field("source")?)));
    }
    field("resource").or_else(|| Some(codec.to_json(&resource_record::read(value).ok()?)))
}

/// The overrides that are equal to the changed files now; `contents` are the changes of the files (D6).
pub(crate) fn equal_overrides(accepted: &Accepted, base: &Layer, contents: &Plan) -> (Patch, Vec<String>) {
    let mut patch = Patch::new();
    let mut dropped = Vec::new();
    for (key, value) in contents {
        let (StoreKey::File(name, key), Some(_)) = (key, value) else { continue };
        let of_file = base.resources(name).and_then(|resources| resources.get(key));
        let of_api = accepted.overrides.resources(name).and_then(|resources| resources.get(key));
        if !of_api.zip(of_file).is_some_and(|(of_api, of_file)| of_api.says_the_same(of_file)) {
            continue;
        }
        let group = patch.entry(name.clone()).or_insert_with(|| Some(accepted.owned(name)));
        group.get_or_insert_default().resources.remove(key);
        dropped.push(resource_name(name, key));
    }
    (patch, dropped)
}

/// The documents of the API that are equal to the changed files now.
pub(crate) fn equal_documents(
    accepted: &Accepted,
    files: &GroupedDocuments,
    contents: &Plan,
) -> DocumentPatch {
    let mut patch = DocumentPatch::new();
    for (key, value) in contents {
        let (StoreKey::FileDocument(key), Some(_)) = (key, value) else { continue };
        let (of_api, of_file) = (accepted.documents.owned.get(key), files.get(key));
        if of_api.zip(of_file).is_some_and(|(of_api, of_file)| of_api.says_the_same(of_file)) {
            patch.insert(key.clone(), None);
        }
    }
    patch
}

/// The accepted state before the first load, with the last recorded contents of the files; `keys` are all keys of the store.
/// `copies` are the contents of the files when their last good copies were saved. The store has no secrets of files, so objects with
/// secrets come from the copies, if they are the ones that the store recorded.
///
/// `None` if none of their changes can go in waves, or if nothing was ever recorded, or
/// [not everything](xds_store::CommitError::TooLarge): then the load reaches everyone at once. So does an object with secrets
/// without a copy.
pub(crate) fn accepted_as_recorded(
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

/// Reads the recorded files. What cannot be read is taken from `after`.
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
            let whole = resource_record::read(&value).ok().map(Arc::new);
            let whole = whole.or_else(|| recalled.and_then(of).filter(is_it));
            if let Some(resource) = whole.or_else(|| of(after)) {
                let group = layer.groups.entry(group.clone()).or_default();
                group.resources.insert(resource);
            }
        } else if let StoreKey::FileGroup(name) = &key {
            let group = layer.groups.entry(name.clone()).or_default();
            let read =
                stored_overrides::take_in(&env.parts.codec, group, &StoreKey::Group(name.clone()), &value);
            if read.is_err() {
                group.definition = after.layer.groups.get(name).and_then(|group| group.definition.clone());
            }
        }
    }
    Ok(Some(Base { layer: Arc::new(layer), documents: Arc::new(found_documents) }))
}

/// The text that is stored in place of the hash if the contents were too large to be kept.
pub(crate) fn hash_alone(hash: &str) -> String {
    format!("{hash}{ALONE}")
}

/// Returns `true` if the stored hash is that of the files.
pub(crate) fn is_recorded(stored: &State, hash: &str) -> bool {
    let is_it = |hash: &str| stored.get(FILES_HASH) == Some(&BlobHash::of(hash.as_bytes()));
    is_it(hash) || is_it(&hash_alone(hash))
}

/// Returns `true` if a stored hash shows that the contents of its load were kept.
fn says_contents(stored: &[u8]) -> bool {
    !stored.ends_with(ALONE.as_bytes())
}

/// The mark behind a hash that stands alone.
const ALONE: &str = " without contents";

pub(crate) fn summary(contents: &Plan) -> String {
    let names: Vec<String> = contents.iter().take(MAX_NAMED).map(|(key, _)| key.what()).collect();
    let n_removed = contents.iter().filter(|(_, value)| value.is_none()).count();
    let n_changed = contents.len() - n_removed;
    let more = if contents.len() > MAX_NAMED { ", …" } else { "" };
    format!("{n_changed} added or changed, {n_removed} removed in files: {}{more}", names.join(", "))
}

/// The most objects that a summary names.
const MAX_NAMED: usize = 3;
