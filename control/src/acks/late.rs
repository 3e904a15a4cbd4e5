//! The changes of a publication for clients that come later, in views that nobody followed then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::layer::{self, EffectiveGroup, Resources};
use xds_cache::{
    Changes, DiffItem, GroupName, Groups, Profile, ResourceType, StatusBoard, ViewChange, ViewKey,
};

type ByType = BTreeMap<ResourceType, Changes>;

/// The changes of a publication by group and kind of client.
#[derive(Debug, Default)]
pub(super) struct InGroups {
    groups: BTreeMap<GroupName, BTreeMap<Profile, ByType>>,
    /// The views of these groups that were followed at the publication: what it changed in them is known.
    followed: BTreeSet<ViewKey>,
}

impl InGroups {
    /// Compares the groups before and after a publication. The cost is that of their differences.
    pub(super) fn new(before: &Groups, after: &Groups, board: &StatusBoard) -> Self {
        let mut all = Self::default();
        for name in layer::differing(before, after) {
            let [old, new] = [before, after].map(|groups| groups.get(name).map(|group| &**group));
            let of_profile = |profile| (profile, changes(old, new, profile));
            all.groups.insert(name.clone(), Profile::ALL.into_iter().map(of_profile).collect());
            all.followed.extend(board.views_of(name));
        }
        all
    }

    /// The changes in the views that are followed now, except those of `known` and those that were followed at the publication.
    pub(super) fn in_new_views(
        &self,
        board: &StatusBoard,
        known: impl Fn(&ViewKey) -> bool,
    ) -> Vec<ViewChange> {
        let views: BTreeSet<ViewKey> = self.groups.keys().flat_map(|name| board.views_of(name)).collect();
        let is_new = |key: &ViewKey| !self.followed.contains(key) && !known(key);
        views.into_iter().filter(is_new).map(|key| self.in_view(key)).collect()
    }

    fn in_view(&self, key: ViewKey) -> ViewChange {
        let mut all = ByType::new();
        let groups = key.groups.iter().filter_map(|name| self.groups.get(name)?.get(&key.profile));
        for (of, changes) in groups.flatten() {
            let of_type = all.entry(of.clone()).or_default();
            of_type.changed.extend(changes.changed.iter().cloned());
            of_type.removed.extend(changes.removed.iter().cloned());
        }
        ViewChange { key, changes: all.into_iter().map(|(of, changes)| (of, Arc::new(changes))).collect() }
    }

    /// How many bytes the resources have that it keeps.
    pub(super) fn n_bytes(&self) -> usize {
        let changes = self.groups.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        changes.flat_map(|changes| &changes.changed).map(|resource| resource.n_bytes()).sum()
    }
}

fn changes(old: Option<&EffectiveGroup>, new: Option<&EffectiveGroup>, profile: Profile) -> ByType {
    let nothing = Resources::default();
    let written =
        |group: Option<&'_ EffectiveGroup>| group.map_or(nothing.clone(), |group| group.resources.clone());
    let generated = |group: Option<&'_ EffectiveGroup>| {
        group.and_then(|group| group.generated.get(&profile)).cloned().unwrap_or_default()
    };
    let mut all = ByType::new();
    for (old, new) in [(written(old), written(new)), (generated(old), generated(new))] {
        for item in old.diff(&new) {
            match item {
                DiffItem::Add(key, resource) | DiffItem::Update { new: (key, resource), .. } => {
                    all.entry(key.resource_type.clone()).or_default().changed.push(Arc::clone(resource));
                }
                DiffItem::Remove(key, _) => {
                    all.entry(key.resource_type.clone()).or_default().removed.push(Arc::clone(&key.name));
                }
            }
        }
    }
    all
}
