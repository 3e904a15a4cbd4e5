//! The resources of one type in a view, and the difference between two such tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resource::{Name, Resource};
use crate::resource_type::ResourceType;
use crate::version::{Version, VersionHasher};
use crate::{virtual_host, xdstp};

/// All resources of one type in a view, sorted by name, with their common version.
///
/// Streams keep the table that they were sent instead of copies of its names and versions, so what a stream costs does not
/// grow with the number of resources.
#[derive(Debug)]
pub struct TypeTable {
    version: Version,
    resources: Box<[Arc<Resource>]>,
    /// Position in `resources` by alias; of two resources with one alias the first by name has it.
    aliases: BTreeMap<Name, usize>,
    /// Positions of the resources that have a time to live.
    with_ttl: Box<[usize]>,
    is_all_in_wildcard: bool,
    has_virtual_hosts: bool,
    /// What changed from the table that this one replaced in its view.
    since: Option<(Version, Arc<Changes>)>,
}

/// What is different in a newer table. Names are sorted and unique, and none is in both lists.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Added resources, and those whose version changed.
    pub changed: Vec<Arc<Resource>>,
    /// The names that are gone.
    pub removed: Vec<Name>,
}

impl PartialEq for Resource {
    /// Equal name, type and content.
    fn eq(&self, other: &Self) -> bool {
        self.version() == other.version() && self.key() == other.key()
    }
}

impl Changes {
    /// Whether nothing is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// Every name that is different, changed ones first.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.changed.iter().map(|resource| resource.name()).chain(&self.removed)
    }
}

impl TypeTable {
    /// Makes a table of resources that are sorted by name and have unique names.
    #[must_use]
    pub fn new(resources: Vec<Arc<Resource>>) -> Self {
        debug_assert!(resources.is_sorted_by(|a, b| a.name() < b.name()), "sorted and unique");
        let mut hasher = VersionHasher::new();
        let mut aliases = BTreeMap::new();
        let mut with_ttl = Vec::new();
        for (position, resource) in resources.iter().enumerate() {
            hasher.update(resource.name().as_bytes());
            hasher.update(resource.version().to_string().as_bytes());
            for alias in resource.aliases() {
                aliases.entry(Arc::clone(alias)).or_insert(position);
            }
            if resource.ttl().is_some() {
                with_ttl.push(position);
            }
        }
        Self {
            version: hasher.finish(),
            is_all_in_wildcard: resources.iter().all(|resource| resource.in_wildcard()),
            has_virtual_hosts: resources
                .first()
                .is_some_and(|resource| *resource.resource_type() == ResourceType::VirtualHost),
            resources: resources.into(),
            aliases,
            with_ttl: with_ttl.into(),
            since: None,
        }
    }

    /// The same, remembering what is different from the table that it replaces, so that streams which hold that one find
    /// their difference without comparing.
    #[must_use]
    pub fn succeeding(previous: &Self, resources: Vec<Arc<Resource>>) -> Self {
        let mut table = Self::new(resources);
        let changes = compare(&previous.resources, &table.resources);
        table.since = Some((previous.version, Arc::new(changes)));
        table
    }

    /// Hash over names and versions (D4).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// All resources, sorted by name.
    #[must_use]
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resources that have a time to live, sorted by name.
    pub fn resources_with_ttl(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.with_ttl.iter().filter_map(|position| self.resources.get(*position))
    }

    /// Whether a wildcard covers every resource.
    #[must_use]
    pub fn is_all_in_wildcard(&self) -> bool {
        self.is_all_in_wildcard
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The resource with exactly this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Resource>> {
        let position = self.resources.binary_search_by(|resource| (**resource.name()).cmp(name)).ok()?;
        self.resources.get(position)
    }

    /// The resource that has this alias (row A109).
    #[must_use]
    pub fn find_alias(&self, alias: &str) -> Option<&Arc<Resource>> {
        self.aliases.get(alias).and_then(|position| self.resources.get(*position))
    }

    /// The resource that a client gets for a name (D15): the one of that name, the one with that alias, or the virtual host whose
    /// domains match best (row A118).
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<&Arc<Resource>> {
        let found = self.find(name).or_else(|| self.find_alias(name));
        if found.is_some() || !self.has_virtual_hosts {
            return found;
        }
        virtual_host::domains(name).find_map(|domain| self.find_alias(&domain))
    }

    /// The members of an `xdstp:` glob collection, sorted by name (row A154). Resources whose paths are not in canonical form
    /// are members of none.
    pub fn members<'a>(&'a self, glob: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        let directory = xdstp::directory(glob);
        let first = self.resources.partition_point(|resource| **resource.name() < *directory);
        let below = self.resources.iter().skip(first);
        below
            .take_while(move |resource| resource.name().starts_with(directory))
            .filter(move |resource| xdstp::glob_of(resource.name()).is_some_and(|of| of == glob))
    }

