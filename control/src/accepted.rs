//! The last accepted state: the two layers, the documents and the resources generated from them, the groups, and the state of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::layer::{EffectiveGroup, LayerGroup, Resources, effective_group, merge};
use xds_cache::{GroupName, Groups, Layer, NodeGroup, Resource, ResourceKey, Revision, Version};
use xds_codec::{Codec, Place};

use crate::differing::differing;
use crate::fingerprint::entry;
use crate::missing::Missing;
use crate::model::document::{DocumentState, GroupedDocument, GroupedDocuments, content_hash};
use crate::model::group;
use crate::model::rollouts::RolloutRecords;
use crate::model::weights::Overrides;
use crate::model::{FileObject, FileObjectKey, FileStatus};
use crate::plan::Patch;
use crate::stored_overrides::{self, StoredOverrides};
use crate::stored_statuses::StoredStatuses;
use crate::wave::ended::Ended;
use crate::wave::value::{PreviousValues, Wave};
use crate::weights::{self, Resting};
use crate::withhold::{self, Guarding, Secrets};

/// The watched files by path.
pub(crate) type Files = BTreeMap<Arc<str>, FileStatus>;

/// The last accepted state. It never changes: a cause [proposes](crate::propose) another one instead. A copy shares its contents with
/// the original.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accepted {
    /// The revision of the overrides.
    pub(crate) revision: Revision,
    /// The base layer, from the files.
    pub(crate) base: Arc<Layer>,
    /// The sum of hashes over the base and the documents of the files.
    pub(crate) contents: ContentSum,
    /// The overrides, from the API.
    pub(crate) overrides: Arc<Layer>,
    /// The documents of both, and the resources that they generate.
    pub(crate) documents: DocumentState,
    /// The rollouts as they are stored.
    pub(crate) rollouts: Arc<RolloutRecords>,
    /// The statuses of documents that the store remembered when it was opened; empty once the first complete load was published.
    pub(crate) stored_statuses: Arc<StoredStatuses>,
    /// The groups merged from all of them.
    pub(crate) groups: Groups,
    /// What resources of the groups name, and is in none of them. A new accepted state gets its own once it is accepted.
    pub(crate) missing: Arc<Missing>,
    /// The stored records that could not be read: why, by key.
    pub(crate) unreadable: Arc<BTreeMap<String, String>>,
    /// The watched files; those of the store, if servers share it.
    pub(crate) files: Arc<Files>,
    /// The resources of the last load that are not served because of errors.
    pub(crate) unusable: Arc<BTreeSet<ResourceKey>>,
    /// Why a load waits for confirmation, if one does.
    pub(crate) unconfirmed: Option<String>,
    /// The wave deployment that is under way.
    pub(crate) wave: Option<Arc<Wave>>,
    /// The documents without the changes of the wave deployment.
    pub(crate) former: Option<Arc<Former>>,
    /// The wave deployments that ended.
    pub(crate) ended: Arc<Ended>,
    /// Which groups may have secrets, and how identities count. It never changes.
    pub(crate) guarding: Guarding,
    /// The state of the base in the store.
    pub(crate) recorded: Recorded,
    /// True if the first complete load was published.
    pub(crate) is_loaded: bool,
}

/// The state of the files' contents in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The store has it.
    Yes,
    /// The store does not have it, and will not until files change.
    #[default]
    No,
    /// The store does not have it yet: it is recorded before the next write, or when the store works again.
    Due,
}

/// The contents of the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    /// Groups and resources.
    pub(crate) layer: Arc<Layer>,
    /// Route documents.
    pub(crate) documents: Arc<GroupedDocuments>,
}

/// Where a file defines a node group; `None` if none does.
pub(crate) fn place_of_group(name: &GroupName, files: &Files) -> Option<Place> {
    files.values().find_map(|file| {
        let defines = |object: &&FileObject| object.key == FileObjectKey::NodeGroup && object.group == *name;
        let object = file.objects.iter().find(defines)?;
        Some(Place { file: Arc::clone(&file.path), line: object.line, column: object.column })
    })
}

impl Base {
    /// Groups and resources, and documents.
    pub(crate) fn parts(&self) -> (&Layer, &GroupedDocuments) {
        (&self.layer, &self.documents)
    }
}

/// The sum of hashes over the contents of the files. It does not depend on their order, and a change updates it at the cost of the
/// difference. Places in files do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentSum(u128);

/// Groups and resources, and documents.
type Said<'s> = (&'s Layer, &'s GroupedDocuments);

