//! What the files say, as it is kept in the store: contents, for differences and for the next start, and a hash over all.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Value, json};
use xds_cache::{Layer, Resource, VersionHasher};
use xds_codec::Codec;
use xds_store::{BlobHash, Store};

use crate::accepted::{Accepted, Base, Recorded};
use crate::documents::DocumentPatch;
use crate::key::{FILES_HASH, StoreKey, resource_name};
use crate::model::document::{
    GroupedDocument, GroupedDocuments, content_hash as content_hash_of, redact, redacted,
};
use crate::model::group;
use crate::plan::{Patch, Plan};
use crate::{documents, record};

/// What the files say, as it is kept: only what is not stored so already.
pub(crate) fn contents(
    codec: &Codec,
    accepted: &Accepted,
    base: &Base,
    stored: &BTreeMap<String, BlobHash>,
) -> Plan {
    let is_recorded = accepted.recorded == Recorded::Yes;
    let mut gone: BTreeSet<&str> = stored.keys().map(String::as_str).collect();
    let mut plan = Plan::new();
    let mut put = |key: StoreKey, value: Bytes| {
        if stored.get(&key.to_string()) != Some(&BlobHash::of(&value)) {
            plan.push((key, Some(value)));
        }
    };
    for (name, group) in &base.layer.groups {
        if let Some(definition) = &group.definition {
            let key = StoreKey::FileGroup(name.clone());
            gone.remove(key.to_string().as_str());
            put(key, group::to_json(definition).to_string().into());
        }
        for (resource_key, resource) in &group.resources {
            let key = StoreKey::File(name.clone(), resource_key.clone());
            gone.remove(key.to_string().as_str());
            let recorded = accepted.base.resources(name).and_then(|resources| resources.get(resource_key));
            if !is_recorded || !recorded.is_some_and(|recorded| recorded.says_the_same(resource)) {
                put(key, content(codec, resource));
            }
        }
    }
    for (key, document) in base.documents.iter() {
        let store_key = StoreKey::FileDocument(key.clone());
        gone.remove(store_key.to_string().as_str());
        let recorded = accepted.documents.files.get(key);
        if !is_recorded || !recorded.is_some_and(|recorded| recorded.says_the_same(document)) {
            put(store_key, content_of_document(document));
        }
    }
    plan.extend(gone.into_iter().filter_map(StoreKey::parse).filter(is_content).map(|key| (key, None)));
    plan
}

/// Whether all of what the files said last is stored, and not a hash alone. Yes if the store cannot be read, which others tell.
pub(crate) fn has_contents(store: &dyn Store, stored: &BTreeMap<String, BlobHash>) -> bool {
    let hash = stored.get(FILES_HASH).and_then(|hash| store.blob(*hash).ok()?);
    hash.is_none_or(|hash| says_contents(&hash))
}

/// A resource of a file as it is kept: whole, so that the next start knows what it was; or as JSON, without its secrets, which
/// do not outlive the file that they are in.
fn content(codec: &Codec, resource: &Resource) -> Bytes {
    if !codec.has_secrets(resource) {
        return record::write(resource);
    }
    let shown = codec.to_json(resource);
    json!({"version": resource.version().to_string(), "resource": shown}).to_string().into()
}

/// The same of a document.
fn content_of_document(document: &GroupedDocument) -> Bytes {
    let shown = redacted(&document.document);
    if shown == document.document.source.json() {
        return documents::record(document);
    }
    let version = content_hash_of(&document.document, &document.group);
    json!({"version": version, "group": document.group.as_str(), "document": shown}).to_string().into()
}

/// The version of an object that is kept without its secrets; `None` if it is kept whole.
pub(crate) fn version_of_content(value: &[u8]) -> Option<String> {
    let content: Value = serde_json::from_slice(value).ok()?;
    Some(content.get("version")?.as_str()?.to_owned())
}

/// What is kept of an object, as it is shown: without secrets.
pub(crate) fn shown_content(codec: &Codec, key: &StoreKey, value: &Bytes) -> Option<Value> {
    let field = |name: &str| serde_json::from_slice::<Value>(value).ok()?.get_mut(name).map(Value::take);
    if let StoreKey::FileDocument(key) = key {
        return field("document").or_else(|| Some(redact(key.kind, &field("source")?)));
    }
    field("resource").or_else(|| Some(codec.to_json(&record::read(value).ok()?)))
}

/// The overrides that the changed files have caught up with: `contents` is what changed in them (D6).
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

/// The documents of the API that the changed files have caught up with.
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

pub(crate) fn is_content(key: &StoreKey) -> bool {
    matches!(key, StoreKey::File(..) | StoreKey::FileGroup(_) | StoreKey::FileDocument(_))
}

/// What is stored as the hash in place of it if the contents were too large to be kept.
pub(crate) fn hash_alone(hash: &str) -> String {
    format!("{hash}{ALONE}")
}

/// Whether the stored hash is that of what the files give.
pub(crate) fn is_recorded(stored: &BTreeMap<String, BlobHash>, hash: &str) -> bool {
    let is_it = |hash: &str| stored.get(FILES_HASH) == Some(&BlobHash::of(hash.as_bytes()));
    is_it(hash) || is_it(&hash_alone(hash))
}

/// Whether a stored hash says that the contents of that load were kept.
fn says_contents(stored: &[u8]) -> bool {
    !stored.ends_with(ALONE.as_bytes())
}

/// What follows on a hash that stands alone.
const ALONE: &str = " without contents";

/// The hash over everything that the files give; where in the files it is does not count.
pub(crate) fn content_hash(base: &Base) -> String {
    let mut hasher = VersionHasher::new();
    for (name, group) in &base.layer.groups {
        hasher.update(name.as_str().as_bytes());
        let definition = group.definition.as_ref().map(|definition| group::to_json(definition).to_string());
        hasher.update(definition.unwrap_or_default().as_bytes());
        hasher.update(&group.resources.len().to_le_bytes());
        for (key, resource) in &group.resources {
            hasher.update(key.resource_type.type_url().as_bytes());
            hasher.update(key.name.as_bytes());
            hasher.update(resource.version().to_string().as_bytes());
        }
    }
    for (key, document) in base.documents.iter() {
        hasher.update(key.to_string().as_bytes());
        hasher.update(content_hash_of(&document.document, &document.group).as_bytes());
    }
    hasher.finish().to_string()
}

pub(crate) fn summary(contents: &Plan) -> String {
    let names: Vec<String> = contents.iter().take(MAX_NAMED).map(|(key, _)| key.what()).collect();
    let n_removed = contents.iter().filter(|(_, value)| value.is_none()).count();
    let n_changed = contents.len() - n_removed;
    let more = if contents.len() > MAX_NAMED { ", …" } else { "" };
    format!("{n_changed} added or changed, {n_removed} removed in files: {}{more}", names.join(", "))
}

/// How many objects a summary names.
const MAX_NAMED: usize = 3;
