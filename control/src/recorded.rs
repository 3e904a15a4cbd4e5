//! What the files said when they were recorded last. At the start, what they say otherwise is a change like any other, which may
//! go by waves.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::{Layer, Resource};
use xds_store::{BlobHash, StoreError};

use super::contents::{is_content, version_of_content};
use super::documents::Said;
use super::key::{FILES_HASH, StoreKey};
use super::load::Base;
use super::state::{Patch, World};
use super::{Control, Shared, documents, record, stored};
use crate::model::document::{DocumentState, GroupedDocument, GroupedDocuments, content_hash};

impl Control {
    /// Says what the files gave when their last good copies were saved. The store has no secrets of files: what they were before
    /// the first load is taken from here, as far as it is what the store recorded.
    pub fn recall(&self, layer: Layer, documents: GroupedDocuments) {
        let base = Base { layer: Arc::new(layer), documents: Arc::new(documents) };
        *self.shared.recalled() = Some(base);
    }
}

impl Shared {
    /// The world before the first load, with the files as they were recorded last; `keys` are all that is stored.
    ///
    /// `None` if no change of theirs can go by waves, or if nothing was ever recorded, or
    /// [not all of it](xds_store::CommitError::TooLarge): then the load reaches everyone at once. So does an object with secrets of
    /// which there is no copy.
    pub(crate) fn recorded_world(
        &self,
        world: &World,
        after: &Base,
        keys: &BTreeMap<String, BlobHash>,
    ) -> Option<World> {
        let recalled = self.recalled().clone();
        let has_policy = |layer: &Layer| {
            let mut definitions = layer.groups.values().filter_map(|group| group.definition.as_ref());
            definitions.any(|definition| definition.waves.is_some())
        };
        let is_possible = self.options.waves.is_some()
            || self.state().wave.is_some()
            || [&*after.layer, &*world.overrides].into_iter().any(has_policy);
        if !is_possible {
            return None;
        }
        let read = self.read_recorded(keys, recalled.as_ref(), after);
        let before = read.unwrap_or_else(|error| {
            tracing::warn!(%error, "what the files said last cannot be read; what changed reaches everyone");
            None
        })?;
        let DocumentState { owned, weights, .. } = world.documents.clone();
        let documents = self.translate(world, Said { files: before.documents, owned, weights });
        let groups = world.rebased(&before.layer, &Patch::new(), &documents);
        Some(World { base: before.layer, documents, groups, ..world.clone() })
    }

    /// Reads what the files said; of what cannot be told, what `after` says now.
    fn read_recorded(
        &self,
        keys: &BTreeMap<String, BlobHash>,
        recalled: Option<&Base>,
        after: &Base,
    ) -> Result<Option<Base>, StoreError> {
        let store = &self.parts.store;
        if !keys.contains_key(FILES_HASH) || !self.has_contents(keys) {
            return Ok(None);
        }
        let (mut layer, mut found_documents) = (Layer::default(), GroupedDocuments::new());
        for (text, hash) in keys {
            let Some(key) = StoreKey::parse(text).filter(is_content) else { continue };
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
                    group.resources.insert(resource_key.clone(), resource);
                }
            } else if let StoreKey::FileGroup(name) = &key {
                let group = layer.groups.entry(name.clone()).or_default();
                let read = stored::take_in(&self.parts.codec, group, &StoreKey::Group(name.clone()), &value);
                if read.is_err() {
                    group.definition =
                        after.layer.groups.get(name).and_then(|group| group.definition.clone());
                }
            }
        }
        Ok(Some(Base { layer: Arc::new(layer), documents: Arc::new(found_documents) }))
    }

    /// After the first load, it is known what is served.
    pub(crate) fn forget_recalled(&self) {
        *self.recalled() = None;
    }

    fn recalled(&self) -> std::sync::MutexGuard<'_, Option<Base>> {
        self.recalled.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
