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
    /// The change, while it is not known whether it concerns the client; `types` are then those that it may concern.
    doubt: Option<Arc<ViewChange>>,
}

impl Changed {
    /// The change of a view.
    #[must_use]
    pub fn new(change: ViewChange) -> Self {
        let of_type = |(of, changes): (&ResourceType, &Arc<Changes>)| (of.clone(), names(changes));
        let names = Arc::new(Names(change.changes.iter().map(of_type).collect()));
        Self { change: Arc::new(change), names }
    }

    /// The stream of a client, if the change concerns it, or if that is not known.
    #[must_use]
    pub fn concerned(&self, entry: &StreamEntry) -> Option<ConcernedStream> {
        let known = entry.concerned(&self.change);
        let doubt = known.is_none().then(|| Arc::clone(&self.change));
        let types = known.unwrap_or_else(|| {
            let may_concern = |of: &&ResourceType| entry.with(|status| status.types.contains_key(*of));
            self.change.changes.keys().filter(may_concern).cloned().collect()
        });
        let is_any = !types.is_empty();
        is_any.then(|| ConcernedStream { id: entry.id(), names: Arc::clone(&self.names), types, doubt })
    }
}

impl ConcernedStream {
    /// Streams whose clients have to answer for everything of the types that they subscribe to.
    pub(super) fn whole(streams: Vec<(StreamId, Vec<ResourceType>)>) -> impl Iterator<Item = Self> {
        let types: BTreeSet<&ResourceType> = streams.iter().flat_map(|(_, types)| types).collect();
        let names = Arc::new(Names(types.into_iter().map(|of| (of.clone(), None)).collect()));
        streams.into_iter().map(move |(id, types)| Self { id, names: Arc::clone(&names), types, doubt: None })
    }

    /// Finds out whether the change concerns the client, if that was not known and can be known by now.
    pub(super) fn settle(&mut self, entry: &StreamEntry) {
        if let Some(types) = self.doubt.as_ref().and_then(|change| entry.concerned(change)) {
            (self.types, self.doubt) = (types, None);
        }
    }

    /// Returns `true` while it is not known whether the change concerns the client.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// The change is remembered no longer: it is taken to concern the client.
    pub(super) fn forget_change(&mut self) {
        self.doubt = None;
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
