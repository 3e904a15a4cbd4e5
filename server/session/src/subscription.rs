//! What one client wants of one resource type, and what it may hold.

mod owed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Found, Name, Resource, ResourceType, TypeTable, Version, xdstp};

pub(crate) use owed::Owed;

use crate::sotw::WILDCARD;

/// What one stream wants of one resource type, and what its client may hold.
///
/// A stream owns one per type URL, from the first request for that type until the stream ends; nothing survives a
/// reconnect. SotW requests replace the names, incremental ones add and remove them; everything else is common.
///
/// What the client holds is kept as a shared table that it was brought up to, and the names for which that is not true. A
/// name whose subscription changes becomes [`Held::Unknown`], because responses may still be on their way: what is unknown and
/// wanted is owed to the client, whether or not it changed (R13).
///
/// A name may be a resource's own, an alias, a host that a virtual host's domains cover, a host that a Listener's pattern matches,
/// or (incremental only) a glob. `xdstp:` names are kept in canonical form (rows A144, A145). What is made of a pattern has the name
/// that was asked for, so the client holds it as a resource of its own; there is one as long as the name is subscribed to.
///
/// See [How the client specifies what resources to return][spec].
///
/// [spec]: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#how-the-client-specifies-what-resources-to-return
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// Names asked for one by one; never contains `*`.
    names: BTreeSet<Name>,
    /// Whether names can be hosts: of the type VirtualHost.
    has_hosts: bool,
    /// How many of the names are globs.
    n_globs: usize,
    /// Whether every resource of the type is wanted.
    is_wildcard: bool,
    /// The client holds what this table has of the names that it wants, and was told of those that it has not …
    settled: Arc<TypeTable>,
    /// … except for these. Names that are subscribed to, and names of resources.
    exceptions: BTreeMap<Name, Held>,
    /// What the client does not want any more, but will take up again if it asks anew before it has seen what is on its way:
    /// resources, each with what brought it, which may be `*`.
    lingering: BTreeSet<(Name, Name)>,
}

/// What the client may hold under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// It says that it holds this version.
    Version(Version),
    /// Something that is out of date.
    Stale,
    /// Anything; it waits for an answer.
    Unknown,
    /// Nothing; it waits for an answer.
    Nothing,
    /// It was told that there is nothing.
    Gone,
}

impl Subscription {
    /// Nothing is wanted and nothing held.
    pub(crate) fn new(resource_type: &ResourceType) -> Self {
        Self { has_hosts: *resource_type == ResourceType::VirtualHost, ..Self::default() }
    }
}

/// What was sent.
impl Subscription {
    /// The client was sent everything that it lacked of `table`.
    ///
    /// What is only withheld for now is still owed.
    pub(crate) fn settle(&mut self, table: &Arc<TypeTable>) {
        self.settled = Arc::clone(table);
        self.exceptions.retain(|name, _| table.is_withheld(name));
    }

    /// The client was sent everything that it lacked of `table` but for these.
    pub(crate) fn settle_part(&mut self, table: &Arc<TypeTable>, rest: &Owed) {
        let before = std::mem::take(&mut self.exceptions);
        self.settled = Arc::clone(table);
        // Of what is not sent the client has an older version, if any.
        let unsent: BTreeSet<&Name> = rest.changed.iter().map(|resource| resource.name()).collect();
        self.exceptions.extend(unsent.iter().map(|name| (Arc::clone(name), Held::Stale)));
        for (name, held) in &before {
            // What was not answered yet stays so, whatever the resource is called.
            let waits = matches!(held, Held::Unknown | Held::Nothing);
            if table.is_withheld(name) {
                self.exceptions.insert(Arc::clone(name), *held);
            }
            if waits && self.lookup(table, name).is_some_and(|resource| unsent.contains(resource.name())) {
                self.exceptions.insert(Arc::clone(name), *held);
            }
        }
        self.exceptions.extend(rest.removed.iter().map(|name| (Arc::clone(name), Held::Stale)));
        for resource in rest.changed.iter().filter(|_| self.n_globs > 0) {
            // Its members are owed one by one from now on; it is still owed that there are none, if they go before they are sent.
            let glob = xdstp::glob_of(resource.name()).and_then(|glob| self.names.get(&*glob));
            if let Some(glob) = glob.filter(|glob| before.contains_key(*glob)) {
                self.exceptions.insert(Arc::clone(glob), Held::Stale);
            }
        }
        for name in &rest.missing {
            let held = before.get(name).copied().unwrap_or(Held::Unknown);
            self.exceptions.insert(Arc::clone(name), held);
        }
    }

