//! Which served resources name resources that their clients are not served.
//!
//! A client waits for what a resource names, or does without it, so such a reference is told for as long as it stands. References
//! need not match exactly (pitfall 74): a resource that nothing names is fine, and one that is missing may be in a client's bootstrap.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use imbl::ordmap::DiffItem;
use imbl::{OrdSet, ordset};

use crate::group::{GroupName, NodeGroup};
use crate::layer::{self, EffectiveGroup, Groups, Resources};
use crate::node::Profile;
use crate::references::{Reference, References};
use crate::resource::Resource;
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;
use crate::work::{self, Work};
use crate::xdstp;

/// The references of served resources whose target is not served, by group. It never changes: [`changed`](Self::changed) makes that of
/// other groups from it, which costs what the groups do not share.
///
/// A reference leads somewhere if the group has the target, or the default group, or any group that may select the same node. A
/// resource for every kind of client is fine if one kind has the target. References of *generated* resources are not judged: the
/// translation makes what they name, except what must not exist because a document wants requests to fail. Names that end in `*` are
/// for resources on demand, except that of scopes: a client asks for all of them at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissingReferences {
    /// Every reference: the resource that refers, under the target.
    uses: ByKey,
    /// Those whose target is neither in their own group nor in the default group.
    away: ByKey,
    /// The groups other than the default group that have a resource, under its key.
    holders: ByKey,
    /// The resources that have other names too, under these.
    aliases: ByKey,
    missing: OrdSet<MissingReference>,
}

/// A reference of a served resource to one that is not served. The fields that name it are among the resource's
/// [`references`](Resource::references).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingReference {
    /// The group that has the resource.
    pub group: GroupName,
    /// The resource that refers.
    pub from: Arc<ResourceKey>,
    /// What it names, in the canonical spelling.
    pub to: Arc<ResourceKey>,
}

/// Groups, and resources of theirs, under keys.
#[derive(Clone, Debug, Default, PartialEq)]
struct ByKey(OrdSet<Entry>);

/// `None` sorts first, so that a range begins with it.
type Entry = (Arc<ResourceKey>, Option<GroupName>, Option<Arc<ResourceKey>>);

/// References to look at again.
type Doubtful = BTreeSet<MissingReference>;

impl MissingReference {
    /// The fields of the resource that name the target.
    pub fn paths<'r>(&self, from: &'r Resource) -> impl Iterator<Item = &'r Arc<str>> {
        let names_it = |reference: &&'r Reference| *canonical(&reference.to) == *self.to;
        from.references().into_iter().filter(names_it).map(|reference| &reference.path)
    }
}

impl MissingReferences {
    /// The references of these resources to what is not among them.
    #[must_use]
    pub fn among(resources: Resources) -> Self {
        let group = EffectiveGroup::new(NodeGroup::default_group(), resources);
        let groups = Groups::from_iter([(GroupName::default_group(), Arc::new(group))]);
        Self::default().changed(&Groups::new(), &groups)
    }

    /// The missing references of `after`, if these are those of `before`.
    #[must_use]
    pub fn changed(&self, before: &Groups, after: &Groups) -> Self {
        let mut next = self.clone();
        let mut doubtful = Doubtful::new();
        for name in layer::differing(before, after) {
            let [old, new] = [before, after].map(|groups| groups.get(name).map(|group| &**group));
            match (old, new) {
                // Its nodes may be in other groups now.
                (Some(old), Some(new)) if !has_same_nodes(old, new) => {
                    next.replace(name, [Some(old), None], &mut doubtful);
                    next.replace(name, [None, Some(new)], &mut doubtful);
                }
                (_, _) => next.replace(name, [old, new], &mut doubtful),
            }
        }
        for reference in doubtful {
            next.judge(reference, after);
        }
        next
    }

    /// All of them, by group, then by the resource that refers.
    pub fn iter(&self) -> impl Iterator<Item = &MissingReference> {
        self.missing.iter()
    }

    /// Those of resources of one group.
    pub fn of_group<'a>(&'a self, group: &'a GroupName) -> impl Iterator<Item = &'a MissingReference> {
        let first = MissingReference { group: group.clone(), from: Arc::clone(&NONE), to: Arc::clone(&NONE) };
        self.missing.range(first..).take_while(move |one| one.group == *group)
    }

