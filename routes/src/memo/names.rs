//! Names that are stored once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use xds_cache::GroupName;

use super::key::{InGroup, Name};

/// The names of clusters in one translation. Facts with the same name share it.
#[derive(Debug, Default)]
pub(super) struct NamePool(Mutex<HashMap<GroupName, HashMap<Name, InGroup>>>);

impl NamePool {
    /// Returns the shared name in a group.
    pub(super) fn get(&self, group: &GroupName, name: &str) -> InGroup {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match groups.get_mut(group) {
            Some(known) => known,
            None => groups.entry(group.clone()).or_default(),
        };
        if let Some(known) = known.get(name) {
            return known.clone();
        }
        let new = InGroup::named(group, name);
        known.insert(Arc::clone(&new.name), new.clone());
        new
    }
}