    /// The client needs the resource again, whatever it holds. Tells whether it wants it at all.
    pub(crate) fn mark_unknown(&mut self, name: &str) -> bool {
        let name = xdstp::canonical(name);
        if let Some(name) = self.names.get(&*name).cloned() {
            self.doubt(name);
            return true;
        }
        let is_held = self.settled.find(&name).is_some_and(|resource| self.covers(&self.settled, resource))
            || (self.exceptions.contains_key(&*name) && self.covers_name(&name));
        if is_held {
            self.exceptions.insert(Name::from(&*name), Held::Unknown);
        }
        is_held
    }

    /// Forgets what the client holds by a subscribed name, also if the resource has another name; it waits for an answer.
    fn doubt(&mut self, name: Name) {
        let found = self.settled.look_up(&name).map(|found| Arc::clone(found.name(&name)));
        let has_its_name = found.as_ref() == Some(&name);
        if let Some(other) = found.filter(|_| !has_its_name) {
            self.exceptions.entry(other).or_insert(Held::Stale);
        }
        let may_hold = match self.exceptions.get(&name) {
            Some(Held::Version(_) | Held::Stale | Held::Unknown) => true,
            Some(Held::Nothing | Held::Gone) => false,
            None => has_its_name,
        };
        self.exceptions.insert(name, if may_hold { Held::Unknown } else { Held::Nothing });
    }

    /// Whether the client said that it holds something.
    pub(crate) fn shows_versions(&self) -> bool {
        self.exceptions.values().any(|held| matches!(held, Held::Version(_)))
    }

    /// Whether the client certainly holds nothing of this name, and waits for an answer.
    pub(crate) fn is_unheld(&self, name: &Name) -> bool {
        self.names.contains(name) && self.exceptions.get(name) == Some(&Held::Nothing)
    }

    /// The client may hold these, and they are gone; it was not told so.
    pub(crate) fn mark_stale(&mut self, names: Vec<Name>) {
        self.exceptions.extend(names.into_iter().map(|name| (name, Held::Stale)));
    }

    /// The client says that it holds a version from an earlier stream (row A92); counts if it wants the resource (row A95). A
    /// version of another server is out of date.
    pub(crate) fn mark_held(&mut self, name: &str, version: &str) {
        let held = version.parse().map_or(Held::Stale, Held::Version);
        let canonical = xdstp::canonical(name);
        if self.names.contains(&*canonical) {
            self.exceptions.insert(Name::from(&*canonical), held);
        } else if self.covers_name(name) || self.names.iter().any(|asked| self.is_near(asked, name)) {
            self.exceptions.insert(Name::from(name), held);
        }
    }
}

/// What the client was sent, for the order of sending.
impl Subscription {
    /// What the client was brought up to.
    pub(crate) fn settled(&self) -> &Arc<TypeTable> {
        &self.settled
    }

    /// Whether the client has exactly what `table` has of what it wants.
    pub(crate) fn is_at(&self, table: &TypeTable) -> bool {
        self.exceptions.is_empty() && table.version() == self.settled.version()
    }

    /// The resource as the client certainly has it, or has it on its way.
    pub(crate) fn sent(&self, name: &str) -> Option<&Arc<Resource>> {
        let resource = self.settled.find(name).filter(|_| !self.exceptions.contains_key(name))?;
        self.covers(&self.settled, resource).then_some(resource)
    }

    /// Whether the client was sent the resource in some version, or said that it has one.
    pub(crate) fn has(&self, name: &str) -> bool {
        let said = matches!(self.exceptions.get(name), Some(Held::Version(_)));
        self.sent(name).is_some() || (said && self.covers_name(name))
    }