    /// Whether any resource can be asked for by another name than its own, so that what a name stands for can change without a
    /// change of that resource.
    #[must_use]
    pub fn has_aliases(&self) -> bool {
        !self.aliases.is_empty()
    }

    /// Whether names are matched to the domains of virtual hosts.
    #[must_use]
    pub fn has_virtual_hosts(&self) -> bool {
        self.has_virtual_hosts
    }

    /// What is different here from `older`; remembered for the table that this one replaced, computed for any other.
    #[must_use]
    pub fn changes_since(&self, older: &Self) -> Arc<Changes> {
        self.remembered_changes_since(older)
            .unwrap_or_else(|| Arc::new(compare(&older.resources, &self.resources)))
    }

    /// The same, if it need not be computed by walking over both tables.
    #[must_use]
    pub fn remembered_changes_since(&self, older: &Self) -> Option<Arc<Changes>> {
        match &self.since {
            _ if older.version == self.version => Some(Arc::default()),
            Some((version, changes)) if *version == older.version => Some(Arc::clone(changes)),
            Some(_) | None => None,
        }
    }
}

impl Default for TypeTable {
    /// No resources.
    fn default() -> Self {
        Self::new(vec![])
    }
}

/// One walk over two sorted lists.
fn compare(older: &[Arc<Resource>], newer: &[Arc<Resource>]) -> Changes {
    let mut changes = Changes::default();
    let mut older = older.iter().peekable();
    for resource in newer {
        while let Some(gone) = older.next_if(|old| old.name() < resource.name()) {
            changes.removed.push(Arc::clone(gone.name()));
        }
        let unchanged = older
            .next_if(|old| old.name() == resource.name())
            .is_some_and(|old| old.version() == resource.version());
        if !unchanged {
            changes.changed.push(Arc::clone(resource));
        }
    }
    changes.removed.extend(older.map(|gone| Arc::clone(gone.name())));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(content: &[(&str, &'static str)]) -> TypeTable {
        TypeTable::new(resources(content))
    }

    fn resources(content: &[(&str, &'static str)]) -> Vec<Arc<Resource>> {
        content
            .iter()
            .map(|(name, value)| Arc::new(Resource::plain(ResourceType::Cluster, name, value.as_bytes())))
            .collect()
    }

    fn names(changes: &Changes) -> (Vec<&str>, Vec<&str>) {
        (
            changes.changed.iter().map(|r| &**r.name()).collect(),
            changes.removed.iter().map(|n| &**n).collect(),
        )
    }

    #[test]
    fn the_difference_is_what_was_added_changed_and_removed() {
        let older = table(&[("a", "1"), ("b", "1"), ("d", "1"), ("e", "1")]);
        let newer = table(&[("a", "1"), ("b", "2"), ("c", "1"), ("e", "1")]);
        assert_eq!(names(&newer.changes_since(&older)), (vec!["b", "c"], vec!["d"]));
        assert_eq!(names(&older.changes_since(&newer)), (vec!["b", "d"], vec!["c"]));
        assert!(newer.changes_since(&table(&[("a", "1"), ("b", "2"), ("c", "1"), ("e", "1")])).is_empty());
    }

    #[test]
    fn the_remembered_difference_equals_the_computed_one() {
        let older = table(&[("a", "1"), ("b", "1")]);
        let content = resources(&[("b", "2"), ("c", "1")]);
        let successor = TypeTable::succeeding(&older, content.clone());
        assert_eq!(successor.changes_since(&older), TypeTable::new(content).changes_since(&older));
    }

    #[test]
    fn names_are_found_exactly() {
        let table = table(&[("a", "1"), ("ab", "1"), ("b", "1")]);
        assert_eq!(table.find("ab").map(|r| &**r.name()), Some("ab"));
        assert!(table.find("aa").is_none() && table.find("").is_none() && table.find("AB").is_none());
    }
}
