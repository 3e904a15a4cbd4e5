//! The memory of a client between plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::{Deviations, HeldBack, Name, ResourceKey, ResourceType, TypeTable, View};

use crate::target::{Detour, Transitional};

/// The memory of a client while something waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub(super) detour: Detour,
    /// The resources that are not sent yet, sorted.
    pub(super) held_back: Vec<HeldBack>,
    /// The obstacles of held updates, and since when each is waited for. Those that take too long stay here, so that nothing waits for
    /// them again.
    pub(super) awaited: BTreeMap<ResourceKey, Instant>,
    /// Retained resources that nothing but the client keeps, and since when.
    pub(super) retained: BTreeMap<ResourceKey, Instant>,
    /// Resources that are retained only because nothing tells the client that they are gone.
    pub(super) silent: BTreeSet<ResourceKey>,
    /// The times until which clusters settle that the client accepted.
    pub(super) settling: BTreeMap<Name, Instant>,
    /// When it has to be looked at again though nothing happens.
    pub(super) timeout: Option<Instant>,
}

/// Tables, by type, of what a client asks for only when it already uses what leads there.
pub(super) type Known = BTreeMap<ResourceType, Arc<TypeTable>>;

impl Waiting {
    /// The time since when a resource is held back.
    pub(super) fn since(&self, key: &ResourceKey) -> Option<Instant> {
        let position = self.held_back.binary_search_by(|held| held.resource.cmp(key)).ok()?;
        self.held_back.get(position).map(|held| held.since)
    }

    /// The client is brought to tables that differ from the view's like this. Of the types in `transient` it has not everything then.
    pub(super) fn deviate(
        &mut self,
        view: &View,
        deviations: BTreeMap<ResourceType, Deviations>,
        transient: &BTreeSet<ResourceType>,
    ) {
        for (resource_type, deviations) in deviations {
            let table = view.table(&resource_type).deviating(&deviations);
            let version_info = table.version().to_string().into();
            let is_final = !transient.contains(&resource_type);
            self.detour.transitional.insert(resource_type, Transitional { table, version_info, is_final });
        }
    }

    pub(super) fn look_again_at(&mut self, at: Option<Instant>) {
        self.timeout = self.timeout.into_iter().chain(at).min();
    }

    /// Returns `true` if nothing of it makes a difference.
    pub(super) fn is_idle(&self) -> bool {
        self.detour.transitional.is_empty()
            && self.detour.put_off.is_empty()
            && self.timeout.is_none()
            && self.settling.is_empty()
    }
}
