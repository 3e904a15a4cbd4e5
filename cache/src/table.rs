//! The resources of one type in a view, and the difference between two such tables.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::host::{self, Authority};
use crate::resource::{Name, Resource, ResourceKey};
use crate::resource_type::ResourceType;
use crate::transition::Transitions;
use crate::version::{Version, VersionHasher};
use crate::virtual_host::Domains;
use crate::xdstp;

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
    /// Position in `resources` by the key of a pattern of hosts; of two resources with one key the first by name has it.
    host_patterns: BTreeMap<String, usize>,
    is_all_in_wildcard: bool,
    /// The domains of virtual hosts; `None` for other types.
    domains: Option<Box<Domains>>,
    /// What changed from the table that this one replaced in its view.
    since: Option<(Version, Arc<Changes>)>,
    /// What changed from other tables, as far as somebody asked lately.
    compared: Mutex<Vec<(Version, Arc<Changes>)>>,
    /// Positions of the resources that refer to something; made when first asked for.
    referrers: OnceLock<HashMap<ResourceKey, Box<[usize]>>>,
    /// Positions of the members of each glob collection; made when first asked for.
    collections: OnceLock<HashMap<String, Vec<usize>>>,
    pub(crate) transitions: Transitions,
}

/// What is different in a newer table. Names are sorted and unique, and none is in both lists.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Added resources, and those whose version changed.
    pub changed: Vec<Arc<Resource>>,
    /// The names that are gone.
    pub removed: Vec<Name>,
}

/// What a table has for a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// A resource that is given as it is: its name, or an alias, or a domain of it is what was asked for.
    AsItIs(&'a Arc<Resource>),
    /// A pattern of hosts: the resource is given under the name that was asked for.
    Template(&'a Arc<Resource>),
}

/// Names of resources that may be patterns of hosts.
#[derive(Debug, Default)]
pub struct HostPatterns<'a> {
    names: HashSet<&'a str>,
    keys: HashSet<String>,
}

impl HostPatterns<'_> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl<'a> FromIterator<&'a Name> for HostPatterns<'a> {
    fn from_iter<I: IntoIterator<Item = &'a Name>>(names: I) -> Self {
        let names: HashSet<&str> = names.into_iter().map(|name| &**name).collect();
        let keys = names.iter().map(|name| host::key(name)).collect();
        Self { names, keys }
    }
}

impl<'a> Found<'a> {
    /// The name of the resource that a client gets which asked for `asked`.
    #[must_use]
    pub fn name(self, asked: &'a Name) -> &'a Name {
        match self {
            Self::AsItIs(resource) => resource.name(),
            Self::Template(_) => asked,
        }
    }

    /// The resource that a client gets which asked for `asked`. What is made of a template is made anew each time: equal names of
    /// equal templates give equal resources.
    #[must_use]
    pub fn under(self, asked: &str) -> Arc<Resource> {
        match self {
            Self::AsItIs(resource) => Arc::clone(resource),
            Self::Template(template) => Arc::new(host::derived(template, asked)),
        }
    }
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

    /// How many names are different.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changed.len() + self.removed.len()
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
        let mut host_patterns = BTreeMap::new();
        for (position, resource) in resources.iter().enumerate() {
            hasher.update(resource.name().as_bytes());
            hasher.update(resource.version().to_string().as_bytes());
            for alias in resource.aliases() {
                aliases.entry(Arc::clone(alias)).or_insert(position);
            }
            if resource.is_host_pattern() {
                host_patterns.entry(host::key(resource.name())).or_insert(position);
            }
            if resource.ttl().is_some() {
                with_ttl.push(position);
            }
        }
        let has_virtual_hosts =
            resources.first().is_some_and(|resource| *resource.resource_type() == ResourceType::VirtualHost);
        let domains = has_virtual_hosts.then(|| {
            let mut domains = Box::<Domains>::default();
            aliases.iter().for_each(|(alias, position)| domains.insert(alias, *position));
            domains
        });
        Self {
            version: hasher.finish(),
            is_all_in_wildcard: resources.iter().all(|resource| resource.in_wildcard()),
            domains,
            resources: resources.into(),
            aliases,
            host_patterns,
            with_ttl: with_ttl.into(),
            since: None,
            compared: Mutex::default(),
            referrers: OnceLock::new(),
            collections: OnceLock::new(),
            transitions: Transitions::default(),
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

    /// What a client gets for a name (D15): the resource of that name, the one with that alias, the virtual host whose domains
    /// match best (row A118), or what is made of the pattern of hosts that matches best.
    #[must_use]
    pub fn look_up(&self, name: &str) -> Option<Found<'_>> {
        let found = self.find(name).or_else(|| self.find_alias(name));
        let Some(domains) = self.domains.as_ref().filter(|_| found.is_none()) else {
            return found.map(Found::AsItIs).or_else(|| self.template(name).map(Found::Template));
        };
        domains.find(name).and_then(|position| self.resources.get(position)).map(Found::AsItIs)
    }

    /// The resource that a client gets for a name; see [`look_up`](Self::look_up).
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<Arc<Resource>> {
        self.look_up(name).map(|found| found.under(name))
    }

    /// The resource that is meant by an `xdstp:` name, or the pattern of hosts that matches a name best. None of that without
    /// patterns: then names are what they are.
    fn template(&self, name: &str) -> Option<&Arc<Resource>> {
        if self.host_patterns.is_empty() {
            return None;
        }
        let authority = Authority::of(name)?;
        let plain = authority.plain().and_then(|plain| self.find(plain));
        plain.or_else(|| {
            let position = authority.keys().find_map(|key| self.host_patterns.get(key))?;
            self.resources.get(*position)
        })
    }

    /// Whether a client that asks for `name` would get something else if resources of the names `changed` came or left: one of them
    /// matches, and nothing that the table has matches better. Says yes for what the table has and serves the name by.
    #[must_use]
    pub fn may_derive(&self, changed: &HostPatterns<'_>, name: &str) -> bool {
        let Some(authority) = Authority::of(name) else { return false };
        if authority.plain().is_some_and(|plain| changed.names.contains(plain)) {
            return true;
        }
        let mut keys = authority.keys();
        let best = keys.find(|key| changed.keys.contains(*key) || self.host_patterns.contains_key(*key));
        best.is_some_and(|best| changed.keys.contains(best))
            && ![Some(name), authority.plain()].into_iter().flatten().any(|name| self.find(name).is_some())
    }

    /// The members of an `xdstp:` glob collection, sorted by name (row A154). Resources whose paths are not in canonical form
    /// are members of none.
    pub fn members(&self, glob: &str) -> impl Iterator<Item = &Arc<Resource>> + use<'_> {
        let collections = self.collections.get_or_init(|| collections(&self.resources));
        let positions = collections.get(glob).map(|positions| &positions[..]).unwrap_or_default();
        positions.iter().filter_map(|position| self.resources.get(*position))
    }