    /// Those that are not in `before`. Costs what the two do not share.
    pub fn news<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a MissingReference> {
        before.missing.diff(&self.missing).filter_map(|item| match item {
            ordset::DiffItem::Add(new) => Some(new),
            ordset::DiffItem::Remove(_) => None,
        })
    }

    /// Returns `true` if everything leads somewhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// Puts a group in the place of its former value, and collects what has to be judged again because of that.
    fn replace(
        &mut self,
        name: &GroupName,
        [old, new]: [Option<&EffectiveGroup>; 2],
        doubtful: &mut Doubtful,
    ) {
        let nothing = Resources::new();
        let own = [old, new].map(|group| group.map_or(&nothing, |group| &group.resources));
        for (key, versions) in changes(own) {
            self.refer(name, key, versions, doubtful);
        }
        let generated = |profile: Profile| {
            let of = |group: &EffectiveGroup| group.generated.get(&profile).cloned();
            [old, new].map(|group| group.and_then(of).unwrap_or_default())
        };
        let parts = Profile::ALL.map(generated);
        let parts = parts.iter().map(|[old, new]| [old, new]).chain([own]);
        // Keys under which there is something else to be found.
        let mut turned = BTreeSet::new();
        for (key, [before, after]) in parts.flat_map(changes) {
            let [old, new] = [old, new].map(|group| other_keys(group, key));
            turned.extend((before.is_some() != after.is_some()).then(|| Arc::clone(key)));
            for alias in old.symmetric_difference(&new) {
                self.aliases.set(alias, name, Some(key), new.contains(alias));
                turned.insert(Arc::clone(alias));
            }
        }
        for key in turned {
            if !name.is_default() {
                self.holders.set(&key, name, None, !versions(new, &key).is_empty());
            }
            let own = self.uses.of(&key, Some(name).filter(|name| !name.is_default()));
            let others = self.away.of(&key, None);
            let reference = |(group, from): (&GroupName, Option<&Arc<ResourceKey>>)| {
                Some(MissingReference { group: group.clone(), from: Arc::clone(from?), to: Arc::clone(&key) })
            };
            doubtful.extend(own.chain(others).filter_map(reference));
        }
    }

    /// Puts the references of a resource in the place of those that it had.
    fn refer(
        &mut self,
        name: &GroupName,
        key: &Arc<ResourceKey>,
        versions: [Option<&Resource>; 2],
        doubtful: &mut Doubtful,
    ) {
        let none = References::default();
        let [old, new] = versions.map(|one| one.map_or(&none, Resource::references));
        let reference =
            |to: Arc<ResourceKey>| MissingReference { group: name.clone(), from: Arc::clone(key), to };
        for to in old.missing_in(new).map(canonical).filter(|to| !new.has(to)) {
            self.uses.set(&to, name, Some(key), false);
            self.away.set(&to, name, Some(key), false);
            self.missing.remove(&reference(to));
        }
        for to in new.missing_in(old).map(canonical).filter(|to| is_asked_for(to)) {
            self.uses.set(&to, name, Some(key), true);
            doubtful.insert(reference(to));
        }
    }

    /// Looks whether a reference leads somewhere, if it still stands.
    fn judge(&mut self, reference: MissingReference, groups: &Groups) {
        work::count(Work::Reference, 1);
        let MissingReference { group: name, from, to } = &reference;
        let Some(group) = groups.get(name).filter(|_| self.uses.has(to, name, from)) else { return };
        let default = groups.get(&GroupName::default_group());
        let is_near = [Some(group), default].into_iter().flatten().any(|near| self.has(group, near, to));
        self.away.set(to, name, Some(from), !is_near);
        match is_near || self.is_elsewhere(group, to, groups) {
            true => self.missing.remove(&reference),
            false => self.missing.insert(reference),
        };
    }

    /// Returns `true` if another group that may have the same nodes has a resource.
    fn is_elsewhere(&self, group: &EffectiveGroup, to: &Arc<ResourceKey>, groups: &Groups) -> bool {
        let selector = &group.definition.selector;
        let holders = self.holders.of(to, None).chain(self.aliases.of(to, None));
        let mut holders = holders.filter_map(|(name, _)| groups.get(name));
        holders.any(|holder| selector.meets(&holder.definition.selector) && self.has(group, holder, to))
    }

