//! A view is the configuration for one kind of client: all resources of its groups at one revision.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::drain::{Drain, Draining};
use crate::node::Profile;
use crate::partial::Partials;
use crate::resource::Resource;
use crate::resource_key::ResourceKey;
use crate::resource_type::ResourceType;
use crate::table::{Changes, NONE, TypeTable};
use crate::version::Revision;
use crate::xdstp;

pub(crate) mod compile;
mod key;
mod members;
mod own;
mod past;

pub use key::ViewKey;
pub(crate) use key::ViewsOf;
pub(crate) use members::{Base, Members};
pub use own::Conflict;
use own::Own;
use past::Past;
pub(crate) use past::REMEMBERED_FOR;

/// The compiled result for one [`ViewKey`]. Never changes once published.
pub struct View {
    pub(crate) key: ViewKey,
    pub(crate) revision: Revision,
    pub(crate) epoch: u64,
    /// The sources from which it was compiled.
    members: Members,
    /// The tables below its own.
    base: Arc<Base>,
    own: Own,
    tables: BTreeMap<ResourceType, Arc<TypeTable>>,
    /// By type, where one is shown.
    labels: BTreeMap<ResourceType, Arc<str>>,
    /// The part that is served only because it still drains.
    drain: Drain,
    /// What was served before.
    past: Arc<Past>,
    partial: Partials,
}

/// The changes in one view.
#[derive(Clone, Debug)]
pub struct ViewChange {
    /// The view.
    pub key: ViewKey,
    /// By type, without types in which nothing did.
    pub changes: BTreeMap<ResourceType, Arc<Changes>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("View").field(&self.key).field(&self.revision).field(&self.epoch).finish()
    }
}

impl View {
    /// The view before any of its groups has resources.
    fn nothing(key: &ViewKey) -> Self {
        Self {
            key: key.clone(),
            revision: Revision(0),
            epoch: 0,
            members: Members::none(key),
            base: Arc::default(),
            own: Own::default(),
            tables: BTreeMap::new(),
            labels: BTreeMap::new(),
            drain: Drain::default(),
            past: Arc::default(),
            partial: Partials::default(),
        }
    }

    /// The key that selects this view.
    #[must_use]
    pub fn key(&self) -> &ViewKey {
        &self.key
    }

    /// The publication that this view shows.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Counts how often the selection of groups changed, up to the last time when that could concern a client of this view. A
    /// client resolves its groups again if the epoch of its view differs from the one at which it resolved them.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The resources of a type; an empty table if there are none.
    #[must_use]
    pub fn table(&self, resource_type: &ResourceType) -> &Arc<TypeTable> {
        self.tables.get(resource_type).unwrap_or(&NONE)
    }

    /// The tables of a type from which a recently connected client may still hold resources, oldest first: those that were
    /// served recently, if they had other names or references, and the current one.
    #[must_use]
    pub fn recent_tables(&self, resource_type: &ResourceType, now: Instant) -> Vec<Arc<TypeTable>> {
        let mut tables = self.past.of(resource_type, self.revision, now);
        tables.push(Arc::clone(self.table(resource_type)));
        tables.dedup_by_key(|table| table.version());
        tables
    }

    /// The types that have resources, in order.
    pub fn types(&self) -> impl Iterator<Item = &ResourceType> {
        self.tables.keys()
    }

    /// The changes for a client that had `older`; everything, if it had nothing.
    #[must_use]
    pub fn change_since(&self, older: Option<&Self>) -> ViewChange {
        let types: BTreeSet<&ResourceType> =
            older.into_iter().flat_map(Self::types).chain(self.types()).collect();
        let mut changes = BTreeMap::new();
        for of_type in types {
            let (table, before) = (self.table(of_type), older.map_or(&*NONE, |older| older.table(of_type)));
            if table.version() != before.version() {
                changes.insert(of_type.clone(), table.changes_since(before));
            }
        }
        ViewChange { key: self.key.clone(), changes }
    }

    /// All resources, by type and name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.tables.values().flat_map(|table| table.resources())
    }

    /// The version that a response for the type carries: the publisher's label if it has one (D4), else the table's version. It
    /// is informational; nothing depends on it.
    #[must_use]
    pub fn version_info(&self, resource_type: &ResourceType) -> &Arc<str> {
        let shown = || Some(self.tables.get(resource_type)?.version_text());
        // For a type without resources, any group's label says that nothing was published.
        let is_known = !matches!(resource_type, ResourceType::Other(_));
        let of_view = || self.members.iter().find_map(|group| group.label.as_ref()).filter(|_| is_known);
        self.labels.get(resource_type).or_else(shown).or_else(of_view).unwrap_or(NONE.version_text())
    }

    /// The resource that a client gets for a name (D15); see [`TypeTable::look_up`].
    #[must_use]
    pub fn resolve(&self, resource_type: &ResourceType, name: &str) -> Option<Arc<Resource>> {
        self.table(resource_type).resolve(&xdstp::canonical(name))
    }

    /// A served route configuration, listener with routes, or aggregate cluster without what leads to clusters that are not served; `None` if
    /// nothing of it does. For gRPC clients only: until they have every cluster, or for 15 s, C-core and grpc-js use nothing of it.
    #[must_use]
    pub fn partial(&self, key: &ResourceKey) -> Option<Arc<Resource>> {
        let leads_to_clusters = matches!(
            key.resource_type,
            ResourceType::RouteConfiguration | ResourceType::Listener | ResourceType::Cluster
        );
        if self.key.profile != Profile::Grpc || !leads_to_clusters {
            return None;
        }
        let resource = self.table(&key.resource_type).find(&key.name)?;
        resource.references().of_type(&ResourceType::Cluster).next()?;
        self.partial.of(resource, self.table(&ResourceType::Cluster))
    }

    /// Returns `true` if only the default group selects the node, and that group is empty (D3): then the server does not know
    /// the node.
    #[must_use]
    pub fn is_unmatched(&self) -> bool {
        self.key.groups.len() == 1 && self.base.tables().is_empty()
    }

    /// The draining resources and endpoints, which are served only until requests that use them have ended: resources, then
    /// endpoints.
    pub fn draining(&self) -> impl Iterator<Item = Draining> {
        self.drain.draining()
    }

    /// Conflicts between groups of equal priority, by the group that lost.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.own.conflicts.values()
    }

    /// The tables below the view's own.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// Makes this the successor of `before` for its clients.
    pub(crate) fn replaces(&self, before: &Self, now: Option<Instant>) {
        let change = self.change_since(Some(before));
        let replaced = change.changes.iter().map(|(of, changes)| (of, before.table(of), &**changes));
        self.past.note(self.revision, now, replaced);
    }

    /// Drops tables that were served so long ago that a client that reconnects no longer counts as using them.
    pub(crate) fn forget_past(&self, now: Instant) {
        self.past.forget(now);
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// A resource without its draining endpoints.
    pub(crate) fn undrained(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        let of_endpoints = key.resource_type == ResourceType::ClusterLoadAssignment;
        let own = self.drain.own_assignment(&key.name).filter(|_| of_endpoints);
        own.or_else(|| self.table(&key.resource_type).find(&key.name))
    }
}
