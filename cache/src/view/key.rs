//! The key that selects a view.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::group::GroupName;
use crate::node::Profile;

/// The key that selects a view: clients with equal keys share one (D14).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewKey {
    /// The groups of the node, the one that wins first. Never empty: the default group is always the last.
    pub groups: Arc<[GroupName]>,
    /// The kind of client.
    pub profile: Profile,
    /// [`AHEAD`](crate::AHEAD) if a wave deployment has reached the node; else 0.
    pub cohort: u32,
}

impl fmt::Display for ViewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<&str> = self.groups.iter().map(GroupName::as_str).collect();
        write!(f, "{}/{}", groups.join("+"), self.profile)
    }
}

/// Views by the groups that they are of.
#[derive(Debug, Default)]
pub(crate) struct ViewsOf(HashMap<GroupName, BTreeSet<ViewKey>>);

impl ViewsOf {
    pub(crate) fn insert(&mut self, key: &ViewKey) {
        for group in key.groups.iter() {
            self.0.entry(group.clone()).or_default().insert(key.clone());
        }
    }

    pub(crate) fn remove(&mut self, key: &ViewKey) {
        for group in key.groups.iter() {
            if let Some(of_group) = self.0.get_mut(group) {
                of_group.remove(key);
                if of_group.is_empty() {
                    self.0.remove(group);
                }
            }
        }
    }

    /// The views of a group, in order.
    pub(crate) fn of(&self, group: &GroupName) -> impl Iterator<Item = &ViewKey> {
        self.0.get(group).into_iter().flatten()
    }
}
