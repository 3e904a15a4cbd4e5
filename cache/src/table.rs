//! The resources of one type in a view, and the difference between two such tables.
//!
//! Many views differ in a few resources from what everyone is served. So a table can lie over another: it shares everything of that
//! table which it does not have itself. This is not visible from outside: equal resources give equal versions, and every lookup
//! returns what a table that holds the same resources itself would return.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use imbl::ordmap::DiffItem;
use imbl::{OrdMap, OrdSet, ordset};

use crate::host::{self, Authority};
use crate::resource::Resource;
use crate::resource_key::{Name, ResourceKey};
use crate::version::{Version, VersionHasher};
use crate::virtual_host;
use crate::work::{self, Work};

mod index;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use index::{Index, Named, Totals};

/// All resources of one type in a view, by name, with their common version.
///
/// Streams keep the table that they were sent instead of copies of its names and versions, so the cost of a stream does not
/// grow with the number of resources. A table that replaces another, or lies over it, costs only the difference.
pub struct TypeTable {
    version: Version,
    version_text: Arc<str>,
    /// The resources that other tables may share.
    below: Arc<Index>,
    /// The differences of this table from those below.
    over: Option<Box<Over>>,
    /// Changes from the table that this one replaced in its view.
    since: Option<(Version, Arc<Changes>)>,
    /// Changes from other tables that were requested recently.
    compared: Mutex<Vec<(Version, Arc<Changes>)>>,
    pub(crate) transitions: Transitions,
}

/// Transitions of a table: to it from others, and from it to the next.
#[derive(Debug, Default)]
pub(crate) struct Transitions {
    /// Tables that lead here, by a hash over their deviations, as long as some client is there.
    pub(crate) leading_here: Mutex<Vec<(Version, Weak<TypeTable>)>>,
    /// The final table, if this one is transitional.
    pub(crate) goal: Option<Goal>,
}

#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) table: Arc<TypeTable>,
    /// Names for which a client gets no answer yet, sorted.
    pub(crate) withheld: Box<[Name]>,
}

impl fmt::Debug for TypeTable {
    /// The version, which covers all contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypeTable").field(&self.version_text).finish()
    }
}

/// Differences of a table from the one below it.
#[derive(Clone, Debug, Default)]
struct Over {
    /// Resources in addition to those below, or replacing those with their names.
    own: Index,
    /// Names that exist below but not here; none of them is in `own`.
    hidden: OrdSet<Name>,
    /// The sum over the resources below whose names are in one of these.
    covered: Totals,
}

/// A change to a table under one name.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// This.
    Own(Arc<Resource>),
    /// Nothing.
    Hidden,
    /// The resource of the table below.
    Below,
}

/// Changes in a newer table. Names are sorted and unique, and none is in both lists.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Added resources, and those whose version changed.
    pub changed: Vec<Arc<Resource>>,
    /// The removed names.
    pub removed: Vec<Name>,
}

/// The result of a look-up in a table.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A resource that is returned unchanged: the requested name is its name, an alias, or one of its domains.
    AsItIs(&'a Arc<Resource>),
    /// A pattern of hosts: the resource is returned under the requested name.
    Template(&'a Arc<Resource>),
}

/// Names of resources that may be patterns of hosts.
#[derive(Debug, Default)]
pub struct HostPatterns<'a> {
    names: HashSet<&'a str>,
    keys: HashSet<String>,
}

impl HostPatterns<'_> {
    /// Returns `true` if there are none.
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
    /// The name of the resource for a client that asks for `asked`.
    #[must_use]
    pub fn name(self, asked: &'a Name) -> &'a Name {
        match self {
            Self::AsItIs(resource) => resource.name(),
            Self::Template(_) => asked,
        }
    }

    /// The resource for a client that asks for `asked`. A resource from a template is made each time: equal names and equal
    /// templates give equal resources.
    #[must_use]
    pub fn under(self, asked: &str) -> Arc<Resource> {
        match self {
            Self::AsItIs(resource) => Arc::clone(resource),
            Self::Template(template) => Arc::new(template.derived(asked)),
        }
    }
}

impl PartialEq for Found<'_> {
    /// Returns `true` if a client gets the same, whatever its origin.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AsItIs(one), Self::AsItIs(other)) | (Self::Template(one), Self::Template(other)) => {
                one.says_the_same(other)
            }
            (Self::AsItIs(_), Self::Template(_)) | (Self::Template(_), Self::AsItIs(_)) => false,
        }
    }
}