/// The documents without the changes of a wave deployment, and the state that they were made from.
#[derive(Debug)]
pub(crate) struct Former {
    pub(crate) previous: Arc<PreviousValues>,
    pub(crate) present: DocumentState,
    pub(crate) former: DocumentState,
}

impl ContentSum {
    /// The sum of `after`, if this is that of `before`.
    pub(crate) fn changed(self, before: Said<'_>, after: Said<'_>) -> Self {
        let mut sum = self.0;
        let mut change = |old: Option<u128>, new: Option<u128>| {
            sum = sum.wrapping_sub(old.unwrap_or_default()).wrapping_add(new.unwrap_or_default());
        };
        let nothing = Resources::new();
        for (name, old, new) in differing(&before.0.groups, &after.0.groups) {
            let group = |group: &LayerGroup| {
                let definition = group.definition.as_ref();
                let definition = definition.map(|definition| group::to_json(definition).to_string());
                entry(["group", name.as_str(), &definition.unwrap_or_default()])
            };
            change(old.map(group), new.map(group));
            let [old, new] = [old, new].map(|group| group.map_or(&nothing, |group| &group.resources));
            for (key, old, new) in differing(old, new) {
                let resource = |resource: &Arc<Resource>| {
                    let version = resource.version().to_string();
                    entry(["resource", name.as_str(), key.resource_type.type_url(), &key.name, &version])
                };
                change(old.map(resource), new.map(resource));
            }
        }
        for (key, old, new) in differing(before.1, after.1) {
            let key = key.to_string();
            let document =
                |one: &GroupedDocument| entry(["document", &key, &content_hash(&one.document, &one.group)]);
            change(old.map(document), new.map(document));
        }
        Self(sum)
    }

    /// The hash over everything.
    pub(crate) fn hash(self) -> String {
        Version::of(&self.0.to_be_bytes()).to_string()
    }
}

impl Accepted {
    /// The documents before the wave deployment that is under way, if there is one.
    pub(crate) fn former_documents(&self) -> &DocumentState {
        self.former.as_ref().map_or(&self.documents, |former| &former.former)
    }

    /// The stored state, with the files that the store has. `documents` are those of both.
    pub(crate) fn of_store(
        (codec, guarding): (&Codec, Guarding),
        revision: Revision,
        stored: StoredOverrides,
        (base, files): (Base, Arc<Files>),
        documents: DocumentState,
        stored_statuses: Arc<StoredStatuses>,
    ) -> Self {
        let mut groups = merge(&base.layer, &stored.overrides, &documents.translated.translation.groups);
        weights::lay_groups(codec, &mut groups, &documents.weights);
        if guarding != Guarding::default() {
            let free = |group: &EffectiveGroup| withhold::withhold(codec, guarding, None, group.clone());
            groups = groups.iter().map(|(name, group)| (name.clone(), Arc::new(free(group)))).collect();
        }
        Self {
            revision,
            guarding,
            groups,
            contents: ContentSum::default().changed(Base::default().parts(), base.parts()),
            base: base.layer,
            files,
            overrides: Arc::new(stored.overrides),
            documents,
            rollouts: Arc::new(stored.rollouts),
            stored_statuses,
            unreadable: Arc::new(stored.unreadable),
            ..Self::default()
        }
    }

    /// The contents of the files.
    pub(crate) fn files_say(&self) -> Base {
        Base { layer: Arc::clone(&self.base), documents: Arc::clone(&self.documents.files) }
    }

    /// The revision of the next commit.
    pub(crate) fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// A group as it is served; `None` if there is no such group.
    pub(crate) fn group(&self, name: &GroupName) -> Option<&Arc<EffectiveGroup>> {
        self.groups.get(name)
    }

    /// The file and line that define a group; `None` if no file does.
    pub(crate) fn definer(&self, name: &GroupName) -> Option<String> {
        self.base.groups.get(name)?.definition.as_ref()?;
        let place = self.files.values().find_map(|file| {
            let is_it =
                |object: &&FileObject| object.key == FileObjectKey::NodeGroup && object.group == *name;
            let object = file.objects.iter().find(is_it)?;
            Some(format!("{}:{}", file.path, object.line))
        });
        Some(place.unwrap_or_else(|| "a file".to_owned()))
    }

    /// The API's part of a group; empty if it has none.
    pub(crate) fn owned(&self, name: &GroupName) -> LayerGroup {
        self.overrides.groups.get(name).cloned().unwrap_or_default()
    }

    /// The API's part with a patch applied.
    pub(crate) fn patched_overrides(&self, patch: &Patch) -> Arc<Layer> {
        if patch.is_empty() {
            return Arc::clone(&self.overrides);
        }
        let mut overrides = (*self.overrides).clone();
        for (name, group) in patch {
            match group.as_ref().filter(|group| !stored_overrides::is_empty(group)) {
                Some(group) => _ = overrides.groups.insert(name.clone(), group.clone()),
                None => _ = overrides.groups.remove(name),
            }
        }
        Arc::new(overrides)
    }

