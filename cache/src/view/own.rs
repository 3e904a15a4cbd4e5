//! The resources that a view gets from groups other than the default one, and conflicts between groups of equal priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;

use super::members::Members;
use crate::group::GroupName;
use crate::resource_key::ResourceKey;
use crate::resource_type::ResourceType;

/// One group's part of a view, for one type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    n: usize,
    /// How many of them are part of a publication by the API.
    pub(super) n_published: usize,
}

/// The resources that a view gets from groups other than the default one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// By type and position of the group; what another group wins does not count, and no tally is empty.
    pub(super) tallies: BTreeMap<(ResourceType, usize), Tally>,
    /// By position of the group that loses.
    pub(super) conflicts: OrdMap<(usize, ResourceKey), Conflict>,
}

/// Two groups of equal priority that both have a resource for the same nodes; the first one's is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The resource.
    pub key: ResourceKey,
    /// The group whose resource is served.
    pub winner: GroupName,
    /// The other group.
    pub loser: GroupName,
}

impl Own {
    /// The resource of the groups under a key may have changed.
    pub(super) fn note(&mut self, key: &ResourceKey, before: &Members, after: &Members) {
        for (members, is_new) in [(before, false), (after, true)] {
            let Some((position, resource)) = members.find_own(key) else { continue };
            let is_published = members.get(position).is_some_and(|group| group.is_published(resource));
            let place = (key.resource_type.clone(), position);
            let tally = self.tallies.entry(place.clone()).or_default();
            if is_new {
                tally.n += 1;
                tally.n_published += usize::from(is_published);
            } else {
                tally.n -= 1;
                tally.n_published -= usize::from(is_published);
            }
            if tally.n == 0 {
                self.tallies.remove(&place);
            }
        }
        let mut winner = None;
        for (position, group) in after.own() {
            self.conflicts.remove(&(position, key.clone()));
            if !group.has(after.profile(), key) {
                continue;
            }
            let winner = *winner.get_or_insert(group);
            if !Arc::ptr_eq(winner, group) && winner.definition.priority == group.definition.priority {
                let conflict = Conflict {
                    key: key.clone(),
                    winner: winner.definition.name.clone(),
                    loser: group.definition.name.clone(),
                };
                self.conflicts.insert((position, key.clone()), conflict);
            }
        }
    }
}