    /// Returns `true` if `holder` has a resource for clients of `group`.
    fn has(&self, group: &EffectiveGroup, holder: &EffectiveGroup, key: &Arc<ResourceKey>) -> bool {
        group.profiles().iter().any(|profile| holder.has(*profile, key))
            || self.aliases.of(key, Some(&holder.definition.name)).next().is_some()
    }
}

impl ByKey {
    fn set(&mut self, key: &Arc<ResourceKey>, group: &GroupName, of: Option<&Arc<ResourceKey>>, is_in: bool) {
        let entry = (Arc::clone(key), Some(group.clone()), of.map(Arc::clone));
        match is_in {
            true => self.0.insert(entry),
            false => self.0.remove(&entry),
        };
    }

    fn has(&self, key: &Arc<ResourceKey>, group: &GroupName, of: &Arc<ResourceKey>) -> bool {
        self.0.contains(&(Arc::clone(key), Some(group.clone()), Some(Arc::clone(of))))
    }

    /// The entries under a key, of one group or of all.
    fn of<'a>(
        &'a self,
        key: &'a Arc<ResourceKey>,
        group: Option<&'a GroupName>,
    ) -> impl Iterator<Item = (&'a GroupName, Option<&'a Arc<ResourceKey>>)> {
        let entries = self.0.range((Arc::clone(key), group.cloned(), None)..);
        let entries = entries.take_while(move |(other, of, _)| {
            other == key && group.is_none_or(|group| of.as_ref() == Some(group))
        });
        entries.filter_map(|(_, group, of)| Some((group.as_ref()?, of.as_ref())))
    }
}

/// Returns `true` if a group selects the same nodes, of the same kinds.
fn has_same_nodes(old: &EffectiveGroup, new: &EffectiveGroup) -> bool {
    let (old, new) = (&old.definition, &new.definition);
    old.selector == new.selector && old.client == new.client
}

/// The keys under which two maps differ, with the resources of both.
fn changes([old, new]: [&Resources; 2]) -> impl Iterator<Item = (&Arc<ResourceKey>, [Option<&Resource>; 2])> {
    old.diff(new).map(|item| match item {
        DiffItem::Add(key, new) => (key, [None, Some(&**new)]),
        DiffItem::Update { old: (_, old), new: (key, new) } => (key, [Some(&**old), Some(&**new)]),
        DiffItem::Remove(key, old) => (key, [Some(&**old), None]),
    })
}

/// The key under which a target is looked up: `xdstp:` names have several spellings.
fn canonical(to: &Arc<ResourceKey>) -> Arc<ResourceKey> {
    match xdstp::canonical(&to.name) {
        Cow::Borrowed(_) => Arc::clone(to),
        Cow::Owned(name) => {
            Arc::new(ResourceKey { resource_type: to.resource_type.clone(), name: name.into() })
        }
    }
}

/// The resources that clients of each kind get from a group under a key.
fn versions<'g>(group: Option<&'g EffectiveGroup>, key: &ResourceKey) -> Vec<&'g Arc<Resource>> {
    Profile::ALL.iter().filter_map(|profile| group?.find(*profile, key)).collect()
}

/// The other keys under which clients find the resource of a key. Any scope is an answer for a client that asks for all of them.
fn other_keys(group: Option<&EffectiveGroup>, key: &ResourceKey) -> BTreeSet<Arc<ResourceKey>> {
    let of_type = &key.resource_type;
    let names = |resource: &Arc<Resource>| {
        let all = (*of_type == ResourceType::ScopedRouteConfiguration).then(|| Name::from(ALL));
        resource.aliases().iter().cloned().chain(all).collect::<Vec<_>>()
    };
    let names = versions(group, key).into_iter().flat_map(names);
    names.map(|name| Arc::new(ResourceKey { resource_type: of_type.clone(), name })).collect()
}

/// Returns `true` if clients that have a reference to `to` ask for it at once.
fn is_asked_for(to: &ResourceKey) -> bool {
    !to.means_all() || (to.resource_type == ResourceType::ScopedRouteConfiguration && &*to.name == ALL)
}

/// No key is before this one.
static NONE: LazyLock<Arc<ResourceKey>> = LazyLock::new(|| {
    let [resource_type, ..] = ResourceType::KNOWN;
    Arc::new(ResourceKey { resource_type, name: "".into() })
});

/// The name that stands for all scopes.
const ALL: &str = "*";

#[cfg(test)]
mod tests;