impl Changes {
    /// Returns `true` if nothing is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// How many names are different.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changed.len() + self.removed.len()
    }

    /// Returns `true` if a name is different.
    fn has(&self, name: &Name) -> bool {
        self.changed.binary_search_by(|resource| resource.name().cmp(name)).is_ok()
            || self.removed.binary_search(name).is_ok()
    }

    /// Every name that is different, changed ones first.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.changed.iter().map(|resource| resource.name()).chain(&self.removed)
    }
}

impl TypeTable {
    /// Makes a table from resources with unique names.
    #[must_use]
    pub fn new(resources: Vec<Arc<Resource>>) -> Self {
        let mut index = Index::default();
        resources.into_iter().for_each(|resource| index.insert(resource));
        Self::of(Arc::new(index), None)
    }

    fn of(below: Arc<Index>, over: Option<Box<Over>>) -> Self {
        let totals = totals(&below, over.as_deref());
        let mut hasher = VersionHasher::new();
        hasher.update(&(totals.n as u64).to_le_bytes());
        hasher.update(&totals.sum.to_le_bytes());
        let version = hasher.finish();
        Self {
            version,
            version_text: version.to_string().into(),
            below,
            over,
            since: None,
            compared: Mutex::default(),
            transitions: Transitions::default(),
        }
    }