    /// The objects with weights that the current wave deployment holds.
    pub(crate) fn resting(&self) -> Resting {
        self.wave.as_ref().map(|wave| wave.resting()).unwrap_or_default()
    }

    /// These overrides of weights, or the same value as before if they are equal.
    pub(crate) fn same_weights(&self, overrides: Overrides) -> Arc<Overrides> {
        let present = &self.documents.weights;
        if overrides == **present { Arc::clone(present) } else { Arc::new(overrides) }
    }

    /// A text with the places of the files' first errors; `None` if there are none.
    pub(crate) fn broken_files(&self) -> Option<String> {
        let first = |file: &FileStatus| file.diagnostics.iter().find(|found| found.is_error()).cloned();
        let errors = self.files.values().filter_map(first).take(MAX_NAMED_FILES);
        let places: Vec<String> = errors.map(|error| error.place.to_string()).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// Why nothing is served before the first complete load, and how to change that.
    pub(crate) fn nothing_served(&self) -> String {
        if let Some(unconfirmed) = &self.unconfirmed {
            return format!(
                "nothing is served yet: {unconfirmed}; if this is intended, run `xds-server reload --confirm`"
            );
        }
        self.broken_files().map_or_else(
            || "nothing is served yet: the files have not been read".to_owned(),
            |files| {
                format!(
                    "nothing is served yet: the first load of the files has errors in {files}; correct them, or \
                     start with --partial-start to serve everything else"
                )
            },
        )
    }

    /// The groups with another base, patched overrides, the resources of the documents, and overrides of weights.
    ///
    /// `base` may differ from the accepted one only in groups that `patch` names. A group without changes stays the same value.
    pub(crate) fn patched(
        &self,
        codec: &Codec,
        base: &Layer,
        patch: &Patch,
        documents: &DocumentState,
    ) -> Groups {
        self.regrouped(codec, base, patch, patch.keys().collect(), documents)
    }

    /// The groups with another base, patched overrides, and the resources of the documents.
    pub(crate) fn rebased(
        &self,
        codec: &Codec,
        base: &Layer,
        patch: &Patch,
        documents: &DocumentState,
    ) -> Groups {
        let names = differing(&self.base.groups, &base.groups).map(|(name, _, _)| name);
        self.regrouped(codec, base, patch, names.chain(patch.keys()).collect(), documents)
    }

    /// Returns `true` for groups without identities that must have no secrets, once the base and the overrides are these. A group
    /// that has had identities so far counts as one with identities: while it has secrets, it keeps them.
    pub(crate) fn withholds<'a>(
        &'a self,
        base: &'a Layer,
        patch: &'a Patch,
    ) -> impl Fn(&GroupName) -> bool + use<'a> {
        move |name| {
            let over = match patch.get(name) {
                Some(patched) => patched.as_ref(),
                None => self.overrides.groups.get(name),
            };
            let mut layers = [base.groups.get(name), over].into_iter().flatten();
            let definition = layers.find_map(|group| group.definition.as_ref());
            let was_guarded = || self.groups.get(name).is_some_and(|group| group.definition.is_guarded());
            self.guarding.secrets == Secrets::Identified
                && !definition.is_some_and(NodeGroup::is_guarded)
                && !was_guarded()
        }
    }

    /// The groups; `names` are those whose base or overrides differ.
    fn regrouped<'g>(
        &'g self,
        codec: &Codec,
        base: &Layer,
        patch: &Patch,
        mut names: BTreeSet<&'g GroupName>,
        documents: &'g DocumentState,
    ) -> Groups {
        let generated = &documents.translated.translation.groups;
        let before = &self.documents.translated.translation.groups;
        names.extend(differing(before, generated).map(|(name, _, _)| name));
        if !Arc::ptr_eq(&self.documents.weights, &documents.weights) {
            names.extend(weights::groups_of(&self.documents.weights));
            names.extend(weights::groups_of(&documents.weights));
        }
        let mut groups = self.groups.clone();
        for name in names {
            let under = base.groups.get(name);
            let over = match patch.get(name) {
                Some(patched) => patched.as_ref(),
                None => self.overrides.groups.get(name),
            };
            let generated = generated.get(name);
            if under.is_some() || over.is_some() || generated.is_some() || name.is_default() {
                let mut group = effective_group(name, under, over, generated);
                weights::lay_resources(codec, name, &mut group.resources, &documents.weights);
                let before = self.groups.get(name).map(|group| &**group);
                let group = withhold::withhold(codec, self.guarding, before, group);
                insert(&mut groups, name, group);
            } else {
                groups.remove(name);
            }
        }
        groups
    }
}

