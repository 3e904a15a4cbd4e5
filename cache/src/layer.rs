//! Layers: the groups and resources of each source, and the effective groups that they make together (D6).
//!
//! Resources that are generated from route documents are not a layer. They differ by profile, and lie below both layers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::group::{GroupName, NodeGroup};
use crate::node::Profile;
use crate::resource::{Origin, Resource};
use crate::resource_key::ResourceKey;

/// Resources by type and name. A copy shares its contents with the original, and costs nothing.
///
/// Each resource is stored under its own key, which costs a pointer. The key is not the resource itself, because the map keeps
/// some keys for its structure after their resources are removed.
#[derive(Clone, Default, PartialEq)]
pub struct Resources(OrdMap<Arc<ResourceKey>, Arc<Resource>>);

impl Resources {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource, and returns the one that it replaces.
    pub fn insert(&mut self, resource: Arc<Resource>) -> Option<Arc<Resource>> {
        self.0.insert(Arc::clone(resource.shared_key()), resource)
    }

    /// Removes a resource.
    pub fn remove(&mut self, key: &ResourceKey) -> Option<Arc<Resource>> {
        self.0.remove(key)
    }
}

impl Deref for Resources {
    type Target = OrdMap<Arc<ResourceKey>, Arc<Resource>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Extend<Arc<Resource>> for Resources {
    fn extend<I: IntoIterator<Item = Arc<Resource>>>(&mut self, resources: I) {
        resources.into_iter().for_each(|resource| _ = self.insert(resource));
    }
}

impl FromIterator<Arc<Resource>> for Resources {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        let mut all = Self::default();
        all.extend(resources);
        all
    }
}

impl<'r> IntoIterator for &'r Resources {
    type Item = (&'r Arc<ResourceKey>, &'r Arc<Resource>);
    type IntoIter = <&'r OrdMap<Arc<ResourceKey>, Arc<Resource>> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The definition and resources of one group in one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerGroup {
    /// The definition, if this source defines the group.
    pub definition: Option<NodeGroup>,
    /// The label that its publisher gave the resources (D4).
    pub label: Option<Arc<str>>,
    /// The resources that this source owns in the group.
    pub resources: Resources,
}

/// The contents of one source: the files are the base, the admin API the overrides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// By group name.
    pub groups: OrdMap<GroupName, LayerGroup>,
}

impl Layer {
    /// The resources of a group; none if this source does not know the group.
    #[must_use]
    pub fn resources(&self, group: &GroupName) -> Option<&Resources> {
        self.groups.get(group).map(|group| &group.resources)
    }

    /// How many resources there are in all groups.
    #[must_use]
    pub fn n_resources(&self) -> usize {
        self.groups.values().map(|group| group.resources.len()).sum()
    }
}

/// The resources that route documents generate for one group, separately for each kind of client (D3).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeneratedGroup {
    /// The definition, if documents call for the group and no source defines it.
    pub definition: Option<NodeGroup>,
    /// The resources for each kind of client; a profile that is absent gets none.
    pub profiles: BTreeMap<Profile, Resources>,
}

/// The resources that route documents generate, by group name; every group that is named here exists.
pub type Generated = OrdMap<GroupName, GeneratedGroup>;

/// One group in the form in which it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveGroup {
    /// The group's definition.
    pub definition: NodeGroup,
    /// The label of the API's publication, shown where everything of a type comes from it.
    pub label: Option<Arc<str>>,
    /// Its resources for every kind of client: those of the API over those of the files.
    pub resources: Resources,
    /// Its resources for one kind of client, of documents; [`resources`](Self::resources) lie over them.
    pub generated: BTreeMap<Profile, Resources>,
    /// The parts that are not in the group, because it would give them to clients that have proved nothing.
    pub withheld: Arc<[Withheld]>,
}

impl EffectiveGroup {
    /// A group with these resources, of which nothing is generated or withheld.
    #[must_use]
    pub fn new(definition: NodeGroup, resources: Resources) -> Self {
        Self { definition, label: None, resources, generated: BTreeMap::new(), withheld: Arc::default() }
    }
}

