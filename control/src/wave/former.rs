//! The state without the change of a wave deployment, for nodes that no wave has reached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::layer::{EffectiveGroup, LayerGroup, Resources, effective_group};
use xds_cache::wave::Behind;
use xds_cache::{GroupName, Groups, Layer};
use xds_codec::Codec;

use super::value::{PreviousValue, PreviousValues};
use crate::accepted::{Accepted, Former, insert};
use crate::candidate::Candidate;
use crate::documents::{self, DocumentPatch, Said, Terms};
use crate::key::{StoreKey, Subject};
use crate::model::WriteError;
use crate::stored_overrides;
use crate::weights::{self, WeightPatch};
use crate::withhold;

/// The former contents of a group in both layers.
pub(crate) struct FormerGroup {
    base: LayerGroup,
    overrides: LayerGroup,
}

/// The state for nodes that no wave has reached; `None` if no wave deployment is under way. Groups that are only there before or
/// after the change are put into the other state too, without resources, so that both select the same nodes.
pub(crate) fn behind(codec: &Codec, accepted: &Accepted, ahead: &mut Groups) -> Option<Behind> {
    let wave = accepted.wave.as_deref()?;
    let former = former_groups(&wave.previous, &accepted.base, &accepted.overrides);
    let documents = accepted.former_documents();
    let translated = &documents.translated;
    let (present, generated) =
        (&accepted.documents.translated.translation.groups, &translated.translation.groups);
    let mut names: BTreeSet<&GroupName> = former.keys().collect();
    if !Arc::ptr_eq(&accepted.documents.translated, translated) {
        names.extend(present.keys().chain(generated.keys()));
    }
    if documents.weights != accepted.documents.weights {
        names.extend(weights::groups_of(&accepted.documents.weights));
        names.extend(weights::groups_of(&documents.weights));
    }
    let mut groups = ahead.clone();
    for name in names {
        let (under, over) = match former.get(name) {
            Some(group) => (Some(&group.base), Some(&group.overrides)),
            None => (accepted.base.groups.get(name), accepted.overrides.groups.get(name)),
        };
        let under = under.filter(|group| !stored_overrides::is_empty(group));
        let over = over.filter(|group| !stored_overrides::is_empty(group));
        let generated = generated.get(name);
        let was_there = under.is_some() || over.is_some() || generated.is_some() || name.is_default();
        let definition = ahead.get(name).map(|group| group.definition.clone());
        let mut group = effective_group(name, under, over, generated);
        weights::lay_resources(codec, name, &mut group.resources, &documents.weights);
        match definition {
            Some(definition) if was_there => group.definition = definition,
            Some(definition) => group = without_resources(EffectiveGroup { definition, ..group }),
            None => _ = ahead.insert(name.clone(), Arc::new(without_resources(group.clone()))),
        }
        let served = ahead.get(name).map(|group| &**group);
        let group = withhold::withhold(codec, accepted.guarding, served, group);
        if !group.definition.tries_identities
            && let Some(served) = ahead.get_mut(name).filter(|served| served.definition.tries_identities)
        {
            // Both states select the same nodes, and one of them holds a secret.
            Arc::make_mut(served).definition.tries_identities = false;
        }
        insert(&mut groups, name, group);
    }
    Some(Behind { split: wave.split(), groups })
}

