//! The state without the change of a wave deployment: what nodes are served that no wave has reached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::layer::{EffectiveGroup, LayerGroup, Resources, effective_group};
use xds_cache::wave::Behind;
use xds_cache::{GroupName, Groups, Layer};

use super::{Held, HeldValue, Wave};
use crate::candidate::Candidate;
use crate::documents::{self, DocumentPatch, Said};
use crate::key::StoreKey;
use crate::model::document::DocumentState;
use crate::state::{World, insert};
use crate::weights::{self, WeightPatch};
use crate::{Shared, stored};

/// What both layers said of a group before.
pub(crate) struct FormerGroup {
    base: LayerGroup,
    overrides: LayerGroup,
}

/// The documents of the last look, and what they were made of.
#[derive(Debug)]
pub(crate) struct FormerDocuments {
    held: Arc<Held>,
    present: DocumentState,
    former: DocumentState,
}

impl Shared {
    /// What nodes are served that no wave has reached; `None` if no wave deployment is under way. Groups that are only there before
    /// or after the change are put into the other state too, without resources, so that both select the same nodes.
    pub(crate) fn behind(&self, ahead: &mut Groups) -> Option<Behind> {
        let (world, wave) = {
            let state = self.state();
            let wave = state.wave.clone()?;
            (state.world(), wave)
        };
        let former = former_groups(&wave.held, &world.base, &world.overrides);
        let documents = self.former_documents(&world, &wave);
        let translated = &documents.translated;
        let (present, generated) =
            (&world.documents.translated.translation.groups, &translated.translation.groups);
        let mut names: BTreeSet<&GroupName> = former.keys().collect();
        if !Arc::ptr_eq(&world.documents.translated, translated) {
            names.extend(present.keys().chain(generated.keys()));
        }
        if documents.weights != world.documents.weights {
            names.extend(weights::groups_of(&world.documents.weights));
            names.extend(weights::groups_of(&documents.weights));
        }
        let mut groups = ahead.clone();
        for name in names {
            let (under, over) = match former.get(name) {
                Some(group) => (Some(&group.base), Some(&group.overrides)),
                None => (world.base.groups.get(name), world.overrides.groups.get(name)),
            };
            let under = under.filter(|group| !stored::is_empty(group));
            let over = over.filter(|group| !stored::is_empty(group));
            let generated = generated.get(name);
            let was_there = under.is_some() || over.is_some() || generated.is_some() || name.is_default();
            let definition = ahead.get(name).map(|group| group.definition.clone());
            let mut group = effective_group(name, under, over, generated);
            weights::lay_resources(&world.codec, name, &mut group.resources, &documents.weights);
            match definition {
                Some(definition) if was_there => group.definition = definition,
                Some(definition) => group = without_resources(EffectiveGroup { definition, ..group }),
                None => _ = ahead.insert(name.clone(), Arc::new(without_resources(group.clone()))),
            }
            insert(&mut groups, name, group);
        }
        Some(Behind { split: wave.split(), groups })
    }

    /// All documents and overrides of weights as they were before the change, and what they gave; translated only if something
    /// changed since the last look.
    fn former_documents(&self, world: &World, wave: &Wave) -> DocumentState {
        let mut kept = self.former.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (patch, laid) = (document_patches(&wave.held), weight_patch(&wave.held));
        if patch.0.is_empty() && patch.1.is_empty() && laid.is_empty() {
            *kept = None;
            return world.documents.clone();
        }
        if let Some(kept) = &*kept
            && Arc::ptr_eq(&kept.held, &wave.held)
            && Arc::ptr_eq(&kept.present.files, &world.documents.files)
            && Arc::ptr_eq(&kept.present.owned, &world.documents.owned)
            && Arc::ptr_eq(&kept.present.weights, &world.documents.weights)
        {
            return kept.former.clone();
        }
        let files = documents::patched(&world.documents.files, &patch.0);
        let owned = documents::patched(&world.documents.owned, &patch.1);
        let before = kept.as_ref().map_or(&world.documents, |kept| &kept.former);
        let weights = Arc::new(weights::patched(&world.documents.weights, &laid));
        let said = Said { files, owned, weights };
        let former = documents::next(&self.parts.codec, before, said, &world.observed, SystemTime::now());
        let (held, present) = (Arc::clone(&wave.held), world.documents.clone());
        *kept = Some(FormerDocuments { held, present, former: former.clone() });
        former
    }