/// A part of a group that is not served, because it holds a secret and the group has no `identities`.
#[derive(Clone, Debug, PartialEq)]
pub enum Withheld {
    /// A resource. An earlier version without a secret may be served in its place.
    Resource {
        /// The resource that is not served.
        resource: Arc<Resource>,
        /// The path of its first secret; empty if that is all of it.
        path: Arc<str>,
    },
    /// A definition without `identities`, for a group with secrets. The earlier one stays.
    Definition {
        /// A resource with a secret.
        secret: Arc<Resource>,
    },
}

/// All groups in the form in which they are served. The default group is always among them.
pub type Groups = OrdMap<GroupName, Arc<EffectiveGroup>>;

/// The groups that are not equal in both. The cost is that of the parts that they do not share, so one should be derived from
/// the other.
#[must_use]
pub fn differing<'g>(a: &'g Groups, b: &'g Groups) -> BTreeSet<&'g GroupName> {
    a.diff(b).map(|item| *name_of(&item)).collect()
}

fn name_of<'i, 'g, V>(item: &'i DiffItem<'g, 'g, GroupName, V>) -> &'i &'g GroupName {
    match item {
        DiffItem::Add(name, _) | DiffItem::Remove(name, _) | DiffItem::Update { new: (name, _), .. } => name,
    }
}

/// The bytes of the resources in `old` that `new` does not have; each kind of client counts for itself. The cost is that of the parts that
/// they do not share.
pub(crate) fn changed_bytes(old: &Groups, new: &Groups) -> usize {
    let nothing = Resources::new();
    let of_maps = |old: &Resources, new: &Resources| -> usize {
        let replaced = old.diff(&new.0).filter_map(|item| match item {
            DiffItem::Add(..) => None,
            DiffItem::Remove(_, resource) | DiffItem::Update { old: (_, resource), .. } => {
                Some(resource.n_bytes())
            }
        });
        replaced.sum()
    };
    let of_groups = |name: &GroupName| -> usize {
        let [old, new] = [old, new].map(|groups| groups.get(name));
        let own = |group: Option<&'_ Arc<EffectiveGroup>>| {
            group.map_or_else(Resources::new, |group| group.resources.clone())
        };
        let generated = old.into_iter().flat_map(|group| &group.generated).map(|(profile, old)| {
            of_maps(old, new.and_then(|group| group.generated.get(profile)).unwrap_or(&nothing))
        });
        of_maps(&own(old), &own(new)) + generated.sum::<usize>()
    };
    differing(old, new).into_iter().map(of_groups).sum()
}

/// Adds the keys under which clients of a profile may get something else from `new` than from `old`.
pub fn changed_keys(
    old: Option<&Arc<EffectiveGroup>>,
    new: Option<&Arc<EffectiveGroup>>,
    profile: Profile,
    changed: &mut BTreeSet<Arc<ResourceKey>>,
) {
    if old.map(Arc::as_ptr) == new.map(Arc::as_ptr) {
        return;
    }
    let nothing = Resources::new();
    let maps = |group: Option<&Arc<EffectiveGroup>>| {
        let generated = group.and_then(|group| group.generated.get(&profile));
        [group.map(|group| &group.resources), generated].map(|map| map.unwrap_or(&nothing).clone())
    };
    for (old, new) in maps(old).iter().zip(&maps(new)) {
        changed.extend(old.diff(new).map(|item| match item {
            DiffItem::Add(key, _) | DiffItem::Remove(key, _) => Arc::clone(key),
            DiffItem::Update { new: (key, _), .. } => Arc::clone(key),
        }));
    }
}

/// Merges the overrides over the base, and both over the generated resources.
///
/// Groups are made as by [`effective_group`]; the default group is always there.
#[must_use]
pub fn merge(base: &Layer, overrides: &Layer, generated: &Generated) -> Groups {
    let default = GroupName::default_group();
    let names = base.groups.keys().chain(overrides.groups.keys()).chain(generated.keys()).chain([&default]);
    let names: BTreeSet<&GroupName> = names.collect();
    let group = |name| {
        let (under, over) = (base.groups.get(name), overrides.groups.get(name));
        effective_group(name, under, over, generated.get(name))
    };
    names.into_iter().map(|name| (name.clone(), Arc::new(group(name)))).collect()
}

