//! What the files say, as it is kept in the store: contents for differences, and a hash over all of them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::json;
use xds_api::document::{GroupedDocuments, content_hash as content_hash_of, redacted};
use xds_api::group;
use xds_cache::{Layer, VersionHasher};
use xds_store::BlobHash;

use super::Shared;
use super::documents::DocumentPatch;
use super::key::{StoreKey, resource_name};
use super::load::Base;
use super::plan::Plan;
use super::state::{Patch, World};

impl Shared {
    /// What the files say, as it is kept for differences: only what is not stored so already.
    pub(crate) fn contents(&self, world: &World, base: &Base, stored: &BTreeMap<String, BlobHash>) -> Plan {
        let is_recorded = self.state().is_recorded;
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
                let recorded = world.base.resources(name).and_then(|resources| resources.get(resource_key));
                if !is_recorded || recorded != Some(resource) {
                    let content = json!({
                        "version": resource.version().to_string(),
                        "resource": self.parts.codec.to_json(resource),
                    });
                    put(key, content.to_string().into());
                }
            }
        }
        for (key, document) in base.documents.iter() {
            let store_key = StoreKey::FileDocument(key.clone());
            gone.remove(store_key.to_string().as_str());
            let recorded = world.documents.files.get(key);
            if !is_recorded || !recorded.is_some_and(|recorded| recorded.says_the_same(document)) {
                let content = json!({
                    "version": content_hash_of(&document.document, &document.group),
                    "group": document.group.as_str(),
                    "document": redacted(&document.document),
                });
                put(store_key, content.to_string().into());
            }
        }
        plan.extend(gone.into_iter().filter_map(StoreKey::parse).filter(is_content).map(|key| (key, None)));
        plan
    }
}

/// The overrides that the changed files have caught up with: `contents` is what changed in them (D6).
pub(crate) fn equal_overrides(world: &World, base: &Layer, contents: &Plan) -> (Patch, Vec<String>) {
    let mut patch = Patch::new();
    let mut dropped = Vec::new();
    for (key, value) in contents {
        let (StoreKey::File(name, key), Some(_)) = (key, value) else { continue };
        let of_file = base.resources(name).and_then(|resources| resources.get(key));
        let of_api = world.overrides.resources(name).and_then(|resources| resources.get(key));
        if of_api.is_none() || of_api != of_file {
            continue;
        }
        let group = patch.entry(name.clone()).or_insert_with(|| Some(world.owned(name)));
        group.get_or_insert_default().resources.remove(key);
        dropped.push(resource_name(name, key));
    }
    (patch, dropped)
}

/// The documents of the API that the changed files have caught up with.
pub(crate) fn equal_documents(world: &World, files: &GroupedDocuments, contents: &Plan) -> DocumentPatch {
    let mut patch = DocumentPatch::new();
    for (key, value) in contents {
        let (StoreKey::FileDocument(key), Some(_)) = (key, value) else { continue };
        let (of_api, of_file) = (world.documents.owned.get(key), files.get(key));
        if of_api.zip(of_file).is_some_and(|(of_api, of_file)| of_api.says_the_same(of_file)) {
            patch.insert(key.clone(), None);
        }
    }
    patch
}

pub(crate) fn is_content(key: &StoreKey) -> bool {
    matches!(key, StoreKey::File(..) | StoreKey::FileGroup(_) | StoreKey::FileDocument(_))
}

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
