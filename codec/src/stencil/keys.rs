//! Keys that are stored once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use xds_cache::{Name, ResourceKey, ResourceType};

/// The keys of resources in one translation. A resource and all references to it share one key. Threads can share this value.
#[derive(Debug, Default)]
pub struct Keys(Mutex<HashMap<ResourceType, HashMap<Name, Arc<ResourceKey>>>>);

impl Keys {
    /// Returns the shared key for a type and a name.
    pub(super) fn get(&self, resource_type: &ResourceType, name: &str) -> Arc<ResourceKey> {
        let mut types = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match types.get_mut(resource_type) {
            Some(known) => known,
            None => types.entry(resource_type.clone()).or_default(),
        };
        if let Some(known) = known.get(name) {
            return Arc::clone(known);
        }
        let new = Arc::new(ResourceKey { resource_type: resource_type.clone(), name: name.into() });
        known.insert(Arc::clone(&new.name), Arc::clone(&new));
        new
    }
}