    /// Whether the client wants what a table has, or had, of that name.
    pub(crate) fn wants(&self, table: &TypeTable, name: &str) -> bool {
        self.covers_name(name)
            || table
                .find(name)
                .is_some_and(|resource| self.covers(table, resource) || self.covers_host_of(table, resource))
    }

    /// What was there when the client was sent something and `table` has no more.
    pub(crate) fn gone_from(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if table.version() == self.settled.version() {
            return vec![];
        }
        let changes = table.changes_since(&self.settled);
        changes.removed.iter().filter_map(|name| self.settled.find(name)).cloned().collect()
    }

    /// What was there in another version when the client was sent something.
    pub(crate) fn changed_from(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if table.version() == self.settled.version() {
            return vec![];
        }
        let changes = table.changes_since(&self.settled);
        changes.changed.iter().filter_map(|new| self.settled.find(new.name())).cloned().collect()
    }
}

/// What is wanted.
impl Subscription {
    /// Subscribes to one name; what the client holds of it is unknown from now on, also if it was subscribed to before (R7).
    pub(crate) fn add_name(&mut self, name: &str) {
        let name = Name::from(&*xdstp::canonical(name));
        let is_glob = xdstp::is_glob(&name);
        if self.names.insert(Arc::clone(&name)) && is_glob {
            self.n_globs += 1;
        }
        if is_glob {
            // Every member is owed, whatever the client said that it holds; what may be gone must still be told.
            for (key, held) in &mut self.exceptions {
                if matches!(held, Held::Version(_)) && xdstp::glob_of(key).as_deref() == Some(&*name) {
                    *held = if self.names.contains(key) { Held::Unknown } else { Held::Stale };
                }
            }
        }
        self.recall_lingering(&name);
        self.doubt(name);
    }

    /// Unsubscribes from one name. If something else covers the resource, the client is owed an answer, because it has dropped
    /// the resource (R8, row A106). A name that is not subscribed to is looked up: what it names may be subscribed to under
    /// another name (row A109); otherwise nothing happens (row A105).
    pub(crate) fn remove_name(&mut self, name: &str) {
        let name = xdstp::canonical(name);
        if let Some(name) = self.names.take(&*name) {
            self.drop_name(name);
            return;
        }
        let found = self.settled.find(&name).or_else(|| self.settled.find_alias(&name)).cloned();
        let Some(resource) = found else { return };
        for other in resource.aliases().iter().chain([resource.name()]) {
            if let Some(name) = self.names.take(other) {
                self.drop_name(name);
            }
        }
    }

    /// Settles what becomes of the resources of a name that was taken out.
    fn drop_name(&mut self, name: Name) {
        self.exceptions.remove(&name);
        let resources: Vec<Name> = if self.n_globs > 0 && xdstp::is_glob(&name) {
            self.n_globs -= 1;
            let members = self.settled.members(&name).map(|member| Arc::clone(member.name()));
            let excepted =
                self.exceptions.keys().filter(|key| xdstp::glob_of(key).as_deref() == Some(&*name));
            members.chain(excepted.cloned()).collect()
        } else {
            let found = self.settled.look_up(&name);
            vec![found.map_or(Arc::clone(&name), |found| Arc::clone(found.name(&name)))]
        };
        for resource in resources {
            let is_wanted = self.covers_name(&resource) || self.lookup(&self.settled, &resource).is_some();
            if is_wanted {
                self.exceptions.insert(resource, Held::Unknown);
            } else {
                self.exceptions.remove(&resource);
                self.lingering.insert((resource, Arc::clone(&name)));
            }
        }
    }

