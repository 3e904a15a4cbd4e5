//! Layers: the groups and resources of each source, and the effective groups that they make together (D6).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::group::{GroupName, NodeGroup};
use crate::resource::{Origin, Resource, ResourceKey};

/// Resources by type and name.
pub type Resources = BTreeMap<ResourceKey, Arc<Resource>>;

/// What one source says of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerGroup {
    /// The definition, if this source defines the group.
    pub definition: Option<NodeGroup>,
    /// The label that its publisher gave the resources (D4).
    pub label: Option<Arc<str>>,
    /// The resources that this source owns in the group.
    pub resources: Resources,
}

/// What one source says: the files are the base, the admin API the overrides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// By group name.
    pub groups: BTreeMap<GroupName, LayerGroup>,
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

/// One group as it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveGroup {
    /// What the group is.
    pub definition: NodeGroup,
    /// The label of the API's publication, shown where everything of a type comes from it.
    pub label: Option<Arc<str>>,
    /// Its resources: those of the API over those of the files.
    pub resources: Resources,
}

/// All groups as they are served. Always has the default group.
pub type Groups = BTreeMap<GroupName, Arc<EffectiveGroup>>;

/// Lays the overrides over the base.
///
/// A group's definition comes from the base if it is defined there. A group that has resources and no definition selects the
/// node whose id is the group's name. A resource of the overrides shadows the base's of the same type and name.
#[must_use]
pub fn merge(base: &Layer, overrides: &Layer) -> Groups {
    let mut groups = Groups::new();
    let names = base.groups.keys().chain(overrides.groups.keys());
    for name in names.chain([&GroupName::default_group()]) {
        if groups.contains_key(name) {
            continue;
        }
        let (under, over) = (base.groups.get(name), overrides.groups.get(name));
        let definition = [under, over]
            .into_iter()
            .flatten()
            .find_map(|group| group.definition.clone())
            .unwrap_or_else(|| undefined(name));
        let mut resources = under.map(|group| group.resources.clone()).unwrap_or_default();
        if let Some(over) = over {
            resources
                .extend(over.resources.iter().map(|(key, resource)| (key.clone(), Arc::clone(resource))));
        }
        let label = over.and_then(|group| group.label.clone());
        groups.insert(name.clone(), Arc::new(EffectiveGroup { definition, label, resources }));
    }
    groups
}

fn undefined(name: &GroupName) -> NodeGroup {
    if name.is_default() { NodeGroup::default_group() } else { NodeGroup::for_node_id(name.clone()) }
}

impl EffectiveGroup {
    /// The label to show for `resource`, if it is part of a labelled publication.
    pub(crate) fn label_of(&self, resource: &Resource) -> Option<&Arc<str>> {
        self.label.as_ref().filter(|_| *resource.origin() == Origin::Api)
    }
}
