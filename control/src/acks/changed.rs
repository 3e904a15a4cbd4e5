//! What a publication changed, as far as clients have to answer for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use xds_cache::status::{StreamEntry, StreamId};
use xds_cache::{Changes, Name, Resource, ResourceType, ViewChange};

/// A change of a view, as long as clients that come later are counted.
#[derive(Clone, Debug)]
pub struct Changed {
    pub(super) change: Arc<ViewChange>,
    names: Arc<Names>,
}

/// The names of the resources that were changed in a view, by type; `None` if clients may know one of them by another name, or there are
/// very many.
#[derive(Debug)]
struct Names(HashMap<ResourceType, Option<HashSet<Name>>>);

/// A stream whose client a change concerns.
#[derive(Clone, Debug)]
pub struct ConcernedStream {
    pub(super) id: StreamId,
    names: Arc<Names>,
    /// The changed types that it subscribes to.
    pub(super) types: Vec<ResourceType>,
}

impl Changed {
    /// The change of a view.
    #[must_use]
    pub fn new(change: ViewChange) -> Self {
        let of_type = |(of, changes): (&ResourceType, &Arc<Changes>)| (of.clone(), names(changes));
        let names = Arc::new(Names(change.changes.iter().map(of_type).collect()));
        Self { change: Arc::new(change), names }
    }

    /// The stream of a client, if the change concerns it.
    #[must_use]
    pub fn concerned(&self, entry: &StreamEntry) -> Option<ConcernedStream> {
        let types = entry.concerned(&self.change);
        let is_any = !types.is_empty();
        is_any.then(|| ConcernedStream { id: entry.id(), names: Arc::clone(&self.names), types })
    }
}

impl ConcernedStream {
    /// Streams whose clients have to answer for everything of the types that they subscribe to.
    pub(super) fn whole(streams: Vec<(StreamId, Vec<ResourceType>)>) -> impl Iterator<Item = Self> {
        let types: BTreeSet<&ResourceType> = streams.iter().flat_map(|(_, types)| types).collect();
        let names = Arc::new(Names(types.into_iter().map(|of| (of.clone(), None)).collect()));
        streams.into_iter().map(move |(id, types)| Self { id, names: Arc::clone(&names), types })
    }

    /// Returns `true` if the client has to answer for a resource that it may know by this name.
    pub(super) fn has(&self, resource_type: &ResourceType, name: &str) -> bool {
        self.names.has(resource_type, name)
    }
}

impl Names {
    /// Returns `true` if a resource that a client rejects by this name may be among those that were changed.
    fn has(&self, resource_type: &ResourceType, name: &str) -> bool {
        self.0.get(resource_type).is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(name)))
    }
}

fn names(changes: &Changes) -> Option<HashSet<Name>> {
    let has_others = |resource: &Arc<Resource>| {
        *resource.resource_type() == ResourceType::VirtualHost
            || resource.is_host_pattern()
            || !resource.aliases().is_empty()
    };
    let n_changed = changes.changed.len() + changes.removed.len();
    if n_changed > MAX_NAMES || changes.changed.iter().any(has_others) {
        return None;
    }
    let changed = changes.changed.iter().map(|resource| resource.name());
    Some(changed.chain(&changes.removed).cloned().collect())
}

/// Of how many changed resources of a type the names are remembered.
const MAX_NAMES: usize = 1_000;
