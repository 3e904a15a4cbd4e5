//! What one client wants of one resource type, and what it may hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Name, Resource, TypeTable, Version};

/// What one stream wants of one resource type, and what its client may hold.
///
/// A stream owns one per type URL, from the first request for that type until the stream ends; nothing survives a
/// reconnect. SotW requests replace the names, incremental ones add and remove them; everything else is common.
///
/// What the client holds is kept as a shared table that it was brought up to, and the names for which that is not true. A
/// name whose subscription changes becomes [`Held::Unknown`], because responses may still be on their way: what is unknown and
/// wanted is owed to the client, whether or not it changed (R13).
///
/// See [How the client specifies what resources to return][spec].
///
/// [spec]: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#how-the-client-specifies-what-resources-to-return
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// Names asked for one by one; never contains `*`.
    names: BTreeSet<Name>,
    /// Whether every resource of the type is wanted.
    is_wildcard: bool,
    /// The client holds what this table has of the names that it wants, and was told of those that it has not …
    settled: Arc<TypeTable>,
    /// … except for these.
    exceptions: BTreeMap<Name, Held>,
}

/// What the client may hold under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// This version was sent.
    Version(Version),
    /// Anything.
    Unknown,
    /// It was told that there is nothing.
    Gone,
}

/// What the client lacks.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Resources that it wants and does not hold in their present version; sorted by name, each once.
    pub(crate) changed: Vec<Arc<Resource>>,
    /// Names that it may hold and that do not exist any more.
    pub(crate) removed: Vec<Name>,
    /// Names that it asked for and that do not exist; it was not told so.
    pub(crate) missing: Vec<Name>,
}

impl Owed {
    /// Whether nothing is owed.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty() && self.missing.is_empty()
    }
}

impl Subscription {
    /// Returns what the client lacks of `table`. Calling it twice returns the same: only [`settle`](Self::settle) and the
    /// `mark_` calls move on. A rejected response counts as sent (R6): nothing here knows of rejections.
    pub(crate) fn owed(&self, table: &TypeTable) -> Owed {
        let mut owed = Owed::default();
        if table.version() != self.settled.version() {
            let changes = table.changes_since(&self.settled);
            let covered = changes.changed.iter().filter(|resource| self.covers(resource));
            owed.changed.extend(covered.filter(|resource| !self.has_exception(resource)).cloned());
            for name in &changes.removed {
                let was_covered = self.settled.find(name).is_some_and(|resource| self.covers(resource));
                if was_covered && !self.exceptions.contains_key(name) {
                    owed.removed.push(Arc::clone(name));
                }
            }
        }
        for (name, held) in &self.exceptions {
            match (held, self.lookup(table, name)) {
                (Held::Version(version), Some(resource)) if *version == resource.version() => {}
                (_, Some(resource)) => owed.changed.push(Arc::clone(resource)),
                (Held::Gone, None) => {}
                (Held::Version(_), None) => owed.removed.push(Arc::clone(name)),
                (Held::Unknown, None) => owed.missing.push(Arc::clone(name)),
            }
        }
        if !self.exceptions.is_empty() {
            owed.changed.sort_by(|a, b| a.name().cmp(b.name()));
            owed.changed.dedup_by(|a, b| a.name() == b.name());
        }
        owed
    }

    /// Every resource of `table` that the client wants, sorted by name.
    pub(crate) fn wanted(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        if self.is_wildcard {
            return table.resources().iter().filter(|resource| self.covers(resource)).cloned().collect();
        }
        let found = self.names.iter().filter_map(|name| self.lookup(table, name));
        let by_name: BTreeMap<&Name, &Arc<Resource>> =
            found.map(|resource| (resource.name(), resource)).collect();
        by_name.into_values().cloned().collect()
    }

    /// Whether every resource of `table` is wanted.
    pub(crate) fn wants_all(&self, table: &TypeTable) -> bool {
        self.is_wildcard && table.is_all_in_wildcard()
    }

    /// The client was sent everything that it lacked of `table`.
    pub(crate) fn settle(&mut self, table: &Arc<TypeTable>) {
        self.settled = Arc::clone(table);
        self.exceptions.clear();
    }

    /// The client was sent this resource.
    pub(crate) fn mark_sent(&mut self, resource: &Resource) {
        let held = Held::Version(resource.version());
        for alias in resource.aliases().iter().filter(|alias| self.names.contains(&***alias)) {
            self.exceptions.insert(Arc::clone(alias), held);
        }
        self.exceptions.insert(Arc::clone(resource.name()), held);
    }