    /// The table with `edits`; the same shared value if they make no difference. `None` stands for no resources, in arguments
    /// and result.
    #[must_use]
    pub(crate) fn edited(
        previous: Option<&Arc<Self>>,
        edits: &[(Name, Option<Arc<Resource>>)],
    ) -> Option<Arc<Self>> {
        let mut index = previous.map_or_else(Index::default, |previous| Index::clone(&previous.below));
        let mut is_same = true;
        for (name, new) in edits {
            match (index.find(name), new) {
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) => continue,
                (None, None) => continue,
                (_, Some(new)) => index.insert(Arc::clone(new)),
                (Some(_), None) => index.remove(name),
            }
            is_same = false;
        }
        if is_same || index.is_empty() {
            return previous.filter(|_| is_same).map(Arc::clone);
        }
        let table = Self::of(Arc::new(index), None);
        Some(Arc::new(table.succeeding(previous.map(|previous| &**previous))))
    }

    /// The table that lies over `base` as `previous` lay over `former`, with `edits`. `None` stands for no resources in all of
    /// them.
    #[must_use]
    pub(crate) fn laid_over(
        base: Option<&Arc<Self>>,
        (former, previous): (Option<&Arc<Self>>, Option<&Arc<Self>>),
        edits: &[(Name, Edit)],
    ) -> Option<Arc<Self>> {
        let [base, former, previous] = [base, former, previous].map(|table| table.unwrap_or(&NONE));
        debug_assert!(Arc::ptr_eq(&former.below, &previous.below), "it lies over that one");
        let mut over = previous.over.as_deref().cloned().unwrap_or_default();
        let is_same_base = Arc::ptr_eq(&former.below, &base.below);
        let mut changes_below = Arc::default();
        if !is_same_base && !over.is_empty() {
            changes_below = base.changes_since(former);
            over.rebase(&former.below, &base.below, &changes_below);
        }
        let edits = edits.iter().filter(|(name, edit)| over.put(&base.below, name, edit)).count();
        let same = (edits == 0 && is_same_base).then_some(previous);
        if let Some(table) = same.or_else(|| over.is_empty().then_some(base)) {
            return (!table.is_empty()).then(|| Arc::clone(table));
        }
        let changes = (edits == 0).then(|| over.visible(&changes_below));
        let table = Self::of(Arc::clone(&base.below), Some(Box::new(over)));
        if table.is_empty() {
            return None;
        }
        Some(Arc::new(match changes {
            Some(changes) => Self { since: Some((previous.version, changes)), ..table },
            None => table.succeeding(Some(previous)),
        }))
    }

    /// This table with `edits`.
    pub(crate) fn with(&self, edits: impl IntoIterator<Item = (Name, Edit)>) -> Self {
        let mut over = self.over.as_deref().cloned().unwrap_or_default();
        for (name, edit) in edits {
            over.put(&self.below, &name, &edit);
        }
        Self::of(Arc::clone(&self.below), (!over.is_empty()).then(|| Box::new(over)))
    }

    /// The same, remembering what is different from the table that it replaces, so that streams which hold that one find
    /// their difference without comparing.
    fn succeeding(mut self, previous: Option<&Self>) -> Self {
        if let Some(previous) = previous {
            self.since = Some((previous.version, Arc::new(compare(previous, &self))));
        }
        self
    }

    /// Hash over the number of resources and the sum of the hashes of their names and versions (D4).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The version as text.
    #[must_use]
    pub fn version_text(&self) -> &Arc<str> {
        &self.version_text
    }

    /// All resources, sorted by name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> + Clone {
        self.resources_after(None)
    }

    /// The resources whose names come after this one, sorted by name; all of them if there is none.
    pub fn resources_after(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Resource>> + Clone + use<'_> {
        let over = self.over();
        let below = self.below.after(name);
        let below = below.filter(move |resource| over.is_none_or(|over| !over.covers(resource.name())));
        let own = over.map(|over| over.own.after(name));
        Merged::new(below, own.into_iter().flatten(), |resource| resource.name())
    }

    /// The resources that have a time to live, sorted by name.
    pub fn resources_with_ttl(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.found(self.below.with_ttl(), self.own().map(Index::with_ttl))
    }

    /// Returns `true` if a wildcard covers every resource.
    #[must_use]
    pub fn is_all_in_wildcard(&self) -> bool {
        totals(&self.below, self.over()).n_outside == 0
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        totals(&self.below, self.over()).n
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resource with exactly this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Resource>> {
        work::count(Work::Resource, 1);
        let Some(over) = &self.over else { return self.below.find(name) };
        match over.own.find(name) {
            None if over.hidden.contains(name) => None,
            None => self.below.find(name),
            own => own,
        }
    }

    /// The resources of names that each part of the table found in order, sorted by name.
    fn found<'a, I: Iterator<Item = &'a Name>>(
        &'a self,
        below: I,
        own: Option<I>,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        let over = self.over();
        let below = below.filter(move |name| over.is_none_or(|over| !over.covers(name)));
        Merged::new(below, own.into_iter().flatten(), |name| name).filter_map(|name| self.find(name))
    }

    fn over(&self) -> Option<&Over> {
        self.over.as_deref()
    }

    fn own(&self) -> Option<&Index> {
        self.over().map(|over| &over.own)
    }

    /// The parts of the table.
    fn indices(&self) -> impl Iterator<Item = &Index> {
        std::iter::once(&*self.below).chain(self.own())
    }

    /// The resource with this alias (row A109); the first by name if there are several.
    #[must_use]
    pub fn find_alias(&self, alias: &str) -> Option<&Arc<Resource>> {
        self.found(self.below.by_alias(alias), self.own().map(|own| own.by_alias(alias))).next()
    }

    /// The resource that a client gets for a name (D15): the resource of that name, the one with that alias, the virtual host
    /// whose domains match best (row A118), or one made from the pattern of hosts that matches best. If no virtual host serves
    /// a host with a port, the host without the port is used: an Envoy asks for the authority that its client wrote, even if it
    /// ignores ports.
    #[must_use]
    pub fn look_up(&self, name: &str) -> Option<Found<'_>> {
        let found = self.find(name).or_else(|| self.find_alias(name));
        if found.is_some() || !self.has_virtual_hosts() {
            return found.map(Found::AsItIs).or_else(|| self.template(name).map(Found::Template));
        }
        let affixes: Vec<_> = self.indices().map(Index::affixes).collect();
        let serving = |name: &str| virtual_host::serving(name, &affixes, |alias| self.find_alias(alias));
        let without_port = || {
            let plain = virtual_host::without_port(name)?;
            self.find(&plain).or_else(|| self.find_alias(&plain)).or_else(|| serving(&plain))
        };
        serving(name).or_else(without_port).map(Found::AsItIs)
    }

    /// The resource that a client gets for a name; see [`look_up`](Self::look_up).
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<Arc<Resource>> {
        self.look_up(name).map(|found| found.under(name))
    }

    /// The resource that an `xdstp:` name means, or the pattern of hosts that matches a name best. Without patterns there is
    /// neither: names are then compared as they are.
    fn template(&self, name: &str) -> Option<&Arc<Resource>> {
        if !self.has_host_patterns() {
            return None;
        }
        let authority = Authority::of(name)?;
        let plain = authority.plain().and_then(|plain| self.find(plain));
        plain.or_else(|| authority.keys().find_map(|key| self.pattern(key)))
    }

    /// The pattern of hosts with a key; the first by name if there are several.
    fn pattern(&self, key: &str) -> Option<&Arc<Resource>> {
        self.found(self.below.by_pattern(key), self.own().map(|own| own.by_pattern(key))).next()
    }

    /// Returns `true` if a client that asks for `name` would get something else if resources named `changed` were added or
    /// removed: one of them matches, and nothing in the table matches better. This includes the resource by which the table
    /// serves the name.
    #[must_use]
    pub fn may_derive(&self, changed: &HostPatterns<'_>, name: &str) -> bool {
        let Some(authority) = Authority::of(name) else { return false };
        if authority.plain().is_some_and(|plain| changed.names.contains(plain)) {
            return true;
        }
        let mut keys = authority.keys();
        let best = keys.find(|key| changed.keys.contains(*key) || self.pattern(key).is_some());
        best.is_some_and(|best| changed.keys.contains(best))
            && ![Some(name), authority.plain()].into_iter().flatten().any(|name| self.find(name).is_some())
    }

    /// The members of an `xdstp:` glob collection, sorted by name (row A154). Resources whose paths are not in canonical form
    /// are not members of any.
    pub fn members(&self, glob: &str) -> impl Iterator<Item = &Arc<Resource>> + use<'_> {
        self.found(self.below.by_glob(glob), self.own().map(|own| own.by_glob(glob)))
    }

    /// The resources that refer to `to`, sorted by name.
    pub fn referrers(&self, to: &ResourceKey) -> impl Iterator<Item = &Arc<Resource>> + use<'_> {
        self.found(self.below.by_target(to), self.own().map(|own| own.by_target(to)))
    }

    /// Returns `true` if a resource can be requested by a name other than its own, so that the result for a name can change
    /// without a change of a resource of that name.
    #[must_use]
    pub fn has_other_names(&self) -> bool {
        self.has_host_patterns()
            || self.has_virtual_hosts()
            || self.found(self.below.with_alias(), self.own().map(Index::with_alias)).next().is_some()
    }

    /// Returns `true` if names are matched to patterns of hosts.
    #[must_use]
    pub fn has_host_patterns(&self) -> bool {
        self.found(self.below.patterns(), self.own().map(Index::patterns)).next().is_some()
    }

    /// Returns `true` if names are matched to the domains of virtual hosts.
    #[must_use]
    pub fn has_virtual_hosts(&self) -> bool {
        self.indices().any(Index::has_virtual_hosts) && !self.is_empty()
    }

    /// Changes since `older`; remembered for the table that this one replaced, computed for any other.
    #[must_use]
    pub fn changes_since(&self, older: &Self) -> Arc<Changes> {
        if let Some(remembered) = self.remembered_changes_since(older) {
            return remembered;
        }
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, changes)) = compared.iter().find(|(version, _)| *version == older.version) {
            return Arc::clone(changes);
        }
        let changes = Arc::new(compare(older, self));
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