/// Keeps the value of a group that would be equal, so that its views need not be compiled again.
pub(crate) fn insert(groups: &mut Groups, name: &GroupName, group: EffectiveGroup) {
    if groups.get(name).is_none_or(|old| **old != group) {
        groups.insert(name.clone(), Arc::new(group));
    }
}

/// The most broken files that a readiness reason names.
const MAX_NAMED_FILES: usize = 10;

#[cfg(test)]
mod tests {
    use crate::model::document::Translated;
    use xds_cache::layer::GeneratedGroup;
    use xds_cache::{Profile, ResourceType};

    use super::*;

    fn name(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    fn resources(content: &str) -> Resources {
        let resource = Resource::plain(ResourceType::Cluster, "c", content.to_owned());
        [Arc::new(resource)].into_iter().collect()
    }

    fn layer(groups: &[&str]) -> Arc<Layer> {
        let group =
            |group: &&str| (name(group), LayerGroup { resources: resources("raw"), ..LayerGroup::default() });
        Arc::new(Layer { groups: groups.iter().map(group).collect() })
    }

    fn generated(groups: &[(&str, Profile, &str)]) -> Arc<Translated> {
        let mut translated = Translated::default();
        for (group, profile, content) in groups {
            let group: &mut GeneratedGroup = translated.translation.groups.entry(name(group)).or_default();
            group.profiles.insert(*profile, resources(content));
        }
        Arc::new(translated)
    }

    fn accepted(base: &Arc<Layer>, overrides: &Arc<Layer>, generated: &Arc<Translated>) -> Accepted {
        Accepted {
            base: Arc::clone(base),
            overrides: Arc::clone(overrides),
            documents: DocumentState { translated: Arc::clone(generated), ..DocumentState::default() },
            groups: merge(base, overrides, &generated.translation.groups),
            ..Accepted::default()
        }
    }

    /// The groups that are another value, or are gone.
    fn touched(before: &Groups, after: &Groups) -> Vec<String> {
        let names: BTreeSet<&GroupName> = before.keys().chain(after.keys()).collect();
        let pointer = |groups: &Groups, name: &GroupName| groups.get(name).map(Arc::as_ptr);
        let touched = names.into_iter().filter(|name| pointer(before, name) != pointer(after, name));
        touched.map(ToString::to_string).collect()
    }

    #[test]
    fn a_group_of_which_nothing_changed_stays_the_very_same() {
        let (base, overrides) = (layer(&["file", "n"]), layer(&["api"]));
        let first = [("api", Profile::Grpc, "1"), ("gone", Profile::Envoy, "1"), ("n", Profile::Envoy, "1")];
        let codec = Codec::new().unwrap();
        let accepted = accepted(&base, &overrides, &generated(&first));
        let expect = |generated: &Arc<Translated>, patch: &Patch, expected: &[&str]| {
            let documents = DocumentState { translated: Arc::clone(generated), ..accepted.documents.clone() };
            let of = |way: fn(&Accepted, &Codec, &Layer, &Patch, &DocumentState) -> Groups| {
                way(&accepted, &codec, &base, patch, &documents)
            };
            for groups in [of(Accepted::patched), of(Accepted::rebased)] {
                let mut overrides = (*overrides).clone();
                for (name, group) in patch {
                    match group {
                        Some(group) => _ = overrides.groups.insert(name.clone(), group.clone()),
                        None => _ = overrides.groups.remove(name),
                    }
                }
                assert_eq!(groups, merge(&base, &overrides, &generated.translation.groups));
                assert_eq!(touched(&accepted.groups, &groups), expected);
            }
        };
        let same = generated(&first);
        expect(&accepted.documents.translated, &Patch::new(), &[]);
        expect(&same, &Patch::new(), &[]);
        let other_profile = generated(&[("api", Profile::Envoy, "1"), first[1], first[2]]);
        expect(&other_profile, &Patch::new(), &["api"]);
        let other_content = generated(&[first[0], ("new", Profile::Envoy, "1"), ("n", Profile::Envoy, "2")]);
        expect(&other_content, &Patch::new(), &["gone", "n", "new"]);
        let patch = Patch::from([(name("api"), None), (name("gone"), Some(LayerGroup::default()))]);
        expect(&accepted.documents.translated, &patch, &["api"]);
        expect(&generated(&first[1..]), &patch, &["api"]);
    }
}