/// All documents and overrides of weights as they were before the change of the current wave deployment, and their resources.
/// Translates only if something changed since the last time. `None` if the wave deployment holds none of them.
pub(crate) fn former(accepted: &Accepted, terms: Terms<'_>) -> Result<Option<Arc<Former>>, WriteError> {
    let Some(wave) = &accepted.wave else { return Ok(None) };
    let (patch, laid) = (document_patches(&wave.previous), weight_patch(&wave.previous));
    if patch.0.is_empty() && patch.1.is_empty() && laid.is_empty() {
        return Ok(None);
    }
    let (known, present) = (accepted.former.as_ref(), &accepted.documents);
    let is_known = |known: &&Arc<Former>| {
        Arc::ptr_eq(&known.previous, &wave.previous)
            && Arc::ptr_eq(&known.present.files, &present.files)
            && Arc::ptr_eq(&known.present.owned, &present.owned)
            && Arc::ptr_eq(&known.present.weights, &present.weights)
    };
    if let Some(known) = known.filter(is_known) {
        return Ok(Some(Arc::clone(known)));
    }
    let files = documents::patched(&present.files, &patch.0);
    let owned = documents::patched(&present.owned, &patch.1);
    let before = known.map_or(present, |known| &known.former);
    let weights = Arc::new(weights::patched(&present.weights, &laid));
    let former = documents::next(before, Said { files, owned, weights }, terms)?;
    let (previous, present) = (Arc::clone(&wave.previous), present.clone());
    Ok(Some(Arc::new(Former { previous, present, former })))
}

fn without_resources(group: EffectiveGroup) -> EffectiveGroup {
    EffectiveGroup::new(group.definition, Resources::new())
}

/// The groups of the changed objects as both layers had them.
fn former_groups(
    previous: &PreviousValues,
    base: &Layer,
    overrides: &Layer,
) -> BTreeMap<GroupName, FormerGroup> {
    let mut former: BTreeMap<GroupName, FormerGroup> = BTreeMap::new();
    let of = |layer: &Layer, name: &GroupName| layer.groups.get(name).cloned().unwrap_or_default();
    for (key, value) in previous {
        let (Subject::Group(name) | Subject::Label(name) | Subject::Resource(name, _)) = key.subject() else {
            continue;
        };
        let group = former
            .entry(name.clone())
            .or_insert_with(|| FormerGroup { base: of(base, name), overrides: of(overrides, name) });
        let layer = if key.is_of_file() { &mut group.base } else { &mut group.overrides };
        put_back(layer, key, value.as_ref());
    }
    former
}

fn put_back(group: &mut LayerGroup, key: &StoreKey, value: Option<&PreviousValue>) {
    match (key.subject(), value) {
        (Subject::Resource(..), Some(PreviousValue::Resource(resource))) => {
            group.resources.insert(Arc::clone(resource));
        }
        (Subject::Resource(_, key), _) => _ = group.resources.remove(key),
        (Subject::Label(_), Some(PreviousValue::Label(label))) => group.label = Some(Arc::clone(label)),
        (Subject::Label(_), _) => group.label = None,
        (Subject::Group(_), Some(PreviousValue::Definition(definition))) => {
            // An override that came since is newer.
            group.definition.get_or_insert_with(|| definition.clone());
        }
        (_, _) => {}
    }
}

/// The patches to the documents of the files and of the API.
fn document_patches(previous: &PreviousValues) -> (DocumentPatch, DocumentPatch) {
    let (mut files, mut owned) = (DocumentPatch::new(), DocumentPatch::new());
    for (key, value) in previous {
        let value = match value {
            Some(PreviousValue::Document(document)) => Some(document.clone()),
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

/// The patch to the overrides of weights.
fn weight_patch(previous: &PreviousValues) -> WeightPatch {
    let mut patch = WeightPatch::new();
    for (key, value) in previous {
        let StoreKey::Weights(rule) = key else { continue };
        let over = match value {
            Some(PreviousValue::Weights(over)) => Some(over.clone()),
            _ => None,
        };
        patch.insert(rule.clone(), over);
    }
    patch
}

/// The candidate that puts the API's part of a change back.
pub(crate) fn undo(accepted: &Accepted, previous: &PreviousValues) -> Candidate {
    let former = former_groups(previous, &accepted.base, &accepted.overrides);
    let is_owned = |name: &GroupName| previous.keys().any(|key| key.owned_group() == Some(name));
    let patch = former.into_iter().filter(|(name, _)| is_owned(name));
    let patch = patch.map(|(name, group)| (name, Some(group.overrides))).collect();
    let (documents, weights) = (document_patches(previous).1, weight_patch(previous));
    Candidate { patch, documents, weights, ..Candidate::default() }
}