/// How many differences from tables other than the previous one are remembered. Streams that fell behind, and those that change
/// step by step, are mostly at one of a few tables.
const MAX_COMPARED: usize = 8;

/// No resources.
pub(crate) static NONE: LazyLock<Arc<TypeTable>> = LazyLock::new(Arc::default);

impl Over {
    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.hidden.is_empty()
    }

    /// How many names differ from those below.
    fn len(&self) -> usize {
        self.own.resources().len() + self.hidden.len()
    }

    /// These names.
    fn names(&self) -> impl Iterator<Item = &Name> {
        self.own.resources().keys().map(Named::name).chain(&self.hidden)
    }

    /// Returns `true` if this table hides a name of the table below.
    fn covers(&self, name: &str) -> bool {
        self.own.find(name).is_some() || self.hidden.contains(name)
    }

    /// Sets the entry of a name; returns `true` if that makes a difference.
    fn put(&mut self, below: &Index, name: &Name, edit: &Edit) -> bool {
        match (self.own.find(name), edit) {
            (Some(own), Edit::Own(new)) if Arc::ptr_eq(own, new) => return false,
            (None, Edit::Hidden) if self.hidden.contains(name) => return false,
            (None, Edit::Below) if !self.hidden.contains(name) => return false,
            (Some(_) | None, _) => {}
        }
        let was_covered = self.covers(name);
        match edit {
            Edit::Own(new) => {
                self.own.insert(Arc::clone(new));
                self.hidden.remove(name);
            }
            Edit::Hidden => {
                self.own.remove(name);
                self.hidden.insert(Arc::clone(name));
            }
            Edit::Below => {
                self.own.remove(name);
                self.hidden.remove(name);
            }
        }
        match (below.find(name), was_covered, self.covers(name)) {
            (Some(resource), false, true) => self.covered.add(resource),
            (Some(resource), true, false) => self.covered.take_out(resource),
            (Some(_), _, _) | (None, _, _) => {}
        }
        true
    }

    /// The changes below that are visible here. Looks at the changes or at the entries that hide something, whichever are
    /// fewer.
    fn visible(&self, changes: &Arc<Changes>) -> Arc<Changes> {
        let is_covered = |name: &Name| self.covers(name);
        let is_any_covered = if changes.len() <= self.len() {
            changes.names().any(is_covered)
        } else {
            self.names().any(|name| changes.has(name))
        };
        if !is_any_covered {
            return Arc::clone(changes);
        }
        let changed = changes.changed.iter().filter(|resource| !is_covered(resource.name()));
        let removed = changes.removed.iter().filter(|name| !is_covered(name));
        Arc::new(Changes { changed: changed.cloned().collect(), removed: removed.cloned().collect() })
    }

    /// Lies over `new` instead of `old`, which differ by `changes`. Looks at the changes or at the entries that hide something,
    /// whichever are fewer.
    fn rebase(&mut self, old: &Index, new: &Index, changes: &Changes) {
        let mut covered = self.covered;
        let mut replace = |name: &Name| {
            work::count(Work::Resource, 1);
            old.find(name).into_iter().for_each(|resource| covered.take_out(resource));
            new.find(name).into_iter().for_each(|resource| covered.add(resource));
        };
        if changes.len() <= self.len() {
            changes.names().filter(|name| self.covers(name)).for_each(&mut replace);
        } else {
            self.names().for_each(&mut replace);
        }
        self.covered = covered;
    }
}

