//! What is served and why: the two layers, what documents give, the groups made of them, and what is known of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::layer::{EffectiveGroup, LayerGroup, Resources, effective_group, merge};
use xds_cache::{GroupName, Groups, Layer, Publication, ResourceKey, Revision};
use xds_codec::Codec;
use xds_routes::DocumentKey;
use xds_store::{BlobHash, StoreError};

use super::documents::Said;
use super::observed::Observed;
use super::stored::Stored;
use super::wave::Wave;
use super::wave::ended::Ended;
use super::{Shared, documents, stored, stored_revision, wave, weights};
use crate::model::document::{DocumentState, GroupedDocuments};
use crate::model::rollouts::RolloutRecords;
use crate::model::{Event, FileStatus};

/// The state; changed only by whoever holds `Shared::changing`, and read at any time.
#[derive(Debug)]
pub(crate) struct State {
    codec: Codec,
    /// The revision that the overrides are of.
    pub(crate) revision: Revision,
    /// What the files give.
    pub(crate) base: Arc<Layer>,
    /// What the API owns.
    pub(crate) overrides: Arc<Layer>,
    /// The documents of both, and what they give.
    pub(crate) documents: DocumentState,
    /// The rollouts as they are stored.
    pub(crate) rollouts: Arc<RolloutRecords>,
    /// What the store remembered of documents when it was opened; nothing once the first complete load was published.
    pub(crate) observed: Arc<Observed>,
    /// All of it merged.
    pub(crate) groups: Groups,
    /// The stored records that could not be read: why, by key.
    pub(crate) unreadable: BTreeMap<String, String>,
    /// Other things that need attention, by subject.
    pub(crate) problems: BTreeMap<&'static str, String>,
    /// The watched files.
    pub(crate) files: Arc<BTreeMap<Arc<str>, FileStatus>>,
    /// The resources that the last load defines and that are not served, because something is wrong with them.
    pub(crate) unusable: Arc<BTreeSet<ResourceKey>>,
    /// Why a load is held back, if one is.
    pub(crate) held: Option<String>,
    /// The wave deployment that is under way.
    pub(crate) wave: Option<Wave>,
    /// Those that ended.
    pub(crate) ended: Ended,
    /// Whether the store knows the base as it is.
    pub(crate) is_recorded: bool,
    /// Whether it does not, and the next write is to make up for that.
    pub(crate) is_record_due: bool,
    /// Whether the first complete load was published.
    pub(crate) is_loaded: bool,
    /// Whether the server is shutting down.
    pub(crate) is_closing: bool,
}

/// New contents of some groups of a layer; `None` takes the group out of it.
pub(crate) type Patch = BTreeMap<GroupName, Option<LayerGroup>>;

/// What the state was when a change was begun.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) codec: Codec,
    pub(crate) revision: Revision,
    pub(crate) base: Arc<Layer>,
    pub(crate) overrides: Arc<Layer>,
    pub(crate) documents: DocumentState,
    pub(crate) rollouts: Arc<RolloutRecords>,
    pub(crate) observed: Arc<Observed>,
    pub(crate) groups: Groups,
    pub(crate) files: Arc<BTreeMap<Arc<str>, FileStatus>>,
}

impl State {
    /// What is stored, without any files. `documents` are those of `stored`.
    pub(crate) fn new(
        codec: &Codec,
        revision: Revision,
        stored: Stored,
        documents: DocumentState,
        observed: Observed,
    ) -> Self {
        let base = Arc::new(Layer::default());
        let overrides = Arc::new(stored.overrides);
        let mut groups = merge(&base, &overrides, &documents.translated.translation.groups);
        weights::lay_groups(codec, &mut groups, &documents.weights);
        Self {
            codec: codec.clone(),
            revision,
            groups,
            base,
            overrides,
            documents,
            rollouts: Arc::new(stored.rollouts),
            observed: Arc::new(observed),
            unreadable: stored.unreadable,
            problems: BTreeMap::new(),
            files: Arc::default(),
            unusable: Arc::default(),
            held: None,
            wave: None,
            ended: Ended::default(),
            is_recorded: false,
            is_record_due: false,
            is_loaded: false,
            is_closing: false,
        }
    }

