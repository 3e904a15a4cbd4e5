//! Resources of one type by name, and by everything else under which they can be found.
//!
//! All maps are persistent: a copy shares its contents with the original, and the cost of a change does not depend on the number of
//! resources.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use imbl::{OrdMap, OrdSet};

use crate::host;
use crate::resource::Resource;
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;
use crate::virtual_host::Affixes;
use crate::work::{self, Work};
use crate::xdstp;

/// The key of a resource where all are of one type: as good as its name, and half as large. The maps share keys instead of
/// resources, because they keep some keys for their structure after the resources are removed.
#[derive(Clone, Debug)]
pub(super) struct Named(Arc<ResourceKey>);

/// Names of resources by a key. The first of the names of one key counts.
type Pairs<K> = OrdSet<(K, Named)>;

/// Resources of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    resources: OrdMap<Named, Arc<Resource>>,
    totals: Totals,
    with_ttl: OrdSet<Named>,
    aliases: Pairs<Name>,
    host_patterns: Pairs<Name>,
    referrers: Pairs<Arc<ResourceKey>>,
    collections: Pairs<Name>,
    /// The domains of virtual hosts with a wildcard; empty for other types.
    affixes: Affixes,
}

/// The sum over a set of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// How many there are.
    pub(super) n: usize,
    /// How many of them no wildcard covers.
    pub(super) n_outside: usize,
    /// The sum of their hashes, modulo 2^128, which does not depend on the order of changes.
    pub(super) sum: u128,
}

impl Totals {
    pub(super) fn add(&mut self, resource: &Resource) {
        self.n += 1;
        self.n_outside += usize::from(!resource.in_wildcard());
        self.sum = self.sum.wrapping_add(resource.entry());
    }

    /// Removes a resource that was added.
    pub(super) fn take_out(&mut self, resource: &Resource) {
        self.n -= 1;
        self.n_outside -= usize::from(!resource.in_wildcard());
        self.sum = self.sum.wrapping_sub(resource.entry());
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            n: self.n + other.n,
            n_outside: self.n_outside + other.n_outside,
            sum: self.sum.wrapping_add(other.sum),
        }
    }

    /// The totals without a part of the added resources.
    pub(super) fn minus(self, part: Self) -> Self {
        Self {
            n: self.n - part.n,
            n_outside: self.n_outside - part.n_outside,
            sum: self.sum.wrapping_sub(part.sum),
        }
    }
}

impl Named {
    fn of(resource: &Resource) -> Self {
        Self(Arc::clone(resource.shared_key()))
    }

    pub(super) fn name(&self) -> &Name {
        &self.0.name
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Named {}

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        self.name()
    }
}

impl Index {
    /// Adds a resource, or replaces the one of that name.
    pub(super) fn insert(&mut self, resource: Arc<Resource>) {
        let old = self.resources.insert(Named::of(&resource), Arc::clone(&resource));
        self.note(old.as_deref(), Some(&resource));
    }

    pub(super) fn remove(&mut self, name: &str) {
        let old = self.resources.remove(name);
        self.note(old.as_deref(), None);
    }

    /// One resource replaced another.
    fn note(&mut self, old: Option<&Resource>, new: Option<&Resource>) {
        work::count(Work::Resource, 1);
        if let Some(old) = old {
            self.totals.take_out(old);
        }
        if let Some(new) = new {
            self.totals.add(new);
        }
        if old.map(Resource::aliases) != new.map(Resource::aliases) {
            self.note_aliases(old, new);
        }
        let [had_ttl, has_ttl] = [old, new].map(|one| one.is_some_and(|one| one.ttl().is_some()));
        let [was_pattern, is_pattern] = [old, new].map(|one| one.is_some_and(Resource::is_host_pattern));
        let Some(named) = new.or(old).map(Named::of) else { return };
        if had_ttl != has_ttl {
            set(&mut self.with_ttl, named.clone(), has_ttl);
        }
        if was_pattern != is_pattern {
            set(&mut self.host_patterns, (pattern_key(named.name()), named.clone()), is_pattern);
        }
        if let Some(glob) = xdstp::glob_of(named.name()).filter(|_| old.is_none() || new.is_none()) {
            set(&mut self.collections, (glob.into(), named.clone()), new.is_some());
        }
        let nothing = crate::References::default();
        let [before, after] = [old, new].map(|one| one.map_or(&nothing, Resource::references));
        for to in before.missing_in(after) {
            self.referrers.remove(&(Arc::clone(to), named.clone()));
        }
        for to in after.missing_in(before) {
            self.referrers.insert((Arc::clone(to), named.clone()));
        }
    }