    /// The client needs the resource again, whatever it holds. Tells whether it wants it at all.
    pub(crate) fn mark_unknown(&mut self, name: &str) -> bool {
        let key = match self.names.get(name) {
            Some(key) => Arc::clone(key),
            None if self.is_wildcard
                && self.settled.find(name).is_some_and(|resource| self.covers(resource)) =>
            {
                name.into()
            }
            None => return false,
        };
        self.exceptions.insert(key, Held::Unknown);
        true
    }

    /// The client says that it holds a version from an earlier stream (row A92). A version of another server is unknown.
    pub(crate) fn mark_held(&mut self, name: &str, version: &str) {
        let held = version.parse().map_or(Held::Unknown, Held::Version);
        self.exceptions.insert(name.into(), held);
    }

    /// Subscribes to one name; what the client holds of it is unknown from now on, also if it was subscribed to before (R7).
    pub(crate) fn add_name(&mut self, name: &str) {
        let name: Name = name.into();
        self.names.insert(Arc::clone(&name));
        self.exceptions.insert(name, Held::Unknown);
    }

    /// Unsubscribes from one name. If the wildcard covers it, the client is owed an answer (R8): it has dropped the resource.
    pub(crate) fn remove_name(&mut self, name: &str) {
        let Some(name) = self.names.take(name) else { return };
        if self.is_wildcard {
            self.exceptions.insert(name, Held::Unknown);
        } else {
            self.exceptions.remove(&name);
        }
    }

    /// Subscribes to everything; what the client holds is unknown from now on, but for what it asked for by name.
    pub(crate) fn add_wildcard(&mut self) {
        if self.is_wildcard {
            let covered = self.settled.resources().iter().filter(|resource| resource.in_wildcard());
            let unknown: Vec<Name> = covered.map(|resource| Arc::clone(resource.name())).collect();
            self.exceptions.extend(unknown.into_iter().map(|name| (name, Held::Unknown)));
            return;
        }
        for name in &self.names {
            if !self.exceptions.contains_key(name) {
                let held =
                    self.settled.find(name).map_or(Held::Gone, |resource| Held::Version(resource.version()));
                self.exceptions.insert(Arc::clone(name), held);
            }
        }
        self.settled = Arc::default();
        self.is_wildcard = true;
    }

    /// Ends the wildcard; names stay. The client drops the rest by itself (row A107).
    pub(crate) fn remove_wildcard(&mut self) {
        self.is_wildcard = false;
        let Self { names, exceptions, .. } = self;
        exceptions.retain(|name, _| names.contains(name));
    }

    /// Makes `names` the whole of what is asked for (SotW). Names that are new become unknown (rows A46, A47).
    pub(crate) fn replace_names<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let mut wanted = BTreeSet::new();
        for name in names {
            let name = self.names.get(name).cloned().unwrap_or_else(|| name.into());
            wanted.insert(name);
        }
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

    /// Whether a change of `resource` is a change for the client.
    pub(crate) fn covers(&self, resource: &Resource) -> bool {
        (self.is_wildcard && resource.in_wildcard())
            || self.names.contains(&**resource.name())
            || resource.aliases().iter().any(|alias| self.names.contains(&**alias))
    }

    /// Whether the client asks for everything or for this very name.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
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
    pub(crate) fn held(&self) -> impl Iterator<Item = (&Name, Option<Version>)> {
        let settled = self.settled.resources().iter().filter(|resource| self.covers(resource));
        let settled = settled.filter(|resource| !self.exceptions.contains_key(&**resource.name()));
        let exceptions = self.exceptions.iter().filter_map(|(name, held)| match held {
            Held::Version(version) => Some((name, Some(*version))),
            Held::Unknown => Some((name, None)),
            Held::Gone => None,
        });
        settled.map(|resource| (resource.name(), Some(resource.version()))).chain(exceptions)
    }

    /// The resource for a subscribed name, by name or alias; a name that only the wildcard could cover must belong to it.
    fn lookup<'a>(&self, table: &'a TypeTable, name: &str) -> Option<&'a Arc<Resource>> {
        let by_name = table.find(name).filter(|resource| self.covers(resource));
        by_name.or_else(|| table.find_alias(name).filter(|_| self.names.contains(name)))
    }

    fn has_exception(&self, resource: &Resource) -> bool {
        !self.exceptions.is_empty()
            && (self.exceptions.contains_key(&**resource.name())
                || resource.aliases().iter().any(|alias| self.exceptions.contains_key(&**alias)))
    }
}