    /// The resources that refer to `to`, sorted by name.
    pub fn referrers(&self, to: &ResourceKey) -> impl Iterator<Item = &Arc<Resource>> {
        let index = self.referrers.get_or_init(|| index_of_referrers(&self.resources));
        let positions = index.get(to).map(|positions| &positions[..]).unwrap_or_default();
        positions.iter().filter_map(|position| self.resources.get(*position))
    }

    /// Whether any resource can be asked for by another name than its own, so that what a name stands for can change without a
    /// change of a resource of that name.
    #[must_use]
    pub fn has_other_names(&self) -> bool {
        !self.aliases.is_empty() || !self.host_patterns.is_empty()
    }

    /// Whether names are matched to patterns of hosts.
    #[must_use]
    pub fn has_host_patterns(&self) -> bool {
        !self.host_patterns.is_empty()
    }

    /// Whether names are matched to the domains of virtual hosts.
    #[must_use]
    pub fn has_virtual_hosts(&self) -> bool {
        self.domains.is_some()
    }

    /// What is different here from `older`; remembered for the table that this one replaced, computed for any other.
    #[must_use]
    pub fn changes_since(&self, older: &Self) -> Arc<Changes> {
        if let Some(remembered) = self.remembered_changes_since(older) {
            return remembered;
        }
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, changes)) = compared.iter().find(|(version, _)| *version == older.version) {
            return Arc::clone(changes);
        }
        let changes = Arc::new(compare(&older.resources, &self.resources));
        if compared.len() == MAX_COMPARED {
            compared.remove(0);
        }
        compared.push((older.version, Arc::clone(&changes)));
        changes
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

/// How many differences from tables other than the one before are remembered: streams that fell behind, and those that are
/// led over step by step, are mostly in one of a few places.
const MAX_COMPARED: usize = 8;

fn index_of_referrers(resources: &[Arc<Resource>]) -> HashMap<ResourceKey, Box<[usize]>> {
    let mut index: HashMap<ResourceKey, Vec<usize>> = HashMap::new();
    for (position, resource) in resources.iter().enumerate() {
        for to in resource.references().targets() {
            index.entry(to.clone()).or_default().push(position);
        }
    }
    index.into_iter().map(|(to, positions)| (to, positions.into())).collect()
}