    fn note_aliases(&mut self, old: Option<&Resource>, new: Option<&Resource>) {
        for (resource, is_new) in [(old, false), (new, true)] {
            let Some(resource) = resource else { continue };
            let has_domains = *resource.resource_type() == ResourceType::VirtualHost;
            for alias in resource.aliases() {
                let pair = (Arc::clone(alias), Named::of(resource));
                if set(&mut self.aliases, pair, is_new) && has_domains {
                    self.affixes.count(alias, is_new);
                }
            }
        }
    }

    /// The sum over all resources.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn resources(&self) -> &OrdMap<Named, Arc<Resource>> {
        &self.resources
    }

    /// The resources whose names come after this one, sorted by name; all of them if there is none.
    pub(super) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &Arc<Resource>> + Clone + use<'_> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.resources.range::<_, str>((from, Bound::Unbounded)).map(|(_, resource)| resource)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<Resource>> {
        self.resources.get(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Returns `true` if the resources are virtual hosts.
    pub(super) fn has_virtual_hosts(&self) -> bool {
        let first = self.resources.get_min();
        first.is_some_and(|(_, resource)| *resource.resource_type() == ResourceType::VirtualHost)
    }

    /// The names of resources with aliases, once for each alias, by alias.
    pub(super) fn with_alias(&self) -> impl Iterator<Item = &Name> {
        self.aliases.iter().map(|(_, named)| named.name())
    }

    /// The names of patterns of hosts, by their keys.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &Name> {
        self.host_patterns.iter().map(|(_, named)| named.name())
    }

    pub(super) fn affixes(&self) -> &Affixes {
        &self.affixes
    }

    /// The names of resources with a time to live, sorted.
    pub(super) fn with_ttl(&self) -> impl Iterator<Item = &Name> {
        self.with_ttl.iter().map(Named::name)
    }

    /// The names of resources with an alias, sorted.
    pub(super) fn by_alias<'a>(&'a self, alias: &str) -> impl Iterator<Item = &'a Name> + use<'a> {
        by_text(&self.aliases, alias)
    }

    /// The names of the patterns of hosts with a key, sorted.
    pub(super) fn by_pattern<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Name> + use<'a> {
        by_text(&self.host_patterns, key)
    }

    /// The names of the members of a glob collection, sorted.
    pub(super) fn by_glob<'a>(&'a self, glob: &str) -> impl Iterator<Item = &'a Name> + use<'a> {
        by_text(&self.collections, glob)
    }

    /// The names of resources that refer to something, sorted.
    pub(super) fn by_target<'a>(&'a self, to: &ResourceKey) -> impl Iterator<Item = &'a Name> + use<'a> {
        with_key(&self.referrers, Arc::new(to.clone()))
    }
}

/// The key of a pattern of hosts. Most are their own, and share it.
fn pattern_key(pattern: &Name) -> Name {
    let key = host::key(pattern);
    if *key == **pattern { Arc::clone(pattern) } else { key.into() }
}

/// Adds or removes an item; returns `true` if that makes a difference.
fn set<T: Ord + Clone>(items: &mut OrdSet<T>, item: T, is_in: bool) -> bool {
    if is_in { items.insert(item).is_none() } else { items.remove(&item).is_some() }
}

fn by_text<'a>(pairs: &'a Pairs<Name>, text: &str) -> impl Iterator<Item = &'a Name> + use<'a> {
    // Most tables have no such pairs; then no text is copied.
    let key = (!pairs.is_empty()).then(|| Name::from(text));
    key.into_iter().flat_map(|key| with_key(pairs, key))
}

fn with_key<K: Ord + Clone>(pairs: &Pairs<K>, key: K) -> impl Iterator<Item = &Name> + use<'_, K> {
    let from = (key.clone(), FIRST.clone());
    pairs.range(from..).take_while(move |(of, _)| *of == key).map(|(_, named)| named.name())
}

/// No name comes before it.
static FIRST: LazyLock<Named> =
    LazyLock::new(|| Named(ResourceKey { resource_type: ResourceType::Runtime, name: "".into() }.into()));