fn totals(below: &Index, over: Option<&Over>) -> Totals {
    let Some(over) = over else { return below.totals() };
    below.totals().minus(over.covered).plus(over.own.totals())
}

/// Two sorted iterators as one. No key is in both.
#[derive(Clone)]
struct Merged<'a, T, A, B> {
    a: A,
    b: B,
    next: (Option<&'a T>, Option<&'a T>),
    key: fn(&T) -> &Name,
}

impl<'a, T, A: Iterator<Item = &'a T>, B: Iterator<Item = &'a T>> Merged<'a, T, A, B> {
    fn new(mut a: A, mut b: B, key: fn(&T) -> &Name) -> Self {
        let next = (a.next(), b.next());
        Self { a, b, next, key }
    }
}

impl<'a, T, A: Iterator<Item = &'a T>, B: Iterator<Item = &'a T>> Iterator for Merged<'a, T, A, B> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let is_b_first = match self.next {
            (Some(a), Some(b)) => (self.key)(b) < (self.key)(a),
            (a, _) => a.is_none(),
        };
        if is_b_first {
            std::mem::replace(&mut self.next.1, self.b.next())
        } else {
            std::mem::replace(&mut self.next.0, self.a.next())
        }
    }
}

/// Records the names under which two maps differ.
fn differing(
    older: &OrdMap<Named, Arc<Resource>>,
    newer: &OrdMap<Named, Arc<Resource>>,
    names: &mut BTreeSet<Name>,
) {
    names.extend(older.diff(newer).map(|item| match item {
        DiffItem::Add(named, _) | DiffItem::Remove(named, _) => Arc::clone(named.name()),
        DiffItem::Update { new: (named, _), .. } => Arc::clone(named.name()),
    }));
}

/// The changes in `newer`. The cost is that of the parts that the two do not share.
fn compare(older: &TypeTable, newer: &TypeTable) -> Changes {
    let own = |table: &TypeTable| table.own().map(|own| own.resources().clone()).unwrap_or_default();
    let hidden = |table: &TypeTable| table.over().map(|over| over.hidden.clone()).unwrap_or_default();
    let mut names: BTreeSet<Name> = BTreeSet::new();
    differing(older.below.resources(), newer.below.resources(), &mut names);
    differing(&own(older), &own(newer), &mut names);
    names.extend(hidden(older).diff(&hidden(newer)).map(|item| match item {
        ordset::DiffItem::Add(name) | ordset::DiffItem::Remove(name) => Arc::clone(name),
    }));
    let mut changes = Changes::default();
    for name in names {
        match (older.find(&name), newer.find(&name)) {
            (Some(old), Some(new)) if old.version() == new.version() => {}
            (_, Some(new)) => changes.changed.push(Arc::clone(new)),
            (Some(_), None) => changes.removed.push(name),
            (None, None) => {}
        }
    }
    changes
}