/// Each resource is a member of one collection at most.
fn collections(resources: &[Arc<Resource>]) -> HashMap<String, Vec<usize>> {
    let mut collections: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, resource) in resources.iter().enumerate() {
        if let Some(glob) = xdstp::glob_of(resource.name()) {
            collections.entry(glob).or_default().push(position);
        }
    }
    collections
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
    use crate::resource::ResourceDraft;

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

    fn listener(name: &str, content: &'static str, host_pattern: bool) -> Arc<Resource> {
        let draft = Resource::plain(ResourceType::Listener, name, content).to_draft();
        let in_wildcard = !name.starts_with('*');
        Arc::new(Resource::new(ResourceDraft { host_pattern, in_wildcard, ..draft }))
    }

    #[test]
    fn a_host_is_served_by_the_pattern_that_matches_best() {
        let patterns = ["*", "*.b.io", "*.io", "A.b.io", "a.b.io:80", "raw.io", "x.b.io"];
        let listeners = patterns.map(|name| listener(name, "1", name != "raw.io"));
        let table = TypeTable::new(listeners.to_vec());
        let urn = |rest: &str| format!("xdstp://any/envoy.config.listener.v3.Listener/{rest}");
        let rows = [
            ("a.b.io:80", Some("a.b.io:80")),
            ("a.b.io:81", Some("A.b.io")),
            ("a.b.io", Some("A.b.io")),
            ("A.b.io", Some("A.b.io")),
            ("x.B.io:80", Some("x.b.io")),
            ("y.b.io", Some("*.b.io")),
            ("z.y.b.io:80", Some("*.b.io")),
            ("b.io", Some("*.io")),
            ("io", Some("*")),
            ("[::1]:80", Some("*")),
            ("raw.io", Some("raw.io")),
            ("raw.io:80", Some("*.io")),
            ("*.io", Some("*.io")),
            ("*.b.org", None),
            ("a/b", None),
            (&urn("y.b.io"), Some("*.b.io")),
            (&urn("a.b.io:80?k=v"), Some("a.b.io:80")),
            (&urn("raw.io"), Some("raw.io")),
            (&urn("%5B::1%5D"), Some("*")),
            (&urn("*"), None),
            ("xdstp://any/envoy.config.cluster.v3.Cluster/y.b.io", None),
        ];
        let may_derive =
            |pattern: &str, asked: &str| table.may_derive(&[Name::from(pattern)].iter().collect(), asked);
        for (asked, expected) in rows {
            let found = table.look_up(asked);
            let source = found.map(|found| match found {
                Found::AsItIs(resource) | Found::Template(resource) => &**resource.name(),
            });
            assert_eq!(source, expected, "{asked}");
            let is_itself = expected == Some(asked);
            assert_eq!(matches!(found, Some(Found::AsItIs(_))), is_itself, "{asked}");
            if let Some(expected) = expected.filter(|_| !is_itself) {
                assert!(may_derive(expected, asked), "{asked} by {expected}");
                assert!(expected == "*" || !may_derive("*", asked), "{asked} by *");
            }
        }
        assert!(may_derive("*.y.b.io", "z.y.b.io:80"), "it would match better than what there is");
        assert!(!may_derive("*.y.b.io", "y.b.io"), "it would not match");
    }

    #[test]
    fn what_is_made_of_a_pattern_has_the_name_that_was_asked_for() {
        let table = |content| TypeTable::new(vec![listener("*.io", content, true)]);
        let (first, second) = (table("\x0a\x04*.io\x1a\x01x"), table("\x0a\x04*.io\x1a\x01y"));
        let derived = first.resolve("a.io:80").expect("derived");
        assert_eq!((&**derived.name(), &**derived.value()), ("a.io:80", &b"\x0a\x07a.io:80\x1a\x01x"[..]));
        assert!(!derived.in_wildcard() && !derived.is_host_pattern());
        assert_eq!(first.resolve("a.io:80").as_ref(), Some(&derived), "every time the same");
        assert_ne!(second.resolve("a.io:80").as_ref(), Some(&derived), "it follows the template");
        assert_ne!(first.resolve("b.io").map(|other| other.version()), Some(derived.version()));
    }

    #[test]
    fn without_patterns_and_for_other_types_names_are_what_they_are() {
        let table = |resource| TypeTable::new(vec![resource]);
        let raw = table(listener("a.io", "1", false));
        let urn = "xdstp://any/envoy.config.listener.v3.Listener/a.io";
        assert!(raw.resolve("a.io:80").is_none() && raw.resolve(urn).is_none() && !raw.has_host_patterns());
        let draft = Resource::plain(ResourceType::Cluster, "*", "1").to_draft();
        let cluster = table(Arc::new(Resource::new(ResourceDraft { host_pattern: true, ..draft })));
        assert!(cluster.resolve("a.io").is_none() && !cluster.has_host_patterns());
    }

    #[test]
    fn names_are_found_exactly() {
        let table = table(&[("a", "1"), ("ab", "1"), ("b", "1")]);
        assert_eq!(table.find("ab").map(|r| &**r.name()), Some("ab"));
        assert!(table.find("aa").is_none() && table.find("").is_none() && table.find("AB").is_none());
    }
}
