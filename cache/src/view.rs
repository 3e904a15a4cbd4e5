//! What one kind of client is served: all resources of its groups, as they stood at one revision.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crate::drain::{Drain, DrainPolicy, Draining, Terms};
use crate::group::GroupName;
use crate::layer::{EffectiveGroup, Groups, Resources};
use crate::node::Profile;
use crate::resource::{Resource, ResourceKey};
use crate::resource_type::ResourceType;
use crate::table::TypeTable;
use crate::version::Revision;
use crate::xdstp;

/// What selects a view: clients with equal keys share one (D14).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewKey {
    /// The groups of the node, the one that wins first. Never empty: the default group is always the last.
    pub groups: Arc<[GroupName]>,
    /// The kind of client.
    pub profile: Profile,
    /// [`AHEAD`](crate::AHEAD) if a wave deployment has reached the node; else 0.
    pub cohort: u32,
}

impl fmt::Display for ViewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<&str> = self.groups.iter().map(GroupName::as_str).collect();
        write!(f, "{}/{}", groups.join("+"), self.profile)
    }
}

/// Two groups of equal priority that both have a resource for the same nodes; the first one's is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The resource.
    pub key: ResourceKey,
    /// The group whose resource is served.
    pub winner: GroupName,
    /// The other group.
    pub loser: GroupName,
}

/// The compiled result for one [`ViewKey`]. Never changes once published.
#[derive(Debug)]
pub struct View {
    pub(crate) key: ViewKey,
    pub(crate) revision: Revision,
    pub(crate) epoch: u64,
    pub(crate) tables: BTreeMap<ResourceType, Arc<TypeTable>>,
    pub(crate) version_infos: BTreeMap<ResourceType, Arc<str>>,
    pub(crate) conflicts: Vec<Conflict>,
    /// Whether the groups give nothing.
    pub(crate) is_empty: bool,
    /// What of it is served only because it has not drained yet.
    pub(crate) drain: Drain,
}

static EMPTY: LazyLock<Arc<TypeTable>> = LazyLock::new(Arc::default);
static EMPTY_VERSION_INFO: LazyLock<Arc<str>> = LazyLock::new(|| EMPTY.version().to_string().into());

impl View {
    /// What selects this view.
    #[must_use]
    pub fn key(&self) -> &ViewKey {
        &self.key
    }

    /// The publication that this view shows.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Counts how often the selection of groups changed; a client whose view has another epoch than it resolved at resolves
    /// again.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The resources of a type; an empty table if there are none.
    #[must_use]
    pub fn table(&self, resource_type: &ResourceType) -> &Arc<TypeTable> {
        self.tables.get(resource_type).unwrap_or(&EMPTY)
    }

    /// The types that have resources, in order.
    pub fn types(&self) -> impl Iterator<Item = &ResourceType> {
        self.tables.keys()
    }

    /// All resources, by type and name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.tables.values().flat_map(|table| table.resources())
    }

    /// What a response for the type carries as version: the publisher's label if it has one (D4), else the table's version.
    /// For people; nothing is decided by it.
    #[must_use]
    pub fn version_info(&self, resource_type: &ResourceType) -> &Arc<str> {
        self.version_infos.get(resource_type).unwrap_or(&EMPTY_VERSION_INFO)
    }

    /// The resource that a client gets for a name (D15); see [`TypeTable::look_up`].
    #[must_use]
    pub fn resolve(&self, resource_type: &ResourceType, name: &str) -> Option<Arc<Resource>> {
        self.table(resource_type).resolve(&xdstp::canonical(name))
    }

    /// Whether the node is selected by no group but the default one, and that one has nothing (D3): then the server knows
    /// nothing of the node.
    #[must_use]
    pub fn is_unmatched(&self) -> bool {
        self.key.groups.len() == 1 && self.is_empty
    }

    /// What is served only because it left a while ago and what uses it shall end by itself: resources, then endpoints.
    pub fn draining(&self) -> impl Iterator<Item = Draining> {
        self.drain.draining()
    }

    /// Where groups of equal priority met.
    #[must_use]
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// A resource without the endpoints in it that drain.
    pub(crate) fn undrained(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        let of_endpoints = key.resource_type == ResourceType::ClusterLoadAssignment;
        let own = self.drain.own_assignment(&key.name).filter(|_| of_endpoints);
        own.or_else(|| self.table(&key.resource_type).find(&key.name))
    }
}

/// What a view is compiled from besides its groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    pub(crate) revision: Revision,
    pub(crate) epoch: u64,
    /// The view before; tables that did not change are taken from it.
    pub(crate) previous: Option<&'a View>,
    /// Another view from which clients come to this one.
    pub(crate) sibling: Option<&'a View>,
    /// How long things drain that no group says it of.
    pub(crate) drain: DrainPolicy,
    /// The time; without one nothing drains.
    pub(crate) now: Option<Instant>,
}