/// One group, from the parts of each source.
///
/// Its definition comes from the base if that defines it, otherwise from the overrides, otherwise from documents. A group that
/// has resources and no definition selects the node whose id is the group's name. A resource of the overrides shadows the
/// base's of the same type and name; either of them shadows a generated one.
#[must_use]
pub fn effective_group(
    name: &GroupName,
    base: Option<&LayerGroup>,
    overrides: Option<&LayerGroup>,
    generated: Option<&GeneratedGroup>,
) -> EffectiveGroup {
    let layers = [base, overrides].into_iter().flatten();
    let definition = layers
        .clone()
        .find_map(|group| group.definition.clone())
        .or_else(|| generated.and_then(|group| group.definition.clone()))
        .unwrap_or_else(|| undefined(name));
    let mut resources = Resources::new();
    for layer in layers {
        if resources.is_empty() {
            resources = layer.resources.clone();
        } else {
            resources.extend(layer.resources.values().cloned());
        }
    }
    EffectiveGroup {
        definition,
        label: overrides.and_then(|group| group.label.clone()),
        resources,
        generated: generated.map(|group| group.profiles.clone()).unwrap_or_default(),
        withheld: Arc::default(),
    }
}

fn undefined(name: &GroupName) -> NodeGroup {
    if name.is_default() { NodeGroup::default_group() } else { NodeGroup::for_node_id(name.clone()) }
}

impl EffectiveGroup {
    /// The resources that clients of a profile get from the group, each key once: first the resources for all of them, then those
    /// generated for the profile. Both parts are sorted.
    pub fn resources_for(
        &self,
        profile: Profile,
    ) -> impl Iterator<Item = (&Arc<ResourceKey>, &Arc<Resource>)> {
        let generated = self.generated.get(&profile).into_iter().flatten();
        self.resources.iter().chain(generated.filter(|(key, _)| !self.resources.contains_key(*key)))
    }

    /// Returns `true` if clients of a profile get a resource of this type and name from the group.
    #[must_use]
    pub fn has(&self, profile: Profile, key: &ResourceKey) -> bool {
        self.find(profile, key).is_some()
    }

    /// The kinds of clients that its nodes can be.
    #[must_use]
    pub fn profiles(&self) -> &'static [Profile] {
        match self.definition.client {
            Some(Profile::Envoy) => &[Profile::Envoy],
            Some(Profile::Grpc) => &[Profile::Grpc],
            None => &Profile::ALL,
        }
    }

    /// The resource that clients of a profile get from the group under a key.
    #[must_use]
    pub fn find(&self, profile: Profile, key: &ResourceKey) -> Option<&Arc<Resource>> {
        self.resources.get(key).or_else(|| self.generated.get(&profile)?.get(key))
    }

    /// Returns `true` if `resource`, which the group serves, is part of a publication by the API. Generated resources are part
    /// of none.
    pub(crate) fn is_published(&self, resource: &Resource) -> bool {
        *resource.origin() == Origin::Api && self.resources.contains_key(resource.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_type::ResourceType;

    #[test]
    fn what_is_replaced_or_removed_is_not_kept() {
        let resource = |name: usize, text: &str| {
            let text = text.to_owned();
            Arc::new(Resource::plain(ResourceType::Cluster, &format!("{name:04}"), text))
        };
        let first: Vec<_> = (0..1_000).map(|name| resource(name, "1")).collect();
        let weak: Vec<_> = first.iter().map(Arc::downgrade).collect();
        let mut resources: Resources = first.into_iter().collect();
        for name in 0..1_000 {
            let new = resource(name, "2");
            match name % 3 {
                0 => drop(resources.remove(new.key())),
                _ => drop(resources.insert(new)),
            }
        }
        assert_eq!(weak.iter().filter(|one| one.strong_count() > 0).count(), 0);
        assert!(resources.iter().all(|(key, resource)| Arc::ptr_eq(key, resource.shared_key())));
    }
}