    /// Subscribes to everything; what the client holds is unknown from now on.
    pub(crate) fn add_wildcard(&mut self) {
        if self.is_wildcard {
            let covered = self.settled.resources().iter().filter(|resource| resource.in_wildcard());
            let unknown: Vec<Name> = covered.map(|resource| Arc::clone(resource.name())).collect();
            self.exceptions.extend(unknown.into_iter().map(|name| (name, Held::Unknown)));
        } else {
            let settled = Arc::clone(&self.settled);
            for name in self.names.clone() {
                let is_known = self.exceptions.contains_key(&name);
                if !is_known && !self.has_glob(&name) && settled.look_up(&name).is_none() {
                    self.exceptions.insert(name, Held::Gone);
                    continue;
                }
                for member in self.resources_of(&settled, &name).filter(|resource| *resource.name() != name) {
                    self.exceptions.entry(Arc::clone(member.name())).or_insert(Held::Stale);
                }
                self.doubt(name);
            }
            self.settled = Arc::default();
            self.is_wildcard = true;
        }
        self.recall_lingering(WILDCARD);
    }

    /// Ends the wildcard; names stay. The client drops the rest by itself (row A107), but for virtual hosts, of which it is told.
    pub(crate) fn remove_wildcard(&mut self) {
        if !std::mem::take(&mut self.is_wildcard) {
            return;
        }
        let held = self.settled.resources().iter().filter(|resource| resource.in_wildcard());
        if self.has_hosts {
            // Which of them the client keeps for a host depends on the aliases that it was told, so it is told anew.
            let held: Vec<Name> = held.map(|resource| Arc::clone(resource.name())).collect();
            for name in held {
                self.exceptions.entry(name).or_insert(Held::Stale);
            }
            for held in self.exceptions.values_mut().filter(|held| matches!(held, Held::Version(_))) {
                *held = Held::Stale;
            }
            return;
        }
        let dropped =
            held.filter(|resource| !self.covers(&self.settled, resource)).map(|resource| resource.name());
        let excepted = self.exceptions.keys().filter(|name| !self.covers_name(name));
        let lingering: Vec<Name> = dropped.chain(excepted).cloned().collect();
        for name in &lingering {
            self.exceptions.remove(name);
        }
        let wildcard = Name::from(WILDCARD);
        self.lingering.extend(lingering.into_iter().map(|name| (name, Arc::clone(&wildcard))));
    }

    /// Makes `wanted` the whole of what is asked for one by one (SotW). Names that are new become unknown (rows A46, A47). What is
    /// dropped the client may take up again from a response that it has not seen yet.
    pub(crate) fn replace_names(&mut self, wanted: BTreeSet<Name>) {
        let dropped = self.names.difference(&wanted).filter(|name| self.sent(name).is_some());
        let lingering: Vec<(Name, Name)> = dropped.map(|name| (Arc::clone(name), Arc::clone(name))).collect();
        self.lingering.extend(lingering);
        for name in wanted.difference(&self.names) {
            self.exceptions.insert(Arc::clone(name), Held::Unknown);
        }
        if self.is_wildcard {
            for name in self.names.difference(&wanted) {
                self.exceptions.insert(Arc::clone(name), Held::Unknown);
            }
        }
        self.names = wanted;
        if !self.is_wildcard {
            let Self { names, exceptions, .. } = self;
            exceptions.retain(|name, _| names.contains(name));
        }
    }

    /// The client has seen every response that was sent: it holds nothing that it does not want.
    pub(crate) fn forget_lingering(&mut self) {
        self.lingering = BTreeSet::new();
    }

    /// What the client dropped and may take up again from what is on its way.
    pub(crate) fn lingering(&self) -> impl Iterator<Item = &Name> {
        self.lingering.iter().map(|(name, _)| name)
    }

    /// The client does not take these up again.
    pub(crate) fn forget(&mut self, names: &BTreeSet<Name>) {
        self.lingering.retain(|(name, _)| !names.contains(name));
    }

    /// The client asks for `name`, maybe while responses are on their way: it may take from them what it has dropped.
    fn recall_lingering(&mut self, name: &str) {
        let is_recalled = |(resource, by): &(Name, Name)| {
            name == WILDCARD
                || **resource == *name
                || **by == *name
                || xdstp::glob_of(resource).is_some_and(|glob| glob == name)
                // Another host of the same route may be served by the same virtual host.
                || self.is_near(resource, name)
        };
        let (recalled, rest): (BTreeSet<_>, BTreeSet<_>) =
            self.lingering.iter().cloned().partition(is_recalled);
        self.lingering = rest;
        for (resource, _) in recalled {
            self.exceptions.entry(resource).or_insert(Held::Stale);
        }
    }

