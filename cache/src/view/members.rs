//! The groups of a view, and what the default group gives to all views at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::key::ViewKey;
use crate::drain::DrainPolicy;
use crate::filling::filling;
use crate::group::GroupName;
use crate::layer::{EffectiveGroup, Groups, changed_keys};
use crate::node::Profile;
use crate::resource::Resource;
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;
use crate::table::{NONE, TypeTable};

/// The groups of a view at one revision, the one that wins first. Groups that do not exist have no resources.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    groups: Box<[Option<Arc<EffectiveGroup>>]>,
    profile: Profile,
}

impl Members {
    pub(crate) fn new(key: &ViewKey, groups: &Groups) -> Self {
        let groups = key.groups.iter().map(|name| groups.get(name).cloned()).collect();
        Self { groups, profile: key.profile }
    }

    /// The groups of the key before any of them has resources.
    pub(crate) fn none(key: &ViewKey) -> Self {
        Self { groups: key.groups.iter().map(|_| None).collect(), profile: key.profile }
    }

    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    /// The groups that exist, the one that wins first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<EffectiveGroup>> {
        self.groups.iter().flatten()
    }

    /// All but the default group, by position.
    pub(crate) fn own(&self) -> impl Iterator<Item = (usize, &Arc<EffectiveGroup>)> {
        let n_own = self.groups.len().saturating_sub(1);
        let own = self.groups.iter().take(n_own).enumerate();
        own.filter_map(|(position, group)| Some((position, group.as_ref()?)))
    }

    pub(crate) fn get(&self, position: usize) -> Option<&Arc<EffectiveGroup>> {
        self.groups.get(position)?.as_ref()
    }

    pub(crate) fn default_group(&self) -> Option<&Arc<EffectiveGroup>> {
        self.groups.last()?.as_ref()
    }

    /// The resource that clients are given under a key.
    pub(crate) fn find(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        self.iter().find_map(|group| group.find(self.profile, key))
    }

    /// The same without the default group, with the position of the group that gives it.
    pub(crate) fn find_own(&self, key: &ResourceKey) -> Option<(usize, &Arc<Resource>)> {
        self.own().find_map(|(position, group)| Some((position, group.find(self.profile, key)?)))
    }

    /// The keys under which a group other than the default one differs from `older`.
    pub(crate) fn changed_since(&self, older: &Self) -> BTreeSet<Arc<ResourceKey>> {
        let mut changed = BTreeSet::new();
        let n_own = self.groups.len().saturating_sub(1);
        for (old, new) in older.groups.iter().zip(&self.groups).take(n_own) {
            changed_keys(old.as_ref(), new.as_ref(), self.profile, &mut changed);
        }
        changed
    }

    /// Returns `true` if the groups have the same order as those in `older`.
    pub(crate) fn has_priorities_of(&self, older: &Self) -> bool {
        let priority = |group: &Option<Arc<EffectiveGroup>>| Some(group.as_ref()?.definition.priority);
        self.groups.iter().map(priority).eq(older.groups.iter().map(priority))
    }

    /// How long resources drain: the first group that sets it decides.
    pub(crate) fn drain_policy(&self) -> DrainPolicy {
        self.iter().fold(DrainPolicy::default(), |policy, group| policy.or(group.definition.drain))
    }
}

/// Changes to tables under names, by type.
pub(super) type Edits<T> = BTreeMap<ResourceType, Vec<(Name, T)>>;

/// The tables of the default group for one kind of client. All views of the kind lie over it.
#[derive(Debug, Default)]
pub(crate) struct Base {
    group: Option<Arc<EffectiveGroup>>,
    tables: BTreeMap<ResourceType, Arc<TypeTable>>,
    /// How many resources are part of a publication by the API.
    n_published: BTreeMap<ResourceType, usize>,
}

impl Base {
    /// The tables for the default group of `groups`; costs the difference from these.
    pub(crate) fn next(self: &Arc<Self>, groups: &Groups, profile: Profile) -> Arc<Self> {
        let group = groups.get(&GroupName::default_group());
        if self.is_of(group) {
            return Arc::clone(self);
        }
        let mut changed = BTreeSet::new();
        changed_keys(self.group.as_ref(), group, profile, &mut changed);
        let mut next = Self {
            group: group.cloned(),
            tables: self.tables.clone(),
            n_published: self.n_published.clone(),
        };
        let mut edits: Edits<Option<Arc<Resource>>> = Edits::new();
        for key in filling(changed.iter()) {
            let found = |group: Option<&Arc<EffectiveGroup>>| group?.find(profile, key).cloned();
            let [old, new] = [self.group.as_ref(), group].map(found);
            let is_published = |group: Option<&Arc<EffectiveGroup>>, one: &Option<Arc<Resource>>| {
                one.as_ref().zip(group).is_some_and(|(one, group)| group.is_published(one))
            };
            let n_published = next.n_published.entry(key.resource_type.clone()).or_default();
            *n_published += usize::from(is_published(group, &new));
            *n_published -= usize::from(is_published(self.group.as_ref(), &old));
            edits.entry(key.resource_type.clone()).or_default().push((Arc::clone(&key.name), new));
        }
        for (of_type, edits) in edits {
            match TypeTable::edited(self.tables.get(&of_type), &edits) {
                Some(table) => next.tables.insert(of_type, table),
                None => next.tables.remove(&of_type),
            };
        }
        Arc::new(next)
    }

    /// Returns `true` if these are the tables of this same group value.
    pub(crate) fn is_of(&self, group: Option<&Arc<EffectiveGroup>>) -> bool {
        self.group.as_ref().map(Arc::as_ptr) == group.map(Arc::as_ptr)
    }

    pub(crate) fn tables(&self) -> &BTreeMap<ResourceType, Arc<TypeTable>> {
        &self.tables
    }

    pub(crate) fn table(&self, of_type: &ResourceType) -> &Arc<TypeTable> {
        self.tables.get(of_type).unwrap_or(&NONE)
    }

    /// Returns `true` if every resource of a type is part of a publication by the API.
    pub(crate) fn is_published(&self, of_type: &ResourceType) -> bool {
        self.n_published.get(of_type).copied().unwrap_or_default() == self.table(of_type).len()
    }
}