    /// Does on a thread of its own what [`behind`](Self::behind) would have to do on this one.
    pub(crate) async fn prepare(self: &Arc<Self>) {
        let (world, wave) = {
            let state = self.state();
            (state.world(), state.wave.clone())
        };
        let Some(wave) = wave else { return };
        let is_laid = |key: &StoreKey| {
            matches!(key, StoreKey::Document(_) | StoreKey::FileDocument(_) | StoreKey::Weights(_))
        };
        if wave.held.keys().any(is_laid) {
            let shared = Arc::clone(self);
            // If it fails, it is done when it is needed.
            let _ = tokio::task::spawn_blocking(move || shared.former_documents(&world, &wave)).await;
        }
    }
}

fn without_resources(group: EffectiveGroup) -> EffectiveGroup {
    EffectiveGroup { label: None, resources: Resources::new(), generated: BTreeMap::new(), ..group }
}

/// The groups of held objects as both layers had them.
fn former_groups(held: &Held, base: &Layer, overrides: &Layer) -> BTreeMap<GroupName, FormerGroup> {
    let mut former: BTreeMap<GroupName, FormerGroup> = BTreeMap::new();
    let of = |layer: &Layer, name: &GroupName| layer.groups.get(name).cloned().unwrap_or_default();
    for (key, value) in held {
        let (StoreKey::File(name, _)
        | StoreKey::FileGroup(name)
        | StoreKey::Resource(name, _)
        | StoreKey::Label(name)
        | StoreKey::Group(name)) = key
        else {
            continue;
        };
        let group = former
            .entry(name.clone())
            .or_insert_with(|| FormerGroup { base: of(base, name), overrides: of(overrides, name) });
        let layer = if super::is_of_file(key) { &mut group.base } else { &mut group.overrides };
        put_back(layer, key, value.as_ref());
    }
    former
}

fn put_back(group: &mut LayerGroup, key: &StoreKey, value: Option<&HeldValue>) {
    match (key, value) {
        (StoreKey::File(_, key) | StoreKey::Resource(_, key), Some(HeldValue::Resource(resource))) => {
            group.resources.insert(key.clone(), Arc::clone(resource));
        }
        (StoreKey::File(_, key) | StoreKey::Resource(_, key), _) => _ = group.resources.remove(key),
        (StoreKey::Label(_), Some(HeldValue::Label(label))) => group.label = Some(Arc::clone(label)),
        (StoreKey::Label(_), _) => group.label = None,
        (StoreKey::Group(_) | StoreKey::FileGroup(_), Some(HeldValue::Definition(definition))) => {
            // One that came since is newer.
            group.definition.get_or_insert_with(|| definition.clone());
        }
        (_, _) => {}
    }
}

/// What has to be laid over the documents of the files and of the API.
fn document_patches(held: &Held) -> (DocumentPatch, DocumentPatch) {
    let (mut files, mut owned) = (DocumentPatch::new(), DocumentPatch::new());
    for (key, value) in held {
        let value = match value {
            Some(HeldValue::Document(document)) => Some(document.clone()),
            _ => None,
        };
        if let StoreKey::FileDocument(key) = key {
            files.insert(key.clone(), value);
        } else if let StoreKey::Document(key) = key {
            owned.insert(key.clone(), value);
        }
    }
    (files, owned)
}

/// What has to be laid over the overrides of weights.
fn weight_patch(held: &Held) -> WeightPatch {
    let mut patch = WeightPatch::new();
    for (key, value) in held {
        let StoreKey::Weights(rule) = key else { continue };
        let over = match value {
            Some(HeldValue::Weights(over)) => Some(over.clone()),
            _ => None,
        };
        patch.insert(rule.clone(), over);
    }
    patch
}

/// What puts the API's part of a change back.
pub(crate) fn undo(world: &World, held: &Held) -> Candidate {
    let former = former_groups(held, &world.base, &world.overrides);
    let is_owned = |name: &GroupName| held.keys().any(|key| key.owned_group() == Some(name));
    let patch = former.into_iter().filter(|(name, _)| is_owned(name));
    let patch = patch.map(|(name, group)| (name, Some(group.overrides))).collect();
    let (documents, weights) = (document_patches(held).1, weight_patch(held));
    Candidate { patch, documents, weights, ..Candidate::default() }
}