    /// Whether the client wants `resource` of `table`. Does not know hosts.
    pub(crate) fn covers(&self, table: &TypeTable, resource: &Resource) -> bool {
        let stands_for_it = |alias: &Name| {
            self.names.contains(alias)
                && table.find_alias(alias).is_some_and(|found| found.name() == resource.name())
        };
        (self.is_wildcard && resource.in_wildcard())
            || self.names.contains(resource.name())
            || resource.aliases().iter().any(stands_for_it)
            || self.is_member(resource.name())
    }

    /// Whether the client asks for everything, for this very name, or for a glob that covers it.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name) || self.is_member(name)
    }

    /// Whether `table` has `resource` for a host that the client asked for.
    pub(crate) fn covers_host_of(&self, table: &TypeTable, resource: &Resource) -> bool {
        let is_it =
            |name: &Name| table.look_up(name).is_some_and(|found| found.name(name) == resource.name());
        table.has_virtual_hosts() && self.names.iter().any(is_it)
    }

    /// Whether `resource` of `table` is what something that the client asked for is made of.
    pub(crate) fn derives_from(&self, table: &TypeTable, resource: &Arc<Resource>) -> bool {
        let template = Some(Found::Template(resource));
        table.has_host_patterns() && self.names.iter().any(|name| table.look_up(name) == template)
    }

    /// Whether a resource called `name` that came to `table` or left it would change what the client is given for a host.
    pub(crate) fn may_derive_from(&self, table: &TypeTable, name: &str) -> bool {
        self.names.iter().any(|asked| table.may_derive(name, asked))
    }

    /// Whether the client was sent a table that has patterns of hosts.
    pub(crate) fn has_host_patterns(&self) -> bool {
        self.settled.has_host_patterns()
    }

    /// Whether every resource is asked for.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// The names asked for one by one.
    pub(crate) fn names(&self) -> &BTreeSet<Name> {
        &self.names
    }

    /// What the client holds: name, and the version if it is known. Names that it was told do not exist are left out.
    pub(crate) fn held(&self) -> BTreeMap<Name, Option<Version>> {
        let mut held = BTreeMap::new();
        for resource in self.wanted(&self.settled) {
            held.insert(Arc::clone(resource.name()), Some(resource.version()));
        }
        for (name, exception) in &self.exceptions {
            match exception {
                Held::Version(version) => held.insert(Arc::clone(name), Some(*version)),
                Held::Stale | Held::Unknown => held.insert(Arc::clone(name), None),
                Held::Nothing | Held::Gone => held.remove(name),
            };
        }
        held
    }

    /// The resource for a name: whatever it stands for if it is subscribed to, else the resource of that name if something
    /// covers it.
    fn lookup(&self, table: &TypeTable, name: &str) -> Option<Arc<Resource>> {
        if self.names.contains(name) {
            return table.resolve(name);
        }
        table
            .find(name)
            .filter(|resource| self.covers(table, resource) || self.covers_host_of(table, resource))
            .cloned()
    }

    /// The resources that a subscribed name stands for.
    fn resources_of<'a>(
        &self,
        table: &'a TypeTable,
        name: &'a str,
    ) -> impl Iterator<Item = Arc<Resource>> + use<'a> {
        let members = self.has_glob(name).then(|| table.members(name).cloned());
        table.resolve(name).into_iter().chain(members.into_iter().flatten())
    }

    fn has_glob(&self, name: &str) -> bool {
        self.n_globs > 0 && xdstp::is_glob(name) && self.names.contains(name)
    }

    fn is_member(&self, name: &str) -> bool {
        self.n_globs > 0 && xdstp::glob_of(name).is_some_and(|glob| self.names.contains(&*glob))
    }

    /// Whether two hosts are of one route, so that one virtual host may serve both (rows A116, A120).
    fn is_near(&self, a: &str, b: &str) -> bool {
        let route = |name: &str| name.rfind('/');
        self.has_hosts && route(a).is_some_and(|end| route(b) == Some(end) && a[..end] == b[..end])
    }
}