    pub(crate) fn world(&self) -> World {
        World {
            codec: self.codec.clone(),
            revision: self.revision,
            base: Arc::clone(&self.base),
            overrides: Arc::clone(&self.overrides),
            documents: self.documents.clone(),
            rollouts: Arc::clone(&self.rollouts),
            observed: Arc::clone(&self.observed),
            groups: self.groups.clone(),
            files: Arc::clone(&self.files),
        }
    }

    /// What was published last, with everything that was accepted.
    pub(crate) fn published(&self) -> (Revision, Groups) {
        (self.revision, self.groups.clone())
    }

    /// The places of the files' first errors, in words; `None` if there are none.
    pub(crate) fn broken_files(&self) -> Option<String> {
        let first = |file: &FileStatus| file.diagnostics.iter().find(|found| found.is_error()).cloned();
        let errors = self.files.values().filter_map(first).take(MAX_NAMED_FILES);
        let places: Vec<String> = errors.map(|error| error.place.to_string()).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// Why nothing is served before the first load is complete, and what would change that.
    pub(crate) fn nothing_served(&self) -> String {
        if let Some(held) = &self.held {
            return format!(
                "nothing is served yet: {held}; `xds-server reload --confirm` says that this is meant"
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
}

impl World {
    /// The definition of a group as it is served; `None` if there is no such group.
    pub(crate) fn group(&self, name: &GroupName) -> Option<&Arc<EffectiveGroup>> {
        self.groups.get(name)
    }

    /// The file and line that define a group; `None` if no file does.
    pub(crate) fn definer(&self, name: &GroupName) -> Option<String> {
        self.base.groups.get(name)?.definition.as_ref()?;
        let place = self.files.values().find_map(|file| {
            let object =
                file.objects.iter().find(|object| object.kind == "NodeGroup" && object.group == *name)?;
            Some(format!("{}:{}", file.path, object.line))
        });
        Some(place.unwrap_or_else(|| "a file".to_owned()))
    }

    /// What the API says of a group; nothing, if it says nothing.
    pub(crate) fn owned(&self, name: &GroupName) -> LayerGroup {
        self.overrides.groups.get(name).cloned().unwrap_or_default()
    }

    /// The groups as they are after `base` and `overrides` were patched, and with what the documents then give and what is laid
    /// over weights.
    ///
    /// `base` may differ from the world's only in groups that `patch` names. A group that would be the same as it is stays the
    /// very same.
    pub(crate) fn patched(&self, base: &Layer, patch: &Patch, documents: &DocumentState) -> Groups {
        let mut names: BTreeSet<&GroupName> = patch.keys().collect();
        let generated = &documents.translated.translation.groups;
        if !Arc::ptr_eq(&self.documents.translated, &documents.translated) {
            names.extend(self.documents.translated.translation.groups.keys().chain(generated.keys()));
        }
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
                weights::lay_resources(&self.codec, name, &mut group.resources, &documents.weights);
                insert(&mut groups, name, group);
            } else {
                groups.remove(name);
            }
        }
        groups
    }

    /// The groups as they are with another base, the overrides patched, and what the documents then give.
    pub(crate) fn rebased(&self, base: &Layer, patch: &Patch, documents: &DocumentState) -> Groups {
        let mut everything: Patch =
            self.overrides.groups.iter().map(|(name, group)| (name.clone(), Some(group.clone()))).collect();
        everything.extend(patch.iter().map(|(name, group)| (name.clone(), group.clone())));
        let names: BTreeSet<&GroupName> = self.base.groups.keys().chain(base.groups.keys()).collect();
        for name in names {
            everything.entry(name.clone()).or_insert(None);
        }
        self.patched(base, &everything, documents)
    }
}

/// Keeps the very group that is there if it would be the same in every respect: then its views need not be compiled again.
pub(crate) fn insert(groups: &mut Groups, name: &GroupName, group: EffectiveGroup) {
    let is_same = groups.get(name).is_some_and(|old| {
        old.definition == group.definition
            && old.label == group.label
            && have_same_places(&old.resources, &group.resources)
            && old.generated.len() == group.generated.len()
            && old
                .generated
                .iter()
                .zip(&group.generated)
                .all(|((profile, old), (other, new))| profile == other && have_same_places(old, new))
    });
    if !is_same {
        groups.insert(name.clone(), Arc::new(group));
    }
}

/// Whether two groups have the same resources from the same places.
fn have_same_places(a: &Resources, b: &Resources) -> bool {
    a.len() == b.len()
        && a.values().zip(b.values()).all(|(a, b)| Arc::ptr_eq(a, b) || (a == b && a.origin() == b.origin()))
}

impl Shared {
    /// Publishes what is there, as the first complete load.
    pub(crate) fn publish_first(&self) {
        let (revision, groups) = {
            let mut state = self.state();
            state.is_loaded = true;
            state.observed = Arc::default();
            (state.revision, state.groups.clone())
        };
        self.publish(revision, groups, "store", "the stored state");
    }

    /// Publishes groups and tells of it. `source` is a word of [`Event::Published`].
    pub(crate) fn publish(
        &self,
        revision: Revision,
        groups: Groups,
        source: &'static str,
        summary: &str,
    ) -> Publication {
        self.publish_and(revision, groups, source, summary, || {})
    }

    /// The same; `then` is done when it is published, before that is told.
    pub(crate) fn publish_and(
        &self,
        revision: Revision,
        groups: Groups,
        source: &'static str,
        summary: &str,
        then: impl FnOnce(),
    ) -> Publication {
        // Before it is published, so that the first acknowledgement finds when that was.
        if let Some(observer) = &self.parts.observer {
            observer.published(source, revision);
        }
        let mut groups = groups;
        let behind = self.behind(&mut groups);
        let publication = self.parts.acks.publish_split(revision, groups, behind);
        tracing::info!(
            revision = revision.0,
            source,
            summary,
            n_views = publication.views.len(),
            "published"
        );
        then();
        self.tell(Event::Published { revision, source, summary: summary.to_owned() });
        publication
    }

    /// Takes the wave deployment from the store, unless it is the one that is known, and those that ended. One that cannot be
    /// read is a problem, and its change reaches everyone.
    pub(crate) fn read_wave(&self, keys: &BTreeMap<String, BlobHash>) -> Result<(), StoreError> {
        let read = wave::record::read(&self.parts.codec, &*self.parts.store, keys)?;
        let stored = match read {
            Ok(stored) => {
                self.solved("wave-record");
                stored
            }
            Err(reason) => {
                self.problem("wave-record", format!("the stored wave deployment cannot be read: {reason}"));
                None
            }
        };
        let ended = Ended::read(&*self.parts.store, keys)?;
        let mut state = self.state();
        state.ended = ended;
        let is_known = |wave: &Wave| {
            stored.as_ref().is_some_and(|stored| stored.id == wave.id && stored.reached == wave.reached)
        };
        if !state.wave.as_ref().is_some_and(is_known) {
            state.wave = stored;
        }
        drop(state);
        self.wave_told.notify_one();
        Ok(())
    }

    /// Takes in what others committed to the store since, on a thread of its own: many documents take seconds.
    pub(crate) async fn catch_up(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.parts.store.head() == stored_revision(self.state().revision) {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let caught_up = tokio::task::spawn_blocking(move || shared.take_in_others()).await;
        caught_up.unwrap_or(Err(StoreError::Closed))
    }

    fn take_in_others(&self) -> Result<(), StoreError> {
        let store = &self.parts.store;
        let world = self.state().world();
        let (revision, keys) = store.state();
        let revision = super::revision_of(revision);
        let last_good = Some((&*world.overrides, &*world.documents.owned));
        let stored = stored::read(&self.parts.codec, &**store, &keys, last_good)?;
        let names = world.overrides.groups.keys().chain(stored.overrides.groups.keys());
        let changed =
            names.filter(|name| world.overrides.groups.get(*name) != stored.overrides.groups.get(*name));
        let patch: Patch =
            changed.map(|name| (name.clone(), stored.overrides.groups.get(name).cloned())).collect();
        let owned = Arc::new(stored.documents);
        let is_news = |key: &DocumentKey| {
            let said =
                |documents: &GroupedDocuments| documents.get(key).map(|one| Arc::clone(&one.document.source));
            said(&owned) != said(&world.documents.owned)
        };
        let observed = Observed::read(&**store, &keys, is_news)?;
        let said = Said {
            files: Arc::clone(&world.documents.files),
            owned: Arc::clone(&owned),
            weights: Arc::new(stored.weights),
        };
        let documents =
            documents::next(&self.parts.codec, &world.documents, said, &observed, SystemTime::now());
        let groups = world.patched(&world.base, &patch, &documents);
        documents::log_news(&world.documents.translated, &documents.translated);
        let is_loaded = {
            let mut state = self.state();
            state.revision = revision;
            state.overrides = Arc::new(stored.overrides);
            state.documents = documents;
            state.rollouts = Arc::new(stored.rollouts);
            state.unreadable = stored.unreadable;
            state.groups = groups.clone();
            state.is_loaded
        };
        self.read_wave(&keys)?;
        self.weights_changed.notify_one();
        if is_loaded {
            self.publish(revision, groups, "store", "what another server committed");
        }
        Ok(())
    }
}

/// How many broken files a readiness reason names.
const MAX_NAMED_FILES: usize = 10;

#[cfg(test)]
mod tests {
    use crate::model::document::Translated;
    use xds_cache::layer::GeneratedGroup;
    use xds_cache::{Profile, Resource, ResourceType};

    use super::*;

    fn name(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    fn resources(content: &str) -> Resources {
        let resource = Resource::plain(ResourceType::Cluster, "c", content.to_owned());
        [(resource.key().clone(), Arc::new(resource))].into_iter().collect()
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

    fn world(base: &Arc<Layer>, overrides: &Arc<Layer>, generated: &Arc<Translated>) -> World {
        World {
            codec: Codec::new().unwrap(),
            revision: Revision(1),
            base: Arc::clone(base),
            overrides: Arc::clone(overrides),
            documents: DocumentState { translated: Arc::clone(generated), ..DocumentState::default() },
            rollouts: Arc::default(),
            observed: Arc::default(),
            groups: merge(base, overrides, &generated.translation.groups),
            files: Arc::default(),
        }
    }

    /// The groups that are not the very same, or are not there any more.
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
        let world = world(&base, &overrides, &generated(&first));
        let expect = |generated: &Arc<Translated>, patch: &Patch, expected: &[&str]| {
            let documents = DocumentState { translated: Arc::clone(generated), ..world.documents.clone() };
            for groups in [world.patched(&base, patch, &documents), world.rebased(&base, patch, &documents)] {
                let mut overrides = (*overrides).clone();
                for (name, group) in patch {
                    match group {
                        Some(group) => _ = overrides.groups.insert(name.clone(), group.clone()),
                        None => _ = overrides.groups.remove(name),
                    }
                }
                assert_eq!(groups, merge(&base, &overrides, &generated.translation.groups));
                assert_eq!(touched(&world.groups, &groups), expected);
            }
        };
        let same = generated(&first);
        expect(&world.documents.translated, &Patch::new(), &[]);
        expect(&same, &Patch::new(), &[]);
        let other_profile = generated(&[("api", Profile::Envoy, "1"), first[1], first[2]]);
        expect(&other_profile, &Patch::new(), &["api"]);
        let other_content = generated(&[first[0], ("new", Profile::Envoy, "1"), ("n", Profile::Envoy, "2")]);
        expect(&other_content, &Patch::new(), &["gone", "n", "new"]);
        let patch = Patch::from([(name("api"), None), (name("gone"), Some(LayerGroup::default()))]);
        expect(&world.documents.translated, &patch, &["api"]);
        expect(&generated(&first[1..]), &patch, &["api"]);
    }
}