/// Compiles the view of `key`.
pub(crate) fn compile(key: ViewKey, groups: &Groups, circumstances: Circumstances<'_>) -> View {
    let Circumstances { revision, epoch, previous, .. } = circumstances;
    let members: Vec<&EffectiveGroup> =
        key.groups.iter().filter_map(|name| groups.get(name)).map(|g| &**g).collect();
    let mut merged: BTreeMap<&ResourceKey, (&EffectiveGroup, &Arc<Resource>)> = BTreeMap::new();
    let mut conflicts = Vec::new();
    for group in &members {
        for (resource_key, resource) in group.resources_for(key.profile) {
            match merged.entry(resource_key) {
                Entry::Vacant(entry) => {
                    entry.insert((group, resource));
                }
                Entry::Occupied(entry) => conflicts.extend(conflict(entry.get().0, group, resource_key)),
            }
        }
    }
    let is_empty = merged.is_empty();
    let mut version_infos: BTreeMap<ResourceType, Arc<str>> = BTreeMap::new();
    for owned in
        merged.values().collect::<Vec<_>>().chunk_by(|a, b| a.1.resource_type() == b.1.resource_type())
    {
        if let (Some((_, resource)), Some(label)) = (owned.first(), common_label(owned)) {
            version_infos.insert(resource.resource_type().clone(), Arc::clone(label));
        }
    }
    let mut resources: Resources =
        merged.into_iter().map(|(key, (_, resource))| (key.clone(), Arc::clone(resource))).collect();
    let drain = drain(&key, &members, &mut resources, circumstances);
    // A label names what was published, not that with something else.
    drain.types().into_iter().for_each(|of_type| drop(version_infos.remove(of_type)));
    let mut by_type: BTreeMap<ResourceType, Vec<Arc<Resource>>> = BTreeMap::new();
    for (resource_key, resource) in resources {
        by_type.entry(resource_key.resource_type).or_default().push(resource);
    }
    let mut tables = BTreeMap::new();
    for (resource_type, resources) in by_type {
        let table = table(resources, previous.and_then(|view| view.tables.get(&resource_type)));
        version_infos.entry(resource_type.clone()).or_insert_with(|| table.version().to_string().into());
        tables.insert(resource_type, table);
    }
    if let Some(label) = members.iter().find_map(|group| group.label.as_ref()) {
        for known in ResourceType::KNOWN {
            version_infos.entry(known).or_insert_with(|| Arc::clone(label));
        }
    }
    View { key, revision, epoch, tables, version_infos, conflicts, is_empty, drain }
}

/// What drains once the groups give `resources`; adds it to them. The first of the view's groups that says how long decides.
fn drain(
    key: &ViewKey,
    members: &[&EffectiveGroup],
    resources: &mut Resources,
    circumstances: Circumstances<'_>,
) -> Drain {
    let Circumstances { previous, sibling, now: Some(now), .. } = circumstances else {
        return Drain::default();
    };
    let before: Vec<&View> = previous.into_iter().chain(sibling).collect();
    let policy =
        members.iter().fold(DrainPolicy::default(), |policy, group| policy.or(group.definition.drain));
    let policy = policy.or(circumstances.drain);
    Drain::next(&before, resources, Terms { policy, profile: key.profile, now })
}

/// The previous table if it holds the very same resources, else one that succeeds it.
fn table(resources: Vec<Arc<Resource>>, previous: Option<&Arc<TypeTable>>) -> Arc<TypeTable> {
    match previous {
        Some(previous)
            if previous.len() == resources.len()
                && previous.resources().iter().zip(&resources).all(|(old, new)| Arc::ptr_eq(old, new)) =>
        {
            Arc::clone(previous)
        }
        Some(previous) => Arc::new(TypeTable::succeeding(previous, resources)),
        None => Arc::new(TypeTable::new(resources)),
    }
}

/// The label to show for a type: one that all its resources have from one group (D4).
fn common_label<'a>(owned: &[&(&'a EffectiveGroup, &Arc<Resource>)]) -> Option<&'a Arc<str>> {
    let (first, _) = owned.first()?;
    let all = owned
        .iter()
        .all(|(group, resource)| std::ptr::eq(*group, *first) && group.label_of(resource).is_some());
    if all { first.label.as_ref() } else { None }
}

/// Two groups of equal priority that own one key; the default group lies below all and never conflicts.
fn conflict(winner: &EffectiveGroup, loser: &EffectiveGroup, key: &ResourceKey) -> Option<Conflict> {
    let equal =
        winner.definition.priority == loser.definition.priority && !loser.definition.name.is_default();
    equal.then(|| Conflict {
        key: key.clone(),
        winner: winner.definition.name.clone(),
        loser: loser.definition.name.clone(),
    })
}
